"""A read of a log in pieces of work that threads share: the same records, in the same order.

Where a piece begins is found by a walk over headers, in the thread that hands the pieces out. A
segment is open once for all its pieces, which read it at positions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from kseg.constants import INT64_MIN, StopReason
from kseg.errors import KsegError
from kseg.files.log_file import PIECE_BYTES
from kseg.log.reader.visible import first_offsets
from kseg.workers import PerThread, Results, SharedUse, in_order

if TYPE_CHECKING:
    from kseg.format.reader import Workspace
    from kseg.format.request import Request
    from kseg.format.values import RecordColumns
    from kseg.log.reader.view import LogView
    from kseg.log.segment.reader import Segment


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
    """A read of a segment, which is closed behind the last piece."""
    with SharedUse(segment.close) as shared:
        for start, end in pairwise(chain(_cuts(segment, request), [None])):
            use = shared.one_more()
            read = partial(_read_piece, segment, use, memory, request, start, end)
            yield Results(segment.path, read)


def _cuts(segment: Segment, request: Request) -> Iterator[int | None]:
    """Positions at which pieces begin; the first is None: `Segment.read` finds it itself.

    Each is looked for when it is needed: the walk over headers is the first to touch the pages
    of a map, and would keep all threads waiting if it went in front of them.
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
    """The beginning of the piece behind the piece at `start`; None if there is no further piece.

    The piece meets a fault that stops this walk too, behind the records in front of it.
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
    with use, memory.one() as workspace:
        read = partial(segment.read, start_position=start, end_position=end, workspace=workspace)
        yield from _results(read, request)


def _results(
    read: Callable[[Request], Iterator[RecordColumns]], request: Request
) -> Iterator[RecordColumns | KsegError]:
    """Columns, and faults among them if these are wanted: their taker is called in order."""
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
        pieces: of `log_pieces`, one after the other.
        threads: how many.
        on_error: takes their faults, in order.
    """
    alone = threads == 1
    results = chain.from_iterable(pieces) if alone else in_order(pieces, threads=threads)
    for result in results:
        if isinstance(result, KsegError):
            assert on_error is not None
            on_error(result)
        else:
            yield result


__all__ = ["PIECE_BYTES", "log_pieces", "read_pieces"]
