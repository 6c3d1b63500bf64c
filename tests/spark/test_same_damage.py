"""One story for one damage, whoever is asked: verify, recover, readers, dump, info, Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import kseg
from kseg.analysis.verify import verify
from kseg.cli.main import run
from kseg.errors import KsegError
from kseg.format.header import stop_code
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from tests import reference
from tests.spark.rows import read
from tests.unit.log.damaged import NOW, plain

RECORDS = 41
#: The batch that is damaged, counted from the first of its segment; one without index entry.
NUMBER = 5


@dataclass(frozen=True)
class Case:
    """What is done to the segment, and what each door must make of it.

    Attributes:
        spoil: the segment's bytes, and where the damaged batch begins.
        code: the one word for it.
        benign: no damage, at the end of the log.
    """

    spoil: Callable[[bytearray, int], object]
    code: str
    benign: bool = False


def put(offset: int, new: bytes) -> Callable[[bytearray, int], object]:
    def spoil(data: bytearray, at: int) -> None:
        data[at + offset : at + offset + len(new)] = new

    return spoil


def cut(data: bytearray, _at: int) -> None:
    del data[-20:]


def add(tail: bytes) -> Callable[[bytearray, int], object]:
    return lambda data, _at: data.extend(tail)


LAST: dict[str, Case] = {
    "a length past the end": Case(put(8, b"\x40\0\0\0"), "batch-length"),
    "a negative length": Case(put(8, b"\xff"), "batch-length"),
    "an unknown magic": Case(put(16, b"\x09"), "batch-magic"),
    "another byte in a record": Case(put(80, b"\xff"), "batch-crc"),
    "a page of zeros": Case(put(0, bytes(200)), "batch-length"),
    "half a batch more": Case(add(plain(bytes(60))[:70]), "torn-tail", benign=True),
    "a few bytes more": Case(add(b"torn"), "torn-tail", benign=True),
    "zeros at the end": Case(add(bytes(300)), "zero-tail", benign=True),
}
EARLIER: dict[str, Case] = {
    "a length past the end": LAST["a length past the end"],
    "another byte in a record": LAST["another byte in a record"],
    "a segment that was cut": Case(cut, "batch-length"),
    "zeros at the end": Case(add(bytes(300)), "zero-tail"),
}
CASES = [(True, name) for name in LAST] + [(False, name) for name in EARLIER]


@dataclass(frozen=True)
class Damaged:
    """A partition, its damaged segment, and where a walk ends in front of the damage."""

    directory: Path
    log: Path
    case: Case
    position: int
    code: str


@pytest.fixture(params=CASES, ids=lambda case: f"{'last' if case[0] else 'earlier'}: {case[1]}")
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Damaged:
    is_last, name = request.param
    case = (LAST if is_last else EARLIER)[name]
    config = LogConfig(segment_bytes=3000, index_interval_bytes=500)
    with Log.open(
        tmp_path / "data" / "t-0", mode="append", create=True, config=config, now_ms=lambda: NOW
    ) as log:
        for number in range(RECORDS):
            log.append(plain(bytes([number]) * 60, time=NOW + number), leader_epoch=1)
    paths = sorted(log.path.glob("*.log"))
    path = paths[-1] if is_last else paths[0]
    whole = path.read_bytes()
    batches = reference.walk(whole).batches
    data = bytearray(whole)
    case.spoil(data, batches[NUMBER].position)
    path.write_bytes(bytes(data))
    at = batches[NUMBER if len(data) == len(whole) else -1].position
    at = len(whole) if len(data) > len(whole) else at
    return Damaged(log.path, path, case, at, case.code)


def test_verify_names_it(damaged: Damaged) -> None:
    report = verify(damaged.directory)
    found = [f for f in report.findings if f.path == str(damaged.log)]
    assert [(f.code, f.position, f.severity) for f in found] == [
        (damaged.code, damaged.position, "warning" if damaged.case.benign else "error")
    ]
    places = [(lost.path, lost.position) for lost in report.lost]
    assert places == ([] if damaged.code == "zero-tail" else [(str(damaged.log), damaged.position)])


def test_recovery_names_it_and_loses_what_verify_finds_behind(damaged: Damaged) -> None:
    plan = plan_recovery(damaged.directory, clean=False, recovery_point=0)
    (found,) = (f for f in plan.findings if f.path == str(damaged.log))
    assert (found.code, found.position) == (damaged.code, damaged.position)
    told = [(lost.path, lost.position) for lost in plan.lost]
    seen = [(lost.path, lost.position) for lost in verify(damaged.directory).lost]
    assert [place for place in told if place in seen] == seen


def test_readers_end_there_or_refuse_it(damaged: Damaged) -> None:
    for given in (damaged.directory, damaged.log):
        if damaged.case.benign:
            list(kseg.scan(given))
            continue
        with pytest.raises(KsegError) as caught:
            list(kseg.scan(given))
        assert caught.value.position == damaged.position
        assert caught.value.stop is not None
        assert stop_code(caught.value.stop) == damaged.code


def test_spark_has_a_row_for_it(damaged: Damaged) -> None:
    rows = read(damaged.directory, "offset", "position", "corrupt", onCorrupt="permissive")
    told = [row for row in rows.to_pylist() if row["corrupt"] is not None]
    assert [(row["corrupt"].split(":")[0], row["position"]) for row in told] == (
        [] if damaged.case.benign else [(damaged.code, damaged.position)]
    )


def test_verbs_exit_alike(damaged: Damaged, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for words in (("verify",), ("read",)):
        code = run([*words, str(damaged.directory)])
        assert code == (0 if damaged.case.benign else 1), words
    shown = run(["dump", "--format", "jsonl", str(damaged.directory)])
    # What a crash leaves of a batch is shown as what it is: not a batch.
    assert shown == (0 if damaged.case.benign and damaged.code == "zero-tail" else 1)
    seen = run(["info", str(damaged.directory)])  # headers alone: checksums are not compared
    assert seen == (0 if damaged.case.benign or damaged.code == "batch-crc" else 1)
    capsysbinary.readouterr()
