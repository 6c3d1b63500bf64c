"""The producer snapshots of a partition directory, each by the offset at which it was taken.

A snapshot lies at the base of each segment, so that a load can begin at any of them. One more lies
at the end of a log that was closed cleanly. They save time only: without them, state is read from
the log.

Source: Kafka `ProducerStateManager`, `SnapshotFile`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from kseg.constants import StrPath
from kseg.errors import CorruptIndexError, KsegError, LimitExceededError, OnError
from kseg.files import io, producer_snapshot
from kseg.files.names import FileKind, PartitionFiles, list_partition, segment_name
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.producers.state import ProducerState
from kseg.log.segment.reader import Segment

Feed = Callable[[ProducerState, Segment, int, OnError | None], None]

DELETED = ".deleted"


class SnapshotDisk:
    """The directory of snapshots on the disk; a recovery uses one in its overlay instead."""

    __slots__ = ()

    def read(self, path: Path) -> tuple[ProducerSnapshotEntry, ...]:
        """See `kseg.files.producer_snapshot.read`."""
        return producer_snapshot.read(path)

    def write(self, path: Path, entries: Iterable[ProducerSnapshotEntry], *, sync: bool) -> None:
        """See `kseg.files.producer_snapshot.write`."""
        producer_snapshot.write(path, entries, sync=sync)

    def unlink(self, path: Path) -> None:
        """Remove a snapshot; FileNotFoundError if it is missing."""
        io.unlink(path)


class SnapshotFiles:
    """The snapshots of one directory. Not for several threads at once; holds no file open.

    Attributes:
        directory: the partition.
    """

    __slots__ = ("_careful", "_disk", "_paths", "_sorted", "directory")

    def __init__(
        self,
        directory: StrPath,
        paths: Iterable[tuple[int, Path | str]] = (),
        *,
        disk: SnapshotDisk | None = None,
        careful: bool = True,
    ) -> None:
        """Take over these; `scan` finds them on the disk.

        Args:
            directory: the partition.
            paths: the snapshots by their offsets, or their paths as text: most are never opened,
                and a `Path` for each would take longer than the listing.
            disk: where they lie.
            careful: refuse a snapshot with offsets beyond its own, as Kafka does.
        """
        self._careful: Final = careful
        self._disk: Final = SnapshotDisk() if disk is None else disk
        self.directory = Path(directory)
        self._paths = dict(paths)
        #: All offsets, rising, and perhaps some that were forgotten since.
        self._sorted = sorted(self._paths)

    @classmethod
    def scan(cls, directory: StrPath) -> SnapshotFiles:
        """List the directory.

        Raises:
            OSError: the directory cannot be listed.
        """
        return cls.of(list_partition(directory))

    @classmethod
    def of(cls, files: PartitionFiles) -> SnapshotFiles:
        """The snapshots of a listing; if two files have one offset, the 20-digit name counts."""
        paths: dict[int, Path] = {}
        for file in files.snapshots:
            offset = file.name.base_offset
            if offset is None or offset < 0:
                continue
            if offset not in paths or file.path.name == _name(offset):
                paths[offset] = file.path
        return cls(files.path, paths.items())

    @property
    def _offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending; several removed in a row cost one removal."""
        if len(self._sorted) != len(self._paths):
            self._sorted = [offset for offset in self._sorted if offset in self._paths]
        return self._sorted

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all snapshots, rising."""
        return tuple(self._offsets)

    @property
    def newest_offset(self) -> int | None:
        """The offset of the newest snapshot; None if there is none."""
        return next(reversed(self._offsets), None)

    def path(self, offset: int) -> Path | None:
        """The file of exactly this offset; None if unknown."""
        path = self._paths.get(offset)
        return Path(path) if isinstance(path, str) else path

    def places(self) -> Iterator[tuple[int, Path | str]]:
        """All offsets, ascending, each with its path, or the path as text."""
        return ((offset, self._paths[offset]) for offset in self._offsets)

    # ---- reading ---------------------------------------------------------------------------------

    def newest_sound(
        self, *, at_most: int | None = None, delete_corrupt: bool = False
    ) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
        """The offset and entries of the newest readable snapshot that match; None if there is none.

        Args:
            at_most: pass over snapshots of larger offsets.
            delete_corrupt: delete unreadable snapshots on the way, as Kafka does.
        """
        offsets = self._offsets
        end = len(offsets) if at_most is None else bisect_left(offsets, at_most + 1)
        for offset in reversed(offsets[:end]):
            path = Path(self._paths[offset])
            try:
                entries = self._disk.read(path)
                if not (self._careful and any(producer_snapshot.entries_beyond(entries, offset))):
                    return offset, entries
            except FileNotFoundError:
                self._forget(offset)
                continue
            except (CorruptIndexError, LimitExceededError):
                pass
            if delete_corrupt:
                self._delete(offset)
        return None

    def strays(self, base_offsets: Collection[int]) -> tuple[int, ...]:
        """Offsets of the snapshots that belong to no segment and are of no use.

        Of the snapshots at no segment's base the newest stays, unless it is below the last base:
        it belongs to a log that was closed cleanly.

        Source: Kafka `ProducerStateManager.removeStraySnapshots`.
        """
        bases = set(base_offsets)
        astray = [offset for offset in self._offsets if offset not in bases]
        if astray and not (bases and astray[-1] < max(bases)):
            astray.pop()
        return tuple(astray)

    # ---- writing ---------------------------------------------------------------------------------

    def take(self, state: ProducerState, *, sync: bool = True) -> Path | None:
        """Write a snapshot of `state` at its end, unless there is one already.

        Args:
            state: the state to store.
            sync: see `kseg.files.producer_snapshot.write`.

        Returns:
            The file; None if there was nothing to write.

        Raises:
            OSError: the disk refuses; the log still has the state.

        Source: Kafka `ProducerStateManager.takeSnapshot`.
        """
        offset = state.map_end_offset
        if offset <= state.last_snapshot_offset:
            return None
        path = self.directory / _name(offset)
        self._disk.write(path, state.snapshot_entries(), sync=sync)
        if offset not in self._paths:
            insort(self._offsets, offset)
        self._paths[offset] = path
        state.last_snapshot_offset = offset
        return path

    def mark_for_deletion(self, offset: int) -> Path | None:
        """Forget a snapshot and rename it to `.deleted`; None if it is missing."""
        path = self._forget(offset)
        if path is None:
            return None
        marked = path.with_name(path.name + DELETED)
        try:
            io.rename(path, marked)
        except FileNotFoundError:
            return None
        return marked

    def delete(self, offset: int) -> None:
        """Delete the snapshot of exactly this offset, if there is one."""
        if offset in self._paths:
            self._delete(offset)

    def remove_stray(self, base_offsets: Collection[int]) -> tuple[int, ...]:
        """Delete `strays`; return their offsets."""
        return self._delete_all_of(self.strays(base_offsets))

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> tuple[int, ...]:
        """Delete the snapshots up to the log's start and past its end; returns their offsets."""
        offsets = self._offsets
        first = bisect_right(offsets, log_start_offset)
        end = max(bisect_right(offsets, log_end_offset), first)
        return self._delete_all_of([*offsets[:first], *offsets[end:]])

    def delete_all(self) -> None:
        """Delete all snapshots."""
        self._delete_all_of(self._offsets)

    def _delete_all_of(self, offsets: Sequence[int]) -> tuple[int, ...]:
        deleted = tuple(offsets)
        for offset in deleted:
            self._delete(offset)
        return deleted

    def _delete(self, offset: int) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(Path(self._paths[offset]))
        self._forget(offset)

    def _forget(self, offset: int) -> Path | None:
        path = self.path(offset)
        self._paths.pop(offset, None)
        return path

    # ---- state that comes from them --------------------------------------------------------------

    def truncate_and_reload(
        self, state: ProducerState, log_start_offset: int, log_end_offset: int, *, now_ms: int
    ) -> None:
        """Take state back to the newest sound snapshot of the log, unless it ends at the log's end.

        Snapshots past the log's end, at its start and before, and corrupt ones are deleted. The
        caller feeds the batches between `map_end_offset` and the end.

        Source: Kafka `ProducerStateManager.truncateAndReload`.
        """
        self.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == state.map_end_offset:
            self.on_log_start_incremented(state, log_start_offset)
            return
        newest = self.newest_sound(delete_corrupt=True)
        if newest is None:
            state.load((), log_start_offset)
        else:
            offset, entries = newest
            state.load(entries, offset, now_ms=now_ms)

    def truncate_fully_and_start_at(self, state: ProducerState, offset: int) -> None:
        """Forget everything and delete all snapshots; the log begins again at `offset`."""
        state.clear()
        self.delete_all()
        state.last_snapshot_offset = 0
        state.map_end_offset = offset

    def on_log_start_incremented(self, state: ProducerState, log_start_offset: int) -> None:
        """The log's start has moved up; producers are not forgotten for that."""
        state.high_watermark_updated(log_start_offset)
        state.map_end_offset = max(state.map_end_offset, log_start_offset)
        newest = self.newest_offset
        state.last_snapshot_offset = log_start_offset if newest is None else newest


def _name(offset: int) -> str:
    return segment_name(offset, FileKind.SNAPSHOT)


def rebuild(
    state: ProducerState,
    snapshots: SnapshotFiles,
    bases: Sequence[int],
    open_segment: Callable[[int], Segment],
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    clean: bool,
    magic: int = 2,
    on_error: OnError | None = None,
    feed: Feed | None = None,
    bare_first: bool = True,
) -> None:
    """Bring `state` to `end_offset`, from the newest sound snapshot and the log after it.

    A snapshot is taken at the base of each of the last two segments that the walk passes, and at
    the end.

    Args:
        state: changed in place.
        snapshots: the snapshots in the same directory.
        bases: the segments' base offsets, ascending; segments before the snapshot are not opened.
        open_segment: opens the segment with a base offset.
        log_start_offset: where the log begins.
        end_offset: batches that end at it or later are left out.
        now_ms: producers of a snapshot that have expired by then are left out.
        clean: the log was closed cleanly. Then a log without any snapshot was written by an old
            release, and nothing is read.
        magic: the version of written batches; below 2 there are no producers to look for.
        on_error: see `ProducerState.feed`.
        feed: processes a segment from `map_end_offset` on; None to begin at the position in the
            segment's index, which is checked.
        bare_first: write a snapshot where the first segment begins even if it has no producer, as
            Kafka does; see `is_bare_first`.

    Raises:
        InvalidTxnStateError, InvalidRecordError: see `on_error`.
        CorruptRecordError: a segment ends in damage.
        OSError: a file cannot be read, or a snapshot not written.

    Source: Kafka `UnifiedLog.rebuildProducerState`.
    """
    taken_at = [*bases[-2:], end_offset]
    if magic < 2 or (snapshots.newest_offset is None and clean):
        for offset in taken_at:
            state.map_end_offset = offset
            snapshots.take(state)
        return
    no_walk = state.is_empty and state.map_end_offset >= end_offset
    snapshots.truncate_and_reload(state, log_start_offset, end_offset, now_ms=now_ms)
    if end_offset > state.map_end_offset and not no_walk:
        # From the segment that may hold the next offset to the last that begins before the end.
        first = max(bisect_right(bases, state.map_end_offset) - 1, 0)
        for base in bases[first : bisect_left(bases, end_offset)]:
            state.map_end_offset = max(base, state.map_end_offset, log_start_offset)
            bare = is_bare_first(state, snapshots, bases[0])
            if base in taken_at and (bare_first or not bare):
                snapshots.take(state)
            with open_segment(base) as segment:
                (feed or feed_segment)(state, segment, end_offset, on_error)
    state.map_end_offset = end_offset
    snapshots.take(state)


def is_bare_first(state: ProducerState, snapshots: SnapshotFiles, first: int) -> bool:
    """Whether a snapshot of `state` would have no producer and be where the log begins.

    Args:
        state: the producers' state.
        snapshots: the snapshots in the same directory; existing ones are not bare.
        first: where the first segment begins.
    """
    offset = state.map_end_offset
    return offset == first and state.is_empty and snapshots.path(offset) is None


def feed_segment(
    state: ProducerState, segment: Segment, end_offset: int, on_error: OnError | None
) -> None:
    """Process a segment's batches from `map_end_offset` on, up to `end_offset`.

    Raises:
        InvalidTxnStateError, InvalidRecordError: see `ProducerState.feed`.
        CorruptRecordError: the segment ends in damage; batches before it are processed.
    """
    start = state.map_end_offset
    table = None
    for table in segment.headers(start=segment.start_for_offset(start).position):
        last = table.last_offset
        inside = (last >= start) & (last < end_offset)
        state.feed(table if inside.all() else table.take(inside), on_error=on_error)
        if len(table) and int(last[-1]) >= end_offset:
            return
    fault = None if table is None else segment.stop_fault(table)
    if fault is not None:
        raise fault


class LogSeen(Protocol):
    """A log that is open for reading; a `LogView`."""

    @property
    def files(self) -> PartitionFiles:
        """The files of its directory."""

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment."""

    def segments_from(self, offset: int, /) -> Sequence[Any]:
        """The segment that can hold `offset`, and those after it, with their base offsets."""

    def open_segment(self, info: Any, /) -> Segment:
        """Open one of these segments."""


def producers_at(
    view: LogSeen, end_offset: int, *, expiration_ms: int, now_ms: int = 0
) -> ProducerState:
    """The producers' state at an offset, from the newest snapshot before it and the batches since.

    Args:
        view: the log.
        end_offset: the offset.
        expiration_ms: `producer_id_expiration_ms` of the log.
        now_ms: producers of the snapshot that have expired by then are left out.

    Raises:
        CorruptRecordError: the segment with that offset ends in damage, or one before it does.
        OSError: a segment cannot be read.
    """
    state = ProducerState(expiration_ms=expiration_ms)
    snapshot = SnapshotFiles.of(view.files).newest_sound(at_most=end_offset)
    if snapshot is not None and snapshot[0] >= view.first_offset:
        offset, entries = snapshot
        state.load(entries, offset, now_ms=now_ms)
    ignored: list[KsegError] = []
    for info in view.segments_from(state.map_end_offset):
        if info.base_offset > end_offset:
            break
        state.map_end_offset = max(state.map_end_offset, info.base_offset)
        with view.open_segment(info) as segment:
            feed_segment(state, segment, end_offset, ignored.append)
    return state


__all__ = [
    "DELETED",
    "SnapshotFiles",
    "feed_segment",
    "is_bare_first",
    "producers_at",
    "rebuild",
]
