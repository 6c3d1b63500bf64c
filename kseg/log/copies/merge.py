"""One whole log out of several copies: `plan_merge` decides, `apply_merge` writes it.

From each copy what can be proved. The copy of the latest leader epoch goes first, among those of
one epoch the longest: what it has, no number of older copies outvotes. Each other copy is cut where
it leaves that history (`lineage`), and gives what none before it has (`choosing`).

Source: nothing of Kafka's; a follower that is cut ends where Kafka would cut it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from kseg.errors import InconsistentTopicIdError, NotALogError
from kseg.files.checkpoints import TopicPartition
from kseg.log.copies.choosing import Choosing, Ranked
from kseg.log.copies.joining import Chosen, JoinedCopies, join_copies
from kseg.log.copies.lineage import Lineage, divergence, lineage_of
from kseg.log.copies.source import Copy
from kseg.log.copies.table import OFFSETS_END
from kseg.log.copies.values import MergedCopy, MergePlan, Missing, PartitionMerge


def plan_merge(
    *copies: str | PathLike[str],
    out: str | PathLike[str],
    prefer: str | PathLike[str] | None = None,
    chosen: Chosen | None = None,
) -> MergePlan:
    """Decide what a merged log takes of each copy; nothing is written.

    At one offset the higher leader epoch wins. What a copy has behind the offset where it leaves
    the history of the last leader is left out. Sound batches of one epoch that differ are a
    conflict.

    Args:
        copies: partition directories, copies of one partition; or data directories, whose
            partitions are joined by topic and number. Two or more.
        out: the data directory to be made.
        prefer: one of the copies, whose batches win in a conflict.
        chosen: leaves out partitions of data directories, by topic and number.

    Raises:
        ValueError: fewer than two copies, the same directory twice, or `prefer` is none of them.
        InconsistentTopicIdError: copies of a topic of another id.
        NotALogError: a path is nothing of Kafka's, or a file; copies of different partitions; or
            nothing is chosen.
        UnsupportedFormatError: files of Kafka 0.7.
        KsegError, OSError: a copy cannot be read, or has changed on the way.

    Example:
        >>> from kseg import plan_merge
        >>> plan_merge("a/orders-0", "b/orders-0", out="whole").is_whole  # doctest: +SKIP
        True
    """
    first = None if prefer is None else _preferred(copies, prefer)
    joined = join_copies(copies, chosen)
    _check(joined)
    plans = [_plan(each, first) for each in joined]
    return MergePlan(Path(out), tuple(plans))


def _preferred(copies: Sequence[str | PathLike[str]], prefer: str | PathLike[str]) -> str:
    wanted = os.path.realpath(prefer)
    if wanted not in map(os.path.realpath, copies):
        raise ValueError(f"{os.fspath(prefer)} is preferred, but none of the copies")
    return wanted


def _check(joined: Sequence[JoinedCopies]) -> None:
    """Refuse what must not be mixed."""
    for each in joined:
        if each.topic is None:
            raise NotALogError(
                "the copies are not named as one partition", path=each.copies[0].path
            )
        other = next((one for one in each.copies if one.lacks == "other-topic"), None)
        if other is not None:
            raise InconsistentTopicIdError(
                f"the topic's id is {other.topic_id}, that of {each.copies[0].path} is "
                f"{each.topic_id}: these are two topics",
                path=other.path,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A copy and the epochs in it."""

    copy: Copy
    lineage: Lineage

    @property
    def order(self) -> tuple[int, int]:
        """The latest leader first, then the longest."""
        return (-self.lineage.latest, -self.lineage.end)


def _plan(joined: JoinedCopies, prefer: str | None) -> PartitionMerge:
    assert joined.topic is not None
    assert joined.partition is not None
    present = [one for one in joined.copies if one.lacks is None]
    copies = [Copy.read(one.path) for one in present]
    read = sorted((_Read(copy, lineage_of(copy)) for copy in copies), key=lambda one: one.order)
    ranked = _ranked(read, prefer)
    start = _start_of(copies)
    choosing = Choosing(ranked, start, compacted=any(map(_is_compacted, read)))
    choosing.run()
    missing = [*choosing.missing, *_missing_end(ranked, choosing)]
    return PartitionMerge(
        TopicPartition(joined.topic, joined.partition),
        joined.topic_id,
        tuple(map(_merged, read, ranked, choosing.taken.tolist())),
        start,
        choosing.expected,
        tuple(choosing.extents),
        tuple(missing),
        choosing.left_out,
        tuple(choosing.conflicts),
        choosing.undecided,
    )


def _ranked(read: Sequence[_Read], prefer: str | None) -> list[Ranked]:
    """The copies, each cut where it leaves the history of those before it."""
    history = read[0].lineage
    ranked = []
    for one in read:
        cut = divergence(history, one.lineage)
        cut = OFFSETS_END if cut is None else cut
        history = history.joined(one.lineage, cut)
        ranked.append(Ranked(one.copy, cut, _is_within(one.copy.path, prefer)))
    return ranked


def _is_within(path: str, prefer: str | None) -> bool:
    place = Path(os.path.realpath(path))
    return prefer is not None and prefer in (str(place), str(place.parent))


def _start_of(copies: Sequence[Copy]) -> int:
    """Where the merged log begins: with the first batch of all, or where records were deleted."""
    first = min(copy.first_offset for copy in copies)
    deleted = [copy.start_offset for copy in copies if copy.start_offset > copy.first_offset]
    return max([first, *deleted])


def _is_compacted(one: _Read) -> bool:
    return one.lineage.is_thinned or one.copy.clean_offset > 0


def _missing_end(ranked: Sequence[Ranked], choosing: Choosing) -> list[Missing]:
    """What damage at the end of a copy hides, and no other copy gives."""
    for at, one in enumerate(ranked):
        hidden = one.copy.damaged_end_bytes if one.cut == OFFSETS_END else 0
        if hidden > choosing.behind[at]:
            return [Missing(choosing.expected, None)]
    return []


def _merged(read: _Read, ranked: Ranked, taken: Sequence[int]) -> MergedCopy:
    copy = read.copy
    return MergedCopy(
        copy.path,
        read.lineage.latest,
        copy.start_offset,
        copy.end_offset,
        None if ranked.cut == OFFSETS_END else ranked.cut,
        sum(each.size for each in copy.provable.unprovable),
        int(taken[0]),
        int(taken[1]),
    )


__all__ = ["plan_merge"]
