"""Batches and offsets, found with few and small reads in a log that grows, or is cut.

By offset: nothing is mapped or kept. A lookup reads one index entry, checks the batch it points at,
and walks the headers from there. Where the index entry is wrong, it walks the segment from its
start, as `Segment` does.

By time and by leader epoch, as consumers and followers ask: times are those of records; six
negative times stand for ends of the log and for its largest timestamp. A segment is skipped if the
last entry of its time index says that all of it is older. In a segment that was rolled or closed
cleanly, that entry has the largest time.

Readers take no lock (`undisturbed`). They use the version from the beginning of the read, and begin
again if the log was cut meanwhile. So an answer is always a state that the log had. They also begin
again if retention removed a file between two steps. Only where that happens again and again do they
take the writer's lock.

Source: Kafka `LogSegment.translateOffset`, `UnifiedLog.fetchOffsetByTimestamp`,
`UnifiedLog.endOffsetForEpoch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from kseg.constants import INT64_MAX, NO_TIMESTAMP, Int64s, StopReason
from kseg.errors import CorruptIndexError, CorruptRecordError, at_path
from kseg.files import io
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.index import TimeIndex, TimeIndexEntry, probe_offset
from kseg.files.log_file import BATCH_BYTES_TRUSTED
from kseg.format.header import COLUMN, HEAD_BYTES, BatchTable, checksum_rule, scan, stop_error
from kseg.format.times import Time, time_ms
from kseg.log.segment.index_entries import latest_from
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from kseg.files.checkpoints import EpochEntry
    from kseg.log.reader.version import SegmentInfo, Version
    from kseg.log.reader.view import LogView


_BASE_OFFSET: Final = COLUMN["base_offset"]
_LAST_OFFSET: Final = COLUMN["last_offset"]
_POSITION: Final = COLUMN["position"]
_SIZE: Final = COLUMN["size"]
_MAGIC: Final = COLUMN["magic"]

#: The size of a read without a known size: a few times the distance of index entries.
WINDOW_BYTES: Final = 16 << 10
#: Headers that are walked at a time.
_BATCHES: Final = 64
#: How often a reader begins again because of the writer, before it locks the log.
_ATTEMPTS_MAX: Final = 8

_Answer = TypeVar("_Answer")


class ReadableLog(Protocol):
    """A log to read from: its version may be replaced at any time."""

    @property
    def path(self) -> Path:
        """The partition directory."""

    @property
    def version(self) -> Version:
        """The log at this moment."""


def undisturbed(
    source: ReadableLog,
    look: Callable[[Version], _Answer],
    holds: Callable[[Version, _Answer], bool] | None = None,
) -> _Answer:
    """Call `look` again until the log is not cut during the call; return its answer.

    Args:
        source: the log; a log under a writer has a `lock`, which the last attempt holds.
        look: reads files of a version of the log, and answers.
        holds: whether an answer is still right for the version after the call; None if always.

    Raises:
        CorruptRecordError, OSError: the errors of `look`, if the log did not change meanwhile.
    """
    for _ in range(_ATTEMPTS_MAX):
        seen = source.version
        try:
            answer = look(seen)
        except (CorruptRecordError, FileNotFoundError):
            # Damage, or a file that was cut or removed during the call.
            if source.version is seen:
                raise
            continue
        now = source.version
        if now.truncations.number == seen.truncations.number and (
            holds is None or holds(now, answer)
        ):
            return answer
    with getattr(source, "lock", nullcontext()):
        return look(source.version)


class Window(NamedTuple):
    """Bytes of a log file from `position` on."""

    position: int
    data: bytes

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.position + len(self.data)


class FoundBatch(NamedTuple):
    """The position and size of a batch, and bytes that the search read, perhaps the batch's."""

    position: int
    size: int
    window: Window


def find_batch(
    fd: int, info: SegmentInfo, offset: int, *, ahead: int = WINDOW_BYTES
) -> FoundBatch | None:
    """The first batch of a segment whose last offset is at or past `offset`; None if there is none.

    Args:
        fd: the log file, open for reading.
        info: the segment, and how much of it there is.
        offset: the offset to find.
        ahead: the number of bytes to read at once, from the position in the index.

    Raises:
        CorruptRecordError: a batch on the way is damaged, or the file is shorter than it should be.
        OSError: the disk refuses.
    """
    start = _start(info, offset)
    window = read_window(fd, info, start, ahead)
    table = _scan(window, info, start)
    if start:
        # A batch of this announced size may be read into memory before it is checked.
        if (
            table.stop is StopReason.LIMIT
            and not len(table)
            and 0 < table.needed <= BATCH_BYTES_TRUSTED
        ):
            window = read_window(fd, info, start, table.needed)
            table = _scan(window, info, start)
        if not _leads_to(table, window, offset):
            return _find_without_index(info, offset)
    return _find_in_windows(fd, info, offset, window, table)


def read_window(fd: int, info: SegmentInfo, position: int, size: int) -> Window:
    """Bytes of a segment from `position` on, up to the segment's end.

    Raises:
        CorruptRecordError: the file is shorter than it should be.
    """
    window_size = min(size, info.size - position)
    data = io.read_at(fd, position, window_size, info.path)
    if len(data) < window_size:
        raise CorruptRecordError(
            f"the file has {position + len(data)} bytes, not {info.size}: it was cut while it was "
            "read",
            path=info.path,
            position=position + len(data),
        )
    return Window(position, data)


def _start(info: SegmentInfo, offset: int) -> int:
    """The position in the index entry before `offset`; 0 if no sound batch begins there."""
    if offset <= info.base_offset or info.files.index is None:
        return 0
    position = probe_offset(info.files.index, info.base_offset, offset).position
    return position if position < info.size else 0


def _scan(window: Window, info: SegmentInfo, start: int) -> BatchTable:
    """The headers of some batches in a window, from a position on."""
    return scan(
        window.data,
        base=window.position,
        start=start,
        file_end=info.size,
        batches_max=_BATCHES,
        on_bad_crc="ignore",
    )


def _leads_to(table: BatchTable, window: Window, offset: int) -> bool:
    """Whether an index entry points to a sound batch that begins at or before the offset."""
    if not len(table):
        return False
    row = table.rows[0].tolist()
    if row[_LAST_OFFSET] > offset and not 0 <= row[_BASE_OFFSET] <= offset:
        return False
    start = row[_POSITION] - window.position
    batch = memoryview(window.data)[start : start + row[_SIZE]]
    if row[_MAGIC] >= 2 and row[_SIZE] < HEAD_BYTES:
        return False
    rule = checksum_rule(batch)
    return rule.function(batch[rule.covered_at :], 0) == rule.stored(batch)


def _find_without_index(info: SegmentInfo, offset: int) -> FoundBatch | None:
    """Find the batch by a walk in windows, for batches of any size; tries other index entries."""
    with Segment.open(info.path, mapping="never", size=info.size, is_last=info.is_last) as segment:
        location = segment.lookup(offset)
    if location is None:
        return None
    return FoundBatch(location.position, location.size, Window(location.position, b""))


def _find_in_windows(
    fd: int, info: SegmentInfo, offset: int, window: Window, table: BatchTable
) -> FoundBatch | None:
    """Search the batches of `table`, then those after them, for the first that ends at `offset`."""
    while True:  # each turn searches one table
        last_offsets = table.rows[:, _LAST_OFFSET].tolist()
        for row, last in enumerate(last_offsets):
            if last >= offset:
                fields = table.rows[row].tolist()
                return FoundBatch(fields[_POSITION], fields[_SIZE], window)
        position = table.end_position
        if len(last_offsets) < _BATCHES:
            if table.stop is StopReason.TORN_TAIL:  # or a wrong length, which a walk finds
                return _find_without_index(info, offset)
            if table.stop is not StopReason.LIMIT:
                benign = table.stop is StopReason.ZERO_TAIL and info.is_last
                if table.stop is not StopReason.END and not benign:
                    raise at_path(stop_error(table), info.path)
                return None
            stuck = window.position == position and not table.needed
            if stuck or table.needed > BATCH_BYTES_TRUSTED:
                return _find_without_index(info, offset)
            window = read_window(fd, info, position, max(table.needed, WINDOW_BYTES))
        table = _scan(window, info, position)


#: In place of a time: the log's end, its start, its largest timestamp. The others only have a
#: meaning of their own with remote storage: the start of the local part, the end of the remote one,
#: and the offset to be copied next.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class TimestampOffset(NamedTuple):
    """The answer to a search for a time.

    Attributes:
        timestamp: the time of the record in ms; -1 if an end of the log was asked for.
        offset: the offset of that record, or of the end; -1 if there is none.
        leader_epoch: the epoch of its batch, or at that end; -1 if unknown.
    """

    timestamp: int
    offset: int
    leader_epoch: int = -1


class EpochEnd(NamedTuple):
    """The epoch that a log has at or before a requested one, and where its records end."""

    epoch: int
    end_offset: int


def offset_for_timestamp(
    source: ReadableLog, timestamp: Time, *, epochs: Sequence[EpochEntry] = ()
) -> TimestampOffset | None:
    """The first record at or after a time, from the log's start on; None if there is none.

    If the first segment that may hold one does not, the search goes on in the next ones; Kafka's
    ends there.

    Args:
        source: the log.
        timestamp: as `kseg.times.time_ms` takes it, or one of the six negative times above; another
            negative time is earlier than all.
        epochs: the epochs of the log's leaders.

    Raises:
        CorruptRecordError: a batch is damaged on the way to the record.
        OSError: the disk refuses.
    """
    timestamp = time_ms(timestamp, round_up=True)
    seen = source.version
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = seen.log_start_offset
        has_epoch = epochs and epochs[0].start_offset <= start
        return TimestampOffset(NO_TIMESTAMP, start, epochs[0].epoch if has_epoch else -1)
    if timestamp == LATEST:
        return TimestampOffset(
            NO_TIMESTAMP, seen.log_end.offset, epochs[-1].epoch if epochs else -1
        )
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampOffset(NO_TIMESTAMP, -1)
    look = _largest_timestamp_in if timestamp == MAX_TIMESTAMP else partial(_search, timestamp)
    return undisturbed(source, look)


def end_offset_for_epoch(
    source: ReadableLog, epoch: int, *, epochs: Sequence[EpochEntry]
) -> EpochEnd | None:
    """Where the records end that a leader wrote in an epoch, or in the log's last one before it.

    A follower of that leader truncates its log to there. None where that is unknown.
    """
    history = LeaderEpochs(epochs)
    epoch_end = history.end_offset_for(epoch, source.version.log_end.offset)
    return None if epoch_end.start_offset < 0 else EpochEnd(epoch_end.epoch, epoch_end.start_offset)


# ---- by time -------------------------------------------------------------------------------------


def _search(timestamp: int, seen: Version) -> TimestampOffset | None:
    """The first record at or after a time; None if there is none."""
    start = seen.log_start_offset
    for info in seen.segments_from(start):
        if _is_older(info, timestamp):
            continue
        with _open(info) as segment:
            location = segment.lookup_time(timestamp, start_offset=start)
        if location is not None:
            return TimestampOffset(location.timestamp, location.offset, location.leader_epoch)
    return None


def _open(info: SegmentInfo) -> Segment:
    return Segment.open(info.path, mapping="never", size=info.size, is_last=info.is_last)


def _is_older(info: SegmentInfo, timestamp: int) -> bool:
    """Whether a sealed segment has only records before a time, as its time index says."""
    if info.is_last:
        return False
    indexed = _indexed_maximum(info)
    return indexed.timestamp >= 0 and indexed.timestamp < timestamp


def _indexed_maximum(info: SegmentInfo) -> TimeIndexEntry:
    """The largest timestamp and its offset according to the time index; -1 if it has none."""
    if info.files.time_index is None:
        return TimeIndexEntry(NO_TIMESTAMP, info.base_offset)
    try:
        with TimeIndex.open(info.files.time_index, info.base_offset, mapping="never") as index:
            timestamp, offset = index.last_entry
    except CorruptIndexError:
        return TimeIndexEntry(NO_TIMESTAMP, info.base_offset)
    return TimeIndexEntry(timestamp, offset)


def _largest_timestamp_in(seen: Version) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all; control records count.

    Source: Kafka `LogSegment.readMaxTimestampAndOffsetSoFar`, `RecordBatch.offsetOfMaxTimestamp`.
    """
    best: SegmentInfo | None = None
    latest = TimeIndexEntry(NO_TIMESTAMP, -1)
    for info in seen.segments:
        largest = _largest_timestamp(info)
        if largest.timestamp > latest.timestamp:
            best, latest = info, largest
    if best is None:
        return None
    with _open(best) as segment:
        start = segment.start_for_offset(latest.offset).position
        pieces = segment.read(
            start_position=start,
            time=(latest.timestamp, None),
            columns=("offset", "timestamp", "leader_epoch"),
            control=True,
            max_rows=1,
        )
        for columns in pieces:
            return TimestampOffset(
                int(columns["timestamp_ms"][0]),
                int(columns["offset"][0]),
                int(columns["leader_epoch"][0]),
            )
    return None


def _largest_timestamp(info: SegmentInfo) -> TimeIndexEntry:
    """The largest timestamp of a segment; if it is appended to, its end is walked."""
    indexed = _indexed_maximum(info)
    if indexed.timestamp >= 0 and not info.is_last:
        return indexed
    with _open(info) as segment:
        start = segment.start_for_offset(indexed.offset).position if indexed.timestamp >= 0 else 0
        return latest_from(segment, start, indexed)


# ---- a cut at a time -----------------------------------------------------------------------------

#: Where a log ends that is cut at a time; see `cut_at`.
Cut = Literal["first", "last"]


def records_of(table: BatchTable) -> Int64s:
    """int64[n]: the records of each batch, by its header, or else by its offsets."""
    spans = np.where(table.magic >= 2, table.last_offset - table.base_offset + 1, 1)
    return np.where(table.record_count >= 0, table.record_count, spans)


def cut_at(view: LogView, start: int, at_ms: int, cut: Cut) -> tuple[int, dict[str, int]]:
    """The end of a log that is cut at a time; only headers are read.

    Args:
        view: the log.
        start: read from the segment of this offset on.
        at_ms: the time in ms.
        cut: "first" before the first batch with a later time; "last" after the last batch
            that began no later.

    Returns:
        The offset, 2^63 - 1 for no cut; and on the other side of both cuts, the records of batches
        with no later time that lie after the cut, and those with a later one that lie before it.

    Raises:
        KsegError, OSError: a segment cannot be read.
    """
    # Both cuts in one walk, so that the plan can say how many records the other cut would change.
    ends = {"first": INT64_MAX, "last": start}
    misplaced = {"first": 0, "last": 0}  # records on the other side than their times say
    late_so_far = 0  # records of batches with a later time, up to here
    for info in view.segments_from(start):
        with view.open_segment(info) as segment:
            for table in segment.headers():
                if not len(table):
                    continue
                records = np.where(table.is_control, 0, records_of(table))
                later = table.max_timestamp > at_ms
                if ends["first"] == INT64_MAX and later.any():
                    ends["first"] = int(table.last_offset[later.argmax()])
                passed = np.full(len(table), ends["first"] < INT64_MAX)
                passed &= table.last_offset >= ends["first"]
                misplaced["first"] += int(records[passed & ~later].sum())
                begun = table.base_timestamp <= at_ms
                late = np.cumsum(np.where(later, records, 0)) + late_so_far
                if begun.any():
                    row = int(np.flatnonzero(begun)[-1])
                    ends["last"] = int(table.last_offset[row]) + 1
                    misplaced["last"] = int(late[row])
                late_so_far = int(late[-1])
    return ends[cut], misplaced
