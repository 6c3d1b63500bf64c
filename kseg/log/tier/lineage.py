"""Copies of segments, and which of them holds an offset: by leader epoch, cut by a lineage.

Source: Kafka `RemoteLogLeaderEpochState`, `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from kseg.constants import INT64_MAX
from kseg.documents import frozen_dataclass
from kseg.errors import TierError
from kseg.files.checkpoints import EpochEntry


class SegmentState(IntEnum):
    """How far a copy, or its removal, has come; only a finished copy is read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@frozen_dataclass
class RemoteSegment:
    """One copy of a segment.

    Attributes:
        id: the id of the copy, as text.
        start_offset: the base offset of the segment.
        end_offset: its last offset, inclusive.
        epochs: the leader epochs with records in it. The first begins at `start_offset`, or after
            it where the log's start had moved into the segment before it was copied.
        size: bytes of the log.
        max_timestamp: its largest, in ms; -1 where it is not known.
        event_ms: time of the last change.
        state: the state of the copy.
        custom: the store's own metadata.
    """

    id: str
    start_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    size: int
    max_timestamp: int = -1
    event_ms: int = -1
    state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED
    custom: bytes | None = None

    def check(self) -> None:
        """Refuse offsets and epochs that no segment can have.

        Raises:
            TierError: they contradict each other.
        """
        entries = self.epochs
        sound = 0 <= self.start_offset <= self.end_offset < INT64_MAX and self.size >= 0
        sound &= bool(entries) and entries[0].start_offset >= self.start_offset
        for entry, following in pairwise(entries):
            sound &= entry.epoch < following.epoch and entry.start_offset <= following.start_offset
        if not sound or entries[-1].start_offset > self.end_offset:
            raise TierError(
                f"segment {self.id}: offsets {self.start_offset} to {self.end_offset}, size "
                f"{self.size} and epochs {list(map(tuple, entries))} contradict each other"
            )


class Span(NamedTuple):
    """The offsets that readers get from one segment: from `start` to before `end`."""

    segment: RemoteSegment
    start: int
    end: int


class _Epoch:
    """The finished segments with records of one epoch.

    `segments` has each by the first offset that it has of the epoch, with the last one; `starts`
    has these first offsets, ascending; `highest` is the last offset that was ever copied.
    """

    __slots__ = ("highest", "segments", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: dict[int, tuple[RemoteSegment, int]] = {}
        self.highest = -1

    def put(self, segment: RemoteSegment, start: int, end: int) -> None:
        """Add a segment with these offsets of the epoch; it replaces segments that it covers."""
        while self.starts and self.starts[-1] >= start and self.highest <= end:
            del self.segments[self.starts.pop()]
        if start not in self.segments:
            insort(self.starts, start)
        self.segments[start] = segment, end
        self.highest = max(self.highest, end)


class EpochIndex:
    """An index of copies: which one a broker reads for an offset of an epoch.

    Copies are put in the order in which the broker made them.
    """

    def __init__(self) -> None:
        """Start without segments."""
        self._epochs: dict[int, _Epoch] = {}

    def put(self, segment: RemoteSegment) -> None:
        """Add a finished copy."""
        for epoch, start, end in _ranges(segment):
            self._epochs.setdefault(epoch, _Epoch()).put(segment, start, end)

    def remove(self, segment: RemoteSegment) -> None:
        """Remove a copy whose deletion has begun; the highest offsets stay."""
        for epoch, start, _end in _ranges(segment):
            epoch_segments = self._epochs.get(epoch)
            if epoch_segments is None or start not in epoch_segments.segments:
                continue
            if epoch_segments.segments[start][0].id == segment.id:
                epoch_segments.starts.remove(start)
                del epoch_segments.segments[start]

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The segment with an offset of an epoch; None if there is none."""
        epoch_segments = self._epochs.get(epoch)
        at = 0 if epoch_segments is None else bisect_right(epoch_segments.starts, offset)
        if epoch_segments is None or not at:
            return None
        segment, end = epoch_segments.segments[epoch_segments.starts[at - 1]]
        return segment if offset <= end else None

    def highest(self, epoch: int) -> int:
        """The highest offset of an epoch that was ever copied; -1 if none was."""
        epoch_segments = self._epochs.get(epoch)
        return -1 if epoch_segments is None else epoch_segments.highest

    def spans(self, lineage: Sequence[EpochEntry]) -> Iterator[Span]:
        """The span that a reader of a lineage takes from each segment, ascending, without overlap.

        The records of an epoch count up to the start of the next epoch of the lineage.
        """
        pending: Span | None = None
        for entry, following in pairwise((*lineage, EpochEntry(-1, INT64_MAX))):
            epoch_segments = self._epochs.get(entry.epoch)
            if epoch_segments is None:
                continue
            # From the segment that can hold the epoch's start to the last before its end.
            at = max(bisect_right(epoch_segments.starts, entry.start_offset) - 1, 0)
            until = bisect_left(epoch_segments.starts, following.start_offset)
            for start, next_start in pairwise((*epoch_segments.starts[at:until], INT64_MAX)):
                segment, last = epoch_segments.segments[start]
                first = max(start, entry.start_offset)
                end = min(last + 1, next_start, following.start_offset)
                if end <= first:
                    continue
                # A segment with several epochs makes one span.
                if pending and pending.segment.id == segment.id and pending.end == first:
                    pending = pending._replace(end=end)
                    continue
                if pending:
                    yield pending
                pending = Span(segment, first, end)
        if pending:
            yield pending


def _ranges(segment: RemoteSegment) -> Iterator[tuple[int, int, int]]:
    """Each epoch of a segment, with its first and last offset there."""
    for entry, following in pairwise((*segment.epochs, None)):
        assert entry is not None
        last = segment.end_offset if following is None else following.start_offset - 1
        yield entry.epoch, entry.start_offset, last


def is_within(
    segment: RemoteSegment, lineage: Sequence[EpochEntry], log_end_offset: int = INT64_MAX
) -> bool:
    """Whether a segment's epochs agree with a lineage: a broker counts only such a segment.

    Epochs before the lineage's first one may be missing there. Each of the others must be in
    it, begin at the same offset (the first of them there or later), and end at the same one.

    Source: Kafka `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`.
    """
    theirs, ours = without_empty(segment.epochs), without_empty(lineage)
    if not theirs or not ours or segment.end_offset >= log_end_offset:
        return False
    first, last = ours[0].epoch, ours[-1].epoch
    if not first <= theirs[-1].epoch <= last:
        return False
    valid = [entry for entry in theirs if entry.epoch >= first]
    starts = {entry.epoch: at for at, entry in enumerate(ours)}
    for entry, following in pairwise((*valid, None)):
        assert entry is not None
        at = starts.get(entry.epoch)
        if at is None:
            return False
        if entry is valid[0] and at > 0 and entry.start_offset < ours[at].start_offset:
            return False
        after = ours[at + 1] if at + 1 < len(ours) else None
        if following is None:
            return after is None or segment.end_offset < after.start_offset
        if after is None or following != after:
            return False
    return True


def without_empty(entries: Sequence[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Epochs without empty ones, whose next epoch begins at the same offset."""
    not_empty = [
        entry
        for entry, following in pairwise((*entries, EpochEntry(-1, -1)))
        if entry.start_offset != following.start_offset
    ]
    return tuple(not_empty)


def clipped(entries: Sequence[EpochEntry], start: int, end: int) -> tuple[EpochEntry, ...]:
    """The epochs with records from `start` to `end`, inclusive; the first begins at `start`."""
    entries_within = []
    for entry, following in pairwise((*entries, EpochEntry(-1, INT64_MAX))):
        if entry.start_offset <= end and following.start_offset > start:
            entries_within.append(EpochEntry(entry.epoch, max(entry.start_offset, start)))
    return without_empty(entries_within)
