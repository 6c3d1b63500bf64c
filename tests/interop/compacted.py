"""Logs that are compacted, by Kafka's cleaner and by kseg: what happens to them, by chance.

Keys are few, so that most records are superseded; some are tombstones. Producers write the same
keys in and out of transactions, some of which are aborted. Every now and then the cleaner comes,
with a map that is often too small for one pass.

Plain logs must be the same, byte for byte, and the rest of the directory too. Where something is
compressed, libraries differ in the bytes, and so do sizes and index entries: then all that the
batches say must be the same, and the indexes must fit.

Below the log's start nobody reads, and there the two may differ, and in sizes with that. Kafka does
not know a transaction for aborted that ended there: it keeps what no later record supersedes, and
lets the marker go, so that a reader who does not know the start takes it for committed. kseg takes
all of it out. Where the log starts inside a transaction, in a gap, Kafka's last stable offset is
the next batch, and one segment more may be compacted.

Where a map was full, Kafka's next pass begins in the middle of a segment and reads no marker in
front of that. So it takes producers who have aborted there for still at it, and leaves the keys out
that they have sent since: it keeps more, but nothing that is not superseded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from random import Random

from kseg.files.names import FileKind
from kseg.log.config import LogConfig
from kseg.log.recovery.reindex import plan_reindex
from tests import reference
from tests.builders import NONE, Record
from tests.interop import lives, stories
from tests.interop.kafka import Kafka
from tests.interop.lives import Found, Left
from tests.interop.made import NOW, often
from tests.interop.stories import Story, Teller

#: What compressed bytes have of their own.
_OWN = ("position", "size", "crc", "data")


def story(seed: str, number: int) -> Story:
    """The story of that number; every other one has no codec, so that its bytes can be compared."""
    chance = Random(f"compacted {seed}:{number}")
    config: dict[str, object] = {
        "cleanup.policy": "compact",
        "segment.bytes": chance.choice((400, 1000, 3000)),
        # Where an index is full, Kafka's cleaner fails.
        "segment.index.bytes": chance.choice((1000, 4096)),
        "index.interval.bytes": chance.choice((0, 100, 300)),
        "retention.ms": -1,
        "delete.retention.ms": chance.choice((0, 1000, 60_000)),
        "min.cleanable.dirty.ratio": 0,
    }
    if often(chance, 0.2):
        config["message.timestamp.type"] = "LogAppendTime"
    if often(chance, 0.2):
        config["min.compaction.lag.ms"] = 1000
    codecs = stories.CODECS if number % 2 else (NONE,)
    teller = _Teller(chance, follower=often(chance, 0.5), several=True, codecs=codecs)
    for _ in range(chance.choice((8, 20, 40, 60))):
        teller.tell()
    teller.clean()
    close = "crash" if often(chance, 0.3) else "clean"
    settings = {name: str(value) for name, value in config.items()}
    return Story(settings, tuple(teller.steps), NOW, teller.now_ms, teller.end, close)


@dataclass(slots=True)
class _Teller(Teller):
    """Tells of few keys, of tombstones, and of the cleaner."""

    def weights(self) -> dict[Callable[[], None], float]:
        return {
            self._plain: 8,
            self._sequenced: 5,
            self._transaction: 8,
            self._legacy: 1,
            self._roll: 2,
            self._epoch: 0.5,
            self._start_at: 0.2,
            self._settle: 0.3,
            self.clean: 3,
        }

    def clean(self) -> None:
        """The cleaner, later or much later."""
        self.now_ms += self.chance.choice((0, 1000, 1000, 100_000))
        self._step(
            "clean",
            all=often(self.chance, 0.1),
            map_bytes=self.chance.choice((80, 200, 1 << 16, 1 << 16)),
            measure=often(self.chance, 0.5),
        )

    def _records(self, count: int) -> list[Record]:
        given = Teller._records(self, count)
        keyless = self.follower and often(self.chance, 0.1)
        return [
            replace(
                one,
                key=None if keyless and often(self.chance, 0.5) else one.key,
                value=None if often(self.chance, 0.2) else one.value,
            )
            for one in given
        ]


def compared(kafka: Kafka, told: Story, home: Path, *, begun_by: str = "nobody") -> list[Found]:
    """Where kseg did not answer, tell or leave what Kafka did; see `lives.told_to_both`."""
    both = lives.told_to_both(kafka, told, home, begun_by=begun_by)
    if both is None or kafka_fails(both.theirs):
        return []
    found = lives.differences(kafka, both)
    begins_later = both.ours.told["log_start_offset"] > 0 and found
    if _compresses(told) or begins_later:
        found = [
            one
            for one in found
            if not one[0].endswith(_SIZES) and not _is_of_one(one[0], both.theirs, both.ours)
        ]
        found += left_differ(both.theirs, both.ours, told, anew=both.anew)
    return [] if found and kafka_keeps_more(both.theirs, both.ours) else found


def _is_of_one(name: str, theirs: Left, ours: Left) -> bool:
    """Whether a snapshot is that of a segment which only one of both has, as sizes have it."""
    log = name.replace(".snapshot", ".log")
    there = {(left.directory / log).exists() for left in (theirs, ours)}
    return log != name and len(there) == 2


def kafka_keeps_more(theirs: Left, ours: Left) -> bool:
    """Whether all that Kafka has besides is superseded by what is there; see above."""
    if not any(answer.get("passes", 0) > 1 for answer in theirs.answers):
        return False
    their, our = (list(reference.walk(_data(left.directory)).batches) for left in (theirs, ours))
    (more, ends), (rows, our_ends) = map(_rows, (their, our))
    last = {key: offset for offset, key, _ in reference.compacted(our, end_offset=2**62)}
    return (
        ends == our_ends
        and rows < more
        and all(offset < last.get(key, -1) for offset, key, _ in more - rows)
    )


def _rows(
    batches: list[reference.Batch],
) -> tuple[set[tuple[int, bytes | None, bytes | None]], list[int]]:
    """Records, and where the markers are."""
    rows = {
        (one.offset, one.key, one.value)
        for batch in batches
        if not batch.is_control
        for one in reference.records(batch)
    }
    return rows, [batch.base_offset for batch in batches if batch.is_control]


def kafka_fails(theirs: Left) -> bool:
    """Whether Kafka's cleaner failed: a range ended with messages of magic 0 or 1 that were to go.

    kseg keeps the last of them.
    """
    return any(_NO_EMPTY in answer.get("said", "") for answer in theirs.answers)


def left_differ(theirs: Left, ours: Left, told: Story, *, anew: bool) -> list[Found]:
    """Where the batches from the log's start on are not the same, or an index does not fit.

    A log that was opened `anew` has indexes that lack entries, as restarts leave them.
    """
    start = ours.told["log_start_offset"]
    found: list[Found] = []
    their, our = (_batches(left.directory, start) for left in (theirs, ours))
    if their != our:
        row = next(n for n, pair in enumerate(zip_longest(their, our)) if pair[0] != pair[1])
        found.append((f"batch {row}", their[row : row + 1], our[row : row + 1]))
    if told.close != "clean":
        return found
    # Kafka's cleaner makes few entries.
    passed_over = _LACKS if anew else ""
    known, new = (_files_made_anew(left.directory, told, passed_over) for left in (theirs, ours))
    if new - known:
        found.append(("an index does not fit", sorted(known), sorted(new)))
    return found


def _files_made_anew(directory: Path, told: Story, passed_over: str) -> set[str]:
    """The files that a reindexing would replace, but for one reason."""
    plan = plan_reindex(
        directory,
        config=LogConfig.from_kafka(told.config),
        kinds=(FileKind.INDEX, FileKind.TIMEINDEX, FileKind.SNAPSHOT),
        now_ms=told.now_ms,
    )
    return {each.path.name for each in plan.files if each.why != passed_over}


_LACKS = "lacks the last entries"
_NO_EMPTY = "Empty batches are only supported for magic v2"
#: What is another where sizes are.
_SIZES = (".log", "index", "segments", "answer to clean", "answer to read", "loaded: segments")


def _compresses(told: Story) -> bool:
    given = (step["data"] for step in told.steps if "data" in step)
    return any(one.codec for data in given for one in reference.walk(data).batches)


def _batches(directory: Path, start: int) -> list[object]:
    """All that the logs say from an offset on; which file a batch lies in is a matter of sizes."""
    said: list[object] = []
    for batch in reference.walk(_data(directory)).batches:
        if batch.last_offset < start:
            continue
        fields = {name: value for name, value in asdict(batch).items() if name not in _OWN}
        said.append((fields, list(reference.records(batch))))
    return said


def _data(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
