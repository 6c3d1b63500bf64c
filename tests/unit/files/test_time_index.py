from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError
from kseg.files.time_index import TimeIndex
from tests.unit.files import index_bytes

BASE = 45


@pytest.fixture(params=["always", "never"])
def mapping(request: pytest.FixtureRequest) -> Any:
    return request.param


def open_index(path: Path, entries: list[tuple[int, int]], slots: int = 0, **options: Any) -> Any:
    return TimeIndex.open(index_bytes.time_index(path, entries, slots=slots), BASE, **options)


def test_a_missing_file_is_an_empty_index(tmp_path: Path) -> None:
    with TimeIndex.open(tmp_path / "absent", BASE) as index:
        assert index.missing
        assert index.lookup(5) == (-1, BASE)
        index.check()


@pytest.mark.parametrize(
    ("entries", "slots", "slot"),
    [
        ([(1, 7), (1, 8)], 0, 1),
        ([(2, 7), (1, 8)], 0, 1),  # the last timestamp lies below the first
        ([(1, 7), (2, 6)], 0, 1),
        ([(1, -7)], 0, 0),  # the last offset lies below the base
        ([(2**63 - 1, 1), (-(2**63), 2)], 0, 1),
        ([(1, 7), (0, 0), (5, 0)], 4, 2),
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
    assert caught.value.position == 12 * slot


def test_a_closed_index_says_so(tmp_path: Path, mapping: Any) -> None:
    index = open_index(tmp_path / "x", [(1, 1)], mapping=mapping)
    index.close()
    index.close()
    for use in (lambda: index.lookup(1), lambda: index.last_entry, index.entries, index.refresh):
        with pytest.raises(ValueError, match="x is closed"):
            use()


def test_an_offset_below_the_base_is_an_error_in_a_lookup(tmp_path: Path) -> None:
    with open_index(tmp_path / "x", [(5, -3)]) as index:
        with pytest.raises(CorruptIndexError):
            index.lookup(5)
        with pytest.raises(CorruptIndexError):
            index.lookup_many(np.array([5]))


increasing = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=60).map(sorted)


@given(increasing, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(0, 40))
def test_lookups_equal_a_plain_floor_search(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], asked: list[int], spare: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    entries = [(time, slot + 1) for slot, time in enumerate(times)]
    targets = [*asked, *times]
    expected = [BASE + bisect_right(times, target) for target in targets]
    with open_index(path, entries, slots=len(entries) + spare) as index:
        assert index.entry_count == len(entries)
        assert [index.lookup(target).offset for target in targets] == expected
        assert index.lookup_many(np.array(targets, dtype=np.int64)).tolist() == expected
        index.check()


@given(st.binary(max_size=200), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_give_an_answer_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, target: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    path.write_bytes(data)
    for mapping in ("always", "never"):
        with TimeIndex.open(path, BASE, mapping=mapping) as index:  # type: ignore[arg-type]
            assert 0 <= index.entry_count <= index.slots == len(data) // 12
            for act in (
                lambda: index.lookup(target),
                lambda: index.lookup_many(np.array([target])),
                lambda: index.last_entry,
                index.entries,
                index.check,
            ):
                try:
                    act()
                except CorruptIndexError as error:
                    assert error.path == str(path)  # noqa: PT017
