"""Nothing reaches the disk beside the seam: the system sees of a writer what the seam sees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shares import share

#: System call -> what it is called here.
CALLS = {
    **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), "write"),
    **dict.fromkeys(("copy_file_range", "sendfile", "splice"), "write"),
    "fallocate": "reserve",
    **dict.fromkeys(("truncate", "ftruncate"), "truncate"),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "syncfs", "sync"), "flush"),
    **dict.fromkeys(("rename", "renameat", "renameat2"), "rename"),
    **dict.fromkeys(("link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat"), "create"),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), "unlink"),
    **dict.fromkeys(("utime", "utimes", "utimensat", "futimesat"), "dress"),
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown"), "dress"),
    "fchownat": "dress",
}
LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)", re.ASCII)


def traced(root: Path, seed: str, *before: str) -> dict[str, Any]:
    command = [*before, sys.executable, "-m", "tests.crash.traced", str(root), seed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def seen_by_strace(text: str, root: Path) -> list[str]:
    seen, there = [], set()
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None or match[3].startswith("-") or str(root) not in match[2]:
            continue
        name, arguments = match[1], match[2]
        paths = re.findall(re.escape(str(root)) + r"[^\">,]*", arguments)
        if name in ("open", "openat", "creat"):
            made = ("O_CREAT" in arguments or name == "creat") and paths[0] not in there
            there |= {paths[0]} if made else set()
            seen += ["create"] if made else []
            assert "O_TRUNC" not in arguments
        elif name in CALLS:
            there -= {paths[0]} if CALLS[name] in ("unlink", "rename") else set()
            seen.append(CALLS[name])
    return seen


@pytest.mark.parametrize("seed", share(["calls-1", "calls-2", "calls-3"], 1, "calls"))
def test_the_system_sees_just_the_calls_of_the_seam(tmp_path: Path, seed: str) -> None:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    trace = tmp_path / "trace"
    # Where there is no strace, what Python itself tells of its calls has to do.
    strace = shutil.which("strace")
    before = [strace, "-f", "-y", "-s", "4096", "-qq", "-o", str(trace)] if strace else []
    answer = traced(root, seed, *before)
    assert len(answer["seam"]) > 100
    assert answer["audited"] == answer["asked"]
    if strace:
        assert seen_by_strace(trace.read_text(), root) == answer["seam"]
