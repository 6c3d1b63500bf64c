"""Rows of records: every form, what is absent, and rows larger than the buffer."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

import kseg as package
from kseg.cli.rows import RECORD_FIELDS, RowWriter, Style, record_rows
from kseg.format.columns import decode
from kseg.format.header import scan
from kseg.format.request import Request
from kseg.format.values import RecordColumns
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg

FIELDS = tuple(field.name for field in RECORD_FIELDS if field.name != "next_offset")


def columns_of(data: bytes, fields: tuple[str, ...] = FIELDS) -> list[RecordColumns]:
    request = Request(columns=fields, control=True, verify_crc=False)
    return list(decode(memoryview(data), scan(data, on_bad_crc="note"), request))


def written(data: bytes, style: Style, *, buffer_bytes: int = 1 << 16) -> str:
    out = bytearray()
    writer = RowWriter(out.extend, buffer_bytes)
    for columns in columns_of(data):
        writer.rows(record_rows(columns, style), len(columns))
    return out.decode()


def lines(data: bytes, **look: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(data, Style("jsonl", **look)).splitlines()]


def test_hostile_bytes_reach_no_terminal_raw() -> None:
    hostile = bytes(range(256)) + "\u202e\u2028\x9b31m".encode()
    data = batch([record(hostile, key=hostile, headers=[(hostile, hostile)])])
    for form in ("text", "jsonl", "csv"):
        text = written(data, Style(form, "utf8", directory="d\x1b", file="f\n"))
        steering = set(text) & {chr(c) for c in (*range(32), *range(127, 160), 0x202E, 0x2028)}
        assert steering <= {"\n", "\r"}
        assert text.count("\n") == 1


@pytest.mark.parametrize("form", ["jsonl", "csv", "text"])
@pytest.mark.parametrize("encoding", ["base64", "hex", "utf8"])
def test_rows_larger_than_the_buffer_come_out_the_same(form: str, encoding: str) -> None:
    chance = random.Random(5)
    large = [
        record(chance.randbytes(3000), key=b"k", headers=[(b"n", chance.randbytes(n * 50))] * n)
        for n in range(9)
    ]
    large[2] = record("世界".encode() * 900, key=None)
    large[3] = record(b"v", headers=[("名".encode() * 500, None)])
    style = Style(form, encoding, file="f")
    assert written(batch(large), style, buffer_bytes=1024) == written(
        batch(large), style, buffer_bytes=1 << 20
    )


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


SYNC = text("orders") + struct.pack(">i", 3)
CHECKPOINT = text("billing") + SYNC
TWO = struct.pack(">qq", 10, 7)
PLACE = {"topic": "orders", "partition": 3}
OFFSETS = {"upstreamOffset": 10, "offset": 7}


@pytest.mark.parametrize(
    ("topic", "key", "value", "expected"),
    [
        ("mm2-offset-syncs.b.internal", SYNC, TWO, ("OFFSET_SYNC", PLACE, OFFSETS)),
        ("mm2-offset-syncs.b.internal", SYNC, None, ("OFFSET_SYNC", PLACE, None)),
        (
            *("a.checkpoints.internal", CHECKPOINT, b"\0\0" + TWO + text("m")),
            ("CHECKPOINT", {"group": "billing", **PLACE}, {**OFFSETS, "metadata": "m"}),
        ),
        (
            *("connect-offsets", b'["c",{"file":"x"}]', b'{"position":5}'),
            (
                "CONNECT_OFFSET",
                {"connector": "c", "source": {"file": "x"}},
                {"offset": {"position": 5}},
            ),
        ),
        (
            *("my.connect-offsets", b'["c",null]', None),
            ("CONNECT_OFFSET", {"connector": "c", "source": None}, None),
        ),
    ],
)
def test_topics_of_connect_and_mirrormaker_are_decoded(
    kseg: Kseg,
    tmp_path: Path,
    topic: str,
    key: bytes,
    value: bytes | None,
    expected: tuple[str, Any, Any],
) -> None:
    with package.Log.open(tmp_path / f"{topic}-0", mode="append", create=True) as log:
        log.append({"key": [key], "value": [value]})
    for verb in ("read", "dump"):
        (row,) = kseg(verb, tmp_path / f"{topic}-0", "--format", "jsonl").rows
        assert (row["type"], row["key"], row["value"], row["reason"]) == (*expected, None)
        assert row["tombstone"] is (value is None)


@pytest.mark.parametrize(
    ("word", "key", "value", "reason"),
    [
        ("checkpoints", CHECKPOINT, b"\0\1" + TWO, "version 1 of CHECKPOINT is not known, only 0"),
        ("checkpoints", CHECKPOINT[:5], None, "group has 7 bytes, 3 are left"),
        ("offset-syncs", SYNC, TWO[:9], "offset has 8 bytes, 1 are left"),
        ("offset-syncs", None, TWO, "the size of topic has 2 bytes, 0 are left"),
        ("connect-offsets", b"[" * 100_000, b"{}", "the key: not JSON"),
        ("connect-offsets", b'["c"]', b"{}", "not a connector and a source"),
        ("connect-offsets", b'["c",{}]', b"9" * 5000, "the value: not JSON"),
    ],
)
def test_damaged_records_of_connect_stay_bytes(
    kseg: Kseg, tmp_path: Path, word: str, key: bytes | None, value: bytes | None, reason: str
) -> None:
    with package.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        log.append({"key": [key], "value": [value]})
    ran = kseg("read", tmp_path / "t-0", "--decode", word, "--format", "jsonl")
    (row,) = ran.rows
    assert reason in row["reason"]
    assert (row["value"] is None) is (value is None)
