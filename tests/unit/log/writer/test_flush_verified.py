"""What the tests of logs ask of every log that is closed: the check itself can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.log.logs import one, open_log
from tests.verified import LOGS_MAX, Closed


def test_a_log_that_was_damaged_under_its_writer_fails_the_test(
    tmp_path: Path, closes: Closed
) -> None:
    log = open_log(tmp_path / "data" / "t-0")
    log.append(one(b"x" * 100))
    path = log.path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(AssertionError, match="batch-crc"):
        log.close()
    assert closes.left == LOGS_MAX - 1


@pytest.mark.damages("to see that nothing is asked then")
def test_a_test_that_damages_is_not_asked(tmp_path: Path, closes: Closed) -> None:
    with open_log(tmp_path / "data" / "t-0") as log:
        log.append(one(b"x" * 100))
        path = log.path / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert closes.left == 0
