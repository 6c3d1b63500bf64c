"""JSON to structs: types from schemas and samples, what fits them, and why something does not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kseg.decode.json_struct import (
    JSON_TEXT,
    JsonDecoder,
    decoder_of_schema,
    decoder_of_type,
    infer,
)
from kseg.errors import SchemaError
from kseg.internal.registry import Schema
from tests import json_payloads

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()


def decoded(found: JsonDecoder, *payloads: bytes | None) -> tuple[list[Any], dict[int, str]]:
    values, reasons = found.decode(pa.array(payloads, pa.binary()))
    assert values.type == found.type
    return values.to_pylist(), reasons


#: Of each type, texts that fit and what they mean.
FITS: list[tuple[pa.DataType, bytes, Any]] = [
    (WHOLE, b" 9223372036854775807\n", 2**63 - 1),
    (WHOLE, b"-9223372036854775808", -(2**63)),
    (WHOLE, b"-0", 0),
    (WHOLE, b"10.0", 10),
    (WHOLE, b"1e3", 1000),
    (WHOLE, b"9007199254740993.0", 2**53 + 1),
    (WHOLE, b"9.223372036854775807000e18", 2**63 - 1),
    (WHOLE, b"12300e-2", 123),
    (WHOLE, b"0.000e99", 0),
    (pa.int32(), b"-2147483648", -(2**31)),
    (REAL, b"1", 1.0),
    (REAL, b"0.1", 0.1),
    (REAL, b"569.20387482221223", 569.2038748222122),
    (REAL, b"1.7976931348623157e308", 1.7976931348623157e308),
    (REAL, b"5e-324", 5e-324),
    (REAL, b"1e-400", 0.0),
    (REAL, b"123456789012345678901234567890", 1.2345678901234568e29),
    (pa.float32(), b"0.5", 0.5),
    (TEXT, b'"a\\u0000b"', "a\0b"),
    (TEXT, b'"\\ud83d\\ude00\\n\\u00e4\\/"', "😀\nä/"),
    (pa.bool_(), b"true", True),
    (pa.list_(WHOLE), b"[1, null,2 ]", [1, None, 2]),
    (pa.list_(pa.list_(TEXT)), b"[[], null]", [[], None]),
    (pa.struct({"a": WHOLE}), b'{"b": [{"a": 2}], "a": 1}', {"a": 1}),
    (pa.struct({"a": WHOLE}), b'{"\\u0061": 1}', {"a": 1}),
    (pa.struct({"a": WHOLE, "b": TEXT}), b"{}", {"a": None, "b": None}),
    (pa.struct({"": WHOLE}), b'{"": 1}', {"": 1}),
    (JSON_TEXT, b' {"a" : [1.0]} ', '{"a" : [1.0]}'),
    (pa.null(), b"null", None),
    (TEXT, b"null", None),
]


@pytest.mark.parametrize(("kind", "payload", "wanted"), FITS)
def test_what_fits_has_its_value(kind: pa.DataType, payload: bytes, wanted: Any) -> None:
    assert decoded(decoder_of_type(kind), payload, None) == ([wanted, None], {})


#: Of each type, texts that do not fit, and words of the reason.
MISFITS: list[tuple[pa.DataType, bytes, str]] = [
    (WHOLE, b"9223372036854775808", "too large for its type"),
    (WHOLE, b"1.5", "not whole"),
    (WHOLE, b"4503599627370497.5", "not whole"),
    (WHOLE, b"9.223372036854775808e18", "too large for its type"),
    (WHOLE, b"1e-1", "not whole"),
    (WHOLE, b"1e999999999999999999999", "too large for its type"),
    (WHOLE, b'"1"', "of another type"),
    (WHOLE, b"01", "not JSON"),
    (pa.int32(), b"2147483648", "too large for its type"),
    (REAL, b"1e309", "too large for its type"),
    (REAL, b"NaN", "of another type"),
    (REAL, b"0." + b"1" * 600, "too many values"),
    (pa.float32(), b"1e39", "too large for its type"),
    (TEXT, b"1", "of another type"),
    (TEXT, b'"\\ud800"', "half of a surrogate pair"),
    (TEXT, b'"\\ude00\\ud83d"', "half of a surrogate pair"),
    (TEXT, b'"\xff"', "not UTF-8"),
    (TEXT, b'"\xed\xa0\x80"', "not UTF-8"),
    (TEXT, b'"a\nb"', "not JSON"),
    (pa.bool_(), b"tru", "of another type"),
    (pa.struct({"a": WHOLE}), b'{"a": 1, "\\u0061": 1}', "a: a name stands twice"),
    (pa.struct({"a": WHOLE}), b'{"a": 1,}', "not JSON"),
    (pa.struct({"a": WHOLE}), b'{"b": 1 "a": 1}', "not JSON"),
    (pa.struct({"a": WHOLE}), b'{"b": nil}', "not JSON"),
    (pa.struct({"a": WHOLE}), b'{"b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
    (pa.struct({"a": WHOLE}), b"[]", "of another type"),
    (pa.struct({"a": pa.struct({"b": WHOLE})}), b'{"a": {"b": "x"}}', "b: a value of another"),
    (pa.list_(WHOLE), b"[1,]", "of another type"),
    (pa.list_(WHOLE), b"[1", "not JSON"),
    (JSON_TEXT, b"[" * 600 + b"]" * 600, "not JSON"),
    (JSON_TEXT, b"{} {}", "follow the value"),
    (pa.null(), b"0", "of another type"),
    (TEXT, b"", "not JSON"),
    (TEXT, b"\xef\xbb\xbfnull", "of another type"),
]


@pytest.mark.parametrize(("kind", "payload", "words"), MISFITS)
def test_what_does_not_fit_is_null_with_a_reason(
    kind: pa.DataType, payload: bytes, words: str
) -> None:
    values, reasons = decoded(decoder_of_type(kind), b"null", payload)
    assert values == [None, None]
    assert list(reasons) == [1]
    assert words in reasons[1]


def test_a_record_that_fails_leaves_nothing_behind() -> None:
    found = decoder_of_type(json_payloads.TYPE)
    lines = b'{"lines": [{"codes": [[1, 2]]}, {"name": "x", "codes": [[3]'
    good = b'{"lines": [{"codes": [[7]]}], "tags": ["t"]}'
    values, reasons = decoded(found, good, lines, good)
    assert values[0] == values[2] != values[1]
    assert values[0]["lines"] == [{"name": None, "codes": [[7]]}]
    assert list(reasons) == [1]


def test_a_few_bytes_never_become_many_values() -> None:
    wide = pa.list_(pa.struct([(f"f{n}", WHOLE) for n in range(9000)]))
    values, reasons = decoded(decoder_of_type(wide), b"[" + b"{}," * 9999 + b"{}]", b"[{}]")
    assert "too many values for its size" in reasons[0]
    assert values[1] == [dict.fromkeys(f"f{n}" for n in range(9000))]


def test_values_equal_those_of_confluents_deserializer() -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    context, text = SerializationContext("orders", MessageField.VALUE), json.dumps(ORDER)
    serialize = JSONSerializer(text, registry)
    deserialize = JSONDeserializer(text, schema_registry_client=registry)
    orders = [
        {"id": number, "who": {"name": f"n{number}"}, "lines": [{"sku": "x", "price": number / 8}]}
        for number in range(100)
    ]
    written = [serialize(each, context) for each in orders]
    values, reasons = decoded(decoder_of_schema(text), *(each[5:] for each in written))
    assert reasons == {}
    for value, payload in zip(values, written, strict=True):
        assert value == {"note": None, "extra": None, **deserialize(payload, context)}


ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {"$ref": "#/$defs/a~1b%20c"},
        "note": {"type": ["string", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "extra": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "$defs": {
        "a/b c": {"type": "object", "properties": {"name": {"type": "string"}}},
        "line": {
            "properties": {
                "sku": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                "price": {"type": "number"},
            }
        },
    },
}

#: Schemas, and the types of their values.
TYPES: list[tuple[Any, pa.DataType]] = [
    (
        ORDER,
        pa.struct(
            {
                "id": WHOLE,
                "who": pa.struct({"name": TEXT}),
                "note": TEXT,
                "lines": pa.list_(pa.struct({"sku": TEXT, "price": REAL})),
                "extra": TEXT,
            }
        ),
    ),
    (True, TEXT),
    ({}, TEXT),
    ({"type": "null"}, pa.null()),
    ({"type": ["integer", "number", "null"]}, REAL),
    ({"type": ["integer", "string"]}, TEXT),
    ({"type": "array"}, pa.list_(TEXT)),
    ({"type": "object", "properties": {}}, TEXT),
    ({"allOf": [{"type": "integer"}]}, WHOLE),
    ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, TEXT),
    ({"type": "unheard-of"}, TEXT),
    ({"type": [{}, []]}, TEXT),
    ({"type": "array", "items": [{"type": "integer"}]}, pa.list_(TEXT)),
    ({"anyOf": []}, TEXT),
    (
        {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}},
        pa.struct({"next": TEXT, "n": WHOLE}),
    ),
]


@pytest.mark.parametrize(("schema", "wanted"), TYPES)
def test_a_json_schema_gives_types(schema: Any, wanted: pa.DataType) -> None:
    assert decoder_of_schema(json.dumps(schema)).type == wanted


def test_what_a_schema_leaves_open_is_the_text_of_json() -> None:
    found = decoder_of_schema({"properties": {"any": {}, "next": {"$ref": "#"}}})
    payload = b'{"any": [1, {"a": 1}], "next": {"any": "x"}}'
    assert decoded(found, payload) == ([{"any": '[1, {"a": 1}]', "next": '{"any": "x"}'}], {})


def test_references_are_taken_from_those_given() -> None:
    inner = {"definitions": {"n": {"type": "integer"}, "m": {"$ref": "#/definitions/n"}}}
    given = {"inner.json": Schema("i", 1, 1, None, "JSON", json.dumps(inner))}
    found = decoder_of_schema({"$ref": "inner.json#/definitions/m"}, given)
    assert found.type == WHOLE


@pytest.mark.parametrize(
    "reference",
    ["other.json", "file:///etc/hostname", "http://x/#/a", "#/nowhere", "#anchor", "#/a/9"],
)
def test_a_reference_opens_nothing(reference: str) -> None:
    with pytest.raises(SchemaError, match="is neither a place in the schema"):
        decoder_of_schema({"$ref": reference, "a": [1]})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": NaN}', "\ud800"])
def test_a_schema_that_is_not_json_is_a_typed_error(text: str) -> None:
    with pytest.raises(SchemaError, match="a JSON Schema: "):
        decoder_of_schema(text)


def test_a_type_that_is_too_large_is_a_typed_error() -> None:
    level: dict[str, Any] = {"type": "integer"}
    shared = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/d{n + 1}"}, "b": {"$ref": f"#/d{n + 1}"}}}
        for n in range(30)
    }
    with pytest.raises(SchemaError, match="more than 10000"):
        decoder_of_schema({**shared, "d30": level, "$ref": "#/d0"})
    with pytest.raises(SchemaError, match="more than 10000"):
        decoder_of_type(pa.struct([(str(n), WHOLE) for n in range(10_001)]))
    chain = {f"d{n}": {"$ref": f"#/d{n + 1}"} for n in range(5000)}
    with pytest.raises(SchemaError, match="200 in each other"):
        decoder_of_schema({**chain, "d5000": level, "$ref": "#/d0"})
    deep = WHOLE
    for _ in range(150):
        deep = pa.list_(deep)
    with pytest.raises(SchemaError, match="too many levels"):
        decoder_of_type(deep)
    with pytest.raises(SchemaError, match="more than 255 bytes"):
        decoder_of_type(pa.struct([("x" * 256, WHOLE)]))
    with pytest.raises(SchemaError, match="two fields of one name"):
        decoder_of_type(pa.struct([("x", WHOLE), ("x", WHOLE)]))
    for kind in (pa.decimal128(5), pa.timestamp("us"), pa.map_(TEXT, WHOLE), pa.binary()):
        with pytest.raises(SchemaError, match="JSON is not decoded as"):
            decoder_of_type(pa.struct({"a": kind}))


def test_a_sample_gives_the_type_of_all_its_values() -> None:
    rows = [
        b'{"a": 1, "b": null, "c": [1], "d": {"x": 1}, "e": 1}',
        b'{"a": 2.5, "b": "x", "c": [null, 2.5], "d": {"y": true}, "e": "1", "f": null, "g": {}}',
        b"not JSON",
        None,
        b'{"a": 18446744073709551616, "h": []}',
    ]
    found = infer(pa.array(rows, pa.binary()))
    assert found == pa.struct(
        {
            "a": REAL,
            "b": TEXT,
            "c": pa.list_(REAL),
            "d": pa.struct({"x": WHOLE, "y": pa.bool_()}),
            "e": JSON_TEXT,
            "f": JSON_TEXT,
            "g": JSON_TEXT,
            "h": pa.list_(JSON_TEXT),
        }
    )
    values, reasons = decoded(decoder_of_type(found), *rows)
    assert list(reasons) == [2]
    assert (values[0]["e"], values[1]["e"], values[1]["g"]) == ("1", '"1"', "{}")
    assert infer(pa.array([], pa.binary())) == JSON_TEXT
