"""Ask kseg and Kafka's own classes the same, and print every difference.

    python -m tests.interop.differential --cases 20000 --seed 7
    python -m tests.interop.differential --seed 7 --only 123

Each case has a number; the seed and the number repeat it. Exit status 1 says that there was a
difference.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.interop import cases, ours
from tests.interop.compare import COMPARE, as_bytes, compare_parse, kinds_of
from tests.interop.kafka import Kafka

Answer = dict[str, Any]

_ROUND = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two do not agree."""

    case: cases.Case
    what: str
    kafka: object
    kseg: object

    def __str__(self) -> str:
        name = f"{self.case.kind} {self.case.seed}:{self.case.number}"
        return f"{name}: {self.what}\n    kafka {self.kafka!r:.600}\n    kseg  {self.kseg!r:.600}"


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    asked: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    exchanged: int = 0
    differences: list[Difference] = field(default_factory=list)
    seconds: float = 0.0


def run(kafka: Kafka, given: Iterable[cases.Case]) -> Figures:
    """Give each case to both, many in one go; then let each read what the other compressed."""
    figures = Figures()
    started = time.monotonic()
    for chunk in _chunks(given):
        answers = kafka.ask([one.request for one in chunk])
        exchange: list[Pair] = []
        for case, theirs in zip(chunk, answers, strict=True):
            figures.asked[case.kind] += 1
            figures.refused[case.kind] += "error" in theirs
            found, mine = differences(case, theirs, kafka.release)
            figures.differences += found
            if "parse" in kinds_of(kafka.release):
                exchange += pairs(case, theirs, mine)
        figures.exchanged += len(exchange)
        figures.differences += read_each_other(kafka, exchange)
    figures.seconds = time.monotonic() - started
    return figures


def differences(case: cases.Case, theirs: Answer, release: str) -> tuple[list[Difference], Answer]:
    """Where kseg's answer is not Kafka's; an exception that is no refusal is one, too."""
    try:
        mine = ours.answer(case.request, release)
    except Exception:
        return [Difference(case, "exception", theirs, traceback.format_exc(limit=-3))], {}
    found = COMPARE[case.kind](case.request, theirs, mine)
    return [Difference(case, *parts) for parts in found], mine


Pair = tuple[cases.Case, bytes, bytes]


def pairs(case: cases.Case, theirs: Answer, mine: Answer) -> Iterator[Pair]:
    """What both have written, where the bytes are not the same: compressed, that is."""
    for written in (mine, mine.get("bulk", {})):
        if "data" in theirs and "data" in written:
            data = as_bytes(theirs["data"])
            if data != written["data"]:
                yield case, data, written["data"]


_OWN = {"position", "size", "crc"}  # of compressed bytes
_ERRORS = {"error", "records_error", "skip_error"}


def _as_read(batch: Answer) -> Answer:
    """A batch without what is compressed bytes' own, its errors by their class."""
    errors = {name: batch[name]["error"] for name in _ERRORS & batch.keys()}
    return {name: value for name, value in batch.items() if name not in _OWN} | errors


def read_each_other(kafka: Kafka, exchange: Sequence[Pair]) -> Iterator[Difference]:
    """Kafka reads the same out of both; so does kseg."""
    requests = [{"op": "parse", "data": data} for _, *both in exchange for data in both]
    answers = kafka.ask(requests)
    for (case, data, _), theirs, mine in zip(exchange, answers[::2], answers[1::2], strict=True):
        one, other = ([_as_read(batch) for batch in side["batches"]] for side in (theirs, mine))
        if one != other:
            yield Difference(case, "Kafka reads", one, other)
        request = {"op": "parse", "data": data}
        for parts in compare_parse(request, theirs, ours.answer(request)):
            yield Difference(case, *parts)


def _chunks(given: Iterable[cases.Case]) -> Iterator[list[cases.Case]]:
    chunk: list[cases.Case] = []
    for case in given:
        chunk.append(case)
        if len(chunk) == _ROUND:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--seed", default="1", help="text; each gives other cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="just the case of this number")
    parser.add_argument("--kinds", nargs="+", choices=COMPARE, default=tuple(COMPARE))
    parser.add_argument("--kafka", default="3.9.1", help="release of Kafka's classes")
    options = parser.parse_args(arguments)
    first, count = options.first, options.cases
    if options.only is not None:
        first, count = options.only, 1
    kinds = set(options.kinds) & set(kinds_of(options.kafka))
    given = cases.of_kinds(kinds, options.seed, first, count)
    with Kafka(options.kafka) as kafka:
        figures = run(kafka, given)
    for difference in figures.differences:
        print(difference)
    for kind, asked in sorted(figures.asked.items()):
        print(f"{kind:10} {asked:6} cases, {figures.refused[kind]:5} refused by Kafka")
    total = sum(figures.asked.values())
    print(f"{total} cases with Kafka {options.kafka}, seed {options.seed}; ", end="")
    print(f"{figures.exchanged} compressed answers read by the other side; ", end="")
    print(f"{len(figures.differences)} differences, {figures.seconds:.1f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main())
