"""Logs for tests of compaction: a line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kseg
from kseg.log.log import Log
from tests import reference
from tests.builders import ABORT, COMMIT, batch, record
from tests.unit.log.logs import NOW_MS, marker

COMPACT = frozenset({"compact"})
#: Opens the log of the test, with settings.
Opened = Callable[..., Log]


def keyed(key: bytes | None, value: bytes | None = b"v", *more: bytes, **fields: Any) -> bytes:
    """A batch of a record, or of one for each of more keys."""
    given = [record(value, key=one, timestamp=NOW_MS) for one in (key, *more)]
    return batch(given, **{"leader_epoch": -1, **fields})


def fill(log: Log, *batches: bytes, roll: bool = True) -> Log:
    for data in batches:
        log.append(data)
    if roll:
        log.roll()
    return log


def compact(log: Log, **how: Any) -> kseg.reports.CompactionReport:
    return kseg.plan_compaction(log, **how).apply()


def kept(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in log.records()]


def batches_of(log: Log) -> list[reference.Batch]:
    return [one for info in log.segments for one in reference.walk(info.path.read_bytes()).batches]


def bases(log: Log) -> list[int]:
    return [info.base_offset for info in log.segments]


def names(log: Log) -> list[str]:
    return sorted(path.name for path in log.path.iterdir())


def sent(key: bytes, sequence: int, producer: int = 9, *more: bytes) -> bytes:
    """A batch of a transaction."""
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return keyed(key, b"v", *more, transactional=True, **fields)


@dataclass(slots=True)
class Producer:
    """One that sends to a log, in transactions unless told otherwise."""

    log: Log
    id: int = 9
    sequence: int = 0

    def send(self, *keys: bytes, value: bytes | None = b"v", transactional: bool = True) -> None:
        fields = {"producer_id": self.id, "producer_epoch": 0, "base_sequence": self.sequence}
        data = keyed(keys[0], value, *keys[1:], transactional=transactional, **fields)
        self.sequence += len(keys)
        self.log.append(data)

    def end(self, kind: int) -> None:
        self.log.append(marker(kind, producer=self.id), origin=kseg.broker.AppendOrigin.COORDINATOR)

    def commit(self) -> None:
        self.end(COMMIT)

    def abort(self) -> None:
        self.end(ABORT)
