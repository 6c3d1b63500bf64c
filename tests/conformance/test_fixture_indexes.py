"""Indexes, snapshots and checkpoints of real brokers, against what their own dump tools print."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import CorruptIndexError
from kseg.files import names
from kseg.files.checkpoints import assign_epochs, read_leader_epochs, read_offset_checkpoint
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.metadata import read_clean_shutdown, read_meta_properties, read_partition_metadata
from kseg.files.names import FileKind, FileName
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.producer_snapshot import read as read_snapshot
from kseg.files.txn_index import TxnIndex
from tests.segments import index_fault, offset_entries, time_entries

ENTRY = {
    FileKind.INDEX: re.compile(r"^offset: (-?\d+) position: (-?\d+)$", re.M),
    FileKind.TIMEINDEX: re.compile(r"^timestamp: (-?\d+) offset: (-?\d+)$", re.M),
    FileKind.TXNINDEX: re.compile(
        r"^version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
        r"lastStableOffset: (\d+)$",
        re.M,
    ),
}
FIELD = re.compile(r"(\w+): (\S+)")


def dump_texts(case: Path, directory: Path, name: str) -> Iterator[str]:
    """What dump tools print of a file: in `new/` by directory, in `old/` for the one partition."""
    for folder in ("dump", "dump-4.2"):
        if (packed := case / folder / directory.name / f"{name}.txt.gz").exists():
            yield gzip.decompress(packed.read_bytes()).decode("utf-8", "replace")
        inner = "recovered" if directory.name.endswith(".recovered") else "."
        if case.parent.name == "old" and (plain := case / folder / inner / f"{name}.txt").exists():
            yield plain.read_text("utf-8", "replace")


def partition_files(case: Path, *kinds: FileKind) -> Iterator[tuple[Path, FileName]]:
    for partition in names.list_data_directory(case).partitions:
        for path in sorted(partition.path.iterdir()):
            name = names.parse_name(path.name)
            if name is not None and name.kind in kinds:
                yield path, name


def first_run(text: str) -> str:
    """Without what further runs of the tool printed, and with the mark of a stack trace."""
    runs = text.split("$ DumpLogSegments")
    return runs[1] if len(runs) > 1 else text


def same_as_dump(ours: list[tuple[int, ...]], pattern: re.Pattern[str], text: str) -> None:
    printed = [tuple(map(int, found)) for found in pattern.findall(first_run(text))]
    stopped = "!!" in text or "Exception" in text
    assert (ours[: len(printed)] if stopped else ours) == printed


def by_the_tools_rule(base_offset: int, entries: list[tuple[int, ...]], at: int) -> list:
    """Every slot up to the first that is not the first one and names the base offset."""
    ends = [n for n, entry in enumerate(entries) if n > 0 and entry[at] == base_offset]
    return entries[: ends[0]] if ends else entries


@pytest.mark.parametrize(
    ("kind", "opened", "entries", "at"),
    [
        (FileKind.INDEX, OffsetIndex, offset_entries, 0),
        (FileKind.TIMEINDEX, TimeIndex, time_entries, 1),
    ],
    ids=["offsets", "times"],
)
def test_indexes_equal_their_dumps(
    fixture_case: Path, kind: FileKind, opened: Any, entries: Any, at: int
) -> None:
    for path, name in partition_files(fixture_case, kind):
        base = name.base_offset
        assert base is not None
        with opened.open(path, base) as index:
            used = list(zip(*(c.tolist() for c in index.entries()), strict=True))
        every = entries(path, base)
        shown = by_the_tools_rule(base, every, at)
        assert used == shown or (used == [] and shown == [(0, base) if at else (base, 0)])
        for text in dump_texts(fixture_case, path.parent, path.name):
            # Up to 1.1 the tool printed the unused slots of a preallocated time index as well.
            whole = text.count(f"timestamp: 0 offset: {base}\n") > 1
            same_as_dump(every if whole else shown, ENTRY[kind], text)


def test_txn_indexes_equal_their_dumps(fixture_case: Path) -> None:
    for path, name in partition_files(fixture_case, FileKind.TXNINDEX):
        index = TxnIndex.open(path)
        ours = [
            (t.version, t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
            for t in index.entries()
        ]
        for text in dump_texts(fixture_case, path.parent, path.name):
            same_as_dump(ours, ENTRY[FileKind.TXNINDEX], text)
        assert name.base_offset is not None
        fault = index_fault(path, name.base_offset)
        assert fault is None or fault.code == "txn-index-torn"


def snapshot_line(entry: ProducerSnapshotEntry) -> dict[str, str]:
    """The fields of an entry as the tool prints them; which ones it prints depends on its age."""
    first = entry.current_txn_first_offset
    fields = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": {
            "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]",
            "None" if first < 0 else f"Some({first})",
        },
        "lastTimestamp": entry.last_timestamp,
        "timestamp": entry.last_timestamp,
        "firstSequence": entry.first_sequence if entry.has_batch else -1,
        "lastSequence": entry.last_sequence,
        "lastOffset": entry.last_offset,
        "offsetDelta": entry.offset_delta,
    }
    return {k: v if isinstance(v, set) else {str(v)} for k, v in fields.items()}


def test_snapshots_equal_their_dumps(fixture_case: Path) -> None:
    for path, _name in partition_files(fixture_case, FileKind.SNAPSHOT):
        texts = list(dump_texts(fixture_case, path.parent, path.name))
        try:
            entries = read_snapshot(path)
        except CorruptIndexError:
            assert all("orrupt" in text or "schema" in text for text in texts), path
            continue
        known = {str(entry.producer_id): snapshot_line(entry) for entry in entries}
        for text in texts:
            lines = [FIELD.findall(line) for line in text.splitlines() if "producerId:" in line]
            assert sorted(line[0][1] for line in lines) == sorted(known)
            for line in lines:
                assert all(value in known[line[0][1]][field] for field, value in line), line


@pytest.mark.parametrize("mapping", ["always", "never"])
def test_indexes_of_segments_pass_their_checks(fixture_case: Path, mapping) -> None:
    damaged = ("garbled", "flip", "dmg", "kill", "torn", "mal-")
    for path, name in partition_files(fixture_case, FileKind.INDEX, FileKind.TIMEINDEX):
        if name.suffix or any(word in str(path.parent) for word in damaged):
            continue
        assert name.base_offset is not None
        assert index_fault(path, name.base_offset, mapping) is None


def test_garbled_indexes_are_found_out(fixture_case: Path) -> None:
    found = []
    for path, name in partition_files(fixture_case, FileKind.INDEX):
        if "garbled-index" in path.parent.name and not path.parent.name.endswith(".recovered"):
            assert name.base_offset is not None
            found.append(index_fault(path, name.base_offset))
    assert any(found) or not list(fixture_case.glob("*garbled-index-0"))


def test_checkpoints_and_ids_parse(fixture_case: Path) -> None:
    for path in sorted(fixture_case.glob("**/*-offset-checkpoint")):
        assert all(offset >= 0 for offset in read_offset_checkpoint(path).values()), path
    for path in sorted(fixture_case.glob("**/meta.properties")):
        assert read_meta_properties(path).version in (0, 1)
    for path in sorted(fixture_case.glob("**/partition.metadata")):
        assert read_partition_metadata(path).uuid.int
    for path in sorted(fixture_case.glob("**/.kafka_cleanshutdown")):
        assert read_clean_shutdown(path.parent) is not None


def test_epoch_checkpoints_parse_and_ascend(fixture_case: Path) -> None:
    for path in sorted(fixture_case.glob("**/leader-epoch-checkpoint")):
        epochs = read_leader_epochs(path)
        assert assign_epochs(epochs) == epochs


def test_a_case_is_a_data_directory(fixture_case: Path) -> None:
    listing = names.list_data_directory(fixture_case)
    assert listing.partitions or fixture_case.parent.name not in ("old", "new")
    for partition in listing.partitions:
        files = names.list_partition(partition.path)
        assert [s.base_offset for s in files.segments] == sorted(
            names.offset_from_file_name(path.name)
            for path in partition.path.iterdir()
            if path.suffix in (".log", ".kafka")
        )
        assert files.name == partition.name
