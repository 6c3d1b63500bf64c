"""The plan of a recovery, as values to print, compare and apply.

Source: Kafka `LogLoader`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.errors import KsegError
from kseg.files.checkpoints import EpochEntry
from kseg.log.config import LogConfig
from kseg.log.data_directory import lower_start
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.lost import Lost

if TYPE_CHECKING:
    from kseg.log.recovery.overlay import Action, FileSeen


@dataclass(frozen=True, slots=True)
class RecoveryInputs:
    """The inputs of a recovery.

    Attributes:
        config: of the log.
        clean: whether it was closed in good order.
        recovery_point: records in front of it were flushed; 0 if not known.
        log_start_offset: of the checkpoint; 0 for none.
        now_ms: the clock.
        as_broker: do just what Kafka 4.2.0 does, and report no more.
        thorough: search the headers of segments without a transaction index for aborted
            transactions. That takes time, so an opening for appending does not.
    """

    config: LogConfig
    clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    as_broker: bool = False
    thorough: bool = False


@dataclass(frozen=True, slots=True)
class CutPlace:
    """Where the log is cut.

    Attributes:
        path: the log file.
        position: byte in it.
        offset: the next one to be given.
    """

    path: str
    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """The outcome for one segment.

    Attributes:
        base_offset: from the file's name.
        size: bytes of log before.
        keep_bytes: bytes of log afterwards; 0 too for a segment that goes.
        index_entries, time_index_entries: entries of its indexes afterwards.
        walked: whether the log is swept, and its derived files are corrected.
        goes: whether the whole segment goes.
        why: it is walked, cut or goes.
    """

    base_offset: int
    size: int
    keep_bytes: int
    index_entries: int
    time_index_entries: int
    walked: bool = False
    goes: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The changes to a partition directory, and the log afterwards.

    Attributes:
        path: the partition.
        inputs: of the plan.
        log_start_offset: the first offset to be read.
        log_end_offset: the next one to be given.
        recovery_point: records in front of it are on the disk.
        segments: those that are there, and those that go, by base offset.
        temporary_files: names of files that interrupted work left.
        actions: what changes, by file.
        truncated_bytes: bytes of log that go, those of whole segments included.
        truncated_at: where the log is cut; None if it is not.
        lost: what goes with that, for each place where a segment is cut and the segments that go
            behind it. What was sound there counts, too.
        findings: what is not as it should be.
        epochs: leader epochs afterwards.
        snapshots: offsets of the producer snapshots afterwards.
        seen: the files that the plan was made for.
        error: why the log cannot be loaded, instead of all the offsets; None if it can.
        inflated: compressed messages of magic 0 and 1, by log file and position, that Kafka
            inflates to learn their offsets; only told `as_broker`.
        first_unstable_offset: where the oldest open transaction begins; None without one.
        ended_at: where a log with records ended, if its start lies behind that, so that all of it
            goes; None else.
    """

    path: str
    inputs: RecoveryInputs
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    segments: tuple[SegmentOutcome, ...]
    temporary_files: tuple[str, ...]
    actions: tuple[Action, ...]
    truncated_bytes: int
    truncated_at: CutPlace | None
    findings: tuple[Finding, ...]
    epochs: tuple[EpochEntry, ...]
    snapshots: tuple[int, ...]
    seen: tuple[FileSeen, ...]
    error: KsegError | None = field(default=None, compare=False)
    lost: tuple[Lost, ...] = ()
    inflated: tuple[tuple[str, int], ...] = ()
    first_unstable_offset: int | None = None
    ended_at: int | None = None

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The former name of `temporary_files`."""
        warnings.warn("RecoveryPlan.leftovers is temporary_files", DeprecationWarning, stacklevel=2)
        return self.temporary_files

    @property
    def as_broker(self) -> bool:
        """Whether it says what Kafka would do."""
        return self.inputs.as_broker

    @property
    def clean(self) -> bool:
        """Whether the log counts as closed in good order."""
        return self.inputs.clean

    @property
    def start_fault(self) -> str | None:
        """That the log starts behind its end, and what follows; None if it does not."""
        if self.ended_at is None:
            return None
        return (
            f"log-start-offset-checkpoint says {self.inputs.log_start_offset}, the log ends at "
            f"{self.ended_at}: Kafka deletes all its records"
        )

    @property
    def start_advice(self) -> str:
        """What to do about `start_fault`; the last line is a command."""
        start = self.inputs.log_start_offset
        base = min(each.base_offset for each in self.segments)
        command = lower_start(self.path, start, base)
        return f"Unless they were deleted up to {start} on purpose, correct the line:\n{command}"

    @property
    def is_noop(self) -> bool:
        """Whether no file would change."""
        return not self.actions and self.error is None

    def rows(self) -> Iterator[str]:
        """The plan as lines of text."""
        if self.error is not None:
            yield f"cannot be loaded: {self.error}"
            return
        for finding in self.findings:
            yield str(finding)
        for action in self.actions:
            target = f" to {Path(action.target).name}" if action.target else ""
            size = f"{action.bytes} bytes"
            yield f"{action.action} {Path(action.path).name}{target}, {size}: {action.why}"
        if self.truncated_at is not None:
            cut = self.truncated_at
            yield (
                f"the log is cut at offset {cut.offset}, {Path(cut.path).name} @ {cut.position}: "
                f"{self.truncated_bytes} bytes go"
            )
        yield from map(_told, self.lost)
        yield (
            f"offsets {self.log_start_offset} to {self.log_end_offset}, recovery point "
            f"{self.recovery_point}"
        )

    def __repr__(self) -> str:
        """One line; `print` gives them all."""
        return f"{type(self).__name__}({str(self.path)!r}, is_noop={self.is_noop})"

    def __str__(self) -> str:
        """The path and the lines."""
        return "\n".join((f"{self.path}:", *(f"  {row}" for row in self.rows())))

    def to_json(self, *, applied: bool = False) -> dict[str, Any]:
        """As in `kseg recover --json`, but for its schema.

        Args:
            applied: what the document says of itself: whether the plan was carried out.
        """
        segments = [
            {
                "base_offset": segment.base_offset,
                "size": segment.size,
                "keep_bytes": segment.keep_bytes,
                "index_entries": segment.index_entries,
                "time_index_entries": segment.time_index_entries,
                "why": segment.why,
            }
            for segment in self.segments
        ]
        return {
            "applied": applied,
            "path": self.path,
            "as_broker": self.as_broker,
            "clean": self.clean,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "recovery_point": self.recovery_point,
            "truncated_bytes": self.truncated_bytes,
            "truncated_at": None if self.truncated_at is None else asdict(self.truncated_at),
            "lost": [lost.to_dict() for lost in self.lost],
            "segments": segments,
            "leftovers": list(self.temporary_files),
            "actions": [asdict(action) for action in self.actions],
            "findings": [finding.noted() for finding in self.findings],
            "epochs": [list(entry) for entry in self.epochs],
            "snapshots": list(self.snapshots),
            "error": None if self.error is None else str(self.error),
        }


def _told(lost: Lost) -> str:
    text = f"{lost.extent} go with {Path(lost.path).name} @ {lost.position}"
    if lost.sound_behind:
        text += f"; {lost.sound_batches} behind the damage go, too: kseg salvage keeps them"
    return text


__all__ = [
    "CutPlace",
    "RecoveryInputs",
    "RecoveryPlan",
    "SegmentOutcome",
]
