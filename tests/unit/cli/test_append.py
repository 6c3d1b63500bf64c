"""`kseg append`: what becomes of lines, what is said, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.constants import Compression
from kseg.files import io, lock
from tests.unit.cli.conftest import Kseg

NOW_MS = 1_760_000_000_123
NEW = "a new partition; there was none\n"


def lines(*values: str | None, **more: object) -> bytes:
    return b"".join(json.dumps({"value": v, **more}).encode() + b"\n" for v in values)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def values_of(path: Path) -> list[bytes | None]:
    with kseg.Log.open(path) as log:
        return [record.value for record in log.records()]


def test_lines_become_records_of_a_directory_that_was_absent(kseg: Kseg, target: Path) -> None:
    ran = kseg("append", target, "--bytes", "utf8", stdin=lines("a", None, "c"))
    assert (ran.code, ran.err) == (0, f"kseg: {target}: {NEW}")
    assert ran.text.startswith(f"{target}: offsets 0 to 2; records: 3, batches: 1, ")
    assert values_of(target) == [b"a", None, b"c"]


def test_what_read_prints_goes_in_again(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    given = kseg("read", orders, "--format", "jsonl")
    copy = tmp_path / "copy" / "orders-0"
    ran = kseg("append", copy, "--keep-timestamps", "--codec", "zstd", stdin=given.out)
    assert ran.code == 0
    kept = ("offset", "timestamp", "key", "value", "headers")
    rows = kseg("read", copy, "--format", "jsonl").rows
    assert [[row[name] for name in kept] for row in rows] == [
        [row[name] for name in kept] for row in given.rows
    ]
    assert {row["codec"] for row in rows} == {"zstd"}


def test_times_are_those_of_the_clock_unless_they_are_kept(kseg: Kseg, target: Path) -> None:
    given = lines("a", timestamp=7)
    kseg("append", target, "--bytes", "utf8", "--now", NOW_MS, stdin=given)
    kseg("append", target, "--bytes", "utf8", "--keep-timestamps", "--now", NOW_MS, stdin=given)
    rows = kseg("read", target, "--format", "jsonl").rows
    assert [row["timestamp"] for row in rows] == [NOW_MS, 7]


def test_batches_are_as_large_as_was_asked(kseg: Kseg, target: Path) -> None:
    ran = kseg(
        "append", target, "--bytes", "utf8", "--batch-records", 2, "--json", stdin=lines(*"abcde")
    )
    assert (ran.document["batches"], ran.document["last_offset"]) == (3, 4)
    batches = kseg("dump", target, "--batches", "--format", "jsonl").rows
    assert [(row["base_offset"], row["count"]) for row in batches] == [(0, 2), (2, 2), (4, 1)]


def test_settings_are_those_of_the_log(kseg: Kseg, target: Path) -> None:
    ran = kseg(
        "append",
        target,
        *("--bytes", "utf8", "--batch-records", 1, "--config", "segment.bytes=100"),
        *("--config", "compression.type=gzip", "--durable"),
        stdin=lines("a" * 50, "b" * 50),
    )
    assert ran.code == 0
    assert [path.name for path in sorted(target.glob("*.log"))] == [
        "00000000000000000000.log",
        "00000000000000000001.log",
    ]
    with kseg_log(target) as log:
        batches = [b for info in log.segments for b in log.open_segment(info).batches()]
    assert {batch.compression for batch in batches} == {Compression.GZIP}


def kseg_log(path: Path) -> kseg.Log:
    return kseg.Log.open(path)


def test_control_records_are_left_out_and_said(kseg: Kseg, target: Path) -> None:
    given = lines("a") + lines("b", control=True) + lines("c")
    ran = kseg("append", target, "--bytes", "utf8", stdin=given)
    assert ran.code == 0
    assert ran.err == f"kseg: {target}: {NEW}kseg: line 2: a control record; left out\n"
    assert values_of(target) == [b"a", b"c"]


def test_many_control_records_are_counted(kseg: Kseg, target: Path) -> None:
    ran = kseg("append", target, "--bytes", "utf8", stdin=lines(*"b" * 30, control=True))
    assert (ran.code, len(ran.err.splitlines())) == (0, 12)
    assert ran.err.endswith("kseg: 30 control records in all; left out\n")
    assert ran.text == f"{target}: nothing appended\n"


def test_a_bad_line_is_named_and_what_was_in_front_of_it_is_said(kseg: Kseg, target: Path) -> None:
    given = lines(*["x" * 1000] * 6000) + b"{}\n"
    ran = kseg("append", target, "--bytes", "utf8", "--json", stdin=given)
    assert ran.code == 2
    assert ran.err == f"kseg: {target}: {NEW}kseg: line 6001: no value; a tombstone says null\n"
    appended = ran.document["last_offset"] + 1
    assert 0 < appended <= 6000
    assert len(values_of(target)) == appended


@pytest.mark.parametrize(
    ("refused", "doubt"),
    [("pwritev", ""), ("fdatasync", ", but it is not known whether they last")],
)
def test_a_full_disk_is_said_and_what_was_appended_before(
    kseg: Kseg, target: Path, refused: str, doubt: str
) -> None:
    def refuse(fd: int, *rest: Any) -> Any:
        log = os.readlink(f"/proc/self/fd/{fd}").endswith(".log")
        if log and (refused == "fdatasync" or rest[1] > 200):
            raise OSError(errno.ENOSPC, "No space left on device")
        return getattr(os, refused)(fd, *rest)

    # Whatever flushes a log's bytes is refused.
    calls = io.Calls(**({"fdatasync": refuse, "fsync": refuse} if doubt else {refused: refuse}))
    given = lines("a" * 60, "b" * 60, "c" * 60)
    with io.calls_replaced(calls):
        ran = kseg("append", target, "--bytes", "utf8", "--batch-records", 1, stdin=given)
    last = 2 if doubt else 1
    assert (ran.code, ran.out) == (3, b"")
    assert f"kseg: offsets 0 to {last} were appended before{doubt}\n" in ran.err
    assert "No space left on device" in ran.err


def test_a_log_that_refuses_a_record_is_no_damage(kseg: Kseg, target: Path) -> None:
    ran = kseg(
        "append",
        target,
        *("--bytes", "utf8", "--config", "cleanup.policy=compact", "--json"),
        stdin=lines("a"),
    )
    assert (ran.code, ran.document["first_offset"]) == (2, None)
    assert "key" in ran.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--config", "segment.byte=1"], "'segment.byte' is not a setting"),
        (["--codec", "gzip", "--level", "99"], "level"),
        (["--batch-bytes", str(2**40)], "batch_bytes"),
        (["--bytes", "octal"], "octal"),
    ],
)
def test_what_cannot_be_asked_is_usage_and_makes_nothing(
    kseg: Kseg, target: Path, words: list[str], reason: str
) -> None:
    ran = kseg("append", target, *words, stdin=lines("YQ=="))
    assert (ran.code, reason in ran.err, ran.out) == (2, True, b"")
    assert not target.exists()


def test_a_file_is_no_partition(kseg: Kseg, tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    path.write_bytes(b"x")
    ran = kseg("append", path, stdin=lines("YQ=="))
    assert (ran.code, path.read_bytes()) == (3, b"x")


def test_a_directory_that_another_process_holds_is_left_alone(kseg: Kseg, orders: Path) -> None:
    before = {path.name: path.read_bytes() for path in orders.iterdir()}
    hold = (
        "import sys\nfrom pathlib import Path\nfrom kseg.files import lock\n"
        "with lock.acquire(Path(sys.argv[1])):\n    print('held', flush=True)\n    input()\n"
    )
    command = [sys.executable, "-c", hold, str(orders.parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        ran = kseg("append", orders, stdin=lines("YQ=="))
        other.communicate(b"\n")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (3, b"", 1)
    assert {path.name: path.read_bytes() for path in orders.iterdir()} == before


def test_a_log_that_was_not_shut_down_cleanly_wants_recover(kseg: Kseg, orders: Path) -> None:
    before = {path.name: path.read_bytes() for path in orders.iterdir()}
    ran = kseg("append", orders, stdin=lines("YQ=="))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, b"", 2)
    assert "kseg recover" in ran.err
    assert {path.name: path.read_bytes() for path in orders.iterdir()} == before
    assert lock.holder(orders.parent) is None


def test_a_name_that_is_no_partitions_is_refused_with_the_path_that_was_given(
    kseg: Kseg, tmp_path: Path
) -> None:
    ran = kseg("append", tmp_path / "data" / "orders", stdin=b'{"value": "AA=="}\n')
    assert ran.code == 3
    assert ran.err.startswith(f"kseg: {tmp_path}/data/orders: not a partition directory's name")
    assert not (tmp_path / "data").exists()
