"""Two other Python clients read and write what kseg does.

kafka-python and aiokafka decode and build record batches on their own. They refuse or misread a
little that Kafka accepts, so only sound logs are compared, and `NOT_READ` names what they cannot.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.constants import Compression, ControlType
from kseg.format import columns, header
from kseg.format.builder import BatchBuilder
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from kseg.format.request import Request
from tests import builders, reference
from tests.interop import made

with warnings.catch_warnings():  # theirs, not ours
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka.record.default_records
    import aiokafka.record.legacy_records
    import kafka.record.default_records
    import kafka.record.legacy_records
    from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
    from kafka.record import MemoryRecords as KafkaPythonRecords

CLIENTS = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
#: By client: who builds magic 2, who builds what was before it.
BUILDERS = {
    "kafka-python": (
        kafka.record.default_records.DefaultRecordBatchBuilder,
        kafka.record.legacy_records.LegacyRecordBatchBuilder,
    ),
    "aiokafka": (
        aiokafka.record.default_records.DefaultRecordBatchBuilder,
        aiokafka.record.legacy_records.LegacyRecordBatchBuilder,
    ),
}
FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in Compression if magic == 2 or codec < 4
]
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


def by_kseg(data: bytes) -> list[Row]:
    request = Request(control=True)
    table = header.scan(data)
    rows: list[Row] = []
    for piece in columns.decode(memoryview(data), table, request):
        for offset, timestamp, key, value, headers in zip(
            piece.offset.tolist(),
            piece.timestamp_ms.tolist(),
            piece.key,
            piece.value,
            piece.headers,
            strict=True,
        ):
            names = [(name.decode(), value) for name, value in headers]
            rows.append((offset, timestamp, key, value, names))
    return rows


def by_client(client: Any, data: bytes) -> list[Row]:
    records = client(data)
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
            assert by_client(CLIENTS[name], batch.data) == by_kseg(batch.data)


def some_records(magic: int, seed: int, first: int = 0) -> list[builders.Record]:
    """Records with all that the format has: nulls, headers, gaps between offsets, odd times."""
    chance = Random(seed)
    drawn = [one for _ in range(3) for one in made.records(chance, magic=magic)]
    offset, placed = first, []
    for one in drawn:
        placed.append(replace(one, offset=offset))
        offset += chance.choice((1, 1, 1, 5)) if magic else 1
    return placed


def rows_of(records: list[builders.Record], magic: int) -> list[Row]:
    return [
        (
            one.offset or 0,
            one.timestamp if magic else -1,
            one.key,
            one.value,
            [(name.decode(), value) for name, value in one.headers],
        )
        for one in records
    ]


def written_at_once(records: list[builders.Record], options: BatchOptions) -> bytes:
    names = ("offset", "timestamp", "key", "value", "headers")
    source = {name: [getattr(one, name) for one in records] for name in names}
    return encode_batch(source, options).data


def written_one_by_one(records: list[builders.Record], options: BatchOptions) -> bytes:
    builder = BatchBuilder(
        magic=options.magic,
        compression=options.compression,
        base_offset=records[0].offset or 0,
        producer_id=options.producer_id,
        producer_epoch=options.producer_epoch,
        base_sequence=options.base_sequence,
        transactional=options.transactional,
    )
    for one in records:
        place = {"timestamp_ms": one.timestamp, "offset": one.offset}
        builder.append(one.key, one.value, headers=one.headers, **place)
    return builder.build().data


WRITERS = {"columns": written_at_once, "builder": written_one_by_one}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_other_clients_read_what_kseg_writes(
    magic: int, codec: Compression, writer: str, name: str
) -> None:
    if (name, magic, codec) in NOT_READ:
        pytest.skip(f"{name} does not read magic {magic} with {codec.label}")
    for seed in range(12):
        records = some_records(magic, seed, first=7 * seed)
        data = WRITERS[writer](records, BatchOptions(magic=magic, compression=codec))
        assert by_client(CLIENTS[name], data) == rows_of(records, magic)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("codec", Compression)
def test_other_clients_read_the_header_that_kseg_writes(
    codec: Compression, writer: str, name: str
) -> None:
    options = BatchOptions(
        compression=codec,
        producer_id=4_000_000_000,
        producer_epoch=7,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    records = some_records(2, 1, first=2**40)
    batch = CLIENTS[name](WRITERS[writer](records, options)).next_batch()
    assert batch.validate_crc()
    found = (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base_offset)
    assert found == (4_000_000_000, 7, 2**31 - 2, 2**40)
    assert (batch.is_transactional, batch.is_control_batch) == (True, False)
    assert (batch.compression_type, batch.timestamp_type) == (codec, 0)
    assert batch.max_timestamp == max(one.timestamp for one in records)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_other_clients_read_markers_that_kseg_writes(kind: ControlType, name: str) -> None:
    builder = BatchBuilder(
        base_offset=9, producer_id=5, producer_epoch=1, transactional=True, control=True
    )
    builder.append_end_marker(kind, 3, timestamp=1234)
    batch = CLIENTS[name](builder.build().data).next_batch()
    (record,) = list(batch)
    assert (batch.is_control_batch, batch.is_transactional) == (True, True)
    assert (record.offset, record.timestamp) == (9, 1234)
    assert record.key == bytes([0, 0, 0, kind])


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_kseg_reads_what_other_clients_write(magic: int, codec: Compression, name: str) -> None:
    if (name, magic, codec) in NOT_READ:
        pytest.skip(f"{name} does not write magic {magic} with {codec.label}")
    current, legacy = BUILDERS[name]
    for seed in range(12):
        # To aiokafka's builder a first time of -1 means that there was none yet.
        records = [
            replace(one, offset=n, timestamp=abs(one.timestamp))
            for n, one in enumerate(some_records(magic, seed))
        ]
        if magic == 2:
            options = {"producer_id": 8, "producer_epoch": 2, "base_sequence": seed}
            builder = current(
                magic=2, compression_type=codec, is_transactional=1, batch_size=1 << 24, **options
            )
        else:
            builder = legacy(magic=magic, compression_type=codec, batch_size=1 << 24)
        for one in records:
            headers = [(key.decode(), value) for key, value in one.headers]
            builder.append(one.offset, one.timestamp, one.key, one.value, headers=headers)
        data = bytes(builder.build())
        assert by_kseg(data) == rows_of(records, magic)
        if magic == 2:
            batch = header.scan(data)[0]
            assert {name: getattr(batch, name) for name in options} == options
            assert batch.is_transactional
            assert batch.codec == codec
