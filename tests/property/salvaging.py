"""Logs that come to harm by chance, and what a salvage of them must come to.

    python -m tests.property.salvaging --seed 17 --keep look    one case, its directories left there

The other reader is `tests/reference.py`: it finds sound batches by trying every position.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import kseg
from kseg import SalvagePlan, apply_salvage, plan_salvage
from kseg.log.salvage import SalvagedPartition
from tests import reference
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, record

KINDS = ("dense", "compacted", "logs")
_HEAD = 17
#: Reasons for which an intact batch may be left out: nothing proves that it is none of a value.
_DOUBT = frozenset(("not-anchored",))


@dataclass(frozen=True, slots=True)
class Original:
    """A batch before the harm."""

    data: bytes
    first: int
    last: int


@dataclass(slots=True)
class Case:
    """A log that came to harm.

    Attributes:
        kind: each offset has a record, or compaction has left holes, or values are whole batches.
        segments: base offset and batches of each.
        indexed: an entry of the offset index for each batch.
        harm: what was done.
    """

    seed: int
    kind: str
    segments: dict[int, list[Original]] = field(default_factory=dict)
    indexed: bool = False
    harm: list[str] = field(default_factory=list)

    @property
    def batches(self) -> list[Original]:
        return [one for each in self.segments.values() for one in each]


def a_case(seed: int) -> Case:
    """A log of a few segments."""
    chance = Random(f"salvage {seed}")
    case = Case(seed, chance.choice(KINDS), indexed=chance.random() < 0.5)
    offset, epoch, base = chance.choice((0, 0, 1_000, 2**40)), 0, None
    for _ in range(chance.randrange(5, 26)):
        if base is None or (len(case.segments[base]) > 2 and chance.random() < 0.3):
            base = offset
            case.segments[base] = []
        epoch += chance.random() < 0.1
        one = _batch(chance, case.kind, offset, epoch)
        case.segments[base].append(one)
        offset = one.last + 1
        if case.kind == "compacted":
            offset += chance.choice((0, 0, 1, 5))
    return case


def _batch(chance: Random, kind: str, offset: int, epoch: int) -> Original:
    count = chance.randrange(1, 5)
    codec = chance.choice((NONE, NONE, NONE, GZIP, LZ4, ZSTD, SNAPPY))
    chosen = range(offset, offset + count)
    given = [
        record(_value(chance, kind, at), key=b"k%d" % (at % 5), timestamp=at, offset=at)
        for at in chosen
        if kind != "compacted" or chance.random() < 0.8
    ]
    made = batch(
        given,
        base_offset=offset,
        last_offset_delta=count - 1,
        base_timestamp=offset,
        leader_epoch=epoch,
        codec=codec,
    )
    return Original(made, offset, offset + count - 1)


def _value(chance: Random, kind: str, offset: int) -> bytes:
    if kind != "logs" or chance.random() < 0.5:
        return b"v%d " % offset + chance.randbytes(chance.randrange(60))
    parts, at = [], offset + chance.choice((-2, 0, 1, 1, 2, 5, 50))
    for _ in range(chance.randrange(1, 4)):
        count = chance.randrange(1, 4)
        inner = [record(b"inner %d" % (at + n)) for n in range(count)]
        parts.append(batch(inner, base_offset=max(at, 0)))
        at += count
    return b"".join(parts)


# ---- harm ----------------------------------------------------------------------------------------

Harm = Callable[[Random, bytearray, list[int]], str]


def flip(chance: Random, data: bytearray, starts: list[int]) -> str:
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    return f"flip at {at}"


def flip_header(chance: Random, data: bytearray, starts: list[int]) -> str:
    at = min(chance.choice(starts) + chance.randrange(61), len(data) - 1)
    data[at] ^= 1 << chance.randrange(8)
    return f"flip at {at}, of a header"


def hole(chance: Random, data: bytearray, starts: list[int]) -> str:
    at, size = chance.randrange(len(data)), chance.choice((1, 8, 64, 512))
    size = min(size, len(data) - at)
    data[at : at + size] = bytes(size)
    return f"{size} zeros at {at}"


def noise(chance: Random, data: bytearray, starts: list[int]) -> str:
    at, size = chance.randrange(len(data)), chance.choice((8, 64, 300))
    size = min(size, len(data) - at)
    data[at : at + size] = chance.randbytes(size)
    return f"{size} bytes of noise at {at}"


def cut_middle(chance: Random, data: bytearray, starts: list[int]) -> str:
    at, size = chance.randrange(len(data)), chance.choice((1, 30, 200))
    if {at, at + size} & {*starts, len(data)} or at + size > len(data):
        return "nothing"  # of batches that are gone whole no byte tells
    del data[at : at + size]
    return f"{size} bytes cut at {at}"


def tear(chance: Random, data: bytearray, starts: list[int]) -> str:
    size = chance.randrange(1, min(len(data), 200) + 1)
    if len(data) - size in starts:
        return "nothing"
    del data[len(data) - size :]
    return f"{size} bytes torn off"


def swap_blocks(chance: Random, data: bytearray, starts: list[int]) -> str:
    size = min(chance.choice((16, 64, 256)), len(data) // 2)
    one = chance.randrange(len(data) - 2 * size + 1)
    other = chance.randrange(one + size, len(data) - size + 1)
    first, second = data[one : one + size], data[other : other + size]
    data[one : one + size], data[other : other + size] = second, first
    return f"blocks of {size} bytes swapped at {one} and {other}"


def swap_batches(chance: Random, data: bytearray, starts: list[int]) -> str:
    ends = [*starts[1:], len(data)]
    one, other = chance.randrange(len(starts)), chance.randrange(len(starts))
    parts = [bytes(data[a:b]) for a, b in zip(starts, ends, strict=True)]
    parts[one], parts[other] = parts[other], parts[one]
    data[:] = b"".join(parts)
    return f"batches {one} and {other} swapped"


def repeat(chance: Random, data: bytearray, starts: list[int]) -> str:
    ends = [*starts[1:], len(data)]
    number = chance.randrange(len(starts))
    part = bytes(data[starts[number] : ends[number]])
    at = chance.choice([*starts, len(data)])
    data[at:at] = part
    return f"batch {number} again at {at}"


def length(chance: Random, data: bytearray, starts: list[int]) -> str:
    at = chance.choice(starts) + 8
    wrong = chance.choice((-1, 0, 13, 49, 70, 150, 5_000, 2**31 - 1))
    data[at : at + 4] = struct.pack(">i", wrong)
    return f"length {wrong} at {at}"


HARMS: tuple[Harm, ...] = (
    flip,
    flip_header,
    hole,
    noise,
    cut_middle,
    tear,
    swap_blocks,
    swap_batches,
    repeat,
    length,
)


def write(case: Case, directory: Path) -> None:
    """Write the log, and harm it: files that change their length first, batches before bytes."""
    chance = Random(f"harm {case.seed}")
    directory.mkdir(parents=True)
    order = {harm: number for number, harm in enumerate((swap_batches, repeat))}
    chosen = sorted(
        chance.choices(HARMS, k=chance.choice((1, 1, 2, 2, 3, 5))),
        key=lambda harm: order.get(harm, len(order)),
    )
    files = {
        base: bytearray(b"".join(one.data for one in batches))
        for base, batches in case.segments.items()
    }
    if case.indexed:
        for base, batches in case.segments.items():
            (directory / f"{base:020d}.index").write_bytes(_index(base, batches))
    for harm in chosen:
        base = chance.choice([base for base, data in files.items() if len(data) > 1] or [0])
        if base not in files:
            break
        starts = [each.position for each in reference.walk(bytes(files[base])).batches]
        if starts:
            case.harm.append(f"{base}: {harm(chance, files[base], starts)}")
    for base, data in files.items():
        (directory / f"{base:020d}.log").write_bytes(data)


def _index(base: int, batches: list[Original]) -> bytes:
    position, entries = 0, []
    for one in batches:
        entries.append(struct.pack(">ii", one.last - base, position))
        position += len(one.data)
    return b"".join(entries[1:])


# ---- what must hold ------------------------------------------------------------------------------


def sound_batches(data: bytes) -> list[reference.Batch]:
    """Each sound batch that lies in no other one, every position tried."""
    found: list[reference.Batch] = []
    end = 0
    for position in range(len(data) - _HEAD + 1):
        (size,) = struct.unpack_from(">i", data, position + 8)
        if data[position + 16] != 2 or not 49 <= size <= len(data) - position - 12:
            continue
        one = reference.parse_batch(data, position, size + 12)
        if one.crc_ok and position >= end:
            found.append(one)
            end = position + one.size
    return found


@dataclass(slots=True)
class Came:
    """What a case came to.

    Attributes:
        kept: batches in OUT.
        doubted: intact batches that nothing proved to be the log's, by the reason that was told.
        mended: batches that were kept with another header field.
        displaced: batches of a wrong base offset that nothing tells: the last one, or in a log with
            holes.
    """

    kept: int
    doubted: dict[str, int]
    mended: int
    displaced: int


def check(case: Case, home: Path) -> Came:
    """Harm a log, salvage it, and hold the result to what the other reader finds.

    Raises:
        AssertionError: it is not as it must be.
    """
    directory, out = home / "in" / "t-0", home / "out"
    write(case, directory)
    before = {path: path.read_bytes() for path in sorted(directory.iterdir())}
    plan = plan_salvage(directory, out=out)
    report = apply_salvage(plan)
    assert {path: path.read_bytes() for path in sorted(directory.iterdir())} == before
    (partition,) = plan.partitions
    logs = {str(path): data for path, data in before.items() if path.suffix == ".log"}
    _check_bytes(partition, logs, report.plan)
    kept = [
        one
        for path in sorted((out / "t-0").glob("*.log"))
        for one in reference.walk(path.read_bytes()).batches
    ]
    assert all(one.crc_ok for one in kept)
    assert len(kept) == partition.batches
    doubted = _check_intact(case, partition, logs, {bytes(one.data) for one in kept})
    displaced = _displaced(case, kept)
    if not displaced:
        _check_records(case, kept)
        _check_lost(case, partition, kept)
    found = kseg.verify(out, deep=True)
    assert found.ok, found.findings
    assert json.loads(report.path.read_text())["ok"] is plan.ok
    return Came(len(kept), doubted, len(partition.mended), displaced)


def _check_bytes(partition: SalvagedPartition, logs: dict[str, bytes], plan: SalvagePlan) -> None:
    """Each byte is kept or told of, and never both; those that go lie in the quarantine."""
    taken: list[tuple[str, int, int]] = [
        (extent.path, extent.position, extent.size)
        for segment in partition.target.segments
        for extent in segment.extents
    ]
    taken += [(one.path, one.position, one.size) for one in partition.unprovable]
    ends = dict.fromkeys(logs, 0)
    for path, position, size in sorted(taken):
        assert position == ends[path], (path, position)
        ends[path] += size
    assert ends == {path: len(data) for path, data in logs.items()}
    for one in partition.quarantined:
        there = (plan.beside / one.path).read_bytes()
        source = logs[one.source.path][one.source.position : one.source.end]
        assert there[one.position : one.position + one.source.size] == source


def _check_intact(
    case: Case, partition: SalvagedPartition, logs: dict[str, bytes], kept: set[bytes]
) -> dict[str, int]:
    """Each intact batch is in OUT, or there again; or nothing tells it from data of a record.

    Returns:
        How many of the latter, by the reason that was told.
    """
    originals = {one.data for one in case.batches}
    end = max((one.last for one in case.batches if one.data in kept), default=-1)
    doubted: Counter[str] = Counter()
    for path, data in logs.items():
        for one in sound_batches(data):
            if bytes(one.data) in originals and bytes(one.data) not in kept:
                why = _why(partition, path, one.position)
                # One that would be the last of all may as well have a wrong base offset.
                is_last = why == "offset-order" and one.base_offset >= end
                assert is_last or why in _DOUBT, (path, one.position, one.base_offset, why)
                doubted[why] += 1
    return dict(doubted)


def _why(partition: SalvagedPartition, path: str, position: int) -> str:
    for one in partition.unprovable:
        if one.path == path and one.position <= position < one.end:
            return one.reason
    raise AssertionError((path, position, "neither kept nor told of"))


def _displaced(case: Case, kept: list[reference.Batch]) -> int:
    """How many batches have a base offset that no checksum covers, and nothing else tells."""
    originals = {one.data[_HEAD:]: one.first for one in case.batches}
    wrong = [
        number
        for number, one in enumerate(kept)
        if originals.get(bytes(one.data[_HEAD:]), one.base_offset) != one.base_offset
    ]
    assert case.kind == "compacted" or set(wrong) <= {len(kept) - 1}, wrong
    return len(wrong)


def _check_records(case: Case, kept: list[reference.Batch]) -> None:
    """No record is in OUT that was not in the log."""
    before = dict(
        _records(reference.parse_batch(one.data, 0, len(one.data)) for one in case.batches)
    )
    last = -1
    for offset, told in _records(iter(kept)):
        assert offset > last
        last = offset
        assert before.get(offset) == told, (offset, told)


def _records(batches: Iterator[reference.Batch]) -> Iterator[tuple[int, object]]:
    for one in batches:
        for each in reference.records(one):
            yield each.offset, (each.timestamp, each.key, each.value, each.headers)


def _check_lost(case: Case, partition: SalvagedPartition, kept: list[reference.Batch]) -> None:
    """Each offset that is gone is told, and none that is there."""
    there = {at for one in kept for at in range(one.base_offset, one.last_offset + 1)}
    before = {at for one in case.batches for at in range(one.first, one.last + 1)}
    ranges = [(one.first_offset, one.last_offset) for one in partition.lost]
    starts = [first for first, _ in ranges]

    def is_told(offset: int) -> bool:
        at = bisect_right(starts, offset) - 1
        return at >= 0 and (ranges[at][1] is None or offset <= (ranges[at][1] or 0))

    assert not [at for at in there if is_told(at)]
    end = max(there, default=-1)
    untold = [at for at in sorted(before - there) if not is_told(at) and at < end]
    # No byte tells of batches that are cut off just where one ends, or were moved and are gone.
    assert not untold or _are_moved(case), untold
    # Batches in another order leave gaps that compaction might have left.
    if case.kind != "compacted" and not _are_moved(case):
        assert not any(one.at_most for one in partition.lost)
        for one in partition.lost:
            if one.last_offset is not None:
                assert set(range(one.first_offset, one.last_offset + 1)) <= before, one


def _are_moved(case: Case) -> bool:
    return any("swapped" in one or "again" in one for one in case.harm)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.keep, ignore_errors=True)
    case = a_case(options.seed)
    try:
        print(check(case, options.keep))
    finally:
        print(case.kind, "indexed" if case.indexed else "", *case.harm, sep="\n")


if __name__ == "__main__":
    main()
