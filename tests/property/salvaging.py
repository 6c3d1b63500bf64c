"""Logs that come to harm by chance, and what a salvage of them must come to.

The other reader is `tests/reference.py`: it finds sound batches by trying every position.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import kseg
from kseg import plan_salvage
from kseg.files.checkpoints import EpochEntry, write_leader_epochs
from kseg.log.salvage import READABLE, SalvagedPartition
from kseg.reports import SalvagePlan
from tests import reference
from tests.builders import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    batch,
    message,
    messages,
    record,
    wrapper,
)

KINDS = ("dense", "compacted", "nested", "crafted", "old")
#: The fields of a header that no checksum covers: base offset, length, leader epoch.
_UNCOVERED = 16


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
        kind: each offset has a record ("dense"), or compaction has left holes, or values are whole
            batches ("nested"), end where their batch ends ("crafted"), or are messages of magic 0
            and 1 that do ("old").
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

    @property
    def has_epochs(self) -> bool:
        """Whether a checkpoint of leader epochs lies beside the log."""
        return self.seed % 2 == 1 and self.kind != "old"

    @property
    def epochs(self) -> list[EpochEntry]:
        """Where each leader epoch begins."""
        starts: dict[int, int] = {}
        for one in self.batches:
            starts.setdefault(int.from_bytes(one.data[12:16], "big"), one.first)
        return [EpochEntry(epoch, first) for epoch, first in starts.items()]

    def is_wrapped(self, data: bytes) -> bool:
        """Whether a batch is a compressed message of magic 0 or 1, which says its last offset."""
        return data[16] < 2 and bool(data[17] & 7)


def a_case(seed: int) -> Case:
    """A log of a few segments."""
    chance = Random(f"salvage {seed}")
    case = Case(seed, chance.choice(KINDS), indexed=chance.random() < 0.5)
    offset, epoch, base = chance.choice((0, 0, 1_000, 2**40)), 0, None
    magic = chance.randrange(2)
    for _ in range(chance.randrange(5, 26)):
        if base is None or (len(case.segments[base]) > 2 and chance.random() < 0.3):
            base = offset
            case.segments[base] = []
        epoch += chance.random() < 0.1
        if case.kind == "old":
            one = _old(chance, magic, offset)
        else:
            one = _batch(chance, case.kind, offset, epoch)
        case.segments[base].append(one)
        offset = one.last + 1
        if case.kind == "compacted":
            offset += chance.choice((0, 0, 1, 5))
    return case


def _batch(chance: Random, kind: str, offset: int, epoch: int) -> Original:
    count = chance.randrange(1, 5)
    codec = chance.choice((NONE, NONE, NONE, GZIP, LZ4, ZSTD, SNAPPY))
    if kind == "crafted" and chance.random() < 0.5:
        codec = NONE
    given = [
        record(_value(chance, kind, at, epoch), key=b"k%d" % (at % 5), timestamp=at, offset=at)
        for at in range(offset, offset + count)
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


def _value(chance: Random, kind: str, offset: int, epoch: int) -> bytes:
    plain = b"v%d " % offset + chance.randbytes(chance.randrange(60))
    if kind not in ("nested", "crafted") or chance.random() < 0.5:
        return plain
    parts, at = [], offset + chance.choice((-2, 0, 1, 1, 2, 5, 50))
    for _ in range(chance.randrange(1, 4)):
        count = chance.randrange(1, 4)
        inner = [record(_inner(chance, at + n)) for n in range(count)]
        given = epoch + chance.randrange(2)
        parts.append(batch(inner, base_offset=max(at, 0), leader_epoch=given))
        at += count
    # Behind a value lies the number of headers, a zero: so does a batch end without any.
    return b"".join(parts)[: -1 if kind == "crafted" else None]


def _inner(chance: Random, offset: int) -> bytes:
    """A value of a batch in a value: now and then one more batch."""
    if chance.random() < 0.8:
        return b"inner %d" % offset
    return batch([record(b"innermost")], base_offset=max(offset, 0))[:-1]


def _old(chance: Random, magic: int, offset: int) -> Original:
    """A message, which may hold messages: as its value, or compressed."""
    if chance.random() < 0.3:
        count = chance.randrange(1, 5)
        codec = chance.choice((GZIP, SNAPPY))
        given = [Record(_raw(chance, magic, at), timestamp=at) for at in range(count)]
        made = wrapper(given, magic=magic, codec=codec, base_offset=offset)
        return Original(made, offset, offset + count - 1)
    one = Record(_raw(chance, magic, offset), key=b"k", timestamp=offset)
    return Original(messages([one], magic=magic, base_offset=offset), offset, offset)


def _raw(chance: Random, magic: int, offset: int) -> bytes:
    if chance.random() < 0.5:
        return b"v%d " % offset + chance.randbytes(chance.randrange(60))
    return b"".join(
        message(Record(b"inner %d" % at), magic=magic, offset=at)
        for at in range(offset, offset + chance.randrange(1, 4))
    )


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
    if case.has_epochs:
        write_leader_epochs(directory / "leader-epoch-checkpoint", case.epochs)
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
    entries = _entries(batches)
    return b"".join(struct.pack(">ii", offset - base, at) for offset, at in entries)


def _entries(batches: list[Original]) -> list[tuple[int, int]]:
    """The last offset and the position of each batch but the first one."""
    position, entries = 0, []
    for one in batches:
        entries.append((one.last, position))
        position += len(one.data)
    return entries[1:]


# ---- what must hold ------------------------------------------------------------------------------


@dataclass(slots=True)
class Came:
    """What a case came to.

    Attributes:
        kept: batches in OUT.
        displaced: batches of a wrong base offset that nothing beside them contradicts.
    """

    kept: int
    displaced: int = 0


def check(case: Case, home: Path) -> Came:
    """Harm a log, salvage it, and hold the result to what was written.

    Raises:
        AssertionError: it is not as it must be.
    """
    directory, out = home / "in" / "t-0", home / "out"
    write(case, directory)
    before = {path: path.read_bytes() for path in sorted(directory.iterdir())}
    plan = plan_salvage(directory, out=out)
    report = plan.apply()
    assert {path: path.read_bytes() for path in sorted(directory.iterdir())} == before
    (partition,) = plan.partitions
    logs = {str(path): data for path, data in before.items() if path.suffix == ".log"}
    _check_bytes(partition, logs, report.plan)
    kept = list(_kept(partition, logs))
    written = [path.read_bytes() for path in sorted((out / "t-0").glob("*.log"))]
    assert b"".join(written) == b"".join(one.data for one in kept)
    assert len(kept) == partition.batches
    there = {one.data for one in kept}
    came = Came(len(kept))
    _check_left_out(case, partition, logs, there)
    _check_kept(case, kept, came)
    if not came.displaced:
        _check_lost(case, partition, there)
    found = kseg.verify(out, deep=True)
    assert found.ok, found.findings
    assert json.loads(report.path.read_text())["ok"] is plan.ok
    assert plan.ok or partition.lost or partition.unprovable
    return came


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
        if one.source.batches:
            assert f"/{READABLE}/" in one.path
            assert reference.walk(there).end_position == len(there)


def _check_left_out(
    case: Case, partition: SalvagedPartition, logs: dict[str, bytes], kept: set[bytes]
) -> None:
    """Each intact batch that is not in OUT lies in bytes that have a reason."""
    for one in case.batches:
        for path, data in logs.items():
            at = data.find(one.data)
            if at >= 0 and one.data not in kept:
                # Where the harm cut out zeros, a batch may begin with the last byte in front of it.
                assert any(
                    span.path == path and span.position < at + len(one.data) and at < span.end
                    for span in partition.unprovable
                ), (path, at, "neither kept nor listed")


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch that is in OUT, and where it lies in the harmed log."""

    base: int
    position: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    @property
    def epoch(self) -> int:
        return int.from_bytes(self.data[12:16], "big", signed=True)


def _kept(partition: SalvagedPartition, logs: dict[str, bytes]) -> Iterator[Kept]:
    for segment in partition.target.segments:
        for extent in segment.extents:
            at = extent.position
            base = int(Path(extent.path).stem)
            for one in reference.walk(logs[extent.path][at : at + extent.size]).batches:
                yield Kept(base, at, bytes(one.data))
                at += len(one.data)


def _check_kept(case: Case, kept: list[Kept], came: Came) -> None:
    """No batch is in OUT that was not in the log, and none is changed by the salvage.

    One that the harm gave another offset or leader epoch is there only where nothing beside it
    contradicts that: see `_offsets_contradicted` and `_epoch_contradicted`.
    """
    whole = {one.data for one in case.batches}
    covered = {one.data[_UNCOVERED:]: one.data for one in case.batches}
    for number, one in enumerate(kept):
        if one.data in whole:
            continue
        assert one.data[_UNCOVERED:] in covered, "invented"
        before = covered[one.data[_UNCOVERED:]]
        if one.data[:8] != before[:8]:
            # A hole, or a compressed message of an old format, leaves open what an offset was.
            assert case.kind == "compacted" or case.is_wrapped(before), "at another offset"
            contradicts = _offsets_contradicted(case, kept, number)
            assert contradicts is None, f"at another offset: {contradicts}"
            came.displaced += 1
        else:
            contradicts = _epoch_contradicted(case, kept, number)
            assert contradicts is None, f"of another epoch: {contradicts}"


def _offsets(one: Kept) -> tuple[int, int]:
    """The first and the last offset that a batch says; the last one twice where only it is said."""
    offset = int.from_bytes(one.data[:8], "big", signed=True)
    delta = int.from_bytes(one.data[23:27], "big") if one.data[16] == 2 else 0
    return offset, offset + delta


def _offsets_contradicted(case: Case, kept: list[Kept], number: int) -> str | None:
    """What contradicts the offsets of a batch: the index, names of segments, its neighbours."""
    one = kept[number]
    first, last = _offsets(one)
    if case.indexed:
        entries = _entries(case.segments[one.base])
        if any(position >= one.end and offset <= last for offset, position in entries):
            return "an index entry behind it"
        ahead = [offset for offset, position in entries if position <= one.position]
        if len(ahead) > 1 and ahead[-2] >= first:
            return "an index entry in front of it"
    front = _offsets(kept[number - 1])[1] if number else -1
    if first <= front:
        return "the batch in front of it"
    if number + 1 < len(kept) and last >= _offsets(kept[number + 1])[0]:
        return "the batch behind it"
    names = sorted(case.segments)
    behind = [base for base in names if base > one.base]
    if not (one.base <= first and all(last < base for base in behind)) and first != front + 1:
        return "the name of a segment"
    return None


def _epoch_contradicted(case: Case, kept: list[Kept], number: int) -> str | None:
    """What contradicts the leader epoch of a batch: the checkpoint of epochs, its neighbours."""
    one = kept[number]
    if case.has_epochs:
        first, _ = _offsets(one)
        if one.epoch != max(
            (each.epoch for each in case.epochs if each.start_offset <= first), default=one.epoch
        ):
            return "the checkpoint of epochs"
    for each in kept[number - 1 : number] if number else ():
        if each.epoch > one.epoch:
            return "the batch in front of it"
    for each in kept[number + 1 : number + 2]:
        if each.epoch < one.epoch:
            return "the batch behind it"
    return None


def _check_lost(case: Case, partition: SalvagedPartition, kept: set[bytes]) -> None:
    """Each offset that is gone is told, and none that is there."""
    uncovered = {data[_UNCOVERED:] for data in kept}
    there = {
        at
        for one in case.batches
        if one.data[_UNCOVERED:] in uncovered
        for at in range(one.first, one.last + 1)
    }
    before = {at for one in case.batches for at in range(one.first, one.last + 1)}
    ranges = [(one.first_offset, one.last_offset) for one in partition.lost]
    starts = [first for first, _ in ranges]

    def is_told(offset: int) -> bool:
        at = bisect_right(starts, offset) - 1
        return at >= 0 and (ranges[at][1] is None or offset <= (ranges[at][1] or 0))

    end = max(there, default=-1)
    untold = [at for at in sorted(before - there) if not is_told(at) and at < end]
    # No byte tells of batches that are cut off just where one ends, or were moved and are gone.
    assert not untold or _are_moved(case), untold
    if case.kind == "old":
        return  # a compressed message does not say its first offset
    assert not [at for at in there if is_told(at)]
    # Batches in another order leave gaps that compaction might have left.
    if case.kind != "compacted" and not _are_moved(case):
        assert not any(one.at_most for one in partition.lost)
        for one in partition.lost:
            if one.last_offset is not None:
                assert set(range(one.first_offset, one.last_offset + 1)) <= before, one


def _are_moved(case: Case) -> bool:
    return any("swapped" in one or "again" in one for one in case.harm)
