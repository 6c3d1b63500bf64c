"""Log: one partition, open for reading or for appending.

This module decides nothing. A log open for reading is a `LogView`, the files as they were at that
moment. One open for appending is a `LogState`; readers get its version. Each method
names the module that does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack
from uuid import UUID

from kseg.constants import AppendOrigin, StrPath
from kseg.errors import KsegError
from kseg.files.checkpoints import EpochEntry
from kseg.files.mapping import Mapping, private_memory
from kseg.format.header import EncodedBatch
from kseg.format.reader import Workspace
from kseg.format.request import FETCH_BYTES, FIELDS_DEFAULT, Request, RequestOptions, check_word
from kseg.format.times import Time
from kseg.log.clock import clock_of, now_of
from kseg.log.reader.version import HighWatermark, SegmentInfo, Version
from kseg.log.reader.view import ISOLATIONS, LogView
from kseg.stores.path import path_at

if TYPE_CHECKING:
    from threading import Event

    from kseg.files.names import PartitionFiles
    from kseg.format.encode import RecordSource
    from kseg.format.options import OptionsLike
    from kseg.format.values import Record, RecordColumns
    from kseg.frames import ArrowStream
    from kseg.log.cleaner.clean import CompactionReport
    from kseg.log.config import ConfigLike, LogConfig
    from kseg.log.data_directory import DataDirectoryLease, PartitionOffsets
    from kseg.log.producers.entry import VerificationGuard
    from kseg.log.reader.fetch import Fetched
    from kseg.log.reader.find import EpochEnd, ReadableLog, TimestampOffset
    from kseg.log.reader.follow import SeenLog, Wait
    from kseg.log.segment.reader import BatchLocation, RecordLocation, Segment
    from kseg.log.settings.joined import Settings
    from kseg.log.writer.append import AppendResult, Batch
    from kseg.log.writer.retention import RetentionReport
    from kseg.log.writer.state import LogState

Mode = Literal["read", "append"]
_ONE_BATCH: Final = (bytes, bytearray, memoryview, EncodedBatch)


def _config_of(config: ConfigLike | Settings | None, path: StrPath) -> LogConfig:
    """The settings of a log; a `Settings` is recognized by its `of`, without a slow import."""
    from kseg.log.config import LogConfig  # late: readers need neither it nor the checks of appends

    if config is None or isinstance(config, LogConfig) or not hasattr(config, "of"):
        return LogConfig.of(config)
    return config.of(path).log_config


@cache
def _fetch() -> Callable[..., Fetched]:
    """`kseg.log.reader.fetch`, imported only once: an import statement takes a microsecond."""
    from kseg.log.reader.fetch import fetch

    return fetch


class Log:
    """One partition.

    Open for reading it is a snapshot: the files and their sizes at that moment. Appends of another
    process stay outside until `refresh`; a torn tail at the snapshot's end is that process's
    unfinished write, not damage.

    Open for appending it is the partition's only writer, and its answers are as of now. Several
    threads may use it: changes wait for each other, readers never wait. After a failed flush, or an
    error that could not be undone, it refuses every change with `PoisonedFileError`; then open the
    log again, which checks what the disk holds.

    Example:
        >>> with Log.open("orders-0") as log:  # doctest: +SKIP
        ...     print(log.log_start_offset, log.log_end_offset)
        ...     for columns in log.read(offset=(1_200, None), isolation="read_committed"):
        ...         print(len(columns))
        >>> with Log.open("orders-0", mode="append", create=True) as log:  # doctest: +SKIP
        ...     print(log.append({"value": ["text"]}, durable=True).first_offset)
    """

    __slots__ = (
        "_follow",
        "_lead",
        "_lease",
        "_mapping",
        "_seen",
        "_state",
        "_view",
    )

    def __init__(
        self,
        view: LogView,
        mapping: Mapping,
        state: LogState | None = None,
        lease: DataDirectoryLease | None = None,
    ) -> None:
        """Take over an open state; use `open` instead."""
        self._view = view
        self._seen: SeenLog | None = None
        self._mapping: Final[Mapping] = mapping
        self._state: Final = state
        self._lease: Final = lease
        if state is not None:
            # Resolved once, for writers only.
            from kseg.log.writer.append import append_as_follower, append_as_leader

            self._lead: Callable[..., AppendResult] = append_as_leader
            self._follow: Callable[..., AppendResult] = append_as_follower

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        mode: Mode = "read",
        create: bool = False,
        config: ConfigLike | Settings | None = None,
        recover: bool = False,
        now_ms: Callable[[], int] | None = None,
        mapping: Mapping = "auto",
        topic_id: UUID | None = None,
        known: PartitionOffsets | None = None,
        high_watermark: HighWatermark | None = None,
    ) -> Self:
        """Open a partition directory.

        Args:
            path: the directory, for reading under any name, or a URL of one.
            mode: "read" lists the directory, and opens files as they are needed; "append" takes the
                lock of the data directory and loads the log.
            create: make a missing directory, for appending.
            config: the settings, for appending, or a dict such as `{"retention.ms": 1}`, or the
                result of `kseg.settings`; Kafka's defaults if None.
            recover: recover a log that was not closed in good order, which is refused otherwise.
            now_ms: the clock, for appending; the machine's if None. If it does not return a 64-bit
                time, the call that uses it raises ValueError.
            mapping: "auto" maps files unless another process holds the data directory, or the log
                is open for appending; "always", "never".
            topic_id: recorded in `partition.metadata` for appending, or compared with it.
            known: how the log was left, in place of the data directory's facts.
            high_watermark: for appending: the offset up to which replicas have the log, which
                bounds deletion; "end" if there are no replicas. None to read the checkpoint of a
                broker's data directory (one with `meta.properties`), or the log's start if it has
                no line; in any other directory None is the log's end.

        Raises:
            NotALogError: no segment is in it; for appending, not the name of a partition.
            UncleanShutdownError: it was not closed in good order, and `recover` is false.
            LogLockedError: another process, or another log of this one, writes there.
            InconsistentTopicIdError: the topic has another id.
            KsegError: the log cannot be loaded.
            OSError: it cannot be listed; for appending, the disk refuses.
        """
        if mode == "read":
            return cls(LogView.open(path_at(path), mapping=mapping), mapping)
        if mode != "append":
            raise ValueError(f"mode is 'read' or 'append', not {mode!r}")
        from kseg.log.writer import flush as flushing  # openings are there, too

        mapping = "never" if mapping == "auto" else mapping
        state, lease = flushing.open_state(
            path,
            create=create,
            recover=recover,
            config=_config_of(config, path),
            now_ms=clock_of(now_ms),
            mapping=mapping,
            topic_id=topic_id,
            known=known,
            high_watermark=high_watermark,
        )
        return cls(state.as_view(), mapping, state, lease)

    def refresh(self) -> Self:
        """A new snapshot of the same directory; a log open for appending is as of now anyway.

        Raises:
            NotALogError, OSError: as for `open`.
        """
        if self._state is not None:
            return self
        return type(self)(LogView.open(self.path, mapping=self._mapping), self._mapping)

    # ---- properties ------------------------------------------------------------------------------

    @property
    def view(self) -> LogView:
        """The log at this moment, which does not change any more."""
        view, state = self._view, self._state
        if state is not None and view.version is not state.version:
            self._view = view = state.as_view()
        return view

    @property
    def state(self) -> LogState:
        """The state of a log open for appending, for the modules that change it.

        Raises:
            KsegError: the log is open for reading.
        """
        if self._state is None:
            raise KsegError("the log is open for reading only", path=self.path)
        return self._state

    @property
    def version(self) -> Version:
        """The version of the log for its readers; raises KsegError where the log is not open."""
        return self.state.version

    @property
    def mode(self) -> str:
        """How the log was opened: "read" or "append"."""
        return "read" if self._state is None else "append"

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch: the next record gets it."""
        return (
            self.view.log_end_offset if self._state is None else self._state.version.log_end.offset
        )

    @property
    def high_watermark(self) -> int:
        """Readers may see records below it: all, unless `update_high_watermark` has set another.

        In a broker's data directory `replicated_offset` bounds deletion.
        """
        if self._state is None:
            return self.view.log_end_offset
        return self._state.version.high_watermark.offset

    @property
    def replicated_offset(self) -> int:
        """Retention and `delete_records_before` remove nothing at or above it.

        It is the high watermark; in a broker's data directory that of the checkpoint, until
        `update_high_watermark` sets another. KsegError for a log open for reading.
        """
        return self.state.replicated_offset

    @property
    def last_stable_offset(self) -> int:
        """Where committed records end: the first offset of the earliest undecided transaction."""
        return self.view.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """Records below it are flushed; KsegError for a log open for reading."""
        return self.version.recovery_point

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Epochs and their start offsets, ascending; empty if there is no checkpoint.

        Raises:
            CorruptIndexError: the checkpoint is malformed.
        """
        return self.view.leader_epochs if self._state is None else self._state.epochs.entries

    @property
    def config(self) -> LogConfig:
        """The settings of a log open for appending; KsegError otherwise."""
        return self.state.config

    def followed(self, isolation: str, recreated: str = "raise") -> tuple[ReadableLog, Wait]:
        """The log as a follower needs it, and how to wait for more of it.

        Args:
            isolation: "read_uncommitted" or "read_committed".
            recreated: see `follow`.

        Raises:
            KsegError: the log was open for appending, and is closed.
        """
        from kseg.log.reader import follow

        if self._state is not None:
            state = self._open_state(self._state)
            return state, partial(_wait_for_writer, state)
        check_word("recreated", recreated, ("raise", "start"))
        log = follow.ExternalLog(
            self.path, committed=isolation == "read_committed", restarts=recreated == "start"
        )
        return log, log.wait

    def _open_state(self, state: LogState) -> LogState:
        if state.closed:
            raise KsegError("the log is closed", path=self.path)
        return state

    def source(self, isolation: str) -> ReadableLog:
        """The log as fetches need it: its version, or the files as they were.

        Args:
            isolation: "read_uncommitted" or "read_committed".

        Raises:
            KsegError: the log was open for appending, and is closed.
        """
        if self._state is not None:
            return self._open_state(self._state)
        from kseg.log.reader import follow

        if self._seen is None:
            self._seen = follow.seen_log(self._view)
        return follow.for_isolation(self._seen, isolation)

    # ---- reading: kseg.log.reader ----------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The partition directory."""
        return self.view.path

    @property
    def files(self) -> PartitionFiles:
        """All files of the directory."""
        return self.view.files

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments, rising, each with how much of it there is."""
        return self.view.segments

    @property
    def topic(self) -> str | None:
        """From the directory's name; None for a copy under another name."""
        return self.view.topic

    @property
    def partition(self) -> int | None:
        """From the directory's name; None for a copy under another name."""
        return self.view.partition

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; 0 if there is no segment."""
        return self.view.first_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset to be read: the first segment's, or a later one after DeleteRecords."""
        return self.view.log_start_offset

    def open_segment(self, info: SegmentInfo) -> Segment:
        """Open one segment, up to the size that `info`, one of `segments`, has."""
        return self.view.open_segment(info)

    def segments_from(self, offset: int) -> tuple[SegmentInfo, ...]:
        """The segment that can hold `offset`, and those after it."""
        return self.view.segments_from(offset)

    def lookup(self, offset: int) -> BatchLocation:
        """The batch that holds `offset`; see `LogView.lookup`."""
        return self.view.lookup(offset)

    def lookup_time(self, timestamp: Time) -> RecordLocation | None:
        """The first record at or after `timestamp` (see `kseg.times.time_ms`); None if none is."""
        return self.view.lookup_time(timestamp)

    def read(
        self,
        request: Request | None = None,
        *,
        workspace: Workspace | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records of the partition as columns, a bounded piece at a time; see `LogView.read`.

        Records appended meanwhile are not read. A high watermark that the caller has set bounds
        "read_committed" alone; "read_uncommitted" gives all that the log holds, unlike `fetch`.

        Args:
            request, workspace, options: as for `LogView.read`.
        """
        return self.view.read(request, workspace=workspace, **options)

    def records(self, **options: Unpack[RequestOptions]) -> Iterator[Record]:
        """Each record as an object; the options are those of `read`, except `columns`."""
        return self.view.records(**options)

    def fetch(
        self,
        start_offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation: str = "read_uncommitted",
        min_one_message: bool = True,
        with_data: bool = True,
    ) -> Fetched:
        """Stored bytes from an offset on, out of one segment; see `kseg.log.reader.fetch.fetch`.

        Args:
            start_offset, max_bytes, isolation, min_one_message, with_data: as there.
        """
        return _fetch()(
            self.source(isolation),
            start_offset,
            max_bytes=max_bytes,
            isolation=isolation,
            min_one_message=min_one_message,
            with_data=with_data,
        )

    def follow(
        self,
        start_offset: int | None = None,
        *,
        timeout: float | None = None,
        stop: Event | None = None,
        recreated: str = "raise",
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records as columns, as they are written; see `kseg.log.reader.follow.follow`.

        A log open for reading is read again, whatever its state at the opening.

        Args:
            start_offset, timeout, stop, options: as there.
            recreated: "raise" where the topic is deleted and made again; or "start" to wait for it
                and go on at its start.
        """
        from kseg.log.reader import follow

        log, wait = self.followed(options.get("isolation", "read_uncommitted"), recreated)
        return follow.follow(log, wait, start_offset, timeout=timeout, stop=stop, **options)

    def offset_for_timestamp(self, timestamp: Time) -> TimestampOffset | None:
        """The first record at or after `timestamp`, or an end of the log.

        See `kseg.log.reader.find.offset_for_timestamp`.
        """
        from kseg.log.reader import find

        return find.offset_for_timestamp(
            self.source("log_end"), timestamp, epochs=self.leader_epochs
        )

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """Where the records of a leader's epoch end; see `kseg.log.reader.find`."""
        from kseg.log.reader import find

        return find.end_offset_for_epoch(self.source("log_end"), epoch, epochs=self.leader_epochs)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as an Arrow stream; each call starts a new reader."""
        from kseg import arrow

        pieces = self.read(workspace=Workspace(use="streamed", fresh=private_memory))
        return arrow.stream(pieces, FIELDS_DEFAULT, requested_schema)

    # ---- appending: kseg.log.writer --------------------------------------------------------------

    def append(
        self,
        batch: Batch | Iterable[Batch] | RecordSource | Iterable[RecordColumns] | ArrowStream,
        *,
        options: OptionsLike | None = None,
        batch_bytes: int | None = None,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
        durable: bool = False,
    ) -> AppendResult:
        """Validate batches, assign offsets and write them, as a partition's leader does.

        Records are made into batches first, as a producer does: they get the clock's time if they
        bring none, and new offsets if they bring some.

        Each of several batches is an append of its own, since magic 2 allows one batch an append:
        if one is refused, those before it are in the log. No other thread's batches come between
        them. The result covers all: sums, and the ends of the range.

        Args:
            batch: one, as `BatchBuilder` makes it or as bytes; or several, as of `encode_batches`;
                or records: `{"value": ["text"]}`, `[(key, value)]` or a list of dicts; a frame of
                Polars or pandas, an Arrow table; or a scan, or pieces that were read. Columns that
                are neither fields of a record nor columns of a scan are refused.
            options: for new batches: `BatchOptions(compression="zstd")`, or a dict of these.
            batch_bytes: a new batch closes before it grows larger, uncompressed; 16 KiB if None, as
                a producer's `batch.size`.
            leader_epoch: this leader's epoch; None for the log's latest, or 0. An earlier one makes
                the log forget later ones, as in Kafka.
            origin: where the batches come from.
            guard, transaction_version: see `ProducerState.prepare`.
            durable: flush before this returns.

        Raises:
            KsegError, ValueError, OSError: see `kseg.log.writer.append.append_as_leader`; the log
                ends where it did.
            PoisonedFileError: the log failed before.
        """
        state = self._state or self.state  # the property raises where the log is not open for it
        if isinstance(batch, _ONE_BATCH) and options is None and batch_bytes is None:
            result = self._lead(state, batch, leader_epoch, origin, guard, transaction_version)
        else:
            from kseg.log.writer.append import append_all, batches_of

            how = leader_epoch, origin, guard, transaction_version
            batches = batches_of(batch, options, batch_bytes, state.now_ms)
            result = append_all(state, batches, *how)
        if durable:
            self.flush()
        return result

    def append_as_follower(
        self, data: Batch, *, leader_epoch: int | None = None, durable: bool = False
    ) -> AppendResult:
        """Write batches as a leader has them, with their offsets; each checksum is checked.

        Args:
            data: batches, rising; a part of one at the end is left out.
            leader_epoch: the epoch of the fetch that got them; later epochs are left out. None: all
            durable: flush before this returns.

        Raises:
            AppendError, FormatError, ProducerError: the batches are refused; nothing has changed.
            OSError: the disk refuses.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.appendAsFollower`; see `kseg.log.writer.append`.
        """
        result = self._follow(self._state or self.state, data, leader_epoch)
        if durable:
            self.flush()
        return result

    def flush(self, offset: int | None = None) -> int:
        """Make all records durable, or those below `offset`.

        Returns:
            The recovery point.

        Raises:
            OSError: a flush failed; the contents of the disk are unknown.
            PoisonedFileError: the log failed before.
        """
        from kseg.log.writer import flush as flushing

        return flushing.flush(self.state, offset)

    def roll(self, expected_next_offset: int | None = None) -> int:
        """Begin another segment at the log's end.

        Args:
            expected_next_offset: where the next batch will begin, if past the end.

        Returns:
            The base offset of the segment.

        Raises:
            KsegError: the segment that would be there has records already.
            OSError: the disk refuses.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.roll`; see `kseg.log.writer.flush`.
        """
        from kseg.log.writer import flush as flushing

        return flushing.roll(self.state, expected_next_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark; from then on it does not follow the log's end.

        Args:
            offset: is limited to the log's range.

        Returns:
            The high watermark.

        Source: Kafka `UnifiedLog.updateHighWatermark`.
        """
        return self.state.update_high_watermark(offset)

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from now on; stored records stay unchanged.

        Args:
            config: all settings; see `LogConfig.with_changes` for some.

        Raises:
            KsegError: the log is not open for appending.

        Source: Kafka `UnifiedLog.updateConfig`.
        """
        self.state.update_config(config)

    # ---- keeping house: kseg.log.writer.retention ------------------------------------------------

    def delete_old_segments(self, *, now_ms: Time | None = None) -> RetentionReport:
        """Delete expired segments, whole ones from the log's start on.

        In a broker's data directory, and for Kafka's internal topics, the known policy of the topic
        goes before `config`, and settings that you did not give have no default:
        `kseg.log.topic_policy`.

        Args:
            now_ms: the time to count ages from, in ms or as other times; the clock's without it.

        Raises:
            OSError: the disk refuses; run it again.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.deleteOldSegments`.
        """
        from kseg.log.writer import retention

        return retention.delete_old_segments(self.state, now_ms)

    def clean(
        self, *, now_ms: Time | None = None, force: bool = False, map_bytes: int | None = None
    ) -> CompactionReport | None:
        """Compact the log as Kafka's cleaner would now; does nothing if it is not due.

        Call it from a thread of its own: appends and reads continue meanwhile, and the log's lock
        is held only for each swap of files. Readers keep their open files. With compact,delete old
        segments are deleted, too.

        Args:
            now_ms: the present time; the log's clock if None.
            force: also compact logs that are not dirty enough, or too young.
            map_bytes: memory for keys; Kafka's 128 MiB if None.

        Returns:
            The result; None if there was nothing to do.

        Raises:
            FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
            StalePlanError: the log was cut, or segments were deleted, meanwhile.
            KsegError: the log is open for reading only, or has failed.
            OSError: the disk refuses, or is full.
        """
        from kseg.constants import COMPACTION_MAP_BYTES
        from kseg.log.cleaner import clean as cleaning

        return cleaning.clean_state(
            self.state, now_ms=now_ms, force=force, map_bytes=map_bytes or COMPACTION_MAP_BYTES
        )

    def expire_producers(self, *, now_ms: Time | None = None) -> tuple[int, ...]:
        """Forget producers that have written nothing for `producer_id_expiration_ms`.

        `LogDirectory.retain` does it for all its logs. Nothing else does while the log is open;
        Kafka does it every ten minutes.

        Args:
            now_ms: the time that counts; None for the log's clock.

        Returns:
            Their ids.

        Raises:
            KsegError: the log is not open for appending.

        Source: Kafka `ProducerStateManager.removeExpiredProducers`.
        """
        state = self.state
        with state.changing():
            return state.producers.expire(now_of(now_ms, state.now_ms))

    def note_offsets(self, *, write: bool = False) -> None:
        """Report the log's recovery point, start and high watermark to the data directory.

        Args:
            write: write its checkpoints at once.

        Raises:
            OSError: the checkpoints could not be written; the old ones are there.
        """
        with self.state.changing():
            self.state.note_offsets(write=write)

    # ---- cutting: kseg.log.writer.truncate -------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Cut the log back to `offset`, if it ends later; lasting when this returns.

        A batch goes whole: records before the offset may go with it.

        Returns:
            Whether the log ended after it.

        Raises:
            ValueError: the offset is negative.
            SegmentInUseError: a reader maps bytes to be cut, and the disk is too full for a copy.
            CorruptRecordError: a batch before the offset is damaged; nothing is changed.
            OSError: the disk refuses.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.truncateTo`; see `kseg.log.writer.truncate`.
        """
        from kseg.log.writer import truncate

        return truncate.truncate_to(self.state, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records, and begin again at `offset`; durable when this returns.

        Args:
            offset: where the log begins and ends.
            log_start_offset: the new log start, if not `offset`.

        Raises:
            ValueError: an offset is negative or has over 64 bits, or the start is past the end.
            OSError: the disk refuses, and the log has failed.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.truncateFullyAndStartAt`.
        """
        from kseg.log.writer import truncate

        truncate.truncate_fully_and_start_at(self.state, offset, log_start_offset)

    def delete_records_before(self, offset: int) -> bool:
        """Move the log's start to `offset`, if it starts before; lasting when this returns.

        Returns:
            Whether the log started before it.

        Raises:
            OffsetOutOfRangeError: it is negative, or past the high watermark.
            OSError: the disk refuses; a crash may undo the move.
            PoisonedFileError: the log failed before.

        Source: Kafka `UnifiedLog.maybeIncrementLogStartOffset`.
        """
        from kseg.log.writer import truncate

        return truncate.increment_log_start(self.state, offset)

    # ---- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and release a log open for appending; a second call does nothing.

        A log that failed is released as it is, and has to be recovered.

        Raises:
            OSError, KsegError: the first step that failed; everything is released all the same.
        """
        if self._state is None or self._lease is None:
            return
        from kseg.log.writer import flush as flushing

        clean = False
        try:
            clean = flushing.close(self._state)
        finally:
            self._lease.leave(clean=clean)

    def __enter__(self) -> Self:
        """Answer the log itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Close."""
        self.close()

    def __fspath__(self) -> str:
        """The partition directory, so that functions that accept a path accept a `Log`."""
        return str(self.path)

    def __repr__(self) -> str:
        """The path and the number of segments."""
        return f"Log({str(self.path)!r}, {len(self.segments)} segments)"


def _wait_for_writer(state: LogState, seen: Version, seconds: float) -> bool:
    """Wait for a log under a writer of this process to publish another version than `seen`.

    Returns:
        False if the log is closed.

    Raises:
        PoisonedFileError: the log failed, and has been read to its end.
    """
    with state.changed:
        if state.version is seen and not state.closed and not state.failed:
            state.changed.wait(seconds)
        if state.version is not seen:
            return True
        if state.closed:
            return False
        state.check()
    return True


__all__ = ["ISOLATIONS", "Log", "Mode", "SegmentInfo"]
