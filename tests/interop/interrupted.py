"""A cleaning that ends in the middle: kseg's at any of its calls, Kafka's at any of its renames.

What lies there then is loaded by Kafka and by kseg. By both no last value of a key is another than
before the cleaning, and both have the same batches. Then each goes on with what the other has
mended, cleans it again, and follows the story to its end; and again both have the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from kseg.files import io
from kseg.log.data_directory import PartitionOffsets
from tests import reference
from tests.interop import compacted, lives
from tests.interop.kafka import Kafka
from tests.interop.lives import Found, Left
from tests.interop.made import often
from tests.interop.ours_log import OurLog
from tests.interop.stories import Story
from tests.stopping import UNSYNCED, Stopped, stopping_at

Answer = dict[str, Any]

#: The files of a segment, in the order in which they get other names.
_KINDS = ("log", "index", "timeindex", "txnindex")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A story with a cleaning that does not come to its end.

    Attributes:
        story: of the log; its close is that of whoever has mended it.
        before, step, after: its steps in front of the cleaning, the cleaning, and behind.
        chance: of where it ends.
    """

    story: Story
    before: Sequence[Answer]
    step: Answer
    after: Sequence[Answer]
    chance: Random

    def __str__(self) -> str:
        return f"interrupted at step {len(self.before)}, {self.story.config}"


def case(seed: str, number: int) -> Interrupted:
    """The case of that number."""
    chance = Random(f"interrupted {seed}:{number}")
    told = replace(compacted.story(seed, number), close="clean")
    at = chance.choice([n for n, step in enumerate(told.steps) if step["do"] == "clean"])
    step = told.steps[at]
    if often(chance, 0.5):
        # Most cleanings have nothing to do where no segment was rolled.
        step |= {"all": True, "map_bytes": 1 << 16}
    return Interrupted(told, told.steps[:at], step, told.steps[at:], chance)


def compared(kafka: Kafka, given: Interrupted, home: Path, *, killed: str) -> list[Found]:
    """Where a value is lost or another, or the two do not go on the same.

    Args:
        kafka: to be asked.
        given: the case.
        home: where.
        killed: whose cleaning it is, "kafka" or "kseg"; that one writes what lies in front, too.
    """
    story, begun = given.story, lives.fresh(home / "begun")
    if killed == "kafka":
        left = lives.by_kafka(kafka, story, begun, steps=given.before)
    else:
        left = lives.by_kseg(story, begun, steps=given.before)
    start, known = left.told["log_start_offset"], _known(left, clean=True)
    values = _last_values(begun, start)
    if killed == "kafka":
        _stop_kafka(kafka, given, begun, known)
    else:
        _stop_kseg(given, begun, known)
    # Where Kafka walks segments in front of the log's start, it forgets their producers.
    point = left.told["log_end_offset"] if start else given.chance.choice((0, known.recovery_point))
    known = PartitionOffsets(clean=False, recovery_point=point, log_start_offset=start)
    theirs, ours = lives.fresh(home / "theirs"), lives.fresh(home / "ours")
    for copy in (theirs, ours):
        lives.hand_on(begun, copy)
    mended = (
        lives.by_kafka(kafka, story, theirs, steps=(), known=known),
        lives.by_kseg(story, ours, steps=(), known=known),
    )
    found = [(f"loaded by either: {what}", *says) for what, *says in _differ(*mended, story)]
    for who, each in zip(("Kafka", "kseg"), mended, strict=True):
        if (now := _last_values(each.directory, start)) != values:
            found.append((f"last values, mended by {who}", values, now))
    return found or [(f"then {what}", *says) for what, *says in _swapped(kafka, given, *mended)]


def _swapped(kafka: Kafka, given: Interrupted, theirs: Left, ours: Left) -> list[Found]:
    """Each goes on with what the other has mended."""
    story = given.story
    by_kafka = lives.by_kafka(
        kafka, story, ours.directory, steps=given.after, known=_known(ours, clean=True)
    )
    by_kseg = lives.by_kseg(
        story, theirs.directory, steps=given.after, known=_known(theirs, clean=True)
    )
    found = _differ(by_kafka, by_kseg, story)
    explained = compacted.kafka_fails(by_kafka) or compacted.kafka_keeps_more(by_kafka, by_kseg)
    return [] if explained else found


def _known(left: Left, *, clean: bool) -> PartitionOffsets:
    told = left.told
    return PartitionOffsets(told["recovery_point"], told["log_start_offset"], clean=clean)


def _differ(theirs: Left, ours: Left, story: Story) -> list[Found]:
    """What is told otherwise, but for sizes; batches and indexes."""
    lives.take_more_epochs(theirs, ours)
    told = [one for one in lives.told_differ(theirs.told, ours.told) if one[0] != "segments"]
    return [*told, *compacted.left_differ(theirs, ours, story, anew=True)]


def _last_values(directory: Path, start: int) -> dict[bytes | None, bytes]:
    """What a reader of committed records has of each key behind the last one; no tombstones."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    batches = [one for one in reference.walk(data).batches if one.last_offset >= start]
    rows = reference.compacted(batches, end_offset=2**62, start_offset=start)
    return {key: value for offset, key, value in rows if value is not None and offset >= start}


# A cleaning that stops


def _stop_kseg(given: Interrupted, directory: Path, known: PartitionOffsets) -> None:
    """Let kseg make so many calls and no more."""
    whole = lives.fresh(directory.parent.with_name("whole"))
    lives.hand_on(directory, whole)
    calls = _cleaned(given, whole, known, None)
    _cleaned(given, directory, known, given.chance.randint(0, calls))


def _cleaned(given: Interrupted, directory: Path, known: PartitionOffsets, made: int | None) -> int:
    """Clean with so many calls; answers how many there were."""
    log = OurLog(directory, given.story.config, now_ms=given.step["now_ms"], known=known)
    with suppress(Stopped), stopping_at(made, UNSYNCED) as asked:
        log.do([given.step])
    with io.calls_replaced(UNSYNCED):
        log.close("crash")
    return len(asked)


def _stop_kafka(kafka: Kafka, given: Interrupted, directory: Path, known: PartitionOffsets) -> None:
    """Leave what Kafka's cleaner has when it comes so far in one of its groups.

    Groups in front of that one are done. Its own files are rewritten, then renamed one by one,
    as `LocalLog.replaceSegments` does it.
    """
    whole = lives.fresh(directory.parent.with_name("whole"))
    lives.hand_on(directory, whole)
    step = given.step | {"map_bytes": 1 << 16}
    done = lives.by_kafka(kafka, given.story, whole, steps=[step], known=known)
    if not done.answers[0].get("passes"):
        return
    old, new = (_bases(place) for place in (directory, whole))
    ends = [*new[1:], old[-1] + 1]
    groups = [
        (base, [one for one in old if base <= one < end])
        for base, end in zip(new, ends, strict=True)
        if base < done.answers[0]["end_offset"]
    ]
    last = given.chance.randrange(len(groups))
    for base, segments in groups[:last]:
        _replace(directory, whole, base, segments)
    _stop_in(directory, whole, *groups[last], given.chance)


def _stop_in(
    directory: Path, whole: Path, base: int, segments: Sequence[int], chance: Random
) -> None:
    new, old = _files(whole, [base]), _files(directory, segments)
    for name in new:
        shutil.copy2(whole / name, directory / f"{name}.cleaned")
    moves = [(f"{name}.cleaned", f"{name}.swap") for name in new]
    moves += [(name, f"{name}.deleted") for name in old]
    moves += [(f"{name}.swap", name) for name in new]
    made = chance.randint(0, len(moves))
    for name, to in moves[:made]:
        (directory / name).rename(directory / to)
    if not made:
        torn = directory / f"{chance.choice(new)}.cleaned"
        torn.write_bytes(torn.read_bytes()[: chance.randint(0, torn.stat().st_size)])


def _replace(directory: Path, whole: Path, base: int, segments: Sequence[int]) -> None:
    for name in _files(directory, segments):
        (directory / name).unlink()
    for name in _files(whole, [base]):
        shutil.copy2(whole / name, directory / name)


def _bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def _files(directory: Path, bases: Sequence[int]) -> list[str]:
    """The files of segments that are there."""
    names = (f"{base:020d}.{kind}" for base in bases for kind in _KINDS)
    return [name for name in names if (directory / name).exists()]
