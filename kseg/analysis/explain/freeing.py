"""How room could become free: steps in the order of what they cost, as commands; none is run.

First what is not needed any more (leftovers), then what goes by the settings anyway, then what the
cleaner would take, then older records than the settings let go. Topics of Kafka's own are not
touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kseg.analysis.explain.values import (
    COMPACTION_DUE,
    DUE,
    Explained,
    Kept,
    PartitionKeeps,
    Proposal,
    Step,
    Unproposed,
)
from kseg.commands import command_line
from kseg.log.settings import SettingSources

#: What `kseg recover` removes at once; it keeps other leftovers, or puts them in place.
_REMOVED: Final = (".deleted", ".cleaned")
#: So that what goes is not kept in a backup, which would free nothing.
_FOR_GOOD: Final = ("--no-backup", "--apply")
_NOT_KEPT: Final = "--no-backup, as a backup would keep the room"
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
        "settings are not known here; the broker's file with --broker-config, "
        "--config cleanup.policy=delete for all topics, or --config {0}:retention.ms=MS names them"
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

    def command(self, verb: str, parts: Sequence[PartitionKeeps], *more: str) -> str:
        """A verb on partitions of one topic, in all the data directories that they lie in."""
        topic = str(parts[0].topic)
        homes = dict.fromkeys(os.path.dirname(one.path) or "." for one in parts)
        assumed = {
            f"{topic}:{name}={one.settings[name].value}" for one in parts for name in one.assumed
        }
        named = [word for pair in sorted(assumed) for word in ("--config", pair)]
        numbers = _ranges({one.partition for one in parts if one.partition is not None})
        chosen = ("--topic", topic, "--partition", numbers)
        return command_line("kseg", verb, *homes, *chosen, *self.words, *named, *more)


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as `--partition` takes them.

    >>> _ranges([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)


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
            command = command_line("kseg", "recover", one.path, "--apply")
            yield Step("leftovers", command, _freed(rows), "files of interrupted work")
        for row in one.rows:
            if row.cause in _DIRECTORIES and row.bytes:
                yield _removal(row, row.cause)
    for row in elsewhere:
        if row.cause == "backup" and row.bytes:
            yield _removal(row, "what kseg has kept of a change")


def _removal(row: Kept, why: str) -> Step:
    return Step("leftovers", command_line("rm", "-r", "--", row.path), row.bytes, why)


def _planned(partitions: Sequence[PartitionKeeps], given: Given) -> Iterator[Step]:
    """What goes by the settings, then what the cleaner takes."""
    for cause, kind, verb, why in (
        (DUE, "due", "retain", f"retention takes it by the settings; {_NOT_KEPT}"),
        (COMPACTION_DUE, "compaction", "compact", "the next pass of compaction takes it"),
    ):
        topics: dict[str, list[tuple[PartitionKeeps, int]]] = {}
        for one in partitions:
            freed = _freed(row for row in one.rows if row.cause == cause)
            if freed and one.topic is not None and one.partition is not None:
                topics.setdefault(one.topic, []).append((one, freed))
        for found in topics.values():
            how = _FOR_GOOD if verb == "retain" else ("--apply",)
            command = given.command(verb, [one for one, _ in found], *how)
            yield Step(kind, command, sum(freed for _, freed in found), why)


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
    taken: dict[str, tuple[int, int, dict[str, PartitionKeeps]]] = {}
    for newest, row, one in found:
        if missing <= 0:
            break
        freed = row.bytes + row.index_bytes
        _, before, parts = taken.get(one.topic or "", (0, 0, {}))
        taken[one.topic or ""] = newest, freed + before, {**parts, one.path: one}
        missing -= freed
    for topic, (newest, freed, parts) in sorted(taken.items()):
        yield _shortened(topic, now_ms - newest - 1, freed, list(parts.values()), given)


def _shortened(
    topic: str, limit_ms: int, freed: int, parts: Sequence[PartitionKeeps], given: Given
) -> Step:
    """A shorter retention for a topic: once by kseg, or for good by the broker."""
    old = parts[0].settings.get("retention.ms")
    now = f"{topic}: retention.ms from {old.value if old else 'no limit'} to {limit_ms}"
    limit = f"retention.ms={limit_ms}"
    broker = command_line(
        *("kafka-configs.sh", "--bootstrap-server", "HOST:PORT", "--alter"),
        *("--entity-type", "topics", "--entity-name", topic, "--add-config", limit),
    )
    command = given.command("retain", parts, "--config", f"{topic}:{limit}", *_FOR_GOOD)
    return Step("retention", command, freed, f"{now}; {_NOT_KEPT}", broker)


__all__ = ["Given", "propose"]
