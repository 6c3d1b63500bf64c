"""Typed keys and values: text, JSON, and the numbers and UUIDs of Kafka's serializers.

`decode_columns` replaces bytes by values of one kind. A value that is not of that kind becomes
null, and the reason stands beside it, in a column of reasons: every log stays readable.

JSON stays text, which was checked: each of its readers has a type of its own for it, or none, and
all of them take text. UUIDs are text, too, as Kafka's serializer writes them.

Sources: Kafka `StringSerializer`, `ShortSerializer`, `IntegerSerializer`, `LongSerializer`,
`FloatSerializer`, `DoubleSerializer`, `UUIDSerializer`; RFC 8259 (JSON).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Protocol

import numpy as np

from kseg._kernels.json import mark_not_json
from kseg.constants import SCHEMA_WORDS, Bools, Uint8s
from kseg.format.request import FIELDS
from kseg.format.take import take_rows
from kseg.format.text import count_not_utf8
from kseg.format.values import (
    BinaryColumn,
    Kind,
    RecordColumns,
    TypedColumn,
    freeze,
)

Reasons = dict[int, str]


class Decoding(Protocol):
    """Keys or values that have schemas; `kseg.decode.registry` makes it.

    Attributes:
        value: the word by which `decode` names it.
        type: the Arrow type of every value.
    """

    value: str
    type: Any

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that are read besides."""

    def decode(
        self, columns: RecordColumns, name: str
    ) -> tuple[tuple[TypedColumn, ...], Bools | None]:
        """The values of a column, the reasons, the ids and names of schemas; and the rows to keep.

        All rows are kept for None.
        """


Kinds = Mapping[str, "Kind | Decoding"]

#: The columns that can be decoded, each with the column of its reasons.
ERRORS: Final = {"key": "key_error", "value": "value_error"}
#: The columns, on request, of the bytes that are not of that kind.
BYTES: Final = {"key": "key_bytes", "value": "value_bytes"}
KEPT_BYTES: Final = frozenset(BYTES.values())
#: The columns, on request, of the ids of schemas.
SCHEMA_IDS: Final = {"key": "key_schema_id", "value": "value_schema_id"}
#: The columns, on request, of the names of records, messages and JSON schemas.
SCHEMA_NAMES: Final = {"key": "key_schema_name", "value": "value_schema_name"}
#: All columns that a scan can have: with `replicas="all"`, also the partition directory.
COLUMNS: Final = (
    *("topic", "partition", "directory", *FIELDS, "timestamp_ms"),
    *(name for names in (ERRORS, BYTES, SCHEMA_IDS, SCHEMA_NAMES) for name in names.values()),
)
#: The names of Kafka's serializers, where kseg has others.
_SYNONYMS: Final = {
    "string": Kind.TEXT,
    "short": Kind.INT16,
    "integer": Kind.INT32,
    "long": Kind.INT64,
}
#: Every name of a kind, the usual ones first.
KIND_NAMES: Final = (*(kind.value for kind in Kind), *_SYNONYMS)
#: The types of numbers as they are stored.
_NUMBERS: Final[dict[Kind, np.dtype[Any]]] = {
    Kind.INT16: np.dtype(">i2"),
    Kind.INT32: np.dtype(">i4"),
    Kind.INT64: np.dtype(">i8"),
    Kind.FLOAT: np.dtype(">f4"),
    Kind.DOUBLE: np.dtype(">f8"),
}
#: Larger values are not parsed a second time to find the position of an error in JSON.
_EXPLAINED_BYTES_MAX: Final = 1 << 20
_UUID_BYTES: Final = 36
_UUID_DASHES: Final = (8, 13, 18, 23)
#: Before a value: 0, and the id of its schema.
_PREFIX: Final = Struct(">bi")
#: A row limit that bounds the memory for intermediate results, for pieces of any size.
_UUIDS_AT_ONCE: Final = 16_384


def kind_of(name: str) -> Kind:
    """The kind with a name, Kafka's or kseg's; ValueError for any other name."""
    word = name.strip().lower() if isinstance(name, str) else name
    try:
        return _SYNONYMS[word] if word in _SYNONYMS else Kind(word)
    except ValueError:
        names = ", ".join((*KIND_NAMES, *SCHEMA_WORDS))
        raise ValueError(f"nothing is decoded as {name!r}; there are: {names}") from None


def has_schemas(decode: Any) -> bool:
    """Whether a `decode=`, or a word in it, is for values that have schemas."""
    is_by_field = isinstance(decode, Mapping) and decode.keys() <= ERRORS.keys()
    words = decode.values() if is_by_field else [decode]
    return any(
        word in SCHEMA_WORDS if isinstance(word, str) else word is not None for word in words
    )


def kinds_of(decode: Mapping[str, Any] | str | None) -> dict[str, Kind | Decoding]:
    """The kinds in `decode={"key": "text", "value": "json"}`; a single word is for values.

    Raises:
        ValueError: a field or a kind does not exist.
        TypeError: `decode` is not a mapping.
    """
    if decode is None:
        return {}
    if isinstance(decode, str):
        return {"value": kind_of(decode)}
    if not isinstance(decode, Mapping):
        raise TypeError(f'decode is a dict such as {{"value": "json"}}, not {decode!r}')
    for name in decode:
        if name not in ERRORS:
            raise ValueError(f"{name!r} is not decoded; there are: {', '.join(ERRORS)}")
    return {
        name: kind if hasattr(kind, "needs") else kind_of(kind) for name, kind in decode.items()
    }


def key_bytes(key: Any, kinds: Kinds) -> bytes | None:
    """The bytes of a key that a caller looks for; None for None.

    Args:
        key: bytes, or text as UTF-8; a number, if the keys are decoded as numbers of its kind; or
            a `UUID`.
        kinds: the kinds that keys and values are decoded as.

    Raises:
        TypeError: it is not one of these.
        ValueError: the number is too large for its kind.
    """
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, bytearray | memoryview):
        return bytes(key)
    kind = kinds.get("key")
    if isinstance(key, str) or (kind is Kind.UUID and hasattr(key, "hex")):
        return str(key).encode()
    if kind not in _NUMBERS or isinstance(key, bool):
        raise TypeError(
            f"key is bytes or text, not {key!r}; a number needs its kind, such as"
            ' decode={"key": "int64"}'
        )
    number = np.array(key)
    converted = number.astype(_NUMBERS[kind]) if number.dtype.kind in "iuf" else None
    if converted is None or (kind is not Kind.FLOAT and converted != number):
        raise ValueError(f"key {key!r} is no {kind.value}")
    return converted.tobytes()


def decoded_fields(
    fields: Iterable[str], kinds: Kinds, *, keep_bytes: bool = False
) -> tuple[str, ...]:
    """The fields, each decoded field followed by its reasons, unless they are named already.

    Args:
        fields: as they were named.
        kinds: the kinds of the decoded columns.
        keep_bytes: also add the bytes of values that do not decode.

    Raises:
        ValueError: one is to be decoded that is not among the fields, or has reasons and is not
            decoded.
    """
    named = tuple(fields)
    for name, error in ERRORS.items():
        if name in kinds and name not in named and error not in named:
            raise ValueError(f"decode names {name!r}, which is not among the fields")
        for beside in (error, BYTES[name], SCHEMA_IDS[name], SCHEMA_NAMES[name]):
            if beside in named and name not in kinds:
                raise ValueError(f"field {beside!r} is there where decode names {name!r}")
    further, names = (ERRORS, BYTES) if keep_bytes else (ERRORS,), list[str]()
    for name in named:
        names.append(name)
        if name in kinds:
            names += (columns[name] for columns in further if columns[name] not in named)
    return tuple(names)


def without_errors(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields without the reasons that `decoded_fields` put after decoded ones."""
    pairs = zip((None, *fields), fields, strict=False)
    return tuple(name for before, name in pairs if before is None or ERRORS.get(before) != name)


def read_fields(fields: Iterable[str], kinds: Kinds | None = None) -> tuple[str, ...]:
    """The fields to read: a decoded key needs the key, for example.

    Args:
        fields: the requested fields.
        kinds: the kinds of the decoded columns, which may need others.
    """
    sources = {"timestamp_ms": "timestamp"}
    for beside in (ERRORS, BYTES, SCHEMA_IDS, SCHEMA_NAMES):
        sources |= {column: name for name, column in beside.items()}
    fields_read = dict.fromkeys(sources.get(name, name) for name in fields)
    for name, kind in (kinds or {}).items():
        if name in fields_read and not isinstance(kind, Kind):
            fields_read |= dict.fromkeys(kind.needs)
    return tuple(fields_read)


def decode_columns(
    columns: RecordColumns, decode: Mapping[str, Any], *, keep_bytes: bool = False
) -> RecordColumns:
    """The records with keys, values or both decoded, and the reasons where that failed.

    Args:
        columns: with the columns to be decoded.
        decode: a kind for "key", "value" or both: text, json, int16, int32, int64, float, double or
            uuid; Kafka's names string, short, integer and long are taken, too.
        keep_bytes: also give the bytes that are not of that kind.

    Returns:
        Columns in which `key`, say, is a `TypedColumn`, and `key_error` is after it: text, null
        where the key was decoded or is null. With `keep_bytes`, `key_bytes` has the bytes of those
        that have an error, and is null elsewhere. Bytes are shared where nothing has to change.

    Raises:
        ValueError: a field or a kind that there is not.
        MissingFieldError: a column was not read.

    Example:
        >>> import kseg
        >>> (columns,) = kseg.scan("orders-0", offset=(240, 242), columns=("key",))
        >>> kseg.decode_columns(columns, {"key": "text"}).key.to_pylist()
        ['key-16', 'key-56']
    """
    kinds = kinds_of(decode)
    arrays: dict[str, Any] = {}
    chosen: Bools | None = None
    for name, column in columns.arrays.items():
        arrays[name] = column
        kind = kinds.get(name)
        if kind is not None:
            if isinstance(kind, Kind):
                arrays[name], arrays[ERRORS[name]] = decode_column(column, kind)
            else:
                typed, of_record = kind.decode(columns, name)
                names = (name, ERRORS[name], SCHEMA_IDS[name], SCHEMA_NAMES[name])
                arrays |= zip(names, typed, strict=True)
                if of_record is not None:
                    chosen = of_record if chosen is None else chosen & of_record
            if keep_bytes:
                wrong = arrays[ERRORS[name]].values.is_valid()
                arrays[BYTES[name]] = _with_only(column, wrong)
    decoded = replace(columns, arrays=arrays)
    return decoded if chosen is None else take_rows(decoded, np.flatnonzero(chosen))


def decode_column(column: BinaryColumn, kind: Kind) -> tuple[TypedColumn, TypedColumn]:
    """The values of one column, and why some are null: their bytes are not of that kind."""
    if kind in _NUMBERS:
        values, reasons = _numbers(column, kind)
    else:
        reasons = _TEXTS[kind](column)
        valid = _with_nulls(column, reasons)
        if kind is Kind.UUID:
            # Make hex letters lower case, as Kafka does; digits and dashes have this bit already.
            valid = replace(valid, data=valid.data | np.uint8(0x20))
        values = TypedColumn(kind, valid)
    errors = TypedColumn(Kind.TEXT, reason_column(len(column), reasons))
    freeze(values)
    freeze(errors)
    return values, errors


def reason_column(count: int, reasons: Reasons) -> BinaryColumn:
    """The reasons of some rows, null for the others."""
    rows = sorted(reasons)
    texts = [reasons[row].encode() for row in rows]
    sizes, some = np.zeros(count + 1, np.int32), np.zeros(count, np.bool_)
    some[rows] = True
    sizes[1:][some] = [len(text) for text in texts]
    data = np.frombuffer(b"".join(texts), np.uint8)
    bits = np.packbits(some, bitorder="little")
    return BinaryColumn(np.cumsum(sizes, dtype=np.int32), data, bits, count - len(rows))


def payload_kinds(column: BinaryColumn) -> Iterator[str]:
    """The kind of each value: null, empty, json, text, binary, or "schema" and an id.

    A registry's serializers write a zero byte and the id before a value. JSON is an object or an
    array.
    """
    marks = np.zeros(len(column), np.uint8)
    mark_not_json(column.offsets, column.data.data, marks)
    for value, is_other in zip(column, marks.tolist(), strict=True):
        if not value:
            yield "null" if value is None else "empty"
        elif value[0] == 0 and len(value) >= _PREFIX.size:
            yield f"schema {_PREFIX.unpack_from(value)[1]}"
        elif not is_other and value.lstrip()[:1] in (b"{", b"["):
            yield "json"
        else:
            yield "text" if _is_utf8(value) else "binary"


# ---- numbers -------------------------------------------------------------------------------------


def _numbers(column: BinaryColumn, kind: Kind) -> tuple[TypedColumn, Reasons]:
    """Decode all values of a kind with a fixed size; and the reasons why some do not decode."""
    stored = _NUMBERS[kind]
    sizes = column.sizes()
    right = sizes == stored.itemsize
    native = stored.newbyteorder("=")
    if right.all():
        return TypedColumn(kind, column.data.view(stored).astype(native)), {}
    values = np.zeros(len(column), native)
    values[right] = _fixed_size_bytes(column, right, stored.itemsize).view(stored)[:, 0]
    wrong = np.flatnonzero(~right & (sizes >= 0)).tolist()
    reasons = {
        row: f"{kind.value} is {stored.itemsize} bytes, not {size}"
        for row, size in zip(wrong, sizes[wrong].tolist(), strict=True)
    }
    return TypedColumn(kind, values, right), reasons


def _fixed_size_bytes(column: BinaryColumn, rows: Bools, size: int) -> Uint8s:
    """uint8[rows, size]: the bytes of values that all have this size."""
    chosen = column.data[np.repeat(rows, np.diff(column.offsets))]
    return chosen.reshape(-1, size)


# ---- text ----------------------------------------------------------------------------------------


def _not_text(column: BinaryColumn) -> Reasons:
    return {row: _not_utf8_reason(column[row] or b"") for row in _not_utf8(column, 0, len(column))}


def _not_utf8(column: BinaryColumn, first: int, end: int) -> Iterator[int]:
    """The values that are not UTF-8, in order: found by bisection, since they are few."""
    ends, data = column.offsets.data, column.data.data
    if not count_not_utf8(ends, data, first, end):
        return
    if end - first == 1:
        yield first
        return
    middle = (first + end) // 2
    yield from _not_utf8(column, first, middle)
    yield from _not_utf8(column, middle, end)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _not_utf8_reason(value: bytes) -> str:
    """Says where a value is no longer UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    raise AssertionError("a value was found not to be UTF-8, and is")


def _not_json(column: BinaryColumn) -> Reasons:
    """The rows whose values are not JSON, each with the reason."""
    marks = np.zeros(len(column), np.uint8)
    mark_not_json(column.offsets, column.data.data, marks)
    reasons = _not_text(column)
    for row in np.flatnonzero(marks & column.is_valid()).tolist():
        if row not in reasons:
            reasons[row] = _not_json_reason(column[row] or b"")
    return reasons


def _not_json_reason(value: bytes) -> str:
    """Says where a value is no longer JSON, according to Python's own library."""
    if not value:
        return "empty, which is not JSON"
    if len(value) <= _EXPLAINED_BYTES_MAX:
        import json  # imported late: most readers do not need it

        try:
            json.loads(value.decode(), parse_constant=_refuse)
        except json.JSONDecodeError as error:
            return f"not JSON at character {error.pos}: {error.msg}"
        except RecursionError:
            return "JSON that is nested too deeply"
        except ValueError as error:
            return str(error)
        return "JSON that is nested too deeply"
    return "not JSON"


def _refuse(word: str) -> None:
    raise ValueError(f"not JSON: {word}")


def _not_uuid(column: BinaryColumn) -> Reasons:
    """Mark values that are not the 36 characters of a UUID, in either case."""
    wrong = [
        first + row
        for first in range(0, len(column), _UUIDS_AT_ONCE)
        for row in _not_uuid_rows(column[first : first + _UUIDS_AT_ONCE])
    ]
    return dict.fromkeys(wrong, "not the text of a UUID")


def _not_uuid_rows(column: BinaryColumn) -> list[int]:
    """The rows that are not the text of a UUID: 36 characters, hexadecimal digits and dashes."""
    sizes = column.sizes()
    right = sizes == _UUID_BYTES
    shown = _fixed_size_bytes(column, right, _UUID_BYTES)
    lower = shown | 0x20
    letters = (lower >= ord("a")) & (lower <= ord("f"))
    digits = letters | ((shown >= ord("0")) & (shown <= ord("9")))
    digits[:, _UUID_DASHES] = shown[:, _UUID_DASHES] == ord("-")
    right[right] = digits.all(axis=1)
    wrong: list[int] = np.flatnonzero(~right & (sizes >= 0)).tolist()
    return wrong


def _with_nulls(column: BinaryColumn, reasons: Reasons) -> BinaryColumn:
    """The column with some values set to null, whose bytes no reader should see."""
    if not reasons:
        return column
    is_decoded = np.ones(len(column), np.bool_)
    is_decoded[list(reasons)] = False
    return _with_only(column, is_decoded)


def _with_only(column: BinaryColumn, chosen: Bools) -> BinaryColumn:
    """The column with all values null except the chosen ones."""
    valid, sizes = column.is_valid() & chosen, np.diff(column.offsets)
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.where(valid, sizes, 0), out=ends[1:])
    data = column.data[: column.offsets[-1]][np.repeat(valid, sizes)]
    bits = np.packbits(valid, bitorder="little")
    return BinaryColumn(ends, data, bits, int(np.count_nonzero(~valid)))


_TEXTS: Final = {Kind.TEXT: _not_text, Kind.JSON: _not_json, Kind.UUID: _not_uuid}
