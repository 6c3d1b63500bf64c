"""BatchBuilder: what it takes, what it refuses, what it keeps to itself."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kseg.constants import Compression
from kseg.errors import InvalidRecordError
from kseg.format.builder import (
    BatchBuilder,
)
from kseg.format.options import BatchOptions
from tests.builders import batch, encode_record, record


def one(**fields: Any) -> bytes:
    """A batch of magic 2 with one record."""
    builder = BatchBuilder()
    builder.append(**fields)
    return builder.build().data


# What append takes


BYTES_LIKE = {
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"xabcx")[1:4],
    "array": np.frombuffer(b"abc", np.uint8),
    "a subclass of bytes": type("Mine", (bytes,), {})(b"abc"),
}


@pytest.mark.parametrize("given", BYTES_LIKE.values(), ids=BYTES_LIKE)
def test_keys_and_values_are_any_contiguous_bytes(given: Any) -> None:
    assert one(key=given, value=given) == one(key=b"abc", value=b"abc")


def test_nothing_stays_borrowed() -> None:
    key, builder = bytearray(b"abc"), BatchBuilder()
    builder.append(key, key, headers=[(key, key)])
    with pytest.raises(InvalidRecordError):
        builder.append(key, key, headers=[(key, key)], timestamp_ms=-2)
    with pytest.raises(TypeError):
        builder.append(key, 5)
    with pytest.raises(TypeError):
        builder.append(key, key, headers=[(key, 5)])
    key.extend(b"d" * 1000)  # BufferError while a view is held


def test_a_header_name_that_is_text_becomes_utf_8() -> None:
    assert one(headers=[("ключ", b"")]) == one(headers=[("ключ".encode(), b"")])
    with pytest.raises(UnicodeEncodeError):
        one(headers=[("\ud800", b"")])


WRONG_TYPES = {
    "a value that is a number": {"value": 5},
    "a value that is not contiguous": {"value": memoryview(b"abcdef")[::2]},
    "a header value that is a number": {"headers": [("a", 5)]},
    "a header name that is a number": {"headers": [(5, b"b")]},
    "headers that are a number": {"headers": 5},
    "a timestamp that is no integer": {"timestamp_ms": 1.5},
    "an offset that is text": {"offset": "5"},
}


@pytest.mark.parametrize("given", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_other_types_are_refused_and_the_builder_goes_on(given: dict[str, Any]) -> None:
    builder = BatchBuilder()
    with pytest.raises((TypeError, BufferError)):
        builder.append(**given)
    assert builder.append(b"k") == 0
    assert builder.build().data == one(key=b"k")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**100])
def test_numbers_have_64_bits(number: int) -> None:
    for given in ({"timestamp_ms": number}, {"offset": number}):
        with pytest.raises(InvalidRecordError, match="64 bits"):
            one(**given)
    assert one(timestamp_ms=2**63 - 1) == batch(
        [record(None, timestamp=2**63 - 1)], leader_epoch=-1
    )


@pytest.mark.parametrize("error", [LookupError, OverflowError, ValueError])
def test_headers_that_break_off_leave_the_builder_as_it_was(error: type[Exception]) -> None:
    def broken() -> Iterator[tuple[str, bytes]]:
        yield "a", b"b"
        raise error

    builder = BatchBuilder()
    with pytest.raises(error):
        builder.append(b"k", headers=broken())
    assert builder.append(b"k") == 0


# Sizes


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_record_of_2_to_the_31_bytes_is_refused_unseen(magic: int) -> None:
    builder = BatchBuilder(magic=magic)
    # By itself the last one is small enough; with offset and size, or the header, the batch is one
    # byte too large.
    most_bytes = 2**31 - (12 + 14, 12 + 22, 61 + 15)[magic]
    with (
        mmap.mmap(-1, 2**31) as huge,
        memoryview(huge) as view,
        view[: 2**30] as half,
        view[:most_bytes] as most,
    ):
        for reason, key, value in [
            ("a record has at most", huge, None),
            ("a record has at most", None, huge),
            ("a record has at most", half, half),
            ("a batch has at most", None, most),
            ("a batch has at most", most, None),
        ]:
            with pytest.raises(InvalidRecordError, match=f"{reason} 2147483647 bytes"):
                builder.append(key, value)
        del key, value
    assert builder.append(b"k") == 0


# Its life


def test_what_was_built_does_not_change_when_the_builder_goes_on() -> None:
    builder = BatchBuilder()
    builder.append(b"k")
    built = builder.build()
    before = bytes(bytearray(built.data))
    builder.reopen(1, 0, 0)
    assert builder.build().data != before == built.data
    builder.abort()
    assert built.data == before


def test_a_last_offset_does_not_lie_below_the_last_record() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(b"k", offset=9)
    builder.override_last_offset(12)
    with pytest.raises(ValueError, match="last offset 8"):
        builder.override_last_offset(8)
    builder.override_last_offset(9)
    assert builder.build().last_offset == 9


def test_offsets_go_on_behind_an_overridden_one() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(b"k")
    builder.override_last_offset(20)
    assert builder.append(b"k") == 21


def test_the_options_are_those_of_a_batch() -> None:
    given = {"magic": 1, "compression": Compression.GZIP, "level": 3}
    assert BatchBuilder(**given).options == BatchOptions(**given)


UNFIT: dict[str, dict[str, Any]] = {
    "a base offset of 65 bits": {"base_offset": 2**63},
    "a base offset of 65 bits, below": {"base_offset": -(2**63) - 1},
    "a producer epoch of 17 bits": {"producer_epoch": 2**15},
    "a ratio below zero": {"expected_ratio": -0.1},
    "a ratio that is no number": {"expected_ratio": float("nan")},
}


@pytest.mark.parametrize("given", UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_an_argument_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        BatchBuilder(**given)


@pytest.mark.parametrize("ratio", [0.0, 1e-30, 1e300, float("inf")])
def test_any_ratio_gives_an_estimate_within_31_bits(ratio: float) -> None:
    builder = BatchBuilder(compression=Compression.LZ4, expected_ratio=ratio)
    builder.append(b"k", bytes(1000))
    assert 61 <= builder.estimated_bytes <= 61 + 2**31 - 1
    assert builder.is_full == (ratio > 1)


def encode(value: bytes) -> bytes:
    return encode_record(record(value), offset_delta=1, timestamp_delta=0)


def test_of_equal_times_the_first_is_the_largest() -> None:
    builder = BatchBuilder(magic=1)
    for timestamp in (3, 5, 5, 4):
        builder.append(b"k", timestamp_ms=timestamp)
    assert builder.build().offset_of_max_timestamp == builder.max_timestamp_offset == 1


def test_room_for_a_time_beyond_64_bits_is_none() -> None:
    builder = BatchBuilder()
    builder.append(b"k")
    assert not builder.has_room_for(b"k", timestamp_ms=2**63)
