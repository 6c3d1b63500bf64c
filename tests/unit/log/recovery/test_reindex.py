from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import NotALogError
from kseg.files import io, metadata
from tests.shares import WHOLE
from tests.stopping import failing_at
from tests.unit.log.reindexed import (
    SEGMENTS,
    apply,
    bare,
    contents,
    name,
    plan,
)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition with all that belongs to it."""
    directory = bare(tmp_path)
    apply(directory)
    return directory


# ---- what is made --------------------------------------------------------------------------------


def test_a_plan_says_what_each_segment_makes_and_survives_a_pickle(partition: Path) -> None:
    found = plan(partition)
    assert [
        (each.base_offset, each.index_entries, each.time_index_entries, each.aborted)
        for each in found.segments
    ] == [(10, 2, 3, 0), (16, 3, 3, 0), (23, 1, 1, 1)]
    assert [each.size for each in found.segments] == [
        sum(map(len, parts)) for parts in SEGMENTS.values()
    ]
    assert (found.findings, str(found)) == ((), f"{partition}: nothing to do")
    assert pickle.loads(pickle.dumps(found)) == found == plan(partition)


# ---- damaged logs --------------------------------------------------------------------------------


def test_what_is_no_partition_is_refused(partition: Path) -> None:
    for path in (partition.parent, partition / name(10, "log")):
        with pytest.raises(NotALogError, match="not a partition directory"):
            plan(path)
    with pytest.raises(FileNotFoundError):
        plan(partition.parent / "none-0")


def test_the_mark_of_a_good_end_is_away_only_while_something_changes(partition: Path) -> None:
    home = partition.parent
    metadata.write_clean_shutdown(home, 7)
    (partition / name(10, "index")).unlink()
    seen: list[bool] = []
    usual = io.Calls()

    def rename(*arguments: Any) -> None:
        seen.append(metadata.read_clean_shutdown(home) is not None)
        usual.rename(*arguments)

    with io.calls_replaced(io.Calls(rename=rename)):
        plan(partition).apply(keep=False)
    assert seen[0] is False
    mark = metadata.read_clean_shutdown(home)
    assert mark is not None
    assert mark.broker_epoch == -1  # something was repaired

    def failing(*_arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    (partition / name(10, "index")).unlink()
    with io.calls_replaced(io.Calls(fdatasync=failing)), pytest.raises(OSError, match="error"):
        plan(partition).apply(keep=False)
    assert metadata.read_clean_shutdown(home) is None


def test_stopped_anywhere_and_done_again_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    expected = bare(tmp_path / "whole")
    apply(expected)
    for number in range(1, 400, 1 if WHOLE else 3):
        directory = bare(tmp_path / f"stopped-{number}")
        counted, usual = failing_at(number), io.Calls()
        names = ("pwritev", "fdatasync", "rename", "fsync")
        found = plan(directory)
        try:
            with io.calls_replaced(io.Calls(**{n: counted(getattr(usual, n)) for n in names})):
                found.apply(keep=False)
        except OSError:
            apply(directory)
        else:
            break
        assert contents(directory) == contents(expected)
    assert 30 < number < 399


def test_progress_is_told_in_bytes_of_log(partition: Path) -> None:
    steps: list[tuple[int, int]] = []
    plan(partition, progress=lambda done, total: steps.append((done, total)))
    sizes = [sum(map(len, parts)) for parts in SEGMENTS.values()]
    assert steps == [(sum(sizes[: i + 1]), sum(sizes)) for i in range(3)]
