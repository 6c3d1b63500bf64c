"""The tasks of a query: segments pruned, big ones split at batch starts, small ones packed.

A *cut* is the start of a batch at which a segment is split. A plan is made for every action and for
`explain`, so it must be quick: mostly from names and sizes. An index is opened for a segment that
is to be split, or might be pruned by time. It is also opened once for the end of a segment: records
past the next segment's base come only from the first of the two. Unless the option `index` is
`use`, each index entry is checked against the log. A cut counts only where a whole batch with a
right checksum starts. A segment is pruned by its time index only if the log's tail agrees with it.
A reader fails if a cut turns out to be inside a batch. Where an index is wrong or missing, headers
are walked.

A split owns the batches that start within `[start_position, end_position)`. Plans are values,
the same for the same files.

Options narrow a plan, and Spark's filters do not: Spark keeps the plan of a filtered query at the
DataFrame, so the next query of the same DataFrame would lack rows. Nothing here imports pyspark.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np

from kseg import Segment
from kseg.catalog import (
    Catalog,
    ReplicasError,
    partition_at,
    real_path,
)
from kseg.constants import INT64_MIN, NO_TIMESTAMP, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, CorruptRecordError, NotALogError
from kseg.files.checkpoints import TopicPartition
from kseg.files.index import OffsetIndex, TimeIndex, TimeIndexEntry
from kseg.files.log_file import LogFile
from kseg.files.names import Partition, PartitionFiles, list_partition
from kseg.files.selection import StrPaths
from kseg.format.header import BatchHeader
from kseg.format.request import NO_END, Request
from kseg.log.reader import (
    AbortedRanges,
    LogView,
    SegmentInfo,
    aborted_ranges,
    age_of,
    believed_end,
    log_starts,
)
from kseg.log.tier import Tier
from kseg.spark.options import SourceOptions
from kseg.stores.path import RemotePath, is_remote, name_of, path_at


class ListedLog(NamedTuple):
    """A partition of the catalog, and its log at this moment.

    Attributes:
        partition: the directory; or the first of its segments that were named by themselves.
        view: the log, or only the named segments; without segments if it cannot be read.
        unreadable: why it cannot be read, for a query that has rows for damage.
    """

    partition: Partition
    view: LogView
    unreadable: str | None = None

    @property
    def start_offset(self) -> int:
        """The first offset to read; segments that were named by themselves are read whole."""
        return INT64_MIN if self.partition.is_file else self.view.log_start_offset

    def segments(self) -> Iterator[tuple[SegmentInfo, int]]:
        """Each segment to read, with the base offset of the next one; `NO_END` for the last."""
        all_segments = self.view.files.segments if self.partition.is_file else self.view.segments
        bases = [segment.base_offset for segment in all_segments]
        for info in self.view.segments:
            following = NO_END
            if info.end_offset is not None:
                following = info.end_offset
            elif info.is_last is False:
                following = bases[bisect_right(bases, info.base_offset)]
            yield info, following


def plan_line(logs: Iterable[ListedLog], tasks: Iterable[tuple[Split, ...]]) -> str:
    """A line about a plan: how many of all segments it reads."""
    in_all = sum(len(log.view.segments) for log in logs)
    read = len({split.path for task in tasks for split in task if split.unreadable is None})
    return f"kseg: {read} of {in_all} segments"


def local_path(path: StrPath) -> str:
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
    paths: StrPaths,
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


def list_logs(options: SourceOptions) -> tuple[ListedLog, ...]:
    """Every log that the options ask for, sorted by topic, partition and directory.

    The paths of the logs have no symbolic links, since a worker may have another directory.

    Raises:
        ValueError: a path of another topic than those asked for, a URL of no store, or two
            directories of a partition, whose records would count twice.
        NotALogError: no segment is left; the message says why.
        OSError: a path is missing or cannot be listed.
    """
    catalog = _catalog(options)
    choice = options.topics
    for entry in catalog.not_chosen:
        if (
            choice.names
            and entry.topic not in (None, *choice.names)
            and entry.path in catalog.named
        ):
            raise ValueError(f"kseg: {entry.path} is of topic {entry.topic!r}, not of {choice}")
    by_directory: dict[str, list[Partition]] = {}
    for entry in catalog:
        by_directory.setdefault(real_path(entry.directory), []).append(entry)
    starts = cache(log_starts)
    logs = [_list_log(path_at(name), inside, starts) for name, inside in by_directory.items()]
    for path, reason, error in catalog.skipped:
        if path in catalog.named and error is not None:
            raise error
        real = Path(os.path.realpath(path.parent), path.name)
        partition = partition_at(real)
        empty = LogView.listed(PartitionFiles(real, partition.name))
        logs.append(ListedLog(partition, empty, reason))
    if not any(log.view.segments or log.unreadable for log in logs):
        raise NotALogError(_why_nothing(catalog, options), path=", ".join(options.paths))
    return tuple(sorted(logs, key=_log_order))


def _catalog(options: SourceOptions) -> Catalog:
    """The partitions that the options ask for.

    Raises:
        ValueError: a partition has several directories, which the rows would not tell apart.
    """
    tier = None
    if options.tier is not None:
        tier = Tier.of(options.tier, keys=dict(options.tier_keys), topic_id=options.topic_id)
    replicas: str | Callable[[Path], Any] = options.replicas
    if replicas == "newest":
        replicas = age_of
    elif options.mode != "records" or "path" in options.columns:
        replicas = "all" if replicas == "refuse" else replicas
    try:
        return Catalog.of(
            [path if is_remote(path) else local_path(path) for path in options.paths],
            options.wants,
            tier=tier,
            replicas=replicas,
            on_error="skip" if options.permissive else "raise",
            may_be_empty=True,
        )
    except ReplicasError as error:
        also = (
            "; or read some with option replicas=newest, first or all; or name path in the "
            "option columns, which tells them apart"
        )
        raise ValueError(f"kseg: {error.reason}{also}: {error.command}") from None


def _why_nothing(catalog: Catalog, options: SourceOptions) -> str:
    """Why a query reads no log, in words."""
    if not catalog.partitions and catalog.not_chosen:
        of_topic = [x for x in catalog.not_chosen if options.topics.wants_topic(x.topic)]
        if of_topic:
            numbers = sorted({x.partition for x in of_topic if x.partition is not None})
            return f"none of the partitions asked for; there are {numbers}"
        topics = ", ".join(sorted({x.topic or "(no name)" for x in catalog.not_chosen}))
        return f"no topic of {options.topics}; there is {topics}"
    return "no segments: neither .log nor .kafka files"


def _log_order(log: ListedLog) -> tuple[str, int, str]:
    """The key by which logs are sorted: topic, partition, path."""
    partition = log.partition
    number = -1 if partition.partition is None else partition.partition
    return partition.topic or "", number, str(log.view.path)


def _list_log(
    directory: Path,
    entries: list[Partition],
    starts: Callable[[Path], Mapping[TopicPartition, int]],
) -> ListedLog:
    """The log of a partition directory, or only those of its segments that were named.

    Args:
        directory: the directory.
        entries: its partition, or the files in it, from the catalog.
        starts: reads the log starts of a data directory.
    """
    partition = entries[0]
    if partition.tier is not None:
        return ListedLog(partition, LogView.at(partition))
    files = partition.files
    if files.path != directory:
        files = list_partition(directory)
    view = LogView.listed(files._replace(name=partition.name), starts=starts)
    if not partition.is_file:
        return ListedLog(partition, view)
    by_name = {info.path.name: info for info in view.segments}
    infos = list[SegmentInfo]()
    for path in sorted({directory / entry.path.name for entry in entries}):
        if path.name in by_name:
            infos.append(by_name[path.name])
        else:  # not a segment of its directory, such as a KRaft snapshot
            infos += LogView.at(replace(partition, path=path)).segments
    infos.sort(key=lambda info: info.base_offset)
    return ListedLog(partition, LogView(directory, tuple(infos), "auto", files=view.files))


#: The most splits of a task, however small they are.
SPLITS_PER_TASK_MAX: Final = 4096
#: The most bytes of a log's tail that are walked to check a time index.
_TAIL_BYTES_MAX: Final = 1 << 20
#: The size up to which the driver walks a segment without an index to find its end.
_WALKED_BYTES_MAX: Final = 16 << 20
#: The number of ends of segments that are cached: a plan is made for each action, and for each
#: batch of a stream.
_ENDS_KEPT: Final = 65_536


@frozen_dataclass
class Split:
    """The batches of one segment that start in `[start_position, end_position)`.

    A split of no bytes, whose path is a partition directory, has the bounds of a whole log; see
    `_whole_split`.

    Attributes:
        path: the log file.
        topic, partition: those of every record; None if the directory's name does not say them.
        start_position: where a batch starts.
        end_position: where a later batch starts, or `size`.
        size: the size of the file at the time of the plan; later appends do not count.
        is_last: whether it is the last segment of its log, whose unfinished tail is not damage.
        start_offset: the offset of the first wanted record; `INT64_MIN` for no bound.
        end_offset: the offset after the wanted records; `NO_END` for no bound.
        start_timestamp: the time of the oldest wanted record in ms; `INT64_MIN` for no bound.
        end_timestamp: records of this time in ms or later are left out; `NO_END` for no bound.
        aborted: the transactions to leave out, for a reader of committed records.
        base_offset: the base offset of the segment; None for a copy whose name has none.
        unreadable: why the partition directory `path` cannot be read; its only row reports that.
    """

    path: str
    topic: str | None
    partition: int | None
    start_position: int
    end_position: int
    size: int
    is_last: bool
    start_offset: int = INT64_MIN
    end_offset: int = NO_END
    start_timestamp: int = INT64_MIN
    end_timestamp: int = NO_END
    aborted: AbortedRanges | None = None
    base_offset: int | None = None
    unreadable: str | None = None

    @property
    def split_bytes(self) -> int:
        """The bytes of log in the split."""
        return self.end_position - self.start_position

    @property
    def offsets(self) -> tuple[int, int]:
        """The first wanted offset, and the one after the wanted ones."""
        return self.start_offset, self.end_offset

    @property
    def times(self) -> tuple[int, int]:
        """The bounds of the wanted times, in milliseconds."""
        return self.start_timestamp, self.end_timestamp

    @property
    def is_empty(self) -> bool:
        """Whether no record can be within the bounds."""
        return self.start_offset >= self.end_offset or self.start_timestamp >= self.end_timestamp


@frozen_dataclass
class Cut:
    """The start of a batch at which a segment can be split.

    Attributes:
        position: where the batch starts.
        offset: no batch before it has this offset or a later one.
        is_first: whether `offset` is also the lowest of the batch; of a compressed message of
            magic 0 or 1 the header has only the last.
    """

    position: int
    offset: int
    is_first: bool


def make_plan(
    logs: Iterable[ListedLog],
    options: SourceOptions,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[tuple[Split, ...], ...]:
    """Plan the reading of logs.

    Args:
        logs: as `list_logs` gives them.
        options: the bounds, `index` and `target_partition_bytes`.
        ranges: for a stream, name of a directory -> the offsets `[start, end)` to read, in place of
            those of the options; no other log is read.

    Returns:
        The tasks, one for each Spark partition: each has its splits in the order of reading.

    Raises:
        OSError: an index or a log that the plan needs cannot be read.
    """
    splits: list[Split] = []
    for log in logs:
        bounds = None if ranges is None else ranges.get(log.view.path.name)
        if ranges is not None and bounds is None:
            continue
        whole = _whole_split(log, options, bounds)
        if log.unreadable is not None:
            splits.append(whole)
        elif not whole.is_empty:
            if options.isolation == "read_committed":
                whole = _end_at_last_stable(log, whole, options.open_transactions)
            splits += _of_log(log, whole, options)
    return tuple(_pack(splits, options.target_partition_bytes))


def _whole_split(log: ListedLog, options: SourceOptions, bounds: tuple[int, int] | None) -> Split:
    """A split that has the bounds of a whole log, from which the splits of its segments are made.

    Its positions and its size are 0, as it names a directory. The split of an unreadable log stays
    in the plan as it is, and becomes a row of damage.

    Args:
        log: the log.
        options: the bounds of offsets and times.
        bounds: for a stream, the offsets `[start, end)` in place of those of the options.
    """
    topic, partition = log.partition.topic, log.partition.partition
    request = Request(
        offset=bounds or (options.start_of(topic, partition), options.end_of(topic, partition)),
        time=(options.starting_timestamp, options.ending_timestamp),
    )
    # Records before the log's start do not count; the other modes show their batches as well.
    first = log.start_offset if options.mode == "records" and bounds is None else INT64_MIN
    return Split(
        path=str(log.view.path),
        topic=topic,
        partition=partition,
        start_position=0,
        end_position=0,
        size=0,
        is_last=True,
        start_offset=max(first, request.offset_start),
        end_offset=request.offset_end,
        start_timestamp=request.time_start,
        end_timestamp=request.time_end,
        unreadable=log.unreadable,
    )


def _end_at_last_stable(log: ListedLog, bounds: Split, open_transactions: str) -> Split:
    """The bounds for committed records: they end at the last stable offset, and have `aborted`.

    If open transactions count as aborted, they end with the log.
    """
    view = log.view
    if view.remote is None and isinstance(view.path, RemotePath):
        raise ValueError(f"kseg: {view.path}: isolation=read_committed needs local files")
    if log.partition.is_file:
        view = LogView.listed(view.files)
    is_whole = open_transactions == "abort"
    last = view.log_end_offset if is_whole else view.last_stable_offset
    end = min(last, bounds.end_offset)
    aborted = aborted_ranges(view, max(bounds.start_offset, 0), end)
    return replace(bounds, end_offset=end, aborted=aborted if len(aborted) else None)


def _of_log(log: ListedLog, bounds: Split, options: SourceOptions) -> Iterator[Split]:
    """The splits of each segment, without the records that an earlier segment has.

    So no two tasks read the same record; the rule is in `kseg.log.reader.visible`.
    """
    remaining = bounds  # without the offsets of earlier segments
    for info, following in log.segments():
        if info.end_offset is not None:
            end = min(remaining.end_offset, info.end_offset)
            yield from _split(log, info, following, replace(remaining, end_offset=end), options)
            remaining = replace(
                remaining, start_offset=max(remaining.start_offset, info.end_offset)
            )
            continue
        yield from _split(log, info, following, remaining, options)
        if log.partition.is_file or options.mode != "records":
            continue
        if following < bounds.end_offset and not _is_outside(info, following, bounds):
            end_offset = _end_of(info, following) or 0
            remaining = replace(remaining, start_offset=max(remaining.start_offset, end_offset))


def _end_of(info: SegmentInfo, following: int) -> int | None:
    """The offset after a segment's last batch; None where only a walk over all of it would tell.

    It is cached: a segment that others follow is not written to any more.
    """
    if info.files.index is None and info.size > _WALKED_BYTES_MAX:
        return None
    written = 0 if isinstance(info.path, RemotePath) else os.stat(info.path).st_mtime_ns
    return _end_before(info, following, written)


@lru_cache(_ENDS_KEPT)
def _end_before(info: SegmentInfo, following: int, _written_ns: int) -> int | None:
    with Segment.open(info.path, size=info.size, is_last=False) as opened:
        return believed_end(opened, following)


def _split(
    log: ListedLog,
    info: SegmentInfo,
    following: int,
    bounds: Split,
    options: SourceOptions,
) -> Iterator[Split]:
    """The splits of one segment: nothing if it is pruned, one split if it is small.

    Args:
        log, info: the log, and the segment.
        following: the base offset of the next segment; `NO_END` for the last one.
        bounds: the bounds of the log, without the offsets of earlier segments.
        options: the options of the query.
    """
    is_last = following == NO_END
    if _is_outside(info, following, bounds):
        return
    if not is_last and _too_old(info, bounds.start_timestamp, options.index):
        return
    target, cuts = options.target_partition_bytes, list[Cut]()
    if options.mode != "segments":  # that mode has a row for each file, also for empty ones
        if info.size == 0:
            return
        cuts = find_cuts(info, target, options.index) if info.size > target else []
    whole = replace(
        bounds,
        path=str(info.path) if log.view.remote is None else name_of(info.path),
        size=info.size,
        is_last=is_last,
        base_offset=None if info.base_offset == INT64_MIN else info.base_offset,
    )
    last = Cut(info.size, 0, is_first=False)
    start = 0
    for cut in [*cuts, last]:
        first, start = start, cut.position
        if cut is not last and bounds.start_offset >= cut.offset:
            continue
        yield replace(whole, start_position=first, end_position=cut.position)
        if cut.is_first and cut.offset >= bounds.end_offset:
            return


def _is_outside(info: SegmentInfo, following: int, bounds: Split) -> bool:
    """Whether the names of the segments show that no offset of this one is wanted."""
    return bounds.start_offset >= following or info.base_offset >= bounds.end_offset


def _too_old(info: SegmentInfo, start: int, index: str) -> bool:
    """Whether every record is older than wanted, according to a confirmed time index.

    Times need not ascend, so only the newest time of a segment is known without a walk. No segment
    is pruned for being too new. A broker makes the last time entry when it rolls a segment, so the
    last segment of a log is never pruned either.
    """
    if start == INT64_MIN or index == "ignore" or info.files.time_index is None:
        return False
    try:
        with TimeIndex.open(info.files.time_index, info.base_offset) as times:
            newest = times.last_entry
            if not times.entry_count or newest.timestamp >= start:
                return False
        return index == "use" or _tail_agrees(info, newest)
    except (CorruptIndexError, CorruptRecordError):
        return False


def _tail_agrees(info: SegmentInfo, newest: TimeIndexEntry) -> bool:
    """Whether the largest time in the tail of a log is that of the time index's last entry.

    The tail begins with the batch of that entry, and has to end with a whole batch. False also if
    it is too long to be read, or there is no offset index.
    """
    if info.files.index is None:
        return False
    with OffsetIndex.open(info.files.index, info.base_offset) as offsets:
        position = offsets.lookup(newest.offset).position
    if not 0 < info.size - position <= _TAIL_BYTES_MAX:
        return False
    newest_of_tail = NO_TIMESTAMP
    with LogFile.open(info.path) as log:
        for tile in log.walk(start=position, end=info.size, on_bad_crc="stop"):
            stop = tile.table.stop
            newest_of_tile = int(tile.table.max_timestamp.max(initial=NO_TIMESTAMP))
            newest_of_tail = max(newest_of_tail, newest_of_tile)
            if not tile.table.bounds_time.all():
                return False
    return stop is StopReason.END and newest_of_tail == newest.timestamp


def find_cuts(info: SegmentInfo, target_bytes: int, index: str = "auto") -> list[Cut]:
    """Batch starts that split a segment into pieces of about the target size.

    Args:
        info: a segment larger than `target_bytes`.
        target_bytes: the bytes of a piece, which goes on to the end of its last batch.
        index: "auto" takes cuts from the offset index and checks each against the log, "use" does
            not check, "ignore" walks headers.

    Raises:
        OSError: the index or the log cannot be read.
    """
    count = -(-info.size // target_bytes)
    goals = [info.size * number // count for number in range(1, count)]
    if index != "ignore":
        cuts = _cuts_from_index(info, goals, trusted=index == "use")
        if cuts is not None:
            return cuts
    return _cuts_from_walk(info, goals)


def _cuts_from_index(info: SegmentInfo, goals: list[int], *, trusted: bool) -> list[Cut] | None:
    """Cuts at the first index entry after each goal; None if the index is missing, sparse or wrong.

    Args:
        info: the segment.
        goals: the positions near which to cut.
        trusted: do not check the entries against the log.
    """
    if info.files.index is None:
        return None
    try:
        with OffsetIndex.open(info.files.index, info.base_offset) as offsets:
            entries = [offsets.fetch_upper_bound(goal, 0) for goal in goals]
    except CorruptIndexError:
        return None
    cuts = [
        Cut(entry.position, entry.offset, is_first=False)
        for entry in dict.fromkeys(entries)
        if entry
    ]
    if 2 * len(cuts) < len(goals):
        return None  # the index covers less than half of the log
    positions = [0, *(cut.position for cut in cuts), info.size]
    if not all(start < end for start, end in pairwise(positions)):
        return None
    if trusted:
        return cuts
    with LogFile.open(info.path) as log:
        checked = [cut for cut in (_batch_at(log, cut.position) for cut in cuts) if cut]
    return checked if len(checked) == len(cuts) else None


def _batch_at(log: LogFile, position: int) -> Cut | None:
    """A cut at a position; None unless a whole batch with a right checksum starts there."""
    table = log.batch_at(position)
    return _cut_at(table[0]) if len(table) == 1 and table.crc_ok[0] == 1 else None


def _cut_at(batch: BatchHeader) -> Cut:
    """The cut before a batch."""
    is_first = batch.base_offset >= 0
    return Cut(batch.position, batch.base_offset if is_first else batch.last_offset, is_first)


def _cuts_from_walk(info: SegmentInfo, goals: list[int]) -> list[Cut]:
    """Cuts at the first batch at or past each goal; the walk ends where the log does."""
    cuts: list[Cut] = []
    with LogFile.open(info.path) as log:
        for table in log.headers(end=info.size):
            if not len(table):
                break
            slots = np.unique(table.position.searchsorted(goals)).tolist()
            cuts += [_cut_at(table[slot]) for slot in slots if slot < len(table)]
            goals = [goal for goal in goals if goal > int(table.position[-1])]
            if not goals:
                break
    return [cut for cut in cuts if cut.position > 0]


def _pack(splits: Iterable[Split], target_bytes: int) -> Iterator[tuple[Split, ...]]:
    """Join neighbouring splits into tasks of at most the target size, where splits allow it."""
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
