from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.files import atomic
from tests.stopping import refusing, stopping_at


def test_the_file_has_the_new_bytes_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for data in (b"one", b"a longer one", b""):
        atomic.replace_file(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_what_an_earlier_attempt_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"half of a longer file")
    atomic.replace_file(tmp_path / "checkpoint", b"new")
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


def test_permissions_of_the_file_replaced_stay(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o640)
    atomic.replace_file(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_bytes_are_flushed_before_the_name_changes_and_the_directory_after(tmp_path: Path) -> None:
    names = ("open", "pwritev", "fdatasync", "rename", "fsync")
    with stopping_at(None) as asked:
        atomic.replace_file(tmp_path / "checkpoint", b"new")
    assert [name for name in asked if name in names] == list(names)


@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync", "rename"])
def test_a_failure_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    with refusing(call, code=28), pytest.raises(OSError, match="No space left"):
        atomic.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]
