"""Payloads: the schema that each names, and their decoding in blocks of bounded size.

A schema is named in a header, or in a prefix:

    header __value_schema_id (__key_...)      01 + GUID, or 00 + id; the payload has no prefix
    header apicurio.value.globalId, .contentId   an id of 8 bytes; likewise
    prefix 00 + id                            int32, big-endian
    prefix 01 + GUID                          16 bytes

After the id or GUID of a Protobuf schema stand the indexes of the message: a count and numbers, as
zigzag varints; a single 00 is the first message. NumPy finds all of them at once.

Most payloads of a block are decoded at once, by a fast reader, which marks the rows that it does
not decode. An exact reader decodes each of these, or says why it is not a value.

Source: Confluent's `SchemaId`, `HeaderSchemaIdSerializer`, `MessageIndexes`; Apicurio's
`DefaultHeadersHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

import numpy as np

from kseg.constants import Bools, Int32s, Int64s, Uint8s
from kseg.extras import require
from kseg.format.values import BinaryColumn, HeadersColumn

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = require("pyarrow", extra="arrow")

#: Bytes of a mark with an id; of a mark with a GUID; of an id of Apicurio, which has no mark.
_ID: Final = 5
_GUID: Final = 17
_WIDE_ID: Final = 8
#: The most messages within messages, and bytes of one index.
INDEXES_MAX: Final = 64
_INDEX_BYTES_MAX: Final = 5


class Group(NamedTuple):
    """The rows that name one schema in the same way.

    Attributes:
        schema: the id or GUID of the schema.
        indexes: the indexes of the message of a Protobuf schema; empty for other schemas.
        prefix: the number of bytes before each payload.
        rows: int64[k], the rows, ascending.
    """

    schema: int | UUID
    indexes: tuple[int, ...]
    prefix: int
    rows: Int64s


class SchemaNames(NamedTuple):
    """For some rows, the bytes that begin with the name of a schema.

    Attributes:
        data: the bytes of the column.
        rows: int64[k], the rows.
        starts, ends: int64[k], the bytes of each row in `data`.
        is_prefix: whether these are the payloads, not headers.
    """

    data: Uint8s
    rows: Int64s
    starts: Int64s
    ends: Int64s
    is_prefix: bool


def split_by_schema(
    column: BinaryColumn, headers: HeadersColumn | None, name: str
) -> tuple[list[tuple[Group, SchemaNames]], Reasons]:
    """Group the values of a column by the schemas that they name.

    Args:
        column: keys or values.
        headers: the headers of the same records; None if they were not read.
        name: "key" or "value".

    Returns:
        Groups without indexes, each with the bytes after the name of the schema; and a reason for
        each value that names no schema. Nulls are in no group.
    """
    left = column.is_valid() if column.null_count else np.ones(len(column), np.bool_)
    groups: list[tuple[Group, SchemaNames]] = []
    for header, width in (
        (f"__{name}_schema_id", 0),
        (f"apicurio.{name}.globalId", _WIDE_ID),
        (f"apicurio.{name}.contentId", _WIDE_ID),
    ):
        if headers is not None and len(headers.keys):
            schema_names = _in_headers(headers, header.encode(), left)
            left[schema_names.rows] = False
            groups += _groups_of(schema_names, width)
    rows = np.flatnonzero(left)
    ends = column.offsets.astype(np.int64)
    groups += _groups_of(
        SchemaNames(column.data, rows, ends[rows], ends[rows + 1], is_prefix=True), 0
    )
    for group, _schema_names in groups:
        left[group.rows] = False
    return groups, dict.fromkeys(
        np.flatnonzero(left).tolist(), "it does not name a schema: no prefix of a registry"
    )


def _in_headers(headers: HeadersColumn, name: bytes, left: Bools) -> SchemaNames:
    """The values of the first header with a name, of those rows in `left` that have it."""
    keys, values = headers.keys, headers.values
    header_rows = np.flatnonzero(keys.sizes() == len(name))
    letters = _bytes_at(keys.data, keys.offsets[header_rows].astype(np.int64), len(name))
    header_rows = header_rows[(letters == np.frombuffer(name, np.uint8)).all(axis=1)]
    rows, first = np.unique(
        np.searchsorted(headers.offsets, header_rows, side="right") - 1, return_index=True
    )
    header_rows, rows = header_rows[first][left[rows]], rows[left[rows]].astype(np.int64)
    ends = values.offsets.astype(np.int64)
    return SchemaNames(values.data, rows, ends[header_rows], ends[header_rows + 1], is_prefix=False)


def _bytes_at(data: Uint8s, starts: Int64s, width: int) -> Uint8s:
    """uint8[n, width]: `width` bytes from each start on, which must be within `data`."""
    if not len(starts):
        return np.zeros((0, width), np.uint8)
    windows = np.ndarray(len(data) - width + 1, f"V{width}", np.ascontiguousarray(data), 0, (1,))
    chosen: Uint8s = windows[starts].view(np.uint8).reshape(-1, width)
    return chosen


def _groups_of(schema_names: SchemaNames, bare_bytes: int) -> Iterator[tuple[Group, SchemaNames]]:
    """Group rows by the bytes of their schema names.

    Args:
        schema_names: the bytes of the rows; rows whose bytes name no schema are in no group.
        bare_bytes: the size of ids without a mark; 0 for names with the mark of an id or a GUID.
    """
    sizes = schema_names.ends - schema_names.starts
    marks = np.full(len(sizes), -1, np.int64)
    has_bytes = sizes > 0
    marks[has_bytes] = schema_names.data[schema_names.starts[has_bytes]]
    forms = [(marks == 0, _ID), (marks == 1, _GUID)]
    if bare_bytes:
        forms = [(sizes == bare_bytes, bare_bytes)]
    for is_form, width in forms:
        in_form = np.flatnonzero(is_form & (sizes >= width))
        if not len(in_form):
            continue
        names = _bytes_at(schema_names.data, schema_names.starts[in_form], width)
        for chosen in _equal_rows(names):
            schema_name = names[chosen[0]].tobytes()
            schema = (
                UUID(bytes=schema_name[1:])
                if width == _GUID
                else int.from_bytes(schema_name, "big")
            )
            of_group = in_form[chosen]
            rows, starts, ends = (
                schema_names.rows[of_group],
                schema_names.starts[of_group] + width,
                schema_names.ends[of_group],
            )
            group = Group(schema, (), width * schema_names.is_prefix, rows)
            yield group, schema_names._replace(rows=rows, starts=starts, ends=ends)


def _equal_rows(names: Uint8s) -> Iterator[Int64s]:
    """The numbers of equal rows of bytes, for each distinct row."""
    if names.tobytes() == names[:1].tobytes() * len(names):  # faster if all rows are equal
        yield np.arange(len(names))
        return
    keys = np.ascontiguousarray(names).view(f"V{names.shape[1]}")[:, 0]
    _keys, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    order, ends = np.argsort(which, kind="stable"), np.cumsum(counts)
    for start, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        yield order[start:end]


def with_indexes(
    group: Group, schema_names: SchemaNames, *, has_sign: bool = True
) -> tuple[list[Group], Reasons]:
    """Split the rows of a Protobuf schema according to the indexes of their messages.

    Args:
        group: the rows that name the schema.
        schema_names: the bytes after its name.
        has_sign: whether numbers are zigzag varints; Confluent's serializers before 5.5.1 wrote
            plain ones.

    Returns:
        Groups, and a reason for each row with invalid indexes.
    """
    at = schema_names.starts.copy()
    counts, sound = _varints(schema_names, at, np.ones(len(at), np.bool_), has_sign)
    sound &= (counts >= 0) & (counts <= INDEXES_MAX)
    deepest = int(counts[sound].max(initial=0))
    index_rows = np.full((len(at), max(deepest, 1)), -1, np.int64)  # -1 after the last index
    index_rows[counts == 0, 0] = 0
    for level in range(deepest):
        has_level = sound & (counts > level)
        numbers, done = _varints(schema_names, at, has_level, has_sign)
        sound &= ~has_level | (done & (numbers >= 0))
        index_rows[has_level, level] = numbers[has_level]
    groups = []
    sound_rows = np.flatnonzero(sound)
    if len(sound_rows):
        keys = np.column_stack((index_rows[sound_rows], (at - schema_names.starts)[sound_rows]))
        for chosen in _equal_rows(keys.view(np.uint8)):
            *indexes, size = keys[chosen[0]].tolist()
            named = tuple(index for index in indexes if index >= 0)
            prefix = group.prefix + size if schema_names.is_prefix else 0
            groups.append(Group(group.schema, named, prefix, group.rows[sound_rows[chosen]]))
    reason = "the indexes of its message are damaged"
    return groups, dict.fromkeys(group.rows[~sound].tolist(), reason)


def _varints(
    schema_names: SchemaNames, at: Int64s, is_wanted: Bools, has_sign: bool
) -> tuple[Int64s, Bools]:
    """Read a varint in some rows.

    Args:
        schema_names: the bytes of the rows.
        at: int64[k], the position of the varint of each row; is moved to its end.
        is_wanted: bool[k], the rows in which to read.
        has_sign: whether it is a zigzag varint.

    Returns:
        int64[k], the numbers; and bool[k], whether the row has a whole varint.
    """
    numbers, done = np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
    rows = np.flatnonzero(is_wanted)
    for shift in range(0, 7 * _INDEX_BYTES_MAX, 7):
        rows = rows[at[rows] < schema_names.ends[rows]]
        read = schema_names.data[at[rows]].astype(np.int64)
        numbers[rows] |= (read & 0x7F) << shift
        at[rows] += 1
        done[rows[read < 0x80]] = True
        rows = rows[read >= 0x80]
    return (numbers >> 1) ^ -(numbers & 1) if has_sign else numbers, done


#: Row -> why it is null.
Reasons = dict[int, str]
#: The most payloads, and the most bytes of several payloads, that are decoded at once.
BLOCK_ROWS: Final = 1 << 18
BLOCK_BYTES: Final = 32 << 20
#: The most values of the exact reader that are Python objects at once.
EXACT_ROWS: Final = 1024
#: The most values of a block in all columns: a few bytes of a payload may stand for very many.
VALUES_MAX: Final = 1 << 24
#: Marks of a fast reader: a row for the exact reader, and a row with too many values.
ODD: Final = 1
LARGE: Final = 2
#: A fast reader: returns the values of the first rows of a block, and as many marks; the values of
#: marked rows are ignored.
Fast = Callable[["Block"], tuple["pa.Array", Uint8s]]
#: An exact reader: returns a value for `pa.array`, or raises ValueError with the reason.
Exact = Callable[[bytes], Any]


class Block(NamedTuple):
    """Some payloads in Arrow's layout.

    Attributes:
        payloads: n payloads of type binary.
        offsets: int32[n + 1], the bounds of the payloads in `data`.
        data: uint8, the bytes of all payloads.
        valid: bool[n], which payloads are not null.
    """

    payloads: pa.BinaryArray
    offsets: Int32s
    data: Uint8s
    valid: Bools


def decode_blocks(
    payloads: pa.BinaryArray | pa.LargeBinaryArray, kind: pa.DataType, fast: Fast, exact: Exact
) -> tuple[pa.Array, Reasons]:
    """Decode payloads, most of them by `fast`.

    Args:
        payloads: n payloads; null stays null.
        kind: the type of the values.
        fast: the reader of blocks.
        exact: the reader for rows that `fast` marks as `ODD`.

    Returns:
        n values, and why a row is null whose payload is not.
    """
    parts: list[pa.Array] = []
    reasons: Reasons = {}
    first = 0
    while first < len(payloads):
        block = block_at(payloads, first)
        values, marks = fast(block)
        exact_values: list[Any] = []
        arrays, rows = [values], []
        for row in np.flatnonzero(marks * block.valid[: len(marks)]).tolist():
            try:
                if marks[row] == LARGE:
                    raise ValueError(f"more than {VALUES_MAX} values")
                exact_values.append(exact(block.payloads[row].as_py()))
                rows.append(row)
            except ValueError as error:
                reasons[first + row] = str(error)
            if len(exact_values) == EXACT_ROWS:
                arrays.append(pa.array(exact_values, kind))
                exact_values = []
        if rows:
            # The values of the exact reader come after those of the fast one.
            order = np.arange(len(marks))
            order[rows] = len(marks) + np.arange(len(rows))
            values = pa.concat_arrays([*arrays, pa.array(exact_values, kind)]).take(pa.array(order))
        parts.append(values)
        first += len(marks)
    if len(parts) == 1:
        return parts[0], reasons
    return pa.concat_arrays(parts) if parts else pa.array([], kind), reasons


def block_at(payloads: pa.BinaryArray | pa.LargeBinaryArray, first: int) -> Block:
    """The largest block that begins with a payload.

    Args:
        payloads: more than `first` payloads.
        first: the row of the first payload of the block.
    """
    width = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
    ends = np.frombuffer(payloads.buffers()[1], width)[payloads.offset :][: len(payloads) + 1]
    fitting = int(np.searchsorted(ends, ends[first] + BLOCK_BYTES, "right")) - 1 - first
    count = min(max(fitting, 1), BLOCK_ROWS)
    # A copy, whose offsets begin at 0.
    copied = pa.concat_arrays([payloads.slice(first, count).cast(pa.binary()), _NONE])
    _, offsets, data = copied.buffers()
    return Block(
        copied,
        np.frombuffer(offsets, np.int32)[: count + 1],
        np.frombuffer(data or b"", np.uint8),
        copied.is_valid().to_numpy(zero_copy_only=False),
    )


_NONE: Final = pa.array([], pa.binary())


class Decoder(Protocol):
    """Decodes payloads of one schema into values of one Arrow type."""

    @property
    def type(self) -> pa.DataType:
        """The type of every value; the schema alone decides it."""

    def decode(self, payloads: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[pa.Array, Reasons]:
        """Decode payloads, which have no prefix.

        A damaged payload never raises. Memory is bounded by the bytes of the payloads.

        Args:
            payloads: n payloads; null stays null without a reason.

        Returns:
            n values of `type`, and a reason for each row whose payload does not decode; these
            values are null.
        """
