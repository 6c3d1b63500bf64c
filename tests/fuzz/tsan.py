"""Work shared by threads, over kernels built for ThreadSanitizer: `python -m tests.fuzz.tsan`.

It watches the code that runs without the GIL, in a plain Python. A copy of the tree is built below
`build/`, as `tests.fuzz.asan` does it. First comes a race that is meant, so that silence says
something. Exit status 1 says that a race was found, or that one was not, or that a test failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from tests.fuzz.asan import ROOT, build, copy_tree, library

COPY = ROOT / "build" / "tsan"
#: The tests in which threads share work.
TESTS = (
    "tests/unit/test_workers.py",
    "tests/unit/log/reader/test_view_pieces.py",
    "tests/unit/cli/test_cli_jobs.py",
    "tests/unit/cli/test_dump.py",
)
#: Arrow's allocator, which is not built for the sanitizer, starts and ends with each thread.
SUPPRESSED = "race:libarrow.so\nmutex:libarrow.so\ncalled_from_lib:libarrow.so\n"
#: What a process exits with in which races were found.
RACES = 66


def race() -> None:
    """Two threads write one array."""
    import numpy as np

    from kseg._kernels.keymap import hash_values

    offsets = np.arange(0, 1_000_001, dtype=np.int32) * 8
    data, out = np.zeros(offsets[-1], np.uint8), np.empty(1_000_000, np.uint64)
    threads = [threading.Thread(target=hash_values, args=(data, offsets, out)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(*arguments: str, options: str = "") -> int:
    """Run Python in the copy, sanitized, with more options of the sanitizer; the exit status."""
    print("+ python", *arguments, flush=True)
    known = f"exitcode={RACES} report_signal_unsafe=0 suppressions={COPY}/races"
    environment = os.environ | {
        "LD_PRELOAD": library("libtsan.so"),
        "TSAN_OPTIONS": f"{known} {options}",
        "PYTHONPATH": str(COPY),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run([sys.executable, *arguments], cwd=COPY, env=environment).returncode


def main() -> int:
    """Build, see a race, then look for others."""
    copy_tree(COPY)
    build(COPY, "thread")
    (COPY / "races").write_text(SUPPRESSED, encoding="utf-8")
    # One report is enough: there is one for each of the million places that both threads write.
    if run("-c", "from tests.fuzz.tsan import race; race()", options="halt_on_error=1") != RACES:
        print("the race that is meant was not seen")
        return 1
    plugins = ("-p", "no:cacheprovider", "-p", "no:benchmark")
    return int(run("-m", "pytest", "-q", *plugins, *TESTS) != 0)


if __name__ == "__main__":
    sys.exit(main())
