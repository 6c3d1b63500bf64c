"""What happens to a log, by chance: appends of every kind, rolls, truncations, epochs.

A story is a list of steps that Kafka's log and kseg's are both told (`tests/interop/java/logs`), so
that they ought to leave the same directory. Steps that both refuse belong to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from struct import pack
from typing import Any

from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch, record, records_of
from tests.interop.made import NOW, often

Step = dict[str, Any]

CODECS = (NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD)
_OLD_CODECS = (NONE, GZIP, SNAPPY)
_FAR = 2**31 + 7


@dataclass(frozen=True, slots=True)
class Story:
    """How a directory came about.

    Attributes:
        config: settings of the topic, as Kafka calls them.
        steps: in the driver's words.
        begin_ms, now_ms: the clock in front of the first one and behind the last.
        end_offset: where the log ends, if each step was taken.
        close: "clean", or "crash" for files as they lie.
    """

    config: dict[str, str]
    steps: tuple[Step, ...]
    begin_ms: int
    now_ms: int
    end_offset: int
    close: str


def story(seed: str, number: int) -> Story:
    """The story of that number."""
    chance = Random(f"log {seed}:{number}")
    config = _config(chance)
    # Of several batches in one append Kafka writes no entry beyond the last slot: it fails.
    several = int(config["segment.index.bytes"]) >= 1000
    teller = Teller(chance, follower=often(chance, 0.4), several=several)
    for _ in range(chance.choice((1, 4, 12, 30, 30))):
        teller.tell()
    close = "crash" if often(chance, 0.5) else "clean"
    return Story(config, tuple(teller.steps), NOW, teller.now_ms, teller.end, close)


def _config(chance: Random) -> dict[str, str]:
    config: dict[str, object] = {
        "segment.bytes": chance.choice((400, 1000, 3000, 10_000)),
        "segment.index.bytes": chance.choice((48, 100, 1000, 4096)),
        "index.interval.bytes": chance.choice((0, 1, 100, 300, 4096)),
        "retention.ms": -1,
    }
    if often(chance, 0.2):
        config["message.timestamp.type"] = "LogAppendTime"
    if often(chance, 0.2):
        config["segment.ms"] = 60_000
    if often(chance, 0.15):
        config["preallocate"] = "true"
    if often(chance, 0.1):
        config["compression.type"] = "uncompressed"
    if often(chance, 0.1):
        config["flush.messages"] = 3
    return {name: str(value) for name, value in config.items()}


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass(slots=True)
class Teller:
    """Goes along with the log as far as it can know it."""

    chance: Random
    follower: bool
    several: bool
    now_ms: int = NOW
    epoch: int = 0
    start: int = 0
    end: int = 0
    steps: list[Step] = field(default_factory=list)
    producers: dict[int, _Producer] = field(default_factory=dict)
    last: bytes = b""
    codecs: tuple[int, ...] = CODECS

    def tell(self) -> None:
        """One more step, with time gone by."""
        self.now_ms += self.chance.choice((0, 1, 500, 20_000))
        weights = self.weights()
        (kind,) = self.chance.choices(list(weights), list(weights.values()))
        kind()

    def weights(self) -> dict[Callable[[], None], float]:
        """How often each step is taken."""
        return {
            self._plain: 8,
            self._sequenced: 5,
            self._transaction: 6,
            self._again: 1,
            self._legacy: 0.4,
            self._roll: 1,
            self._flush: 1,
            self._epoch: 1,
            self._truncate: 0.7,
            self._start_at: 0.4,
            self._start_over: 0.1,
            self._settle: 0.3,
            self._read: 2,
            self._find: 1.5,
        }

    def _step(self, do: str, **fields: object) -> None:
        self.steps.append({"do": do, "now_ms": self.now_ms, **fields})

    # Appends

    def _append(self, *, count: int, records: list[Record] | None = None, **fields: Any) -> bytes:
        """One batch for the next offsets, unless a leader is to give them."""
        given = self._records(count) if records is None else records
        base = self.end if self.follower else 0
        data = batch(given, base_offset=base, leader_epoch=self.epoch, **fields)
        self.end += len(given)
        return data

    def _send(self, *batches: bytes, origin: str = "client") -> None:
        self.last = batches[0]
        do = "follow" if self.follower else "append"
        for data in [b"".join(batches)] if self.follower else batches:
            self._step(do, data=data, epoch=self.epoch, origin=origin)

    def _records(self, count: int) -> list[Record]:
        chance = self.chance
        style = chance.randrange(6)
        sizes = (0, 1, 20, 20, 100, 300)
        return [
            record(
                bytes([65 + chance.randrange(26)]) * chance.choice(sizes),
                key=b"%d" % chance.randrange(9),
                timestamp=-1 if style == 0 else self.now_ms - chance.choice((0, 1, 9, 5000)),
            )
            for _ in range(count)
        ]

    def _plain(self) -> None:
        chance = self.chance
        several = chance.choice((1, 1, 2, 6)) if self.follower and self.several else 1
        if self.follower and often(chance, 0.06):
            self.end += chance.choice((1, 10, _FAR))
        codec = chance.choice(self.codecs)
        self._send(
            *(self._append(count=chance.choice((1, 1, 3, 8)), codec=codec) for _ in range(several))
        )

    def _sequenced(self, *, transactional: bool = False) -> None:
        chance = self.chance
        key = chance.choice((7, 8, 9, 2**40)) if transactional else chance.choice((1, 2, 3))
        one = self.producers.setdefault(key, _Producer())
        if often(chance, 0.05):
            one.epoch, one.sequence = one.epoch + 1, 0
        if often(chance, 0.03):
            one.sequence += 5
        count = chance.choice((1, 2, 5))
        data = self._append(
            count=count,
            codec=chance.choice(self.codecs),
            producer_id=key,
            producer_epoch=one.epoch,
            base_sequence=one.sequence,
            transactional=transactional,
        )
        one.sequence += count
        one.open |= transactional
        self._send(data)

    def _transaction(self) -> None:
        opened = [key for key, one in self.producers.items() if one.open]
        if not opened or often(self.chance, 0.55):
            self._sequenced(transactional=True)
            return
        key = self.chance.choice(opened)
        self.producers[key].open = False
        kind = pack(">hh", 0, self.chance.choice((0, 1)))
        mark = record(pack(">hi", 0, self.chance.choice((0, 0, 1))), key=kind)
        data = self._append(
            count=1,
            records=[record(mark.value, key=mark.key, timestamp=self.now_ms)],
            producer_id=key,
            producer_epoch=self.producers[key].epoch,
            transactional=True,
            control=True,
        )
        self._send(data, origin="coordinator")

    def _again(self) -> None:
        if self.last:
            self._send(self.last)

    def _legacy(self) -> None:
        """Messages, as followers take them from old leaders."""
        if not (self.follower and self.several):
            self._plain()
            return
        count = self.chance.choice((1, 3))
        codec = self.chance.choice([one for one in _OLD_CODECS if one in self.codecs])
        magic = self.chance.choice((0, 1))
        data = records_of(self._records(count), magic=magic, codec=codec, base_offset=self.end)
        self.end += count
        self._send(data)

    # The rest

    def _roll(self) -> None:
        self._step("roll")

    def _flush(self) -> None:
        self._step("flush", all=often(self.chance, 0.5))

    def _epoch(self) -> None:
        self.epoch += self.chance.choice((1, 1, 3))
        if often(self.chance, 0.5):
            self._step("epoch", epoch=self.epoch)

    def _truncate(self) -> None:
        to = self.chance.randint(max(self.start, self.end - 30), self.end + 1)
        self._step("truncate", to=to)
        self.end = min(self.end, to)

    def _start_at(self) -> None:
        self.start = self.chance.randint(
            self.start, max(self.start, min(self.end, self.start + 20))
        )
        self._step("start_at", to=self.start)
        if often(self.chance, 0.5):
            self._step("retain")

    def _start_over(self) -> None:
        self.end = self.chance.choice((self.end + 3, max(0, self.end - 5)))
        self.start = self.end
        self._step("start_over", to=self.end)

    def _settle(self) -> None:
        self._step("settle")

    # What is asked

    def _read(self) -> None:
        chance = self.chance
        self._step(
            "read",
            **{"from": chance.randint(max(self.start - 1, 0), self.end + 1)},
            bytes=chance.choice((0, 1, 100, 300, 5000)),
            isolation=chance.choice(("log_end", "high_watermark", "txn_committed")),
            one=often(chance, 0.7),
        )

    def _find(self) -> None:
        chance = self.chance
        if often(chance, 0.4):
            self._step("epoch_end", epoch=chance.randint(-1, self.epoch + 1))
            return
        time = chance.choice((0, NOW, chance.randint(NOW, self.now_ms), self.now_ms + 9))
        self._step("find", timestamp=chance.choice((-1, -2, -3, -4, -5, time, time)))
