from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.txn_index import TXN_INDEX_BYTES_MAX, AbortedTxn, TxnIndex, TxnIndexWriter
from tests.segments import txn_entries
from tests.stopping import refusing
from tests.unit.files import index_bytes

FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


@pytest.mark.parametrize(
    ("version", "known"), [(b"\0\1", True), (b"\0\xff", True), (b"\1\0", False)]
)
def test_only_the_first_byte_of_the_version_counts(
    tmp_path: Path, version: bytes, known: bool
) -> None:
    path = index_bytes.txn_index(tmp_path / "x", FOUR)
    data = bytearray(path.read_bytes())
    data[68:70] = version
    path.write_bytes(data)
    if known:
        assert len(TxnIndex.open(path)) == 4
    else:
        with pytest.raises(CorruptIndexError) as caught:
            TxnIndex.open(path)
        assert (caught.value.path, caught.value.position) == (str(path), 68)


def test_a_file_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(TXN_INDEX_BYTES_MAX + 1)
    with pytest.raises(LimitExceededError):
        TxnIndex.open(tmp_path / "x")


offsets = st.integers(0, 60)


@given(
    st.lists(st.tuples(st.integers(0, 5), offsets, offsets, offsets), max_size=12), offsets, offsets
)
def test_collection_equals_a_walk_entry_by_entry(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, int, int, int]],
    fetch_offset: int,
    upper_bound: int,
) -> None:
    path = index_bytes.txn_index(tmp_path_factory.mktemp("index") / "x", entries)
    walked, complete = [], False
    for entry in map(AbortedTxn, *zip(*entries, strict=True)) if entries else ():
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            walked.append(entry)
        if entry.last_stable_offset >= upper_bound:
            complete = True
            break
    assert TxnIndex.open(path).collect_aborted(fetch_offset, upper_bound) == (
        tuple(walked),
        complete,
    )


@given(st.binary(max_size=150))
def test_any_bytes_give_entries_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    path.write_bytes(data)
    try:
        index = TxnIndex.open(path)
    except CorruptIndexError:
        return
    assert len(index.entries()) == len(data) // 34


# ---- writing -------------------------------------------------------------------------------------


def test_torn_bytes_make_way_for_the_next_entry(tmp_path: Path) -> None:
    path = index_bytes.txn_index(tmp_path / "x", FOUR[:2], tail=b"\xff" * 33)
    with TxnIndexWriter.open(path) as index:
        assert index.count == 2
        index.append(AbortedTxn(2, 18, 35, 25))
    assert txn_entries(path) == [*FOUR[:2], (2, 18, 35, 25)]


def test_a_failed_append_adds_no_entry(tmp_path: Path) -> None:
    path = index_bytes.txn_index(tmp_path / "x", FOUR[:2])
    with TxnIndexWriter.open(path) as index:
        with refusing("pwritev", code=errno.ENOSPC), pytest.raises(OSError, match="No space"):
            index.append(AbortedTxn(2, 18, 35, 25))
        assert index.count == 2
        index.append(AbortedTxn(2, 18, 34, 25))
    assert txn_entries(path) == [*FOUR[:2], (2, 18, 34, 25)]


def test_cutting_an_index_of_an_unknown_version_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x01" + bytes(33))
    with TxnIndexWriter.open(path) as index, pytest.raises(CorruptIndexError, match="version 1"):
        index.truncate_to(0)
    assert path.stat().st_size == 34


def test_without_a_file_there_is_nothing_to_cut(tmp_path: Path) -> None:
    with TxnIndexWriter.open(tmp_path / "x") as index:
        assert index.truncate_to(0) == 0
        index.clear()
    with pytest.raises(ValueError, match="is closed"):
        index.append(AbortedTxn(2, 18, 35, 25))
    assert not list(tmp_path.iterdir())
