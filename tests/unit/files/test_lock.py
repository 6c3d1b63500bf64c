from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kseg.files import lock
from tests.unit.files.foreign import holding


def test_nobody_holds_a_directory_without_a_lock_file(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    assert lock.holder(tmp_path / "absent") is None
    (tmp_path / "file").touch()
    assert lock.holder(tmp_path / "file") is None
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_lock_file_alone_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    before = (tmp_path / ".lock").stat().st_mtime_ns
    assert lock.holder(tmp_path) is None
    assert (tmp_path / ".lock").stat().st_mtime_ns == before


def test_another_process_is_named_while_it_holds(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        assert lock.holder(tmp_path) == process
        assert lock.holder(str(tmp_path)) == process
    assert lock.holder(tmp_path) is None


def test_asking_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        lock.holder(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_asking_about_a_directory_of_our_own_keeps_our_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        status = os.fstat(file.fileno())
        monkeypatch.setitem(lock._held, (status.st_dev, status.st_ino), file.fileno())
        assert lock.holder(tmp_path) is None
        parent, answer = os.getpid(), tmp_path / "answer"
        child = os.fork()
        if child == 0:  # to a child, its parent is another process
            answer.write_text(str(lock.holder(tmp_path)))
            os._exit(0)
        os.waitpid(child, 0)
        assert answer.read_text() == str(parent)


def test_a_lock_that_cannot_be_opened_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(IsADirectoryError):
        lock.holder(tmp_path)
