"""Verify reports an index fault exactly when a reindexing would change that file.

The last segment is the exception: while a log is open its indexes may have unused entries, and need
not end with the largest timestamp. A reindexing leaves them as a clean stop does.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.analysis.verify import verify
from kseg.files import producer_snapshot
from kseg.files.names import FileKind
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.config import LogConfig
from kseg.log.recovery.reindex import plan_reindex
from tests.builders import (
    ABORT,
    COMMIT,
    GZIP,
    NONE,
    batch,
    control_batch,
    record,
    records_of,
    write_segment,
)
from tests.shares import WHOLE

_WORDS = {"": "index", "time-": "timeindex", "txn-": "txnindex"}
_SIZES = {"index": 8, "timeindex": 12, "txnindex": 34}
_KINDS = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)
_FIRST = 40


# ---- logs ----------------------------------------------------------------------------------------


def plain(rng: random.Random, offset: int) -> tuple[bytes, int]:
    """Records of any format, with times or without; the offset behind them."""
    magic, codec = rng.choice([(0, NONE), (0, GZIP), (1, NONE), (1, GZIP), (2, NONE), (2, GZIP)])
    count = 1 if magic < 2 and codec == NONE else rng.randrange(1, 4)
    times = [rng.choice([-1, 5000, 10 * offset, 10 * offset + i]) for i in range(count)]
    size = rng.choice([10, 900, 3000])
    given = [
        record(rng.randbytes(size), timestamp=time, offset=offset + i)
        for i, time in enumerate(times)
    ]
    return records_of(given, magic=magic, codec=codec, base_offset=offset), offset + count


def transactional(rng: random.Random, offset: int) -> tuple[bytes, int]:
    """Data or a marker of one of three producers."""
    producer = rng.randrange(3)
    if rng.random() < 0.5:
        kind = rng.choice([ABORT, ABORT, COMMIT])
        return control_batch(kind, base_offset=offset, producer_id=producer), offset + 1
    given = [record(rng.randbytes(rng.choice([10, 2000])), timestamp=10 * offset)]
    data = batch(
        given, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True
    )
    return data, offset + 1


def a_log(rng: random.Random, directory: Path) -> None:
    """Up to three segments, the indexes that a writer with any interval leaves beside them."""
    offset = _FIRST
    for _ in range(rng.randrange(1, 4)):
        base, parts = offset, []
        for _ in range(rng.choice([0, 1, 3, 12])):
            part, offset = rng.choice([plain, transactional])(rng, offset)
            parts.append(part)
            offset += rng.choice([0, 0, 2])
        write_segment(directory, base, *parts)
        offset = max(offset, base + 1)
    if rng.random() < 0.3:
        begun = ProducerSnapshotEntry(0, 0, 0, 30, 0, 0, -1, rng.choice([-1, 30]))
        producer_snapshot.write(directory / f"{_FIRST:020d}.snapshot", [begun])
    interval = LogConfig(index_interval_bytes=rng.choice([0, 1000, 4096, 9000]))
    plan_reindex(directory, config=interval).apply(keep=False)


# ---- what becomes of an index --------------------------------------------------------------------

Damage = Callable[[random.Random, bytes, int], bytes]


def flipped(rng: random.Random, data: bytes, size: int) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[rng.randrange(len(changed))] ^= rng.choice([1, 2, 0x80])
    return bytes(changed)


def without_entries(rng: random.Random, data: bytes, size: int) -> bytes:
    kept = rng.randrange(len(data) // size + 1) * size
    return rng.choice([data[:kept], data[kept:]])


def doubled(rng: random.Random, data: bytes, size: int) -> bytes:
    """An entry twice, the second with another byte at the end of its first field."""
    at = rng.randrange(max(len(data) // size, 1)) * size
    again = bytearray(data[at : at + size])
    if again and rng.random() < 0.7:
        again[3] = min(again[3] + 1, 255)
    return data[:at] + data[at : at + size] + again + data[at + size :]


def swapped(rng: random.Random, data: bytes, size: int) -> bytes:
    entries = [data[at : at + size] for at in range(0, len(data), size)]
    rng.shuffle(entries)
    return b"".join(entries)


DAMAGES: dict[str, Damage] = {
    "as it was": lambda rng, data, size: data,
    "a bit": flipped,
    "fewer entries": without_entries,
    "torn": lambda rng, data, size: data[: rng.randrange(len(data) + 1)],
    "more bytes": lambda rng, data, size: data + rng.randbytes(rng.choice([1, size])),
    "preallocated": lambda rng, data, size: data + bytes(size * rng.choice([1, 2, 5000])),
    "zeros": lambda rng, data, size: bytes(size * rng.choice([0, 1, 2, 5000])),
    "an entry twice": doubled,
    "another order": swapped,
    "noise": lambda rng, data, size: rng.randbytes(size * rng.randrange(4)),
}


def damage(rng: random.Random, directory: Path) -> None:
    """Each index in a way of its own; some change places, some go."""
    paths = [
        log.with_suffix(f".{kind.value}") for log in directory.glob("*.log") for kind in _KINDS
    ]
    for path in sorted(paths):
        data = path.read_bytes() if path.exists() else b""
        way = rng.choice([*DAMAGES, "gone", "of another segment", "as it was", "as it was"])
        if way == "gone":
            path.unlink(missing_ok=True)
        elif way == "of another segment":
            others = sorted(directory.glob(f"*{path.suffix}"))
            path.write_bytes(rng.choice(others).read_bytes() if others else b"")
        elif way != "as it was":
            path.write_bytes(DAMAGES[way](rng, data, _SIZES[path.suffix[1:]]))


# ---- the property --------------------------------------------------------------------------------


def reported(directory: Path) -> set[str]:
    """The indexes that verify finds fault with; one that is missing is told with its log."""
    found = set()
    for finding in verify(directory).findings:
        front, word, _ = finding.code.partition("index-")
        if word:
            path = Path(finding.path)
            kind = _WORDS[front] if path.suffix == ".log" else path.suffix[1:]
            found.add(f"{path.stem}.{kind}")
    return found


def changed(directory: Path) -> set[str]:
    plan = plan_reindex(directory, kinds=_KINDS)
    assert plan.findings == ()
    return {file.path.name for file in plan.files}


def of_the_last_segment(directory: Path) -> set[str]:
    """The indexes that a reindexing leaves as a clean stop does, and that an open log need not."""
    last = max(directory.glob("*.log")).stem
    return {f"{last}.index", f"{last}.timeindex"}


def check(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "data", "t-0")
        directory.mkdir(parents=True)
        a_log(rng, directory)
        damage(rng, directory)
        faults = reported(directory)
        changes = changed(directory)
        assert faults <= changes <= faults | of_the_last_segment(directory), seed
        plan_reindex(directory).apply(keep=False)
        assert reported(directory) == changed(directory) == set(), seed


@settings(max_examples=200 if WHOLE else 8)
@given(st.integers(0, 2**32))
def test_verify_reports_a_fault_exactly_when_a_reindexing_would_change_the_file(seed: int) -> None:
    check(seed)


def test_two_entries_that_lead_to_one_batch_are_no_fault(tmp_path: Path) -> None:
    """Both look up right: every batch in front has offsets below theirs."""
    directory = tmp_path / "data" / "t-0"
    first = batch([record(bytes(5000))], base_offset=0)
    second = batch([record(bytes(50), timestamp=i) for i in range(3)], base_offset=1)
    write_segment(directory, 0, first, second)
    plan_reindex(directory).apply(keep=False)
    index = directory / f"{0:020d}.index"
    index.write_bytes(pack(">iiii", 1, len(first), 3, len(first)))
    assert reported(directory) == changed(directory) == set()
