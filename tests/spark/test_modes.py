"""Rows that are not records: batches and segments as `dump` and `info` have them, and damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from kseg.cli.main import cli
from kseg.errors import CorruptRecordError, UnreadableError
from kseg.files import mapping
from kseg.spark import schema
from kseg.spark.options import parse_options
from tests.bad_sectors import bad_sectors
from tests.builders import ZSTD, batch, control_batch, record, write_segment
from tests.spark.rows import read as table


def read(path: Path, **given: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(path, **given).to_pylist()
    return rows


def kseg_rows(*words: object) -> list[dict[str, Any]]:
    ran = CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False)
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments: plain and compressed, a marker, and an empty one."""
    path = tmp_path / "orders-3"
    rows = [record(b"v%d" % number, timestamp=1_000 + number) for number in range(4)]
    write_segment(path, 0, batch(rows[:2]), batch(rows[2:], base_offset=2, codec=ZSTD))
    data = batch([record(timestamp=2_000)], base_offset=4, producer_id=7, producer_epoch=0,
                 base_sequence=0, transactional=True)  # fmt: skip
    marker = control_batch(1, base_offset=5, producer_id=7)
    write_segment(path, 4, data, marker)
    write_segment(path, 6)
    return path


CAMEL = {
    "base_offset": "baseOffset", "last_offset": "lastOffset", "base_sequence": "baseSequence",
    "last_sequence": "lastSequence", "producer_id": "producerId",
    "producer_epoch": "producerEpoch", "leader_epoch": "leaderEpoch",
    "delete_horizon_ms": "deleteHorizonMs", "base_timestamp": "baseTimestamp",
    "max_timestamp": "maxTimestamp", "timestamp_type": "timestampType", "crc_ok": "crcOk",
}  # fmt: skip
UNTOLD = ("base_offset", "count")
KINDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def test_batches_of_every_fixture_are_those_of_dump(fixture_cases: list[Path]) -> None:
    seen = 0
    for case in fixture_cases:
        for path in sorted(case.rglob("*.log")):
            dumped = kseg_rows("dump", "--batches", "--format", "jsonl", path)
            found = read(path, mode="batches", onCorrupt="skip")
            assert len(found) == len(dumped), path
            for ours, theirs in zip(found, dumped, strict=True):
                theirs["timestamp_type"] = KINDS[theirs["timestamp_type"]]
                for name, value in theirs.items():
                    # Of compressed messages only their contents tell, which dump looks into.
                    told = ours["magic"] == 2 or ours["codec"] == "none"
                    if name not in ("file", "dir") and (told or name not in UNTOLD):
                        assert ours[CAMEL.get(name, name)] == value, (path, name)
            seen += len(found)
    assert seen > 500


def test_counts_of_every_fixture_are_those_of_info(fixture_cases: list[Path]) -> None:
    seen = 0
    for case in fixture_cases:
        for path in sorted(one for one in case.iterdir() if any(one.glob("*.log"))):
            (document,) = kseg_rows("info", "--json", path)
            (told,) = document["partitions"]
            segments = read(path, mode="segments", onCorrupt="skip")
            batches = read(path, mode="batches", onCorrupt="skip")
            assert len(segments) == told["segments"], path
            assert len(batches) == told["batches"] == sum(row["batches"] for row in segments), path
            assert sum(row["bytes"] for row in segments) == told["bytes"]
            if told["records"] is not None:
                assert sum(row["count"] for row in batches) == told["records"]
                assert sum(row["records"] for row in segments) == told["records"]
            for row, file in zip(segments, told["segment_files"], strict=True):
                assert row["path"].endswith(file["file"])
                for ours, theirs in (("lastOffset", "last_offset"), ("codecs", "codecs"),
                                     ("minTimestamp", "min_timestamp"), ("stop", "stop"),
                                     ("maxTimestamp", "max_timestamp"), ("magics", "magics"),
                                     ("endPosition", "end_position")):  # fmt: skip
                    assert row[ours] == file[theirs], (path, ours)
            seen += len(segments)
    assert seen > 20


@pytest.mark.parametrize(
    ("given", "bases"),
    [
        ({"startingOffsets": "3"}, [2, 4, 5]),
        ({"endingOffsets": "2"}, [0]),
        ({"startingTimestamp": "1003"}, [2, 4]),
        ({"isolation": "read_committed"}, [0, 2, 4, 5]),
    ],
)
def test_batches_are_those_that_can_hold_a_wanted_record(
    log: Path, given: dict[str, str], bases: list[int]
) -> None:
    assert [row["baseOffset"] for row in read(log, mode="batches", **given)] == bases


def test_a_wrong_checksum_is_a_column_of_batches_and_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write_segment(path, 0, batch([record()], crc=5), batch([record()], base_offset=1))
    assert [row["crcOk"] for row in read(path, mode="batches")] == [False, True]
    unchecked = read(path, mode="batches", verifyCrc="false")
    assert [row["crcOk"] for row in unchecked] == [None, None]


def test_a_log_that_breaks_off_is_a_fault_in_every_mode(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write_segment(path, 0, batch([record()]), b"\0" * 7 + b"\1" + b"\xff" * 60)
    write_segment(path, 9, batch([record()], base_offset=9))
    for mode in ("records", "batches", "segments"):
        with pytest.raises(CorruptRecordError, match=r"\[batch-length\]"):
            read(path, mode=mode)
        assert read(path, mode=mode, onCorrupt="skip")


def test_damage_becomes_rows_that_say_what_and_where(tmp_path: Path) -> None:
    path = tmp_path / "orders-3"
    good = [batch([record(b"v")], base_offset=base) for base in (0, 2)]
    write_segment(path, 0, good[0], batch([record()], base_offset=1, crc=5), good[1])
    rows = read(path, onCorrupt="permissive")
    assert [row["offset"] for row in rows if row["corrupt"] is None] == [0, 2]
    (bad,) = (row for row in rows if row["corrupt"] is not None)
    log = path / f"{0:020}.log"
    assert bad["corrupt"].startswith(f"batch-crc: {log} @ {len(good[0])}: ")
    assert (bad["topic"], bad["partition"], bad["offset"]) == ("orders", 3, 1)
    assert (bad["key"], bad["value"], bad["timestamp"]) == (None, None, None)


def test_what_lies_behind_bytes_that_a_disk_does_not_give_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders-3"
    batches = [batch([record(bytes(9_000))], base_offset=base) for base in range(6)]
    write_segment(path, 0, *batches)
    log = path / f"{0:020}.log"
    monkeypatch.setattr(mapping, "held_by_another", lambda _path: True)
    with bad_sectors(log, (12_288, 16_384), (28_672, 32_768)):
        for mode, column in (("records", "offset"), ("batches", "baseOffset")):
            with pytest.raises(UnreadableError, match=r"\[unreadable\]"):
                read(path, mode=mode)
            skipping = read(path, mode=mode, onCorrupt="skip")
            assert [row[column] for row in skipping] == [0, 2, 4, 5]
        rows = read(path, onCorrupt="permissive")
    assert [row["offset"] for row in rows if row["corrupt"] is None] == [0, 2, 4, 5]
    said = [row["corrupt"] for row in rows if row["corrupt"] is not None]
    assert [text.split(": the disk")[0] for text in said] == [
        f"unreadable: {log} @ 12288",
        f"unreadable: {log} @ 28672",
    ]


def test_columns_that_damage_leaves_empty_cannot_be_not_null() -> None:
    options = parse_options({"path": "data", "onCorrupt": "permissive"})
    field = StructField("offset", LongType(), nullable=False)
    with pytest.raises(ValueError, match="NOT NULL is refused"):
        schema.project(StructType([field]), options)
