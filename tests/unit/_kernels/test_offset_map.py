"""The kernel of the offset map, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from kseg._kernels.offset_map import OffsetMap

SECRET = bytes(range(16))


def column(keys: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum([0, *(len(key or b"") for key in keys)]).astype(np.int32)
    data = np.frombuffer(b"".join(key or b"" for key in keys), np.uint8)
    return data, ends, np.array([key is not None for key in keys], np.uint8)


def put(found: OffsetMap, keys: list[bytes | None], offsets: list[int], start: int = 0) -> int:
    return int(found.put(*column(keys), np.array(offsets, np.int64), start))


def get(found: OffsetMap, keys: list[bytes | None]) -> list[int]:
    out = np.empty(len(keys), np.int64)
    found.get(*column(keys), out)
    return out.tolist()


@pytest.mark.parametrize("count", [10, 100, 1000, 5000])
def test_omp_01_what_was_put_in_is_found(count: int) -> None:
    found = OffsetMap(2 * count, 2 * count - 1, SECRET)
    keys: list[bytes | None] = [b"%d" % number for number in range(count)]
    assert put(found, keys, list(range(count))) == count
    assert get(found, keys) == list(range(count))
    assert get(found, [b"%d" % number for number in range(count, 2 * count)]) == [-1] * count
    assert found.count == count


def test_the_last_offset_of_a_key_counts() -> None:
    found = OffsetMap(10, 9, SECRET)
    assert put(found, [b"a", b"b", b"a", None, b""], [1, 2, 3, 4, 5]) == 5
    assert get(found, [b"a", b"b", None, b"", b"c"]) == [3, 2, -1, 5, -1]


def test_omp_02_a_full_map_takes_nothing_not_even_of_a_key_that_it_has() -> None:
    found = OffsetMap(4, 2, SECRET)
    assert put(found, [None, b"a", b"b", b"a", b"c"], [0, 1, 2, 3, 4]) == 3
    assert put(found, [None, None], [5, 6]) == 2
    assert get(found, [b"a", b"b", b"c"]) == [1, 2, -1]
    assert (found.count, found.limit, found.slots) == (2, 2, 4)


def test_rows_in_front_of_the_start_are_passed_over() -> None:
    found = OffsetMap(4, 1, SECRET)
    assert put(found, [b"a", b"b", b"c"], [1, 2, 3], start=2) == 2
    assert get(found, [b"a", b"b", b"c"]) == [-1, 2, -1]


def test_offsets_of_64_bits_and_keys_of_every_length_are_told_apart() -> None:
    keys: list[bytes | None] = [bytes([7]) * size for size in range(100)]
    offsets = [2**63 - 1 - size for size in range(100)]
    found = OffsetMap(101, 100, SECRET)
    assert put(found, keys, offsets) == 100
    assert get(found, keys) == offsets


@pytest.mark.parametrize(("slots", "limit"), [(1, 1), (4, 0), (4, 4), (2**41, 1)])
def test_a_map_without_a_free_slot_is_refused(slots: int, limit: int) -> None:
    with pytest.raises(ValueError, match="less than it has slots"):
        OffsetMap(slots, limit, SECRET)


def test_arrays_that_do_not_fit_are_refused() -> None:
    found = OffsetMap(4, 2, SECRET)
    data, ends, valid = column([b"ab", b"c"])
    offsets = np.zeros(2, np.int64)
    for wrong in ([0, 4, 3], [0, 2, 4], [-1, 2, 3], [0, 3]):
        with pytest.raises(ValueError, match="ascend"):
            found.put(data, np.array(wrong, np.int32), valid, offsets)
    with pytest.raises(ValueError, match="offset for each"):
        found.put(data, ends, valid, offsets[:1])
    with pytest.raises(ValueError, match="place for each"):
        found.get(data, ends, valid, offsets[:1])
    with pytest.raises(ValueError, match="16 bytes"):
        OffsetMap(4, 2, SECRET[:15])
