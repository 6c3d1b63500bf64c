"""`kseg compact`: what is planned, what is done, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.change import cleanup
from kseg.change.cleanup import CompactionPlan, plan_compaction
from kseg.change.run import ChangeOptions
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.settings import settings
from tests.builders import batch, record
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in

NOW_MS = 1_760_000_000_000
NOW = "2025-10-09T08:53:20Z"
CONFIG = LogConfig(
    segment_bytes=1000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)
COMPACT = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=1000")


def fill(log: Log, count: int, keys: int) -> None:
    for number in range(count):
        key = b"%d" % (number % keys)
        log.append(batch([record(b"%d" % number, key=key, timestamp=NOW_MS)], leader_epoch=-1))
    log.roll()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.keyed)


def keys_of(path: Path) -> dict[bytes | None, bytes | None]:
    with Log.open(path) as log:
        return {one.key: one.value for one in log.records()}


def offsets_of(path: Path) -> list[int]:
    with Log.open(path) as log:
        return [one.offset for one in log.records()]


def test_apply_does_what_was_planned_without_planning_again(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def plan(*args: object, **how: object) -> CompactionPlan:
        planned.append(args)
        return plan_compaction(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(cleanup, "plan_compaction", plan)
    ran = kseg("compact", data / "users-0", *COMPACT, "--now", NOW, "--apply")
    assert ran.code == 0
    assert len(planned) == 1
    assert offsets_of(data / "users-0") == [37, 38, 39]


@pytest.mark.parametrize("count", [4, 40])
def test_a_log_that_changed_after_its_plan_is_planned_again(data: Path, count: int) -> None:
    path = data / "users-0"
    config = {"cleanup.policy": "compact", "segment.bytes": "1000"}
    found = settings([data], config=config).of(path)
    planned = cleanup.plan_cleanup(path, found, cleanup.CleanupOptions(NOW_MS))
    with Log.open(path, mode="append", config=CONFIG, now_ms=lambda: NOW_MS) as log:
        log.clean(force=True)
        fill(log, count, 4)
    (done,) = cleanup.run_cleanup([planned], ChangeOptions(NOW_MS, apply=True, keep=False))
    assert done.plan.finding is None
    assert len(keys_of(path)) == 4
    assert offsets_of(path) == [36 + count + each for each in range(4)]
