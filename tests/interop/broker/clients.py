"""What two other clients read from a partition of a running broker, to its end."""

from __future__ import annotations

import asyncio
import warnings

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from tests.interop.broker.broker import Row

with warnings.catch_warnings():  # theirs, not ours
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka

_SECONDS_MAX = 30


def by_confluent(bootstrap: str, topic: str, partition: int, isolation: str) -> list[Row]:
    """Of confluent-kafka, which is librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(_SECONDS_MAX)
            assert message is not None, f"nothing within {_SECONDS_MAX} s, {len(rows)} read"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return rows
            kind, time = message.timestamp()
            time = -1 if kind == TIMESTAMP_NOT_AVAILABLE else time
            headers = tuple((name, value) for name, value in message.headers() or ())
            rows.append(Row(message.offset(), time, message.key(), message.value(), headers))
    finally:
        consumer.close()


def by_aiokafka(bootstrap: str, topic: str, partition: int, isolation: str) -> list[Row]:
    """Of aiokafka."""
    return asyncio.run(
        asyncio.wait_for(_read(bootstrap, topic, partition, isolation), _SECONDS_MAX)
    )


async def _read(bootstrap: str, topic: str, partition: int, isolation: str) -> list[Row]:
    place = aiokafka.TopicPartition(topic, partition)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation
    )
    await consumer.start()
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        rows = []
        while await consumer.position(place) < end:
            for found in (await consumer.getmany(place, timeout_ms=500)).values():
                for one in found:
                    time = -1 if one.timestamp is None else one.timestamp
                    rows.append(Row(one.offset, time, one.key, one.value, tuple(one.headers)))
        return rows
    finally:
        await consumer.stop()


CLIENTS = {"confluent-kafka": by_confluent, "aiokafka": by_aiokafka}
