"""A disk that does not give bytes: the rest is read, what is missing is said, nothing is cut."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import kseg
from kseg.analysis.verify import verify
from kseg.change.run import copy_partition
from kseg.cli.main import run
from kseg.errors import UnreadableError
from kseg.files import io
from kseg.files.index import probe_offset, probe_upper_bound
from kseg.files.log_file import LogFile
from kseg.files.mapping import MappedFile
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from kseg.log.log import Log
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.recover import plan_recovery
from kseg.log.recovery.reindex import difference
from tests.bad_sectors import bad_sectors
from tests.unit.log.made import Told, fill, offsets_of, open_log, told

LOG = "00000000000000000000.log"


Ranges = tuple[tuple[int, int], ...]

#: Of a segment of some 74,000 bytes in batches of some hundred bytes.
RANGES: dict[str, Ranges] = {
    "in the middle": ((40_960, 45_056),),
    "two": ((8_192, 12_288), (61_440, 65_536)),
    "two with a few batches between them": ((8_192, 12_288), (16_384, 20_480)),
    "at the start": ((0, 4_096),),
    "at the end": ((69_632, 200_000),),
    "at the start and the end": ((0, 8_192), (69_632, 200_000)),
    "every fourth page": tuple((at, at + 4_096) for at in range(0, 69_632, 16_384)),
    "all": ((0, 200_000),),
}


def touched(partition: Path, ranges: Ranges, segment: int = 0) -> list[Told]:
    """The batches of a segment that bytes are missing of."""
    return [
        each
        for each in told(partition)
        if each.segment == segment
        and any(each.position < end and start < each.position + each.size for start, end in ranges)
    ]


def readable(partition: Path, ranges: Ranges) -> list[int]:
    """The offsets of the others, and of all other segments."""
    gone = {each.base_offset for each in touched(partition, ranges)}
    return [
        offset
        for each in told(partition)
        if each.base_offset not in gone
        for offset in range(each.base_offset, each.last_offset + 1)
    ]


def within(path: Path, ranges: Ranges) -> list[tuple[int, int]]:
    """The ranges as far as the file goes."""
    size = path.stat().st_size
    return [(start, min(end, size)) for start, end in ranges]


def skipping(path: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets that a scan gives, and the ranges that it has passed over."""
    scan = kseg.scan(path, mapping="never", on_corrupt="skip")
    offsets = offsets_of(scan)
    assert all(isinstance(error, UnreadableError) for error in scan.errors)
    return offsets, [(error.position, error.end) for error in scan.errors]  # type: ignore


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two partitions of two segments each."""
    home = tmp_path_factory.mktemp("unreadable") / "data"
    for name in ("t-0", "t-1"):
        with open_log(home / name, create=True, segment_bytes=100_000) as log:
            fill(log, [2] * 1_200)
            assert len(log.segments) == 2
    return home


@pytest.fixture
def data(closed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(closed, tmp_path / "data"))


# ---- whose bytes they are ------------------------------------------------------------------------

#: What is to read a file by its descriptor, and which file that is.
Reader = tuple[Path, Callable[[], object]]


def _backup(log: Path, there: Path) -> Backup:
    return Backup(log.parent.parent, there, now_ms=0)


def a_tail_that_was_kept_before(log: Path, there: Path) -> Reader:
    kept = _backup(log, there).keep_tail(log, 10)
    assert kept is not None
    return kept.kept, lambda: _backup(log, there).keep_tail(log, 10)


READERS: dict[str, Callable[[Path, Path], Reader]] = {
    "a tail that is kept": lambda log, there: (log, lambda: _backup(log, there).keep_tail(log, 10)),
    "a tail that was kept before": a_tail_that_was_kept_before,
    "a partition that is copied": lambda log, there: (
        log,
        lambda: copy_partition(log.parent, there),
    ),
    "a mapped file": lambda log, _: (log, lambda: MappedFile.open(log, "never").read(0, 10)),
    "a fetch": lambda log, _: (log, lambda: Log.open(log.parent).fetch(0)),
}
#: How an index of the log is read.
INDEX_READERS: dict[str, Callable[[Path], object]] = {
    "a probe": lambda index: probe_offset(index, 0, 1_000),
    "a probe of a bound": lambda index: probe_upper_bound(index, 0, 1_000),
    "a comparison": lambda index: difference(index, b"", 8),
}


@pytest.mark.parametrize("reader", [*READERS, *INDEX_READERS])
def test_whoever_reads_by_a_descriptor_names_the_file(
    data: Path, tmp_path: Path, reader: str
) -> None:
    (there := tmp_path / "there").mkdir()
    log = data / "t-0" / LOG
    index = log.with_suffix(".index")
    if reader in READERS:
        path, act = READERS[reader](log, there)
    else:
        path, act = index, lambda: INDEX_READERS[reader](index)
    inode = path.stat().st_ino

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return os.pread(fd, size, position)

    with io.reads_replaced(pread), pytest.raises(OSError, match="Stale") as caught:
        act()
    assert caught.value.filename == str(path)


# ---- what goes on --------------------------------------------------------------------------------


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
    whole = verify(data, mapping="never")
    with bad_sectors(data / name, (0, 4096)):
        report = verify(data, mapping="never")
    codes = {(each.code, each.path) for each in report.findings if each.severity == "error"}
    assert codes == {("unreadable", str(data / name))}
    assert report.batches == whole.batches


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_what_lies_behind_a_range_is_read(data: Path, ranges: Ranges) -> None:
    partition, log = data / "t-0", data / "t-0" / LOG
    expected, whole = readable(partition, ranges), verify(partition, mapping="never")
    with bad_sectors(log, *ranges):
        assert skipping(partition) == (expected, within(log, ranges))
        report = verify(partition, deep=True, mapping="never")
    assert {each.code for each in report.findings} == {"unreadable"}
    told_of = [(each.position, each.message) for each in report.findings]
    assert [position for position, _ in told_of] == [start for start, _ in within(log, ranges)]
    for (_, end), (_, message) in zip(within(log, ranges), told_of, strict=True):
        assert f"up to {end}:" in message
    assert report.batches == whole.batches - len(touched(partition, ranges))
    assert report.records == len(expected)


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_what_is_lost_with_a_range_is_told(data: Path, ranges: Ranges) -> None:
    partition, log = data / "t-0", data / "t-0" / LOG
    missing = touched(partition, ranges)
    with bad_sectors(log, *ranges):
        lost = verify(partition, mapping="never").lost
    assert {each.path for each in lost} == {str(log)}
    gone = [
        (each.position, offset)
        for each in lost
        for offset in range(_known(each.first_offset), _known(each.last_offset) + 1)
    ]
    offsets = [x for each in missing for x in range(each.base_offset, each.last_offset + 1)]
    assert [offset for _, offset in gone] == offsets
    assert {position for position, _ in gone} <= {each.position for each in missing}
    assert sum(each.bytes for each in lost) == sum(each.size for each in missing)
    count = len([each for each in told(partition) if not each.segment])
    behind = missing[0].base_offset // 2 + len(missing)
    assert lost[0].sound_behind == count - behind


def _known(number: int | None) -> int:
    assert number is not None
    return number


@pytest.mark.parametrize("size", [9_000, 17_000_000])
def test_a_page_that_is_missing_in_a_batch_costs_that_batch_alone(
    tmp_path: Path, size: int
) -> None:
    """Also one of zeros, which what stands for it must not be taken for."""
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    values = [[b"a", b"b"], [bytes(size)] * 2, [bytes(size)] * 3, [b"c"]]
    bases = [0, 2, 4, 7]
    batches = [
        encode_batch({"value": some}, BatchOptions(), base_offset=base).data
        for base, some in zip(bases, values, strict=True)
    ]
    path.write_bytes(b"".join(batches))
    position, end = len(batches[0]), len(batches[0]) + len(batches[1])
    hole = end // 4096 * 4096 - 4096
    assert path.read_bytes()[hole : hole + 4_096] == bytes(4_096)
    with bad_sectors(path, (hole, hole + 4_096)):
        assert skipping(path.parent) == ([0, 1, 4, 5, 6, 7], [(hole, hole + 4_096)])
        (lost,) = verify(path.parent, mapping="never").lost
    assert (lost.position, lost.bytes, lost.batches) == (position, end - position, 1)
    assert (lost.first_offset, lost.last_offset, lost.records) == (2, 3, 2)


def test_a_damaged_batch_in_front_of_a_range_hides_nothing_behind_it(data: Path) -> None:
    log, hole = data / "t-0" / LOG, (40_960, 45_056)
    missing = touched(data / "t-0", (hole,))
    before = missing[0].base_offset - 2
    expected = [x for x in readable(data / "t-0", (hole,)) if x not in (before, before + 1)]
    with log.open("r+b") as file:  # its last offset, which the checksum covers
        file.seek(missing[0].position - missing[0].size + 23)
        file.write((2**30).to_bytes(4, "big"))
    with bad_sectors(log, hole):
        scan = kseg.scan(data / "t-0", mapping="never", on_corrupt="skip")
        assert offsets_of(scan) == expected
        assert [type(error).__name__ for error in scan.errors] == [
            "CorruptRecordError",
            "UnreadableError",
        ]


def test_ranges_in_one_batch_are_told_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with open_log(tmp_path / "data" / "t-0", create=True) as log:
        fill(log, [1, 2, 1], size=20_000)
    path = tmp_path / "data" / "t-0" / LOG
    ranges = ((24_576, 28_672), (40_960, 45_056))
    with bad_sectors(path, *ranges):
        assert skipping(path.parent) == ([0, 3], list(ranges))


def test_zeros_that_end_a_log_are_given_up_where_they_are_missing(data: Path) -> None:
    log = data / "t-0" / LOG
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(2**20))
    hole = (size // 4096 * 4096 + 600_000 // 4096 * 4096, size // 4096 * 4096 + 700_416)
    offsets = readable(data / "t-0", ())
    with bad_sectors(log, hole):
        assert skipping(data / "t-0") == (offsets, [hole])


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_parts_of_a_log_give_what_the_whole_gives(data: Path, ranges: Ranges) -> None:
    log = data / "t-0" / LOG
    truncations = [each.position for each in told(data / "t-0") if not each.segment][::97]
    truncations = [*truncations, log.stat().st_size]
    errors: list[UnreadableError] = []

    def positions(start: int, limit: int) -> list[int]:
        tiles = file.walk(start=start, limit=limit, on_unreadable=errors.append)
        return [at for tile in tiles for at in tile.table.position.tolist()]

    with bad_sectors(log, *ranges), LogFile.open(log, "never") as file:
        whole = positions(0, file.size)
        parts = [at for start, limit in pairwise(truncations) for at in positions(start, limit)]
    assert parts == whole


def test_many_ranges_cost_reading_a_few_times_over(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with open_log(tmp_path / "data" / "t-0", create=True, segment_index_bytes=10**6) as log:
        fill(log, [1] * 3_000, size=200)
    path = tmp_path / "data" / "t-0" / LOG
    size = path.stat().st_size
    ranges = tuple((at, at + 4_096) for at in range(4_096, size - 4_096, 8_192))
    errors: list[UnreadableError] = []
    asked = 0

    def counted(fd: int, count: int, position: int) -> bytes:
        nonlocal asked
        data = missing(fd, count, position)
        asked += len(data)
        return data

    with bad_sectors(path, *ranges), LogFile.open(path, "never") as file:
        missing = io._pread
        with io.reads_replaced(counted):
            found = sum(len(tile.table) for tile in file.walk(on_unreadable=errors.append))
    whole = [each for each in told(path.parent) if not each.segment]
    assert found == len(whole) - len(touched(path.parent, ranges))
    assert [(error.position, error.end) for error in errors] == list(ranges)
    assert asked < 8 * size


def test_dump_and_export_give_what_lies_behind(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ranges = RANGES["two"]
    expected = readable(data / "t-0", ranges)
    read = ["--mapping", "never", "--format", "jsonl"]
    out = ["-o", str(tmp_path / "out.jsonl"), "--on-corrupt", "skip"]
    with bad_sectors(data / "t-0" / LOG, *ranges):
        assert run(["dump", *read, str(data / "t-0")]) == 1
        assert run(["export", *read, str(data / "t-0"), *out]) == 1
    sys.stdout.flush()
    said = capfd.readouterr()
    dumped = [json.loads(line)["offset"] for line in said.out.splitlines() if line[0] == "{"]
    exported = (tmp_path / "out.jsonl").read_text().splitlines()
    assert dumped == expected
    assert [json.loads(line)["offset"] for line in exported] == expected
    for start, end in ranges:
        assert said.err.count(f"does not give {end - start} bytes, up to {end}:") == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [(["dump"], 1), (["verify"], 1), (["export", "--on-corrupt", "skip"], 1), (["export"], 3)],
)
def test_verbs_go_on_and_exit_with_1_but_an_export_that_may_not_skip(
    data: Path, tmp_path: Path, words: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "out"), "--format", "jsonl"] if words[0] == "export" else []
    with bad_sectors(data / "t-0" / LOG, (40_960, 45_056)):
        assert run([*words, "--mapping", "never", str(data), *out]) == code
    sys.stdout.flush()
    said = capfd.readouterr()
    assert "does not give 4096 bytes, up to 45056" in said.out + said.err


@pytest.mark.damages("the disk does not give a file")
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
            plan.apply()
        assert run(["recover", str(data), "--apply", "--no-backup"]) == 1
    assert {path: path.read_bytes() for path in bad.iterdir()} == before
    assert (other / LOG).stat().st_size < 41_000
    assert verify(other).ok
    assert not (data / ".kafka_cleanshutdown").exists()
    assert run(["recover", str(data), "--apply", "--no-backup"]) == 0
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_log_whose_bytes_are_not_given_is_not_opened_for_appending(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    sizes = {path: path.stat().st_size for path in (data / "t-0").iterdir()}
    with bad_sectors(data / "t-0" / LOG, (8_192, 12_288)), pytest.raises(UnreadableError):
        Log.open(data / "t-0", mode="append", recover=True)
    assert {path: path.stat().st_size for path in (data / "t-0").iterdir()} == sizes
