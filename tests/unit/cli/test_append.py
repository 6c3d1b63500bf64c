"""`kseg append`: what becomes of lines, what is said, and what is refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.files import io
from tests.unit.cli.conftest import Kseg

NEW = "a new partition; there was none\n"


def lines(*values: str) -> bytes:
    return b"".join(json.dumps({"value": v}).encode() + b"\n" for v in values)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def values_of(path: Path) -> list[bytes | None]:
    with kseg.Log.open(path) as log:
        return [record.value for record in log.records()]


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
