"""JSON to structs: the type comes from a JSON Schema, from the caller, or from a sample.

A JSON Schema only gives types: values are not validated against it. Places that it leaves open
(several types, no type, an object without properties, recursion) become the JSON text there. `$ref`
leads to places in the schema, and in given references; no file or URL is opened.

A field that is missing is null. A value that does not fit the type makes the record null, with the
reason. Names that the type does not have are passed over.

Source: RFC 8259 (JSON); JSON Schema 2020-12 and draft 7, RFC 6901 (pointers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kseg._kernels import json_struct as kernel
from kseg._kernels.avro import Columns
from kseg.constants import INT64_MAX, INT64_MIN, Uint8s
from kseg.decode.avro import COLUMNS_MAX, AvroDecoder
from kseg.decode.avro_schema import LEVELS_MAX
from kseg.decode.payloads import ODD, Block, Reasons, block_at, decode_blocks
from kseg.errors import SchemaError
from kseg.internal.registry import RefusedError, Schema, parse

#: Fields of the kernel's row of a column: its first kid and the number of kids; its least value.
_KIDS: Final = slice(3, 5)
_LEAST: Final = 5

#: The text of any value: the type from `infer` where values have no type in common.
JSON_TEXT: Final = pa.json_(pa.string())
#: The most values of a sample that are used.
SAMPLE_MAX: Final = 10_000

_SCALARS: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.null(): "null",
    pa.string(): "string",
    JSON_TEXT: "string",
}
_TYPES: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "null": pa.null(),
    "string": pa.string(),
}
_WHY: Final = {
    kernel.SYNTAX: "not JSON",
    kernel.TRAILING: "bytes follow the value",
    kernel.RANGE: "a number that is too large for its type, or not whole",
    kernel.TEXT: "not UTF-8, or half of a surrogate pair",
    kernel.TWICE: "a name stands twice in its object",
    kernel.TYPE: "a value of another type",
    kernel.LIMIT: "too many values for its size",
}


def decoder_of_schema(
    schema: str | Mapping[str, Any], references: Mapping[str, Schema] | None = None
) -> JsonDecoder:
    """A decoder of values that a JSON Schema describes.

    Args:
        schema: its text, or the parsed JSON.
        references: name in `$ref` -> another schema.

    Raises:
        SchemaError: it is not JSON, too large, or refers to a place that does not exist.
    """
    texts = {name: _parse_schema(reference.text) for name, reference in (references or {}).items()}
    parsed = _parse_schema(schema) if isinstance(schema, str) else schema
    return decoder_of_type(_Types({**texts, "": parsed}).of(parsed, "", ()))


def decoder_of_type(kind: pa.DataType) -> JsonDecoder:
    """A decoder of one type.

    Args:
        kind: a type made of structs, lists, strings, booleans, int32, int64, float32, float64,
            null, and `JSON_TEXT`.

    Raises:
        SchemaError: it has other types in it, or is too large.
    """
    return JsonDecoder(kind)


def infer(sample: pa.BinaryArray) -> pa.DataType:
    """The common type of all values of a sample; values that are not JSON are ignored.

    Args:
        sample: payloads, of which the first `SAMPLE_MAX` are used.

    Returns:
        A type for `decoder_of_type`, with `JSON_TEXT` where values have no type in common, or all
        are null.
    """
    merged = pa.null()
    for payload in sample.slice(0, SAMPLE_MAX).to_pylist():
        try:
            merged = _common_type(merged, _type_of(parse(payload or b"null", "sample")))
        except RefusedError:
            continue
    return _with_text_for_unknown(merged)


class JsonDecoder:
    """A `Decoder` of JSON.

    Attributes:
        type: the Arrow type of the values, with strings in place of `JSON_TEXT`.
    """

    def __init__(self, kind: pa.DataType) -> None:
        """Make the tables of the kernel; see `decoder_of_type`."""
        self._names: list[bytes] = []
        self._is_text: list[bool] = []
        avro = self._avro(kind, b"", 0)
        # Avro's columns and arrays serve any format; its writer's fields are not needed.
        self._program = AvroDecoder("null", {}, avro, {}).program
        self.type: pa.DataType = self._program.types[0]
        nodes, kids, codes, columns = self._program.tables
        columns[self._is_text, _LEAST] = 1  # any value, as its text
        order = np.zeros(len(kids), np.int32)
        for first, count in columns[:, _KIDS].tolist():
            names = [self._names[kid] for kid in kids[first : first + count]]
            ranks = sorted(range(count), key=lambda number: (len(names[number]), names[number]))
            if len(set(names)) < count:
                raise SchemaError("a struct has two fields of one name")
            order[first : first + count] = ranks
        ends = np.cumsum([0, *map(len, self._names)], dtype=np.int32)
        self._tables = nodes, kids, codes, columns
        self._order = np.frombuffer(b"".join(self._names), np.uint8), ends, order

    def _avro(self, kind: pa.DataType, name: bytes, level: int) -> Any:
        """An Arrow type as a type of Avro; adds the name of each column in the columns' order.

        Args:
            kind: the Arrow type.
            name: the name of the field that has it; empty for an item, or the whole value.
            level: how many types are around it.
        """
        self._names.append(name)
        self._is_text.append(kind == JSON_TEXT)
        # Each level of JSON is two of Avro: a union with null around a record or an array.
        if len(self._names) > COLUMNS_MAX or level >= LEVELS_MAX // 2:
            raise SchemaError(f"the type has more than {COLUMNS_MAX} columns, or too many levels")
        if len(name) > kernel.NAME_BYTES_MAX:
            raise SchemaError(f"a name has more than {kernel.NAME_BYTES_MAX} bytes")
        if pa.types.is_list(kind):
            return {"type": "array", "items": ["null", self._avro(kind.value_type, b"", level + 1)]}
        if pa.types.is_struct(kind):
            number = len(self._names)
            fields = [
                {
                    "name": field.name,
                    "type": ["null", self._avro(field.type, field.name.encode(), level + 1)],
                }
                for field in kind
            ]
            return {"type": "record", "name": f"r{number}", "fields": fields}
        if kind not in _SCALARS:
            raise SchemaError(f"JSON is not decoded as {kind}")
        return _SCALARS[kind]

    def decode(self, payloads: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[pa.Array, Reasons]:
        """Decode payloads; see `Decoder`."""
        return decode_blocks(payloads, self.type, self._decode_fast, self._decode_exactly)

    def _decode_fast(self, block: Block) -> tuple[pa.Array, Uint8s]:
        """The values of a block; rows that do not decode are marked `ODD`. See `Fast`."""
        values, faults = self._run(block)
        marks = np.zeros(len(values), np.uint8)
        marks[list(faults)] = ODD
        return values, marks

    def _decode_exactly(self, payload: bytes) -> Any:
        """The value of one payload; raises ValueError with the reason if it does not decode."""
        values, faults = self._run(block_at(pa.array([payload], pa.binary()), 0))
        for why, column, position in faults.values():
            name = self._names[column].decode()
            prefix = f"{name}: " if name else ""
            raise ValueError(f"{prefix}{_WHY[why]}, at byte {position} of the payload")
        return values[0].as_py()

    def _run(self, block: Block) -> tuple[pa.Array, dict[int, tuple[int, int, int]]]:
        """Decode a block.

        Returns:
            The values; and row that failed -> (why, in which column, at which byte).
        """
        columns, faults = Columns(*self._tables), dict[int, tuple[int, int, int]]()
        names, ends, order = self._order
        offsets, is_valid = block.offsets.astype(np.int64), block.valid.view(np.uint8)
        kernel.decode_json(
            columns, offsets, block.data.data, is_valid, names.data, ends, order, faults
        )
        return self._program.array(columns, 0, None), faults


# ---- JSON Schema ---------------------------------------------------------------------------------


def _parse_schema(text: str) -> Any:
    """The parsed text of a JSON Schema; raises SchemaError."""
    try:
        return parse(text.encode("utf-8", "surrogatepass"), "schema-json")
    except RefusedError as error:
        raise SchemaError(f"a JSON Schema: {error.args[1]}") from None


class _Types:
    """Finds the Arrow types of JSON Schemas.

    Its documents are the schema itself, under the name "", and the schemas that it refers to.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._count = 0

    def of(self, schema: Any, document: str, above: tuple[int, ...]) -> pa.DataType:
        """The type of a schema.

        Args:
            schema: the schema, or a part of one.
            document: the name of the document that has it, in which `$ref` is looked up.
            above: the ids of the schemas around it: one that contains itself becomes text.
        """
        if not isinstance(schema, Mapping) or id(schema) in above:
            return JSON_TEXT
        self._count += 1
        if self._count > COLUMNS_MAX or len(above) == LEVELS_MAX:
            raise SchemaError(
                f"the schema has more than {COLUMNS_MAX} types, or {LEVELS_MAX} in each other"
            )
        above = (*above, id(schema))
        if isinstance(schema.get("$ref"), str):
            target, document = self._target_of_reference(schema["$ref"], document)
            return self.of(target, document, above)
        for word in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(word)
            if isinstance(branches, list) and "properties" not in schema:
                kinds = [self.of(branch, document, above) for branch in branches]
                kinds = [branch_type for branch_type in kinds if not pa.types.is_null(branch_type)]
                return kinds[0] if len(kinds) == 1 else JSON_TEXT
        kind = schema.get("type", "object" if "properties" in schema else None)
        listed = kind if isinstance(kind, list) else [kind]
        words = {name if isinstance(name, str) else "" for name in listed} - {"null"}
        if words == {"object"}:
            return self._struct(schema.get("properties"), document, above)
        if words == {"array"}:
            return pa.list_(self.of(schema.get("items"), document, above))
        if words == {"integer", "number"}:
            return pa.float64()
        if not words:
            return pa.null()
        return _TYPES.get(words.pop(), JSON_TEXT) if len(words) == 1 else JSON_TEXT

    def _struct(self, fields: Any, document: str, above: tuple[int, ...]) -> pa.DataType:
        """The type of an object with named fields; text where the schema names none."""
        if not isinstance(fields, Mapping) or not fields:
            return JSON_TEXT
        return pa.struct(
            [(name, self.of(field, document, above)) for name, field in fields.items()]
        )

    def _target_of_reference(self, reference: str, document: str) -> tuple[Any, str]:
        """The target of a `$ref`, and the document that holds it."""
        target_document, _, pointer = reference.partition("#")
        target_document = target_document or document
        target: Any = self._documents.get(target_document)
        try:
            if target_document not in self._documents or (pointer and not pointer.startswith("/")):
                raise LookupError
            for part in pointer.split("/")[1:]:
                name = unquote(part).replace("~1", "/").replace("~0", "~")
                target = target[int(name) if isinstance(target, list) else name]
        except (LookupError, TypeError, ValueError):
            raise SchemaError(
                f"$ref {reference[:200]!r} is neither a place in the schema nor a reference"
            ) from None
        return target, target_document


# ---- samples -------------------------------------------------------------------------------------


def _type_of(value: Any) -> pa.DataType:
    """The Arrow type of one parsed value; null for None and for the items of an empty list."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if INT64_MIN <= value <= INT64_MAX else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            inner = pa.null()
            for item in value:
                inner = _common_type(inner, _type_of(item))
            return pa.list_(inner)
    return pa.struct([(name, _type_of(member)) for name, member in value.items()])


def _common_type(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The narrowest type for values of both types; `JSON_TEXT` where they have none in common."""
    if first == other or pa.types.is_null(other):
        return first
    if pa.types.is_null(first):
        return other
    if {first, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(first) and pa.types.is_list(other):
        return pa.list_(_common_type(first.value_type, other.value_type))
    if pa.types.is_struct(first) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in first}
        for field in other:
            fields[field.name] = _common_type(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    return JSON_TEXT


def _with_text_for_unknown(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of unknown parts, in which later values may have any type."""
    if pa.types.is_list(kind):
        return pa.list_(_with_text_for_unknown(kind.value_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _with_text_for_unknown(field.type)) for field in kind])
    return JSON_TEXT if pa.types.is_struct(kind) or pa.types.is_null(kind) else kind
