"""A disk that does not give bytes: the rest is read, what is missing is said, nothing is cut."""

from __future__ import annotations

import errno
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kseg
from kseg.analysis.verify import VerifyOptions, verify
from kseg.cli.main import run
from kseg.errors import UnreadableError
from kseg.files import io
from kseg.files.index_probe import probe_offset, probe_upper_bound
from kseg.files.mapping import MappedFile
from kseg.log.config import LogConfig
from kseg.log.copying import copy_partition
from kseg.log.differences import compare
from kseg.log.kept_aside import KeptAside
from kseg.log.partition import Log
from kseg.log.recovering import apply_recovery
from kseg.log.recovery import plan_recovery
from kseg.log.splitting import apply_split, plan_split
from tests.builders import write_segment
from tests.unit.log.logs import stored
from tests.unit.log.made import fill, open_log, told

LOG = "00000000000000000000.log"
NEVER = VerifyOptions(mapping="never")


@contextmanager
def bad_sectors(path: Path, *ranges: tuple[int, int]) -> Iterator[None]:
    """Let reads of these bytes of a file answer EIO."""
    inode = path.stat().st_ino

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            for start, end in ranges:
                if position < end and start < position + size:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(fd, size, position)

    with io.reads_replaced(pread):
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two partitions of two segments each, closed."""
    for name in ("t-0", "t-1"):
        with open_log(tmp_path / "data" / name, create=True, segment_bytes=100_000) as log:
            fill(log, [2] * 1_200)
            assert len(log.segments) == 2
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("bad", "asked", "told_of"),
    [
        ((4096, 8192), (0, 100_000), (4096, 8192)),
        ((4096, 8192), (5000, 10), (5000, 8192)),
        ((0, 4096), (0, 1), (0, 4096)),
        ((8192, 65_536), (0, 20_000), (8192, 65_536)),
        ((90_112, 100_000), (90_000, 10_000), (90_112, 100_000)),
        ((0, 100_000), (0, 100_000), (0, 100_000)),
    ],
)
def test_what_a_disk_does_not_give_is_told_by_its_range(
    tmp_path: Path, bad: tuple[int, int], asked: tuple[int, int], told_of: tuple[int, int]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    with (
        bad_sectors(path, bad),
        MappedFile.open(path, "never") as file,
        pytest.raises(UnreadableError, match="does not give") as caught,
    ):
        file.read(*asked)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.position, error.end) == (str(path), *told_of)


def test_other_errors_of_a_disk_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))

    def pread(fd: int, size: int, position: int) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with (
        MappedFile.open(path, "never") as file,
        io.reads_replaced(pread),
        pytest.raises(OSError, match="file") as caught,
    ):
        file.read(0, 10)
    assert caught.value.errno == errno.ESTALE


# ---- whose bytes they are ------------------------------------------------------------------------

#: What is to read a file by its descriptor, and which file that is.
Reader = tuple[Path, Callable[[], object]]


def a_tail_that_is_kept(log: Path, there: Path) -> Reader:
    return log, lambda: KeptAside(there, there, now_ms=0).keep_tail(log, 10)


def a_tail_that_was_kept_before(log: Path, there: Path) -> Reader:
    kept = KeptAside(there, there, now_ms=0).keep_tail(log, 10)
    assert kept is not None
    return kept.kept, lambda: KeptAside(there, there, now_ms=0).keep_tail(log, 10)


def a_partition_that_is_copied(log: Path, there: Path) -> Reader:
    return log, lambda: copy_partition(log.parent, there)


def a_fetch(log: Path, there: Path) -> Reader:
    return log, lambda: Log.open(log.parent).fetch(0)


def an_index_that_is_probed(log: Path, there: Path) -> Reader:
    index = log.with_suffix(".index")
    return index, lambda: probe_offset(index, 0, 1_000)


def a_bound_that_is_probed(log: Path, there: Path) -> Reader:
    index = log.with_suffix(".index")
    return index, lambda: probe_upper_bound(index, 0, 1_000)


def an_index_that_is_compared(log: Path, there: Path) -> Reader:
    index = log.with_suffix(".index")
    return index, lambda: compare(index, b"")


def a_segment_that_is_split(log: Path, there: Path) -> Reader:
    far = write_segment(there, 0, stored(0), stored(2**31))
    plan = plan_split(far)
    return far, lambda: apply_split(plan, config=LogConfig())


def a_piece_of_a_split_that_is_there(log: Path, there: Path) -> Reader:
    far = write_segment(there, 0, stored(0), stored(2**31))
    return write_segment(there, 2**31, stored(2**31)), lambda: plan_split(far)


READERS = [
    a_tail_that_is_kept,
    a_tail_that_was_kept_before,
    a_partition_that_is_copied,
    a_fetch,
    an_index_that_is_probed,
    a_bound_that_is_probed,
    an_index_that_is_compared,
    a_segment_that_is_split,
    a_piece_of_a_split_that_is_there,
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_whoever_reads_by_a_descriptor_names_the_file(
    data: Path, tmp_path: Path, reader: Callable[[Path, Path], Reader]
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    path, act = reader(data / "t-0" / LOG, there)
    inode = path.stat().st_ino

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return os.pread(fd, size, position)

    with io.reads_replaced(pread), pytest.raises(OSError, match="Stale") as caught:
        act()
    assert caught.value.filename == str(path)


# ---- what goes on --------------------------------------------------------------------------------


def test_verify_tells_the_range_and_looks_at_all_the_rest(data: Path) -> None:
    log = data / "t-0" / LOG
    whole = verify(data, options=NEVER)
    with bad_sectors(log, (40_960, 45_056)):
        report = verify(data, deep=True, options=NEVER)
    (found,) = report.findings
    assert (found.code, found.path, found.position) == ("unreadable", str(log), 40_960)
    assert "4096 bytes, up to 45056" in found.message
    assert (report.files, report.bytes) == (whole.files, whole.bytes)
    in_front = [each for each in told(data / "t-0") if each.position + each.size <= 40_960]
    assert report.batches >= whole.batches // 2 + len([x for x in in_front if not x.segment])


@pytest.mark.parametrize(
    "name",
    [
        "t-0/00000000000000000000.index",
        "t-0/00000000000000000000.timeindex",
        "t-0/leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
    ],
)
def test_verify_goes_on_beside_a_small_file_that_is_not_given(data: Path, name: str) -> None:
    whole = verify(data, options=NEVER)
    with bad_sectors(data / name, (0, 4096)):
        report = verify(data, options=NEVER)
    codes = {(each.code, each.path) for each in report.findings if each.severity == "error"}
    assert codes == {("unreadable", str(data / name))}
    assert report.batches == whole.batches


def test_readers_raise_or_skip(data: Path) -> None:
    log = data / "t-0" / LOG
    with bad_sectors(log, (40_960, 45_056)):
        with pytest.raises(UnreadableError):
            list(kseg.scan(data, mapping="never"))
        skipping = kseg.scan(data, mapping="never", on_corrupt="skip")
        count = sum(map(len, skipping))
        (error,) = skipping.errors
    assert isinstance(error, UnreadableError)
    assert (error.path, error.position, error.end) == (str(log), 40_960, 45_056)
    assert 2_400 < count < 4_800


@pytest.mark.parametrize("words", [["dump"], ["verify"], ["export", "--on-corrupt", "skip"]])
def test_verbs_go_on_and_exit_with_1(
    data: Path, tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "out"), "--format", "jsonl"] if words[0] == "export" else []
    with bad_sectors(data / "t-0" / LOG, (40_960, 45_056)):
        assert run([*words, "--mapping", "never", str(data), *out]) == 1
    sys.stdout.flush()
    said = capfd.readouterr()
    assert "does not give 4096 bytes, up to 45056" in said.out + said.err


def test_an_export_that_may_not_skip_ends_with_3(data: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "out"), "--format", "jsonl"]
    with bad_sectors(data / "t-0" / LOG, (40_960, 45_056)):
        assert run(["export", "--mapping", "never", str(data), *out]) == 3


@pytest.mark.parametrize("name", [LOG, "00000000000000000000.timeindex"])
def test_recovery_leaves_a_partition_that_the_disk_does_not_give(data: Path, name: str) -> None:
    bad, other = data / "t-0", data / "t-1"
    (data / "recovery-point-offset-checkpoint").unlink()
    (data / ".kafka_cleanshutdown").unlink()
    with (other / LOG).open("r+b") as file:
        file.seek(40_960)
        file.write(bytes(100))
    before = {path: path.read_bytes() for path in bad.iterdir()}
    with bad_sectors(bad / name, (0, 4_096)):
        plan = plan_recovery(bad, clean=False)
        assert isinstance(plan.error, UnreadableError)
        assert (plan.error.path, plan.actions) == (str(bad / name), ())
        with pytest.raises(UnreadableError):
            apply_recovery(plan)
        assert run(["recover", str(data), "--apply", "--no-backup"]) == 1
    assert {path: path.read_bytes() for path in bad.iterdir()} == before
    assert (other / LOG).stat().st_size < 41_000
    assert verify(other).ok
    assert not (data / ".kafka_cleanshutdown").exists()
    assert run(["recover", str(data), "--apply", "--no-backup"]) == 0
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_recovery_says_which_bytes_it_could_not_read(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (data / "recovery-point-offset-checkpoint").unlink()
    with bad_sectors(data / "t-0" / LOG, (8_192, 12_288)):
        assert run(["recover", str(data), "--unclean", "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    (error,) = [each["error"] for each in document["partitions"] if each["error"]]
    assert "does not give 4096 bytes, up to 12288" in error


def test_a_log_whose_bytes_are_not_given_is_not_opened_for_appending(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    sizes = {path: path.stat().st_size for path in (data / "t-0").iterdir()}
    with bad_sectors(data / "t-0" / LOG, (8_192, 12_288)), pytest.raises(UnreadableError):
        Log.open(data / "t-0", mode="append", recover=True)
    assert {path: path.stat().st_size for path in (data / "t-0").iterdir()} == sizes
