"""What a plan says, and that it changes nothing. What is done is in `test_recovering.py`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import NotALogError
from kseg.log.recovery.load_context import LoadContext
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from kseg.log.segment.reader import Segment
from tests.builders import batch, record, write_segment
from tests.unit.log.damaged import CONFIG, HARMS, NOW, content, logs

Harm = Callable[[Path], None]


def plan(directory: Path, *, clean: bool | None = True, **how: Any) -> RecoveryPlan:
    return plan_recovery(directory, clean=clean, **{"config": CONFIG, "now_ms": NOW, **how})


# ---- what a plan is ------------------------------------------------------------------------------


@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("harm", HARMS)
def test_a_plan_changes_nothing_and_comes_out_the_same_again(
    partition: Path, harm: Harm, clean: bool, as_broker: bool
) -> None:
    harm(partition)
    before = content(partition)
    first = plan(partition, clean=clean, as_broker=as_broker)
    assert plan(partition, clean=clean, as_broker=as_broker) == first
    assert content(partition) == before
    assert pickle.loads(pickle.dumps(first)) == first
    assert str(first).startswith(f"{partition}:\n  ")


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        plan(tmp_path / "t-0")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotALogError):
        plan(tmp_path / "file")


def test_a_data_directory_is_no_partition(partition: Path) -> None:
    """A plan for it would make a first segment beside its partitions."""
    with pytest.raises(NotALogError, match="not a partition directory"):
        plan(partition.parent)


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="as_brokre"):
        plan_recovery(tmp_path, as_brokre=True)  # type: ignore[call-arg]


def test_progress_tells_of_all_bytes_walked(partition: Path) -> None:
    steps: list[tuple[int, int]] = []
    plan(partition, clean=False, progress=lambda done, total: steps.append((done, total)))
    size = sum(path.stat().st_size for path in logs(partition))
    assert steps[-1] == (size, size)
    assert len(steps) == len(logs(partition))


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20, 80])
def test_of_many_segments_each_is_opened_a_few_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    opened: list[int] = []
    plain = LoadContext.open

    def noted(self: LoadContext, base: int) -> Segment:
        opened.append(base)
        return plain(self, base)

    monkeypatch.setattr(LoadContext, "open", noted)
    path = tmp_path / "t-0"
    for base in range(count):
        write_segment(path, base, batch([record(b"v")], base_offset=base))
    plan_recovery(path, as_broker=True)
    assert 0 < len(opened) <= 5 * count
