"""`kseg read --follow`: what is there, then what comes, until somebody has enough."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kseg as library
from tests.builders import COMMIT, batch, control_batch, record
from tests.unit.cli.conftest import Kseg, Ran

KSEG = [sys.executable, "-W", "error", "-c", "from kseg.cli.main import main; main()"]
#: Of a call that must come back, in s.
PATIENCE_S = 60


def one(value: bytes, **fields: Any) -> bytes:
    return batch([record(value, key=b"k-" + value, timestamp=7)], leader_epoch=-1, **fields)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[library.Log]:
    """A log with the records `0` and `1`, open for appending."""
    with library.Log.open(tmp_path / "data" / "orders-0", mode="append", create=True) as made:
        for value in (b"0", b"1"):
            made.append(one(value))
        yield made


@contextmanager
def later(work: Callable[[], object]) -> Iterator[None]:
    """Do something soon, beside what the block does."""
    timer = threading.Timer(0.3, work)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def values(ran: Ran) -> list[str]:
    return [row["value"] for row in ran.rows]


def follow(kseg: Kseg, log: library.Log, *words: object) -> Ran:
    return kseg("read", log.path, "--follow", "--format", "jsonl", "--bytes", "utf8", *words)


def test_what_is_there_comes_first_then_what_is_appended(kseg: Kseg, log: library.Log) -> None:
    def append() -> None:
        log.append(one(b"2"))
        log.roll()
        log.append(one(b"3"))

    with later(append):
        ran = follow(kseg, log, "--limit", 4)
    assert (ran.code, ran.err, values(ran)) == (0, "", ["0", "1", "2", "3"])
    assert {(row["dir"], row["codec"], row["valid"]) for row in ran.rows} == {
        ("orders-0", "none", True)
    }


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--offset", "1..3"], ["1", "2"]),
        (["--offset", "2..", "--limit", 1], ["2"]),
        (["--last", 1, "--offset", "..4"], ["1", "2", "3"]),
        (["--last", 0, "--offset", "..3"], ["2"]),
        (["--key", "k-3", "--limit", 1], ["3"]),
        (["--time", "8..", "--limit", 1], ["4"]),
    ],
)
def test_ranges_keys_and_the_last_records_count_as_ever(
    kseg: Kseg, log: library.Log, words: list[object], found: list[str]
) -> None:
    def append() -> None:
        log.append([one(b"2"), one(b"3")])
        log.append(batch([record(b"4", timestamp=8)], leader_epoch=-1))

    with later(append):
        ran = follow(kseg, log, *words)
    assert (ran.code, values(ran)) == (0, found)


def test_committed_records_come_when_they_are_decided(kseg: Kseg, log: library.Log) -> None:
    log.append(one(b"2", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(one(b"3"))

    def commit() -> None:
        log.append(control_batch(COMMIT), origin=library.broker.AppendOrigin.COORDINATOR)

    with later(commit):
        ran = follow(kseg, log, "--isolation", "read_committed", "--limit", 4)
    assert values(ran) == ["0", "1", "2", "3"]


def test_one_partition_is_followed_at_a_time(kseg: Kseg, orders: Path, payments: Path) -> None:
    for paths in ([orders, payments], [orders.parent]):
        ran = kseg("read", *paths, "--follow")
        assert (ran.code, "one is wanted" in ran.err) == (2, True)
    (segment, *_rest) = orders.glob("*.log")
    assert kseg("read", segment, "--follow").code == 3


@contextmanager
def running(log: library.Log, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*KSEG, "read", str(log.path), "--follow", "--format", "jsonl", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        yield process


def test_another_process_sees_each_record_at_once_and_may_be_interrupted(log: library.Log) -> None:
    with running(log, "--bytes", "utf8") as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["value"] for _ in range(2)]
        for value in (b"2", b"3"):
            log.append(one(value))
            seen.append(json.loads(process.stdout.readline())["value"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
    assert seen == ["0", "1", "2", "3"]
