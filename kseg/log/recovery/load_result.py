"""Load result: a log that was loaded, and mended on the disk, ready for appending.

The caller holds the lock of the data directory.

Source: Kafka `LogLoader.load`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kseg.log import epochs as leader_epochs
from kseg.log.epochs import LeaderEpochs
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.load import load_partition
from kseg.log.recovery.load_context import SNAPSHOT
from kseg.log.recovery.overlay import Applier
from kseg.log.recovery.plan import RecoveryInputs

if TYPE_CHECKING:
    from kseg.files import io
    from kseg.log.config import LogConfig
    from kseg.log.recovery.load_context import LoadContext, Progress

#: What to do where the disk is too full: an opening has no option for it, `recover` has one.
_OTHERWISE: Final = "free some room, or mend the log first by kseg recover --apply --no-backup"


class LoadedSegment(NamedTuple):
    """A segment of a loaded log, not opened yet. A tuple, since a log may have many.

    Attributes:
        base_offset: from the file's name.
        size: bytes of log; all of the file.
        offset_entries, time_entries: entries of its indexes that count, where a walk over the log
            found them; None to read them from the files.
    """

    base_offset: int
    size: int
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
        mended: whether files were changed for it.
    """

    segments: tuple[LoadedSegment, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    findings: tuple[Finding, ...] = ()
    mended: bool = False


def load(
    path: io.StrPath,
    *,
    config: LogConfig,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    keep_cut: bool = True,
    backup_directory: io.StrPath | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Load a partition directory, mend it on the disk, and return what it holds.

    A directory without a segment gets an empty one at the log's start.

    Args:
        path: the directory; it exists, and its data directory is locked by this process.
        config: of the log.
        clean: whether it was closed cleanly.
        recovery_point: what lies in front of it was flushed; 0 for not known.
        log_start_offset: of the checkpoint; 0 for none.
        now_ms: the clock.
        keep_cut: keep what is cut off the log beside the data directory.
        backup_directory: keep it there instead.
        progress: told how many bytes of log were walked, and how many there are to walk.

    Raises:
        KsegError: the log cannot be loaded.
        OSError: the disk refuses.

    Source: Kafka `LogLoader.load`.
    """
    directory = Path(path)
    inputs = RecoveryInputs(config, clean, max(recovery_point, 0), max(log_start_offset, 0), now_ms)
    backup = None
    if keep_cut:
        home = directory.resolve().parent
        backup = Backup(home, backup_directory, now_ms=now_ms, otherwise=_OTHERWISE)
    found = load_partition(directory, inputs, progress=progress)
    applier = Applier(directory, backup, derived=False)
    # The next writer has these producers in memory, and its next snapshot will have them.
    missing = found.apply(applier, lacking=f".{SNAPSHOT}")
    context, log = found.context, found.log
    assert log is not None
    places = log.snapshots.places()
    there = {offset: path for offset, path in places if os.path.basename(path) not in missing}
    if missing:
        log.producers.last_snapshot_offset = max(there, default=-1)
    epochs = LeaderEpochs(directory / leader_epochs.FILE_NAME, log.epochs.entries)
    epochs.dirty = log.epochs.dirty
    epochs.flush()
    return Loaded(
        tuple(_segment(context, base) for base in context.bases),
        log.log_start_offset,
        log.log_end_offset,
        log.recovery_point,
        epochs,
        log.producers,
        SnapshotFiles(directory, there.items()),
        tuple(context.findings),
        mended=applier.mended,
    )


def _segment(context: LoadContext, base: int) -> LoadedSegment:
    outcome = context.outcomes[base]
    if not outcome.walked:
        return LoadedSegment(base, outcome.keep_bytes)
    entries, times = outcome.index_entries, outcome.time_index_entries
    return LoadedSegment(base, outcome.keep_bytes, entries, times)


__all__ = ["Loaded", "LoadedSegment", "load"]
