"""Kafka's log takes what a salvage writes: it loads it without a cut, and again after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kseg import apply_salvage, plan_salvage
from tests.interop.kafka import Kafka
from tests.property.salvaging import a_case, write
from tests.shares import share


def opened(directory: Path, *, clean: bool, end: int) -> dict[str, Any]:
    """What Kafka is asked."""
    asked = {"op": "log", "dir": str(directory), "config": {}, "steps": [], "now_ms": 0}
    return asked | {"clean": clean, "recovery_point": end if clean else 0, "close": "crash"}


def test_kafka_loads_all_that_is_kept(kafka_logs: Kafka, tmp_path: Path) -> None:
    for seed in share(range(2_000), 30, "salvage"):
        source, out = tmp_path / f"{seed}" / "t-0", tmp_path / f"{seed}-out"
        write(a_case(seed), source)
        plan = plan_salvage(source, out=out)
        apply_salvage(plan)
        (partition,) = plan.partitions
        logs = {path.name: path.read_bytes() for path in (out / "t-0").glob("*.log")}
        for clean in (True, False):
            asked = opened(out / "t-0", clean=clean, end=partition.log_end_offset)
            (answer,) = kafka_logs.ask([asked])
            assert "error" not in answer, (seed, clean, answer)
            assert answer["loaded"]["log_end_offset"] == partition.log_end_offset, (seed, clean)
            after = {path.name: path.read_bytes() for path in (out / "t-0").glob("*.log")}
            assert after == logs, (seed, clean)
