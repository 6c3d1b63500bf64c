"""Sanity checks: whether the ends of a segment's indexes fit its log, and where the log ends.

The rules are those of `kseg.log.index_rules`, for the last entry of each index. Faults that only a
walk over the whole log finds are for `kseg verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from kseg.constants import INT64_MAX, ControlType, StopReason
from kseg.files.names import FileKind
from kseg.format.header import CONTROL, BatchTable, scan
from kseg.log.findings import Finding
from kseg.log.index_rules import IndexPlace, fault_at_ends
from kseg.log.recovery.index_check import TxnIndexCheck, due_entries
from kseg.log.recovery.load_context import INDEX, LoadContext, file_of
from kseg.log.recovery.sweep import OFFSET_ENTRY
from kseg.log.segment.reader import Segment

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


class _SegmentEnds:
    """The ends of one segment's files, each read once."""

    def __init__(self, context: LoadContext, base: int) -> None:
        self._context, self._base = context, base
        self.log_bytes: Final = context.size(base)
        files = context.overlay.files
        names = {kind: file_of(base, kind.value) for kind in (FileKind.INDEX, FileKind.TIMEINDEX)}
        #: Bytes of the indexes that are there.
        self.sizes: Final = {
            kind: files[name].size for kind, name in names.items() if name in files
        }

    def read(self, kind: FileKind, position: int, size: int) -> bytes:
        """Bytes of an index; none of one that the overlay has made."""
        name = file_of(self._base, kind.value)
        return self._context.overlay.read(name, position=position, size=size)

    def headers(self, start: int) -> Iterator[BatchTable]:
        """Headers of the log from a batch on; near its end it is read at once."""
        left = self.log_bytes - start
        if left <= _TAIL_BYTES:
            name = file_of(self._base, FileKind.LOG.value)
            data = self._context.overlay.read(name, position=start, size=left)
            yield scan(data, base=start, on_bad_crc="ignore")
            return
        with self._context.open(self._base) as segment:
            yield from segment.headers(start=start)


def index_fault_of(context: LoadContext, base: int) -> Finding | None:
    """The first fault of a segment's indexes; None if the check finds nothing."""
    ends = _SegmentEnds(context, base)
    log = IndexPlace(
        context.path(base), base, is_last=False, log_bytes=ends.log_bytes, believed=True
    )
    config = context.inputs.config
    due = cache(lambda: due_entries(base, ends.headers(0), config))
    fault = fault_at_ends(log, ends.sizes, ends.read, ends.headers, due)
    name = file_of(base, FileKind.TXNINDEX.value)
    if fault is not None or not ends.log_bytes or name not in context.overlay.files:
        return fault
    data = context.overlay.read(name)
    txn_index = replace(log, path=context.overlay.path(name), size=len(data))
    return TxnIndexCheck(txn_index, data=data).fault


def has_abort_marker(context: LoadContext, base: int) -> bool:
    """Whether a transaction was aborted in a segment, by the headers of all its batches."""
    with context.open(base) as segment:
        for table in segment.headers():
            if table.attributes_seen & CONTROL and (table.control_type == ControlType.ABORT).any():
                return True
    return False


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
