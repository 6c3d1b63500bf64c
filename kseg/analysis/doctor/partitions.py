"""The load of one partition: Kafka's own steps in an overlay, and their costs.

`kseg.log.recovery` has the steps, and differential tests compare them with Kafka's classes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kseg import Segment, plan_recovery
from kseg.analysis.doctor.kraft import of_snapshots
from kseg.analysis.doctor.values import PartitionOutlook, count_records
from kseg.analysis.doctor.words import BrokerFinding, Outcome, advice, finding
from kseg.constants import INT64_MAX, Compression, StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KsegError,
    LimitExceededError,
    NotALogError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    TierError,
    TransactionCoordinatorFencedError,
    UnreadableError,
    os_reason,
)
from kseg.files import checkpoints, io, metadata
from kseg.files.checkpoints import EpochEntry
from kseg.files.mapping import held_by_another
from kseg.files.names import (
    FileKind,
    PartitionFiles,
    SegmentFiles,
    list_partition,
    segment_name,
)
from kseg.log import index_rules
from kseg.log.config import LogConfig
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.tier import Tier, tiered, unreferenced, with_tier_epochs
from kseg.reports import RecoveryPlan

#: Error of kseg -> Kafka's exception; the first that fits counts.
_EXCEPTIONS: Final = (
    (CorruptRecordError, "CorruptRecordException"),
    (OffsetsOutOfOrderError, "InvalidOffsetException"),
    (NotALogError, "NumberFormatException"),
    (LimitExceededError, "IllegalArgumentException"),
    (InvalidTxnStateError, "InvalidTxnStateException"),
    (OutOfOrderSequenceError, "OutOfOrderSequenceException"),
    (InvalidProducerEpochError, "InvalidProducerEpochException"),
    (TransactionCoordinatorFencedError, "TransactionCoordinatorFencedException"),
    (InvalidRecordError, "InvalidRecordException"),
    (UnreadableError, "IOException"),
)
#: Errors of input and output, which take one directory offline.
_OF_DISK: Final = frozenset({"IOException", "KafkaStorageException"})

_CODEC_MASK: Final = 7
_MAGIC_AT, _LEGACY_ATTRIBUTES_AT, _HEAD_BYTES = 16, 17, 18


#: Offsets without records: the first one, the one after the last, and why, for a reader.
_Missing = tuple[int, int, str]


@frozen_dataclass
class PartitionUnit:
    """One partition to examine, with the mark and the checkpoints of its data directory.

    Attributes:
        path: its directory.
        clean, recovery_point, log_start_offset: as the mark and the checkpoints say.
        config: the configuration of its log.
        now_ms: the clock.
        cost: the bytes of log to read, roughly.
        known_end: the largest offset that the checkpoints have of it; None if they have none.
        known_start: whether the checkpoint of log starts has it, or does not exist.
        compacted: whether its topic is known to be compacted, or internal.
    """

    path: str
    clean: bool
    recovery_point: int
    log_start_offset: int
    config: LogConfig
    now_ms: int
    cost: int
    known_end: int | None = None
    known_start: bool = True
    compacted: bool = False


def exception_of(error: BaseException) -> str | None:
    """Kafka's exception for a load that failed; None if it is not known."""
    if isinstance(error, OSError):
        return "IOException"
    if isinstance(error, KsegError) and error.kafka_exception is not None:
        return error.kafka_exception
    return next((name for kind, name in _EXCEPTIONS if isinstance(error, kind)), None)


def outcome_of(exception: str | None) -> Outcome:
    """The outcome of an exception of a load."""
    if exception is None:
        return Outcome.UNKNOWN
    return Outcome.OFFLINE if exception in _OF_DISK else Outcome.FAILS


def examine(unit: PartitionUnit) -> PartitionOutlook:
    """Load a partition as Kafka does, in an overlay; changes nothing.

    A file that cannot be read is a finding, not an error.
    """
    entry = entry_of(Path(unit.path))
    begin = time.perf_counter()
    try:
        plan = _plan(unit, as_broker=True)
        findings = [
            *_of_load(unit, plan),
            *_of_file(unit.path, FileKind.PARTITION_METADATA, metadata.read_partition_metadata),
        ]
        if entry.kind in (EntryKind.LOG, EntryKind.FUTURE):  # only from these does retention delete
            findings.extend(_of_unused_times(unit))
        if entry.kind is EntryKind.LOG and plan.error is None and plan.start_fault is None:
            findings.extend(_of_missing(unit, plan))
        if entry.kind is EntryKind.CLUSTER_METADATA:
            findings.extend(_of_file(unit.path, FileKind.QUORUM_STATE, metadata.check_quorum_state))
            findings.extend(of_snapshots(unit.path))
        if plan.error is None:
            findings.extend(_of_tier(unit, plan))
        if plan.error is None and unit.clean and entry.kind is EntryKind.LOG:
            findings.extend(_of_hidden(unit, plan) if plan.start_fault is None else ())
            findings.extend(_of_old_messages(plan))
        if entry.kind is EntryKind.DELETE:  # its records go in any case
            findings = [item for item in findings if item.outcome is not Outcome.STARTS]
        numbers = _outlook_fields(plan)
    except (KsegError, OSError) as error:
        findings = [_failure(error, unit.path)]
        numbers = {}
    topic, partition = entry.partition or (None, None)
    return PartitionOutlook(
        unit.path,
        topic,
        partition,
        entry.kind.value,
        Outcome.worst(item.outcome for item in findings),
        seconds=time.perf_counter() - begin if numbers else 0.0,
        findings=tuple(findings),
        **numbers,
    )


def _plan(unit: PartitionUnit, *, as_broker: bool) -> RecoveryPlan:
    """The recovery that a start would make: Kafka's with `as_broker`, else kseg's."""
    return plan_recovery(
        unit.path,
        thorough=False,
        as_broker=as_broker,
        clean=unit.clean,
        recovery_point=unit.recovery_point,
        log_start_offset=unit.log_start_offset,
        config=unit.config,
        now=unit.now_ms,
    )


def _outlook_fields(plan: RecoveryPlan) -> dict[str, Any]:
    """The fields of an outlook about the bytes that a load reads, cuts off and writes."""
    walked = [segment for segment in plan.segments if segment.walked]
    logs = [file for file in plan.seen if file.name.endswith(f".{FileKind.LOG.value}")]
    deletions = (action for action in plan.actions if action.action == "delete")
    deletes = any(action.path.endswith(f".{FileKind.LOG.value}") for action in deletions)
    return dict(
        segments=len(logs),
        bytes=sum(log.size for log in logs),
        swept_segments=len(walked),
        swept_bytes=sum(segment.size for segment in walked),
        log_start_offset=plan.log_start_offset,
        log_end_offset=plan.log_end_offset,
        cut_offset=_lowest_cut(plan),
        truncated_bytes=plan.truncated_bytes,
        written_bytes=sum(
            action.bytes for action in plan.actions if action.action in ("create", "replace")
        ),
        lost=plan.lost,
        reads_itself=deletes or plan.first_unstable_offset is not None,
    )


def _lowest_cut(plan: RecoveryPlan) -> int | None:
    """The lowest offset at which a segment is cut, as several may be; None if none is."""
    if plan.truncated_at is None:
        return None
    begins = (lost.first_offset for lost in plan.lost)
    first_offsets = [first_offset for first_offset in begins if first_offset is not None]
    return min([plan.truncated_at.offset, *first_offsets])


def _failure(
    error: KsegError | OSError, path: str, name: str = "load-fails", **more: Any
) -> BrokerFinding:
    """The finding about an error of a load.

    Args:
        error: the error; its own path counts if it has one.
        path: the path otherwise.
        name: the key of the message.
        more: values in place of the usual outcome, exception, reason or position.
    """
    exception = exception_of(error)
    usual: dict[str, Any] = {"outcome": outcome_of(exception), "exception": exception}
    if isinstance(error, OSError):
        usual |= {"reason": os_reason(error), "position": None}
        return finding(name, error.filename or path, **{**usual, **more})
    usual |= {"reason": error.reason, "position": error.position}
    return finding(name, error.path or path, **{**usual, **more})


def _of_load(unit: PartitionUnit, plan: RecoveryPlan) -> Iterator[BrokerFinding]:
    """The findings about a load: damage that it cuts off, bytes that it reads again, its error."""
    damaged_log = _damaged_message(plan)
    if damaged_log is not None:
        yield finding("not-imitated", damaged_log)
    if plan.error is not None:
        yield _of_failed_load(unit, plan, plan.error, inflates=damaged_log is not None)
        return
    swept = [segment for segment in plan.segments if segment.walked and segment.size]
    if swept and entry_of(Path(plan.path)).kind is not EntryKind.CLUSTER_METADATA:
        yield finding(
            "swept", plan.path, size=sum(segment.size for segment in swept), why=swept[0].why
        )
    if plan.start_fault is not None:
        records = count_records(plan.lost)
        remedy = None if plan.start_advice else ""
        yield finding(
            "log-start-ahead",
            plan.path,
            remedy,
            records=records,
            reason=plan.start_fault,
            advice=plan.start_advice,
        )
        return
    for lost in plan.lost:
        yield finding(
            "bytes-cut" if lost.records == 0 else "records-cut",
            plan.path,
            records=lost.records,
            extent=lost.extent,
            name=os.path.basename(lost.path),
            position=lost.position,
            sound=lost.sound_batches if lost.sound_behind else None,
        )
    if plan.truncated_bytes and not plan.lost:
        yield finding("bytes-cut.tail", plan.path, size=plan.truncated_bytes)
    cut = plan.truncated_at
    if cut is not None and _may_inflate(cut.path, cut.position):
        yield finding("not-imitated", cut.path)
    for file in plan.seen:
        if file.name.startswith("-") and file.name.endswith(".log"):
            yield finding("not-imitated.negative", plan.path, name=file.name)


def _of_failed_load(
    unit: PartitionUnit, plan: RecoveryPlan, error: KsegError, *, inflates: bool
) -> BrokerFinding:
    """The finding about a load that Kafka does not finish.

    Args:
        unit, plan: the partition, and its load as Kafka does it.
        error: why it ends.
        inflates: whether it inflates a damaged message; it may end there with another exception.
    """
    failed = _failure(error, plan.path)
    if isinstance(error, OffsetOverflowError) and (inflates or failed.exception is None):
        unknown: dict[str, Any] = {
            "outcome": Outcome.UNKNOWN,
            "exception": None,
            "log": Path(plan.path),
        }
        return _failure(error, plan.path, "not-imitated.overflow", **unknown)
    hindrance = _plan(unit, as_broker=False).error
    remedy = "" if hindrance else "load-fails.recover"
    if isinstance(hindrance, TierError):
        remedy = "load-fails.tier"
    if isinstance(error, NotALogError):  # no repair touches a file of another name
        remedy = "load-fails.name"
    exception = None if inflates else failed.exception
    return replace(failed, exception=exception, mend=advice(remedy, plan.path))


def _damaged_message(plan: RecoveryPlan) -> str | None:
    """The path of a log with a damaged message that Kafka inflates during the load, or None."""
    for path, position in plan.inflated:
        try:
            opened = Segment.open(path)
        except FileNotFoundError:  # the load would have moved it
            continue
        with opened as segment:
            if position < segment.size and _is_damaged(segment, position):
                return path
    return None


def _is_damaged(segment: Segment, position: int) -> bool:
    """Whether a position has no batch, or only a batch with a wrong checksum."""
    tile = next(segment.walk(start=position, limit=position + 1))
    return not (len(tile.table) and tile.table.crc_ok[0])


def _may_inflate(path: str, position: int) -> bool:
    """Whether the bytes at a cut look like a compressed message of magic 0 or 1 to Kafka."""
    try:
        fd = io.open_read(path)
    except FileNotFoundError:  # the log starts again in a file that does not exist yet
        return False
    try:
        head = io.read_at(fd, position, _HEAD_BYTES, path)
    finally:
        os.close(fd)
    if len(head) < _HEAD_BYTES or head[_MAGIC_AT] > 1:
        return False
    return head[_LEGACY_ATTRIBUTES_AT] & _CODEC_MASK != Compression.NONE


def _of_hidden(unit: PartitionUnit, plan: RecoveryPlan) -> Iterator[BrokerFinding]:
    """A torn end that Kafka keeps after a clean stop, so that it later loses the next appends."""
    careful = _plan(unit, as_broker=False)
    if careful.error is not None or not careful.truncated_bytes:
        return
    size = careful.truncated_bytes
    end = plan.log_end_offset
    yield finding("hidden", unit.path, size=size, end=end)


def _of_tier(unit: PartitionUnit, plan: RecoveryPlan) -> Iterator[BrokerFinding]:
    """Leader epochs that do not reach back to the tier's start, so that its copies are lost."""
    epochs = plan.epochs
    start = unit.log_start_offset  # of the tier
    if epochs and epochs[0].start_offset <= start:
        return
    log = tiered(plan.path, tier=None)
    if log is None:
        return
    base = plan.segments[0].base_offset
    begin = epochs[0].start_offset if epochs else base
    deleted = unreferenced(log, epochs, start)
    hidden = [
        copy for copy in log.finished if start <= copy.end_offset and copy.start_offset < begin
    ]
    if not deleted and (not hidden or begin < base):
        return
    remedy = None
    try:
        with_tier_epochs(plan.path, epochs, start, Tier.beside(), is_lost=True)
    except KsegError:
        remedy = "tier-deleted.url"
    first = max(start, min(copy.start_offset for copy in hidden))
    yield finding(
        "tier-deleted",
        plan.path,
        remedy,
        records=begin - first,
        first=first,
        last=begin - 1,
        deleted=len(deleted),
        count=len(log.finished),
    )


def _of_unused_times(unit: PartitionUnit) -> Iterator[BrokerFinding]:
    """A finding about the first time index with unused entries that Kafka trusts.

    After a clean stop it trusts every index, otherwise only those of segments below the recovery
    point. A running broker has unused entries in its indexes, so nothing is reported then. In an
    offset index they do no harm: each lookup leads to a position at or before the right one.
    """
    if held_by_another(os.path.join(unit.path, FileKind.PARTITION_METADATA.value)):
        return
    segments = list_partition(unit.path).segments
    for number, segment in enumerate(segments):
        ends_at = segments[number + 1].base_offset if number + 1 < len(segments) else INT64_MAX
        if segment.kafka07 or not (unit.clean or ends_at <= unit.recovery_point):
            continue
        path = segment.time_index
        if path is not None and index_rules.has_unused_times(path, segment.base_offset):
            yield finding("index-unused", unit.path, index=path.name)
            return


def _of_missing(unit: PartitionUnit, plan: RecoveryPlan) -> Iterator[BrokerFinding]:
    """Records that no segment has, although files beside the segments refer to them."""
    listing = list_partition(unit.path)
    epochs: tuple[EpochEntry, ...] = ()
    with suppress(KsegError, FileNotFoundError):  # a finding about the load reports the error
        epochs_path = os.path.join(unit.path, FileKind.LEADER_EPOCHS.value)
        epochs = checkpoints.assign_epochs(checkpoints.read_leader_epochs(epochs_path))
    ranges = [*_gaps(listing.segments, unit), *_missing_at_end(unit, plan, listing, epochs)]
    first = listing.segments[0].base_offset if listing.segments else 0
    if unit.clean and not unit.known_start and epochs and epochs[0].start_offset < first:
        why = "and the leader epochs know of them"
        ranges.append((epochs[0].start_offset, first, why))
    for begin, end, why in ranges:
        yield finding(
            "records-missing",
            unit.path,
            records=end - begin,
            missing="1 record is" if end - begin == 1 else f"{end - begin} records are",
            first=begin,
            last=end - 1,
            why=why,
        )


def _missing_at_end(
    unit: PartitionUnit, plan: RecoveryPlan, listing: PartitionFiles, epochs: Sequence[EpochEntry]
) -> Iterator[_Missing]:
    """The offsets beyond the end of the log that other files refer to: one range or none.

    Records that the load will cut off are still in a file, so they are not missing. If it is not
    known up to which offset it cuts, the other files may refer only to these records: then no
    offset is missing for certain.
    """
    lasts = [lost.last_offset for lost in plan.lost]
    end = max([plan.log_end_offset, *(last + 1 for last in lasts if last is not None)])
    if unit.recovery_point == end:  # the log ended there when it was closed, or repaired
        return
    known_end = unit.known_end or 0  # 0 if no checkpoint has the partition: other files may know
    why = "and the checkpoints of the data directory know of them"
    if known_end < end:
        snapshots = [snapshot.name.base_offset or 0 for snapshot in listing.snapshots]
        known_end = max([*snapshots, *(epoch.start_offset for epoch in epochs[-1:])], default=0)
        why = "and a snapshot of producers or the leader epochs know of them"
    if known_end > end and None not in lasts:
        yield end, known_end, why


def _gaps(segments: Sequence[SegmentFiles], unit: PartitionUnit) -> Iterator[_Missing]:
    """Offsets missing between two segments that both have a record for each of their offsets.

    A segment or an index that cannot be read is no gap; a finding about the load reports it.
    """
    for before, after in pairwise(segments) if not unit.compacted else ():
        with suppress(KsegError, OSError), Segment.open(before.log) as segment:
            at = segment.start_for_offset(INT64_MAX).position
            ends = [table.end_offset for table in segment.headers(start=at) if table]
            end = ends[-1] if ends else after.base_offset
            if end < after.base_offset and _is_dense(before) and _is_dense(after):
                why = "though those around it have all of theirs"
                yield end, after.base_offset, why


def _is_dense(files: SegmentFiles) -> bool:
    """Whether a segment is whole and has a record for each offset, as without compaction."""
    with Segment.open(files.log) as segment:
        tables = list(segment.headers())
    return tables[-1].stop is StopReason.END and all(table.is_dense for table in tables)


def _of_old_messages(plan: RecoveryPlan) -> Iterator[BrokerFinding]:
    """A finding if the end of a log has a damaged compressed message of magic 0 or 1.

    Kafka inflates such messages on its way to the end. Its reaction to a damaged one is not
    imitated, so the finding says that the prediction may be wrong.
    """
    log = os.path.join(plan.path, segment_name(plan.segments[-1].base_offset, FileKind.LOG))
    try:
        opened = Segment.open(log)
    except FileNotFoundError:  # the log begins
        return
    with opened as segment:
        for table in segment.headers(start=segment.start_for_offset(INT64_MAX).position):
            old = (table.magic < 2) & (table.attributes & _CODEC_MASK != Compression.NONE)
            for position in table.position[old].tolist():
                if _is_damaged(segment, position):
                    yield finding("not-imitated", log)
                    return


def _of_file(path: str, kind: FileKind, read: Callable[[str], object]) -> Iterator[BrokerFinding]:
    """A finding if a file that Kafka reads when it loads a log is malformed.

    A missing file is no fault: Kafka creates it again.

    Args:
        path: the partition directory.
        kind: the kind of the file.
        read: reads it.
    """
    file = os.path.join(path, kind.value)
    try:
        read(file)
    except FileNotFoundError:
        return
    except (KsegError, OSError) as error:
        if kind is not FileKind.QUORUM_STATE:
            yield _failure(error, file)
            return
        exception = getattr(error, "kafka_exception", None) or "UncheckedIOException"
        fails: dict[str, Any] = {"outcome": Outcome.FAILS, "exception": exception}
        yield replace(_failure(error, file, "quorum-state", **fails), path=file)
