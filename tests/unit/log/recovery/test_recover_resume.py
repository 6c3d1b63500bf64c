"""A recovery that was interrupted goes on: a partition with a valid note is not read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kseg
from kseg.log.data_directory import enter
from kseg.log.recovery import recover as resume
from tests.builders import batch, record, write_segment


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of a data directory that was not closed in good order."""
    for name in ("t-0", "t-1"):
        batches = [batch([record(bytes(5000))], base_offset=offset) for offset in range(3)]
        write_segment(tmp_path / name, 0, *batches)
    return tmp_path


def walked(directory: Path) -> int:
    """The bytes of log that a recovery of the partition reads."""
    seen = [0]
    kseg.recover(directory, progress=lambda done, _all: seen.append(done))
    return max(seen)


def test_a_recovered_partition_is_not_read_again(data: Path) -> None:
    assert walked(data / "t-0") > 0
    assert resume.is_noted(data / "t-0")
    assert walked(data / "t-0") == 0


def grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"\0")


def touch(log: Path) -> None:
    status = log.stat()
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def make_anew(log: Path) -> None:
    status, data = log.stat(), log.read_bytes()
    log.rename(log.parent.parent / "old.log")
    log.write_bytes(data)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def add_another(log: Path) -> None:
    log.with_suffix(".txnindex").touch()


def overwrite(log: Path) -> None:
    status = log.stat()
    with log.open("r+b") as file:
        file.write(b"\0")  # as before; only the time of change says so
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = {
    "overwritten": overwrite,
    "grown": grow,
    "touched": touch,
    "rebuilt": make_anew,
    "joined": add_another,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_difference_of_a_file_voids_the_note(
    data: Path, change: Callable[[Path], None]
) -> None:
    kseg.recover(data / "t-0")
    (log,) = (data / "t-0").glob("*.log")
    change(log)
    assert not resume.is_noted(data / "t-0")
    assert walked(data / "t-0") > 0


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_note_does_not_count_and_the_next_one_does(data: Path, cut: int) -> None:
    kseg.recover(data / "t-0")
    notes = data / ".kseg-recovered"
    notes.write_bytes(notes.read_bytes()[:-cut])
    assert not resume.is_noted(data / "t-0")
    resume.note(data / "t-0")
    assert resume.is_noted(data / "t-0")


def test_the_mark_replaces_the_notes(data: Path) -> None:
    lease = enter(data)
    for name in ("t-0", "t-1"):
        kseg.recover(data / name)
    assert resume.is_noted(data / "t-0")
    lease.leave()
    assert (data / ".kafka_cleanshutdown").exists()
    assert not (data / ".kseg-recovered").exists()


def too_large(notes: Path) -> None:
    os.truncate(notes, (1 << 28) + 1)


def a_link(notes: Path) -> None:
    notes.rename(notes.with_name("elsewhere"))
    notes.symlink_to("elsewhere-too")


def a_directory(notes: Path) -> None:
    notes.unlink()
    notes.mkdir()


@pytest.mark.parametrize("harm", [too_large, a_link, a_directory])
def test_notes_that_cannot_be_read_cost_time_alone(
    data: Path, harm: Callable[[Path], None]
) -> None:
    kseg.recover(data / "t-0")
    harm(data / ".kseg-recovered")
    assert walked(data / "t-0") > 0
    assert not (data / "elsewhere-too").exists()
