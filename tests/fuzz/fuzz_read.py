"""Feed mutated bytes to every reader: `python -m tests.fuzz.fuzz_read --seconds 60 --seed 7`.

Whatever the bytes, a reader gives data or raises a `KsegError`. Any other exception, a crash, more
than a few seconds for one input, or two ways to read that disagree is a finding: it is printed with
the command that repeats it, made smaller where that is easy, and saved. Exit status 1 says that
there was one.

The cases of a seed are numbered, and each depends on the seed, its number and the files that
`tests.fuzz.seeds` finds. They run in a child process, so that a crash ends one case and not the
search.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests import places
from tests.fuzz import directories, mutate, seeds, targets

CASE_SECONDS_MAX = 5.0
HANG_SECONDS = 60
FINDINGS_MAX = 20
MEMORY_BYTES_MAX = 6 << 30
_WEIGHTS = {
    "log": 12,
    "directory": 4,
    "codec": 4,
    "kafka07": 3,
    "lines": 1,
    "index": 1,
    "timeindex": 1,
    "snapshot": 1,
}
MUTATORS = mutate.MUTATORS | {"directory": directories.mutate_directory}
_SHRINKS_MAX = 400
_HEX_MAX = 3000


@dataclass(slots=True)
class Cases:
    """Numbered inputs: a seed file, chosen and mutated by chance that the number fixes."""

    seed: str
    kinds: tuple[str, ...]
    pools: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in seeds.load():
            if entry.kind in self.kinds:
                self.pools.setdefault(entry.kind, []).append(entry.data)

    def make(self, number: int) -> tuple[str, bytes, Random]:
        """Kind and bytes of a case, and the chance that goes on to choose how to read."""
        source = Random(f"{self.seed}:{number}")
        kinds = list(self.pools)
        kind = source.choices(kinds, [_WEIGHTS.get(name, 0.4) for name in kinds])[0]
        pool = self.pools[kind]
        data = source.choice(pool)
        for _ in range(source.choice((1, 1, 1, 2))):
            data = MUTATORS[kind](data, source, pool)
        return kind, data, Random(source.getrandbits(64))


def attempt(kind: str, data: bytes, source: Random, directory: Path) -> str | None:
    """What is wrong with how the bytes are read: a traceback, or None."""
    started = time.process_time()
    try:
        targets.run(kind, data, source, directory)
    except Exception:
        return traceback.format_exc()
    seconds = time.process_time() - started
    return f"took {seconds:.1f} s" if seconds > CASE_SECONDS_MAX else None


def where(trace: str) -> str:
    """What stays the same while a finding is made smaller: the last place and the exception."""
    lines = [line for line in trace.splitlines() if not line.lstrip().startswith(("^", "~"))]
    places = [line for line in lines if line.lstrip().startswith("File ")]
    return (places or [""])[-1] + lines[-1].partition(":")[0]


def shrink(kind: str, data: bytes, source: Random, directory: Path, trace: str) -> bytes:
    """Drop pieces of the bytes as long as the same thing goes wrong in the same place."""
    state, place = source.getstate(), where(trace)
    piece, tries = max(1, len(data) // 2), 0
    while piece and tries < _SHRINKS_MAX:
        at = 0
        while at < len(data) and tries < _SHRINKS_MAX:
            smaller = data[:at] + data[at + piece :]
            source.setstate(state)
            again = attempt(kind, smaller, source, directory)
            tries += 1
            if again is not None and where(again) == place:
                data = smaller
            else:
                at += piece
        piece //= 2
    source.setstate(state)
    return data


@dataclass(slots=True)
class Search:
    """One run: its cases, its end, and where findings go."""

    cases: Cases
    deadline: float
    last: int | None
    directory: Path
    save: Path
    #: Shared with the child: the case at work, how many findings, cases done.
    board: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 4096))

    def read(self, slot: int) -> int:
        return int.from_bytes(self.board[slot * 8 : slot * 8 + 8], "little")

    def write(self, slot: int, value: int) -> None:
        self.board[slot * 8 : slot * 8 + 8] = value.to_bytes(8, "little")

    def report(self, number: int, kind: str, data: bytes, trace: str) -> None:
        """Print and save one finding."""
        self.write(1, self.read(1) + 1)
        self.save.mkdir(parents=True, exist_ok=True)
        path = self.save / f"{kind}-{self.cases.seed}-{number}.bin"
        path.write_bytes(data)
        repeat = f"python -m tests.fuzz.fuzz_read --seed {self.cases.seed} --case {number}"
        shown = data.hex() if len(data) * 2 <= _HEX_MAX else f"{data.hex()[:_HEX_MAX]}..."
        print(
            f"\n== {kind}, {len(data)} bytes: {path}\n{trace}\n{shown}\nrepeat: {repeat}",
            flush=True,
        )

    def child(self, first: int) -> None:
        """Run cases from `first` on until the time, the cases or the patience are used up."""
        faulthandler.enable()
        seen: Counter[str] = Counter()
        number = first
        while time.monotonic() < self.deadline and (self.last is None or number <= self.last):
            self.write(0, number)
            if number % 256 == 0 or self.last is not None:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            kind, data, source = self.cases.make(number)
            state = source.getstate()
            trace = attempt(kind, data, source, self.directory)
            if trace is not None and not (seen[where(trace)] or seen.update([where(trace)])):
                source.setstate(state)
                smaller = shrink(kind, data, source, self.directory, trace)
                self.report(number, kind, smaller, trace)
            self.write(2, self.read(2) + 1)
            if self.read(1) >= FINDINGS_MAX:
                return
            number += 1

    def run(self, first: int) -> int:
        """Start children until one ends by itself; how many findings."""
        while True:
            pid = os.fork()
            if pid == 0:
                self.child(first)
                sys.stdout.flush()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            number = self.read(0)
            if status == 0:
                return self.read(1)
            kind, data, _ = self.cases.make(number)
            how = os.waitstatus_to_exitcode(status)
            name = signal.Signals(-how).name if how < 0 else f"exit status {how}"
            self.report(number, kind, data, f"the process died: {name}")
            if self.read(1) >= FINDINGS_MAX:
                return self.read(1)
            first = number + 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default="1", help="any text; the cases follow from it")
    parser.add_argument("--case", type=int, help="run this case of the seed alone")
    parser.add_argument("--kinds", nargs="+", default=seeds.KINDS, choices=seeds.KINDS)
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"))
    parser.add_argument(
        "--no-memory-limit", action="store_true", help="for sanitizers, which map terabytes"
    )
    return parser.parse_args()


def main() -> int:
    """Run, and say what was found."""
    options = arguments()
    if not options.no_memory_limit:
        # A length taken on its word then shows as a MemoryError.
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    parent = tempfile.mkdtemp(prefix="kseg-fuzz-", dir=places.in_memory())
    started = time.monotonic()
    try:
        search = Search(
            cases=Cases(options.seed, tuple(options.kinds)),
            deadline=started + options.seconds,
            last=options.case,
            directory=Path(parent),
            save=options.save,
        )
        findings = search.run(options.case or 0)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    done, seconds = search.read(2), time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(
        f"seed {options.seed}: {done} cases in {seconds:.0f} s, {done / max(seconds, 1):.0f}/s, "
        f"peak {peak} MiB, {findings} findings"
    )
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
