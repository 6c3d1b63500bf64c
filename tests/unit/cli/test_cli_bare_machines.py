"""A machine that lacks what others have: a home, a name for the user, room, a new Python."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import kseg
from kseg.cli import failures
from kseg.cli.failures import Exit

DATA = Path(kseg.__file__).parent / "demo_data"
KSEG = [sys.executable, "-m", "kseg"]
MIB = 1 << 20


def run(
    *words: object, memory_mib: int = 0, umask: int = -1, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `kseg` with these variables and PATH alone."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib * MIB, memory_mib * MIB))

    return subprocess.run(
        [*KSEG, *map(str, words)],
        env={"PATH": os.environ["PATH"], **variables},
        preexec_fn=limit if memory_mib else None,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("variables", [{}, {"HOME": "/nonexistent"}, {"HOME": "/proc"}])
def test_no_verb_wants_a_home(variables: dict[str, str]) -> None:
    ran = run("verify", DATA, **variables)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [("verify",), ("explain",), ("recover",)],
    ids=" ".join,
)
def test_400_mib_and_a_strict_umask_are_enough(words: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("demo", "-o", data, umask=0o077).returncode == 0
    ran = run(*words, data, memory_mib=400, umask=0o077)
    assert ran.returncode == 0, ran.stderr


def test_too_little_memory_for_numpy_is_named_as_that() -> None:
    ran = run("info", DATA, memory_mib=58)
    assert ran.returncode == Exit.LIMIT
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("kseg: out of memory; try '--jobs 1', or raise the limit")


def test_an_import_without_memory_is_not_called_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    error = ImportError("a.so: failed to map segment from shared object")
    assert failures.report(error, debug=False) == Exit.LIMIT
    assert "out of memory" in capsys.readouterr().err
    assert failures.report(ImportError("no such name"), debug=False) == Exit.BUG


def test_an_old_python_is_named_with_the_one_that_is_wanted() -> None:
    program = "import sys; sys.version_info = (3, 10, 13, 'final', 0); import kseg"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kseg needs Python 3.11 or newer, and this is 3.10.13 (")


def test_a_java_that_does_not_run_is_quoted(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space' >&2; exit 1\n")
    java.chmod(0o755)
    ran = run("spark", "verify", DATA, JAVA_HOME=str(tmp_path))
    assert ran.returncode == Exit.FILES
    assert "java does not run: Could not reserve enough space: install it" in ran.stderr
