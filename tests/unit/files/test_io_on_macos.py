"""Without the calls that only Linux has, every verb does its work; a flush reaches the disk itself.

The macOS here is made of this Linux (`tests/macos.py`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kseg
from tools.check_installed import VERBS

ROOT = Path(kseg.__file__).parents[1]
BEGIN = "from tests import macos; macos.begin(); "
#: They start processes, which would be of Linux again, or last long.
NOT_HERE = ("completion", "demo", "spark")


def on_macos(program: str, directory: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
    )


ALL_VERBS = f"""
import io, sys
from kseg.cli.main import run
from tools.check_installed import VERBS
for verb, (words, code) in VERBS.items():
    if verb not in {NOT_HERE}:
        sys.stdin = io.TextIOWrapper(io.BytesIO(b'{{"value": "b25l"}}'))
        print(verb, run([verb, *words.split()]), code, file=sys.stderr)
print("flushes", len(macos.flushed), file=sys.stderr)
"""


def test_every_verb_works_without_the_calls_of_linux(tmp_path: Path) -> None:
    for name in ("data", "backup"):
        shutil.copytree(Path(kseg.__file__).parent / "demo_data", tmp_path / name)
    done = on_macos(ALL_VERBS, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stderr.splitlines()]
    codes = {
        verb: (found, code) for verb, found, code in (line for line in lines if len(line) == 3)
    }
    expected = {verb: (str(code),) * 2 for verb, (_, code) in VERBS.items() if verb not in NOT_HERE}
    assert {verb: codes.get(verb) for verb in expected} == expected, done.stderr
    assert int(next(line[1] for line in lines if line[0] == "flushes")) > 0


WRITE = """
import os
import kseg
from kseg.files import io
macos.knows_full_flush = {full}
with io.WriteFile.open("file", create=True) as file:
    file.write_at(0, b"abc", b"", b"def")
    file.write_parts(6, [b"x"] * 3000, 3000)
    file.flush()
    print(file.reserve(0, 10), io.has_room(".", 1 << 16), len(macos.flushed))
    file.truncate(6)
io.flush_directory(".")
print(open("file").read(), os.path.exists(io.ROOM_NAME))
"""


@pytest.mark.parametrize(("full", "flushes"), [(True, 1), (False, 0)])
def test_a_flush_is_full_where_the_file_system_knows_that(
    full: bool, flushes: int, tmp_path: Path
) -> None:
    done = on_macos(WRITE.format(full=full), tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"False True {flushes}", "abcdef False"]


LOCK = """
import kseg
from kseg.files import lock
try:
    kseg.Log.open("data/orders-0", mode="append")
except kseg.LogLockedError as error:
    print(error)
print(lock.holder("data") is not None)
"""


def test_a_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    with kseg.Log.open(tmp_path / "data" / "orders-0", mode="append", create=True):
        done = on_macos(LOCK, tmp_path)
    assert done.stderr == ""
    error, held = done.stdout.splitlines()
    assert "holds the directory" in error
    assert held == "True"
