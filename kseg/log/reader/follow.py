"""Following a log: its records as columns, as they are written.

In a log that this process appends to, a follower sees what lies below the high watermark, at once:
it waits for the writer to publish. In a log that another process may write to, it sees the batches
that are whole and sound, and looks again every 100 ms.

A roll makes no difference to a follower. Where retention removed records before they were read, the
follower goes on at the log's start, and the offsets show the gap. A log may be cut below the
follower's place, as a replica is that gets another leader. Then the follower goes on where the log
was cut, and offsets come again with other records. In a log of another process it goes on where the
next look finds the end.

Source: Kafka's consumers poll; `auto.offset.reset=earliest` is what passing over comes to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Unpack

from kseg.errors import OffsetOutOfRangeError
from kseg.log.reader.fetch import FETCH_BYTES, ISOLATIONS, Fetched, FetchedOptions, fetch, limit_of
from kseg.log.reader.find import ReadableLog
from kseg.log.reader.tail import ExternalLog

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns
    from kseg.log.reader.version import Changes, Version

#: How often a log of another process is looked at, in s.
LOOK_INTERVAL_S: Final = 0.1
#: How long a follower waits in one go for its own process, in s; then it checks for a stop, or a
#: failed log.
_WAIT_S: Final = 0.5


class Followed(Protocol):
    """A log, and how to wait for more of it."""

    @property
    def path(self) -> Path:
        """The partition directory."""

    @property
    def version(self) -> Version:
        """The log at this moment."""

    def wait(self, seen: Version, seconds: float) -> bool:
        """Wait for another version than `seen`; false if nothing ever will be."""


class Publishing(ReadableLog, Protocol):
    """A log under a writer of this process: it says when there is something new to see."""

    @property
    def lock(self) -> threading.RLock:
        """Held while the log is changed."""

    @property
    def changed(self) -> Changes:
        """Notified whenever there is a new version."""

    @property
    def closed(self) -> bool:
        """Whether the log is closed."""

    @property
    def failed(self) -> bool:
        """Whether nothing may be changed any more."""

    def check(self) -> None:
        """Raise the error that refuses a change, if the log is closed or failed."""


class OwnLog:
    """A log that this process appends to."""

    __slots__ = ("_state", "path")

    def __init__(self, state: Publishing) -> None:
        """Follow the versions that this state publishes."""
        self._state: Final = state
        self.path: Final = state.path

    @property
    def version(self) -> Version:
        """The log at this moment."""
        return self._state.version

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Keeps the writer out; see `kseg.log.reader.find.undisturbed`."""
        return self._state.lock

    def wait(self, seen: Version, seconds: float) -> bool:
        """See `Followed`.

        Raises:
            PoisonedFileError: the log failed, and has been read to its end.
        """
        state = self._state
        with state.changed:
            if state.version is seen and not state.closed and not state.failed:
                state.changed.wait(min(seconds, _WAIT_S))
            if state.version is not seen:
                return True
            if state.closed:
                return False
            state.check()
        return True


class WatchedLog(ExternalLog):
    """A log that another process may write to."""

    __slots__ = ()

    def wait(self, seen: Version, seconds: float) -> bool:
        """See `Followed`."""
        time.sleep(min(seconds, LOOK_INTERVAL_S))
        self.look()
        return True


def follow(
    log: Followed,
    start_offset: int | None = None,
    *,
    isolation: str = "read_uncommitted",
    timeout: float | None = None,
    stop: threading.Event | None = None,
    fetch_bytes: int = FETCH_BYTES,
    **columns: Unpack[FetchedOptions],
) -> Iterator[RecordColumns]:
    """The records of a log as columns, as they are written; see the top of the module.

    It ends after `timeout`, by `stop`, by the generator's own `close`, or when this process has
    closed the log and all visible records were given.

    Args:
        log: the log.
        start_offset: the first record wanted; those to come if None.
        isolation: see `kseg.log.reader.fetch.fetch`.
        timeout: seconds without a new record after which it ends; None to wait for ever.
        stop: ends it, within half a second, once it is set.
        fetch_bytes: of log that are read at a time.
        columns: what `Fetched.columns` takes.

    Yields:
        Pieces in the order of the log, none empty.

    Raises:
        OffsetOutOfRangeError: `start_offset` lies before the log's start, or beyond its end.
        FormatError, LimitExceededError: damage.
        PoisonedFileError: the log failed; all visible records were given before.
        OSError: the disk refuses.
    """
    if isolation not in ISOLATIONS:
        raise ValueError(f"isolation is one of {', '.join(ISOLATIONS)}, not {isolation!r}")
    seen = log.version
    position = seen.log_end.offset if start_offset is None else start_offset
    if not seen.log_start_offset <= position <= seen.log_end.offset:
        raise OffsetOutOfRangeError(
            f"the log holds offsets {seen.log_start_offset} to {seen.log_end.offset - 1}",
            path=log.path,
            offset=position,
        )
    pieces = _Pieces(log, position, seen.truncations.number, isolation, fetch_bytes, columns)
    return _follow(pieces, timeout, stop)


def _follow(
    pieces: _Pieces, timeout: float | None, stop: threading.Event | None
) -> Iterator[RecordColumns]:
    waiting_since = time.monotonic()
    while stop is None or not stop.is_set():
        seen = pieces.log.version
        fetched = pieces.next_of(seen)
        if fetched is not None:
            yield from pieces.columns_of(fetched)
            waiting_since = time.monotonic()
            continue
        left = _WAIT_S if timeout is None else waiting_since + timeout - time.monotonic()
        if left <= 0 or not pieces.log.wait(seen, left):
            return


class _Pieces:
    """Where a follower is, and what comes next."""

    __slots__ = ("_columns", "_cuts", "_fetch_bytes", "_isolation", "_position", "log")

    def __init__(
        self,
        log: Followed,
        position: int,
        truncations: int,
        isolation: str,
        fetch_bytes: int,
        columns: FetchedOptions,
    ) -> None:
        self.log: Final = log
        self._position = position
        self._cuts = truncations
        self._isolation: Final = isolation
        self._fetch_bytes: Final = fetch_bytes
        self._columns: Final = columns

    def next_of(self, seen: Version) -> Fetched | None:
        """The next bytes of the log; None if there are none yet."""
        self._move_along(seen)
        if self._position >= limit_of(seen, self._isolation).offset:
            return None
        try:
            fetched = fetch(
                self.log, self._position, max_bytes=self._fetch_bytes, isolation=self._isolation
            )
        except OffsetOutOfRangeError:
            if self.log.version is seen:
                raise
            return None  # the log was cut, or lost its beginning, since
        return fetched if fetched.size else None

    def _move_along(self, seen: Version) -> None:
        """Go back to where the log was cut, or forward to where it starts now."""
        lowest = seen.truncations.lowest_end_since(self._cuts)
        if lowest is not None:
            self._cuts = seen.truncations.number
            self._position = min(self._position, lowest)
        self._position = max(self._position, seen.log_start_offset)

    def columns_of(self, fetched: Fetched) -> Iterator[RecordColumns]:
        """The records of some bytes; moves on behind them when all were taken."""
        yield from fetched.columns(**self._columns)
        self._position = max(self._position, fetched.next_offset)


__all__ = ["LOOK_INTERVAL_S", "Followed", "OwnLog", "WatchedLog", "follow"]
