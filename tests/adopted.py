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


@dataclass
class Source:
    """Logs of one topic, written batch by batch at a clock that goes on with each."""

    home: Path
    count: int
    chance: Random
    topic: str = "old"
    first_producer: int = 0
    begin_ms: int = BEGIN_MS
    notes: list[Note] = field(default_factory=list)
    #: By transaction: whether it commits, and when that was decided.
    ends: dict[int, tuple[bool, int]] = field(default_factory=dict)
    #: What their coordinator noted: when, the producer, and `transactionStatus`.
    states: list[tuple[int, int, int]] = field(default_factory=list)

    def write(self, steps: int, *, ends_all: bool = False) -> None:
        self.home.mkdir(exist_ok=True)
        logs = [
            Log.open(self.home / f"{self.topic}-{n}", mode="append", create=True, config=CONFIG)
            for n in range(self.count)
        ]
        self.now_ms, number = self.begin_ms, 0
        #: Producer -> its transaction and the partitions in it.
        open_ones: dict[int, tuple[int, set[int]]] = {}
        sequences: dict[tuple[int, int], int] = {}
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
                        self.states.append((self.now_ms, ident, 1))
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
        self.states.append((self.now_ms, producer, 4 if commits else 5))
        for each in sorted(inside):
            self._end(logs[each], producer, commits=commits)

    def write_states(self) -> None:
        """Write the log of their coordinator beside them."""
        writer = LogWriter(self.home / f"{TRANSACTIONS}-0")
        for time_ms, producer, status in self.states:
            value = {
                "producerId": producer,
                "producerEpoch": 0,
                "transactionStatus": status,
                "transactionLastUpdateTimestampMs": time_ms,
            }
            name = {"transactionalId": f"t{producer}"}
            writer.add([pair(TRANSACTIONS, "TRANSACTION_LOG", name, value, 1)], time_ms)
        writer.write()

    def _next(self, sequences: dict[tuple[int, int], int], key: tuple[int, int]) -> dict[str, int]:
        base = sequences.get(key, 0)
        sequences[key] = base + self._records_ahead()
        return {"producer_id": key[1], "producer_epoch": 0, "base_sequence": base}

    def _records_ahead(self) -> int:
        self.records = self.chance.randint(1, 9)
        return self.records

    def _append(self, log: Log, partition: int, transaction: int | None, **options: object) -> None:
        count = self.records if options else self._records_ahead()
        values = [b"%d " % self.chance.randrange(10**6) * 5 for _ in range(count)]
        codec = self.chance.choice((Compression.NONE, Compression.GZIP, Compression.SNAPPY))
        batch = kseg.encode_batch(
            {"value": values, "timestamp": [self.now_ms] * count},
            BatchOptions(compression=codec, **options),  # type: ignore[arg-type]
        )
        first = log.append(batch).first_offset
        self.notes += [
            Note(partition, first + n, self.now_ms, value, transaction)
            for n, value in enumerate(values)
        ]

    def _end(self, log: Log, producer: int, *, commits: bool) -> None:
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=0, transactional=True, control=True
        )
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        builder.append_end_marker(kind, 0, timestamp=self.now_ms)
        log.append(builder.build(), origin=AppendOrigin.COORDINATOR)

    def expected(
        self, partition: int, *, committed: bool, at_ms: int | None = None, otherwise: bool = False
    ) -> list[tuple[int, int, bytes]]:
        """The records that a partition serves: offset, time and value."""
        end_ms = self.now_ms if at_ms is None else at_ms
        rows = []
        for note in self.notes:
            if note.partition != partition or note.time_ms > end_ms:
                continue
            if committed and note.transaction is not None:
                commits, decided_ms = self.ends.get(note.transaction, (otherwise, 0))
                if not (commits if decided_ms <= end_ms else otherwise):
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
