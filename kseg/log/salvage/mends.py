"""Batches whose base offset, leader epoch or length is wrong, where only one value is possible.

No checksum covers these fields. Leader epochs never fall, so a batch between two of the same epoch
has it, too. Where a batch lies between two others whose offsets leave out just as many as it has,
these are its own. If the checksum is right up to where the next sound batch begins, or to the end
of the file, the length is wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kseg.files.log_file import LogFile
from kseg.log.recovery.lost import claimed
from kseg.log.salvage.chains import stored_size
from kseg.log.salvage.output import Extent
from kseg.log.salvage.tables import last_batch, provable_tables
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.format.header import BatchHeader
    from kseg.log.salvage.values import SegmentSeen, Unprovable


#: Of a damaged batch whose length may be all that is wrong.
_WRONG_LENGTHS: Final = ("batch-length", "batch-crc", "torn-tail")
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Mended:
    """A batch that is kept with another base offset, leader epoch or length than it says.

    Attributes:
        path: the log file.
        position: byte in it where the batch begins.
        size: its bytes.
        first_offset, last_offset: as they are written.
        leader_epoch: likewise.
        said_offset: the base offset that the batch says.
        said_epoch: the leader epoch that it says.
        said_size: the size that it has by its length.
    """

    path: str
    position: int
    size: int
    first_offset: int
    last_offset: int
    leader_epoch: int
    said_offset: int
    said_epoch: int
    said_size: int

    @property
    def extent(self) -> Extent:
        """How it is copied."""
        place = self.path, self.position, self.size
        # Messages of magic 0 and 1 have no leader epoch, and those that hold others their last
        # offset.
        first = self.first_offset if self.first_offset != self.said_offset else None
        epoch = self.leader_epoch if self.leader_epoch != self.said_epoch else None
        return Extent(*place, first, epoch, self.said_size != self.size)

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
    ends = {(run.path, run.end) for run in runs}
    for one in unprovable:
        found = None
        if one.reason == "epoch-order":
            found = _between(one, _around(runs, one))
        elif one.reason == "offset-order":
            found = _between(one, touching(one))
        elif one.reason in _WRONG_LENGTHS and (
            not one.position or (one.path, one.position) in ends
        ):
            found = _resized(one, runs, segments)
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
    one: Unprovable, around: tuple[ProvableRun, ProvableRun] | None
) -> tuple[Mended, ProvableRun] | None:
    """The batch as it fits between two runs; None where more than one value is possible."""
    header = _first(_as_run(one)) if around is not None and one.batches <= 1 else None
    if around is None or header is None or header.base_offset < 0:
        return None
    before, after = around
    count = header.last_offset - header.base_offset + 1
    first, epoch = header.base_offset, header.leader_epoch
    if one.reason == "offset-order":
        first = before.last_offset + 1
        # Where compaction left holes, one that fits says little against offsets that may be right.
        sure = not one.batches or (before.is_dense and after.is_dense)
        if after.first_offset - first != count or not sure:
            return None
    if header.magic >= 2:
        fitting = _epoch_between(before, after, epoch)
        if fitting is None:
            return None
        epoch = fitting
    return _mended(one, header, first, epoch, one.size)


def _epoch_between(before: ProvableRun, after: ProvableRun, epoch: int) -> int | None:
    """The leader epoch that a batch between two runs has; None where several are possible."""
    least, behind = last_batch(before).leader_epoch, _first(after)
    if behind is None or not 0 <= least <= behind.leader_epoch:
        return None
    if least <= epoch <= behind.leader_epoch:
        return epoch
    return least if least == behind.leader_epoch else None


def _mended(
    one: Unprovable, header: BatchHeader, first: int, epoch: int, said_size: int
) -> tuple[Mended, ProvableRun]:
    said = header.base_offset if header.base_offset >= 0 else header.last_offset
    last = first + header.last_offset - said
    place = one.path, one.position, one.size
    records = header.record_count if header.base_offset >= 0 <= header.record_count else None
    run = ProvableRun(*place, first, last, 1, records)
    return Mended(*place, first, last, epoch, said, header.leader_epoch, said_size), run


def _resized(
    one: Unprovable, runs: Sequence[ProvableRun], segments: Sequence[SegmentSeen]
) -> tuple[Mended, ProvableRun] | None:
    """A batch behind sound ones whose checksum is right for the size that it takes up, if it fits.

    Its offsets are those of no other batch, and epochs do not fall with it.
    """
    with LogFile.open(one.path, mapping="never") as log:
        head = log.head_at(one.position)
        if claimed(head, one.position) is None:
            return None
        said = stored_size(head)
        if said == one.size or log.end_by_checksum(one.position, [one.end]) is None:
            return None
    header = _first(_as_run(one))
    assert header is not None
    first = header.base_offset if header.base_offset >= 0 else header.last_offset
    at = bisect_left(runs, first, key=lambda run: run.first_offset)
    before, after = runs[at - 1] if at else None, runs[at] if at < len(runs) else None
    least, most = header.leader_epoch, header.leader_epoch
    end, limit = segments[0].base_offset, segments[-1].base_offset + _INT32_MAX
    if before is not None:
        end, least = before.last_offset + 1, last_batch(before).leader_epoch
    first_behind = None if after is None else _first(after)
    if after is not None and first_behind is not None:
        limit, most = after.first_offset - 1, first_behind.leader_epoch
    if not (end <= first <= header.last_offset <= limit):
        return None
    if header.magic >= 2 and not least <= header.leader_epoch <= most:
        return None
    return _mended(one, header, first, header.leader_epoch, said)


def _as_run(one: Unprovable) -> ProvableRun:
    """Bytes that are one batch, as a run."""
    return ProvableRun(one.path, one.position, one.size, -1, -1, 1)


def _first(run: ProvableRun) -> BatchHeader | None:
    """The first batch of a run."""
    for _, table in provable_tables([run]):
        return table[0]
    return None


__all__ = ["Mended", "mended_batches"]
