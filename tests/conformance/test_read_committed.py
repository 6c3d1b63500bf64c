"""Committed records of every partition a broker left, against a plain reading of the markers.

The oracle knows no index: a transaction runs from a producer's first transactional batch to its
marker; records of aborted ones, and all from the first undecided one on, are not committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from tests import reference
from tests.conformance.expectations import Expected, expectations


def batches_of(logs: list[Expected]) -> list[reference.Batch]:
    """All batches of a partition, in order of offset."""
    logs = sorted(logs, key=lambda log: int(log.path.stem))
    return [batch for log in logs for batch in reference.walk(log.path.read_bytes()).batches]


def committed(batches: list[reference.Batch]) -> list[int]:
    """Offsets of the data records that a consumer of committed records is given."""
    open_since: dict[int, int] = {}
    pending: dict[int, list[reference.Batch]] = {}
    aborted: set[int] = set()
    for batch in batches:
        if batch.is_control:
            (marker, *_) = reference.records(batch)
            decided = pending.pop(batch.producer_id, [])
            open_since.pop(batch.producer_id, None)
            if reference.control_type(marker.key) == "ABORT":
                aborted.update(id(member) for member in decided)
        elif batch.is_transactional:
            open_since.setdefault(batch.producer_id, batch.base_offset)
            pending.setdefault(batch.producer_id, []).append(batch)
    stable = min(open_since.values(), default=2**63 - 1)
    return [
        record.offset
        for batch in batches
        if not batch.is_control and id(batch) not in aborted
        for record in reference.records(batch)
        if record.offset < stable
    ]


def partitions(case: Path) -> dict[Path, list[Expected]]:
    """Directories of sound logs of magic 2 and of the same directory's whole list of segments."""
    found: dict[Path, list[Expected]] = {}
    for log in expectations(case):
        found.setdefault(log.path.parent, []).append(log)
    return {
        path: logs
        for path, logs in found.items()
        if len(logs) == len(list(path.glob("*.log"))) and all(map(is_sound, logs))
    }


def is_sound(log: Expected) -> bool:
    walk = reference.walk(log.path.read_bytes())
    return (
        log.path.suffix == ".log"
        and walk.stop == "end"
        and not log.refused
        and all(batch.crc_ok and batch.magic == 2 for batch in walk.batches)
    )


def test_committed_records_are_those_that_the_markers_commit(fixture_case: Path) -> None:
    if fixture_case.name.endswith("malformed"):
        return  # markers that say nothing
    for directory, logs in partitions(fixture_case).items():
        with kseg.Log.open(directory) as log:
            pieces = log.read(isolation="read_committed", columns=("offset",))
            got = [offset for piece in pieces for offset in piece.offset.tolist()]
            start = log.log_start_offset
        assert got == [offset for offset in committed(batches_of(logs)) if offset >= start]


@pytest.mark.parametrize("case", ["4.2.0-txn", "4.4.0-txn"])
def test_some_fixtures_hold_aborted_and_open_transactions(fixtures_dir: Path, case: str) -> None:
    (logs,) = [
        logs
        for directory, logs in partitions(fixtures_dir / "new" / case).items()
        if directory.name == "txn-0"
    ]
    batches = batches_of(logs)
    every = [record for batch in batches for record in reference.records(batch)]
    kept = committed(batches)
    assert 0 < len(kept) < len(every) - sum(batch.is_control for batch in batches)
    assert kept[-1] < every[-1].offset
