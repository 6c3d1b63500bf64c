"""Recovery of a partition, so that it can be appended to: planned, then done on the disk.

    plan_recovery    loads the log in an overlay, and returns the steps; takes no lock
    RecoveryPlan     its `apply` reads the files again, loads again, and applies those steps
    recover          loads once under the lock, and applies the steps

A plan holds decisions, not bytes. Nothing is written before the last segment is swept. Then the
steps follow in the order in which they were decided, segment by segment: the log is cut and
flushed, its snapshot is written, then its indexes, the offset index last. The process may die at
any call: another load gives the same bytes in the end. Once the mark of a clean shutdown is gone,
these are the bytes of a load without the mark.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from kseg._door import renamed
from kseg.constants import INT64_MAX, Progress, StrPath
from kseg.documents import fields_of, frozen_dataclass
from kseg.errors import KsegError, NotALogError, TierError
from kseg.files import io, lock, metadata
from kseg.files.checkpoints import EpochEntry, TopicPartition, lower_clean_offset
from kseg.files.names import PathKind, classify_path, list_partition
from kseg.format.times import Time
from kseg.log import data_directory, index_rules
from kseg.log.clock import now_of
from kseg.log.config import ConfigLike, LogConfig
from kseg.log.findings import Finding
from kseg.log.pending_deletes import files_of_segment, least_bytes, refuse_less
from kseg.log.recovery.as_broker import AsBroker
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.load import Loading, load_partition
from kseg.log.recovery.load_context import CutPlace, RecoveryInputs, SegmentOutcome
from kseg.log.recovery.lost import Lost
from kseg.log.recovery.overlay import Applier
from kseg.log.recovery.plan import Action, CutReport, FileSeen, Plan, claimed
from kseg.log.tier.history import RemoteHistory, history_of, tiered, unreferenced
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike


#: The name of a log file, as a broker writes it.
_LOG_NAME: Final = re.compile(r"\d{20}\.log", re.ASCII)


class RecoveryReport(CutReport):
    """The result of a recovery."""

    __slots__ = ()
    plan: RecoveryPlan


@frozen_dataclass(repr=False)
class RecoveryPlan(Plan[RecoveryReport]):
    """The changes to a partition directory, and the log afterwards.

    Attributes:
        path: the partition.
        inputs: what the plan was made from.
        log_start_offset: the first offset to be read.
        log_end_offset: the next one to be given.
        recovery_point: records before it are on the disk.
        segments: present and removed segments, sorted by base offset.
        temporary_files: names of files that interrupted work left.
        actions: the changes, sorted by file.
        truncated_bytes: bytes of log that are removed, those of removed segments included.
        truncated_at: where the log is cut; None if it is not.
        lost: the records lost with them, for each place where a segment is cut and the segments
            after it are removed. Sound records there count, too.
        findings: the faults.
        epochs: leader epochs afterwards.
        snapshots: offsets of the producer snapshots afterwards.
        seen: the files that the plan was made for.
        error: why the log cannot be loaded, instead of all the offsets; None if it can.
        inflated: compressed messages of magic 0 and 1, by log file and position, that Kafka
            inflates to learn their offsets; known only `as_broker`.
        first_unstable_offset: where the oldest open transaction begins; None if none is open.
        ended_at: where a log with records ended, if its start is after that, so that all of it
            goes; None else.
        remote: its segments in a tier, with those of cut offsets; None if it has no tier.
    """

    REPORT = RecoveryReport

    path: str
    inputs: RecoveryInputs
    segments: tuple[SegmentOutcome, ...]
    findings: tuple[Finding, ...]
    seen: tuple[FileSeen, ...]
    inflated: tuple[tuple[str, int], ...] = ()
    log_start_offset: int = -1
    log_end_offset: int = -1
    recovery_point: int = -1
    temporary_files: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    truncated_bytes: int = 0
    truncated_at: CutPlace | None = None
    epochs: tuple[EpochEntry, ...] = ()
    snapshots: tuple[int, ...] = ()
    error: KsegError | None = field(default=None, compare=False)
    lost: tuple[Lost, ...] = ()
    first_unstable_offset: int | None = None
    ended_at: int | None = None
    remote: RemoteHistory | None = None

    @property
    def as_broker(self) -> bool:
        """Whether it predicts Kafka's own recovery."""
        return self.inputs.as_broker

    @property
    def clean(self) -> bool:
        """Whether the log counts as closed in good order."""
        return self.inputs.clean

    @property
    def start_fault(self) -> str | None:
        """The fault that the log starts beyond its end, and what follows; None if it does not."""
        if self.ended_at is None:
            return None
        return (
            f"log-start-offset-checkpoint says {self.inputs.log_start_offset}, the log ends at "
            f"{self.ended_at}: Kafka deletes all its records"
        )

    @property
    def start_advice(self) -> str:
        """Advice about `start_fault`; the last line is a command."""
        start = self.inputs.log_start_offset
        base = min(segment.base_offset for segment in self.segments)
        command = data_directory.lower_start(self.path, start, base)
        return f"Unless they were deleted up to {start} on purpose, correct the line:\n{command}"

    @property
    def is_noop(self) -> bool:
        """Whether no file would change."""
        return not self.actions and self.error is None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do, also for the mark of a clean stop."""
        home = Path(self.path).resolve().parent
        marked = metadata.read_clean_shutdown(home) is not None
        return self.is_noop and marked and _is_believed(self)

    @property
    def now_ms(self) -> int:
        """The time of the plan."""
        return self.inputs.now_ms

    @property
    def backup_bytes(self) -> int | None:
        """Bytes of the log that are removed; None if no file changes."""
        return None if self.is_noop else self.truncated_bytes

    @property
    def title(self) -> str:
        """The path, and the size of the change."""
        if self.error is not None:
            return f"{self.path}: cannot be loaded: {self.error}"
        if self.is_noop:
            return f"{self.path}: nothing to do"
        cut = f"{self.truncated_bytes} bytes of log are removed"
        return f"{self.path}: {len(self.actions)} actions, {cut}"

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
        yield from map(_loss_row, self.lost)
        yield (
            f"offsets {self.log_start_offset} to {self.log_end_offset}, recovery point "
            f"{self.recovery_point}"
        )
        if self.remote is not None:
            yield from self.remote.lines(Path(self.path).name)

    def check(self) -> None:
        """Refuse a log that cannot be loaded, or is not to be changed.

        Raises:
            KsegError: it is `error`.
            NotALogError: it is the log of KRaft.
            TierError: a broker would delete segments of the tier.
        """
        if self.error is not None:
            raise self.error
        Plan.check(self)
        remote = tiered(self.path, self.inputs.tier) if self.as_broker else None
        deleted = remote and unreferenced(remote, self.epochs, self.inputs.log_start_offset)
        if deleted:
            raise TierError(
                f"the broker deletes {len(deleted)} segments of the tier after its own recovery, "
                "since leader-epoch-checkpoint has lost their epochs; kseg recover without "
                "--as-broker keeps them",
                path=self.path,
            )

    def do(
        self, backup: Backup | None, progress: Progress | None, *, loaded: Loading | None = None
    ) -> RecoveryReport:
        """Take the steps of the plan; afterwards the log is as a clean shutdown leaves it.

        If the directory has lost its mark of a clean shutdown, the mark comes back when all its
        partitions were recovered or loaded within one lease.

        Args:
            backup, progress: as for `Plan.do`.
            loaded: the load that the plan was made of; None to load the log now.

        Raises:
            LogLockedError: another process, or a log of this one, writes there.
            OSError: the disk refuses, or is too full for the new files even after the old ones go.
        """
        directory = Path(self.path)
        if not self.is_noop:
            _check_room(self)
        applier = Applier(directory, None if self.is_noop else backup, derived=True)
        marked = metadata.read_clean_shutdown(directory.resolve().parent) is not None
        with claimed(self) as lease:
            lease.mark_loaded()
            if not self.is_noop:
                lease.forget_broker_epoch()
                io.flush_directory(lease.path)  # checkpoints decide which files are removed
                (loaded or _load(directory, self.inputs, progress)).apply(applier)
                lower_clean_offset(directory, _name_in_checkpoints(directory), self.log_end_offset)
            _flush(directory, self.inputs.recovery_point)
            if not self.as_broker:  # Kafka leaves the recovery point as it is
                lease.note(_name_in_checkpoints(directory), recovery_point=self.log_end_offset)
            if not _is_believed(self):
                lease.leave(clean=False)
            elif not marked:
                with suppress(OSError):  # without the note the next run reads the log again
                    note(directory)
        return RecoveryReport(self, freed_bytes=applier.freed_bytes)

    def __str__(self) -> str:
        """The path and the lines."""
        return "\n".join((f"{self.path}:", *(f"  {row}" for row in self.rows())))

    def to_json(self, *, applied: bool = False) -> dict[str, Any]:
        """The document of `kseg recover --json`, without its schema.

        Args:
            applied: whether the plan was applied, for the document.
        """
        return {
            "applied": applied,
            **fields_of(
                self,
                "path as_broker clean log_start_offset log_end_offset recovery_point"
                " truncated_bytes truncated_at lost segments leftovers=temporary_files actions",
            ),
            "findings": [finding.noted() for finding in self.findings],
            "epochs": [list(entry) for entry in self.epochs],
            **fields_of(self, "snapshots remote"),
            "error": None if self.error is None else str(self.error),
        }


def _loss_row(lost: Lost) -> str:
    text = f"{lost.extent} go with {Path(lost.path).name} @ {lost.position}"
    if lost.sound_behind:
        text += f"; {lost.sound_batches} after the damage are lost, too: kseg salvage keeps them"
    return text


class RecoveryOptions(TypedDict, total=False):
    """How a log is recovered, for `plan_recovery` and `recover`.

    Attributes:
        as_broker: plan exactly Kafka's own recovery, and report no more. Otherwise check more and
            cut less; `kseg.log.recovery.load` lists the differences.
        clean: whether the log was closed cleanly; None to look for the mark beside the directory.
        recovery_point: records before it were flushed; None to read the checkpoint.
        log_start_offset: the first readable offset; None to read the checkpoint.
        config: the settings of the log; None for Kafka's defaults.
        now: the time that counts as now, in ms or as other times; None to ask the clock.
        tier: as for `plan_retention`.
    """

    as_broker: bool
    clean: bool | None
    recovery_point: int | None
    log_start_offset: int | None
    config: ConfigLike | None
    now: Time | None
    tier: TierLike | None


@renamed(now_ms="now")
def plan_recovery(
    path: StrPath,
    *,
    thorough: bool = True,
    progress: Progress | None = None,
    **options: Unpack[RecoveryOptions],
) -> RecoveryPlan:
    """Plan a start on a partition directory; changes nothing.

    Args:
        path: the directory, or a `Log`.
        thorough: search the headers of segments without a transaction index for aborted
            transactions, which takes time; a broker does not.
        progress: called with the bytes of log walked so far, and in all.
        options: see `RecoveryOptions`: as_broker, clean, recovery_point, log_start_offset, config,
            now, tier.

    Raises:
        TypeError: there is no such option.
        ValueError: an offset has more than 64 bits.
        TierError: what a tier says of its segments cannot be used.
        NotALogError: not a partition directory.
        OSError: it cannot be read.
    """
    directory = local_path_at(path)
    inputs = _inputs(directory, options, thorough=thorough)
    return _plan_of(_load(directory, inputs, progress, is_plan=True))


def _inputs(directory: Path, options: RecoveryOptions, *, thorough: bool = True) -> RecoveryInputs:
    """The options as inputs; facts that they lack are read from the data directory."""
    unknown = sorted(options.keys() - RecoveryOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} of a recovery")
    names = os.listdir(directory) if directory.is_dir() else ()
    has_log = any(_LOG_NAME.fullmatch(name) for name in names)  # most partitions have one
    if not (has_log or classify_path(directory).kind is PathKind.PARTITION):
        raise NotALogError("not a partition directory", path=directory)
    stated = {name: options.get(name) for name in ("clean", "recovery_point", "log_start_offset")}
    facts: dict[str, Any] = {name: fact for name, fact in stated.items() if fact is not None}
    if len(facts) < len(stated):
        facts = asdict(data_directory.offsets_beside(directory)) | facts
    point, start = facts["recovery_point"], facts["log_start_offset"]
    if max(point, start) > INT64_MAX:
        raise ValueError(f"an offset has 64 bits, unlike {max(point, start)}")
    as_broker = options.get("as_broker", False)
    return RecoveryInputs(
        config=LogConfig.of(options.get("config")),
        clean=facts["clean"],
        recovery_point=max(point, 0),
        log_start_offset=max(start, 0),
        now_ms=now_of(options.get("now")),
        as_broker=as_broker,
        thorough=thorough and not as_broker,
        tier=options.get("tier"),
    )


def _load(
    directory: Path, inputs: RecoveryInputs, progress: Progress | None, *, is_plan: bool = False
) -> Loading:
    """Load in kseg's own way, or exactly as Kafka does."""
    policy = AsBroker if inputs.as_broker else None
    return load_partition(directory, inputs, policy=policy, progress=progress, is_plan=is_plan)


def _plan_of(loaded: Loading) -> RecoveryPlan:
    """The plan that follows from a load in an overlay."""
    log = loaded.log
    remote = tiered(loaded.overlay.directory, loaded.inputs.tier)
    end = INT64_MAX if log is None else log.log_end_offset
    plan = RecoveryPlan(
        path=str(loaded.overlay.directory),
        inputs=loaded.inputs,
        segments=tuple(loaded.outcomes[base] for base in sorted(loaded.outcomes)),
        findings=tuple(loaded.findings),
        seen=loaded.overlay.seen,
        inflated=tuple(loaded.inflated),
        error=loaded.error,
        ended_at=loaded.ended_at if loaded.cut_bytes else None,
        remote=None if remote is None else history_of(remote, end=end),
    )
    if log is None:
        return plan
    return replace(
        plan,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        recovery_point=log.recovery_point,
        temporary_files=loaded.temporary_files,
        actions=loaded.overlay.changes(),
        truncated_bytes=loaded.cut_bytes,
        truncated_at=loaded.cut,
        lost=loaded.lost(),
        epochs=log.epochs.entries,
        snapshots=log.snapshots.offsets,
        first_unstable_offset=log.producers.first_unstable_offset,
    )


def _name_in_checkpoints(directory: Path) -> TopicPartition | None:
    """The partition of a log in checkpoints; None for a stray log beside the partition's own.

    Both would have the same line in each checkpoint.
    """
    partition = data_directory.partition_of(directory)
    if partition is None:
        return None
    directory = directory.resolve()
    partition_directory = directory.with_name(f"{partition.topic}-{partition.partition}")
    return None if partition_directory != directory and partition_directory.exists() else partition


def _is_believed(plan: RecoveryPlan) -> bool:
    """Whether Kafka may use the indexes unchanged: its own load leaves unused entries in them."""
    return not plan.as_broker or index_rules.is_as_closed(plan.path)


def _check_room(plan: RecoveryPlan) -> None:
    """Refuse a plan whose new files do not fit on the disk."""
    directory = Path(plan.path)
    block = os.statvfs(directory).f_frsize
    written = [action.bytes for action in plan.actions if action.action in ("create", "replace")]
    needed = sum(-(-size // block) * block for size in written) + least_bytes(directory)
    if io.has_room(directory, needed):
        return
    freed = 0
    for action in plan.actions:
        if action.action in ("delete", "replace"):
            freed += io.bytes_given_back(action.path)
        elif action.action == "truncate":
            size = os.stat(action.path).st_size
            freed += io.bytes_given_back(action.path, cut_at=size - action.bytes)
    refuse_less(directory, freed, "what goes", needed=needed)


def _flush(directory: Path, recovery_point: int) -> None:
    """Flush the files that a dead process may not have flushed, before the mark says that they are.

    Records below the recovery point are on the disk already. Only the trimmed size of the segment
    before it may not be.
    """
    files = list_partition(directory)
    bases = [segment.base_offset for segment in files.segments]
    first = bases[max(bisect_right(bases, recovery_point) - 2, 0)] if bases else 0
    names = [
        path
        for segment in files.segments
        if segment.base_offset >= first
        for path in files_of_segment(segment)
    ]
    names += [snapshot.path for snapshot in files.snapshots]
    for name in names:
        with io.WriteFile.open(name) as file:
            file.flush()
    io.flush_directory(directory)


@renamed(now_ms="now")
def recover(
    path: StrPath,
    *,
    backup_directory: StrPath | None = None,
    keep_cut: bool = True,
    progress: Progress | None = None,
    **options: Unpack[RecoveryOptions],
) -> RecoveryReport:
    """`plan_recovery` and its `apply` in one, under the lock of the data directory.

    Each segment is walked once. A partition that an interrupted run has put in order, and whose
    files are the same since, is not walked again (`is_noted`).

    Args:
        path: the partition directory.
        backup_directory: the place for cut and replaced bytes; beside the data directory if None.
        keep_cut: whether to keep it at all.
        progress: is called with bytes done and bytes in all.
        options: see `RecoveryOptions`: as_broker, clean, recovery_point, log_start_offset, config,
            now, tier.

    Returns:
        The result, with the plan that was applied.

    Raises:
        TypeError: there is no such option.
        ValueError: an offset has more than 64 bits.
        LogLockedError: a broker, or another writer, holds the data directory.
        NotALogError: the path is not a partition directory.
        KsegError: the log cannot be brought in order; nothing is changed.
        OSError: the disk refuses; run it again.
    """
    directory = local_path_at(path)
    io.check_new_files(directory)
    with lock.acquire(directory.resolve().parent):
        decided = options.get("clean") is not None or options.get("as_broker", False)
        if not decided and is_noted(directory):
            options["clean"] = True
        loaded = _load(directory, _inputs(directory, options), progress, is_plan=True)
        return _plan_of(loaded).apply(keep=keep_cut, backup=backup_directory, loaded=loaded)


# ---- partitions that an interrupted recovery has finished ----------------------------------------
# Once all files of a partition are on the disk, `recover` appends a line to `.kseg-recovered` in
# the data directory: the partition's name, and a digest of the names, sizes, times of modification
# and change, inodes and devices of its files. The next run does not read a partition again whose
# files still have this digest: it is as after a clean stop. A disk that changes bytes by itself
# changes none of these. The lease removes the file when it writes the mark of a clean shutdown. A
# broker does not look at the file.

_NOTES_BYTES_MAX = 1 << 28


def note(directory: Path) -> None:
    """Note in `.kseg-recovered` that all files of a partition are recovered, and on the disk.

    Raises:
        OSError: the note could not be written.
    """
    directory = directory.resolve()
    if is_noted(directory):
        return
    with io.WriteFile.open(directory.parent / metadata.RECOVERED_NAME, create=True) as file:
        file.write_at(file.size, b"\n" + _line_of(directory) + b"\n")  # the line before may be torn
        file.flush()


def is_noted(directory: Path) -> bool:
    """Whether the last note of a partition describes its files as they are now."""
    directory = directory.resolve()
    try:
        notes = io.read_file(directory.parent / metadata.RECOVERED_NAME, bytes_max=_NOTES_BYTES_MAX)
    except (KsegError, OSError):
        return False
    line = _line_of(directory)
    at = notes.rfind(b"\n" + line[: line.index(b" ") + 1])  # its last line
    return at >= 0 and notes.startswith(line + b"\n", at + 1)


def _line_of(directory: Path) -> bytes:
    """A line with the partition's name, and a digest of the `stat` of each of its files."""
    files = []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            seen = entry.stat(follow_symlinks=False)
            times = (seen.st_mtime_ns, seen.st_ctime_ns)
            files.append([entry.name, seen.st_size, *times, seen.st_ino, seen.st_dev])
    digest = blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()
    return f"{directory.name} {digest}".encode(errors="surrogateescape")
