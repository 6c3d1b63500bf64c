"""The copies of one partition: which there are, and how each compares with the first one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from kseg.analysis.diff.compare import Pair
from kseg.analysis.diff.values import Compared, CopySeen, PartitionDiff
from kseg.errors import KsegError, os_reason
from kseg.files.names import log_bytes
from kseg.log.copies import Copy, CopyPath, join_copies, windows

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.copies import Chosen


@dataclass(frozen=True, slots=True)
class DiffUnit:
    """One partition with its copies.

    Attributes:
        topic, partition: by the directories' names; None for copies under other names.
        copies: the first one that has it comes first.
        records: compare records where batches differ.
        mapping: see `kseg.files.mapping`.
        cost: bytes of log, roughly.
    """

    topic: str | None
    partition: int | None
    copies: tuple[CopyPath, ...]
    records: bool
    mapping: Mapping
    cost: int = 0

    @property
    def path(self) -> str:
        """The first copy."""
        return self.copies[0].path


def plan(
    paths: Sequence[str | PathLike[str]],
    *,
    records: bool = False,
    mapping: Mapping = "auto",
    chosen: Chosen | None = None,
) -> list[DiffUnit]:
    """The partitions under some paths, each with its copies; see `kseg.log.copies.join_copies`.

    Args:
        paths: two or more.
        records, mapping: of the units.
        chosen: leaves out partitions of data directories.

    Raises:
        ValueError, NotALogError, OSError: see there.
    """
    return [
        DiffUnit(each.topic, each.partition, each.copies, records, mapping, _cost(each.copies))
        for each in join_copies(paths, chosen)
    ]


def _cost(copies: Sequence[CopyPath]) -> int:
    total = 0
    for copy in copies:
        with suppress(OSError):
            total += log_bytes(copy.path) if copy.is_readable else 0
    return total


def examine(unit: DiffUnit) -> PartitionDiff:
    """Compare the copies of a partition; what cannot be read is told in the answer.

    Copies are taken for sound, and read once. If one may not be, what can be proved of each is
    found first. A copy whose files change on the way, as by retention, is read once more.
    """
    if sum(each.is_readable for each in unit.copies) > 1:
        with suppress(KsegError, OSError):
            return _compared(unit, [_assume(each, unit.mapping) for each in unit.copies])
    with suppress(KsegError, OSError):
        return _compared(unit, [_look(each, unit.mapping) for each in unit.copies])
    try:
        return _compared(unit, [_look(each, unit.mapping) for each in unit.copies])
    except (KsegError, OSError) as error:
        why = f"it changed while it was read: {_reason_of(error)}"
        failed = [CopySeen(each.path, each.topic_id, error=why) for each in unit.copies]
        others = tuple(Compared(seen, "unreadable") for seen in failed[1:])
        return PartitionDiff(unit.topic, unit.partition, failed[0], others)


def _reason_of(error: KsegError | OSError) -> str:
    """An error in words, without the path if the file system made it."""
    return os_reason(error) if isinstance(error, OSError) else str(error)


@dataclass(frozen=True, slots=True, eq=False)
class _Looked:
    """A copy, or why it cannot be read."""

    asked: CopyPath
    copy: Copy | None = None
    error: str | None = None

    @property
    def seen(self) -> CopySeen:
        """What is told of it, once it was compared."""
        copy = self.copy
        if copy is None:
            return CopySeen(self.asked.path, self.asked.topic_id, error=self.error)
        segments = copy.provable.segments
        return CopySeen(
            self.asked.path,
            self.asked.topic_id,
            copy.start_offset,
            copy.end_offset,
            len(segments),
            sum(segment.size for segment in segments),
            copy.batches,
            copy.unknown,
        )


def _compared(unit: DiffUnit, looked: Sequence[_Looked]) -> PartitionDiff:
    """Compare the copies that can be read with the first of them.

    Raises:
        KsegError, OSError: a copy has changed since it was read, or may not be sound.
    """
    readable = [each for each in looked if each.copy is not None]
    first = (readable or looked)[0]
    others = [each for each in looked if each is not first]
    pairs = _pairs(unit, [each.copy for each in readable if each.copy is not None])
    compared = [
        Compared(each.seen, each.asked.lacks or "unreadable")
        if each.copy is None
        else pairs.pop(0).value(each.seen)
        for each in others
    ]
    return PartitionDiff(unit.topic, unit.partition, first.seen, tuple(compared))


def _assume(asked: CopyPath, mapping: Mapping) -> _Looked:
    """Take one copy for sound.

    Raises:
        KsegError, OSError: it may not be, or cannot be read.
    """
    if not asked.is_readable:
        return _Looked(asked, error=asked.error)
    return _Looked(asked, Copy.assumed(asked.path, mapping))


def _look(asked: CopyPath, mapping: Mapping) -> _Looked:
    """Read one copy with its checksums."""
    if not asked.is_readable:
        return _Looked(asked, error=asked.error)
    try:
        return _Looked(asked, Copy.read(asked.path, mapping))
    except (KsegError, OSError) as error:
        return _Looked(asked, error=_reason_of(error))


def _pairs(unit: DiffUnit, copies: list[Copy]) -> list[Pair]:
    """Compare the first of some copies with each other one, in one walk over all."""
    pairs = [Pair(copies[0], other, records=unit.records) for other in copies[1:]]
    if pairs:
        for window in windows(copies):
            for pair, rows in zip(pairs, window.sides[1:], strict=True):
                pair.feed(window.sides[0], rows)
    return pairs


__all__ = ["DiffUnit", "examine", "plan"]
