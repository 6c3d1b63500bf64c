"""Checks of a segment's indexes against its batches, while these go by.

Entries differ from release to release (first offset of the append, last offset of the batch, the
exact record of the largest timestamp; one entry for several batches), so these checks ask for what
a lookup needs:

    offset index (o, p)    a batch starts at p; every batch before p has offsets below o only
    time index (t, o)      no batch that ends before o has a timestamp above t

Source: Kafka `OffsetIndex`, `TimeIndex`, `LogSegment.append`, `TransactionIndex`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.analysis.findings import PER_CODE_MAX, Findings
from kseg.constants import ControlType, StopReason
from kseg.errors import CorruptIndexError
from kseg.files import offset_index, time_index, txn_index
from kseg.files.offset_index import OffsetIndex
from kseg.files.time_index import TimeIndex
from kseg.files.txn_index import TxnIndex
from kseg.format.header import CONTROL

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.mapping import Mapping
    from kseg.format.header import BatchTable

    Int64Array = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Which index file, of which segment; `live` while another process may be writing both."""

    path: str
    base_offset: int
    is_last: bool
    size: int
    mapping: Mapping
    live: bool = False


class OffsetIndexChecks:
    """Holds the entries of one `.index` that no batch has been compared with yet."""

    def __init__(self, place: IndexPlace, found: Findings) -> None:
        """Read the entries and judge their order; what is out of order is compared with nothing."""
        self._place, self._found = place, found
        self._offsets, self._positions = _NONE, _NONE
        self._next = 0
        self._last_offset = -(2**63)
        try:
            with OffsetIndex.open(place.path, place.base_offset, mapping=place.mapping) as index:
                offsets, positions = index.entries(all_slots=True)
                used = index.entry_count
        except CorruptIndexError as error:
            found.add("index-order", place.path, error.reason, position=error.position)
            return
        size = offset_index.ENTRY_BYTES
        _check_length(place, found, "index", size)
        _check_unused(place, found, "index", size, offsets, positions, used)
        offsets, positions = offsets[:used], positions[:used]
        falls = np.zeros(used, np.bool_)
        falls[1:] = (np.diff(offsets) <= 0) | (np.diff(positions) < 0)
        falls |= (offsets < place.base_offset) | (positions < 0)
        if _report_order(place, found, "index", size, falls, offsets, positions, "position"):
            self._offsets, self._positions = offsets, positions

    def feed(self, table: BatchTable) -> None:
        """Compare the entries that point below the end of the batches with these."""
        end = int(np.searchsorted(self._positions, table.end_position))
        running = np.maximum.accumulate(_ends(table))
        if end > self._next:
            self._compare(table, running, slice(self._next, end))
            self._next = end
        if len(running):
            self._last_offset = max(self._last_offset, int(running[-1]))

    def finish(self, stop: StopReason) -> None:
        """Judge what points beyond the last batch; nobody knows behind damage.

        Logs are written before their indexes, so such an entry says that the log was longer once;
        or that its writer has gone on since we looked.
        """
        if stop is StopReason.END or (self._place.is_last and stop in _TAILS):
            left = np.arange(self._next, len(self._positions))
            self._report("index-points-nowhere", left, "beyond the end of the log")

    def _compare(self, table: BatchTable, running: Int64Array, chosen: slice) -> None:
        positions, offsets = self._positions[chosen], self._offsets[chosen]
        numbers = np.arange(chosen.start, chosen.stop)
        at = np.searchsorted(table.position, positions)
        hit = at < len(table)
        hit[hit] = table.position[at[hit]] == positions[hit]
        self._report("index-points-nowhere", numbers[~hit], "where no batch starts")
        at, offsets, numbers = at[hit], offsets[hit], numbers[hit]
        before = np.concatenate(([self._last_offset], np.maximum(running, self._last_offset)))[at]
        past = (offsets <= before) | (offsets < table.base_offset[at])
        self._report("index-offset", numbers[past], "behind batches that hold it")

    def _report(self, code: str, numbers: Int64Array, why: str) -> None:
        self._found.count_more(code, self._place.path, len(numbers) - PER_CODE_MAX)
        for number in numbers[:PER_CODE_MAX].tolist():
            offset, position = int(self._offsets[number]), int(self._positions[number])
            self._found.add(
                code,
                self._place.path,
                f"entry {number} sends offset {offset} to position {position}, {why}",
                position=number * offset_index.ENTRY_BYTES,
                offset=offset,
                severity="warning" if self._place.live and self._place.is_last else None,
            )


class TimeIndexChecks:
    """Holds the entries of one `.timeindex` that no batch has been compared with yet."""

    def __init__(self, place: IndexPlace, found: Findings) -> None:
        """Read the entries and judge their order; what is out of order is compared with nothing."""
        self._place, self._found = place, found
        self._timestamps, self._offsets = _NONE, _NONE
        self._next = 0
        self._last_offset = self._latest = -(2**63)
        try:
            with TimeIndex.open(place.path, place.base_offset, mapping=place.mapping) as index:
                timestamps, offsets = index.entries(all_slots=True)
                used = index.entry_count
        except CorruptIndexError as error:
            found.add("time-index-order", place.path, error.reason, position=error.position)
            return
        size = time_index.ENTRY_BYTES
        _check_length(place, found, "time-index", size)
        _check_unused(place, found, "time-index", size, offsets, timestamps, used)
        timestamps, offsets = timestamps[:used], offsets[:used]
        falls = np.zeros(used, np.bool_)
        falls[1:] = (timestamps[1:] <= timestamps[:-1]) | (np.diff(offsets) < 0)
        falls |= offsets < place.base_offset
        if _report_order(place, found, "time-index", size, falls, offsets, timestamps, "timestamp"):
            self._timestamps, self._offsets = timestamps, offsets

    def feed(self, table: BatchTable) -> None:
        """Compare the entries whose offsets the batches reach."""
        if not len(table):
            return
        running = np.maximum(np.maximum.accumulate(_ends(table)), self._last_offset)
        sound = np.where(table.crc_ok != 0, table.max_timestamp, self._latest)
        latest = np.maximum(np.maximum.accumulate(sound), self._latest)
        end = int(np.searchsorted(self._offsets, running[-1], "right"))
        if end > self._next:
            self._compare(table, running, latest, slice(self._next, end))
            self._next = end
        self._last_offset, self._latest = int(running[-1]), int(latest[-1])

    def finish(self, stop: StopReason) -> None:
        """Judge what lies beyond the last batch; nobody knows behind damage."""
        if stop is StopReason.END or (self._place.is_last and stop in _TAILS):
            left = np.arange(self._next, len(self._offsets))
            live = self._place.live and self._place.is_last
            self._report(
                "time-index-points-nowhere", left, "lies beyond the end of the log", mild=live
            )

    def _compare(
        self, table: BatchTable, running: Int64Array, latest: Int64Array, chosen: slice
    ) -> None:
        timestamps, offsets = self._timestamps[chosen], self._offsets[chosen]
        at = np.searchsorted(running, offsets)
        before = np.concatenate(([self._latest], latest))[at]
        late = before > timestamps
        # Beside a damaged batch nobody knows which entries were its own.
        told = table.bad_crc_count == 0
        in_gap = (offsets < table.base_offset[at]) & told
        # Magic 0 has no time, yet Kafka 0.10 indexed its producers' times.
        known = (table.magic[at] > 0) & told & ~late & ~in_gap
        other = (table.max_timestamp[at] != timestamps) & known
        for mask, code, why in (
            (late, "time-index-late", "has later records before it"),
            (in_gap, "time-index-points-nowhere", "lies between two batches"),
            (other, "time-index-timestamp", "is in a batch with another latest time"),
        ):
            numbers = np.flatnonzero(mask) + chosen.start
            self._report(code, numbers, why, mild=mask is in_gap)

    def _report(
        self, code: str, numbers: Int64Array, why: str, *, mild: bool | None = None
    ) -> None:
        warn = self._place.is_last if mild is None else mild
        self._found.count_more(code, self._place.path, len(numbers) - PER_CODE_MAX)
        for number in numbers[:PER_CODE_MAX].tolist():
            timestamp, offset = int(self._timestamps[number]), int(self._offsets[number])
            self._found.add(
                code,
                self._place.path,
                f"entry {number} sends time {timestamp} to offset {offset}, which {why}",
                position=number * time_index.ENTRY_BYTES,
                offset=offset,
                severity="warning" if warn else None,
            )


class TxnIndexChecks:
    """Compares one `.txnindex`, or its absence, with the abort markers that go by."""

    def __init__(self, place: IndexPlace | None, log: IndexPlace, found: Findings) -> None:
        """Read the entries, if there is a file."""
        self._place, self._log, self._found = place, log, found
        self._index: TxnIndex | None = None
        self._usable = True
        self._offsets: list[Int64Array] = []
        self._producers: list[Int64Array] = []
        if place is not None:
            self._read(place)

    def _read(self, place: IndexPlace) -> None:
        size = txn_index.ENTRY_BYTES
        try:
            index = TxnIndex.open(place.path)
        except CorruptIndexError as error:
            self._found.add("txn-index-version", place.path, error.reason, position=error.position)
            self._usable = False
            return
        self._index = index
        if index.tail_bytes:
            self._found.add(
                "txn-index-torn",
                place.path,
                f"{index.tail_bytes} bytes behind the last whole entry of {size}",
                position=len(index) * size,
                severity="warning" if place.is_last else "error",
            )
        last, first = index.last_offsets, index.first_offsets
        wrong = (last < place.base_offset) | (first > last) | (index.last_stable_offsets > last + 1)
        wrong[1:] |= last[1:] <= last[:-1]
        for number in np.flatnonzero(wrong).tolist():
            self._found.add(
                "txn-index-order",
                place.path,
                f"entry {number} has offsets {first[number]} to {last[number]}",
                position=number * size,
                offset=int(last[number]),
            )

    def feed(self, table: BatchTable) -> None:
        """Note the abort markers among the batches."""
        if table.attributes_seen & CONTROL:
            aborts = table.is_control & (table.control_type == ControlType.ABORT)
            if aborts.any():
                self._offsets.append(table.base_offset[aborts])
                self._producers.append(table.producer_id[aborts])

    def finish(self, stop: StopReason) -> tuple[int, ...]:
        """Judge entries without a marker; answers offsets of markers without an entry.

        A marker without an entry is none too many where its transaction had no records.
        """
        if not self._usable:
            return ()
        markers = np.concatenate([_NONE, *self._offsets])
        indexed = _NONE if self._index is None else self._index.last_offsets
        if self._index is not None and self._place is not None and stop is StopReason.END:
            for number in np.flatnonzero(~np.isin(indexed, markers)).tolist():
                self._found.add(
                    "txn-index-points-nowhere",
                    self._place.path,
                    f"entry {number} ends at offset {indexed[number]}, which is no abort marker",
                    position=number * txn_index.ENTRY_BYTES,
                    offset=int(indexed[number]),
                    severity="warning" if self._place.is_last else None,
                )
        missing = markers[~np.isin(markers, indexed)]
        return tuple(missing.tolist())


def _ends(table: BatchTable) -> Int64Array:
    """The last offset of each batch; of a damaged one, the offset that no checksum covers."""
    if not table.bad_crc_count:
        return table.last_offset
    damaged = (table.crc_ok == 0) & (table.magic >= 2)
    return np.where(damaged, table.base_offset, table.last_offset)


_TAILS = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)


def _check_length(place: IndexPlace, found: Findings, kind: str, entry_bytes: int) -> None:
    if place.size % entry_bytes:
        found.add(
            f"{kind}-length",
            place.path,
            f"{place.size} bytes are not a multiple of {entry_bytes}, the size of an entry",
            position=place.size // entry_bytes * entry_bytes,
        )


def _check_unused(
    place: IndexPlace,
    found: Findings,
    kind: str,
    entry_bytes: int,
    offsets: Int64Array,
    others: Int64Array,
    used: int,
) -> None:
    """Behind the used entries there may be zeros, and in a closed segment not even those."""
    set_bits = (offsets[used:] != place.base_offset) | (others[used:] != 0)
    if set_bits.any():
        number = used + int(set_bits.argmax())
        found.add(
            f"{kind}-tail",
            place.path,
            f"entry {number} is in use behind entry {used}, which is empty",
            position=number * entry_bytes,
        )
    elif len(offsets) > used and not place.is_last:
        found.add(
            "index-unused",
            place.path,
            f"{used} entries are in use, {len(offsets) - used} are empty",
            position=used * entry_bytes,
        )


def _report_order(
    place: IndexPlace,
    found: Findings,
    kind: str,
    entry_bytes: int,
    falls: Mask,
    offsets: Int64Array,
    others: Int64Array,
    other_name: str,
) -> bool:
    """Report the first entry out of order; whether there is none."""
    if not falls.any():
        return True
    number = int(falls.argmax())
    before = f", behind offset {offsets[number - 1]}, {other_name} {others[number - 1]}"
    found.add(
        f"{kind}-order",
        place.path,
        f"entry {number} has offset {offsets[number]}, {other_name} {others[number]}"
        f"{before if number else ''}; {int(falls.sum())} such entries",
        position=number * entry_bytes,
        offset=int(offsets[number]),
    )
    return False
