"""What a log may hold after a crash, from what the workload said of itself.

The workload tells each version of the log before it makes it, once it is made, and what has become
lasting. From a crash on, what is found must be a prefix of a version that the log had, or was about
to get, since the last lasting one; nothing may be missing that all of those have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class ViolationError(AssertionError):
    """What was promised does not hold."""


class Ident(NamedTuple):
    """A batch, as far as it must be the same everywhere."""

    base_offset: int
    last_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Version:
    """A log at one moment.

    Attributes:
        batches: all of them since its beginning, those before its start too, rising.
        start: the first offset to be read.
        end: the next offset.
    """

    batches: tuple[Ident, ...] = ()
    start: int = 0
    end: int = 0

    def append(self, *batches: Ident) -> Version:
        """With more at the end."""
        return Version((*self.batches, *batches), self.start, batches[-1].last_offset + 1)

    def cut(self, offset: int) -> Version:
        """Without the batches that reach `offset`; as truncating leaves it."""
        kept = tuple(one for one in self.batches if one.last_offset < offset)
        return Version(kept, min(self.start, offset), min(offset, self.end))

    def started_at(self, offset: int) -> Version:
        """With another start."""
        return Version(self.batches, max(self.start, offset), self.end)

    def emptied_at(self, offset: int) -> Version:
        """With nothing, and a new place to begin."""
        return Version((), offset, offset)


Kind = Literal["try", "done", "lasting"]


class Told(NamedTuple):
    """A remark of a workload: a version of one log is about to be, is, or is lasting."""

    kind: Kind
    version: Version
    log: str = ""
    tries: int = 0  # so many before it were told for the same step, which has come to this
    cut: int | None = None  # what lay from there on does not come back
    start: int | None = None  # what lay before does not come back
    low_start: int | None = None  # the start has moved on from there, and may go back


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a log after recovery."""

    batches: tuple[Ident, ...]
    start: int
    end: int


@dataclass(slots=True)
class History:
    """The versions that may be found.

    Attributes:
        allowed: the last lasting one, and all since.
    """

    allowed: list[Version] = field(default_factory=lambda: [Version()])
    low_start: int | None = None

    @classmethod
    def of(
        cls,
        remarks: Iterable[object],
        *,
        log: str = "",
        killed: bool = False,
        begin: Version | None = None,
    ) -> History:
        """From the remarks up to the crash.

        Args:
            remarks: those that are no `Told` say nothing of this.
            log: which one.
            killed: the process died and the machine did not, so that what is done is there.
            begin: what was lasting before the first remark; nothing if None.
        """
        history = cls([begin or Version()])
        for told in remarks:
            if not isinstance(told, Told) or told.log != log:
                continue
            history.low_start = told.low_start
            if told.kind == "lasting" or (killed and told.kind == "done"):
                history.allowed = [told.version]
            else:
                history.take(told)
        return history

    def take(self, told: Told) -> None:
        """Take in a version that is about to be, or is, but is not lasting."""
        known = self.allowed[: len(self.allowed) - told.tries]
        if told.cut is not None:
            known = [version.cut(told.cut) for version in known]
        if told.start is not None:
            known = [version.started_at(told.start) for version in known]
        self.allowed = [*known, told.version]

    def check(self, found: Found) -> None:
        """Compare.

        Raises:
            ViolationError: something is missing, out of order, or was never there.
        """
        held = set(found.batches)
        starts = [one.start for one in self.allowed]
        starts += [] if self.low_start is None else [self.low_start]
        if not min(starts) <= found.start <= max(starts):
            raise ViolationError(f"starts at {found.start}, not in {min(starts)} to {max(starts)}")
        for one in set.intersection(*(set(v.batches) for v in self.allowed)):
            if one.last_offset >= max(starts) and one not in held:
                raise ViolationError(f"{one} is lost: {_brief(found.batches)}")
        if not any(self._fits(found, version, max(starts)) for version in self.allowed):
            last = self.allowed[-1]
            raise ViolationError(
                f"{_brief(found.batches)}, up to {found.end}, is no prefix of what was there: "
                f"{_brief(last.batches)}, from {last.start} to {last.end}"
            )

    def _fits(self, found: Found, version: Version, start_max: int) -> bool:
        """Whether it is this version, without batches at its end or before its start."""
        if not found.batches:
            ends = {v.end for v in self.allowed} | {v.start for v in self.allowed}
            return found.end in ends or found.end == found.start
        try:
            first = version.batches.index(found.batches[0])
        except ValueError:
            return False
        row = version.batches[first : first + len(found.batches)]
        if row != found.batches:
            return False
        dropped = version.batches[:first]
        if dropped and dropped[-1].last_offset >= start_max:
            return False
        return found.batches[-1].last_offset < found.end <= max(v.end for v in self.allowed)


def _brief(batches: Sequence[Ident]) -> str:
    return "[" + " ".join(f"{one.base_offset}-{one.last_offset}" for one in batches) + "]"
