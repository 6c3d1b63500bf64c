"""A log that another process holds and writes: whole batches are seen, and nothing crashes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg import CorruptRecordError, Log, Segment, scan
from kseg.analysis.verify import verify
from kseg.constants import StopReason
from kseg.files.mapping import MappedFile
from kseg.log.recovery.recover import recover
from tests.builders import batch, record, write_segment
from tests.unit.log.brute import Whole, rows
from tests.unit.log.made import fill, new_log, open_log, told
from tests.unit.log.writing import writing

#: Plain, compressed and old batches, as a broker wrote them.
SOURCES = [
    "new/4.2.0-plain/plain-0",
    "new/4.2.0-lz4/lz4-mixed-0",
    "old/0.10.0.1-fmt-mixed/fmt-mixed-0",
]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, fixtures_dir: Path) -> Path:
    """A segment of a fixture, to copy batches from."""
    segment: Path = sorted((fixtures_dir / request.param).glob("*.log"))[0]
    return segment


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The empty first segment of `data/live-0`."""
    return write_segment(tmp_path / "data" / "live-0", 0)


def offsets(log: Log) -> list[int]:
    return [row["offset"] for row in rows(log.read(columns=("offset",), control=True))]


def test_a_reader_sees_whole_batches_of_a_log_that_grows(source: Path, live: Path) -> None:
    whole = Whole.of(source)
    ends = (whole.table.position + whole.table.size).tolist()[:20]
    with writing(live.parent.parent, live) as writer:
        log, written = Log.open(live.parent), 0
        for end in ends:
            before = offsets(log)
            # Half a batch, then all of it: the first half is nobody's record yet.
            middle = (written + end) // 2
            writer.append(source, written, middle)
            assert offsets(log) == before
            log = log.refresh()
            assert offsets(log) == before
            writer.append(source, middle, end)
            written = end
            assert offsets(log) == before
            log = log.refresh()
            assert offsets(log) == whole.offsets[whole.positions < end].tolist()
            last = int(whole.table.last_offset[ends.index(end)])
            assert log.log_end_offset == log.last_stable_offset == last + 1
            assert log.lookup(last).position == int(whole.table.position[ends.index(end)])
        with Segment.open(live) as segment:
            assert not segment.mapped


def test_a_log_that_is_cut_under_a_reader_is_an_error(live: Path) -> None:
    source = live.parent.parent / "source"
    source.write_bytes(b"".join(batch([record(bytes(3000))], base_offset=at) for at in range(400)))
    with writing(live.parent.parent, live) as writer:
        writer.append(source, 0, source.stat().st_size)
        reading = Log.open(live.parent).read(max_rows=1)
        assert len(next(reading)) == 1
        writer.cut(5000)
        with pytest.raises(CorruptRecordError, match="shrank") as caught:
            list(reading)
        assert caught.value.path == str(live)
        errors: list[CorruptRecordError] = []
        log = Log.open(live.parent)
        assert [row["offset"] for row in rows(log.read(on_corrupt=errors.append))] == [0]  # type: ignore[arg-type]
        assert errors == []
        with Segment.open(live) as segment:
            assert segment.batches().stop is StopReason.TORN_TAIL


def test_retention_under_a_reader_is_a_missing_file_or_none(live: Path) -> None:
    partition = live.parent
    parts = [batch([record()], base_offset=at) for at in range(4)]
    live.write_bytes(b"".join(parts[:2]))
    write_segment(partition, 2, *parts[2:])
    with writing(partition.parent, live) as writer:
        log = Log.open(partition)
        begun = log.records(max_rows=1)
        assert next(begun).offset == 0
        writer.delete(live)
        # The one that is open is read to its end; what is opened later is gone.
        assert [got.offset for got in begun] == [1, 2, 3]
        with pytest.raises(FileNotFoundError):
            list(log.records())
        with pytest.raises(FileNotFoundError):
            list(scan(live))
        assert offsets(log.refresh()) == [2, 3]
        assert [row["offset"] for row in rows(scan(partition, columns=("offset",)))] == [2, 3]


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


def test_a_log_ends_where_its_empty_last_segment_begins(tmp_path: Path) -> None:
    """Compaction or an erasure may have taken the last batches in front of it."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batch([record(b"x")]))
    write_segment(directory, 8)
    with Log.open(directory) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 8)
