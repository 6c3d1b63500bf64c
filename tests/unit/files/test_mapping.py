from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import CorruptRecordError, SegmentInUseError
from kseg.files import io, lock, system_calls
from kseg.files.mapping import INDEX_BYTES_READ, MappedFile
from tests.stopping import refusing

DATA = bytes(range(256)) * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a partition directory of a data directory."""
    (tmp_path / "t-0").mkdir()
    file = tmp_path / "t-0" / "00000000000000000000.log"
    file.write_bytes(DATA)
    return file


@pytest.fixture(params=["auto", "always", "never"])
def mapping(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_reads_are_owned_read_only_and_clipped_to_the_size(path: Path, mapping: Any) -> None:
    with MappedFile.open(path, mapping) as file:
        assert (file.size, file.mapped) == (len(DATA), mapping != "never")
        part = file.read(100, 50)
        assert bytes(file.read(len(DATA) - 3, 50)) == DATA[-3:]
        assert bytes(file.read(len(DATA), 1)) == bytes(file.read(2**62, 2**62)) == b""
    assert bytes(part) == DATA[100:150]
    assert part.readonly


@pytest.mark.parametrize(("position", "size"), [(-1, 1), (0, -1)])
def test_negative_positions_are_refused(path: Path, position: int, size: int) -> None:
    with MappedFile.open(path) as file, pytest.raises(ValueError, match="negative"):
        file.read(position, size)


def test_a_view_is_the_whole_file_for_as_long_as_it_is_lent(path: Path) -> None:
    with MappedFile.open(path) as file:
        with file.view() as view:
            assert view == DATA
            assert view.readonly
        with pytest.raises(ValueError, match="released"):
            view[0]


def test_closing_under_a_view_takes_nothing_away(path: Path) -> None:
    file = MappedFile.open(path)
    with file.view() as view:
        file.close()
        file.close()
        assert file.closed
        assert view == DATA
    for use in (file.pin, file.refresh, lambda: file.read(0, 1)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_unmapped_file_lends_no_view(path: Path) -> None:
    with (
        MappedFile.open(path, "never") as file,
        pytest.raises(ValueError, match="windows"),
        file.view(),
    ):
        pass


def test_no_descriptor_is_left(path: Path, mapping: Any) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with MappedFile.open(path, mapping):
        pass
    MappedFile.open(path, mapping)  # and nobody closes it
    gc.collect()
    with pytest.raises(ValueError, match="mapping is one of"):
        MappedFile.open(path, "sometimes")  # type: ignore[arg-type]
    with pytest.raises(IsADirectoryError):
        MappedFile.open(path.parent, mapping)
    with pytest.raises(FileNotFoundError):
        MappedFile.open(path.parent / "absent", mapping)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_circle_closes_a_descriptor_once(path: Path) -> None:
    def abandoned() -> Any:
        file = MappedFile.open(path)
        try:
            yield file
        finally:
            file.close()

    walk = abandoned()
    next(walk).__del__()  # as the collector does, in front of the block
    with path.open("rb") as reused:
        walk.close()
        assert os.fstat(reused.fileno())


def test_a_lock_that_cannot_be_looked_at_counts_as_held(path: Path) -> None:
    (path.parent.parent / ".lock").mkdir()
    with MappedFile.open(path) as file:
        assert not file.mapped


def test_a_file_that_shrinks_between_asking_and_mapping_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kseg.files.io.file_size", lambda _fd: len(DATA) + 1)
    with pytest.raises(CorruptRecordError, match="shrank"):
        MappedFile.open(path)


def test_a_file_that_is_mapped_further_than_is_kept_goes_on_as_a_new_one(path: Path) -> None:
    inode = path.stat().st_ino
    os.chmod(path, 0o640)
    with MappedFile.open(path) as file, file.view() as view:
        with io.WriteFile.open(path) as writer:
            writer.truncate(4_999)
            writer.flush()
            assert (writer.size, path.stat().st_size) == (4_999, 4_999)
            writer.write_at(4_999, b"more")
            assert not MappedFile.open(path).mapped
        assert path.read_bytes() == DATA[:4_999] + b"more"
        assert (path.stat().st_ino != inode, path.stat().st_mode & 0o777) == (True, 0o640)
        assert view == DATA
    assert os.listdir(path.parent) == [path.name]


def test_a_map_is_in_use_as_long_as_anything_looks_into_it(path: Path) -> None:
    file = MappedFile.open(path)
    view = file.pin()
    file.close()
    inode = path.stat().st_ino
    with io.WriteFile.open(path) as writer:
        writer.truncate(1_000)
        assert path.stat().st_ino != inode
    assert view == DATA
    del view
    file = MappedFile.open(path)
    view = file.pin()
    file.close()
    view.release()
    inode = path.stat().st_ino
    with io.WriteFile.open(path) as writer:
        writer.truncate(0)
    assert path.stat().st_ino == inode


def test_nobody_maps_a_file_while_it_is_cut(path: Path) -> None:
    seen = []

    def cut(fd: int, size: int) -> None:
        child = [sys.executable, "-c", IS_MAPPED, str(path)]
        seen.append(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
        os.ftruncate(fd, size)

    with io.WriteFile.open(path) as writer, io.calls_replaced(io.Calls(ftruncate=cut)):
        writer.truncate(1)
    with MappedFile.open(path) as file:
        assert (file.mapped, file.size, seen) == (True, 1, ["False\n"])


IS_MAPPED = """
import sys
from kseg.files.mapping import MappedFile
with MappedFile.open(sys.argv[1]) as file:
    print(file.mapped)
"""


def test_a_child_that_has_a_part_in_a_map_keeps_the_bytes(path: Path) -> None:
    file = MappedFile.open(path)
    view = file.pin()
    asked, asks = os.pipe()
    child = os.fork()
    if not child:
        os.close(asks)
        os.read(asked, 1)
        os._exit(0 if bytes(view) == DATA else 1)
    os.close(asked)
    view.release()
    file.close()
    with io.WriteFile.open(path) as writer:
        writer.truncate(0)
    os.close(asks)
    assert os.waitpid(child, 0)[1] == 0


def test_what_cannot_be_locked_is_mapped_by_those_who_insist(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(_fd: int, _size: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(system_calls, "share", lacking)
    with MappedFile.open(path) as file, MappedFile.open(path, "always") as insisting:
        assert (file.mapped, insisting.mapped) == (False, True)


def test_a_cut_without_room_beside_a_map_names_bytes_and_reader(path: Path) -> None:
    with MappedFile.open(path) as file, io.WriteFile.open(path) as writer:
        assert file.mapped
        with (
            refusing("pwritev", code=errno.ENOSPC),
            pytest.raises(SegmentInUseError, match=f"process {os.getpid()} .* 999 bytes") as caught,
        ):
            writer.truncate(999)
        assert (caught.value.path, caught.value.position) == (str(path), 999)
        assert (writer.size, path.read_bytes()) == (len(DATA), DATA)
        assert os.listdir(path.parent) == [path.name]
        writer.truncate(998)
    assert path.read_bytes() == DATA[:998]


@pytest.mark.parametrize("at", range(8))
def test_a_cut_beside_a_map_that_fails_leaves_the_old_file_or_the_new_one(
    path: Path, at: int
) -> None:
    left = [at]

    def failing(call: Any) -> Any:
        def fail_once(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*args, **kwargs)

        return fail_once

    plain = io.Calls()
    names = ("open", "pwritev", "fsync", "fdatasync", "rename", "unlink", "chmod")
    calls = io.Calls(**{name: failing(getattr(plain, name)) for name in names})
    os.chmod(path, 0o640)
    with MappedFile.open(path) as file, file.view() as view, io.WriteFile.open(path) as writer:
        with io.calls_replaced(calls), suppress(OSError):
            writer.truncate(5_000)
        assert path.read_bytes() in (DATA, DATA[:5_000])
        assert os.path.samestat(path.stat(), os.fstat(writer.fd))
        assert writer.poisoned == (path.stat().st_size == 5_000 and left[0] < 0)
        assert view == DATA
    assert os.listdir(path.parent) == [path.name]
    assert left[0] >= 0 or at < 7


@pytest.mark.parametrize("size", [1, 5_000, 1 << 20])
def test_a_file_with_holes_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, size)
    with MappedFile.open(path) as file:
        assert not file.mapped
        assert bytes(file.read(0, size)) == bytes(size)


@pytest.mark.disk("an index in memory is never mapped")
@pytest.mark.parametrize(("size", "mapped"), [(INDEX_BYTES_READ, False), (1 << 20, True)])
def test_an_index_is_mapped_where_it_is_large_and_on_a_disk(
    tmp_path: Path, size: int, mapped: bool
) -> None:
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip("the temporary directory lies on no disk")
    path = tmp_path / "index"
    path.write_bytes(b"1" * size)
    with MappedFile.open(path, index=True) as index, MappedFile.open(path) as log:
        assert (index.mapped, log.mapped) == (mapped, True)


def test_a_file_that_this_process_writes_to_is_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    with io.WriteFile.open(path), MappedFile.open(path, "always") as file:
        assert not file.mapped
        assert bytes(file.read(0, 3)) == b"abc"
    with MappedFile.open(path, "always") as file:
        assert file.mapped


def test_a_lock_that_is_let_go_is_no_longer_written_to(tmp_path: Path) -> None:
    with lock.acquire(tmp_path):
        status = os.stat(tmp_path / ".lock")
        inode = (status.st_dev, status.st_ino)
        assert io.is_written(inode)
    assert not io.is_written(inode)


@pytest.mark.parametrize("index", [False, True])
def test_a_log_is_read_ahead_through_its_map_and_an_index_is_not(path: Path, index: bool) -> None:
    with MappedFile.open(path, "always", index=index) as file:
        assert bytes(file.read(0, 1)) == DATA[:1]
        (_, mapped) = Path("/proc/self/smaps").read_text().split(f" {path}\n")
        flags = mapped.partition("VmFlags:")[2].partition("\n")[0].split()
        assert ("sr" in flags) is not index
