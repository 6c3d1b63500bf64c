from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.log.log import Log
from tests.unit.log.cleaner.compacting import COMPACT, Opened
from tests.unit.log.logs import Clock, open_log


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    """Opens the log of the test; closed in the end."""
    logs: list[Log] = []

    def opening(**how: Any) -> Log:
        given = {"cleanup_policy": COMPACT, "min_cleanable_dirty_ratio": 0.0, **how}
        log = open_log(tmp_path / "t-0", clock, **given)
        logs.append(log)
        return log

    yield opening
    for log in logs:
        log.close()
