"""The end of a log that was closed cleanly, where it is not sound.

What follows the last whole batch is cut. The index of the last segment leads there, past everything
in front. So now the whole segment is walked:

    all of it is sound       the indexes are made anew
    the index misled         the end is where a walk over all of the segment comes to
    damage lies in front     stays as it is, and so does what is behind it up to the cut: the
                             indexes keep their entries, since without them the log would seem to
                             end at the damage
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from kseg.constants import StopReason
from kseg.errors import OffsetOverflowError, OffsetsOutOfOrderError
from kseg.format.header import stop_code
from kseg.log.recovery import split
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.load_context import INDEX, TIMEINDEX, TXNINDEX, LoadContext, file_of
from kseg.log.recovery.sanity import LogEnd
from kseg.log.recovery.sweep import Swept, sweep_segment

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")
#: Why the log is cut, in a few words.
WHY_CUT: Final = {
    StopReason.TORN_TAIL: "the last batch is incomplete",
    StopReason.ZERO_TAIL: "only zeros follow",
    StopReason.BAD_LENGTH: "no batch can have the size that follows",
    StopReason.BAD_MAGIC: "no release wrote the magic that follows",
    StopReason.BAD_CRC: "the next batch does not match its checksum",
    StopReason.LIMIT: "the offsets of the next batch are out of order",
    StopReason.END: "too few bytes for a batch follow",
}


@dataclass(frozen=True, slots=True)
class CutEnd:
    """A log's end after the cut.

    Attributes:
        next_offset: the offset behind the last batch.
        reindex: whether the indexes of the last segment are to be made anew.
    """

    next_offset: int
    reindex: bool


def cut_clean_end(context: LoadContext, found: LogEnd) -> CutEnd:
    """Cut off what follows the last whole batch; nothing in front of it.

    Raises:
        KsegError: the segment cannot be walked; nothing is changed.
        OSError: the disk refuses.
    """
    base = found.base_offset
    swept, end = _swept(context, base), found
    sound = swept.valid_bytes >= found.position or _is_split(context, swept)
    if not sound:
        _note(context, _where(swept), "; left as it is")
        _trim_indexes(context, found)
    elif swept.valid_bytes > found.position:
        end = _where(swept)
    reason = end.cut_reason
    if reason is not None and end.position < context.size(base):
        _note(context, end, ", though the log was closed in good order; cut")
        if sound:
            _remove_index(context, base, WHY_CUT[reason])
        context.cut_log(base, end.position, end.next_offset, WHY_CUT[reason])
    return CutEnd(end.next_offset, sound)


def _swept(context: LoadContext, base: int) -> Swept:
    with context.open(base) as segment:
        swept = sweep_segment(segment, config=context.inputs.config)
    error = swept.error
    if error is None or _is_split(context, swept):
        return swept
    if isinstance(error, OffsetOverflowError | OffsetsOutOfOrderError) and swept.valid_bytes:
        return swept
    raise error


def _is_split(context: LoadContext, swept: Swept) -> bool:
    """Whether a split mends what ended the walk, once the end is cut."""
    overflows = isinstance(swept.error, OffsetOverflowError)
    return overflows and split.overflows(context, swept.base_offset)


def _where(swept: Swept) -> LogEnd:
    """Where a walk over all of the segment ended."""
    return LogEnd(swept.base_offset, swept.next_offset, swept.valid_bytes, swept.stop)


def _note(context: LoadContext, end: LogEnd, done: str) -> None:
    assert end.cut_reason is not None
    path, message = context.path(end.base_offset), WHY_CUT[end.cut_reason] + done
    code = stop_code(end.cut_reason)
    found = Finding(code, path, message, end.position, end.next_offset)
    context.findings.append(found)


def _remove_index(context: LoadContext, base: int, why: str) -> None:
    """Remove it first: after an interruption its absence says that indexes are to be made anew."""
    name = file_of(base, INDEX)
    if name in context.overlay.files:
        context.overlay.remove(name, why, keep=False)
        context.overlay.settle()


def _trim_indexes(context: LoadContext, found: LogEnd) -> None:
    """Let no entry lead past the cut; the one by which the end was found is the last."""
    base, end = found.base_offset, found.next_offset

    def leads(entry: tuple[int, ...]) -> bool:
        return 0 < entry[1] == found.start

    def is_in_front(entry: tuple[int, ...]) -> bool:
        return any(entry) and 0 <= entry[1] < end - base

    aborted = _entries(context, file_of(base, TXNINDEX), _TXN_ENTRY)
    times = _entries(context, file_of(base, TIMEINDEX), _TIME_ENTRY)
    offsets = _entries(context, file_of(base, INDEX), _OFFSET_ENTRY)
    last = max((number for number, entry in enumerate(offsets) if leads(entry)), default=-1)
    _keep(context, file_of(base, TXNINDEX), _TXN_ENTRY, _while(lambda one: one[3] < end, aborted))
    _keep(context, file_of(base, TIMEINDEX), _TIME_ENTRY, _while(is_in_front, times))
    _keep(context, file_of(base, INDEX), _OFFSET_ENTRY, last + 1)


def trim_indexes(context: LoadContext, base: int) -> None:
    """Cut unused entries off the indexes of a damaged segment, and close its time index."""
    for kind, form in ((INDEX, _OFFSET_ENTRY), (TIMEINDEX, _TIME_ENTRY)):
        name = file_of(base, kind)
        entries = _entries(context, name, form)
        at = form.format.index("i", 1) - 1  # of the relative offset
        used = entries[:1] + list(takewhile(lambda one: one[at] != 0, entries[1:]))  # noqa: B023
        if len(used) == 1 and not any(used[0]):
            used = []
        _keep(context, name, form, len(used))


def _entries(context: LoadContext, name: str, form: struct.Struct) -> list[tuple[int, ...]]:
    if name not in context.overlay.files:
        return []
    data = context.overlay.read(name)
    return list(form.iter_unpack(data[: len(data) // form.size * form.size]))


def _while(holds: Callable[[tuple[int, ...]], bool], entries: list[tuple[int, ...]]) -> int:
    return sum(1 for _ in takewhile(holds, entries))


def _keep(context: LoadContext, name: str, form: struct.Struct, count: int) -> None:
    """Let an index have so many of its entries."""
    if name in context.overlay.files:
        data = context.overlay.read(name, size=count * form.size)
        if not context.has(name, data):
            context.overlay.put(
                name, data, "entries lead past the log's end", held=form is _OFFSET_ENTRY
            )


__all__ = ["WHY_CUT", "CutEnd", "cut_clean_end"]
