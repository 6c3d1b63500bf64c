"""Messages of internal topics as JSON, byte for byte as Kafka's tool writes them.

Source: Kafka's generated `*JsonConverter` classes, Jackson's `JsonNode.toString`.
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kseg.internal.ids import id_text
from kseg.internal.schemas import load

if TYPE_CHECKING:
    from kseg.internal.schemas import Schema

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_NAMED = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
#: Java writes smaller and larger numbers with an exponent.
_PLAIN_MIN, _PLAIN_END = 1e-3, 1e7


def message_json(message: str, version: int, fields: dict[str, Any]) -> str:
    """One message as JSON.

    Args:
        message: its name in the schemas.
        version: whose fields are written; the nearest known one for any other.
        fields: its values by name; those of the version that are missing have their defaults.
    """
    versions = load()["messages"][message]
    chosen = min(map(int, versions), key=lambda known: abs(known - version))
    return _struct(versions[str(chosen)]["fields"], fields)


def _struct(schema: list[Schema], fields: dict[str, Any]) -> str:
    parts = []
    for field in schema:
        name = field["name"]
        if name not in fields and field["type"] == "uuid":
            text = json_text(UUID(int=0))
        else:
            text = _value(field, fields[name])
        if "tag" not in field or text != _plain(field["default"]):
            parts.append(f"{json_text(name)}:{text}")
    return "{" + ",".join(parts) + "}"


def _plain(default: Any) -> str:
    return json.dumps(default, separators=(",", ":"), ensure_ascii=False)


def _value(field: Schema, value: Any) -> str:
    """A value by its type; what was decoded where the schema has bytes has types of its own."""
    if value is None:
        return "null"
    if "fields" in field:
        return _struct(field["fields"], value)
    if "items" in field:
        return "[" + ",".join(_value(field["items"], item) for item in value) + "]"
    return json_text(value)


def json_text(value: Any) -> str:
    """A value of a message as JSON, structs and arrays without a schema too."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case UUID():
            return f'"{id_text(value)}"'
        case float():
            return _double(value)
        case dict():
            return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
        case tuple():
            return "[" + ",".join(json_text(item) for item in value) + "]"
    return str(value)


def _escape(match: re.Match[str]) -> str:
    return _NAMED.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _double(value: float) -> str:
    """As Java's `Double.toString` since Java 19."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), -float("inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return str(value)
    exact = Decimal(repr(value))
    if len(exact.as_tuple().digits) == 1:  # Java has two digits at least, and takes the nearest two
        exact = Decimal(f"{value:.1e}")
    sign, digits, exponent = exact.normalize().as_tuple()
    assert isinstance(exponent, int)
    power = exponent + len(digits) - 1
    if _PLAIN_MIN <= abs(value) < _PLAIN_END:
        plain = f"{exact.normalize():f}"
        return plain if "." in plain else f"{plain}.0"
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{power}"
