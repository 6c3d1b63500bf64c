"""Avro: the fast decoder against fastavro, value by value, and bytes that are no values."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from kseg.decode.avro import decoder
from kseg.errors import SchemaError
from kseg.internal.registry import Schema
from tests.shares import WHOLE

ROUNDS = 5_000 if WHOLE else 100
MUTATIONS = 100_000 if WHOLE else 2_000
EVENT = {
    "type": "record",
    "name": "shop.Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "either", "type": ["null", "long", "string", "Kind"]},
        {"name": "ok", "type": "boolean"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "last", "type": "double"},
    ],
}


def schema_of(schema: Any) -> Schema:
    return Schema("s", 1, 1, None, "AVRO", json.dumps(schema))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def slow(writer: Any, reader: Any, payload: bytes) -> Any:
    """What fastavro reads; ValueError where it does not, or leaves bytes."""
    source = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(source, writer, reader)
    except Exception as error:
        raise ValueError from error
    if source.read(1):
        raise ValueError("bytes are left")
    return value


def plain(value: Any) -> Any:
    """A value as text that is the same for equal values, of both sides."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str) and len(value) == 36:
        return value.lower()  # a UUID may be written in either case
    return value


def fast(writer: Any, payloads: list[bytes | None], reader: Any = None) -> tuple[list[Any], Any]:
    made = decoder(schema_of(writer), None if reader is None else schema_of(reader), {})
    values, reasons = made.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    assert values.type == made.type
    assert len(values) == len(payloads)
    found = [plain(each) for each in values.to_pylist(maps_as_pydicts="lossy")]
    return found, reasons


def event(number: int) -> dict[str, Any]:
    return {
        "id": number - 3,
        "user": f"user-{number} ü",
        "note": None if number % 3 else "note",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "tags": ["a", "", "long tag"][: number % 4],
        "sizes": {"s": 1, "n": None} if number % 2 else {},
        "kind": "ABC"[number % 3],
        "sum": Decimal(number * 7_919 - 50_000),
        "hash": bytes([number % 256]) * 4,
        "either": [None, number, "text", "B"][number % 4],
        "ok": number % 2 == 0,
        "day": date(2026, 1, 1 + number % 28),
        "uuid": str(UUID(int=number)),
        "last": number / 7,
    }


def test_every_type_is_as_fastavro_has_it() -> None:
    payloads = [written(EVENT, event(number)) for number in range(300)]
    values, reasons = fast(EVENT, [None, *payloads])
    assert reasons == {}
    assert values == [None, *(plain(slow(EVENT, None, each)) for each in payloads)]


def test_slices_and_large_columns_are_read_where_they_lie() -> None:
    payloads = pa.array([written(EVENT, event(number)) for number in range(20)], pa.binary())
    made = decoder(schema_of(EVENT), None, {})
    whole, _ = made.decode(payloads)
    assert made.decode(payloads.slice(5, 9))[0].equals(whole.slice(5, 9))
    assert made.decode(payloads.cast(pa.large_binary()))[0].equals(whole)
    assert len(made.decode(pa.array([], pa.binary()))[0]) == 0


NAMED = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
EVOLVED: list[tuple[Any, Any, Any, Any]] = [
    ("int", "double", 5, 5.0),
    ("long", "float", 5, 5.0),
    ("float", "double", 0.5, 0.5),
    ("string", "bytes", "é", "é".encode()),
    ("bytes", "string", b"text", "text"),
    (["null", "int"], ["null", "long"], 7, 7),
    ("int", ["null", "long"], 7, 7),
    (["int", "string"], ["string", "long"], 7, 7),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["B", "X"], "default": "X"},
        "A",
        "X",
    ),
    (
        NAMED,
        {
            "type": "record",
            "name": "New",
            "aliases": ["R"],
            "fields": [
                {"name": "y", "type": "long", "aliases": ["x"]},
                {"name": "z", "type": ["null", "string"], "default": None},
                {"name": "l", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
                {"name": "b", "type": "bytes", "default": "\u00ff"},
                {"name": "u", "type": ["int", "string"], "default": 5},
                {"name": "d", "type": {"type": "int", "logicalType": "date"}, "default": 1},
                {
                    "name": "m",
                    "type": {
                        "type": "map",
                        "values": {
                            "type": "bytes",
                            "logicalType": "decimal",
                            "precision": 40,
                            "scale": 2,
                        },
                    },
                    "default": {"k": "\u00ff"},
                },
                {
                    "name": "r",
                    "type": {**NAMED, "name": "Inner"},
                    "default": {"x": 3},
                },
            ],
        },
        {"x": 4},
        {
            "y": 4,
            "z": None,
            "l": [1, 2],
            "b": b"\xff",
            "u": 5,
            "d": date(1970, 1, 2),
            "m": {"k": Decimal("-0.01")},
            "r": {"x": 3},
        },
    ),
    (
        {
            **NAMED,
            "fields": [
                *NAMED["fields"],
                {"name": "gone", "type": {"type": "map", "values": "string"}},
            ],
        },
        NAMED,
        {"x": 1, "gone": {"k": "v"}},
        {"x": 1},
    ),
]


@pytest.mark.parametrize(("writer", "reader", "value", "wanted"), EVOLVED)
def test_a_writer_is_resolved_to_the_reader(
    writer: Any, reader: Any, value: Any, wanted: Any
) -> None:
    payload = written(writer, value)
    if writer == "bytes":  # Confluent's serializers write it as it is
        writer, reader = [writer], [reader]
        payload = written(writer, value)
    values, reasons = fast(writer, [payload], reader)
    assert (values, reasons) == ([plain(wanted)], {})


def test_a_bare_schema_of_bytes_takes_payloads_as_they_are() -> None:
    assert fast("bytes", [b"\x05raw", b"", None]) == ([b"\x05raw", b"", None], {})


def union_of(types: list[Any]) -> Any:
    return {"type": "record", "name": "U", "fields": [{"name": "f", "type": types}]}


BAD: list[tuple[Any, bytes, str]] = [
    ("long", b"", "ends early"),
    ("long", b"\x80" * 9, "ends early"),
    ("long", b"\xff" * 11, "not a number"),
    ("int", b"\xff\xff\xff\xff\xff\x01", "range"),
    ("long", b"\x02\x00", "left after"),
    ("string", b"\x01", "negative size"),
    ("string", b"\x04a", "ends early"),
    ("string", b"\x02\xff", "UTF-8"),
    ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends early"),
    ("boolean", b"\x02", "range"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "symbol"),
    (["null", "int"], b"\x04", "union has no such type"),
    ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\x01\x00", "too many"),
    ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f\x00", "ends early"),
    ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "range"),
    ({"type": "string", "logicalType": "uuid"}, b"\x02x", "UUID"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "range"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x9c", "range"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x50" + b"\x7f" * 40, "range"),
    ({"type": "fixed", "name": "F", "size": 3}, b"ab", "ends early"),
]


@pytest.mark.parametrize(("field", "payload", "reason"), BAD)
def test_bytes_that_are_no_value_are_null_with_a_reason(
    field: Any, payload: bytes, reason: str
) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "f", "type": field}]}
    good = written(EVENT, event(1))
    values, reasons = fast(schema, [payload, None, payload])
    assert values == [None] * 3
    assert reasons.keys() == {0, 2}
    assert reason in reasons[0]
    assert fast(EVENT, [good, b"", good])[0][2] == plain(slow(EVENT, None, good))


def test_decimals_keep_their_bounds() -> None:
    schema = union_of([{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}])
    payloads = [b"\x00\x02\x63", b"\x00\x02\x9d", b"\x00\x00", b"\x00\x06\xff\xff\x9d"]
    values, reasons = fast(schema, payloads)
    assert reasons == {}
    assert [each["f"] for each in values] == [*map(Decimal, ("9.9", "-9.9", "0.0", "-9.9"))]


def deep(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def doubling(levels: int) -> list[Any]:
    names = [f"R{level}" for level in range(levels)]
    return [
        {
            "type": "record",
            "name": name,
            "fields": [{"name": part, "type": below} for part in ("a", "b")],
        }
        for name, below in zip(names, ["int", *names], strict=False)
    ]


TREE = {"type": "record", "name": "Tree", "fields": [{"name": "l", "type": ["null", "Tree"]}]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (TREE, "a part of itself"),
        ({"type": "array", "items": TREE}, "a part of itself"),
        (deep(240), "types in types"),
        (union_of([{**NAMED, "name": f"N{n}"} for n in range(1_000)]), "a union has more than"),
        (
            {
                "type": "record",
                "name": "B",
                "fields": [{"name": f"f{n}", "type": "int"} for n in range(10_001)],
            },
            "columns",
        ),
        ("Missing", "not a schema of Avro"),
        ({"type": "record"}, "not a schema of Avro"),
        ({"type": "record", "name": "R", "fields": 3}, "not a schema of Avro"),
        (7, "not a schema of Avro"),
    ],
)
def test_a_schema_that_cannot_be_taken_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        decoder(schema_of(schema), None, {})


def test_records_that_double_with_each_level_are_refused() -> None:
    *below, top = doubling(30)
    references = {each["name"]: schema_of(each) for each in below}
    with pytest.raises(SchemaError, match="more than 10000 columns"):
        decoder(schema_of(top), None, references)


# ---- random schemas ------------------------------------------------------------------------------

PRIMITIVES = ["int", "long", "float", "double", "string", "bytes", "boolean"]
LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 3},
]


class Maker:
    """Random schemas, values of them, and schemas that read them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def schema(self, levels: int = 3) -> Any:
        choose = self.random.randrange(10 if levels else 6)
        self.names += 1
        name = f"N{self.names}"
        if choose < 4:
            return self.random.choice(PRIMITIVES)
        if choose == 4:
            return self.random.choice(LOGICAL)
        if choose == 5:
            if self.random.random() < 0.5:
                return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
            return {"type": "fixed", "name": name, "size": self.random.randrange(1, 5)}
        if choose == 6:
            return {"type": "array", "items": self.schema(levels - 1)}
        if choose == 7:
            return {"type": "map", "values": self.schema(levels - 1)}
        if choose == 8:
            kinds = ["null", "int", "string"][: self.random.randrange(2, 4)]
            return kinds if self.random.random() < 0.7 else ["string", "double"]
        fields = [{"name": f"f{n}", "type": self.schema(levels - 1)} for n in range(3)]
        return {"type": "record", "name": name, "fields": fields}

    def reader(self, schema: Any) -> Any:
        """A schema that can read another one."""
        some = self.random.random()
        if isinstance(schema, list):
            return schema if some < 0.5 or "int" not in schema else [*schema, "boolean"]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "int" and some < 0.5 and schema == "int":
            return "long"
        if kind == "record":
            fields = [{**each, "type": self.reader(each["type"])} for each in schema["fields"]]
            self.random.shuffle(fields)
            if some < 0.5:
                fields = fields[1:]
                fields.append({"name": "new", "type": ["null", "int"], "default": None})
            return {**schema, "fields": fields}
        if kind == "array":
            return {**schema, "items": self.reader(schema["items"])}
        if kind == "map":
            return {**schema, "values": self.reader(schema["values"])}
        return ["null", schema] if some < 0.2 and kind != "null" else schema

    def value(self, schema: Any) -> Any:
        pick = self.random
        if isinstance(schema, list):
            return self.value(pick.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        made: dict[Any, Any] = {
            "null": lambda: None,
            "int": lambda: pick.randrange(-(2**31), 2**31),
            "long": lambda: pick.randrange(-(2**63), 2**63),
            "float": lambda: float(pick.randrange(-1000, 1000)) / 8,
            "double": lambda: pick.uniform(-1e9, 1e9),
            "string": lambda: "".join(pick.choices("ab üß€😀", k=pick.randrange(9))),
            "bytes": lambda: pick.randbytes(pick.randrange(6)),
            "boolean": lambda: pick.random() < 0.5,
            "enum": lambda: pick.choice("ABC"),
            "fixed": lambda: pick.randbytes(schema["size"]),
            "array": lambda: [self.value(schema["items"]) for _ in range(pick.randrange(4))],
            "map": lambda: {
                f"k{n}": self.value(schema["values"]) for n in range(pick.randrange(3))
            },
            "record": lambda: {e["name"]: self.value(e["type"]) for e in schema["fields"]},
            "date": lambda: date.fromordinal(pick.randrange(1, 3_000_000)),
            "time-millis": lambda: time(pick.randrange(24), pick.randrange(60), 1, 5_000),
            "time-micros": lambda: time(pick.randrange(24), pick.randrange(60), 1, 17),
            "timestamp-micros": lambda: datetime(pick.randrange(1, 9999), 2, 3, 4, 5, 6, 7, UTC),
            "local-timestamp-millis": lambda: datetime(pick.randrange(1, 9999), 2, 3, 4),
            "uuid": lambda: str(UUID(int=pick.randrange(2**128))),
            "decimal": lambda: Decimal(pick.randrange(-(10**30), 10**30)).scaleb(-3),
        }
        return made[logical or kind]()


def cases() -> Iterator[int]:
    yield from range(ROUNDS)


def test_random_schemas_and_values_are_as_fastavro_has_them() -> None:
    for seed in cases():
        maker = Maker(seed)
        schema = {
            "type": "record",
            "name": "Top",
            "fields": [{"name": f"t{n}", "type": maker.schema()} for n in range(2)],
        }
        reader = maker.reader(schema)
        payloads = [written(schema, maker.value(schema)) for _ in range(6)]
        parsed, parsed_reader = fastavro.parse_schema(schema), fastavro.parse_schema(reader)
        try:
            wanted = [plain(slow(parsed, parsed_reader, each)) for each in payloads]
        except ValueError:
            continue
        assert fast(schema, payloads, reader) == (wanted, {}), f"seed {seed}: {schema} {reader}"


def mutated(pick: random.Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(pick.randrange(1, 4)):
        at = pick.randrange(len(data) + 1)
        match pick.randrange(5):
            case 0:
                data[at : at + 1] = pick.randbytes(1)
            case 1:
                del data[at : at + pick.randrange(1, 9)]
            case 2:
                data[at:at] = pick.randbytes(pick.randrange(1, 4))
            case 3:
                data += pick.randbytes(1)
            case _:
                if at < len(data):
                    data[at] ^= 1 << pick.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_mutated_payload_has_a_value_that_fastavro_does_not_give(seed: int) -> None:
    pick, schema = random.Random(seed), fastavro.parse_schema(EVENT)
    good = [written(EVENT, event(number)) for number in range(200)]
    payloads = [mutated(pick, pick.choice(good)) for _ in range(MUTATIONS // 2)]
    values, reasons = fast(EVENT, [*payloads])
    for row, payload in enumerate(payloads):
        if row in reasons:
            assert values[row] is None
        else:
            assert values[row] == plain(slow(schema, None, payload)), payload.hex()
