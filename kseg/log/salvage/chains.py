"""Which sound batches of a file are the log's: a record's value can hold whole batches, too.

The search finds each batch that is sound by itself. A file begins with a batch of the log, and each
sound one says where the next one begins. Behind a damaged batch the log goes on at the first of

- the end up to which the checksum of the damaged batch is right: then only its length is wrong;
- the sound batch to which its length leads, over other damaged ones too: its contents are damaged.
  That counts only where the checksum is right for no other end, and passes over no index entry;
- a batch that an entry of the offset index names: by its position, and by the first offset of an
  append (Kafka up to 1.1) or the last one (since 2.0).

A producer writes none of these. The end of the file proves nothing, nor does a chain that leads
there: a value may hold batches, and end where its own batch ends. So what lies behind damage that
nothing bridges does not count, however sound it is, and a torn batch covers all that follows.

The time is linear in the bytes: checksums take no more than `_SUMMED_SHARE` times the file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.constants import LOG_OVERHEAD
from kseg.errors import UnreadableError
from kseg.format.header import ENTRY_BYTES_MIN
from kseg.log.recovery.lost import claimed
from kseg.log.salvage.values import Span, span_between

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.log_file import LogFile
    from kseg.files.offset_index import OffsetEntries

    Int64Array = npt.NDArray[np.int64]

#: Lengths are followed over so many damaged batches.
_DAMAGED_MAX: Final = 64
#: Bytes whose checksums are compared to find where a damaged batch ends, in file sizes and besides.
_SUMMED_SHARE: Final = 8
_SUMMED_MIN: Final = 1 << 20
#: No damaged batch is taken for a larger one.
_BATCH_MAX: Final = 64 << 20


class _Proved:
    """Batches of the log by the offset index, or by another copy."""

    def __init__(self, log: LogFile, entries: OffsetEntries | None, proved: Sequence[int]) -> None:
        self._log, self._others = log, proved
        self._positions = self._offsets = np.empty(0, np.int64)
        if entries is not None:
            order = np.argsort(entries.positions, kind="stable")
            self._positions, self._offsets = entries.positions[order], entries.offsets[order]
        self._at, self._agrees = 0, False

    def behind(self, position: int) -> int | None:
        """The position of the first one behind a position; each call asks for a larger one."""
        at = bisect_right(self._others, position)
        found = self._others[at] if at < len(self._others) else None
        while self._at < len(self._positions):
            named = int(self._positions[self._at])
            if found is not None and found <= named:
                break
            if named > position and not self._agrees:
                with suppress(UnreadableError):
                    self._agrees = self._is_named(self._at)
            self._agrees &= named > position
            if self._agrees:
                return named
            self._at += 1
        return found

    def deny(self, position: int) -> bool:
        """Whether an entry has another offset for the batch at a position."""
        at = int(np.searchsorted(self._positions, position))
        if at == len(self._positions) or self._positions[at] != position:
            return False
        with suppress(UnreadableError):
            return not self._is_named(at)
        return False

    def _is_named(self, number: int) -> bool:
        """Whether a sound batch begins where an entry says, with the offset that it says."""
        position, offset = int(self._positions[number]), int(self._offsets[number])
        table = self._log.batch_at(position) if position < self._log.size else None
        if table is None or not len(table) or table.crc_ok[0] != 1:
            return False
        first = table[0]
        if first.base_offset < 0:
            # A compressed message of magic 0 or 1 does not say its first offset.
            before = int(self._offsets[number - 1]) if number else -1
            return before < offset <= first.last_offset
        if first.base_offset == offset:
            return True
        # The last offset of an append is that of one of the batches from its first one on.
        behind = self._positions[number + 1] if number + 1 < len(self._positions) else None
        limit = self._log.size if behind is None else int(behind)
        return any(
            offset in table.last_offset for table in self._log.headers(start=position, limit=limit)
        )


class Chains:
    """The sound batches of one file, distinguished.

    Attributes:
        kept: runs of the log, by position.
        others: runs that may be data of a record, by position.
        damaged: damaged batches with a known end, by position.
    """

    def __init__(
        self,
        log: LogFile,
        runs: Sequence[Span],
        entries: OffsetEntries | None,
        proved: Sequence[int] = (),
    ) -> None:
        """Go over the runs of a file once.

        Args:
            log: the file, open.
            runs: each sound run of it, by position.
            entries: of its offset index, as far as it can be read; None without one.
            proved: positions of sound batches that another copy of the log has, too; ascending.
        """
        self._log, self._runs, self._proved = log, list(runs), _Proved(log, entries, proved)
        self._starts = [run.position for run in runs]
        self._budget = _SUMMED_SHARE * log.size + _SUMMED_MIN
        self.kept: list[Span] = []
        self.others: list[Span] = []
        self.damaged: list[Span] = []
        number, position, last = 0, 0, -1
        while position < log.size:
            at = self._run_at(position, number)
            if at is not None:
                run = self._runs[at]
                self.kept.append(run)
                number, position, last = at + 1, run.end, run.last_offset
                continue
            named = self._proved.behind(position)
            stops = self._bridge(position, number, last, named)
            if stops is None and named is None:
                break
            position = stops[-1] if stops is not None else named or 0
            self._run_at(position, number)
            behind = bisect_left(self._starts, position, lo=number)
            if stops is None:
                # Nothing says where the damaged batch ends.
                self.others += self._runs[number:behind]
            else:
                path = str(log.path)
                self.damaged += (Span(path, at, end - at) for at, end in pairwise(stops))
            number = behind
        self.others += self._runs[number:]

    # ---- over damaged batches --------------------------------------------------------------------

    def _bridge(self, start: int, number: int, last: int, proved: int | None) -> list[int] | None:
        """Where damaged batches begin and the last one ends, if that is known; else None.

        Args:
            start: where the first one begins.
            number: of the first run behind.
            last: the last offset in front.
            proved: where a batch begins that none of them reaches over; None for no such batch.
        """
        stops, limit = [start], self._log.size if proved is None else proved
        while len(stops) <= _DAMAGED_MAX:
            at = stops[-1]
            if at == limit:
                return stops
            found = self._run_at(at, number) if at > start else None
            if found is not None:
                follows = self._runs[found].first_offset > last and not self._proved.deny(at)
                return stops if follows else None
            head = self._log.head_at(at)
            if claimed(head, at) is None:
                return None
            size = stored_size(head)
            end = self._log.end_by_checksum(at, self._ends(at, size, number, limit))
            if end is not None:
                return [*stops, end]
            if self._budget <= 0 or not ENTRY_BYTES_MIN <= size <= limit - at:
                return None
            stops.append(at + size)
        return None

    def _ends(self, position: int, size: int, number: int, limit: int) -> Iterator[int]:
        """Where the batch at a position may end, ascending, as long as there is a budget."""
        own, reached = position + size, position + ENTRY_BYTES_MIN - 1
        limit = min(limit, position + _BATCH_MAX)
        for end in self._borders(reached + 1, number, limit):
            for each in (own, end) if reached < own < end else (end,):
                self._budget -= each - reached
                if self._budget <= 0:
                    return
                reached = each
                yield each

    def _borders(self, position: int, number: int, limit: int) -> Iterator[int]:
        """Where sound batches begin and end, from a position up to a limit; and the limit."""
        for run in self._runs[bisect_left(self._starts, position, lo=number) :]:
            if run.position >= limit:
                break
            for table in self._log.headers(start=run.position, limit=min(run.end, limit)):
                yield from table.position.tolist()
            if run.end < limit:
                yield run.end
        yield limit

    # ---- runs ------------------------------------------------------------------------------------

    def _run_at(self, position: int, number: int) -> int | None:
        """The run, from a number on, one of whose batches begins at a position; cut there."""
        found = bisect_right(self._starts, position, lo=number) - 1
        if found < number or self._runs[found].end <= position:
            return None
        if self._starts[found] == position:
            return found
        run = self._runs[found]
        front = span_between(self._log, run.path, run.position, position)
        if front is None:
            return None
        back = span_between(self._log, run.path, position, run.end)
        assert back is not None
        self._runs[found : found + 1] = [front, back]
        self._starts[found : found + 1] = [front.position, back.position]
        return found + 1


def stored_size(head: bytes) -> int:
    """The size that a batch has by its length; 0 if too few bytes are there."""
    if len(head) < LOG_OVERHEAD:
        return 0
    return int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD


__all__ = ["Chains", "stored_size"]
