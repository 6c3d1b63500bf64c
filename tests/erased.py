"""A second implementation of erasing, in plain Python over `tests/reference.py`.

erased_of(directory, ...)    which records are meant, of the log as it lies there
differences(before, after)   where a log is not as it was but for these records
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tests import reference
from tests.reference import Batch, Record

Log = dict[int, list[tuple[Batch, list[Record]]]]


@dataclass(frozen=True, slots=True)
class Meant:
    """Which records are erased; the fields are those of `plan_erasure`."""

    keys: tuple[bytes, ...] = ()
    null_key: bool = False
    offsets: range | None = None
    tombstones: bool = False

    @classmethod
    def by_chance(cls, chance: Random, log: Log) -> Meant:
        """Keys of the log, or others, or offsets of it."""
        records = [record for _, record in records_of(log)]
        keys = sorted({record.key for record in records if record.key is not None})
        kind = chance.choice(("key", "keys", "tombstones", "null", "offsets"))
        if kind == "offsets" and records:
            first = chance.choice(records).offset
            return cls(offsets=range(first, first + chance.choice((1, 3, 20))))
        if kind == "null":
            return cls(null_key=True, keys=tuple(keys[:1]))
        count = 1 if kind == "key" else 3
        some = chance.sample(keys, min(count, len(keys))) or [b"unknown"]
        return cls(tuple(some), tombstones=kind == "tombstones")

    @property
    def asked(self) -> dict[str, Any]:
        """As arguments of `plan_erasure`."""
        return {name: getattr(self, name) for name in self.__slots__}

    def holds(self, batch: Batch, record: Record) -> bool:
        """Whether a record is meant."""
        if batch.is_control:
            return False
        if self.offsets is not None:
            return record.offset in self.offsets
        return record.key in self.keys or (self.null_key and record.key is None)


def read(directory: Path) -> Log:
    """The batches of each segment, with their records."""
    log: Log = {}
    for path in sorted(directory.glob("*.log")):
        batches = reference.walk(path.read_bytes()).batches
        log[int(path.stem)] = [(one, list(reference.records(one))) for one in batches]
    return log


def records_of(log: Log) -> Iterator[tuple[Batch, Record]]:
    """Each record with its batch."""
    for batches in log.values():
        for batch, records in batches:
            for record in records:
                yield batch, record


def expected(log: Log, meant: Meant) -> dict[int, Record]:
    """The records by their offsets, without those that go, and with those that are emptied."""
    end = max((batch.last_offset for batches in log.values() for batch, _ in batches), default=-1)
    last = {record.key: record.offset for batch, record in records_of(log)}
    left: dict[int, Record] = {}
    for batches in log.values():
        for batch, records in batches:
            for record in records:
                is_last = meant.tombstones and last[record.key] == record.offset
                ends_wrapper = batch.magic < 2 and (
                    (batch.codec and record is records[-1]) or record.offset == end
                )
                if not meant.holds(batch, record):
                    left[record.offset] = _said(record)
                elif is_last:
                    left[record.offset] = _said(replace(record, value=None, headers=()))
                elif ends_wrapper:
                    left[record.offset] = _said(replace(record, key=None, value=None))
    return left


def _said(record: Record) -> Record:
    """A record without what the rewrite of its batch may change."""
    return replace(record, size=0, attributes=0)


def differences(before: Log, after: Log, meant: Meant) -> list[object]:
    """Where a log is not as it was but for the records that are erased."""
    wrong: list[object] = []
    left = {record.offset: _said(record) for _, record in records_of(after)}
    wanted = expected(before, meant)
    wrong += [
        (offset, wanted.get(offset), left.get(offset))
        for offset in sorted(left.keys() | wanted.keys())
        if left.get(offset) != wanted.get(offset)
    ]
    new = {
        batch.base_offset if batch.magic >= 2 else batch.last_offset: batch
        for batches in after.values()
        for batch, _ in batches
    }
    for batches in before.values():
        for batch, records in batches:
            now = new.get(batch.base_offset if batch.magic >= 2 else batch.last_offset)
            is_touched = any(
                meant.holds(batch, record) and wanted.get(record.offset) != _said(record)
                for record in records
            )
            if not is_touched and (now is None or now.data != batch.data):
                wrong.append(("changed", batch, now))
            elif now is not None and _fields(now) != _fields(batch):
                wrong.append(("fields", _fields(batch), _fields(now)))
    return wrong


def _fields(batch: Batch) -> tuple[object, ...]:
    """What a batch keeps when it loses records; times only where they are those of the batch."""
    if batch.magic < 2:
        return (batch.magic, batch.codec)
    return (
        *(batch.magic, batch.base_offset, batch.last_offset, batch.leader_epoch),
        *(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        *(batch.is_transactional, batch.is_control, batch.delete_horizon_ms),
        batch.timestamp_type,
    )
