"""`kseg salvage`: its table, its JSON and its exit codes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.terminal import type_line
from tests.unit.analysis.copied import told, write_copy
from tests.unit.cli.conftest import Kseg

BASE = told(9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """t-0 has a damaged batch of offsets 8 and 9, u-0 is sound."""
    for name in ("t-0", "u-0"):
        write_copy(tmp_path / "in" / name, BASE)
    path = tmp_path / "in" / "t-0" / f"{6:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(BASE[3].data) + 70] ^= 1
    path.write_bytes(content)
    return tmp_path / "in"


def test_a_row_for_each_partition_and_what_is_lost(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = kseg("salvage", data, "-o", out)
    assert ran.code == 1
    place = f"{data / 't-0'}/{6:020d}.log @ {len(BASE[3].data)}"
    size = len(BASE[4].data)
    assert ran.text.splitlines() == [
        "partition  kept       records  lost  duplicates  offsets",
        "t-0        8 batches       16  2              0  0 to 17",
        "u-0        9 batches       18  0              0  0 to 17",
        f"t-0: lost: offsets 8 to 9 (2 records), {place}",
        f"t-0: batch-crc: {place}, {size} bytes: a batch does not match its checksum",
        *ran.text.splitlines()[5:],
    ]
    kept, _, report, merge, *steps = ran.text.splitlines()[5:]
    assert kept.endswith(f"kept in {out}; 2 records lost")
    assert report == f"the report is {out}.kseg-salvage/report.json"
    assert "'kseg merge' takes them from there" in merge
    assert steps[0].startswith("to put it back, ")
    assert kseg("verify", out, "--deep").code == 0


def test_exit_0_if_nothing_is_lost(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    ran = kseg("salvage", data, "--topic", "u", "-o", tmp_path / "out")
    assert (ran.code, "to put it back" in ran.text) == (0, False)
    assert not (tmp_path / "out" / "t-0").exists()


def test_many_ranges_are_cut_short(kseg: Kseg, tmp_path: Path) -> None:
    base = told(20, size=1)
    directory = write_copy(tmp_path / "in" / "t-0", base, per_segment=30)
    path = directory / f"{0:020d}.log"
    content, at = bytearray(path.read_bytes()), 0
    for number, one in enumerate(base):
        content[at + 70] ^= number % 2
        at += len(one.data)
    path.write_bytes(content)
    ran = kseg("salvage", directory, "-o", tmp_path / "out")
    assert ran.text.count("t-0: lost: offsets") == 5
    assert "t-0: lost: 5 more; the report has all of them" in ran.text
    size = sum(len(one.data) for one in base[1::2])
    assert f"t-0: batch-crc: 10 places, {size} B: a batch does not match" in ran.text
    assert ran.text.count("t-0: batch-crc: ") == 7


def test_sound_batches_that_nothing_proves_are_told(kseg: Kseg, tmp_path: Path) -> None:
    directory = write_copy(tmp_path / "in" / "t-0", BASE, per_segment=9)
    path, size = directory / f"{0:020d}.log", len(BASE[0].data)
    content = bytearray(path.read_bytes())
    for at in (size, 4 * size):  # a header, noise: how far these reach is not known
        content[at : at + 61] = b"\xee" * 61
    path.write_bytes(content)
    ran = kseg("salvage", directory, "-o", tmp_path / "out")
    first = "6 batches behind the damage are readable, but nothing proves them: no index"
    assert ran.text.splitlines()[0] == first
    assert "2 sound batches, offsets 4 to 7\n" in ran.text
    dump = next(line for line in ran.text.splitlines() if line.startswith("  kseg dump "))
    assert kseg(*shlex.split(dump)[1:]).code == 0


def test_the_last_lines_put_the_result_back_when_typed(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    home = tmp_path / "in it's"
    data.rename(home)
    ran = kseg("salvage", home, "-o", tmp_path / "out")
    steps = [line for line in ran.text.splitlines() if line.startswith(("  m", "  c"))]
    assert len(steps) == 3
    assert "the logs of the other partitions are sound: they stay where they are\n" in ran.text
    for step in steps:
        type_line(step)
    assert kseg("verify", home / "t-0", "--deep").code == 0
    assert sorted(each.name for each in home.iterdir()) == ["t-0", "u-0"]
    replaced = tmp_path / "out.kseg-salvage" / "replaced"
    assert sorted(each.name for each in replaced.iterdir()) == ["t-0"]


def test_a_log_start_behind_the_end_is_removed_by_the_command_that_is_printed(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    checkpoint = data / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n2\nt 0 5\nu 0 999999\n")
    ran = kseg("salvage", data / "u-0", "-o", tmp_path / "out")
    assert ran.code == 0
    assert "says that the log starts at offset 999999" in ran.text
    (command,) = [line for line in ran.text.splitlines() if line.startswith("  sed ")]
    type_line(command)
    assert checkpoint.read_text() == "0\n1\nt 0 5\n"


def test_the_log_of_kraft_is_left_out_with_a_line_unless_it_is_named(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    write_copy(data / "__cluster_metadata-0", BASE)
    ran = kseg("salvage", data, "--topic", "u", "-o", tmp_path / "out")
    line = f"  kseg salvage {data}/__cluster_metadata-0 -o NEW_DIRECTORY"
    assert (ran.code, line in ran.text.splitlines()) == (0, True)
    ran = kseg("salvage", data / "__cluster_metadata-0", "-o", tmp_path / "other")
    assert ran.code == 0
    assert "a repaired copy never goes back into a quorum" in ran.text


@pytest.mark.parametrize(
    ("words", "code"),
    [(("in",), 2), (("in", "-o", "in/out"), 3), (("in", "in/t-0", "-o", "o"), 2),
     (("none", "-o", "o"), 3), (("in", "-o", "o", "--topic", "x"), 3)],
)  # fmt: skip
def test_what_cannot_be_salvaged_is_refused(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(data.parent)
    assert kseg("salvage", *words).code == code
    assert sorted(each.name for each in data.parent.iterdir()) == ["in"]


def test_an_output_that_is_not_empty_is_refused(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    assert kseg("salvage", data, "-o", tmp_path / "out").code == 1
    assert kseg("salvage", data, "-o", tmp_path / "out").code == 3
