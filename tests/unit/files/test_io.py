from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.errors import LimitExceededError
from kseg.files import io


def test_descriptors_are_read_only_and_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    fd = io.open_read(tmp_path / "x")
    try:
        assert not os.get_inheritable(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"x")
    finally:
        os.close(fd)


def test_what_is_no_regular_file_is_an_os_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, error in (
        (tmp_path, IsADirectoryError),
        (tmp_path / "pipe", OSError),
        (Path(os.devnull), OSError),
        (tmp_path / "absent", FileNotFoundError),
    ):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(error) as caught:
            io.open_read(path)
        assert caught.value.filename == str(path)
        assert len(os.listdir("/proc/self/fd")) == before


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
    fd = io.open_read(tmp_path / "x")
    try:
        assert io.read_at(fd, 0, 100) == bytes(range(100))
        assert io.read_at(fd, 90, 100) == bytes(range(90, 100))
        assert io.read_at(fd, 100, 5) == b""
        assert io.read_at(fd, 5, 0) == b""
    finally:
        os.close(fd)


def test_a_file_beyond_its_bound_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcd")
    assert io.read_file(tmp_path / "x", bytes_max=4) == b"abcd"
    with pytest.raises(LimitExceededError) as caught:
        io.read_file(tmp_path / "x", bytes_max=3)
    assert caught.value.path == str(tmp_path / "x")
