"""A read of a log in pieces of work that threads share: the same records, in the same order.

Where a piece begins is found by a walk over headers, in the thread that hands the pieces out. A
segment is open once for all its pieces, which read it at positions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from kseg.constants import StopReason
from kseg.errors import KsegError
from kseg.files.log_file import PIECE_BYTES
from kseg.log.reader.visible import first_offsets
from kseg.workers import Kept, Lent, Results, read_in_order

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns
    from kseg.format.workspace import Workspace
    from kseg.log.reader.view import LogView
    from kseg.log.segment.reader import Segment


def log_pieces(
    view: LogView,
    memory: Kept[Workspace],
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    isolation: str = "read_uncommitted",
    open_transactions: str = "wait",
    **where: Any,
) -> Iterator[Results]:
    """A read of a log as pieces of work; they give columns, and with `on_error` its faults, too.

    Committed records are one piece: which transactions were aborted is learnt on the way.

    Args:
        view: the log.
        memory: is used again by piece after piece.
        start_offset, end_offset, isolation, open_transactions: as for `LogView.read`.
        where: what else that takes.
    """
    if isolation != "read_uncommitted" or view.version is not None:
        where |= {"start_offset": start_offset, "end_offset": end_offset}
        where |= {"isolation": isolation, "open_transactions": open_transactions}
        yield Results(view.path, partial(_results, view.read, where))
        return
    start = max(view.log_start_offset, start_offset or 0)
    for info, first in first_offsets(view, start):
        if end_offset is not None and min(info.base_offset, first) >= end_offset:
            return
        bounds = {"start_offset": first, "end_offset": end_offset}
        yield from segment_pieces(view.open_segment(info), memory, **bounds, **where)


def segment_pieces(segment: Segment, memory: Kept[Workspace], **where: Any) -> Iterator[Results]:
    """A read of a segment as pieces of work, as `log_pieces` gives them.

    Args:
        segment: is closed behind the last piece.
        memory: is used again by piece after piece.
        where: what `Segment.read` takes, but for positions.
    """
    with Lent(segment.close) as lent:
        for start, end in pairwise(chain(_cuts(segment, where), [None])):
            positions = {"start_position": start, "end_position": end}
            read = partial(_read_piece, segment, memory, where | positions)
            yield Results(segment.path, lent.to_reader(read))


def _cuts(segment: Segment, where: dict[str, Any]) -> Iterator[int | None]:
    """Positions at which pieces begin; the first is None: `Segment.read` finds it itself.

    Each is looked for when it is asked for: the walk over headers is what first touches the pages
    of a map, and would keep all threads waiting if it went in front of them.
    """
    yield None
    if segment.kafka07 or where.get("start_timestamp") is not None:
        return
    cut: int | None = segment.start_for_offset(where.get("start_offset") or 0).position
    while cut is not None and segment.size - cut > PIECE_BYTES:
        cut = _next_cut(segment, cut, where.get("end_offset"))
        if cut is not None:
            yield cut


def _next_cut(segment: Segment, start: int, end_offset: int | None) -> int | None:
    """Where the piece behind the one at `start` begins; None if there is no such, or none is found.

    What the walk cannot read, the piece meets too, behind the records in front of it.
    """
    try:
        for table in segment.headers(start=start, limit=start + PIECE_BYTES):
            if end_offset is not None and len(table) and table.base_offset[-1] >= end_offset:
                return None
    except KsegError:
        return None
    return table.end_position if table.stop is StopReason.LIMIT else None


def _read_piece(
    segment: Segment, memory: Kept[Workspace], where: dict[str, Any]
) -> Iterator[RecordColumns | KsegError]:
    with memory.one() as workspace:
        yield from _results(segment.read, where | {"workspace": workspace})


def _results(
    read: Callable[..., Iterator[RecordColumns]], where: dict[str, Any]
) -> Iterator[RecordColumns | KsegError]:
    """Columns, and faults among them if these are wanted: their taker is called in order."""
    if where.get("on_error") is None:
        yield from read(**where)
        return
    faults: list[KsegError] = []
    try:
        for columns in read(**where | {"on_error": faults.append}):
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
        pieces: of `log_pieces` or `segment_pieces`, one after the other.
        threads: how many.
        on_error: takes their faults, in order.
    """
    for result in read_in_order(pieces, threads=threads):
        if isinstance(result, KsegError):
            assert on_error is not None
            on_error(result)
        else:
            yield result


__all__ = ["PIECE_BYTES", "log_pieces", "read_pieces", "segment_pieces"]
