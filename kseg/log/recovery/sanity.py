"""Sanity checks: whether the ends of a segment's indexes fit its log, and where the log ends.

A few bytes of each file show most faults of indexes: that they are gone, cut, all
zeros, or belong to another log. Faults that only a walk over the whole log finds are for
`kseg verify`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from kseg.constants import INT64_MAX, ControlType, StopReason
from kseg.files.names import FileKind
from kseg.files.txn_index import AbortedTxn
from kseg.format.header import CONTROL, ENTRY_BYTES_MIN, BatchTable, scan
from kseg.log import closed_indexes
from kseg.log.closed_indexes import EndFault
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.index_check import is_possible
from kseg.log.recovery.load_context import INDEX, LoadContext, file_of
from kseg.log.recovery.sweep import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY
from kseg.log.segment.reader import Segment

_START: Final = struct.Struct(">qiib")
#: A batch of magic 2 up to its largest timestamp.
_HEAD: Final = struct.Struct(">qiibIhiqq")
#: Entries of a torn-off part, one in 4 KiB: 16 MiB.
_ENTRIES_TRIED_MAX: Final = 4096
#: The end of a log that is read at once, rather than walked.
_TAIL_BYTES: Final = 1 << 17
_GOES_ON: Final = (StopReason.END, StopReason.LIMIT)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends.

    Attributes:
        base_offset: of the last segment.
        next_offset: the offset behind the last whole batch.
        position: where that ends.
        cut_reason: why the bytes behind it are not a batch; None if nothing follows.
        start: where the walk began: 0, or where an entry of the offset index leads.
    """

    base_offset: int
    next_offset: int
    position: int
    cut_reason: StopReason | None
    start: int = 0


class _Ends:
    """The ends of one segment's files, each read once."""

    def __init__(self, context: LoadContext, base: int) -> None:
        self.context: Final = context
        self.base: Final = base
        self.log_bytes: Final = context.size(base)
        #: Bytes of the indexes that are there.
        self.sizes: Final = {
            kind: context.overlay.size(self.name(kind))
            for kind in (FileKind.INDEX, FileKind.TIMEINDEX)
            if self.name(kind) in context.overlay.files
        }
        self._known: Final[dict[tuple[FileKind, int], bytes]] = {}

    def name(self, kind: FileKind) -> str:
        return file_of(self.base, kind.value)

    def read(self, kind: FileKind, position: int, size: int) -> bytes:
        known = self._known.get((kind, position), b"")
        if len(known) < size:
            overlay = self.context.overlay
            known = overlay.read(self.name(kind), position=position, size=size)
            self._known[kind, position] = known
        return known[:size]

    def head(self, position: int) -> tuple[int, int] | None:
        """Base offset and largest timestamp of the batch at a position, by its head alone.

        Near the end of the log all the rest is read at once. See `_head_in`.
        """
        left = self.log_bytes - position
        data = self.read(FileKind.LOG, position, left if left <= _TAIL_BYTES else _HEAD.size)
        return _head_in(data, left)

    def headers(self, start: int) -> Iterator[BatchTable]:
        """Headers of the log from a batch on."""
        left = self.log_bytes - start
        if left <= _TAIL_BYTES:
            data = self.read(FileKind.LOG, start, left)
            yield scan(data, base=start, on_bad_crc="ignore")
            return
        with self.context.open(self.base) as segment:
            yield from segment.headers(start=start)


def index_fault_of(context: LoadContext, base: int) -> Finding | None:
    """The first fault of a segment's indexes; None if the check finds nothing."""
    ends = _Ends(context, base)
    checks = (_of_index, _of_time_index, _of_txn_index) if ends.log_bytes else ()
    fault = next(filter(None, (check(ends) for check in checks)), None)
    if fault is None:
        fault = closed_indexes.fault_of(ends.log_bytes, ends.sizes, ends.read, ends.headers)
    if fault is None:
        return None
    return Finding(fault.code, context.path(base, fault.kind.value), fault.message, fault.position)


def _of_index(ends: _Ends) -> EndFault | None:
    fault, size = partial(EndFault, FileKind.INDEX), ends.sizes.get(FileKind.INDEX)
    if size is None:
        return fault("index-missing", "the offset index is missing")
    if size % OFFSET_ENTRY.size:
        return fault("index-length", f"{size} bytes are not a whole number of entries")
    if not size:
        return _of_empty_index(ends.context, ends.base)
    at = size - OFFSET_ENTRY.size
    relative, position = OFFSET_ENTRY.unpack(ends.read(FileKind.INDEX, at, OFFSET_ENTRY.size))
    if at and not relative:
        return None  # unused: the next check says so
    header = None
    if (at == relative == position) or 0 < position < ends.log_bytes:
        header = ends.head(position)
    if header is None:
        message = f"its last entry points at {position}, where there is no batch"
        return fault("index-points-nowhere", message, at)
    offset = ends.base + relative
    if relative < 0 or offset < header[0]:
        message = f"its last entry leads past offset {offset}, which it is for"
        return fault("index-offset", message, at)
    return None


def _of_empty_index(context: LoadContext, base: int) -> EndFault | None:
    """The fault of an index without entries; it fits a log of one interval, or of one batch."""
    interval = context.inputs.config.index_interval_bytes
    if context.size(base) <= interval:
        return None
    with context.open(base) as segment:
        *_before, table = segment.headers(limit=interval + 1)
        if table.stop is not StopReason.LIMIT or table.end_position >= segment.size:
            return None
    return EndFault(FileKind.INDEX, "index-length", "no entries for a log of several intervals")


def _of_time_index(ends: _Ends) -> EndFault | None:
    fault, size = partial(EndFault, FileKind.TIMEINDEX), ends.sizes.get(FileKind.TIMEINDEX)
    if size is None:
        return fault("time-index-missing", "the time index is missing")
    if size % TIME_ENTRY.size:
        return fault("time-index-length", f"{size} bytes are not a whole number of entries")
    if not size:
        first = ends.head(0)
        if first is None or first[1] <= 0:
            return None
        return fault("time-index-length", "no entries for a log whose batches have times")
    at = size - TIME_ENTRY.size
    timestamp, relative = TIME_ENTRY.unpack(ends.read(FileKind.TIMEINDEX, at, TIME_ENTRY.size))
    if at and not relative:
        return None  # unused: the next check says so
    offset = ends.base + relative
    if timestamp < 0 or relative < 0 or offset >= _end(ends.context, ends.base):
        message = f"its last entry is for {timestamp} ms at offset {offset}"
        return fault("time-index-order", message, at)
    return None


def _of_txn_index(ends: _Ends) -> EndFault | None:
    fault, name = partial(EndFault, FileKind.TXNINDEX), ends.name(FileKind.TXNINDEX)
    if name not in ends.context.overlay.files:
        return None
    data = ends.context.overlay.read(name)
    if len(data) % TXN_ENTRY.size:
        return fault("txn-index-torn", "bytes after its last whole entry")
    before, end = ends.base - 1, _end(ends.context, ends.base)
    for number, (version, *fields) in enumerate(TXN_ENTRY.iter_unpack(data)):
        entry, at = AbortedTxn(*fields), number * TXN_ENTRY.size
        if version:
            return fault("txn-index-version", f"version {version} is not known", at)
        if not before < entry.last_offset < end or not is_possible(entry):
            return fault("txn-index-order", "entries out of order, or not possible", at)
        before = entry.last_offset
    return None


def _end(context: LoadContext, base: int) -> int:
    """No offset of a segment is so large."""
    at = bisect_right(context.bases, base)
    return context.bases[at] if at < len(context.bases) else base + 2**31


def has_abort_marker(context: LoadContext, base: int) -> bool:
    """Whether a transaction was aborted in a segment, by the headers of all its batches."""
    with context.open(base) as segment:
        for table in segment.headers():
            if table.attributes_seen & CONTROL and (table.control_type == ControlType.ABORT).any():
                return True
    return False


def _head_in(data: bytes, left: int) -> tuple[int, int] | None:
    """Base offset and largest timestamp of a batch; None without a whole batch.

    Of magic 0 and 1 these are the last offset, and 0.

    Args:
        data: from its first byte on.
        left: bytes of log from there on.
    """
    if len(data) < ENTRY_BYTES_MIN:
        return None
    first, length, _epoch, magic = _START.unpack_from(data)
    if not ENTRY_BYTES_MIN <= 12 + length <= left:
        return None
    if 0 <= magic < 2:
        return first, 0
    return (first, _HEAD.unpack_from(data)[-1]) if magic == 2 and len(data) >= _HEAD.size else None


def end_of(context: LoadContext, base: int) -> LogEnd:
    """Where the last segment of a log that was closed cleanly ends.

    From the last index entry that leads to a sound batch; batches whose checksums are wrong are
    walked over.
    """
    with context.open(base) as segment:
        start = _last_start(context, base, segment)
        end = base
        for table in segment.headers(start=start):
            if len(table):
                end = int(table.last_offset[-1]) + 1
        stop = None if table.stop in _GOES_ON else table.stop
        return LogEnd(base, end, table.end_position, stop, start)


def _last_start(context: LoadContext, base: int, segment: Segment) -> int:
    """Where the last entry leads that leads to a sound batch; 0 for none.

    The last entries may be for batches that were never written, or only in part.
    """
    start = segment.start_for_offset(INT64_MAX).position
    name = file_of(base, INDEX)
    if start or name not in context.overlay.files:
        return start
    data = context.overlay.read(name)
    size = len(data) // OFFSET_ENTRY.size * OFFSET_ENTRY.size
    entries = list(OFFSET_ENTRY.iter_unpack(data[:size]))
    used = [relative for relative, position in entries if relative >= 0 < position]
    for relative in used[: -_ENTRIES_TRIED_MAX - 1 : -1]:
        start = segment.start_for_offset(base + relative).position
        if start:
            break
    return start
