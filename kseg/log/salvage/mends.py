"""Sound batches whose base offset or leader epoch is wrong, where only one value is possible.

No checksum covers these two fields. Leader epochs never fall, so a batch between two of the same
epoch has it, too. Where a batch lies between two others whose offsets leave out just as many as it
has, these are its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kseg.log.salvage.output import Extent
from kseg.log.salvage.tables import last_batch, provable_tables
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.format.header import BatchHeader
    from kseg.log.salvage.values import SegmentSeen, Unprovable


@dataclass(frozen=True, slots=True)
class Mended:
    """A batch that is kept with another base offset, or another leader epoch, than it says.

    Attributes:
        path: the log file.
        position: byte in it where the batch begins.
        size: its bytes.
        first_offset, last_offset: as they are written.
        leader_epoch: likewise.
        said_offset: the base offset that the batch says.
        said_epoch: the leader epoch that it says.
    """

    path: str
    position: int
    size: int
    first_offset: int
    last_offset: int
    leader_epoch: int
    said_offset: int
    said_epoch: int

    @property
    def extent(self) -> Extent:
        """How it is copied."""
        return Extent(self.path, self.position, self.size, self.first_offset, self.leader_epoch)

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return asdict(self)


def mended_batches(
    runs: Sequence[ProvableRun],
    unprovable: Sequence[Unprovable],
    segments: Sequence[SegmentSeen],
) -> Iterator[tuple[Mended, ProvableRun, Unprovable]]:
    """Each batch that can be kept so, as a run with its own offsets, and what told of it before.

    Args:
        runs: by offset.
        unprovable: the other bytes.
        segments: by base offset.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    touching = _touching(runs, segments)
    for one in unprovable:
        if one.reason == "epoch-order":
            around = _around(runs, one)
        elif one.reason == "offset-order":
            around = touching(one)
        else:
            continue
        found = None if around is None else _between(one, *around)
        if found is not None:
            yield *found, one


def _touching(
    runs: Sequence[ProvableRun], segments: Sequence[SegmentSeen]
) -> Callable[[Unprovable], tuple[ProvableRun, ProvableRun] | None]:
    """Finds the runs that end and begin where a batch does, if no other has offsets between theirs.

    They may lie in the segments around it.
    """
    ends = {(run.path, run.end): run for run in runs}
    begins = {(run.path, run.position): run for run in runs}
    for one, other in pairwise(segments):
        if (one.path, one.size) in ends:
            ends[other.path, 0] = ends[one.path, one.size]
        if (other.path, 0) in begins:
            begins[one.path, one.size] = begins[other.path, 0]

    follows = {id(one): other for one, other in pairwise(runs)}

    def find(one: Unprovable) -> tuple[ProvableRun, ProvableRun] | None:
        before, after = ends.get((one.path, one.position)), begins.get((one.path, one.end))
        if before is None or after is None or follows.get(id(before)) is not after:
            return None
        return before, after

    return find


def _around(runs: Sequence[ProvableRun], one: Unprovable) -> tuple[ProvableRun, ProvableRun] | None:
    """The runs in front of some offsets and behind them; None where either is missing."""
    assert one.first_offset is not None
    at = bisect_left(runs, one.first_offset, key=lambda run: run.first_offset)
    return (runs[at - 1], runs[at]) if 0 < at < len(runs) else None


def _between(
    one: Unprovable, before: ProvableRun, after: ProvableRun
) -> tuple[Mended, ProvableRun] | None:
    """The batch as it fits between two runs; None where more than one value is possible."""
    header = _first(ProvableRun(one.path, one.position, one.size, -1, -1, 1))
    if header is None or header.magic < 2 or header.size != one.size:
        return None
    count = header.last_offset - header.base_offset + 1
    first, epoch = header.base_offset, header.leader_epoch
    if one.reason == "offset-order":
        first = before.last_offset + 1
        if after.first_offset - first != count:
            return None
    least, most = last_batch(before).leader_epoch, _first(after)
    if most is None or not 0 <= least <= most.leader_epoch:
        return None
    if not least <= epoch <= most.leader_epoch:
        if least != most.leader_epoch:
            return None
        epoch = least
    last = first + count - 1
    place = one.path, one.position, one.size
    mended = Mended(*place, first, last, epoch, header.base_offset, header.leader_epoch)
    run = ProvableRun(*place, first, last, 1, max(header.record_count, 0))
    return mended, run


def _first(run: ProvableRun) -> BatchHeader | None:
    """The first batch of a run."""
    for _, table in provable_tables([run]):
        return table[0]
    return None


__all__ = ["Mended", "mended_batches"]
