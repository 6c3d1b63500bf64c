"""Which leaders wrote a copy, and where it leaves the history of another one.

A copy that follows another one is cut where Kafka cuts a follower: behind the last epoch that both
have, where the first of both ends it. Where damage hides the begin of an epoch, the checkpoint of
epochs tells it, or another copy; else it lies between the last batch in front of the damage and the
first one behind. A copy that has left the history there is cut where it may have left it.

Source: Kafka `AbstractFetcherThread.getOffsetTruncationState`, `LeaderEpochFileCache.endOffsetFor`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kseg.errors import KsegError
from kseg.files.checkpoints import EpochEntry
from kseg.log.copies.table import EPOCH, FIRST, LAST
from kseg.log.epochs import FILE_NAME, UNDEFINED, LeaderEpochs

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy


@dataclass(frozen=True, slots=True)
class EpochBegin:
    """Where an epoch begins.

    Attributes:
        epoch: of the leader.
        start: the first offset that is known to be of it.
        least: it may have begun here already.
    """

    epoch: int
    start: int
    least: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs of a log.

    Attributes:
        begins: both numbers ascend.
        end: the offset behind the last batch.
    """

    begins: tuple[EpochBegin, ...]
    end: int

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without any."""
        return self.begins[-1].epoch if self.begins else -1

    @property
    def epochs(self) -> LeaderEpochs:
        """As Kafka keeps them."""
        return LeaderEpochs(None, (EpochEntry(one.epoch, one.start) for one in self.begins))

    def joined(self, other: Lineage, cut: int) -> Lineage:
        """This history with what another one tells of it in front of a cut."""
        found = list(self.begins)
        for one in other.begins:
            if one.start < cut:
                _add(found, one)
        return Lineage(tuple(found), max(self.end, min(other.end, cut)))


def lineage_of(copy: Copy) -> Lineage:
    """The epochs of a copy: of its sound batches, and of its checkpoint where damage hides them.

    Raises:
        KsegError, OSError: a file has changed, or is gone.
    """
    begins: list[EpochBegin] = []
    epoch, end = -1, copy.first_offset
    for rows in copy.tables():
        epochs = np.concatenate(([epoch], rows[:, EPOCH]))
        ends = np.concatenate(([end], rows[:, LAST] + 1))
        for at in np.flatnonzero(epochs[1:] > np.maximum.accumulate(epochs)[:-1]).tolist():
            least = int(ends[at])
            begins.append(EpochBegin(int(epochs[at + 1]), int(rows[at, FIRST]), least))
        epoch, end = int(epochs.max()), int(ends[-1])
    for entry in checkpoint_of(copy):
        is_behind = not begins or entry.epoch > begins[-1].epoch
        if (
            not is_behind
            or entry.start_offset == end
            or (entry.start_offset > end and copy.hides_end)
        ):
            _add(begins, EpochBegin(entry.epoch, entry.start_offset, entry.start_offset))
    return Lineage(tuple(begins), end)


def checkpoint_of(copy: Copy) -> Iterable[EpochEntry]:
    """The epochs that the checkpoint beside a copy says, as far as it can be read."""
    with suppress(KsegError, OSError):
        return LeaderEpochs.load(copy.provable.path / FILE_NAME).entries
    return ()


def _add(begins: list[EpochBegin], one: EpochBegin) -> None:
    """Add a begin, or a closer one, if it fits between its neighbours."""
    at = bisect_left(begins, one.epoch, key=lambda each: each.epoch)
    known = begins[at] if at < len(begins) and begins[at].epoch == one.epoch else None
    behind = at + (known is not None)
    next_one = begins[behind] if behind < len(begins) else None
    if at and one.start <= begins[at - 1].start:
        return
    if next_one is not None and one.start >= next_one.start:
        return
    if known is not None:
        if not known.least <= one.start <= known.start:
            return
        one = EpochBegin(one.epoch, one.start, max(one.least, known.least))
    elif next_one is not None and one.start < next_one.least:
        return
    begins[at:behind] = [one]
    if next_one is not None:
        least = max(next_one.least, min(one.start, next_one.start))
        begins[at + 1] = EpochBegin(next_one.epoch, next_one.start, least)


def divergence(leader: Lineage, follower: Lineage) -> int | None:
    """The offset to which a follower is cut; None where no epochs tell of one.

    Args:
        leader: of the latest epoch.
        follower: of that epoch or an earlier one.
    """
    common = _truncation(leader, follower)
    if common == UNDEFINED or common.start_offset >= follower.end:
        return None
    cut = common.start_offset
    at = bisect_right(leader.begins, common.epoch, key=lambda each: each.epoch)
    return min([cut, *(one.least for one in leader.begins[at : at + 1])])


def _truncation(leader: Lineage, follower: Lineage) -> EpochEntry:
    """The last epoch that both have, and where the first of both ends it; -1 for neither."""
    epochs, own = leader.epochs, follower.epochs
    end, epoch = follower.end, follower.latest
    while True:  # each turn asks for a lower epoch
        asked = epochs.end_offset_for(epoch, leader.end)
        mine = own.end_offset_for(asked.epoch, end)
        if UNDEFINED in (asked, mine):
            return UNDEFINED
        end = min(mine.start_offset, end)
        if mine.epoch == asked.epoch:
            return EpochEntry(mine.epoch, min(asked.start_offset, end))
        epoch = mine.epoch


__all__ = ["EpochBegin", "Lineage", "checkpoint_of", "divergence", "lineage_of"]
