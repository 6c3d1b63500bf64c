"""Whatever records are written, in whatever form they come, they are read back as they were.

Uncompressed batches are held to the bytes of `tests/builders.py`, all of them to what
`tests/reference.py` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.constants import Compression, TimestampType
from kseg.format import columns, header
from kseg.format.encode import encode_batch, encode_batches, encode_messages_07
from kseg.format.options import BatchOptions
from kseg.format.request import FIELDS, Request
from kseg.format.values import BinaryColumn, HeadersColumn
from tests import builders, reference, reference07
from tests.builders import Record, record
from tests.property.strategies import base_offsets, record_lists

Source = dict[str, Any]


@st.composite
def written(draw: st.DrawFn, *, magic: int, min_size: int = 1) -> list[Record]:
    """Records as a writer takes them: no attributes, shortest numbers."""
    drawn = draw(record_lists(draw(base_offsets), magic=magic, min_size=min_size))
    return [replace(each, attributes=0, width=1) for each in drawn]


@st.composite
def formats(draw: st.DrawFn) -> tuple[BatchOptions, list[Record]]:
    magic = draw(st.sampled_from([0, 1, 2]))
    kinds = [kind for kind in Compression if magic == 2 or kind != Compression.ZSTD]
    log_append = magic > 0 and draw(st.booleans())
    options = BatchOptions(
        magic=magic,
        compression=draw(st.sampled_from(kinds)),
        timestamp_type=TimestampType.LOG_APPEND_TIME if log_append else None,
        log_append_time=draw(st.integers(-1, 2**62)) if log_append else -1,
    )
    return options, draw(written(magic=magic))


def lists_of(records: Sequence[Record]) -> Source:
    return {
        "offset": [each.offset for each in records],
        "timestamp": [each.timestamp for each in records],
        "key": [each.key for each in records],
        "value": [each.value for each in records],
        "headers": [each.headers for each in records],
    }


def binary(values: Sequence[bytes | None], *, before: bytes = b"") -> BinaryColumn:
    """A column in Arrow's layout, perhaps a slice of a larger one; nulls may have bytes."""
    stored = [b"?" if value is None else value for value in values]
    ends = np.cumsum([len(before), *map(len, stored)], dtype=np.int32)
    valid = np.array([value is not None for value in values], np.bool_)
    bits = np.packbits(valid, bitorder="little")
    nulls = sum(value is None for value in values)
    data = np.frombuffer(before + b"".join(stored) + b"behind", np.uint8)
    return BinaryColumn(ends, data, bits if nulls else None, nulls)


def columns_of(records: Sequence[Record], *, before: bytes = b"") -> Source:
    pairs = [pair for each in records for pair in each.headers]
    ends = np.cumsum([0, *(len(each.headers) for each in records)], dtype=np.int32)
    return {
        "offset": np.array([each.offset for each in records], np.int64),
        "timestamp": np.array([each.timestamp for each in records], np.int64),
        "key": binary([each.key for each in records], before=before),
        "value": binary([each.value for each in records], before=before),
        "headers": HeadersColumn(
            ends,
            binary([name for name, _ in pairs], before=before),
            binary([value for _, value in pairs], before=before),
        ),
    }


def read(data: bytes) -> list[tuple[object, ...]]:
    return [
        (each.offset, each.timestamp, each.key, each.value, each.headers)
        for batch in reference.walk(data).batches
        for each in reference.records(batch)
    ]


def expected(options: BatchOptions, records: Sequence[Record]) -> list[tuple[object, ...]]:
    def time(each: Record) -> int:
        if options.magic == 0:
            return -1
        return options.log_append_time if options.is_log_append else each.timestamp

    return [
        (each.offset, time(each), each.key, each.value, tuple(each.headers)) for each in records
    ]


@given(given_=formats())
def test_records_of_every_magic_and_codec_are_read_back_by_the_reference(
    given_: tuple[BatchOptions, list[Record]],
) -> None:
    options, records = given_
    made = encode_batch(lists_of(records), options)
    assert read(made.data) == expected(options, records)
    assert all(batch.crc_ok for batch in reference.walk(made.data).batches)
    assert made.record_count == len(records)
    assert (made.base_offset, made.last_offset) == (records[0].offset, records[-1].offset)


@given(given_=formats(), before=st.binary(max_size=5))
def test_lists_and_columns_give_the_same_bytes(
    given_: tuple[BatchOptions, list[Record]], before: bytes
) -> None:
    options, records = given_
    made = encode_batch(lists_of(records), options)
    assert encode_batch(columns_of(records, before=before), options) == made


@given(records=written(magic=2), shift=st.integers(0, 3), log_append=st.booleans())
@example(records=[record(bytes(n), offset=n) for n in range(49, 55)], shift=0, log_append=False)
@example(records=[record(bytes(n), offset=n) for n in range(8180, 8190)], shift=0, log_append=False)
@example(records=[record(b"", offset=5), record(bytes(70000), offset=9)], shift=2, log_append=False)
def test_magic_2_is_the_plain_encoder_s_bytes(
    records: list[Record], shift: int, log_append: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if log_append else TimestampType.CREATE_TIME
    options = BatchOptions(timestamp_type=kind, log_append_time=77 if log_append else -1)
    base = max(0, records[0].offset - shift)
    plain = builders.batch(
        records,
        base_offset=base,
        leader_epoch=-1,
        log_append=log_append,
        **({"max_timestamp": 77} if log_append else {}),
    )
    for source in (lists_of(records), columns_of(records)):
        made = encode_batch(source, options, base_offset=base)
        assert made.data == plain
        assert made.uncompressed_bytes == len(plain) - 61
        assert made.compression_ratio == 1.0


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_magic_0_and_1_are_the_plain_encoder_s_bytes(magic: int, data: st.DataObject) -> None:
    records = data.draw(written(magic=magic))
    plain = builders.messages(records, magic=magic)
    for source in (lists_of(records), columns_of(records)):
        made = encode_batch(source, BatchOptions(magic=magic))
        assert made.data == plain
        assert made.uncompressed_bytes == len(plain)


@given(records=written(magic=2))
def test_columns_that_were_decoded_are_written_as_they_were(records: list[Record]) -> None:
    data = builders.batch(records, base_offset=records[0].offset, leader_epoch=-1)
    request = Request(columns=FIELDS)
    (piece,) = columns.decode(memoryview(data), header.scan(data), request)
    assert encode_batch(piece, BatchOptions()).data == data


@given(
    given_=formats(),
    batch_bytes=st.integers(0, 700),
    batch_records=st.one_of(st.none(), st.integers(1, 4)),
)
def test_batches_hold_all_records_and_close_only_where_they_must(
    given_: tuple[BatchOptions, list[Record]], batch_bytes: int, batch_records: int | None
) -> None:
    options, records = given_
    source = lists_of(records)
    made = list(
        encode_batches(source, options, batch_bytes=batch_bytes, batch_records=batch_records)
    )
    assert read(b"".join(batch.data for batch in made)) == expected(options, records)
    overhead = 61 if options.magic == 2 else 0
    if options.compression and options.magic < 2:
        overhead = 26 if options.magic == 0 else 34
    first = 0
    for batch in made:
        end = first + batch.record_count
        assert batch.record_count <= (batch_records or len(records))
        assert batch.record_count == 1 or batch.uncompressed_bytes + overhead <= batch_bytes
        if end < len(records) and batch.record_count != batch_records:
            larger = encode_batch(source, options, first=first, end=end + 1)
            assert larger.uncompressed_bytes + overhead > batch_bytes
        assert encode_batch(source, options, first=first, end=end) == batch
        first = end


@given(
    payloads=st.lists(st.binary(max_size=60)),
    magic=st.sampled_from([0, 1]),
    kind=st.sampled_from([Compression.NONE, Compression.GZIP, Compression.SNAPPY]),
)
def test_kafka_0_7_sets_are_read_back_by_the_reference(
    payloads: list[bytes], magic: int, kind: Compression
) -> None:
    made = encode_messages_07(payloads, magic=magic if not kind else 1, compression=kind)
    if not kind:
        assert made == builders.messages07(payloads, magic=magic)
        assert encode_messages_07(binary(payloads, before=b"x"), magic=magic) == made
    assert [each.payload for each in reference07.messages07(made)] == payloads
