"""Where tests keep the files that they make: in memory where there is room, or on a disk.

A log's tests make many small files and flush each; on a disk they wait for most of their time.
`KSEG_TESTS_ON=disk` sends all of them to the usual temporary directory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
#: Many times what the tests hold at any one time.
FREE_BYTES_MIN = 2 << 30


def in_memory() -> str | None:
    """A directory in memory, for `dir=` of `tempfile`; None where there is none, or little room."""
    if os.environ.get("KSEG_TESTS_ON") == "disk" or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    free = os.statvfs(MEMORY)
    if os.major(MEMORY.stat().st_dev) or free.f_bavail * free.f_frsize < FREE_BYTES_MIN:
        return None
    return str(MEMORY) if _available_bytes() >= FREE_BYTES_MIN else None


def _available_bytes() -> int:
    """What the system could give: a file system in memory may promise more than there is."""
    told = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    sizes = dict(line.split(":") for line in told)
    return int(sizes["MemAvailable"].split()[0]) << 10


def on_disk() -> tempfile.TemporaryDirectory[str]:
    """A directory where the machine keeps temporary files, whatever `in_memory` says."""
    return tempfile.TemporaryDirectory(prefix="kseg-test-")
