"""Replicas of a partition as years of a cluster leave them: damaged, or each with a history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import GZIP, NONE, ZSTD, batch, record, records_of, write_segment

#: What a damage does to a segment: bytes change, a hole of zeros, a length is overwritten, the
#: middle is cut out, the end is cut off.
BREAKERS = ("flip", "flip", "zeros", "length", "cut", "torn")
_LENGTH_AT = 8
#: Where the contents of a batch surely begin.
_CONTENTS_AT = 40


@dataclass(frozen=True)
class Made:
    """A batch: its offsets, its bytes and its leader epoch."""

    first: int
    last: int
    data: bytes
    epoch: int


def an_original(rng: random.Random) -> list[Made]:
    """A log of any format: plain and compressed, with leader epochs, dense or compacted."""
    magic = rng.choice((0, 1, 2, 2, 2, 2))
    compacted = rng.random() < 0.3
    made, offset, epoch = [], rng.choice((0, 0, 1_000)), 0
    for _ in range(rng.randrange(6, 30)):
        codec = rng.choice((NONE, NONE, GZIP, ZSTD if magic == 2 else GZIP))
        count = 1 if magic < 2 and codec == NONE else rng.randrange(1, 5)
        epoch += rng.random() < 0.1
        # Text, so that no message lies in the clear in a compressed one.
        given = [record(b"%d " % rng.randrange(99) * rng.randrange(9, 70)) for _ in range(count)]
        if magic == 2:
            data = batch(given, base_offset=offset, codec=codec, leader_epoch=epoch)
        else:
            data = records_of(given, magic=magic, codec=codec, base_offset=offset)
        made.append(Made(offset, offset + count - 1, data, epoch if magic == 2 else -1))
        offset += count + (rng.randrange(4) if compacted else 0)
    return made


def cuts(rng: random.Random, count: int) -> list[int]:
    """Where segments begin, as numbers of batches."""
    return sorted({0, *(rng.randrange(1, count) for _ in range(rng.randrange(4)))})


def write(directory: Path, made: Sequence[Made], begins: Sequence[int]) -> list[Path]:
    """Write segments and the checkpoint of epochs; answers the log files."""
    directory.mkdir(parents=True)
    entries: dict[int, int] = {}
    for one in made:
        entries.setdefault(one.epoch, one.first)
    lines = [f"{epoch} {start}\n" for epoch, start in entries.items() if epoch >= 0]
    text = f"0\n{len(lines)}\n{''.join(lines)}"
    (directory / "leader-epoch-checkpoint").write_text(text)
    ends = [*begins[1:], len(made)]
    return [
        write_segment(directory, made[begin].first, *(one.data for one in made[begin:end]))
        for begin, end in zip(begins, ends, strict=True)
    ]


@dataclass
class Triple:
    """Three damaged copies whose union is whole."""

    original: list[Made]
    begins: list[list[int]]
    copies: list[Path] = field(default_factory=list)
    harm: list[str] = field(default_factory=list)


def a_triple(rng: random.Random, root: Path) -> Triple:
    """Copies `a`, `b` and `c` of `t-0`; each batch is left alone in one of them at least."""
    made = an_original(rng)
    begins = [cuts(rng, len(made))] * 3
    if rng.random() < 0.5:
        begins = [cuts(rng, len(made)) for _ in "abc"]
    triple = Triple(made, begins)
    keepers = [rng.randrange(3) for _ in made]
    for number, name in enumerate("abc"):
        directory = root / name / "t-0"
        paths = write(directory, made, begins[number])
        ends = [*begins[number][1:], len(made)]
        for path, begin, end in zip(paths, begins[number], ends, strict=True):
            own = [keepers[at] == number for at in range(begin, end)]
            triple.harm += [f"{name} {each}" for each in _harm(rng, path, made[begin:end], own)]
        triple.copies.append(directory)
    return triple


def _harm(rng: random.Random, path: Path, made: Sequence[Made], own: Sequence[bool]) -> list[str]:
    """Damage batches of a segment that another copy keeps; at most one damage breaks the chain."""
    if not any(own) and rng.random() < 0.3:
        path.unlink()
        return [f"{path.name} gone"]
    data, position, places = bytearray(path.read_bytes()), 0, []
    for one, kept in zip(made, own, strict=True):
        if not kept and rng.random() < 0.5:
            places.append((position, position + len(one.data)))
        position += len(one.data)
    told, breaks = [], 1
    for start, end in reversed(places):
        breaker = rng.choice(BREAKERS) if breaks else "flip"
        if breaker == "torn" and end != position:
            breaker = "cut"
        breaks -= breaker != "flip"
        told.append(f"{path.name} {breaker} {start}..{end}")
        _break(rng, data, breaker, start, end)
    path.write_bytes(data)
    return told


def _break(rng: random.Random, data: bytearray, breaker: str, start: int, end: int) -> None:
    if breaker == "flip":
        data[rng.randrange(start + _CONTENTS_AT, end)] ^= 1 << rng.randrange(8)
    elif breaker == "zeros":
        # Zeros in front of that would be another offset, which no checksum covers.
        begin = rng.randrange(start + _LENGTH_AT, end - 1)
        stop = rng.randrange(begin + 1, end + 1)
        data[begin:stop] = bytes(stop - begin)
    elif breaker == "length":
        at = start + _LENGTH_AT
        data[at : at + 4] = rng.randrange(1 << 32).to_bytes(4, "big")
    elif breaker == "cut":
        # Its end stays: these may be the zeros with which the next one begins.
        begin = rng.randrange(start, end - 8)
        del data[begin : rng.randrange(begin + 1, end - 4)]
    else:
        del data[rng.randrange(start, end) :]


@dataclass(frozen=True)
class Written:
    """A batch that a leader wrote."""

    first: int
    count: int
    epoch: int
    text: str

    @property
    def data(self) -> bytes:
        given = [
            record(f"{self.text}{number}".encode(), timestamp=1_000 + number)
            for number in range(self.count)
        ]
        return batch(given, base_offset=self.first, leader_epoch=self.epoch, base_timestamp=1_000)


def a_pair(rng: random.Random) -> tuple[list[Written], list[Written]]:
    """Two replicas of one partition after unclean elections.

    In each epoch one of them leads. The other one follows, cut to what both have, or is away.
    """
    logs: tuple[list[Written], list[Written]] = ([], [])
    epoch = 0
    for _ in range(rng.randrange(2, 9)):
        epoch += rng.choice((1, 1, 1, 2, 4))
        leads = rng.randrange(2)
        leader, other = logs[leads], logs[1 - leads]
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            first = leader[-1].first + leader[-1].count if leader else 0
            leader.append(Written(first, rng.randrange(1, 5), epoch, f"{epoch}-{leads}-"))
        if rng.random() < 0.45:
            other[:] = leader[: len(leader) - rng.choice((0, 0, 0, 1))]
    return logs


def write_replica(directory: Path, written: Sequence[Written], rng: random.Random) -> Path:
    """Write a log in a few segments."""
    directory.mkdir(parents=True)
    begins = cuts(rng, len(written)) if len(written) > 1 else [0]
    for begin, end in zip(begins, [*begins[1:], len(written)], strict=True):
        part = written[begin:end]
        write_segment(directory, part[0].first if part else 0, *(one.data for one in part))
    return directory
