"""Replicas of real brokers: a merge gives what the diverged one was truncated to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg import plan_merge

CASES = ("0.11.0.3-replication", "1.1.1-replication", "2.8.2-replication")
TOPICS = ("repl-0", "repl-lz4-0")


def logs(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("topic", TOPICS)
def test_a_diverged_replica_is_cut_where_its_broker_cut_it(
    fixtures_dir: Path, tmp_path: Path, case: str, topic: str
) -> None:
    """`broker2` led the last epoch; Kafka made `broker1` of `broker1-before`."""
    home = fixtures_dir / "new" / case
    if not home.is_dir():
        pytest.skip("this collection has no such case")
    copies = [tmp_path / broker / topic for broker in ("broker1-before", "broker2")]
    for copy in copies:
        shutil.copytree(home / f"{topic}.{copy.parent.name}", copy)
    plan = plan_merge(*copies, out=tmp_path / "out")
    plan.apply()
    (merge,) = plan.partitions
    assert merge.missing == ()
    assert {one.why for one in merge.left_out} == {"diverged"}
    for broker in ("broker1", "broker2"):
        assert logs(tmp_path / "out" / topic) == logs(home / f"{topic}.{broker}")
