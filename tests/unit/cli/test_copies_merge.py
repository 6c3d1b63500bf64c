"""`kseg merge`: its lines, its JSON and its exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import kseg as library
from kseg.cli.output import put_back
from tests.golden import made
from tests.unit.analysis.copied import told, write_copy
from tests.unit.cli.conftest import Kseg, made_in
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
    made_in(tmp_path, made.two_damaged)
    return tmp_path / "a", tmp_path / "b"


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
