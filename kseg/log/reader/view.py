"""LogView: a partition directory at one moment, as an ordered row of segments, for reading.

A view is a snapshot: the files and their sizes at that moment. Later appends are not in it. A torn
tail at its end is an unfinished write of another process, not damage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Final, NamedTuple, Unpack

from kseg.constants import INT64_MIN, ISOLATIONS, StopReason, StrPath
from kseg.errors import (
    CorruptRecordError,
    KsegError,
    NotALogError,
    OffsetOutOfRangeError,
    TierError,
    os_reason,
)
from kseg.files import checkpoints, io
from kseg.files.checkpoints import EpochEntry, TopicPartition
from kseg.files.log_file import PIECE_BYTES
from kseg.files.mapping import Mapping
from kseg.files.names import (
    Partition,
    PartitionFiles,
    PartitionName,
    SegmentFiles,
    classify_path,
    list_partition,
    parse_partition_dir,
)
from kseg.format.reader import Workspace
from kseg.format.request import Request, RequestOptions
from kseg.format.times import Time, iso_text, time_ms
from kseg.format.values import RECORD_FIELDS, Record, RecordColumns
from kseg.log.clock import with_now
from kseg.log.reader import visible
from kseg.log.reader.version import SegmentInfo, Version
from kseg.log.reader.visible import Reached, end_of, first_offsets
from kseg.log.segment.reader import BatchLocation, RecordLocation, Segment
from kseg.workers import PerThread, Results, SharedUse, in_order

#: How often a directory is listed again because files vanish between listing and opening.
_LISTINGS_MAX: Final = 8


class OpenTransaction(NamedTuple):
    """A transaction that has no end yet.

    Attributes:
        offset: the offset of its first record.
        log_end_offset: the end of the log, which goes on after it.
        producer_id: its producer; -1 if that cannot be read.
        timestamp: the time of its first record, in ms; -1 if it has none.
    """

    offset: int
    log_end_offset: int
    producer_id: int
    timestamp: int

    def __str__(self) -> str:
        """The consequence for a reader of committed records."""
        since = iso_text(self.timestamp)
        return (
            f"read_committed ends at offset {self.offset} of {self.log_end_offset}: a transaction "
            f"of producer {self.producer_id} is open" + ("" if since is None else f" since {since}")
        )


class RemotePart(NamedTuple):
    """The facts about the remote segments of a log, which are before those in the directory.

    Attributes:
        log_start_offset: the first offset to be read; None if it is the first segment's.
        leader_epochs: the epochs of the log, used if its directory has none.
        warning: says which offsets are in neither part; None if there are none.
    """

    log_start_offset: int | None
    leader_epochs: tuple[EpochEntry, ...]
    warning: str | None


class LogView:
    """One partition at one moment, read-only. Holds no file open.

    Attributes:
        path: the partition directory.
        segments: sorted by base offset, each with its size at that moment.
        version: the state of a log that this process appends to; else None.
    """

    def __init__(
        self,
        path: Path,
        segments: tuple[SegmentInfo, ...],
        mapping: Mapping,
        *,
        files: PartitionFiles | None = None,
        version: Version | None = None,
        current_version: Callable[[], Version] | None = None,
        remote: RemotePart | None = None,
        starts: Callable[[Path], MappingOf[TopicPartition, int]] | None = None,
    ) -> None:
        """Take over a listing, or the state of a log under a writer of this process; use `open`.

        A listing has `files` and may have `starts`, see `listed`. A log under a writer has
        `version` and `current_version`, see `of`. Either may have a `remote` part.
        """
        self.remote: Final = remote
        self.path: Final = path
        self.segments: Final = segments
        self._mapping: Final[Mapping] = mapping
        self._files = files
        self.version: Final = version
        self._current_version: Final = current_version
        self._starts: Final = starts or log_starts

    @classmethod
    def of(
        cls, path: Path, version: Version, mapping: Mapping, now: Callable[[], Version]
    ) -> LogView:
        """A log that this process appends to, as its readers see it; no access to the disk.

        Args:
            path: the partition directory.
            version: the version of the log to view.
            mapping: how to open files.
            now: returns the newest version; a read compares it to notice a cut.
        """
        return cls(path, version.segments, mapping, version=version, current_version=now)

    @classmethod
    def open(cls, path: StrPath, *, mapping: Mapping = "auto") -> LogView:
        """List a partition directory; files are opened only when they are needed.

        Args:
            path: the directory, under Kafka's name or another.
            mapping: "auto" maps files unless another process holds the data directory; "always",
                "never".

        Raises:
            NotALogError: there is no segment in it.
            OSError: it cannot be listed.
        """
        listing = classify_path(path).partition_files
        if listing is None:
            raise NotALogError("not a partition directory", path=path)
        return cls.listed(listing, mapping)

    @classmethod
    def listed(
        cls,
        listing: PartitionFiles,
        mapping: Mapping = "auto",
        starts: Callable[[Path], MappingOf[TopicPartition, int]] | None = None,
    ) -> LogView:
        """The log of a listing, with the sizes of its files at this moment.

        Args:
            listing: the partition directory's files; it is listed again if a log file is gone.
            mapping: as for `open`.
            starts: returns the log starts of a data directory; None to read its checkpoint.

        Raises:
            OSError: the size of a file cannot be read.
        """
        files, sizes = _list_with_sizes(listing)
        last = len(sizes) - 1
        infos = tuple(
            SegmentInfo(segment, size, index == last)
            for index, (segment, size) in enumerate(zip(files.segments, sizes, strict=True))
        )
        return cls(files.path, infos, mapping, files=files, starts=starts)

    @classmethod
    def at(cls, partition: Partition, mapping: Mapping = "auto") -> LogView:
        """A partition of a catalog at this moment, with its segments in the tier.

        A single file becomes a log of one segment whose base offset is unknown.

        Raises:
            KsegError, OSError: as `open` and `Tier.log` raise them.
        """
        if partition.is_file:
            files = SegmentFiles(INT64_MIN, partition.path)
            info = SegmentInfo(files, io.size_at(partition.path), is_last=None)
            return cls(partition.path, (info,), mapping)
        if partition.tier is None:
            return cls.open(partition.path, mapping=mapping)
        view: LogView = partition.tier.log(partition.path, mapping=mapping).view
        return view

    # ---- properties ------------------------------------------------------------------------------

    @property
    def files(self) -> PartitionFiles:
        """The files of the directory; listed at the first use."""
        if self._files is None:
            self._files = list_partition(self.path)
        return self._files

    @cached_property
    def name(self) -> PartitionName | None:
        """The parsed name of the directory; None for a copy under another name."""
        if self._files is not None:
            return self._files.name
        with suppress(NotALogError):
            return parse_partition_dir(self.path.name)
        return None

    @property
    def topic(self) -> str | None:
        """The topic in the directory's name; None for a copy under another name."""
        return self.name.topic if self.name else None

    @property
    def partition(self) -> int | None:
        """The partition in the directory's name; None for a copy under another name."""
        return self.name.partition if self.name else None

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; 0 if there is no segment."""
        return self.segments[0].base_offset if self.segments else 0

    @cached_property
    def log_start_offset(self) -> int:
        """The first offset to be read: the first segment's, or a later one after DeleteRecords.

        It comes from `log-start-offset-checkpoint` of the data directory; an unreadable one counts
        as missing.
        """
        if self.version is not None:
            return self.version.log_start_offset
        if self.remote is not None and self.remote.log_start_offset is not None:
            return max(self.first_offset, self.remote.log_start_offset)
        start = self._named_start
        return self.first_offset if start is None else max(self.first_offset, start)

    @cached_property
    def _named_start(self) -> int | None:
        """The log start in the data directory's checkpoint; None if it has no line for this log."""
        if self.topic is None or self.partition is None:
            return None
        starts = self._starts(self.path.resolve().parent)
        return starts.get(TopicPartition(self.topic, self.partition))

    @property
    def remote_start_offset(self) -> int | None:
        """The start in the checkpoint if it is before the first segment on this disk; else None.

        A broker notes a start before the first segment for a topic with tiered storage: the
        segments before it are in the tier. For other topics it does so only if it was killed
        between the removal of segments and the next checkpoint.
        """
        start = self._named_start
        return start if start is not None and start < self.first_offset else None

    def left_out(self, request: Request) -> Iterator[str]:
        """Sentences about records that a request selects and a read does not return."""
        is_asked = self.remote is not None or request.offset_start < self.first_offset
        if is_asked and self.remote_warning is not None:
            yield self.remote_warning
        if request.isolation != "read_committed" or request.open_transactions == "abort":
            return
        open_one = self.open_transaction
        if open_one is not None and request.offset_end > open_one.offset:
            yield str(open_one)

    @property
    def remote_warning(self) -> str | None:
        """A warning about records that are not in this directory; None if it has all of them."""
        if self.remote is not None:
            return self.remote.warning
        if self.remote_start_offset is None:
            return None
        return (
            f"offsets {self.remote_start_offset} to {self.first_offset - 1} are not in this "
            "directory, and are not read: the topic keeps them in remote storage, or retention "
            "deleted them just before the broker died"
        )

    @cached_property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch; the base of the last segment if that is empty."""
        if self.version is not None:
            return self.version.log_end_offset
        if not self.segments:
            return 0
        info = self.segments[-1]
        if info.end_offset is not None:
            return info.end_offset
        with self.open_segment(info) as segment:
            end = end_of(segment)
        return info.base_offset if end is None else end

    @cached_property
    def last_stable_offset(self) -> int:
        """Where committed records end: the first offset of the earliest undecided transaction."""
        if self.version is not None:
            return self.version.last_stable_offset
        return visible.last_stable_offset(self)

    @property
    def open_transaction(self) -> OpenTransaction | None:
        """The transaction at which committed records end; None where they end with the log."""
        offset = self.last_stable_offset
        if offset >= self.log_end_offset:
            return None
        fields = ("offset", "timestamp", "producer_id")
        for columns in self.read(offset=(offset, offset + 1), columns=fields):
            for producer_id, timestamp in zip(
                columns["producer_id"].tolist(), columns["timestamp_ms"].tolist(), strict=True
            ):
                return OpenTransaction(offset, self.log_end_offset, producer_id, timestamp)
        return OpenTransaction(offset, self.log_end_offset, -1, -1)

    @cached_property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Epochs and their start offsets, ascending; empty if there is no checkpoint.

        Raises:
            CorruptIndexError: the checkpoint is malformed.
        """
        if self.files.leader_epochs is None:
            return () if self.remote is None else self.remote.leader_epochs
        entries = checkpoints.read_leader_epochs(self.files.leader_epochs)
        return checkpoints.assign_epochs(entries)

    # ---- segments --------------------------------------------------------------------------------

    def open_segment(self, info: SegmentInfo, mapping: Mapping | None = None) -> Segment:
        """Open one segment of the view, up to the size that it has there.

        Args:
            info: the segment.
            mapping: how to open its file; as the snapshot does if None.
        """
        mapping = mapping or self._mapping
        return Segment.open(info.path, mapping=mapping, size=info.size, is_last=info.is_last)

    def opened(self, info: SegmentInfo, request: Request) -> Segment | None:
        """Open a segment for a read; None if a tier's cannot be and `request` has an `on_error`."""
        try:
            return self.open_segment(info)
        except (KsegError, OSError) as error:
            if request.on_error is None or self.remote is None:
                raise
            if isinstance(error, OSError):
                error = TierError(os_reason(error), path=info.path)
            request.on_error(error)
            return None

    @property
    def extent(self) -> str:
        """The offsets of the log, as a phrase."""
        if self.log_end_offset <= self.log_start_offset:
            return f"the log has no records; its next offset is {self.log_end_offset}"
        return f"the log holds offsets {self.log_start_offset} to {self.log_end_offset - 1}"

    def segments_from(self, offset: int) -> tuple[SegmentInfo, ...]:
        """The segment that can hold `offset`, and those after it."""
        first = bisect_right(self.segments, offset, key=lambda info: info.base_offset) - 1
        return self.segments[max(first, 0) :]

    # ---- finding ---------------------------------------------------------------------------------

    def lookup(self, offset: int) -> BatchLocation:
        """The batch that holds `offset`, or the next one if compaction has left a gap.

        Raises:
            OffsetOutOfRangeError: it is before the log's start, or at its end or beyond; or no
                batch is left at or after it.
        """
        if offset >= self.log_start_offset:
            for info in self.segments_from(offset):
                with self.open_segment(info) as segment:
                    location = segment.lookup(offset)
                if location is not None and not _is_cut(info, location.base_offset):
                    return location
        reason = self.extent
        if self.log_start_offset <= offset < self.log_end_offset:
            reason = f"no batch is left from here to the log's end at offset {self.log_end_offset}"
        raise OffsetOutOfRangeError(reason, path=self.path, offset=offset)

    def lookup_time(self, timestamp: Time) -> RecordLocation | None:
        """The first record at or after a time; None if there is none.

        Source: Kafka UnifiedLog.fetchOffsetByTimestamp.
        """
        timestamp_ms = time_ms(timestamp, round_up=True)
        for info in self.segments_from(self.log_start_offset):
            if info.max_timestamp is not None and info.max_timestamp < timestamp_ms:
                continue
            with self.open_segment(info) as segment:
                location = segment.lookup_time(timestamp_ms, start_offset=self.log_start_offset)
            if location is not None and not _is_cut(info, location.offset):
                return location
        return None

    # ---- reading ---------------------------------------------------------------------------------

    def read(
        self,
        request: Request | None = None,
        *,
        workspace: Workspace | None = None,
        whole: visible.WholeBatches | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records of the partition as columns, a bounded piece at a time.

        Each offset comes once, rising, also where segments hold the same offsets (see
        `kseg.log.reader.visible`), and no record before the log's start.

        Args:
            request: the wanted records; all records if None.
            workspace: memory of an earlier reading to use again; its own if None.
            whole: receives batches' headers, and leaves out batches whose records it does not
                need; see `kseg.log.reader.visible.WholeBatches`.
            options: attributes of `kseg.format.request.Request` that replace those of `request`.

        Raises:
            TypeError: an option is unknown.
            FormatError, LimitExceededError: damage, as `Segment.read` says.
            CorruptRecordError: this process has cut the log meanwhile.
            FileNotFoundError: a segment of the snapshot is gone when its turn comes: a live
                broker's retention or compaction removed it. Call `refresh`, and go on from its
                `log_start_offset` or the last offset seen.
        """
        if options or request is None:
            request = Request.of(request, with_now(options))
        start, end = self.first_wanted(request), request.offset_end
        ahead = None
        if request.isolation == "read_committed":
            if request.open_transactions == "wait":
                end = min(end, self.last_stable_offset)
            ahead = visible.AbortedAhead(self, start, end)
        return self._read(request, start, end, ahead, workspace or Workspace(), whole)

    def first_wanted(self, request: Request) -> int:
        """Where a read begins: segments before it cannot have a record of the request."""
        start = max(self.log_start_offset, request.offset_start)
        for info in self.segments_from(start):
            newest, end = info.max_timestamp, info.end_offset
            if newest is None or end is None or newest >= request.time_start:
                break
            start = max(start, end)
        return start

    def _read(
        self,
        request: Request,
        start: int,
        end: int,
        ahead: visible.AbortedAhead | None,
        workspace: Workspace,
        whole: visible.WholeBatches | None,
    ) -> Iterator[RecordColumns]:
        """The records of segments, in the order of offsets, each offset once.

        Args:
            request: all but the bounds of offsets.
            start, end: the bounds of offsets.
            ahead: the aborted transactions, for readers of committed records; None for all records.
            workspace: memory of an earlier reading.
            whole: counts batches that need not be decoded; None to decode all.
        """
        reached = Reached(start)
        infos = self.segments_from(start)
        for info, following in zip_longest(infos, infos[1:]):
            # A segment may hold records below its base: only a gap before it leaves room.
            if min(info.base_offset, reached.offset) >= end:
                return
            next_base = None if following is None else following.base_offset
            stop = end if info.end_offset is None else min(end, info.end_offset)
            newest = info.max_timestamp  # a segment may be known to lack records of the request
            too_old = newest is not None and newest < request.time_start
            passed = too_old or _is_cut(info, reached.offset)
            opened = None if passed else self.opened(info, request)
            if opened is None:
                reached.leave(info, None, next_base)
                continue
            with opened as segment:
                keep = None
                if ahead is not None:
                    keep = ahead.beside(max(start, info.base_offset), next_base)
                if whole is not None:
                    keep = whole.keep(keep, reached.offset, stop)
                pieces = segment.read(
                    replace(request, offset=(reached.offset, stop)),
                    keep=keep,
                    on_offset=reached.note,
                    workspace=workspace,
                )
                for columns in pieces:
                    self._check_not_cut(end if next_base is None else next_base)
                    yield columns
                reached.leave(info, segment, next_base)

    def _check_not_cut(self, segment_end: int) -> None:
        """Refuse bytes of a segment that this process has cut during the read."""
        if self._current_version is None or self.version is None:
            return
        lowest = self._current_version().truncations.lowest_end_since(
            self.version.truncations.number
        )
        if lowest is not None and lowest < segment_end:
            raise CorruptRecordError(
                f"the log was cut at {lowest} while it was read; read on from there",
                path=self.path,
            )

    def records(self, **options: Unpack[RequestOptions]) -> Iterator[Record]:
        """Each record as an object; the options are those of `read`, except `columns`."""
        pieces = self.read(Request(columns=RECORD_FIELDS), **options)
        return chain.from_iterable(columns.records() for columns in pieces)

    def __repr__(self) -> str:
        """The path and the number of segments."""
        return f"LogView({str(self.path)!r}, {len(self.segments)} segments)"


def log_starts(data_directory: Path) -> MappingOf[TopicPartition, int]:
    """The log starts in the checkpoint of a data directory; empty if it cannot be read.

    Args:
        data_directory: the directory of the partitions.
    """
    try:
        return checkpoints.read_offset_checkpoint(data_directory / "log-start-offset-checkpoint")
    except (KsegError, OSError):
        return {}


def _is_cut(info: SegmentInfo, offset: int) -> bool:
    """Whether an offset is in the part of a segment that was cut off."""
    return info.end_offset is not None and offset >= info.end_offset


def age_of(directory: Path) -> tuple[int, int]:
    """The last leader epoch of a log, and its end: the newest of several replicas has the most.

    Raises:
        KsegError, OSError: as for `LogView.open`.
    """
    view = LogView.open(directory)
    epochs = view.leader_epochs
    return epochs[-1].epoch if epochs else -1, view.log_end_offset


def _list_with_sizes(files: PartitionFiles) -> tuple[PartitionFiles, list[int]]:
    """The files and the sizes of the logs; lists again if retention renames one meanwhile."""
    for _ in range(_LISTINGS_MAX - 1):
        with suppress(FileNotFoundError):
            return files, _sizes(files)
        files = list_partition(files.path)
    return files, _sizes(files)


def _sizes(files: PartitionFiles) -> list[int]:
    return [io.size_at(segment.raw_path) for segment in files.segments]


# ---- pieces of work that threads share -----------------------------------------------------------


def log_pieces(view: LogView, memory: PerThread[Workspace], request: Request) -> Iterator[Results]:
    """A read of a log as pieces of work; they give columns, and faults where these are taken.

    Committed records are one piece: the reading itself finds out which transactions were aborted.

    Args:
        view: the log.
        memory: is used again by piece after piece.
        request: the records wanted.
    """
    if request.isolation != "read_uncommitted" or view.version is not None:
        yield Results(view.path, partial(_results, view.read, request))
        return
    start, end = view.first_wanted(request), request.offset_end
    for info, first in first_offsets(view, start):
        if min(info.base_offset, first) >= end:
            return
        stop = end if info.end_offset is None else min(end, info.end_offset)
        part = replace(request, offset=(first, stop))
        opened = view.opened(info, part)
        if opened is not None:
            yield from _segment_pieces(opened, memory, part)


def _segment_pieces(
    segment: Segment, memory: PerThread[Workspace], request: Request
) -> Iterator[Results]:
    """The pieces of work that read a segment, which is closed after the last one."""
    with SharedUse(segment.close) as shared:
        for start, end in pairwise(chain(_cuts(segment, request), [None])):
            use = shared.one_more()
            read = partial(_read_piece, segment, use, memory, request, start, end)
            yield Results(segment.path, read)


def _cuts(segment: Segment, request: Request) -> Iterator[int | None]:
    """Positions at which pieces begin; the first is None: `Segment.read` finds it itself.

    Each position is computed only when it is needed: the walk over headers is the first to touch
    the pages of a map, and all threads would wait if it went ahead of them.
    """
    yield None
    if segment.kafka07 or request.time_start > INT64_MIN:
        return
    cut: int | None = segment.start_for_offset(max(request.offset_start, 0)).position
    while cut is not None and segment.size - cut > PIECE_BYTES:
        cut = _next_cut(segment, cut, request.offset_end)
        if cut is not None:
            yield cut


def _next_cut(segment: Segment, start: int, end_offset: int) -> int | None:
    """The beginning of the piece after the piece at `start`; None if there is no further piece.

    The piece meets a fault that stops this walk too, after the records before it.
    """
    try:
        for table in segment.headers(start=start, limit=start + PIECE_BYTES):
            if len(table) and table.base_offset[-1] >= end_offset:
                return None
    except KsegError:
        return None
    return table.end_position if table.stop is StopReason.LIMIT else None


def _read_piece(
    segment: Segment,
    use: SharedUse,
    memory: PerThread[Workspace],
    request: Request,
    start: int | None,
    end: int | None,
) -> Iterator[RecordColumns | KsegError]:
    """Columns of a part of a segment, decoded in this thread's memory, and faults for `on_error`.

    `use` ends after the last of them.
    """
    with use, memory.one() as workspace:
        read = partial(segment.read, start_position=start, end_position=end, workspace=workspace)
        yield from _results(read, request)


def _results(
    read: Callable[[Request], Iterator[RecordColumns]], request: Request
) -> Iterator[RecordColumns | KsegError]:
    """The columns that `read` returns; if the request has an `on_error`, faults where they are."""
    if request.on_error is None:
        yield from read(request)
        return
    faults: list[KsegError] = []
    try:
        for columns in read(replace(request, on_corrupt=faults.append)):
            yield from faults
            faults.clear()
            yield columns
    except (KsegError, OSError, MemoryError):
        yield from faults
        raise
    yield from faults


def read_pieces(
    pieces: Iterator[Results], threads: int, on_error: Callable[[KsegError], object] | None = None
) -> Iterator[RecordColumns]:
    """The columns of pieces of work, in order, done by threads.

    Args:
        pieces: as `log_pieces` yields them.
        threads: the number of threads; 1 does all the work in the caller's.
        on_error: is called with each fault, in order.
    """
    is_single = threads == 1
    results = chain.from_iterable(pieces) if is_single else in_order(pieces, threads=threads)
    for result in results:
        if isinstance(result, KsegError):
            assert on_error is not None
            on_error(result)
        else:
            yield result


__all__ = ["ISOLATIONS", "LogView", "age_of", "log_pieces", "log_starts", "read_pieces"]
