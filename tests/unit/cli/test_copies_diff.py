"""`kseg diff`: its lines, its JSON and its exit codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.analysis.copied import Told, told, write_copy
from tests.unit.cli.conftest import Kseg

BASE = told(9)


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """`a` and `b`: u-0 is the same, t-0 diverges at offset 10 from epoch 1 to epoch 3."""
    mine = [replace(one, epoch=1) for one in told(4, start=10)]
    theirs = [Told(10 + n, 1, epoch=3, text="w") for n in range(3)]
    for name, tail in (("a", mine), ("b", theirs)):
        write_copy(tmp_path / name / "t-0", [*BASE[:5], *tail])
        write_copy(tmp_path / name / "u-0", BASE, per_segment=2 if name == "a" else 5)
    return tmp_path / "a", tmp_path / "b"


def test_a_line_for_each_copy_says_where_it_diverges(kseg: Kseg, copies: tuple[Path, Path]) -> None:
    a, b = copies
    ran = kseg("diff", a, b)
    assert ran.code == 1
    assert ran.text.splitlines() == [
        f"t-0: {b / 't-0'}: diverged: offsets 0 to 12; {a / 't-0'} has offsets 0 to 17",
        "  differ in offsets 10 to 13:",
        f"    {a / 't-0'}/{6:020d}.log @ {ran.text.split(' @ ')[1].split(':')[0]}: "
        "epoch 1, offsets 10 to 11, 2 records",
        f"    {b / 't-0'}/{6:020d}.log @ {ran.text.split(' @ ')[2].split(':')[0]}: "
        "epoch 3, offsets 10 to 10, 1 record",
        "1 partition the same in all copies; --all lists them",
        ran.text.splitlines()[-1],
    ]
    assert ran.text.endswith(", 35 batches: 1 same, 1 diverged\n")


def test_partitions_that_are_the_same_stand_behind_the_others_on_request(
    kseg: Kseg, copies: tuple[Path, Path]
) -> None:
    a, b = copies
    write_copy(a / "a-0", BASE)
    write_copy(b / "a-0", BASE)
    lines = kseg("diff", a, b, "--all").text.splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")][:3] == [
        *("t-0", "a-0", "u-0")
    ]
    plain = kseg("diff", a, b).text
    assert "2 partitions the same in all copies; --all lists them" in plain
    assert ": same: " not in plain
    json = kseg("diff", a, b, "--json").document
    assert [one["topic"] for one in json["partitions"]] == ["a", "t", "u"]


def test_records_tell_what_compaction_took(kseg: Kseg, tmp_path: Path) -> None:
    write_copy(tmp_path / "a", BASE)
    write_copy(tmp_path / "b", [replace(BASE[0], without=(1,)), *BASE[1:]])
    assert kseg("diff", tmp_path / "a", tmp_path / "b").code == 1
    ran = kseg("diff", tmp_path / "a", tmp_path / "b", "--records")
    assert ran.code == 0
    assert "  compaction took: offsets 1 to 1" in ran.text


def test_many_ranges_are_cut_short(kseg: Kseg, tmp_path: Path) -> None:
    base = told(20, size=1)
    write_copy(tmp_path / "a", base, per_segment=30)
    write_copy(tmp_path / "b", base[::2], per_segment=30)
    ran = kseg("diff", tmp_path / "a", tmp_path / "b")
    assert ran.code == 1
    assert ran.text.count("lacks what") == 6
    assert "4 more ranges: lacks what" in ran.text


@pytest.mark.parametrize("words", [("a",), ("a", "a"), ("a", "no/such")])
def test_what_cannot_be_compared_is_refused(
    kseg: Kseg, copies: tuple[Path, Path], words: tuple[str, ...]
) -> None:
    root = copies[0].parent
    ran = kseg("diff", *(root / word for word in words))
    assert ran.code == (3 if "no/such" in words else 2)
    assert len(ran.err.splitlines()) == 1
