"""Whoever reads lives on, whatever becomes of the file: a SIGBUS would end its process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg.analysis.verify import verify
from kseg.files.mapping import MappedFile
from kseg.log.recovery.recover import recover
from tests.unit.log.made import fill, new_log, open_log, told

LOG = "00000000000000000000.log"
INDEXES = ("00000000000000000000.index", "00000000000000000000.timeindex")
#: Maps the files, says so, and reads them to their ends when its input ends.
READ_LATE = """
import sys
from kseg.files.mapping import MappedFile
files = [MappedFile.open(path, sys.argv[1]) for path in sys.argv[2:]]
views = [file.pin() for file in files]
print(flush=True)
sys.stdin.read()
print([len(view) - bytes(view).count(0) for view in views])
"""
#: Walks and looks up, as a user does.
READ_ALL = """
import sys
import kseg
from kseg.cli.main import run
for columns in kseg.scan(sys.argv[1]):
    pass
with kseg.Log.open(sys.argv[1]) as log:
    log.lookup(log.log_end_offset - 1)
    log.lookup_time(0)
for verb in (["info"], ["verify", "--deep"]):
    assert run([*verb, sys.argv[1]]) == 0, verb
"""


def long_log(root: Path) -> Path:
    """A log that was closed: one segment of many pages, with indexes of some."""
    log = new_log(root, segment_index_bytes=1 << 20)
    fill(log, [1] * 2_000)
    log.close()
    return log.path


def cut_back(path: Path) -> None:
    with open_log(path) as log:
        assert log.truncate_to(3)
        fill(log, [2])
    assert [each.base_offset for each in told(path)] == [0, 1, 2, 3]


def cut_by_a_repair(path: Path) -> None:
    recover(path, clean=False, keep_cut=False)
    assert (path / LOG).stat().st_size <= 1_000
    assert verify(path).ok


def cut_indexes_at_the_end(path: Path) -> None:
    with open_log(path, segment_index_bytes=1 << 20) as log:
        fill(log, [2])
        assert (path / INDEXES[0]).stat().st_size == 1 << 20
    assert (path / INDEXES[0]).stat().st_size < 1 << 20


def as_it_is(_path: Path) -> None:
    pass


def damage(path: Path) -> None:
    with (path / LOG).open("r+b") as file:
        file.seek(1_000)
        file.write(bytes(100))


def preallocate(path: Path) -> None:
    """As a process that was killed has left its indexes."""
    for name in INDEXES:
        os.truncate(path / name, 1 << 20)


@pytest.mark.parametrize(
    ("before", "cut"),
    [(as_it_is, cut_back), (damage, cut_by_a_repair), (preallocate, cut_indexes_at_the_end)],
)
def test_a_process_that_has_mapped_a_log_reads_it_to_its_end_whoever_cuts_it(
    tmp_path: Path, before: Callable[[Path], None], cut: Callable[[Path], None]
) -> None:
    path = long_log(tmp_path)
    before(path)
    files = sorted(map(str, path.glob("*0.*")))
    there = [len(data) - data.count(0) for data in (Path(file).read_bytes() for file in files)]
    command = [sys.executable, "-c", READ_LATE, "always", *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"\n"
        cut(path)
        seen, _ = reader.communicate()
    assert (reader.returncode, seen.decode().strip()) == (0, str(there))
    assert not list(path.glob("*.tmp"))


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory, of two megabytes."""
    place = tmp_path / "tmpfs"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount is not None and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "kseg-test", str(place)],
        check=False,
        capture_output=True,
    )
    if not made or made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_tmpfs_with_files_that_have_holes_is_read(small_tmpfs: Path) -> None:
    path = long_log(small_tmpfs)
    for name in (LOG, *INDEXES):  # as a broker preallocates, and leaves them when it is killed
        os.truncate(path / name, 8_388_600)
    (path.parent / ".kafka_cleanshutdown").unlink()
    fill_up(small_tmpfs / "filler")
    with MappedFile.open(path / LOG) as log, MappedFile.open(path / INDEXES[0]) as index:
        assert (log.mapped, index.mapped) == (False, False)
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4_096)):
                pass
        except OSError:
            return


def test_an_index_on_a_tmpfs_is_read(small_tmpfs: Path) -> None:
    path = small_tmpfs / INDEXES[0]
    path.write_bytes(b"1" * (1 << 20))
    with MappedFile.open(path, index=True) as index, MappedFile.open(path) as log:
        assert (index.mapped, log.mapped) == (False, True)
