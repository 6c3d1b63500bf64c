from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kseg.errors import CorruptIndexError
from kseg.files import io
from kseg.files.txn_index import AbortedTxn
from kseg.files.txn_index_writer import TxnIndexWriter
from tests.segments import txn_entries
from tests.unit.files import index_bytes

ENTRIES = [(0, 0, 10, 11), (1, 5, 15, 13)]


def test_torn_bytes_make_way_for_the_next_entry(tmp_path: Path) -> None:
    path = index_bytes.txn_index(tmp_path / "x", ENTRIES, tail=b"\xff" * 33)
    with TxnIndexWriter.open(path) as index:
        assert index.count == 2
        index.append(AbortedTxn(2, 18, 35, 25))
    assert txn_entries(path) == [*ENTRIES, (2, 18, 35, 25)]


def test_order_is_not_asked_across_an_opening(tmp_path: Path) -> None:
    path = index_bytes.txn_index(tmp_path / "x", ENTRIES)
    with TxnIndexWriter.open(path) as index:
        index.append(AbortedTxn(2, 0, 15, 0))
        assert index.count == 3


def test_a_failed_append_adds_no_entry(tmp_path: Path) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = index_bytes.txn_index(tmp_path / "x", ENTRIES)
    with TxnIndexWriter.open(path) as index:
        with io.calls_replaced(io.Calls(pwritev=refuse)), pytest.raises(OSError, match="No space"):
            index.append(AbortedTxn(2, 18, 35, 25))
        assert index.count == 2
        index.append(AbortedTxn(2, 18, 34, 25))
    assert txn_entries(path) == [*ENTRIES, (2, 18, 34, 25)]


def test_the_name_of_a_new_file_is_flushed_once(tmp_path: Path) -> None:
    done: list[str] = []
    calls = io.Calls(fdatasync=lambda _: done.append("file"), fsync=lambda _: done.append("name"))
    with TxnIndexWriter.open(tmp_path / "x") as index, io.calls_replaced(calls):
        for entry in ENTRIES:
            index.append(AbortedTxn(*entry))
            index.flush()
        index.flush()
    assert done == ["file", "name", "file"]


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
