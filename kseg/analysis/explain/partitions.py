"""What keeps each file of one partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from kseg import CompactionPlan, RetentionPlan
from kseg.analysis.explain.spaces import Disk, disk_below, disk_of
from kseg.analysis.explain.values import COMPACTION_DUE, DUE, UNKNOWN, Holder, Kept, PartitionKeeps
from kseg.errors import KsegError, os_reason
from kseg.files.names import PartitionFiles, SegmentFiles, list_partition
from kseg.files.offset_index import OffsetIndex
from kseg.files.time_index import TimeIndex
from kseg.log.changes import (
    StayingSegment,
    latest_of,
    plan_compaction,
    plan_retention,
    segments_that_stay,
)
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.settings import SettingValue
from kseg.log.sub_directories import EntryKind, entry_of
from kseg.log.topic_policy import RetentionRules

#: A whole directory with one cause.
_WHOLE: Final = {
    EntryKind.DELETE: "delete-directory",
    EntryKind.STRAY: "stray-directory",
    EntryKind.FUTURE: "future-directory",
}
#: The cleaner's words for what it does not touch.
_UNCLEANED: Final = {
    "active": "active",
    "high-watermark": "high-watermark",
    "last-stable-offset": "open-transaction",
    "min-compaction-lag": "min-compaction-lag",
    "map-full": "map-full",
    "unchanged": "newest-of-key",
}
_DELETED: Final = ".deleted"
_SMALL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class KeepUnit:
    """One partition to look at.

    Attributes:
        path: its directory.
        retention, compaction: what both go by; None where the settings cannot be read.
        now_ms: the clock.
        cost, segments: bytes of log, roughly, and files.
        why: why the settings cannot be read.
        settings: those that decide on deletion, and those that were supposed, as far as known.
        assumed: as of `PartitionSettings`.
    """

    path: str
    retention: RetentionRules | None
    compaction: RetentionRules | None
    now_ms: int
    cost: int = 0
    segments: int = 0
    why: str = ""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


class _Segment(Protocol):
    """A segment of a plan, or of a log."""

    @property
    def base_offset(self) -> int:
        """From the file's name."""

    @property
    def path(self) -> Path:
        """The log file."""


def examine(unit: KeepUnit) -> PartitionKeeps:
    """Say what keeps each file; what cannot be read is a row of the answer, not an error."""
    path = Path(unit.path)
    entry = entry_of(path)
    rows: list[Kept] = []
    try:
        if entry.kind in _WHOLE:
            disk = disk_below(path)
            rows.append(Kept(unit.path, _WHOLE[entry.kind], disk.bytes, disk.size))
        else:
            rows.extend(_of_log(unit, list_partition(path)))
    except OSError as error:
        rows.append(Kept(unit.path, UNKNOWN, 0, 0, why=_reason(error)))
    partition = entry.partition
    return PartitionKeeps(
        unit.path,
        partition.topic if partition else None,
        partition.partition if partition else None,
        entry.kind.value,
        tuple(rows),
        unit.settings,
        unit.assumed,
    )


def _of_log(unit: KeepUnit, files: PartitionFiles) -> Iterator[Kept]:
    sizes = _Sizes(files)
    if files.segments:
        yield from _of_segments(unit, files, sizes)
    yield from _of_files(files)
    if sizes.ahead:
        yield Kept(unit.path, "preallocated", sizes.ahead, 0)


def _of_segments(unit: KeepUnit, files: PartitionFiles, sizes: _Sizes) -> tuple[Kept, ...]:
    """The segments; all of them are unknown if one cannot be read, so that none counts twice."""
    if unit.retention is None or unit.compaction is None:
        why = unit.why
    else:
        try:
            return tuple(_Segments(unit, unit.retention, unit.compaction, sizes).rows())
        except (KsegError, OSError) as error:
            why = _reason(error)
    return tuple(sizes.row(each.log, UNKNOWN, each.base_offset, why=why) for each in files.segments)


def _reason(error: KsegError | OSError) -> str:
    if isinstance(error, OSError):
        return os_reason(error)
    return str(error)


def _of_files(files: PartitionFiles) -> Iterator[Kept]:
    """The files that are no part of a segment."""
    for each in (*files.snapshots, *files.kraft_snapshots):
        yield _file(each.path, "snapshot")
    for path in (files.leader_epochs, files.metadata):
        if path is not None:
            yield _file(path, "metadata")
    for each in files.temporary_files:
        is_deleted = each.path.name.endswith(_DELETED)
        yield _file(each.path, "deleted-file" if is_deleted else "leftover")
    for each in files.orphans:
        yield _file(each.path, "leftover")
    for path in files.foreign:
        yield _file(path, "foreign")


def _file(path: Path, cause: str) -> Kept:
    try:
        disk = disk_below(path) if path.is_dir() and not path.is_symlink() else disk_of(path)
    except OSError as error:
        return Kept(str(path), UNKNOWN, 0, 0, why=_reason(error))
    return Kept(str(path), cause, disk.bytes + disk.ahead, disk.size)


class _Sizes:
    """What the files of the segments take; what was taken ahead is summed up."""

    def __init__(self, files: PartitionFiles) -> None:
        self.ahead = 0
        self._logs: dict[int, Disk] = {}
        self._indexes: dict[int, int] = {}
        for each in files.segments:
            is_last = each is files.segments[-1]
            self._logs[each.base_offset] = self._take(disk_of(each.log))
            found = [self._index(each, path, is_last=is_last) for path in _indexes(each)]
            self._indexes[each.base_offset] = sum(found)

    def row(self, path: Path, cause: str, base_offset: int, *, why: str = "") -> Kept:
        """All of a segment for one cause."""
        disk = self._logs.get(base_offset, Disk(0, 0))
        indexes = self._indexes.get(base_offset, 0)
        return Kept(
            str(path), cause, disk.bytes, disk.size, base_offset, index_bytes=indexes, why=why
        )

    def _take(self, disk: Disk) -> Disk:
        self.ahead += disk.ahead
        return disk

    def _index(self, files: SegmentFiles, path: Path, *, is_last: bool) -> int:
        disk = disk_of(path)
        if is_last and disk.bytes > _SMALL_BYTES and path != files.txn_index:
            disk = disk.up_to(_used_bytes(path, files))
        return self._take(disk).bytes


def _indexes(files: SegmentFiles) -> tuple[Path, ...]:
    return tuple(
        path for path in (files.index, files.time_index, files.txn_index) if path is not None
    )


def _used_bytes(path: Path, files: SegmentFiles) -> int:
    """Bytes of the entries of an active segment's index; all, where it cannot be told."""
    kind = OffsetIndex if path == files.index else TimeIndex
    try:
        with kind.open(path, files.base_offset, mapping="never") as index:
            return index.entry_count * (8 if kind is OffsetIndex else 12)
    except (KsegError, OSError):
        return os.path.getsize(path)


class _Segments:
    """The segments of a log, each with what keeps it."""

    def __init__(
        self, unit: KeepUnit, retention: RetentionRules, compaction: RetentionRules, sizes: _Sizes
    ) -> None:
        self.unit, self.sizes = unit, sizes
        self.retention, self.compaction = retention, compaction

    def rows(self) -> Iterator[Kept]:
        """Those that retention takes, then the others."""
        retention, compaction = self.retention, self.compaction
        with Log.open(self.unit.path) as log:
            plan = plan_retention(log, config=retention, now_ms=self.unit.now_ms)
            for each in plan.segments:
                newest = _newest(log, each.base_offset)
                yield self._row(each, DUE, why=each.why, newest_ms=newest)
            if compaction.skipped is None:
                yield from self._compacted(log, plan)
            elif plan.skipped is not None:
                going = {each.base_offset for each in plan.segments}
                for info in log.view.segments:
                    if info.base_offset not in going:
                        yield self._row(info, plan.skipped, why=plan.why)
            else:
                yield from self._retained(log, plan, retention.config)

    def _row(
        self, each: _Segment, cause: str, *, why: str = "", newest_ms: int | None = None
    ) -> Kept:
        row = self.sizes.row(each.path, cause, each.base_offset, why=why)
        return replace(row, newest_ms=newest_ms)

    def _retained(self, log: Log, plan: RetentionPlan, config: LogConfig) -> Iterator[Kept]:
        for each in segments_that_stay(log, plan, config=config):
            yield self._staying(each, each.why, plan.why)

    def _staying(self, each: StayingSegment, cause: str, why: str) -> Kept:
        holder = each.holder
        return replace(
            self._row(each, cause, why=why),
            until_ms=each.until_ms,
            newest_ms=each.newest.timestamp if each.newest else None,
            holder=Holder(holder[0].offset, holder[0].timestamp, str(holder[1]))
            if holder
            else None,
            grows_bytes=each.grows_bytes,
            is_held=each.is_held,
        )

    # ---- compaction ------------------------------------------------------------------------------

    def _compacted(self, log: Log, plan: RetentionPlan) -> Iterator[Kept]:
        left = segments_that_stay(log, plan, config=self.retention.config)
        if not left:
            return
        try:
            cleaning = plan_compaction(
                log, config=self.compaction, now_ms=self.unit.now_ms, verify_crc=False
            )
        except (KsegError, OSError) as error:
            for each in left:
                cause = "active" if each is left[-1] else "uncleanable"
                yield self._staying(each, cause, _reason(error))
            return
        saved = _saved(cleaning)
        young = _young_until(log, cleaning)
        for each, end in zip(left, _ends(left, plan.log_end_offset), strict=True):
            cause = _cause_of(each, end, cleaning, is_last=each is left[-1])
            row = self._staying(each, cause, _words(cause, cleaning))
            if cause == "min-compaction-lag":
                row = replace(row, until_ms=young)
            yield from _parts(row, saved.get(each.base_offset, 0))


def _newest(log: Log, base_offset: int) -> int:
    """The newest time of a segment in ms."""
    return next(
        latest_of(info).timestamp for info in log.view.segments if info.base_offset == base_offset
    )


def _ends(left: Sequence[StayingSegment], end: int) -> tuple[int, ...]:
    return (*(each.base_offset for each in left[1:]), end)


def _saved(plan: CompactionPlan) -> dict[int, int]:
    """Bytes of log that the next pass takes, by base offset."""
    return {
        each.base_offset: max(each.saved_bytes or 0, 0)
        for group in plan.groups
        for each in group.segments
    }


def _cause_of(each: StayingSegment, end: int, plan: CompactionPlan, *, is_last: bool) -> str:
    """What the cleaner leaves a segment for."""
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
    if cause == "dirty-ratio":
        return plan.why
    if cause == "open-transaction":
        return f"the first offset that is not decided is {plan.last_stable_offset}"
    if cause == "high-watermark":
        return f"the high watermark is {plan.high_watermark}"
    return ""


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


def _parts(row: Kept, saved: int) -> Iterator[Kept]:
    """A segment that the next pass makes smaller, in two parts: what goes, and what stays."""
    if not saved:
        yield row
        return
    goes = min(saved, row.bytes)
    yield replace(row, cause=COMPACTION_DUE, bytes=goes, size=saved, index_bytes=0, until_ms=None)
    yield replace(row, bytes=row.bytes - goes, size=row.size - saved)


__all__ = ["KeepUnit", "examine"]
