"""Protobuf to structs: what serializers write, what they do not, and schemas that are refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kseg.decode import protobuf
from kseg.decode.payloads import block_at
from kseg.decode.protobuf import ProtobufDecoder, decoder
from kseg.errors import LimitExceededError, SchemaError
from tests.protobuf_payloads import OLD, REFERENCES, SHOP, message, schema


@cache
def shop() -> ProtobufDecoder:
    return decoder(schema(SHOP), REFERENCES, "shop.v1.Order")


@cache
def all_messages() -> Any:
    """Every body in one file, since each compilation starts a process."""
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
    text += 'import "google/protobuf/struct.proto";'
    bodies = [body for body, *_ in (*UNUSUAL.values(), *WRONG.values(), *REFUSED_TYPES.values())]
    for number, body in enumerate([*bodies, TIMES, SPARSE]):
        text += f"message W{number} {{ message M {{ {body} }} }}"
    numbers = {body: number for number, body in enumerate([*bodies, TIMES, SPARSE])}
    return protobuf._compile(schema(text), {}), numbers


def one(body: str) -> ProtobufDecoder:
    file, numbers = all_messages()
    return ProtobufDecoder(protobuf._message_of(file, f"W{numbers[body]}.M"))


def plain(found: Any) -> Any:
    """A message as Arrow's Python values, by other calls than the decoder's."""
    name = getattr(found, "DESCRIPTOR", None) and found.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    if name == "google.protobuf.Duration":
        return timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    if name and name.endswith("Value") and name.startswith("google.protobuf."):
        return found.value
    if not name:
        return found
    set_fields = {field.name for field, _ in found.ListFields()}
    values = {}
    for field in found.DESCRIPTOR.fields:
        if field.has_presence and field.name not in set_fields:
            values[field.name] = None
            continue
        value = getattr(found, field.name)
        enum = field.enum_type
        if field.message_type and field.message_type.GetOptions().map_entry:
            enum = field.message_type.fields_by_name["value"].enum_type
            each = [(key, named(value[key], enum)) for key in value]
            values[field.name] = sorted(each, key=lambda pair: repr(pair[0]))
        elif field.is_repeated:
            values[field.name] = [named(each, enum) for each in value]
        else:
            values[field.name] = named(value, enum)
    return values


def named(value: Any, enum: Any) -> Any:
    if enum is None:
        return plain(value)
    names = {each.number: each.name for each in enum.values}
    return names.get(value, str(value))


def ordered(value: Any) -> Any:
    """The same with maps in order, since they have none."""
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        each = [ordered(one) for one in value]
        return sorted(each, key=lambda pair: repr(pair[0])) if each[:1] and is_map(each) else each
    return value if not isinstance(value, tuple) else (value[0], ordered(value[1]))


def is_map(values: list[Any]) -> bool:
    return isinstance(values[0], tuple)


def test_messages_equal_those_of_confluents_deserializer() -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    context, source = SerializationContext("orders", MessageField.VALUE), Random(7)
    cls, format_now = shop()._parse, {"use.deprecated.format": False}
    serialize = ProtobufSerializer(cls, registry, format_now)
    deserialize = ProtobufDeserializer(cls, format_now, registry)
    written = [serialize(message(cls, source), context) for _ in range(300)]
    stored = registry.get_latest_version("orders-value")
    names = [(each.name, each.subject, each.version) for each in stored.schema.references]
    references = {
        name: schema(registry.get_version(subject, version).schema.schema_str)
        for name, subject, version in names
    }
    # It registers descriptors in base64, not text.
    found = decoder(schema(stored.schema.schema_str), references, (0,))
    assert found.type == shop().type
    # 00, four bytes of the id, 00 for the first message.
    values, reasons = found.decode(pa.array([each[6:] for each in written], pa.binary()))
    assert reasons == {}
    wanted = [plain(deserialize(each, context)) for each in written]
    assert [ordered(each) for each in values.to_pylist()] == wanted


def test_what_serializers_write_goes_the_fast_way() -> None:
    source = Random(3)
    for found in (shop(), decoder(schema(OLD), {}, (1,))):
        parse = found._parse
        some = [message(parse, source).SerializePartialToString() for _ in range(200)]
        marks = found._table.mark(block_at(pa.array(some, pa.binary()), 0))
        assert marks.tolist() == [0] * len(some)
        assert found._bulk is not None
        values, reasons = found.decode(pa.array(some, pa.binary()))
        assert reasons == {}
        wanted = pa.array([found.exact(each) for each in some], found.type).to_pylist()
        assert [ordered(each) for each in values.to_pylist()] == [ordered(each) for each in wanted]


def test_the_message_is_named_or_found_by_its_indexes() -> None:
    assert (
        decoder(schema(SHOP), REFERENCES, (0, 0, 0)).type
        == decoder(schema(SHOP), REFERENCES, "shop.v1.Order.Line.Deep").type
    )
    # An entry of the map in front of it does not count, as in a registry.
    assert decoder(schema(OLD), {}, (1, 0)).type.names == ["name", "n"]
    assert decoder(schema(OLD), {}).type.names == ["x"]


#: A message, bytes that few writers write, and what protobuf makes of them.
UNUSUAL = {
    "a field twice": ("string a = 1;", b"\x0a\x01x\x0a\x01y", {"a": "y"}),
    "a message twice": (
        "N n = 1; message N { int32 a = 1; int32 b = 2; }",
        b"\x0a\x02\x08\x01\x0a\x02\x10\x02",
        {"n": {"a": 1, "b": 2}},
    ),
    "two members of a oneof": (
        "oneof o { int32 a = 1; int32 b = 2; }",
        b"\x08\x01\x10\x02",
        {"a": None, "b": 2},
    ),
    "a key of a map twice": (
        "map<int32, int32> m = 1;",
        b"\x0a\x04\x08\x01\x10\x01\x0a\x04\x08\x01\x10\x02",
        {"m": [(1, 2)]},
    ),
    "an entry without its key": ("map<int32, int32> m = 1;", b"\x0a\x02\x10\x01", {"m": [(0, 1)]}),
    "a map with keys of fixed size": (
        "map<fixed32, int32> m = 1;",
        b"\x0a\x07\x0d\x01\0\0\0\x10\x01",
        {"m": [(1, 1)]},
    ),
    "a group, which is unknown": ("int32 a = 1;", b"\x13\x08\x01\x14\x08\x02", {"a": 2}),
    "a varint that is too long": ("int32 a = 1;", b"\x08\x81\x80\x00", {"a": 1}),
    "a number of 64 bits in 32": ("int32 a = 1;", b"\x08\x81\x80\x80\x80\x10", {"a": 1}),
    "another wire type": ("int32 a = 1;", b"\x0d\x01\0\0\0", {"a": 0}),
    "one value unpacked": ("repeated int32 a = 1;", b"\x08\x01\x0a\x01\x02", {"a": [1, 2]}),
    "a number without a name": ("E e = 1; enum E { A = 0; }", b"\x08\x05", {"e": "5"}),
    "two names of a number": (
        "E e = 1; enum E { option allow_alias = true; A = 0; B = 0; }",
        b"\x08\x00",
        {"e": "A"},
    ),
    "a large field number": ("int32 a = 536870911;", b"\xf8\xff\xff\xff\x0f\x05", {"a": 5}),
    "no field": ("", b"\x08\x01", {}),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_bytes_mean_what_protobuf_says(name: str) -> None:
    body, payload, wanted = UNUSUAL[name]
    values, reasons = one(body).decode(pa.array([payload], pa.binary()))
    assert (values.to_pylist(), reasons) == ([wanted], {})


def test_types_that_only_protobuf_takes_keep_the_order_of_their_rows() -> None:
    body, payload, wanted = UNUSUAL["two names of a number"]
    rows = [payload if row % 3 else None for row in range(3000)]
    values, reasons = one(body).decode(pa.array(rows, pa.binary()))
    assert values.to_pylist() == [wanted if row % 3 else None for row in range(3000)]
    assert reasons == {}


#: Bytes that are no message of a type with these fields.
WRONG = {
    "a length beyond the end": ("string a = 1;", b"\x0a\x05abc"),
    "a length of 2^64 - 1": ("string a = 1;", b"\x0a" + b"\xff" * 9 + b"\x01"),
    "the same in an unknown field": ("string a = 1;", b"\x12" + b"\xff" * 9 + b"\x01abcdefghij"),
    "field number 0": ("int32 a = 1;", b"\x00\x01"),
    "wire type 7": ("int32 a = 1;", b"\x0f"),
    "packed numbers cut": ("repeated fixed32 a = 1;", b"\x0a\x05\x01\0\0\0\x02"),
    "a group without an end": ("int32 a = 1;", b"\x13\x08\x01"),
    "groups in groups": ("int32 a = 1;", b"\x13" * 100_000),
    "a string that is not UTF-8": ("string a = 1;", b"\x0a\x01\xff"),
    "a tag of ten bytes": ("int32 a = 1;", b"\x88" + b"\x80" * 8 + b"\x01\x01"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bytes_are_null_with_a_reason(name: str) -> None:
    body, payload = WRONG[name]
    values, reasons = one(body).decode(pa.array([b"", payload], pa.binary()))
    assert values.is_null().to_pylist() == [False, True]
    assert list(reasons) == [1]


TIMES = "google.protobuf.Timestamp t = 1;"
SPARSE = (
    "repeated N n = 1; message N { " + " ".join(f"int64 f{n} = {n};" for n in range(1, 301)) + "}"
)


def test_a_time_outside_its_years_is_a_reason() -> None:
    found = one(TIMES)
    times = (
        (253_402_300_800, 0),
        (-62_135_596_801, 0),
        (2**63 - 1, 0),
        (0, -1),
        (0, 10**9),
        (0, 0),
    )
    rows = []
    for seconds, nanos in times:
        made = found._parse()
        made.t.seconds, made.t.nanos = seconds, nanos
        rows.append(made.SerializeToString())
    values, reasons = found.decode(pa.array(rows, pa.binary()))
    assert values.to_pylist() == [None] * 5 + [{"t": datetime(1970, 1, 1, tzinfo=UTC)}]
    assert ["M.t is no Timestamp" in reason for reason in reasons.values()] == [True] * 5


def test_a_few_bytes_never_become_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "VALUES_MAX", 10_000)
    small, half = b"\x0a\x02\x08\x01", b"\x0a\x00" * 20
    many, odd = b"\x0a\x00" * 30_000, (b"\x15\1\0\0\0", b"\x0b", b"\x80\x82\x00\x01")
    rows = [small, half, half, many, small, half, *(each + many for each in odd)]
    values, reasons = one(SPARSE).decode(pa.array(rows, pa.binary()))
    assert list(reasons) == [3, 6, 7, 8]
    assert all(reason.startswith("more than") for reason in reasons.values())
    found = [row and len(row["n"]) for row in values.to_pylist()]
    assert found == [1, 20, 20, None, 1, 20, None, None, None]


def wide(depth: int) -> str:
    """A tree of messages that doubles with each level."""
    inner = "int32 x = 1;" if depth == 0 else f"X a = 1; X b = 2; message X {{ {wide(depth - 1)} }}"
    return inner


#: Types that are refused, and words of the refusal.
REFUSED_TYPES = {
    "recursive": ("M m = 1;", "holds itself"),
    "recursive over a map": ("N n = 1; message N { map<int32, M> m = 1; }", "M > N > M"),
    "Struct": ("google.protobuf.Struct s = 1;", "google.protobuf.Struct holds itself"),
    "2^14 fields": (wide(13), "10000 fields"),
}


@pytest.mark.parametrize("name", REFUSED_TYPES)
def test_a_type_that_has_no_columns_is_a_typed_error(name: str) -> None:
    body, words = REFUSED_TYPES[name]
    with pytest.raises(SchemaError, match=words):
        one(body)


#: Schemas that are refused, and words of the refusal.
REFUSED = {
    "a path that climbs": ('import "../x.proto"; message M {}', "does not compile"),
    "a file of the machine": ('import "/etc/hostname"; message M {}', "does not compile"),
    "a reference that is missing": ('import "common/money.proto"; message M {}', "was not found"),
    "empty": ("", "no message with indexes (0,)"),
    "zero": ("\0", "does not compile"),
    "deep": ("message A {" * 100_000, "does not compile"),
    "a type of Protobuf's own": ("package google.protobuf; message Timestamp {}", "Protobuf's own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_cannot_be_taken_is_a_typed_error(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(SchemaError, match=re.escape(words)) as caught:
        decoder(schema(text), {})
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("name", ["../x.proto", "/x.proto", "a/../x.proto", "a//b", "", ".", ".."])
def test_a_reference_cannot_climb_out(name: str) -> None:
    with pytest.raises(SchemaError, match="is not the path of an import"):
        decoder(schema("message M {}"), {name: schema("message N {}")})


def test_a_message_that_is_not_there_is_refused() -> None:
    file, _ = all_messages()
    for wanted in ("N", (1000,), (0, 1), (-1,)):
        with pytest.raises(SchemaError, match=r"no message"):
            protobuf._message_of(file, wanted)


def test_a_compiler_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "COMPILE_SECONDS", 0)
    with pytest.raises(LimitExceededError, match="took 0 s"):
        decoder(schema("message M {}"), {})
