"""What is measured of opening: a log of many segments, shut down cleanly, beside its bare listing.

Opening and closing are one call, since a log is open for appending once only. The same number of
nanoseconds for each segment of a log twice as long is what makes it linear.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from bench import datagen
from bench.case import Case
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

COUNT = 1000


def open_cases() -> list[Case]:
    """Every case of the group."""
    return [
        *(
            Case("open", f"open {count} segments", "segment", partial(_prepare, count=count))
            for count in (COUNT, 2 * COUNT)
        ),
        Case("open", f"open {COUNT} segments for reading", "segment", _prepare_reading),
    ]


def _prepare_reading(_: ExitStack) -> Contest:
    from bench import subjects

    path = partition(COUNT)
    rivals = (Versus("list and stat", _listing(path, COUNT)),)
    return Contest(subjects.open_log(path, COUNT), rivals, COUNT)


def _prepare(_: ExitStack, *, count: int) -> Contest:
    from bench import subjects

    path = partition(count)
    rivals = (
        Versus("list and stat", _listing(path, count)),
        Versus("open for reading", subjects.open_log(path, count)),
    )
    return Contest(subjects.open_for_appending(path, count), rivals, count)


def partition(count: int) -> Path:
    """A partition directory with so many segments, of one record each; made once."""
    from kseg.format.encode import encode_batch
    from kseg.format.options import BatchOptions
    from kseg.log.config import LogConfig
    from kseg.log.log import Log

    path = datagen.DATA / f"v{datagen.VERSION}-open-{count}" / "t-0"
    if path.exists():
        return path
    batch = encode_batch({"value": [bytes(100)], "timestamp": [1_700_000_000_000]}, BatchOptions())
    config = LogConfig(segment_bytes=len(batch.data) + 100)
    with Log.open(path, mode="append", create=True, config=config) as log:
        for _ in range(count):
            log.append(batch)
    return path


def _listing(path: Path, count: int) -> Callable[[], int]:
    """What nobody who wants to know the sizes of the files can do without."""

    def look() -> int:
        with os.scandir(path) as entries:
            sizes = [entry.stat().st_size for entry in entries]
        assert len(sizes) > count
        return count

    return look
