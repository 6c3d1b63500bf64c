"""Snapshots of real brokers: each is what the log in front of it says, from any older one on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kseg import Segment
from kseg.errors import CorruptIndexError
from kseg.files import names
from kseg.files.producer_snapshot import ProducerSnapshotEntry, read
from kseg.format.header import BatchTable
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState

#: Releases that kept something else of a producer: in which fields, and why.
RELEASES = {
    "0.11.0.3": {"last_offset", "offset_delta"},  # took a marker for the producer's last batch
    "1.1.1": {"last_timestamp"},  # left a producer's time where it was when a marker came
}


def explained(
    case: str, mine: ProducerSnapshotEntry | None, theirs: ProducerSnapshotEntry | None
) -> bool:
    """Whether there is a reason for a snapshot to say something else of a producer than its log."""
    release, _, kind = case.partition("-")
    if kind == "compact":
        return True  # batches are gone since
    if mine is None or theirs is None:
        # The producer of the first records had expired before the later ones came.
        return kind == "huge" and theirs is None
    fields = {f.name for f in dataclasses.fields(mine)}
    return {n for n in fields if getattr(mine, n) != getattr(theirs, n)} <= RELEASES.get(
        release, set()
    )


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
            found[offset] = read(path)
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
    """How many snapshots were told, and what they tell otherwise than the broker did."""
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
            theirs = {entry.producer_id: entry for entry in entries}
            for start in (offset for offset in starts if offset < end):
                count += 1
                ours = {e.producer_id: e for e in told(tables, start, starts[start], end)}
                different += [
                    f"{partition.path.name}, {start} to {end}: {ours.get(i)} not {theirs.get(i)}"
                    for i in sorted(ours.keys() | theirs.keys())
                    if ours.get(i) != theirs.get(i)
                    and not explained(case.name, ours.get(i), theirs.get(i))
                ]
    return count, different


def test_a_brokers_snapshot_is_what_its_log_says(fixture_case: Path) -> None:
    assert differences(fixture_case)[1] == []


def test_there_are_many_snapshots_to_ask(fixture_cases: list[Path]) -> None:
    assert sum(differences(case)[0] for case in fixture_cases) > 300
