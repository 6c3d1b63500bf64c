"""The vectors of storage.json that are about reading files: names, indexes, snapshots, text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg.errors import CorruptIndexError, NotALogError
from kseg.files import names
from kseg.files.checkpoints import (
    EpochEntry,
    LeaderEpochs,
    TopicPartition,
    assign_epochs,
    read_leader_epochs,
    read_offset_checkpoint,
)
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.metadata import read_clean_shutdown, read_partition_metadata
from kseg.files.producer_snapshot import SNAPSHOT_VERSION
from kseg.files.producer_snapshot import read as read_snapshot
from kseg.files.txn_index import TxnIndex
from tests.segments import index_fault

KINDS = {
    "log": names.FileKind.LOG,
    "index": names.FileKind.INDEX,
    "timeindex": names.FileKind.TIMEINDEX,
    "txnindex": names.FileKind.TXNINDEX,
    "snapshot": names.FileKind.SNAPSHOT,
}

Vector = dict[str, Any]


@pytest.fixture(params=["always", "never"])
def mapping(request: pytest.FixtureRequest) -> Any:
    return request.param


def write(path: Path, vector: Vector) -> Path:
    path.write_bytes(bytes.fromhex(vector["hex"]))
    return path


def test_file_names_say_offset_kind_and_suffix(file_name: Vector) -> None:
    assert names.segment_name(file_name["base_offset"]) == file_name["stem"] + ".log"
    for name in file_name["files"]:
        _stem, kind, *suffix = name.split(".")
        expected = names.FileName(KINDS[kind], file_name["base_offset"], *suffix)
        assert names.parse_name(name) == expected


def test_loc_22_offset_is_what_precedes_the_first_dot(offset_name: Vector) -> None:
    if "error" in offset_name:
        with pytest.raises(NotALogError):
            names.offset_from_file_name(offset_name["name"])
    else:
        assert names.offset_from_file_name(offset_name["name"]) == offset_name["offset"]


def test_loc_19_directory_names_come_apart_at_the_last_dash(directory_name: Vector) -> None:
    if "error" in directory_name:
        with pytest.raises(NotALogError):
            names.parse_partition_dir(directory_name["dir"])
        return
    parsed = names.parse_partition_dir(directory_name["dir"])
    assert parsed.topic == directory_name.get("topic", parsed.topic)
    assert parsed.partition == directory_name.get("partition", 5)
    assert parsed.suffix == directory_name.get("kind")
    assert len(directory_name["dir"]) == directory_name.get("length", len(directory_name["dir"]))


def test_oix_04_05_08_12_offset_index_entries_lookups_and_sanity(
    offset_index: Vector, tmp_path: Path, mapping: Any
) -> None:
    path = write(tmp_path / "x.index", offset_index)
    base_offset = offset_index["base_offset"]
    with OffsetIndex.open(path, base_offset, mapping=mapping) as index:
        if "entries" in offset_index:
            assert [*zip(*(column.tolist() for column in index.entries()), strict=True)] == [
                (entry["offset"], entry["position"]) for entry in offset_index["entries"]
            ]
        if "last_offset" in offset_index and "entries_counted_on_open" not in offset_index:
            assert index.last_offset == offset_index["last_offset"]
        assert index.slots == offset_index.get("entries_counted_on_open", index.slots)
        for asked in offset_index.get("lookup", []):
            found = index.lookup(asked["target"])
            assert found == (asked["offset"], asked["position"])
        for asked in offset_index.get("fetch_upper_bound", []):
            found = index.fetch_upper_bound(asked["position"], asked["size"])
            wanted = asked["result"]
            assert found == (wanted and (wanted["offset"], wanted["position"]))
    is_corrupt = offset_index.get("sanity_check") == "corrupt"
    assert (index_fault(path, base_offset, mapping) is not None) == is_corrupt


def test_preallocated_tail_is_told_from_entries(tmp_path: Path, mapping: Any) -> None:
    entries = bytes.fromhex("0000000200000046000000050000008c") + bytes(16)
    (tmp_path / "x.index").write_bytes(entries)
    with OffsetIndex.open(tmp_path / "x.index", 10, mapping=mapping) as index:
        assert (index.entry_count, index.slots, index.last_offset) == (2, 4, 15)


def test_tix_02_03_07_11_time_index_entries_lookups_and_sanity(
    time_index: Vector, tmp_path: Path, mapping: Any
) -> None:
    path = write(tmp_path / "x.timeindex", time_index)
    with TimeIndex.open(path, time_index["base_offset"], mapping=mapping) as index:
        entries = [(e["timestamp"], e["offset"]) for e in time_index.get("entries", [])]
        assert [*zip(*(column.tolist() for column in index.entries()), strict=True)] == entries
        last = time_index.get("last_entry")
        assert index.last_entry == ((last["timestamp"], last["offset"]) if last else entries[-1])
        for asked in time_index.get("lookup", []):
            assert index.lookup(asked["target"]) == (asked["timestamp"], asked["offset"])
    assert index_fault(path, time_index["base_offset"], mapping) is None


def test_oix_02_03_lookup_equals_a_plain_floor_search_around_the_warm_section(
    warm_section: Vector, tmp_path: Path
) -> None:
    size, warm = warm_section["entry_size"], warm_section["warm_entries"]
    for count in (1, warm - 1, warm, warm + 1, warm + 2, 3 * warm):
        offsets = np.arange(count, dtype=np.int64) * 3 + 3
        layout = [("k", ">i4"), ("p", ">i4")] if size == 8 else [("k", ">i8"), ("p", ">i4")]
        entries = np.empty(count, dtype=layout)
        entries["k"], entries["p"] = offsets, np.arange(count) + 1
        (tmp_path / "x").write_bytes(entries.tobytes())
        kind = OffsetIndex if size == 8 else TimeIndex
        with kind.open(tmp_path / "x", 0) as index:
            edge = count - 1 - warm
            for slot in {0, 1, edge - 1, edge, edge + 1, count - 2, count - 1} & set(range(count)):
                for target in range(3 * slot + 2, 3 * slot + 6):
                    floor = min(int(np.searchsorted(offsets, target, side="right")), count)
                    assert index.lookup(target)[1] == floor


def test_txi_02_04_txn_index_entries_collection_and_sanity(
    txn_index: Vector, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.txnindex", txn_index)
    index = TxnIndex.open(path)
    entries = index.entries()
    assert [
        {field: getattr(entry, field) for field in wanted}
        for entry, wanted in zip(entries, txn_index["entries"], strict=True)
    ] == txn_index["entries"]
    for asked in txn_index.get("collect", []):
        found = index.collect_aborted(asked["fetch_offset"], asked["upper_bound"])
        assert found == (tuple(entries[slot] for slot in asked["indexes"]), asked["complete"])
    checks = txn_index.get("sanity_check", [])
    if checks == "corrupt":
        checks = [{"start_offset": txn_index["base_offset"], "ok": False}]
    for asked in checks:
        assert (index_fault(path, asked["start_offset"]) is None) == asked["ok"]


def test_snapshots_hold_one_entry_per_producer(snapshot: Vector) -> None:
    data = bytes.fromhex(snapshot["hex"])
    if "error" in snapshot:
        with pytest.raises(CorruptIndexError) as caught:
            read_snapshot(data)
        for crc in {"stored_crc", "computed_crc"} & set(snapshot):
            assert snapshot[crc] in str(caught.value)
        return
    renamed = {
        "epoch": "producer_epoch",
        "timestamp": "last_timestamp",
    }
    found = read_snapshot(data)
    assert snapshot["version"] == SNAPSHOT_VERSION
    assert [
        {field: getattr(entry, renamed.get(field, field)) for field in wanted}
        for entry, wanted in zip(found, snapshot["entries"], strict=True)
    ] == snapshot["entries"]


def test_leader_epoch_checkpoints(epoch_file: Vector, tmp_path: Path) -> None:
    path = write(tmp_path / "leader-epoch-checkpoint", epoch_file)
    if "error" in epoch_file:
        with pytest.raises(CorruptIndexError):
            read_leader_epochs(path)
    else:
        assert [list(entry) for entry in read_leader_epochs(path)] == epoch_file["entries"]


def test_lec_05_07_11_14_15_epochs_are_taken_one_by_one(epoch_step: Vector, tmp_path: Path) -> None:
    start = [EpochEntry(*entry) for entry in epoch_step["start"]]
    if epoch_step["op"] == "assign":
        found = assign_epochs([*start, EpochEntry(*epoch_step["arg"])])
    elif epoch_step["op"] == "load":
        path = tmp_path / "leader-epoch-checkpoint"
        path.write_text(epoch_step["arg"])
        found = assign_epochs(read_leader_epochs(path))
    else:
        epochs = LeaderEpochs(start)
        getattr(epochs, epoch_step["op"])(epoch_step["arg"])
        found = epochs.entries
    assert [list(entry) for entry in found] == epoch_step["result"]


def test_lec_04_06_08_where_epochs_end(epoch_ends: Vector) -> None:
    epochs = LeaderEpochs([EpochEntry(*entry) for entry in epoch_ends["entries"]])
    for query in epoch_ends["queries"]:
        found = epochs.end_offset_for(query["epoch"], epoch_ends["log_end_offset"])
        assert list(found) == query["result"]


def test_offset_checkpoints(offset_file: Vector, tmp_path: Path) -> None:
    path = write(tmp_path / "recovery-point-offset-checkpoint", offset_file)
    if "error" in offset_file:
        with pytest.raises(CorruptIndexError):
            read_offset_checkpoint(path)
    else:
        assert read_offset_checkpoint(path) == {
            TopicPartition(topic, partition): offset
            for topic, partition, offset in offset_file["entries"]
        }


def test_partition_metadata(metadata: Vector, tmp_path: Path) -> None:
    path = write(tmp_path / "partition.metadata", metadata)
    if "error" in metadata:
        with pytest.raises(CorruptIndexError):
            read_partition_metadata(path)
        return
    found = read_partition_metadata(path)
    assert found.topic_id == metadata["topic_id"]
    assert found.uuid.hex == metadata.get("topic_id_bytes", found.uuid.hex)


def test_clean_shutdown_marks(clean_shutdown: Vector, tmp_path: Path) -> None:
    write(tmp_path / ".kafka_cleanshutdown", clean_shutdown)
    found = read_clean_shutdown(tmp_path)
    assert found is not None
    assert found.broker_epoch == clean_shutdown["broker_epoch"]
