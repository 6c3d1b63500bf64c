from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kseg.errors import LimitExceededError, PoisonedFileError
from kseg.files import io
from tests.stopping import refusing


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
    path = tmp_path / "x"
    path.write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
    fd = io.open_read(path)
    try:
        assert io.read_at(fd, 0, 100, path) == bytes(range(100))
        assert io.read_at(fd, 90, 100, path) == bytes(range(90, 100))
        assert io.read_at(fd, 100, 5, path) == b""
        assert io.read_at(fd, 5, 0, path) == b""
    finally:
        os.close(fd)


def test_a_file_beyond_its_bound_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcd")
    assert io.read_file(tmp_path / "x", bytes_max=4) == b"abcd"
    with pytest.raises(LimitExceededError) as caught:
        io.read_file(tmp_path / "x", bytes_max=3)
    assert caught.value.path == str(tmp_path / "x")


# Writing


def written(path: Path, *parts: bytes, calls: io.Calls | None = None, position: int = 0) -> bytes:
    with io.calls_replaced(calls or io.Calls()), io.WriteFile.open(path, create=True) as file:
        assert file.write_at(position, *parts) == sum(map(len, parts))
    return path.read_bytes()


def at_most(size: int) -> io.Calls:
    """Writes that take so many bytes and no more."""

    def pwritev(fd: int, parts: Sequence[io.Buffer], position: int) -> int:
        return os.pwrite(fd, b"".join(parts)[:size], position)

    return io.Calls(pwritev=pwritev)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100])
def test_short_writes_are_completed(tmp_path: Path, size: int) -> None:
    parts = (b"ab", b"", b"cde", b"f")
    assert written(tmp_path / "x", *parts, calls=at_most(size), position=2) == b"\0\0abcdef"


def test_an_interrupted_write_goes_on(tmp_path: Path) -> None:
    interruptions = iter([True, True])

    def pwritev(fd: int, parts: Sequence[io.Buffer], position: int) -> int:
        if next(interruptions, False):
            raise InterruptedError
        return os.pwritev(fd, parts, position)

    assert written(tmp_path / "x", b"abc", calls=io.Calls(pwritev=pwritev)) == b"abc"


def test_a_write_that_writes_nothing_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="wrote nothing"):
        written(tmp_path / "x", b"abc", calls=at_most(0))


def test_a_failed_flush_poisons_the_file(tmp_path: Path) -> None:
    failures = iter([OSError(errno.EIO, "Input/output error")])

    def fdatasync(fd: int) -> None:
        for failure in failures:
            raise failure

    with (
        io.calls_replaced(io.Calls(fdatasync=fdatasync)),
        io.WriteFile.open(tmp_path / "x", create=True) as file,
    ):
        file.write_at(0, b"abc")
        with pytest.raises(OSError, match="Input/output error"):
            file.flush()
        assert file.poisoned
        for refused in (file.flush, lambda: file.write_at(3, b"d"), lambda: file.truncate(0)):
            with pytest.raises(PoisonedFileError, match="open the log again") as caught:
                refused()
            assert caught.value.path == str(tmp_path / "x")
        assert file.read_at(0, 3) == b"abc"


def test_a_link_and_a_directory_are_not_opened_for_writing(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError):  # noqa: PT011 (each has a number of its own)
            io.WriteFile.open(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reserved_blocks_change_neither_bytes_nor_size(tmp_path: Path) -> None:
    with io.WriteFile.open(tmp_path / "x", create=True) as file:
        file.write_at(0, b"abc")
        before = file.blocks_bytes
        reserved = file.reserve(3, 2**20)
        assert (file.blocks_bytes >= before + 2**20) is reserved
        assert (file.size, file.read_at(0, 9)) == (3, b"abc")
        file.release(3)
        assert file.blocks_bytes == before
        assert (file.size, file.read_at(0, 9)) == (3, b"abc")


def test_nothing_is_reserved_on_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    calls = io.Calls(fallocate=lambda _fd, _position, size: asked.append(size))
    with io.calls_replaced(calls), io.WriteFile.open(tmp_path / "x", create=True) as file:
        free = [*os.fstatvfs(file.fd)]
        for blocks, given in ((255, []), (256, [4096])):
            free[0:2], free[4] = (4096, 4096), blocks  # f_bsize and f_frsize; f_bavail
            monkeypatch.setattr(os, "fstatvfs", lambda _fd: os.statvfs_result(free))
            assert file.reserve(0, 4096) is bool(given)
            assert asked == given


def test_a_poisoned_file_releases_nothing(tmp_path: Path) -> None:
    with refusing("fdatasync"), io.WriteFile.open(tmp_path / "x", create=True) as file:
        file.write_at(0, b"abc")
        with pytest.raises(OSError, match="Input/output error"):
            file.flush()
        with pytest.raises(PoisonedFileError):
            file.release(3)


BY_DESCRIPTOR: dict[str, Callable[[io.WriteFile, Path], object]] = {
    "write": lambda file, _path: file.write_at(0, b"abc"),
    "write many": lambda file, _path: file.write_at(0, *[b"a"] * 2000),
    "truncate": lambda file, _path: file.truncate(9),
    "release": lambda file, _path: file.release(0),
    "flush": lambda file, _path: file.flush(),
    "flush a directory": lambda _file, path: io.flush_directory(path),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("what", BY_DESCRIPTOR)
def test_an_error_of_a_call_by_descriptor_names_the_file(
    tmp_path: Path, what: str, number: int
) -> None:
    with (
        io.WriteFile.open(tmp_path / "x", create=True) as file,
        refusing("pwritev", "ftruncate", "fsync", "fdatasync", code=number),
        pytest.raises(OSError, match=os.strerror(number)) as refused,
    ):
        BY_DESCRIPTOR[what](file, tmp_path)
    named = tmp_path if what == "flush a directory" else tmp_path / "x"
    assert (refused.value.errno, refused.value.filename) == (number, str(named))
    assert io.is_full(refused.value) is (number != errno.EIO)


def test_several_may_find_out_at_a_time_whether_a_directory_has_room(tmp_path: Path) -> None:
    opened = os.open
    others = [1, 2]

    def beaten(path: str, flags: int, mode: int = 0o777) -> int:
        if others:
            others.pop()
            (tmp_path / io.ROOM_NAME).write_bytes(b"")
        return opened(path, flags, mode)

    with io.calls_replaced(io.Calls(open=beaten)):
        assert io.has_room(tmp_path, 1000)
    assert not others
    assert not list(tmp_path.iterdir())
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda _: io.has_room(tmp_path, 1000), range(400)))
    assert not list(tmp_path.iterdir())


def test_a_link_put_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    tree, victim = tmp_path / "tree", tmp_path / "victim"
    for place in (tree / "a", tree / "b", victim / "inner"):
        place.mkdir(parents=True)
        (place / "file").touch()
    first, second = (entry.path for entry in os.scandir(tree))

    def unlink(name: str, **where: int) -> None:
        if os.path.isdir(second) and not os.path.islink(second):
            os.rename(second, tmp_path / "gone")
            os.symlink(victim, second)
        os.unlink(name, **where)

    with io.calls_replaced(io.Calls(unlink=unlink)), pytest.raises(NotADirectoryError) as caught:
        io.remove_tree(tree)
    assert caught.value.filename == second
    assert not os.path.exists(first)
    assert sorted(path.name for path in victim.rglob("*")) == ["file", "inner"]


def test_a_tree_is_removed_with_its_links_and_what_is_gone_already(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    for name in ("file", "a/file", "a/b/file"):
        (tree / name).touch()
    (tmp_path / "kept").touch()
    (tree / "link").symlink_to(tmp_path)
    io.remove_tree(tree)
    io.remove_tree(tree)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        io.remove_tree(tmp_path / "link")
