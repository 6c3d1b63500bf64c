"""`kseg stats`: the document of the contract, the tables, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def log(tmp_path: Path) -> Path:
    records = [record(key=b"a", value=b"xyz"), record(key=b"\x1b[2J", value=b"y")]
    write_segment(tmp_path / "t-0", 0, batch(records))
    write_segment(tmp_path / "u-3", 0, batch([record()]))
    return tmp_path


def test_partitions_are_chosen_and_keys_written_as_asked(kseg: Kseg, log: Path) -> None:
    ran = kseg("stats", "--json", "--topic", "t", "--top", "1", "--bytes", "hex", log)
    (one,) = ran.document["partitions"]
    assert [key["key"] for key in one["top_keys"]] == [b"\x1b[2J".hex()]


def test_the_tables_show_sizes_and_keys_and_no_escape(kseg: Kseg, log: Path) -> None:
    ran = kseg("stats", log)
    assert ran.code == 0
    assert "t-0" in ran.text
    assert "u-3" in ran.text
    assert "\x1b" not in ran.text


def test_a_key_of_control_characters_still_fits_into_the_table(kseg: Kseg, tmp_path: Path) -> None:
    write_segment(tmp_path / f"{'t' * 30}-0", 0, batch([record(key=bytes(24))]))
    ran = kseg("stats", tmp_path / f"{'t' * 30}-0")
    assert r"\u0000\u0000\u0000\u0000" in ran.text


def test_headers_alone_name_no_key(kseg: Kseg, log: Path) -> None:
    ran = kseg("stats", "--headers", log)
    assert "error" not in ran.text
    assert ran.text.count("\n") == 3


def test_damage_is_told_and_exits_1(kseg: Kseg, tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch([record()], crc=5))
    ran = kseg("stats", tmp_path / "t-0")
    assert ran.code == 1
    assert "checksum" in ran.err
