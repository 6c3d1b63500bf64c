"""What brokers made of damaged and killed directories, kseg makes of them too.

`<topic>-<n>.recovered` lies beside the directory that the broker was started on without a clean
mark: its log, its index answers and its producers are those of a recovery.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg import Segment
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.producer_snapshot import read as read_snapshot
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from tests.conformance.test_producer_fixtures import explained

SUFFIX = ".recovered"
#: Directories that went on living before they were copied, and how.
CLEANED = {"kill-compact": "the cleaner ran once more before the broker was stopped"}
#: Indexes of flushed segments, which a broker takes as they are.
TRUSTED = {"dmg-garbled-index"}
MODES = pytest.mark.parametrize("as_broker", [True, False], ids=["as-broker", "careful"])


@dataclass(frozen=True)
class Pair:
    """A directory as it was found, and as the broker left it."""

    before: Path
    after: Path
    config: LogConfig
    recovery_point: int
    log_start_offset: int

    @property
    def topic(self) -> str:
        return self.before.name.rpartition("-")[0]


def pairs(case: Path) -> Iterator[Pair]:
    described = json.loads((case / "case.json").read_text())
    for after in sorted(case.glob(f"*{SUFFIX}")):
        before = after.with_name(after.name.removesuffix(SUFFIX))
        if before.is_dir() and any(before.glob("*.log")):
            yield Pair(
                before,
                after,
                settings(described, before.name.rpartition("-")[0]),
                checkpoint(case / "recovery-point-offset-checkpoint", before.name),
                checkpoint(case / "log-start-offset-checkpoint", before.name),
            )


def settings(described: dict[str, Any], topic: str) -> LogConfig:
    """Those of the topic; both layouts."""
    given = described.get("topics", {}).get(topic) or described.get("topic_config", {})
    given = {name.removeprefix("internal."): value for name, value in given.items()}
    return LogConfig.from_kafka(given)


def checkpoint(path: Path, name: str) -> int:
    """A partition's entry; 0 where the file is missing, empty or says nothing of it."""
    topic, _, number = name.rpartition("-")
    try:
        return read_offset_checkpoint(path).get(TopicPartition(topic, int(number)), 0)
    except FileNotFoundError:
        return 0


def recovered(pair: Pair, home: Path, *, as_broker: bool) -> Path:
    """A copy that kseg has recovered."""
    directory = home / pair.before.name
    shutil.copytree(pair.before, directory)
    plan = plan_recovery(
        directory,
        as_broker=as_broker,
        clean=False,
        recovery_point=pair.recovery_point,
        log_start_offset=pair.log_start_offset,
        config=pair.config,
        now_ms=0,  # no producer has expired
    )
    plan.apply(keep_cut=False)
    return directory


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def end_offset(directory: Path) -> int:
    with Log.open(directory) as log:
        return log.log_end_offset


def answers(directory: Path) -> list[tuple[object, ...]]:
    """What the log answers to every offset that is an end of a batch, and to every time."""
    found: list[tuple[object, ...]] = []
    for path in sorted(directory.glob("*.log")):
        with Segment.open(path) as segment:
            table = segment.batches(verify=False)
            for offset in {*table.base_offset.tolist(), *table.last_offset.tolist()}:
                there = segment.lookup(offset)
                assert there is not None
                found.append((path.name, offset, there.position, there.size))
            for time in set(table.max_timestamp.tolist()) - {-1}:
                record = segment.lookup_time(time)
                found.append((path.name, time, None if record is None else record.offset))
    return sorted(found, key=str)


def broken_promises(directory: Path) -> list[str]:
    """Index entries that do not say what the log has: where they lead to, and from which time."""
    broken = []
    for path in sorted(directory.glob("*.log")):
        with Segment.open(path) as segment:
            table = segment.batches(verify=False)
            starts, lasts = table.position.tolist(), table.last_offset.tolist()
            times = table.max_timestamp.tolist()
            offsets, stamps = segment.offset_index.entries(), segment.time_index.entries()
        for offset, at in zip(offsets.offsets.tolist(), offsets.positions.tolist(), strict=True):
            if at not in starts or any(last >= offset for last in lasts[: starts.index(at)]):
                broken.append(f"{path.name}: {offset} at {at}")
        for time, offset in zip(stamps.timestamps.tolist(), stamps.offsets.tolist(), strict=True):
            seen = [t for t, last in zip(times, lasts, strict=True) if last <= offset]
            if offset not in lasts or max(seen) != time:
                broken.append(f"{path.name}: {time} at {offset}")
    return broken


def producers(directory: Path) -> dict[int, ProducerSnapshotEntry]:
    """Those of the newest snapshot."""
    newest = max(directory.glob("*.snapshot"), default=None)
    entries = () if newest is None else read_snapshot(newest)
    return {entry.producer_id: entry for entry in entries}


@pytest.mark.one_case_in(2)
@MODES
def test_log_indexes_and_producers_are_those_of_the_broker(
    fixture_case: Path, tmp_path: Path, as_broker: bool
) -> None:
    for pair in pairs(fixture_case):
        mine = recovered(pair, tmp_path, as_broker=as_broker)
        if pair.topic not in CLEANED:
            assert logs(mine) == logs(pair.after), pair.before
            assert answers(mine) == answers(pair.after), pair.before
        assert end_offset(mine) == end_offset(pair.after), pair.before
        if not (as_broker and pair.topic in TRUSTED):
            assert broken_promises(mine) == [], pair.before
        ours, theirs = producers(mine), producers(pair.after)
        for key in ours.keys() | theirs.keys():
            if ours.get(key) != theirs.get(key):
                assert explained(fixture_case.name, ours.get(key), theirs.get(key)), pair.before


def test_there_are_enough_directories_to_recover(fixture_cases: list[Path]) -> None:
    assert sum(len(list(pairs(case))) for case in fixture_cases) >= 40
