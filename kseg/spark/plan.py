"""The tasks of a query: segments pruned, big ones cut at batch starts, small ones packed.

The driver makes a plan for every action and for `explain`, so it must be quick. Names and sizes do
most of the work. An index is opened for a segment that is to be cut, or might be pruned by time. It
is also opened once for the end of a segment: records past the next segment's base come from the
first of the two only. Unless the option `index` is `use`, each index entry is checked against the
log. A cut counts only where a whole batch with a right checksum starts. A segment is pruned by its
time index only if the log's tail agrees with it. A reader fails when a cut turns out to lie inside
a batch after all. Where an index is wrong or missing, headers are walked.

A split owns the batches that start within `[start_position, end_position)`. Plans are values,
the same for the same files.

Options narrow a plan, and Spark's filters do not: it keeps the plan of a filtered query at the
DataFrame, so the next query of the same DataFrame would lack rows. Nothing here imports pyspark.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import numpy as np

from kseg import Segment
from kseg.catalog.catalog import (
    Catalog,
    ReplicasError,
    partition_at,
    real_path,
    take_replicas,
)
from kseg.constants import NO_TIMESTAMP, StopReason
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError, NotALogError
from kseg.files import io, names
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.index import OffsetIndex, TimeIndex, TimeIndexEntry
from kseg.files.log_file import LogFile
from kseg.files.names import Partition
from kseg.format.header import BatchHeader
from kseg.log.reader import (
    AbortedRanges,
    LogView,
    SegmentInfo,
    aborted_ranges,
    age_of,
    believed_end,
)
from kseg.log.tier import Tier
from kseg.spark.options import SourceOptions
from kseg.stores.path import is_remote, name_of, path_at, place

_Starts = Mapping[TopicPartition, int]


def plan_line(logs: Iterable[LogEntry], tasks: Iterable[tuple[Split, ...]]) -> str:
    """One line about a plan: how many segments it reads."""
    there = sum(len(log.segments) for log in logs)
    read = len({split.path for task in tasks for split in task if split.unreadable is None})
    return f"kseg: {read} of {there} segments"


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment as a listing showed it.

    Attributes:
        path: its log file, absolute.
        base_offset: from the name; None for a copy whose name carries none.
        next_base_offset: of the segment after it in its directory, or None.
        size: bytes of the log file at the time of listing; nothing later is read.
        index: its offset index, if there is one.
        time_index: its time index, if there is one.
        end_offset: no record from here on is read; None to go as far as the bytes do.
    """

    path: str
    base_offset: int | None
    next_base_offset: int | None
    size: int
    index: str | None = None
    time_index: str | None = None
    end_offset: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether a broker may still be writing it, so that a torn tail is not damage."""
        return self.next_base_offset is None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The segments of one partition directory, by base offset.

    `topic` and `partition` come from the directory's name; None where the name has neither.
    `log_start_offset` is the start of the records: the first segment's base, or the offset in the
    broker's checkpoint. It is None for segments that were named one by one: each is read whole.
    `end_offset` is where reading ends, if that is before the log's end. `unreadable` says why the
    directory cannot be read, for a query that takes damage as rows. `view` is the log with its
    segments in a tier.
    """

    directory: str
    topic: str | None
    partition: int | None
    segments: tuple[SegmentEntry, ...]
    log_start_offset: int | None = None
    end_offset: int | None = None
    unreadable: str | None = None
    view: LogView | None = field(default=None, compare=False, repr=False)


def local_path(path: str | os.PathLike[str]) -> str:
    """A path of this machine: a plain path unchanged, or the path in a `file:` URL.

    Raises:
        ValueError: it is the URL of something in a store.
    """
    text = os.fspath(path)
    if is_remote(text):
        raise ValueError(
            f"kseg: {text}: a local path is needed here; "
            "from stores spark.read, export and stats read, and nothing writes to them"
        )
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else text


def local_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[str]:
    """One path or several, each converted by `local_path`.

    Raises:
        ValueError: one is the URL of something in a store.
    """
    return list(map(local_path, [paths] if isinstance(paths, (str, os.PathLike)) else paths))


def check_paths(options: SourceOptions) -> None:
    """Refuse paths of this machine that are missing; lists no directory and asks no store.

    Raises:
        FileNotFoundError: a path that is not a glob is missing.
    """
    for path in options.paths:
        if is_remote(path) or options.tier is not None:
            continue
        where = local_path(path)
        if not glob.has_magic(where) and not os.path.exists(where):
            raise FileNotFoundError(f"kseg: {path}: no such file or directory")


#: The directories of a partition that are listed; `make_plan` refuses those that are not wanted.
_REPLICAS: Final[Mapping[str, str | Callable[[Path], Any]]] = {"newest": age_of, "first": "first"}


def list_logs(options: SourceOptions) -> tuple[LogEntry, ...]:
    """Every log that the options ask for, by topic, partition and directory.

    Logs of a data directory that wait for deletion, are being moved in, or are stray are left out,
    as a broker leaves them out. A path that names such a log includes it.

    Raises:
        ValueError: a path of another topic than those asked for, or a URL of no store.
        NotALogError: no segment is left; the message says why.
        OSError: a path is missing or cannot be listed.
    """
    tier = None
    if options.tier is not None:
        tier = Tier.of(options.tier, keys=dict(options.tier_keys), topic_id=options.topic_id)
    catalog = Catalog.of(
        [path if is_remote(path) else local_path(path) for path in options.paths],
        options.wants,
        tier=tier,
        replicas=_REPLICAS.get(options.replicas, "all"),
        on_error="skip" if options.permissive else "raise",
        may_be_empty=True,
    )
    choice = options.topics
    for entry in catalog.not_chosen:
        if (
            choice.names
            and entry.topic not in (None, *choice.names)
            and entry.path in catalog.named
        ):
            raise ValueError(f"kseg: {entry.path} is of topic {entry.topic!r}, not of {choice}")
    starts = cache(_read_log_starts)
    logs = [_log(entry, starts) for entry in catalog if not entry.is_file]
    logs += _logs_of_files([entry for entry in catalog if entry.is_file])
    for path, reason, error in catalog.skipped:
        if path in catalog.named and error is not None:
            raise error
        name = partition_at(path)
        directory = os.path.join(os.path.realpath(path.parent), path.name)
        logs.append(LogEntry(directory, name.topic, name.partition, (), unreadable=reason))
    if not any(log.segments or log.unreadable for log in logs):
        raise NotALogError(_why_nothing(catalog, options), path=", ".join(options.paths))
    return tuple(sorted(logs, key=_log_order))


def _why_nothing(catalog: Catalog, options: SourceOptions) -> str:
    """Why no log is left."""
    if not catalog.partitions and catalog.not_chosen:
        of_topic = [x for x in catalog.not_chosen if options.topics.wants_topic(x.topic)]
        if of_topic:
            numbers = sorted({x.partition for x in of_topic if x.partition is not None})
            return f"none of the partitions asked for; there are {numbers}"
        topics = ", ".join(sorted({x.topic or "(no name)" for x in catalog.not_chosen}))
        return f"no topic of {options.topics}; there is {topics}"
    return "no segments: neither .log nor .kafka files"


def _log_order(log: LogEntry) -> tuple[str, int, str]:
    return (log.topic or "", -1 if log.partition is None else log.partition, log.directory)


def highest(one: int | None, other: int | None) -> int | None:
    """The larger of two bounds, None being none."""
    return other if one is None else one if other is None else max(one, other)


def _segment_order(segment: SegmentEntry) -> tuple[int, str]:
    return (-1 if segment.base_offset is None else segment.base_offset, segment.path)


def _log(partition: Partition, starts: Callable[[str], _Starts]) -> LogEntry:
    """A partition directory, with the sizes of its segments at this moment."""
    directory = real_path(partition.path)
    if partition.tier is None:
        view, infos = (
            None,
            [
                SegmentInfo(files, io.size_at(files.place), is_last=False)
                for files in partition.files.segments
            ],
        )
        start = infos[0].base_offset if infos else None
        if partition.topic is not None and partition.partition is not None:
            key = TopicPartition(partition.topic, partition.partition)
            start = highest(start, starts(os.path.dirname(directory)).get(key))
    else:
        view = LogView.at(partition)
        infos, start = list(view.segments), view.log_start_offset

    def named(path: Path | None) -> str | None:
        if path is None or view is not None:
            return None if path is None else name_of(path)
        return f"{directory}/{path.name}"

    bases = [info.base_offset for info in infos[1:]]
    segments = tuple(
        SegmentEntry(
            path=named(info.path) or "",
            base_offset=info.base_offset,
            next_base_offset=following if info.end_offset is None else info.end_offset,
            size=info.size,
            index=named(info.files.index),
            time_index=named(info.files.time_index),
            end_offset=info.end_offset,
        )
        for info, following in zip(infos, [*bases, None], strict=False)
    )
    return LogEntry(*(directory, partition.topic, partition.partition, segments, start), view=view)


def _logs_of_files(files: Iterable[Partition]) -> Iterator[LogEntry]:
    """Segments that were named one by one, completed from their directories.

    A file of batches that is not a segment of its directory, as a KRaft snapshot, has no base.
    """
    by_directory: dict[str, list[Partition]] = {}
    for file in files:
        by_directory.setdefault(real_path(file.directory), []).append(file)
    for directory, inside in by_directory.items():
        log = _log(replace(inside[0], path=path_at(directory), file=None), lambda _: {})
        beside = {segment.path: segment for segment in log.segments}
        chosen = set()
        for file in inside:
            path = f"{directory}/{file.path.name}"
            alone = SegmentEntry(path, None, None, io.size_at(file.path))
            chosen.add(beside.get(path, alone))
        segments = tuple(sorted(chosen, key=_segment_order))
        yield replace(log, segments=segments, log_start_offset=None)


def _read_log_starts(data_directory: str) -> _Starts:
    """The log starts in a checkpoint; an unreadable one has none, as in `kseg.Log`."""
    path = os.path.join(data_directory, names.FileKind.LOG_START.value)
    try:
        return read_offset_checkpoint(place(path))
    except (KsegError, OSError):
        return {}


#: A task lists no more segments than this, however small they are.
SPLITS_PER_TASK_MAX: Final = 4096
#: To check a time index, at most so many bytes of a log's tail are walked.
_TAIL_BYTES_MAX: Final = 1 << 20
#: The size up to which the driver walks a segment without an index to find its end.
_WALKED_BYTES_MAX: Final = 16 << 20
#: Ends of segments that are looked up once: a plan is made for each action, and for each batch.
_ENDS_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Split:
    """The batches of one segment that start in `[start_position, end_position)`.

    A split of no bytes, whose path is a partition directory, holds the bounds of a whole log.

    Attributes:
        path: the log file.
        topic: of every record, or None if the directory does not say.
        partition: likewise.
        start_position: where a batch starts.
        end_position: where a later batch starts, or `size`.
        size: bytes of the file that count, without later appends.
        is_last: the segment is the last of its log, so that an unfinished tail is not damage.
        start_offset: of the first record wanted; None for no bound.
        end_offset: of the first record behind the wanted ones.
        start_timestamp: of the oldest record wanted, in milliseconds.
        end_timestamp: milliseconds; records of this time or newer are left out.
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

    @property
    def is_empty(self) -> bool:
        """Whether no record can lie within the bounds."""
        return _crossed(self.start_offset, self.end_offset) or _crossed(
            self.start_timestamp, self.end_timestamp
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch start inside a segment.

    Attributes:
        position: where the batch starts.
        offset: no batch before it has this offset or a later one.
        is_first: whether `offset` is also the lowest of the batch; of a compressed message of
            magic 0 or 1 the header has only the last.
    """

    position: int
    offset: int
    is_first: bool


def make_plan(logs: Iterable[LogEntry], options: SourceOptions) -> tuple[tuple[Split, ...], ...]:
    """Plan the reading of logs.

    Args:
        logs: as `list_logs` gives them.
        options: bounds, `index` and `target_partition_bytes`.

    Returns:
        The tasks, one for each Spark partition: splits, in the order of reading.

    Raises:
        OSError: an index or a log that the plan needs cannot be read.
        ValueError: two directories are replicas of a partition, whose records would count twice.
    """
    logs = tuple(logs)
    refuses = options.replicas == "refuse" and "path" not in options.columns
    if refuses and options.mode == "records":
        try:
            take_replicas([partition_at(path_at(log.directory)) for log in logs], "refuse")
        except ReplicasError as error:
            also = (
                "; or read some with option replicas=newest, first or all; or name path in the "
                "option columns, which tells them apart"
            )
            raise ValueError(f"kseg: {error.reason}{also}: {error.command}") from None
    splits: list[Split] = []
    for log in logs:
        whole = _whole(log, options)
        if log.unreadable is not None:
            splits.append(whole)
        elif not whole.is_empty:
            if options.isolation == "read_committed":
                whole = _committed(log, whole, options.open_transactions)
            splits += _of_log(log, whole, options)
    return tuple(_pack(splits, options.target_partition_bytes))


def _whole(log: LogEntry, options: SourceOptions) -> Split:
    """The bounds of one log, from options; of an unreadable one, its row of damage."""
    start = options.start_of(log.topic, log.partition)
    end = options.end_of(log.topic, log.partition)
    # Deleted records do not count, but their batches are still in the file.
    first = log.log_start_offset if options.mode == "records" else None
    return Split(
        path=log.directory,
        topic=log.topic,
        partition=log.partition,
        start_position=0,
        end_position=0,
        size=0,
        is_last=True,
        start_offset=highest(first, start),
        end_offset=_lowest(log.end_offset, end),
        start_timestamp=options.starting_timestamp,
        end_timestamp=options.ending_timestamp,
        unreadable=log.unreadable,
    )


def _committed(log: LogEntry, wanted: Split, open_transactions: str) -> Split:
    """End the range at the last stable offset, and name the aborted transactions in it.

    Open transactions may be taken as aborted; then the range ends with the log.
    """
    if log.view is None and is_remote(log.directory):
        raise ValueError(f"kseg: {log.directory}: isolation=read_committed needs local files")
    view = log.view or LogView.open(log.directory)
    start = wanted.start_offset or 0
    is_whole = open_transactions == "abort"
    last = view.log_end_offset if is_whole else view.last_stable_offset
    end = _lowest(last, wanted.end_offset)
    assert end is not None
    aborted = aborted_ranges(view, start, end)
    return replace(wanted, end_offset=end, aborted=aborted if len(aborted) else None)


def _lowest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _crossed(start: int | None, end: int | None) -> bool:
    return end is not None and start is not None and start >= end


def _of_log(log: LogEntry, wanted: Split, options: SourceOptions) -> Iterator[Split]:
    """The splits of each segment, without the records that an earlier segment gives.

    So no two tasks give the same record; the rule is in `kseg.log.reader.visible`.
    """
    here = wanted
    for segment in log.segments:
        if segment.end_offset is not None:
            end = _lowest(here.end_offset, segment.end_offset)
            yield from _split(segment, replace(here, end_offset=end), options)
            here = replace(here, start_offset=highest(here.start_offset, segment.end_offset))
            continue
        yield from _split(segment, here, options)
        if log.log_start_offset is None or options.mode != "records":
            continue
        if segment.next_base_offset is None or _outside(segment, wanted):
            continue
        if not _crossed(segment.next_base_offset, wanted.end_offset):
            here = replace(here, start_offset=highest(here.start_offset, _end_of(segment)))


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


def _split(segment: SegmentEntry, wanted: Split, options: SourceOptions) -> Iterator[Split]:
    """The splits of one segment: none where it is pruned, one where it is small."""
    if _outside(segment, wanted) or _too_old(segment, wanted, options.index):
        return
    target, cuts = options.target_partition_bytes, list[Cut]()
    if options.mode != "segments":  # there each file is a row, empty ones too
        if segment.size == 0:
            return
        cuts = find_cuts(segment, target, options.index) if segment.size > target else []
    whole = replace(
        wanted,
        path=segment.path,
        size=segment.size,
        is_last=segment.is_last,
        base_offset=segment.base_offset,
    )
    last = Cut(segment.size, 0, is_first=False)
    start = 0
    for cut in [*cuts, last]:
        first, start = start, cut.position
        if cut is not last and _crossed(wanted.start_offset, cut.offset):
            continue
        yield replace(whole, start_position=first, end_position=cut.position)
        if cut.is_first and _crossed(cut.offset, wanted.end_offset):
            return


def _outside(segment: SegmentEntry, wanted: Split) -> bool:
    """Whether the names alone show that no offset of the segment is wanted."""
    if segment.base_offset is None:
        return False
    ends_before = _crossed(wanted.start_offset, segment.next_base_offset)
    return ends_before or _crossed(segment.base_offset, wanted.end_offset)


def _too_old(segment: SegmentEntry, wanted: Split, index: str) -> bool:
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
            if not tile.table.bounds_time.all():
                return False
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
