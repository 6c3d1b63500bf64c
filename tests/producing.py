"""Headers of batches that producers write, and a plain second telling of what a log knows of them.

The telling follows the rules for what a log holds already, batch by batch, with nothing saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from kseg.constants import ControlType, StopReason
from kseg.format.header import CONTROL, TRANSACTIONAL, BatchHeader, BatchTable
from kseg.log.producers.state import CompletedTxn, ProducerState, ProducerUpdate
from kseg.log.validate.rules import AppendOrigin

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
SEQUENCE_MAX = 2**31 - 1


def header(**fields: int) -> BatchHeader:
    given = {
        "position": 0,
        "size": 100,
        "magic": 2,
        "base_offset": 0,
        "last_offset": 0,
        "leader_epoch": 0,
        "crc": 0,
        "attributes": 0,
        "base_timestamp": 0,
        "max_timestamp": 0,
        "producer_id": 1,
        "producer_epoch": 0,
        "base_sequence": -1,
        "record_count": 1,
        "crc_ok": 1,
        "control_type": -1,
        "coordinator_epoch": -1,
    }
    assert fields.keys() <= given.keys()
    return BatchHeader(**{**given, **fields})


def data(
    sequence: int,
    offset: int = 0,
    *,
    producer: int = 1,
    epoch: int = 0,
    count: int = 1,
    time: int = 0,
    transactional: bool = False,
) -> BatchHeader:
    return header(
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        base_offset=offset,
        last_offset=offset + count - 1,
        record_count=count,
        max_timestamp=time,
        attributes=TRANSACTIONAL if transactional else 0,
    )


def marker(
    kind: int,
    offset: int = 0,
    *,
    producer: int = 1,
    epoch: int = 0,
    coordinator: int = 0,
    time: int = 0,
) -> BatchHeader:
    return header(
        producer_id=producer,
        producer_epoch=epoch,
        base_offset=offset,
        last_offset=offset,
        max_timestamp=time,
        attributes=TRANSACTIONAL | CONTROL,
        control_type=kind,
        coordinator_epoch=coordinator,
    )


def first_undecided(state: ProducerState) -> int | None:
    return state.ongoing[0][1].offset if state.ongoing else None


def table(headers: Iterable[BatchHeader]) -> BatchTable:
    given = list(headers)
    rows = np.array([astuple(one) for one in given], np.int64).reshape(len(given), 17)
    seen = int(np.bitwise_or.reduce(rows[:, 7])) if given else 0
    return BatchTable(rows, 0, StopReason.END, attributes_seen=seen, magics_seen=4)


def append(
    state: ProducerState, *batches: BatchHeader, origin: AppendOrigin = CLIENT
) -> tuple[CompletedTxn, ...]:
    """One append from checking to completing; what a log does, without the log."""
    update: ProducerUpdate = state.prepare(table(batches), origin=origin)
    assert update.duplicate is None
    completed = state.commit(update)
    for transaction in completed:
        state.complete(transaction)
    state.map_end_offset = batches[-1].last_offset + 1
    return completed


def described(state: ProducerState) -> dict[int, tuple[Any, ...]]:
    return {
        key: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
            [tuple(known) for known in entry.batches],
        )
        for key, entry in state.entries.items()
    }


@dataclass
class Producer:
    epoch: int = -1
    coordinator: int = -1
    time: int = -1
    first: int | None = None
    #: Last sequence, last offset, delta, timestamp.
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass
class PlainProducers:
    """What a log knows of its producers, told as simply as can be."""

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)

    def take(self, batch: BatchHeader) -> None:
        if batch.producer_id < 0:
            return
        one = self.producers.setdefault(batch.producer_id, Producer())
        if batch.is_control:
            if batch.record_count:
                self._marker(one, batch)
            return
        self._enter(one, batch.producer_epoch)
        delta = batch.last_offset - batch.base_offset
        described = (batch.last_sequence, batch.last_offset, delta, batch.max_timestamp)
        one.batches = [*one.batches, described][-5:]
        one.time = batch.max_timestamp
        if batch.is_transactional and one.first is None:
            one.first = batch.base_offset
        elif not batch.is_transactional and one.first is not None:
            self.faults.append(batch.base_offset)

    def _marker(self, one: Producer, batch: BatchHeader) -> None:
        if batch.control_type not in (ABORT, COMMIT):
            self.faults.append(batch.base_offset)
            return
        if batch.control_type == ABORT and one.first is not None:
            others = [p.first for p in self.producers.values() if p.first is not None]
            others.remove(one.first)
            stable = min([*others, batch.base_offset + 1])
            self.aborted.append((batch.producer_id, one.first, batch.base_offset, stable))
        one.first = None
        self._enter(one, batch.producer_epoch)
        one.coordinator, one.time = batch.coordinator_epoch, batch.max_timestamp

    def _enter(self, one: Producer, epoch: int) -> None:
        if epoch != one.epoch:
            one.epoch, one.batches = epoch, []
