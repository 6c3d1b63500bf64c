"""A plain second reading of the schemas of internal topics: values to bytes, and to Kafka's JSON.

It shares the data file with `kseg.internal`, and no code.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import kseg

Field = dict[str, Any]

SCHEMAS = json.loads((Path(kseg.__file__).parent / "internal" / "schemas.json").read_text())
FORMS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "bool": ">?",
}


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes([*out, number])


def layout(message: str, version: int) -> tuple[list[Field], bool]:
    """The fields of a message, and whether it is flexible."""
    schema = SCHEMAS["messages"][message][str(version)]
    return schema["fields"], schema["flexible"]


def encode_message(message: str, version: int, value: dict[str, Any]) -> bytes:
    return encode_fields(*layout(message, version), value)


def encode_fields(fields: list[Field], flexible: bool, value: dict[str, Any]) -> bytes:
    """Every field in order, then those tagged ones that the value has."""
    plain = b"".join(
        encode_field(each, flexible, value[each["name"]]) for each in fields if "tag" not in each
    )
    if not flexible:
        return plain
    tagged = (each for each in fields if "tag" in each and each["name"] in value)
    tags = sorted(tagged, key=lambda each: each["tag"])
    section = uvarint(len(tags))
    for each in tags:
        body = encode_field(each, flexible, value[each["name"]])
        section += uvarint(each["tag"]) + uvarint(len(body)) + body
    return plain + section


def encode_field(field: Field, flexible: bool, value: Any) -> bytes:
    mark = field.get("null_mark")
    if mark and value is None:
        return b"\x00" if mark == "varint" else b"\xff"
    return (b"\x01" if mark else b"") + encode_value(field, flexible, value)


def encode_value(field: Field, flexible: bool, value: Any) -> bytes:
    kind = field["type"]
    if kind in FORMS:
        return struct.pack(FORMS[kind], value)
    if kind == "uuid":
        return value.bytes
    if kind == "struct":
        return encode_fields(field["fields"], flexible, value)
    plain = kind.removeprefix("compact_")
    if plain == "array":
        items = [encode_value(field["items"], flexible, each) for each in value or ()]
        body, count = b"".join(items), len(items)
    else:
        body = b"" if value is None else value.encode() if plain == "string" else value
        count = len(body)
    if kind != plain:
        return (uvarint(count + 1) + body) if value is not None else b"\x00"
    return struct.pack(">h" if plain == "string" else ">i", -1 if value is None else count) + body


def frame(
    topic: str, kind: int, version: int, key: bytes | None, value: bytes
) -> tuple[Any, bytes]:
    """Key and value of a record around its messages."""
    if SCHEMAS["topics"][topic]["frame"] == "coordinator":
        assert key is not None
        return struct.pack(">h", kind) + key, struct.pack(">h", version) + value
    return None, uvarint(1) + uvarint(kind) + uvarint(version) + value


def to_json(fields: list[Field], value: dict[str, Any]) -> dict[str, Any]:
    """A value as Kafka's JSON has it: no tagged field that holds its default."""
    shown = {}
    for field in fields:
        text = _json_of(field, value[field["name"]])
        if "tag" not in field or text != field["default"]:
            shown[field["name"]] = text
    return shown


def _json_of(field: Field, value: Any) -> Any:
    match value:
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bytes():
            return base64.b64encode(value).decode()
        case tuple() | list():
            return [_json_of(field["items"], each) for each in value]
        case dict():
            inner = field["fields"] if "fields" in field else _embedded(field["name"], value)
            return to_json(inner, value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value


def _embedded(name: str, value: dict[str, Any]) -> list[Field]:
    """The fields of a message inside another, which does not say its version."""
    message = SCHEMAS["embedded"]["GroupMetadataValue"]["fields"][name]
    return [each for each in layout(message, 3)[0] if each["name"] in value]
