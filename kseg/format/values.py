"""Records as columns in Arrow's layout, and as objects for people who want them: values only.

They own their memory, are read-only, and pickle. `kseg.format.columns` fills them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, SupportsIndex, overload

import numpy as np

from kseg._kernels.rows import Dicts, Rows
from kseg.constants import NO_TIMESTAMP, Bools, Int8s, Int32s, Int64s, TimestampType, Uint8s
from kseg.documents import frozen_dataclass
from kseg.errors import MissingFieldError
from kseg.extras import require
from kseg.format.times import DATETIMES_MS, as_datetime
from kseg.frames import Frames, html_table

if TYPE_CHECKING:
    from uuid import UUID

    import numpy.typing as npt
    import pyarrow


@frozen_dataclass(eq=False)
class BinaryColumn:
    """Byte strings in Arrow's layout.

    Attributes:
        offsets: int32[n + 1]; value `i` is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8[offsets[n]].
        validity: uint8[(n + 7) // 8], bit `i` (least significant first) set where value `i` is not
            null; None where nothing is null.
        null_count: the number of nulls.
    """

    offsets: Int32s
    data: Uint8s
    validity: Uint8s | None = None
    null_count: int = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> BinaryColumn: ...
    def __getitem__(self, index: int | slice) -> bytes | BinaryColumn | None:
        """One value, None for null; or the values of a slice, over the same data."""
        if isinstance(index, slice):
            return self._part(*_run(index, len(self)))
        index = _at(index, len(self))
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        """Each value; None for null."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        valid = self.is_valid().tolist()
        for index, ok in enumerate(valid):
            yield data[ends[index] : ends[index + 1]] if ok else None

    def _part(self, first: int, end: int) -> BinaryColumn:
        """Some rows as a column of their own, which shares the bytes."""
        valid = self.is_valid()[first:end]
        ends = self.offsets[first : end + 1]
        validity = None if valid.all() else np.packbits(valid, bitorder="little")
        part = BinaryColumn(
            ends - ends[0],
            self.data[ends[0] : ends[-1]],
            validity,
            int(np.count_nonzero(~valid)),
        )
        freeze(part)
        return part

    def to_pylist(self) -> list[bytes | None]:
        """The values; None for null."""
        return list(self)

    def __repr__(self) -> str:
        """A text with the numbers of values, nulls and bytes."""
        return f"BinaryColumn({len(self)} values, {self.null_count} null, {len(self.data)} bytes)"

    def is_valid(self) -> Bools:
        """Which values are not null, bool[n]."""
        if self.validity is None:
            return np.ones(len(self), np.bool_)
        return np.unpackbits(self.validity, count=len(self), bitorder="little").astype(np.bool_)

    def sizes(self) -> Int32s:
        """int32[n]: bytes of each value, -1 for null."""
        if self.validity is None:
            return np.diff(self.offsets)
        return np.where(self.is_valid(), np.diff(self.offsets), np.int32(-1)).astype(np.int32)


@frozen_dataclass(eq=False)
class HeadersColumn:
    """The headers of each record, in order, duplicates kept.

    Attributes:
        offsets: int32[n + 1]; record `i` has headers `offsets[i]` to `offsets[i + 1]`.
        keys: names as stored (UTF-8 by convention, not checked), never null.
        values: the values; null and empty differ.
    """

    offsets: Int32s
    keys: BinaryColumn
    values: BinaryColumn

    def __len__(self) -> int:
        """The number of records."""
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[tuple[bytes, bytes | None], ...]: ...
    @overload
    def __getitem__(self, index: slice) -> HeadersColumn: ...
    def __getitem__(
        self, index: int | slice
    ) -> tuple[tuple[bytes, bytes | None], ...] | HeadersColumn:
        """The headers of one record as pairs of name and value; or the column of a slice."""
        if isinstance(index, slice):
            return self._part(*_run(index, len(self)))
        index = _at(index, len(self))
        (pairs,) = self._part(index, index + 1)
        return pairs

    def _part(self, first: int, end: int) -> HeadersColumn:
        """Some rows as a column of their own, which shares the bytes."""
        ends = self.offsets[first : end + 1]
        inside = slice(int(ends[0]), int(ends[-1]))
        part = HeadersColumn(ends - ends[0], self.keys[inside], self.values[inside])
        freeze(part)
        return part

    def to_pylist(self) -> list[tuple[tuple[bytes, bytes | None], ...]]:
        """Each record's headers as pairs of name and value."""
        return list(self)

    def __repr__(self) -> str:
        """A text with the numbers of records and headers."""
        return f"HeadersColumn({len(self)} records, {len(self.keys)} headers)"

    def __iter__(self) -> Iterator[tuple[tuple[bytes, bytes | None], ...]]:
        """Each record's headers as pairs of name and value."""
        pairs = [(key or b"", value) for key, value in zip(self.keys, self.values, strict=True)]
        ends = self.offsets.tolist()
        for index in range(len(self)):
            yield tuple(pairs[ends[index] : ends[index + 1]])


class Kind(StrEnum):
    """The kinds of decoded keys and values; see `kseg.format.typed`."""

    TEXT = "text"
    JSON = "json"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    UUID = "uuid"


@frozen_dataclass(eq=False)
class TypedColumn:
    """Decoded keys or values, or the reasons of failures; null where there is none.

    Attributes:
        kind: the kind of the values; for values with schemas, their Arrow type.
        values: the text, checked, with its nulls; or numbers, any number where it is null; or an
            array of Arrow.
        valid: for numbers, bool[n], false for null; None where nothing is null, and for text.
    """

    kind: Any
    values: Any
    valid: Bools | None = None

    def __len__(self) -> int:
        """The number of values."""
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> TypedColumn: ...
    def __getitem__(self, index: int | slice) -> Any:
        """One value as Python has it, None for null; or the values of a slice."""
        if not isinstance(index, slice):
            position = _at(index, len(self))
            (value,) = self[position : position + 1]
            return value
        first, end = _run(index, len(self))
        valid = None if self.valid is None else self.valid[first:end]
        return TypedColumn(self.kind, self.values[first:end], valid)

    def __iter__(self) -> Iterator[Any]:
        """Each value as a Python object: str, parsed JSON, int, float or UUID; None for null."""
        if isinstance(self.values, BinaryColumn):
            make = _PYTHON[self.kind]
            return (None if value is None else make(value.decode()) for value in self.values)
        if not isinstance(self.values, np.ndarray):
            return iter(self.values.to_pylist(maps_as_pydicts="lossy"))
        if self.valid is None:
            return iter(self.values.tolist())
        pairs = zip(self.values.tolist(), self.valid.tolist(), strict=True)
        return (value if valid else None for value, valid in pairs)

    def to_pylist(self) -> list[Any]:
        """The values; None for null."""
        return list(self)

    @property
    def null_count(self) -> int:
        """The number of nulls."""
        if not isinstance(self.values, np.ndarray):
            return int(self.values.null_count)
        return 0 if self.valid is None else int(np.count_nonzero(~self.valid))

    def __repr__(self) -> str:
        """A text with the kind and the numbers of values and nulls."""
        return f"TypedColumn({self.kind}, {len(self)} values, {self.null_count} null)"


def _from_json(text: str) -> Any:
    """Parse JSON, which may have very long whole numbers."""
    import json  # imported late: most readers do not need it

    try:
        return json.loads(text)
    except ValueError:  # an integer with more digits than `int` accepts
        from decimal import Decimal

        return json.loads(text, parse_int=Decimal)


def _from_uuid(text: str) -> UUID:
    import uuid  # imported late: it is slow, and most readers do not need it

    return uuid.UUID(text)


_PYTHON: dict[Kind, Callable[[str], Any]] = {
    Kind.TEXT: str,
    Kind.JSON: _from_json,
    Kind.UUID: _from_uuid,
}


class Record(NamedTuple):
    """One record as an object. Header names are the stored bytes; None stands for null."""

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]

    @property
    def time(self) -> datetime | None:
        """The timestamp as a `datetime` in UTC; None for no time; see `kseg.times.as_datetime`."""
        return as_datetime(self.timestamp)


class _Shared(dict[str, Any]):
    """Columns that share one block.

    Attributes:
        nbytes: the size of the block.
    """

    nbytes: int


def _bytes_of(column: Any) -> int:
    """Bytes of a column's arrays."""
    if isinstance(column, np.ndarray):
        return column.nbytes
    if not is_dataclass(column):
        return 0
    return sum(_bytes_of(getattr(column, part.name)) for part in fields(column))


_TIMESTAMP_TYPES = tuple(TimestampType)
#: What `Record` needs: `kseg.format.request.FIELDS_DEFAULT` and the type of the timestamp.
RECORD_FIELDS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


#: Rows that a notebook shows.
_HTML_ROWS = 10

_COLUMNS_STATE = (
    *("length", "arrays", "source", "topic", "partition", "timestamp_types", "directory"),
)


@frozen_dataclass(eq=False)
class RecordColumns(Frames):
    """Records of one piece: the requested fields, one value for each record, owned and read-only.

    Attributes:
        length: the number of records.
        arrays: a NumPy array, `BinaryColumn` or `HeadersColumn` by field name; `TypedColumn` where
            keys or values were decoded.
        source: the segment they come from, where a reader knows it.
        topic: the topic they come from, where a scan knows it.
        partition: the partition they come from, where a scan knows it.
        timestamp_types: for `records`, if the type is not a column: the type of all timestamps, or
            int8[n] if they differ; None if unknown.
        directory: the partition directory, where a scan reads several replicas.
    """

    length: int
    arrays: Mapping[str, Any] = field(repr=False)
    source: str | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp_types: int | Int8s | None = field(default=None, repr=False)
    directory: str | None = None

    if TYPE_CHECKING:  # What `__getattr__` gives; a ClassVar is no field of a dataclass.
        offset: ClassVar[Int64s]
        timestamp: ClassVar[npt.NDArray[np.datetime64]]
        timestamp_ms: ClassVar[Int64s]
        headers: ClassVar[HeadersColumn]

    def __len__(self) -> int:
        """The number of records."""
        return self.length

    def __getitem__(self, name: str | int | slice) -> Any:
        """A column by its name, a record as a dict, or the records of a slice.

        `timestamp` is datetime64[ms] in UTC, NaT where a record has no time of the years 1 to 9999;
        `timestamp_ms` is int64, -1 for no time.

        Raises:
            MissingFieldError: a KeyError: the field was not asked for.
            IndexError: there is no record at this index.
        """
        if isinstance(name, slice):
            return self._part(*_run(name, self.length))
        if not isinstance(name, str):
            index = _at(name, self.length)
            (row,) = self._part(index, index + 1)
            return row
        return self._column(name)

    def _column(self, name: str) -> Any:
        """A column by its name; `timestamp` as datetime64, `timestamp_ms` as numbers."""
        if name == "timestamp" and name in self.arrays:
            # No copy if each record has a time of the years 1 to 9999.
            values = self.arrays["timestamp"]
            times: npt.NDArray[np.datetime64] = values.view("datetime64[ms]")
            has_time = (values >= DATETIMES_MS.start) & (values < DATETIMES_MS.stop)
            has_time &= values != NO_TIMESTAMP
            return (
                times if has_time.all() else np.where(has_time, times, np.datetime64("NaT", "ms"))
            )
        column = self.arrays.get(name)
        if column is None and name == "timestamp_ms":
            column = self.arrays.get("timestamp")
        if column is None:
            raise self._missing_error([name])
        return column

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns keep alive: their shared block, or each one's own."""
        block: int | None = getattr(self.arrays, "nbytes", None)
        return sum(map(_bytes_of, self.arrays.values())) if block is None else block

    def of_arrays(self, arrays: Mapping[str, Any]) -> RecordColumns:
        """The records with only the columns `arrays`, which keep the block of all columns alive."""
        if hasattr(self.arrays, "nbytes"):
            shared = _Shared(arrays)
            shared.nbytes = self.arrays.nbytes
            arrays = shared
        return replace(self, arrays=arrays)

    def placed(
        self, topic: str | None, partition: int | None, directory: str | None = None
    ) -> RecordColumns:
        """The records with the names of their place as columns; no bytes are copied.

        Args:
            topic, partition, directory: None if unknown.
        """
        return replace(self, topic=topic, partition=partition, directory=directory)

    def _part(self, first: int, end: int) -> RecordColumns:
        types = self.timestamp_types
        part_types = types[first:end] if isinstance(types, np.ndarray) else types
        arrays = {name: column[first:end] for name, column in self.arrays.items()}
        return replace(self, length=end - first, arrays=arrays, timestamp_types=part_types)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each record as a dict: its place, if that is known, and a value for each column."""
        location = {
            name: value
            for name in ("topic", "partition", "directory")
            if (value := getattr(self, name)) is not None
        }
        columns = [_items(self._column(name)) for name in self.arrays]
        return Dicts(location, tuple(self.arrays), columns, self.length)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The records as dicts, see `__iter__`; `records` gives objects."""
        return list(self)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The records as a `pyarrow.RecordBatch`, binary data shared; needs `kseg[arrow]`."""
        return require("kseg.arrow", extra="arrow").to_record_batch(self)

    def _repr_html_(self) -> str:
        """The first records as a table, for notebooks."""
        more = f"{self.length} records" if self.length > _HTML_ROWS else ""
        return html_table(list(self[:_HTML_ROWS]), more=more)

    def __getattr__(self, name: str) -> Any:
        """A column as an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._column(name)

    def __dir__(self) -> list[str]:
        """The attributes, columns among them."""
        return [*object.__dir__(self), *self.arrays]

    def _ipython_key_completions_(self) -> list[str]:
        """The columns, for `columns["` and a tab."""
        return list(self.arrays)

    def _missing_error(self, names: Sequence[str]) -> MissingFieldError:
        """The error for columns that were not read."""
        missing = ", ".join(map(repr, names))
        names_read = ", ".join(map(repr, self.arrays)) or "none"
        return MissingFieldError(
            f"{missing} was not read; name it in `columns` of the read (read: {names_read})"
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the request."""
        return tuple(self.arrays)

    def __getstate__(self) -> list[object]:
        """The fields, in order."""
        arrays = dict(self.arrays)
        return [arrays if name == "arrays" else getattr(self, name) for name in _COLUMNS_STATE]

    def __setstate__(self, state: list[Any]) -> None:
        """Restore, read-only again."""
        for name, value in zip(_COLUMNS_STATE, state, strict=True):
            object.__setattr__(self, name, value)
        for column in (*self.arrays.values(), self.timestamp_types):
            freeze(column)

    def records(self) -> Iterator[Record]:
        """Each record as an object; needs the default fields, or `RECORD_FIELDS`.

        Raises:
            MissingFieldError: one of these fields was not read.
        """
        arrays = self.arrays
        if self.timestamp_types is not None and "timestamp_type" not in arrays:
            types = np.broadcast_to(self.timestamp_types, self.length)
            arrays = {**arrays, "timestamp_type": types}
        missing = [name for name in RECORD_FIELDS if name not in arrays]
        if missing:
            raise self._missing_error(missing)
        offsets, times, kinds, keys, values, headers = (arrays[name] for name in RECORD_FIELDS)
        kinds = np.ascontiguousarray(kinds, np.int8)
        columns = np.ascontiguousarray(offsets), np.ascontiguousarray(times), kinds
        lists = headers.to_pylist() if len(headers.keys) else None
        return Rows(Record, *columns, _TIMESTAMP_TYPES, keys, values, lists)


def _items(column: Any) -> Any:
    """The values of a column in the form that `Dicts` expects."""
    if isinstance(column, BinaryColumn):
        return column
    if isinstance(column, np.ndarray):
        is_time = column.dtype.kind == "M"
        return np.ascontiguousarray(column).view(np.int64) if is_time else column.tolist()
    if isinstance(column, HeadersColumn) and not len(column.keys):
        return [()] * len(column)
    return list(column)


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Byte strings as a column."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=ends[1:])
    is_valid = np.array([value is not None for value in values], np.bool_)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    return BinaryColumn(
        ends, data, np.packbits(is_valid, bitorder="little"), int((~is_valid).sum())
    )


def _at(index: SupportsIndex, length: int) -> int:
    """A position from the start, for one that may be negative and count from the end."""
    number = operator.index(index)
    position = number + length if number < 0 else number
    if not 0 <= position < length:
        raise IndexError(number)
    return position


def _run(part: slice, length: int) -> tuple[int, int]:
    """The first row of a slice, and the row after its last."""
    first, end, step = part.indices(length)
    if step != 1:
        raise ValueError(f"a slice of a column has no step, such as {step}")
    return first, max(first, end)


def freeze(column: Any) -> None:
    """Make a column of any kind read-only."""
    if isinstance(column, np.ndarray):
        column.flags.writeable = False
    elif is_dataclass(column):
        for part in fields(column):
            freeze(getattr(column, part.name))
