"""Random logs through Kafka's dump tool and through `kseg dump --kafka`: every line is the same.

    python -m tests.interop.dumps --cases 500 --seed 7
    python -m tests.interop.dumps --seed 7 --only 123

A log has batches of one format or of several: transactions and markers, every codec, wrong
checksums, messages inside messages. kseg's own errors do not count, nor does a log at which Kafka's
tool ends with an exception. A seed and a number repeat a case. Exit status 1 says that there was a
difference.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kseg.cli.main import run as kseg
from kseg.constants import NEWEST_RELEASE
from tests.interop.kafka import RELEASE, Answer, Kafka, is_since, unbase64
from tests.interop.made import often, written

#: What Kafka's tool is asked for.
OPTIONS = (
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--deep-iteration", "--print-data-log"),
    ("--print-data-log", "--skip-record-metadata"),
)


@dataclass(frozen=True, slots=True)
class Log:
    """One log, and how it is dumped; its seed and number repeat it."""

    seed: str
    number: int
    data: bytes
    options: tuple[str, ...]


def log(seed: str, number: int) -> Log:
    """The log of a seed with that number."""
    chance = Random(f"dump:{seed}:{number}")
    made = written(chance, several=0.8, mixed=0.2, hostile=0.0)
    data = made["data"]
    options = chance.choice(OPTIONS)
    if often(chance, 0.1):
        options = (*options, "--max-bytes", str(chance.randrange(len(data) + 20)))
    return Log(seed, number, data, options)


@dataclass(frozen=True, slots=True)
class Printed:
    """What one of the two printed."""

    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two do not print the same."""

    log: Log
    kafka: Printed
    kseg: Printed

    def __str__(self) -> str:
        name = f"{self.log.seed}:{self.log.number} {' '.join(self.log.options)}"
        lines = [f"{name}:"]
        for what in ("out", "err"):
            theirs, mine = (getattr(side, what) for side in (self.kafka, self.kseg))
            if theirs != mine:
                start = _line_that_differs(theirs, mine)
                lines += [f"    kafka {theirs[start:][:700]!r}"]
                lines += [f"    kseg  {mine[start:][:700]!r}"]
        return "\n".join(lines)


def _line_that_differs(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    return one.rfind(b"\n", 0, same) + 1


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    asked: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


def run(kafka: Kafka, logs: Iterable[Log], home: Path) -> Figures:
    """Dump each log with both, from one file under `home`."""
    figures = Figures()
    path = home / f"{0:020d}.log"
    for one in logs:
        path.write_bytes(one.data)
        arguments = [*one.options, "--files", str(path)]
        answer = kafka.ask([{"op": "dump", "args": arguments}])[0]
        if "error" in answer:
            figures.counts["ended by an exception"] += 1
            continue
        theirs, mine = _theirs(answer), ours(arguments)
        figures.asked += 1
        if theirs != mine:
            figures.differences.append(Difference(one, theirs, mine))
    return figures


def _theirs(answer: Answer) -> Printed:
    out, err = (unbase64(answer[name]) or b"" for name in ("out", "err"))
    return Printed(out, err)


class _Stream(io.TextIOWrapper):
    """A standard stream that is kept."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", "surrogateescape", write_through=True)

    @property
    def written(self) -> bytes:
        """What was written."""
        self.flush()
        kept: Any = self.buffer
        return bytes(kept.getvalue())


def ours(arguments: Sequence[str]) -> Printed:
    """What kseg prints for the same arguments, without its own errors."""
    out, err = _Stream(), _Stream()
    with redirect_stdout(out), redirect_stderr(err):
        version = ["--kafka-version", NEWEST_RELEASE] if is_since(RELEASE, "4.4") else []
        kseg(["dump", "--kafka", *version, *arguments])
    lines = err.written.splitlines(keepends=True)
    return Printed(out.written, b"".join(x for x in lines if not x.startswith(b"kseg: ")))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--seed", default="1", help="text; each gives other logs")
    parser.add_argument("--first", type=int, default=0, help="number of the first log")
    parser.add_argument("--only", type=int, help="just the log of this number")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.cases)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    with tempfile.TemporaryDirectory() as folder, Kafka(RELEASE, "broker") as kafka:
        figures = run(kafka, (log(options.seed, number) for number in numbers), Path(folder))
    for difference in figures.differences:
        print(difference)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(figures.counts.items()))
    print(f"{figures.asked} logs beside Kafka {RELEASE}, seed {options.seed} ({counts}); ", end="")
    print(f"{len(figures.differences)} differences")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main())
