"""What is looked at once: segments that are recovered, directories that are read or verified."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import kseg
from kseg import Log
from kseg.analysis.verify import verify
from kseg.files import lock
from kseg.log.recovery import load, load_context, overlay
from kseg.log.recovery.recover import plan_recovery, recover
from tests.unit.log import damaged
from tests.unit.log.damaged import CONFIG, HARMS, NOW, content

HOW: dict[str, Any] = {"clean": False, "config": CONFIG, "now_ms": NOW}


@contextmanager
def calls(module: Any, function: str) -> Iterator[Counter[str]]:
    """How often a module calls a function, by the path that it is called with."""
    plain, found = getattr(module, function), Counter[str]()

    def counted(first: Any, *rest: Any, **named: Any) -> Any:
        found[os.fspath(getattr(first, "path", first))] += 1
        return plain(first, *rest, **named)

    with patch.object(module, function, counted):
        yield found


def opened(path: Path) -> None:
    with Log.open(path, mode="append", recover=True, config=CONFIG, now_ms=lambda: NOW):
        pass


def mended(path: Path) -> None:
    assert recover(path, **HOW).plan.actions


@pytest.mark.parametrize("mend", [mended, opened])
def test_each_segment_of_a_log_that_was_not_closed_is_swept_once(
    partition: Path, mend: Callable[[Path], None]
) -> None:
    damaged.no_indexes(partition)
    logs = sorted(map(str, partition.glob("*.log")))
    with calls(load, "sweep_segment") as swept:
        mend(partition)
    assert sorted(swept) == logs
    assert set(swept.values()) == {1}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_swept_once_is_mended_as_by_a_plan_and_its_application(
    partition: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(partition)
    other = Path(shutil.copytree(partition, tmp_path / "other" / "t-0"))
    plan_recovery(other, **HOW).apply(keep_cut=False)
    recover(partition, keep_cut=False, **HOW)
    assert content(partition) == content(other)


@pytest.mark.parametrize("harm", HARMS)
def test_indexes_that_are_too_many_to_be_held_are_worked_out_again(
    partition: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(partition)
    damaged.no_indexes(partition)
    other = Path(shutil.copytree(partition, tmp_path / "other" / "t-0"))
    recover(other, keep_cut=False, **HOW)
    with (
        patch.object(overlay, "_HELD_BYTES_MAX", 0),
        calls(load_context, "sweep_segment") as again,
    ):
        recover(partition, keep_cut=False, **HOW)
    assert content(partition) == content(other)
    assert again or harm is damaged.nothing_left


def test_a_directory_is_listed_once_to_be_read(partition: Path) -> None:
    with calls(os, "scandir") as listed, Log.open(partition) as log:
        assert sum(map(len, log.read(offset=(5, None))))
    assert listed == {str(partition): 1}


def test_verify_lists_each_directory_once_and_asks_for_the_lock_once_a_segment(
    partition: Path,
) -> None:
    Path(shutil.copytree(partition, partition.with_name("t-1")))
    segments = len(list(partition.glob("*.log")))
    with calls(os, "scandir") as listed, calls(lock, "holder") as asked:
        found = verify(partition.parent)
    assert found.files
    assert listed == dict.fromkeys(
        map(str, (partition.parent, partition, partition.with_name("t-1"))), 1
    )
    assert asked == {str(partition.parent): 2 * segments + 2}


def test_verify_lists_again_what_went_away_meanwhile(partition: Path) -> None:
    snapshot = sorted(partition.glob("*.snapshot"))[0]
    progressed: list[int] = []

    def gone(done: int, _total: int) -> None:
        progressed.append(done)
        snapshot.unlink(missing_ok=True)

    found = verify([partition.parent], progress=gone)
    assert progressed
    assert not snapshot.exists()
    assert [finding.code for finding in found.findings if finding.severity == "error"] == []


def test_a_log_that_cannot_be_loaded_keeps_all_its_bytes_when_it_is_opened(
    partition: Path,
) -> None:
    damaged.no_indexes(partition)
    with sorted(partition.glob("*.log"))[3].open("r+b") as log:
        log.write(bytes(8))  # the base offset of the first batch, which no checksum covers
    before = content(partition)
    with pytest.raises(kseg.errors.OffsetsOutOfOrderError):
        opened(partition)
    assert content(partition) == before


def test_a_log_that_was_written_while_it_was_loaded_is_not_recovered(partition: Path) -> None:
    damaged.no_indexes(partition)
    plain = load.Loading.load

    def load_beside_a_writer(loading: load.Loading) -> Any:
        found = plain(loading)
        with (partition / damaged.EPOCHS).open("ab") as file:
            file.write(b"\n")
        return found

    with (
        patch.object(load.Loading, "load", load_beside_a_writer),
        pytest.raises(kseg.StalePlanError),
    ):
        recover(partition, **HOW)
    assert not list(partition.glob("*index"))
