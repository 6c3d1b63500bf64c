from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.errors import PoisonedFileError
from kseg.files import io
from kseg.files.log_writer import LogWriter


def full_after(written: int) -> io.Calls:
    """A disk that takes so many bytes of each write, and no second call."""
    calls = 0

    def pwritev(fd: int, parts: Sequence[io.Bytes], position: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1 or not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, b"".join(parts)[:written], position)

    return io.Calls(pwritev=pwritev)


def refuse(*_arguments: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def interrupt(*_arguments: object) -> int:
    raise KeyboardInterrupt


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    writer = LogWriter.open(tmp_path / "x.log", create=True)
    writer.append(b"first")
    return writer


def content(log: LogWriter) -> bytes:
    return Path(log.path).read_bytes()


def test_a_new_file_is_new_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    mask = os.umask(0o022)
    try:
        LogWriter.open(path, create=True).close()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with pytest.raises(FileExistsError):
        LogWriter.open(path, create=True)
    with pytest.raises(FileNotFoundError):
        LogWriter.open(tmp_path / "absent.log")


def test_an_append_of_nothing_is_no_write(log: LogWriter) -> None:
    with io.calls_replaced(io.Calls(pwritev=interrupt)):
        assert log.append() == log.append(b"", b"") == 5
    assert content(log) == b"first"


@pytest.mark.parametrize("written", [0, 1, 9])
def test_an_append_that_fails_leaves_nothing(written: int, log: LogWriter) -> None:
    with io.calls_replaced(full_after(written)), pytest.raises(OSError, match="No space"):
        log.append(b"second", b"third")
    assert (log.size, log.file_bytes, content(log)) == (5, 5, b"first")
    assert not log.poisoned
    log.append(b"again")
    log.close()
    assert content(log) == b"firstagain"


def test_an_interrupted_append_leaves_nothing(log: LogWriter) -> None:
    with io.calls_replaced(io.Calls(pwritev=interrupt)), pytest.raises(KeyboardInterrupt):
        log.append(b"second")
    assert (log.size, content(log)) == (5, b"first")


def test_a_failed_append_takes_what_was_preallocated_along(tmp_path: Path) -> None:
    log = LogWriter.open(tmp_path / "x.log", create=True, preallocate_bytes=100)
    log.append(b"first")
    with io.calls_replaced(full_after(3)), pytest.raises(OSError, match="No space"):
        log.append(b"second")
    assert (log.size, content(log)) == (5, b"first")


def test_a_writer_that_cannot_undo_never_writes_again(log: LogWriter) -> None:
    calls = io.Calls(pwritev=full_after(3).pwritev, ftruncate=refuse)
    with io.calls_replaced(calls), pytest.raises(OSError, match="Input/output"):
        log.append(b"second")
    assert log.poisoned
    assert content(log) == b"firstsec"
    for again in (lambda: log.append(b"x"), lambda: log.truncate(1), log.flush, log.trim):
        with pytest.raises(PoisonedFileError, match="could not be undone"):
            again()
    with pytest.raises(PoisonedFileError):
        log.close()
    assert log.file.fd == -1
    assert content(log) == b"firstsec"


def test_a_failed_flush_is_not_forgotten(log: LogWriter) -> None:
    with io.calls_replaced(io.Calls(fdatasync=refuse)), pytest.raises(OSError, match="Input/out"):
        log.flush()
    assert log.poisoned
    for again in (lambda: log.append(b"x"), log.flush):
        with pytest.raises(PoisonedFileError, match="a flush failed"):
            again()
    assert content(log) == b"first"


def flushes(log: LogWriter) -> int:
    """How many there are in one call of `flush`."""
    seen: list[int] = []
    with io.calls_replaced(io.Calls(fdatasync=seen.append)):
        log.flush()
    return len(seen)


def test_what_has_not_changed_is_not_flushed_again(log: LogWriter, tmp_path: Path) -> None:
    assert [flushes(log), flushes(log)] == [1, 0]
    log.append(b"second")
    assert [flushes(log), flushes(log)] == [1, 0]
    log.truncate(3)
    assert [flushes(log), flushes(log)] == [1, 0]
    log.close()
    with LogWriter.open(tmp_path / "x.log") as again:
        assert flushes(again) == 1  # whoever wrote it may not have


def test_a_close_flushes_what_it_trims(tmp_path: Path) -> None:
    done: list[str] = []
    calls = io.Calls(
        ftruncate=lambda *_: done.append("cut"), fdatasync=lambda *_: done.append("flush")
    )
    log = LogWriter.open(tmp_path / "x.log", create=True, preallocate_bytes=100)
    log.append(b"first")
    with io.calls_replaced(calls):
        log.close()
    assert done == ["cut", "flush"]


def test_a_close_without_trimming_changes_nothing(tmp_path: Path) -> None:
    log = LogWriter.open(tmp_path / "x.log", create=True, preallocate_bytes=100)
    log.append(b"first")
    with io.calls_replaced(io.Calls(ftruncate=refuse, fdatasync=refuse)):
        log.close(trim=False)
        log.close()
    assert content(log) == b"first".ljust(100, b"\0")


def test_a_writer_is_called_by_its_new_name(log: LogWriter, tmp_path: Path) -> None:
    path = str(tmp_path / "x.log.deleted")
    io.rename(log.path, path)
    log.renamed(path)
    log.append(b"second")
    assert (log.path, content(log)) == (path, b"firstsecond")
