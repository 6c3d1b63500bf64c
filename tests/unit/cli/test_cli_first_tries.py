"""What people type first, and get wrong: answers say what is wrong and what to type instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kseg.cli.main import VERBS
from tests.unit.cli.test_cli_damaged_input import WITHOUT, WORDS

#: Runs a command line as a user to whom modes of files apply; root's capabilities are dropped.
AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
KSEG = (
    "import sys; from kseg.cli.main import run\n"
    "sys.exit(max(run(words.split(chr(9))) != 3 for words in sys.argv[1:]))"
)


def test_a_path_without_permission_is_no_mistake_in_the_command_line(
    orders: Path, tmp_path: Path
) -> None:
    closed = orders.parent
    lines = []
    for words in WORDS:
        if words.split()[0] in ("doctor", "explain"):  # they tell of it in their answers
            continue
        places = {"DIR": closed, "PART": orders, "COPY": closed, "OUT": tmp_path / "out"}
        lines.append("\t".join(str(places.get(word, word)) for word in words.split()))
    assert {line.split("\t")[0] for line in lines} >= set(VERBS) - WITHOUT - {"doctor", "explain"}
    if os.geteuid() == 0:
        os.chown(closed, 65534, 65534)
    closed.chmod(0o000)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", AS_ANYBODY, sys.executable, "-c", KSEG, *lines],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        closed.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("Permission denied") == len(lines) == len(ran.stderr.splitlines())
