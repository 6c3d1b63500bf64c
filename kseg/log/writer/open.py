"""Opening a log for appending: the lock, the claim, the load, the active segment.

    enter the data directory     its lock is ours, its mark of a clean shutdown is gone
    claim the partition          no other log of this process writes there
    refuse, or load              what was not closed in good order is recovered only if asked for
    open the last segment        all others stay closed until something is asked of them

An error on the way leaves the data directory as a failed start of a broker does.

Source: Kafka `LogManager.loadLog`, `UnifiedLog.create`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kseg.errors import NotALogError, UncleanShutdownError
from kseg.files import io, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, parse_partition_dir
from kseg.log import data_directory
from kseg.log.clean_offsets import lower_clean_offset
from kseg.log.config import LogConfig
from kseg.log.data_directory import DataDirectoryLease, PartitionOffsets
from kseg.log.reader.version import END, HighWatermark, SegmentInfo
from kseg.log.recovery import load_result
from kseg.log.recovery.load_result import Loaded
from kseg.log.segment.writer import SegmentWriter
from kseg.log.writer.state import LogState


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of how a log was left, in place of what its data directory says.

    Attributes:
        clean: it was closed in good order.
        recovery_point: what lies below was flushed.
        log_start_offset: the first offset to be read.
    """

    clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None


def open_state(
    path: str | os.PathLike[str],
    *,
    create: bool,
    recover: bool,
    config: LogConfig,
    now_ms: Callable[[], int],
    mapping: Mapping = "auto",
    topic_id: UUID | None = None,
    known: Known = Known(),
    high_watermark: HighWatermark | None = None,
) -> tuple[LogState, DataDirectoryLease]:
    """Open a log for appending; closing it leaves the lease.

    Args:
        path: the partition directory, under a name that Kafka takes.
        create: make it, and its data directory, if they are missing.
        recover: recover it if it was not closed in good order.
        config: of the log.
        now_ms: the clock.
        mapping: how its readers open files.
        topic_id: to be recorded, or compared with what is; None to leave that alone.
        known: instead of what the data directory says.
        high_watermark: see `Log.open`.

    Raises:
        UncleanShutdownError: it was not closed in good order, and is not to be recovered.
        LogLockedError: another process, or another log of this one, writes there.
        NotALogError: not a partition's name, or that of one that is to be deleted.
        InconsistentTopicIdError: the topic has another id.
        KsegError: the log cannot be loaded.
        FileNotFoundError: there is no such directory, and none is to be made.
        PermissionError: this process cannot make files like those that are there.
        OSError: the disk refuses.
    """
    directory = Path(path).resolve()
    name = parse_partition_dir(directory.name)
    if name.suffix is not None:
        raise NotALogError("not the name of a partition that may be appended to", path=path)
    if not directory.is_dir() and not create:
        os.stat(directory)  # says best itself that it is missing
        raise NotADirectoryError(20, "not a directory", str(path))
    io.check_new_files(directory)
    if create:
        io.make_directories(directory.parent)
    partition = TopicPartition(name.topic, name.partition)
    lease = data_directory.enter(directory.parent)
    untouched = True
    try:
        lease.claim(directory.name)
        if create:
            io.make_directories(directory)
            if not _has_segments(directory):
                # A process before may have made it and come no further.
                io.flush_directory(directory.parent)
        clean = lease.is_clean(directory.name) if known.clean is None else known.clean
        if not clean and not recover and _has_segments(directory):
            error = UncleanShutdownError("the log was not closed in good order", path=directory)
            # For programs; the command line has other words for it.
            error.add_note("open it with recover=True, or look first with plan_recovery")
            raise error
        if topic_id is not None:
            metadata.record_topic_id(directory / FileKind.PARTITION_METADATA.value, topic_id)
        lease.settle_offsets()
        untouched = False
        lease.mark_loaded()
        loaded = _load(directory, lease.offsets_of(partition), known, config, clean, now_ms())
        if loaded.mended:
            lease.forget_broker_epoch()
        if loaded.mended or not clean:
            lower_clean_offset(directory, partition, loaded.log_end_offset)
        replicated = _replicated(high_watermark, lease, partition)
        state = _state_of(directory, loaded, config, now_ms, mapping, partition, lease, replicated)
    except BaseException:
        # A refusal has changed nothing: it must not take the mark from other holders of the lease.
        lease.leave(clean=untouched)
        raise
    return state, lease


def _has_segments(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return any(entry.name.partition(".")[2].startswith("log") for entry in entries)


def _load(
    directory: Path,
    told: PartitionOffsets,
    known: Known,
    config: LogConfig,
    clean: bool,
    now_ms: int,
) -> Loaded:
    """The log in order, by what is known of it and by what the data directory says of the rest."""
    point, start = known.recovery_point, known.log_start_offset
    return load_result.load(
        directory,
        config=config,
        clean=clean,
        recovery_point=told.recovery_point if point is None else point,
        log_start_offset=told.log_start_offset if start is None else start,
        now_ms=now_ms,
    )


def _replicated(
    told: HighWatermark | None, lease: DataDirectoryLease, partition: TopicPartition
) -> int | None:
    """See `LogState.replicated`; without a line a broker takes the log's start, and no less."""
    if told is None and metadata.is_of_broker(lease.path):
        return lease.offsets_of(partition).high_watermark or 0
    return None if told == END else told


def _state_of(
    directory: Path,
    loaded: Loaded,
    config: LogConfig,
    now_ms: Callable[[], int],
    mapping: Mapping,
    partition: TopicPartition,
    lease: DataDirectoryLease,
    replicated: int | None,
) -> LogState:
    """The log as it was loaded, its last segment open."""
    last = loaded.segments[-1]
    active = SegmentWriter.open(
        directory,
        last.base_offset,
        config,
        now_ms=now_ms(),
        offset_entries=last.offset_entries,
        time_entries=last.time_entries,
    )
    try:
        for index in (active.offset_index, active.time_index):
            # A smaller size than the entries need leaves the index full, and the next append rolls.
            index.resize(max(config.segment_index_bytes, index.size))
        state = LogState(
            directory,
            config=config,
            now_ms=now_ms,
            sealed=(),
            active=active,
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
            epochs=loaded.epochs,
            producers=loaded.producers,
            snapshots=loaded.snapshots,
            partition=partition,
            lease=lease,
            mapping=mapping,
            replicated=replicated,
        )
        state.replace_segments(
            (),
            [
                SegmentInfo(state.files_of(segment.base_offset), segment.size, is_last=False)
                for segment in loaded.segments[:-1]
            ],
        )
        state.publish()
        # A log may have lost its end. Offsets in front of the old point are given once more then,
        # and what comes there must not count as flushed.
        lease.take_back(partition, loaded.recovery_point)
    except BaseException:
        active.close(trim=False)
        raise
    return state


__all__ = ["Known", "open_state"]
