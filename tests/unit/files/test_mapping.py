from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg.errors import CorruptRecordError, SegmentInUseError
from kseg.files import io, lock
from kseg.files.mapping import MappedFile, cutting, held_by_another
from tests.unit.files.foreign import holding

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


def test_what_outlives_a_view_keeps_its_bytes(path: Path) -> None:
    with MappedFile.open(path) as file, file.view() as view:
        kept = np.frombuffer(view, dtype=np.uint8)
    assert kept.tobytes() == DATA


def fail_over(file: MappedFile) -> None:
    with file.view() as view, memoryview(view) as part:
        kept = np.frombuffer(part, dtype=np.uint8)
        raise KeyError(len(kept))


def test_an_error_in_a_view_is_not_hidden_by_what_its_frames_hold(path: Path) -> None:
    with MappedFile.open(path) as file, pytest.raises(KeyError):
        fail_over(file)


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


def test_an_empty_file_has_an_empty_view(path: Path, mapping: Any) -> None:
    path.write_bytes(b"")
    with MappedFile.open(path, mapping) as file:
        assert (file.size, bytes(file.read(0, 10))) == (0, b"")
        if file.mapped:
            with file.view() as view:
                assert len(view) == 0


def test_growth_is_seen_after_a_refresh(path: Path, mapping: Any) -> None:
    with MappedFile.open(path, mapping) as file:
        with path.open("ab") as writer:
            writer.write(b"more")
        assert file.size == len(DATA)
        assert bytes(file.read(len(DATA), 4)) == b""
        assert file.refresh() == file.size == len(DATA) + 4
        assert bytes(file.read(len(DATA), 9)) == b"more"
        if file.mapped:
            with file.view() as view:
                assert bytes(view[-4:]) == b"more"


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


def test_a_directory_that_another_process_holds_is_read_through_windows(path: Path) -> None:
    with holding(path.parent.parent):
        assert held_by_another(path)
        with MappedFile.open(path) as file:
            assert not file.mapped
            assert bytes(file.read(0, len(DATA))) == DATA
        with MappedFile.open(path, "always") as file:
            assert file.mapped
    with MappedFile.open(path) as file:
        assert file.mapped


def test_the_data_directory_is_found_from_a_relative_path(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with holding(path.parent.parent), MappedFile.open(path.name) as file:
        assert not file.mapped


def test_a_lock_that_cannot_be_looked_at_counts_as_held(path: Path) -> None:
    (path.parent.parent / ".lock").mkdir()
    with MappedFile.open(path) as file:
        assert not file.mapped


def test_a_file_that_shrinks_while_its_broker_lives_is_an_error_not_a_crash(path: Path) -> None:
    with holding(path.parent.parent), MappedFile.open(path) as file:
        os.truncate(path, 1000)
        assert bytes(file.read(0, 1000)) == DATA[:1000]
        for position, size in ((0, 1001), (999, 2), (1000, 1), (5000, 100)):
            with pytest.raises(CorruptRecordError, match="shrank") as caught:
                file.read(position, size)
            assert (caught.value.path, caught.value.position) == (str(path), position)
        assert file.refresh() == 1000
        assert bytes(file.read(0, 5000)) == DATA[:1000]


def test_a_file_that_shrinks_between_asking_and_mapping_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kseg.files.io.file_size", lambda _fd: len(DATA) + 1)
    with pytest.raises(CorruptRecordError, match="shrank"):
        MappedFile.open(path)


def test_a_file_that_is_mapped_further_than_is_kept_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(5_000))
    with MappedFile.open(path, "always"):
        with cutting({path: 5_000}):
            pass
        with pytest.raises(SegmentInUseError) as caught, cutting({path: 4_999}):
            pass
        assert (caught.value.path, caught.value.position) == (str(path), 4_999)
    with cutting({path: 0, tmp_path / "missing": 0}):
        pass


def test_a_map_is_in_use_as_long_as_anything_looks_into_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    file = MappedFile.open(path, "always")
    view = file.pin()
    file.close()
    with pytest.raises(SegmentInUseError), cutting({path: 0}):
        pass
    assert bytes(view) == b"abc"
    view.release()
    with cutting({path: 0}):
        pass


def test_nobody_maps_a_file_while_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    with cutting({path: 0}):
        with MappedFile.open(path, "always") as file:
            assert not file.mapped
            assert bytes(file.read(0, 3)) == b"abc"
        os.truncate(path, 1)
    with MappedFile.open(path, "always") as file:
        assert (file.mapped, file.size) == (True, 1)


def test_a_file_that_is_cut_is_read_on_without_a_map_once_it_is_looked_at_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    with MappedFile.open(path, "always") as file:
        with cutting({path: 3}):
            path.write_bytes(b"abcdef")
            assert (file.refresh(), file.mapped) == (6, False)
        assert bytes(file.read(3, 3)) == b"def"


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
