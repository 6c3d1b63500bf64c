from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError
from kseg.files.index import IndexEntry, OffsetIndex, TimeIndex, probe_offset, probe_upper_bound
from tests.unit.files import index_bytes

BASE = 45
KINDS = [OffsetIndex, TimeIndex]


@pytest.fixture(params=["always", "never"])
def mapping(request: pytest.FixtureRequest) -> Any:
    return request.param


def open_index(
    kind: Any, path: Path, entries: list[tuple[int, int]], slots: int = 0, **options: Any
) -> Any:
    make = index_bytes.offset_index if kind is OffsetIndex else index_bytes.time_index
    return kind.open(make(path, entries, slots=slots), BASE, **options)


@pytest.mark.parametrize("target", [0, BASE - 1, BASE, 92, 2**63 - 1])
def test_oix_01_an_empty_index_answers_the_base(tmp_path: Path, mapping: Any, target: int) -> None:
    with open_index(OffsetIndex, tmp_path / "x", [], mapping=mapping) as index:
        assert index.lookup(target) == IndexEntry(BASE, 0)
        assert index.last_offset == BASE
        assert index.fetch_upper_bound(0, 5) is None


@pytest.mark.parametrize("kind", KINDS)
def test_oix_01_tix_01_a_missing_file_is_an_empty_index(
    kind: Any, tmp_path: Path, mapping: Any
) -> None:
    path = tmp_path / "absent"
    with kind.open(path, BASE, mapping=mapping) as index:
        assert index.missing
        assert (index.entry_count, index.slots) == (0, 0)
        assert index.lookup(BASE + 5) == ((BASE, 0) if kind is OffsetIndex else (-1, BASE))
        assert index.refresh() == 0
        assert len(index.entries().offsets) == 0
    assert not path.exists()


def test_refresh_sees_what_another_process_added(tmp_path: Path, mapping: Any) -> None:
    path = tmp_path / "x"
    with open_index(OffsetIndex, path, [(1, 1)], slots=4, mapping=mapping) as index:
        with path.open("r+b") as file:
            file.seek(8)
            file.write(bytes.fromhex("0000000500000046"))
        assert index.refresh() == 2
        assert index.lookup(BASE + 9) == (BASE + 5, 70)
        index_bytes.offset_index(path, [(1, 1), (5, 70), (6, 80)])
        assert index.refresh() == 3
        assert index.lookup(BASE + 9) == (BASE + 6, 80)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_index_says_so(kind: Any, tmp_path: Path, mapping: Any) -> None:
    index = open_index(kind, tmp_path / "x", [(1, 1)], mapping=mapping)
    index.close()
    index.close()
    of_kind = [lambda: index.fetch_upper_bound(0, 1), lambda: index.last_offset]
    for use in (
        lambda: index.lookup(BASE + 1),
        lambda: index.entry_count,
        index.entries,
        index.refresh,
        *(of_kind if kind is OffsetIndex else [lambda: index.last_entry]),
    ):
        with pytest.raises(ValueError, match="x is closed"):
            use()


def test_an_offset_beyond_64_bits_is_an_error_not_a_wrap(tmp_path: Path) -> None:
    path = index_bytes.offset_index(tmp_path / "x", [(1, 1), (9, 2)])
    with OffsetIndex.open(path, 2**63 - 5) as index, pytest.raises(CorruptIndexError):
        index.entries()
    path = index_bytes.time_index(tmp_path / "t", [(1, 1), (9, 9)])
    with TimeIndex.open(path, 2**63 - 5) as times:
        assert times.lookup(5).offset == 2**63 - 4
        for use in (times.entries, lambda: times.lookup(9)):
            with pytest.raises(CorruptIndexError):
                use()


def test_a_file_longer_than_any_index_is_refused_unread(tmp_path: Path, mapping: Any) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(CorruptIndexError, match="largest"):
        OffsetIndex.open(tmp_path / "x", BASE, mapping=mapping)


@given(st.binary(max_size=200), st.integers(-(2**62), 2**62))
def test_any_bytes_give_an_answer_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, target: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    path.write_bytes(data)
    for kind, size in ((OffsetIndex, 8), (TimeIndex, 12)):
        for mapping in ("always", "never"):
            with kind.open(path, BASE, mapping=mapping) as index:  # type: ignore[arg-type]
                assert 0 <= index.entry_count <= index.slots == len(data) // size
                for act in _acts(index, target):
                    try:
                        act()
                    except CorruptIndexError as error:
                        assert error.path == str(path)  # noqa: PT017


def _acts(index: Any, target: int) -> list[Any]:
    of_kind = (
        (lambda: index.last_entry)
        if isinstance(index, TimeIndex)
        else (lambda: index.fetch_upper_bound(target % 2**31, 5))
    )
    return [lambda: index.lookup(target), of_kind, index.entries]


# ---- beside the writer ---------------------------------------------------------------------------


@st.composite
def indexes(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    count = draw(st.sampled_from([0, 1, 2, 3, 511, 512, 513, 1_500]))
    step = draw(st.integers(1, 5))
    entries = [(step * (slot + 1), 100 * (slot + 1)) for slot in range(count)]
    return entries, draw(st.sampled_from([0, 1, 700, 5_000]))


@given(indexes(), st.data())
def test_a_probe_answers_as_the_index_does(
    tmp_path_factory: pytest.TempPathFactory,
    made: tuple[list[tuple[int, int]], int],
    data: st.DataObject,
) -> None:
    entries, empty_slots = made
    path = tmp_path_factory.mktemp("probe") / "45.index"
    slots = len(entries) + empty_slots
    with open_index(OffsetIndex, path, entries, slots, mapping="never") as index:
        for _ in range(5):
            offset = BASE + data.draw(st.integers(-2, 8_000))
            position = data.draw(st.integers(0, 160_000))
            assert probe_offset(path, BASE, offset) == index.lookup(offset)
            assert probe_upper_bound(path, BASE, position) == index.fetch_upper_bound(position, 0)


def test_k42_36_an_equal_position_in_the_first_slot_is_passed_over(tmp_path: Path) -> None:
    path = index_bytes.offset_index(tmp_path / "i", [(5, 50), (9, 90)])
    assert probe_upper_bound(path, BASE, 50) == IndexEntry(BASE + 9, 90)
    assert probe_upper_bound(path, BASE, 49) == IndexEntry(BASE + 5, 50)
    assert probe_upper_bound(path, BASE, 90) == IndexEntry(BASE + 9, 90)
    assert probe_upper_bound(path, BASE, 91) is None


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 800, b"\x80" * 9_000, None])
def test_garbage_or_no_file_leads_to_the_start_of_the_segment(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "i"
    if content is not None:
        path.write_bytes(content)
    else:
        assert probe_upper_bound(path, BASE, 0) is None
    assert probe_offset(path, BASE, BASE + 100) == IndexEntry(BASE, 0)
