"""Logs that kseg writes, Kafka writes, or both in turn: they lead the same lives.

A story (`stories.py`) is told to both, and leaves the same directory. What kseg leaves after a
clean stop, Kafka opens without changing a byte. What one has written, the other goes on with.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.files.names import FileKind
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.data_directory import PartitionOffsets
from tests.interop.contents import contents, different
from tests.interop.kafka import Kafka
from tests.interop.ours_log import OurLog, told
from tests.interop.stories import Story

Answer = dict[str, Any]
#: What is not the same, what Kafka says, what kseg says.
Found = tuple[str, object, object]

_NAME = "t-0"
_EPOCHS = "leader-epoch-checkpoint"
_NO_ROOM = "Attempt to append to a full"
_DAY_MS = 86_400_000
_NEW = PartitionOffsets(clean=True, recovery_point=0, log_start_offset=0)


class RefusedError(Exception):
    """Kafka does not load what lies there."""


@dataclass(frozen=True, slots=True)
class Left:
    """A log behind its story: what was told at first, answered, told at last, and where it lies."""

    loaded: Answer
    answers: list[Answer]
    told: Answer
    directory: Path


def fresh(home: Path) -> Path:
    """An empty partition directory."""
    shutil.rmtree(home, ignore_errors=True)
    directory = home / _NAME
    directory.mkdir(parents=True)
    return directory


def request(story: Story, directory: Path, *, steps: Sequence[Answer], **how: object) -> Answer:
    """What Kafka is asked."""
    asked = {"op": "log", "dir": str(directory), "config": story.config, "steps": steps}
    return asked | {"now_ms": story.begin_ms, "close": story.close} | how


def by_kafka(
    kafka: Kafka,
    story: Story,
    directory: Path,
    *,
    steps: Sequence[Answer],
    known: PartitionOffsets = _NEW,
) -> Left:
    """Kafka leads the life."""
    how = {
        "clean": known.clean,
        "recovery_point": known.recovery_point,
        "log_start_offset": known.log_start_offset,
    }
    (answer,) = kafka.ask([request(story, directory, steps=steps, **how)])
    if "error" in answer:
        raise RefusedError(str(answer))
    return Left(answer["loaded"], answer["steps"], answer.get("left", answer["loaded"]), directory)


def by_kseg(
    story: Story, directory: Path, *, steps: Sequence[Answer], known: PartitionOffsets = _NEW
) -> Left:
    """kseg leads it."""
    log = OurLog(directory, story.config, now_ms=story.begin_ms, known=known)
    loaded = told(log.state)
    answers = log.do(steps)
    left = told(log.state)
    log.do([{"do": "settle"}])
    log.close(story.close)
    return Left(loaded, answers, left, directory)


# The same life twice


@dataclass(frozen=True, slots=True)
class Both:
    """The same story told to both.

    Attributes:
        story: which.
        steps: of it, those that each took itself.
        theirs, ours: what they left.
        anew: whether the log was there already.
    """

    story: Story
    steps: Sequence[Answer]
    theirs: Left
    ours: Left
    anew: bool


def compared(kafka: Kafka, story: Story, home: Path, *, begun_by: str = "nobody") -> list[Found]:
    """Where kseg did not answer, tell or write what Kafka did; see `told_to_both`."""
    both = told_to_both(kafka, story, home, begun_by=begun_by)
    return [] if both is None else differences(kafka, both)


def told_to_both(
    kafka: Kafka, story: Story, home: Path, *, begun_by: str = "nobody"
) -> Both | None:
    """Let both lead a life; None for one that Kafka cannot go on with.

    Args:
        kafka: to be asked.
        story: which life.
        home: where to lead it.
        begun_by: "kafka" or "kseg", who leads the first half of it for both; else "nobody".
    """
    theirs, ours = fresh(home / "theirs"), fresh(home / "ours")
    known, rest = _NEW, story.steps
    if begun_by != "nobody":
        half = len(story.steps) // 2
        begun, rest = story.steps[:half], story.steps[half:]
        if begun_by == "kafka":
            first = by_kafka(kafka, story, theirs, steps=begun)
            hand_on(theirs, ours)
        else:
            first = by_kseg(story, ours, steps=begun)
            hand_on(ours, theirs)
        known = PartitionOffsets(
            clean=story.close == "clean",
            recovery_point=first.told["recovery_point"],
            log_start_offset=first.told["log_start_offset"],
        )
    try:
        their = by_kafka(kafka, story, theirs, steps=rest, known=known)
    except RefusedError as error:
        if story.close == "crash" and _NO_ROOM in str(error):
            return None  # more entries than small indexes hold, where a restart lies in between
        raise
    our = by_kseg(story, ours, steps=rest, known=known)
    return Both(story, rest, their, our, begun_by != "nobody")


def differences(kafka: Kafka, both: Both) -> list[Found]:
    """Where kseg did not answer, tell or write what Kafka did."""
    story, their, our = both.story, both.theirs, both.ours
    if both.anew and story.close == "crash":
        take_more_epochs(their, our)
    found = [(f"loaded: {what}", *says) for what, *says in told_differ(their.loaded, our.loaded)]
    found += _answers_differ(both.steps, their, our, story.config)
    found += told_differ(their.told, our.told)
    left = (contents(each.directory) for each in (their, our))
    found += _files_differ(story, *left, anew=both.anew)
    if story.close == "clean":
        found += opened(kafka, story, their, our)
    return found


def hand_on(begun: Path, other: Path) -> None:
    """Let both go on with the same log, compacted up to the same offset."""
    shutil.copytree(begun, other, dirs_exist_ok=True)
    checkpoint = begun.parent / FileKind.CLEANER.value
    if checkpoint.exists():
        shutil.copy(checkpoint, other.parent)


def _answers_differ(
    steps: Iterable[Answer], theirs: Left, ours: Left, config: dict[str, str]
) -> Iterable[Found]:
    for step, their, our in zip(steps, theirs.answers, ours.answers, strict=True):
        if step["do"] == "find" and not their:
            continue  # kseg looks in the next segments, too
        if "error" in their or "error" in our:
            same = _stem(their.get("error", "")) == _stem(our.get("error", ""))
        else:
            same = all(_same(config, name, their.get(name), value) for name, value in our.items())
        if not same:
            yield f"answer to {step['do']}", their, our


def _stem(error: str) -> str:
    return error.removesuffix("Exception").removesuffix("Error")


def _same(config: dict[str, str], name: str, their: object, our: object) -> bool:
    """Whether one part of an answer is; two say more than Kafka does.

    Kafka tells the bytes that were given rather than written, and not the first offset of messages.
    """
    if name == "valid_bytes" and "compression.type" in config:
        return True
    if name == "first_offset" and their == -1:
        return True
    if name == "recovery_point":
        return True
    return their == our


def told_differ(theirs: Answer, ours: Answer) -> Iterable[Found]:
    """What is told otherwise.

    kseg flushes behind a roll when there is something to wait for, so that its recovery point may
    be another. Where the log starts inside a transaction, Kafka's last stable offset is the base of
    the batch found there, on either side of the start.
    """
    their = theirs | {"recovery_point": ours["recovery_point"]}
    if ours["last_stable_offset"] == ours["log_start_offset"]:
        their["last_stable_offset"] = ours["last_stable_offset"]
    return [(name, their[name], ours[name]) for name in ours if their[name] != ours[name]]


def take_more_epochs(theirs: Left, ours: Left) -> None:
    """Of epochs kseg may know more after a crash: it looks at all of the log."""
    for their, our in ((theirs.loaded, ours.loaded), (theirs.told, ours.told)):
        if _knows_more(their["epochs"], our["epochs"]):
            their["epochs"] = our["epochs"]


def _knows_more(theirs: Iterable[Any], ours: Iterable[Any]) -> bool:
    """Whether each epoch is known, and from no later on.

    Where messages without an epoch follow, Kafka forgets those in front of them.
    """
    known: dict[int, int] = dict(map(tuple, ours))
    return all(epoch in known and known[epoch] <= start for epoch, start in theirs)


def _files_differ(
    story: Story, theirs: dict[str, object], ours: dict[str, object], *, anew: bool
) -> Iterable[Found]:
    """Files that say something else.

    Of a log that was opened `anew` kseg makes the indexes of a segment again that have no entries
    for several intervals, as truncations leave them; they end with the same entry.

    After a crash Kafka's indexes still have, behind a truncation, what was cut off; and of the
    first log file kseg takes no room in advance. Of a segment that was opened and cut before it was
    appended to Kafka does not know the largest time any more, and kseg looks. In snapshots that it
    makes in recovering, kseg leaves out those who have expired, as the next start does; and it
    makes none in front of messages of magic 0 and 1 at the log's end. For epochs see above.
    """
    for name, their, our in different(theirs, ours):
        if not _explained(story, name, their, our, anew=anew):
            yield name, their, our


def _explained(story: Story, name: str, their: object, our: object, *, anew: bool) -> bool:
    """Whether a file may say something else; see above."""
    crash, kind = story.close == "crash", name.partition(".")[2]
    if kind in ("index", "timeindex") and isinstance(our, list) and anew:
        cut_off = crash and _listed(their)[: len(our)] == our
        return their is None or cut_off or _listed(their)[-1:] == our[-1:]
    if kind == "timeindex" and isinstance(our, list) and our[:-1] == (their or []):
        return True
    if kind == "snapshot" and isinstance(their, tuple):
        known = [one for one in their[1] if is_known(one, story.now_ms)]
        return crash and our in (None, (their[0], known))
    if name == _EPOCHS:
        return crash and _knows_more(_listed(their), _listed(our))
    if isinstance(their, list):
        return crash and their[: len(_listed(our))] == _listed(our)
    if isinstance(their, bytes) and isinstance(our, bytes):
        return crash and their.rstrip(b"\0") == our.rstrip(b"\0")
    return False


def _listed(entries: object) -> list[object]:
    return entries if isinstance(entries, list) else []


def is_known(producer: ProducerSnapshotEntry, now_ms: int) -> bool:
    """Whether a producer has not expired."""
    silent = now_ms - producer.last_timestamp >= _DAY_MS
    return producer.current_txn_first_offset >= 0 or not silent


# One after the other


def opened(kafka: Kafka, story: Story, theirs: Left, ours: Left) -> list[Found]:
    """What Kafka makes of a log that kseg has closed and would not of its own; what it changes."""
    answers = []
    before = [contents(left.directory) for left in (theirs, ours)]
    written = _written(ours.directory)
    for left in (theirs, ours):
        how = {"now_ms": story.now_ms, "clean": True, "close": "clean"}
        how |= {name: theirs.told[name] for name in ("log_start_offset", "recovery_point")}
        answers += kafka.ask([request(story, left.directory, steps=[], **how)])
    their, our = answers
    if "error" in their or "error" in our:
        return [("opened by Kafka", their, our)]
    for loaded in (their["loaded"], our["loaded"]):
        del loaded["entries"]
    found: list[Found] = list(told_differ(their["loaded"], our["loaded"]))
    after = [contents(left.directory) for left in (theirs, ours)]
    found += different(*(_changes(*pair) for pair in zip(before, after, strict=True)))
    return found + different(written, _written(ours.directory))


def _changes(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    return {name: (was, now) for name, was, now in different(before, after)}


def _written(directory: Path) -> dict[str, object]:
    """Logs and indexes as they are."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    }
