"""OffsetIndex, TimeIndex and TransactionIndex under a writer, one claim a test.

The claims are those of Kafka's OffsetIndexTest, TimeIndexTest and TransactionIndexTest: base 45 and
30 slots, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.errors import OffsetsOutOfOrderError
from kseg.files.index import OffsetIndex
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from kseg.files.names import list_partition
from kseg.files.txn_index import AbortedTxn, TxnIndexWriter
from kseg.log.config import LogConfig
from kseg.log.pending_deletes import remove_segment
from kseg.log.segment.writer import SegmentWriter
from tests.segments import txn_entries

BASE, SLOTS = 45, 30


@pytest.fixture
def times(tmp_path: Path) -> Iterator[TimeIndexWriter]:
    with TimeIndexWriter.open(tmp_path / "x.timeindex", BASE, bytes_max=SLOTS * 12) as opened:
        yield opened


def fill(times: TimeIndexWriter, count: int = SLOTS - 1) -> None:
    """(10i, 45 + 10i) for i from 1 on."""
    for i in range(1, count + 1):
        times.maybe_append(10 * i, BASE + 10 * i)


# OffsetIndex


def test_oix_09_a_closed_index_is_full_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    with OffsetIndexWriter.open(path, BASE, bytes_max=240) as first:
        first.append(51, 0)
        first.append(52, 1)
    with OffsetIndexWriter.open(path, BASE, bytes_max=240) as again:
        with OffsetIndex.open(path, BASE, mapping="never") as reader:
            assert reader.lookup(51) == (51, 0)
            assert reader.lookup(52) == (52, 1)
        assert (again.last_offset, again.count, again.is_full) == (52, 2, True)
        with pytest.raises(ValueError, match="0 entries more"):
            again.append(53, 2)


def test_oix_11_a_closed_index_says_so(tmp_path: Path) -> None:
    index = OffsetIndexWriter.open(tmp_path / "x.index", BASE, bytes_max=SLOTS * 8)
    index.append(50, 1)
    index.close()
    index.close()
    with pytest.raises(ValueError, match="is closed"):
        index.truncate_to(50)


# TimeIndex


def test_tix_05_06_the_last_slot_is_kept_for_the_close(times: TimeIndexWriter) -> None:
    fill(times)
    with pytest.raises(ValueError, match="is full"):
        times.maybe_append(10_000, 1000)
    with pytest.raises(OffsetsOutOfOrderError):
        times.maybe_append(10_000, 280, skip_full_check=True)
    assert times.maybe_append(10_000, 1000, skip_full_check=True)
    assert times.last_entry == (10_000, 1000)
    assert not times.maybe_append(20_000, 2000, skip_full_check=True)
    assert times.count == times.slots == SLOTS


def test_tix_10_resizing_says_whether_anything_changed(times: TimeIndexWriter) -> None:
    fill(times, 3)
    assert not times.resize(SLOTS * 12)
    assert not times.resize(SLOTS * 12 + 11)
    assert times.resize(SLOTS * 6)
    assert times.slots == SLOTS // 2
    assert times.resize(SLOTS * 24)
    assert (times.slots, times.count, times.last_entry) == (SLOTS * 2, 3, (30, 75))
    with pytest.raises(ValueError, match="not a possible size of an index of 3 entries"):
        times.resize(35)


# TransactionIndex

FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


@pytest.fixture
def aborted(tmp_path: Path) -> Iterator[TxnIndexWriter]:
    with TxnIndexWriter.open(tmp_path / "x.txnindex") as opened:
        for entry in FOUR:
            opened.append(AbortedTxn(*entry))
        yield opened


def test_txi_01_entries_outlive_an_opening(aborted: TxnIndexWriter) -> None:
    aborted.close()
    with TxnIndexWriter.open(aborted.path) as again:
        again.append(AbortedTxn(4, 50, 60, 55))
        assert again.count == 5
    assert txn_entries(Path(aborted.path)) == [*FOUR, (4, 50, 60, 55)]


def test_txi_03_last_offsets_grow(tmp_path: Path) -> None:
    with TxnIndexWriter.open(tmp_path / "x.txnindex") as index:
        index.append(AbortedTxn(0, 0, 15, 11))
        for last_offset in (15, 10):
            with pytest.raises(OffsetsOutOfOrderError):
                index.append(AbortedTxn(1, 5, last_offset, 11))
    assert txn_entries(tmp_path / "x.txnindex") == [(0, 0, 15, 11)]


def test_txi_05_entries_from_an_offset_on_are_cut_off(aborted: TxnIndexWriter) -> None:
    assert aborted.truncate_to(51) == 0
    assert aborted.count == 4
    assert aborted.truncate_to(50) == 1
    assert txn_entries(Path(aborted.path)) == FOUR[:3]
    with pytest.raises(OffsetsOutOfOrderError):
        aborted.append(AbortedTxn(9, 0, 35, 0))
    aborted.clear()
    assert txn_entries(Path(aborted.path)) == []
    aborted.append(AbortedTxn(9, 0, 1, 0))


def test_txi_09_flushing_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    with TxnIndexWriter.open(path) as index:
        index.flush()
        assert not path.exists()
        index.append(AbortedTxn(1, 2, 3, 4))
        index.flush()
        assert path.stat().st_size == 34


def test_txi_10_it_goes_with_its_segment(tmp_path: Path) -> None:
    segment = SegmentWriter.open(tmp_path, 0, LogConfig(), create=True, now_ms=0)
    segment.txn_index.append(AbortedTxn(1, 2, 3, 4))
    segment.close()
    (files,) = list_partition(tmp_path).segments
    assert files.txn_index is not None
    remove_segment(files)
    assert not list(tmp_path.iterdir())
