"""The headers of any number of batches in sum: counts, times, codecs, formats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import NO_TIMESTAMP, codec_label

if TYPE_CHECKING:
    from kseg.format.header import BatchTable


@dataclass(slots=True)
class Summary:
    """The headers of some batches in sum.

    Attributes:
        batches: how many.
        records: how many, control records among them; None where compressed messages of magic 0
            and 1 do not say how many they hold.
        min_timestamp, max_timestamp: ms, as headers state them; None where no header does.
        codecs, magics: those that occur.
        first_offset, last_offset: of the batches in order of feeding; None without batches.
    """

    batches: int = 0
    records: int | None = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    codecs: set[int] = field(default_factory=set)
    magics: set[int] = field(default_factory=set)
    first_offset: int | None = None
    last_offset: int | None = None

    def feed(self, table: BatchTable) -> None:
        """Take the next headers of a walk."""
        if not len(table):
            return
        self.batches += len(table)
        counts = table.record_count
        known = bool((counts >= 0).all())
        self.records = (
            self.records + int(counts.sum()) if known and self.records is not None else None
        )
        self.codecs.update(np.unique(table.codec).tolist())
        self.magics.update(np.unique(table.magic).tolist())
        if self.first_offset is None:
            first = table[0]
            self.first_offset = first.base_offset if first.base_offset >= 0 else first.last_offset
        self.last_offset = int(table.last_offset[-1])
        self._feed_times(table)

    def _feed_times(self, table: BatchTable) -> None:
        """Smallest and largest time. A base timestamp may be a delete horizon."""
        largest = table.max_timestamp
        stated = (table.delete_horizon_ms == -1) & (table.timestamp_type == 0)
        smallest = np.where(stated, table.base_timestamp, largest)
        has_time = (largest != NO_TIMESTAMP) & (table.record_count != 0) & (table.magic > 0)
        if table.kafka07 or not has_time.any():
            return
        low, high = int(smallest[has_time].min()), int(largest[has_time].max())
        self.min_timestamp = low if self.min_timestamp is None else min(low, self.min_timestamp)
        self.max_timestamp = high if self.max_timestamp is None else max(high, self.max_timestamp)

    def merge(self, other: Summary) -> None:
        """Add another summary, of other batches."""
        self.batches += other.batches
        both = self.records is not None and other.records is not None
        self.records = (self.records or 0) + (other.records or 0) if both else None
        self.codecs |= other.codecs
        self.magics |= other.magics
        self.min_timestamp = _least(self.min_timestamp, other.min_timestamp)
        self.max_timestamp = _greatest(self.max_timestamp, other.max_timestamp)
        self.first_offset = _least(self.first_offset, other.first_offset)
        self.last_offset = _greatest(self.last_offset, other.last_offset)

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        return {
            "batches": self.batches,
            "records": self.records,
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
            "codecs": [codec_label(codec) for codec in sorted(self.codecs)],
            "magics": sorted(self.magics),
        }


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
