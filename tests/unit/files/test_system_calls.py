from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from kseg.files import system_calls as module
from kseg.files.system_calls import fallocate


def test_an_error_carries_the_number_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r".") as caught:
            fallocate(fd, 0, 10)
    finally:
        os.close(fd)
    assert caught.value.errno == (errno.EBADF if sys.platform == "linux" else errno.ENOSYS)
    assert path.read_bytes() == b"abc"


def test_a_system_without_the_call_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "elsewhere")
    module._fallocate_of_libc.cache_clear()
    try:
        with open(tmp_path / "x", "wb") as file, pytest.raises(OSError, match=r".") as caught:
            fallocate(file.fileno(), 0, 10)
    finally:
        module._fallocate_of_libc.cache_clear()
    assert caught.value.errno == errno.ENOSYS
