"""The vectors of storage.json that are about producers: sequences, and state read from a log."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kseg import Segment
from kseg.files.names import list_partition
from kseg.files.producer_snapshot import read
from kseg.files.txn_index import TxnIndex
from kseg.format.header import decrement_sequence
from kseg.log.producers.entry import in_sequence
from kseg.log.producers.snapshots import SnapshotFiles, rebuild
from kseg.log.producers.state import ProducerState
from tests.conformance.conftest import load
from tests.conformance.logs import as_reported
from tests.producing import first_undecided

Vector = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "directory" in metafunc.fixturenames:
        vectors = load(Path(metafunc.config.getoption("--vectors")) / "storage.json")
        whole = {vector["name"]: vector for vector in vectors["directories"] if left_by(vector)}
        assert len(whole) >= 20
        metafunc.parametrize("directory", whole.values(), ids=whole)


def left_by(vector: Vector) -> dict[str, bytes] | None:
    """What Kafka left of a directory; None if the vector has no more than a digest of it."""
    left = {}
    for name, content in vector.get("files_out", {}).items():
        if isinstance(content, str):
            left[name] = bytes.fromhex(content)
            continue
        found = bytes.fromhex(vector["files_in"].get(name, ""))[: content["size"]]
        if hashlib.sha256(found).hexdigest() != content["sha256"]:
            return None
        left[name] = found
    return left


def test_sequences_count_as_kafkas_do(step: Vector) -> None:
    if step["op"] == "decrement":
        assert decrement_sequence(step["seq"], step["by"]) == step["result"]
    else:
        assert in_sequence(step["last"], step["next"]) is step["result"]


def lay_out(directory: Path, vector: Vector) -> None:
    for name, content in (left_by(vector) or {}).items():
        (directory / name).write_bytes(content)


def test_what_kafka_leaves_is_read_as_kafka_reported_it(directory: Vector, tmp_path: Path) -> None:
    lay_out(tmp_path, directory)
    report = directory["report"]
    files = list_partition(tmp_path)
    logs = {one.base_offset: one.log for one in files.segments}
    snapshots = SnapshotFiles.scan(tmp_path)
    newest = snapshots.newest_sound()
    snapshots.delete_all()  # so that the log itself is read
    state = ProducerState()
    rebuild(
        state,
        snapshots,
        list(logs),
        lambda base: Segment.open(logs[base]),
        log_start_offset=report["log_start_offset"],
        end_offset=report["log_end_offset"],
        now_ms=0,
        clean=False,
    )
    if directory["op"] == "load":  # where Kafka has come by a snapshot that it took itself
        state.load(state.snapshot_entries(), report["log_end_offset"])
    producers = [as_reported(state.entries[key]) for key in sorted(state.entries)]
    assert producers == report["producers"]
    unstable = first_undecided(state)
    end = report["log_end_offset"]
    assert (end if unstable is None else unstable) == report["last_stable_offset"]
    if newest is not None and newest[0] == end:
        assert list(newest[1]) == state.snapshot_entries()


def test_a_log_says_what_its_transaction_index_says(directory: Vector, tmp_path: Path) -> None:
    lay_out(tmp_path, directory)
    state = ProducerState()
    for one in list_partition(tmp_path).segments:
        with Segment.open(one.log) as segment:
            aborted = state.feed(segment.batches(verify=False))
        assert aborted == TxnIndex.open(one.log.with_suffix(".txnindex")).entries()


def test_kafkas_snapshots_are_written_byte_for_byte(directory: Vector, tmp_path: Path) -> None:
    lay_out(tmp_path, directory)
    for offset in (files := SnapshotFiles.scan(tmp_path)).offsets:
        path = files.path(offset)
        assert path is not None
        state = ProducerState()
        state.load(read(path), offset)
        state.map_end_offset, state.last_snapshot_offset = offset, -1
        (tmp_path / "copy").mkdir(exist_ok=True)
        written = SnapshotFiles(tmp_path / "copy").take(state)
        assert written is not None
        assert written.read_bytes() == path.read_bytes()
