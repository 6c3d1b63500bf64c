"""Appends, one claim a row: what a leader takes, what it makes of it, and what it refuses.

The claims are those of Kafka's LogValidatorTest, and rules that only code tells.
"""

from __future__ import annotations

from itertools import product
from struct import pack

import pytest

from kseg.constants import Compression
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedFormatError,
)
from kseg.format.codec import decompress
from kseg.log.validate.append import (
    AppendOrigin,
    ValidationMetrics,
)
from tests.builders import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    batch,
    messages,
    record,
    records_of,
    wrapper,
)
from tests.conformance.appends import (
    LOG_APPEND,
    NOW,
    OFFSET,
    indexes,
    offsets,
    records,
    refused,
    take,
    the_batch,
    three,
    timestamps,
)
from tests.conformance.outputs import batches_of

# Inner offsets and numbers of batches


CODEC_PAIRS = [(GZIP, NONE), (GZIP, GZIP), (SNAPPY, GZIP), (LZ4, GZIP)]
ONE_BATCH_ONLY = [
    *((magic, *pair) for magic, pair in product((0, 1, 2), CODEC_PAIRS)),
    (2, NONE, NONE),
    (2, NONE, GZIP),
    (2, ZSTD, GZIP),
]


@pytest.mark.parametrize(("magic", "source", "target"), ONE_BATCH_ONLY)
def test_a_second_batch_is_refused(magic: int, source: int, target: int) -> None:
    one = records_of(three(), magic=magic, codec=source)
    error = refused(one + one, InvalidRecordError, magic=magic, target=target)
    assert "2 batches, where one is allowed" in str(error)


@pytest.mark.parametrize(("source", "target"), [*product(range(5), range(5))])
def test_an_empty_batch_is_refused(source: int, target: int) -> None:
    data = batch([], last_offset_delta=5)
    refused(data, InvalidRecordError, source=Compression(source), target=target)


def test_no_batch_at_all_is_refused() -> None:
    assert str(refused(b"", InvalidRecordError)) == "no batch at all"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_around_the_other_magic_is_refused_record_by_record(
    magic: int, codec: int
) -> None:
    inner = messages([record(timestamp=NOW)] * 20, magic=1 - magic)
    data = wrapper(three(), magic=magic, codec=codec, inner=inner, offset=19)
    metrics = ValidationMetrics()
    error = refused(data, InvalidRecordError, magic=magic, metrics=metrics)
    assert indexes(error) == list(range(20))
    assert metrics == ValidationMetrics(invalid_magic=20)


# What is kept and what is rebuilt


PRODUCER = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984}


def test_plain_messages_stay_as_they_are_in_a_plain_log() -> None:
    taken = take(messages(three(NOW - 1, NOW + 1, NOW), magic=1), magic=1, target=NONE)
    assert (taken.next_offset, taken.record_count) == (3, 3)
    assert (taken.max_timestamp, taken.offset_of_max_timestamp) == (NOW + 1, 1)
    assert (taken.sizes_maybe_changed, taken.stats.temporary_bytes) == (False, 0)
    assert timestamps(taken) == [NOW - 1, NOW + 1, NOW]


@pytest.mark.parametrize(
    ("delta", "count"),
    [(0, 3), (15, 3), (-3, 3), (5, 6), (1, 2)],
)
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_batch_that_counts_wrongly_is_refused(delta: int, count: int, codec: int) -> None:
    data = batch(three(), last_offset_delta=delta, count=count, codec=codec)
    refused(data, InvalidRecordError)


def test_gaps_between_offsets_are_refused_and_counted() -> None:
    gaps = [record(timestamp=NOW, offset=offset) for offset in (0, 2, 3)]
    metrics = ValidationMetrics()
    error = refused(batch(gaps), InvalidRecordError, metrics=metrics)
    assert "3 records for 4 offsets" in str(error)
    assert metrics == ValidationMetrics(invalid_offset=1)


@pytest.mark.parametrize("codec", [GZIP, LZ4, SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_inner_checksum_is_corrupt(magic: int, codec: int) -> None:
    inner = messages(three(), magic=magic)
    inner = inner[:-1] + bytes([inner[-1] ^ 1])
    metrics = ValidationMetrics()
    data = wrapper(three(), magic=magic, codec=codec, inner=inner)
    error = refused(data, CorruptRecordError, magic=magic, metrics=metrics)
    assert error.record_index == 2
    assert metrics == ValidationMetrics(invalid_checksum=1)


@pytest.mark.parametrize(("codec", "magic"), [*product(range(5), (0, 1, 2))])
def test_a_producer_without_a_sequence_is_refused(codec: int, magic: int) -> None:
    data = batch(three(), codec=codec, producer_id=1324, producer_epoch=10, base_sequence=-2)
    metrics = ValidationMetrics()
    refused(data, InvalidRecordError, magic=magic, metrics=metrics)
    assert metrics == ValidationMetrics(invalid_sequence=1)


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (0, 1, 2))])
def test_a_compacted_log_takes_no_record_without_a_key(codec: int, magic: int) -> None:
    data = records_of(three(keyed=False), magic=magic, codec=codec)
    metrics = ValidationMetrics()
    error = refused(data, InvalidRecordError, magic=magic, compacted=True, metrics=metrics)
    # Each plain message is a batch of its own.
    alone = magic < 2 and not codec
    assert indexes(error) == ([0] if alone else [0, 1, 2])
    assert metrics == ValidationMetrics(no_key_compacted=1 if alone else 3)


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (0, 1, 2))])
def test_an_empty_key_is_a_key(codec: int, magic: int) -> None:
    data = records_of([record(key=b"", timestamp=NOW)], magic=magic, codec=codec)
    assert take(data, magic=magic, compacted=True).record_count == 1


# Offsets, from each format to each


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize(("magic", "target"), [(0, 1), (0, 2), (1, 2), (1, 0), (2, 1), (2, 0)])
def test_converted_records_get_offsets_in_order(magic: int, target: int, codec: int) -> None:
    data = records_of(three(), magic=magic, codec=codec)
    up = target > magic
    how = {"timestamp_type": LOG_APPEND} if up else {}
    taken = take(data, magic=target, offset=OFFSET, **how)
    assert offsets(taken) == [OFFSET, OFFSET + 1, OFFSET + 2]
    assert taken.stats.records_converted == 3
    assert {one.magic for one in batches_of(taken.to_bytes())} == {target}
    assert timestamps(taken) == [NOW if target else -1] * 3
    assert [one.value for one in records(taken)] == [one.value for one in three()]


# Markers, transactions and producers


MARKER = record(pack(">hi", 0, 7), key=pack(">hh", 0, 1), timestamp=NOW)


def marker_batch() -> bytes:
    return batch([MARKER], transactional=True, control=True, **PRODUCER)


def test_a_client_s_control_batch_is_refused() -> None:
    error = refused(marker_batch(), InvalidRecordError)
    assert "may not write control batches" in str(error)


def test_a_coordinator_s_control_batch_is_never_compressed() -> None:
    taken = take(marker_batch(), target=SNAPPY, origin=AppendOrigin.COORDINATOR, offset=OFFSET)
    made = the_batch(taken)
    assert (made.codec, made.is_control) == (NONE, True)
    assert taken.in_place
    assert offsets(taken) == [OFFSET]


@pytest.mark.parametrize("target", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("transactional", [False, True])
def test_producers_need_magic_2(transactional: bool, magic: int, target: int) -> None:
    data = batch(three(), transactional=transactional, **PRODUCER)
    error = refused(data, UnsupportedFormatError, magic=magic, target=target)
    assert f"has no {'transactions' if transactional else 'idempotent producers'}" in str(error)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_with_headers_need_magic_2(magic: int, codec: int) -> None:
    data = batch([record(timestamp=NOW, headers=[(b"name", b"value")])], codec=codec)
    assert refused(data, InvalidRecordError, magic=magic).record_index == 0


# Levels


def test_the_same_codec_at_another_level_is_left_alone() -> None:
    data = batch(three(), codec=GZIP)
    assert take(data, target=GZIP, level=9, leader_epoch=0).to_bytes() == data


@pytest.mark.parametrize("level", [1, 9])
def test_another_codec_is_compressed_at_the_log_s_level(level: int) -> None:
    text = " ".join(str(number * number) for number in range(4000)).encode()
    data = batch([record(text, timestamp=NOW)], codec=LZ4)
    body = memoryview(take(data, target=GZIP, level=level).to_bytes())[61:]
    assert text in bytes(decompress(GZIP, body, magic=2, limit=1 << 20))
    sizes = [len(take(data, target=GZIP, level=other)) for other in (1, 9)]
    assert sizes[0] > sizes[1]
    assert len(body) + 61 == sizes[level == 9]


# What is put right, and what is left


# A plain message has one time only.
@pytest.mark.parametrize(("codec", "magic"), [(GZIP, 1), (GZIP, 2), (NONE, 2)])
def test_a_wrong_largest_time_is_put_right(codec: int, magic: int) -> None:
    if magic == 2:
        data = batch(three(NOW - 1, NOW + 1, NOW), codec=codec, max_timestamp=5)
    else:
        data = wrapper(three(NOW - 1, NOW + 1, NOW), magic=1, codec=codec, timestamp=5)
    taken = take(data, magic=magic)
    made = the_batch(taken)
    made.ensure_valid()
    assert (made.max_timestamp, taken.in_place) == (NOW + 1, True)


def test_unknown_attributes_stay_unless_attributes_are_written() -> None:
    data = batch(three(), attributes=0x7F80)
    assert the_batch(take(data)).attributes == 0x7F80
    assert the_batch(take(data, timestamp_type=LOG_APPEND)).attributes == 0x08
    assert the_batch(take(batch(three(), attributes=0x80, max_timestamp=5))).attributes == 0


@pytest.mark.parametrize(
    ("offset", "in_place"), [(0, True), (2, True), (1 + 2, False), (20, False)]
)
def test_a_wrapper_stays_where_its_offset_is_0_or_its_last_record_s(
    offset: int, in_place: bool
) -> None:
    data = wrapper(three(), magic=1, codec=GZIP, offset=offset)
    taken = take(data, magic=1, offset=OFFSET)
    assert taken.in_place is in_place
    assert offsets(taken) == [OFFSET, OFFSET + 1, OFFSET + 2]


@pytest.mark.parametrize("magics", [(0, 1), (1, 0), (1, 2)])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_plain_messages_of_several_magics_are_refused(magics: tuple[int, int], target: int) -> None:
    data = b"".join(records_of(three(), magic=magic) for magic in magics)
    metrics = ValidationMetrics()
    error = refused(data, InvalidRecordError, magic=target, metrics=metrics)
    assert f"magic {magics[1]}" in str(error)
    assert metrics == ValidationMetrics(invalid_magic=1)


def test_wrong_offsets_inside_a_compressed_batch_are_refused() -> None:
    lies = [record(timestamp=NOW, offset=offset) for offset in (0, 7, 7)]
    error = refused(batch(lies, last_offset_delta=2, codec=GZIP), InvalidRecordError)
    assert "do not go 0, 1, 2" in str(error)
    # To another codec they are rebuilt in any case.
    assert offsets(take(batch(lies, last_offset_delta=2, codec=GZIP), target=LZ4)) == [0, 1, 2]
