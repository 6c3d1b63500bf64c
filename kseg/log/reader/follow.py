"""The records of a log as columns, as they are written.

In a log that this process appends to, a follower sees the records below the high watermark, at
once: it waits for the writer to publish. In a log that another process may write to, the sizes of
the files and the batches at the end of the log show what there is. A follower sees the batches that
are whole and match their checksums, and looks again every 100 ms. Each look costs two calls to the
file system and a walk over the new batches.

A roll makes no difference to a follower. Where retention removed records before they were read, the
follower goes on at the log's start, and the offsets show the gap. A log may be cut below the
follower's place, as a replica is that gets another leader. Then the follower goes on where the log
was cut, and offsets come again with other records. In a log of another process it goes on where the
next look finds the end.

Source: Kafka's consumers poll; to go on at the start is `auto.offset.reset=earliest`. Kafka has no
reader of another process's log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Unpack

from kseg.commands import note
from kseg.constants import INT64_MAX, StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import (
    KsegError,
    NotALogError,
    OffsetOutOfRangeError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files.metadata import topic_id_in
from kseg.format.header import BatchTable, stop_error
from kseg.format.request import RequestOptions, check_word
from kseg.format.values import RecordColumns
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.fetch import FETCH_BYTES, ISOLATIONS, Fetched, fetch, limit_of
from kseg.log.reader.find import ReadableLog
from kseg.log.reader.version import SegmentInfo, Truncations, Version
from kseg.log.reader.view import LogView
from kseg.log.segment.reader import Segment

#: Ends of a walk that an unfinished write leaves. An impossible length is not among them.
_UNFINISHED: Final = (
    StopReason.TORN_TAIL,
    StopReason.ZERO_TAIL,
    StopReason.BAD_CRC,
    StopReason.BAD_LENGTH,
    StopReason.BAD_MAGIC,
)
#: How often a log of another process is listed, in s.
LOOK_INTERVAL_S: Final = 0.1
#: So many listings in a row must find a batch unsound, though whole, before it is damage.
_LOOKS_MAX: Final = 10


class SeenLog(NamedTuple):
    """A log at one moment, to read from; see `kseg.log.reader.find.ReadableLog`."""

    path: Path
    version: Version
    view: LogView


def seen_log(view: LogView) -> SeenLog:
    """The log in a view, up to the last whole and sound batch.

    Raises:
        UnsupportedFormatError: the log is one of Kafka 0.7, which has no batches.
        OSError: the disk refuses.
    """
    end, _fault = _end_of(view)
    return SeenLog(view.path, _version(view, end, Truncations(), committed=False), view)


def for_isolation(log: SeenLog, isolation: str) -> SeenLog:
    """The log to fetch from; for "read_committed" with the last stable offset."""
    if isolation != "read_committed":
        return log
    seen = log.version
    stable = OffsetMetadata(min(log.view.last_stable_offset, seen.log_end.offset))
    return log._replace(version=seen._replace(last_stable=stable))


def _end_of(
    view: LogView, last_end: OffsetMetadata | None = None
) -> tuple[OffsetMetadata, KsegError | None]:
    """The end of a log, and the fault there; None for the fault where the file merely ends.

    Args:
        view: the log.
        last_end: the end of a batch, from where to walk on.
    """
    last = _last(view)
    if last.files.kafka07:
        raise UnsupportedFormatError("a log of Kafka 0.7 has no batches", path=view.path)
    with Segment.open(last.path, mapping="never", size=last.size, is_last=True) as segment:
        if last_end is None or last_end.segment_base_offset != last.base_offset:
            start = segment.start_for_offset(INT64_MAX).position
            offset = last.base_offset
        else:
            start, offset = last_end.position, last_end.offset
        for table in whole_batches(segment, start):
            if len(table):
                offset = table.end_offset
    fault = at_path(stop_error(table), last.path) if table.stop in _UNFINISHED else None
    return OffsetMetadata(offset, last.base_offset, table.end_position), fault


def whole_batches(segment: Segment, start: int) -> Iterator[BatchTable]:
    """Headers of the last segment of a growing log, up to where a writer may be at work.

    A writer may be at work on the very last batch. One with a wrong checksum and another batch
    after it is damaged: it counts, and reading it meets the fault.

    Args:
        segment: the last one.
        start: position of a batch.

    Yields:
        At least one table; the last one's `stop` says why the walk ended.
    """
    while True:
        for tile in segment.walk(start=start, on_bad_crc="stop"):
            yield tile.table
        if tile.table.stop is not StopReason.BAD_CRC:
            return
        following = next(segment.headers(start=tile.table.end_position))
        if len(following) < 2:
            return
        yield following[:1]
        start = int(following.position[1])


def _last(view: LogView) -> SegmentInfo:
    if not view.segments:
        raise NotALogError("no segment is in it", path=view.path)
    return view.segments[-1]


def _version(
    view: LogView, end: OffsetMetadata, truncations: Truncations, *, committed: bool
) -> Version:
    """The version that a writer in this process would publish; readers may see all of it."""
    *sealed, last = view.segments
    # The checkpoint is read a moment later than the log, and may know more.
    start = min(view.log_start_offset, end.offset)
    stable = view.last_stable_offset if committed else start
    return Version(
        tuple(sealed),
        last.files,
        start,
        end,
        end,
        OffsetMetadata(min(stable, end.offset)),
        0,
        truncations,
    )


@frozen_dataclass
class _Signs:
    """Signs of a change of a log.

    Attributes:
        home, names_ns: inode of the directory, and when a name in it last changed.
        written_ns, size, inode: status of the last log file.
    """

    home: int
    names_ns: int
    written_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, view: LogView) -> _Signs:
        names = os.stat(view.path)
        last = os.stat(_last(view).path)
        return cls(names.st_ino, names.st_mtime_ns, last.st_mtime_ns, last.st_size, last.st_ino)


class ExternalLog:
    """A log of another process, listed again and again. Not for several threads at once.

    Attributes:
        path: the partition directory.
        view: the log at the last listing.
        version: the whole and sound part of it.
    """

    __slots__ = (
        *("_committed", "_looks", "_restarts", "_settled", "_signs", "_topic_id"),
        *("path", "version", "view"),
    )

    view: LogView
    version: Version
    _signs: _Signs

    def __init__(self, path: Path, *, committed: bool = False, restarts: bool = False) -> None:
        """Look for the first time.

        Args:
            path: the partition directory.
            committed: find out each time, too, up to where every transaction is decided.
            restarts: where the topic is deleted and made again, wait for its new log.

        Raises:
            NotALogError: there is no segment in it.
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: it cannot be read.
        """
        self.path: Final = path
        self._committed, self._restarts = committed, restarts
        self._topic_id = topic_id_in(path)
        self._looks = 0
        self._settled = False
        self._adopt_view(LogView.open(path, mapping="never"), None, Truncations())

    def look(self) -> bool:
        """List the log again; return whether anything has changed.

        Raises:
            CorruptRecordError: there is damage that no writer is about to mend.
            KsegError: the directory is of a topic that was made again.
            OSError: the directory is gone, or the disk refuses.
        """
        before, last_end = self._signs, self.version.log_end
        try:
            signs = _Signs.of(self.view)
        except FileNotFoundError:  # the last segment is another file now
            signs = None
        if signs == before and self._settled and not self._looks:
            return False
        # Two writes within a tick of the clock have the same time, so read the signs once more.
        self._settled = signs == before
        try:
            view = self._view_now(signs)
            is_other = self._is_other(signs)
            goes_on = not is_other and self._goes_on(view, last_end)
        except FileNotFoundError:
            if not self._restarts:
                raise
            return False  # until the topic is there again
        except NotALogError:  # the directory may be about to be replaced
            self._looks += 1
            if self._looks > _LOOKS_MAX:
                raise
            return False
        end = self._adopt_view(view, last_end if goes_on else None, self.version.truncations)
        same_segment = end.segment_base_offset == last_end.segment_base_offset
        is_cut = end.offset < last_end.offset or (same_segment and end.position < last_end.position)
        if is_other or is_cut:
            lowest = 0 if is_other else min(end.offset, last_end.offset)
            truncations = self.version.truncations.cut_at(lowest)
            self.version = self.version._replace(truncations=truncations)
        return end != last_end or signs != before

    def wait(self, seen: Version, seconds: float) -> bool:
        """List again after a while, whether `seen` is the version or not; see `look`."""
        time.sleep(min(seconds, LOOK_INTERVAL_S))
        self.look()
        return True

    def _view_now(self, signs: _Signs | None) -> LogView:
        """A view of the log now; if no name has changed, only the last size is read again."""
        before = self._signs
        if signs is None or not self._settled or signs.names_ns != before.names_ns:
            return LogView.open(self.path, mapping="never")
        *sealed, last = self.view.segments
        return LogView(self.path, (*sealed, replace(last, size=signs.size)), "never")

    def _is_other(self, signs: _Signs | None) -> bool:
        """Whether the topic was made again after a deletion: its id, or the inode, has changed.

        Raises:
            KsegError: it was made again, and the reading is not to begin again.
        """
        before = self._signs
        if signs is not None and (signs.home, signs.names_ns) == (before.home, before.names_ns):
            return False
        topic_id_before, self._topic_id = self._topic_id, topic_id_in(self.path)
        if topic_id_before is not None and self._topic_id is not None:
            is_other = topic_id_before != self._topic_id
        else:
            is_other = os.stat(self.path).st_ino != before.home
        if is_other:
            event = f"the topic was made again, {self._topic_id or 'without an id'}"
            if not self._restarts:
                raise KsegError(
                    f"{event}; its records have offsets from the start again: read it anew, or "
                    "choose recreated=start, which goes on at its start",
                    path=self.path,
                )
            note.get()(f"kseg: {self.path}: {event}; its records follow from the start")
        return is_other

    def _goes_on(self, view: LogView, last_end: OffsetMetadata) -> bool:
        """Whether the log is still the one seen before, perhaps with more records."""
        last = _last(view)
        same_file = os.stat(last.path).st_ino == self._signs.inode
        return same_file and last.size >= last_end.position

    def _adopt_view(
        self, view: LogView, last_end: OffsetMetadata | None, truncations: Truncations
    ) -> OffsetMetadata:
        """Use a view as the present log; return its end. Arguments as for `_end_of`."""
        signs = _Signs.of(view)
        end, fault = _end_of(view, last_end)
        self._check(fault)
        self.version = _version(view, end, truncations, committed=self._committed)
        self.view, self._signs = view, signs
        return end

    def _check(self, fault: KsegError | None) -> None:
        """Report damage; a batch that is whole but unsound at every look is not being written."""
        waits = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
        if fault is None or fault.stop in waits:
            self._looks = 0
            return
        self._looks += 1
        if self._looks > _LOOKS_MAX:
            raise fault


#: How long a follower waits at a time, in s; then it checks for a stop, or a failed log.
_WAIT_S: Final = 0.5
#: Waits some seconds for another version than the given one; False if there will be none.
Wait = Callable[[Version, float], bool]


def follow(
    log: ReadableLog,
    wait: Wait,
    start_offset: int | None = None,
    *,
    timeout: float | None = None,
    stop: threading.Event | None = None,
    fetch_bytes: int = FETCH_BYTES,
    **options: Unpack[RequestOptions],
) -> Iterator[RecordColumns]:
    """The records of a log as columns, as they are written; see the top of the module.

    It ends after `timeout`, by `stop`, by the generator's own `close`, or when this process has
    closed the log and all visible records were given.

    Args:
        log: the log.
        wait: how to wait for more of it.
        start_offset: the first wanted record; only new ones if None.
        timeout: seconds without a new record after which it ends; None to wait for ever.
        stop: ends it, within half a second, once it is set.
        fetch_bytes: the bytes of log to read at a time.
        options: as for `Fetched.columns`; `isolation` as for `kseg.log.reader.fetch.fetch`.

    Yields:
        Pieces in the order of the log, none empty.

    Raises:
        OffsetOutOfRangeError: `start_offset` is before the log's start, or beyond its end.
        TypeError: an option that only `read` has: `offset`, `open_transactions`.
        FormatError, LimitExceededError: damage.
        PoisonedFileError: the log failed; all visible records were given before.
        OSError: the disk refuses.
    """
    if refused := {"offset", "open_transactions"} & options.keys():
        raise TypeError(f"follow has no option {min(refused)}; it begins at start_offset")
    isolation = options.pop("isolation", "read_uncommitted")
    check_word("isolation", isolation, ISOLATIONS)
    seen = log.version
    position = seen.log_end.offset if start_offset is None else start_offset
    if not seen.log_start_offset <= position <= seen.log_end.offset:
        raise OffsetOutOfRangeError(
            f"the log holds offsets {seen.log_start_offset} to {seen.log_end.offset - 1}",
            path=log.path,
            offset=position,
        )

    def next_of(seen: Version, position: int) -> Fetched | None:
        """The next bytes of the log; None if there are none yet."""
        if position >= limit_of(seen, isolation).offset:
            return None
        try:
            fetched = fetch(log, position, max_bytes=fetch_bytes, isolation=isolation)
        except OffsetOutOfRangeError:
            if log.version is seen:
                raise
            return None  # the log was cut, or lost its beginning, since
        return fetched if fetched.size else None

    cuts = seen.truncations.number
    return _follow(log, wait, position, cuts, next_of, timeout, stop, options)


def _follow(
    log: ReadableLog,
    wait: Wait,
    position: int,
    cuts: int,
    next_of: Callable[[Version, int], Fetched | None],
    timeout: float | None,
    stop: threading.Event | None,
    options: RequestOptions,
) -> Iterator[RecordColumns]:
    """See `follow`.

    Args:
        log, wait, timeout, stop, options: as there.
        position: the first offset to return.
        cuts: how often the log had been cut when `position` was chosen.
        next_of: fetches from an offset on; returns None if nothing is there yet.
    """
    waiting_since = time.monotonic()
    while stop is None or not stop.is_set():
        seen = log.version
        # Back to where the log was cut, or forward to where it starts now.
        lowest = seen.truncations.lowest_end_since(cuts)
        if lowest is not None:
            cuts, position = seen.truncations.number, min(position, lowest)
        position = max(position, seen.log_start_offset)
        fetched = next_of(seen, position)
        if fetched is not None:
            yield from fetched.columns(**options)
            position = max(position, fetched.next_offset)
            waiting_since = time.monotonic()
            continue
        seconds_left = _WAIT_S if timeout is None else waiting_since + timeout - time.monotonic()
        if seconds_left <= 0 or not wait(seen, min(seconds_left, _WAIT_S)):
            return
