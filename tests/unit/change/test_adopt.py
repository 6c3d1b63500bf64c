"""`plan_adoption`: what comes in is what was there, and nothing of its producers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.files import checkpoints, producer_snapshot
from kseg.files.checkpoints import EpochEntry, TopicPartition
from kseg.files.metadata import read_clean_shutdown
from kseg.log.segment.reader import Segment
from tests.adopted import Source, served, target

ISOLATIONS = ("read_uncommitted", "read_committed")


def made(tmp_path: Path, seed: int, count: int = 2, steps: int = 120) -> Source:
    source = Source(tmp_path / "old", count, Random(seed))
    source.write(steps)
    return source


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("otherwise", [False, True])
def test_every_record_is_served(tmp_path: Path, seed: int, otherwise: bool) -> None:
    source = made(tmp_path, seed)
    broker = target(tmp_path / "data", 2)
    plan = kseg.plan_adoption(
        source.home,
        into=broker.path,
        topics={"old": "orders"},
        undecided="commit" if otherwise else "abort",
    )
    assert plan.refused == ()
    before = {path: path.read_bytes() for path in source.home.rglob("*") if path.is_file()}
    paths = plan.apply()
    assert paths == (broker.path / "orders-0", broker.path / "orders-1")
    assert before == {path: path.read_bytes() for path in source.home.rglob("*") if path.is_file()}
    for number, path in enumerate(paths):
        assert served(path, "read_uncommitted") == source.expected(number, committed=False)
        assert served(path, "read_committed") == source.expected(
            number, committed=True, otherwise=otherwise
        )
    assert not (tmp_path / "data.kseg-adopt").exists()
    assert kseg.verify(broker.path).ok


def test_the_log_is_the_brokers_own(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2, epoch=3)
    plan = kseg.plan_adoption(
        source.home, into=broker.path, topics={"old": "orders"}, undecided="abort"
    )
    plan.apply()
    points = checkpoints.read_offset_checkpoint(broker.path / "recovery-point-offset-checkpoint")
    for number, each in enumerate(plan.partitions):
        path = broker.path / f"orders-{number}"
        end = each.log_end_offset
        assert points[TopicPartition("orders", number)] == end
        *full, active = sorted(path.glob("*.log"))
        assert int(active.stem) == end
        assert active.stat().st_size == 0
        for log in full:
            with Segment.open(log) as segment:
                assert set(segment.batches().leader_epoch.tolist()) == {3}
        epochs = checkpoints.read_leader_epochs(path / "leader-epoch-checkpoint").effective
        assert epochs == (EpochEntry(3, 0),)
        (snapshot,) = path.glob("*.snapshot")
        assert int(snapshot.stem) == end
        assert producer_snapshot.read(snapshot) == ()
    assert read_clean_shutdown(broker.path) is not None


@pytest.mark.parametrize("seed", range(40))
def test_logs_as_they_stood(tmp_path: Path, seed: int) -> None:
    source = made(tmp_path, seed, count=3)
    broker = target(tmp_path / "data", 3)
    at_ms = Random(seed).randint(source.notes[0].time_ms - 5, source.now_ms + 5)
    cut = ("first", "last")[seed % 2]
    plan = kseg.plan_adoption(
        source.home,
        into=broker.path,
        topics={"old": "orders"},
        at=at_ms,
        cut=cut,  # type: ignore[arg-type]
        undecided="abort",
    )
    assert plan.refused == ()
    assert all(each.behind == {"first": 0, "last": 0} for each in plan.partitions)
    for number, path in enumerate(plan.apply()):
        assert served(path, "read_uncommitted") == source.expected(
            number, committed=False, at_ms=at_ms
        )
        assert served(path, "read_committed") == source.expected(
            number, committed=True, at_ms=at_ms
        )
