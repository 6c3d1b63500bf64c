"""What every list of cases is made of: the row of the table, the logs, and the peers of all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from bench import datagen, peers
from bench.pairs import Clock, Contest, Versus

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

JAVA = peers.Java()


@dataclass(frozen=True, slots=True)
class Case:
    """One row group of the table.

    Attributes:
        group: one of `cases.GROUPS`.
        name: unique.
        unit: what is counted.
        prepare: opens what the contest needs on the stack; nothing in it is timed.
    """

    group: str
    name: str
    unit: Literal["record", "batch", "byte", "lookup", "segment"]
    prepare: Callable[[ExitStack], Contest]


@cache
def made(name: str, mib: int | None = None) -> datagen.Corpus:
    """A corpus, made once per run."""
    return datagen.corpus(name, mib=mib)


def scratch(stack: ExitStack) -> Path:
    """An empty directory on the disk of the logs, which goes with the stack."""
    datagen.DATA.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(TemporaryDirectory(dir=datagen.DATA)))


def java(command: str, log: datagen.Corpus, units: int, **options: object) -> Versus:
    """Kafka's own classes over a log, counted in `units`."""

    def timed(clock: Clock) -> float:
        return JAVA.ask(command, clock, files=[str(log.log)], **options) / units

    return Versus("Kafka's Java", None, timed=timed)


def per_record(label: str, sweep: Callable[[], int], log: datagen.Corpus) -> Versus:
    """A peer that counts the bytes of a whole log, counted in records."""

    def call() -> int:
        sweep()
        return log.records

    return Versus(label, call)
