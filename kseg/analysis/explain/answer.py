"""`explain`: why is the disk full? The cause that keeps each file.

Bytes are the blocks of a file; a file that is removed meanwhile has none. There are also small
files beside the partitions, backups, and deleted files that a process has open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg._door import renamed
from kseg.analysis.explain import codecs
from kseg.analysis.explain.values import (
    COMPACTION_DUE,
    DUE,
    UNKNOWN,
    ExplainReport,
    KeptFile,
    NewestRecord,
    PartitionKeeps,
    WhatIf,
)
from kseg.analysis.units import Threads, run_units
from kseg.analysis.values import KnownSettings
from kseg.catalog.catalog import local_paths_of
from kseg.constants import Progress
from kseg.errors import KsegError, text_of
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.io import StrPath
from kseg.files.names import (
    PartitionFiles,
    PathKind,
    SegmentFiles,
    classify_path,
    list_data_directory,
    list_partition,
    log_sizes,
    path_order,
)
from kseg.files.selection import Selection, StrPaths
from kseg.format.times import Time
from kseg.log.cleanup import (
    StayingSegment,
    latest_of,
    plan_compaction,
    plan_retention,
    segments_that_stay,
)
from kseg.log.clock import now_of
from kseg.log.data_directory import DirectoryEntry, EntryKind, entry_of, list_entries
from kseg.log.log import Log
from kseg.log.recovery import backup_root
from kseg.log.settings import OF_TOPICS, PartitionSettings, SettingSources
from kseg.log.tier import history_of, tiered
from kseg.log.topic_policy import RetentionRules, is_internal
from kseg.reports import CompactionPlan

if TYPE_CHECKING:
    from kseg.log.tier import TierLike

#: The unit of `st_blocks`, independent of the file system's block size.
_SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Disk:
    """The room of a file: bytes on the disk up to its end, its size, and bytes beyond its end."""

    bytes: int
    size: int
    ahead: int = 0

    def up_to(self, used: int, block: int = 4096) -> Disk:
        """The same, where only so much of the file is in use."""
        kept = min(self.bytes, _rounded(used, block))
        return Disk(kept, min(self.size, used), self.ahead + self.bytes - kept)


def disk_of(path: StrPath) -> Disk:
    """The room of a file.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Disk(0, 0)
    return disk_of_stat(found)


def disk_of_stat(found: os.stat_result) -> Disk:
    """The room of a file, by its status."""
    taken = found.st_blocks * _SECTOR_BYTES
    kept = min(taken, _rounded(found.st_size, max(found.st_blksize, 4096)))
    return Disk(kept, found.st_size, taken - kept)


def files_below(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below a directory; links are not followed.

    Raises:
        OSError: a directory cannot be listed.
    """
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from files_below(Path(entry.path))
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def disk_below(path: Path) -> Disk:
    """The room of all files below a directory; a file with several names there counts once.

    A file with a name elsewhere, too, does not count: its bytes stay when this name goes.

    Raises:
        OSError: a directory cannot be listed.
    """
    names: dict[tuple[int, int], int] = {}
    taken = size = 0
    for _, found in files_below(path):
        key = found.st_dev, found.st_ino
        names[key] = names.get(key, 0) + 1
        if names[key] == found.st_nlink:
            one = disk_of_stat(found)
            taken, size = taken + one.bytes + one.ahead, size + one.size
    return Disk(taken, size)


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block


# ---- files beside partitions ---------------------------------------------------------------------

_PROC: Final = Path("/proc")
_GONE: Final = " (deleted)"


def beside(home: Path, entries: Sequence[DirectoryEntry]) -> Iterator[KeptFile]:
    """The files of a data directory beside its partitions, and its backups."""
    listed = list_data_directory(home)
    known = {entry.path for entry in entries if entry.kind is not EntryKind.UNKNOWN}
    known |= {each.path for each in listed.partitions}
    caches = [entry.path for entry in entries if entry.kind is EntryKind.CACHE]
    yield from (_whole(path, "remote-index-cache") for path in caches)
    yield from (_whole(each.path, "metadata") for each in listed.files)
    yield from (_whole(path, "foreign") for path in listed.foreign if path not in known)
    yield from _backups(backup_root(home))


def _backups(root: Path) -> Iterator[KeptFile]:
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield _unknown(root, error)
        return
    yield from (_whole(root / name, "backup") for name in names)


def _whole(path: Path, cause: str) -> KeptFile:
    try:
        disk = disk_below(path) if path.is_dir() and not path.is_symlink() else disk_of(path)
    except OSError as error:
        return _unknown(path, error)
    return KeptFile(str(path), cause, disk.bytes + disk.ahead, disk.size)


def open_deleted(homes: Sequence[Path], proc: Path = _PROC) -> tuple[list[KeptFile], list[str]]:
    """Deleted files of data directories that a process has open; and the gaps in this answer."""
    inside = tuple(f"{os.path.realpath(home)}{os.sep}" for home in homes)
    found: dict[tuple[int, int], KeptFile] = {}
    hidden = 0
    try:
        numbers = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return [], ["this system does not show which deleted files are still open"]
    for number in numbers:
        try:
            names = os.listdir(proc / number / "fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            hidden += 1
            continue
        for name in names:
            _note_deleted(proc / number / "fd" / name, number, inside, found)
    why = f"the open files of {hidden} processes cannot be seen: run it as their owner or as root"
    return list(found.values()), [why] if hidden else []


def _note_deleted(
    link: Path, process: str, inside: tuple[str, ...], found: dict[tuple[int, int], KeptFile]
) -> None:
    try:
        target = os.readlink(link)
        if not (target.endswith(_GONE) and target.startswith(inside)):
            return
        seen = os.stat(link)
    except OSError:
        return
    disk = disk_of_stat(seen)
    why = f"process {process} has it open: its room comes back when that closes it, or ends"
    path = target.removesuffix(_GONE)
    row = KeptFile(path, "open-deleted", disk.bytes + disk.ahead, disk.size, why=why)
    if not seen.st_nlink:
        found.setdefault((seen.st_dev, seen.st_ino), row)


#: A whole directory with one cause.
_WHOLE: Final = {
    EntryKind.DELETE: "delete-directory",
    EntryKind.STRAY: "stray-directory",
    EntryKind.FUTURE: "future-directory",
}
#: The cleaner's words for segments that it does not touch.
_UNCLEANED: Final = {
    "active": "active",
    "high-watermark": "high-watermark",
    "last-stable-offset": "open-transaction",
    "min-compaction-lag": "min-compaction-lag",
    "map-full": "map-full",
    "unchanged": "newest-of-key",
}
_TEMPORARY: Final = {".deleted": "deleted-file"}
_SMALL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class KeepUnit:
    """A partition to examine.

    Attributes:
        path: its directory.
        own: its settings; the reason in words where they cannot be read.
        of_one_log: as of `PartitionSettings.retention_rules`.
        shown: names of the settings for the answer.
        now_ms: the clock.
        cost: bytes of log, roughly.
        tier: has further segments.
    """

    path: str
    own: PartitionSettings | str
    of_one_log: bool
    shown: tuple[str, ...]
    now_ms: int
    cost: int = 0
    tier: TierLike | None = None


def examine(unit: KeepUnit) -> PartitionKeeps:
    """Find the cause that keeps each file; a file that cannot be read is a row, not an error."""
    path = Path(unit.path)
    entry = entry_of(path)
    log = tiered(path, unit.tier)
    unit = replace(unit, tier=log or unit.tier, shown=(*unit.shown, *(_LOCAL if log else ())))
    rows: list[KeptFile] = []
    try:
        if entry.kind in _WHOLE:
            disk = disk_below(path)
            rows.append(KeptFile(unit.path, _WHOLE[entry.kind], disk.bytes, disk.size))
        else:
            rows.extend(_of_log(unit, list_partition(path)))
    except OSError as error:
        rows.append(_unknown(unit.path, error))
    topic, partition = entry.partition or (None, None)
    found = PartitionKeeps(unit.path, topic, partition, entry.kind.value, tuple(rows))
    if log is not None:
        found = replace(found, remote=history_of(log))
    if isinstance(unit.own, str):
        return found
    values = unit.own.values
    settings = {name: values[name] for name in unit.shown if name in values}
    return replace(found, settings=settings)


def _of_log(unit: KeepUnit, files: PartitionFiles) -> Iterator[KeptFile]:
    sizes = _Sizes(files)
    if files.segments:
        yield from _of_segments(unit, files, sizes)
    yield from _of_files(files)
    if sizes.ahead:
        yield KeptFile(unit.path, "preallocated", sizes.ahead, 0)


def _of_segments(unit: KeepUnit, files: PartitionFiles, sizes: _Sizes) -> tuple[KeptFile, ...]:
    """The segments; all of them are unknown if one cannot be read, so that none counts twice."""
    if isinstance(unit.own, str):
        why = unit.own
    else:
        try:
            return tuple(_kept_segments(unit, unit.own, sizes))
        except (KsegError, OSError) as error:
            why = text_of(error)
    return tuple(sizes.row(each.log, UNKNOWN, each.base_offset, why=why) for each in files.segments)


def _unknown(path: str | Path, error: KsegError | OSError) -> KeptFile:
    return KeptFile(str(path), UNKNOWN, 0, 0, why=text_of(error))


def _of_files(files: PartitionFiles) -> Iterator[KeptFile]:
    """The files outside of segments."""
    small = (path for path in (files.leader_epochs, files.metadata) if path is not None)
    pairs = (
        *((each.path, "snapshot") for each in (*files.snapshots, *files.kraft_snapshots)),
        *((path, "metadata") for path in small),
        *(
            (each.path, _TEMPORARY.get(each.path.suffix, "leftover"))
            for each in files.temporary_files
        ),
        *((each.path, "leftover") for each in files.orphans),
        *((path, "foreign") for path in files.foreign),
    )
    yield from (_whole(path, cause) for path, cause in pairs)


class _Sizes:
    """The room of the files of segments; the room that was taken ahead is summed up."""

    def __init__(self, files: PartitionFiles) -> None:
        self.ahead = 0
        self._logs: dict[int, Disk] = {}
        self._indexes: dict[int, int] = {}
        for each in files.segments:
            is_last = each is files.segments[-1]
            indexes = [_index_disk(each, path, is_last=is_last) for path in _indexes(each)]
            log = self._logs[each.base_offset] = disk_of(each.log)
            self._indexes[each.base_offset] = sum(one.bytes for one in indexes)
            self.ahead += sum(one.ahead for one in (log, *indexes))

    def row(self, path: Path, cause: str, base_offset: int, **given: Any) -> KeptFile:
        """All of a segment for one cause."""
        disk = self._logs.get(base_offset, Disk(0, 0))
        indexes = self._indexes.get(base_offset, 0)
        return KeptFile(
            str(path), cause, disk.bytes, disk.size, base_offset, index_bytes=indexes, **given
        )


def _indexes(files: SegmentFiles) -> tuple[Path, ...]:
    return tuple(
        path for path in (files.index, files.time_index, files.txn_index) if path is not None
    )


def _index_disk(files: SegmentFiles, path: Path, *, is_last: bool) -> Disk:
    disk = disk_of(path)
    if is_last and disk.bytes > _SMALL_BYTES and path != files.txn_index:
        return disk.up_to(_used_bytes(path, files))
    return disk


def _used_bytes(path: Path, files: SegmentFiles) -> int:
    """Bytes of the entries of an active segment's index; all, where their size is not known."""
    kind = OffsetIndex if path == files.index else TimeIndex
    try:
        with kind.open(path, files.base_offset, mapping="never") as index:
            return index.entry_count * (8 if kind is OffsetIndex else 12)
    except (KsegError, OSError):
        return os.path.getsize(path)


def _kept_segments(unit: KeepUnit, own: PartitionSettings, sizes: _Sizes) -> Iterator[KeptFile]:
    """The segments that retention takes, then the others, each with its cause."""
    retention, compaction = own.retention_rules(of_one_log=unit.of_one_log), own.compaction_rules()
    with Log.open(unit.path) as log:
        plan = plan_retention(log, config=retention, now=unit.now_ms, tier=unit.tier)
        segments = {info.base_offset: info for info in log.view.segments}
        for each in plan.segments:
            del segments[each.base_offset]
            yield sizes.row(each.path, DUE, each.base_offset, why=each.why)
        if compaction.skipped is not None and plan.skipped is not None:
            for info in segments.values():
                yield sizes.row(info.path, plan.skipped, info.base_offset, why=plan.why)
            return
        left = segments_that_stay(log, plan, config=retention.config)
        if compaction.skipped is None:
            yield from _compacted(unit, compaction, log, left, plan.log_end_offset, sizes)
        else:
            yield from (_staying(each, each.why, plan.why, sizes) for each in left)


def _staying(each: StayingSegment, cause: str, why: str, sizes: _Sizes) -> KeptFile:
    holder = None
    if each.holder is not None:
        latest, path = each.holder
        holder = NewestRecord(latest.offset, latest.timestamp, str(path))
    return sizes.row(
        each.path,
        cause,
        each.base_offset,
        why=why,
        until_ms=each.until_ms,
        holder=holder,
        grows_bytes=each.grows_bytes,
        is_held=each.is_held,
    )


# ---- compaction ----------------------------------------------------------------------------------


def _compacted(
    unit: KeepUnit,
    rules: RetentionRules,
    log: Log,
    left: Sequence[StayingSegment],
    end_offset: int,
    sizes: _Sizes,
) -> Iterator[KeptFile]:
    """The segments that retention leaves to the cleaner."""
    if not left:
        return
    try:
        plan = plan_compaction(log, config=rules, now=unit.now_ms, verify_crc=False)
    except (KsegError, OSError) as error:
        for each in left:
            cause = "active" if each is left[-1] else "uncleanable"
            yield _staying(each, cause, text_of(error), sizes)
        return
    saved = {each.base_offset: each.saved_bytes for one in plan.groups for each in one.segments}
    young = _young_until(log, plan)
    ends = (*(each.base_offset for each in left[1:]), end_offset)
    for each, end in zip(left, ends, strict=True):
        cause = _cause_of(each, end, plan, is_last=each is left[-1])
        row = _staying(each, cause, _words(cause, plan), sizes)
        if cause == "min-compaction-lag":
            row = replace(row, until_ms=young)
        yield from _parts(row, max(saved.get(each.base_offset) or 0, 0))


def _cause_of(each: StayingSegment, end: int, plan: CompactionPlan, *, is_last: bool) -> str:
    """The cause for which the cleaner leaves a segment."""
    if is_last:
        return "active"
    if each.base_offset >= plan.first_uncleanable_offset:
        return _UNCLEANED[plan.why_uncleanable]
    if end <= plan.first_dirty_offset:
        return "newest-of-key"
    if plan.skipped is not None:
        return "dirty-ratio"
    left = next((one for one in plan.staying if one.base_offset == each.base_offset), None)
    return "newest-of-key" if left is None else _UNCLEANED[left.why]


def _words(cause: str, plan: CompactionPlan) -> str:
    words = {
        "dirty-ratio": plan.why,
        "open-transaction": f"the first offset that is not decided is {plan.last_stable_offset}",
        "high-watermark": f"the high watermark is {plan.high_watermark}",
    }
    return words.get(cause, "")


def _young_until(log: Log, plan: CompactionPlan) -> int | None:
    """When the first segment that is too young to be compacted no longer is."""
    lag = plan.config.min_compaction_lag_ms
    if lag <= 0 or plan.first_uncleanable_offset >= plan.log_end_offset:
        return None
    return next(
        (
            latest_of(info).timestamp + lag
            for info in log.view.segments
            if info.base_offset == plan.first_uncleanable_offset and not info.is_last
        ),
        None,
    )


def _parts(row: KeptFile, saved: int) -> Iterator[KeptFile]:
    """A segment that the next pass makes smaller, in two parts: one goes, one stays."""
    if not saved:
        yield row
        return
    goes = min(saved, row.bytes)
    yield replace(row, cause=COMPACTION_DUE, bytes=goes, size=saved, index_bytes=0, until_ms=None)
    yield replace(row, bytes=row.bytes - goes, size=row.size - saved)


#: Words of a command line.
Words = tuple[str, ...]
#: The settings that decide on deletion.
_DECIDING: Final = ("cleanup.policy", "retention.bytes", "retention.ms")
#: Those of a topic with a tier, besides.
_LOCAL: Final = ("local.retention.bytes", "local.retention.ms")
_TopicConfig = Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _Directory:
    """A data directory, or one partition of it."""

    path: Path
    entries: tuple[DirectoryEntry, ...]
    of_one_log: bool
    rows: tuple[KeptFile, ...] = ()


@dataclass(frozen=True, slots=True)
class _Question:
    """The partitions to look at, and the settings by which they are judged.

    Attributes:
        homes: data directories, or partitions of them.
        sources: where the settings are looked for.
        now_ms: the clock.
        what_if, topic_what_if: settings to suppose: for all topics, under their own; and by topic.
        tier: as of `explain`.
    """

    homes: Sequence[_Directory]
    sources: SettingSources
    now_ms: int
    what_if: Mapping[str, str]
    topic_what_if: _TopicConfig
    tier: TierLike | None

    def units(self) -> tuple[KeepUnit, ...]:
        """The partitions to look at, each once."""
        known = KnownSettings(self.sources, [home.path for home in self.homes])
        shown = tuple(sorted({*_DECIDING, *self.what_if}))
        units: dict[str, KeepUnit] = {}
        for home in self.homes:
            for entry in home.entries:
                path, cost = str(entry.path), 0
                with suppress(OSError):
                    cost = sum(log_sizes(path))
                own = known.of(entry.path)
                units[path] = KeepUnit(
                    path, own, home.of_one_log, shown, self.now_ms, cost, self.tier
                )
        return tuple(units.values())

    def supposed(self) -> _Question | None:
        """The same with the settings of `what_if`; None without any."""
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
        """The topics with a value of their own of a supposed setting, by setting."""
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
        threads: how many share the work; see `kseg.doctor`.
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
    selection, given = Selection.of(topics, partitions), local_paths_of(paths)
    if broker_config is not None:
        os.stat(broker_config)
    sources.check()
    if what_if is not None and not isinstance(what_if, Mapping):
        raise TypeError(f'what_if is a dict such as {{"retention.ms": "1"}}, not {what_if!r}')
    codec_words = {"": _codec_words(what_if or {})}
    codec_words |= {topic: _codec_words(each) for topic, each in (topic_what_if or {}).items()}
    what_if = _others(what_if or {})
    topic_what_if = {
        topic: others for topic, each in (topic_what_if or {}).items() if (others := _others(each))
    }
    SettingSources(config=what_if, topic_config=topic_what_if).check()
    homes = _chosen([_home_at(each) for each in given], selection)
    asked = _Question(
        homes, replace(sources, supposed={}), now_of(now), what_if, topic_what_if, tier
    )

    def run(question: _Question) -> tuple[PartitionKeeps, ...]:
        answers = run_units(question.units(), examine, threads=threads, progress=progress)
        return tuple(sorted(answers, key=lambda one: path_order(one.path)))

    kept, places = run(asked), [home.path for home in homes]
    deleted, unknown = open_deleted(() if selection else places)
    rows = [row for home in homes for row in home.rows]
    found = ExplainReport(asked.now_ms, kept, (*rows, *deleted), tuple(unknown))
    supposed = asked.supposed()
    if supposed is not None:
        taken = [one for one in kept if asked.supposed_for(one)]
        paths = {one.path for one in taken}
        then = [one for one in run(supposed) if one.path in paths]
        found = replace(found, what_if=_differences(kept, then, asked.words, asked.own(taken)))
    cores = threads if isinstance(threads, int) else 1
    return replace(found, codecs=tuple(_estimates(kept, codec_words, cores)))


def _codec_words(words: Mapping[str, str]) -> dict[str, str]:
    """The settings to suppose whose effect is estimated from a sample; checked.

    Raises:
        ValueError: a value is invalid.
    """
    found = {name: text for name, text in words.items() if name in codecs.WORDS}
    codecs.choices_of(found)
    return found


def _others(words: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in words.items() if name not in codecs.WORDS}


def _estimates(
    kept: Sequence[PartitionKeeps], words: Mapping[str, Mapping[str, str]], threads: int
) -> Iterator[codecs.CodecEstimate]:
    """Estimates for other codecs; Kafka's own topics only if they are named."""
    places: dict[str, list[Path]] = {}
    for one in kept:
        if one.topic is not None and one.kind == EntryKind.LOG.value:
            places.setdefault(one.topic, []).append(Path(one.path))
    for topic, paths in places.items():
        general = {} if is_internal(topic) else words[""]
        choices = codecs.choices_of({**general, **words.get(topic, {})})
        if choices:
            yield from codecs.estimate(topic, paths, choices, threads=threads)


def _chosen(homes: list[_Directory], selection: Selection) -> list[_Directory]:
    """The directories with the chosen partitions alone.

    Raises:
        ValueError: no partition is chosen.
    """
    if not selection:
        return homes
    entries = [entry for home in homes for entry in home.entries]
    taken = {entry.path for entry in entries if selection.takes(*(entry.partition or (None, None)))}
    if not taken:
        raise ValueError(
            selection.why_nothing(entry.partition for entry in entries if entry.partition)
        )
    return [
        replace(home, entries=tuple(one for one in home.entries if one.path in taken), rows=())
        for home in homes
    ]


def _home_at(path: Path) -> _Directory:
    """A data directory with the files beside its partitions, or one partition.

    Raises:
        FileNotFoundError, NotADirectoryError: it does not exist, or is a file.
    """
    try:
        if classify_path(path).kind is PathKind.PARTITION:
            whole = path if path.parent != path else path.resolve()
            return _Directory(whole.parent, (entry_of(whole),), of_one_log=True)
    except (KsegError, OSError):
        pass
    try:
        entries = list_entries(path)
        copies = {one.path for one in list_data_directory(path).partitions}
        rows = tuple(beside(path, entries))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        return _Directory(path, (), of_one_log=False, rows=(_unknown(path, error),))
    taken = tuple(
        entry
        for entry in entries
        if entry.kind not in (EntryKind.UNKNOWN, EntryKind.CACHE) or entry.path in copies
    )
    return _Directory(path, taken, of_one_log=False, rows=rows)


# ---- what if -------------------------------------------------------------------------------------


def _differences(
    before: Sequence[PartitionKeeps],
    then: Sequence[PartitionKeeps],
    words: Words,
    own: Mapping[str, tuple[str, ...]],
) -> WhatIf:
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
    return WhatIf(words, tuple(goes), tuple(sooner), tuple(stays), own)


def _is_later(one_ms: int | None, other_ms: int) -> bool:
    """Whether a date is later than another; no date is never."""
    return one_ms is None or one_ms > other_ms
