"""`python -m bench.two_workers [NAME ...]`: what a second worker gains, and a second bare kernel.

Each way to read, with one worker and with two, takes turns with one thread and two that run a bare
kernel and nothing else: for `scan`, `dump` and `export` the decode of the same bytes, for `verify`
the checksums of these bytes, for `doctor` and `explain`, over thousands of small segments,
checksums in the cache. Verbs run in a child process that has their modules already. On the wall, so
that other programs count: run it where there are none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import kseg
import kseg.cli.dump
import kseg.cli.export
import kseg.parquet
from bench import datagen
from kseg._core import crc32c
from kseg.cli.main import main as kseg_main
from kseg.format.header import scan
from kseg.format.reader import End, PieceReader, Workspace
from kseg.format.request import Request
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


#: The logs that are read, and how much of each: so much that the start of threads does not tell.
_CORPORA = {"columns": "v2-plain-100-16k", "lz4": "v2-lz4-100-16k"}
_MIB = 512
#: And how much of each partition, where files are what is shared.
_PARTITION_MIB = {"export": 12, "verify": 102}
_FIELDS = ("offset", "timestamp", "key", "value")


class Way(NamedTuple):
    """Work that one worker does, or two, and what a bare kernel does of it, in one thread."""

    work: Callable[[int], object]
    kernel: Callable[[], object]


def main() -> None:
    """Parse the command line, take turns, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.two_workers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of the ways; all without")
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    datagen.DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=datagen.DATA) as scratch:
        for name, make in _ways(Path(scratch), given.segments).items():
            if given.names and name not in given.names:
                continue
            way = make()
            way.work(1)
            rounds = [_round(way) for _ in range(given.rounds)]
            for at, what in enumerate(("workers", "kernels", "of it")):
                low, middle, high = statistics.quantiles((each[at] for each in rounds), n=4)
                print(f"{name:8} {what:8} {middle:.2f} ({low:.2f} - {high:.2f})", flush=True)


def _ways(home: Path, segments: int) -> dict[str, Callable[[], Way]]:
    """What is measured, each made when its turn comes."""
    return {
        **{name: partial(_scan, corpus) for name, corpus in _CORPORA.items()},
        "dump": partial(_verb, home, "dump", "--format", "jsonl"),
        "export": partial(_verb, home, "export", "-o", str(home / "out")),
        "verify": partial(_verify, home),
        "doctor": partial(_small, home, segments, "doctor"),
        "explain": partial(_small, home, segments, "explain"),
    }


def _scan(corpus: str) -> Way:
    log = datagen.corpus(corpus, mib=_MIB).log

    def scanned(threads: int) -> None:
        for _ in kseg.scan(log, columns=_FIELDS, threads=threads):
            pass

    return Way(scanned, _decode(log))


def _verb(home: Path, verb: str, *options: str) -> Way:
    if verb in _PARTITION_MIB:
        log, path = _partitions(home / f"many-{verb}", _PARTITION_MIB[verb])
        decoded = _decode(log)
        return Way(partial(_run, verb, *options, str(path)), partial(_repeat, decoded, _PARTITIONS))
    log = datagen.corpus(_CORPORA["columns"], mib=_MIB).log
    return Way(partial(_run, verb, *options, str(log)), _decode(log))


def _run(*words: str | int) -> None:
    """Run a verb in a child, with so many jobs as the last word says."""
    *verb, jobs = words
    child = os.fork()
    if not child:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.argv = ["kseg", *map(str, verb), "--jobs", str(jobs)]
        code = 1
        try:
            kseg_main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"kseg {' '.join(map(str, verb))}: wait status {status}")


def _partitions(home: Path, mib: int) -> tuple[Path, Path]:
    """Partitions that are links to one log, and the log."""
    log = datagen.corpus(_CORPORA["columns"], mib=mib).log
    for number in range(_PARTITIONS):
        (home / f"t-{number}").mkdir(parents=True)
        os.link(log, home / f"t-{number}" / log.name)
    return log, home


def _repeat(do: Callable[[], object], count: int) -> None:
    for _ in range(count):
        do()


def _verify(home: Path) -> Way:
    log, path = _partitions(home / "many-verify", _PARTITION_MIB["verify"])
    data = log.read_bytes()

    def checked() -> None:
        at = 0
        while at < len(data):
            at = scan(data, start=at, on_bad_crc="note").end_position

    return Way(lambda jobs: kseg.verify(path, threads=jobs), partial(_repeat, checked, _PARTITIONS))


def _decode(log: Path) -> Callable[[], None]:
    """The one pass over the bytes of a log, its pieces dropped at once."""
    data = memoryview(log.read_bytes())

    def decoded() -> None:
        reader = PieceReader(Request(columns=_FIELDS), Workspace(), source=None)
        end = End.FULL
        while end is End.FULL:
            end = reader.read(data, base=0, limit=len(data), file_end=len(data))
            for _ in reader.pieces():
                pass

    return decoded


def _small(home: Path, segments: int, verb: str) -> Way:
    if not (home / "t-0").exists():
        _write(home, segments // _PARTITIONS)
    calls = {
        "doctor": lambda jobs: kseg.doctor(home, now_ms=_NOW, threads=jobs),
        "explain": lambda jobs: kseg.explain(home, now_ms=_NOW, config=_KEEP, threads=jobs),
    }
    return Way(calls[verb], _checksums)


_KEEP = {"retention.ms": "-1"}


def _round(way: Way) -> tuple[float, float, float]:
    """What a second worker gains, what a second kernel does, and the share of the former."""
    one, two = (_seconds(partial(way.work, jobs)) for jobs in (1, 2))
    alone, together = (_seconds(partial(_kernels, way.kernel, count)) for count in (1, 2))
    workers, kernels = one / two, 2 * alone / together
    return workers, kernels, workers / kernels


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def _checksums() -> None:
    for _ in range(_BLOCKS):
        crc32c(_BLOCK)


def _kernels(kernel: Callable[[], object], count: int) -> None:
    threads = [threading.Thread(target=kernel) for _ in range(count)]
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
