"""What two other Python clients read from brokers' batches is what kseg reads.

kafka-python and aiokafka decode record batches on their own. They refuse or misread a little that
Kafka accepts, so only sound logs are compared, and `NOT_READ` names what they cannot.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from kseg.format import columns, header
from tests import reference

with warnings.catch_warnings():  # theirs, not ours
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
    from kafka.record import MemoryRecords as KafkaPythonRecords

CLIENTS = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
#: Magic and codec that a client refuses: magic 0 has lz4's header checksum wrong, always.
NOT_READ = {("kafka-python", 0, 3), ("aiokafka", 0, 3)}

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def sound_batches(case: Path) -> list[reference.Batch]:
    """Every batch of the case that is whole and valid."""
    if case.name.endswith(("malformed", "damaged")):
        return []
    found = []
    for path in sorted(case.glob("*/*.log")):
        walked = reference.walk(path.read_bytes()).batches
        found += [batch for batch in walked if batch.crc_ok]
    return found


def by_kseg(batch: reference.Batch) -> list[Row]:
    request = columns.Request(control=True)
    table = header.scan(batch.data)
    rows: list[Row] = []
    for piece in columns.decode(memoryview(batch.data), table, request):
        for offset, timestamp, key, value, headers in zip(
            piece.offset.tolist(),
            piece.timestamp.tolist(),
            piece.key,
            piece.value,
            piece.headers,
            strict=True,
        ):
            names = [(name.decode(), value) for name, value in headers]
            rows.append((offset, timestamp, key, value, names))
    return rows


def by_client(client: Any, batch: reference.Batch) -> list[Row]:
    records = client(batch.data)
    rows: list[Row] = []
    while records.has_next():
        for record in records.next_batch():
            timestamp = -1 if record.timestamp is None else record.timestamp
            headers = list(record.headers)
            rows.append((record.offset, timestamp, record.key, record.value, headers))
    return rows


@pytest.mark.parametrize("name", CLIENTS)
def test_other_clients_read_the_same_records(fixture_case: Path, name: str) -> None:
    for batch in sound_batches(fixture_case):
        if (name, batch.magic, batch.codec) not in NOT_READ:
            assert by_client(CLIENTS[name], batch) == by_kseg(batch)
