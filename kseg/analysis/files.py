"""The checks of `verify` beside the walk of a log: small files, directories, and across files.

`check_across` joins facts of all segments of a partition, and of the partitions of a data
directory. Only two segments that hold the same offsets are walked again, to compare their bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kseg.analysis.values import (
    CheckpointSummary,
    Examined,
    Findings,
    PartitionSummary,
    SegmentSummary,
)
from kseg.errors import CorruptIndexError, KsegError, LimitExceededError, NotALogError
from kseg.files import checkpoints, io, metadata, producer_snapshot
from kseg.files.checkpoints import EpochEntry, assign_epochs
from kseg.files.log_file import LogFile
from kseg.files.mapping import MappedFile, held_by_another
from kseg.files.names import (
    CLUSTER_METADATA,
    DataDirectory,
    FileKind,
    NamedFile,
    PartitionFiles,
    parse_name,
)
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log import settings
from kseg.log.config import COMPACT
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.recovery import CHECKED, IndexChecks, IndexPlace, judge_transactions
from kseg.stores.path import name_of

_WINDOW_BYTES = 1 << 20


class _Stretch(NamedTuple):
    """The batches of a file that hold offsets of a range, from position `start` to `end`."""

    path: str
    start: int
    end: int


def describe_overlap(earlier: SegmentSummary, later: SegmentSummary) -> str:
    """Where two segments hold the same offsets, and whether the bytes differ, for a message."""
    first = max(later.base_offset, later.first_offset or 0)
    last = min(earlier.last_offset or 0, later.last_offset or 0)
    if later.last_offset is None or first > last:
        return ""
    try:
        stretches = [_stretch(segment.path, first, last) for segment in (earlier, later)]
        differ = "are the same" if _has_same_bytes(*stretches) else "differ"
    except (KsegError, OSError):
        return f"; both hold offsets {first} to {last}, which could not be compared"
    places = " and ".join(f"{os.path.basename(path)} @ {start}" for path, start, _ in stretches)
    return f"; both hold offsets {first} to {last}, {places}, and their bytes {differ}"


def _stretch(path: str, first: int, last: int) -> _Stretch:
    """The bytes of a log from its first batch to its last one with offsets of a range."""
    start = end = 0
    with LogFile.open(path, "never") as log:
        for table in log.headers():
            touched = (table.last_offset >= first) & (table.base_offset <= last)
            if touched.any():
                held = table.take(touched)
                start = start if end else int(held.position[0])
                end = int(held.position[-1] + held.size[-1])
    return _Stretch(path, start, end)


def _has_same_bytes(earlier: _Stretch, later: _Stretch) -> bool:
    """Whether two ranges of bytes are equal."""
    if earlier.end - earlier.start != later.end - later.start:
        return False
    return all(a == b for a, b in zip_longest(_windows(earlier), _windows(later)))


def _windows(stretch: _Stretch) -> Iterator[bytes]:
    """The bytes of a range, a bounded part at a time."""
    path, start, end = stretch
    with MappedFile.open(path, "never") as file:
        for at in range(start, end, _WINDOW_BYTES):
            yield bytes(file.read(at, min(_WINDOW_BYTES, end - at)))


def check_across(examined: Examined, findings: Findings) -> None:
    """Compare segments with each other, and with the small files that describe them."""
    by_partition: dict[str, list[SegmentSummary]] = defaultdict(list)
    for segment in examined.segments:
        by_partition[segment.partition].append(segment)
    ends = {}  # the end of a log is not known if its last batches are damaged
    for path, segments in by_partition.items():
        segments.sort(key=lambda segment: segment.base_offset)
        _check_segments(segments, findings)
        _check_gaps(path, segments, findings)
        if segments[-1].whole:  # else damage hides its end
            ends[path] = segments[-1].end_offset
    started = {
        checkpoint.directory.rstrip(os.sep): checkpoint.offsets
        for checkpoint in examined.checkpoints
        if checkpoint.name == FileKind.LOG_START.value
    }
    for partition in examined.partitions:
        if partition.path not in by_partition:
            ends[partition.path] = 0
        segments = by_partition.get(partition.path, [])
        if segments and not segments[0].kafka07:
            end = ends.get(partition.path)
            _check_snapshots(partition, end, findings)
            # From the transactions that are open at the start, through the trail of each segment.
            trails = (
                (segment.base_offset, segment.whole, segment.transactions) for segment in segments
            )
            judge_transactions(partition.begun, trails, findings)
            starts = started.get(os.path.dirname(partition.path))
            # A log without a line among the log starts begins with its first segment.
            is_start_known = starts is not None and partition.key not in starts
            _check_epochs(partition, end, segments, findings, is_start_known=is_start_known)
    for checkpoint in examined.checkpoints:
        _check_offsets(checkpoint, ends, examined.partitions, findings)


def _check_segments(segments: Sequence[SegmentSummary], findings: Findings) -> None:
    """Report segments whose offsets overlap earlier ones, or whose leader epochs decrease."""
    farthest = segments[0]  # the earlier segment that ends last: it may overlap several others
    for before, segment in pairwise(segments):
        if (before.last_offset or -1) >= (farthest.last_offset or -1):
            farthest = before
        name = os.path.basename(farthest.path)
        last = farthest.last_offset
        if last is not None and last >= segment.base_offset and not segment.kafka07:
            findings.say(
                "offset-order.segments",
                segment.path,
                position=0,
                offset=segment.base_offset,
                name=name,
                last=last,
                overlap=describe_overlap(farthest, segment),
            )
        name = os.path.basename(before.path)
        if before.epochs and segment.epochs and segment.epochs[0][0] < before.epochs[-1][0]:
            epoch, offset = segment.epochs[0]
            findings.say(
                "leader-epoch-order.segments",
                segment.path,
                offset=offset,
                epoch=epoch,
                before=before.epochs[-1][0],
                name=name,
            )


def _check_gaps(partition: str, segments: Sequence[SegmentSummary], findings: Findings) -> None:
    """Report offsets that no segment has, unless compaction may have removed their records.

    It has not if the policy is known and says so; or else if the segments on both sides have a
    record for each offset.
    """
    gaps = [
        (before, segment)
        for before, segment in pairwise(segments)
        if before.whole and not segment.kafka07 and segment.base_offset > before.end_offset
    ]
    policy = _known_policy(partition) if gaps else None
    for before, segment in gaps:
        # Compaction leaves gaps, too. If the policy is not known, a record for each offset shows
        # that the log was not compacted.
        if COMPACT in policy if policy else not (before.dense and segment.dense):
            continue
        last = segment.base_offset - 1
        findings.say("segment-gap", segment.path, offset=before.end_offset, last=last)


def _known_policy(partition: str) -> str | None:
    """The cleanup policy of a partition's topic; None where it is not known."""
    directory = os.path.dirname(os.path.realpath(partition))
    if os.path.basename(partition).startswith("__"):
        return COMPACT
    try:
        values = settings.settings(directory).of(partition).values
    except (KsegError, OSError, ValueError):
        return None
    policy = values.get("cleanup.policy")
    # A default is a guess: the broker's file, which is not here, may say otherwise.
    return None if policy is None or policy.source == "default" else policy.value


def _check_snapshots(partition: PartitionSummary, end: int | None, findings: Findings) -> None:
    """Report producer snapshots of offsets beyond the end of the log."""
    for path, offset in partition.snapshots:
        if end is not None and offset > end:
            findings.say(
                "snapshot-ahead",
                path,
                offset=offset,
                severity="warning" if partition.live else None,
                end=end,
            )


def _check_epochs(
    partition: PartitionSummary,
    end: int | None,
    segments: Sequence[SegmentSummary],
    findings: Findings,
    *,
    is_start_known: bool,
) -> None:
    """Report leader epochs of the log that contradict its checkpoint of epochs.

    Each change of epoch in the log must agree with the checkpoint's entry for that offset. Kafka
    moves the first entry with the log's start, so no entry is below the start.

    Args:
        partition: the facts beside the segments.
        end: the end of the log; None if it is not known.
        segments: its segments.
        findings: receives the findings.
        is_start_known: whether the log begins with its first segment; otherwise it may begin in a
            tier.
    """
    # As in Kafka: a change of epoch displaces later entries that contradict it.
    entries = (EpochEntry(*change) for segment in segments for change in segment.epochs)
    changes = assign_epochs(entries)
    is_empty = partition.epochs is not None and not partition.epochs
    if partition.epochs_path is None or is_empty:
        # A topic that was set to an older format has had its checkpoint deleted.
        older = any(segment.magics_seen & 3 for segment in segments)
        if changes and not older and not partition.bare:
            findings.say("epochs-missing", partition.path)
        return
    epochs = partition.epochs
    if epochs is None:
        return
    _first_epoch, first_start = epochs[0]
    last_epoch, last_start = epochs[-1]
    if is_start_known and first_start < segments[0].base_offset:
        findings.say(
            "segment-gap.epochs",
            segments[0].path,
            offset=first_start,
            last=segments[0].base_offset - 1,
        )
    if end is not None and last_start > end:
        findings.say(
            "epochs-ahead",
            partition.epochs_path,
            offset=last_start,
            severity="warning" if partition.live else None,
            epoch=last_epoch,
            end=end,
        )
    starts = [start for _, start in epochs]
    for epoch, offset in changes:
        at = bisect_right(starts, offset) - 1
        # Offsets before the first entry were deleted by moving the log start.
        if at >= 0 and epochs[at][0] != epoch:
            findings.say(
                "epochs-wrong",
                partition.epochs_path,
                offset=offset,
                epoch=epoch,
                stated=epochs[at][0],
            )


def _check_offsets(
    checkpoint: CheckpointSummary,
    ends: dict[str, int],
    partitions: Iterable[PartitionSummary],
    findings: Findings,
) -> None:
    """Report offsets of a checkpoint that are beyond the ends of their logs.

    A start deletes all of a log whose start is beyond its end, so that is an error in any case. A
    recovery point beyond the end is an error unless the log is being written; the offsets of the
    other checkpoints may be ahead of a log.

    Args:
        checkpoint: the checkpoint.
        ends: the ends of the logs, keyed by partition directory.
        partitions: the partitions of all data directories.
        findings: receives the findings.
    """
    directory = checkpoint.directory.rstrip(os.sep)
    by_key = {
        partition.key: partition
        for partition in partitions
        if os.path.dirname(partition.path) == directory
    }
    starts = checkpoint.name == FileKind.LOG_START.value
    is_flushed = checkpoint.name == FileKind.RECOVERY_POINT.value
    for key, offset in checkpoint.offsets.items():
        partition = by_key.get(key)
        end = None if partition is None else ends.get(partition.path)
        if partition is not None and end is not None and offset > end:
            many = "1 record is" if offset - end == 1 else f"{offset - end} records are"
            findings.say(
                "log-start-ahead" if starts else "checkpoint-ahead",
                checkpoint.path,
                offset=offset,
                severity=None if starts or (is_flushed and not partition.live) else "warning",
                topic=key[0],
                partition=key[1],
                end=end,
                missing=many if is_flushed else None,
            )


OFFSET_CHECKPOINTS = frozenset(
    (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION, FileKind.CLEANER)
)
#: Kind of a small file -> the code if it breaks its format, and the function that reads it.
_FORMATS: Final[dict[FileKind, tuple[str, Callable[[str], Any]]]] = {
    FileKind.LEADER_EPOCHS: ("epochs-format", checkpoints.read_leader_epochs),
    FileKind.PARTITION_METADATA: ("metadata-format", metadata.read_partition_metadata),
    FileKind.META_PROPERTIES: ("properties-format", metadata.read_meta_properties),
    **dict.fromkeys(OFFSET_CHECKPOINTS, ("checkpoint-format", checkpoints.read_offset_checkpoint)),
}


def examine_partition(files: PartitionFiles) -> Examined:
    """Examine everything in a partition directory but its segments."""
    findings = Findings()
    path = name_of(files.path)
    snapshots = [(name_of(s.path), s.name.base_offset or 0) for s in files.snapshots]
    first = next((segment.base_offset for segment in files.segments if not segment.kafka07), None)
    begun: tuple[ProducerSnapshotEntry, ...] = ()
    for snapshot, offset in snapshots:
        entries = check_snapshot(snapshot, offset, findings)
        if offset == first:
            begun = tuple(
                producer for producer in entries if producer.current_txn_first_offset >= 0
            )
    epochs = None
    if files.leader_epochs is not None:
        epochs = check_epochs(name_of(files.leader_epochs), findings)
    if files.metadata is not None:
        _read_small(FileKind.PARTITION_METADATA, name_of(files.metadata), findings)
    _check_names(files, findings)
    small_files = [file for file in (files.leader_epochs, files.metadata) if file is not None]
    name = files.name
    summary = PartitionSummary(
        path=path,
        key=(name.topic, name.partition) if name and name.suffix is None else None,
        epochs_path=None if files.leader_epochs is None else name_of(files.leader_epochs),
        epochs=epochs,
        snapshots=tuple(snapshots),
        begun=begun,
        bare=not (snapshots or small_files),
        live=held_by_another(os.path.join(path, FileKind.LEADER_EPOCHS.value)),
    )
    paths: list[str | Path] = [*small_files, *(snapshot for snapshot, _ in snapshots)]
    return Examined(
        files=len(paths), bytes=_bytes(paths), findings=findings.finish(), partitions=(summary,)
    )


def examine_data_directory(listing: DataDirectory) -> Examined:
    """Examine the checkpoints and ids of a data directory, and names that are not Kafka's."""
    findings = Findings()
    path = name_of(listing.path)
    summaries: list[CheckpointSummary] = []
    for entry in listing.files:
        if entry.name.suffix is not None:
            _check_leftover(entry, findings)
        elif entry.name.kind in OFFSET_CHECKPOINTS:
            summaries += check_offset_checkpoint(path, entry, findings)
        elif entry.name.kind is FileKind.META_PROPERTIES:
            _read_small(FileKind.META_PROPERTIES, name_of(entry.path), findings)
    for stranger in listing.foreign:
        if stranger.is_dir() and entry_of(stranger).kind is not EntryKind.CACHE:
            findings.say("foreign-directory", str(stranger))
    return Examined(
        files=len(listing.files),
        bytes=_bytes(entry.path for entry in listing.files),
        findings=findings.finish(),
        checkpoints=tuple(summaries),
    )


def examine_file(path: str, kind: FileKind, base_offset: int | None) -> Examined:
    """Examine a single small file: an index without its log, a snapshot, a checkpoint."""
    findings = Findings()
    size = io.size_at(path)
    if kind in CHECKED:
        IndexChecks(IndexPlace(path, base_offset or 0, is_last=True), findings).add(kind, path)
    elif kind is FileKind.SNAPSHOT:
        check_snapshot(path, base_offset, findings)
    elif kind is FileKind.LEADER_EPOCHS:
        check_epochs(path, findings)
    elif kind in _FORMATS:
        _read_small(kind, path, findings)
    return Examined(files=1, bytes=size, findings=findings.finish())


def check_snapshot(
    path: str, offset: int | None, findings: Findings
) -> tuple[ProducerSnapshotEntry, ...]:
    """Check a producer snapshot: its checksum and format, and that no entry is past its offset.

    Returns:
        The entries, as far as they can be read.
    """
    try:
        entries = producer_snapshot.read(path)
    except CorruptIndexError as error:
        # Byte 2 is the checksum field.
        code = "snapshot-crc" if error.position == 2 else "snapshot-format"
        findings.add(code, path, error.reason, position=error.position, offset=offset)
        return ()
    except LimitExceededError as error:
        findings.add("unreadable", path, error.reason)
        return ()
    if offset is None:
        return entries
    for number, entry in producer_snapshot.entries_beyond(entries, offset):
        findings.say(
            "snapshot-offset",
            path,
            position=10 + 46 * number,
            offset=entry.last_offset,
            entry=entry,
            end=offset,
        )
    return entries


def check_epochs(path: str, findings: Findings) -> tuple[tuple[int, int], ...] | None:
    """Check a leader epoch checkpoint by itself; returns its entries as Kafka loads them."""
    entries = _read_small(FileKind.LEADER_EPOCHS, path, findings)
    if entries is None:
        return None
    effective = assign_epochs(entries)
    if entries != effective:
        findings.say("epochs-order", path, count=len(entries) - len(effective))
    return tuple((entry.epoch, entry.start_offset) for entry in effective)


def check_offset_checkpoint(
    directory: str, entry: NamedFile, findings: Findings
) -> Iterable[CheckpointSummary]:
    """Check an offset checkpoint; returns its offsets, if it can be read."""
    path = name_of(entry.path)
    read = _read_small(entry.name.kind, path, findings)
    if read is None:
        return ()
    offsets = {(key.topic, key.partition): offset for key, offset in read.items()}
    return (CheckpointSummary(directory, path, entry.name.kind.value, offsets),)


def _check_leftover(entry: NamedFile, findings: Findings) -> None:
    """Report a file of interrupted work, but not a `.tmp` file, which is being written."""
    if entry.name.suffix != "tmp":
        findings.say("leftover", name_of(entry.path), suffix=entry.name.suffix)


def _check_names(files: PartitionFiles, findings: Findings) -> None:
    """Report names that a broker does not expect, and files of interrupted work."""
    for entry in files.temporary_files:
        _check_leftover(entry, findings)
    for entry in files.orphans:
        findings.say("orphan-index", str(entry.path))
    is_of_kraft = files.name is not None and files.name.topic == CLUSTER_METADATA
    for stranger in files.foreign:
        if stranger.is_dir():
            continue
        try:
            twin = parse_name(stranger.name)
        except NotALogError as error:
            findings.add("name", str(stranger), error.reason)
            continue
        if twin is None and is_of_kraft and stranger.name.endswith(".checkpoint"):
            findings.say("name.snapshot", str(stranger))
        if twin is not None and twin.base_offset is not None:
            findings.say("name.twin", str(stranger), base=twin.base_offset)
    for segment in files.segments:
        name = segment.log.name
        digits = name.partition(".")[0]
        if segment.base_offset < 0:
            findings.say("name.negative", str(segment.log), base=segment.base_offset)
        elif len(digits) != 20 and not segment.kafka07:
            findings.say("name-digits", str(segment.log), digits=digits, count=len(digits))


def _read_small(kind: FileKind, path: str, findings: Findings) -> Any:
    """Read a small file; if it breaks its format, note a finding and return None."""
    code, read = _FORMATS[kind]
    try:
        return read(path)
    except CorruptIndexError as error:
        findings.add(code, path, error.reason, position=error.position)
    except KsegError as error:
        findings.add("unreadable", path, error.reason)
    return None


def _bytes(paths: Iterable[str | Path]) -> int:
    return int(np.sum([io.size_at(path) for path in paths], dtype=np.int64))
