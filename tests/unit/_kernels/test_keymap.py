"""Keys by their hashes: known hashes, distinct counts, sums that fit the room there is."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kseg._kernels import keymap as _keymap

_M, _MASK = 0xC6A4A7935BD1E995, 2**64 - 1


def murmur(data: bytes) -> int:
    """MurmurHash64A with seed 0, as its author wrote it down."""
    h = len(data) * _M & _MASK
    whole = len(data) - len(data) % 8
    for at in range(0, whole, 8):
        k = int.from_bytes(data[at : at + 8], "little") * _M & _MASK
        k = (k ^ k >> 47) * _M & _MASK
        h = (h ^ k) * _M & _MASK
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 47) * _M & _MASK
    return h ^ h >> 47


def hashes(values: list[bytes]) -> np.ndarray:
    data = np.frombuffer(b"".join(values), np.uint8)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    out = np.zeros(len(values), np.uint64)
    _keymap.hash_values(data, offsets, out)
    return out


def test_hashes_are_murmur_64a() -> None:
    random.seed(1)
    values = [random.randbytes(size) for size in [*range(40), 1000]]
    assert hashes(values).tolist() == [murmur(value) for value in values]


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 1], [0, 2**31 - 1]])
def test_offsets_outside_of_the_data_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        _keymap.hash_values(
            np.zeros(4, np.uint8), np.array(offsets, np.int32), np.zeros(1, np.uint64)
        )


def test_an_answer_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _keymap.hash_values(np.zeros(4, np.uint8), np.zeros(3, np.int32), np.zeros(1, np.uint64))


def test_registers_keep_the_longest_run_of_zeros() -> None:
    registers = np.zeros(4096, np.uint8)
    marks = [0, 5 << 52, (5 << 52) | 1 << 51, (7 << 52) | 1]
    _keymap.note_distinct(np.array(marks, np.uint64), registers)
    assert (registers[0], registers[5], registers[7]) == (53, 53, 52)
    assert registers.sum() == 53 + 53 + 52


def test_any_other_number_of_registers_is_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        _keymap.note_distinct(np.zeros(1, np.uint64), np.zeros(4095, np.uint8))


def feed(table: _keymap.KeyTable, keys: list[int], start: int = 0) -> tuple[int, list[int]]:
    rows = len(keys)
    numbers = np.full(rows, -1, np.int32)
    sizes = np.arange(1, rows + 1)
    done = table.feed(np.array(keys, np.uint64), sizes, np.ones(rows, np.int64), numbers, start)
    return done, numbers.tolist()


def contents(table: _keymap.KeyTable) -> list[tuple[int, int, int]]:
    columns = [np.zeros(table.count, kind) for kind in (np.uint64, np.int64, np.int64)]
    table.copy_into(*columns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_rows_of_a_key_are_added_up() -> None:
    table = _keymap.KeyTable(8)
    assert feed(table, [9, 7, 9, 2**64 - 1, 9]) == (5, [0, 1, 0, 2, 0])
    assert contents(table) == [(9, 3, 1 + 3 + 5), (7, 1, 2), (2**64 - 1, 1, 4)]


def test_a_full_table_stops_at_the_first_key_it_has_no_room_for() -> None:
    table = _keymap.KeyTable(2)
    assert feed(table, [1, 2, 1, 3, 1]) == (3, [0, 1, 0, -1, -1])
    assert feed(table, [1, 2, 1, 3, 1], 4) == (5, [-1, -1, -1, -1, 0])
    assert contents(table) == [(1, 3, 1 + 3 + 5), (2, 1, 2)]


@pytest.mark.parametrize("limit", [0, -1, 2**26 + 1])
def test_room_for_no_keys_or_too_many_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        _keymap.KeyTable(limit)


def test_columns_of_different_lengths_are_refused() -> None:
    table, one, two = _keymap.KeyTable(4), np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="lengths"):
        table.feed(np.zeros(1, np.uint64), two, one, np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="start"):
        table.feed(np.zeros(1, np.uint64), one, one, np.zeros(1, np.int32), 2)
    with pytest.raises(ValueError, match="place"):
        table.copy_into(np.zeros(1, np.uint64), one, one)


def test_the_bytes_of_keys_are_looked_up_by_their_numbers() -> None:
    table, sizes = _keymap.KeyTable(4), np.zeros(3, np.int64)
    feed(table, [7, 8, 7])
    table.bytes_of(np.array([1, 0, 1], np.int32), sizes)
    by_key = {key: size for key, _count, size in contents(table)}
    assert sizes.tolist() == [by_key[8], by_key[7], by_key[8]]
    with pytest.raises(ValueError, match="lengths"):
        table.bytes_of(np.zeros(1, np.int32), sizes)
    for number in (-1, 2):
        with pytest.raises(ValueError, match="no key"):
            table.bytes_of(np.full(3, number, np.int32), sizes)
