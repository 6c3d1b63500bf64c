"""Typed values of whole topics, against the deserializers of confluent-kafka."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

import kseg
from kseg.errors import SchemaError
from tests.registries import Headers, Registry, context, write_log

V1 = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "who", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "gone", "type": "double"},
    ],
}
ADDRESS = {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}
V2 = {
    **V1,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "state",
            "type": {
                "type": "enum",
                "name": "State",
                "symbols": ["OTHER", "NEW"],
                "default": "OTHER",
            },
        },
    ],
}
V3 = {
    **V2,
    "fields": [
        {"name": "user", "type": "string", "aliases": ["who"]},
        V2["fields"][2],
        V2["fields"][3],
        {"name": "id", "type": "double"},
        {"name": "to", "type": ["null", "shop.Address"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
    ],
}
VALUES: list[tuple[int, Any]] = [
    (0, {"id": 1, "who": "ann", "state": "OLD", "gone": 0.5}),
    (1, {"id": 2**40, "who": "ben", "note": "x", "state": "NEW"}),
    (
        2,
        {"user": "cy", "note": None, "state": "NEW", "id": 0.25, "to": {"city": "Ulm"}, "tags": []},
    ),
    (1, {"id": 3, "who": "dan", "note": None, "state": "OTHER"}),
    (0, {"id": -1, "who": "eve", "state": "NEW", "gone": 1.5}),
]


class Orders:
    """A topic with values of three versions, half of them with GUIDs in headers."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.registry = directory, Registry()
        client = self.registry.client
        self.registry.register("address", ADDRESS)
        named = {"shop.Address": "address"}
        self.payloads: list[bytes | None] = []
        self.headers: list[Headers] = []
        plain = {"auto.register.schemas": False}
        serializers = []
        for version, text in enumerate((V1, V2, V3)):
            references = named if version == 2 else {}
            self.registry.register("orders-value", text, references=references)
            schema = client.get_version("orders-value", version + 1).schema
            serializers.append(
                [
                    AvroSerializer(client, schema, conf=each)
                    for each in (
                        plain,
                        {**plain, "schema.id.serializer": header_schema_id_serializer},
                    )
                ]
            )
        for number, (version, value) in enumerate(VALUES * 2):
            headers: Headers = [("trace", b"1")]
            made = serializers[version][number >= len(VALUES)](value, context("orders", headers))
            self.payloads.append(made)
            self.headers.append(headers)
        write_log(directory / "orders-0", [*self.payloads, None], None, [*self.headers, []])
        self.schemas = self.registry.write(directory)
        self.latest = client.get_version("orders-value", 3).schema

    def scan(self, **options: Any) -> kseg.Scan:
        wanted = {"decode": {"value": "registry"}, "schemas": self.schemas, **options}
        return kseg.scan(self.directory, topics="orders", **wanted)

    def wanted(self) -> list[Any]:
        """What the deserializer of confluent-kafka gives, in the latest version."""
        read = AvroDeserializer(self.registry.client, self.latest)
        pairs = zip(self.payloads, self.headers, strict=True)
        return [*(read(one, context("orders", headers)) for one, headers in pairs), None]


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "data")


def test_values_of_three_versions_are_as_confluent_has_them(orders: Orders) -> None:
    table = orders.scan().to_arrow()
    assert table["value"].to_pylist() == orders.wanted()
    assert table["value_error"].null_count == len(table)
    assert table["value"].type.field("id").type == pa.float64()


def test_the_ids_of_schemas_are_there_on_request(orders: Orders) -> None:
    columns = ("offset", "value", "value_schema_id", "value_bytes")
    rows = orders.scan(columns=columns).to_arrow().to_pylist()
    assert [row["value_schema_id"] for row in rows] == [2, 3, 4, 3, 2] * 2 + [None]
    assert {row["value_bytes"] for row in rows} == {None}
    piece = next(iter(orders.scan(columns=columns)))
    assert piece.fields == ("offset", "value", "value_error", "value_schema_id", "value_bytes")
    assert piece.value[2]["to"] == {"city": "Ulm"}
    assert pickle.loads(pickle.dumps(piece)).value.to_pylist() == orders.wanted()


def test_an_older_version_can_be_the_type(orders: Orders) -> None:
    found = orders.scan(schema_version=2).to_arrow()
    assert found["value"][0].as_py() == {"id": 1, "who": "ann", "note": None, "state": "OTHER"}
    # The alias is the newer schema's alone: an older reader has no field for it.
    assert "not in the reader's schema" in found["value_error"][2].as_py()
    assert orders.scan(schema=3).schema == orders.scan(schema_version=2).schema
    assert orders.scan(subject="orders-value").schema == orders.scan().schema


def test_a_table_goes_to_parquet_and_back(orders: Orders, tmp_path: Path) -> None:
    orders.scan().to_parquet(tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(path)["value"].to_pylist() == orders.wanted()


def test_json_of_any_schema_is_text(orders: Orders) -> None:
    scan = orders.scan(decode={"value": "registry-json"})
    assert scan.schema.field("value").type == pa.string()
    first = json.loads(scan.to_arrow()["value"][0].as_py())
    assert first == VALUES[0][1]
    assert next(iter(scan)).value[1] == VALUES[1][1]


BAD: list[tuple[bytes, str]] = [
    (b"", "does not name a schema"),
    (b"\0\0\0", "does not name a schema"),
    (b"plain text", "does not name a schema"),
    (b"\x01" + b"g" * 15, "does not name a schema"),
    (b"\0text", "no schema has id 1952807028"),
    (b"\x01" + b"g" * 16, "no schema has GUID 67676767"),
    (b"\0\0\0\0\x02", "ends early, in id"),
    (b"\0\0\0\0\x01\x06Ulm", "not in the reader's schema"),
]


@pytest.mark.filterwarnings("ignore:kseg. no schema has")
@pytest.mark.parametrize(("payload", "reason"), BAD)
def test_what_does_not_decode_is_null_with_its_reason(
    orders: Orders, payload: bytes, reason: str
) -> None:
    good = orders.payloads[0]
    write_log(orders.directory / "orders-1", [payload, good, None, payload])
    table = orders.scan(partitions=1, columns=("value", "value_bytes")).to_arrow()
    assert [each is None for each in table["value"].to_pylist()] == [True, False, True, True]
    reasons = table["value_error"].to_pylist()
    assert [each is None for each in reasons] == [False, True, True, False]
    assert reason in reasons[0]
    assert table["value_bytes"].to_pylist() == [payload, None, None, payload]


def test_ids_without_a_schema_are_one_finding(orders: Orders) -> None:
    write_log(orders.directory / "orders-1", [b"\0\0\0\0" + bytes([77 + n % 2]) for n in range(99)])
    with pytest.warns(UserWarning, match="no schema has 77, 78") as said:
        orders.scan(partitions=1, max_rows=10).to_arrow()
    assert len(said) == 1


def test_a_deleted_schema_still_resolves(orders: Orders) -> None:
    schemas = orders.registry.write(orders.directory / "again", deleted=True)
    assert {one.deleted for one in schemas} == {"soft"}
    with pytest.raises(SchemaError, match="orders-value has no version that is not deleted"):
        orders.scan(schemas=schemas)
    found = orders.scan(schemas=schemas, schema_version=3).to_arrow()
    assert found["value"].to_pylist() == orders.wanted()


def test_encrypted_fields_are_said_once(orders: Orders) -> None:
    rules = {"domainRules": [{"name": "r", "type": "ENCRYPT", "tags": ["PII"]}]}
    schemas = orders.registry.write(orders.directory / "again", ruleSet=rules)
    with pytest.warns(UserWarning, match="clients encrypt fields of orders-value") as said:
        assert orders.scan(schemas=schemas).to_arrow()["value"].to_pylist() == orders.wanted()
    assert len(said) == 1


def test_topics_with_other_schemas_are_refused_with_the_ways_out(orders: Orders) -> None:
    orders.registry.register("users-value", ADDRESS)
    write_log(orders.directory / "users-0", [None])
    schemas = orders.registry.write(orders.directory / "again")
    with pytest.raises(SchemaError, match="different schemas: orders-value, users-value; name a"):
        kseg.scan(orders.directory, topics=["orders", "users"], decode="registry", schemas=schemas)
    write_log(orders.directory / "other-0", [None])
    with pytest.raises(SchemaError, match="other-value is not a subject here"):
        kseg.scan(orders.directory, topics="other", decode="registry", schemas=schemas)


def test_several_record_types_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    registry, union = Registry(), ["shop.Address", "shop.Order"]
    number = registry.register("address", ADDRESS)
    registry.register("order", V1)
    named = {"shop.Address": "address", "shop.Order": "order"}
    mixed = registry.register("mixed-value", union, references=named)
    client = registry.client
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    write = AvroSerializer(client, client.get_version("mixed-value", 1).schema, conf=conf)
    payloads = [write(each, context("mixed")) for each in ({"city": "Ulm"}, VALUES[0][1])]
    payloads.append(b"\0" + number.to_bytes(4, "big") + b"\x06Ulm")
    write_log(tmp_path / "mixed-0", payloads)
    how: dict[str, Any] = {"decode": "registry", "schemas": registry.write(tmp_path)}
    with pytest.raises(SchemaError, match="several record types: shop"):
        kseg.scan(tmp_path, topics="mixed", **how)
    table = kseg.scan(tmp_path, topics="mixed", record="shop.Address", **how).to_arrow()
    assert table["value"].to_pylist() == [{"city": "Ulm"}] * 2
    assert table["offset"].to_pylist() == [0, 2]
    assert table["value_error"].null_count == 2
    how["decode"] = {"value": "registry-json"}
    orders = kseg.scan(tmp_path, topics="mixed", record="Order", columns=("offset", "value"), **how)
    assert orders.to_arrow()["offset"].to_pylist() == [1]
    columns = ("value", "value_schema_id", "value_schema_name")
    rows = kseg.scan(tmp_path, topics="mixed", columns=columns, **how).to_arrow().to_pylist()
    assert [json.loads(row["value"]) for row in rows] == [
        {"city": "Ulm"},
        VALUES[0][1],
        {"city": "Ulm"},
    ]
    assert [row["value_schema_id"] for row in rows] == [mixed, mixed, number]
    names = [row["value_schema_name"] for row in rows]
    assert names == ["shop.Address", "shop.Order", "shop.Address"]


def test_a_schema_alone_reads_bare_payloads(orders: Orders, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(V1))
    schema = kseg.schemas(tmp_path / "order.avsc")[0]
    write_log(tmp_path / "bare-0", [(orders.payloads[0] or b"")[5:]])
    for how in ({"decode": {"value": schema}}, {"decode": "avro", "schema": schema}):
        found = kseg.scan(tmp_path / "bare-0", **how).to_arrow()
        assert found["value"].to_pylist() == [VALUES[0][1]]
    with pytest.raises(SchemaError, match="a schema of AVRO, not of PROTOBUF"):
        kseg.scan(tmp_path / "bare-0", decode="protobuf", schema=schema)


def test_keys_have_schemas_too(tmp_path: Path) -> None:
    registry = Registry()
    number = registry.register("t-key", ADDRESS)
    write_log(tmp_path / "t-0", [b"v"], [b"\0" + number.to_bytes(4, "big") + b"\x06Ulm"])
    how: dict[str, Any] = {"decode": {"key": "registry"}, "schemas": registry.write(tmp_path)}
    table = kseg.scan(tmp_path, topics="t", columns=("key", "key_schema_id"), **how).to_arrow()
    assert table.to_pylist() == [{"key": {"city": "Ulm"}, "key_error": None, "key_schema_id": 1}]


def test_apicurio_names_ids_in_headers(tmp_path: Path) -> None:
    registry = Registry()
    number = registry.register("t-value", ADDRESS)
    header = ("apicurio.value.globalId", number.to_bytes(8, "big"))
    write_log(tmp_path / "t-0", [b"\x06Ulm"], None, [[header]])
    how: dict[str, Any] = {"decode": "registry", "schemas": registry.write(tmp_path)}
    table = kseg.scan(tmp_path, topics="t", **how).to_arrow()
    assert table["value"].to_pylist() == [{"city": "Ulm"}]
    assert "headers" in table.column_names


def test_arguments_that_do_not_go_together_are_refused(orders: Orders) -> None:
    with pytest.raises(ValueError, match="needs decode"):
        kseg.scan(orders.directory, topics="orders", subject="x")
    with pytest.raises(SchemaError, match="typed values need schemas="):
        kseg.scan(orders.directory, topics="orders", decode="registry")
    with pytest.raises(TypeError, match="what kseg"):
        orders.scan(schemas="data")
    with pytest.raises(SchemaError, match="has no X; it has shop"):
        orders.scan(record="X")


def test_references_in_a_circle_or_without_an_end_are_refused(tmp_path: Path) -> None:
    registry = Registry()
    registry.register("a", "{}", references={"b": "b"})
    registry.register("b", "{}", references={"a": "a"})
    write_log(tmp_path / "t-0", [None])
    schemas = registry.write(tmp_path)
    with pytest.raises(SchemaError, match="circle"):
        kseg.scan(tmp_path, topics="t", decode="registry", schemas=schemas, subject="a")
    registry.register("c", "{}", references={"x": "missing"})
    schemas = registry.write(tmp_path / "more")
    with pytest.raises(SchemaError, match="refers to x"):
        kseg.scan(tmp_path, topics="t", decode="registry", schemas=schemas, subject="c")


def test_a_union_of_types_has_no_parquet(tmp_path: Path) -> None:
    registry = Registry()
    registry.register("t-value", ["int", "string"])
    write_log(tmp_path / "t-0", [b"\0\0\0\0\1\2\4hi", b"\0\0\0\0\1\0\4", None, b"\0\0\0\0\1\6"])
    scan = kseg.scan(tmp_path, topics="t", decode="registry", schemas=registry.write(tmp_path))
    assert scan.to_arrow()["value"].to_pylist() == ["hi", 2, None, None]
    with pytest.raises(ValueError, match="union of several types, which Parquet"):
        scan.to_parquet(tmp_path / "out")


#: The engines that get a scan, by their names in messages.
ENGINES: dict[str, Callable[[kseg.Scan, Path], object]] = {
    "pandas does": lambda scan, _out: scan.to_pandas(),
    "Polars does": lambda scan, _out: scan.to_polars(),
    "Polars does, lazily": lambda scan, _out: scan.lazy(),
    "DuckDB and Polars do": lambda scan, _out: pl.DataFrame(scan),
    "DuckDB and Polars do, in SQL": lambda scan, _out: duckdb.sql("select * from scan").fetchall(),
    "DuckDB and Polars do, a dataset": lambda scan, _out: scan.dataset(),
    "Parquet does": lambda scan, out: scan.to_parquet(out),
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
LACKING: dict[str, tuple[Any, Any, str, set[str]]] = {
    "a union": (["int", "string"], {"x": 2}, "a union of several types", set(ENGINES)),
    "a union in a list": (
        {"type": "array", "items": ["null", "int", "string"]},
        {"x": [2]},
        "a union of several types",
        set(ENGINES),
    ),
    "a decimal": (
        DECIMAL,
        {"x": Decimal("0.02")},
        "a decimal of more than 38 digits",
        {name for name in ENGINES if "Polars" in name},
    ),
    "an empty record": (
        {"type": "record", "name": "Empty", "fields": []},
        {"x": {}},
        "a record without fields",
        {"Parquet does"},
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LACKING)
def test_types_that_an_engine_lacks_are_refused_before_it_gets_them(
    tmp_path: Path, name: str, engine: str
) -> None:
    kind, value, words, lacking = LACKING[name]
    payload = {"a union": b"\0\4", "a union in a list": b"\2\2\4\0", "a decimal": b"\2\2"}
    registry = Registry()
    fields = [{"name": "x", "type": kind}]
    number = registry.register("t-value", {"type": "record", "name": "R", "fields": fields})
    head = bytes([0, *number.to_bytes(4, "big")])
    write_log(tmp_path / "t-0", [head + payload.get(name, b"")])
    scan = kseg.scan(tmp_path, topics="t", decode="registry", schemas=registry.write(tmp_path))
    assert scan.to_arrow()["value"].to_pylist() == [value]
    if engine in lacking:
        spoken = engine.partition(",")[0]
        with pytest.raises(Exception, match=f"value has {words}, which {spoken} not have; .*json"):
            ENGINES[engine](scan, tmp_path / "out")
    else:
        ENGINES[engine](scan, tmp_path / "out")


PROTO = """syntax = "proto3"; package x;
message A { int32 n = 1; message B { string s = 1; } }"""


def test_messages_of_protobuf_go_by_their_indexes(tmp_path: Path) -> None:
    registry = Registry()
    registry.register("p-value", PROTO, "PROTOBUF")
    payloads = [b"\0\0\0\0\1\0\x08\x05", b"\0\0\0\0\1\4\0\0\x0a\x01z", b"\0\0\0\0\1\4"]
    write_log(tmp_path / "p-0", payloads)
    how: dict[str, Any] = {"topics": "p", "decode": "registry", "schemas": registry.write(tmp_path)}
    with pytest.raises(SchemaError, match=r"several messages: x\.A, x\.A\.B; choose one \(record="):
        kseg.scan(tmp_path, **how)
    table = kseg.scan(tmp_path, record="A", **how).to_arrow()
    assert table["value"].to_pylist() == [{"n": 5}, None]  # the last one names no message
    assert "indexes of its message" in table["value_error"][1].as_py()
    for name in ("x.A.B", "B"):
        table = kseg.scan(tmp_path, record=name, **how).to_arrow()
        assert table["value"].to_pylist() == [{"s": "z"}, None]
    names = kseg.scan(tmp_path, columns=("value", "value_schema_name"), record="A", **how)
    assert names.to_arrow()["value_schema_name"].to_pylist() == ["x.A", None]
    table = kseg.scan(tmp_path, **{**how, "decode": "registry-json"}).to_arrow()
    assert table["value"].to_pylist() == ['{"n": 5}', '{"s": "z"}', None]
    with pytest.raises(SchemaError, match=r"no message C; it has x\.A, x\.A\.B"):
        kseg.scan(tmp_path, record="C", **how)


@pytest.mark.parametrize(
    ("word", "frames"),
    [
        ("registry", (b"\0", b"\4\0\0")),
        ("registry:unsigned-indexes", (b"\0", b"\2\0\0")),
        ("registry:no-indexes", (b"", b"")),
    ],
)
def test_indexes_of_messages_may_be_missing_or_without_a_sign(
    tmp_path: Path, word: str, frames: tuple[bytes, bytes]
) -> None:
    registry = Registry()
    registry.register("p-value", PROTO, "PROTOBUF")
    bodies = (b"\x08\x05", b"\x0a\x01z")
    schemas = registry.write(tmp_path)
    values = {"x.A": {"n": 5}, "x.A.B": {"s": "z"}}
    for (record, value), frame, body in zip(values.items(), frames, bodies, strict=True):
        log = tmp_path / record / "p-0"
        payload: bytes | None = b"\0\0\0\0\1" + frame + body
        write_log(log, [payload])
        table = kseg.scan(log, decode=word, schemas=schemas, record=record).to_arrow()
        assert table["value"].to_pylist() == [value]
    with pytest.raises(ValueError, match="registry:no-indexes"):
        kseg.scan(tmp_path / "x.A", decode="registry:wrong")


def test_a_message_that_is_not_the_first_is_the_one_that_payloads_name(tmp_path: Path) -> None:
    registry = Registry()
    registry.register("p-value", PROTO, "PROTOBUF")
    write_log(tmp_path / "p-0", [b"\0\0\0\0\1\4\0\0\x0a\x01z"])
    how: dict[str, Any] = {"topics": "p", "schemas": registry.write(tmp_path)}
    assert kseg.scan(tmp_path, decode="registry", **how).to_arrow()["value"].to_pylist() == [
        {"s": "z"}
    ]


def test_ids_beyond_an_int32_and_durations_have_values(tmp_path: Path) -> None:
    registry = Registry()
    text = PROTO.replace(
        "message A { int32 n = 1;",
        'import "google/protobuf/duration.proto"; message A { google.protobuf.Duration n = 1;',
    )
    registry.register("p-value", text, "PROTOBUF")
    payloads = [b"\0\0\0\0\1\0\x0a\x05\x08\x02\x10\x98\x75", b"\0\xff\xff\xff\xff"]
    write_log(tmp_path / "p-0", payloads)
    how: dict[str, Any] = {"topics": "p", "schemas": registry.write(tmp_path)}
    with pytest.warns(UserWarning, match="no schema has 4294967295"):
        table = kseg.scan(tmp_path, decode="registry-json", **how).to_arrow()
    assert table["value"].to_pylist() == ['{"n": "2.000015s"}', None]


def test_json_becomes_structs(tmp_path: Path) -> None:
    registry = Registry()
    text = {"type": "object", "properties": {"a": {"type": "integer"}}}
    registry.register("j-value", text, "JSON")
    write_log(tmp_path / "j-0", [b'\0\0\0\0\1{"a":5}', b'\0\0\0\0\1{"a"', None])
    how: dict[str, Any] = {"decode": "registry", "schemas": registry.write(tmp_path)}
    table = kseg.scan(tmp_path, topics="j", **how).to_arrow()
    assert table["value"].to_pylist() == [{"a": 5}, None, None]
    assert [each is None for each in table["value_error"].to_pylist()] == [True, False, True]
    write_log(tmp_path / "k-0", [b'{"a":5,"b":"x"}', b"no", None])
    for decode, wanted in (
        ("json:struct", {"a": 5, "b": "x"}),
        ({"value": pa.struct([("a", pa.int32())])}, {"a": 5}),
        ({"value": text}, {"a": 5}),
    ):
        found = kseg.scan(tmp_path, topics="k", decode=decode).to_arrow()
        assert found["value"].to_pylist() == [wanted, None, None]
