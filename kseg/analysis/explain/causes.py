"""The cause that keeps each file of a partition, and until when.

Bytes are the blocks of a file; a file that is removed meanwhile has none. Causes and dates come
from the plans of retention and compaction: at such a date they delete.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg.analysis.explain.values import (
    COMPACTION_DUE,
    DUE,
    GAPS,
    ROLLS,
    UNKNOWN,
    WHY,
    KeptFile,
    NewestRecord,
    PartitionKeeps,
)
from kseg.change.cleanup import (
    StayingSegment,
    latest_of,
    plan_compaction,
    plan_retention,
    segments_that_stay,
)
from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, text_of
from kseg.files import io
from kseg.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kseg.files.names import PartitionFiles, SegmentFiles, list_partition
from kseg.format.header import BatchHeader
from kseg.log.config import LogConfig
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.log import Log
from kseg.log.reader import LogView, SegmentInfo
from kseg.log.settings import PartitionSettings
from kseg.log.tier import history_of, tiered
from kseg.log.topic_policy import RetentionRules
from kseg.reports import CompactionPlan

if TYPE_CHECKING:
    from kseg.log.tier import TierLike

#: The unit of `st_blocks`, independent of the file system's block size.
_SECTOR_BYTES: Final = 512
_BLOCK_BYTES: Final = 4096
_PROC: Final = Path("/proc")
_GONE: Final = " (deleted)"


@frozen_dataclass
class Disk:
    """The disk space of a file.

    Attributes:
        bytes: the bytes on the disk up to its end.
        size: its size.
        ahead: the bytes on the disk beyond its end.
    """

    bytes: int = 0
    size: int = 0
    ahead: int = 0

    @classmethod
    def of(cls, status: os.stat_result) -> Disk:
        """The disk space of a file, from its status."""
        taken = status.st_blocks * _SECTOR_BYTES
        used = min(taken, _round_up_to_block(status.st_size, max(status.st_blksize, _BLOCK_BYTES)))
        return cls(used, status.st_size, taken - used)

    def up_to(self, used: int) -> Disk:
        """The same file, if only `used` bytes of it are in use: the rest counts as `ahead`."""
        used_bytes = min(self.bytes, _round_up_to_block(used, _BLOCK_BYTES))
        return Disk(used_bytes, min(self.size, used), self.ahead + self.bytes - used_bytes)


def _round_up_to_block(size: int, block: int) -> int:
    return -(-size // block) * block


def disk_of(path: StrPath) -> Disk:
    """The disk space of a file; 0 if it does not exist.

    Raises:
        OSError: its status cannot be read.
    """
    try:
        return Disk.of(os.lstat(path))
    except FileNotFoundError:
        return Disk()


def disk_below(path: Path) -> Disk:
    """The disk space of all files below a directory; a file with several names there counts once.

    A file that also has a name elsewhere does not count: its bytes stay when this name is removed.

    Raises:
        OSError: a directory cannot be listed.
    """
    names: Counter[tuple[int, int]] = Counter()
    taken = size = 0
    for status in _files_below(path):
        file = status.st_dev, status.st_ino
        names[file] += 1
        if names[file] == status.st_nlink:
            disk = Disk.of(status)
            taken = taken + disk.bytes + disk.ahead
            size = size + disk.size
    return Disk(taken, size)


def _files_below(path: StrPath) -> Iterator[os.stat_result]:
    """The status of every file below a directory; links are not followed."""
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_below(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def whole(path: Path, cause: str) -> KeptFile:
    """The row of a file, or of a directory with all files below it, that one cause keeps."""
    try:
        disk = disk_below(path) if path.is_dir() and not path.is_symlink() else disk_of(path)
    except OSError as error:
        return unknown(path, error)
    return KeptFile(str(path), cause, disk.bytes + disk.ahead, disk.size)


def unknown(path: StrPath, error: KsegError | OSError) -> KeptFile:
    """The row of a file or directory that cannot be read."""
    return KeptFile(str(path), UNKNOWN, 0, 0, why=text_of(error))


def open_deleted(
    data_directories: Sequence[Path], proc: Path = _PROC
) -> tuple[list[KeptFile], list[str]]:
    """Deleted files of data directories that a process has open; and the gaps in this answer."""
    inside = tuple(f"{os.path.realpath(home)}{os.sep}" for home in data_directories)
    rows: dict[tuple[int, int], KeptFile] = {}
    hidden = 0
    try:
        processes = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return [], [GAPS["no-processes"]]
    for process in processes:
        try:
            links = os.listdir(proc / process / "fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            hidden += 1
            continue
        for link in links:
            _note_deleted(proc / process / "fd" / link, process, inside, rows)
    return list(rows.values()), [GAPS["hidden"].format(count=hidden)] if hidden else []


def _note_deleted(
    link: Path, process: str, inside: tuple[str, ...], rows: dict[tuple[int, int], KeptFile]
) -> None:
    """Note a deleted file in the data directories that a process has open.

    Args:
        link: the process's descriptor under /proc.
        process: the id of the process, as text.
        inside: the beginnings of paths that count.
        rows: receives the file, keyed by device and inode: several processes may have it open.
    """
    try:
        target = os.readlink(link)
        if not (target.endswith(_GONE) and target.startswith(inside)):
            return
        status = os.stat(link)
    except OSError:
        return
    disk = Disk.of(status)
    why = WHY["open-deleted"].format(process=process)
    path = target.removesuffix(_GONE)
    taken = disk.bytes + disk.ahead
    if not status.st_nlink:
        row = KeptFile(path, "open-deleted", taken, disk.size, why=why)
        rows.setdefault((status.st_dev, status.st_ino), row)


# ---- causes --------------------------------------------------------------------------------------

#: The settings of a topic with a tier that decide on deletion, besides those of all topics.
_LOCAL: Final = ("local.retention.bytes", "local.retention.ms")
#: Kinds of directories that have one cause as a whole.
_WHOLE: Final = {
    EntryKind.DELETE: "delete-directory",
    EntryKind.STRAY: "stray-directory",
    EntryKind.FUTURE: "future-directory",
}
#: Why the cleaner does not touch a segment, in its words -> the cause.
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
#: With fewer closed segments, small ones (below half of segment.bytes) are not reported.
_SMALL_FROM: Final = 10


@frozen_dataclass
class KeepUnit:
    """A partition to examine.

    Attributes:
        path: its directory.
        settings: its settings; the reason in words where they cannot be read.
        of_one_log: see `PartitionSettings.retention_rules`.
        shown: the names of the settings to show in the answer.
        now_ms: the clock.
        cost: the bytes of log to read, roughly.
        tier: the tier that has further segments; None if there is none.
    """

    path: str
    settings: PartitionSettings | str
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
    rolls: dict[str, int] = {}
    known_settings = None if isinstance(unit.settings, str) else unit.settings
    try:
        if entry.kind in _WHOLE:
            disk = disk_below(path)
            rows.append(KeptFile(unit.path, _WHOLE[entry.kind], disk.bytes, disk.size))
        else:
            files = list_partition(path)
            rows.extend(_of_log(unit, files))
            if known_settings is not None:
                with suppress(KsegError, OSError):  # an unreadable file is a row already
                    rolls = _why_segments_ended(files, known_settings.config)
    except OSError as error:
        rows.append(unknown(unit.path, error))
    topic, partition = entry.partition or (None, None)
    values = {} if known_settings is None else known_settings.values
    return PartitionKeeps(
        unit.path,
        topic,
        partition,
        entry.kind.value,
        tuple(rows),
        {name: values[name] for name in unit.shown if name in values},
        rolls,
        None if log is None else history_of(log),
    )


def _why_segments_ended(files: PartitionFiles, config: LogConfig) -> dict[str, int]:
    """Reason -> the number of small segments that ended for it; empty if most are not small.

    Source: Kafka `LogSegment.shouldRoll`.
    """
    view = LogView.listed(files)
    infos = view.segments_from(0)
    small = [info.size * 2 < config.segment_bytes for info in infos[:-1]]
    if len(small) < _SMALL_FROM or sum(small) <= len(small) // 2:
        return {}
    firsts = []
    for info in infos:
        with view.open_segment(info) as segment:
            firsts.append(next(iter(next(segment.headers(limit=1))), None))
    reasons = Counter(
        _roll_of(info, first, following, config)
        for is_small, info, (first, following) in zip(small, infos, pairwise(firsts), strict=False)
        if is_small and first is not None and following is not None
    )
    return {name: reasons[name] for name in ROLLS if reasons[name]}


def _roll_of(
    info: SegmentInfo, first: BatchHeader, following: BatchHeader, config: LogConfig
) -> str:
    """Why a segment ended: a word of `ROLLS`.

    Args:
        info: the segment.
        first: its first batch.
        following: the first batch of the next segment.
        config: the configuration of the log.
    """
    waited = following.max_timestamp - first.max_timestamp
    has_times = min(following.max_timestamp, first.max_timestamp) >= 0
    if has_times and waited > config.segment_ms:
        return "segment.ms"
    if has_times and waited > config.segment_ms - config.segment_jitter_ms:
        return "segment.jitter.ms"
    indexes = {info.files.index: OFFSET_ENTRY_BYTES, info.files.time_index: TIME_ENTRY_BYTES}
    for index, entry in indexes.items():
        if index is not None and io.size_at(index) > config.segment_index_bytes - 2 * entry:
            return "index"
    return "other" if following.leader_epoch == first.leader_epoch else "leader-epoch"


def _of_log(unit: KeepUnit, files: PartitionFiles) -> Iterator[KeptFile]:
    """The rows of the files of a partition that a broker serves."""
    sizes = _Sizes(files)
    if files.segments:
        yield from _of_segments(unit, files, sizes)
    yield from _of_files(files)
    if sizes.ahead:
        yield KeptFile(unit.path, "preallocated", sizes.ahead, 0)


def _of_segments(unit: KeepUnit, files: PartitionFiles, sizes: _Sizes) -> tuple[KeptFile, ...]:
    """The rows of the segments; all are unknown if one is unreadable: none counts twice."""
    if isinstance(unit.settings, str):
        why = unit.settings
    else:
        try:
            return tuple(_segments_by_cause(unit, unit.settings, sizes))
        except (KsegError, OSError) as error:
            why = text_of(error)
    return tuple(
        sizes.row(segment.log, UNKNOWN, segment.base_offset, why=why) for segment in files.segments
    )


def _of_files(files: PartitionFiles) -> Iterator[KeptFile]:
    """The rows of the files outside of segments."""
    small = (path for path in (files.leader_epochs, files.metadata) if path is not None)
    pairs = (
        *((file.path, "snapshot") for file in (*files.snapshots, *files.kraft_snapshots)),
        *((path, "metadata") for path in small),
        *(
            (file.path, _TEMPORARY.get(file.path.suffix, "leftover"))
            for file in files.temporary_files
        ),
        *((file.path, "leftover") for file in files.orphans),
        *((path, "foreign") for path in files.foreign),
    )
    yield from (whole(path, cause) for path, cause in pairs)


class _Sizes:
    """The disk space of the files of segments.

    Attributes:
        ahead: the bytes that are allocated ahead, as for the indexes of an active segment.
    """

    def __init__(self, files: PartitionFiles) -> None:
        """Read the status of the files of all segments."""
        self.ahead = 0
        self._logs: dict[int, Disk] = {}
        self._indexes: dict[int, int] = {}
        for segment in files.segments:
            is_last = segment is files.segments[-1]
            paths = [
                path for path in (segment.index, segment.time_index, segment.txn_index) if path
            ]
            indexes = [_index_disk(segment, path, is_last=is_last) for path in paths]
            log = self._logs[segment.base_offset] = disk_of(segment.log)
            self._indexes[segment.base_offset] = sum(disk.bytes for disk in indexes)
            self.ahead += sum(disk.ahead for disk in (log, *indexes))

    def row(self, path: Path, cause: str, base_offset: int, **more: Any) -> KeptFile:
        """The row of a segment, whose files all stay for one cause."""
        disk = self._logs.get(base_offset, Disk())
        indexes = self._indexes.get(base_offset, 0)
        return KeptFile(
            str(path), cause, disk.bytes, disk.size, base_offset, index_bytes=indexes, **more
        )


def _index_disk(files: SegmentFiles, path: Path, *, is_last: bool) -> Disk:
    """The disk space of an index; in an active segment, unused entries count as `ahead`."""
    disk = disk_of(path)
    if is_last and disk.bytes > _SMALL_BYTES and path != files.txn_index:
        kind = OffsetIndex if path == files.index else TimeIndex
        with (
            suppress(KsegError, OSError),
            kind.open(path, files.base_offset, mapping="never") as index,
        ):
            return disk.up_to(index.entry_count * index.LAYOUT.itemsize)
        return disk.up_to(disk.size)
    return disk


def _segments_by_cause(
    unit: KeepUnit, settings: PartitionSettings, sizes: _Sizes
) -> Iterator[KeptFile]:
    """The rows of the segments that retention deletes, then those of the others."""
    retention = settings.retention_rules(of_one_log=unit.of_one_log)
    compaction = settings.compaction_rules()
    with Log.open(unit.path) as log:
        plan = plan_retention(log, config=retention, now=unit.now_ms, tier=unit.tier)
        segments = {info.base_offset: info for info in log.view.segments}
        for segment in plan.segments:
            del segments[segment.base_offset]
            yield sizes.row(segment.path, DUE, segment.base_offset, why=segment.why)
        if compaction.skipped is not None and plan.skipped is not None:
            for info in segments.values():
                yield sizes.row(info.path, plan.skipped, info.base_offset, why=plan.why)
            return
        left = segments_that_stay(log, plan, config=retention.config)
        if compaction.skipped is None:
            yield from _files_left_to_cleaner(
                unit, compaction, log, left, plan.log_end_offset, sizes
            )
        else:
            yield from (_staying_row(segment, segment.why, plan.why, sizes) for segment in left)


def _staying_row(segment: StayingSegment, cause: str, why: str, sizes: _Sizes) -> KeptFile:
    """The row of a segment that stays by the rules of retention."""
    holder = None
    if segment.holder is not None:
        latest, path = segment.holder
        holder = NewestRecord(latest.offset, latest.timestamp, str(path))
    return sizes.row(
        segment.path,
        cause,
        segment.base_offset,
        why=why,
        until_ms=segment.until_ms,
        holder=holder,
        grows_bytes=segment.grows_bytes,
        is_held=segment.is_held,
    )


# ---- compaction ----------------------------------------------------------------------------------


def _files_left_to_cleaner(
    unit: KeepUnit,
    rules: RetentionRules,
    log: Log,
    left: Sequence[StayingSegment],
    end_offset: int,
    sizes: _Sizes,
) -> Iterator[KeptFile]:
    """The rows of the segments that retention leaves to the cleaner.

    Args:
        unit: the partition.
        rules: the rules of its compaction.
        log: the log.
        left: the segments.
        end_offset: the end of the log.
        sizes: the disk space of the files.
    """
    if not left:
        return
    try:
        plan = plan_compaction(log, config=rules, now=unit.now_ms, verify_crc=False)
    except (KsegError, OSError) as error:
        for segment in left:
            cause = "active" if segment is left[-1] else "uncleanable"
            yield _staying_row(segment, cause, text_of(error), sizes)
        return
    saved = {
        cleaned.base_offset: cleaned.saved_bytes
        for group in plan.groups
        for cleaned in group.segments
    }
    young = _young_until(log, plan)
    untouched = {staying.base_offset: staying.why for staying in plan.staying}
    ends = (*(segment.base_offset for segment in left[1:]), end_offset)
    for segment, end in zip(left, ends, strict=True):
        why_untouched = untouched.get(segment.base_offset, "unchanged")
        cause = _cause_of(segment, end, plan, why_untouched, is_last=segment is left[-1])
        row = _staying_row(segment, cause, _why(cause, plan), sizes)
        if cause == "min-compaction-lag":
            row = replace(row, until_ms=young)
        yield from _in_two_parts(row, max(saved.get(segment.base_offset) or 0, 0))


def _cause_of(
    segment: StayingSegment, end: int, plan: CompactionPlan, why_untouched: str, *, is_last: bool
) -> str:
    """The cause for which the cleaner keeps a segment.

    Args:
        segment: the segment.
        end: the offset after it.
        plan: the next pass of the cleaner.
        why_untouched: the plan's reason for not touching it.
        is_last: whether it is the active segment.
    """
    if is_last:
        return "active"
    if segment.base_offset >= plan.first_uncleanable_offset:
        return _UNCLEANED[plan.why_uncleanable]
    if end <= plan.first_dirty_offset:
        return "newest-of-key"
    if plan.skipped is not None:
        return "dirty-ratio"
    return _UNCLEANED[why_untouched]


def _why(cause: str, plan: CompactionPlan) -> str:
    """The reason why compaction leaves a segment, in words; empty where the cause says it."""
    if cause == "dirty-ratio":
        return plan.why
    offsets = {
        "open-transaction": plan.last_stable_offset,
        "high-watermark": plan.high_watermark,
    }
    return WHY[cause].format(offset=offsets[cause]) if cause in offsets else ""


def _young_until(log: Log, plan: CompactionPlan) -> int | None:
    """When the first segment that is too young for compaction is old enough, in ms; else None."""
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


def _in_two_parts(row: KeptFile, saved: int) -> Iterator[KeptFile]:
    """A segment as two rows if the next pass makes it smaller: the part that goes, and the rest.

    Args:
        row: the row of the segment.
        saved: the bytes that the pass saves.
    """
    if not saved:
        yield row
        return
    cleaned_bytes = min(saved, row.bytes)
    yield replace(
        row, cause=COMPACTION_DUE, bytes=cleaned_bytes, size=saved, index_bytes=0, until_ms=None
    )
    yield replace(row, bytes=row.bytes - cleaned_bytes, size=row.size - saved)
