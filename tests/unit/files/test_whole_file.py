"""Files for other programs: whole or not there, through no link, and no litter of killed runs."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from kseg.files.whole_file import whole_file
from tests.stopping import refusing

PART = ".out.csv.0123456789abcdef.kseg-part"


def write(target: Path, *parts: bytes) -> None:
    with whole_file(target) as sink:
        for part in parts:
            sink.write(part)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.csv"
    with whole_file(target) as sink:
        sink.write(b"one")
        (part,) = names(target.parent)
        assert (part.startswith(".out.csv."), part.endswith(".kseg-part")) == (True, True)
        sink.write(b"two")
    assert target.read_bytes() == b"onetwo"
    assert names(target.parent) == ["out.csv"]


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "rename"])
def test_after_a_failure_the_old_file_is_there_and_nothing_else(tmp_path: Path, call: str) -> None:
    (tmp_path / "out.csv").write_bytes(b"old")
    with refusing(call, code=errno.ENOSPC), pytest.raises(OSError, match="No space left"):
        write(tmp_path / "out.csv", b"new")
    assert names(tmp_path) == ["out.csv"]
    assert (tmp_path / "out.csv").read_bytes() == b"old"


def test_a_link_under_the_name_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "out.csv").symlink_to(tmp_path / "precious")
    write(tmp_path / "out.csv", b"new")
    assert not (tmp_path / "out.csv").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_what_a_killed_run_left_goes_with_the_next_run_of_the_same_file(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    child = os.fork()
    if child == 0:
        with whole_file(target) as sink:
            sink.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(names(tmp_path)) == 1
    write(tmp_path / "other.csv", b"other")
    assert len(names(tmp_path)) == 2
    write(target, b"whole")
    assert names(tmp_path) == ["other.csv", "out.csv"]


def test_what_another_run_is_writing_stays(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    with whole_file(target) as sink:
        sink.write(b"first")
        write(target, b"second")
        assert target.read_bytes() == b"second"
    assert target.read_bytes() == b"first"
    assert names(tmp_path) == ["out.csv"]


@pytest.mark.parametrize(
    "name",
    [
        ".out.csv.0123456789abcdeF.kseg-part",
        ".out.csv.0123456789abcde.kseg-part",
        ".out.csv.x.0123456789abcdef.kseg-part",
        "out.csv.part",
        "out.csv.tmp",
    ],
)
def test_files_that_are_not_its_own_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"yours")
    write(tmp_path / "out.csv", b"x")
    assert (tmp_path / name).read_bytes() == b"yours"


def test_a_link_or_a_directory_with_such_a_name_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / PART).symlink_to(tmp_path / "precious")
    (tmp_path / PART.replace("0", "f")).mkdir()
    write(tmp_path / "out.csv", b"x")
    assert len(names(tmp_path)) == 4
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_name_that_leaves_no_room_is_written_too(tmp_path: Path) -> None:
    write(tmp_path / ("x" * 255), b"long")
    assert names(tmp_path) == ["x" * 255]
