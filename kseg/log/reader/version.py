"""The state of a log for its readers: one immutable value, replaced as a whole.

A reader takes it once and needs no lock. It has the segments, the length of each, and the offsets
that bound reading, all of one moment. `Changes` lets readers wait for the next one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from kseg.documents import frozen_dataclass
from kseg.files.names import PartitionFiles, SegmentFiles

if TYPE_CHECKING:
    from kseg.log.producers.entry import OffsetMetadata
    from kseg.log.segment.reader import Segment

#: Replaces a high watermark: this log is the only copy, so all of it is replicated.
END: Final = "end"
HighWatermark = int | Literal["end"]
#: The number of cuts that are kept separately. A reader that missed more goes back further than it
#: needs.
_CUTS_KEPT: Final = 32


@frozen_dataclass
class SegmentInfo:
    """A segment at one moment: its files, and how much of its log is to be read.

    Attributes:
        files: its files.
        size: bytes of the log that are to be read.
        is_last: whether no later segment follows, so that a torn tail is not damage; None where
            only its directory tells.
        end_offset: no record from here on is read; None to go as far as the bytes do.
        max_timestamp: no record is newer, in ms; None where that needs a read.
        is_whole: whether `end_offset` is where the bytes end.
    """

    files: SegmentFiles
    size: int
    is_last: bool | None
    end_offset: int | None = None
    max_timestamp: int | None = None
    is_whole: bool = True

    @property
    def base_offset(self) -> int:
        """From the file's name."""
        return self.files.base_offset

    @property
    def path(self) -> Path:
        """The log file."""
        return self.files.log


class LogSegments(Protocol):
    """A log at one moment, as far as walks over its segments need it."""

    @property
    def files(self) -> PartitionFiles:
        """All files of the partition."""

    @property
    def first_offset(self) -> int:
        """The base of the first segment."""

    @property
    def log_start_offset(self) -> int:
        """The first offset to be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    def segments_from(self, offset: int) -> tuple[SegmentInfo, ...]:
        """The segment that can hold `offset`, and those after it."""

    def open_segment(self, info: SegmentInfo) -> Segment:
        """Open one segment, up to the log's end."""


class Truncations(NamedTuple):
    """How often a log was cut, and how far down, for readers beside the writer.

    Attributes:
        number: the number of cuts; raised before the first byte is removed, so bytes that were read
            between two equal numbers were in the log.
        ends: (number, end offset) of cuts, offsets ascending: the lowest end since each number.
    """

    number: int = 0
    ends: tuple[tuple[int, int], ...] = ()

    def cut_at(self, end_offset: int) -> Truncations:
        """These cuts and one more, after which the log ends at `end_offset`."""
        number = self.number + 1
        lower = [(at, end) for at, end in self.ends if end < end_offset]
        if len(lower) == _CUTS_KEPT:  # join the oldest two: low as the lower, new as the newer
            (_, oldest_end), (number_after, _) = lower[:2]
            lower[:2] = [(number_after, oldest_end)]
        return Truncations(number, (*lower, (number, end_offset)))

    def lowest_end_since(self, number: int) -> int | None:
        """The lowest end that a cut after number `number` has left; None if there was none."""
        return next((end for at, end in self.ends if at > number), None)


class Version(NamedTuple):
    """A log at one moment. A tuple, since each append makes one.

    Attributes:
        sealed: the segments that are not appended to any more, rising.
        active: the files of the last segment; `log_end` says how much of it there is.
        log_start_offset: the first offset to be read.
        log_end: the next offset to be given, the base of the active segment, and its size.
        high_watermark: readers see records below it; its position is -1 where unknown.
        last_stable: below it every transaction is decided, and all is below the high watermark.
        recovery_point: records below it are known to be flushed.
        cuts: how often the log was cut; a read during which this changed is not used.
    """

    sealed: tuple[SegmentInfo, ...]
    active: SegmentFiles
    log_start_offset: int
    log_end: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable: OffsetMetadata
    recovery_point: int
    truncations: Truncations = Truncations()

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log_end.offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that may be read as committed."""
        return self.last_stable.offset

    @property
    def active_info(self) -> SegmentInfo:
        """The active segment."""
        return SegmentInfo(self.active, self.log_end.position, is_last=True)

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """All segments, rising; the last one is active."""
        return (*self.sealed, self.active_info)

    @property
    def size(self) -> int:
        """Bytes of all logs."""
        return sum(info.size for info in self.sealed) + self.log_end.position

    def segments_from(self, offset: int) -> tuple[SegmentInfo, ...]:
        """The segment that can hold `offset`, and those after it; all if `offset` is before all."""
        if offset >= self.active.base_offset:
            return (self.active_info,)
        at = bisect_right(self.sealed, offset, key=lambda info: info.base_offset)
        return (*self.sealed[max(at - 1, 0) :], self.active_info)


class Changes(threading.Condition):
    """A condition that knows whether threads wait, so that it costs nothing if none does."""

    def __init__(self, lock: threading.RLock) -> None:
        """Wait and notify under `lock`."""
        super().__init__(lock)
        self.waiting = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as for any condition, and count the waiting threads; the caller has the lock."""
        self.waiting += 1
        try:
            return super().wait(timeout)
        finally:
            self.waiting -= 1
