"""What is measured of recovery: all that a segment says, beside a walk that only checks it.

The sweep has nothing to do with a disk; installing what it found is measured with it once. A
segment with producers has one id in all batches, and a leader epoch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench import peers
from bench.case import Case, made
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from contextlib import ExitStack

CORPORA = {
    "sweep 16 KB batches": "v2-plain-100-16k",
    "sweep 1 KB values": "v2-plain-1000-16k",
    "sweep 1 MB batches": "v2-plain-100-1m",
    "sweep zstd": "v2-zstd-100-16k",
    "sweep one record": "v2-plain-100-one",
    "sweep magic 1": "v1-plain-100-16k",
}


def recover_cases() -> list[Case]:
    """Every case of the group."""
    sweeps = [
        Case("recover", name, "byte", partial(_prepare, corpus=corpus))
        for name, corpus in CORPORA.items()
    ]
    whole = partial(_prepare, corpus="v2-plain-100-16k", install=True)
    return [*sweeps, Case("recover", "sweep and install", "byte", whole)]


def _prepare(stack: ExitStack, *, corpus: str, install: bool = False) -> Contest:
    from bench import subjects

    log = made(corpus)
    rivals = (
        Versus("verify", subjects.verify(log.log, stack)),
        Versus("read sum", peers.read_sum(peers.mapped(log.log, stack))),
    )
    return Contest(subjects.sweep(log.log, stack, install=install), rivals, log.file_bytes)
