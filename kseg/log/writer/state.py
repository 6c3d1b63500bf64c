"""LogState: the state of a log under its writer, and the one value that its readers see.

It owns the segments, the start and the end of the log, and the offsets that readers may see. Once
the content of the disk is unknown, nothing changes any more. The modules beside it use the state:
append, flush, retention, truncate.

A change holds `lock`, by `changing`, and readers see it after `publish`. Readers take `version` and
nothing else.

`open_state` opens a log for appending:

    enter the data directory     take its lock, and remove the mark of a clean shutdown
    claim the partition          no other log of this process writes there
    refuse, or load              a log not closed in good order is recovered only on request
    open the last segment        all others stay closed until they are needed

An error on the way leaves the data directory as a failed start of a broker does.

Source: Kafka `UnifiedLog`, `LocalLog`, `LogSegments`, `LogManager.loadLog`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kseg.constants import INT64_MAX, AppendOrigin, StrPath
from kseg.errors import KsegError, PoisonedFileError
from kseg.files import io, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.mapping import Mapping
from kseg.files.names import SegmentFiles, segment_name
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.data_directory import DataDirectoryLease, PartitionOffsets
from kseg.log.pending_deletes import Deletions, files_of_segment
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.version import END, Changes, HighWatermark, SegmentInfo, Truncations, Version
from kseg.log.reader.view import LogView
from kseg.log.recovery.load_context import LoadedLog
from kseg.log.segment.writer import KINDS, SegmentWriter
from kseg.log.validate.rules import AppendRules

#: Makes a named tuple in half the time of a normal call.
_tuple: Final = tuple.__new__


class LogState:
    """One log under one writer.

    Attributes:
        path: the partition directory.
        config: the settings; `update_config` replaces them.
        roll_ms: the age at which a segment rolls, as the settings say.
        lock: held during each change; the thread that holds it may take it again.
        cleaning: held during a compaction; never waited for with `lock` held.
        changed: notified at each `publish`; for threads that wait for records.
        now_ms: the clock.
        mapping: how readers of this log open files.
        partition: its name in checkpoints; None for a directory under another name.
        lease: the lease of the data directory, which keeps its offsets; None if it has no lease.
        active: the segment that is appended to.
        sealed: the segments before it, sorted by base offset, as light values.
        unflushed: writers of sealed segments that are not flushed yet, keyed by base offset.
        unflushed_snapshots: producer snapshots written since the last flush.
        names_changed: whether the directory has names that may not last yet, or lacks some.
        gone_in_doubt: whether segments were removed whose names a power cut may bring back.
        epochs, producers, snapshots: as their classes say.
        deletions: files that are given up, and removed some time later.
        log_start_offset: the first offset to be read.
        log_end: the next offset, the base of the active segment, its size.
        high_watermark: an offset, with its place where that is known.
        follows_end: whether the high watermark is the log's end; true until a caller sets it.
        stored_high_watermark: from a broker's checkpoint, or an argument of `Log.open`. It bounds
            deletion, not readers. None for the only copy, or once a caller has set another.
        recovery_point: records below it are flushed.
        last_flush_ms: when the recovery point last moved.
        last_checkpoint_ms: when a flush last had the checkpoints written.
        cuts: raised and published before each cut, for readers that read meanwhile.
        version: the version for readers.
        closed: whether it is closed.
    """

    __slots__ = (
        "_active_files",
        "_created",
        "_failure",
        "_opened_ms",
        "_process",
        "_rules",
        "active",
        "changed",
        "cleaning",
        "closed",
        "config",
        "deletions",
        "epochs",
        "follows_end",
        "gone_in_doubt",
        "high_watermark",
        "last_checkpoint_ms",
        "last_flush_ms",
        "lease",
        "lock",
        "log_end",
        "log_start_offset",
        "mapping",
        "names_changed",
        "now_ms",
        "partition",
        "path",
        "producers",
        "recovery_point",
        "roll_ms",
        "sealed",
        "snapshots",
        "stored_high_watermark",
        "truncations",
        "unflushed",
        "unflushed_snapshots",
        "version",
    )

    def __init__(
        self,
        path: Path,
        loaded: LoadedLog,
        *,
        config: LogConfig,
        now_ms: Callable[[], int],
        partition: TopicPartition | None,
        lease: DataDirectoryLease,
        mapping: Mapping,
        stored_high_watermark: int | None,
    ) -> None:
        """Take over the result of a load, and open the last segment."""
        self.path: Final = path
        self.config = config
        self.lock: Final = threading.RLock()
        self.cleaning: Final = threading.Lock()
        self.changed: Final = Changes(self.lock)
        self.now_ms: Final = now_ms
        self.mapping: Final[Mapping] = mapping
        self.partition: Final[TopicPartition | None] = partition
        self.lease: Final[DataDirectoryLease | None] = lease
        self.sealed = tuple(
            SegmentInfo(self.files_of(segment.base_offset), segment.keep_bytes, is_last=False)
            for segment in loaded.segments[:-1]
        )
        self.unflushed: dict[int, SegmentWriter] = {}
        self.unflushed_snapshots: list[Path] = []
        self.names_changed = True
        self.gone_in_doubt = False
        self.epochs: Final = loaded.epochs
        self.producers: Final = loaded.producers
        self.snapshots: Final = loaded.snapshots
        self.deletions: Final = Deletions()
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = max(loaded.recovery_point, loaded.log_start_offset)
        self.follows_end = True
        self.high_watermark = OffsetMetadata(loaded.log_start_offset)
        self.stored_high_watermark = (
            None
            if stored_high_watermark is None
            else min(stored_high_watermark, loaded.log_end_offset)
        )
        self._opened_ms: Final = now_ms()
        self._created: dict[int, int] = {}
        self.last_flush_ms = self.last_checkpoint_ms = self._opened_ms
        self.truncations = Truncations()
        self._failure: BaseException | None = None
        self.closed = False
        self.roll_ms = config.roll_ms
        self._rules: AppendRules | None = None
        self._process: Final = os.getpid()
        self.active = _last_segment(path, loaded, config, self._opened_ms)
        self._active_files = self.files_of(self.active.base_offset)
        self.move_end(loaded.log_end_offset)
        self.publish()

    # ---- the lock --------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for a change; see `check`."""
        with self.lock:
            self.check()
            yield

    @contextmanager
    def all_or_poison(self) -> Iterator[None]:
        """A context for steps that must not end half-way: an error in it fails the log."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def check(self) -> None:
        """Refuse to change a log that is closed, that failed, or that another process has.

        Raises:
            PoisonedFileError: it failed before.
            KsegError: it is closed, or was opened before this process was forked.
        """
        if self._failure is not None:
            raise PoisonedFileError(
                f"the log failed before ({self._failure}), so the contents of the disk are "
                "unknown: open it again, which reads them",
                path=self.path,
            ) from self._failure
        if self.closed:
            raise KsegError("the log is closed", path=self.path)
        if os.getpid() != self._process:
            raise KsegError("the log was opened by another process, before a fork", path=self.path)

    def fail(self, error: BaseException) -> None:
        """Refuse all further changes because of `error`; the first one counts."""
        if self._failure is None:
            self._failure = error

    @property
    def failed(self) -> bool:
        """Whether nothing may be changed any more."""
        return self._failure is not None

    @property
    def may_change(self) -> bool:
        """Whether `check` would pass."""
        return self._failure is None and not self.closed and os.getpid() == self._process

    def mark_closed(self) -> None:
        """Refuse all further calls, and wake the threads that wait."""
        with self.lock:
            self.closed = True
            self.changed.notify_all()

    # ---- settings --------------------------------------------------------------------------------

    def rules_for(self, origin: AppendOrigin, leader_epoch: int) -> AppendRules:
        """The rules for an append; its size is checked later, where Kafka checks it.

        Recent results are kept: most appends are like the one before.
        """
        rules = self._rules
        if rules is None or rules.origin is not origin or rules.leader_epoch != leader_epoch:
            rules = replace(self.config.append_rules(origin, leader_epoch), append_bytes_max=None)
            self._rules = rules
        return rules

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from now on; stored records stay unchanged.

        Source: Kafka `UnifiedLog.updateConfig`.
        """
        with self.changing():
            self.config = config
            self.active.update_config(config)
            self.roll_ms = config.roll_ms
            self._rules = None
            self.producers.expiration_ms = config.producer_id_expiration_ms
            self.producers.transaction_max_timeout_ms = config.transaction_max_timeout_ms

    # ---- offsets ---------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log_end.offset

    @property
    def replicated_offset(self) -> int:
        """Replicas have the records below it: none above may go. The checkpoint has this offset.

        The high watermark; for a broker's log that of its checkpoint, until a caller sets it.
        """
        if self.stored_high_watermark is None:
            return self.high_watermark.offset
        return max(self.stored_high_watermark, self.log_start_offset)

    def move_end(self, offset: int) -> None:
        """Set the log's end to `offset`, and to the end of the active segment's file.

        A high watermark above the new end moves down to it. `publish` lets readers see it.
        """
        self.log_end = OffsetMetadata(offset, self.active.base_offset, self.active.size)
        if self.high_watermark.offset >= offset:
            self.high_watermark = self.log_end

    def move_start(self, offset: int) -> None:
        """Set the log's start to `offset`; raise high watermark and recovery point to it."""
        self.log_start_offset = offset
        if self.high_watermark.offset < offset:
            self.move_high_watermark(OffsetMetadata(offset))
        self.recovery_point = max(self.recovery_point, offset)

    def move_high_watermark(self, place: OffsetMetadata) -> None:
        """Let readers see the records below; transactions decided below it become stable."""
        self.high_watermark = place
        self.producers.high_watermark_updated(place.offset)

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark to the caller's value, within the log's range.

        From now on it does not follow the log's end. Returns the new value.

        Source: Kafka `UnifiedLog.updateHighWatermark`.
        """
        with self.changing():
            self.follows_end, self.stored_high_watermark = False, None
            offset = max(offset, self.log_start_offset)
            at_end = offset >= self.log_end.offset
            if at_end or offset != self.high_watermark.offset:
                self.move_high_watermark(self.log_end if at_end else OffsetMetadata(offset))
            self.publish()
            return self.high_watermark.offset

    def publish(self) -> None:
        """Let readers see the present state."""
        with self.lock:
            end = self.log_end
            if self.follows_end and self.high_watermark is not end:
                self.move_high_watermark(end)
            mark = self.high_watermark
            undecided = self.producers.first_unstable
            stable = undecided or mark
            if stable.offset < self.log_start_offset:
                stable = OffsetMetadata(self.log_start_offset)
            if stable.offset >= mark.offset:
                # Where something is undecided this is not the end itself, by which `advance` goes.
                stable = mark if undecided is None else OffsetMetadata(*mark)
            self.version = Version(
                self.sealed,
                self._active_files,
                self.log_start_offset,
                end,
                mark,
                stable,
                self.recovery_point,
                self.truncations,
            )
            if self.changed.waiting:
                self.changed.notify_all()

    def usual_version(self, end: OffsetMetadata) -> Version | None:
        """The version after an append outside of any transaction, computed before the append.

        If no transaction is open and the high watermark follows the end, all three offsets are
        the new end, and the rest is as before; else None, and `publish` computes all of it.
        """
        seen = self.version
        if not self.follows_end or seen.last_stable is not seen.log_end:
            return None
        start, flushed = self.log_start_offset, self.recovery_point
        all_of_it = (
            self.sealed,
            self._active_files,
            start,
            end,
            end,
            end,
            flushed,
            self.truncations,
        )
        return _tuple(Version, all_of_it)

    def advance(self, end: OffsetMetadata, version: Version | None) -> None:
        """Move the log's end after an append, and publish the version that `usual_version` made.

        Under the lock.
        """
        self.log_end = end
        self.producers.map_end_offset = end.offset
        if version is None:
            self.publish()
            return
        self.high_watermark = end
        self.version = version
        if self.changed.waiting:
            self.changed.notify_all()

    def move_recovery_point(self, offset: int, now_ms: int | None = None) -> None:
        """Note that records below are flushed, and when (ms, if given); publish it to readers."""
        self.recovery_point = offset
        if now_ms is not None:
            self.last_flush_ms = now_ms
        self.publish()

    def show_end(
        self,
        sealed: tuple[SegmentInfo, ...],
        last: SegmentInfo,
        end: OffsetMetadata,
        log_start_offset: int,
        *,
        anew: bool = False,
    ) -> None:
        """Let readers see where the log will end, and no offset of it reach past that.

        The last stable offset follows once the producers are known again.

        Args:
            sealed, last: the segments there will be.
            end: where the last one will end.
            log_start_offset: where the log will start.
            anew: the log begins there too, maybe beyond all earlier offsets.
        """
        offset = end.offset
        if self.lease is not None and self.log_end.offset > min(offset, self.log_start_offset):
            self.lease.forget_broker_epoch()
        self.truncations = self.truncations.cut_at(offset)
        self.log_end = end
        self.log_start_offset = log_start_offset
        self.recovery_point = min(self.recovery_point, offset)
        if anew or self.high_watermark.offset >= offset:
            self.high_watermark = end
        if self.stored_high_watermark is not None:
            self.stored_high_watermark = offset if anew else min(self.stored_high_watermark, offset)
        self.version = Version(
            sealed,
            last.files,
            log_start_offset,
            end,
            self.high_watermark,
            OffsetMetadata(log_start_offset),
            self.recovery_point,
            self.truncations,
        )

    def note_offsets(self, *, write: bool = False, all_go: bool = False) -> None:
        """Report recovery point, log start and high watermark to the lease.

        Args:
            write: write the checkpoints at once, as a cut needs it.
            all_go: for a while there may be no segment whose name shows where the log starts.

        Raises:
            OSError: the checkpoints could not be written; the old ones are there.
        """
        if self.lease is None:
            return
        self.lease.note(
            self.partition,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            first_offset=0 if all_go or self.gone_in_doubt else self.first_base_offset,
            high_watermark=self.replicated_offset,
        )
        if write:
            self.lease.write_checkpoints()

    def is_checkpoint_due(self, now_ms: int, interval_ms: int) -> bool:
        """Whether a flush is to have the checkpoints written; the time of the next counts from now.

        A disk that is full has to wait for that, too.
        """
        due = now_ms - self.last_checkpoint_ms >= interval_ms
        if due:
            self.last_checkpoint_ms = now_ms
        return due

    def is_flush_due(self, end: int, now_ms: int | None) -> bool:
        """Whether the settings ask for a flush if the log ends there; time None asks the clock."""
        config = self.config
        if end - self.recovery_point >= config.flush_messages:
            return True
        if config.flush_ms == INT64_MAX:
            return False
        now_ms = self.now_ms() if now_ms is None else now_ms
        return now_ms - self.last_flush_ms >= config.flush_ms

    # ---- segments --------------------------------------------------------------------------------

    def note_new_names(self) -> None:
        """Note that the directory gets names that a power cut may remove until it is flushed."""
        self.names_changed = True

    def note_names_gone(self) -> None:
        """Note that segments were removed whose names a power cut may bring back until a flush."""
        self.gone_in_doubt = True

    def unlink_segment(self, info: SegmentInfo, *, snapshot: bool = True) -> None:
        """Take the names of a segment's files away at once, and of the snapshot at its base.

        For a full disk: a file that waits under another name would free nothing.

        Args:
            info: the segment.
            snapshot: false to keep the snapshot.

        Raises:
            OSError: the disk refuses; files removed before stay removed.
        """
        self.note_names_gone()
        for path in files_of_segment(info.files):
            self.deletions.unlink(path)
        snapshot_path = self.snapshots.path(info.base_offset) if snapshot else None
        if snapshot_path is not None:
            freed = io.bytes_given_back(snapshot_path)
            self.snapshots.delete(info.base_offset)
            self.deletions.add_freed(freed)

    def flush_names(self, *, complete: bool = False) -> None:
        """Make the names of the directory lasting.

        Args:
            complete: no name is lacking that the log needs.

        Raises:
            OSError: the flush failed.
        """
        io.flush_directory(self.path)
        self.gone_in_doubt = False
        self.names_changed = self.names_changed and not complete

    def as_view(self) -> LogView:
        """The log as readers see it now; the view does not change any more."""
        return LogView.of(self.path, self.version, self.mapping, lambda: self.version)

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """All segments as they are now, the active one last."""
        return (*self.sealed, self.active_info)

    @property
    def active_info(self) -> SegmentInfo:
        """The active segment as it is now."""
        return SegmentInfo(self._active_files, self.active.size, is_last=True)

    @property
    def first_base_offset(self) -> int:
        """The base of the first segment."""
        return (self.sealed[0] if self.sealed else self.active).base_offset

    def files_of(self, base_offset: int) -> SegmentFiles:
        """The names that the files of a segment have, whether they are there or not."""
        log, index, times, txns = (
            f"{self.path}{os.sep}{segment_name(base_offset, kind)}" for kind in KINDS
        )
        return SegmentFiles(base_offset, log, index, times, txns)

    def created_ms(self, base_offset: int) -> int:
        """When a sealed segment was made, in ms; one that was loaded counts from then on.

        Source: Kafka `LogSegment.created`.
        """
        return self._created.get(base_offset, self._opened_ms)

    @contextmanager
    def segment_writer(self, base_offset: int) -> Iterator[SegmentWriter]:
        """The segment, open for writing as long as the `with` lasts.

        A segment that had to be opened is flushed and closed in the end, and only closed after an
        error.
        """
        if base_offset == self.active.base_offset:
            yield self.active
            return
        waiting = self.unflushed.get(base_offset)
        if waiting is not None:
            yield waiting
            return
        now_ms = self.now_ms()
        with SegmentWriter.open(self.path, base_offset, self.config, now_ms=now_ms) as writer:
            yield writer

    def set_active(self, writer: SegmentWriter, *, seal: bool) -> None:
        """Append to `writer` from now on.

        Args:
            writer: open, and above all others.
            seal: keep the one before as a sealed segment to be flushed; false if it is removed, or
                sealed already.
        """
        before = self.active
        if seal:
            self.sealed = (
                *self.sealed,
                SegmentInfo(self._active_files, before.size, is_last=False),
            )
            self.unflushed[before.base_offset] = before
            self._created[before.base_offset] = before.created_ms
        self.active = writer
        self._active_files = self.files_of(writer.base_offset)

    def pop_unflushed(self, base_offset: int) -> SegmentWriter | None:
        """Hand over the writer of a sealed segment that waits for its flush."""
        return self.unflushed.pop(base_offset, None)

    def pop_writers(self) -> list[SegmentWriter]:
        """Hand over all writers for the caller to close; the log is not used any more."""
        writers = [*self.unflushed.values(), self.active]
        self.unflushed.clear()
        return writers

    def take_snapshot(self, offset: int) -> None:
        """Write a snapshot of the producers at `offset`; a later flush makes it lasting.

        Raises:
            OSError: it could not be written.
        """
        self.producers.map_end_offset = offset
        path = self.snapshots.take(self.producers, sync=False)
        if path is not None:
            self.unflushed_snapshots.append(path)

    def pop_unflushed_snapshots(self) -> list[Path]:
        """Return and forget the snapshots written since the last flush; the caller flushes."""
        paths, self.unflushed_snapshots = self.unflushed_snapshots, []
        return paths

    def replace_segments(
        self, removed: Collection[int], added: Iterable[SegmentInfo] = ()
    ) -> tuple[SegmentInfo, ...]:
        """Put sealed segments in the place of others, in memory only; the caller moves the files.

        Writers of removed segments are released without a flush.

        Args:
            removed: base offsets of sealed segments.
            added: sealed segments.

        Returns:
            The removed segments.
        """
        removed_infos = tuple(info for info in self.sealed if info.base_offset in removed)
        remaining = [info for info in self.sealed if info.base_offset not in removed]
        for info in removed_infos:
            self._created.pop(info.base_offset, None)
            writer = self.pop_unflushed(info.base_offset)
            if writer is not None:
                writer.close(trim=False)
        self.sealed = tuple(sorted([*remaining, *added], key=lambda info: info.base_offset))
        return removed_infos

    def __repr__(self) -> str:
        """The path and the range of offsets."""
        return f"LogState({str(self.path)!r}, {self.log_start_offset} to {self.log_end_offset})"


def high_watermark_of(view: LogView, high_watermark: HighWatermark | None) -> int:
    """The offset up to which replicas have a log that is open for reading.

    Args:
        view: the log.
        high_watermark: as for `Log.open`.
    """
    path, end = view.path, view.log_end_offset
    mark = effective_high_watermark(
        high_watermark, path.resolve().parent, lambda: data_directory.offsets_beside(path)
    )
    return end if mark is None else min(max(mark, view.log_start_offset), end)


def effective_high_watermark(
    high_watermark: HighWatermark | None, home: StrPath, stored: Callable[[], PartitionOffsets]
) -> int | None:
    """The offset from which on no record may be deleted; None if all of the log is replicated.

    Args:
        high_watermark: the caller's; END for the only copy. None: that of the checkpoint of a
            broker, 0 if it does not name the log (callers raise it to its start); else as END.
        home: the data directory.
        stored: reads the offsets of the log in its checkpoints.
    """
    if high_watermark is None and metadata.is_of_broker(home):
        return stored().high_watermark or 0
    return None if high_watermark == END else high_watermark


def _last_segment(
    directory: Path, loaded: LoadedLog, config: LogConfig, now_ms: int
) -> SegmentWriter:
    """Open the last segment of a log for appending, with room in its indexes."""
    last = loaded.segments[-1]
    active = SegmentWriter.open(
        directory,
        last.base_offset,
        config,
        now_ms=now_ms,
        offset_entries=last.index_entries if last.walked else None,
        time_entries=last.time_index_entries if last.walked else None,
    )
    try:
        for index in (active.offset_index, active.time_index):
            # A smaller size than the entries need leaves the index full, and the next append rolls.
            index.resize(max(config.segment_index_bytes, index.size))
    except BaseException:
        active.close(trim=False)
        raise
    return active
