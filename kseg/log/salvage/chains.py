"""Which sound batches of a file count: a value can hold whole batches, which are none of the log's.

The search finds each batch that is sound by itself. Where nothing is damaged they follow each other
from the start of the file to its end. Damage breaks that chain. A length inside of it is believed
if it leads, over other damaged batches too, to just where a sound batch begins. Then each damaged
batch has an extent, and what lies in it is data of a record. Else it is not known how far a damaged
batch reaches. Sound batches behind it count if their chain goes on

- to the end of the file (one that leads to a batch that is cut off there may be data of a record,
  too: of a larger batch that is),
- or over a batch that an entry of the offset index names,
- or over two that it names at places which lie both as many bytes off: bytes in front of them were
  cut out or put in.

If a damaged batch has the right checksum up to where a sound one begins, or to the end of the file,
only its length is wrong, and it ends there.

A sound batch inside of an extent counts if such an entry names it. It also counts if its chain ends
where the extent does and its offsets lie behind those that the damaged batch itself says: then the
length of that batch is wrong.

The time is linear in the bytes: a chain is followed over 64 damaged batches at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.constants import LOG_OVERHEAD
from kseg.format.header import ENTRY_BYTES_MIN, BatchHeader, BatchTable
from kseg.format.search import SoundRun
from kseg.log.recovery.lost import claimed

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.log_file import LogFile
    from kseg.files.offset_index import OffsetEntries

    Int64Array = npt.NDArray[np.int64]

#: A chain is followed over so many damaged batches.
_DAMAGED_MAX: Final = 64
#: So many damaged batches of a chain are asked whether only their length is wrong, and for so many
#: ends each.
_RESIZED_MAX: Final = 2
_ENDS_MAX: Final = 4
#: So many entries of the index agree with batches that are moved.
_MOVED_MIN: Final = 2
#: Bytes that are read again to see whether a batch begins or ends somewhere, in file sizes.
_WALKED_SHARE: Final = 4
_INT32_MAX: Final = 2**31 - 1


@dataclass(slots=True)
class Chains:
    """What counts in one file.

    Attributes:
        kept: the runs that count, by position.
        others: sound runs that do not, by position.
        damaged: where damaged batches begin and end, as far as lengths can be believed, by
            position.
    """

    kept: list[SoundRun] = field(default_factory=list)
    others: list[SoundRun] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)


def follow_chains(log: LogFile, runs: Sequence[SoundRun], entries: OffsetEntries | None) -> Chains:
    """Tell runs that count from those that may be data of a record.

    Args:
        log: the file, open.
        runs: each sound run of it, by position.
        entries: of its offset index, as far as it can be read; None without one.
    """
    follower = _Follower(log, list(runs), _Anchors(log, entries))
    follower.follow()
    found = follower.found
    found.kept.sort(key=lambda run: run.position)
    found.others.sort(key=lambda run: run.position)
    return found


@dataclass(frozen=True, slots=True)
class _Landing:
    """Where a chain over damaged batches leads.

    Attributes:
        number: of the run, or how many runs there are for the end of the file.
        stops: where the damaged batches begin, and where the last one ends.
    """

    number: int
    stops: tuple[int, ...]


class _Follower:
    """Goes over the runs of a file once."""

    def __init__(self, log: LogFile, runs: list[SoundRun], anchors: _Anchors) -> None:
        self._log, self._runs, self._anchors = log, runs, anchors
        self._starts = [run.position for run in runs]
        self._orders = sorted(run.order for run in runs)
        self._lasts = sorted(run.last_offset for run in runs)
        self._budget = _WALKED_SHARE * log.size
        self.found = Chains()

    def follow(self) -> None:
        """Find what counts."""
        # A file begins with a batch.
        group: list[SoundRun] = []
        end, last, counts, number = 0, -1, True, 0
        inner = -1
        while True:
            landing = self._land(end, number, last)
            if landing is None:
                self._close(group, counts=counts or any(map(self._is_moved, group)))
                group, counts = [], False
                inner = max(inner, self._last_within(end))
            else:
                self._pass_over(number, landing)
                number = landing.number
                # The messages of a compressed one that the end of the file cuts off are not the
                # log's, though they lie there in the clear.
                counts = counts or (number == len(self._runs) and last > inner)
            if number == len(self._runs):
                break
            run = self._runs[number]
            counts = counts or self._anchors.name(run)
            group.append(run)
            end, last, number = run.end, run.last_offset, number + 1
        self._close(group, counts=counts)

    def _close(self, group: list[SoundRun], *, counts: bool) -> None:
        (self.found.kept if counts else self.found.others).extend(group)

    def _is_moved(self, run: SoundRun) -> bool:
        """Whether the index names batches of a run that lie so many bytes off, all of them.

        Bytes that were cut out or put in move all that follows. No other sound batch may have the
        offsets of these.
        """
        reached = bisect_right(self._orders, run.last_offset)
        alone = reached - bisect_left(self._lasts, run.order) == 1
        return alone and self._anchors.name_moved(run)

    def _last_within(self, position: int) -> int:
        """The last offset of a message that holds others and is cut off; -1 for another batch."""
        head = self._log.head_at(position)
        header = claimed(head, position)
        if header is None or header.base_offset >= 0:
            return -1
        return header.last_offset if stored_size(head) > self._log.size - position else -1

    # ---- over damaged batches --------------------------------------------------------------------

    def _land(self, start: int, number: int, last: int) -> _Landing | None:
        """Follow lengths from a position on to a sound batch, or to the end of the file.

        Offsets grow along a chain: one that leads over damage to offsets that it had is none.
        """
        stops = [start]
        while len(stops) <= _DAMAGED_MAX:
            at = stops[-1]
            found = len(self._runs) if at == self._log.size else self._run_at(at, number)
            if found is not None:
                is_back = found < len(self._runs) and self._runs[found].order <= last
                if is_back and at > start:
                    break
                return _Landing(found, tuple(stops))
            size = stored_size(self._log.head_at(at))
            if not ENTRY_BYTES_MIN <= size <= self._log.size - at:
                break
            stops.append(at + size)
        return self._land_by_checksum(stops[:_RESIZED_MAX], number, last)

    def _land_by_checksum(self, stops: list[int], number: int, last: int) -> _Landing | None:
        """The same where only the length of one of these damaged batches is wrong."""
        for count, at in enumerate(stops, 1):
            header = claimed(self._log.head_at(at), at)
            if header is None or not last < header.last_offset:
                continue
            ends = self._ends_behind(at, header.last_offset, number)
            end = self._log.end_by_checksum(at, ends)
            if end is not None:
                found = bisect_left(self._starts, end, lo=number)
                return _Landing(found, (*stops[:count], end))
        return None

    def _ends_behind(self, position: int, last: int, number: int) -> Iterator[int]:
        """Where a batch may end that begins at a position and says its last offset.

        No batch reaches over one that the index names.
        """
        at, reached = bisect_left(self._starts, position + ENTRY_BYTES_MIN, lo=number), position
        behind = self._runs[at : at + _ENDS_MAX]
        for run in (*behind, None) if len(behind) < _ENDS_MAX else behind:
            end = self._log.size if run is None else run.position
            if run is None or run.order > last:
                self._budget -= end - reached
                if self._budget < 0:
                    return
                yield end
                reached = end
            if run is not None and self._anchors.name(run):
                return

    def _run_at(self, position: int, number: int) -> int | None:
        """The run, from a number on, one of whose batches begins at a position; cut there."""
        found = bisect_right(self._starts, position, lo=number) - 1
        if found < number or self._runs[found].end <= position:
            return None
        if self._starts[found] == position:
            return found
        return found + 1 if self._cut(found, position) else None

    def _cut(self, number: int, position: int) -> bool:
        """Cut a run in two where one of its batches begins; whether one does."""
        run = self._runs[number]
        self._budget -= position - run.position
        if self._budget < 0:
            return False
        front = part_of_run(self._log, run.position, position)
        if front is None:
            return False
        back = part_of_run(self._log, position, run.end)
        assert back is not None
        self._runs[number : number + 1] = [front, back]
        self._starts[number : number + 1] = [front.position, back.position]
        return True

    def _pass_over(self, number: int, landing: _Landing) -> None:
        """Take in damaged batches up to a landing, and what lies in them."""
        stops = landing.stops
        self.found.damaged += pairwise(stops)
        follows = self._runs[landing.number].order if landing.number < len(self._runs) else None
        for run in self._runs[number : landing.number]:
            counts = self._anchors.name(run) or self._ends_outside(run, stops, follows)
            self._close([run], counts=counts)

    def _ends_outside(self, run: SoundRun, stops: tuple[int, ...], follows: int | None) -> bool:
        """Whether a run within the last extent shows that the extent is too long."""
        if run.end != stops[-1] or run.position < stops[-2]:
            return False
        header = claimed(self._log.head_at(stops[-2]), stops[-2])
        # The value of an old message ends where the message does, so its end tells nothing.
        if header is None or header.magic < 2 or header.last_offset >= run.order:
            return False
        return follows is None or run.last_offset < follows


class _Anchors:
    """Batches that the offset index names."""

    def __init__(self, log: LogFile, entries: OffsetEntries | None) -> None:
        self._log = log
        self._positions = self._offsets = np.empty(0, np.int64)
        if entries is not None:
            order = np.argsort(entries.positions, kind="stable")
            self._positions, self._offsets = entries.positions[order], entries.offsets[order]
        self._by_offset = np.argsort(self._offsets, kind="stable")

    def name(self, run: SoundRun) -> bool:
        """Whether an entry leads to a batch of a run, and its offset can be meant.

        Releases differ in which offset of an append an entry has; it is none in front of the batch.
        """
        first, end = np.searchsorted(self._positions, (run.position, run.end)).tolist()
        if first == end:
            return False
        positions, offsets = self._positions[first:end], self._offsets[first:end]
        if positions[0] == run.position and run.order <= offsets[0]:
            return True
        if run.batches == 1:
            return False
        for table in self._log.headers(start=run.position, limit=int(positions[-1]) + 1):
            rows = np.searchsorted(table.position, positions)
            hits = np.flatnonzero(rows < len(table))
            hits = hits[table.position[rows[hits]] == positions[hits]]
            if (offset_orders(table)[rows[hits]] <= offsets[hits]).any():
                return True
        return False

    def name_moved(self, run: SoundRun) -> bool:
        """Whether two entries lead to two batches of a run, by as many bytes beside each of them.

        Each says an offset of its batch, and how far the two lie apart.
        """
        order = self._by_offset
        offsets = self._offsets[order]
        first = int(np.searchsorted(offsets, run.order))
        end = int(np.searchsorted(offsets, run.last_offset, "right"))
        if end - first < _MOVED_MIN:
            return False
        offsets, positions = offsets[first:end], self._positions[order[first:end]]
        found: set[tuple[int, int]] = set()
        for table in self._log.headers(start=run.position, limit=run.end):
            rows = np.searchsorted(table.last_offset, offsets)
            hits = np.flatnonzero(rows < len(table))
            hits = hits[offset_orders(table)[rows[hits]] <= offsets[hits]]
            places = table.position[rows[hits]]
            found.update(zip((places - positions[hits]).tolist(), places.tolist(), strict=True))
        counts = Counter(moved for moved, _ in found)
        return max(counts.values(), default=0) >= _MOVED_MIN


def offset_orders(table: BatchTable) -> Int64Array:
    """The offsets by which batches follow each other, int64[n]: the first ones, where known."""
    return np.where(table.base_offset < 0, table.last_offset, table.base_offset)


def part_of_run(log: LogFile, start: int, end: int) -> SoundRun | None:
    """The sound batches from a position up to another, as a run; None if none ends there."""
    first: BatchHeader | None = None
    last = batches = records = 0
    counted = True
    for table in log.headers(start=start, limit=end):
        if len(table):
            first = first or table[0]
            last = int(table.last_offset[-1])
            batches += len(table)
            counted &= bool((table.record_count >= 0).all())
            records += int(table.record_count.sum())
    if first is None or table.end_position != end:
        return None
    base = None if first.base_offset < 0 else first.base_offset
    order = first.last_offset if base is None else base
    return SoundRun(start, end, base, order, last, batches, records if counted else None)


def stored_size(head: bytes) -> int:
    """The size that a batch has by its length; 0 if too few bytes are there."""
    if len(head) < LOG_OVERHEAD:
        return 0
    return int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD


__all__ = ["Chains", "follow_chains", "offset_orders", "part_of_run"]
