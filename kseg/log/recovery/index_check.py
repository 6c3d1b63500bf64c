"""Whether the entries of an index are true, told while the batches go by.

Entries differ from release to release, from one setting to another, and with each restart of the
broker, and lead to the right place all the same. What a lookup relies on is this:

    offset index (o, p)    a batch starts at p; every batch before p has offsets below o only
    time index (t, o)      the batch that holds o has t for its largest time, no batch before it
                           a later one
    transaction index      the abort marker that an entry names is there

Source: Kafka `OffsetIndex`, `TimeIndex`, `LogSegment.append`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.constants import ControlType
from kseg.errors import LimitExceededError
from kseg.files import io, offset_index, time_index
from kseg.files.names import FileKind

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from kseg.files.names import SegmentFiles
    from kseg.files.txn_index import AbortedTxn
    from kseg.format.header import BatchTable
    from kseg.log.recovery.sweep import Swept
    from kseg.log.segment.reader import Segment

    Int64Array = npt.NDArray[np.int64]

#: A batch is no smaller, and has one entry at most.
_BATCH_BYTES_MIN: Final = 26
_OFFSET_MIN: Final = -(2**63)


class OffsetIndexCheck:
    """The entries of one `.index`, compared with each batch once.

    Attributes:
        why: what is wrong with them; empty for nothing.
        count: how many there are.
    """

    __slots__ = ("_last_offset", "_next", "_offsets", "_positions", "count", "why")

    def __init__(self, path: Path, base_offset: int, log_bytes: int) -> None:
        """Read them, and look at their order.

        Raises:
            OSError: there is a file, but it cannot be read.
        """
        raw, self.why = _read(path, offset_index.LAYOUT, log_bytes)
        self._offsets = raw["relative"].astype(np.int64) + base_offset
        self._positions = raw["position"].astype(np.int64)
        self.count: Final = len(raw)
        self._next, self._last_offset = 0, _OFFSET_MIN
        if (self._offsets[1:] <= self._offsets[:-1]).any() or (
            self._positions[1:] <= self._positions[:-1]
        ).any():
            self.why = "has entries that are not in order"

    def feed(self, table: BatchTable) -> None:
        """Compare those that point to these batches, which are in order."""
        if self.why or not len(table):
            return
        last = table.last_offset
        end = int(np.searchsorted(self._positions, int(table.position[-1]), "right"))
        chosen = slice(self._next, end)
        offsets, positions = self._offsets[chosen], self._positions[chosen]
        at = np.searchsorted(table.position, positions)
        before = np.concatenate(([self._last_offset], last))[at]
        true = (table.position[at] == positions) & (offsets > before)
        true &= offsets >= table.base_offset[at]
        if not true.all():
            self.why = f"entry {self._next + int((~true).argmax())} is wrong"
        self._next, self._last_offset = end, int(last[-1])

    def finish(self) -> str:
        """What is wrong, now that no batch follows."""
        if not self.why and self._next < self.count:
            self.why = f"entry {self._next} points behind the last batch"
        return self.why


class TimeIndexCheck:
    """The entries of one `.timeindex`, compared with each batch once.

    Attributes:
        why: what is wrong with them; empty for nothing.
        count: how many there are.
        last_timestamp: of the last one in ms; -1 for none.
    """

    __slots__ = ("_latest", "_next", "_offsets", "_timestamps", "count", "last_timestamp", "why")

    def __init__(self, path: Path, base_offset: int, log_bytes: int) -> None:
        """Read them, and look at their order.

        Raises:
            OSError: there is a file, but it cannot be read.
        """
        raw, self.why = _read(path, time_index.LAYOUT, log_bytes)
        self._timestamps = raw["timestamp"].astype(np.int64)
        self._offsets = raw["relative"].astype(np.int64) + base_offset
        self.count: Final = len(raw)
        self.last_timestamp: Final = int(self._timestamps[-1]) if len(raw) else -1
        self._next, self._latest = 0, _OFFSET_MIN
        if (self._timestamps[1:] <= self._timestamps[:-1]).any() or (
            self._offsets[1:] < self._offsets[:-1]
        ).any():
            self.why = "has entries that are not in order"

    def feed(self, table: BatchTable) -> None:
        """Compare those that name these batches, which are in order."""
        if self.why or not len(table):
            return
        times = table.max_timestamp
        latest = np.maximum(np.maximum.accumulate(times), self._latest)
        end = int(np.searchsorted(self._offsets, int(table.last_offset[-1]), "right"))
        chosen = slice(self._next, end)
        timestamps, offsets = self._timestamps[chosen], self._offsets[chosen]
        at = np.searchsorted(table.last_offset, offsets)
        true = np.concatenate(([self._latest], latest))[at] <= timestamps
        true &= offsets >= table.base_offset[at]
        # Magic 0 has no time, yet Kafka 0.10 indexed its producers' times.
        true &= (table.magic[at] == 0) | (times[at] == timestamps)
        if not true.all():
            self.why = f"entry {self._next + int((~true).argmax())} is wrong"
        self._next, self._latest = end, int(latest[-1])

    def finish(self) -> str:
        """What is wrong, now that no batch follows."""
        if not self.why and self._next < self.count:
            self.why = f"entry {self._next} lies behind the last batch"
        return self.why


@dataclass(slots=True)
class IndexChecks:
    """The indexes of one segment that may stay as they are, if they are true.

    Attributes:
        offsets, times: what is compared; None for what is not.
    """

    offsets: OffsetIndexCheck | None = None
    times: TimeIndexCheck | None = None

    @classmethod
    def read(cls, files: SegmentFiles, kinds: Collection[FileKind], log_bytes: int) -> IndexChecks:
        """Read the indexes of these kinds, as far as there are any."""
        truths = cls()
        if FileKind.INDEX in kinds and files.index is not None:
            truths.offsets = OffsetIndexCheck(files.index, files.base_offset, log_bytes)
        if FileKind.TIMEINDEX in kinds and files.time_index is not None:
            truths.times = TimeIndexCheck(files.time_index, files.base_offset, log_bytes)
        return truths

    def feed(self, table: BatchTable) -> None:
        """Compare them with batches."""
        if self.offsets is not None:
            self.offsets.feed(table)
        if self.times is not None:
            self.times.feed(table)

    def judge(self, kind: FileKind, swept: Swept) -> tuple[bool, str]:
        """Whether an index may stay, and what is wrong with its entries, if anything is."""
        if kind is FileKind.INDEX and self.offsets is not None:
            wrong = self.offsets.finish()
            return not wrong and self.offsets.count * 2 >= swept.offset_entry_count, wrong
        if kind is FileKind.TIMEINDEX and self.times is not None:
            wrong = self.times.finish()
            largest = swept.latest.timestamp
            if not wrong and largest >= 0 and self.times.last_timestamp != largest:
                wrong = "does not end with the largest time"
            return not wrong and self.times.count * 2 >= swept.time_entry_count, wrong
        return False, ""


def has_nothing_of(segment: Segment, transaction: AbortedTxn, end_offset: int) -> bool:
    """Whether its producer has nothing from the transaction's first offset to another one.

    Raises:
        CorruptRecordError: the file shrank.
        OSError: it cannot be read.
    """
    first = transaction.first_offset
    if first < segment.base_offset:
        return first == end_offset
    for tile in segment.walk(start=segment.start_for_offset(first).position, on_bad_crc="ignore"):
        table = tile.table
        inside = (table.last_offset >= first) & (table.base_offset < end_offset)
        if (inside & (table.producer_id == transaction.producer_id)).any():
            return False
        if len(table) and table.last_offset[-1] >= end_offset:
            break
    return True


def has_marker(segment: Segment, transaction: AbortedTxn) -> bool:
    """Whether the marker that aborted a transaction is in the segment.

    Raises:
        CorruptRecordError: damage lies in front of it.
        OSError: the file cannot be read.
    """
    found = segment.lookup(transaction.last_offset)
    if found is None or found.base_offset != transaction.last_offset:
        return False
    for tile in segment.walk(start=found.position, limit=found.position + 1):
        header = tile.table[0]
        return (
            header.is_control
            and header.control_type == ControlType.ABORT
            and header.producer_id == transaction.producer_id
        )
    return False


def _read(
    path: Path, layout: np.dtype[np.void], log_bytes: int
) -> tuple[npt.NDArray[np.void], str]:
    """All slots of an index, and what is wrong with their number."""
    size = layout.itemsize
    nothing = np.empty(0, layout)
    try:
        data = io.read_file(path, bytes_max=_bytes_max(size, log_bytes))
    except FileNotFoundError:
        return nothing, "missing"
    except LimitExceededError:
        return nothing, "is longer than its log can need"
    if len(data) % size:
        return nothing, f"ends within an entry: {len(data)} bytes are no multiple of {size}"
    return np.frombuffer(data, layout), ""


def _bytes_max(size: int, log_bytes: int) -> int:
    # One more for the entry that closes a time index.
    return (log_bytes // _BATCH_BYTES_MIN + 1) * size


__all__ = ["IndexChecks", "OffsetIndexCheck", "TimeIndexCheck", "has_marker", "has_nothing_of"]
