"""`explain`: why is the disk full?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from kseg import Settings, settings
from kseg.analysis.explain.causes import COMPACTION_DUE, DUE, UNKNOWN
from kseg.analysis.explain.freeing import Given, propose
from kseg.analysis.explain.partitions import KeepUnit, examine
from kseg.analysis.explain.spaces import beside, open_deleted, spaces_of
from kseg.analysis.explain.values import Explained, Kept, PartitionKeeps, Supposed
from kseg.analysis.units_run import Progress, run_units
from kseg.errors import KsegError, os_reason
from kseg.files.names import PathKind, classify_path, list_data_directory, log_bytes
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.sub_directories import DirectoryEntry, EntryKind, entry_of, list_entries

_StrPath = str | PathLike[str]
_TopicConfig = Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _Home:
    """A data directory, or one partition of it."""

    path: Path
    entries: tuple[DirectoryEntry, ...]
    of_one_log: bool
    rows: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What decides the settings."""

    homes: Sequence[_Home]
    metadata_directory: _StrPath | None
    broker_config: _StrPath | None
    config: Mapping[str, str] | None
    topic_config: _TopicConfig
    now_ms: int
    jobs: int
    progress: Progress | None

    def partitions(self) -> tuple[PartitionKeeps, ...]:
        """What each partition keeps."""
        units = list({unit.path: unit for unit in self._units()}.values())
        found = run_units(units, examine, jobs=self.jobs, progress=self.progress)
        return tuple(sorted(found, key=lambda one: one.path))

    def _units(self) -> Iterator[KeepUnit]:
        known, why = self._settings()
        for home in self.homes:
            for entry in home.entries:
                yield self._unit(entry, home, known, why)

    def _settings(self) -> tuple[Settings | None, str]:
        places = dict.fromkeys(home.path.resolve() for home in self.homes)
        try:
            return settings(
                list(places),
                metadata_directory=self.metadata_directory,
                broker_config=self.broker_config,
                config=self.config,
                topic_config=self.topic_config,
            ), ""
        except (KsegError, OSError) as error:
            return None, f"the settings cannot be read: {error}"

    def _unit(
        self, entry: DirectoryEntry, home: _Home, known: Settings | None, why: str
    ) -> KeepUnit:
        path, cost = str(entry.path), _cost(entry.path)
        if known is None:
            return KeepUnit(path, None, None, self.now_ms, cost, why)
        try:
            own = known.of(entry.path)
        except (KsegError, OSError) as error:
            return KeepUnit(path, None, None, self.now_ms, cost, f"its settings: {error}")
        retention = own.retention_rules(of_one_log=home.of_one_log)
        return KeepUnit(path, retention, own.compaction_rules(), self.now_ms, cost)


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
    jobs: int = 1,
    progress: Progress | None = None,
) -> Explained:
    """Say what keeps each byte on the disk, until when, and how room could become free.

    Nothing is changed, and no lock is taken. What cannot be read is a row with the cause `unknown`.

    Args:
        data_directories: those of one broker, or partitions of them.
        metadata_directory: the one with `__cluster_metadata-0`, if it is none of those.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        what_if, topic_what_if: settings to suppose: for every topic whose policy is known but
            Kafka's own ones, and by topic. They go before all others.
        free_bytes: propose how so many bytes could become free.
        now_ms: the clock.
        jobs: threads to share the work.
        progress: called with bytes of log done and bytes in all.

    Raises:
        ValueError: no directory, `jobs` below 1, or a setting is none.
        OSError: a directory is not there, or `broker_config` cannot be read.

    Example:
        >>> from kseg import explain
        >>> explain("/var/lib/kafka").totals[0].cause  # doctest: +SKIP
        'younger-than-retention'
    """
    given = [data_directories] if isinstance(data_directories, str | PathLike) else data_directories
    if not given:
        raise ValueError("explain wants one data directory or more")
    if broker_config is not None:
        os.stat(broker_config)
    _check(config, topic_config)
    _check(what_if, topic_what_if)
    homes = [_home_at(Path(each)) for each in given]
    now = now_of(now_ms)
    own = topic_config or {}
    asked = _Asked(homes, metadata_directory, broker_config, config, own, now, jobs, progress)
    partitions = asked.partitions()
    places = [home.path for home in homes]
    deleted, unknown = open_deleted(places)
    rows = [row for home in homes for row in home.rows]
    found = Explained(now, partitions, (*rows, *deleted), spaces_of(places), tuple(unknown))
    if what_if or topic_what_if:
        supposed = _suppose(asked, found, what_if or {}, topic_what_if or {})
        found = replace(found, what_if=supposed)
    if free_bytes is not None:
        words = Given.of(
            config,
            own,
            broker_config=broker_config,
            metadata_directory=metadata_directory,
            now_ms=None if now_ms is None else now,
        )
        found = replace(found, free=propose(found, free_bytes, words))
    return found


def _check(plain: Mapping[str, str] | None, own: _TopicConfig | None) -> None:
    """Refuse what is no setting, also where no partition would ask for it."""
    for each in (plain or {}, *(own or {}).values()):
        LogConfig.from_kafka(each)


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


def _cost(path: Path) -> int:
    with suppress(OSError):
        return log_bytes(path)
    return 0


# ---- what if -------------------------------------------------------------------------------------


def _suppose(
    asked: _Asked, found: Explained, plain: Mapping[str, str], own: _TopicConfig
) -> Supposed:
    joined: dict[str, dict[str, str]] = {
        topic: dict(each) for topic, each in asked.topic_config.items()
    }
    for one in found.partitions:
        if one.topic is not None and not one.is_internal and _is_known(one):
            joined[one.topic] = {**asked.topic_config.get(one.topic, {}), **plain}
    for topic, each in own.items():
        joined[topic] = {**joined.get(topic, {}), **each}
    then = replace(asked, topic_config=joined, progress=None).partitions()
    words = [f"{name}={text}" for name, text in plain.items()]
    words += [
        f"{topic}:{name}={text}" for topic, each in own.items() for name, text in each.items()
    ]
    return _differences(found.partitions, then, tuple(words))


def _is_known(one: PartitionKeeps) -> bool:
    return all(row.cause != "policy-unknown" for row in one.rows)


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


__all__ = ["explain"]
