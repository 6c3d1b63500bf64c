"""The vectors of storage.json that are about writing segments: index entries, sizes, rolling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import OffsetOverflowError, OffsetsOutOfOrderError
from kseg.files.index import TimeIndexEntry
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from kseg.files.txn_index import AbortedTxn, TxnIndexWriter
from kseg.format.header import COLUMN, scan
from kseg.log.config import LogConfig
from kseg.log.segment.writer import SegmentWriter
from tests.segments import (
    append,
    batch_of,
    offset_entries,
    time_entries,
    trimmed,
    txn_entries,
)

#: Of an aborted transaction, in the order of `AbortedTxn`.
FIELDS = ("producer_id", "first_offset", "last_offset", "last_stable_offset")

Vector = dict[str, Any]


def test_k42_27_index_entries_lie_where_kafka_puts_them(indexing: Vector, tmp_path: Path) -> None:
    base_offset = offset = indexing["base_offset"]
    config = LogConfig(index_interval_bytes=indexing["index_interval_bytes"])
    with SegmentWriter.open(tmp_path, base_offset, config, create=True, now_ms=0) as segment:
        for appended in indexing["appends"]:
            batches = []
            for given in appended:
                batches.append(
                    batch_of(
                        given["size"],
                        base_offset=offset,
                        records=given["records"],
                        timestamp=given["max_timestamp"],
                    )
                )
                offset += given["records"]
            append(segment, *batches)
        segment.flush()
        index = tmp_path / f"{base_offset:020d}.index"
        times = index.with_suffix(".timeindex")
        found = trimmed(offset_entries(index, base_offset), (base_offset, 0))
        assert found == [tuple(entry) for entry in indexing["offset_entries"]]
        found = trimmed(time_entries(times, base_offset), (0, base_offset))
        assert found == [tuple(entry) for entry in indexing["time_entries"]]
        assert (segment.size, segment.next_offset()) == (indexing["size"], indexing["next_offset"])
        segment.become_inactive()
        closed = [tuple(entry) for entry in indexing["time_entries_after_becoming_inactive"]]
        assert time_entries(times, base_offset) == closed
        assert index.stat().st_size == 8 * len(indexing["offset_entries"])


def opened(kind: Any, path: Path, vector: Vector, *, slots: int = 100) -> Any:
    """The vector's index, with room behind its entries."""
    path.write_bytes(bytes.fromhex(vector["hex"]))
    index = kind.open(path, vector["base_offset"], bytes_max=slots * kind.ENTRY.size)
    index.resize(index.bytes_max)
    return index


def test_tix_08_index_files_have_whole_slots(sizing: Vector, tmp_path: Path) -> None:
    kind, full_at, last = {
        8: (OffsetIndexWriter, sizing["offset_is_full_at"], 1),
        12: (TimeIndexWriter, sizing["time_is_full_at"], TimeIndexEntry(1, 1)),
    }[sizing["entry_size"]]
    path = tmp_path / "x"
    with kind.open(path, 0, bytes_max=sizing["max_index_size"]) as index:
        assert (index.count, index.slots) == (0, sizing["max_entries"])
        assert path.stat().st_size == sizing["file_length"]
        if full_at:
            index.append_packed(bytes((full_at - 1) * sizing["entry_size"]), last)
            assert not index.is_full
            index.append_packed(bytes(sizing["entry_size"]), last)
        assert index.is_full


SPEC_ERRORS = {
    "IndexOffsetOverflow": OffsetOverflowError,
    "InvalidOffset": OffsetsOutOfOrderError,
    "IllegalState": ValueError,
}


def test_oix_10_offset_index_appends_and_cuts(offset_vector: Vector, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if "entries" not in offset_vector:
        index = opened(OffsetIndexWriter, path, offset_vector)
        assert index.count == 2 - ("length not" in offset_vector["name"])
        return
    entries = [(entry["offset"], entry["position"]) for entry in offset_vector["entries"]]
    with OffsetIndexWriter.open(path, offset_vector["base_offset"], bytes_max=80) as index:
        for entry in entries:
            index.append(*entry)
        assert index.last_offset == offset_vector["last_offset"]
        for refused in offset_vector.get("append_errors", ()):
            with pytest.raises(SPEC_ERRORS[refused["error"].split()[0]]):
                index.append(refused["offset"], 2**31 - 1)
    assert path.read_bytes().hex() == offset_vector["hex"]
    for cut in offset_vector.get("truncate_to", ()):
        with opened(OffsetIndexWriter, path, offset_vector) as index:
            index.truncate_to(cut["offset"])
            assert index.count == cut["entries_left"]


def test_tix_04_09_time_index_appends_and_cuts(time_vector: Vector, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with TimeIndexWriter.open(path, time_vector["base_offset"], bytes_max=120) as index:
        for entry in time_vector.get("entries", ()):
            assert index.maybe_append(entry["timestamp"], entry["offset"])
        if "last_entry" in time_vector:
            assert index.last_entry == tuple(time_vector["last_entry"].values())
    assert path.read_bytes().hex() == time_vector["hex"]
    for added in time_vector.get("maybe_append", ()):
        with opened(TimeIndexWriter, path, time_vector) as index:
            entry = (added["timestamp"], added["offset"])
            if added["result"] in SPEC_ERRORS:
                with pytest.raises(SPEC_ERRORS[added["result"]]):
                    index.maybe_append(*entry)
            else:
                assert index.maybe_append(*entry) == (added["result"] == "appended")
    for cut in time_vector.get("truncate_to", ()):
        with opened(TimeIndexWriter, path, time_vector) as index:
            index.truncate_to(cut["offset"])
            assert index.count == cut["entries_left"]


def test_txi_06_txn_index_appends_and_cuts(txn_vector: Vector, tmp_path: Path) -> None:
    path = tmp_path / "x"
    wanted = [AbortedTxn(*(entry[key] for key in FIELDS)) for entry in txn_vector["entries"]]
    with TxnIndexWriter.open(path) as index:
        for transaction in wanted:
            index.append(transaction)
    size = 34 * len(wanted)
    if "note" not in txn_vector:  # whose bytes no writer makes
        assert path.read_bytes().hex() == txn_vector["hex"]
    for cut in txn_vector.get("truncate_to", ()):
        path.write_bytes(bytes.fromhex(txn_vector["hex"])[:size])
        with TxnIndexWriter.open(path) as index:
            index.truncate_to(cut["offset"])
        rows = [tuple(entry[key] for key in FIELDS) for entry in txn_vector["entries"]]
        assert txn_entries(path) == rows[: cut["entries_left"]]


def test_ul_034_a_segment_rolls_when_kafka_rolls(roll: Vector, tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=roll.get("max_segment_bytes", 2**20))
    base_offset = roll.get("base_offset", 0)
    with SegmentWriter.open(tmp_path, base_offset, config, create=True, now_ms=0) as segment:
        size = roll.get("segment_size", 0)
        if size:
            table = scan(batch_of(100, base_offset=base_offset))
            rows = table.rows.copy()
            rows[:, COLUMN["size"]] = size
            segment.append([bytes(size)], replace(table, rows=rows))
        # Without timestamps it is the clock that counts, from the segment's making.
        decided = segment.should_roll(
            now_ms=roll.get("waited_ms", 0),
            max_timestamp=-1,
            messages_bytes=roll.get("messages_size", 0),
            largest_offset=roll.get("max_offset_in_messages", base_offset),
            segment_ms=roll.get("max_segment_ms", 2**40) - roll.get("jitter_ms", 0),
        )
        assert decided == roll["roll"]
