"""Segment: one log file and its indexes under one base offset, open for reading.

Finds a place in the log and reads on from it. An index only saves walking: the segment checks each
entry against the batch it points at, and walks the log where an entry is wrong or missing. It asks
one question about other segments: whether a torn tail is the end of the log, or damage in the
middle of it.

Modules of indexes and of the careful decode are imported at their first use: to read a sound
segment from its start needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np

from kseg.constants import INT64_MAX, INT64_MIN, TAILS, WHOLE_ENDS, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError, at_path
from kseg.files.io import Closing
from kseg.files.log_file import LogFile, OnUnreadable, Tile
from kseg.files.mapping import Mapping, private_memory
from kseg.files.names import list_partition
from kseg.format.header import BatchHeader, BatchTable, join_tables, stop_error
from kseg.format.reader import Workspace
from kseg.format.request import FIELDS_DEFAULT, Request, RequestOptions
from kseg.format.times import Time, time_ms
from kseg.format.values import RECORD_FIELDS, Record, RecordColumns
from kseg.log.clock import with_now
from kseg.log.segment.pieces import Keep, OnOffset, Reading

if TYPE_CHECKING:
    from kseg.files.index import IndexEntry, OffsetIndex, TimeIndex
    from kseg.files.txn_index import TxnIndex
    from kseg.format.search import SoundRun


@frozen_dataclass
class BatchLocation:
    """The place of a batch, and the index entry that led there; None if no entry did."""

    segment: Path
    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    index_entry: IndexEntry | None


@frozen_dataclass
class RecordLocation:
    """The record found for a time, and its batch."""

    offset: int
    timestamp: int
    leader_epoch: int
    batch: BatchLocation


# ---- the segment ---------------------------------------------------------------------------------

_BENIGN_AT_END = (*WHOLE_ENDS, *TAILS)
#: Index entries tried before a lookup walks from the start of the segment.
_ENTRIES_TRIED_MAX = 4
#: A walk over the headers of fewer bytes of log is done before an index would be open.
_INDEXED_BYTES_MIN = 4 << 20


class Segment(Closing):
    """One segment of a partition, read-only.

    `open` acquires, `close` or leaving a `with` releases. Any number of reads may run at once.

    Attributes:
        path: the file.
        base_offset: from the file's name.
        kafka07: whether the file is of Kafka 0.7, whose offsets are positions.

    Example:
        >>> with Segment.open(path) as segment:  # doctest: +SKIP
        ...     for columns in segment.read(offset=(1_200, None), columns=("offset", "value")):
        ...         print(len(columns))
    """

    __slots__ = (
        "_indexes",
        "_is_last",
        "_log",
        "_mapping",
        "_size",
        "base_offset",
        "kafka07",
        "path",
    )

    def __init__(
        self, log: LogFile, mapping: Mapping, *, size: int | None, is_last: bool | None
    ) -> None:
        """Take over an open log file; use `open` instead."""
        self._log: Final = log
        self.path: Final = log.path
        self.base_offset: Final = log.base_offset
        self.kafka07: Final = log.kafka07
        self._mapping: Final[Mapping] = mapping
        self._size = size
        self._is_last = is_last
        self._indexes: dict[str, Any] = {}

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        mapping: Mapping = "auto",
        size: int | None = None,
        is_last: bool | None = None,
    ) -> Segment:
        """Open a `.log` file, a `.kafka` file of Kafka 0.7, or a KRaft snapshot.

        Args:
            path: the file.
            mapping: "auto" maps it unless another process holds the data directory; or "always", or
                "never".
            size: read no further than this, as a reader beside a writer wants.
            is_last: whether no later segment follows, so that a torn tail is not damage; looked up
                if None.

        Raises:
            NotALogError: the name is not that of a log file.
            OSError: it is missing or cannot be read.
        """
        return cls(LogFile.open(path, mapping), mapping, size=size, is_last=is_last)

    @property
    def mapped(self) -> bool:
        """Whether the log is mapped rather than read through windows."""
        return self._log.mapped

    @property
    def size(self) -> int:
        """Bytes of log to be read."""
        return self._log.size if self._size is None else min(self._size, self._log.size)

    @property
    def is_last(self) -> bool:
        """Whether the same directory has no later segment."""
        if self._is_last is None:
            later = list_partition(self.path.parent).segments
            self._is_last = all(files.base_offset <= self.base_offset for files in later)
        return self._is_last

    # ---- indexes ---------------------------------------------------------------------------------

    def _file_path(self, extension: str) -> Path:
        """A file of the segment, by the end of its name."""
        return self.path.with_name(self.path.name.partition(".")[0] + extension)

    @property
    def offset_index(self) -> OffsetIndex:
        """The `.index` beside the log; empty if it does not exist."""
        if "offset" not in self._indexes:
            from kseg.files.index import OffsetIndex

            path = self._file_path(".index")
            self._indexes["offset"] = OffsetIndex.open(
                path, self.base_offset, mapping=self._mapping
            )
        index: OffsetIndex = self._indexes["offset"]
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The `.timeindex` beside the log; empty if it does not exist."""
        if "time" not in self._indexes:
            from kseg.files.index import TimeIndex

            path = self._file_path(".timeindex")
            self._indexes["time"] = TimeIndex.open(path, self.base_offset, mapping=self._mapping)
        index: TimeIndex = self._indexes["time"]
        return index

    @property
    def txn_index(self) -> TxnIndex:
        """The `.txnindex` beside the log; empty if it does not exist."""
        if "txn" not in self._indexes:
            from kseg.files.txn_index import TxnIndex

            self._indexes["txn"] = TxnIndex.open(self._file_path(".txnindex"))
        index: TxnIndex = self._indexes["txn"]
        return index

    # ---- walking ---------------------------------------------------------------------------------

    def walk(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        on_bad_crc: str = "note",
        policy: str = "strict",
        on_unreadable: OnUnreadable | None = None,
        window_bytes: int | None = None,
    ) -> Iterator[Tile]:
        """Walk the batches that start in `[start, limit)`, a tile at a time.

        Args:
            start: position of a batch.
            limit: batches that start here or later are not read; the end of the segment if None.
            on_bad_crc: "stop", "note" or "ignore", see `kseg.format.header.scan`.
            policy: "strict" or "file", see there.
            on_unreadable: called with each range that the disk cannot read; the walk goes on at the
                next sound batch after it. None to raise.
            window_bytes: the size of a window if the file is not mapped; None for the default.

        Yields:
            At least one tile: bytes, valid until the next, and the table of their batches. The last
            one's `table.stop` says why the walk ended.

        Raises:
            CorruptRecordError: the file shrank while it was read through windows.
            UnreadableError: the disk cannot read some of its bytes.
        """
        try:
            yield from self._log.walk(
                start=start,
                limit=limit,
                end=self.size,
                on_bad_crc=on_bad_crc,
                policy=policy,
                on_unreadable=on_unreadable,
                window_bytes=window_bytes,
            )
        except KsegError as error:
            raise at_path(error, self.path) from None

    def headers(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        policy: str = "strict",
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[BatchTable]:
        """Walk the batches that start in `[start, limit)`; read only their headers.

        Checksums are not computed and no bytes are yielded, so tables are larger than tiles.

        Args:
            start, limit, policy, on_unreadable: as for `walk`.

        Yields:
            At least one table; the last one's `stop` says why the walk ended.

        Raises:
            CorruptRecordError, UnreadableError: as for `walk`.
        """
        try:
            yield from self._log.headers(
                start=start,
                limit=limit,
                end=self.size,
                policy=policy,
                on_unreadable=on_unreadable,
                entries=self._entries(start),
            )
        except KsegError as error:
            raise at_path(error, self.path) from None

    def _entries(self, start: int) -> memoryview:
        """The offset index for a walk over headers, which it only makes faster.

        So an unreadable index counts as missing; and for a short walk, or one through windows, it
        is not opened.
        """
        if not self.mapped or self.kafka07 or self.size - start < _INDEXED_BYTES_MIN:
            return memoryview(b"")
        try:
            return self.offset_index.packed
        except (KsegError, OSError):
            return memoryview(b"")

    def sound_runs(
        self, start: int, *, first_offset: int = 0, last_offset: int | None = None
    ) -> Iterator[SoundRun]:
        """Sound batches after damage; see `kseg.format.search.find_sound_batches`.

        Args:
            start: position where the damage begins.
            first_offset: the least offset of a batch that counts.
            last_offset: the largest offset that counts; None for the largest that the segment can
                hold.

        Yields:
            Runs in the order of the file.

        Raises:
            CorruptRecordError: the file shrank while it was read through windows.
        """
        return self._log.sound_runs(
            start, stop=self.size, first_offset=first_offset, last_offset=last_offset
        )

    def head_at(self, position: int) -> bytes:
        """The first bytes at a position."""
        return self._log.head_at(position)

    def batches(self, *, verify: bool = True) -> BatchTable:
        """The headers of all batches as one table; memory grows with their number.

        Args:
            verify: check every checksum and stop before a batch whose checksum is wrong;
                otherwise only read headers.

        Returns:
            A table whose `stop` gives the reason for the end at `end_position`.
        """
        if verify:
            return join_tables((tile.table for tile in self.walk(on_bad_crc="stop")), self.size)
        return join_tables(self.headers(), self.size)

    def stop_fault(self, table: BatchTable) -> KsegError | None:
        """The error for the end of a walk; a torn tail of the last segment is no error.

        Args:
            table: the last table of a walk.

        Returns:
            The error with path, position and reason, not raised; None for an end in order.
        """
        if table.stop in WHOLE_ENDS or (table.stop in _BENIGN_AT_END and self.is_last):
            return None
        error = stop_error(table)
        if table.stop is StopReason.TORN_TAIL:  # only the end of a log can be torn
            error.stop = StopReason.BAD_LENGTH
        return at_path(error, self.path)

    # ---- finding ---------------------------------------------------------------------------------

    def start_for_offset(self, offset: int) -> IndexEntry:
        """A position to walk from for `offset`: every batch before it holds smaller offsets only.

        The index counts only if its entry points to a whole batch with a right checksum, at or
        before the offset. Otherwise the answer is (base offset, 0). A batch that is data in the
        value of a record passes this check.
        """
        from kseg.files.index import IndexEntry

        start = IndexEntry(self.base_offset, 0)
        if self.kafka07:
            return start
        target = min(offset, INT64_MAX)
        try:
            for _ in range(_ENTRIES_TRIED_MAX):
                entry = self.offset_index.lookup(target)
                if entry.position <= 0 or entry.position >= self.size:
                    return start
                header = self._batch_at(entry.position)
                if header is None:
                    return start
                if header.last_offset <= offset or 0 <= header.base_offset <= offset:
                    return entry
                target = entry.offset - 1
        except CorruptIndexError:
            return start
        return start

    def start_for_time(self, timestamp: int) -> IndexEntry:
        """A position to walk from for records at or after `timestamp` (ms): those before are older.

        The time index counts only if the time in its entry is the largest time of the batch it
        names. Only a walk could show that nothing before that batch is later, so the entry is
        trusted on that. In a log whose times go back and forth, an entry forged to fit its batch
        can hide records. An index of another log, or of garbage, does not fit.
        """
        from kseg.files.index import IndexEntry

        start = IndexEntry(self.base_offset, 0)
        if self.kafka07 or timestamp <= 0:
            return start
        try:
            # An entry for the very time may name the last of several batches that have it.
            named = self.time_index.lookup(min(timestamp, INT64_MAX) - 1)
        except CorruptIndexError:
            return start
        if named.timestamp < 0:
            return start
        entry = self.start_for_offset(named.offset)
        try:
            header = self._first_batch_ending_at(named.offset, entry)
        except CorruptRecordError:
            return start
        if header is None or header.max_timestamp != named.timestamp:
            return start
        return IndexEntry(named.offset, header.position)

    def _batch_at(self, position: int) -> BatchHeader | None:
        """The header of a whole batch with a right checksum; None if none begins there."""
        for tile in self.walk(start=position, limit=position + 1):
            table = tile.table
            return table[0] if len(table) and table.crc_ok[0] == 1 else None
        return None

    def _first_batch_ending_at(self, offset: int, start: IndexEntry) -> BatchHeader | None:
        """The first batch from `start` on whose last offset is at or past `offset`.

        Raises:
            CorruptRecordError: damage before any such batch might hide it.
        """
        for table in self.headers(start=start.position):
            rows = np.flatnonzero(table.last_offset >= offset)
            if len(rows):
                return table[int(rows[0])]
        fault = self.stop_fault(table)
        if fault is not None:
            raise fault
        return None

    def lookup(self, offset: int) -> BatchLocation | None:
        """The batch that holds `offset`, or the first after it; None if the segment ends before.

        Raises:
            CorruptRecordError: a batch between the position from the index and the offset is bad.

        Source: Kafka LogSegment.translateOffset.
        """
        start = self.start_for_offset(offset)
        header = self._first_batch_ending_at(offset, start)
        return None if header is None else self._location(header, start)

    def _location(self, header: BatchHeader, start: IndexEntry) -> BatchLocation:
        """The place of a batch; `start` is the index entry that led there."""
        return BatchLocation(
            self.path,
            header.position,
            header.size,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            start if start.position else None,
        )

    def lookup_time(self, timestamp: Time, *, start_offset: int = 0) -> RecordLocation | None:
        """The first record at or after a time and `start_offset`; None if there is none.

        Messages of magic 0 carry no time and are never found. As for a broker, a batch counts by
        the largest time in its header, also where that is smaller than those of its records.

        Args:
            timestamp: ms since 1970, or another time as `kseg.times.time_ms` takes it.
            start_offset: the first offset that counts.

        Raises:
            ValueError: the time is invalid.
            CorruptRecordError: a batch between the position from the index and the record is bad.

        Source: Kafka LogSegment.findOffsetByTimestamp.
        """
        timestamp = time_ms(timestamp, round_up=True)
        start = self.start_for_time(timestamp)
        later = self.start_for_offset(start_offset)
        start = max(start, later, key=lambda entry: entry.position)
        request = Request(
            columns=("offset", "timestamp", "position", "leader_epoch"),
            offset=(start_offset, None),
            time=(max(timestamp, 0), None),
            control=True,
        )

        def by_header(table: BatchTable) -> BatchTable:  # leaves out batches of earlier times
            return table.take(table.max_timestamp >= timestamp)

        for columns in self.read(request, start_position=start.position, keep=by_header):
            position = int(columns["position"][0])
            header = self._batch_at(position)
            if header is not None:
                return RecordLocation(
                    int(columns["offset"][0]),
                    int(columns["timestamp_ms"][0]),
                    int(columns["leader_epoch"][0]),
                    self._location(header, start),
                )
        return None

    # ---- reading ---------------------------------------------------------------------------------

    def read(
        self,
        request: Request | None = None,
        *,
        start_position: int | None = None,
        end_position: int | None = None,
        keep: Keep | None = None,
        on_offset: OnOffset | None = None,
        workspace: Workspace | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records of the segment as columns, a bounded piece at a time.

        Args:
            request: the wanted records; all of them if None.
            start_position, end_position: only batches that start within these bytes; the first is a
                batch's position.
            keep: leaves out batches by their headers, as a reader of committed records does.
            on_offset: called, before the records that are given, with the largest last offset
                in the headers so far, those left out too.
            workspace: memory of an earlier reading to use again; its own if None.
            options: attributes of `kseg.format.request.Request`, such as `offset=(1_200, None)` or
                `columns=("key",)`, in place of those of `request`.

        Raises:
            TypeError: an option is unknown.
            FormatError, LimitExceededError: damage, with path, position and reason, after the
                records before it. A torn tail is not damage in the last segment.
        """
        if options or request is None:
            request = Request.of(request, with_now(options))
        start = self.start_of(request) if start_position is None else start_position
        limit = self.size if end_position is None else end_position
        return Reading(self, request, limit, keep, on_offset, workspace).pieces(self._log, start)

    def expect(self, end_position: int) -> None:
        """Set the end of the only reading: a store requests nothing after it in advance.

        Args:
            end_position: the position after the last batch.
        """
        self._log.expect(end_position)

    def start_of(self, request: Request) -> int:
        """A position, from the indexes, after which all records of a request begin.

        Args:
            request: only its bounds of offsets and times count.
        """
        start = 0
        if request.offset_start > self.base_offset:
            start = self.start_for_offset(request.offset_start).position
        if request.time_start > INT64_MIN:
            start = max(start, self.start_for_time(request.time_start).position)
        return start

    def records(self, **options: Unpack[RequestOptions]) -> Iterator[Record]:
        """Each record as an object.

        Args:
            options: as for `read`, except `columns`.

        Yields:
            Records that own their bytes, in the order of `read`.

        Raises:
            TypeError: an option is unknown.
            FormatError, LimitExceededError: damage, as `read` says.
        """
        pieces = self.read(Request(columns=RECORD_FIELDS), **options)
        return chain.from_iterable(columns.records() for columns in pieces)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as an Arrow stream; each call starts a new reader."""
        from kseg import arrow

        pieces = self.read(workspace=Workspace(use="streamed", fresh=private_memory))
        return arrow.stream(pieces, FIELDS_DEFAULT, requested_schema)

    # ---- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the files; a second call does nothing."""
        for name in ("offset", "time"):
            if name in self._indexes:
                self._indexes[name].close()
        self._log.close()

    def __repr__(self) -> str:
        """The path and size."""
        return f"Segment({str(self.path)!r}, size={self.size})"
