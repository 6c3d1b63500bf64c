"""Schemas with changed text: a typed error, or values as other readers of the format have them.

Each changed schema reads a hundred payloads: some of the schema that it was, some with bytes
changed. A fiftieth of the schemas each time, all in `make soak`.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kseg.decode.avro_schema import DECIMAL_DIGITS_MAX
from kseg.decode.payloads import Decoder
from kseg.decode.registry import Choice, Decoding
from kseg.internal.registry import Reference, Schema, Schemas
from tests import json_payloads
from tests.fuzz.test_typed import plain as sorted_maps
from tests.protobuf_payloads import MONEY, OLD, SHOP, message, spoil
from tests.shares import WHOLE
from tests.unit.decode.test_avro import EVENT, Maker, event, mutated, plain, slow, written

SCHEMAS = 20_000 if WHOLE else 80
#: Each is compiled by a process.
PROTOBUF_SCHEMAS = 20_000 if WHOLE else 20
PAYLOADS = 100
#: Memory that values may take beyond their payloads.
BYTES_MAX = 64 << 20
#: Values in the place of a part of a schema.
_SPLINTERS: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 40, 3_000_000_000, 2**63, 1e300, "", "null", "int", "bytes", "record"),
    *("fixed", "array", "enum", "Hash", "shop.Event", "decimal", "a\0b", "../x", "\ud800", "ü"),
    *([], ["null"], ["null", "null"], ["int", ["long"]], {}, {"type": "fixed", "name": "F"}),
    *({"type": "array", "items": "null"}, {"type": "record", "name": "E", "fields": []}),
    *({"$ref": "#"}, {"$ref": "#/properties/id"}, {"$ref": "file:///etc/passwd"}, {"type": 7}),
)


def changed(document: Any, pick: Random) -> Any:
    """A document of JSON with one to three changes."""
    root = [copy.deepcopy(document)]
    for _ in range(pick.randrange(1, 4)):
        parent, key = pick.choice(list(_places(root)))
        what = pick.randrange(5)
        if what == 0:
            parent[key] = copy.deepcopy(pick.choice(_SPLINTERS))
        elif what == 1 and parent is not root:
            del parent[key]
        elif what == 2:
            other, its_key = pick.choice(list(_places(root)))
            parent[key] = copy.deepcopy(other[its_key])
        elif what == 3 and isinstance(parent, dict):
            parent[pick.choice(("type", "name", "fields", "size", "logicalType"))] = parent[key]
        elif isinstance(parent[key], int):
            parent[key] = pick.choice((0, -1, parent[key] + 1, 10**9, 2**31))
    return root[0]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = range(len(value)) if isinstance(value, list) else list(value)
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def made_of(schema: Schema, *others: Schema) -> Decoder | None:
    """The decoder of a schema; None where it is refused. Any other error is a fault."""
    decoding = Decoding("registry-json", pa.string(), Choice(Schemas((schema, *others))), None)
    made = decoding.decoder_of(schema, ())
    return None if isinstance(made, str) else made


def values_of(
    made: Decoder, payloads: list[bytes], *, maps: bool = True
) -> tuple[list[Any], dict[int, str]]:
    """The values of payloads, which take memory in proportion."""
    found = pa.array(payloads, pa.binary())
    values, reasons = made.decode(found)
    values.validate(full=True)
    assert len(values) == len(payloads)
    assert values.nbytes < BYTES_MAX + 64 * found.nbytes
    return values.to_pylist(maps_as_pydicts="lossy" if maps else None), reasons


def document_of(text: Any) -> str:
    return json.dumps(text, ensure_ascii=True)


@pytest.mark.filterwarnings("ignore:Encountered key")
def test_changed_schemas_of_avro_are_refused_or_as_fastavro_has_them() -> None:
    made_count = 0
    for seed in range(SCHEMAS):
        pick, maker = Random(seed), Maker(seed)
        base = EVENT if seed % 4 == 0 else maker.schema()
        payloads = [
            written(base, event(number) if base is EVENT else maker.value(base))
            for number in range(PAYLOADS // 2)
        ]
        payloads += [mutated(pick, each) for each in payloads]
        text = changed(base, pick)
        made = made_of(Schema("s", 1, 1, None, "AVRO", document_of(text)))
        if made is None:
            continue
        made_count += 1
        values, reasons = values_of(made, payloads)
        try:
            theirs = fastavro.parse_schema(sound(text))
        except Exception:
            continue  # kseg has read it: the values cannot be compared
        for row, payload in enumerate(payloads):
            if row in reasons:
                assert values[row] is None
                continue
            if made.type == pa.binary() and values[row] == payload:
                continue  # as Confluent writes bytes
            assert plain(values[row]) == plain(slow(theirs, None, payload)), (seed, payload.hex())
    assert made_count > SCHEMAS / 10


def sound(schema: Any) -> Any:
    """A schema without the decimals that Avro passes over, and fastavro does not."""
    if isinstance(schema, list):
        return [sound(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: sound(each) for name, each in schema.items()}
    precision, scale = found.get("precision"), found.get("scale", 0)
    numbers = type(precision) is int and type(scale) is int
    if found.get("logicalType") == "decimal" and not (
        numbers and 0 <= scale <= precision <= DECIMAL_DIGITS_MAX and precision
    ):
        del found["logicalType"]
    return found


JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "amount": {"type": "number"},
        "active": {"type": "boolean"},
        "any": {},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "either": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/line"}]},
    },
    "$defs": {"line": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def test_changed_json_schemas_are_refused_or_as_pythons_reader_has_them() -> None:
    made_count = 0
    for seed in range(SCHEMAS):
        pick = Random(seed)
        payloads = [json_payloads.text(pick) for _ in range(PAYLOADS // 2)]
        payloads += [json_payloads.spoil(each, pick) for each in payloads]
        text = document_of(changed(JSON_SCHEMA, pick))
        made = made_of(Schema("s", 1, 1, None, "JSON", text))
        if made is None:
            continue
        made_count += 1
        values, reasons = values_of(made, payloads)
        for row in range(len(payloads)):
            assert (row in reasons) <= (values[row] is None)
    assert made_count > SCHEMAS / 10


_TOKENS = (
    *("int32", "string", "bytes", "repeated", "optional", "map<string, Order>", "Order", "Line"),
    *("message M {", "}", ";", "= 0", "= 536870912", "= 1", "enum E { A = 1; }", "oneof o {"),
    *('import "a\\0b";', 'import "../x";', 'import "/etc/passwd";', "extend Order {", "group"),
    *('syntax = "proto2";', 'syntax = "proto3";', "reserved 1 to max;", "google.protobuf.Any"),
)
_NAMES = (
    "common/money.proto",
    "a\0b",
    "../x",
    "/x",
    "",
    ".",
    "google/protobuf/any.proto",
    "x" * 300,
)


def changed_text(text: str, pick: Random) -> str:
    """The text of a `.proto` file with one or two words changed."""
    words = text.split(" ")
    for _ in range(pick.randrange(1, 3)):
        at = pick.randrange(len(words))
        what = pick.randrange(4)
        if what == 0:
            words[at] = pick.choice(_TOKENS)
        elif what == 1:
            del words[at]
        elif what == 2:
            words.insert(at, pick.choice(_TOKENS))
        else:
            words[at] = words[pick.randrange(len(words))]
    return " ".join(words)


def test_changed_schemas_of_protobuf_are_refused_or_as_protobuf_has_them() -> None:
    made_count = 0
    exact: Callable[[bytes], Any]
    for seed in range(PROTOBUF_SCHEMAS):
        pick = Random(seed)
        name = "common/money.proto" if pick.random() < 0.8 else pick.choice(_NAMES)
        text = changed_text(SHOP if seed % 2 else OLD, pick).replace("common/money.proto", name)
        reference = Reference(name, "money", 1)
        schema = Schema("s", 1, 1, None, "PROTOBUF", text, (reference,))
        money = Schema("money", 1, 2, None, "PROTOBUF", MONEY)
        made: Any = made_of(schema, money)
        if made is None:
            continue
        made_count += 1
        payloads = [message(made._parse, pick).SerializePartialToString() for _ in range(50)]
        payloads += [spoil(each, pick) for each in payloads]
        values, reasons = values_of(made, payloads, maps=False)
        exact = made.exact
        for row, payload in enumerate(payloads):
            try:
                (wanted,) = pa.array([exact(payload)], made.type).to_pylist()
            except ValueError:
                assert row in reasons, (seed, payload.hex())
            else:
                assert row not in reasons, (seed, payload.hex())
                assert sorted_maps(values[row]) == sorted_maps(wanted), (seed, payload.hex())
    assert made_count > PROTOBUF_SCHEMAS / 20


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ({"type": "fixed", "name": "F", "size": 3_000_000_000}, b""),
        ({"type": "record", "name": "R"}, b""),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, b"\xfe\xff\x7f\0"),
        (["null", {"type": "fixed", "name": "F", "size": 1 << 30}], b"\0"),
    ],
)
def test_a_few_bytes_do_not_become_many(text: Any, payload: bytes) -> None:
    made = made_of(Schema("s", 1, 1, None, "AVRO", document_of(text)))
    if made is not None:
        values_of(made, [payload] * PAYLOADS)


def test_what_fastavro_reads_of_no_bytes_is_read() -> None:
    empty = {"type": "record", "name": "R", "fields": []}
    made = made_of(Schema("s", 1, 1, None, "AVRO", document_of(empty)))
    assert made is not None
    assert values_of(made, [b"", b""]) == ([{}, {}], {})
    assert fastavro.schemaless_reader(io.BytesIO(), fastavro.parse_schema(empty), None) == {}
