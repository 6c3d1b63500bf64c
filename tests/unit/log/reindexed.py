"""A partition of three segments, and what making its indexes anew does to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.config import LogConfig
from kseg.log.recovery.reindex import ReindexPlan, plan_reindex
from tests.builders import ABORT, COMMIT, batch, control_batch, record, write_segment
from tests.segments import batch_of

CONFIG = LogConfig(index_interval_bytes=100)
DAY_MS = 86_400_000


def plain(first: int, count: int) -> list[bytes]:
    return [batch_of(90, base_offset=first + i, timestamp=1000 + first + i) for i in range(count)]


def data(offset: int, producer: int, sequence: int = 0) -> bytes:
    return batch(
        [record(b"v", timestamp=DAY_MS + offset)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


#: Three segments: two of data, the third one ends with an aborted transaction of the second.
SEGMENTS = {
    10: [*plain(10, 6)],
    16: [*plain(16, 4), data(20, 5), data(21, 6), control_batch(COMMIT, base_offset=22)],
    23: [
        control_batch(ABORT, base_offset=23, producer_id=5),
        data(24, 5, 1),
        control_batch(COMMIT, base_offset=25, producer_id=6),
    ],
}
END = 26


def bare(tmp_path: Path, name: str = "t-0") -> Path:
    """A partition with logs alone."""
    directory = tmp_path / "data" / name
    directory.mkdir(parents=True)
    for base, parts in SEGMENTS.items():
        write_segment(directory, base, *parts)
    return directory


def plan(directory: Path, **how: Any) -> ReindexPlan:
    return plan_reindex(directory, **{"config": CONFIG, **how})


def apply(directory: Path, **how: Any) -> list[tuple[str, str]]:
    """What was done: (action, file name)."""
    report = plan(directory, **how).apply(keep=False)
    assert plan(directory, **how).is_noop
    return [(file.action, file.path.name) for file in report.files]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def name(base: int, suffix: str) -> str:
    return f"{base:020d}.{suffix}"


def entry(producer: int, last_offset: int, *, sequence: int = 0) -> ProducerSnapshotEntry:
    return ProducerSnapshotEntry(
        producer_id=producer,
        producer_epoch=0,
        last_sequence=sequence,
        last_offset=last_offset,
        offset_delta=0,
        last_timestamp=DAY_MS,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )
