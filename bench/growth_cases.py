"""What is measured of growth: the same work on twice as much, beside that on half of it.

Where time grows with the size and no faster, both take the same time for each unit, and the ratio
is 1; t(2n)/t(n) is two divided by it. Both logs lie in segments of 4 MiB.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from bench import open_cases
from bench.case import Case, scratch
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from kseg.log.config import LogConfig

    Prepare = Callable[[ExitStack, int], Callable[[], int]]

SEGMENT_BYTES = 4 << 20
BATCH_BYTES, BATCHES = 64 << 10, 512
SEGMENTS = open_cases.COUNT


def growth_cases() -> list[Case]:
    """Every case of the group."""
    return [
        Case("growth", "append twice as much", "byte", partial(_prepare, appending, BATCHES)),
        Case("growth", "recover twice as much", "byte", partial(_prepare, recovering, BATCHES)),
        Case("growth", "open twice as much", "segment", partial(_prepare, opening, SEGMENTS)),
        Case("growth", "read twice as much", "record", partial(_prepare, reading, BATCHES)),
    ]


def _prepare(make: Prepare, size: int, stack: ExitStack) -> Contest:
    half = Versus("half of it", make(stack, size))
    return Contest(make(stack, 2 * size), (half,))


def _config() -> LogConfig:
    from kseg.log.config import LogConfig

    return LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)


def _written(path: Path, batch: bytes, count: int) -> int:
    """A log of so many batches as a leader appends them; answers its bytes."""
    from bench import subjects
    from kseg.log.log import Log

    now_ms = partial(int, subjects.NOW_MS)
    with Log.open(path, mode="append", create=True, config=_config(), now_ms=now_ms) as log:
        for _ in range(count):
            log.append(batch)
    return count * len(batch)


def appending(stack: ExitStack, count: int) -> Callable[[], int]:
    """Append so many batches to a new log, and close it; answers bytes."""
    from bench import subjects

    root, batch, numbers = scratch(stack), subjects.batch_of(BATCH_BYTES), itertools.count()

    def append() -> int:
        return _written(root / f"t-{next(numbers)}", batch, count)

    return append


def recovering(stack: ExitStack, count: int) -> Callable[[], int]:
    """Recover a log of so many batches of which nothing is known to be flushed; answers bytes."""
    from bench import subjects
    from kseg.files.grammar import FileKind
    from kseg.log.recovery.recover import recover

    root = scratch(stack)
    size = _written(root / "t-0", subjects.batch_of(BATCH_BYTES), count)

    def walk() -> int:
        for kind in (FileKind.CLEAN_SHUTDOWN, FileKind.RECOVERY_POINT):
            (root / kind.value).unlink(missing_ok=True)
        recover(root / "t-0", config=_config())
        return size

    return walk


def opening(_: ExitStack, count: int) -> Callable[[], int]:
    """Open a log of so many segments that was shut down cleanly, and close it; answers segments."""
    from bench import subjects

    return subjects.open_for_appending(open_cases.partition(count), count)


def reading(stack: ExitStack, count: int) -> Callable[[], int]:
    """Read all offsets, times, keys and values of a log of so many batches; answers records."""
    import kseg
    from bench import subjects

    path = scratch(stack) / "t-0"
    _written(path, subjects.batch_of(BATCH_BYTES), count)

    def read() -> int:
        fields = ("offset", "timestamp", "key", "value")
        return sum(len(columns) for columns in kseg.scan(path, columns=fields))

    return read
