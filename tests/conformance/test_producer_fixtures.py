"""Snapshots of real brokers: each is what the log in front of it says, from any older one on."""

from __future__ import annotations

from pathlib import Path

from kseg import Segment
from kseg.errors import CorruptIndexError
from kseg.files import names
from kseg.files.producer_snapshot import ProducerSnapshotEntry, read
from kseg.format.header import BatchTable
from kseg.log.producers import ProducerState
from kseg.log.snapshots import SnapshotFiles

#: Cases whose snapshots say something else than their logs, and why.
DIFFERENT = {
    "0.11.0.3-txn": "that release took a marker for the producer's last batch",
    "1.1.1-txn": "that release left a producer's time where it was when a marker came",
    "0.11.0.3-compact": "batches are gone since",
    "2.8.2-compact": "batches are gone since",
    "4.2.0-compact": "batches are gone since",
    "1.1.1-huge": "the producer of the first records had expired before the later ones came",
    "4.2.0-huge": "the producer of the first records had expired before the later ones came",
}


def headers(partition: names.PartitionFiles) -> list[BatchTable]:
    tables = []
    for files in partition.segments:
        with Segment.open(files.log) as segment:
            tables.append(segment.batches(verify=False))
    return tables


def sound(snapshots: SnapshotFiles) -> dict[int, tuple[ProducerSnapshotEntry, ...]]:
    found = {}
    for offset in snapshots.offsets:
        path = snapshots.path(offset)
        assert path is not None
        try:
            found[offset] = read(path).entries
        except CorruptIndexError:
            assert "garbled-snapshot" in path.parent.name
    return found


def told(
    tables: list[BatchTable], start: int, entries: tuple[ProducerSnapshotEntry, ...], end: int
) -> list[ProducerSnapshotEntry]:
    state = ProducerState()
    state.load(entries, start)
    for table in tables:
        state.feed(table.take((table.last_offset >= start) & (table.last_offset < end)))
    return state.snapshot_entries()


def differences(case: Path) -> tuple[int, list[str]]:
    """How many snapshots were told, and which of them otherwise than the broker did."""
    count, different = 0, []
    for directory in names.list_data_directory(case).partitions:
        partition = names.list_partition(directory.path)
        if not partition.segments:
            continue
        known = sound(SnapshotFiles.of(partition))
        starts = dict(known)
        if partition.segments[0].base_offset == 0:
            starts[0] = ()
        tables = headers(partition) if known else []
        for end, entries in known.items():
            for start in (offset for offset in starts if offset < end):
                count += 1
                if told(tables, start, starts[start], end) != sorted(
                    entries, key=lambda entry: entry.producer_id
                ):
                    different.append(f"{partition.path.name}: {start} to {end}")
    return count, different


def test_a_brokers_snapshot_is_what_its_log_says(fixture_case: Path) -> None:
    _, different = differences(fixture_case)
    if fixture_case.name in DIFFERENT:
        assert different, "there is no difference left to be excused"
    else:
        assert different == []


def test_there_are_many_snapshots_to_ask(fixture_cases: list[Path]) -> None:
    assert sum(differences(case)[0] for case in fixture_cases) > 300
