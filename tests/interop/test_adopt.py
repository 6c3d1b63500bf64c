"""Kafka's log loads an adopted log: no producer of the source comes back, and no transaction."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kseg
from kseg.log import data_directory
from tests.adopted import Source, target
from tests.interop.contents import contents
from tests.interop.kafka import Kafka
from tests.shares import share

SEEDS = share(range(12), 5, "adopted")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("close", ["clean", "crash"])
def test_no_producer_comes_back(kafka_logs: Kafka, tmp_path: Path, seed: int, close: str) -> None:
    source = Source(tmp_path / "old", 1, Random(seed))
    source.write(90)
    broker = target(tmp_path / "data", 1)
    plan = kseg.plan_adoption(
        source.home, into=broker.path, topics={"old": "orders"}, undecided="abort"
    )
    (path,) = plan.apply()
    end = plan.partitions[0].log_end_offset
    beside, before = data_directory.offsets_beside(path), contents(path)
    assert beside.recovery_point == end
    asked: dict[str, Any] = {
        "op": "log",
        "dir": str(path),
        "close": "crash",
        "steps": [],
        "config": {},
        "now_ms": source.now_ms,  # so that no producer expires
        "log_start_offset": beside.log_start_offset,
        "clean": close == "clean",
        "recovery_point": end,
    }
    (answer,) = kafka_logs.ask([asked])
    loaded = answer["loaded"]
    assert loaded["log_end_offset"] == end
    assert loaded["producers"] == []
    assert contents(path) == before


def test_the_state_of_a_copy_is_not_empty(kafka_logs: Kafka, tmp_path: Path) -> None:
    """A plain copy has the producers: what the test above looks at can be otherwise."""
    source = Source(tmp_path / "old", 1, Random(1))
    source.write(90)
    path = tmp_path / "copy-0"
    shutil.copytree(source.home / "old-0", path)
    asked = {"op": "log", "dir": str(path), "close": "crash", "steps": [], "config": {}}
    asked |= {"now_ms": source.now_ms, "log_start_offset": 0, "clean": True, "recovery_point": 0}
    (answer,) = kafka_logs.ask([asked])
    assert answer["loaded"]["producers"]
