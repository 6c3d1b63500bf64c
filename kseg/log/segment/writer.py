"""Segment under one writer: a log file and its three indexes, appended to and cut together.

Decides when another segment is due. Writes an append whole, with its index entries, or not at all.
It does not read appended batches: their last offsets, times and sizes come with them. Facts about
an existing segment are read at the first use, by a walk if no index has them.

Source: Kafka `LogSegment` (since 3.9; before, an append made one index entry at most).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kseg._kernels.placement import Places
from kseg.constants import INT32_MAX, INT64_MAX, Buffer, StrPath
from kseg.errors import KsegError, OffsetOverflowError
from kseg.files.index import TimeIndexEntry
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from kseg.files.io import Closing
from kseg.files.log_writer import LogWriter
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, segment_name
from kseg.files.txn_index import TxnIndexWriter
from kseg.format.header import BatchTable
from kseg.log.config import LogConfig
from kseg.log.segment import index_entries
from kseg.log.segment.index_entries import (
    Indexed,
    latest_from,
    next_offset,
    timestamp_of_first,
)
from kseg.log.segment.reader import Segment

#: The files of a segment, in the order in which Kafka renames them.
KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


def attempt(*steps: Callable[[], object]) -> None:
    """Do every step, even after one has failed; then raise the first error."""
    errors = []
    for step in steps:
        try:
            step()
        except (OSError, ValueError, KsegError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


#: Makes a named tuple in half the time of a normal call.
_named_tuple: Final = tuple.__new__


class SegmentWriter(Closing):
    """One segment, open for appending. Not for several threads at once; they use `reader`.

    `open` acquires, `close` releases.

    Attributes:
        base_offset: from the file's name.
        config: the settings of the log.
        created_ms: when this object was made, or the segment emptied; not the age of the file.
        roll_jitter_ms: how much earlier than other segments it rolls; a random number.
        log: its log file.
        offset_index, time_index, txn_index: its indexes; the first two are made at their first use.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_latest",
        "_places",
        "_rolling",
        "base_offset",
        "config",
        "created_ms",
        "log",
        "offset_index",
        "roll_jitter_ms",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        log: LogWriter,
        offset_index: OffsetIndexWriter,
        time_index: TimeIndexWriter,
        txn_index: TxnIndexWriter,
        *,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        """Take over open files; use `open` instead."""
        self.log: Final = log
        self.offset_index: Final = offset_index
        self.time_index: Final = time_index
        self.txn_index: Final = txn_index
        self.base_offset: Final = offset_index.base_offset
        self.config = config
        self.created_ms = now_ms
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        self.roll_jitter_ms: Final = random.randrange(jitter) if jitter else 0
        self._bytes_since_entry = 0
        self._latest: TimeIndexEntry | None = None
        self._rolling: int | None = None
        self._places: Places | None = None

    @classmethod
    def open(
        cls,
        directory: StrPath,
        base_offset: int,
        config: LogConfig,
        *,
        create: bool = False,
        now_ms: int,
        suffix: str = "",
        preallocate: bool | None = None,
        offset_entries: int | None = None,
        time_entries: int | None = None,
    ) -> SegmentWriter:
        """Open an existing segment, or make one.

        Args:
            directory, base_offset, config: the partition, the segment, the settings of the log.
            create: make the log file, which must not exist yet.
            now_ms: the clock.
            suffix: `.cleaned` and the like, after each file's name.
            preallocate: give a new log file `segment_bytes` at once; None to do as `config` says.
            offset_entries, time_entries: the number of valid entries of existing indexes, if the
                caller has compared them with the log; found out if None.

        Raises:
            ValueError: `base_offset` is negative.
            LimitExceededError: the log file is longer than any segment.
            OSError: it is missing, or there already, or the disk refuses.
        """
        place, index_bytes = os.fspath(directory), config.segment_index_bytes
        names = [os.path.join(place, segment_name(base_offset, kind) + suffix) for kind in KINDS]
        preallocates = config.preallocate if preallocate is None else preallocate
        log = LogWriter.open(
            names[0],
            create=create,
            preallocate_bytes=config.segment_bytes if preallocates else 0,
        )
        try:
            return cls(
                log,
                OffsetIndexWriter.open(
                    names[1], base_offset, bytes_max=index_bytes, used=offset_entries
                ),
                TimeIndexWriter.open(
                    names[2], base_offset, bytes_max=index_bytes, used=time_entries
                ),
                TxnIndexWriter.open(names[3]),
                config=config,
                now_ms=now_ms,
            )
        except BaseException:
            log.close(trim=False)
            raise

    # ---- state -----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The log file."""
        return Path(self.log.path)

    @property
    def size(self) -> int:
        """Bytes of log."""
        return self.log.size

    @property
    def poisoned(self) -> bool:
        """Whether an error could not be undone, so that the content of the log file is unknown."""
        return self.log.poisoned

    @property
    def latest(self) -> TimeIndexEntry:
        """The largest timestamp so far and its offset; for an existing segment, the last indexed.

        Source: Kafka `maxTimestampAndOffsetSoFar`.
        """
        if self._places is not None:
            return TimeIndexEntry(*self._places.latest)
        if self._latest is None:
            self._latest = TimeIndexEntry(*self.time_index.last_entry)
        return self._latest

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far in ms; -1 if there is none."""
        return self.latest.timestamp

    @property
    def largest_timestamp(self) -> int:
        """The time for time retention: the largest timestamp, or else the file's age, in ms.

        Source: Kafka `LogSegment.largestTimestamp`.
        """
        latest = self.max_timestamp
        return latest if latest >= 0 else os.fstat(self.log.file.fd).st_mtime_ns // 1_000_000

    @property
    def rolling_timestamp(self) -> int | None:
        """The largest timestamp of the first batch in ms, from which age counts; None if empty."""
        if self._rolling is None and self.log.size:
            with self.reader(mapping="never") as reader:
                self._rolling = timestamp_of_first(reader)
        return self._rolling

    def indexed(self) -> Indexed:
        """The last entries of both indexes, and the room after them; makes missing indexes."""
        last_offset, offset_room = self.offset_index.stand()
        last_time, time_room = self.time_index.stand()
        return Indexed(last_offset, last_time, offset_room, max(time_room, 0))

    def can_convert(self, offset: int) -> bool:
        """Whether an offset has a 32-bit form relative to the base."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    # ---- appending -------------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer], table: BatchTable) -> int:
        """Write batches at the end and index them, or change nothing.

        Args:
            parts: the bytes of the batches, back to back, in any pieces.
            table: their headers; if empty, nothing changes. Returns the position of the first.

        Raises:
            ValueError: `parts` and `table` differ in size.
            OffsetOverflowError: the last offset has no 32-bit form relative to the base.
            OffsetsOutOfOrderError: an offset or time is to be indexed that is not above the last.
            LimitExceededError: no file may become so long.
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.

        Source: Kafka `LogSegment.append`.
        """
        self._drop_places()
        position = self.log.size
        if not len(table):
            return position
        placed = index_entries.place(
            table,
            position,
            self._bytes_since_entry,
            self.config.index_interval_bytes,
            self.latest,
            base_offset=self.base_offset,
            indexed=self.indexed(),
        )
        largest, size = int(table.last_offset[-1]), int(table.size.sum())
        if not self.can_convert(largest):
            reason = f"it has no 32-bit form relative to {self.base_offset}"
            raise OffsetOverflowError(reason, path=self.log.path, offset=largest)
        if sum(map(len, parts)) != size:
            raise ValueError(f"the parts have not the {size} bytes of the batches")
        if placed.refusal is not None:
            placed.refusal.path = self.offset_index.path
            raise placed.refusal
        count = self.offset_index.count if placed.offsets else -1  # for `_undo`
        try:
            self.log.append_parts(parts, size)
            # Entries without room are left out; the next append rolls, where Kafka fails after
            # writing the batches.
            self.offset_index.append_packed(placed.offsets, placed.indexed.offset)
            self.time_index.append_packed(placed.times, placed.indexed.time)
        except BaseException as error:
            self._undo(position, count, error)
            raise
        if position == 0:
            self._rolling = int(table.max_timestamp[0])
        self._latest = placed.latest
        self._bytes_since_entry = placed.bytes_since_entry
        return position

    def _undo(self, position: int, count: int, error: BaseException) -> None:
        """Undo the writes of an append that `error` ended.

        The time index is written last, so it has no new entry yet.

        Args:
            position: where the log ended before.
            count: entries that the offset index had; -1 if it was not written yet.
            error: the error.

        Raises:
            OSError: the undo failed; if it failed on the log file, that is poisoned.
        """
        if self.log.size != position:
            self.log.cut_back(position, error)
        if count >= 0:
            self.offset_index.truncate_to_count(count)

    # ---- usual appends ---------------------------------------------------------------------------
    # The writes into a segment that need not roll. `Places` says beforehand where index entries go,
    # so a write asks the files nothing. Any other change of the segment drops it; the next append
    # makes a new one.

    def places(self, segment_ms: int) -> Places | None:
        """Judges usual appends, and says where they go; see `Places.lead` and `Places.follow`.

        Makes missing indexes.

        Args:
            segment_ms: `LogConfig.roll_ms`.

        Returns:
            None where the segment must be examined first.
        """
        if self._places is not None:
            return self._places
        latest, first, config = self._latest, self._rolling, self.config
        if latest is None or first is None or first < 0:
            return None
        indexed = self.indexed()
        self._places = Places(
            end=config.segment_bytes,
            latest_max=min(first + segment_ms - self.roll_jitter_ms, INT64_MAX),
            base=self.base_offset,
            interval=config.index_interval_bytes,
            position=self.log.size,
            since=self._bytes_since_entry,
            latest=latest,
            indexed=indexed.offset,
            offset_room=indexed.offset_room,
            indexed_time=indexed.time,
            time_room=indexed.time_room,
        )
        return self._places

    def write(self, places: Places, parts: Sequence[Buffer], size: int) -> None:
        """Write batches that `places` has placed, and their entries, or change nothing.

        Args:
            places: the placement in this segment.
            parts: their bytes, one after the other.
            size: the number of bytes of all parts.

        Raises:
            LimitExceededError: no file may become so long.
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.
        """
        index, offsets, times = self.offset_index, places.offsets, places.times
        count = index.count if offsets else -1
        try:
            self.log.append_parts(parts, size)
            if offsets:
                index.append_packed(offsets, places.indexed)
                if times:
                    entry = _named_tuple(TimeIndexEntry, places.indexed_time)
                    self.time_index.append_packed(times, entry)
        except BaseException as error:
            self._undo(places.position, count, error)
            raise
        places.settle()

    def update_config(self, config: LogConfig) -> None:
        """Use other settings for the next appends."""
        self._drop_places()
        self.config = config

    def _drop_places(self) -> None:
        """Copy the state of `places` into this object, and drop it, before another change."""
        places, self._places = self._places, None
        if places is not None:
            self._latest = TimeIndexEntry(*places.latest)
            self._bytes_since_entry = places.since

    # ---- rolling ---------------------------------------------------------------------------------

    def should_roll(
        self,
        *,
        now_ms: int,
        max_timestamp: int,
        messages_bytes: int,
        largest_offset: int,
        segment_ms: int,
    ) -> bool:
        """Whether an append ought to go into another segment. Makes missing indexes.

        Args:
            now_ms: the clock.
            max_timestamp, messages_bytes, largest_offset: the figures of the append.
            segment_ms: `LogConfig.roll_ms`.

        Source: Kafka `LogSegment.shouldRoll`.
        """
        size = self.log.size
        if size > self.config.segment_bytes - messages_bytes:
            return True
        most_ms = segment_ms - self.roll_jitter_ms
        if size and self.waited_for_roll_ms(now_ms, max_timestamp) > most_ms:
            return True
        full = self.offset_index.is_full or self.time_index.is_full
        return full or not 0 <= largest_offset - self.base_offset <= INT32_MAX

    def waited_for_roll_ms(self, now_ms: int, timestamp: int) -> int:
        """The age in ms that decides about rolling, by the records' time if they have one.

        Source: Kafka `LogSegment.timeWaitedForRoll`.
        """
        first = self.rolling_timestamp
        if first is not None and first >= 0:
            return timestamp - first
        return now_ms - self.created_ms

    def become_inactive(self) -> None:
        """Index the largest timestamp and cut off preallocated bytes; another segment follows.

        Source: Kafka `LogSegment.onBecomeInactiveSegment`.
        """
        self._drop_places()
        self.time_index.maybe_append(*self.latest, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.log.trim()

    def resize_indexes(self, size: int) -> None:
        """Give both indexes `size` bytes: the segment is to be appended to."""
        self._drop_places()
        self.offset_index.resize(size)
        self.time_index.resize(size)

    # ---- finding and cutting ---------------------------------------------------------------------

    def reader(self, size: int | None = None, *, mapping: Mapping = "auto") -> Segment:
        """Open the segment for reading, up to `size` bytes of it; up to its present end if None.

        Bytes that are cut off while they are read through a map kill the process; "never" maps.
        """
        end = self.log.size if size is None else size
        return Segment.open(self.log.path, mapping=mapping, size=end, is_last=True)

    def next_offset(self) -> int:
        """The offset after the last whole batch; the base offset if there is no batch.

        Raises:
            FormatError: a batch on the way is damaged.

        Source: Kafka `LogSegment.readNextOffset`.
        """
        with self.reader(mapping="never") as reader:
            return next_offset(reader, self.offset_index.last_offset)

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> int:
        """Remove the batch of `offset`, or the first after it, and all after; grow the indexes.

        Args:
            offset: the log is to end here, or before.
            now_ms: the clock, from which the age of a segment counts that is empty then.

        Returns:
            Bytes of log that went.

        Raises:
            CorruptRecordError: a batch is damaged between the position from the index and `offset`.
            OSError: the disk refuses; call it again.

        Source: Kafka `LogSegment.truncateTo`.
        """
        self._drop_places()
        with self.reader(mapping="never") as reader:
            location = reader.lookup(offset)
        latest = self.latest
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes(self.config.segment_index_bytes)
        removed = 0 if location is None else self.log.truncate(location.position)
        if not self.log.size:
            self._rolling = None
            self.created_ms = self.created_ms if now_ms is None else now_ms
        self._bytes_since_entry = 0
        if latest.timestamp >= 0:
            indexed = TimeIndexEntry(*self.time_index.last_entry)
            with self.reader(mapping="never") as reader:
                position = reader.offset_index.lookup(indexed.offset).position
                self._latest = latest_from(reader, position, indexed)
        return removed

    # ---- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush the log and its indexes to disk; indexes that are missing are created.

        The names of new files are durable only once the directory is flushed.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: a flush failed.
        """
        self.log.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close(self, *, trim: bool = True) -> None:
        """Index the largest timestamp, trim, flush and release all files.

        A second call does nothing. Each step is tried, even if an earlier one failed.

        Args:
            trim: false to release only, as after an error.

        Raises:
            OSError, KsegError: the first step that failed.

        Source: Kafka `LogSegment.close`, `closeHandlers`.
        """
        self._drop_places()
        steps: list[Callable[[], object]] = [
            lambda: self.offset_index.close(trim=trim),
            lambda: self.time_index.close(trim=trim),
            lambda: self.log.close(trim=trim),
            self.txn_index.close,
        ]
        if trim and self._latest is not None and self.log.file.fd >= 0:
            latest = self._latest
            steps.insert(0, lambda: self.time_index.maybe_append(*latest, skip_full_check=True))
        attempt(*steps)

    def __exit__(self, *error: object) -> None:
        """Close; after an error the files are left as they are."""
        self.close(trim=error[0] is None)

    def __repr__(self) -> str:
        """The path and size."""
        return f"SegmentWriter({self.log.path!r}, size={self.size})"
