"""One reading of a segment: its records as columns, a bounded piece at a time.

Usual batches are read in one pass over a view of the file. The others go through tables of their
headers, as does all of a log of Kafka 0.7. `Segment.read` begins a reading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from kseg import workers
from kseg.constants import StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, OnError, at_path
from kseg.files.log_file import BATCH_BYTES_TRUSTED, LogFile, OnUnreadable, Tile
from kseg.format.header import BatchTable, scan
from kseg.format.reader import End, PieceReader, Workspace
from kseg.format.request import Request
from kseg.format.values import RecordColumns

#: The batches of a table that are read.
Keep = Callable[[BatchTable], BatchTable]
OnOffset = Callable[[int], None]

#: Batches that one call of `keep` decides about, and bytes of log in which they begin.
_BATCHES_AHEAD = 8_192
_BYTES_AHEAD = 8 << 20


class WalkedSegment(Protocol):
    """A segment as a reading uses it: `kseg.log.segment.reader.Segment`."""

    @property
    def path(self) -> Path:
        """The log file."""

    @property
    def kafka07(self) -> bool:
        """Whether it is a file of Kafka 0.7."""

    @property
    def size(self) -> int:
        """The end of the log, in bytes."""

    def walk(
        self,
        *,
        start: int = ...,
        limit: int | None = ...,
        on_bad_crc: str = ...,
        on_unreadable: OnUnreadable | None = ...,
    ) -> Iterator[Tile]:
        """The batches that start within these bytes, tile by tile."""

    def stop_fault(self, table: BatchTable) -> KsegError | None:
        """The damage at which the walk of a table stopped; None at a sound end."""


class Reading:
    """One reading of a segment's records: fast while batches are usual, else by tables."""

    __slots__ = (
        "_ahead",
        "_keep",
        "_limit",
        "_on_offset",
        "_report",
        "_request",
        "_segment",
        "_source",
        "_workspace",
    )

    def __init__(
        self,
        segment: WalkedSegment,
        request: Request,
        limit: int,
        keep: Keep | None,
        on_offset: OnOffset | None,
        workspace: Workspace | None,
    ) -> None:
        """Begin a reading; arguments are those of `Segment.read`, `limit` a position."""
        report = request.on_error
        self._segment = segment
        self._request = request
        self._limit = min(limit, segment.size)
        self._keep = keep
        self._on_offset = on_offset
        self._report: OnError | None = report and (
            lambda error: report(at_path(error, segment.path))
        )
        self._source = str(segment.path)
        self._workspace = workspace or Workspace()
        self._ahead = _Ahead()

    def pieces(self, log: LogFile, start: int) -> Iterator[RecordColumns]:
        """Pieces of all batches from `start` on."""
        if not self._segment.kafka07 and start >= 0:
            yield from self._read_fast(log, start)
        else:
            yield from self._read_by_tables(start)

    def _read_fast(self, log: LogFile, start: int) -> Iterator[RecordColumns]:
        """Read pieces from views of the file, one after the other; unusual batches by tables."""
        size, limit = self._segment.size, self._limit
        reader = PieceReader(self._request, self._workspace, source=self._source)
        kernel = reader.kernel
        kernel.move(min(start, size))
        with log.views(size) as view_at:
            end, data, base = End.MORE, memoryview(b""), 0
            while True:
                workers.check()
                if end is not End.FULL:
                    try:
                        data, base = view_at(kernel.at, kernel.needed)
                    except KsegError:  # the walk below meets it too, and has words for it
                        yield from reader.pieces()
                        yield from self._read_by_tables(kernel.at, last=kernel.last)
                        return
                end = self._read_on(reader, data, base)
                if end is End.MORE and kernel.needed <= BATCH_BYTES_TRUSTED:
                    continue
                if self._on_offset is not None:
                    self._on_offset(kernel.last_offset)
                piece = reader.take()
                if piece is not None:
                    yield piece
                if end is End.FULL:
                    continue
                if end in (End.END, End.PAST):
                    return
                if end is End.MORE and self._is_unreadable(log, kernel.at, kernel.needed):
                    yield from self._read_by_tables(kernel.at, last=kernel.last)
                    return
                chosen = self._keep is None or kernel.at < self._ahead.end
                until = min(kernel.at + 1, limit)
                if end is End.OTHER and chosen:
                    until = limit if self._keep is None else self._run_end(kernel.at)
                table = yield from self._tables(
                    kernel.at, until, kernel.last, one_tile=True, chosen=chosen
                )
                if table is None:
                    return
                kernel.move(table.end_position, int(table.position[-1]))

    def _run_end(self, position: int) -> int:
        """Where the run of batches that stay ends."""
        run = self._ahead.run_at(position)
        return self._limit if run is None else run[1]

    def _read_on(self, reader: PieceReader, data: memoryview, base: int) -> End:
        """Read into the piece until it is full or the data ends, without what `keep` leaves out."""
        size, limit, kernel = self._segment.size, self._limit, reader.kernel
        if self._keep is None:
            return reader.read(data, base=base, limit=limit, file_end=size)
        while True:
            if kernel.at >= self._ahead.end:
                if self._ahead.is_past:
                    return End.PAST
                self._look_ahead(kernel.at, data, base)
            until = min(kernel.at + 1, limit)  # if no whole batch begins there, the reader says why
            if kernel.at < self._ahead.end:
                run = self._ahead.run_at(kernel.at)
                if run is None:
                    kernel.move(self._ahead.end)
                    continue
                kernel.move(max(run[0], kernel.at))
                until = run[1]
            end = reader.read(data, base=base, limit=until, file_end=size, wanted_end=limit)
            if end is not End.END or kernel.at >= limit:
                return end

    def _look_ahead(self, start: int, data: memoryview, base: int) -> None:
        """Call `keep` with the next whole batches in `data`, and note which ones stay."""
        assert self._keep is not None
        table = scan(
            data,
            base=base,
            start=start,
            limit=min(self._limit, start + _BYTES_AHEAD),
            file_end=self._segment.size,
            on_bad_crc="ignore",
            batches_max=_BATCHES_AHEAD,
        )
        if len(table):
            if self._on_offset is not None:
                self._on_offset(int(table.last_offset.max()))
            self._ahead = _Ahead.of(table, self._keep(table), self._request.offset_end)

    def _is_unreadable(self, log: LogFile, position: int, size: int) -> bool:
        """Whether the disk cannot read part of a batch, if damage is to be reported.

        In that case a walk that goes on searches for the next batch; a walk that raises at
        the first damage does not need to know.
        """
        if self._report is None:
            return False
        return any(True for _ in log.unreadable_ranges(position, min(position + size, log.size)))

    def _read_by_tables(self, start: int, *, last: int | None = None) -> Iterator[RecordColumns]:
        """Pieces of all batches from `start` on; `last` is the position of a batch before."""
        yield from self._tables(start, self._limit, last, one_tile=False)

    def _tables(
        self, start: int, until: int, last: int | None, *, one_tile: bool, chosen: bool = False
    ) -> Generator[RecordColumns, None, BatchTable | None]:
        """Pieces of the batches in `[start, until)`, tile by tile.

        The walk begins with the batch before, if known: the next batch depends on it.

        Args:
            start, until: file positions.
            last: position of the batch before `start`.
            one_tile: end after the first tile, so that the fast way goes on there.
            chosen: `keep` was asked about these batches, and leaves all of them.

        Returns:
            The last table, or None at the end of the reading.
        """
        verify, report = self._request.verify_crc, self._report
        tiles = self._segment.walk(
            start=start if last is None else last,
            limit=until,
            on_bad_crc="defer" if verify else "ignore",
            on_unreadable=report,
        )
        table: BatchTable | None = None
        for tile in tiles:
            table = tile.table
            yield from self._decode(tile, start, chosen=chosen or self._keep is None)
            past = len(table) and int(table.base_offset[-1]) >= self._request.offset_end
            if past and (until - start > 1 or table.stop is not StopReason.LIMIT):
                return None  # the header of a single batch may be wrong
            goes_on = table.stop is StopReason.LIMIT and start < table.end_position < until
            if one_tile and goes_on:  # a tile may hold no more than the batch before
                return table
        if table is None:
            return None
        if table.stop is StopReason.LIMIT and start < table.end_position < self._limit:
            return table if len(table) else None
        fault = self._segment.stop_fault(table)
        if fault is not None:
            if report is None:
                raise fault
            report(fault)
        return None

    def _decode(self, tile: Tile, start: int, *, chosen: bool) -> Iterator[RecordColumns]:
        """Pieces of the batches of a tile from `start` on; `chosen` as in `_tables`."""
        from kseg.format.columns import decode

        table = tile.table
        if len(table) and table.position[0] < start:
            table = table[int(np.searchsorted(table.position, start)) :]
        if self._on_offset is not None and len(table):
            self._on_offset(int(table.last_offset.max()))
        visible = table if chosen or self._keep is None else self._keep(table)
        try:
            yield from decode(
                tile.data,
                visible,
                self._request,
                base=tile.base,
                source=self._source,
                workspace=self._workspace,
                on_error=self._report,
            )
        except KsegError as error:
            raise at_path(error, self._segment.path) from None


@frozen_dataclass
class _Ahead:
    """The batches ahead of a reader that `keep` does not leave out.

    Attributes:
        end: file position after the batches that `keep` was called with.
        runs: start and end of each run of batches that stay.
        is_past: whether the last of these batches is beyond all offsets that are requested.
    """

    end: int = -1
    runs: tuple[tuple[int, int], ...] = ()
    is_past: bool = False

    @classmethod
    def of(cls, table: BatchTable, visible: BatchTable, offset_end: int) -> _Ahead:
        """Interpret the answer of `keep`.

        Args:
            table: one or more batches that `keep` was called with.
            visible: the batches that stay.
            offset_end: the end of the requested offsets.
        """
        is_past = int(table.base_offset[-1]) >= offset_end
        if visible is table:
            run = (int(table.position[0]), table.end_position)
            return cls(table.end_position, (run,), is_past)
        starts, ends = visible.position, visible.position + visible.size
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        firsts = starts[np.append(0, breaks + 1)] if len(visible) else starts
        lasts = ends[np.append(breaks, -1)] if len(visible) else ends
        runs = tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
        return cls(table.end_position, runs, is_past)

    def run_at(self, position: int) -> tuple[int, int] | None:
        """The first run that ends after a position; None if there is none."""
        at = bisect_right(self.runs, position, key=lambda run: run[1])
        return self.runs[at] if at < len(self.runs) else None
