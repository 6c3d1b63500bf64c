"""Offsets by time and by leader epoch, as consumers and followers ask for them.

Times are those of records; six negative ones stand for ends of the log and for its largest
timestamp. A segment is skipped if the last entry of its time index says that all of it is older. In
a segment that was rolled or closed cleanly, that entry has the largest time.

Source: Kafka `UnifiedLog.fetchOffsetByTimestamp`, `UnifiedLog.endOffsetForEpoch`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kseg.constants import NO_TIMESTAMP
from kseg.errors import CorruptIndexError
from kseg.files.time_index import TimeIndex
from kseg.format.times import Time, time_ms
from kseg.log.epochs import LeaderEpochs
from kseg.log.reader.find import undisturbed
from kseg.log.segment.reader import Segment
from kseg.log.segment.walks import latest_from
from kseg.log.segment.writer import Latest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kseg.files.checkpoints import EpochEntry
    from kseg.log.reader.find import ReadableLog
    from kseg.log.reader.version import SegmentInfo, Version

#: In place of a time: the log's end, its start, its largest timestamp. The others mean something of
#: their own only with remote storage: where the local part starts, where the remote one ends, and
#: what is to go there next.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class TimestampOffset(NamedTuple):
    """The answer to a time.

    Attributes:
        timestamp: of the record found in ms; -1 where an end of the log was asked for.
        offset: of that record, or of the end; -1 where there is none.
        leader_epoch: of its batch, or of that end; -1 where it is not known.
    """

    timestamp: int
    offset: int
    leader_epoch: int = -1


class EpochEnd(NamedTuple):
    """The epoch that a log has instead of another one's, and where its records end."""

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
        timestamp: as `kseg.time_ms` takes it, or one of the six negative ones above; any other is
            earlier than all.
        epochs: of the log's leaders.

    Raises:
        CorruptRecordError: damage lies where the record is looked for.
        OSError: the disk refuses.
    """
    timestamp = time_ms(timestamp, round_up=True)
    seen = source.version
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = seen.log_start_offset
        known = epochs and epochs[0].start_offset <= start
        return TimestampOffset(NO_TIMESTAMP, start, epochs[0].epoch if known else -1)
    if timestamp == LATEST:
        return TimestampOffset(
            NO_TIMESTAMP, seen.log_end.offset, epochs[-1].epoch if epochs else -1
        )
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampOffset(NO_TIMESTAMP, -1)
    look = _of_max_timestamp if timestamp == MAX_TIMESTAMP else partial(_search, timestamp)
    return undisturbed(source, look)


def end_offset_for_epoch(
    source: ReadableLog, epoch: int, *, epochs: Sequence[EpochEntry]
) -> EpochEnd | None:
    """Where the records of a leader's epoch end, or of the last one before it that the log has.

    A follower of that leader truncates its log to there. None where that is unknown.
    """
    known = LeaderEpochs(None, epochs)
    found = known.end_offset_for(epoch, source.version.log_end.offset)
    return None if found.start_offset < 0 else EpochEnd(found.epoch, found.start_offset)


# ---- by time -------------------------------------------------------------------------------------


def _search(timestamp: int, seen: Version) -> TimestampOffset | None:
    start = seen.log_start_offset
    for info in seen.segments_from(start):
        if _is_older(info, timestamp):
            continue
        with _open(info) as segment:
            found = segment.lookup_time(timestamp, start_offset=start)
        if found is not None:
            return TimestampOffset(found.timestamp, found.offset, found.leader_epoch)
    return None


def _open(info: SegmentInfo) -> Segment:
    return Segment.open(info.path, mapping="never", size=info.size, is_last=info.is_last)


def _is_older(info: SegmentInfo, timestamp: int) -> bool:
    """Whether the time index of a segment that is not appended to says that all of it is older."""
    if info.is_last:
        return False
    known = _indexed(info)
    return known.timestamp >= 0 and known.timestamp < timestamp


def _indexed(info: SegmentInfo) -> Latest:
    """The largest timestamp as the time index says it, and its offset; -1 where it says nothing."""
    if info.files.time_index is None:
        return Latest(NO_TIMESTAMP, info.base_offset)
    try:
        with TimeIndex.open(info.files.time_index, info.base_offset, mapping="never") as index:
            timestamp, offset = index.last_entry
    except CorruptIndexError:
        return Latest(NO_TIMESTAMP, info.base_offset)
    return Latest(timestamp, offset)


def _of_max_timestamp(seen: Version) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all; control records count.

    Source: Kafka `LogSegment.readMaxTimestampAndOffsetSoFar`, `RecordBatch.offsetOfMaxTimestamp`.
    """
    best: SegmentInfo | None = None
    latest = Latest(NO_TIMESTAMP, -1)
    for info in seen.segments:
        found = _largest(info)
        if found.timestamp > latest.timestamp:
            best, latest = info, found
    if best is None:
        return None
    with _open(best) as segment:
        start = segment.start_for_offset(latest.offset).position
        pieces = segment.read(
            start_position=start,
            start_timestamp=latest.timestamp,
            fields=("offset", "timestamp", "leader_epoch"),
            control=True,
            max_rows=1,
        )
        for columns in pieces:
            return TimestampOffset(
                int(columns["timestamp"][0]),
                int(columns["offset"][0]),
                int(columns["leader_epoch"][0]),
            )
    return None


def _largest(info: SegmentInfo) -> Latest:
    """The largest timestamp of a segment; of one that is appended to, its end is walked."""
    known = _indexed(info)
    if known.timestamp >= 0 and not info.is_last:
        return known
    with _open(info) as segment:
        start = segment.start_for_offset(known.offset).position if known.timestamp >= 0 else 0
        return latest_from(segment, start, known)


__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "EpochEnd",
    "TimestampOffset",
    "end_offset_for_epoch",
    "offset_for_timestamp",
]
