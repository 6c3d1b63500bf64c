from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kseg.files import io
from kseg.log.recovery.backup import Backup, default_place

NOW = 1_760_000_000_123


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    path.mkdir(parents=True)
    return path


def aside(partition: Path) -> Backup:
    return Backup(partition.parent, now_ms=NOW)


def refusing(name: str, number: int) -> io.Calls:
    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return io.Calls(**{name: refuse})


def test_a_clock_beyond_the_calendar_names_a_place_too(tmp_path: Path) -> None:
    assert default_place(tmp_path / "data", 2**62).name == str(2**62)
    assert default_place(tmp_path / "data", -5).name == "-5"


@pytest.mark.parametrize("tail", [b"", b"\0" * 100, b"\0" * (2**20 + 7)])
def test_no_tail_and_zeros_alone_are_not_kept(partition: Path, tail: bytes) -> None:
    log = partition / "00000000000000000000.log"
    log.write_bytes(b"sound" + tail)
    assert aside(partition).keep_tail(log, 5) is None


def test_a_byte_behind_many_zeros_is_kept_with_them(partition: Path) -> None:
    log = partition / "00000000000000000000.log"
    log.write_bytes(b"sound" + b"\0" * (2**20 + 7) + b"x")
    kept = aside(partition).keep_tail(log, 5)
    assert kept is not None
    assert kept.kept.read_bytes() == b"\0" * (2**20 + 7) + b"x"


def test_the_same_tail_is_kept_once_and_another_beside_it(partition: Path) -> None:
    log = partition / "00000000000000000000.log"
    log.write_bytes(b"sound|torn")
    first = aside(partition).keep_tail(log, 6)
    again = aside(partition).keep_tail(log, 6)
    log.write_bytes(b"sound|other")
    other = aside(partition).keep_tail(log, 6)
    assert first is not None
    assert again is not None
    assert other is not None
    assert again.kept == first.kept
    assert other.kept.name == "00000000000000000000.log.from-6.2"
    assert (first.kept.read_bytes(), other.kept.read_bytes()) == (b"torn", b"other")


@pytest.mark.parametrize("number", [None, errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_a_file_that_is_replaced_keeps_its_bytes_mode_and_time(
    partition: Path, number: int | None
) -> None:
    """It gets a second name, or is copied where there are none."""
    index = partition / "00000000000000000000.index"
    index.write_bytes(b"garbage!")
    index.chmod(0o640)
    os.utime(index, ns=(5, 5))
    calls = io.Calls() if number is None else refusing("link", number)
    with io.calls_replaced(calls):
        kept = aside(partition).keep_file(index)
    assert kept is not None
    assert (kept.kept.stat().st_ino == index.stat().st_ino) == (number is None)
    new = partition / "new"
    new.write_bytes(b"entries")
    new.replace(index)
    status = kept.kept.stat()
    assert kept.kept.read_bytes() == b"garbage!"
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o640, 5)


def test_a_copy_of_a_sparse_file_is_sparse(partition: Path) -> None:
    index = partition / "00000000000000000000.index"
    index.write_bytes(b"entries ")
    os.truncate(index, 10 << 20)
    with io.calls_replaced(refusing("link", errno.EXDEV)):
        kept = aside(partition).keep_file(index)
    assert kept is not None
    assert kept.kept.read_bytes() == index.read_bytes()
    assert kept.kept.stat().st_blocks * 512 <= 4096


def test_another_error_of_linking_is_not_hidden(partition: Path) -> None:
    index = partition / "00000000000000000000.index"
    index.write_bytes(b"garbage!")
    with (
        io.calls_replaced(refusing("link", errno.EIO)),
        pytest.raises(OSError, match="Input/output"),
    ):
        aside(partition).keep_file(index)


@pytest.mark.parametrize("place", ["data", "data/kept", "other/kept"])
def test_no_place_lies_in_a_data_directory(partition: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").touch()
    with pytest.raises(ValueError, match="lies in a data directory"):
        Backup(partition.parent, tmp_path / place, now_ms=NOW)


@pytest.mark.parametrize("level", ["", "/20251009T085320.123Z"])
def test_a_link_in_the_place_of_the_backup_is_refused(partition: Path, level: str) -> None:
    elsewhere = partition.parent.parent / "elsewhere"
    elsewhere.mkdir()
    place = Path(f"{partition.parent}.kseg-backup{level}")
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    with pytest.raises(OSError, match="a symbolic link") as caught:
        aside(partition)
    assert caught.value.filename == str(place)
    Backup(partition.parent, elsewhere, now_ms=NOW)


def test_a_link_in_the_place_of_a_partitions_backup_is_refused(partition: Path) -> None:
    chosen, elsewhere = partition.parent.parent / "chosen", partition.parent.parent / "elsewhere"
    chosen.mkdir()
    elsewhere.mkdir()
    (chosen / "orders-0").symlink_to(elsewhere)
    log = partition / "00000000000000000000.log"
    log.write_bytes(b"sound")
    with pytest.raises(OSError, match="a symbolic link"):
        Backup(partition.parent, chosen, now_ms=NOW).keep_file(log)
    assert os.listdir(elsewhere) == []
