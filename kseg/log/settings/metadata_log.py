"""The log of KRaft, read: the newest sound snapshot, then the records behind it.

    00000000000000000792-0000000001.checkpoint   what offsets 0..791 came to, in epoch 1
    00000000000000000000.log                     records; those before 792 need not be read

A snapshot is sound if every checksum is, and it begins with a header and ends with a footer. One
that is not makes a finding, and an older one is taken.

Source: Kafka `KafkaMetadataLog.latestSnapshot`, `RecordsSnapshotReader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from kseg.constants import ControlType
from kseg.errors import CorruptRecordError, KsegError
from kseg.files.names import NamedFile, SegmentFiles, list_partition
from kseg.format.control import parse_control_key
from kseg.log.segment.reader import Segment
from kseg.log.settings.cluster import Cluster, Place

_FIELDS: Final = ("offset", "key", "value", "control", "position")


class _Found(NamedTuple):
    """A record of the log, or of a snapshot."""

    place: Place
    key: bytes | None
    value: bytes | None
    is_control: bool


def read_cluster(directory: str | PathLike[str]) -> Cluster:
    """Read what a log of KRaft says.

    Args:
        directory: the partition's, `__cluster_metadata-0`.

    Returns:
        What it came to. Damage, gaps and what is not known are findings; see `Cluster.trusted`.

    Raises:
        OSError: the directory, or a file of it, cannot be read.
    """
    listing = list_partition(directory)
    findings: list[KsegError] = []
    snapshots = sorted(listing.kraft_snapshots, key=_snapshot_id, reverse=True)
    cluster = Cluster()
    for snapshot in snapshots:
        try:
            cluster = _read_snapshot(snapshot)
            break
        except KsegError as error:
            findings.append(error)
    cluster.findings[:0] = findings
    if not (snapshots or listing.segments):
        cluster.doubt(CorruptRecordError("the log has no records and no snapshot", path=directory))
    _read_log(listing.segments, cluster)
    return cluster


def _snapshot_id(snapshot: NamedFile) -> tuple[int, int]:
    """The offset at which a snapshot ends, and the epoch of the last record in it."""
    return snapshot.name.base_offset or 0, snapshot.name.epoch or 0


def _read_snapshot(snapshot: NamedFile) -> Cluster:
    """What a snapshot says.

    Raises:
        KsegError: it is damaged, or not whole.
    """
    cluster = Cluster(snapshot_end=_snapshot_id(snapshot)[0])
    markers: list[tuple[int, ControlType]] = []
    count = 0
    # What lies in a snapshot was committed: it is no change that may be undone.
    for found in _records(snapshot.path, None):
        if found.is_control:
            markers.append((count, parse_control_key(found.key).type))
        else:
            cluster.add(found.value, Place(found.place.path, found.place.position, -1))
        count += 1
    ends = [(0, ControlType.SNAPSHOT_HEADER), (count - 1, ControlType.SNAPSHOT_FOOTER)]
    if not set(ends) <= set(markers):
        raise CorruptRecordError("the snapshot has no header or no footer", path=snapshot.path)
    return cluster


def _read_log(segments: Sequence[SegmentFiles], cluster: Cluster) -> None:
    """Apply the records behind the snapshot."""
    following = cluster.snapshot_end
    try:
        for found in _behind(segments, following):
            if found.place.offset != following:
                reason = f"offset {found.place.offset} follows where {following} should"
                raise CorruptRecordError(reason, path=found.place.path)
            following += 1
            if not found.is_control:
                cluster.add(found.value, found.place)
    except KsegError as error:
        cluster.doubt(error)


def _behind(segments: Sequence[SegmentFiles], start: int) -> Iterator[_Found]:
    """The records of a log from an offset on; no segment that ends before it is read."""
    for index, segment in enumerate(segments):
        if index + 1 == len(segments) or segments[index + 1].base_offset > start:
            yield from _records(segment.log, start)


def _records(path: Path, start: int | None) -> Iterator[_Found]:
    with Segment.open(path) as segment:
        for columns in segment.read(start_offset=start, fields=_FIELDS, control=True):
            offsets, positions = columns.offset.tolist(), columns.position.tolist()
            controls = columns.control.tolist()
            for row, offset in enumerate(offsets):
                place = Place(str(path), positions[row], offset)
                yield _Found(place, columns.key[row], columns.value[row], controls[row])
