"""Batches with a good checksum and bad contents, as iterators of 4.2.0 and 4.4.0 answer, and kseg.

Each log holds a good batch, a bad one and a good one. `Segment.read` gives the records that Kafka's
own iterator gives and refuses where it raises, but for the few that `STRICTER` names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError
from kseg.log.segment.reader import Segment

CASES = ("4.2.0-malformed", "4.4.0-malformed")
LOG = "00000000000000000000.log"

#: Variety -> offsets that kseg gives, and its error: Kafka's iterator says nothing.
STRICTER: dict[str, tuple[list[int], type[KsegError]]] = {
    # No release wrote this magic; Kafka's file reader takes every one above 1 for a 2.
    "magic-3": ([0, 1], CorruptRecordError),
    # Kafka hands these out and fails when the key is asked for.
    "old-v0-key-minus2": ([9, 40], InvalidRecordError),
    "old-v1-key-past-end": ([9, 40], InvalidRecordError),
    # Kafka's iterator leaves inner checksums to whoever calls ensureValid.
    "old-v1-inner-bad-crc": ([9, 10, 40], CorruptRecordError),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "variety" in metafunc.fixturenames:
        folders = [Path(metafunc.config.getoption("--fixtures"), "new", case) for case in CASES]
        told = [(folder, variety) for folder in folders for variety in sorted(answers(folder))]
        names = [f"{folder.name}-{variety}" for folder, variety in told]
        metafunc.parametrize(("case", "variety"), told, ids=names)


def answers(case: Path) -> dict[str, dict[str, Any]]:
    said: dict[str, dict[str, Any]] = json.loads((case / "kafka-says.json").read_text())
    return said


def read(path: Path) -> tuple[list[int], list[KsegError]]:
    """Offsets of all records, and each fault on the way."""
    offsets: list[int] = []
    faults: list[KsegError] = []
    with Segment.open(path) as segment:
        pieces = segment.read(columns=("offset",), control=True, on_corrupt=faults.append)
        for columns in pieces:
            offsets += columns.offset.tolist()
    return offsets, faults


def test_a_malformed_batch_gives_what_kafka_s_iterator_gives(case: Path, variety: str) -> None:
    said = answers(case)[variety]["iterator"]
    offsets, faults = read(case / f"mal-{variety}-0" / LOG)
    given = [offset for batch in said for offset in batch.get("offsets", ())]
    refused = any(batch.get("error") for batch in said)
    if variety in STRICTER:
        expected, kind = STRICTER[variety]
        assert offsets == expected != given
        assert [type(fault) for fault in faults] == [kind]
        assert not refused
    else:
        assert offsets == given
        assert bool(faults) == refused


def test_a_fault_names_file_position_and_batch(case: Path, variety: str) -> None:
    path = case / f"mal-{variety}-0" / LOG
    for fault in read(path)[1]:
        assert fault.path == str(path)
        assert fault.position == answers(case)[variety]["bad_batch_at"]
        assert str(fault).startswith(f"{path} @ {fault.position}")
