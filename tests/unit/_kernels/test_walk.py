"""What an index says, and how headers are read, changes nothing that a walk over them finds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from kseg._kernels import walk
from kseg.constants import StopReason
from kseg.format.header import empty_table, scan
from tests.builders import batch, control_batch, messages, record
from tests.fuzz import ahead

LARGE = batch([record(b"v" * 20_000)])
#: What a walk over headers that are read alone leaves to the other one.
LEFT = {
    "torn": LARGE[:-1],
    "torn header": LARGE[:40],
    "zeros": bytes(300),
    "a negative length": LARGE[:8] + b"\xff" * 4 + LARGE[12:],
    "too short for a header": LARGE[:8] + (48).to_bytes(4, "big") + LARGE[12:],
    "magic 3": LARGE[:16] + b"\x03" + LARGE[17:],
    "a negative magic": LARGE[:16] + b"\xff" + LARGE[17:],
    "a control batch that is too long": LARGE[:22] + b"\x20" + LARGE[23:],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a log, where headers can be read alone."""
    path = tmp_path / "log"
    path.write_bytes(LARGE)
    if not len(ahead.cached(path, limit=1)):
        pytest.skip("a file system that does not tell what is in memory")
    return path


@pytest.mark.disk
@pytest.mark.parametrize("left", LEFT)
def test_headers_are_read_alone_up_to_what_is_unusual(path: Path, left: str) -> None:
    usual = LARGE + messages([record(b"v" * 9_000)], magic=1) + control_batch(1) + LARGE
    path.write_bytes(usual + LEFT[left])
    found = ahead.cached(path, limit=2**62)
    ahead.same(found, scan(usual + LARGE, on_bad_crc="note", batches_max=4))
    assert (found.stop, found.end_position) == (StopReason.LIMIT, len(usual))


@pytest.mark.disk
def test_headers_read_alone_end_at_a_limit_and_with_the_rows(path: Path) -> None:
    path.write_bytes(LARGE * 5)
    assert len(ahead.cached(path, limit=len(LARGE) + 1)) == 2
    assert len(ahead.cached(path, limit=2**62, rows_max=3)) == 3
    assert ahead.cached(path, limit=2**62).stop is StopReason.END
    assert ahead.cached(path, start=5 * len(LARGE), limit=2**62).stop is StopReason.END


@pytest.mark.disk
def test_what_is_no_file_has_no_headers(path: Path) -> None:
    rows, told = empty_table(1)
    walk.scan_cached(-1, start=0, limit=100, file_end=100, rows=rows, walk=told)
    assert told[0] == 0
    with pytest.raises(ValueError, match="wrong width"):
        walk.scan_cached(
            -1, start=0, limit=1, file_end=1, rows=np.empty((1, 3), np.int64), walk=told
        )
    with pytest.raises(ValueError, match="do not fit"):
        walk.scan_cached(-1, start=2, limit=1, file_end=1, rows=rows, walk=told)


@pytest.mark.parametrize("part", range(8))
def test_a_walk_finds_the_same_whatever_an_index_says(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        try:
            ahead.check(Random(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
