"""OffsetIndex, TimeIndex and TransactionIndex under a writer, one claim a test.

The claims are those of Kafka's OffsetIndexTest, TimeIndexTest and TransactionIndexTest: base 45 and
30 slots, as there.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.errors import OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.index import OffsetIndex, TimeIndex, probe_upper_bound
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from kseg.files.names import list_partition
from kseg.files.txn_index import AbortedTxn, TxnIndexWriter
from kseg.log.config import LogConfig
from kseg.log.pending_deletes import remove_segment
from kseg.log.segment.writer import SegmentWriter
from tests.segments import index_fault, txn_entries

BASE, SLOTS = 45, 30


@pytest.fixture
def index(tmp_path: Path) -> Iterator[OffsetIndexWriter]:
    with OffsetIndexWriter.open(tmp_path / "x.index", BASE, bytes_max=SLOTS * 8) as opened:
        yield opened


@pytest.fixture
def times(tmp_path: Path) -> Iterator[TimeIndexWriter]:
    with TimeIndexWriter.open(tmp_path / "x.timeindex", BASE, bytes_max=SLOTS * 12) as opened:
        yield opened


def fill(times: TimeIndexWriter, count: int = SLOTS - 1) -> None:
    """(10i, 45 + 10i) for i from 1 on."""
    for i in range(1, count + 1):
        times.maybe_append(10 * i, BASE + 10 * i)


def read(index: OffsetIndexWriter) -> OffsetIndex:
    return OffsetIndex.open(index.path, BASE, mapping="never")


# OffsetIndex


def test_oix_02_03_each_entry_is_found_and_others_lead_to_the_one_below(
    index: OffsetIndexWriter,
) -> None:
    assert (index.count, index.last_offset) == (0, BASE)
    chosen = random.Random(5)
    offsets = sorted(chosen.sample(range(BASE + 1, 3000), SLOTS))
    positions = sorted(chosen.sample(range(100_000), SLOTS))
    for entry in zip(offsets, positions, strict=True):
        index.append(*entry)
    with read(index) as reader:
        for offset, position in zip(offsets, positions, strict=True):
            assert reader.lookup(offset) == (offset, position)
        for target in chosen.sample(range(3000), SLOTS):
            slot = bisect.bisect_right(offsets, target) - 1
            expected = (offsets[slot], positions[slot]) if slot >= 0 else (BASE, 0)
            assert reader.lookup(target) == expected


def test_oix_06_a_full_index_takes_no_more(index: OffsetIndexWriter) -> None:
    for i in range(SLOTS):
        assert not index.is_full
        index.append(BASE + i + 1, i)
    assert index.is_full
    with pytest.raises(ValueError, match="0 entries more"):
        index.append(BASE + SLOTS + 1, SLOTS)
    assert index.count == SLOTS


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [(0, 5, 46), (0, 10, 46), (0, 22, 47), (0, 23, 47), (10, 24, 48), (37, 1, None)]
    + [(position, 200, None) for position in (0, 10, 23, 37)],
)
def test_oix_08_the_upper_bound_of_a_fetch(
    start: int, size: int, expected: int | None, index: OffsetIndexWriter
) -> None:
    assert probe_upper_bound(index.path, BASE, start + size) is None
    for entry in [(45, 0), (46, 10), (47, 23), (48, 37)]:
        index.append(*entry)
    with read(index) as reader:
        bound = reader.fetch_upper_bound(start, size)
    assert probe_upper_bound(index.path, BASE, start + size) == bound
    assert (bound and bound.offset) == expected


def test_oix_09_a_closed_index_is_full_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    with OffsetIndexWriter.open(path, BASE, bytes_max=240) as first:
        first.append(51, 0)
        first.append(52, 1)
    with OffsetIndexWriter.open(path, BASE, bytes_max=240) as again:
        with read(again) as reader:
            assert reader.lookup(51) == (51, 0)
            assert reader.lookup(52) == (52, 1)
        assert (again.last_offset, again.count, again.is_full) == (52, 2, True)
        with pytest.raises(ValueError, match="0 entries more"):
            again.append(53, 2)


def test_oix_10_entries_from_an_offset_on_are_cut_off(tmp_path: Path) -> None:
    with OffsetIndexWriter.open(tmp_path / "x.index", 0, bytes_max=80) as index:
        for i in range(1, 10):
            index.append(i, i)
        index.truncate_to(12)
        assert index.last_offset == 9
        for offset, cut, last in [(10, 10, 9), (10, 9, 8), (9, 5, 4)]:
            index.append(offset, offset)
            index.truncate_to(cut)
            assert index.last_offset == last
        index.append(5, 5)
        index.truncate_to_count(0)
        assert (index.count, index.last_offset) == (0, 0)
        assert Path(index.path).read_bytes() == bytes(80)


def test_oix_11_a_closed_index_says_so(index: OffsetIndexWriter) -> None:
    index.append(50, 1)
    index.close()
    index.close()
    with pytest.raises(ValueError, match="is closed"):
        index.truncate_to(50)


# TimeIndex


def test_tix_01_02_a_time_leads_to_the_entry_below(times: TimeIndexWriter) -> None:
    with TimeIndex.open(times.path, BASE) as reader:
        assert reader.lookup(100) == (-1, 45)
    fill(times)
    with TimeIndex.open(times.path, BASE) as reader:
        assert [reader.lookup(t) for t in (9, 25, 30)] == [(-1, 45), (20, 65), (30, 75)]


def test_tix_04_entries_from_an_offset_on_are_cut_off(times: TimeIndexWriter) -> None:
    fill(times)
    times.truncate_to_count(0)
    assert times.count == 0
    fill(times)
    times.truncate_to(55)
    assert (times.count, times.last_entry) == (0, (-1, 45))
    assert Path(times.path).read_bytes() == bytes(SLOTS * 12)


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


def test_tix_08_it_is_full_with_one_slot_left(times: TimeIndexWriter) -> None:
    fill(times, SLOTS - 2)
    assert not times.is_full
    times.maybe_append(1000, 1000)
    assert times.is_full


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


def test_txi_02_an_index_of_a_later_segment_is_corrupt(aborted: TxnIndexWriter) -> None:
    fault = index_fault(Path(aborted.path), 100)
    assert fault is not None
    assert fault.code == "txn-index-order"


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


def test_txi_07_08_a_renamed_index_goes_on(aborted: TxnIndexWriter) -> None:
    path = aborted.path + ".deleted"
    io.rename(aborted.path, path)
    aborted.renamed(path)
    aborted.append(AbortedTxn(4, 50, 60, 55))
    assert aborted.path == path
    assert txn_entries(Path(path)) == [*FOUR, (4, 50, 60, 55)]


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
