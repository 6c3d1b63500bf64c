"""Sanity checks: whether the ends of a segment's indexes fit its log, and where the log ends.

A few bytes of each file tell most of what goes wrong with indexes: that they are gone, cut, all
zeros, or those of another log. What only a walk over the whole log could tell is for `kseg verify`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kseg.constants import ControlType, StopReason
from kseg.files.names import FileKind
from kseg.files.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kseg.files.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kseg.files.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from kseg.format.header import CONTROL, ENTRY_BYTES_MIN, scan
from kseg.log import closed_indexes
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.index_check import is_possible
from kseg.log.recovery.load_context import INDEX, LOG, TIMEINDEX, TXNINDEX, LoadContext, file_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kseg.format.header import BatchTable
    from kseg.log.segment.reader import Segment

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")
_START: Final = struct.Struct(">qiib")
#: A batch of magic 2 up to its largest timestamp.
_HEAD: Final = struct.Struct(">qiibIhiqq")
_INT64_MAX: Final = 2**63 - 1
#: Entries of what is torn off, one in 4 KiB: 16 MiB.
_ENTRIES_TRIED_MAX: Final = 4096
#: The end of a log that is read at once, rather than walked.
_TAIL_BYTES: Final = 1 << 17
_GOES_ON: Final = (StopReason.END, StopReason.LIMIT)


class _Head(NamedTuple):
    """What the first bytes of a batch say; of magic 0 and 1 the offsets are both the last one."""

    base_offset: int
    last_offset: int
    max_timestamp: int


class _Fault(NamedTuple):
    """The part of a `Finding` that the check of one file gives."""

    code: str
    message: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends.

    Attributes:
        base_offset: of the last segment.
        next_offset: the offset behind the last whole batch.
        position: where that ends.
        cut_reason: why what follows is no batch; None if nothing follows.
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
        files = context.overlay.files
        names = {kind: file_of(base, kind.value) for kind in (FileKind.INDEX, FileKind.TIMEINDEX)}
        self._names: Final = {**names, FileKind.LOG: file_of(base, LOG)}
        #: Bytes of the indexes that are there.
        self.sizes: Final = {
            kind: files[name].size for kind, name in names.items() if name in files
        }
        self._known: Final[dict[tuple[FileKind, int], bytes]] = {}

    def path(self, kind: FileKind) -> str:
        return self.context.overlay.path(self._names[kind])

    def read(self, kind: FileKind, position: int, size: int) -> bytes:
        known = self._known.get((kind, position), b"")
        if len(known) < size:
            overlay = self.context.overlay
            known = overlay.read(self._names[kind], position=position, size=size)
            self._known[kind, position] = known
        return known[:size]

    def head(self, position: int) -> _Head | None:
        """The batch at a position by its head alone, read with the log's end behind it."""
        left = self.log_bytes - position
        data = self.read(FileKind.LOG, position, left if left <= _TAIL_BYTES else _HEAD.size)
        return _head_in(data, left)

    def headers(self, start: int) -> Iterator[BatchTable]:
        """Headers of the log from a batch on."""
        left = self.log_bytes - start
        if left <= _TAIL_BYTES and not self.context.overlay.files[self._names[FileKind.LOG]].part:
            data = self.read(FileKind.LOG, start, left)
            yield scan(data, base=start, on_bad_crc="ignore")
            return
        with self.context.open(self.base) as segment:
            yield from segment.headers(start=start)


def index_fault_of(context: LoadContext, base: int) -> Finding | None:
    """What is wrong with a segment's indexes; None if the check finds nothing."""
    ends = _Ends(context, base)
    looks = ((INDEX, _of_index), (TIMEINDEX, _of_time_index), (TXNINDEX, _of_txn_index))
    for kind, look in looks if ends.log_bytes else ():
        fault = look(context, base, ends)
        if fault is not None:
            return Finding(fault.code, context.path(base, kind), fault.message, fault.position)
    end = closed_indexes.fault_of(ends.log_bytes, ends.sizes, ends.read, ends.headers)
    if end is None:
        return None
    return Finding(end.code, ends.path(end.kind), end.message, end.position)


def _of_index(context: LoadContext, base: int, ends: _Ends) -> _Fault | None:
    size = ends.sizes.get(FileKind.INDEX)
    if size is None:
        return _Fault("index-missing", "the offset index is missing")
    if size % OFFSET_ENTRY_BYTES:
        return _Fault("index-length", f"{size} bytes are no whole number of entries")
    if not size:
        return _of_empty_index(context, base)
    at = size - OFFSET_ENTRY_BYTES
    relative, position = _OFFSET_ENTRY.unpack(ends.read(FileKind.INDEX, at, OFFSET_ENTRY_BYTES))
    if at and not relative:
        return None  # unused: the next check says so
    header = None
    if (at == relative == position) or 0 < position < ends.log_bytes:
        header = ends.head(position)
    if header is None:
        message = f"its last entry points at {position}, where no batch lies"
        return _Fault("index-points-nowhere", message, at)
    if relative < 0 or base + relative < header.base_offset:
        message = f"its last entry leads past offset {base + relative}, which it is for"
        return _Fault("index-offset", message, at)
    return None


def _of_empty_index(context: LoadContext, base: int) -> _Fault | None:
    """An index without entries fits a log of one interval, or of one batch."""
    interval = context.inputs.config.index_interval_bytes
    if context.size(base) <= interval:
        return None
    with context.open(base) as segment:
        *_before, table = segment.headers(limit=interval + 1)
        if table.stop is not StopReason.LIMIT or table.end_position >= segment.size:
            return None
    return _Fault("index-length", "no entries for a log of several intervals")


def _of_time_index(context: LoadContext, base: int, ends: _Ends) -> _Fault | None:
    size = ends.sizes.get(FileKind.TIMEINDEX)
    if size is None:
        return _Fault("time-index-missing", "the time index is missing")
    if size % TIME_ENTRY_BYTES:
        message = f"{size} bytes are no whole number of entries"
        return _Fault("time-index-length", message)
    if not size:
        first = ends.head(0)
        if first is None or first.max_timestamp <= 0:
            return None
        return _Fault("time-index-length", "no entries for a log whose batches have times")
    at = size - TIME_ENTRY_BYTES
    entry = ends.read(FileKind.TIMEINDEX, at, TIME_ENTRY_BYTES)
    if len(entry) < TIME_ENTRY_BYTES:
        return None  # made anew before a split had all looked at again, and not held
    timestamp, relative = _TIME_ENTRY.unpack(entry)
    if at and not relative:
        return None  # unused: the next check says so
    if timestamp < 0 or relative < 0 or base + relative >= _end(context, base):
        message = f"its last entry is for {timestamp} ms at offset {base + relative}"
        return _Fault("time-index-order", message, at)
    return None


def _of_txn_index(context: LoadContext, base: int, _ends: _Ends) -> _Fault | None:
    name = file_of(base, TXNINDEX)
    if name not in context.overlay.files:
        return None
    data = context.overlay.read(name)
    if len(data) % TXN_ENTRY_BYTES:
        return _Fault("txn-index-torn", "bytes behind its last whole entry")
    before, end = base - 1, _end(context, base)
    for number, entry in enumerate(_TXN_ENTRY.iter_unpack(data)):
        version, _producer_id, first, last, stable = entry
        at = number * TXN_ENTRY_BYTES
        if version:
            return _Fault("txn-index-version", f"version {version} is not known", at)
        if not before < last < end or not is_possible(first, last, stable):
            return _Fault("txn-index-order", "entries out of order, or not possible", at)
        before = last
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


def _head_in(data: bytes, left: int) -> _Head | None:
    """The batch that begins with these bytes; None if there is none, or it is not whole.

    Args:
        data: from its first byte on.
        left: bytes of log from there on.
    """
    if len(data) < ENTRY_BYTES_MIN:
        return None
    first, length, _epoch, magic = _START.unpack_from(data)
    size = 12 + length
    if size < ENTRY_BYTES_MIN or size > left:
        return None
    if magic < 2:
        return _Head(first, first, 0) if magic >= 0 else None
    if magic > 2 or len(data) < _HEAD.size:
        return None
    delta, _base_timestamp, max_timestamp = _HEAD.unpack_from(data)[-3:]
    return _Head(first, first + delta, max_timestamp)


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
    start = segment.start_for_offset(_INT64_MAX).position
    name = file_of(base, INDEX)
    if start or name not in context.overlay.files:
        return start
    data = context.overlay.read(name)
    size = len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
    entries = list(_OFFSET_ENTRY.iter_unpack(data[:size]))
    used = [relative for relative, position in entries if relative >= 0 < position]
    for relative in used[: -_ENTRIES_TRIED_MAX - 1 : -1]:
        start = segment.start_for_offset(base + relative).position
        if start:
            break
    return start


__all__ = ["LogEnd", "end_of", "index_fault_of"]
