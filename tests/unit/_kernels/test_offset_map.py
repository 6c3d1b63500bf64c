"""The kernel of the offset map, against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels.located import Located
from kseg._kernels.offset_map import KeepLatest, OffsetMap
from kseg.format.header import scan_all
from tests.builders import LZ4, NONE, batch, record

SECRET = bytes(range(16))


def column(keys: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum([0, *(len(key or b"") for key in keys)]).astype(np.int32)
    data = np.frombuffer(b"".join(key or b"" for key in keys), np.uint8)
    return data, ends, np.array([key is not None for key in keys], np.uint8)


def put(found: OffsetMap, keys: list[bytes | None], offsets: list[int], start: int = 0) -> int:
    return int(found.put(*column(keys), np.array(offsets, np.int64), start))


def latest(
    found: OffsetMap, keys: list[bytes | None], offsets: list[int], known_to: int = -1
) -> list[int]:
    """By the slots alone, unless the bits are let in up to an offset."""
    out = np.empty(len(keys), np.uint8)
    found.latest(*column(keys), np.array(offsets, np.int64), known_to, out)
    return out.tolist()


def has(found: OffsetMap, keys: list[bytes | None], offsets: list[int]) -> bool:
    """Whether the map has each key at exactly this offset, and not at all for -1."""
    before = [max(offset - 1, -1) for offset in offsets]
    known = [int(key is not None and offset < 0) for key, offset in zip(keys, offsets, strict=True)]
    at = [int(key is not None) for key in keys]
    return latest(found, keys, offsets) == at and latest(found, keys, before) == known


def told(found: OffsetMap, batches: list[tuple[int, int, int]], known_to: int) -> list[int]:
    columns = np.array(batches, np.int64).reshape(-1, 3).T.copy()
    out = np.empty(len(batches), np.uint8)
    found.told(*columns, known_to, out)
    return out.tolist()


@pytest.mark.parametrize("count", [10, 100, 1000, 5000])
def test_omp_01_what_was_put_in_is_found(count: int) -> None:
    found = OffsetMap(2 * count, 2 * count - 1, SECRET)
    keys: list[bytes | None] = [b"%d" % number for number in range(count)]
    assert put(found, keys, list(range(count))) == count
    assert has(found, keys, list(range(count)))
    assert has(found, [b"%d" % number for number in range(count, 2 * count)], [-1] * count)
    assert found.count == count


def test_the_last_offset_of_a_key_counts() -> None:
    found = OffsetMap(10, 9, SECRET)
    assert put(found, [b"a", b"b", b"a", None, b""], [1, 2, 3, 4, 5]) == 5
    assert has(found, [b"a", b"b", None, b"", b"c"], [3, 2, -1, 5, -1])


def test_omp_02_a_full_map_takes_nothing_not_even_of_a_key_that_it_has() -> None:
    found = OffsetMap(4, 2, SECRET)
    assert put(found, [None, b"a", b"b", b"a", b"c"], [0, 1, 2, 3, 4]) == 3
    assert put(found, [None, None], [5, 6]) == 2
    assert has(found, [b"a", b"b", b"c"], [1, 2, -1])
    assert (found.count, found.limit, found.slots) == (2, 2, 4)


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
        found.latest(data, ends, valid, offsets, -1, valid[:1])
    with pytest.raises(ValueError, match="16 bytes"):
        OffsetMap(4, 2, SECRET[:15])


def range_of(first: int, span: int, keys: list[bytes | None], offsets: list[int]) -> OffsetMap:
    """A map with bits for a range, that has these keys with values, each in a body of its own."""
    found = OffsetMap(100, 99, SECRET, first, span)
    assert put_told(found, keys, offsets) == len(keys)
    return found


def put_told(
    found: OffsetMap,
    keys: list[bytes | None],
    at: list[int],
    values: list[int] | None = None,
    **changed: np.ndarray,
) -> int:
    """Put in rows with these values, -1 for none; a batch a row."""
    data, ends, valid = column(keys)
    given = {
        "has_value": np.array([value >= 0 for value in values or [5] * len(keys)], np.uint8),
        "first_row": np.arange(len(keys) + 1),
        "base_offsets": np.array(at, np.int64),
        "last_offsets": np.array(at, np.int64),
    }
    return int(found.put(data, ends, valid, np.array(at, np.int64), **(given | changed)))


NOTHING, NONE_STAYS, ALL_STAY = 0, 1, 2


def test_bits_tell_of_batches_what_the_slots_tell_of_their_records() -> None:
    found = range_of(10, 200, [b"a", b"b", b"a", b"c", b"b"], [10, 74, 75, 140, 209])
    batches = [(10, 74, 2), (75, 140, 2), (75, 139, 1), (141, 208, 0), (140, 209, 2)]
    assert told(found, batches, 209) == [NONE_STAYS, ALL_STAY, ALL_STAY, NONE_STAYS, ALL_STAY]
    assert told(found, [(10, 140, 4), (75, 209, 4)], 209) == [NOTHING, NOTHING]
    # Outside of the range, and behind what was put in.
    assert told(found, [(9, 74, 2), (209, 210, 1), (140, 209, 2)], 208) == [NOTHING] * 3
    keys: list[bytes | None] = [b"a", b"b", b"a", b"c", b"b", None, b"d"]
    offsets = [10, 74, 75, 140, 209, 140, 300]
    assert latest(found, keys, offsets, 209) == [0, 0, 1, 1, 1, 0, 1]
    assert latest(found, keys, offsets) == [0, 0, 1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("keys", "values"),
    [([b"a", None], [1, 1]), ([b"a", b"b"], [1, -1])],
    ids=["no key", "no value"],
)
def test_a_record_without_key_or_value_has_to_be_looked_at(
    keys: list[bytes | None], values: list[int]
) -> None:
    found = OffsetMap(100, 99, SECRET, 0, 10)
    assert put_told(found, keys, [3, 4], values) == 2
    assert told(found, [(3, 3, 1), (4, 4, 1), (3, 4, 2)], 4) == [ALL_STAY, NOTHING, NOTHING]


@pytest.mark.parametrize("offsets", [[3, 3], [4, 3]])
def test_bits_say_nothing_where_offsets_do_not_rise(offsets: list[int]) -> None:
    found = range_of(0, 10, [b"a", b"b"], offsets)
    assert told(found, [(3, 3, 2), (3, 4, 2)], 4) == [NOTHING, NOTHING]
    assert latest(found, [b"a", b"b"], offsets, 4) == [1, 1]


def test_bits_say_nothing_where_a_record_lies_outside_of_its_batch() -> None:
    found = OffsetMap(100, 99, SECRET, 0, 10)
    assert put_told(found, [b"a", b"a"], [3, 4], last_offsets=np.array([3, 3])) == 2
    assert told(found, [(3, 3, 1)], 4) == [NOTHING]


def test_keys_hash_alike_one_by_one_and_side_by_side() -> None:
    sizes = [16, 16, 16, 16, 16, 3, 40, 41, 47, 46, 0, 7, 7, 7, 7, 8, 15, 9, 12, 300, 300, 300, 300]
    keys: list[bytes | None] = [bytes([n]) * size for n, size in enumerate(sizes)]
    found = OffsetMap(100, 99, SECRET)
    assert put(found, keys, list(range(len(keys)))) == len(keys)
    for number, key in enumerate(keys):
        assert has(found, [key], [number])


@pytest.mark.parametrize(
    "changed",
    [
        {"first_row": np.array([0, 2, 1])},
        {"first_row": np.array([0, 1, 3])},
        {"first_row": np.array([1, 1, 2])},
        {"first_row": np.array([0, 1])},
        {"first_row": np.array([], np.int64)},
        {"has_value": np.zeros(1, np.uint8)},
        {"base_offsets": np.zeros(1, np.int64)},
        {"last_offsets": np.zeros(3, np.int64)},
        {"last_offsets": None},
    ],
)
def test_batches_that_do_not_fit_the_rows_are_refused(changed: dict[str, Any]) -> None:
    found = OffsetMap(100, 99, SECRET, 0, 10)
    with pytest.raises(ValueError, match=r"follow each other|for each key"):
        put_told(found, [b"a", b"b"], [1, 2], **changed)


@pytest.mark.parametrize(("first", "span"), [(-1, 1), (0, -1), (0, 2**41)])
def test_a_range_beyond_all_offsets_is_refused(first: int, span: int) -> None:
    with pytest.raises(ValueError, match="range of offsets"):
        OffsetMap(4, 2, SECRET, first, span)


def test_told_wants_columns_of_one_length() -> None:
    found, three = OffsetMap(4, 2, SECRET), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="different lengths"):
        found.told(three, three, three[:2], 0, np.zeros(3, np.uint8))


def put_in_place(found: OffsetMap, data: bytes, start: int = 0) -> tuple[int, bool, int]:
    rows = scan_all(memoryview(data), on_bad_crc="ignore").rows
    return found.put_batches(Located(), data, rows, 0, start)


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_batches_that_are_put_in_where_they_lie_are_those_of_columns(codec: int) -> None:
    keys: list[bytes | None] = [b"%d" % (number % 300) for number in range(1000)]
    keys[40::90] = [None] * len(keys[40::90])
    data = b"".join(
        batch([record(key=key) for key in keys[at : at + 50]], base_offset=at, codec=codec)
        for at in range(0, 1000, 50)
    )
    ours, theirs = OffsetMap(900, 899, SECRET), OffsetMap(900, 899, SECRET)
    assert put_in_place(ours, data, 120) == (20, False, -1)
    assert put(theirs, keys, list(range(1000)), 120) == 1000
    for known_to in (-1, 500, 999):
        assert latest(ours, keys, list(range(1000)), known_to) == latest(
            theirs, keys, list(range(1000)), known_to
        )
    assert ours.count == theirs.count


def test_a_map_that_is_full_in_a_batch_says_how_far_it_came() -> None:
    data = batch([record(key=b"a"), record()], base_offset=5)
    data += batch([record(key=key) for key in (b"a", None, b"b", b"c")], base_offset=10)
    found = OffsetMap(4, 2, SECRET)
    assert put_in_place(found, data) == (1, True, 12)
    assert put_in_place(found, batch([record(key=b"d")], base_offset=20)) == (0, True, -1)


def test_batches_that_are_not_read_in_place_end_the_call() -> None:
    sound, damaged = batch([record(key=b"a")]), batch([], body=b"\x05", count=1, base_offset=7)
    found = OffsetMap(4, 2, SECRET)
    assert put_in_place(found, sound + damaged + sound) == (1, False, -1)
    assert found.count == 1
    with pytest.raises(ValueError, match="width"):
        found.put_batches(Located(), sound, np.zeros((1, 3), np.int64), 0, 0)


def test_slots_may_lie_in_memory_that_is_lent() -> None:
    memory = np.zeros(4 * 24, np.uint8)
    found = OffsetMap(4, 2, SECRET, memory=memory)
    assert put(found, [b"a", b"b"], [3, 4]) == 2
    assert has(found, [b"a", b"b"], [3, 4])
    assert memory.any()
    for wrong in (memory[1:], memory[:-1], np.zeros(104, np.uint8)[1:]):
        with pytest.raises(ValueError, match="too small, or not aligned"):
            OffsetMap(4, 2, SECRET, memory=wrong)


def test_flags_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        KeepLatest(OffsetMap(4, 2, SECRET), 0, np.zeros(2, np.uint8), np.zeros(1, np.uint8))
