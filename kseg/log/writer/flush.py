"""Openings, rolls, flushes and the clean close of a log: making it durable.

Nothing is durable before `flush`. It writes the files in the order of their dependence: snapshots
of producers, logs, their indexes, the names in the directory, and at the end the recovery point.
The recovery point goes to the checkpoints of the data directory. It need not be on the disk at
once: with an older one recovery only reads more.

A flush that fails fails the log: the kernel has dropped pages, and it is unknown which.

Source: Kafka `UnifiedLog.roll`, `UnifiedLog.flush`, `UnifiedLog.close`, `LocalLog`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, NotALogError, UncleanShutdownError
from kseg.files import io, metadata, producer_snapshot
from kseg.files.checkpoints import TopicPartition, lower_clean_offset
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, parse_partition_dir
from kseg.format.times import Time, time_ms
from kseg.log import data_directory
from kseg.log.clock import clock_of
from kseg.log.config import LogConfig
from kseg.log.data_directory import DataDirectoryLease, PartitionOffsets
from kseg.log.pending_deletes import remove_segment
from kseg.log.reader.version import HighWatermark
from kseg.log.recovery.load import load
from kseg.log.recovery.load_context import RecoveryInputs
from kseg.log.segment.writer import SegmentWriter, attempt
from kseg.log.writer.state import LogState, effective_high_watermark
from kseg.stores.path import local_path_at

#: Rolled segments above the recovery point: their files are open, and walked after a crash.
UNFLUSHED_MAX: Final = 8
#: How often a flush that moves the recovery point has the checkpoints written, in ms.
#: Source: Kafka `log.flush.offset.checkpoint.interval.ms`.
CHECKPOINT_INTERVAL_MS: Final = 60_000


def roll(state: LogState, expected_next_offset: int | None = None) -> int:
    """Begin another segment at the log's end.

    An active segment that is empty and begins there already stays, its indexes given their full
    size again; Kafka deletes it and makes the same one.

    A sealed segment is on the disk before anything can follow it. So a power cut leaves the front
    of the log and never a hole. Kafka flushes it in the background. The recovery point waits for
    `flush`, with one exception: once more than `UNFLUSHED_MAX` segments are sealed since, each roll
    flushes up to the oldest.

    Args:
        state: the log.
        expected_next_offset: where the next batch will begin, if past the end.

    Returns:
        The base offset of the active segment.

    Raises:
        KsegError: the segment that would be there has records already.
        OSError: the disk refuses; the log is as before, or has rolled and lacks a snapshot, which
            costs time when it is loaded.
        PoisonedFileError: the log failed.

    Source: Kafka `UnifiedLog.roll`, `LocalLog.roll`.
    """
    with state.changing():
        base, active = base_after(state, expected_next_offset), state.active
        if base == active.base_offset:
            active.resize_indexes(state.config.segment_index_bytes)
            return base
        _roll_to(state, base)
        state.take_snapshot(base)
        if len(state.unflushed) > UNFLUSHED_MAX:
            flush(state, sorted(state.unflushed)[1])
        return base


def base_after(state: LogState, expected_next_offset: int | None = None) -> int:
    """The base offset of the active segment after `roll`; takes the arguments of `roll`.

    Raises:
        KsegError: as `roll`; nothing has changed.
    """
    base, active = max(state.log_end.offset, expected_next_offset or 0), state.active
    if base < active.base_offset or (base == active.base_offset and active.size):
        raise KsegError(
            f"a segment at {base} would not follow that at {active.base_offset}, which has "
            f"{active.size} bytes",
            path=state.path,
        )
    return base


def _roll_to(state: LogState, base: int) -> None:
    """Seal and flush the active segment, and roll to a new one at `base`."""
    # Files there belong to no segment of the log; as Kafka does, a roll replaces them.
    remove_segment(state.files_of(base))
    active = state.active
    active.become_inactive()
    # Nothing that follows may reach the disk before it: a power cut would leave a hole in the log.
    with state.all_or_poison():
        active.flush()
        if state.names_changed:
            state.flush_names(complete=True)
    writer = _begin(state, base)
    with state.all_or_poison():
        state.set_active(writer, seal=True)
        state.move_end(state.log_end.offset)
        state.publish()


def _begin(state: LogState, base: int) -> SegmentWriter:
    """Make all files of a new segment or none: a load takes a single file for the log's end."""
    state.note_new_names()
    try:
        return SegmentWriter.open(
            state.path, base, state.config, create=True, now_ms=state.now_ms()
        )
    except BaseException:
        with state.all_or_poison():
            remove_segment(state.files_of(base))
        raise


def flush(state: LogState, offset: int | None = None, *, whole: bool = False) -> int:
    """Make all records below `offset` lasting.

    Args:
        state: the log.
        offset: the log's end if None, or if it is beyond the end.
        whole: the active segment too if it is empty, so that its files are there.

    Returns:
        The recovery point.

    Raises:
        PoisonedFileError: the log failed before.
        OSError: a flush failed, and the log with it.

    Source: Kafka `UnifiedLog.flush`.
    """
    with state.changing():
        end = state.log_end.offset
        target = end if offset is None else min(offset, end)
        waiting = any(base < target for base in state.unflushed)
        if not whole and not waiting and target <= state.recovery_point:
            return state.recovery_point
        with state.all_or_poison():
            _flush_below(state, target, whole=whole)
            now_ms = state.now_ms()
            if target > state.recovery_point:
                state.move_recovery_point(target, now_ms)
        state.note_offsets()
        if state.is_checkpoint_due(now_ms, CHECKPOINT_INTERVAL_MS):
            # On a full disk the checkpoints wait: an older recovery point costs time, no record.
            try:
                state.note_offsets(write=True)
            except OSError as error:
                if not io.is_full(error):
                    raise
        return state.recovery_point


def _flush_below(state: LogState, target: int, *, whole: bool) -> None:
    """Flush snapshots, then segments that begin below `target`, then the directory."""
    for path in state.pop_unflushed_snapshots():
        with suppress(FileNotFoundError):  # given up since
            producer_snapshot.flush(path)
    names_changed = state.names_changed or state.gone_in_doubt
    for base in _to_flush(state, target, whole=whole):
        with state.segment_writer(base) as segment:
            segment.flush()
        done = state.pop_unflushed(base)
        if done is not None:
            done.close()
        names_changed |= base >= state.recovery_point
    if names_changed:
        state.flush_names(complete=True)


def _to_flush(state: LogState, target: int, *, whole: bool) -> list[int]:
    """Base offsets of segments between the recovery point and `target`, and of waiting ones.

    The active segment is among them with `whole`, although it may be empty and begin at `target`.
    """
    active = state.active.base_offset
    bases = {info.base_offset for info in state.version.segments_from(state.recovery_point)}
    chosen = sorted(base for base in bases | state.unflushed.keys() if base < target)
    return [*chosen, active] if whole and active >= target else chosen


def close(state: LogState) -> bool:
    """Flush all, take a snapshot of the producers, trim, and release; a second call does nothing.

    A log that failed is only released.

    Returns:
        Whether all is on the disk, so that the log need not be recovered.

    Raises:
        OSError, KsegError: the first step that failed; everything is released all the same.

    Source: Kafka `UnifiedLog.close`.
    """
    with state.lock:
        if state.closed:
            return False
        clean = False
        try:
            if state.may_change:
                with state.all_or_poison():
                    flush(state, whole=True)
                    state.epochs.flush()
                    state.snapshots.take(state.producers)
                    state.active.close()
                    state.flush_names()
                    state.move_recovery_point(state.log_end.offset)
                    state.note_offsets()
                    state.deletions.remove_due(2**63)  # also files that wait for their time
                clean = True
        finally:
            # Files that are still open are left as they are; after a clean close there are none.
            attempt(
                *(lambda writer=writer: writer.close(trim=False) for writer in state.pop_writers())
            )
            state.mark_closed()
        return clean


@contextmanager
def opened(
    path: StrPath,
    config: LogConfig,
    *,
    now: Time | None = None,
    recover: bool = False,
    high_watermark: HighWatermark | None = None,
    set_aside: bool = False,
) -> Iterator[LogState]:
    """Open a log for a change, and close it in the end.

    Args:
        path: the partition directory.
        config: the settings.
        now: the time of its clock; None for the machine's.
        recover, high_watermark: as for `Log.open`.
        set_aside: as for `open_state`.

    Raises:
        KsegError, OSError: as `open_state` and `close` do.
    """
    clock = clock_of(None if now is None else partial(time_ms, now))
    state, lease = open_state(
        path,
        create=False,
        recover=recover,
        config=config,
        now_ms=clock,
        mapping="never",
        high_watermark=high_watermark,
        set_aside=set_aside,
    )
    clean = False
    try:
        yield state
    finally:
        try:
            clean = close(state)
        finally:
            lease.leave(clean=clean)


@frozen_dataclass
class Opening:
    """How a plan opens its log for appending.

    Attributes:
        path: the partition directory.
        config, high_watermark: as for `Log.open`.
        state: a log that is open for appending already; None to open one.
    """

    path: Path
    config: LogConfig
    high_watermark: HighWatermark | None = None
    state: LogState | None = None

    def __reduce__(self) -> tuple[type[Opening], tuple[object, ...]]:
        """The opening pickles without its log: in another process the log is not open."""
        return Opening, (self.path, self.config, self.high_watermark)

    def opened(self, now: Time) -> AbstractContextManager[LogState]:
        """The log, open for appending; if it is opened here, its clock shows a fixed time."""
        if self.state is not None:
            return nullcontext(self.state)
        return opened(self.path, self.config, now=now, high_watermark=self.high_watermark)


# ---- openings ------------------------------------------------------------------------------------


def open_state(
    path: StrPath,
    *,
    create: bool,
    recover: bool,
    config: LogConfig,
    now_ms: Callable[[], int],
    mapping: Mapping = "auto",
    topic_id: UUID | None = None,
    known: PartitionOffsets | None = None,
    high_watermark: HighWatermark | None = None,
    set_aside: bool = False,
) -> tuple[LogState, DataDirectoryLease]:
    """Open a log for appending; closing it leaves the lease.

    Args:
        path: the partition directory, under a name that Kafka takes.
        create: make it, and its data directory, if they are missing.
        recover: recover it if it was not closed in good order.
        config: the settings of the log.
        now_ms: the clock.
        mapping: how its readers open files.
        topic_id: the id to record, or to compare with the recorded one; None to skip this.
        known: how the log was left; None to read that from the data directory.
        high_watermark: see `Log.open`.
        set_aside: also under a name by which a broker has put it aside, unknown to checkpoints.

    Raises:
        UncleanShutdownError: it was not closed in good order, and is not to be recovered.
        LogLockedError: another process, or another log of this one, writes there.
        NotALogError: not a partition's name, or one that was put aside.
        InconsistentTopicIdError: the topic has another id.
        KsegError: the log cannot be loaded.
        FileNotFoundError: the directory does not exist, and may not be created.
        PermissionError, OSError: files cannot get the owner of the others; or the disk refuses.
    """
    directory = local_path_at(path).resolve()
    name = parse_partition_dir(directory.name)
    if name.suffix is not None and not set_aside:
        raise NotALogError("not the name of a partition that may be appended to", path=path)
    if not directory.is_dir() and not create:
        os.stat(directory)  # says best itself that it is missing
        raise NotADirectoryError(20, "not a directory", str(path))
    io.check_new_files(directory)
    if create:
        io.make_directories(directory.parent)
    partition = TopicPartition(name.topic, name.partition) if name.suffix is None else None
    lease = data_directory.enter(directory.parent)
    untouched = True
    try:
        lease.claim(directory.name)
        if create:
            io.make_directories(directory)
            if not _has_segments(directory):
                io.flush_directory(directory.parent)  # an earlier process may have ended here
        clean = lease.is_clean(directory.name) if known is None else known.clean
        if not clean and not recover and _has_segments(directory):
            error = UncleanShutdownError("the log was not closed in good order", path=directory)
            error.add_note("open it with recover=True, or call plan_recovery first")  # in programs
            raise error
        if topic_id is not None:
            metadata.record_topic_id(directory / FileKind.PARTITION_METADATA.value, topic_id)
        lease.settle_offsets()
        untouched = False
        lease.mark_loaded()
        known = known or lease.offsets_of(partition)
        point, start = max(known.recovery_point, 0), max(known.log_start_offset, 0)
        loaded = load(directory, RecoveryInputs(config, clean, point, start, now_ms()))
        if loaded.mended:
            lease.forget_broker_epoch()
        if loaded.mended or not clean:
            lower_clean_offset(directory, partition, loaded.log_end_offset)
        state = LogState(
            directory,
            loaded,
            config=config,
            now_ms=now_ms,
            partition=partition,
            lease=lease,
            mapping=mapping,
            stored_high_watermark=effective_high_watermark(
                high_watermark, lease.path, lambda: lease.offsets_of(partition)
            ),
        )
        # A log may have lost its end. Offsets before the old point are then given again, and
        # new records there must not count as flushed.
        if partition is not None:
            lease.take_back(partition, loaded.recovery_point)
    except BaseException:
        # A refusal has changed nothing: it must not take the mark from other holders of the lease.
        lease.leave(clean=untouched)
        raise
    return state, lease


def _has_segments(directory: Path) -> bool:
    """Whether a directory has a log file, finished or not."""
    with os.scandir(directory) as entries:
        return any(entry.name.partition(".")[2].startswith("log") for entry in entries)
