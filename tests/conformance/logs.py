"""Logs that the checklist's tests write: made in a line, on a clock that stands until it is moved.

Each has a data directory of its own, since that is what a log's lock, mark and checkpoints lie in.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kseg.errors import KsegError
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.producers.entry import ProducerEntry
from tests.builders import ABORT, COMMIT, NONE, batch, control_batch, record

NOW_MS = 1_700_000_000_000
INT_MAX = 2**31 - 1
PARTITION = TopicPartition("t", 0)


@dataclass
class Clock:
    """The time, where a test puts it."""

    ms: int = NOW_MS

    def __call__(self) -> int:
        return self.ms

    def sleep(self, ms: int) -> None:
        self.ms += ms


@dataclass
class Logs:
    """Makes logs, and closes those that a test leaves open."""

    root: Path
    clock: Clock = field(default_factory=Clock)
    _made: list[Log] = field(default_factory=list)
    _count: int = 0

    def directory(self) -> Path:
        """A partition directory that is not there yet, in a data directory of its own."""
        self._count += 1
        data = self.root / f"data-{self._count}"
        data.mkdir()
        return data / "t-0"

    def open(self, path: Path, **how: Any) -> Log:
        """A log for appending; settings of `LogConfig` may be among the arguments."""
        known = {name: how.pop(name) for name in list(how) if name in LogConfig.__slots__}
        how.setdefault("config", LogConfig(**known))
        log = Log.open(path, mode="append", now_ms=self.clock, **how)
        self._made.append(log)
        return log

    def new(self, **how: Any) -> Log:
        """An empty log."""
        return self.open(self.directory(), create=True, **how)

    def again(self, log: Log, **how: Any) -> Log:
        """The same after a clean stop."""
        log.close()
        return self.open(log.path, **{"config": log.config, **how})

    def after_crash(self, log: Log, *, recovery_point: int = 0, start: int = 0, **how: Any) -> Log:
        """A copy of the files as they lie now, with these checkpoints, recovered."""
        path = self.as_it_lies(log.path)
        write_offset_checkpoint(
            path.parent / "recovery-point-offset-checkpoint", {PARTITION: recovery_point}
        )
        write_offset_checkpoint(path.parent / "log-start-offset-checkpoint", {PARTITION: start})
        return self.open(path, recover=True, **{"config": log.config, **how})

    def as_it_lies(self, path: Path) -> Path:
        """A copy of a partition directory, in a data directory without a mark."""
        copy = self.directory()
        shutil.copytree(path, copy)
        return copy

    def close(self) -> None:
        """Let go of everything; a log that failed is not closed well, and that is no matter."""
        for log in self._made:
            with closing_badly():
                log.close()


@contextmanager
def closing_badly() -> Iterator[None]:
    try:
        yield
    except (KsegError, OSError):
        return


def one(
    value: bytes = b"hello",
    *,
    key: bytes | None = None,
    time: int = NOW_MS,
    count: int = 1,
    codec: int = NONE,
    **fields: Any,
) -> bytes:
    """A batch as a producer sends it, of `count` equal records."""
    given = [record(value, key=key, timestamp=time) for _ in range(count)]
    return batch(given, codec=codec, **{"leader_epoch": -1, **fields})


#: Of a batch with one record of the value "hello".
ONE = len(one())


def bases(log: Log) -> list[int]:
    """Where each segment begins."""
    return [info.base_offset for info in log.segments]


def offsets(log: Log, **where: Any) -> list[int]:
    """The offsets of all records that reading gives."""
    return [found.offset for found in log.records(**where)]


def named(log: Log, pattern: str) -> list[str]:
    """The files of a directory by a pattern, each offset without its leading zeros."""
    found = [path.name.partition(".") for path in sorted(log.path.glob(pattern))]
    return [f"{int(offset)}{dot}{rest}" for offset, dot, rest in found]


def snapshots(log: Log) -> list[int]:
    """The offsets of the producer snapshots that lie in the directory."""
    return sorted(int(path.name.partition(".")[0]) for path in log.path.glob("*.snapshot"))


def as_reported(entry: ProducerEntry) -> dict[str, Any]:
    """A producer under the names that vectors have."""
    batches = [
        {
            "first_seq": known.first_sequence,
            "last_seq": known.last_sequence,
            "first_offset": known.first_offset,
            "last_offset": known.last_offset,
            "timestamp": known.timestamp,
        }
        for known in entry.batches
    ]
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.current_txn_first_offset,
        "batches": batches,
    }


def four_producers() -> list[bytes]:
    """Kafka's scenario: transactions of four producers, two of them aborted, and plain data."""
    sequences = dict.fromkeys((1, 2, 3, 4), 0)

    def data(producer: int, count: int) -> bytes:
        sequences[producer] += count
        return one(
            count=count,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer] - count,
            transactional=True,
        )

    def marker(kind: int, producer: int) -> bytes:
        return control_batch(kind, producer_id=producer)

    return [
        *(data(1, 5), one(count=3), data(2, 2), data(1, 4), data(3, 3), one(count=2), data(1, 10)),
        marker(ABORT, 1),  # 29
        *(data(2, 6), data(4, 3), one(count=10), data(3, 9)),
        marker(COMMIT, 3),  # 58
        *(data(4, 8), data(2, 7)),
        marker(ABORT, 2),  # 74
        *(one(count=10), data(4, 4)),
        marker(COMMIT, 4),  # 89
    ]
