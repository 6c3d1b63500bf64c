"""Cheap looks at indexes: what is doubted, and what is believed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kseg import verify
from kseg.log.findings import Finding
from kseg.log.recovery.index_check import end_of, index_fault_of
from kseg.log.recovery.load_context import LoadContext, RecoveryInputs
from kseg.log.recovery.overlay import Overlay
from tests.builders import batch, record
from tests.unit.log.damaged import CONFIG, NOW, logs


def context(directory: Path, **how: Any) -> LoadContext:
    inputs = RecoveryInputs(CONFIG, **{"clean": True, "now_ms": NOW, **how}, **_NOWHERE)
    made = LoadContext(Overlay(directory), inputs)
    for path in logs(directory):
        made.add(int(path.stem))
    return made


_NOWHERE = {"recovery_point": 0, "log_start_offset": 0}


def fault(directory: Path, base: int, **how: Any) -> Finding | None:
    return index_fault_of(context(directory, **how), base)


def code(directory: Path, base: int, **how: Any) -> str | None:
    found = fault(directory, base, **how)
    return None if found is None else found.code


def codes_of_verify(directory: Path) -> set[str]:
    return {found.code for found in verify(directory).findings}


def index(directory: Path, base: int, *entries: tuple[int, int], kind: str = "index") -> None:
    form = ">ii" if kind == "index" else ">qi"
    data = b"".join(struct.pack(form, *entry) for entry in entries)
    (directory / f"{base:020d}.{kind}").write_bytes(data)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, 129), (2, 258)], None),
        ([(1, 129)], None),
        ([(2, 129)], None),
        ([(1, 129), (2, 259)], "index-points-nowhere"),
        ([(1, 129), (2, 387)], "index-points-nowhere"),
        ([(1, 129), (2, -1)], "index-order"),
        ([(1, 129), (1, 258)], "index-offset"),
        ([(1, 129), (-2, 258)], "index-order"),
        ([(1, 129), (0, 0)], "index-unused"),
        ([(1, 129), (0, 0), (0, 7), (0, 0)], "index-unused"),
        ([], None),
    ],
)
def test_the_last_entry_has_to_lead_to_a_batch_at_or_before_its_offset(
    partition: Path, entries: list[tuple[int, int]], expected: str | None
) -> None:
    index(partition, 3, *entries)
    if not entries:
        expected = "index-length"
    assert code(partition, 3) == expected
    assert bool(codes_of_verify(partition)) == (expected is not None and bool(entries))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(NOW + 5, 2)], None),
        ([(NOW + 4, 1)], "time-index-late"),
        ([(0, 0)], "time-index-timestamp"),
        ([(NOW, 2**31 - 1)], "time-index-points-nowhere"),
        ([(NOW, -1)], "time-index-order"),
        ([(-5, 1)], "time-index-timestamp"),
        ([(NOW, 1), (0, 0)], "index-unused"),
        ([], "time-index-late"),
    ],
)
def test_the_last_time_has_to_be_one_of_the_log(
    partition: Path, entries: list[tuple[int, int]], expected: str | None
) -> None:
    index(partition, 3, *entries, kind="timeindex")
    assert code(partition, 3) == expected
    assert bool(codes_of_verify(partition)) == (expected is not None)


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_a_length_of_no_whole_entries_is_doubted(partition: Path, kind: str) -> None:
    path = partition / f"{10:020d}.{kind}"
    path.write_bytes(path.read_bytes() + b"x")
    found = fault(partition, 10)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, 1, "txn-index-version"),
        (1, 1, "txn-index-version"),
        (18, 127, "txn-index-order"),
        (25, 9, "txn-index-order"),
        (10, 127, "txn-index-order"),
        (9, 5, None),
    ],
)
def test_an_aborted_transaction_has_to_be_possible(
    partition: Path, at: int, value: int, expected: str | None
) -> None:
    path = partition / f"{10:020d}.txnindex"
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(data)
    assert code(partition, 10) == expected


def test_the_end_is_looked_for_past_batches_with_wrong_checksums(tmp_path: Path) -> None:
    data = bytearray(b"".join(batch([record(b"v")], base_offset=n) for n in range(4)))
    data[-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(data + b"torn")
    found = end_of(context(tmp_path), 0)
    assert (found.next_offset, found.position) == (4, len(data))
    assert found.cut_reason is not None
