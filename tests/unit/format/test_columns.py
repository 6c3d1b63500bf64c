"""Columns: layout, dtypes and ownership, what is asked for and what goes wrong."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg import Segment
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    KsegError,
)
from kseg.format.columns import decode
from kseg.format.header import scan
from kseg.format.request import FIELDS, Request
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
from tests.builders import GZIP, LZ4, batch, message07, record, records_of, wrapper, write_segment

DTYPES = {
    "position": np.int64,
    "base_offset": np.int64,
    "offset": np.int64,
    "next_offset": np.int64,
    "timestamp": np.dtype("datetime64[ms]"),
    "timestamp_type": np.int8,
    "magic": np.int8,
    "codec": np.int8,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "sequence": np.int32,
    "leader_epoch": np.int32,
    "transactional": np.bool_,
    "control": np.bool_,
    "delete_horizon_ms": np.int64,
    "valid": np.bool_,
    "control_type": np.int8,
}
THREE = [
    record(b"one", key=b"k", headers=[(b"h", b"x"), (b"h", None)], timestamp=7),
    record(None, key=None, timestamp=8),
    record(b"", key=b"", timestamp=9),
]
LOG = batch(THREE, base_offset=40)


def read(data: bytes, **request: Any) -> list[RecordColumns]:
    """Every piece."""
    table = scan(data, on_bad_crc="note", kafka07=bool(request.pop("kafka07", False)))
    return list(decode(memoryview(data), table, Request(**request)))


def arrays_of(column: Any) -> list[Any]:
    if isinstance(column, BinaryColumn):
        return [column.offsets, column.data, column.validity]
    if isinstance(column, HeadersColumn):
        return [column.offsets, *arrays_of(column.keys), *arrays_of(column.values)]
    return [column]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_every_field_has_its_dtype_and_length_in_every_format(magic: int, codec: int) -> None:
    plain = [record(b"v", timestamp=1)] * 3
    data = records_of(plain, magic=magic, codec=codec)
    for piece in read(data, columns=FIELDS):
        assert piece.fields == FIELDS
        for name in FIELDS:
            assert len(piece[name]) == len(piece)
            if name in DTYPES:
                assert piece[name].dtype == DTYPES[name], name


def test_a_message_of_0_7_has_no_time_and_lies_in_no_range_of_times() -> None:
    data = message07(b"a") + message07(b"b")
    assert sum(map(len, read(data, kafka07=True))) == 2
    assert read(data, kafka07=True, time=(0, None)) == []


def test_columns_of_one_value_can_have_it_in_memory_once() -> None:
    data = b"".join(batch([record(b"v")] * 3, base_offset=3 * at) for at in range(4))
    asked = Request(columns=FIELDS, control=True, verify_crc=False)
    (plain,) = decode(memoryview(data), scan(data), asked)
    (once,) = decode(memoryview(data), scan(data), replace(asked, constants_once=True))
    assert once.to_pylist() == plain.to_pylist()
    assert {name for name in FIELDS if getattr(once[name], "strides", None) == (0,)} >= {
        *("magic", "codec", "producer_id", "sequence", "control", "valid"),
    }
    assert once["position"].strides != (0,)


def test_no_array_can_be_written_nor_points_into_the_file() -> None:
    (piece,) = read(LOG, columns=FIELDS)
    lent = np.frombuffer(LOG, np.uint8)
    for name in FIELDS:
        for array in arrays_of(piece[name]):
            if array is not None:
                assert not array.flags.writeable, name
                assert not np.shares_memory(array, lent), name


def test_binary_columns_keep_null_and_empty_apart() -> None:
    (piece,) = read(LOG)
    value = piece.value
    assert (value.offsets.tolist(), value.data.tobytes()) == ([0, 3, 3, 3], b"one")
    assert (value.null_count, value.is_valid().tolist()) == (1, [True, False, True])
    assert value.validity.tolist() == [0b101]
    assert value.sizes().tolist() == [3, -1, 0]
    assert [value[0], value[1], value[2]] == [b"one", None, b""]
    with pytest.raises(IndexError):
        value[3]


def test_columns_survive_pickling_read_only() -> None:
    (piece,) = read(LOG, columns=FIELDS)
    copy = pickle.loads(pickle.dumps(piece))
    assert list(copy.headers) == list(piece.headers)
    assert copy.offset.tolist() == piece.offset.tolist()
    for name in FIELDS:
        assert not any(
            array is not None and array.flags.writeable for array in arrays_of(copy[name])
        )


#: Two records in a batch whose checksum is wrong, so that reading it is an error.
LATER: dict[str, tuple[dict[str, Any], bool]] = {
    "the broker's time": ({"log_append": True}, True),
    "one record": ({"records": [record(timestamp=30)]}, False),  # it may be earlier than its batch
    "times of producers": ({}, False),
}


@pytest.mark.parametrize("name", LATER)
def test_batches_behind_the_last_time_are_passed_over_if_their_headers_are_enough(
    name: str, tmp_path: Path
) -> None:
    options, is_enough = LATER[name]
    given = {"records": [record(timestamp=30), record(timestamp=5)], "crc": 1, **options}
    data = LOG + batch(**given, base_offset=43, max_timestamp=30)
    path = write_segment(tmp_path, 40, data)
    for end in (30, 31):
        with nullcontext() if is_enough and end == 30 else pytest.raises(CorruptRecordError):
            assert [piece.offset.tolist() for piece in read(data, time=(8, end))] == [[41, 42]]
        with (
            Segment.open(path) as segment,
            nullcontext() if is_enough and end == 30 else pytest.raises(CorruptRecordError),
        ):
            assert sum(map(len, segment.read(time=(8, end)))) == 2


TWO = [record(timestamp=time) for time in (20, 30)]
#: Batches of two records, and what their headers cannot exclude: records from the time 25 on.
UNTOLD = {
    "no largest time": (batch(TWO, max_timestamp=-1), True),
    "one before the first record": (batch(TWO, max_timestamp=19, codec=LZ4), True),
    "none beside a delete horizon": (
        batch(TWO, base_timestamp=90, max_timestamp=-1, delete_horizon=True),
        True,
    ),
    "one below a delete horizon": (
        batch(TWO, base_timestamp=90, max_timestamp=20, delete_horizon=True),
        False,
    ),
    "that of the first record": (batch(TWO, max_timestamp=20), False),
    "a wrapper without one": (wrapper(TWO, magic=1, codec=GZIP, timestamp=-1), True),
    "a wrapper with 0": (wrapper(TWO, magic=1, codec=LZ4, timestamp=0), True),
    "a wrapper with a small one": (wrapper(TWO, magic=1, codec=LZ4, timestamp=1), False),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_times_in_headers_exclude_records_only_where_they_are_possible(
    name: str, tmp_path: Path
) -> None:
    data, has_record = UNTOLD[name]
    assert sum(map(len, read(data, time=(25, 31)))) == has_record
    with Segment.open(write_segment(tmp_path, 0, data)) as segment:
        assert sum(map(len, segment.read(time=(25, 31)))) == has_record
        # A broker looks for a time by headers alone.
        found = segment.lookup_time(25)
    assert found is None


# Faults

BAD_RECORD = batch(body=b"\x00", count=1, base_offset=70)
BAD_CODEC = batch(THREE, base_offset=80, codec=0, attributes=GZIP)
BAD_CRC = batch(THREE, base_offset=90, crc=1)

FAULTS: dict[str, tuple[bytes, type[KsegError], int]] = {
    "structure": (BAD_RECORD, InvalidRecordError, 70),
    "codec": (BAD_CODEC, DecompressionError, 80),
    "checksum": (BAD_CRC, CorruptRecordError, 90),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_comes_after_the_records_in_front_of_it(fault: str) -> None:
    bad, kind, offset = FAULTS[fault]
    data = LOG + bad + LOG
    table = scan(data, on_bad_crc="note")
    pieces = decode(memoryview(data), table, Request(columns=("offset",)))
    assert next(pieces).offset.tolist() == [40, 41, 42]
    with pytest.raises(kind) as caught:
        next(pieces)
    assert (caught.value.position, caught.value.offset) == (len(LOG), offset)
