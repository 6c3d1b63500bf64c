"""`python -m bench.dump_memory`: how much memory `kseg dump` takes for logs of two sizes.

It dumps a log of each size to `/dev/null` and prints the most memory of its own that the process
had at any look (Linux: `RssAnon`; the pages of a mapped log belong to the system).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.case import made
from bench.dump_cases import FORMS, VALUES


def main() -> None:
    """Parse the command line, dump, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.dump_memory", description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[200, 2048], help="sizes of logs")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for mib in given.mib:
            log = Path(scratch) / "00000000000000000000.log"
            _write(log, mib)
            for form, words in FORMS.items():
                for jobs in given.jobs:
                    peak = peak_bytes([*words, "--jobs", str(jobs), str(log)])
                    print(f"{mib:6} MiB  dump {form:8} --jobs {jobs}  {peak / 2**20:6.1f} MiB")


def _write(path: Path, mib: int) -> None:
    """The same batches again and again."""
    data = made(VALUES["100 B"]).log.read_bytes()
    with path.open("wb") as file:
        for _ in range(-(-(mib << 20) // len(data))):
            file.write(data)


def peak_bytes(words: list[str]) -> int:
    """The most anonymous memory of `kseg dump` with these words, at looks a few ms apart."""
    program = [sys.executable, "-c", "from kseg.cli.main import main; main()", "dump", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    peak = 0
    with subprocess.Popen(program, **quiet) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            lines = status.read_text().splitlines()
            sizes = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
            peak = max(peak, *sizes, 0)
            time.sleep(0.005)
    return peak << 10


if __name__ == "__main__":
    main()
