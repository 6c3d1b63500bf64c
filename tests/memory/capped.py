"""Run a few lines in a process of their own that may not take more than so much memory.

The cap is one of the kernel's (RLIMIT_DATA: private writable memory, touched or not), set when all
that is imported has been imported. So it is a little stricter than what is promised, which speaks
of memory in use, and it needs no sampling: whoever passes it gets a MemoryError.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
#: What every path may take, whatever it reads.
ALWAYS = 64 * MIB

_START = """
import resource, sys
import numpy as np
import kseg, kseg.arrow
from kseg.cli.main import run
from kseg.format import codec
{more}
paths = sys.argv[2:]
path = paths[0]
with open("/proc/self/status") as status:
    data = next(line for line in status if line.startswith("VmData"))
limit = int(data.split()[1]) * 1024 + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
"""


def capped(code: str, *paths: Path, cap: int = ALWAYS, imports: str = "") -> str:
    """Run `code`, which finds `path`, `paths`, `kseg`, `np` and `run`; answers what it prints."""
    start = _START.format(more=f"import {imports}" if imports else "")
    command = [sys.executable, "-W", "error", "-c", start + code, str(cap), *map(str, paths)]
    # One memory pool that gives back at once, and one arena for the threads of all commands, where
    # each would keep what is free in it: so that what counts is what kseg holds.
    environment = {
        **os.environ,
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
    }
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, f"{code}\n{ran.stderr[-3000:]}"
    return ran.stdout.strip()
