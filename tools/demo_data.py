"""Make `kseg/demo_data` anew, the data directory of a broker that was stopped in good order.

    python -m tools.demo_data kseg/demo_data

A broker of Kafka takes over five partitions that Kafka wrote for the tests. Clients then write two
topics of typed values, one of them in transactions, and a group commits offsets. `ORIGIN.md`, which
stays, says what is what.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fixture_archives import unpacked
from tests.interop.broker.broker import Broker

#: Partitions of the demo, and the partitions of the tests' fixtures that they are.
TAKEN = {
    "orders-0": "new/4.2.0-plain/plain-0",
    "orders-1": "new/4.2.0-zstd/zstd-producer-0",
    "clicks-0": "new/4.2.0-snappy/snappy-mixed-0",
    "clicks-1": "new/4.2.0-gzip/gzip-mixed-0",
    "payments-0": "new/4.2.0-txn/txn-0",
}
SETTINGS = {
    "metadata.max.idle.interval.ms": 0,  # no record of KRaft that says nothing
    "group.coordinator.rebalance.protocols": "classic",
}
BEGIN_MS = 1_760_000_000_000
SHIPMENT = {
    "type": "record",
    "name": "Shipment",
    "namespace": "demo",
    "fields": [
        {"name": "order_key", "type": "string"},
        {"name": "carrier", "type": {"type": "enum", "name": "Carrier", "symbols": ["SEA", "AIR"]}},
        {"name": "weight_kg", "type": "double"},
        {"name": "sent", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
CUSTOMER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Customer",
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "points": {"type": "integer"},
    },
    "required": ["name", "city"],
}
NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Esra", "Femi", "Greta", "Hugo")
CITIES = ("Lagos", "Lima", "Lyon", "Oslo", "Pune", "Quito")


def schemas() -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record in the topic of a schema registry."""
    kinds = {"shipments-value": ("AVRO", SHIPMENT), "customers-value": ("JSON", CUSTOMER)}
    for number, (subject, (kind, schema)) in enumerate(kinds.items(), 1):
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        value = {"subject": subject, "version": 1, "id": number, "schemaType": kind}
        value |= {"schema": json.dumps(schema), "deleted": False}
        yield json.dumps(key).encode(), json.dumps(value).encode()


def framed(number: int, payload: bytes) -> bytes:
    """A payload behind the id of its schema."""
    return b"\0" + number.to_bytes(4, "big") + payload


def shipment(chance: random.Random, number: int) -> tuple[bytes, bytes, int]:
    """Key, value and time of a record."""
    time_ms = BEGIN_MS + 60_000 * number
    key = f"key-{chance.randrange(40)}"
    row = {
        "order_key": key,
        "carrier": chance.choice(("SEA", "AIR")),
        "weight_kg": round(chance.uniform(0.2, 30), 1),
        "sent": time_ms,
        "note": chance.choice((None, None, None, "fragile", "call first")),
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SHIPMENT, row)
    return key.encode(), framed(1, out.getvalue()), time_ms


def customer(chance: random.Random, number: int) -> tuple[bytes, bytes, int]:
    """The same; later records of a key supersede earlier ones."""
    row = {"name": chance.choice(NAMES), "city": chance.choice(CITIES), "points": number}
    payload = framed(2, json.dumps(row).encode())
    return f"key-{number % 40}".encode(), payload, BEGIN_MS + 1_000 * number


def send(producer: Any, topic: str, rows: list[tuple[bytes, bytes, int]]) -> None:
    """Send rows to the first partition, one batch a call."""
    for key, value, time_ms in rows:
        producer.produce(topic, value, key, partition=0, timestamp=time_ms)
    producer.flush()


def member(bootstrap: str) -> Any:
    """A member that has committed offsets: those of a group with members do not expire."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "billing", "client.id": "billing-1"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders", "shipments"])
    consumer.poll(30)
    ends = {("orders", 0): 240, ("orders", 1): 375, ("shipments", 0): 90}
    places = [TopicPartition(topic, number, end) for (topic, number), end in ends.items()]
    consumer.commit(offsets=places, asynchronous=False)
    return consumer


def write(broker: Broker) -> None:
    """What the clients do."""
    chance = random.Random(1)
    usual = {"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "compression.type": "zstd"}
    plain = Producer(usual)
    send(plain, "_schemas", [(key, value, BEGIN_MS) for key, value in schemas()])
    for begin in range(0, 60, 20):
        send(plain, "customers", [customer(chance, number) for number in range(begin, begin + 20)])
    loader = Producer({**usual, "transactional.id": "shipments-loader"})
    loader.init_transactions(30)
    for begin in range(0, 120, 30):
        loader.begin_transaction()
        send(loader, "shipments", [shipment(chance, row) for row in range(begin, begin + 30)])
        (loader.abort_transaction if begin == 30 else loader.commit_transaction)(30)
    broker.wait_for_markers("shipments")


def make(home: Path) -> Path:
    """The data directory, with all files of the broker."""
    with Broker(home, SETTINGS) as broker:
        broker.start()
        for topic, partitions in {"orders": 2, "clicks": 2, "payments": 1, "shipments": 1}.items():
            broker.create(topic, partitions)
        broker.create("archive", 2, retention_ms=-1)  # empty: there `kseg adopt` brings records to
        for topic in ("_schemas", "customers"):
            broker.create(topic, cleanup_policy="compact")
        broker.stop()
        for partition, fixture in TAKEN.items():
            leave = shutil.ignore_patterns("partition.metadata", "leader-epoch-checkpoint")
            source = unpacked() / fixture
            shutil.copytree(source, broker.data / partition, ignore=leave, dirs_exist_ok=True)
        broker.start()
        for topic in ("orders", "clicks", "payments"):
            broker.wait_for_leaders(topic)
        write(broker)
        consumer = member(broker.bootstrap)
        broker.stop()
        consumer.close()
    return home / "data"


def main() -> None:
    """Replace what lies in the folder that is named, but for what says what it is."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        data = make(Path(home))
        for path in target.iterdir():
            if path.name not in ("ORIGIN.md", ".gitattributes"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(
            data, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", "*.deleted")
        )


if __name__ == "__main__":
    main()
