"""Logs for tests of reading and cutting: made in one line, and told again batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.log.config import LogConfig
from kseg.log.log import Log
from tests import reference
from tests.builders import batch, record

NOW_MS = 1_700_000_000_000


def new_log(root: Path, **settings: Any) -> Log:
    """An empty log for appending, in a data directory of its own."""
    data = root / f"data-{len(list(root.glob('data-*')))}"
    data.mkdir()
    return open_log(data / "t-0", create=True, **settings)


def open_log(path: Path, *, create: bool = False, recover: bool = False, **settings: Any) -> Log:
    """A log for appending, on a clock that stands still."""
    small = {"index_interval_bytes": 100, "segment_index_bytes": 4_800}
    config = LogConfig(**{**small, **settings})
    return Log.open(
        path,
        mode="append",
        create=create,
        recover=recover,
        config=config,
        now_ms=lambda: NOW_MS,
    )


def stored(
    base_offset: int,
    count: int = 1,
    *,
    time: int = NOW_MS,
    size: int = 20,
    **fields: Any,
) -> bytes:
    """A batch as a follower gets it; each value begins with its offset."""
    given = [
        record(b"%d " % (base_offset + index) + bytes(size), timestamp=time + index)
        for index in range(count)
    ]
    return batch(given, base_offset=base_offset, **fields)


def fill(log: Log, counts: Iterable[int], *, gap: int = 0, **fields: Any) -> None:
    """Append batches of so many records each, with so many offsets left out in front of each."""
    for count in counts:
        log.append_as_follower(stored(log.log_end_offset + gap, count, **fields))


@dataclass(frozen=True)
class Told:
    """A batch of a log: where it lies and what offsets it has."""

    segment: int
    position: int
    size: int
    base_offset: int
    last_offset: int
    data: bytes


def told(path: Path) -> list[Told]:
    """Every batch of a partition directory, by the plain reference walk."""
    batches = []
    for file in sorted(path.glob("*.log")):
        data = file.read_bytes()
        for each in reference.walk(data).batches:
            at, size = each.position, each.size
            batches.append(
                Told(int(file.stem), at, size, each.base_offset, each.last_offset, data[at:][:size])
            )
    return batches


def offsets_of(columns: Iterable[Any]) -> list[int]:
    """The offsets of all pieces."""
    return [int(offset) for piece in columns for offset in piece["offset"]]


def thirty_records(root: Path) -> Log:
    """Thirty records in ten batches in four segments: 0, 9, 18 and 27."""
    log = new_log(root, segment_bytes=500)
    fill(log, [3] * 10)
    assert [info.base_offset for info in log.segments] == [0, 9, 18, 27]
    log.flush()
    return log


def checkpoint(log: Log, name: str) -> int | None:
    """What a checkpoint of the data directory says of a log, if anything."""
    try:
        return read_offset_checkpoint(log.path.parent / name).get(TopicPartition("t", 0))
    except FileNotFoundError:
        return None
