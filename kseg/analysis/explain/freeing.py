"""How room could become free: steps in the order of what they cost, as commands; none is run.

First what is not needed any more (leftovers), then what goes by the settings anyway, then what the
cleaner would take, then older records than the settings let go. Topics of Kafka's own are not
touched.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kseg.analysis.explain.causes import COMPACTION_DUE, DUE
from kseg.analysis.explain.values import (
    Explained,
    Kept,
    PartitionKeeps,
    Proposal,
    Step,
    Unproposed,
)
from kseg.log.settings import SettingSources

#: What `kseg recover` removes at once; it keeps other leftovers, or puts them in place.
_REMOVED: Final = (".deleted", ".cleaned")
#: So that what goes is not kept in a backup, which would free nothing.
_FOR_GOOD: Final = ("--no-backup", "--apply")
_DIRECTORIES: Final = frozenset({"delete-directory", "stray-directory"})
#: What goes when retention gets shorter.
_SHORTENED: Final = frozenset({"younger-than-retention", "under-size-limit"})

#: By cause, what the user could name for a topic, so that there is something to propose.
_MISSING: Final = {
    "no-limit": (
        "no limit lets a record go; --what-if {0}:retention.ms=MS, or {0}:retention.bytes=BYTES, "
        "says what one would free"
    ),
    "policy-unknown": (
        "settings are not known here; --broker-config, --metadata-dir or "
        "--config {0}:retention.ms=MS names them"
    ),
}


@dataclass(frozen=True, slots=True)
class Given:
    """What commands need to see the same settings: words of a command line."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, sources: SettingSources, *, now_ms: int | None = None) -> Given:
        """Spell what was given to `explain`."""
        pairs = [f"{name}={text}" for name, text in sources.config.items()]
        for topic, own in sources.topic_config.items():
            pairs.extend(f"{topic}:{name}={text}" for name, text in own.items())
        words = [word for pair in pairs for word in ("--config", pair)]
        for option, value in (
            ("--broker-config", sources.broker_config),
            ("--metadata-dir", sources.metadata_directory),
            ("--now", now_ms),
        ):
            if value is not None:
                words.extend((option, str(value)))
        return cls(tuple(words))

    def command(self, verb: str, one: PartitionKeeps, *, whole_topic: bool = False) -> list[str]:
        """A verb on one partition, or on all of its topic in the same data directory."""
        number = [] if whole_topic else ["--partition", str(one.partition)]
        home = os.path.dirname(one.path) or "."
        return ["kseg", verb, home, "--topic", str(one.topic), *number, *self.words]


def propose(found: Explained, wanted: int, given: Given) -> Proposal:
    """Propose steps, until they free so many bytes, or there are none left."""
    steps: list[Step] = []
    missing = wanted
    touched = [one for one in found.partitions if not one.is_internal]
    for step in (*_leftovers(touched, found.elsewhere), *_planned(touched, given)):
        if missing <= 0:
            break
        steps.append(step)
        missing -= step.bytes
    if missing > 0:
        steps.extend(_shorter(touched, found.now_ms, missing, given))
    proposal = Proposal(wanted, tuple(steps))
    return proposal if proposal.reached else replace(proposal, unproposed=_unproposed(touched))


def _unproposed(partitions: Sequence[PartitionKeeps]) -> tuple[Unproposed, ...]:
    """What settings that are missing keep: a limit is no guess of kseg's."""
    found: list[Unproposed] = []
    for cause, advice in _MISSING.items():
        freed: dict[str, int] = {}
        for one in partitions:
            size = _freed(row for row in one.rows if row.cause == cause)
            if size and one.topic is not None:
                freed[one.topic] = freed.get(one.topic, 0) + size
        if freed:
            largest = max(freed, key=lambda topic: (freed[topic], topic))
            topics = tuple(sorted(freed))
            found.append(Unproposed(cause, sum(freed.values()), topics, advice.format(largest)))
    return tuple(found)


def _freed(rows: Iterable[Kept]) -> int:
    return sum(row.bytes + row.index_bytes for row in rows)


def _leftovers(partitions: Sequence[PartitionKeeps], elsewhere: Sequence[Kept]) -> Iterator[Step]:
    for one in partitions:
        rows = [row for row in one.rows if row.path.endswith(_REMOVED)]
        if _freed(rows):
            command = shlex.join(["kseg", "recover", one.path, "--apply"])
            yield Step("leftovers", command, _freed(rows), "files of interrupted work")
        for row in one.rows:
            if row.cause in _DIRECTORIES and row.bytes:
                yield _removal(row, row.cause)
    for row in elsewhere:
        if row.cause == "backup" and row.bytes:
            yield _removal(row, "what kseg has kept of a change")


def _removal(row: Kept, why: str) -> Step:
    return Step("leftovers", shlex.join(["rm", "-r", "--", row.path]), row.bytes, why)


def _planned(partitions: Sequence[PartitionKeeps], given: Given) -> Iterator[Step]:
    """What goes by the settings, then what the cleaner takes."""
    for cause, kind, verb, why in (
        (DUE, "due", "retain", "retention takes it by the settings"),
        (COMPACTION_DUE, "compaction", "compact", "the next pass of compaction takes it"),
    ):
        for one in partitions:
            freed = _freed(row for row in one.rows if row.cause == cause)
            if freed and one.topic is not None:
                how = _FOR_GOOD if verb == "retain" else ("--apply",)
                command = [*given.command(verb, one), *how]
                yield Step(kind, shlex.join(command), freed, why)


def _shorter(
    partitions: Sequence[PartitionKeeps], now_ms: int, missing: int, given: Given
) -> Iterator[Step]:
    """Older records than the settings let go, the oldest of all topics first."""
    found = sorted(
        (
            (row.holder.timestamp, row, one)
            for one in partitions
            if one.topic is not None
            for row in one.rows
            if row.cause in _SHORTENED and row.holder is not None and not row.is_held
            if 0 <= row.holder.timestamp < now_ms
        ),
        key=lambda each: (each[0], each[1].path),
    )
    taken: dict[tuple[str, str], tuple[int, int, PartitionKeeps]] = {}
    for newest, row, one in found:
        if missing <= 0:
            break
        freed = row.bytes + row.index_bytes
        key = os.path.dirname(one.path), one.topic or ""
        taken[key] = newest, freed + taken.get(key, (0, 0, one))[1], one
        missing -= freed
    for (_, topic), (newest, freed, one) in sorted(taken.items()):
        limit = f"{topic}:retention.ms={now_ms - newest - 1}"
        command = given.command("retain", one, whole_topic=True)
        why = f"as {limit.partition(':')[2]} of {topic} does; give a broker that runs this setting"
        yield Step("retention", shlex.join([*command, "--config", limit, *_FOR_GOOD]), freed, why)


__all__ = ["Given", "propose"]
