"""`--tier` of `kseg lookup`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Kseg


@pytest.fixture
def case(fixtures_dir: Path) -> Path:
    return fixtures_dir / "tiered" / "4.2.0-local"


def test_lookup_answers_as_the_broker(kseg: Kseg, case: Path) -> None:
    """One partition here; `tests/conformance/test_tiered.py` has all of them."""
    for one in json.loads((case / "lookups.json").read_text()):
        if (one["topic"], one["timestamp_sent"] > 0) == ("txn", False):
            words = ("lookup", case / "local" / "txn-0", "--tier", case / "remote", "--time")
            found = kseg(*words, one["timestamp_sent"], "--json").document
            assert (found["offset"], found["timestamp"]) == (one["offset"], one["timestamp"])
    text = kseg("lookup", case / "local" / "txn-0", "--tier", case / "remote", "--time", -3).text
    assert text.startswith("max timestamp, of local records: ")
