"""Limits of what is written: each with the number before and the number after."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from kseg.constants import Compression
from kseg.errors import InvalidRecordError
from kseg.format.encode import encode_batch, encode_batches, encode_messages_07
from kseg.format.header import EncodedBatch
from kseg.format.options import BatchOptions
from kseg.format.values import BinaryColumn

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
GZIP = Compression.GZIP


def encode(source: dict[str, Any], magic: int = 2, **fields: Any) -> EncodedBatch:
    base_offset = fields.pop("base_offset", None)
    return encode_batch(source, BatchOptions(magic=magic, **fields), base_offset=base_offset)


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


@pytest.mark.parametrize("base", [2**63, -(2**63) - 1])
def test_an_offset_beyond_64_bits_is_refused(base: int) -> None:
    with pytest.raises(ValueError, match=f"last offset {base} lies beyond 64 bits"):
        encode_batch({"value": [b""]}, BatchOptions(), last_offset=base)
    for magic in (0, 1, 2):
        with pytest.raises(ValueError, match="beyond 64 bits"):
            encode({"value": [b""]}, magic, base_offset=base)
        with pytest.raises(ValueError, match="beyond 64 bits"):
            encode_batches({"value": [b""]}, BatchOptions(magic=magic), base_offset=base)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_07_of_two_to_the_31_bytes_is_refused(magic: int) -> None:
    with pytest.raises(InvalidRecordError, match="it is larger"):
        encode_messages_07(huge(INT32_MAX), magic=magic)
    with pytest.raises(InvalidRecordError, match="the batch would be larger") as error:
        encode_messages_07(huge(HALF, HALF - 12), magic=magic)
    assert error.value.record_index == 1
