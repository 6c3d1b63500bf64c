"""BatchBuilder: how much room is left, and how large a batch will be."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.format.builder import (
    BatchBuilder,
    estimate_bytes_upper_bound,
    estimate_set_bytes,
)
from kseg.format.values import Record
from tests.builders import batch, encode_record, message, record

CREATE = TimestampType.CREATE_TIME


def encode(value: bytes) -> bytes:
    return encode_record(record(value), offset_delta=1, timestamp_delta=0)


def test_room_is_told_to_the_byte() -> None:
    builder = BatchBuilder(batch_bytes_max=200)
    builder.append(b"key", b"value", timestamp_ms=1000)
    room = 200 - builder.estimated_bytes
    # A record of n bytes of value has 8 more around it: at this delta all lengths take one byte
    # but the record's own and the value's, from 64 on.
    fits = max(n for n in range(200) if len(encode(bytes(n))) <= room)
    assert builder.has_room_for(None, bytes(fits), timestamp_ms=1000)
    assert not builder.has_room_for(None, bytes(fits + 1), timestamp_ms=1000)
    assert not builder.has_room_for(None, bytes(fits), timestamp_ms=1000 + 2**20)
    builder.append(None, bytes(fits), timestamp_ms=1000)
    assert len(builder.build()) <= 200


def one_record() -> bytes:
    builder = BatchBuilder()
    builder.append(b"k")
    return builder.build().data


@pytest.mark.parametrize(("spare", "full"), [(-1, True), (0, True), (1, False)])
def test_a_batch_is_full_from_its_limit_on(spare: int, full: bool) -> None:
    builder = BatchBuilder(batch_bytes_max=len(one_record()) + spare)
    builder.append(b"k")
    assert builder.is_full == full


def test_of_equal_times_the_first_is_the_largest() -> None:
    builder = BatchBuilder(magic=1)
    for timestamp in (3, 5, 5, 4):
        builder.append(b"k", timestamp_ms=timestamp)
    assert builder.build().offset_of_max_timestamp == builder.max_timestamp_offset == 1


def test_room_for_a_time_beyond_64_bits_is_none() -> None:
    builder = BatchBuilder()
    builder.append(b"k")
    assert not builder.has_room_for(b"k", timestamp_ms=2**63)


SIZED = [
    (None, None, ()),
    (b"", b"", ()),
    (b"k" * 63, b"v" * 64, ()),
    (b"k" * 8191, b"v" * 8192, [("name", None), ("", b"x" * 100)]),
]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize(("key", "value", "headers"), SIZED)
def test_the_upper_bound_holds_for_the_largest_time_and_offset(
    magic: int, codec: Compression, key: Any, value: Any, headers: Any
) -> None:
    bound = estimate_bytes_upper_bound(key, value, headers, magic=magic, compression=codec)
    builder = BatchBuilder(magic=magic, delete_horizon_ms=2**63 - 1 if magic == 2 else -1)
    headers = headers if magic == 2 else ()
    builder.append(key, value, headers=headers, timestamp_ms=0, offset=2**31 - 1)
    wrapper = (14, 22, 0)[magic] if codec else 0  # without its offset and size, as in Kafka
    slack = 21 - (1 + 10 + 5 + 1) if magic == 2 else 0
    assert bound - wrapper - len(builder.build()) in range(slack + 5)


def test_the_size_of_no_records_is_0_and_1024_with_a_codec() -> None:
    assert estimate_set_bytes([]) == 0
    assert estimate_set_bytes([], compression=Compression.GZIP) == 1024


@pytest.mark.parametrize(("value_bytes", "wanted"), [(100, 1024), (3000, 1550), (200_000, 65_536)])
def test_the_size_of_a_compressed_set_is_half_within_bounds(value_bytes: int, wanted: int) -> None:
    records = [Record(0, -1, CREATE, None, bytes(value_bytes), ())]
    estimate = estimate_set_bytes(records, compression=Compression.ZSTD)
    assert estimate == pytest.approx(wanted, abs=25)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_size_of_messages_is_that_of_their_entries(magic: int) -> None:
    records = [Record(n, 5, CREATE, b"k" * n, None, ((b"h", b""),)) for n in range(3)]
    wanted = b"".join(message(record(None, key=given.key), magic=magic) for given in records)
    assert estimate_set_bytes(records, magic=magic) == len(wanted)


def test_the_size_of_records_whose_times_lie_far_apart_wraps_as_their_deltas_do() -> None:
    records = [Record(n, t, CREATE, None, b"", ()) for n, t in enumerate((-1, 2**63 - 1))]
    rows = [record(b"", timestamp=given.timestamp) for given in records]
    assert estimate_set_bytes(records) == len(batch(rows))
