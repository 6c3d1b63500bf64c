from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.errors import PoisonedFileError
from kseg.files import io, log_writer
from kseg.files.log_writer import LogWriter


def full_after(written: int) -> io.Calls:
    """A disk that takes so many bytes of each write, and no second call."""
    calls = 0

    def pwritev(fd: int, parts: Sequence[io.Buffer], position: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1 or not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, b"".join(parts)[:written], position)

    return io.Calls(pwritev=pwritev)


def refuse(*_arguments: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    writer = LogWriter.open(tmp_path / "x.log", create=True)
    writer.append(b"first")
    return writer


def content(log: LogWriter) -> bytes:
    return Path(log.path).read_bytes()


@pytest.mark.parametrize("written", [0, 1, 9])
def test_an_append_that_fails_leaves_nothing(written: int, log: LogWriter) -> None:
    with io.calls_replaced(full_after(written)), pytest.raises(OSError, match="No space"):
        log.append(b"second", b"third")
    assert (log.size, log.file_bytes, content(log)) == (5, 5, b"first")
    assert not log.poisoned
    log.append(b"again")
    log.close()
    assert content(log) == b"firstagain"


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


def test_a_close_without_trimming_changes_nothing(tmp_path: Path) -> None:
    log = LogWriter.open(tmp_path / "x.log", create=True, preallocate_bytes=100)
    log.append(b"first")
    with io.calls_replaced(io.Calls(ftruncate=refuse, fdatasync=refuse)):
        log.close(trim=False)
        log.close()
    assert content(log) == b"first".ljust(100, b"\0")


# ---- blocks ahead --------------------------------------------------------------------------------

Taken = list[tuple[int, int]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of 100 bytes count as large."""
    monkeypatch.setattr(log_writer, "RESERVED_BYTES", 100)


def noting(taken: Taken) -> io.Calls:
    """Notes which blocks are asked for, and takes them."""

    def fallocate(fd: int, position: int, size: int) -> None:
        taken.append((position, size))
        io.Calls().fallocate(fd, position, size)

    return io.Calls(fallocate=fallocate)


@pytest.mark.usefixtures("small")
def test_a_log_that_has_become_large_takes_blocks_for_as_much_again(tmp_path: Path) -> None:
    taken: Taken = []
    log = LogWriter.open(tmp_path / "x.log", create=True)
    with io.calls_replaced(noting(taken)), log:
        log.append(b"a" * 100)
        assert not taken
        log.append(b"b")
        assert taken == [(100, 101)]
        assert (tmp_path / "x.log").stat().st_size == 101
        log.append(b"c" * 100)
        assert len(taken) == 1
        log.append(b"d")
        assert taken[1:] == [(201, 101)]
    assert (tmp_path / "x.log").read_bytes() == b"a" * 100 + b"b" + b"c" * 100 + b"d"


@pytest.mark.usefixtures("small")
def test_a_preallocated_log_takes_none_before_that_is_full(tmp_path: Path) -> None:
    taken: Taken = []
    path = tmp_path / "x.log"
    with (
        io.calls_replaced(noting(taken)),
        LogWriter.open(path, create=True, preallocate_bytes=1000) as log,
    ):
        log.append(b"a" * 1000)
        assert not taken
        log.append(b"a")
        assert taken == [(1000, 101)]


def test_blocks_ahead_go_back_and_leave_the_times_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = LogWriter.open(path, create=True)
    log.append(bytes(5 * 2**20))
    os.utime(path, ns=(1, 2))
    before = log.file.blocks_bytes
    log.trim()
    status = path.stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == (1, 2)
    assert log.file.blocks_bytes < before or before < 9 * 2**20  # no such thing in this file system
    assert abs(status.st_blocks * 512 - log.size) < 2**20
    with io.calls_replaced(io.Calls(ftruncate=refuse)):
        log.trim()  # no second time
    log.close()


def test_blocks_of_a_writer_that_was_killed_go_back_with_the_next_close(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    killed = LogWriter.open(path, create=True)
    killed.append(b"a" * 200)
    reserves = killed.file.reserve(200, 2**20)
    assert path.stat().st_size == 200
    assert (killed.file.blocks_bytes > 2**20) is reserves
    killed.close(trim=False)
    LogWriter.open(path).close()
    assert path.stat().st_blocks * 512 < 2**16
    assert path.read_bytes() == b"a" * 200


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP, errno.EINTR])
def test_a_disk_that_gives_no_blocks_ahead_is_not_asked_again(number: int, log: LogWriter) -> None:
    asked = 0

    def fallocate(_fd: int, _position: int, _size: int) -> None:
        nonlocal asked
        asked += 1
        raise OSError(number, os.strerror(number))

    with io.calls_replaced(io.Calls(fallocate=fallocate)):
        for _ in range(3):
            log.append(b"x" * 200)
    assert asked == 1
    assert content(log) == b"first" + b"x" * 600


@pytest.mark.usefixtures("small")
def test_a_log_that_met_a_full_disk_takes_no_blocks_ahead(log: LogWriter) -> None:
    taken: Taken = []
    log.append(b"x" * 200)
    with io.calls_replaced(full_after(1)), pytest.raises(OSError, match="No space"):
        log.append(b"y" * 10)
    with io.calls_replaced(noting(taken)):
        log.append(b"z" * 500)
    assert not taken
    assert content(log) == b"first" + b"x" * 200 + b"z" * 500
