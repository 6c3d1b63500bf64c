"""`explain`: why is the disk full? The cause that keeps each file, and what other settings change.

There are also small files beside the partitions, backups, and deleted files that a process has
open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg._door import renamed
from kseg.analysis.explain import values
from kseg.analysis.explain.causes import KeepUnit, examine, open_deleted, unknown, whole
from kseg.analysis.explain.values import (
    COMPACTION_DUE,
    DUE,
    ExplainReport,
    KeptFile,
    PartitionKeeps,
    WhatIf,
)
from kseg.analysis.units import Threads, run_units
from kseg.analysis.values import KnownSettings
from kseg.catalog import local_paths_of
from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError
from kseg.files.names import (
    DataDirectory,
    PathKind,
    classify_path,
    list_data_directory,
    log_sizes,
    path_order,
)
from kseg.files.selection import Selection, StrPaths
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.data_directory import DirectoryEntry, EntryKind, entry_of
from kseg.log.recovery import backup_root
from kseg.log.settings import OF_TOPICS, SettingSources
from kseg.log.topic_policy import is_internal

if TYPE_CHECKING:
    from kseg.log.tier import TierLike

#: Words of a command line.
Words = tuple[str, ...]
#: The settings that decide on deletion.
_DECIDING: Final = ("cleanup.policy", "retention.bytes", "retention.ms")
#: Directories whose names are not those of partitions; `list_data_directory` may take one for a
#: copy of a partition.
_NOT_PARTITIONS: Final = (EntryKind.UNKNOWN, EntryKind.CACHE)
_TopicConfig = Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _Directory:
    """A data directory, or one partition of it.

    Attributes:
        path: the data directory.
        entries: its partitions, or the one that was named.
        of_one_log: whether a partition was named.
        rows: the files beside the partitions.
    """

    path: Path
    entries: tuple[DirectoryEntry, ...]
    of_one_log: bool
    rows: tuple[KeptFile, ...] = ()


@frozen_dataclass
class _Question:
    """The partitions to examine, and the settings that decide about their files.

    Attributes:
        directories: data directories, or partitions of them.
        sources: where the settings come from.
        now_ms: the clock.
        what_if, topic_what_if: settings to suppose: for all topics that do not have their own, and
            for single topics.
        tier: as for `explain`.
    """

    directories: Sequence[_Directory]
    sources: SettingSources
    now_ms: int
    what_if: Mapping[str, str]
    topic_what_if: _TopicConfig
    tier: TierLike | None

    def units(self) -> tuple[KeepUnit, ...]:
        """The partitions to examine, each once."""
        settings = KnownSettings(self.sources, [directory.path for directory in self.directories])
        shown = tuple(sorted({*_DECIDING, *self.what_if}))
        units: dict[str, KeepUnit] = {}
        for directory in self.directories:
            for entry in directory.entries:
                path = str(entry.path)
                cost = 0
                with suppress(OSError):
                    cost = sum(log_sizes(path))
                of_partition = settings.of(entry.path)
                units[path] = KeepUnit(
                    path, of_partition, directory.of_one_log, shown, self.now_ms, cost, self.tier
                )
        return tuple(units.values())

    def supposed(self) -> _Question | None:
        """The question with the settings of `what_if`; None if there are none."""
        if not (self.what_if or self.topic_what_if):
            return None
        joined = {topic: dict(words) for topic, words in self.sources.topic_config.items()}
        for topic, words in self.topic_what_if.items():
            joined[topic] = {**joined.get(topic, {}), **words}
        sources = replace(self.sources, topic_config=joined, supposed=self.what_if)
        return replace(self, sources=sources)

    def supposed_for(self, partition: PartitionKeeps) -> bool:
        """Whether settings are supposed for a partition, given its answer by today's settings."""
        return partition.topic in self.topic_what_if or (
            partition.is_known and not partition.is_internal
        )

    def topics_with_values(
        self, partitions: Iterable[PartitionKeeps]
    ) -> dict[str, tuple[str, ...]]:
        """Supposed setting -> the topics that have a value of their own for it."""
        topics: dict[str, set[str]] = {}
        for partition in partitions:
            for name in (
                self.what_if.keys() - self.topic_what_if.get(partition.topic or "", {}).keys()
            ):
                has_own = (
                    name in partition.settings and partition.settings[name].source in OF_TOPICS
                )
                if has_own and partition.topic is not None:
                    topics.setdefault(name, set()).add(partition.topic)
        return {name: tuple(sorted(topics)) for name, topics in sorted(topics.items())}

    @property
    def words(self) -> tuple[str, ...]:
        """The settings to suppose, as on a command line."""
        plain = [f"{name}={text}" for name, text in self.what_if.items()]
        of_topics = [
            f"{topic}:{name}={text}"
            for topic, words in self.topic_what_if.items()
            for name, text in words.items()
        ]
        return (*plain, *of_topics)


@renamed(data_directories="paths", now_ms="now")
def explain(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    metadata_directory: StrPath | None = None,
    broker_config: StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: _TopicConfig | None = None,
    what_if: Mapping[str, str] | None = None,
    topic_what_if: _TopicConfig | None = None,
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
    tier: TierLike | None = None,
) -> ExplainReport:
    """Explain why each byte is on the disk, and until when.

    Nothing is changed, and no lock is taken. A file that cannot be read has the cause `unknown`.

    Args:
        paths: the data directories of one broker, or partitions of them, or globs.
        topics: only these: a name or a glob, or several; files beside partitions are left out then.
        partitions: only these partitions: a number, or several.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        what_if: settings to suppose for all topics whose policy is known, except for Kafka's own.
            Like a change of the broker's configuration, they do not touch a topic's own settings.
            `compression.type`, one codec or several with commas, with `compression.zstd.level` and
            the like, are answered in `codecs`, from a sample.
        topic_what_if: settings to suppose by topic, before all others.
        now: the clock.
        threads: the number of threads that share the work; see `kseg.doctor`.
        progress: called with bytes of log done and bytes in all.
        tier: as for `plan_retention`.

    Raises:
        TierError: what a tier says of its segments cannot be used.
        ValueError: no directory, `threads` below 1, an invalid setting, or no partition is chosen.
        TypeError: an argument has a wrong type.
        OSError: a directory is not there, or `broker_config` cannot be read.

    Example:
        >>> from kseg import explain
        >>> explain("/var/lib/kafka").totals[0].cause  # doctest: +SKIP
        'younger-than-retention'
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    selection, directories = Selection.of(topics, partitions), local_paths_of(paths)
    if broker_config is not None:
        os.stat(broker_config)
    sources.check()
    if what_if is not None and not isinstance(what_if, Mapping):
        raise TypeError(f'what_if is a dict such as {{"retention.ms": "1"}}, not {what_if!r}')
    codec_words, other_words = _split_by_effect({"": what_if or {}, **(topic_what_if or {})})
    what_if = other_words.pop("")
    topic_what_if = {topic: words for topic, words in other_words.items() if words}
    SettingSources(config=what_if, topic_config=topic_what_if).check()
    chosen = _choose_partitions([_directory_at(path) for path in directories], selection)
    question_now = _Question(
        chosen, replace(sources, supposed={}), now_of(now), what_if, topic_what_if, tier
    )

    def run(question: _Question) -> tuple[PartitionKeeps, ...]:
        answers = run_units(question.units(), examine, threads=threads, progress=progress)
        return tuple(sorted(answers, key=lambda partition: path_order(partition.path)))

    keeps = run(question_now)
    deleted, unknown = open_deleted(() if selection else [directory.path for directory in chosen])
    rows = [row for directory in chosen for row in directory.rows]
    report = ExplainReport(question_now.now_ms, keeps, (*rows, *deleted), tuple(unknown))
    supposed = question_now.supposed()
    if supposed is not None:
        affected = [partition for partition in keeps if question_now.supposed_for(partition)]
        paths = {partition.path for partition in affected}
        then = [partition for partition in run(supposed) if partition.path in paths]
        report = replace(
            report,
            what_if=_differences(
                keeps, then, question_now.words, question_now.topics_with_values(affected)
            ),
        )
    cores = threads if isinstance(threads, int) else 1
    return replace(report, codecs=tuple(_estimates(keeps, codec_words, cores)))


def _split_by_effect(
    words: _TopicConfig,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Split supposed settings into those whose effect is estimated from a sample, and the others.

    Args:
        words: topic -> settings; "" stands for all topics.

    Raises:
        ValueError: a value is invalid.
    """
    of_codecs, others = (
        {
            topic: {name: text for name, text in of_topic.items() if (name in values.WORDS) is part}
            for topic, of_topic in words.items()
        }
        for part in (True, False)  # whether the setting is about a codec
    )
    for settings in of_codecs.values():
        values.choices_of(settings)
    return of_codecs, others


def _estimates(
    keeps: Sequence[PartitionKeeps], words: Mapping[str, Mapping[str, str]], threads: int
) -> Iterator[values.CodecEstimate]:
    """Estimates for other codecs; for Kafka's own topics only if they are named.

    Args:
        keeps: the partitions.
        words: topic -> settings about codecs; "" stands for all topics.
        threads: the number of threads.
    """
    paths_by_topic: dict[str, list[Path]] = {}
    for partition in keeps:
        if partition.topic is not None and partition.kind == EntryKind.LOG.value:
            paths_by_topic.setdefault(partition.topic, []).append(Path(partition.path))
    for topic, paths in paths_by_topic.items():
        general = {} if is_internal(topic) else words[""]
        choices = values.choices_of({**general, **words.get(topic, {})})
        if choices:
            yield from values.estimate(topic, paths, choices, threads=threads)


def _choose_partitions(directories: list[_Directory], selection: Selection) -> list[_Directory]:
    """The directories with only the chosen partitions.

    Raises:
        ValueError: no partition is chosen.
    """
    if not selection:
        return directories
    entries = [entry for directory in directories for entry in directory.entries]
    chosen = {
        entry.path for entry in entries if selection.takes(*(entry.partition or (None, None)))
    }
    if not chosen:
        raise ValueError(
            selection.why_nothing(entry.partition for entry in entries if entry.partition)
        )
    return [
        replace(
            directory,
            entries=tuple(entry for entry in directory.entries if entry.path in chosen),
            rows=(),
        )
        for directory in directories
    ]


def _directory_at(path: Path) -> _Directory:
    """A data directory with the files beside its partitions, or one partition.

    A directory that cannot be read becomes one row with the error.

    Raises:
        FileNotFoundError, NotADirectoryError: it does not exist, or is a file.
    """
    path_class = None
    with suppress(KsegError, OSError):
        path_class = classify_path(path)
    if path_class is not None and path_class.kind is PathKind.PARTITION:
        partition = path if path.parent != path else path.resolve()  # `.` is its own parent
        return _Directory(partition.parent, (entry_of(partition),), of_one_log=True)
    try:
        listing = (path_class and path_class.data_directory) or list_data_directory(path)
        rows = tuple(_files_beside_partitions(listing))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        return _Directory(path, (), of_one_log=False, rows=(unknown(path, error),))
    copies = [entry_of(partition.path) for partition in listing.partitions]
    foreign = [entry_of(directory) for directory in listing.foreign if directory.is_dir()]
    entries = (*copies, *(entry for entry in foreign if entry.kind not in _NOT_PARTITIONS))
    return _Directory(path, entries, of_one_log=False, rows=rows)


def _files_beside_partitions(listing: DataDirectory) -> Iterator[KeptFile]:
    """The files of a data directory beside its partitions, and its backups."""
    kinds = {
        directory: entry_of(directory).kind for directory in listing.foreign if directory.is_dir()
    }
    caches = [directory for directory, kind in kinds.items() if kind is EntryKind.CACHE]
    yield from (whole(directory, "remote-index-cache") for directory in caches)
    yield from (whole(file.path, "metadata") for file in listing.files)
    for stranger in listing.foreign:
        if kinds.get(stranger, EntryKind.UNKNOWN) is EntryKind.UNKNOWN:
            yield whole(stranger, "foreign")
    root = backup_root(listing.path)
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield unknown(root, error)
        return
    yield from (whole(root / name, "backup") for name in names)


# ---- what if -------------------------------------------------------------------------------------


def _differences(
    before: Sequence[PartitionKeeps],
    then: Sequence[PartitionKeeps],
    words: Words,
    own_values: Mapping[str, tuple[str, ...]],
) -> WhatIf:
    """The effect of supposed settings, file by file.

    Args:
        before: the partitions by the present settings.
        then: the affected partitions by the supposed settings.
        words: the supposed settings.
        own_values: see `WhatIf.own`.
    """
    was = {(row.path, row.cause): row for partition in before for row in partition.rows}
    dates = {row.path: row.until_ms for partition in before for row in partition.rows}
    goes, sooner, stays = [], [], []
    for row in (row for partition in then for row in partition.rows if row.base_offset is not None):
        old = dates.get(row.path)
        if row.cause in (DUE, COMPACTION_DUE):
            if (row.path, row.cause) not in was:
                goes.append(row)
        elif (row.path, DUE) in was or (old is not None and _is_later(row.until_ms, old)):
            stays.append(row)
        elif row.until_ms is not None and _is_later(old, row.until_ms):
            sooner.append(row)
    return WhatIf(words, tuple(goes), tuple(sooner), tuple(stays), own_values)


def _is_later(one_ms: int | None, other_ms: int) -> bool:
    """Whether a date is later than another one; None means never."""
    return one_ms is None or one_ms > other_ms
