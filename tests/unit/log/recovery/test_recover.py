"""Carrying a plan out: once, twice, half, and on a disk that has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg import verify
from kseg.errors import OffsetsOutOfOrderError, StalePlanError
from kseg.log import data_directory
from kseg.log.recovery.recover import (
    RecoveryPlan,
    RecoveryReport,
    plan_recovery,
    recover,
)
from tests.builders import batch, record, write_segment
from tests.reference import walk
from tests.unit.log import damaged
from tests.unit.log.damaged import CONFIG, NOW, content, logs

Harm = Callable[[Path], None]


def plan(directory: Path, *, clean: bool = False, **how: Any) -> RecoveryPlan:
    return plan_recovery(directory, clean=clean, config=CONFIG, now_ms=NOW, **how)


def mend(directory: Path, *, keep_cut: bool = False, **how: Any) -> RecoveryReport:
    return plan(directory, **how).apply(keep_cut=keep_cut)


# ---- once, twice, half ---------------------------------------------------------------------------


def test_one_entry_of_zeros_does_not_stay_beside_an_empty_log(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "data" / "t-0", 0, batch([record(b"v")]))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    log.with_suffix(".index").write_bytes(bytes(8))
    log.with_suffix(".timeindex").write_bytes(bytes(12))
    mend(log.parent)
    assert log.stat().st_size == 0
    assert verify(log.parent, deep=True).findings == ()
    assert plan(log.parent).is_noop


# ---- what stands in the way ----------------------------------------------------------------------


def change_size(directory: Path) -> None:
    with logs(directory)[0].open("ab") as file:
        file.write(b"more")


def change_time(directory: Path) -> None:
    os.utime(logs(directory)[0], ns=(7, 7))


def another_file(directory: Path) -> None:
    path = logs(directory)[0]
    status = path.stat()
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def one_more(directory: Path) -> None:
    (directory / "stranger").write_bytes(b"")


@pytest.mark.parametrize("change", [change_size, change_time, another_file, one_more])
def test_a_plan_for_files_that_have_changed_is_stale(partition: Path, change: Harm) -> None:
    damaged.torn(partition)
    made = plan(partition)
    change(partition)
    before = content(partition)
    with pytest.raises(StalePlanError):
        made.apply()
    assert content(partition) == before


def test_a_log_that_grew_before_its_directory_was_entered_gets_no_mark(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend(partition)
    (partition.parent / ".kafka_cleanshutdown").unlink()
    enter = data_directory.enter

    def late(home: Path) -> data_directory.Lease:
        change_size(partition)
        return enter(home)

    monkeypatch.setattr(data_directory, "enter", late)
    with pytest.raises(StalePlanError):
        recover(partition, clean=True, config=CONFIG)
    assert not (partition.parent / ".kafka_cleanshutdown").exists()


def test_a_log_that_cannot_be_loaded_is_not_touched(partition: Path) -> None:
    first, second = logs(partition)[:2]
    shutil.copy(first, second)
    before = content(partition)
    with pytest.raises(OffsetsOutOfOrderError):
        mend(partition)
    assert content(partition) == before


def test_what_a_plan_says_is_what_goes(partition: Path) -> None:
    before = counts(partition)
    damaged.flipped(partition)
    made = plan(partition)
    made.apply(keep_cut=False)
    gone = before.items() - counts(partition).items()
    assert sum(lost.records or 0 for lost in made.lost) == sum(count for _, count in gone) > 0


def counts(directory: Path) -> dict[int, int]:
    """The records of each batch, by its base offset."""
    batches = (each for path in logs(directory) for each in walk(path.read_bytes()).batches)
    return {each.base_offset: each.record_count for each in batches}


# ---- what is kept --------------------------------------------------------------------------------


def kept(directory: Path) -> dict[str, bytes]:
    backups = directory.parent.with_name("data.kseg-backup")
    (place,) = backups.iterdir()
    return content(place / "t-0")


def test_what_is_cut_removed_or_replaced_is_kept_aside(partition: Path) -> None:
    before = content(partition)
    damaged.flipped(partition)
    log = logs(partition)[2].read_bytes()
    report = mend(partition, keep_cut=True)
    found = kept(partition)
    assert found[f"{6:020d}.log.from-0"] == log
    for base in (10, 14, 17, 20, 23):
        for kind in ("log", "index", "timeindex"):
            assert found[f"{base:020d}.{kind}"] == before[f"{base:020d}.{kind}"]
    assert found[f"{6:020d}.index"] == before[f"{6:020d}.index"]
    assert found[f"{25:020d}.snapshot"] == before[f"{25:020d}.snapshot"]
    assert {path.kept.name for path in report.kept} == set(found)


def test_a_replaced_file_keeps_its_permissions_and_an_untouched_one_its_inode(
    partition: Path,
) -> None:
    damaged.garbled_indexes(partition)
    index = logs(partition)[1].with_suffix(".index")
    index.chmod(0o640)
    other = logs(partition)[0]
    before = other.stat()
    mend(partition, clean=True)
    assert index.stat().st_mode & 0o777 == 0o640
    assert (other.stat().st_ino, other.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
