"""Adopt whole segments, written elsewhere, as the end of a log.

A staged segment is a log file with its two indexes under a base offset of its own, complete and
nowhere near a log. Adopting it gives it offsets that follow the log's end, or keeps those that it
has, and moves it in. At every moment the log is whole: a segment is in it once its `.log` has its
name, which is the last step, and every step before can be done again. After an
interruption, do the same once more with the rest of the staged files.

    open and close the log         it is loaded and sound; its end is known
    let a new log begin            where the first of the offsets that are kept is
    patch offsets, flush           in the staged files, which no reader opens
    leader epoch                   lasting before the records that are of it, as in an append
    link indexes, rename the log   segment by segment
    open and close the log         flushed, its snapshot and checkpoints as a broker leaves them

The checksum of a batch does not cover its offset and leader epoch, and index entries count from the
base offset. So new offsets change the first sixteen bytes of each batch and nothing else.

`kseg.change.adopt` shares none of this. Here the files are the caller's own: they get other bytes
where they lie, and a rename makes each one part of a log that has records. There the sources stay
as they are, and a log that is copied whole takes the place of an empty one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import numpy as np

from kseg.constants import LOG_OVERHEAD, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import AppendError, OffsetsOutOfOrderError, at_path
from kseg.files import io, metadata
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.names import FileKind
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.log import Log
from kseg.log.segment.reader import Segment
from kseg.log.validate.batches import out_of_order, overlap_error

_INDEXES = (FileKind.INDEX, FileKind.TIMEINDEX)
#: The first fields of a batch: base offset, size of the rest, leader epoch.
_HEAD = struct.Struct(">qii")


@frozen_dataclass
class StagedSegment:
    """A segment that is to be adopted.

    Attributes:
        directory: where its files lie, on the file system of the log.
        base_offset: the base offset in the names of its files.
        first_offset, last_offset: the bounds of its batches; there is at least one.
        bytes: the size of its log.
        records: the number of records.
    """

    directory: str
    base_offset: int
    first_offset: int
    last_offset: int
    bytes: int
    records: int

    def path(self, kind: FileKind) -> Path:
        """The path of one of its files."""
        return Path(self.directory, f"{self.base_offset:020d}.{kind.value}")

    @property
    def is_waiting(self) -> bool:
        """Whether it has not been adopted yet."""
        return self.path(FileKind.LOG).exists()


@frozen_dataclass
class Adopted:
    """The result of adopting segments.

    Attributes:
        log_end_offset: the next offset that the log will give.
        segments: how many were moved in now, not by an earlier run.
    """

    log_end_offset: int
    segments: int


def adopt(
    path: StrPath,
    staged: Sequence[StagedSegment],
    *,
    keep_offsets: bool = False,
    leader_epoch: int | None = None,
    topic_id: UUID | None = None,
    recover: bool = False,
    config: LogConfig | None = None,
    now_ms: Callable[[], int] | None = None,
) -> Adopted:
    """Make staged segments the end of a log, which is made if it is missing.

    Args:
        path: the partition directory, under a name that Kafka takes.
        staged: sorted by offset; adopted ones are skipped.
        keep_offsets: they keep their offsets, which must not be before the log's end.
        leader_epoch: the epoch for their batches, at least the log's latest; None for that, or 0.
        topic_id: the id to record, or to compare with the id on disk; None for no check.
        recover: recover the log if it was not closed in good order, as after an interrupted try.
        config: the settings of the log.
        now_ms: the clock.

    Raises:
        OffsetsOutOfOrderError: offsets to be kept lie before the log's end, or batches over each
            other; the log has not changed.
        CorruptRecordError: a staged segment is damaged or cut short; the log has not changed.
        AppendError: the leader epoch is older than the log's latest; nothing has changed.
        InconsistentTopicIdError: the topic has another id; nothing has changed.
        UncleanShutdownError: the log was not closed in good order, and `recover` is false.
        LogLockedError: another process, or another log of this one, writes there.
        NotALogError: it is the log of KRaft.
        OSError: the disk refuses.
    """
    directory = Path(path).resolve()
    refuse_cluster_metadata(directory)
    waiting = [segment for segment in staged if segment.is_waiting]
    open_log = partial(
        Log.open,
        directory,
        mode="append",
        create=True,
        recover=recover,
        config=config,
        now_ms=now_ms,
        topic_id=topic_id,
    )
    io.check_new_files(directory)
    io.make_directories(directory.parent)
    # One lease around all of it: no other process gets in between, and no mark is left meanwhile.
    lease = data_directory.enter(directory.parent)
    clean = False
    try:
        end = _visit(open_log)  # makes or recovers the log, and says where it ends
        if waiting:
            check_adoptable(directory, end, waiting, keep_offsets, leader_epoch, topic_id)
            first = waiting[0].first_offset if keep_offsets else end
            if end == 0 < first:  # nothing was ever there, so no offset is missing before it
                end = _visit(open_log, begin=first)
            epochs = LeaderEpochs.load(directory / FileKind.LEADER_EPOCHS.value)
            latest = 0 if epochs.latest is None else epochs.latest.epoch
            epoch = latest if leader_epoch is None else leader_epoch
            bases = []  # the first offset of each segment in the log
            for segment in waiting:
                bases.append(segment.first_offset if keep_offsets else end)
                end = _renumber(segment, max(bases[-1], end), epoch, keep_offsets=keep_offsets)
            epochs.assign(epoch, first)
            for segment, base in zip(waiting, bases, strict=True):
                _move(segment, directory, base)
            end = _visit(open_log)
        clean = True
    except AppendError:
        clean = True  # refused, with nothing changed
        raise
    finally:
        lease.leave(clean=clean)
    return Adopted(end, len(waiting))


def _visit(open_log: Callable[[], Log], begin: int = 0) -> int:
    """Open and close the log, which loads it; return its end.

    Args:
        open_log: opens it for appending.
        begin: the new start of an empty log; 0 to leave it as it is.
    """
    with open_log() as log:
        if begin:
            log.truncate_fully_and_start_at(begin)
        start, end = log.log_start_offset, log.log_end_offset
    if start < end:  # files that a broker would remove; they do not show the log's start
        io.unlink(log.path / f"{start:020d}.{FileKind.SNAPSHOT.value}", missing_ok=True)
    return end


def check_adoptable(
    directory: Path,
    end: int,
    waiting: Sequence[StagedSegment],
    keep_offsets: bool,
    leader_epoch: int | None,
    topic_id: UUID | None,
) -> None:
    """Refuse segments that cannot become the end of a log.

    Args:
        directory: the partition directory.
        end: where its log ends.
        waiting: the segments, sorted by offset.
        keep_offsets: they keep their offsets.
        leader_epoch: the epoch for their batches.
        topic_id: the id of the topic; None if that does not matter.

    Raises:
        OffsetsOutOfOrderError: offsets to be kept overlap, or lie before the log's end.
        AppendError: the leader epoch is older than the log's latest.
        InconsistentTopicIdError: the topic has another id.
    """
    if topic_id is not None:
        metadata.has_topic_id(directory / FileKind.PARTITION_METADATA.value, topic_id)
    latest = LeaderEpochs.load(directory / FileKind.LEADER_EPOCHS.value).latest
    if leader_epoch is not None and latest is not None and leader_epoch < latest.epoch:
        raise AppendError(
            f"leader epoch {leader_epoch} is older than the log's latest, {latest.epoch}",
            path=directory,
        )
    for segment in waiting if keep_offsets else ():
        if segment.first_offset < end:
            raise OffsetsOutOfOrderError(
                f"offsets {segment.first_offset} to {segment.last_offset} are to be kept, but what "
                f"is before them ends at {end}",
                path=segment.path(FileKind.LOG),
                offset=segment.first_offset,
            )
        end = segment.last_offset + 1


def _renumber(staged: StagedSegment, base: int, epoch: int, *, keep_offsets: bool) -> int:
    """Give each batch its leader epoch and, unless they keep theirs, consecutive offsets.

    The offsets of the batches before it decide where a batch goes, so it does not matter how
    far an interrupted try came. Lasting when this returns.

    Args:
        staged: the segment.
        base: the offset of the first batch; the lowest allowed offset if they keep their offsets.
        epoch: the epoch for all batches.
        keep_offsets: do not change the offsets.

    Returns:
        The offset after the last one.

    Raises:
        CorruptRecordError: it does not consist of whole batches.
        OffsetsOutOfOrderError: a batch overlaps the one before it, or spans no offsets.
    """
    path, end = staged.path(FileKind.LOG), base
    with io.WriteFile.open(path) as file:
        with Segment.open(path, mapping="never", is_last=False) as segment:
            for table in segment.headers():
                offsets, spans = table.base_offset, table.last_offset - table.base_offset + 1
                wrong = out_of_order(table, end - 1) if keep_offsets else spans < 1
                if wrong.any():
                    raise at_path(overlap_error(table, int(wrong.argmax()), end - 1), path)
                if not keep_offsets:
                    offsets = end + np.cumsum(spans) - spans
                    end += int(spans.sum())
                elif len(table):
                    end = table.end_offset
                columns = (table.position, offsets, table.size - LOG_OVERHEAD)
                for position, *numbers in zip(*(c.tolist() for c in columns), strict=True):
                    file.write_at(position, _HEAD.pack(*numbers, epoch))
                fault = segment.stop_fault(table)
                if fault is not None:
                    raise fault
        file.flush()
    return end


def _move(segment: StagedSegment, directory: Path, base: int) -> None:
    """Give the files their names in the log, the log file's last."""
    for kind in _INDEXES:
        index = segment.path(kind)
        with io.WriteFile.open(index) as file:
            file.flush()
        io.dress_as_new_in(index, directory)
        target = directory / f"{base:020d}.{kind.value}"
        io.unlink(target, missing_ok=True)  # of an empty segment, or of an interrupted try
        io.link(index, target)
    io.flush_directory(directory)
    target = directory / f"{base:020d}.{FileKind.LOG.value}"
    if target.exists() and os.stat(target).st_size:
        raise OffsetsOutOfOrderError("a segment is in the place of the new one", path=target)
    io.dress_as_new_in(segment.path(FileKind.LOG), directory)
    io.rename(segment.path(FileKind.LOG), target)
    io.flush_directory(directory)
