"""Batches from columns: what is said about them, what is refused, where each limit lies."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kseg import _encode, _legacy
from kseg.constants import Compression, TimestampType
from kseg.errors import InvalidRecordError
from kseg.format.encode import (
    BATCH_BYTES,
    empty_batch,
    encode_batch,
    encode_batches,
    encode_messages_07,
)
from kseg.format.encoded import EncodedBatch
from kseg.format.options import BatchOptions
from kseg.format.source import rows_of
from kseg.format.values import BinaryColumn
from tests import builders, reference, reference07
from tests.builders import batch, message, record

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
GZIP = Compression.GZIP
MAGIC_2 = BatchOptions()


def encode(source: dict[str, Any], magic: int = 2, **fields: Any) -> EncodedBatch:
    given = {name: fields.pop(name) for name in ("base_offset", "last_offset") if name in fields}
    return encode_batch(source, BatchOptions(magic=magic, **fields), **given)


def header_of(data: bytes) -> reference.Batch:
    (found,) = reference.walk(data).batches
    assert found.crc_ok
    return found


# What a record may be


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, GZIP])
@pytest.mark.parametrize("timestamp", [-1, 0, INT64_MAX])
def test_timestamps_from_minus_one_on_are_written(magic: int, codec: int, timestamp: int) -> None:
    made = encode({"timestamp": [5, timestamp]}, magic, compression=codec)
    assert made.record_count == 2


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, GZIP])
@pytest.mark.parametrize("timestamp", [-2, -(2**63)])
def test_other_negative_timestamps_are_refused(magic: int, codec: int, timestamp: int) -> None:
    with pytest.raises(InvalidRecordError, match="negative and not -1") as error:
        encode({"timestamp": [-1, timestamp]}, magic, compression=codec)
    assert error.value.record_index == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("offset", [5, 4, 0])
def test_offsets_that_do_not_rise_are_refused(magic: int, offset: int) -> None:
    assert encode({"offset": [3, 5, 6]}, magic).last_offset == 6
    with pytest.raises(InvalidRecordError, match="not above the one before") as error:
        encode({"offset": [0, 5, offset]}, magic)
    assert error.value.record_index == 2


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("base", [0, 7, 2**62])
def test_offsets_up_to_two_to_the_31_minus_one_above_the_base_are_written(
    magic: int, base: int
) -> None:
    assert encode({"offset": [base, base + INT32_MAX]}, magic).last_offset == base + INT32_MAX
    with pytest.raises(InvalidRecordError, match=f"more than {INT32_MAX} above it") as error:
        encode({"offset": [base, base + INT32_MAX + 1]}, magic)
    assert error.value.record_index == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_at_the_ends_of_64_bits_do_not_overflow(magic: int) -> None:
    with pytest.raises(InvalidRecordError, match="above it"):
        encode({"offset": [-(2**63), INT64_MAX]}, magic)
    assert encode({"offset": [INT64_MAX - 1, INT64_MAX]}, magic).last_offset == INT64_MAX


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_numbering_ends_with_the_largest_offset(magic: int) -> None:
    made = encode({"value": [b"", b""]}, magic, base_offset=INT64_MAX - 1)
    assert made.last_offset == INT64_MAX
    with pytest.raises(InvalidRecordError, match="not above the one before") as error:
        encode({"value": [b"", b"", b""]}, magic, base_offset=INT64_MAX - 1)
    assert error.value.record_index == 2


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_base_offset_may_lie_at_the_first_record_or_below_it(magic: int) -> None:
    for base in (5, 4, 0):
        made = encode({"offset": [5, 9]}, magic, base_offset=base)
        assert (made.base_offset, made.last_offset) == (base, 9)
    with pytest.raises(InvalidRecordError, match="below the base offset") as error:
        encode({"offset": [5, 9]}, magic, base_offset=6)
    assert error.value.record_index == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_below_magic_2_are_refused(magic: int) -> None:
    assert encode({"headers": [[], []]}, magic).record_count == 2
    with pytest.raises(InvalidRecordError, match="headers") as error:
        encode({"headers": [[], [(b"h", b"")]]}, magic)
    assert error.value.record_index == 1


def huge(*sizes: int) -> BinaryColumn:
    """Values of zeros that no memory stands behind until somebody writes or reads them."""
    ends = np.array([0, *np.cumsum(sizes, dtype=np.int64)], np.int64)
    return BinaryColumn(ends.astype(np.int32), np.zeros(int(ends[-1]), np.uint8), None, 0)


#: Bytes of a record's body besides key and value of more than 2^27 bytes: attributes, two deltas,
#: two lengths, header count.
AROUND = 1 + 1 + 1 + 5 + 5 + 1
HALF = 2**30


@pytest.mark.parametrize(
    ("magic", "around", "error"),
    [(2, AROUND, "the batch would be larger"), (1, 22, "the batch would"), (0, 14, "the batch")],
)
def test_a_record_of_two_to_the_31_bytes_is_refused(magic: int, around: int, error: str) -> None:
    key, rest = huge(HALF), INT32_MAX - HALF - around
    with pytest.raises(InvalidRecordError, match=error):
        encode({"key": key, "value": huge(rest)}, magic)
    with pytest.raises(InvalidRecordError, match=f"it is larger than {INT32_MAX} bytes") as found:
        encode({"key": key, "value": huge(rest + 1)}, magic)
    assert found.value.record_index == 0


def test_headers_of_two_to_the_31_bytes_are_refused() -> None:
    value = bytes(2**20)
    headers = [[], [(b"h", value)] * 2048]
    with pytest.raises(InvalidRecordError, match="it is larger") as error:
        encode({"headers": headers})
    assert error.value.record_index == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_of_two_to_the_31_bytes_is_refused_before_it_is_written(magic: int) -> None:
    value = bytes(2**24)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError, match="the batch would be larger") as error:
            encode({"value": [value] * 200}, magic)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert error.value.record_index == 127


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_largest_batch_has_two_to_the_31_minus_one_bytes(magic: int) -> None:
    around = {0: 26, 1: 34, 2: 61 + 5 + 1 + 1 + 1 + 1 + 5 + 1}[magic]
    assert len(encode({"value": huge(INT32_MAX - around)}, magic).data) == INT32_MAX
    with pytest.raises(InvalidRecordError, match="the batch would be larger"):
        encode({"value": huge(INT32_MAX - around + 1)}, magic)


# What is said about a batch

TIMES = [5, 9, -1, 9]
#: Magic, codec, timestamp type, timestamps: largest one and its offset, of four records from 10 on.
INFO = {
    "create time, magic 2": ((2, 0, CREATE, TIMES), (9, 13)),
    "create time, magic 2, compressed": ((2, 1, CREATE, TIMES), (9, 13)),
    "create time, magic 1": ((1, 0, CREATE, TIMES), (9, 11)),
    "create time, magic 1, compressed": ((1, 1, CREATE, TIMES), (9, 13)),
    "create time, magic 0": ((0, 0, None, TIMES), (-1, -1)),
    "create time, magic 0, compressed": ((0, 1, None, TIMES), (-1, -1)),
    "no time, magic 2": ((2, 0, CREATE, [-1] * 4), (-1, -1)),
    "no time, magic 1": ((1, 0, CREATE, [-1] * 4), (-1, -1)),
    "no time, magic 1, compressed": ((1, 1, CREATE, [-1] * 4), (-1, -1)),
    "log append time, magic 2": ((2, 0, LOG_APPEND, TIMES), (77, 13)),
    "log append time, magic 2, compressed": ((2, 1, LOG_APPEND, TIMES), (77, 13)),
    "log append time, magic 1": ((1, 0, LOG_APPEND, TIMES), (77, 10)),
    "log append time, magic 1, compressed": ((1, 1, LOG_APPEND, TIMES), (77, 13)),
    "log append time, magic 0": ((0, 0, LOG_APPEND, TIMES), (77, 10)),
    "log append time, magic 0, compressed": ((0, 1, LOG_APPEND, TIMES), (77, 13)),
}


@pytest.mark.parametrize("name", INFO)
def test_the_largest_timestamp_and_its_offset(name: str) -> None:
    (magic, codec, kind, times), expected = INFO[name]
    made = encode(
        {"timestamp": times},
        magic,
        base_offset=10,
        compression=codec,
        timestamp_type=kind,
        log_append_time=77 if kind == LOG_APPEND else -1,
    )
    assert (made.max_timestamp, made.offset_of_max_timestamp) == expected
    stored = [each.max_timestamp for each in reference.walk(made.data).batches]
    assert max(stored) == (expected[0] if magic else -1)


def test_log_append_time_replaces_the_timestamps_of_magic_1_only() -> None:
    source = {"timestamp": [3, 4]}
    fields: dict[str, Any] = {"timestamp_type": LOG_APPEND, "log_append_time": 77}
    plain = builders.messages([record(None, timestamp=77)] * 2, magic=1, log_append=True)
    assert encode(source, 1, **fields).data == plain
    newer = [record(None, timestamp=3), record(None, timestamp=4)]
    assert encode(source, 2, **fields).data == batch(
        newer, leader_epoch=-1, log_append=True, max_timestamp=77
    )


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_sizes_and_ratio_are_those_of_the_records(magic: int, codec: int) -> None:
    made = encode({"value": [bytes(100)] * 20}, magic, compression=codec)
    plain = encode({"value": [bytes(100)] * 20}, magic)
    overhead = {0: 26, 1: 34, 2: 61}[magic] if codec or magic == 2 else 0
    assert made.uncompressed_bytes == len(plain.data) - (61 if magic == 2 else 0)
    assert made.compression_ratio == (len(made.data) - overhead) / made.uncompressed_bytes
    assert (made.compression_ratio < 1) == (codec > 0)
    assert (made.magic, made.record_count) == (magic, 20)


def test_every_field_of_the_header_is_the_options() -> None:
    made = encode(
        {"timestamp": [50, 150]},
        base_offset=7,
        last_offset=20,
        compression=Compression.ZSTD,
        producer_id=2**62,
        producer_epoch=2**15 - 1,
        base_sequence=INT32_MAX,
        transactional=True,
        control=True,
        leader_epoch=12,
        delete_horizon_ms=100,
    )
    found = made.header
    assert (found.base_offset, found.last_offset, found.record_count) == (7, 20, 2)
    assert (found.leader_epoch, found.attributes) == (12, 4 | 0x70)
    assert (found.base_timestamp, found.max_timestamp) == (100, 150)
    assert (found.producer_id, found.producer_epoch) == (2**62, 2**15 - 1)
    assert found.base_sequence == INT32_MAX
    times = [each.timestamp for each in reference.records(header_of(made.data))]
    assert times == [50, 150]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_no_rows_are_no_bytes(magic: int, codec: int) -> None:
    for made in (
        encode({"value": []}, magic, compression=codec, base_offset=9),
        encode_batch({"value": [b"a"]}, BatchOptions(magic, GZIP), base_offset=9, first=1, end=1),
    ):
        assert (made.data, made.record_count, made.uncompressed_bytes) == (b"", 0, 0)
        assert (made.base_offset, made.last_offset) == (9, 8)
        assert (made.max_timestamp, made.offset_of_max_timestamp) == (-1, -1)
    assert list(encode_batches({"value": []}, BatchOptions(magic=magic))) == []


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_part_of_the_rows_is_a_batch_of_its_own(magic: int, codec: int) -> None:
    values = [b"a", b"b", b"c", b"d"]
    options = BatchOptions(magic, Compression(codec))
    part = encode_batch({"value": values}, options, base_offset=5, first=1, end=3)
    assert part == encode_batch({"value": values[1:3]}, options, base_offset=5)


@pytest.mark.parametrize(("first", "end"), [(-1, 1), (2, 1), (0, 4), (4, 4), (-1, -1)])
def test_rows_that_are_not_there_are_refused(first: int, end: int) -> None:
    for magic in (0, 1, 2):
        with pytest.raises(ValueError, match="rows"):
            encode_batch({"value": [b""] * 3}, BatchOptions(magic=magic), first=first, end=end)


# The last offset


@pytest.mark.parametrize(("magic", "codec"), [(2, 0), (2, 1), (1, 1), (0, 1)])
def test_a_last_offset_may_lie_at_the_last_record_or_behind_it(magic: int, codec: int) -> None:
    source = {"offset": [5, 8]}
    for last in (8, 9, 5 + INT32_MAX):
        made = encode(source, magic, compression=codec, last_offset=last)
        assert made.last_offset == last == header_of(made.data).last_offset
    for last in (7, 6 + INT32_MAX):
        with pytest.raises(ValueError, match="the last offset lies"):
            encode(source, magic, compression=codec, last_offset=last)


def test_a_wrapper_s_last_offset_moves_its_relative_offsets() -> None:
    made = encode({"offset": [5, 8]}, 1, compression=GZIP, base_offset=3)
    assert [each.offset for each in reference.records(header_of(made.data))] == [5, 8]


# Producers

PRODUCERS = {
    "a transaction without producer": ({"transactional": True}, "needs a producer id"),
    "a producer without epoch": ({"producer_id": 1, "base_sequence": 0}, "no epoch"),
    "a producer without sequence": ({"producer_id": 1, "producer_epoch": 0}, "no base sequence"),
    "a producer below magic 2": (
        {"magic": 1, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        "no producer ids",
    ),
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize("values", [[b"a"], []])
def test_producer_fields_that_do_not_fit_are_refused(name: str, values: list[bytes]) -> None:
    fields, text = PRODUCERS[name]
    with pytest.raises(InvalidRecordError, match=text):
        encode({"value": values}, **fields)
    with pytest.raises(InvalidRecordError, match=text):
        encode_batches({"value": values}, BatchOptions(**fields))


def test_a_control_batch_needs_no_sequence() -> None:
    fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "control": True}
    assert encode({"value": [b""]}, **fields).header.is_control


NUMBERS = {
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
    "leader_epoch": 32,
    "delete_horizon_ms": 64,
    "log_append_time": 64,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_do_not_fit_their_field_are_refused(name: str) -> None:
    largest = 2 ** (NUMBERS[name] - 1) - 1
    assert getattr(BatchOptions(**{name: largest}), name) == largest
    for wrong in (largest + 1, -largest - 2):
        with pytest.raises(ValueError, match=f"{name} {wrong} does not fit"):
            BatchOptions(**{name: wrong})


def test_a_log_append_time_is_a_timestamp() -> None:
    assert BatchOptions(log_append_time=-1).log_append_time == -1
    with pytest.raises(ValueError, match="negative and not -1"):
        BatchOptions(log_append_time=-2)


@pytest.mark.parametrize("base", [2**63, -(2**63) - 1])
def test_a_base_offset_beyond_64_bits_is_refused(base: int) -> None:
    for magic in (0, 1, 2):
        with pytest.raises(ValueError, match="beyond 64 bits"):
            encode({"value": [b""]}, magic, base_offset=base)
        with pytest.raises(ValueError, match="beyond 64 bits"):
            encode_batches({"value": [b""]}, BatchOptions(magic=magic), base_offset=base)


# Many batches


def cut(source: dict[str, Any], options: BatchOptions = MAGIC_2, **where: Any) -> list[int]:
    return [made.record_count for made in encode_batches(source, options, **where)]


#: Bytes of a header, and of each record or message with a value of 92 bytes.
SIZES = {2: (61, 101), 1: (0, 126), 0: (0, 118)}


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_closes_before_it_would_be_too_large(magic: int) -> None:
    header, each = SIZES[magic]
    source, options = {"value": [bytes(92)] * 9}, BatchOptions(magic=magic)
    three = header + 3 * each
    assert len(encode_batch(source, options, end=3).data) == three
    assert cut(source, options, batch_bytes=three) == [3, 3, 3]
    assert cut(source, options, batch_bytes=three - 1) == [2, 2, 2, 2, 1]
    assert cut(source, options, batch_bytes=three + each - 1) == [3, 3, 3]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("batch_bytes", [-5, 0, 60, 61, 68])
def test_a_batch_has_one_record_at_least(magic: int, batch_bytes: int) -> None:
    source, options = {"value": [bytes(92)] * 3}, BatchOptions(magic=magic)
    assert cut(source, options, batch_bytes=batch_bytes) == [1, 1, 1]


def test_a_record_larger_than_a_batch_stands_alone() -> None:
    source = {"value": [b"", bytes(100_000), b"", b""]}
    assert cut(source) == [1, 1, 2]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_has_no_more_records_than_asked_for(magic: int) -> None:
    source, options = {"value": [b""] * 7}, BatchOptions(magic=magic)
    assert cut(source, options, batch_records=3) == [3, 3, 1]
    assert cut(source, options, batch_records=7) == [7]
    with pytest.raises(ValueError, match="one record or more, not 0"):
        encode_batches(source, options, batch_records=0)


def test_batches_have_kafka_s_size_unless_told_otherwise() -> None:
    made = list(encode_batches({"value": [bytes(92)] * 1000}, MAGIC_2))
    assert max(len(each) for each in made) <= BATCH_BYTES == 16384
    assert len(made[0]) + 102 > BATCH_BYTES


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_run_on_from_batch_to_batch(magic: int) -> None:
    options = BatchOptions(magic=magic)
    made = encode_batches({"value": [b""] * 5}, options, base_offset=40, batch_records=2)
    assert [(each.base_offset, each.last_offset) for each in made] == [(40, 41), (42, 43), (44, 44)]


def test_offsets_that_are_given_are_kept_in_every_batch() -> None:
    source = {"offset": [3, 9, 10, 50]}
    made = list(encode_batches(source, MAGIC_2, base_offset=1, batch_records=2))
    assert [(each.base_offset, each.last_offset) for each in made] == [(3, 9), (10, 50)]


def test_offsets_have_to_rise_from_batch_to_batch_too() -> None:
    for offset, ok in ((10, False), (11, True)):
        made = encode_batches({"offset": [3, 10, offset]}, MAGIC_2, batch_records=2)
        assert next(made).last_offset == 10
        if ok:
            assert next(made).base_offset == 11
            continue
        with pytest.raises(InvalidRecordError, match="not above the one before") as error:
            next(made)
        assert error.value.record_index == 2


def sequences(source: dict[str, Any], base: int, records: int) -> list[int]:
    options = BatchOptions(producer_id=1, producer_epoch=0, base_sequence=base)
    made = encode_batches(source, options, batch_records=records)
    return [each.header.base_sequence for each in made]


def test_sequences_run_on_and_wrap_to_zero() -> None:
    five = {"value": [b""] * 5}
    assert sequences(five, 0, 2) == [0, 2, 4]
    assert sequences(five, INT32_MAX, 1) == [INT32_MAX, 0, 1, 2, 3]
    assert sequences(five, INT32_MAX - 1, 2) == [INT32_MAX - 1, 0, 2]
    assert sequences(five, INT32_MAX - 2, 2) == [INT32_MAX - 2, INT32_MAX, 1]


def test_sequences_count_the_offsets_that_a_batch_spans() -> None:
    assert sequences({"offset": [0, 4, 5]}, 10, 2) == [10, 15]


def test_batches_without_producer_have_no_sequence() -> None:
    made = encode_batches({"value": [b""] * 2}, MAGIC_2, batch_records=1)
    assert [each.header.base_sequence for each in made] == [-1, -1]


def test_a_refused_record_is_counted_from_the_first_of_all() -> None:
    made = encode_batches({"timestamp": [1, 2, 3, -2, 5]}, MAGIC_2, batch_records=2)
    assert next(made).record_count == 2
    with pytest.raises(InvalidRecordError, match="record 3") as error:
        next(made)
    assert error.value.record_index == 3


def test_batches_are_made_when_they_are_asked_for() -> None:
    made = encode_batches({"value": [bytes(1000)] * 1000}, MAGIC_2)
    assert isinstance(made, Iterator)
    tracemalloc.start()
    try:
        for each in made:
            assert len(each) <= BATCH_BYTES
        assert tracemalloc.get_traced_memory()[1] < 10 * BATCH_BYTES
    finally:
        tracemalloc.stop()


# Batches without records


@pytest.mark.parametrize("kind", [CREATE, LOG_APPEND])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("control", [False, True])
def test_an_empty_batch_is_61_bytes_that_keep_what_it_was(
    kind: TimestampType, transactional: bool, control: bool
) -> None:
    options = BatchOptions(
        compression=GZIP,
        timestamp_type=kind,
        transactional=transactional,
        control=control,
        producer_id=23,
        producer_epoch=145,
        base_sequence=983,
        leader_epoch=15,
        delete_horizon_ms=4,
    )
    made = empty_batch(options, base_offset=3, last_offset=5, max_timestamp=9)
    assert made.data == batch(
        [],
        base_offset=3,
        last_offset_delta=2,
        leader_epoch=15,
        base_timestamp=-1,
        max_timestamp=9,
        producer_id=23,
        producer_epoch=145,
        base_sequence=983,
        log_append=kind == LOG_APPEND,
        transactional=transactional,
        control=control,
    )
    assert (len(made.data), made.record_count, made.header.last_sequence) == (61, 0, 985)
    assert (made.max_timestamp, made.offset_of_max_timestamp) == (9, 5)


def test_an_empty_batch_has_offsets_that_fit_each_other() -> None:
    for last in (3, 3 + INT32_MAX):
        made = empty_batch(MAGIC_2, base_offset=3, last_offset=last, max_timestamp=-1)
        assert (made.last_offset, made.offset_of_max_timestamp) == (last, -1)
    for last in (2, 4 + INT32_MAX):
        with pytest.raises(ValueError, match="does not fit base offset"):
            empty_batch(MAGIC_2, base_offset=3, last_offset=last, max_timestamp=-1)


@pytest.mark.parametrize("magic", [0, 1])
def test_magic_0_and_1_have_no_empty_batches(magic: int) -> None:
    options = BatchOptions(magic=magic)
    with pytest.raises(ValueError, match="no empty batches"):
        empty_batch(options, base_offset=0, last_offset=0, max_timestamp=-1)


def test_a_body_of_two_to_the_31_bytes_is_refused_before_it_is_copied() -> None:
    body = np.zeros(INT32_MAX - 60, np.uint8)
    with pytest.raises(ValueError, match="is larger than 2147483647"):
        _encode.seal_batch(body, 0, 0, -1, 0, -1, -1, -1, -1, -1, 1)


# Kafka 0.7


def test_a_compressed_set_of_07_is_one_message() -> None:
    payloads = [b"one", b"", b"three"]
    for kind in (GZIP, Compression.SNAPPY):
        data = encode_messages_07(payloads, compression=kind)
        (outer,) = reference07.messages07(data, deep=False)
        assert (outer.codec, outer.end_offset) == (kind, len(data))
        assert [each.payload for each in reference07.messages07(data)] == payloads


@pytest.mark.parametrize("kind", [Compression.NONE, GZIP, Compression.SNAPPY])
def test_no_payloads_are_no_message_of_07(kind: Compression) -> None:
    assert encode_messages_07([], compression=kind) == b""


@pytest.mark.parametrize(
    ("magic", "kind", "text"),
    [
        (2, 0, "magic 0 or 1, not 2"),
        (-1, 0, "magic 0 or 1, not -1"),
        (1, 3, "no lz4"),
        (1, 4, "no zstd"),
        (1, 5, "5 is not a valid"),
        (0, 1, "magic 0 have no gzip"),
    ],
)
def test_what_07_does_not_have_is_refused(magic: int, kind: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode_messages_07([b""], magic=magic, compression=kind)  # type: ignore[arg-type]


def test_a_null_payload_of_07_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="null") as error:
        encode_messages_07([b"", None])  # type: ignore[list-item]
    assert error.value.record_index == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_07_of_two_to_the_31_bytes_is_refused(magic: int) -> None:
    with pytest.raises(InvalidRecordError, match="it is larger"):
        encode_messages_07(huge(INT32_MAX), magic=magic)
    with pytest.raises(InvalidRecordError, match="the batch would be larger") as error:
        encode_messages_07(huge(HALF, HALF - 12), magic=magic)
    assert error.value.record_index == 1


# Columns that change while they are written


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_columns_that_change_meanwhile_break_no_memory(magic: int) -> None:
    count = 2000
    ends = np.arange(0, 50 * (count + 1), 50).astype(np.int32)
    good, data = ends.copy(), np.zeros(50 * count, np.uint8)
    source = {"value": BinaryColumn(ends, data, None, 0), "timestamp": np.zeros(count, np.int64)}
    rows, stop = rows_of(source), threading.Event()

    def change() -> None:
        random = np.random.default_rng(7)
        while not stop.is_set():
            ends[:] = np.sort(random.integers(0, 50 * count, count + 1)).astype(np.int32)
            source["timestamp"][:] = random.integers(-2, 2**62, count)
            ends[:] = good

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            try:
                made = encode_batch(rows, BatchOptions(magic=magic))
            except ValueError:
                continue
            assert made.record_count == count
    finally:
        stop.set()
        thread.join()


# The value itself


def test_an_encoded_batch_is_a_value() -> None:
    made = encode({"value": [b"a"]})
    assert pickle.loads(pickle.dumps(made)) == made
    assert bytes(made) == made.data
    assert len(made) == len(made.data)
    assert len(made.table) == 1
    with pytest.raises(AttributeError):
        made.magic = 1  # type: ignore[misc]


def test_options_are_values_too() -> None:
    options = BatchOptions(timestamp_type=LOG_APPEND, transactional=True)
    assert pickle.loads(pickle.dumps(options)) == options
    assert replace(options, transactional=False) == BatchOptions(timestamp_type=LOG_APPEND)
    assert (options.attributes, replace(options, compression=GZIP).attributes) == (0x18, 0x19)


def test_kernels_of_messages_refuse_what_is_no_message() -> None:
    rows = rows_of({"value": [b""]})
    with pytest.raises(ValueError, match="magic 0 or 1"):
        _legacy.encode_messages(rows, 0, 1, 0, INT64_MAX, 2, 0, False, None)
    with pytest.raises(ValueError, match="cannot be written"):
        _legacy.encode_messages(rows, 0, 2, 0, INT64_MAX, 1, 0, False, None)


def test_one_message_is_what_the_plain_encoder_writes() -> None:
    given = record(b"value", key=b"key", timestamp=3)
    source = {"key": [b"key"], "value": [b"value"], "timestamp": [3]}
    for magic in (0, 1):
        assert encode(source, magic, base_offset=9).data == message(given, magic=magic, offset=9)
