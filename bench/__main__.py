"""`python -m bench`: every case beside its peers, one table of ratios, JSON under bench/results.

KSEG_PREFETCH sets how many bytes in front of a checksum memory is asked for; kseg chooses by
processor.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import cases as suite
from bench import datagen, pairs, table
from kseg import _core

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Parse the command line, race every case, print and write."""
    given = _arguments()
    core = pairs.pin(given.core)
    if distance := os.environ.get("KSEG_PREFETCH"):
        _core.set_prefetch_bytes(int(distance))
    began = time.strftime("%Y-%m-%dT%H:%M:%S")
    load = pairs.load()
    chosen = [
        case
        for case in suite.cases(tuple(given.groups) or suite.GROUPS)
        if given.only is None or given.only in case.name
        if not any(text in case.name for text in given.skip)
    ]
    print(f"core {core}, {given.rounds} rounds, {given.clock} time, load {load[0]:.1f}")
    print(f"crc {_core.crc_variant()}, prefetch {_core.prefetch_bytes()} bytes")
    print(table.HEADER)
    try:
        found = [row for case in chosen for row in _run(case, given)]
    finally:
        suite.JAVA.close()
    document = {
        "when": began,
        "core": core,
        "rounds": given.rounds,
        "clock": given.clock,
        "mib": datagen.mebibytes(),
        "load": [load, pairs.load()],
        "machine": table.machine(),
        "rows": found,
    }
    target = given.output or RESULTS / f"{began.replace(':', '')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n")
    goals = [row["met"] for row in found if row["met"] is not None]
    print(f"{sum(goals)} of {len(goals)} goals met; {target}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=" ".join(suite.GROUPS))
    parser.add_argument("--only", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument(
        "--skip", metavar="TEXT", action="append", default=[], help="leave out cases with this"
    )
    parser.add_argument("--rounds", type=int, default=pairs.ROUNDS, help="pairs per ratio")
    parser.add_argument(
        "--turn-ms", type=int, default=pairs.TURN_NS // 10**6, help="length of a turn"
    )
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--core", type=int, help="the core to stay on; the last one by default")
    parser.add_argument("-o", "--output", type=Path, help="where the JSON goes")
    given = parser.parse_args()
    unknown = sorted(set(given.groups) - set(suite.GROUPS))
    if unknown or given.rounds < 2:
        parser.error(f"no such group: {' '.join(unknown)}" if unknown else "--rounds must be >= 2")
    return given


def _run(case: suite.Case, given: argparse.Namespace) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        contest = case.prepare(stack)
        results = pairs.race(
            contest, rounds=given.rounds, clock=given.clock, turn_ns=given.turn_ms * 10**6
        )
    for result in results:
        print(table.line(case, result), flush=True)
    return table.rows(case, results)


if __name__ == "__main__":
    main()
