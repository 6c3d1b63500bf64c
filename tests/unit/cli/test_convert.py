"""`kseg convert`: the same records, in a file that appears whole or never."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.builders import (
    GZIP,
    ZSTD,
    batch,
    messages,
    messages07,
    record,
    records_of,
    write_segment,
)
from tests.unit.cli.conftest import Kseg, files_no_longer_than

#: What another format or codec changes.
CHANGED = {"file", "dir", "position", "base_offset", "magic", "codec", "timestamp_type"}


def shown(kseg: Kseg, path: Path) -> list[dict[str, Any]]:
    rows = kseg("dump", "--format", "jsonl", path).rows
    return [{name: row[name] for name in row if name not in CHANGED} for row in rows]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Magic 0, 1 and 2, plain and compressed, as upgrades leave them."""
    directory = tmp_path / "data" / "orders-0"
    return write_segment(
        directory,
        0,
        messages([record(b"a"), record(b"b", offset=1)], magic=0),
        records_of([record(b"c", timestamp=4)], magic=1, codec=GZIP, base_offset=2),
        batch([record(b"d", timestamp=5)], base_offset=3, codec=ZSTD, leader_epoch=-1),
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "00000000000000000000.log"


def test_what_would_be_lost_is_refused_then_dropped_and_said(
    kseg: Kseg, payments: Path, out: Path
) -> None:
    source = payments / "00000000000000000000.log"
    ran = kseg("convert", source, "-o", out, "--magic", 1)
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "magic 1 has no" in ran.err
    assert "--drop" in ran.err
    assert not out.exists()
    ran = kseg("convert", source, "-o", out, "--magic", 1, "--drop", "--json")
    assert ran.code == 0
    assert "2 control batches left out" in ran.err
    assert ran.document["dropped"]["control_batches"] == 2
    assert ran.document["dropped"]["producer_batches"] == 3
    assert ran.document["schema"] == "kseg.convert/1"
    assert ran.document["converted_records"] == 3
    assert ran.document["bytes_out"] == out.stat().st_size
    assert ran.document["bytes_in"] == source.stat().st_size
    assert [row["offset"] for row in kseg("dump", "--format", "jsonl", out).rows] == [0, 2, 4]


def test_a_segment_is_not_written_beside_others_with_its_offsets(
    kseg: Kseg, mixed: Path, tmp_path: Path
) -> None:
    live = tmp_path / "live" / "orders-0"
    other = write_segment(live, 2, batch([record(b"x")] * 5, base_offset=2))
    before = sorted(live.iterdir())
    for words in ((mixed, "-o", live), (mixed.parent, "-o", live.parent)):
        ran = kseg("convert", *words)
        assert (ran.code, f"{other} has offsets out of 0 to 3, too" in ran.err) == (3, True)
        assert sorted(live.iterdir()) == before
    other.rename(live / f"{4:020d}.log")
    write_segment(live, 4, batch([record(b"x")], base_offset=4))
    assert kseg("convert", mixed, "-o", live).code == 0
    assert len(kseg("read", "--format", "jsonl", live).rows) == 5


def test_zstd_needs_another_codec_below_magic_2(kseg: Kseg, mixed: Path, out: Path) -> None:
    ran = kseg("convert", mixed, "-o", out, "--magic", 1)
    assert ran.code == 1
    assert "--codec" in ran.err
    assert kseg("convert", mixed, "-o", out, "--magic", 1, "--codec", "gzip").code == 0


def test_messages_of_0_7_are_numbered_from_the_name_of_the_output(
    kseg: Kseg, tmp_path: Path
) -> None:
    path = write_segment(tmp_path / "old-0", 4096, messages07([b"a", b"b"]), suffix=".kafka")
    named = tmp_path / "new-0" / "00000000000000000123.log"
    ran = kseg("convert", path, "-o", named)
    assert ran.code == 0
    assert "2 messages got consecutive offsets" in ran.err
    assert [row["offset"] for row in kseg("dump", "--format", "jsonl", named).rows] == [123, 124]
    kseg("convert", path, "-o", named, "--force", "--first-offset", 9)
    assert [row["offset"] for row in kseg("dump", "--format", "jsonl", named).rows] == [9, 10]
    kseg("convert", path, "-o", tmp_path)
    made = tmp_path / "00000000000000004096.log"
    assert [row["offset"] for row in kseg("dump", "--format", "jsonl", made).rows] == [4096, 4097]


def test_standard_input_and_output_work(kseg: Kseg, mixed: Path, out: Path) -> None:
    kseg("convert", mixed, "-o", out)
    piped = kseg("convert", "-", "-o", "-", stdin=mixed.read_bytes())
    assert (piped.code, piped.out) == (0, out.read_bytes())
    empty = kseg("convert", "-", "-o", "-")
    assert (empty.code, empty.out) == (0, b"")


def test_an_existing_file_is_replaced_only_when_forced(kseg: Kseg, mixed: Path, out: Path) -> None:
    out.parent.mkdir()
    out.write_bytes(b"precious")
    ran = kseg("convert", mixed, "-o", out)
    assert (ran.code, out.read_bytes()) == (3, b"precious")
    assert "--force" in ran.err
    assert kseg("convert", mixed, "-o", out, "--force").code == 0
    assert shown(kseg, out) == shown(kseg, mixed)


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_input_is_never_the_output(
    kseg: Kseg, mixed: Path, tmp_path: Path, force: list[str]
) -> None:
    before = mixed.read_bytes()
    link = tmp_path / "link.log"
    link.symlink_to(mixed)
    for target in (mixed, mixed.parent, link):
        assert kseg("convert", mixed, "-o", target, *force).code == 2
    assert mixed.read_bytes() == before


def test_damage_is_refused_or_left_out_and_said(kseg: Kseg, tmp_path: Path, out: Path) -> None:
    good = [batch([record(b"%d" % n)], base_offset=n) for n in range(3)]
    broken = good[1][:-2] + b"x" + good[1][-1:]
    path = write_segment(tmp_path / "t-0", 0, good[0], broken, good[2])
    ran = kseg("convert", path, "-o", out, "--codec", "gzip")
    assert ran.code == 1
    assert f"{path} @ {len(good[0])}, offset 1" in ran.err
    assert not out.exists()
    assert list(out.parent.iterdir()) == []
    ran = kseg("convert", path, "-o", out, "--codec", "gzip", "--on-corrupt", "skip", "--json")
    assert ran.code == 1
    assert len(ran.document["findings"]) == 1
    assert [row["offset"] for row in kseg("dump", "--format", "jsonl", out).rows] == [0, 2]


def test_a_torn_end_of_the_log_is_left_out_and_said(kseg: Kseg, tmp_path: Path, out: Path) -> None:
    whole = batch([record(b"a")])
    path = write_segment(tmp_path / "t-0", 0, whole, whole[:40])
    ran = kseg("convert", path, "-o", out)
    assert (ran.code, out.read_bytes()) == (0, whole)
    assert "incomplete; left out" in ran.err
    write_segment(tmp_path / "t-0", 100, whole)
    assert kseg("convert", path, "-o", out, "--force").code == 1
    ran = kseg("convert", path, "-o", out, "--force", "--on-corrupt", "skip")
    assert (ran.code, out.read_bytes()) == (1, whole)
    garbage = kseg("convert", "-", "-o", "-", stdin=whole + bytes(8) + b"\xff" * 40)
    assert garbage.code == 1


USAGE: dict[str, list[str]] = {
    "a level without a codec": ["--level", "3"],
    "a level that the codec has not": ["--codec", "gzip", "--level", "11"],
    "zstd in magic 1": ["--codec", "zstd", "--magic", "1"],
    "a magic that never was": ["--magic", "3"],
    "two documents on standard output": ["-o", "-", "--json"],
}


@pytest.mark.parametrize("claim", USAGE)
def test_a_line_that_makes_no_sense_is_refused(
    kseg: Kseg, mixed: Path, out: Path, claim: str
) -> None:
    ran = kseg("convert", mixed, "-o", out, *USAGE[claim])
    assert ran.code == 2
    assert not out.exists()


def test_only_files_of_records_are_converted(kseg: Kseg, mixed: Path, out: Path) -> None:
    index = mixed.with_suffix(".index")
    index.write_bytes(bytes(8))
    assert kseg("convert", index, "-o", out).code == 3
    assert kseg("convert", mixed.with_name("missing.log"), "-o", out).code == 3
    assert kseg("convert", "-", "-o", mixed.parent).code == 2


def test_a_disk_that_refuses_is_told_with_the_files_name(
    kseg: Kseg, tmp_path: Path, out: Path
) -> None:
    source = write_segment(tmp_path / "data" / "orders-0", 0, batch([record(os.urandom(200_000))]))
    with files_no_longer_than(4096):
        ran = kseg("convert", source, "-o", out, "--codec", "gzip")
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err.startswith(f"kseg: {out}: ")
    assert list(out.parent.iterdir()) == []


def test_a_link_that_lies_where_out_is_written_is_not_followed(
    kseg: Kseg, orders: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "out.log.part").symlink_to(precious)
    log = next(orders.glob("*.log"))
    assert kseg("convert", log, "-o", tmp_path / "out.log").code == 0
    assert precious.read_bytes() == b"precious"
    assert (tmp_path / "out.log.part").is_symlink()
