from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.files import lock


def test_asking_about_a_directory_of_our_own_keeps_our_lock(tmp_path: Path) -> None:
    with lock.acquire(tmp_path):
        assert lock.holder(tmp_path) is None
        parent, answer = os.getpid(), tmp_path / "answer"
        child = os.fork()
        if child == 0:  # to a child, its parent is another process
            answer.write_text(str(lock.holder(tmp_path)))
            os._exit(0)
        os.waitpid(child, 0)
        assert answer.read_text() == str(parent)
        assert "holds" in in_another_process(tmp_path)


# Taking it


def in_another_process(directory: Path) -> str:
    """What a fresh process is told when it tries to take the lock."""
    code = (
        "import sys; from kseg.files import lock\n"
        "try: lock.acquire(sys.argv[1]).release(); print('taken')\n"
        "except lock.LogLockedError as error: print(error.reason)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_lock_keeps_other_processes_out_until_it_is_released(tmp_path: Path) -> None:
    with lock.acquire(tmp_path):
        assert in_another_process(tmp_path).startswith(f"process {os.getpid()} holds")
    assert in_another_process(tmp_path) == "taken"
    assert not (tmp_path / ".lock").exists()


def test_several_holders_in_one_process_share_the_lock(tmp_path: Path) -> None:
    first, second = lock.acquire(tmp_path), lock.acquire(tmp_path)
    first.release()
    first.release()
    assert "holds" in in_another_process(tmp_path)
    second.release()
    assert in_another_process(tmp_path) == "taken"


def test_a_child_after_a_fork_does_not_take_the_parent_s_lock_away(tmp_path: Path) -> None:
    held = lock.acquire(tmp_path)
    child = os.fork()
    if child == 0:
        held.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / ".lock").exists()
    assert "holds" in in_another_process(tmp_path)
    held.release()


def test_a_lock_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock.acquire(tmp_path / "absent")


@pytest.mark.parametrize(
    ("process", "who"), [(12, "process 12"), (0, "another process"), (-1, "another process")]
)
def test_a_holder_that_the_kernel_does_not_tell_has_no_number(process: int, who: str) -> None:
    assert lock.who_holds(process) == f"{who} holds the directory"
    assert lock.who_holds(None) == "another process holds the directory"
