"""Damaged directories, loaded by Kafka and mended by kseg as a broker would.

Either writes a log (`stories.py`), harm comes to it (`damages.py`), Kafka loads it as after a clean
or an unclean stop, with any recovery point and log start; kseg plans to mend it, and does.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.interop import careful, doctored, lives, mended
from tests.interop.contents import contents, different
from tests.interop.damages import damage
from tests.interop.kafka import Kafka
from tests.interop.lives import Found
from tests.interop.made import often
from tests.interop.stories import Story, story

Answer = dict[str, Any]

_DEEP = (
    "legacy deep record iterator",
    "Unknown compression type id",
    "IndexOutOfBoundsException",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One directory and how it is loaded.

    Attributes:
        story: how it was made.
        clean, recovery_point, log_start_offset: what marker and checkpoints say.
        chance: of the harm that comes to it.
    """

    story: Story
    clean: bool
    recovery_point: int
    log_start_offset: int
    chance: Random

    def __str__(self) -> str:
        how = "clean" if self.clean else "unclean"
        point, start = self.recovery_point, self.log_start_offset
        return f"{how}, recovery point {point}, start {start}, {self.story.config}"


def case(seed: str, number: int) -> Case:
    """The case of that number."""
    told = story(seed, number)
    chance = Random(f"load {seed}:{number}")
    end = told.end_offset
    return Case(
        told,
        often(chance, 0.35),
        chance.choice((0, 0, end, chance.randint(0, end), end + 5)),
        chance.choice((0, 0, 0, 0, chance.randint(0, end), end + 4)),
        chance,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: the harm done, whether Kafka gave up, where the two do not agree."""

    harm: list[str]
    refused: bool
    found: list[Found]


def compared(kafka: Kafka, case: Case, home: Path, *, made_by: str = "kafka") -> Outcome:
    """Give the same directory to both, then what kseg left; and the first to kseg's own way.

    Args:
        kafka: to be asked.
        case: which directory.
        home: where.
        made_by: who writes it, "kafka" or "kseg".
    """
    theirs, ours, others = (lives.fresh(home / who) for who in ("theirs", "ours", "others"))
    if made_by == "kafka":
        lives.by_kafka(kafka, case.story, theirs, steps=case.story.steps)
    else:
        lives.by_kseg(case.story, theirs, steps=case.story.steps)
    harm = damage(case.chance, theirs)
    for copy in (ours, others):
        shutil.copytree(theirs, copy, dirs_exist_ok=True)
    before, outlook = careful.logs_in(others), doctored.examined(others, case)
    answer, found = _mended(kafka, case, theirs, ours)
    found += doctored.differences(outlook, answer, before, careful.logs_in(theirs))
    if not ("error" in answer or found):
        theirs = lives.fresh(home / "theirs")
        shutil.copytree(ours, theirs, dirs_exist_ok=True)
        found = [(f"again, {what}", *says) for what, *says in _mended(kafka, case, theirs, ours)[1]]
    try:
        mended.carefully(others, case)
    except Exception:
        found.append(("carefully", answer, traceback.format_exc(limit=-6)))
    return Outcome(harm, "error" in answer, found)


def _mended(kafka: Kafka, case: Case, theirs: Path, ours: Path) -> tuple[Answer, list[Found]]:
    """Both load; what Kafka answers, and what is not the same."""
    how = {
        "now_ms": case.story.now_ms,
        "clean": case.clean,
        "recovery_point": case.recovery_point,
        "log_start_offset": case.log_start_offset,
        "close": "crash",
    }
    (answer,) = kafka.ask([lives.request(case.story, theirs, steps=[], **how)])
    try:
        mine = mended.as_broker(ours, case)
    except Exception:
        return answer, [("exception", answer, traceback.format_exc(limit=-6))]
    if "error" in answer or "error" in mine:
        return answer, _errors_differ(answer, mine)
    loaded = answer["loaded"]
    found = [(name, loaded[name], mine[name]) for name in mine if loaded[name] != mine[name]]
    return answer, found + list(_files_differ(_counted(loaded, theirs), contents(ours)))


def _counted(loaded: Answer, directory: Path) -> dict[str, object]:
    """What Kafka has left; behind the entries of the last indexes there may be anything."""
    said = contents(directory)
    base = loaded["segments"][-1]["base_offset"]
    for kind, count in loaded["entries"].items():
        entries = said.pop(f"{base:020d}.{kind}", None)
        if isinstance(entries, list) and entries[:count]:
            said[f"{base:020d}.{kind}"] = entries[:count]
    return said


def _errors_differ(answer: Answer, mine: Answer) -> list[Found]:
    """A load that only one of both gives up, unless there is a reason.

    A flipped magic makes a batch a compressed message, and Kafka inflates it to learn an offset.
    kseg has no segments of negative base offsets, and splits none whose offsets overflow.
    """
    if mine.get("error") == "OffsetOverflowError":
        return []
    both = "error" in answer and "error" in mine
    deep = any(words in f"{answer.get('error')} {answer.get('said')}" for words in _DEEP)
    segments = answer["loaded"]["segments"] if "loaded" in answer else ()
    negative = any(segment["base_offset"] < 0 for segment in segments)
    return [] if both or deep or (negative and "error" in mine) else [("error", answer, mine)]


def _files_differ(theirs: dict[str, object], ours: dict[str, object]) -> Iterable[Found]:
    """Files that say something else; of a new log file kseg takes no room in advance."""
    for name, their, our in different(theirs, ours):
        if our == b"" and name.endswith(".log") and isinstance(their, bytes) and not any(their):
            continue
        yield name, their, our
