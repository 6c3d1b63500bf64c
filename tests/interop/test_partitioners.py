"""A key goes to the partition that the producers of Kafka and other clients send it to."""

from __future__ import annotations

import warnings
from random import Random

import pytest

from kseg import partition_for
from tests.interop.kafka import Kafka, needed

with warnings.catch_warnings():  # theirs, not ours
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.partitioner import murmur2
    from confluent_kafka import Producer

PARTITIONS = 97


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    random = Random(5)
    return [b"", *(random.randbytes(random.randrange(1, 60)) for _ in range(9_999))]


def test_kafka_and_we_agree(keys: list[bytes]) -> None:
    with needed():
        kafka = Kafka()
    with kafka:
        request = {"op": "partitions", "keys": keys, "partitions": PARTITIONS}
        (answer,) = kafka.ask([request])
    assert partition_for(keys, PARTITIONS).tolist() == answer["places"]


def test_aiokafka_and_we_agree(keys: list[bytes]) -> None:
    places = [(murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys]
    assert partition_for(keys, PARTITIONS).tolist() == places


@pytest.mark.parametrize(
    ("setting", "partitioner"), [("murmur2_random", "murmur2"), ("consistent_random", "crc32")]
)
def test_librdkafka_and_we_agree(keys: list[bytes], setting: str, partitioner: str) -> None:
    # The topics of its mock cluster have four partitions.
    producer = Producer({"test.mock.num.brokers": 1, "partitioner": setting})
    places: dict[bytes, int] = {}
    for key in keys[1:1_001]:
        producer.produce(
            "topic",
            b"value",
            key,
            on_delivery=lambda _error, sent: places.update({sent.key(): sent.partition()}),
        )
    assert producer.flush(30) == 0
    assert len(places) == 1_000
    assert partition_for(list(places), 4, partitioner).tolist() == list(places.values())
