"""What a log is when it is opened for appending: its files in order, and what they come to.

The caller holds the lock of the data directory.

Source: Kafka `LogLoader.load`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import UnsupportedFormatError
from kseg.files import io
from kseg.files.names import list_partition, segment_name
from kseg.log import epochs as leader_epochs
from kseg.log.epochs import LeaderEpochs
from kseg.log.producers import ProducerState
from kseg.log.segment import Segment
from kseg.log.segment_walks import next_offset
from kseg.log.snapshots import SegmentSource, SnapshotFiles, rebuild

if TYPE_CHECKING:
    from kseg.log.config import LogConfig

_NO_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment of a log that was loaded, not opened yet.

    Attributes:
        base_offset: from the file's name.
        size: bytes of log; all of the file.
        path: the log file.
        offset_entries, time_entries: entries of its indexes that count, where the log was walked to
            find out; None to look at the files.
    """

    base_offset: int
    size: int
    path: Path
    offset_entries: int | None = None
    time_entries: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A log as loading leaves it.

    Attributes:
        segments: rising, never none; the last one is to be appended to.
        log_start_offset: the first offset to be read.
        log_end_offset: the next one to be given.
        recovery_point: what lies in front of it is on the disk.
        epochs: of the log; the file may say more until `flush`.
        producers: at the log's end.
        snapshots: that are there.
        findings: what was found and mended, or left as it is.
    """

    segments: tuple[LoadedSegment, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    findings: tuple[str, ...] = ()


def load(
    path: io.StrPath,
    *,
    config: LogConfig,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> Loaded:
    """Bring a partition directory into order and say what is in it.

    A directory without a segment gets an empty one at the log's start.

    Args:
        path: the directory; it exists, and its data directory is locked by this process.
        config: of the log.
        clean: whether it was closed in good order.
        recovery_point: what lies in front of it was flushed; 0 for not known.
        log_start_offset: of the checkpoint; 0 for none.
        now_ms: the clock.

    Raises:
        KsegError: the log cannot be loaded.
        OSError: the disk refuses.
    """
    directory = Path(path)
    files = list_partition(directory)
    if any(segment.kafka07 for segment in files.segments):
        raise UnsupportedFormatError("Kafka 0.7 has no log that can be appended to", path=directory)
    if not files.segments:
        name = directory / segment_name(log_start_offset)
        io.WriteFile.open(name, exclusive=True).close()
        io.flush_directory(directory)
        files = list_partition(directory)
    segments = tuple(
        LoadedSegment(segment.base_offset, os.stat(segment.log).st_size, segment.log)
        for segment in files.segments
    )
    end = _log_end(segments[-1])
    start = max(log_start_offset, segments[0].base_offset)
    epochs = LeaderEpochs.load(directory / leader_epochs.FILE_NAME)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start_offset)
    snapshots = SnapshotFiles.of(files)
    snapshots.remove_stray([segment.base_offset for segment in segments])
    producers = ProducerState(
        expiration_ms=config.producer_id_expiration_ms,
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
    )
    rebuild(
        producers,
        snapshots,
        _sources(segments),
        log_start_offset=start,
        end_offset=end,
        now_ms=now_ms,
        clean=clean,
        magic=config.message_format_magic,
    )
    return Loaded(
        segments,
        start,
        end,
        max(start, end if clean else min(recovery_point, end)),
        epochs,
        producers,
        snapshots,
    )


def _log_end(last: LoadedSegment) -> int:
    with Segment.open(last.path, mapping="never", is_last=True) as segment:
        return next_offset(segment, _NO_OFFSET)


def _sources(segments: Sequence[LoadedSegment]) -> list[SegmentSource]:
    return [
        SegmentSource(
            segment.base_offset, partial(Segment.open, segment.path, mapping="never", is_last=False)
        )
        for segment in segments
    ]


__all__ = ["Loaded", "LoadedSegment", "load"]
