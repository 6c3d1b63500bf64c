"""Fetching: the stored bytes of a log from an offset on, as they lie on the disk.

The format on disk is that of the wire, so nothing is decoded, copied twice or changed. The result
is a memoryview, or a range of a file for `sendfile`. It comes from one segment, begins with the
batch that holds the offset, and may end inside a batch, as a fetch of Kafka's does. So it may begin
with records before the wanted offset, and repeat those of overlapping segments. `Fetched.columns`
leaves them out, as consumers do.

A fetch reads by positions, never through a map, and beside the writer as `find` describes.

Source: Kafka `UnifiedLog.read`, `LocalLog.read`, `LogSegment.read`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from kseg.constants import StopReason
from kseg.errors import KsegError, OffsetOutOfRangeError, at_path
from kseg.files import io
from kseg.files.index import probe_upper_bound
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.columns import decode
from kseg.format.header import BatchTable, scan, stop_error
from kseg.format.reader import Workspace
from kseg.format.request import FETCH_BYTES, Request, RequestOptions, check_word
from kseg.format.values import RecordColumns
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.find import (
    WINDOW_BYTES,
    FoundBatch,
    ReadableLog,
    find_batch,
    read_window,
    undisturbed,
)
from kseg.log.reader.version import SegmentInfo, Version
from kseg.log.reader.visible import AbortedRanges, aborted_ranges

if TYPE_CHECKING:
    from kseg.log.reader.view import LogView

#: Up to where a fetch reads: the log's end, the high watermark, the last stable offset.
ISOLATIONS: Final = ("log_end", "read_uncommitted", "read_committed")
#: The excess of a window over the wanted bytes: room for the batches between an index entry and the
#: offset.
_SLACK_BYTES: Final = 8 << 10
#: Bytes read at once with the headers; larger ranges are read once their place is known.
_AHEAD_BYTES_MAX: Final = 16 << 10
_NOTHING: Final = memoryview(b"")
_base_offset: Final = attrgetter("files.base_offset")
#: The function that a named tuple's constructor calls, without a Python call.
_new: Final = tuple.__new__


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    Consumers skip the producer's records from the offset on, up to its next ABORT marker.
    """

    producer_id: int
    first_offset: int


class FileRange(NamedTuple):
    """A part of a file, for `sendfile`."""

    path: Path
    position: int
    size: int


class Fetched(NamedTuple):
    """Stored bytes from an offset on, and their place. A tuple, since each fetch makes one.

    Attributes:
        start_offset: the offset that was asked for; the first batch may begin before it.
        segment: base offset of the segment that the bytes are of; -1 where that is not known.
        position: the position of the first byte in the log file, hence also the segment's bytes
            before it; -1 if unknown.
        size: bytes that the answer has.
        data: these bytes, as stored, owned by this value; empty if they were not to be read.
        first_batch_incomplete: fewer bytes were allowed than the first batch has, but more than 0.
        path: the log file; None if there are no bytes.
        aborted: transactions whose records are not to be seen; None unless committed records
            were asked for.
        hidden: the offsets of these records, which `columns` leaves out.
    """

    start_offset: int
    segment: int = -1
    position: int = -1
    size: int = 0
    data: memoryview = _NOTHING
    first_batch_incomplete: bool = False
    path: Path | None = None
    aborted: tuple[AbortedTransaction, ...] | None = None
    hidden: AbortedRanges | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the last whole batch; `start_offset` if there is none."""
        end = self.start_offset
        for table in self._tables():
            if len(table):
                end = max(end, table.end_offset)
        return end

    @property
    def file(self) -> FileRange | None:
        """The range of the file with the bytes, for `sendfile`; None if there are none.

        If the log is cut afterwards, the range has other bytes, or none.
        """
        return None if self.path is None else FileRange(self.path, self.position, self.size)

    def columns(self, **options: Unpack[RequestOptions]) -> Iterator[RecordColumns]:
        """The records of the whole batches, as columns.

        The answer has no record before `start_offset`, and no record of a transaction in
        `aborted`. A batch that is cut off at the end is left out. `fetch` checks no checksum; this
        does, unless `verify_crc` is false.

        Args:
            options: see `kseg.format.request.Request`.

        Yields:
            Pieces of records, by rising offset.

        Raises:
            ValueError: an unknown field.
            FormatError, LimitExceededError: damage, with path, position and reason, after the
                records before it.
        """
        return self._decode(replace(Request(**options), offset=(self.start_offset, None)))

    def _decode(self, request: Request) -> Iterator[RecordColumns]:
        """Decode the records of all batches; raise for damage after the whole ones."""
        workspace = Workspace()
        for table in self._tables():
            visible = table if self.hidden is None else self.hidden.drop(table)
            try:
                yield from decode(
                    self.data,
                    visible,
                    request,
                    base=self.position,
                    source=str(self.path),
                    workspace=workspace,
                )
                if table.stop in (StopReason.BAD_LENGTH, StopReason.BAD_MAGIC):
                    raise stop_error(table)
            except KsegError as error:
                assert self.path is not None
                raise at_path(error, self.path) from None

    def _tables(self) -> Iterator[BatchTable]:
        """The headers of the whole batches, in tables of limited length."""
        start, end = self.position, self.position + len(self.data)
        while start < end:
            table = scan(self.data, base=self.position, start=start, on_bad_crc="ignore")
            yield table
            if table.stop is not StopReason.LIMIT:
                return
            start = table.end_position


class _Wanted(NamedTuple):
    """The arguments of a fetch."""

    start_offset: int
    max_bytes: int
    isolation: str
    min_one_message: bool
    with_data: bool


def limit_of(seen: Version, isolation: str) -> OffsetMetadata:
    """The offset up to which a fetch may read, and its place, if known."""
    if isolation == "log_end":
        return seen.log_end
    return seen.high_watermark if isolation == "read_uncommitted" else seen.last_stable


def fetch(
    source: ReadableLog,
    start_offset: int,
    *,
    max_bytes: int = FETCH_BYTES,
    isolation: str = "read_uncommitted",
    min_one_message: bool = True,
    with_data: bool = True,
) -> Fetched:
    """Stored bytes from the batch that holds an offset on, out of one segment.

    Any thread may call it, beside the writer.

    Args:
        source: the log.
        start_offset: the first wanted offset. At the end of the readable part, or beyond it but not
            beyond the log's end, the answer is empty.
        max_bytes: no more bytes than that, but for the first batch.
        isolation: "log_end" to read everything; "read_uncommitted" to read below the high
            watermark; "read_committed" to read below the last stable offset, with `aborted`.
        min_one_message: return the first batch whole, however large it is.
        with_data: false to return only the place of the bytes, without reading them.

    Raises:
        OffsetOutOfRangeError: the offset is before the log's start, or beyond its end.
        ValueError: `max_bytes` is negative, or the isolation is unknown.
        CorruptRecordError: a batch is damaged on the way to the offset.
        OSError: the disk refuses.

    Source: Kafka `UnifiedLog.read`.
    """
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}, and must not be negative")
    check_word("isolation", isolation, ISOLATIONS)
    request = _new(_Wanted, (start_offset, max_bytes, isolation, min_one_message, with_data))
    return undisturbed(source, partial(_fetch, source, request), _still_holds)


def _still_holds(now: Version, fetched: Fetched) -> bool:
    """Whether no transaction index that the answer needs was removed meanwhile."""
    if fetched.aborted is None or fetched.segment < 0:
        return True
    first = now.sealed[0] if now.sealed else now.active
    return first.base_offset <= fetched.segment


def _fetch(source: ReadableLog, request: _Wanted, seen: Version) -> Fetched:
    """Fetch from one version of the log; empty at its end, and beyond all that a reader may see."""
    start = request.start_offset
    if not seen.log_start_offset <= start <= seen.log_end.offset:
        raise OffsetOutOfRangeError(
            f"the log holds offsets {seen.log_start_offset} to {seen.log_end.offset - 1}",
            path=source.path,
            offset=start,
        )
    aborted = () if request.isolation == "read_committed" else None
    limit = limit_of(seen, request.isolation)
    if start >= limit.offset:
        place = _place_of(seen, limit if start == limit.offset else OffsetMetadata(start))
        return Fetched(start, place.segment_base_offset, place.position, aborted=aborted)
    for info in _segments_from(seen, start):
        fetched = _fetch_from(source, info, seen, limit, request)
        if fetched is not None:
            return fetched
    place = seen.log_end
    return Fetched(start, place.segment_base_offset, place.position, aborted=aborted)


def _segments_from(seen: Version, offset: int) -> Iterator[SegmentInfo]:
    """The segment that can hold `offset`, and those after it, one by one."""
    if offset < seen.active.base_offset:
        at = bisect_right(seen.sealed, offset, key=_base_offset) - 1
        for slot in range(max(at, 0), len(seen.sealed)):
            yield seen.sealed[slot]
    yield seen.active_info


def _fetch_from(
    source: ReadableLog,
    info: SegmentInfo,
    seen: Version,
    limit: OffsetMetadata,
    request: _Wanted,
) -> Fetched | None:
    """Fetch from one segment; None if it ends before the offset.

    Source: Kafka `LogSegment.read`.
    """
    fetched = _stored_bytes(info, seen, limit, request)
    if fetched is None:
        return None
    position, batch_bytes, size, data = fetched
    cut = not request.min_one_message and 0 < request.max_bytes < batch_bytes
    aborted = hidden = None
    if request.isolation == "read_committed":
        aborted, hidden = _aborted_within(source, seen, info, position + size, request.start_offset)
    start, files = request.start_offset, info.files
    return _new(
        Fetched, (start, files.base_offset, position, size, data, cut, files.log, aborted, hidden)
    )


#: Position and size of the first batch, how many bytes there are from there on, and the bytes.
_Stored = tuple[int, int, int, memoryview]


def _stored_bytes(
    info: SegmentInfo, seen: Version, limit: OffsetMetadata, request: _Wanted
) -> _Stored | None:
    """The bytes of a segment from the offset on; None if the segment ends before the offset."""
    end = _known_end(info, seen, limit)
    ahead = WINDOW_BYTES
    if request.with_data and request.max_bytes <= _AHEAD_BYTES_MAX:
        ahead = max(ahead, request.max_bytes + _SLACK_BYTES)
    with io.opened(info.path) as fd:
        batch = find_batch(fd, info, request.start_offset, ahead=ahead)
        if batch is None:
            return None
        allowed = request.max_bytes
        if request.min_one_message:
            allowed = max(allowed, batch.size)
        if end is None:
            at_limit = find_batch(fd, info, limit.offset)
            end = info.size if at_limit is None else at_limit.position
        size = max(min(end - batch.position, allowed), 0)
        data = _bytes_of(fd, info, batch, size) if request.with_data else _NOTHING
    return batch.position, batch.size, size, data


def _known_end(info: SegmentInfo, seen: Version, limit: OffsetMetadata) -> int | None:
    """The position up to which a reader may read: the start of the batch at the limit.

    None if the segment has that batch, and its position is not known.
    """
    base_offset = info.files.base_offset
    if limit.position >= 0 and limit.segment_base_offset >= base_offset:
        return limit.position if limit.segment_base_offset == base_offset else info.size
    following = _base_after(seen, info)
    if following is not None and limit.offset >= following:
        return info.size
    return None


def _base_after(seen: Version, info: SegmentInfo) -> int | None:
    """The base offset of the next segment; None for the active one."""
    at = bisect_right(seen.sealed, info.base_offset, key=_base_offset)
    if at < len(seen.sealed):
        return seen.sealed[at].base_offset
    return seen.active.base_offset if info.base_offset < seen.active.base_offset else None


def _bytes_of(fd: int, info: SegmentInfo, batch: FoundBatch, size: int) -> memoryview:
    """The bytes of an answer; not read again if the window has them."""
    window = batch.window
    if not window.position <= batch.position <= batch.position + size <= window.end:
        window = read_window(fd, info, batch.position, size)
    start = batch.position - window.position
    if size * 2 < len(window.data):  # do not keep a large window alive for a few bytes
        return memoryview(window.data[start : start + size])
    return memoryview(window.data)[start : start + size]


def _place_of(seen: Version, place: OffsetMetadata) -> OffsetMetadata:
    """An offset with its place: the batch that holds it, or the first after it.

    Source: Kafka `UnifiedLog.convertToOffsetMetadataOrThrow`.
    """
    if place.position >= 0:
        return place
    if place.offset == seen.log_end.offset:
        return seen.log_end
    for info in _segments_from(seen, place.offset):
        with io.opened(info.path) as fd:
            batch = find_batch(fd, info, place.offset)
        if batch is not None:
            return OffsetMetadata(place.offset, info.base_offset, batch.position)
    return seen.log_end


# ---- aborted transactions ------------------------------------------------------------------------


def _aborted_within(
    source: ReadableLog, seen: Version, info: SegmentInfo, end: int, start: int
) -> tuple[tuple[AbortedTransaction, ...], AbortedRanges]:
    """The aborted transactions within the fetched offsets, from an offset up to position `end`.

    In a log under a writer of this process they come from the transaction indexes. The offset index
    gives the end of the fetched bytes, so the answer may hold a few too many. In other logs the
    indexes have not been compared with the log: there they come from the batch headers, from the
    start of the fetch on.

    Returns:
        The transactions in the form for consumers, and as ranges of offsets.

    Source: Kafka `LocalLog.addAbortedTransactions`.
    """
    upper = _upper_bound(seen, info, end)
    view: LogView | None = getattr(source, "view", None)
    if view is not None:
        ranges = aborted_ranges(view, start, min(upper, seen.last_stable.offset))
        return _pairs_of(ranges), ranges
    aborted: list[AbortedTxn] = []
    for segment in _segments_from(seen, info.base_offset):
        if segment.files.txn_index is None:
            continue
        transactions, complete = TxnIndex.open(segment.files.txn_index).collect_aborted(
            start, upper
        )
        aborted += transactions
        if complete:
            break
    pairs = tuple(AbortedTransaction(txn.producer_id, txn.first_offset) for txn in aborted)
    ranges = AbortedRanges.of((t.producer_id, t.first_offset, t.last_offset) for t in aborted)
    return pairs, ranges


def _pairs_of(ranges: AbortedRanges) -> tuple[AbortedTransaction, ...]:
    """Ranges in the form for consumers, in the order of their markers."""
    rows = [
        (last, AbortedTransaction(producer_id, first))
        for producer_id, pairs in ranges.ranges.items()
        for first, last in pairs.tolist()
    ]
    return tuple(transaction for _, transaction in sorted(rows))


def _upper_bound(seen: Version, info: SegmentInfo, end: int) -> int:
    """An offset that is at or past the last one before position `end`."""
    if info.files.index is not None:
        entry = probe_upper_bound(info.files.index, info.base_offset, end)
        if entry is not None:
            return entry.offset
    following = _base_after(seen, info)
    return seen.log_end.offset if following is None else following


__all__ = [
    "FETCH_BYTES",
    "ISOLATIONS",
    "AbortedTransaction",
    "Fetched",
    "FileRange",
    "fetch",
    "limit_of",
]
