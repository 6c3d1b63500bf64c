"""How much of what is new one micro-batch of a stream takes: whole batches, fairly shared out.

Each partition with something new gets an equal share of what is left, one after the other; what a
partition does not need goes to those behind it, and who is first changes from time to time. A batch
is never cut, and one is always taken, so that a limit below the size of a batch slows a stream down
but does not stop it. The same files and places give the same answer. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from zlib import crc32

from kseg.spark.stream_offsets import Place


@dataclass(frozen=True, slots=True)
class Amount:
    """Records, bytes of log, and segments begun; as a limit, None is none."""

    rows: int | None = None
    bytes: int | None = None
    segments: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit at all."""
        return self.rows is None and self.bytes is None and self.segments is None

    @property
    def is_used_up(self) -> bool:
        """Whether nothing fits any more."""
        return any(
            left is not None and left <= 0 for left in (self.rows, self.bytes, self.segments)
        )

    def share(self, count: int) -> Amount:
        """One of `count` equal parts, rounded up."""

        def part(whole: int | None) -> int | None:
            return None if whole is None else -(-whole // count)

        return Amount(part(self.rows), part(self.bytes), part(self.segments))

    def less(self, taken: Amount) -> Amount:
        """What is left when so much is taken."""

        def rest(whole: int | None, part: int | None) -> int | None:
            return None if whole is None else whole - (part or 0)

        return Amount(
            rest(self.rows, taken.rows),
            rest(self.bytes, taken.bytes),
            rest(self.segments, taken.segments),
        )


@dataclass(frozen=True, slots=True)
class Advance:
    """How far one partition gets within a limit.

    Attributes:
        place: where it then stands.
        taken: what lies between.
        at_end: nothing more is there to take.
    """

    place: Place
    taken: Amount
    at_end: bool


class Advancer(Protocol):
    """How far a partition gets from a place within a limit."""

    def __call__(self, name: str, place: Place, limit: Amount, *, at_least: bool) -> Advance:
        """With `at_least`, one batch is taken even if it is more than the limit."""
        ...


def admit(starts: Mapping[str, Place], limit: Amount, advance: Advancer) -> dict[str, Place]:
    """The places up to which the next micro-batch reads.

    Args:
        starts: where each partition stands.
        limit: of all partitions together.
        advance: how far one partition gets.
    """
    places = dict(starts)
    waiting = _in_turn(starts)
    left, nothing_yet = limit, True
    while waiting:
        behind = []
        for number, name in enumerate(waiting):
            for part in (left.share(len(waiting) - number), left):
                if left.is_used_up:
                    return places
                step = advance(name, places[name], part, at_least=nothing_yet)
                if step.at_end or step.taken.bytes:
                    break
            places[name], left = step.place, left.less(step.taken)
            nothing_yet = nothing_yet and not step.taken.bytes
            if step.taken.bytes and not step.at_end:
                behind.append(name)
        waiting = behind
    return places


def _in_turn(starts: Mapping[str, Place]) -> list[str]:
    """The names, beginning with another one at each stage of a stream."""
    names = sorted(starts)
    if not names:
        return names
    stage = crc32(b",".join(b"%d" % starts[name].offset for name in names)) % len(names)
    return names[stage:] + names[:stage]


def without_hints(place: Place) -> Place:
    """The same offset, found by a walk."""
    return replace(place, segment=-1, position=0)
