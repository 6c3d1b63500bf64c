"""A segment with offsets that overflow, as compaction before 1.1 could leave it, at every door.

Kafka splits it; kseg says what to do and writes nothing. A split that a broker has begun, and whose
files were all finished, is completed: the claims of Kafka's LogLoaderTest about that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import run
from kseg.errors import OffsetOverflowError
from kseg.files.names import list_partition
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery, recover
from tests.builders import write_segment
from tests.conformance.logs import INT_MAX, NOW_MS, one

STRIDE = INT_MAX + 1
KINDS = ("log", "index", "timeindex")
#: What to do, in the words of each refusal.
WAY_OUT = "kseg salvage copies the records"


def run_at(base: int) -> bytes:
    """Batches at base, base + 1 (two records), and the last offset that still fits."""
    return b"".join(
        one(b"%d" % (base + delta), base_offset=base + delta, count=count, leader_epoch=0)
        for delta, count in ((0, 1), (1, 2), (INT_MAX - 1, 1))
    )


def write(path: Path, *bases: int) -> None:
    """Write one segment of runs; empty indexes, so that none is missing."""
    write_segment(path, bases[0], *map(run_at, bases))
    for suffix in (".index", ".timeindex"):
        write_segment(path, bases[0], suffix=suffix)


@pytest.fixture
def overflowing(tmp_path: Path) -> Path:
    """Three segments; the middle one has two runs, the second too far from its base."""
    path = tmp_path / "data" / "t-0"
    for bases in ((0,), (STRIDE, 2 * STRIDE), (3 * STRIDE,)):
        write(path, *bases)
    return path


def files(path: Path) -> dict[str, bytes]:
    return {name.name: name.read_bytes() for name in sorted(path.iterdir())}


@pytest.mark.parametrize(
    "door",
    [
        lambda path: recover(path, clean=False),
        lambda path: recover(path, clean=False, as_broker=True),
        lambda path: plan_recovery(path, clean=False).apply(),
        lambda path: Log.open(path, mode="append", recover=True),
    ],
    ids=["recover", "as a broker", "plan", "open"],
)
def test_it_is_refused_in_words_and_nothing_is_written(
    overflowing: Path, door: Callable[[Path], object]
) -> None:
    before = files(overflowing)
    with pytest.raises(OffsetOverflowError, match=WAY_OUT) as caught:
        door(overflowing)
    middle = overflowing / f"{STRIDE:020d}.log"
    found = (caught.value.path, caught.value.position, caught.value.offset)
    assert found == (str(middle), len(run_at(STRIDE)), 2 * STRIDE)
    assert files(overflowing) == before


@pytest.mark.parametrize(
    "words", [("recover",), ("recover", "--as-broker"), ("recover", "--apply")]
)
def test_the_command_line_says_what_to_do(
    overflowing: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    before = files(overflowing)
    assert run([*words, str(overflowing)]) != 0
    said = capsys.readouterr()
    assert WAY_OUT in said.out + said.err
    assert files(overflowing) == before


def test_verify_and_doctor_find_it(overflowing: Path) -> None:
    found = {finding.code for finding in kseg.verify(overflowing).findings}
    assert "offset-range" in found
    (outlook,) = kseg.doctor(overflowing.parent).directories[0].partitions
    (finding,) = (one for one in outlook.findings if one.code == "not-imitated")
    assert WAY_OUT in finding.message
    assert finding.mend == f"kseg salvage {overflowing} -o OUT"


def test_salvage_copies_all_records_into_segments_that_hold_them(
    overflowing: Path, tmp_path: Path
) -> None:
    with Log.open(overflowing) as log:
        records = [(found.offset, found.value) for found in log.records()]
    assert len(records) == 16
    assert run(["salvage", str(overflowing), "-o", str(tmp_path / "out")]) == 0
    with Log.open(tmp_path / "out" / "t-0") as log:
        assert [(found.offset, found.value) for found in log.records()] == records
    assert kseg.verify(tmp_path / "out").ok


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ((one(base_offset=5), one(base_offset=2**50), one(base_offset=6)), 1),
        ((one(base_offset=5), one(base_offset=2**40, crc=1)), 1),
    ],
    ids=["the next batch does not follow", "a checksum"],
)
def test_a_far_offset_of_a_damaged_batch_is_cut_off(
    tmp_path: Path, parts: tuple[bytes, ...], kept: int
) -> None:
    path = write_segment(tmp_path / "t-0", 0, *parts)
    recover(path.parent, clean=False, keep_cut=False)
    assert path.read_bytes() == b"".join(parts[:kept])


# ---- a split that a broker has begun -------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """The files of the two new segments."""
    path = tmp_path / "parts"
    for base in (STRIDE, 2 * STRIDE):
        write(path, base)
    return path


def add(path: Path, parts: Path, base: int, suffix: str) -> None:
    for kind in KINDS:
        name = f"{base:020d}.{kind}"
        shutil.copy(parts / name, path / (name + suffix))


def drop_old(path: Path) -> None:
    for kind in KINDS:
        name = path / f"{STRIDE:020d}.{kind}"
        name.rename(name.with_name(name.name + ".deleted"))


def swapped(path: Path, parts: Path) -> None:
    for base in (STRIDE, 2 * STRIDE):
        add(path, parts, base, ".swap")


def swapped_and_deleted(path: Path, parts: Path) -> None:
    swapped(path, parts)
    drop_old(path)


def renamed_but_the_last(path: Path, parts: Path) -> None:
    drop_old(path)
    add(path, parts, STRIDE, "")
    add(path, parts, 2 * STRIDE, ".swap")


@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("state", [swapped, swapped_and_deleted, renamed_but_the_last])
def test_ldr_29_30_31_32_a_split_that_is_all_swapped_is_completed(
    overflowing: Path, parts: Path, state: Callable[[Path, Path], None], as_broker: bool
) -> None:
    with Log.open(overflowing) as log:
        records = [(found.offset, found.value) for found in log.records()]
    state(overflowing, parts)
    recover(overflowing, as_broker=as_broker, clean=False, now_ms=NOW_MS, keep_cut=False)
    bases = [segment.base_offset for segment in list_partition(overflowing).segments]
    assert bases == [0, STRIDE, 2 * STRIDE, 3 * STRIDE]
    with Log.open(overflowing) as log:
        assert [(found.offset, found.value) for found in log.records()] == records
    assert [name for name in files(overflowing) if name.count(".") > 1] == []
