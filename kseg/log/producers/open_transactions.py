"""Transactions in the order of their first offsets; the oldest is known at once.

Source: Kafka `ProducerStateManager`, whose maps are sorted trees.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from kseg.log.producers.entry import OffsetMetadata


class TransactionsByOffset:
    """A map from first offset to the producer and place of a transaction, in rising order.

    Nearly all come in at the end and go out near the front, which is cheap.
    """

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        """Begin without any."""
        self._offsets: list[int] = []
        self._values: dict[int, tuple[int, OffsetMetadata]] = {}

    def __len__(self) -> int:
        """How many."""
        return len(self._offsets)

    def __iter__(self) -> Iterator[tuple[int, OffsetMetadata]]:
        """Producer id and first offset of each, the oldest first."""
        return map(self._values.__getitem__, self._offsets)

    @property
    def oldest(self) -> tuple[int, OffsetMetadata] | None:
        """Producer id and first offset of the oldest."""
        return self._values[self._offsets[0]] if self._offsets else None

    def oldest_of_another(self, producer_id: int) -> OffsetMetadata | None:
        """First offset of the oldest that is not of that producer."""
        for owner, place in self:
            if owner != producer_id:
                return place
        return None

    def put(self, producer_id: int, place: OffsetMetadata) -> None:
        """Add one, in place of another that begins at the same offset."""
        offset = place.offset
        if offset not in self._values:
            if not self._offsets or offset > self._offsets[-1]:
                self._offsets.append(offset)
            else:
                insort(self._offsets, offset)
        self._values[offset] = producer_id, place

    def remove(self, offset: int) -> tuple[int, OffsetMetadata] | None:
        """Take out the one that begins at `offset`; None if there is none."""
        value = self._values.pop(offset, None)
        if value is not None:
            del self._offsets[bisect_left(self._offsets, offset)]
        return value

    def keep(self, offsets: set[int]) -> None:
        """Take out all but those that begin at one of `offsets`."""
        self._offsets = [offset for offset in self._offsets if offset in offsets]
        self._values = {offset: self._values[offset] for offset in self._offsets}

    def clear(self) -> None:
        """Take out all."""
        self._offsets.clear()
        self._values.clear()


__all__ = ["TransactionsByOffset"]
