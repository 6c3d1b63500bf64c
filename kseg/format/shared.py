"""Columns whose values come from the batch, or from it and the record's offset: repeated, not read.

Owns which header field makes which column; knows no bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import ControlType
from kseg.format.header import BatchTable, sequence_after

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

#: Fields that every record of a batch shares: column of the table, or a way to get one, and dtype.
BATCH_FIELDS: dict[str, tuple[Callable[[BatchTable], Array], type]] = {
    "position": (lambda t: t.position, np.int64),
    "magic": (lambda t: t.magic, np.int8),
    "codec": (lambda t: t.codec, np.int8),
    "timestamp_type": (lambda t: np.where(t.kafka07, -1, t.timestamp_type), np.int8),
    "producer_id": (lambda t: t.producer_id, np.int64),
    "producer_epoch": (lambda t: t.producer_epoch, np.int16),
    "leader_epoch": (lambda t: t.leader_epoch, np.int32),
    "transactional": (lambda t: t.is_transactional, np.bool_),
    "control": (lambda t: t.is_control, np.bool_),
    "delete_horizon_ms": (lambda t: t.delete_horizon_ms, np.int64),
    "valid": (lambda t: t.crc_ok != 0, np.bool_),
}


class Shared:
    """The batches of one piece, ready to be spread over their records."""

    def __init__(
        self,
        table: BatchTable,
        counts: Array,
        first_offsets: Array,
        offsets: Array,
        *,
        constants_once: bool = False,
    ) -> None:
        """Keep one header, number of records and first offset a body, and the records' offsets."""
        self.constants_once = constants_once
        self.table = table
        self.counts = counts
        self.first_offsets = first_offsets
        self.offsets = offsets

    def column(self, name: str) -> Array:
        """A field by name, one value a record."""
        if name in BATCH_FIELDS:
            values, dtype = BATCH_FIELDS[name]
            return self._spread(values(self.table), dtype)
        if name == "base_offset":
            return self._spread(self.first_offsets, np.int64)
        if name == "next_offset":
            return self._spread(self._next_offsets(), np.int64)
        if name == "sequence" and (self.table.base_sequence < 0).all():
            return self._spread(np.full(len(self.table), -1), np.int32)
        if name == "sequence":
            bases = self._spread(self.table.base_sequence, np.int64)
            deltas = self.offsets - self._spread(self.table.base_offset, np.int64)
            return sequence_after(bases, deltas).astype(np.int32)
        types = self.table.control_type
        known = (types >= 0) & (types <= int(ControlType.KRAFT_VOTERS))
        types = np.where(known & self.table.is_control, types, int(ControlType.UNKNOWN))
        return self._spread(types, np.int8)

    def _spread(self, values: Array, dtype: type) -> Array:
        values = values.astype(dtype, copy=False)
        if self.constants_once and len(values) and (values == values[0]).all():
            return np.ndarray(int(self.counts.sum()), dtype, values[:1].copy(), strides=(0,))
        return np.repeat(values, self.counts)

    def _next_offsets(self) -> Array:
        """The offset after the batch; in Kafka 0.7, where the next outermost message starts."""
        step = self.table.size if self.table.kafka07 else 1
        return np.asarray(self.table.last_offset + step)


__all__ = ["BATCH_FIELDS", "Shared"]
