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


# ---- compaction ----------------------------------------------------------------------------------

COMPACTED = ("--config", "cleanup.policy=compact", "--now", "2025-10-09T08:53:20Z")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """`users-0`, whose sealed segments hold three values of each of two keys, and `users-1`."""
    for base in (0, 2, 4, 6):
        given = [record(b"v%d" % (base + n), key=b"%d" % n) for n in range(2)]
        write_segment(tmp_path / "users-0", base, batch(given, base_offset=base))
    write_segment(tmp_path / "users-1", 0, batch([record(key=b"a")]))
    return tmp_path


def test_compaction_has_the_numbers_of_the_plan(kseg: Kseg, users: Path) -> None:
    before = {path: path.read_bytes() for path in users.rglob("*") if path.is_file()}
    ran = kseg("stats", "--json", "--compaction", *COMPACTED, users)
    assert ran.code == 0
    counted = ran.document["partitions"]
    rows = [each.pop("compaction") for each in counted]
    planned = kseg("compact", *COMPACTED, "--json", users).document["partitions"]
    assert [{**row, "report": None} for row in rows] == planned
    first, second = rows
    assert (first["records"], first["kept_records"], first["saved_records"]) == (6, 2, 4)
    assert [each["base_offset"] for each in first["segments"]] == [0, 2, 4]
    assert sum(each["saved_bytes"] for each in first["segments"]) == first["saved_bytes"] > 0
    assert second["skipped"] == "nothing-dirty"
    plain = kseg("stats", "--json", users).document["partitions"]
    assert counted == plain
    assert {path: path.read_bytes() for path in users.rglob("*") if path.is_file()} == before


def test_compaction_is_told_by_partition_and_segment_with_what_stays(
    kseg: Kseg, users: Path
) -> None:
    ran = kseg("stats", "--top", "0", "--compaction", *COMPACTED, users)
    assert ran.code == 0
    lines = [line.split() for line in ran.text.splitlines()]
    first = next(line for line in lines if line[:1] == ["users-0"] and len(line) == 7)
    assert first[4:] == ["6", "2", "4"]
    assert [line[1] for line in lines if line[:1] == ["users-0"] and len(line) == 5] == [
        "0",
        "2",
        "4",
    ]
    assert "stays: " in ran.text
    assert "left alone: users (1 partition): nothing is dirty" in ran.text


def test_a_topic_without_a_policy_is_left_alone(kseg: Kseg, users: Path) -> None:
    ran = kseg("stats", "--json", "--compaction", "--topic", "users", users)
    assert {each["compaction"]["skipped"] for each in ran.document["partitions"]} == {
        "not-compacted"
    }


def test_damage_leaves_one_partition_without_a_plan(kseg: Kseg, users: Path) -> None:
    write_segment(users / "gone-0", 0, batch([record(key=b"a")], crc=5))
    write_segment(users / "gone-0", 1, batch([record(key=b"a")], base_offset=1))
    ran = kseg("stats", "--json", "--compaction", *COMPACTED, users)
    assert ran.code == 1
    assert "kseg: not compacted: " in ran.err
    found = {each["topic"]: each["compaction"] for each in ran.document["partitions"][:2]}
    assert "skipped" not in found["gone"]
    assert found["users"]["saved_records"] == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--config", "cleanup.policy=compact"), "--compaction"),
        (("--now", "0"), "--compaction"),
        (("--compaction", "--config", "none:retention.ms=1"), "no topic here is none"),
    ],
)
def test_settings_are_for_compaction(
    kseg: Kseg, users: Path, words: tuple[str, ...], told: str
) -> None:
    ran = kseg("stats", *words, users)
    assert ran.code == 2
    assert told in ran.err
