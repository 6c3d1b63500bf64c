"""Which task reads what: segments pruned, big ones cut at batch starts, small ones packed.

The driver makes a plan for every action and for `explain`, so it must be quick. Names and sizes do
most of the work. An index is opened for a segment that is to be cut, or might be pruned by time. It
is also opened once for the end of a segment: records past the next segment's base come from the
first of the two only. Unless the option `index` is `use`, each index entry is checked against the
log. A cut counts only where a whole batch with a right checksum starts. A segment is pruned by its
time index only if the log's tail agrees with it. A reader fails when a cut turns out to lie inside
a batch after all. Where an index is wrong or missing, headers are walked.

A split owns the batches that start within `[start_position, end_position)`. Plans are values,
the same for the same files. Nothing here imports pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from kseg import Segment
from kseg.constants import NO_TIMESTAMP, StopReason
from kseg.errors import CorruptIndexError, CorruptRecordError
from kseg.files.log_file import LogFile
from kseg.files.names import find_replicas
from kseg.files.offset_index import OffsetIndex
from kseg.files.time_index import TimeIndex, TimeIndexEntry
from kseg.format.header import BatchHeader
from kseg.log.log import Log
from kseg.log.reader import AbortedRanges, aborted_ranges, believed_end
from kseg.spark.filters import Narrowing
from kseg.spark.listing import LogEntry, SegmentEntry, highest
from kseg.spark.options import SourceOptions
from kseg.spark.remote import is_remote, place

#: A task lists no more segments than this, however small they are.
SPLITS_PER_TASK_MAX: Final = 4096
#: To check a time index, at most so many bytes of a log's tail are walked.
_TAIL_BYTES_MAX: Final = 1 << 20
#: A segment without an index is walked for its end, on the driver, if it is no larger.
_WALKED_BYTES_MAX: Final = 16 << 20
#: Ends of segments that are looked up once: a plan is made for each action, and for each batch.
_ENDS_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Split:
    """The batches of one segment that start in `[start_position, end_position)`.

    Attributes:
        path: the log file.
        topic: of every record, or None if the directory does not say.
        partition: likewise.
        start_position: where a batch starts.
        end_position: where a later batch starts, or `size`.
        size: bytes of the file that count; what was appended later does not.
        is_last: the segment is the last of its log, so that an unfinished tail is no damage.
        start_offset: records before it are left out.
        end_offset: so are records from here on.
        start_timestamp: milliseconds; so are records before it.
        end_timestamp: milliseconds; so are records from here on.
        aborted: transactions to leave out, for a reader of committed records.
        unreadable: why the partition directory `path` cannot be read; its only row reports that.
        base_offset: of the segment; None for a copy whose name carries none.
    """

    path: str
    topic: str | None
    partition: int | None
    start_position: int
    end_position: int
    size: int
    is_last: bool
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    aborted: AbortedRanges | None = None
    base_offset: int | None = None
    unreadable: str | None = None

    @property
    def split_bytes(self) -> int:
        """How much log the split covers."""
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks, each a run of splits, and the number of segments behind them.

    Attributes:
        tasks: what each Spark partition reads, in order.
        segment_count: segments that were listed.
        pruned_count: those of them that no task reads, empty ones among them.
    """

    tasks: tuple[tuple[Split, ...], ...]
    segment_count: int
    pruned_count: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch start inside a segment.

    Attributes:
        position: where the batch starts.
        offset: no batch before it has this offset or a later one.
        is_first: whether `offset` is also the lowest of the batch; of a compressed message of
            magic 0 or 1 the header tells only the last.
    """

    position: int
    offset: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Range:
    """The bounds of one log, from options and filters; None is unbounded."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | None
    end_timestamp: int | None
    aborted: AbortedRanges | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record can lie within."""
        return _crossed(self.start_offset, self.end_offset) or _crossed(
            self.start_timestamp, self.end_timestamp
        )


def make_plan(
    logs: Iterable[LogEntry], options: SourceOptions, narrowing: Narrowing | None = None
) -> Plan:
    """Plan the reading of logs.

    Args:
        logs: as `listing.list_logs` gives them.
        options: bounds, `index` and `target_partition_bytes`.
        narrowing: what Spark's filters leave; None for no filters.

    Raises:
        OSError: an index or a log that the plan needs cannot be read.
        ValueError: two directories are replicas of a partition, whose records would count twice.
    """
    narrowing = narrowing or Narrowing()
    logs = tuple(logs)
    if options.mode == "records" and "path" not in options.columns:
        replicas = find_replicas(
            log.directory for log in logs if narrowing.wants(log.topic, log.partition)
        )
        if replicas is not None:
            also = "; or name path in the option columns, which tells them apart"
            raise ValueError(f"kseg: {replicas.reason}{also}:\n{replicas.command}")
    splits: list[Split] = []
    segment_count = pruned_count = 0
    for log in logs:
        segment_count += len(log.segments)
        if log.unreadable is not None:
            splits.append(_damaged(log))
            continue
        wanted = _range(log, options, narrowing)
        if wanted.is_empty or not narrowing.wants(log.topic, log.partition):
            pruned_count += len(log.segments)
            continue
        if options.isolation == "read_committed":
            wanted = _committed(log, wanted)
        for pieces in _of_log(log, wanted, options):
            splits += pieces
            pruned_count += not pieces
    return Plan(tuple(_pack(splits, options.target_partition_bytes)), segment_count, pruned_count)


def _range(log: LogEntry, options: SourceOptions, narrowing: Narrowing) -> _Range:
    start = options.starting_offsets.of(log.topic, log.partition)
    end = options.ending_offsets.of(log.topic, log.partition)
    # Deleted records do not count, but their batches still lie in the file.
    first = log.log_start_offset if options.mode == "records" else None
    return _Range(
        start_offset=highest(first, highest(start, narrowing.start_offset)),
        end_offset=_lowest(log.end_offset, _lowest(end, narrowing.end_offset)),
        start_timestamp=highest(options.starting_timestamp, narrowing.start_timestamp),
        end_timestamp=_lowest(options.ending_timestamp, narrowing.end_timestamp),
    )


def _committed(log: LogEntry, wanted: _Range) -> _Range:
    """End the range at the last stable offset, and name the aborted transactions in it."""
    if is_remote(log.directory):
        raise ValueError(f"kseg: {log.directory}: isolation=read_committed needs local files")
    with Log.open(log.directory) as opened:
        start = wanted.start_offset or 0
        end = opened.last_stable_offset
        end = end if wanted.end_offset is None else min(end, wanted.end_offset)
        aborted = aborted_ranges(opened.view, start, end)
    return replace(wanted, end_offset=end, aborted=aborted if len(aborted) else None)


def _lowest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _crossed(start: int | None, end: int | None) -> bool:
    return end is not None and start is not None and start >= end


def _of_log(log: LogEntry, wanted: _Range, options: SourceOptions) -> Iterator[list[Split]]:
    """The splits of each segment, without the records that an earlier segment gives.

    So no two tasks give the same record; the rule is in `kseg.log.reader.overlaps`.
    """
    here = wanted
    for segment in log.segments:
        yield list(_split(log, segment, here, options))
        if log.log_start_offset is None or options.mode != "records":
            continue
        if segment.next_base_offset is None or _outside(segment, wanted):
            continue
        if not _crossed(segment.next_base_offset, wanted.end_offset):
            here = replace(here, start_offset=highest(here.start_offset, _end_of(segment)))


def _damaged(log: LogEntry) -> Split:
    """The split of a directory that cannot be read: one row of damage."""
    return Split(
        path=log.directory,
        topic=log.topic,
        partition=log.partition,
        start_position=0,
        end_position=0,
        size=0,
        is_last=True,
        unreadable=log.unreadable,
    )


def _end_of(segment: SegmentEntry) -> int | None:
    """The offset behind a segment's last batch; None where only a walk over all of it would tell.

    Looked up once: a segment that others follow is not written to any more.
    """
    if segment.index is None and segment.size > _WALKED_BYTES_MAX:
        return None
    written = 0 if is_remote(segment.path) else os.stat(segment.path).st_mtime_ns
    return _known_end(segment, written)


@lru_cache(_ENDS_KEPT)
def _known_end(segment: SegmentEntry, _written_ns: int) -> int | None:
    assert segment.next_base_offset is not None
    path = place(segment.path)
    with Segment.open(path, size=segment.size, is_last=segment.is_last) as opened:
        return believed_end(opened, segment.next_base_offset)


def _split(
    log: LogEntry, segment: SegmentEntry, wanted: _Range, options: SourceOptions
) -> Iterator[Split]:
    """The splits of one segment: none where it is pruned, one where it is small."""
    if _outside(segment, wanted) or _too_old(segment, wanted, options.index):
        return
    target, cuts = options.target_partition_bytes, list[Cut]()
    if options.mode != "segments":  # there each file is a row, empty ones too
        if segment.size == 0:
            return
        cuts = find_cuts(segment, target, options.index) if segment.size > target else []
    last = Cut(segment.size, 0, is_first=False)
    start = 0
    for cut in [*cuts, last]:
        first, start = start, cut.position
        if (
            cut is not last
            and wanted.start_offset is not None
            and cut.offset <= wanted.start_offset
        ):
            continue
        yield Split(
            path=segment.path,
            topic=log.topic,
            partition=log.partition,
            start_position=first,
            end_position=cut.position,
            size=segment.size,
            is_last=segment.is_last,
            start_offset=wanted.start_offset,
            end_offset=wanted.end_offset,
            start_timestamp=wanted.start_timestamp,
            end_timestamp=wanted.end_timestamp,
            aborted=wanted.aborted,
            base_offset=segment.base_offset,
        )
        if wanted.end_offset is not None and cut.is_first and cut.offset >= wanted.end_offset:
            return


def _outside(segment: SegmentEntry, wanted: _Range) -> bool:
    """Whether the names alone show that no offset of the segment is wanted."""
    if segment.base_offset is None:
        return False
    after = segment.next_base_offset
    ends_before = (
        after is not None and wanted.start_offset is not None and after <= wanted.start_offset
    )
    return ends_before or _crossed(segment.base_offset, wanted.end_offset)


def _too_old(segment: SegmentEntry, wanted: _Range, index: str) -> bool:
    """Whether every record is older than wanted, by a time index that the log's tail confirms.

    Times need not ascend, so only the newest time of a segment is known without a walk. No segment
    is pruned for being too new. A broker makes the last time entry when it rolls a segment, so the
    last segment of a log is never pruned either.
    """
    start = wanted.start_timestamp
    if start is None or index == "ignore" or segment.is_last:
        return False
    if segment.time_index is None or segment.base_offset is None:
        return False
    try:
        with TimeIndex.open(place(segment.time_index), segment.base_offset) as times:
            newest = times.last_entry
            if not times.entry_count or newest.timestamp >= start:
                return False
        return index == "use" or _tail_agrees(segment, newest)
    except (CorruptIndexError, CorruptRecordError):
        return False


def _tail_agrees(segment: SegmentEntry, newest: TimeIndexEntry) -> bool:
    """Whether the log, from the batch of the newest time to a whole end, has just that time."""
    if segment.index is None or segment.base_offset is None:
        return False
    with OffsetIndex.open(place(segment.index), segment.base_offset) as offsets:
        position = offsets.lookup(newest.offset).position
    if not 0 < segment.size - position <= _TAIL_BYTES_MAX:
        return False
    seen = NO_TIMESTAMP
    with LogFile.open(place(segment.path)) as log:
        for tile in log.walk(start=position, end=segment.size, on_bad_crc="stop"):
            stop = tile.table.stop
            seen = max(seen, int(tile.table.max_timestamp.max(initial=NO_TIMESTAMP)))
    return stop is StopReason.END and seen == newest.timestamp


def find_cuts(segment: SegmentEntry, target_bytes: int, index: str = "auto") -> list[Cut]:
    """Batch starts that cut a segment into pieces of about the target size.

    Args:
        segment: one larger than `target_bytes`.
        target_bytes: bytes of a piece, which goes on to the end of its last batch.
        index: "auto" takes cuts from the offset index and checks each against the log, "use" does
            not check, "ignore" walks headers.

    Raises:
        OSError: the index or the log cannot be read.
    """
    count = -(-segment.size // target_bytes)
    goals = [segment.size * number // count for number in range(1, count)]
    if index != "ignore":
        cuts = _cuts_from_index(segment, goals, trusted=index == "use")
        if cuts is not None:
            return cuts
    return _cuts_from_walk(segment, goals)


def _cuts_from_index(segment: SegmentEntry, goals: list[int], *, trusted: bool) -> list[Cut] | None:
    """Cuts at the entry behind each goal; None where the index is missing, sparse or wrong."""
    if segment.index is None or segment.base_offset is None:
        return None
    try:
        with OffsetIndex.open(place(segment.index), segment.base_offset) as offsets:
            entries = [offsets.fetch_upper_bound(goal, 0) for goal in goals]
    except CorruptIndexError:
        return None
    found = [Cut(entry.position, entry.offset, False) for entry in dict.fromkeys(entries) if entry]
    if 2 * len(found) < len(goals):
        return None  # the index covers less than half of the log
    places = [0, *(cut.position for cut in found), segment.size]
    if not all(one < next_one for one, next_one in pairwise(places)):
        return None
    if trusted:
        return found
    with LogFile.open(place(segment.path)) as log:
        checked = [cut for cut in (_batch_at(log, cut.position) for cut in found) if cut]
    return checked if len(checked) == len(found) else None


def _batch_at(log: LogFile, position: int) -> Cut | None:
    """The batch that starts at a position, if a whole one with a right checksum does."""
    table = log.batch_at(position)
    return _cut(table[0]) if len(table) == 1 and table.crc_ok[0] == 1 else None


def _cut(batch: BatchHeader) -> Cut:
    is_first = batch.base_offset >= 0
    return Cut(batch.position, batch.base_offset if is_first else batch.last_offset, is_first)


def _cuts_from_walk(segment: SegmentEntry, goals: list[int]) -> list[Cut]:
    """Cuts at the first batch at or past each goal; the walk ends where the log does."""
    cuts: list[Cut] = []
    with LogFile.open(place(segment.path)) as log:
        for table in log.headers(end=segment.size):
            if not len(table):
                break
            slots = np.unique(table.position.searchsorted(goals)).tolist()
            cuts += [_cut(table[slot]) for slot in slots if slot < len(table)]
            goals = [goal for goal in goals if goal > int(table.position[-1])]
            if not goals:
                break
    return [cut for cut in cuts if cut.position > 0]


def _pack(splits: Iterable[Split], target_bytes: int) -> Iterator[tuple[Split, ...]]:
    """Neighbours share a task until it is full."""
    task: list[Split] = []
    task_bytes = 0
    for split in splits:
        full = task_bytes + split.split_bytes > target_bytes or len(task) == SPLITS_PER_TASK_MAX
        if task and full:
            yield tuple(task)
            task, task_bytes = [], 0
        task.append(split)
        task_bytes += split.split_bytes
    if task:
        yield tuple(task)
