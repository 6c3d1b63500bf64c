"""`python -m bench.two_workers`: what a second worker gains, beside a second copy of a kernel.

`kseg doctor` and `kseg explain` over thousands of small segments, with one job and with two, take
turns with one and two threads that compute checksums and nothing else. On the wall, so that other
programs count: run it where there are none.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import kseg
from kseg._core import crc32c
from kseg.log.config import LogConfig

_PARTITIONS = 10
_NOW = 1_763_900_000_000
_SEGMENT_BYTES = 64 << 10
_RECORDS = 120
_VALUE_BYTES = 110
_BATCHES = 4
#: Small enough for a core's own cache.
_BLOCK = bytes(512 << 10)
_BLOCKS = 20_000


def main() -> None:
    """Parse the command line, take turns, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.two_workers", description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        _write(home, given.segments // _PARTITIONS)
        turns = {
            "doctor": lambda jobs: kseg.doctor(home, now_ms=_NOW, jobs=jobs),
            "explain": lambda jobs: kseg.explain(home, now_ms=_NOW, config=_KEEP, jobs=jobs),
        }
        for name, turn in turns.items():
            turn(1)
            rounds = [_round(turn) for _ in range(given.rounds)]
            for at, what in enumerate(("workers", "kernels", "of it")):
                low, middle, high = statistics.quantiles((each[at] for each in rounds), n=4)
                print(f"{name:8} {what:8} {middle:.2f} ({low:.2f} - {high:.2f})", flush=True)


_KEEP = {"retention.ms": "-1"}


def _round(turn: Callable[[int], object]) -> tuple[float, float, float]:
    """What a second worker gains, what a second kernel does, and the share of the former."""
    one, two = (_seconds(lambda jobs=jobs: turn(jobs)) for jobs in (1, 2))
    alone, together = (_seconds(lambda count=count: _kernels(count)) for count in (1, 2))
    workers, kernels = one / two, 2 * alone / together
    return workers, kernels, workers / kernels


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def _kernels(count: int) -> None:
    def run() -> None:
        for _ in range(_BLOCKS):
            crc32c(_BLOCK)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _write(home: Path, segments: int) -> None:
    """Partitions of so many segments each, as a crash leaves them."""
    chance, at = Random(1), 0
    config = LogConfig(segment_bytes=_SEGMENT_BYTES, retention_ms=-1)
    with kseg.Log.open(home / "t-0", mode="append", create=True, config=config) as log:
        for _ in range(segments * _BATCHES):
            offsets = range(at, at + _RECORDS)
            rows = {
                "key": [b"%010d" % offset for offset in offsets],
                "value": [chance.randbytes(_VALUE_BYTES) for _ in offsets],
                "timestamp": [_NOW + offset for offset in offsets],
            }
            log.append(rows)
            at += _RECORDS
    for number in range(1, _PARTITIONS):
        shutil.copytree(home / "t-0", home / f"t-{number}")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (home / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
