"""A new data directory of batches of other files: whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from kseg.errors import KsegError, StalePlanError
from kseg.files.checkpoints import TopicPartition
from kseg.log.salvage.output import (
    TargetPartition,
    TargetSegment,
    write_output,
)
from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.values import Span
from tests.unit.analysis.copied import told, write_copy

BASE = told(6)
ID = UUID(int=7)


def target(source: Path) -> TargetPartition:
    """All that can be proved of a copy, in segments as they were."""
    found = read_provable(source)
    segments = tuple(
        TargetSegment(
            each.base_offset,
            tuple(
                Span(run.path, run.position, run.size)
                for run in found.runs
                if run.path == each.path
            ),
        )
        for each in found.segments
    )
    return TargetPartition(TopicPartition("t", 0), segments, found.end_offset, topic_id=ID)


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def place_in_source(tmp_path: Path) -> Path:
    return tmp_path / "in" / "t-0" / "out"


def place_with_a_file(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    return tmp_path / "out"


def place_with_others_beside(tmp_path: Path) -> Path:
    (tmp_path / "out.kseg-salvage").mkdir()
    (tmp_path / "out.kseg-salvage" / "mine").touch()
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (place_in_source, KsegError),
        (place_with_a_file, FileExistsError),
        (place_with_others_beside, FileExistsError),
    ],
)
def test_a_place_that_is_not_free_is_refused_before_anything_is_written(
    tmp_path: Path, place: Callable[[Path], Path], error: type[Exception]
) -> None:
    source = write_copy(tmp_path / "in" / "t-0", BASE)
    out = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error):
        write_output(out, [target(source)], sources=[source])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_source_that_has_changed_leaves_no_output_and_the_next_run_begins_anew(
    tmp_path: Path,
) -> None:
    source, out = write_copy(tmp_path / "in" / "t-0", BASE), tmp_path / "out"
    plan = target(source)
    stale = replace(plan, log_end_offset=13)
    with pytest.raises(StalePlanError):
        write_output(out, [stale], sources=[source])
    assert not out.exists()
    write_output(out, [plan], sources=[source])
    assert logs(out / "t-0") == logs(source)


def test_two_runs_do_not_mix(tmp_path: Path) -> None:
    source, out = write_copy(tmp_path / "in" / "t-0", BASE), tmp_path / "out"

    def again(_place: Path) -> None:
        with pytest.raises(FileExistsError, match="another run writes there"):
            write_output(out, [target(source)], sources=[source])

    write_output(out, [target(source)], sources=[source], finish=again)
    assert logs(out / "t-0") == logs(source)
