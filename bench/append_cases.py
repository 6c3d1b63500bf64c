"""What is measured of appending: a log under one writer, beside a bare `pwrite` of the same bytes.

Both write at the end of a file that grows. What a single append may cost beyond the `pwrite` is a
time, not a ratio, so that the peer is given that time on top. A follower's batches are numbered
anew for each call, which counts; those of many pieces all at once, so that it counts little. A
leader forgets a producer before each call, so that it may begin at sequence 0 again.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import datagen, pairs
from bench.case import Case, made, scratch
from bench.pairs import Contest, Versus
from bench.write_cases import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

CORPUS_MIB = 32
PIECE_BYTES = 2**20
#: The front of a batch, which no checksum covers.
HEAD = np.dtype([("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4")])
#: What a producer's usual batch holds, and how many are sent in a row.
RECORDS, BATCHES = 50, 64
SMALL = "v2-plain-100-16k"
#: What an append of one batch may cost beyond what it cannot do without, in ns.
FOLLOWER_NS, LEADER_NS = 15_000, 25_000


def append_cases() -> list[Case]:
    """Every case of the group."""
    one = partial(partial, _prepare_one)
    return [
        Case("append", "follower 1 MiB pieces", "byte", partial(_prepare_pieces, times=1)),
        Case("append", "follower 1 MiB, twice as many", "byte", partial(_prepare_pieces, times=2)),
        Case("append", "follower 64 KiB batch", "batch", one(leads=False)),
        Case("append", "leader 64 KiB batch", "batch", one(leads=True)),
        *(_idempotent(codec, leads=True) for codec in ("none", "lz4", "zstd")),
        *(_idempotent(codec, leads=False) for codec in ("none", "zstd")),
    ]


def _idempotent(codec: str, *, leads: bool) -> Case:
    """Batches of an idempotent producer beside the same without one."""
    role = "leader" if leads else "follower"
    prepare = partial(_prepare_idempotent, codec=codec.upper(), leads=leads)
    return Case("append", f"{role}, {codec}, idempotent", "batch", prepare)


def _prepare_pieces(stack: ExitStack, *, times: int) -> Contest:
    log = made(SMALL, mib=min(CORPUS_MIB, datagen.mebibytes()))
    sizes = [len(batch) for batch in batches(log)] * times
    data = bytearray(b"".join(batches(log)) * times)
    pieces, start, end = [], 0, 0
    for size in sizes:
        if end + size - start > PIECE_BYTES:
            pieces.append(memoryview(data)[start:end])
            start = end
        end += size
    work = sum(map(len, pieces))
    root = scratch(stack)
    subject = _follow_pieces(stack, root / "t-0", data, pieces, work)
    return Contest(subject, (Versus("bare pwrite", bare(stack, root, pieces, work)),), work)


def _follow_pieces(
    stack: ExitStack, path: Path, data: bytearray, pieces: Sequence[memoryview], work: int
) -> Callable[[], int]:
    """Append pieces of `data`, whose batches are numbered behind what is there; answers `work`."""
    from bench.subjects import NOW_MS
    from kseg.format.header import scan
    from kseg.log.log import Log

    log = Log.open(path, mode="append", create=True, now_ms=lambda: NOW_MS)
    stack.enter_context(log)
    table, flat = scan(data[:work]), np.frombuffer(data, np.uint8)
    heads = table.position[:, np.newaxis] + np.arange(12 + 4)
    numbers = np.zeros(len(table), HEAD)  # of leader epoch 0
    numbers["length"] = table.size - 12
    firsts = np.cumsum(table.record_count) - table.record_count

    def append() -> int:
        numbers["base_offset"] = firsts + log.log_end_offset
        flat[heads] = numbers.view(np.uint8).reshape(heads.shape)
        for piece in pieces:
            log.append_as_follower(piece)
        return work

    return append


def _prepare_one(stack: ExitStack, *, leads: bool) -> Contest:
    from bench import subjects

    size = 2**16
    given = [bytearray(subjects.batch_of(size)) for _ in range(4 * 2**20 // size)]
    root, count = scratch(stack), len(given)
    written = bare(stack, root, given, count)
    if leads:
        subject = subjects.lead(stack, root / "t-0", given, count)
        needed = (written, subjects.check(given))
        extra, label = LEADER_NS, "pwrite, check + 25 us"
    else:
        subject = subjects.follow(stack, root / "t-0", given, count)
        needed, extra, label = (written,), FOLLOWER_NS, "pwrite + 15 us"
    peer = Versus(label, None, timed=_and_some(needed, extra))
    return Contest(subject, (peer,), count)


def _prepare_idempotent(stack: ExitStack, *, codec: str, leads: bool) -> Contest:
    from bench import subjects

    given = [_sent(codec, BATCHES, idempotent=idempotent) for idempotent in (True, False)]
    root = scratch(stack)
    if leads:
        subject = subjects.lead(stack, root / "t-0", given[0], BATCHES, unknown=True)
        plain = subjects.lead(stack, root / "u-0", given[1], BATCHES)
    else:
        pieces = [_in_pieces(batches, 2**16) for batches in given]
        subject = subjects.follow(stack, root / "t-0", pieces[0], BATCHES)
        plain = subjects.follow(stack, root / "u-0", pieces[1], BATCHES)
    return Contest(subject, (Versus("the same without a producer", plain),), BATCHES)


def _sent(codec: str, count: int, *, idempotent: bool) -> list[bytearray]:
    """Batches as a producer sends them one after the other."""
    from bench.subjects import NOW_MS
    from kseg.constants import Compression
    from kseg.format.encode import encode_batch
    from kseg.format.options import BatchOptions

    columns = {
        "key": [b"key-%d" % number for number in range(RECORDS)],
        "value": [b"value-%d" % number * 8 for number in range(RECORDS)],
        "timestamp": [NOW_MS + number for number in range(RECORDS)],
    }
    producer = {"producer_id": 7, "producer_epoch": 0} if idempotent else {}
    made = []
    for number in range(count):
        sequence = {"base_sequence": number * RECORDS} if idempotent else {}
        options = BatchOptions(compression=Compression[codec], **producer, **sequence)
        made.append(bytearray(encode_batch(columns, options).data))
    return made


def _in_pieces(given: Sequence[bytearray], size: int) -> list[bytearray]:
    pieces = [bytearray()]
    for batch in given:
        if len(pieces[-1]) + len(batch) > size:
            pieces.append(bytearray())
        pieces[-1] += batch
    return pieces


def _and_some(calls: Sequence[Callable[[], int]], extra_ns: int) -> pairs.Timed:
    def timed(clock: pairs.Clock) -> float:
        return sum(pairs.turn(call).ns(clock) for call in calls) + extra_ns

    return timed


def bare(
    stack: ExitStack, root: Path, data: Sequence[bytes | bytearray | memoryview], work: int
) -> Callable[[], int]:
    """The same bytes at the end of a file; answers `work`."""
    fd = os.open(root / "bare", os.O_RDWR | os.O_CREAT)
    stack.callback(os.close, fd)

    position = 0

    def write() -> int:
        nonlocal position
        for piece in data:
            position += os.pwrite(fd, piece, position)
        return work

    return write
