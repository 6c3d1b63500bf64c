"""What is measured of recovery: all that a segment says, beside a walk that only checks it.

The sweep has nothing to do with a disk; installing what it found is measured with it once. A
segment with producers has one id in all batches, and a leader epoch. `kseg.recover` of a whole log
makes all its indexes anew and cuts nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench import datagen, peers
from bench.case import Case, made, scratch
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


#: Segments of the logs that `kseg.recover` takes, and the bytes of their batches.
LOGS = {"recover one segment": 1, "recover ten segments": 10}
BATCH_BYTES = 16384


def recover_cases() -> list[Case]:
    """Every case of the group."""
    sweeps = [
        Case("recover", name, "byte", partial(_prepare, corpus=corpus))
        for name, corpus in CORPORA.items()
    ]
    whole = partial(_prepare, corpus="v2-plain-100-16k", install=True)
    logs = [
        Case("recover", name, "byte", partial(_prepare_log, segments=count))
        for name, count in LOGS.items()
    ]
    return [*sweeps, Case("recover", "sweep and install", "byte", whole), *logs]


def _prepare(stack: ExitStack, *, corpus: str, install: bool = False) -> Contest:
    from bench import subjects

    log = made(corpus)
    rivals = (
        Versus("verify", subjects.verify(log.log, stack)),
        Versus("read sum", peers.read_sum(peers.mapped(log.log, stack))),
    )
    return Contest(subjects.sweep(log.log, stack, install=install), rivals, log.file_bytes)


def _prepare_log(stack: ExitStack, *, segments: int) -> Contest:
    from bench import subjects
    from kseg.files.grammar import FileKind
    from kseg.log.config import LogConfig
    from kseg.log.log import Log
    from kseg.log.recovery.recover import recover

    root, batch = scratch(stack), subjects.batch_of(BATCH_BYTES)
    path, count = root / "t-0", (datagen.mebibytes() << 20) // len(batch)
    config = LogConfig(segment_bytes=-(-count // segments) * len(batch), retention_ms=-1)
    now_ms = partial(int, subjects.NOW_MS)
    with Log.open(path, mode="append", create=True, config=config, now_ms=now_ms) as log:
        for _ in range(count):
            log.append(batch)
    size = count * len(batch)

    def mend() -> int:
        for kind in (FileKind.CLEAN_SHUTDOWN, FileKind.RECOVERY_POINT):
            (root / kind.value).unlink(missing_ok=True)
        for index in path.glob("*index"):
            index.unlink()
        recover(path, config=config)
        return size

    verifies = [subjects.verify(log, stack) for log in sorted(path.glob("*.log"))]
    rivals = (Versus("verify", lambda: sum(verify() for verify in verifies)),)
    return Contest(mend, rivals, size)
