from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError
from kseg.files.offset_index import IndexEntry, OffsetIndex
from tests.unit.files import index_bytes

BASE = 45


@pytest.fixture(params=["always", "never"])
def mapping(request: pytest.FixtureRequest) -> Any:
    return request.param


def open_index(path: Path, entries: list[tuple[int, int]], slots: int = 0, **options: Any) -> Any:
    return OffsetIndex.open(index_bytes.offset_index(path, entries, slots=slots), BASE, **options)


@pytest.mark.parametrize("target", [0, BASE - 1, BASE, 92, 2**63 - 1])
def test_an_empty_index_answers_the_base(tmp_path: Path, mapping: Any, target: int) -> None:
    with open_index(tmp_path / "x", [], mapping=mapping) as index:
        assert index.lookup(target) == IndexEntry(BASE, 0)
        assert index.lookup_many(np.array([target])).tolist() == [0]
        assert index.last_offset == BASE
        assert index.fetch_upper_bound(0, 5) is None
        index.check()


def test_a_missing_file_is_an_empty_index(tmp_path: Path, mapping: Any) -> None:
    with OffsetIndex.open(tmp_path / "absent", BASE, mapping=mapping) as index:
        assert index.missing
        assert (index.entry_count, index.slots) == (0, 0)
        assert index.lookup(BASE + 5) == IndexEntry(BASE, 0)
        assert index.refresh() == 0
        assert len(index.entries(all_slots=True).offsets) == 0
        index.check()
    assert not (tmp_path / "absent").exists()


def test_upper_bound_is_computed_in_64_bits(tmp_path: Path) -> None:
    with open_index(tmp_path / "x", [(1, 10)]) as index:
        assert index.fetch_upper_bound(2**31 - 1, 2**31 - 1) is None


def test_refresh_sees_what_another_process_added(tmp_path: Path, mapping: Any) -> None:
    path = tmp_path / "x"
    with open_index(path, [(1, 1)], slots=4, mapping=mapping) as index:
        with path.open("r+b") as file:
            file.seek(8)
            file.write(bytes.fromhex("0000000500000046"))
        assert index.refresh() == 2
        assert index.lookup(BASE + 9) == (BASE + 5, 70)
        index_bytes.offset_index(path, [(1, 1), (5, 70), (6, 80)])
        assert index.refresh() == 3
        assert index.lookup(BASE + 9) == (BASE + 6, 80)


def test_a_file_that_is_trimmed_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with open_index(path, [(1, 1)], slots=1000, mapping="never") as index:
        index_bytes.offset_index(path, [(1, 1), (2, 20)])
        assert index.refresh() == 2
        assert index.slots == 2


def test_a_closed_index_says_so(tmp_path: Path, mapping: Any) -> None:
    index = open_index(tmp_path / "x", [(1, 1)], mapping=mapping)
    index.close()
    index.close()
    for use in (
        lambda: index.lookup(BASE + 1),
        lambda: index.lookup_many(np.array([1])),
        lambda: index.fetch_upper_bound(0, 1),
        lambda: index.last_offset,
        lambda: index.entry_count,
        index.entries,
        index.check,
        index.refresh,
    ):
        with pytest.raises(ValueError, match="x is closed"):
            use()


@pytest.mark.parametrize(
    ("entries", "slots", "slot"),
    [
        ([(5, 10), (5, 20)], 0, 1),  # the same offset twice
        ([(5, 10), (4, 20)], 0, 1),
        ([(5, 10), (6, 9)], 0, 1),
        ([(-1, 10), (6, 20)], 0, 0),
        ([(1, -10), (6, 20)], 0, 0),
        ([(1, 10), (-6, 20)], 0, 1),  # the last offset lies below the base
        ([(1, 10), (2, 20), (0, 0), (0, 7), (0, 0)], 0, 3),
        ([(0, 0), (0, 0), (0, 9)], 4, 2),
    ],
)
def test_what_breaks_the_order_is_found(
    tmp_path: Path, mapping: Any, entries: list[tuple[int, int]], slots: int, slot: int
) -> None:
    with (
        open_index(tmp_path / "x", entries, slots, mapping=mapping) as index,
        pytest.raises(CorruptIndexError) as caught,
    ):
        index.check()
    assert caught.value.position == 8 * slot
    assert caught.value.path == str(tmp_path / "x")


@pytest.mark.parametrize("entry", [(3, -1), (-2, 7)])
def test_a_negative_answer_is_an_error(tmp_path: Path, entry: tuple[int, int]) -> None:
    with open_index(tmp_path / "x", [entry]) as index:
        with pytest.raises(CorruptIndexError):
            index.lookup(BASE + 5)
        if entry[1] < 0:
            with pytest.raises(CorruptIndexError):
                index.lookup_many(np.array([BASE + 5]))


def test_an_offset_beyond_64_bits_is_an_error_not_a_wrap(tmp_path: Path) -> None:
    path = index_bytes.offset_index(tmp_path / "x", [(1, 1), (9, 2)])
    with OffsetIndex.open(path, 2**63 - 5) as index, pytest.raises(CorruptIndexError):
        index.entries()


def test_a_file_longer_than_any_index_is_refused_unread(tmp_path: Path, mapping: Any) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(CorruptIndexError, match="largest"):
        OffsetIndex.open(tmp_path / "x", BASE, mapping=mapping)


def test_a_sparse_file_of_zeros_costs_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**31 - 8)
    with OffsetIndex.open(tmp_path / "x", BASE, mapping="never") as index:
        assert (index.entry_count, index.slots) == (0, 2**28 - 1)


def _as_asked(order: str, targets: Any, random: Any) -> Any:
    if order == "sorted":
        return np.sort(targets)
    if order == "sorted in runs":
        return np.concatenate([np.sort(part) for part in np.array_split(targets, 3)])
    return random.permutation(targets)


@pytest.mark.parametrize("order", ["sorted", "sorted in runs", "random"])
@pytest.mark.parametrize("spread", ["even", "crowded", "one"])
@pytest.mark.parametrize("count", [10_000, 100])
def test_many_lookups_equal_a_plain_floor_search(
    tmp_path: Path, order: str, spread: str, count: int
) -> None:
    random = np.random.default_rng(count)
    steps = {
        "even": random.integers(1, 200_000, 9_999),
        "crowded": np.where(random.random(9_999) < 0.001, 200_000_000, 1),
        "one": np.array([7]),
    }[spread]
    keys = np.cumsum(steps)
    keys = keys[keys < 2**31]
    positions = np.arange(1, len(keys) + 1)
    wide = random.integers(-1_000, int(keys[-1]) + 1_000, count)
    asked = np.concatenate([wide, random.choice(keys, count), [-(2**63) + BASE]])
    targets = _as_asked(order, asked, random) + BASE
    expected = np.append(positions, 0)[np.searchsorted(keys, targets - BASE, "right") - 1]
    with open_index(
        tmp_path / "x", list(zip(keys.tolist(), positions.tolist(), strict=True))
    ) as index:
        assert (index.lookup_many(targets) == expected).all()
        assert index.lookup(int(targets[7])).position == expected[7]
        assert index.lookup_many(np.array([2**63 - 1])).tolist() == [len(keys)]


@pytest.mark.parametrize("order", ["sorted", "random"])
def test_many_lookups_in_keys_that_do_not_ascend_find_what_one_finds(
    tmp_path: Path, order: str
) -> None:
    random = np.random.default_rng(5)
    keys = random.integers(1, 2**31 - 1, 5_000).tolist()
    entries = [(key, slot) for slot, key in enumerate(keys)]
    targets = _as_asked(order, random.integers(0, 2**31, 5_000), random) + BASE
    with open_index(tmp_path / "x", entries) as index:
        expected = [index.lookup(target).position for target in targets.tolist()]
        assert index.lookup_many(targets).tolist() == expected


@given(st.binary(max_size=200), st.integers(-(2**62), 2**62))
def test_any_bytes_give_an_answer_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, target: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    path.write_bytes(data)
    for mapping in ("always", "never"):
        with OffsetIndex.open(path, BASE, mapping=mapping) as index:  # type: ignore[arg-type]
            assert 0 <= index.entry_count <= index.slots == len(data) // 8
            for act in (
                lambda: index.lookup(target),
                lambda: index.lookup_many(np.array([target])),
                lambda: index.fetch_upper_bound(target % 2**31, 5),
                index.entries,
                index.check,
            ):
                try:
                    act()
                except CorruptIndexError as error:
                    assert error.path == str(path)  # noqa: PT017
