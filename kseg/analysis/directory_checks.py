"""Examine the files beside the segments: snapshots, checkpoints, ids, names, temporary files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from kseg.analysis.findings import Findings
from kseg.analysis.values import CheckpointSummary, Examined, PartitionSummary
from kseg.errors import CorruptIndexError, KsegError, LimitExceededError, NotALogError
from kseg.files import checkpoints, metadata, producer_snapshot
from kseg.files.mapping import held_by_another
from kseg.files.names import (
    DataDirectory,
    FileKind,
    NamedFile,
    PartitionFiles,
    parse_name,
)
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.recovery import CHECKED, IndexChecks, IndexPlace

OFFSET_CHECKPOINTS = frozenset(
    (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION, FileKind.CLEANER)
)


def examine_partition(files: PartitionFiles) -> Examined:
    """Examine everything in a partition directory but its segments."""
    found, path = Findings(), str(files.path)
    snapshots = [(str(s.path), s.name.base_offset or 0) for s in files.snapshots]
    first = next((each.base_offset for each in files.segments if not each.kafka07), None)
    begun: tuple[ProducerSnapshotEntry, ...] = ()
    for snapshot, offset in snapshots:
        entries = check_snapshot(snapshot, offset, found)
        if offset == first:
            begun = tuple(each for each in entries if each.current_txn_first_offset >= 0)
    epochs = None
    if files.leader_epochs is not None:
        epochs = check_epochs(str(files.leader_epochs), found)
    if files.metadata is not None:
        _guard("metadata-format", str(files.metadata), found, metadata.read_partition_metadata)
    _check_names(files, found)
    known = [file for file in (files.leader_epochs, files.metadata) if file is not None]
    name = files.name
    summary = PartitionSummary(
        path=path,
        key=(name.topic, name.partition) if name and name.suffix is None else None,
        epochs_path=None if files.leader_epochs is None else str(files.leader_epochs),
        epochs=epochs,
        snapshots=tuple(snapshots),
        begun=begun,
        bare=not (snapshots or known),
        live=held_by_another(os.path.join(path, FileKind.LEADER_EPOCHS.value)),
    )
    paths = [*known, *(Path(snapshot) for snapshot, _ in snapshots)]
    return Examined(
        files=len(paths), bytes=_bytes(paths), findings=found.taken(), partitions=(summary,)
    )


def examine_data_directory(listing: DataDirectory) -> Examined:
    """Examine the checkpoints and ids of a data directory, and names that are not Kafka's."""
    found, path = Findings(), str(listing.path)
    kept: list[CheckpointSummary] = []
    for entry in listing.files:
        if entry.name.suffix is not None:
            found.add("leftover", str(entry.path), f"half of a write of {entry.name.kind.value}")
        elif entry.name.kind in OFFSET_CHECKPOINTS:
            kept += check_offset_checkpoint(path, entry, found)
        elif entry.name.kind is FileKind.META_PROPERTIES:
            _guard("properties-format", str(entry.path), found, metadata.read_meta_properties)
    for stranger in listing.foreign:
        if stranger.is_dir():
            found.add("foreign-directory", str(stranger), "not a partition directory")
    return Examined(
        files=len(listing.files),
        bytes=_bytes(entry.path for entry in listing.files),
        findings=found.taken(),
        checkpoints=tuple(kept),
    )


def examine_file(path: str, kind: FileKind, base_offset: int | None) -> Examined:
    """Examine a small file by itself: an index without its log, a snapshot, a checkpoint."""
    found = Findings()
    size = os.stat(path).st_size
    if kind in CHECKED:
        IndexChecks(IndexPlace(path, base_offset or 0, is_last=True), found).add(kind, path)
    elif kind is FileKind.SNAPSHOT:
        check_snapshot(path, base_offset, found)
    elif kind is FileKind.LEADER_EPOCHS:
        check_epochs(path, found)
    elif kind is FileKind.PARTITION_METADATA:
        _guard("metadata-format", path, found, metadata.read_partition_metadata)
    elif kind is FileKind.META_PROPERTIES:
        _guard("properties-format", path, found, metadata.read_meta_properties)
    elif kind in OFFSET_CHECKPOINTS:
        _guard("checkpoint-format", path, found, checkpoints.read_offset_checkpoint)
    return Examined(files=1, bytes=size, findings=found.taken())


def check_snapshot(
    path: str, offset: int | None, found: Findings
) -> tuple[ProducerSnapshotEntry, ...]:
    """Check a producer snapshot: its checksum and shape, and that no entry lies past its offset.

    Returns:
        The entries, as far as they can be read.
    """
    try:
        snapshot = producer_snapshot.read(path)
    except CorruptIndexError as error:
        # The checksum is the one field at byte 2.
        code = "snapshot-crc" if error.position == 2 else "snapshot-format"
        found.add(code, path, error.reason, position=error.position, offset=offset)
        return ()
    except LimitExceededError as error:
        found.add("unreadable", path, error.reason)
        return ()
    if offset is None:
        return snapshot.entries
    for number, entry in producer_snapshot.entries_beyond(snapshot.entries, offset):
        found.add(
            "snapshot-offset",
            path,
            f"producer {entry.producer_id} has offset {entry.last_offset}, its transaction "
            f"begins at {entry.current_txn_first_offset}; the snapshot ends below {offset}",
            position=10 + 46 * number,
            offset=entry.last_offset,
        )
    return snapshot.entries


def check_epochs(path: str, found: Findings) -> tuple[tuple[int, int], ...] | None:
    """Check a leader epoch checkpoint by itself; returns its entries as Kafka loads them."""
    read = _guard("epochs-format", path, found, checkpoints.read_leader_epochs)
    if read is None:
        return None
    if read.entries != read.effective:
        found.add("epochs-order", path, f"{len(read.entries) - len(read.effective)} entries lost")
    return tuple((entry.epoch, entry.start_offset) for entry in read.effective)


def check_offset_checkpoint(
    directory: str, entry: NamedFile, found: Findings
) -> Iterable[CheckpointSummary]:
    """Check an offset checkpoint; returns its offsets, if it can be read."""
    path = str(entry.path)
    read = _guard("checkpoint-format", path, found, checkpoints.read_offset_checkpoint)
    if read is None:
        return ()
    offsets = {(key.topic, key.partition): offset for key, offset in read.offsets.items()}
    return (CheckpointSummary(directory, path, entry.name.kind.value, offsets),)


def _check_names(files: PartitionFiles, found: Findings) -> None:
    for entry in files.temporary_files:
        found.add("leftover", str(entry.path), f"a file in transit: .{entry.name.suffix}")
    for entry in files.orphans:
        found.add("orphan-index", str(entry.path), "there is no log of this base offset")
    for stranger in files.foreign:
        if stranger.is_dir():
            continue
        try:
            twin = parse_name(stranger.name)
        except NotALogError as error:
            found.add("name", str(stranger), error.reason)
            continue
        if twin is not None and twin.base_offset is not None:
            found.add("name", str(stranger), f"a second file of base offset {twin.base_offset}")
    for segment in files.segments:
        name = segment.log.name
        digits = name.partition(".")[0]
        if segment.base_offset < 0:
            found.add("name", str(segment.log), f"base offset {segment.base_offset} is negative")
        elif len(digits) != 20 and not segment.kafka07:
            found.add("name-digits", str(segment.log), f"{digits!r} has {len(digits)} characters")


def _guard(code: str, path: str, found: Findings, read: Callable[[str], Any]) -> Any:
    """Read a small file; if it breaks its format, note a finding and return None."""
    try:
        return read(path)
    except CorruptIndexError as error:
        found.add(code, path, error.reason, position=error.position)
    except KsegError as error:
        found.add("unreadable", path, error.reason)
    return None


def _bytes(paths: Iterable[Path]) -> int:
    return int(np.sum([path.stat().st_size for path in paths], dtype=np.int64))
