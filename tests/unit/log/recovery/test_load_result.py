"""What a log is when it is opened for appending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kseg.log.recovery.load import Loaded, load
from tests.unit.log import damaged
from tests.unit.log.damaged import CONFIG, NOW, content


def loaded(directory: Path, *, clean: bool = True, **how: Any) -> Loaded:
    known = {"recovery_point": 25 if clean else 0, "log_start_offset": 0, "now_ms": NOW, **how}
    return load(directory, config=CONFIG, clean=clean, **known)


def test_epochs_are_written_by_whoever_changes_them_later(partition: Path) -> None:
    found = loaded(partition)
    assert not found.epochs.dirty
    found.epochs.assign(3, 25)
    assert (partition / damaged.EPOCHS).read_text() == "0\n3\n1 0\n2 8\n3 25\n"


def test_only_what_cannot_be_had_again_is_kept_aside(partition: Path) -> None:
    damaged.torn(partition)
    loaded(partition, clean=False)
    (place,) = partition.parent.with_name("data.kseg-backup").iterdir()
    assert list(content(place / "t-0")) == [f"{23:020d}.log.from-129"]


def test_nothing_is_kept_aside_if_nobody_wants_it(partition: Path) -> None:
    damaged.torn(partition)
    loaded(partition, clean=False, keep_cut=False)
    assert not partition.parent.with_name("data.kseg-backup").exists()
