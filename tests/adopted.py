"""Logs to adopt, made by chance, and what must be read of them: a second implementation.

`Source` writes logs with Kafka's rules, and notes each record with its transaction. `expected` says
which records a partition serves after an adoption, by the notes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import kseg
from kseg import BatchBuilder, BatchOptions, Compression, LogConfig
from kseg.broker import AppendOrigin
from kseg.control import ControlType
from kseg.log.log import Log
from tests.coordinators import TRANSACTIONS, LogWriter, pair
from tests.unit.log.settings import made
from tests.unit.log.settings.made import FIRST, Broker

BEGIN_MS = 1_790_000_000_000
CONFIG = LogConfig(segment_bytes=4_096, index_interval_bytes=256, retention_ms=-1)


class Note(NamedTuple):
    """A record: its partition, offset, time and value, and the transaction that it is of."""

    partition: int
    offset: int
    time_ms: int
    value: bytes
    transaction: int | None


class BatchNote(NamedTuple):
    """A batch: its partition, offsets and times, and the transaction that it ends, as a marker."""

    partition: int
    base_offset: int
    last_offset: int
    first_ms: int
    max_ms: int
    ends: int | None


@dataclass
class Source:
    """Logs of one topic, written batch by batch at a clock that goes on with each.

    The times of records lie up to `late_ms` before that clock, in any order. With `bumps`, the
    epoch of a producer rises with each transaction (KIP-890).
    """

    home: Path
    count: int
    chance: Random
    topic: str = "old"
    first_producer: int = 0
    begin_ms: int = BEGIN_MS
    late_ms: int = 0
    bumps: bool = False
    epochs: dict[int, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    batches: list[BatchNote] = field(default_factory=list)
    #: By transaction: whether it commits, and when that was decided.
    ends: dict[int, tuple[bool, int]] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    #: What their coordinator noted: when, the producer and its epoch, and `transactionStatus`.
    states: list[tuple[int, int, int, int]] = field(default_factory=list)

    def write(self, steps: int, *, ends_all: bool = False) -> None:
        self.home.mkdir(exist_ok=True)
        logs = [
            Log.open(self.home / f"{self.topic}-{n}", mode="append", create=True, config=CONFIG)
            for n in range(self.count)
        ]
        self.now_ms, number = self.begin_ms, 0
        #: Producer -> its transaction and the partitions in it.
        open_ones: dict[int, tuple[int, set[int]]] = {}
        sequences: dict[tuple[int, int, int], int] = {}
        for _ in range(steps):
            self.now_ms += self.chance.randint(1, 50)
            partition, producer = self.chance.randrange(self.count), self.chance.randrange(3)
            log, ident = logs[partition], self.first_producer + producer
            match self.chance.choice(("plain", "idempotent", "begin", "begin", "end")):
                case "plain":
                    self._append(log, partition, None)
                case "idempotent":
                    options = self._next(sequences, (partition, ident + 10))
                    self._append(log, partition, None, **options)
                case "begin":
                    if ident not in open_ones:
                        self.states.append((self.now_ms, ident, self.epochs.get(ident, 0), 1))
                    transaction, inside = open_ones.setdefault(ident, (number, set()))
                    number += 1
                    inside.add(partition)
                    options = self._next(sequences, (partition, ident))
                    self._append(log, partition, transaction, transactional=True, **options)
                case "end" if ident in open_ones:
                    self._end_all(logs, ident, *open_ones.pop(ident))
        for ident, (transaction, inside) in open_ones.items() if ends_all else ():
            self._end_all(logs, ident, transaction, inside)
        for log in logs:
            log.close()

    def _end_all(
        self, logs: Sequence[Log], producer: int, transaction: int, inside: set[int]
    ) -> None:
        commits = self.chance.random() < 0.6
        self.ends[transaction] = (commits, self.now_ms)
        self.producers[transaction] = producer - self.first_producer
        self.epochs[producer] = self.epochs.get(producer, 0) + self.bumps
        self.states.append((self.now_ms, producer, self.epochs[producer], 4 if commits else 5))
        for each in sorted(inside):
            at = self._end(logs[each], producer, commits=commits)
            self.batches.append(BatchNote(each, at, at, self.now_ms, self.now_ms, transaction))

    def write_states(self) -> None:
        """Write the log of their coordinator beside them."""
        writer = LogWriter(self.home / f"{TRANSACTIONS}-0")
        for time_ms, producer, epoch, status in self.states:
            value = {
                "producerId": producer,
                "producerEpoch": epoch,
                "transactionStatus": status,
                "transactionLastUpdateTimestampMs": time_ms,
                "clientTransactionVersion": 2 if self.bumps else 0,
            }
            name = {"transactionalId": f"t{producer}"}
            writer.add([pair(TRANSACTIONS, "TRANSACTION_LOG", name, value, 1)], time_ms)
        writer.write()

    def _next(
        self, sequences: dict[tuple[int, int, int], int], place: tuple[int, int]
    ) -> dict[str, int]:
        epoch = self.epochs.get(place[1], 0)
        base = sequences.get((*place, epoch), 0)
        sequences[*place, epoch] = base + self._records_ahead()
        return {"producer_id": place[1], "producer_epoch": epoch, "base_sequence": base}

    def _records_ahead(self) -> int:
        self.records = self.chance.randint(1, 9)
        return self.records

    def _append(self, log: Log, partition: int, transaction: int | None, **options: object) -> None:
        count = self.records if options else self._records_ahead()
        values = [b"%d " % self.chance.randrange(10**6) * 5 for _ in range(count)]
        codec = self.chance.choice((Compression.NONE, Compression.GZIP, Compression.SNAPPY))
        times = [self.now_ms] * count
        if self.late_ms:
            times = [self.now_ms - self.chance.randint(0, self.late_ms) for _ in values]
        batch = kseg.encode_batch(
            {"value": values, "timestamp": times},
            BatchOptions(compression=codec, **options),  # type: ignore[arg-type]
        )
        first = log.append(batch).first_offset
        self.notes += [
            Note(partition, first + n, times[n], value, transaction)
            for n, value in enumerate(values)
        ]
        last = first + count - 1
        self.batches.append(BatchNote(partition, first, last, times[0], max(times), None))

    def _end(self, log: Log, producer: int, *, commits: bool) -> int:
        builder = BatchBuilder(
            producer_id=producer,
            producer_epoch=self.epochs[producer],
            transactional=True,
            control=True,
        )
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        builder.append_end_marker(kind, 0, timestamp=self.now_ms)
        return log.append(builder.build(), origin=AppendOrigin.COORDINATOR).first_offset

    def end_at(self, partition: int, at_ms: int | None, cut: str) -> int:
        """Where a partition is cut."""
        mine = [batch for batch in self.batches if batch.partition == partition]
        if at_ms is None:
            return 1 << 62
        if cut == "first":
            later = (batch.base_offset for batch in mine if batch.max_ms > at_ms)
            return next(later, 1 << 62)
        return max((batch.last_offset + 1 for batch in mine if batch.first_ms <= at_ms), default=0)

    def behind(self, partition: int, at_ms: int) -> dict[str, int]:
        """How many records each cut leaves on the wrong side."""
        first, last = (self.end_at(partition, at_ms, cut) for cut in ("first", "last"))
        found = {"first": 0, "last": 0}
        for batch in self.batches:
            if batch.partition == partition and batch.ends is None:
                count = batch.last_offset - batch.base_offset + 1
                found["first"] += count * (batch.base_offset >= first and batch.max_ms <= at_ms)
                found["last"] += count * (batch.base_offset < last and batch.max_ms > at_ms)
        return found

    def expected(
        self,
        partition: int,
        *,
        committed: bool,
        at_ms: int | None = None,
        cut: str = "first",
        otherwise: bool = False,
    ) -> list[tuple[int, int, bytes]]:
        """The records that a partition serves: offset, time and value.

        A transaction counts alike in all partitions: as it was decided by then, or by the last
        marker of its producer that comes in.
        """
        moments = dict.fromkeys(range(9), self.now_ms if at_ms is None else at_ms)
        for batch in self.batches:
            inside = batch.base_offset < self.end_at(batch.partition, at_ms, cut)
            if batch.ends is not None and inside:
                producer = self.producers[batch.ends]
                moments[producer] = max(moments[producer], batch.max_ms)
        end, rows = self.end_at(partition, at_ms, cut), []
        for note in self.notes:
            if note.partition != partition or note.offset >= end:
                continue
            if committed and note.transaction is not None:
                commits, decided_ms = self.ends.get(note.transaction, (otherwise, 0))
                producer = self.producers.get(note.transaction, 0)
                if not (commits if decided_ms <= moments[producer] else otherwise):
                    continue
            rows.append((note.offset, note.time_ms, note.value))
        return rows


def target(
    home: Path,
    count: int,
    *,
    topic: str = "orders",
    epoch: int = 5,
    replicas: Sequence[int] = (7,),
    node_id: int = 7,
    retention: tuple[str, str] = ("retention.ms", "-1"),
) -> Broker:
    """A stopped broker with an empty topic."""
    broker = Broker(home, node_id=node_id).says(
        [
            made.topic(topic),
            *(made.partition(FIRST, n, replicas, leaderEpoch=epoch) for n in range(count)),
            made.setting(*retention, of=topic),
        ]
    )
    for number in range(count):
        path = home / f"{topic}-{number}"
        Log.open(path, mode="append", create=True, topic_id=FIRST).close()
    return broker


def served(path: Path, isolation: str) -> list[tuple[int, int, bytes]]:
    """What a log serves: offset, time and value."""
    with kseg.Log.open(path) as log:
        return [
            (record.offset, record.timestamp, record.value)  # type: ignore[misc]
            for record in log.records(isolation=isolation)
        ]
