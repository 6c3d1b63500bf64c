"""`explain`: why is the disk full?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

from kseg.analysis.explain.freeing import Given, propose
from kseg.analysis.explain.partitions import KeepUnit, examine
from kseg.analysis.explain.spaces import beside, open_deleted, spaces_of
from kseg.analysis.explain.values import (
    COMPACTION_DUE,
    DUE,
    UNKNOWN,
    Explained,
    Kept,
    PartitionKeeps,
    Supposed,
)
from kseg.analysis.known_settings import KnownSettings
from kseg.analysis.units_run import Jobs, Progress, run_units
from kseg.errors import KsegError, os_reason
from kseg.files.names import PathKind, classify_path, list_data_directory, log_sizes, path_order
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.settings import OF_TOPICS, SettingSources
from kseg.log.sub_directories import DirectoryEntry, EntryKind, entry_of, list_entries

#: What decides on deletion.
_DECIDING: Final = ("cleanup.policy", "retention.bytes", "retention.ms")
_StrPath = str | PathLike[str]
_TopicConfig = Mapping[str, Mapping[str, str]]
#: Has partitions looked at, in any order, by `examine`.
Run = Callable[[Sequence[KeepUnit]], Iterable[PartitionKeeps]]


@dataclass(slots=True)
class _Home:
    """A data directory, or one partition of it."""

    path: Path
    entries: tuple[DirectoryEntry, ...]
    of_one_log: bool
    rows: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, as `plan` has found it.

    Attributes:
        homes: data directories, or partitions of them.
        sources: where the settings are looked for.
        now_ms: the clock.
        is_now_given: whether a caller named it.
        what_if, topic_what_if: settings to suppose: for all topics, under their own; and by topic.
        free_bytes: how many bytes are wanted; None proposes nothing.
    """

    homes: Sequence[_Home]
    sources: SettingSources
    now_ms: int
    is_now_given: bool
    what_if: Mapping[str, str]
    topic_what_if: _TopicConfig
    free_bytes: int | None

    def units(self) -> tuple[KeepUnit, ...]:
        """The partitions to look at, each once."""
        known = KnownSettings(self.sources, [home.path for home in self.homes])
        units = (self._unit(entry, home, known) for home in self.homes for entry in home.entries)
        return tuple({unit.path: unit for unit in units}.values())

    def _unit(self, entry: DirectoryEntry, home: _Home, known: KnownSettings) -> KeepUnit:
        path, sizes = str(entry.path), _sizes(entry.path)
        cost, segments = sum(sizes), len(sizes)
        own = known.of(entry.path)
        if isinstance(own, str):
            return KeepUnit(path, None, None, self.now_ms, cost, segments, own)
        retention = own.retention_rules(of_one_log=home.of_one_log)
        return KeepUnit(
            path,
            retention,
            own.compaction_rules(),
            self.now_ms,
            cost,
            segments,
            settings={
                name: own.values[name] for name in (*_DECIDING, *self.what_if) if name in own.values
            },
            assumed=tuple(sorted(own.assumed)),
        )

    def supposed(self) -> Asked | None:
        """The same with the settings to suppose; None where there are none."""
        if not (self.what_if or self.topic_what_if):
            return None
        joined = {topic: dict(each) for topic, each in self.sources.topic_config.items()}
        for topic, each in self.topic_what_if.items():
            joined[topic] = {**joined.get(topic, {}), **each}
        sources = replace(self.sources, topic_config=joined, supposed=self.what_if)
        return replace(self, sources=sources)

    def supposed_for(self, one: PartitionKeeps) -> bool:
        """Whether settings are supposed for a partition, as it is by the settings that are."""
        return one.topic in self.topic_what_if or (one.is_known and not one.is_internal)

    def own(self, partitions: Iterable[PartitionKeeps]) -> dict[str, tuple[str, ...]]:
        """The topics that have a value of their own of what is supposed for all, by setting."""
        found: dict[str, set[str]] = {}
        for one in partitions:
            for name in self.what_if.keys() - self.topic_what_if.get(one.topic or "", {}).keys():
                has_own = name in one.settings and one.settings[name].source in OF_TOPICS
                if has_own and one.topic is not None:
                    found.setdefault(name, set()).add(one.topic)
        return {name: tuple(sorted(topics)) for name, topics in sorted(found.items())}

    @property
    def words(self) -> tuple[str, ...]:
        """The settings to suppose, as a command line has them."""
        plain = [f"{name}={text}" for name, text in self.what_if.items()]
        own = [
            f"{topic}:{name}={text}"
            for topic, each in self.topic_what_if.items()
            for name, text in each.items()
        ]
        return (*plain, *own)


def explain(
    data_directories: _StrPath | Sequence[_StrPath],
    *,
    metadata_directory: _StrPath | None = None,
    broker_config: _StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: _TopicConfig | None = None,
    what_if: Mapping[str, str] | None = None,
    topic_what_if: _TopicConfig | None = None,
    free_bytes: int | None = None,
    now_ms: Time | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> Explained:
    """Say what keeps each byte on the disk, until when, and how room could become free.

    Nothing is changed, and no lock is taken. What cannot be read is a row with the cause `unknown`.

    Args:
        data_directories: those of one broker, or partitions of them.
        metadata_directory: the one with `__cluster_metadata-0`, if it is none of those.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        what_if: settings to suppose for all topics whose policy is known but Kafka's own ones. As a
            change of the broker's configuration would, they leave alone what a topic says itself.
        topic_what_if: settings to suppose by topic, before all others.
        free_bytes: propose how so many bytes could become free.
        now_ms: the clock.
        jobs: how many share the work; see `kseg.doctor`.
        progress: called with bytes of log done and bytes in all.

    Raises:
        ValueError: no directory, `jobs` below 1, or a setting is none.
        OSError: a directory is not there, or `broker_config` cannot be read.

    Example:
        >>> from kseg import explain
        >>> explain("/var/lib/kafka").totals[0].cause  # doctest: +SKIP
        'younger-than-retention'
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    given = [data_directories] if isinstance(data_directories, str | PathLike) else data_directories
    asked = plan(
        given,
        sources=sources,
        what_if=what_if or {},
        topic_what_if=topic_what_if or {},
        free_bytes=free_bytes,
        now_ms=now_ms,
    )

    def run(units: Sequence[KeepUnit]) -> Iterator[PartitionKeeps]:
        segments = sum(unit.segments for unit in units)
        return run_units(units, examine, jobs=jobs, progress=progress, segments=segments)

    return report(asked, run)


def plan(
    data_directories: Sequence[_StrPath],
    *,
    sources: SettingSources,
    what_if: Mapping[str, str],
    topic_what_if: _TopicConfig,
    free_bytes: int | None,
    now_ms: Time | None = None,
) -> Asked:
    """Look at all but the logs; for the arguments and errors see `explain`."""
    if not data_directories:
        raise ValueError("explain wants one data directory or more")
    if sources.broker_config is not None:
        os.stat(sources.broker_config)
    sources.check()
    SettingSources(config=what_if, topic_config=topic_what_if).check()
    sources = replace(sources, supposed={})
    homes = [_home_at(Path(each)) for each in data_directories]
    now = now_of(now_ms)
    return Asked(homes, sources, now, now_ms is not None, what_if, topic_what_if, free_bytes)


def report(asked: Asked, run: Run) -> Explained:
    """Have the partitions looked at, once more by supposed settings, and say what was found."""
    partitions = _run(asked, run)
    places = [home.path for home in asked.homes]
    deleted, unknown = open_deleted(places)
    rows = [row for home in asked.homes for row in home.rows]
    found = Explained(
        asked.now_ms, partitions, (*rows, *deleted), spaces_of(places), tuple(unknown)
    )
    supposed = asked.supposed()
    if supposed is not None:
        taken = {one.path for one in partitions if asked.supposed_for(one)}
        then = [one for one in _run(supposed, run) if one.path in taken]
        differences = _differences(partitions, then, asked.words)
        own = asked.own(one for one in partitions if one.path in taken)
        found = replace(found, what_if=replace(differences, own=own))
    if asked.free_bytes is not None:
        given = Given.of(asked.sources, now_ms=asked.now_ms if asked.is_now_given else None)
        found = replace(found, free=propose(found, asked.free_bytes, given))
    return found


def _run(asked: Asked, run: Run) -> tuple[PartitionKeeps, ...]:
    return tuple(sorted(run(asked.units()), key=lambda one: path_order(one.path)))


def _home_at(path: Path) -> _Home:
    """A data directory with what lies beside its partitions, or one partition.

    Raises:
        FileNotFoundError, NotADirectoryError: it is none.
    """
    try:
        if classify_path(path).kind is PathKind.PARTITION:
            whole = path if path.parent != path else path.resolve()
            return _Home(whole.parent, (entry_of(whole),), of_one_log=True)
    except (KsegError, OSError):
        pass
    try:
        entries = list_entries(path)
        copies = {one.path for one in list_data_directory(path).partitions}
        rows = tuple(beside(path, entries))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        row = Kept(str(path), UNKNOWN, 0, 0, why=os_reason(error))
        return _Home(path, (), of_one_log=False, rows=(row,))
    taken = tuple(
        entry
        for entry in entries
        if entry.kind not in (EntryKind.UNKNOWN, EntryKind.CACHE) or entry.path in copies
    )
    return _Home(path, taken, of_one_log=False, rows=rows)


def _sizes(path: Path) -> list[int]:
    with suppress(OSError):
        return log_sizes(path)
    return []


# ---- what if -------------------------------------------------------------------------------------


def _differences(
    before: Sequence[PartitionKeeps], then: Sequence[PartitionKeeps], words: tuple[str, ...]
) -> Supposed:
    was = {(row.path, row.cause): row for one in before for row in one.rows}
    dates = {row.path: row.until_ms for one in before for row in one.rows}
    goes, sooner, stays = [], [], []
    for row in (row for one in then for row in one.rows if row.base_offset is not None):
        old = dates.get(row.path)
        if row.cause in (DUE, COMPACTION_DUE):
            if (row.path, row.cause) not in was:
                goes.append(row)
        elif (row.path, DUE) in was or (old is not None and _is_later(row.until_ms, old)):
            stays.append(row)
        elif row.until_ms is not None and _is_later(old, row.until_ms):
            sooner.append(row)
    return Supposed(words, tuple(goes), tuple(sooner), tuple(stays))


def _is_later(one_ms: int | None, other_ms: int) -> bool:
    """Whether a date is later than another; no date is never."""
    return one_ms is None or one_ms > other_ms


__all__ = ["Asked", "explain", "plan", "report"]
