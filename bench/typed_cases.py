"""Typed values: a log to an Arrow table, beside Confluent's deserializers and `Table.from_pylist`.

The record has seven fields: two whole numbers or a time, text, a fraction, a boolean, text that may
be missing, and a list of texts. The peers get the values in memory, and too few to wait for; time
is per record.
"""

from __future__ import annotations

import json
import random
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bench.case import Case, scratch
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from kseg.decode.payloads import Decoder

RECORDS = 200_000
PEER_RECORDS = 5_000
BAD = 20
BATCH_RECORDS = 500
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string name = 2; double amount = 3; bool active = 4; optional string note = 5;
  google.protobuf.Timestamp time = 6; repeated string tags = 7;
}
"""
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "amount": {"type": "number"},
        "active": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "time": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "active", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
#: As Debezium writes: decimals, bytes of a fixed number and of any, UUIDs.
DEBEZIUM: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "photo", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
#: 00, the id of a schema; for Protobuf, the first message.
PREFIXES = {
    "Protobuf": b"\0\0\0\0\1\0",
    "JSON": b"\0\0\0\0\1",
    "Avro": b"\0\0\0\0\1",
    "Avro of Debezium": b"\0\0\0\0\1",
}


def typed_cases() -> list[Case]:
    """Every case of the group."""
    return [
        Case("typed", f"{kind} to Arrow{', 20 bad ones' if bad else ''}", "record", prepare)
        for kind in PREFIXES
        for bad in (0, BAD)
        for prepare in [partial(_prepare, kind, bad)]
    ]


def _prepare(kind: str, bad: int, stack: ExitStack) -> Contest:
    makers: Any = {
        "Protobuf": _protobuf,
        "JSON": _json,
        "Avro": partial(_avro, "Order"),
        "Avro of Debezium": partial(_avro, "Row"),
    }
    values, found, peer = makers[kind]()
    wrong = set(random.Random(1).sample(range(RECORDS), bad))
    spoilt = [each[:-1] if row in wrong else each for row, each in enumerate(values)]
    sound = _subject(_log(scratch(stack), values), found, len(PREFIXES[kind]), 0)
    if not bad:
        rival = Versus("confluent-kafka", partial(peer, values[:PEER_RECORDS]))
        return Contest(sound, (rival,), RECORDS)
    subject = _subject(_log(scratch(stack), spoilt), found, len(PREFIXES[kind]), bad)
    return Contest(subject, (Versus("none bad", sound),), RECORDS)


def _rows() -> list[dict[str, Any]]:
    source = random.Random(1)
    return [
        {
            "id": number * 7919,
            "name": f"customer-{source.randrange(10**6)}",
            "amount": source.random() * 1000,
            "active": bool(number & 1),
            "note": None if number % 3 else "hello wörld",
            "time": 1_700_000_000_000 + number,
            "tags": [f"t{source.randrange(100)}" for _ in range(number % 4)],
        }
        for number in range(RECORDS)
    ]


def _log(root: Path, values: list[bytes]) -> Path:
    from kseg.format.encode import encode_batch
    from kseg.log.log import Log

    with Log.open(root / "orders-0", mode="append", create=True) as log:
        for first in range(0, len(values), BATCH_RECORDS):
            some = values[first : first + BATCH_RECORDS]
            log.append(encode_batch({"value": some}))
    return root / "orders-0"


def _subject(log: Path, found: Any, prefix: int, bad: int) -> Callable[[], int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    import kseg
    from kseg.internal.registry import Schemas

    def scanned() -> int:
        """The whole way: the schema of each value is looked up by its id."""
        how: dict[str, Any] = {"decode": "registry", "schemas": found}
        columns = ("offset", "value", "value_error")
        table = kseg.scan(log, columns=columns, **how).to_arrow()
        if table.num_rows - table["value_error"].null_count != bad:
            raise ValueError(f"{table['value_error'].null_count} values decoded")
        return int(table.num_rows)

    if isinstance(found, Schemas):
        return scanned

    def read() -> int:
        table = kseg.scan(log, columns=("offset", "value")).to_arrow()
        chunks, wrong = [], 0
        for chunk in table["value"].chunks:
            values, reasons = found.decode(pc.binary_slice(chunk, prefix, 2**31 - 1))
            chunks.append(values)
            wrong += len(reasons)
        if wrong != bad:
            raise ValueError(f"{wrong} values did not decode, not {bad}")
        return int(table.set_column(1, "value", pa.chunked_array(chunks)).num_rows)

    return read


def _registry() -> Any:
    """One in memory: the deserializers ask it for the schema of each id, and keep it."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient.new_client({"url": "mock://"})


@cache
def _protobuf() -> tuple[list[bytes], Decoder, Callable[[list[bytes]], int]]:
    import pyarrow as pa
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    from kseg.decode import protobuf
    from kseg.internal.registry import Schema

    schema = Schema("orders-value", 1, 1, None, "PROTOBUF", PROTO)
    found = protobuf.decoder(schema, {})
    cls: Any = GetMessageClass(protobuf._message_of(protobuf._compile(schema, {}), None))
    values = []
    for row in _rows():
        time = row.pop("time")
        made = cls(**row)
        made.time.FromMilliseconds(time)
        values.append(PREFIXES["Protobuf"] + made.SerializeToString())
    context = SerializationContext("orders", MessageField.VALUE)
    form, registry = {"use.deprecated.format": False}, _registry()
    ProtobufSerializer(cls, registry, form)(cls(), context)  # registers the schema
    deserialize = ProtobufDeserializer(cls, form, registry)

    def peer(some: list[bytes]) -> int:
        messages = (deserialize(value, context) for value in some)
        rows = [MessageToDict(each, preserving_proto_field_name=True) for each in messages]
        return int(pa.Table.from_pylist(rows).num_rows)

    return values, found, peer


@cache
def _json() -> tuple[list[bytes], Decoder, Callable[[list[bytes]], int]]:
    import pyarrow as pa
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from kseg.decode.json_struct import decoder_of_schema

    text = json.dumps(JSON_SCHEMA)
    values = [PREFIXES["JSON"] + json.dumps(row, ensure_ascii=False).encode() for row in _rows()]
    context = SerializationContext("orders", MessageField.VALUE)
    registry = _registry()
    JSONSerializer(text, registry)(_rows()[0], context)  # registers the schema
    deserialize = JSONDeserializer(text, schema_registry_client=registry, conf={"validate": False})

    def peer(some: list[bytes]) -> int:
        return int(pa.Table.from_pylist([deserialize(value, context) for value in some]).num_rows)

    return values, decoder_of_schema(text), peer


@cache
def _avro(name: str) -> tuple[list[bytes], Any, Callable[[list[bytes]], int]]:
    import io
    from decimal import Decimal
    from uuid import UUID

    import fastavro
    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema as Registered
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from kseg.internal.registry import Schema, Schemas

    text = json.dumps(AVRO if name == "Order" else DEBEZIUM)
    parsed, values = fastavro.parse_schema(json.loads(text)), []
    for number, row in enumerate(_rows()):
        if name == "Row":
            row = {
                "price": Decimal(number).scaleb(-2),
                "photo": b"x" * (number % 9),
                "hash": bytes(16),
                "id": str(UUID(int=number)),
            }
        out = io.BytesIO()
        out.write(PREFIXES["Avro"])
        fastavro.schemaless_writer(out, parsed, row)
        values.append(out.getvalue())
    context, registry = SerializationContext("orders", MessageField.VALUE), _registry()
    registry.register_schema("orders-value", Registered(text, "AVRO"))
    deserialize = AvroDeserializer(registry)

    def peer(some: list[bytes]) -> int:
        rows = [deserialize(value, context) for value in some]
        if name == "Row":  # Arrow makes no text of UUIDs
            rows = [{**row, "id": str(row["id"])} for row in rows]
        return int(pa.Table.from_pylist(rows).num_rows)

    return values, Schemas((Schema("orders-value", 1, 1, None, "AVRO", text),)), peer
