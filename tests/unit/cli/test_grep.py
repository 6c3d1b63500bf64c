"""`kseg grep`: rows as `read` has them, counts, partitions, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from tests.builders import ZSTD, batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, words in (("a-0", b"one two three four"), ("a-1", b"five six"), ("b-0", b"two")):
        parts = [
            batch([record(word, key=b"k%d" % at)], base_offset=at, codec=ZSTD)
            for at, word in enumerate(words.split())
        ]
        write_segment(tmp_path / "data" / name, 0, *parts)
    return tmp_path / "data"


def test_rows_are_those_of_read(kseg: Kseg, data: Path) -> None:
    for form in ("text", "jsonl", "csv"):
        ran = kseg("grep", "two", data, "--format", form)
        assert ran.code == 0
        lines = kseg("read", data, "--format", form).text.splitlines()
        head = lines[:1] if form == "csv" else []
        wanted = [line for line in lines if '"two"' in line or ",dHdv," in line or "dHdv" in line]
        assert ran.text.splitlines() == head + wanted


def test_text_names_the_partition_where_there_are_several(kseg: Kseg, data: Path) -> None:
    for verb in (("read",), ("grep", "two")):
        found = [line.split()[:2] for line in kseg(*verb, data).text.splitlines()]
        assert ["dir=a-0", "offset=1"] in found
        assert ["dir=b-0", "offset=0"] in found
        alone = kseg(*verb, data / "b-0").text.splitlines()
        assert [line.split()[0] for line in alone] == ["offset=0"]


def test_a_store_is_searched(kseg: Kseg, data: Path) -> None:
    system = fsspec.filesystem("memory")
    system.put(str(data), "/grep/data", recursive=True)
    try:
        here, there = kseg("grep", "two", data), kseg("grep", "two", "memory://grep/data")
        assert (there.code, there.text) == (0, here.text)
        follow = kseg("read", "memory://grep/data/a-0", "--follow")
        assert (follow.code, "a path of this machine is wanted" in follow.err) == (2, True)
    finally:
        system.rm("/grep", recursive=True)


def test_nothing_found_is_code_1_and_says_nothing(kseg: Kseg, data: Path) -> None:
    ran = kseg("grep", "absent", data)
    assert (ran.code, ran.out, ran.err) == (1, b"", "")


def test_counts_and_partitions(kseg: Kseg, data: Path) -> None:
    ran = kseg("grep", "--count", "t", data)
    assert ran.text.splitlines() == [f"{data}/a-0: 2", f"{data}/a-1: 0", f"{data}/b-0: 1"]
    rows = kseg("grep", "--count", "t", data, "--format", "jsonl").rows
    assert rows[0] == {"path": f"{data}/a-0", "count": 2}
    assert kseg("grep", "-l", "t", data).text.splitlines() == [f"{data}/a-0", f"{data}/b-0"]
    assert kseg("grep", "-l", "x", data, "--format", "jsonl").rows == [{"path": f"{data}/a-1"}]
    assert kseg("grep", "-c", "absent", data).code == 1


def offsets(kseg: Kseg, *words: object) -> list[int]:
    return [row["offset"] for row in kseg("grep", *words, "--format", "jsonl").rows]


def test_options_choose_the_records(kseg: Kseg, data: Path) -> None:
    place = data / "a-0"
    assert offsets(kseg, "-e", "^t.*e$", place) == [2]
    assert offsets(kseg, "--hex", "74776f", place) == [1]
    assert offsets(kseg, "-i", "TWO", place) == [1]
    assert offsets(kseg, "-v", "o", place) == [2]
    assert offsets(kseg, "k2", place, "--in", "value") == []
    assert offsets(kseg, "-x", "--in", "key", "k2", place) == [2]
    assert offsets(kseg, "-C", 1, "two", place) == [0, 1, 2]
    assert offsets(kseg, "-m", 2, "o", place, "--jobs", 2) == [0, 1]
    assert offsets(kseg, "o", place, "--offset", "1..3") == [1]
    assert offsets(kseg, "o", data, "--topic", "b") == [0]


def test_wrong_words_are_code_2(kseg: Kseg, data: Path) -> None:
    for words, reason in (
        (("-e", "(", data), "Invalid regular expression"),
        (("--hex", "7", data), "--hex: '7' is not hex"),
        (("x", data, "--in", "body"), "no field body"),
        (("x", data, "--count", "-l"), "exclude each other"),
        (("x", data, "--topic", "c"), "no topic here is c"),
    ):
        ran = kseg("grep", *words)
        assert ran.code == 2
        assert reason in ran.err
    assert kseg("grep", "x", data / "absent").code == 3


def test_damage_is_named_and_is_code_1(kseg: Kseg, data: Path) -> None:
    log = data / "a-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    ran = kseg("grep", "one", data)
    assert (ran.code, ran.text.count("\n")) == (1, 1)
    assert "does not match its checksum" in ran.err
    ran = kseg("grep", "two", data, "--on-corrupt", "skip")
    assert (ran.code, ran.text.count("\n")) == (1, 2)
    assert "does not match its checksum" in ran.err


def test_bytes_of_records_reach_no_terminal(kseg: Kseg, tmp_path: Path) -> None:
    write_segment(tmp_path / "a-0", 0, batch([record(b"\x1b[31mred")]))
    assert b"\x1b" not in kseg("grep", "red", tmp_path / "a-0").out


def test_an_open_transaction_is_said(kseg: Kseg, tmp_path: Path) -> None:
    made = batch([record(b"red")], producer_id=5, producer_epoch=0, transactional=True)
    write_segment(tmp_path / "a-0", 0, made)
    ran = kseg("grep", "red", tmp_path / "a-0", "--isolation", "read_committed")
    assert ran.code == 1
    assert ran.err.startswith(f"kseg: {tmp_path}/a-0: read_committed ends at offset 0 of 1")
