"""Records as columns in Arrow's layout, and as objects for people who want them: values only.

They own their memory, are read-only, and pickle. `kseg.format.columns` fills them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kseg.constants import NO_TIMESTAMP, TimestampType
from kseg.errors import MissingFieldError
from kseg.format.times import as_datetime

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class BinaryColumn:
    """Byte strings in Arrow's layout.

    Attributes:
        offsets: int32[n + 1]; value `i` is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8[offsets[n]].
        validity: uint8[(n + 7) // 8], bit `i` (least significant first) set where value `i` is not
            null; None where nothing is null.
        null_count: how many are null.
    """

    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]
    validity: npt.NDArray[np.uint8] | None
    null_count: int

    def __len__(self) -> int:
        """How many values."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        """One value; None for null."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        """Each value; None for null."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        valid = self.is_valid().tolist()
        for index, ok in enumerate(valid):
            yield data[ends[index] : ends[index + 1]] if ok else None

    def is_valid(self) -> npt.NDArray[np.bool_]:
        """bool[n]: false for null."""
        if self.validity is None:
            return np.ones(len(self), np.bool_)
        return np.unpackbits(self.validity, count=len(self), bitorder="little").astype(np.bool_)

    def sizes(self) -> npt.NDArray[np.int32]:
        """int32[n]: bytes of each value, -1 for null."""
        return np.where(self.is_valid(), np.diff(self.offsets), np.int32(-1)).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class HeadersColumn:
    """The headers of each record, in order, duplicates kept.

    Attributes:
        offsets: int32[n + 1]; record `i` has headers `offsets[i]` to `offsets[i + 1]`.
        keys: names as stored (UTF-8 by convention, not checked), never null.
        values: values, null and empty kept apart.
    """

    offsets: npt.NDArray[np.int32]
    keys: BinaryColumn
    values: BinaryColumn

    def __len__(self) -> int:
        """How many records."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[tuple[bytes, bytes | None], ...]]:
        """Each record's headers as pairs of name and value."""
        pairs = [(key or b"", value) for key, value in zip(self.keys, self.values, strict=True)]
        ends = self.offsets.tolist()
        for index in range(len(self)):
            yield tuple(pairs[ends[index] : ends[index + 1]])


class Record(NamedTuple):
    """One record as an object. Header names are the bytes stored; None is null."""

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]

    @property
    def time(self) -> datetime | None:
        """The timestamp as a `datetime` in UTC; None without one; see `kseg.as_datetime`."""
        return as_datetime(self.timestamp)


#: What `Record` needs: `kseg.format.request.FIELDS_DEFAULT` and the type of the timestamp.
RECORD_FIELDS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


_COLUMNS_STATE = ("length", "arrays", "source", "topic", "partition", "timestamp_types")


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records of one piece: the fields asked for, one value a record, owned and read-only.

    Attributes:
        length: how many records.
        arrays: a NumPy array, `BinaryColumn` or `HeadersColumn` by field name.
        source: the segment they come from, where a reader knows it.
        topic: the topic they come from, where a scan knows it.
        partition: the partition they come from, where a scan knows it.
        timestamp_types: for `records`, if the type is no column: the type of all timestamps, or
            int8[n] if they differ; None if not known.
    """

    length: int
    arrays: dict[str, Any] = field(repr=False)
    source: str | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp_types: int | npt.NDArray[np.int8] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """How many records."""
        return self.length

    def __getitem__(self, name: str) -> Any:
        """A column by its field's name; MissingFieldError, a KeyError, if it was not asked for."""
        try:
            return self.arrays[name]
        except KeyError:
            raise self._missing([name]) from None

    def __getattr__(self, name: str) -> Any:
        """A column as an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.arrays[name]
        except KeyError:
            raise self._missing([name]) from None

    def _missing(self, names: Sequence[str]) -> MissingFieldError:
        wanted = ", ".join(map(repr, names))
        there = ", ".join(map(repr, self.arrays)) or "none"
        return MissingFieldError(
            f"{wanted} was not read; name it in `fields` where the columns are made (read: {there})"
        )

    @property
    def times(self) -> npt.NDArray[np.datetime64]:
        """datetime64[ms][n]: the timestamps in UTC, NaT for -1; no copy if each record has one."""
        values = self["timestamp"]
        known = values != NO_TIMESTAMP
        times: npt.NDArray[np.datetime64] = values.view("datetime64[ms]")
        return times if known.all() else np.where(known, times, np.datetime64("NaT", "ms"))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the columns, in the order asked for."""
        return tuple(self.arrays)

    def __getstate__(self) -> list[object]:
        """The fields, in order."""
        return [getattr(self, name) for name in _COLUMNS_STATE]

    def __setstate__(self, state: list[Any]) -> None:
        """Restore, read-only again."""
        for name, value in zip(_COLUMNS_STATE, state, strict=True):
            object.__setattr__(self, name, value)
        for column in (*self.arrays.values(), self.timestamp_types):
            freeze(column)

    def records(self) -> Iterator[Record]:
        """Each record as an object; needs the default fields, or `RECORD_FIELDS`.

        Raises:
            MissingFieldError: one of those was not read.
        """
        arrays = self.arrays
        if self.timestamp_types is not None and "timestamp_type" not in arrays:
            types = np.broadcast_to(self.timestamp_types, self.length)
            arrays = {**arrays, "timestamp_type": types}
        missing = [name for name in RECORD_FIELDS if name not in arrays]
        if missing:
            raise self._missing(missing)
        return self._records([arrays[name] for name in RECORD_FIELDS])

    @staticmethod
    def _records(columns: list[Any]) -> Iterator[Record]:
        columns[0:3] = [column.tolist() for column in columns[0:3]]
        kinds = {int(kind): kind for kind in TimestampType}
        for offset, timestamp, kind, key, value, headers in zip(*columns, strict=True):
            yield Record(offset, timestamp, kinds[kind], key, value, headers)


def freeze(column: Any) -> None:
    """Make a column read-only, whatever its kind."""
    if isinstance(column, np.ndarray):
        column.flags.writeable = False
    elif isinstance(column, BinaryColumn):
        freeze(column.offsets)
        freeze(column.data)
        freeze(column.validity)
    elif isinstance(column, HeadersColumn):
        freeze(column.offsets)
        freeze(column.keys)
        freeze(column.values)


__all__ = [
    "RECORD_FIELDS",
    "BinaryColumn",
    "HeadersColumn",
    "Record",
    "RecordColumns",
    "freeze",
]
