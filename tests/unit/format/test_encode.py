"""Batches from columns: what is said about them, what is refused, where each limit lies."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kseg.constants import BATCH_BYTES, Compression
from kseg.errors import InvalidRecordError
from kseg.format.encode import (
    empty_batch,
    encode_batch,
    encode_batches,
    encode_messages_07,
    rows_of,
)
from kseg.format.header import EncodedBatch
from kseg.format.options import BatchOptions
from kseg.format.values import BinaryColumn
from tests import reference

INT32_MAX = 2**31 - 1


GZIP = Compression.GZIP
MAGIC_2 = BatchOptions()


def encode(source: dict[str, Any], magic: int = 2, **fields: Any) -> EncodedBatch:
    given = {name: fields.pop(name) for name in ("base_offset", "last_offset") if name in fields}
    return encode_batch(source, BatchOptions(magic=magic, **fields), **given)


def header_of(data: bytes) -> reference.Batch:
    (found,) = reference.walk(data).batches
    assert found.crc_ok
    return found


# What is said about a batch


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


# Producers


def test_many_batches_are_refused_with_a_producer_without_epoch() -> None:
    with pytest.raises(InvalidRecordError, match="no epoch"):
        encode_batches({"value": []}, BatchOptions(producer_id=1, base_sequence=0))


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


# Many batches


def cut(source: dict[str, Any], options: BatchOptions = MAGIC_2, **where: Any) -> list[int]:
    return [made.record_count for made in encode_batches(source, options, **where)]


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


def test_a_refused_record_is_counted_from_the_first_of_all() -> None:
    made = encode_batches({"timestamp": [1, 2, 3, -2, 5]}, MAGIC_2, batch_records=2)
    assert next(made).record_count == 2
    with pytest.raises(InvalidRecordError, match="record 3") as error:
        next(made)
    assert error.value.record_index == 3


# Batches without records


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
    assert {made: 1}[replace(made)] == 1


GZIP = Compression.GZIP


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
