"""`kseg merge`: its lines, its JSON and its exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import kseg as library
from kseg.cli.owners import put_back
from tests.unit.analysis.copied import told, write_copy
from tests.unit.cli.conftest import Kseg
from tests.unit.files.foreign import root_only

BASE = told(9)


def flip(directory: Path, segment: int, at: int) -> None:
    path = directory / f"{segment:020d}.log"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies, damaged in other segments."""
    paths = []
    for name, segment in (("a", 6), ("b", 12)):
        paths.append(write_copy(tmp_path / name / "t-0", BASE).parent)
        flip(paths[-1] / "t-0", segment, 80)
    return paths[0], paths[1]


def test_what_is_whole_together_is_written_and_exits_0(
    kseg: Kseg, damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = damaged
    ran = kseg("merge", a, b, "-o", tmp_path / "out")
    assert ran.code == 0, ran
    assert ran.text.splitlines()[0] == "t-0: whole: offsets 0 to 17"
    assert ran.text.splitlines()[1].startswith(f"  {a / 't-0'}: epoch 0, gives 8 batches, ")
    assert f"what came from where is in {tmp_path / 'out.kseg-salvage' / 'report.json'}" in ran.text
    assert library.verify(tmp_path / "out", deep=True).ok


@pytest.mark.parametrize("name", ["t-0", "t-0.backup"])
def test_the_last_lines_put_the_result_back_when_typed(
    kseg: Kseg, damaged: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    home, b = tmp_path / "in it's", damaged[1]
    home.mkdir()
    (damaged[0] / "t-0").rename(home / name)
    ran = kseg("merge", home / name, b / "t-0", "-o", tmp_path / "out")
    steps = [line for line in ran.text.splitlines() if line.startswith(("  mkdir ", "  mv "))]
    assert len(steps) == 3
    for step in steps:
        subprocess.run(step, shell=True, check=True)
    assert [each.name for each in home.iterdir()] == [name]
    assert library.verify(home / name, deep=True).ok
    assert (tmp_path / "out.kseg-salvage" / "replaced" / name).is_dir()


@pytest.mark.parametrize("count", [1, 5, 6])
def test_each_log_that_changed_is_put_back_and_no_other(
    kseg: Kseg, tmp_path: Path, count: int
) -> None:
    homes, out = (tmp_path / "it's", tmp_path / "b"), tmp_path / "out"
    for home in homes:
        for number in range(8):
            write_copy(home / f"t-{number}", BASE)
    for number in range(1, count + 1):
        flip(homes[0] / f"t-{number}", 6, 80)
    ran = kseg("merge", *homes, "-o", out)
    assert "the first copies of the other partitions are whole" in ran.text
    steps = [line for line in ran.text.splitlines() if line.startswith("  ") and " /" in line]
    steps = [line for line in steps if line.split()[0] in ("mkdir", "mv", "sh")]
    assert len(steps) == (1 if count > 5 else 1 + 2 * count)
    replaced = homes[0].rename(tmp_path / "moved")
    failed = [subprocess.run(step, shell=True, check=False).returncode for step in steps]
    assert any(failed)
    replaced.rename(homes[0])
    if count > 5:
        assert not (tmp_path / "out.kseg-salvage" / "replaced").exists()
        for step in steps:
            subprocess.run(step, shell=True, check=True)
        for number in range(1, count + 1):
            assert library.verify(homes[0] / f"t-{number}", deep=True).ok
        assert sorted(each.name for each in out.glob("t-*")) == ["t-0", "t-7"]
        assert kseg("merge", *homes, "-o", out).code == 3
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "out.kseg-salvage" / "replaced")
        assert kseg("merge", *homes, "-o", out).code == 0
        assert "to put it back" not in kseg("merge", *homes, "-o", tmp_path / "new").text


@root_only
def test_the_owner_is_changed_before_the_result_is_moved(
    damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    for each in (damaged[0], *damaged[0].rglob("*")):
        os.chown(each, 1000, 1000)
    new = tmp_path / "out" / "t-0"
    new.mkdir(parents=True)
    lines = list(put_back([("t-0", damaged[0] / "t-0")], new.parent, tmp_path / "beside"))
    places = [
        next(at for at, line in enumerate(lines) if line.lstrip().startswith(word))
        for word in ("chown -R ", "to put it back, stop the broker", "mkdir ", "mv ")
    ]
    assert places == sorted(places)


def test_the_commands_for_a_relative_output_work_from_any_directory(
    damaged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "t-0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    lines = list(put_back([("t-0", damaged[0] / "t-0")], Path("out"), Path("beside")))
    steps = [line.split() for line in lines if line.startswith("  m")]
    assert [step[0] for step in steps] == ["mkdir", "mv", "mv"]
    assert all(word.startswith("/") for step in steps for word in step[1:] if word != "-p")


def test_what_no_copy_has_is_missing_and_exits_1_with_an_output(
    kseg: Kseg, damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = damaged
    flip(b / "t-0", 6, 80)
    ran = kseg("merge", a, b, "-o", tmp_path / "out")
    assert ran.code == 1
    assert "  missing: offsets 6 to 7" in ran.text.splitlines()
    assert (tmp_path / "out" / "t-0").is_dir()


def test_a_conflict_shows_both_sides_and_prefer_decides(kseg: Kseg, tmp_path: Path) -> None:
    a = write_copy(tmp_path / "a" / "t-0", BASE)
    b = write_copy(tmp_path / "b" / "t-0", [*BASE[:8], replace(BASE[8], text="w")])
    ran = kseg("merge", a, b, "-o", tmp_path / "out")
    assert ran.code == 1
    lines = ran.text.splitlines()
    at = lines.index("  conflict at offset 16, undecided:")
    assert lines[at + 1].startswith(f"    {a}/{12:020d}.log @ ")
    assert lines[at + 2].startswith(f"    {b}/{12:020d}.log @ ")
    assert lines[-1].startswith("1 conflict: nothing was written; --prefer DIR")
    assert not (tmp_path / "out").exists()
    ran = kseg("merge", a, b, "-o", tmp_path / "out", "--prefer", b, "--json")
    assert (ran.code, ran.document["undecided"], ran.document["applied"]) == (1, 0, True)
    assert (tmp_path / "out" / "t-0" / f"{12:020d}.log").read_bytes() == (
        b / f"{12:020d}.log"
    ).read_bytes()


def test_copies_that_were_compacted_apart_say_what_to_do(kseg: Kseg, tmp_path: Path) -> None:
    a = write_copy(tmp_path / "a" / "t-0", BASE)
    b = write_copy(tmp_path / "b" / "t-0", [*BASE[:8], replace(BASE[8], without=(16,))])
    ran = kseg("merge", a, b, "-o", tmp_path / "out")
    lines = ran.text.splitlines()
    assert "  conflict at offset 16, undecided, compacted apart?:" in lines
    assert "'kseg diff --records' says whether that is all" in lines[-1]
    decided = kseg("merge", a, b, "-o", tmp_path / "out", "--prefer", a, "--json")
    (conflict,) = decided.document["partitions"][0]["conflicts"]
    assert (conflict["compacted"], conflict["decided"]) == (True, True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("a", "-o", "out"), 2),
        (("a", "a", "-o", "out"), 2),
        (("a", "b"), 2),
        (("a", "b", "-o", "a/out"), 3),
        (("a", "b", "-o", "out", "--prefer", "."), 2),
        (("a", "b", "-o", "b"), 3),
        (("a", "no/such", "-o", "out"), 3),
        (("a", "b", "-o", "out", "--topic", "none"), 3),
    ],
)
def test_what_cannot_be_merged_is_refused(
    kseg: Kseg,
    damaged: tuple[Path, Path],
    words: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(damaged[0].parent)
    ran = kseg("merge", *words)
    assert ran.code == code, ran
    assert not Path("out").exists()


def test_two_topics_of_one_name_are_no_matter_of_the_command_line(
    kseg: Kseg, tmp_path: Path
) -> None:
    copies = [write_copy(tmp_path / str(n) / "t-0", BASE, topic_id=n) for n in (1, 2)]
    ran = kseg("merge", *copies, "-o", tmp_path / "out")
    assert ran.code == 1
    assert "these are two topics" in ran.err
