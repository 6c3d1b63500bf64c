"""Borders through every public call: `python -m tests.fuzz.fuzz_borders --cases 100000 --seed 1`.

Offsets, times, epochs and sequences of 0, 1, 2^31, 2^32 and 2^63, each with its neighbours and
negative, go through what `tests.fuzz.borders` names. A wrong answer, doors that disagree, or an
error of no kind that is documented is a finding: it is printed with the command that repeats it.
The cases of a seed are numbered, and each depends on the seed and its number alone. Exit status 1
says that there was a finding.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests import places
from tests.fuzz import borders
from tests.fuzz.fuzz_read import FINDINGS_MAX, HANG_SECONDS, where


def search(
    seed: str, first: int, end: int, root: Path, *, hang_seconds: int = 0
) -> tuple[Counter[str], int]:
    """Run the cases `[first, end)`; how many of each kind were run, and how many findings.

    The process ends where one takes longer than `hang_seconds`; 0 for no such limit.
    """
    done: Counter[str] = Counter()
    seen: set[str] = set()
    for number in range(first, end):
        if hang_seconds:
            faulthandler.dump_traceback_later(hang_seconds, exit=True)
        try:
            done[borders.run(seed, number, root)] += 1
        except Exception:
            trace = traceback.format_exc()
            place = where(trace)
            if place not in seen:
                seen.add(place)
                repeat = f"python -m tests.fuzz.fuzz_borders --seed {seed} --case {number}"
                print(f"\n== case {number}\n{trace}\nrepeat: {repeat}", flush=True)
            if len(seen) >= FINDINGS_MAX:
                break
    if hang_seconds:
        faulthandler.cancel_dump_traceback_later()
    return done, len(seen)


def main() -> int:
    """Run, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", default="1", help="any text; the cases follow from it")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="run this case of the seed alone")
    options = parser.parse_args()
    first, end = options.first, options.first + options.cases
    if options.case is not None:
        first, end = options.case, options.case + 1
    faulthandler.enable()
    root = tempfile.mkdtemp(prefix="kseg-borders-", dir=places.in_memory())
    started = time.monotonic()
    try:
        done, findings = search(options.seed, first, end, Path(root), hang_seconds=HANG_SECONDS)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    seconds = time.monotonic() - started
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    print(
        f"seed {options.seed}: cases {first} to {end - 1} in {seconds:.0f} s, {findings} findings; "
        f"without one: {kinds}"
    )
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
