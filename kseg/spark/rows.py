"""Record columns as Arrow batches of exactly the types that Spark accepts.

Spark refuses equivalent types (large or view binaries, dictionaries, milliseconds), so each column
is built here with exactly Spark's type. Bytes are not copied: key, value and headers are already in
Arrow's layout. Topic and partition come from the path and are repeated for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg.arrow import binary_array, headers_array, typed_array
from kseg.constants import NO_TIMESTAMP, Compression, ControlType
from kseg.format.values import TypedColumn
from kseg.spark.schema import Projection, arrow_schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.values import RecordColumns
    from kseg.spark.damage import Damage
    from kseg.spark.plan import Split

_US_PER_MS: Final = 1000
#: Milliseconds whose microseconds fit in 64 bits.
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS
_CODEC_NAMES: Final = {int(codec): codec.label for codec in Compression}
_CONTROL_NAMES: Final = {int(kind): kind.name for kind in ControlType}


class RowBuilder:
    """Turns the rows of one query's splits into record batches of one schema."""

    def __init__(self, projection: Projection, builders: Mapping[str, Any] | None = None) -> None:
        """Fix the columns.

        Args:
            projection: those of the query.
            builders: by name, the function that makes a column from a source of rows, a split and
                an Arrow type; those of records if None.
        """
        self.schema: Final = arrow_schema(projection)
        known = _BUILDERS if builders is None else builders
        self._builders: Final = [known[column.column.name] for column in projection.columns]
        self._projection: Final = projection

    def build(self, rows: Any, split: Split) -> pa.RecordBatch:
        """One batch with a row for each of `rows`, whose memory it shares."""
        arrays = [
            build(rows, split, field.type)
            for build, field in zip(self._builders, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def build_damaged(self, damages: Sequence[Damage], split: Split) -> pa.RecordBatch:
        """A row for each damage: where it is and what; null in all other columns."""
        told: dict[str, list[Any]] = {
            "topic": [split.topic] * len(damages),
            "partition": [split.partition] * len(damages),
            "path": [damage.path for damage in damages],
            "offset": [damage.offset for damage in damages],
            "position": [damage.position for damage in damages],
            "corrupt": [str(damage) for damage in damages],
        }
        none = [None] * len(damages)
        arrays = [
            pa.array(told.get(column.column.name, none), field.type)
            for column, field in zip(self._projection.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_Builder = Callable[[Any, "Split", pa.DataType], pa.Array]


def _integers(field: str) -> _Builder:
    """An integer field as it is, or widened to Spark's INT."""

    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return pa.array(columns[field].astype(kind.to_pandas_dtype(), copy=False), kind)

    return build


def _bytes(field: str) -> _Builder:
    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        column = columns[field]
        if isinstance(column, TypedColumn):
            return typed_array(column, kind)
        return binary_array(column, kind)

    return build


def _reasons(field: str) -> _Builder:
    def build(columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
        if field not in columns.arrays:
            return _nothing(columns, split, kind)
        return typed_array(columns[field], kind)

    return build


def _labels(field: str, names: Mapping[int, str]) -> _Builder:
    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return labelled(columns[field], names, kind)

    return build


def labelled(codes: npt.NDArray[Any], names: Mapping[int, str], kind: pa.DataType) -> pa.Array:
    """Small codes as words; a code without a name becomes its number."""
    known, slots = np.unique(codes, return_inverse=True)
    words = pa.array([names.get(int(code), str(code)) for code in known], kind)
    return words.take(pa.array(slots))


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


def of_split(attribute: str) -> _Builder:
    """One value of the split for every row."""

    def build(rows: Any, split: Split, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(getattr(split, attribute), kind), len(rows))

    return build


def _nothing(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(columns), kind)


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
    "topic": of_split("topic"),
    "partition": of_split("partition"),
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
    "path": of_split("path"),
    "keyError": _reasons("key_error"),
    "valueError": _reasons("value_error"),
    "corrupt": _nothing,
}
