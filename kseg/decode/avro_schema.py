"""Schemas of Avro: parsed by fastavro, and functions that examine their types.

A type is the JSON value that stands for it: a name, a dict, or a list for a union. `parsed` returns
the table in which names of types are looked up.

Source: Apache Avro 1.12, "Schema Declaration".
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from kseg.constants import INT32_MAX
from kseg.errors import SchemaError
from kseg.extras import require
from kseg.internal.registry import RefusedError, Schema, parse

#: The most levels of types inside each other.
LEVELS_MAX: Final = 200
#: The most digits of Arrow's larger decimals.
DECIMAL_DIGITS_MAX: Final = 76
_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
#: Errors of a schema whose parts have other types than Avro's.
NOT_A_SCHEMA: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    pa.ArrowException,
)


def type_names(schema: Schema, references: Mapping[str, Schema]) -> list[str]:
    """The full name of a schema's type, or of each branch of a union; errors as for `decoder`."""
    parsed_schema, names = parsed(schema, references)
    branches = parsed_schema if isinstance(parsed_schema, list) else [parsed_schema]
    kinds = [look_up_name(branch, names) for branch in branches]
    return [kind["name"] if "name" in kind else type_of(kind) for kind in kinds]


def parsed(schema: Schema, references: Mapping[str, Schema]) -> tuple[Any, dict[str, Any]]:
    """A schema in its JSON form with full names; and the named types in it and its references.

    Raises:
        SchemaError: a schema is damaged, or names a type that does not exist.
    """
    fastavro: Any = require("fastavro", extra="avro")
    names: dict[str, Any] = {}
    schema_json: Any = None
    for named_schema in (*references.values(), schema):
        try:
            text = parse(named_schema.text.encode("utf-8", "surrogatepass"), "schema-json")
            schema_json = fastavro.parse_schema(text, named_schemas=names)
        except RefusedError as error:
            raise SchemaError(f"{named_schema.label}: {error.args[1]}") from None
        except (fastavro.schema.SchemaParseException, *NOT_A_SCHEMA) as error:
            raise not_a_schema(named_schema, error) from None
    return schema_json, names


def not_a_schema(schema: Schema, error: Exception) -> SchemaError:
    """The error for a schema whose parts are not those of Avro."""
    line = f"{type(error).__name__}: {error}"[:300]
    return SchemaError(f"{schema.label} is not a schema of Avro: {line}")


def enter_type(
    schema: Any, names: Mapping[str, Any], above: tuple[str, ...]
) -> tuple[Any, tuple[str, ...]]:
    """Enter a type, to go on to the types in it.

    Args:
        schema: the type, or its name.
        names: the named types.
        above: the names of the types around it.

    Returns:
        The type itself; and `above` with its name added, for the types in it.

    Raises:
        SchemaError: it contains itself, or is too deep.
    """
    entered = look_up_name(schema, names)
    name = entered.get("name", "") if isinstance(entered, dict) else ""
    if name and name in above:
        raise SchemaError(
            f"{name} is a part of itself, and has no Arrow type; decode as registry-json, or read "
            "the bytes"
        )
    if len(above) == LEVELS_MAX:
        raise SchemaError(f"the schema has more than {LEVELS_MAX} types in types")
    return entered, (*above, name)


def look_up_name(schema: Any, names: Mapping[str, Any]) -> Any:
    """The type that a name stands for; another type unchanged, without a dict around it."""
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if isinstance(kind, str) and kind in names and kind not in _PRIMITIVES:
        return names[kind]
    return kind if isinstance(kind, dict | list) else schema


def type_of(schema: Any) -> Any:
    """The word for a type ("record", "int"); a union, which has none, is returned unchanged."""
    return schema["type"] if isinstance(schema, dict) else schema


def without_null(union: list[Any]) -> list[Any]:
    """The types of a union without null."""
    return [branch for branch in union if type_of(branch) != "null"]


def logical_of(schema: Any) -> str | None:
    """The logical type of a type; None if it has none, or one that its values cannot have."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        is_sound = schema["type"] in ("bytes", "fixed") and type(precision) is type(scale) is int
        return (
            logical
            if is_sound and 0 <= scale <= precision <= DECIMAL_DIGITS_MAX and precision
            else None
        )
    return logical if isinstance(logical, str) else None


def fixed_bytes(schema: Any) -> int:
    """The size of a fixed type.

    Raises:
        SchemaError: it is not a size, or larger than any record.
    """
    size = schema["size"]
    if type(size) is not int or not 0 <= size <= INT32_MAX:
        raise SchemaError(f"{schema.get('name')} is a fixed type of {str(size)[:40]!r} bytes")
    return size


def symbols_of(schema: Any) -> list[str]:
    """The symbols of an enum.

    Raises:
        SchemaError: they are not a list of texts.
    """
    symbols = schema["symbols"]
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise SchemaError(f"the symbols of {schema.get('name')} are no list of texts")
    return symbols


def default_of(field: Any, kind: pa.DataType, names: Mapping[str, Any]) -> pa.Array:
    """The default of a field, as an array of one value.

    Args:
        field: a field of the reader's schema.
        kind: the Arrow type of its column.
        names: the named types of the schema.

    Raises:
        SchemaError: it is not a value of its type.
    """
    try:
        value = _arrow_value(field["type"], field["default"], names)
        if value is None or not pa.types.is_union(kind):
            return pa.array([value], kind)
        # A default is of the first type of its union, and type 0 of the column is null.
        parts = [
            pa.array([value] if number == 1 else [], kind.field(number).type)
            for number in range(kind.num_fields)
        ]
        types, places = pa.array([1], pa.int8()), pa.array([0], pa.int32())
        return pa.UnionArray.from_dense(
            types, places, parts, [branch.name for branch in kind]
        ).cast(kind)
    except NOT_A_SCHEMA as error:
        raise SchemaError(f"the default of {field['name']}: {error}"[:300]) from None


def _arrow_value(schema: Any, value: Any, names: Mapping[str, Any]) -> Any:
    """A default in JSON's form, converted to a value for `pa.array`."""
    schema = look_up_name(schema, names)
    if isinstance(schema, list):
        return _arrow_value(schema[0], value, names)
    kind = type_of(schema)
    if kind in ("bytes", "fixed"):
        data = value.encode("latin-1")
        if logical_of(schema) != "decimal":
            return data
        number = Decimal(int.from_bytes(data, "big", signed=True))
        return number.scaleb(-schema.get("scale", 0), Context(prec=DECIMAL_DIGITS_MAX))
    if kind == "array":
        return [_arrow_value(schema["items"], item, names) for item in value]
    if kind == "map":
        return [(key, _arrow_value(schema["values"], item, names)) for key, item in value.items()]
    if kind != "record":
        return value
    return {
        field["name"]: _arrow_value(
            field["type"], value.get(field["name"], field.get("default")), names
        )
        for field in schema["fields"]
    }
