"""What has to be done to a partition directory before its log can be appended to, as a plan.

A plan changes nothing, and takes no lock: it is what carrying it out would come to if no file
changed in between. `kseg.log.recovery.recover` carries it out.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from errno import EIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import CorruptIndexError, KsegError, NotALogError, UnreadableError
from kseg.files import checkpoints, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind, parse_partition_dir
from kseg.log.config import INT64_MAX, LogConfig
from kseg.log.recovery import as_broker as broker_loader
from kseg.log.recovery import load as loader
from kseg.log.recovery.load_context import LoadContext, LoadedLog
from kseg.log.recovery.overlay import Action, FileSeen, Overlay
from kseg.log.recovery.plan_values import (
    CutPlace,
    RecoveryFinding,
    RecoveryInputs,
    RecoveryPlan,
    SegmentOutcome,
)

if TYPE_CHECKING:
    from kseg.files.io import StrPath
    from kseg.log.recovery.load_context import Progress


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What loading a log came to, in an overlay or on the disk.

    Attributes:
        context: what was worked with.
        log: what it came to; None where it cannot be loaded.
        leftovers: names of what interrupted work had left.
        error: why it cannot be loaded.
        missing: names of snapshots for which a full disk had no room.
    """

    context: LoadContext
    log: LoadedLog | None
    leftovers: tuple[str, ...]
    error: KsegError | None
    missing: frozenset[str] = frozenset()

    @property
    def freed_bytes(self) -> int:
        """What the disk got back; nothing in an overlay."""
        applier = self.context.overlay.applier
        return 0 if applier is None else applier.freed_bytes


def load_partition(
    overlay: Overlay, inputs: RecoveryInputs, *, progress: Progress | None = None
) -> LoadResult:
    """Take all the steps, in an overlay or, if that has an applier, on the disk.

    Raises:
        OSError: the disk refuses.
    """
    context = LoadContext(overlay, inputs, progress)
    load = broker_loader.load if inputs.as_broker else loader.load
    try:
        log, leftovers = load(context)
    except KsegError as error:
        return LoadResult(context, None, (), error)
    except OSError as error:
        if error.errno != EIO or overlay.applier is not None:
            raise
        unreadable = UnreadableError(f"the disk does not give it: {error.strerror}")
        unreadable.path = None if error.filename is None else os.fsdecode(error.filename)
        return LoadResult(context, None, (), unreadable)
    return LoadResult(context, log, leftovers, None)


def plan_recovery(
    path: StrPath,
    *,
    as_broker: bool = False,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    config: LogConfig | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> RecoveryPlan:
    """Say what a start would do to a partition directory; changes nothing.

    Args:
        path: the directory.
        as_broker: say just what Kafka 4.2.0 would do. Else look at more and throw less away; what
            differs stands in `kseg.log.recovery.load`.
        clean: whether the log was closed in good order; as the mark beside the directory says if
            None.
        recovery_point: what lies in front of it was flushed; as the checkpoint says if None.
        log_start_offset: the first offset to be read; as the checkpoint says if None.
        config: of the log; Kafka's defaults if None.
        now_ms: the clock.
        progress: told how many bytes of log were walked, and how many there are to walk.

    Raises:
        ValueError: an offset has more than 64 bits.
        NotALogError: not a partition directory.
        OSError: it cannot be read.
    """
    directory = Path(path)
    if not directory.is_dir():
        os.stat(directory)
        raise NotALogError("not a partition directory", path=path)
    told = told_by_data_directory(directory)
    point = told.recovery_point if recovery_point is None else recovery_point
    start = told.log_start_offset if log_start_offset is None else log_start_offset
    if max(point, start) > INT64_MAX:
        raise ValueError(f"an offset has 64 bits, unlike {max(point, start)}")
    inputs = RecoveryInputs(
        config=config or LogConfig(),
        clean=told.clean if clean is None else clean,
        recovery_point=max(point, 0),
        log_start_offset=max(start, 0),
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        as_broker=as_broker,
        thorough=not as_broker,
    )
    return plan_of(directory, inputs, progress=progress)


def plan_of(
    directory: Path, inputs: RecoveryInputs, *, progress: Progress | None = None
) -> RecoveryPlan:
    """`plan_recovery`, with everything given."""
    overlay = Overlay(directory)
    return as_plan(load_partition(overlay, inputs, progress=progress))


def as_plan(ordered: LoadResult) -> RecoveryPlan:
    """What was found out in an overlay."""
    context, log = ordered.context, ordered.log
    failed = log is None
    return RecoveryPlan(
        path=str(context.overlay.directory),
        inputs=context.inputs,
        log_start_offset=-1 if log is None else log.log_start_offset,
        log_end_offset=-1 if log is None else log.log_end_offset,
        recovery_point=-1 if log is None else log.recovery_point,
        segments=tuple(context.outcomes[base] for base in sorted(context.outcomes)),
        leftovers=ordered.leftovers,
        actions=() if failed else context.overlay.changes(),
        truncated_bytes=0 if failed else context.cut_bytes,
        truncated_at=None if failed else context.cut,
        lost=() if failed else context.lost(),
        findings=tuple(context.findings),
        epochs=() if log is None else log.epochs.entries,
        snapshots=() if log is None else log.snapshots.offsets,
        seen=context.overlay.seen,
        error=ordered.error,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """What a data directory says about one of its partitions."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


#: The checkpoints, in the order of `Told`.
_TOLD: Final = (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION)


def told_by_data_directory(directory: Path) -> Told:
    """The mark of a clean shutdown and the checkpoints; one that cannot be read says nothing."""
    resolved = directory.resolve()
    home = resolved.parent
    clean = False
    with suppress(OSError, KsegError):
        clean = metadata.read_clean_shutdown(home) is not None
    offsets = [0] * len(_TOLD)
    with suppress(NotALogError):
        name = parse_partition_dir(resolved.name)
        partition = TopicPartition(name.topic, name.partition)
        for number, kind in enumerate(_TOLD):
            with suppress(OSError, CorruptIndexError):
                read = checkpoints.read_offset_checkpoint(home / kind.value)
                offsets[number] = read.offsets.get(partition, 0)
    return Told(clean, *offsets)


__all__ = [
    "Action",
    "CutPlace",
    "FileSeen",
    "LoadResult",
    "RecoveryFinding",
    "RecoveryInputs",
    "RecoveryPlan",
    "SegmentOutcome",
    "Told",
    "as_plan",
    "load_partition",
    "plan_of",
    "plan_recovery",
    "told_by_data_directory",
]
