"""A log that another process may be writing to, as far as it is whole and sound at each look.

The writer does not tell a reader in another process what is there. The sizes of the files tell it,
and the batches at the end of the log. A batch that is not whole yet, or does not match its checksum
yet, is not shown. Each look costs two calls to the file system and a walk over what was added.

Source: Kafka has no such reader; its own process publishes what it wrote.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kseg.constants import StopReason
from kseg.errors import KsegError, NotALogError, UnsupportedFormatError, at_path
from kseg.format.header import stop_error
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.version import SegmentInfo, Truncations, Version
from kseg.log.reader.view import LogView
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from kseg.format.header import BatchTable

#: Ends of a walk that an unfinished write leaves. An impossible length is none of them.
_UNFINISHED: Final = (
    StopReason.TORN_TAIL,
    StopReason.ZERO_TAIL,
    StopReason.BAD_CRC,
    StopReason.BAD_LENGTH,
    StopReason.BAD_MAGIC,
)
#: So many looks in a row must find a batch unsound, though whole, before it counts as damage.
_LOOKS_MAX: Final = 10


class SeenLog(NamedTuple):
    """A log at one moment, to read from; see `kseg.log.reader.find.ReadableLog`."""

    path: Path
    version: Version
    view: LogView


def seen_log(view: LogView) -> SeenLog:
    """What a view holds, up to the last batch that is whole and sound.

    Raises:
        UnsupportedFormatError: the log is one of Kafka 0.7, which has no batches.
        OSError: the disk refuses.
    """
    return SeenLog(view.path, _version(view, _end_of(view), Truncations(), committed=False), view)


def for_isolation(log: SeenLog, isolation: str) -> SeenLog:
    """The log to fetch from; for "read_committed" with the last stable offset."""
    if isolation != "read_committed":
        return log
    seen = log.version
    stable = OffsetMetadata(min(log.view.last_stable_offset, seen.log_end.offset))
    return log._replace(version=seen._replace(last_stable=stable))


@dataclass(frozen=True, slots=True)
class _End:
    """Where a log ends, and the fault that is there, if it is not simply the end of the file."""

    place: OffsetMetadata
    fault: KsegError | None = None


def _end_of(view: LogView, known: OffsetMetadata | None = None) -> _End:
    """The end of a log, walked to from a place that is known to be the end of a batch."""
    last = _last(view)
    if last.files.kafka07:
        raise UnsupportedFormatError("a log of Kafka 0.7 has no batches", path=view.path)
    with Segment.open(last.path, mapping="never", size=last.size, is_last=True) as segment:
        if known is None or known.segment_base_offset != last.base_offset:
            start = segment.start_for_offset(2**63 - 1).position
            offset = last.base_offset
        else:
            start, offset = known.position, known.offset
        table: BatchTable | None = None
        for tile in segment.walk(start=start, on_bad_crc="stop"):
            table = tile.table
            if len(table):
                offset = int(table.last_offset[-1]) + 1
    assert table is not None
    fault = at_path(stop_error(table), last.path) if table.stop in _UNFINISHED else None
    return _End(OffsetMetadata(offset, last.base_offset, table.end_position), fault)


def _last(view: LogView) -> SegmentInfo:
    if not view.segments:
        raise NotALogError("no segment is in it", path=view.path)
    return view.segments[-1]


def _version(view: LogView, end: _End, truncations: Truncations, *, committed: bool) -> Version:
    """The value that a writer of this process would publish; all of it may be shown."""
    *sealed, last = view.segments
    # The checkpoint is read a moment later than the log, and may know more.
    start = min(view.log_start_offset, end.place.offset)
    stable = view.last_stable_offset if committed else start
    return Version(
        tuple(sealed),
        last.files,
        start,
        end.place,
        end.place,
        OffsetMetadata(min(stable, end.place.offset)),
        0,
        truncations,
    )


@dataclass(frozen=True, slots=True)
class _Signs:
    """What shows that a log has changed: names, and the last log file's size and time."""

    names_ns: int
    written_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, view: LogView) -> _Signs:
        names = os.stat(view.path)
        last = os.stat(_last(view).path)
        return cls(names.st_mtime_ns, last.st_mtime_ns, last.st_size, last.st_ino)


class ExternalLog:
    """A log that is looked at again and again. Not for several threads at once.

    Attributes:
        path: the partition directory.
        view: the log at the last look.
        version: what was whole and sound of it.
    """

    __slots__ = ("_committed", "_looks", "_settled", "_signs", "path", "version", "view")

    view: LogView
    version: Version
    _signs: _Signs

    def __init__(self, path: Path, *, committed: bool = False) -> None:
        """Look for the first time.

        Args:
            path: the partition directory.
            committed: find out each time, too, up to where every transaction is decided.

        Raises:
            NotALogError: there is no segment in it.
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: it cannot be read.
        """
        self.path: Final = path
        self._committed = committed
        self._looks = 0
        self._settled = False
        self._take(LogView.open(path, mapping="never"), None, Truncations())

    def look(self) -> bool:
        """Look again; returns whether anything has changed.

        Raises:
            CorruptRecordError: there is damage that no writer is about to mend.
            OSError: the directory is gone, or the disk refuses.
        """
        before, known = self._signs, self.version.log_end
        try:
            signs = _Signs.of(self.view)
        except FileNotFoundError:  # the last segment is another one now
            signs = None
        if signs == before and self._settled and not self._looks:
            return False
        # Two writes within a tick of the clock have one time, so one more look follows.
        self._settled = signs == before
        try:
            view = self._view_now(signs)
            goes_on = self._goes_on(view, known)
        except NotALogError:  # all of it may just be making way for another beginning
            self._looks += 1
            if self._looks > _LOOKS_MAX:
                raise
            return False
        end = self._take(view, known if goes_on else None, self.version.truncations)
        if end.offset < known.offset or (
            end.segment_base_offset == known.segment_base_offset and end.position < known.position
        ):
            truncations = self.version.truncations.cut_at(min(end.offset, known.offset))
            self.version = self.version._replace(truncations=truncations)
        return end != known or signs != before

    def _view_now(self, signs: _Signs | None) -> LogView:
        """The log as it is; where no name has changed, only the last size is looked up."""
        before = self._signs
        if signs is None or not self._settled or signs.names_ns != before.names_ns:
            return LogView.open(self.path, mapping="never")
        *sealed, last = self.view.segments
        return LogView(self.path, (*sealed, replace(last, size=signs.size)), "never")

    def _goes_on(self, view: LogView, known: OffsetMetadata) -> bool:
        """Whether the log is the one seen before, perhaps with more behind it."""
        last = _last(view)
        same_file = os.stat(last.path).st_ino == self._signs.inode
        return same_file and last.size >= known.position

    def _take(
        self, view: LogView, known: OffsetMetadata | None, truncations: Truncations
    ) -> OffsetMetadata:
        signs = _Signs.of(view)
        end = _end_of(view, known)
        self._check(end)
        self.version = _version(view, end, truncations, committed=self._committed)
        self.view, self._signs = view, signs
        return end.place

    def _check(self, end: _End) -> None:
        """Report damage: a batch that is whole, and unsound at every look, is not being written."""
        waits = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
        if end.fault is None or end.fault.stop in waits:
            self._looks = 0
            return
        self._looks += 1
        if self._looks > _LOOKS_MAX:
            raise end.fault


__all__ = ["ExternalLog", "SeenLog", "for_isolation", "seen_log"]
