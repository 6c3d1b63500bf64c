"""Avro: payloads of one writer's schema as Arrow values of a reader's schema.

`avro_schema` reads schemas. A `_Program` is made of both, and `kseg._kernels.avro` runs it
over the payloads. Records become structs, enums text, and a union of null and one other type that
type. A union of several types becomes a dense union, whose type 0 is null. A decimal with more than
76 digits, and a logical type that is not known, are what they are stored as.

Recursive or too large schemas are refused before a payload is read. Times outside the years 1 to
9999 and decimals with too many digits do not decode.

Source: Apache Avro 1.12, "Schema Resolution"; Confluent's serializers, which write values of the
schema "bytes" as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kseg._kernels import avro as kernel
from kseg.constants import INT32_MAX, INT64_MAX, INT64_MIN
from kseg.decode.avro_schema import (
    NOT_A_SCHEMA,
    default_of,
    enter_type,
    fixed_bytes,
    logical_of,
    look_up_name,
    not_a_schema,
    parsed,
    symbols_of,
    type_of,
    without_null,
)
from kseg.decode.payloads import Reasons
from kseg.errors import SchemaError
from kseg.format.times import DATETIMES_MS, DAY_MS
from kseg.internal.registry import Schema

#: The most columns of a schema, and the most nodes: steps of its program.
COLUMNS_MAX: Final = 10_000
NODES_MAX: Final = 100_000
#: Arrow numbers the types of a union in 7 bits.
BRANCHES_MAX: Final = 127
#: Longer fixed values become Arrow's binary values of any size.
FIXED_BYTES_MAX: Final = 32
_INT32: Final = (-INT32_MAX - 1, INT32_MAX)
_INT64: Final = (INT64_MIN, INT64_MAX)
_MS: Final = (DATETIMES_MS.start, DATETIMES_MS.stop - 1)
_US: Final = (_MS[0] * 1000, DATETIMES_MS.stop * 1000 - 1)
_UTC: Final = "UTC"

#: The column of a node whose values are skipped.
_SKIP: Final = -1
#: The code of a writer's symbol that the reader's enum does not have.
_NO_SYMBOL: Final = -1
#: (type, logical type) -> Arrow's type, the kind of column, the bytes of a value (0 where they
#: differ), the least and the largest value.
_SCALARS: Final[dict[tuple[str, str | None], tuple[pa.DataType, int, int, tuple[int, int]]]] = {
    ("null", None): (pa.null(), kernel.K_NULL, 0, _INT64),
    ("boolean", None): (pa.bool_(), kernel.K_BOOL, 1, _INT64),
    ("int", None): (pa.int32(), kernel.K_INT32, 4, _INT32),
    ("long", None): (pa.int64(), kernel.K_INT64, 8, _INT64),
    ("float", None): (pa.float32(), kernel.K_FLOAT, 4, _INT64),
    ("double", None): (pa.float64(), kernel.K_DOUBLE, 8, _INT64),
    ("bytes", None): (pa.binary(), kernel.K_BYTES, 0, _INT64),
    ("string", None): (pa.string(), kernel.K_BYTES, 0, _INT64),
    ("enum", None): (pa.string(), kernel.K_INT32, 4, _INT32),
    ("int", "date"): (
        pa.date32(),
        kernel.K_INT32,
        4,
        (DATETIMES_MS.start // DAY_MS, DATETIMES_MS.stop // DAY_MS - 1),
    ),
    ("int", "time-millis"): (pa.time32("ms"), kernel.K_INT32, 4, (0, DAY_MS - 1)),
    ("long", "time-micros"): (pa.time64("us"), kernel.K_INT64, 8, (0, DAY_MS * 1000 - 1)),
    ("long", "timestamp-millis"): (pa.timestamp("ms", _UTC), kernel.K_INT64, 8, _MS),
    ("long", "timestamp-micros"): (pa.timestamp("us", _UTC), kernel.K_INT64, 8, _US),
    ("long", "local-timestamp-millis"): (pa.timestamp("ms"), kernel.K_INT64, 8, _MS),
    ("long", "local-timestamp-micros"): (pa.timestamp("us"), kernel.K_INT64, 8, _US),
}
_OPS: Final = {
    "null": kernel.NULL_,
    "boolean": kernel.BOOLEAN,
    "int": kernel.INT,
    "long": kernel.LONG,
    "float": kernel.FLOAT,
    "double": kernel.DOUBLE,
    "bytes": kernel.BYTES,
    "string": kernel.STRING,
}
#: Type of the writer -> the reader's types that its values may become.
_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_WHY: Final = {
    kernel.SHORT: "the payload ends early",
    kernel.TRAILING: "bytes are left after the value",
    kernel.NUMBER: "not a number of Avro, or a negative size",
    kernel.RANGE: "out of the range of its type",
    kernel.TEXT: "not UTF-8, or not a UUID",
    kernel.SYMBOL: "an enum has no such symbol",
    kernel.CHOICE: "a union has no such type",
    kernel.REFUSED: "the writer's type or symbol is not in the reader's schema",
    kernel.LIMIT: "too many values for its size",
}


def decoder(
    writer: Schema,
    reader: Schema | None,
    references: Mapping[str, Schema],
    reader_references: Mapping[str, Schema] | None = None,
    *,
    record: str | None = None,
) -> AvroDecoder:
    """A decoder of values that one schema wrote.

    Args:
        writer: the schema of the payloads.
        reader: the schema of the values; the writer's if None.
        references: name -> a schema that the writer refers to, in the order of their dependencies.
        reader_references: the same for the reader; the writer's if None.
        record: the name of the wanted type in the reader's schema.

    Raises:
        SchemaError: a schema is damaged, depends on itself, or is too large.
        MissingExtraError: fastavro is not installed.
    """
    written, names = parsed(writer, references)
    if reader is None:
        return _make_decoder(writer, written, names, written, names)
    if reader_references is None:
        reader_references = references
    wanted_schema, wanted_names = parsed(reader, reader_references)
    if record is not None:
        wanted_schema = wanted_names.get(record)
        if wanted_schema is None:
            raise SchemaError(f"{reader.label} has no {record}; it has {', '.join(wanted_names)}")
    elif isinstance(wanted_schema, list):
        branches = [look_up_name(branch, wanted_names) for branch in wanted_schema]
        records = [branch["name"] for branch in branches if type_of(branch) == "record"]
        if len(records) > 1:
            raise SchemaError(
                f"{reader.label} has several record types: {', '.join(records)}; choose one "
                '(record=), or decode as "registry-json"'
            )
    return _make_decoder(writer, written, names, wanted_schema, wanted_names)


def _make_decoder(
    label: Schema, writer: Any, names: Any, reader: Any, reader_names: Any
) -> AvroDecoder:
    """A decoder; raises SchemaError also for parts of wrong types, which fastavro does not refuse.

    Args:
        label: the schema that errors name.
        writer, names: the writer's type, and the named types in it.
        reader, reader_names: the same for the reader.
    """
    try:
        return AvroDecoder(writer, names, reader, reader_names)
    except SchemaError:
        raise
    except NOT_A_SCHEMA as error:
        raise not_a_schema(label, error) from None


class AvroDecoder:
    """A `Decoder` of one pair of schemas.

    Attributes:
        type: the Arrow type of the reader's schema.
        program: the kernel's steps, and the arrays for its columns.
        takes_prefix: tells callers that `decode` skips the bytes before payloads itself.
    """

    takes_prefix: Final = True

    def __init__(self, writer: Any, names: Any, reader: Any, reader_names: Any) -> None:
        """Make the program; see `decoder`."""
        self.program = _Program(names, reader_names)
        self.program.compile(writer, reader)
        self.type: pa.DataType = self.program.types[0]
        self._is_raw = type_of(writer) == "bytes" == type_of(reader)
        if self._is_raw:
            self.type = pa.binary()

    def decode(
        self, payloads: pa.BinaryArray | pa.LargeBinaryArray, prefix: int = 0
    ) -> tuple[pa.Array, Reasons]:
        """Decode payloads that begin after `prefix` bytes of each value; see `Decoder`."""
        if self._is_raw:
            return pc.binary_slice(payloads.cast(pa.binary()), prefix, INT32_MAX), {}
        program = self.program
        wide = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
        _nulls, ends, data = payloads.buffers()
        first = payloads.offset
        offsets = np.frombuffer(ends or bytes(8), wide)[first : first + len(payloads) + 1]
        is_valid = payloads.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        # Row -> why it does not decode, at which node of the schema, and at which byte.
        columns, faults = kernel.Columns(*program.tables), dict[int, tuple[int, int, int]]()
        columns.decode(
            offsets.astype(np.int64), np.frombuffer(data or b"", np.uint8), is_valid, faults, prefix
        )
        reasons = {row: program.reason(*fault) for row, fault in faults.items()}
        return program.array(columns, 0, None), reasons


class _Program:
    """The steps of the kernel for a pair of schemas, and the arrays for its columns.

    Attributes:
        tables: the kernel's tables of nodes, kids, codes and columns, once all is compiled.
        types: the Arrow types of the columns.
    """

    # Indexed by the number of a column: `_columns`, its row of the table; `_children`, the numbers
    # of the columns in it; `_symbols`; `_defaults`, its default where a writer lacks it; `_filled`,
    # those columns in it that a writer fills. Indexed by the number of a node: `_nodes`, its row of
    # the table; `_paths`, its path in the schema, for errors.

    def __init__(self, names: Mapping[str, Any], reader_names: Mapping[str, Any]) -> None:
        """Begin without steps, and with the named types of the writer and of the reader."""
        self._names, self._reader_names = names, reader_names
        self.tables: tuple[Any, ...] = ()
        self.types: list[pa.DataType] = []
        self._columns: list[list[int]] = []
        self._children: list[list[int]] = []
        self._symbols: dict[int, list[str]] = {}
        self._defaults: dict[int, pa.Array] = {}
        self._filled: dict[int, list[int]] = {}
        self._nodes: list[list[int]] = []
        self._paths: list[str] = []
        self._kids: list[int] = []
        self._codes: list[int] = []

    def compile(self, writer: Any, reader: Any) -> None:
        """Make the kernel's tables for a writer's and a reader's type."""
        self._column(reader, (), nullable=True)
        self._node(writer, reader, 0, (), "")
        for number, row in enumerate(self._columns):
            used = self._filled.get(number, self._children[number])
            row[3:5] = self._list(used)  # the first of its kids, and their count
        self.tables = (
            np.array(self._nodes, np.int32).reshape(-1, kernel.NODE_FIELDS),
            np.array(self._kids, np.int32),
            np.array(self._codes, np.int64).astype(np.int32),
            np.array(self._columns, np.int64).reshape(-1, kernel.COLUMN_FIELDS),
        )

    def _list(self, kids: list[int]) -> tuple[int, int]:
        """Add the numbers of kids to the table of kids; returns the first index and the count."""
        self._kids += kids
        return len(self._kids) - len(kids), len(kids)

    # ---- the reader's columns --------------------------------------------------------------------

    def _column(self, schema: Any, above: tuple[str, ...], *, nullable: bool = False) -> int:
        """Add the column of a type, with those in it; returns its number.

        A union of null and one type has the column of that type. Any other union has null as its
        type 0, even if the schema has no null: rows that do not decode need it, as Arrow's unions
        have no bits for null.

        Args:
            schema: the reader's type.
            above: the names of the types around it.
            nullable: whether its values may be null.
        """
        schema, above = enter_type(schema, self._reader_names, above)
        number = len(self._columns)
        if number == COLUMNS_MAX:
            raise SchemaError(f"the schema has more than {COLUMNS_MAX} columns")
        self._columns.append([])
        self._children.append([])
        self.types.append(None)
        if isinstance(schema, list):
            not_null = without_null(schema)
            if len(not_null) <= 1:
                nullable = nullable or "null" in map(type_of, schema)
                self._columns.pop(), self._children.pop(), self.types.pop()
                return self._column(not_null[0] if not_null else "null", above, nullable=nullable)
            if len(not_null) >= BRANCHES_MAX:
                raise SchemaError(f"a union has more than {BRANCHES_MAX - 1} types")
            kids = self._children[number]
            kids += [self._column(branch, above) for branch in ("null", *not_null)]
            fields = [
                pa.field(
                    str(branch.get("name", branch["type"]) if isinstance(branch, dict) else branch),
                    self.types[kid],
                )
                for branch, kid in zip(("null", *not_null), kids, strict=True)
            ]
            kind, size, bounds, made = kernel.K_UNION, 1, _INT64, pa.dense_union(fields)
            nullable = False
        elif type_of(schema) in ("record", "error", "array", "map"):
            kind, size, bounds, made = self._compile_nested(number, schema, above)
        else:
            kind, size, bounds, made = self._scalar(number, schema)
        # `compile` adds the kids, as an index and a count, once all columns exist.
        self._columns[number] = [kind, size, int(nullable), 0, 0, *bounds]
        self.types[number] = made
        return number

    def _scalar(self, number: int, schema: Any) -> tuple[int, int, tuple[int, int], pa.DataType]:
        """The kind, bytes of a value, bounds and Arrow type of a column without others in it.

        The upper bound of a decimal is the index in `_codes` where its largest number begins.
        """
        kind, logical = type_of(schema), logical_of(schema)
        if logical == "decimal":
            precision = schema["precision"]
            made = (pa.decimal128 if precision <= 38 else pa.decimal256)(
                precision, schema.get("scale", 0)
            )
            largest = (10**precision - 1).to_bytes(32, "little")
            first_code = len(self._codes)
            self._codes += np.frombuffer(largest, "<i4").tolist()
            return kernel.K_DECIMAL, made.byte_width, (0, first_code), made
        if kind == "fixed":
            size = fixed_bytes(schema)
            if size > FIXED_BYTES_MAX:  # a null of a fixed size takes that size
                return kernel.K_BYTES, 0, _INT64, pa.binary()
            return kernel.K_FIXED, size, _INT64, pa.binary(size)
        if kind == "enum":
            self._symbols[number] = symbols_of(schema)
        made, column, size, bounds = _SCALARS.get((kind, logical)) or _SCALARS[kind, None]
        return column, size, bounds, made

    def _compile_nested(
        self, number: int, schema: Any, above: tuple[str, ...]
    ) -> tuple[int, int, tuple[int, int], pa.DataType]:
        """Add the inner columns of a record, array or map.

        Returns:
            The outer column: its kind in the kernel, bytes of a value, bounds, and Arrow type.
        """
        # All fields are nullable: engines differ in what NOT NULL means in a nullable struct.
        kids = self._children[number]
        if schema["type"] == "array":
            kids.append(self._column(schema["items"], above))
            return kernel.K_LIST, 0, _INT64, pa.list_(pa.field("item", self.types[kids[0]]))
        if schema["type"] == "map":
            kids += [self._column("string", above), self._column(schema["values"], above)]
            value = pa.field("value", self.types[kids[1]])
            return kernel.K_MAP, 0, _INT64, pa.map_(pa.string(), value)
        fields = []
        for field in schema["fields"]:
            kids.append(self._column(field["type"], above))
            fields.append(pa.field(field["name"], self.types[kids[-1]]))
        if len({field.name for field in fields}) < len(fields):
            raise SchemaError(f"{schema.get('name')} has two fields of one name")
        return kernel.K_STRUCT, 0, _INT64, pa.struct(fields)

    # ---- the writer's nodes ----------------------------------------------------------------------

    def _add(self, path: str, row: list[int]) -> int:
        """Add a row for a node of the schema, and the path to it; returns its number."""
        if len(self._nodes) == NODES_MAX:
            raise SchemaError(f"the schema has more than {NODES_MAX} types")
        self._nodes.append(row)
        self._paths.append(path)
        return len(self._nodes) - 1

    def _node(
        self, writer: Any, reader: Any, column: int, above: tuple[str, ...], path: str
    ) -> int:
        """Add the node of a type, with those in it; returns its number.

        Args:
            writer: the writer's type.
            reader: the reader's type of its column; None if its values are skipped.
            column: the number of the column for its values; `_SKIP` if they are skipped.
            above: the names of the types around it.
            path: its path in the schema, for errors.
        """
        writer, above = enter_type(writer, self._names, above)
        number = self._add(path, _node_row(kernel.REFUSE, _SKIP))
        if isinstance(writer, list):
            kids = [self._node(branch, reader, column, above, path) for branch in writer]
            self._nodes[number] = _node_row(kernel.UNION, _SKIP, self._list(kids))
            return number
        if column != _SKIP:
            reader, branch = self._choice(writer, reader)
            if branch is not None:
                child = self._children[column][branch]
                kids = [self._node(writer, reader, child, above[:-1], path)]
                self._nodes[number] = _node_row(kernel.BRANCH, column, self._list(kids), branch)
                return number
            if reader is None:
                return number  # it refuses the value
        self._nodes[number] = self._row(writer, reader, column, above, path)
        return number

    def _choice(self, writer: Any, reader: Any) -> tuple[Any, int | None]:
        """Choose the reader's type for values of a writer's type.

        Returns:
            The type, or None if the reader has none for them. And its number in the union of the
            column, in which null is 0 (see `_column`); None if the column is not a union.
        """
        reader = look_up_name(reader, self._reader_names)
        if not isinstance(reader, list):
            return (reader if self._can_read(writer, reader) else None), None
        not_null = without_null(reader)
        if len(not_null) <= 1:
            if type_of(writer) == "null":
                return (writer if len(not_null) < len(reader) else None), None
            return self._choice(writer, not_null[0]) if not_null else (None, None)
        branches = ["null" if len(not_null) < len(reader) else None, *not_null]
        for is_same in (True, False):
            for number, branch in enumerate(branches):
                branch_type = branch and look_up_name(branch, self._reader_names)
                if branch_type and self._can_read(writer, branch_type, is_same=is_same):
                    return branch_type, number
        return None, None

    def _can_read(self, writer: Any, reader: Any, *, is_same: bool = False) -> bool:
        """Whether values of the writer's type can be read as values of the reader's type.

        With `is_same`, only if both have the same type and name: a union prefers such a branch.
        """
        kind, reader_kind = type_of(writer), type_of(reader)
        if kind != reader_kind:
            return not is_same and reader_kind in _PROMOTED.get(kind, ())
        if kind not in ("record", "error", "enum", "fixed"):
            return True
        if kind == "fixed" and writer["size"] != reader["size"]:
            return False
        name, reader_name = writer["name"], reader["name"]
        if is_same or name == reader_name:
            return bool(name == reader_name)
        aliases = reader.get("aliases", ())
        short = name.rpartition(".")[2]
        return short == reader_name.rpartition(".")[2] or name in aliases or short in aliases

    def _row(
        self, writer: Any, reader: Any, column: int, above: tuple[str, ...], path: str
    ) -> list[int]:
        """The row of a node whose type is not a union; see `_node` for the arguments."""
        kind = type_of(writer)
        if kind in ("record", "error"):
            return self._record(writer, reader, column, above, path)
        if kind in ("array", "map"):
            op, part = (kernel.ARRAY, "items") if kind == "array" else (kernel.MAP, "values")
            columns = [_SKIP, _SKIP] if column == _SKIP else self._children[column]
            kids = [self._node(writer[part], (reader or {}).get(part), columns[-1], above, path)]
            if kind == "map":
                kids.insert(0, self._node("string", "string", columns[0], above, path))
            return _node_row(op, column, self._list(kids))
        if kind == "fixed":
            return _node_row(kernel.FIXED, column, argument=fixed_bytes(writer))
        if kind == "enum":
            symbols, symbol_numbers, default = symbols_of(writer), dict[str, int](), _NO_SYMBOL
            if column != _SKIP:
                symbol_numbers = {word: number for number, word in enumerate(symbols_of(reader))}
                default = symbol_numbers.get(reader.get("default"), default)
            first_code = len(self._codes)
            self._codes += [symbol_numbers.get(word, default) for word in symbols]
            # An enum has no kids: the count is that of its symbols.
            return _node_row(kernel.ENUM, column, (0, len(symbols)), first_code)
        text_form = kernel.UTF8 if kind == "string" or type_of(reader) == "string" else 0
        if logical_of(writer) == "uuid" or (column != _SKIP and logical_of(reader) == "uuid"):
            text_form |= kernel.UUID
        return _node_row(_OPS[kind], column, argument=text_form)

    def _record(
        self, writer: Any, reader: Any, struct: int, above: tuple[str, ...], path: str
    ) -> list[int]:
        """The row of a record, whose column is `struct`; the nodes of its fields are added.

        The kernel fills the same columns of a struct for each of its records, so a second record of
        the writer that would fill others is refused.
        """
        if struct == _SKIP:
            kids = [
                self._node(field["type"], None, _SKIP, above, _inner_path(path, field["name"]))
                for field in writer["fields"]
            ]
            return _node_row(kernel.RECORD, _SKIP, self._list(kids))
        fields = dict(zip(self._children[struct], reader["fields"], strict=True))
        by_name, used, column_of = _columns_by_name(fields), set[int](), dict[int, int]()
        for number, field in enumerate(writer["fields"]):
            column = by_name.get(field["name"])
            if column is not None and column not in used:
                column_of[number] = column
                used.add(column)
        missing = fields.keys() - column_of.values()
        filled = sorted(column_of.values())
        if any("default" not in fields[column] for column in missing) or (
            self._filled.setdefault(struct, filled) != filled
        ):
            return _node_row(kernel.REFUSE, _SKIP)
        for column in missing:
            if column not in self._defaults:
                self._defaults[column] = default_of(
                    fields[column], self.types[column], self._reader_names
                )
        kids = [
            self._node(
                field["type"],
                fields[column_of[number]]["type"] if number in column_of else None,
                column_of.get(number, _SKIP),
                above,
                _inner_path(path, field["name"]),
            )
            for number, field in enumerate(writer["fields"])
        ]
        return _node_row(kernel.RECORD, struct, self._list(kids))

    # ---- values ----------------------------------------------------------------------------------

    def reason(self, why: int, node: int, position: int) -> str:
        """Why a payload does not decode, in words.

        Args:
            why: the kernel's code.
            node: the number of the node where it failed.
            position: the byte of the payload where it failed.
        """
        path = self._paths[node]
        return f"{_WHY[why]}{f', in {path}' if path else ''}, at byte {position} of the payload"

    def array(self, columns: kernel.Columns, number: int, parents: int | None) -> pa.Array:
        """The values of a column.

        Args:
            columns: the kernel's columns, filled.
            number: the number of the column.
            parents: the number of values of the struct around it; None if there is none. A column
                that the writer lacks has its default in each of these.
        """
        if parents is not None and number in self._defaults:
            return self._defaults[number].take(pa.array(np.zeros(parents, np.int32)))
        made, kind = self.types[number], self._columns[number][0]
        count, data, ends, valid = columns.column(number)
        bits = (
            None
            if valid is None
            else np.packbits(np.frombuffer(valid, np.uint8), bitorder="little")
        )
        nulls = None if bits is None else pa.py_buffer(bits)
        if kind == kernel.K_NULL:
            return pa.nulls(count)
        if number in self._symbols:
            numbers = pa.Array.from_buffers(pa.int32(), count, [nulls, pa.py_buffer(data)])
            return pa.array(self._symbols[number], pa.string()).take(numbers)
        kids = [
            self.array(columns, kid, count if kind == kernel.K_STRUCT else None)
            for kid in self._children[number]
        ]
        if kind == kernel.K_BOOL:
            data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little").tobytes()
        # The buffers of each kind of array, in Arrow's order.
        parts = {
            kernel.K_STRUCT: [nulls],
            kernel.K_LIST: [nulls, pa.py_buffer(ends)],
            kernel.K_MAP: [nulls, pa.py_buffer(ends)],
            kernel.K_BYTES: [nulls, pa.py_buffer(ends), pa.py_buffer(data)],
            kernel.K_UNION: [None, pa.py_buffer(data), pa.py_buffer(ends)],
        }.get(kind, [nulls, pa.py_buffer(data)])
        if kind == kernel.K_MAP:
            pair = (
                made.field(0).type
                if made.num_fields == 1
                else pa.struct([made.key_field, made.item_field])
            )
            kids = [pa.StructArray.from_arrays(kids, fields=list(pair))]
        return pa.Array.from_buffers(made, count, parts, children=kids or None)


def _node_row(op: int, column: int, kids: tuple[int, int] = (0, 0), argument: int = 0) -> list[int]:
    """The row of a node in the kernel's table.

    Args:
        op: the step.
        column: the column that it fills; `_SKIP` if none.
        kids: the index of the first kid and their count, as `_Program._list` returns them.
        argument: see `kseg._kernels.avro` for its meaning in each step.
    """
    return [op, column, *kids, argument]


def _inner_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _columns_by_name(fields: Mapping[int, Any]) -> dict[str, int]:
    """Name of a field, or an alias that a writer may use for it -> the reader's column."""
    columns = {field["name"]: column for column, field in fields.items()}
    for column, field in fields.items():
        for alias in field.get("aliases", ()):
            columns.setdefault(alias, column)
    return columns
