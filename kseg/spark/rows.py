"""Record columns as Arrow batches of exactly the types that Spark accepts.

Spark refuses what is merely equivalent (large or view binaries, dictionaries, milliseconds), so
each column is built here to the letter. Bytes are not copied: key, value and headers are already
in Arrow's layout. What the path says (topic, partition) is repeated for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg.arrow import binary_array, headers_array
from kseg.constants import NO_TIMESTAMP, Compression, ControlType
from kseg.spark.schema import Projection, arrow_schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.values import RecordColumns
    from kseg.spark.plan import Split

_US_PER_MS: Final = 1000
#: Milliseconds whose microseconds fit in 64 bits.
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS
_CODEC_NAMES: Final = {int(codec): codec.label for codec in Compression}
_CONTROL_NAMES: Final = {int(kind): kind.name for kind in ControlType}


class RowBuilder:
    """Turns pieces of one query's splits into record batches of one schema."""

    def __init__(self, projection: Projection) -> None:
        """Fix the columns."""
        self.projection = projection
        self.schema = arrow_schema(projection)

    def build(self, columns: RecordColumns, split: Split) -> pa.RecordBatch:
        """One batch with a row per record; it shares the memory of `columns`."""
        arrays = [
            _BUILDERS[column.column.name](columns, split, field.type)
            for column, field in zip(self.projection.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_Builder = Callable[["RecordColumns", "Split", pa.DataType], pa.Array]


def _integers(field: str) -> _Builder:
    """A field as it is, or widened to Spark's INT."""

    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return pa.array(columns[field].astype(kind.to_pandas_dtype(), copy=False), kind)

    return build


def _bytes(field: str) -> _Builder:
    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return binary_array(columns[field], kind)

    return build


def _labels(field: str, names: Mapping[int, str]) -> _Builder:
    """Small codes as words; one that has no name becomes its number."""

    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        codes, slots = np.unique(columns[field], return_inverse=True)
        words = pa.array([names.get(int(code), str(code)) for code in codes], kind)
        return words.take(pa.array(slots))

    return build


def _control_type(columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
    words = _labels("control_type", _CONTROL_NAMES)(columns, split, kind)
    return pa.array(np.asarray(words), kind, mask=~columns["control"])


def _timestamp(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """Microseconds; null for none and for what does not fit in them."""
    times = columns["timestamp"]
    valid = (times != NO_TIMESTAMP) & (times <= _MS_MAX) & (times >= -_MS_MAX)
    micros = np.where(valid, times, 0) * _US_PER_MS
    return pa.Array.from_buffers(kind, len(times), [_bits(valid), pa.py_buffer(micros)])


def _delete_horizon(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    times = columns["delete_horizon_ms"]
    return pa.array(times, kind, mask=times == NO_TIMESTAMP)


def _of_split(attribute: str) -> _Builder:
    """One value for every row."""

    def build(columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(getattr(split, attribute), kind), len(columns))

    return build


def _headers(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """A list of name and value; null without headers, as Spark's Kafka source has it."""
    lists = headers_array(columns["headers"], kind)
    some = _bits(np.diff(columns["headers"].offsets) != 0)
    return pa.Array.from_buffers(
        kind, len(lists), [some, lists.buffers()[1]], children=[lists.values]
    )


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """A validity bitmap, least significant bit first; None where all are valid."""
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


_BUILDERS: Final[dict[str, Any]] = {
    "key": _bytes("key"),
    "value": _bytes("value"),
    "topic": _of_split("topic"),
    "partition": _of_split("partition"),
    "offset": _integers("offset"),
    "timestamp": _timestamp,
    "timestampType": _integers("timestamp_type"),
    "headers": _headers,
    "timestampMs": _integers("timestamp"),
    "leaderEpoch": _integers("leader_epoch"),
    "producerId": _integers("producer_id"),
    "producerEpoch": _integers("producer_epoch"),
    "sequence": _integers("sequence"),
    "baseOffset": _integers("base_offset"),
    "position": _integers("position"),
    "magic": _integers("magic"),
    "codec": _labels("codec", _CODEC_NAMES),
    "transactional": _integers("transactional"),
    "control": _integers("control"),
    "controlType": _control_type,
    "deleteHorizonMs": _delete_horizon,
    "path": _of_split("path"),
}
