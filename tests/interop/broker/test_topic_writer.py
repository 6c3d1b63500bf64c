"""A broker serves a topic that `write_topic` has filled, and its producers find the same places."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import polars as pl
import pytest

import kseg
from tests.interop.broker.broker import Broker
from tests.interop.kafka import needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

TOPIC, PARTITIONS, RECORDS = "orders", 4, 1_000
BEGIN_MS = 1_500_000_000_000
KEYS = [f"user-{number}" for number in range(50)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with needed():
        found = Broker(tmp_path_factory.mktemp("broker"))
    with found:
        found.start()
        found.create(TOPIC, PARTITIONS)
        found.create("short", 1, retention_ms=60_000)
        found.stop()
        yield found


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """Records with keys and without, of times long ago."""
    return pl.DataFrame(
        {
            "user": [None if row % 10 == 9 else KEYS[row % len(KEYS)] for row in range(RECORDS)],
            "value": [None if row % 100 == 50 else f"value {row} " * 80 for row in range(RECORDS)],
            "timestamp": [BEGIN_MS + row for row in range(RECORDS)],
            "other": list(range(RECORDS)),
        },
        schema_overrides={"timestamp": pl.Datetime("ms", "UTC")},
    )


def test_a_broker_serves_the_records_and_a_producer_finds_the_same_partitions(
    broker: Broker, frame: pl.DataFrame
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = kseg.write_topic(
            frame, broker.data, TOPIC, key="user", broker_config=broker.properties
        )
    assert sum(each.record_count for each in results.values()) == RECORDS
    said = broker.start()
    assert not [line for line in said.lines if "stray" in line.text.lower()]
    for partition in range(PARTITIONS):
        # Kafka 4.2 says this of its own logs, too.
        about = said.about(f"{TOPIC}-{partition}")
        assert all("Reloading from producer snapshot" in line.text for line in about)
    rows = {partition: broker.consume(TOPIC, partition) for partition in range(PARTITIONS)}
    got = sorted((row.timestamp, row.key, row.value) for each in rows.values() for row in each)
    assert got == [
        (BEGIN_MS + row, key and key.encode(), value and value.encode())
        for row, (key, value) in enumerate(frame.select("user", "value").iter_rows())
    ]
    for each in rows.values():
        assert [row.offset for row in each] == list(range(len(each)))
    keyless = {partition for partition in rows if any(row.key is None for row in rows[partition])}
    assert keyless == set(range(PARTITIONS))

    behind = [{"key": key.encode(), "value": b"behind"} for key in KEYS]
    broker.produce(TOPIC, [{"records": behind}], partition=-1)
    places = {key: kseg.partition_for(key, PARTITIONS) for key in KEYS}
    for partition in range(PARTITIONS):
        new = broker.consume(TOPIC, partition)[len(rows[partition]) :]
        assert {row.key.decode() for row in new} == {  # type: ignore[union-attr]
            key for key, place in places.items() if place == partition
        }
    broker.stop()
