"""Mutated logs of coordinators' topics give findings that have a code, and nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import kseg
from kseg.analysis.internal_logs import CODES
from kseg.format.values import RECORD_FIELDS
from tests import builders
from tests.shares import share

TOPICS = ("__consumer_offsets-0", "__share_group_state-0", "__transaction_state-0")
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, added or removed."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        kind = rng.random()
        if kind < 0.6 and at < len(out):
            out[at] = rng.choice((*_NUMBERS, rng.randrange(256)))
        elif kind < 0.8:
            del out[at : at + rng.randrange(8)]
        else:
            out[at:at] = rng.randbytes(rng.randrange(8))
    return bytes(out)


def with_sound_checksums(directory: Path, rng: random.Random) -> bytes:
    """The log with records that are mutated, in batches that are not."""
    parts = []
    for columns in kseg.Log.open(directory).read(columns=RECORD_FIELDS):
        for row in columns.records():
            key, value = row.key, row.value
            if rng.random() < 0.1:
                key = mutated(key or b"", rng)
            if rng.random() < 0.1:
                value = rng.choice((None, mutated(value or b"", rng)))
            record = builders.record(value, key=key, timestamp=row.timestamp)
            is_in_transaction = rng.random() < 0.2
            options = {"producer_id": rng.randrange(4), "transactional": True}
            parts.append(
                builders.batch(
                    [record], base_offset=row.offset, **(options if is_in_transaction else {})
                )
            )
            if rng.random() < 0.1:
                kind, producer = rng.randrange(-1, 4), rng.randrange(4)
                parts.append(
                    builders.control_batch(kind, base_offset=row.offset, producer_id=producer)
                )
    return b"".join(parts)


@pytest.mark.parametrize("seed", share(range(2000), 16, "coordinators"))
def test_a_mutated_log_gives_findings(seed: int, tmp_path: Path, fixture_cases: list[Path]) -> None:
    (case,) = (path for path in fixture_cases if path.name == "4.2.0-internal")
    rng = random.Random(seed)
    for name in TOPICS:
        data = next((case / name).glob("*.log")).read_bytes()
        data = with_sound_checksums(case / name, rng) if seed % 2 else mutated(data, rng)
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(data)
    at = rng.choice((None, 1795245011000))
    groups = kseg.groups(tmp_path, at=at, since=None if at is None else at - 2000)
    transactions = kseg.transactions(tmp_path, at=at)
    for found in (groups, transactions):
        assert {each.code for each in found.findings} <= CODES.keys()
        json.dumps(found.to_json())
        assert repr(found)
    assert groups.commits.to_arrow().num_rows == len(groups.commits)
