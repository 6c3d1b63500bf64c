from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kseg.change.run import copy_partition
from kseg.errors import LogLockedError
from tests.unit.files.foreign import holding
from tests.unit.log.logs import failing

LOG = f"{0:020d}.log"
MARK = ".kafka_cleanshutdown"


def origin(directory: Path) -> Path:
    """A partition whose data directory has another one, too."""
    path = directory / "data" / "orders-3"
    path.mkdir(parents=True)
    (path / LOG).write_bytes(bytes(range(256)) * 5000)
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    (path / "folder").mkdir()
    (path.parent / "clicks-0").mkdir()
    (path.parent / MARK).touch()
    checkpoint = "0\n2\nclicks 0 1\norders 3 77\n"
    (path.parent / "recovery-point-offset-checkpoint").write_text(checkpoint)
    return path


def test_a_copy_has_the_files_with_their_times_and_rights(tmp_path: Path) -> None:
    source = origin(tmp_path)
    os.utime(source / LOG, ns=(5, 1_600_000_000_123_456_789))
    (source / LOG).chmod(0o640)
    copy = copy_partition(source, tmp_path / "copies")
    assert copy == tmp_path / "copies" / "orders-3"
    assert sorted(path.name for path in copy.iterdir()) == [LOG, "leader-epoch-checkpoint"]
    assert (copy / LOG).read_bytes() == (source / LOG).read_bytes()
    status = (copy / LOG).stat()
    assert status.st_mtime_ns == 1_600_000_000_123_456_789
    assert status.st_mode & 0o777 == 0o640


def test_a_copy_has_its_own_entries_of_the_checkpoints_and_the_mark(tmp_path: Path) -> None:
    copies = copy_partition(origin(tmp_path), tmp_path / "copies").parent
    assert (copies / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 3 77\n"
    assert (copies / MARK).exists()
    assert not (copies / ".lock").exists()


def test_nothing_is_copied_over(tmp_path: Path) -> None:
    source = origin(tmp_path)
    copy = copy_partition(source, tmp_path / "copies")
    (copy / LOG).write_bytes(b"")
    with pytest.raises(FileExistsError):
        copy_partition(source, tmp_path / "copies")
    assert (copy / LOG).read_bytes() == b""
    assert (copy.parent / MARK).exists()


@pytest.mark.parametrize("after", range(2))
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_copy_that_is_interrupted(
    tmp_path: Path, error: BaseException, after: int
) -> None:
    copies, source = tmp_path / "copies", origin(tmp_path)
    other = copies / "clicks-0"
    other.mkdir(parents=True)
    (copies / MARK).touch()
    with failing("pwritev", ends=LOG, error=error, after=after), pytest.raises(type(error)):
        copy_partition(source, copies)
    assert set(copies.iterdir()) == {other, copies / MARK}


def test_a_copy_that_cannot_be_removed_again_is_not_called_clean(tmp_path: Path) -> None:
    copies, source = tmp_path / "copies", origin(tmp_path)
    broken = OSError(errno.EIO, "Input/output error")
    failures = failing("pwritev", "unlink", ends=LOG, error=broken)
    with failures, pytest.raises(OSError, match="Input/output"):
        copy_partition(source, copies)
    assert (copies / "orders-3" / LOG).exists()
    assert not (copies / MARK).exists()


def test_what_another_process_writes_to_is_not_copied(tmp_path: Path) -> None:
    source = origin(tmp_path)
    with holding(source.parent), pytest.raises(LogLockedError):
        copy_partition(source, tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
