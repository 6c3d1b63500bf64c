"""Every state that a crash may leave on a weak file system, from the log of a workload.

What was flushed before the crash is there. Of the rest, each write and each cut may have reached
the disk or not, in any order, and a write in part: by blocks of 512 bytes or 4 KiB. Names made,
changed or taken away are there or not, each for itself, until their directory is flushed. A rename
within one directory replaces what was there whole, as journals make it, but may leave the old name,
too; one from a directory to another is a new name and one taken away, which last with their own.
The names of a file say nothing of its bytes. What a failed flush was to write may be lost whatever
is flushed afterwards, since the system takes it for written.

Source: ALICE (Pillai et al., OSDI 2014); Rebello et al., ATC 2020, for flushes that fail.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.crash.oplog import (
    Name,
    Op,
    Remark,
    Rename,
    Resize,
    Sync,
    SyncNames,
    Tree,
    Unname,
    Write,
)

#: What became of an unflushed call: nothing, all of it, or for a write these parts of its bytes, or
#: its length alone, with zeros where there was nothing before; for a rename the new name alone.
Fate = bool | tuple[tuple[int, int], ...] | Literal["length", "both"]
TEARS = (512, 4096)

Contents = dict[str, bytes | None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A call that is not known to have reached the disk, or that follows one."""

    op: Op
    lasting: bool = False
    adrift: bool = False  # a flush of it failed: no other will write it


@dataclass(frozen=True, slots=True)
class Point:
    """A moment at which the machine may stop: behind so many calls.

    Attributes:
        index: how many of the log's calls were made.
        remarks: how many of the workload's remarks were made by then.
        base: what is lasting for certain.
        pending: what follows, in order.
    """

    index: int
    remarks: int
    base: Tree
    pending: tuple[_Pending, ...]

    @property
    def open(self) -> tuple[Op, ...]:
        """The calls of which nobody knows what became."""
        return tuple(one.op for one in self.pending if not one.lasting)


@dataclass(frozen=True, slots=True)
class CrashState:
    """A point, and what became of each call that is open there."""

    point: Point
    fates: tuple[Fate, ...]

    def contents(self) -> Contents:
        """Relative path -> bytes of a file, or None for a directory."""
        tree = self.point.base.copy()
        fates = iter(self.fates)
        for one in self.point.pending:
            fate = True if one.lasting else next(fates)
            if fate is True:
                tree.apply(one.op)
            elif fate == "both":
                assert isinstance(one.op, Rename)
                tree.apply(_second_name(one.op, tree))
            elif fate:
                assert isinstance(one.op, Write)
                if fate == "length":
                    tree.lengthen(one.op)
                    continue
                for start, end in fate:
                    part = one.op.data[start:end]
                    tree.apply(Write(one.op.node, one.op.position + start, part))
        return tree.contents()

    def __str__(self) -> str:
        """What it takes to tell which state this is."""
        lost = [
            f"{_brief(op)}: {'lost' if fate is False else f'only {fate}'}"
            for op, fate in zip(self.point.open, self.fates, strict=True)
            if fate is not True
        ]
        return f"behind call {self.point.index}, " + ("; ".join(lost) or "nothing lost")


def _second_name(op: Rename, tree: Tree) -> Op:
    """The new name of a file, the old one still there; a directory never has two."""
    is_directory = op.node in tree.names
    return op if is_directory else Name(op.to_directory, op.to_name, op.node)


def _brief(op: Op) -> str:
    if isinstance(op, Write):
        return f"Write(node={op.node}, position={op.position}, bytes={len(op.data)})"
    return str(op)


# ---- points --------------------------------------------------------------------------------------


def points(before: Tree, ops: Sequence[Op]) -> list[Point]:
    """The moments in front of each call, between them and behind the last one."""
    base, pending, remarks = before.copy(), [], 0
    found = [Point(0, 0, base, ())]
    for index, op in enumerate(ops, 1):
        match op:
            case Remark():
                remarks += 1
            case Sync(node, _, dropped) if dropped:
                pending = [one for one in pending if one.lasting or not _writes(one.op, node)]
            case Sync(node, failed):
                pending = [_synced(one, node, failed=failed) for one in pending]
            case SyncNames(directory):
                pending = [_names_synced(one, directory) for one in pending]
            case Rename(at, name, to, to_name, node) if at != to:
                pending += [_Pending(Name(to, to_name, node)), _Pending(Unname(at, name, node))]
            case Write() | Resize() | Name() | Unname() | Rename():
                pending.append(_Pending(op))
            case _:
                pass
        if isinstance(op, Sync | SyncNames):
            base, pending = _settled(base, pending)
        found.append(Point(index, remarks, base, tuple(pending)))
    return found


def _writes(op: Op, node: int) -> bool:
    return isinstance(op, Write | Resize) and op.node == node


def _synced(one: _Pending, node: int, *, failed: bool) -> _Pending:
    if one.lasting or not _writes(one.op, node):
        return one
    if failed:
        return replace(one, adrift=True)
    return one if one.adrift else replace(one, lasting=True)


def _names_synced(one: _Pending, directory: int) -> _Pending:
    match one.op:
        case Name(at) | Unname(at) | Rename(at) if at == directory:
            return replace(one, lasting=True)
        case _:
            return one


def _settled(base: Tree, pending: list[_Pending]) -> tuple[Tree, list[_Pending]]:
    """Take into the base what is lasting and has nothing open in front of it that it may touch."""
    base, left = base.copy(), []
    blocked: set[object] = set()
    for one in pending:
        key = one.op.node if isinstance(one.op, Write | Resize) else "names"
        if one.lasting and key not in blocked:
            base.apply(one.op)
        else:
            blocked.add(key)
            left.append(one)
    return base, left


# ---- states --------------------------------------------------------------------------------------


def killed(point: Point) -> CrashState:
    """The state that the death of the process alone leaves: all calls have been made."""
    return CrashState(point, (True,) * len(point.open))


def enumerated(point: Point) -> Iterator[CrashState]:
    """Every choice of open calls; no torn ones. There are 2 ** len(point.open)."""
    for fates in itertools.product((True, False), repeat=len(point.open)):
        yield CrashState(point, fates)


def drawn(point: Point, rng: random.Random) -> CrashState:
    """One state at random: mild ones and harsh ones alike."""
    ops = point.open
    count = len(ops)
    way = rng.randrange(8)
    if way == 0 or not count:
        return CrashState(point, (False,) * count)
    kept = rng.randrange(count + 1)
    odds = rng.choice((0.1, 0.5, 0.9))
    fates: list[Fate]
    if way == 1:  # in the order of the calls, as journals that order data do
        fates = [index < kept for index in range(count)]
        if kept < count:
            fates[kept] = torn(ops[kept], rng)
    elif way == 2:  # all but one
        fates = [True] * count
        fates[kept % count] = torn(ops[kept % count], rng)
    elif way == 3:  # one alone
        fates = [False] * count
        fates[kept % count] = True
    elif way == 4:  # names are all there, bytes are not
        fates = [not isinstance(op, Write | Resize) or rng.random() < odds / 2 for op in ops]
    elif way == 5:  # bytes are all there, names are not
        fates = [isinstance(op, Write | Resize) or rng.random() < odds / 2 for op in ops]
    elif way == 6:  # all but one block, with others behind it or not
        fates = [True] * count
        wide = [index for index, op in enumerate(ops) if isinstance(op, Write) and _blocks(op)]
        if wide:
            at = rng.choice(wide)
            fates[at] = _pierced(ops[at], rng)
    else:
        fates = [torn(op, rng) if rng.random() < 0.2 else rng.random() < odds for op in ops]
    return CrashState(point, tuple(fates))


def torn(op: Op, rng: random.Random) -> Fate:
    """Some blocks of a write, or its length alone; of a rename the new name; or nothing."""
    if isinstance(op, Rename) and rng.random() < 0.5:
        return "both"
    if not isinstance(op, Write):
        return False
    if rng.random() < 0.2:
        return "length"
    blocks = list(itertools.pairwise(_edges(op, rng.choice(TEARS))))
    if rng.random() < 0.5:
        parts = blocks[: rng.randrange(len(blocks))]
    else:
        parts = [part for part in blocks if rng.random() < 0.5]
    if parts and rng.random() < 0.5:  # the file has its new length all the same
        parts.append((len(op.data), len(op.data)))
    return tuple(parts) or False


def _blocks(op: Write) -> list[tuple[int, int]]:
    """The smallest blocks of a write that reaches over several; none of one that does not."""
    blocks = list(itertools.pairwise(_edges(op, min(TEARS))))
    return blocks if len(blocks) > 1 else []


def _pierced(op: Op, rng: random.Random) -> Fate:
    """All of a write but one block, at the length that it gives the file."""
    assert isinstance(op, Write)
    blocks = _blocks(op)
    del blocks[rng.randrange(len(blocks))]
    return (*blocks, (len(op.data), len(op.data)))


def _edges(op: Write, block: int) -> list[int]:
    """Where the bytes of a write can be torn: at the blocks of the file."""
    size = len(op.data)
    return [0, *range(block - op.position % block, size, block), size]


class Sampler:
    """States of one log, drawn by a seed. Points where much is open are as likely as others."""

    def __init__(self, before: Tree, ops: Sequence[Op], seed: str | int) -> None:
        self.points = points(before, ops)
        self.rng = random.Random(f"states {seed}")
        # Points with nothing open have one state each; drawing them again shows nothing.
        weights = itertools.accumulate(min(len(p.open), 6) + 0.05 for p in self.points)
        self._weights = list(weights)

    def draw(self) -> CrashState:
        """The next state."""
        at = bisect_right(self._weights, self.rng.random() * self._weights[-1])
        return drawn(self.points[min(at, len(self.points) - 1)], self.rng)


def materialise(contents: Contents, directory: Path) -> None:
    """Make `directory` hold just that."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    for path, data in contents.items():
        target = os.path.join(directory, path)
        if data is None:
            os.mkdir(target)
        else:
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, data)
            os.close(fd)


def snapshot(directory: Path) -> Contents:
    """What a directory holds, as `contents` tells it."""
    found: Contents = {}
    for place, directories, files in os.walk(directory):
        below = os.path.relpath(place, directory)
        prefix = "" if below == "." else below + "/"
        found |= {prefix + name: None for name in directories}
        for name in files:
            with open(os.path.join(place, name), "rb") as file:
                found[prefix + name] = file.read()
    return found
