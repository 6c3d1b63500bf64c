"""On Windows the import says in words that kseg does not run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kseg

PROGRAM = "import sys; sys.platform = 'win32'; import {module}"


@pytest.mark.parametrize("module", ["kseg", "kseg.cli.main", "kseg.format.header"])
def test_an_import_on_windows_says_where_kseg_runs(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        env={"PYTHONPATH": str(Path(kseg.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: kseg runs on Linux and macOS, not on Windows; "
        "the Windows Subsystem for Linux (WSL) runs it"
    )
