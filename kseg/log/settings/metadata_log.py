"""The log of KRaft, read: the newest sound snapshot, then the records behind it.

    00000000000000000792-0000000001.checkpoint   what offsets 0..791 came to, in epoch 1
    00000000000000000000.log                     records; those before 792 need not be read

A snapshot is sound if every checksum is, and it begins with a header and ends with a footer. One
that is not makes a finding, and an older one is taken.

Source: Kafka `KafkaMetadataLog.latestSnapshot`, `RecordsSnapshotReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from kseg.constants import ControlType, StopReason
from kseg.errors import CorruptRecordError, KsegError
from kseg.files.names import NamedFile, SegmentFiles, list_partition
from kseg.format.control import KRaftVoters, parse_control_as, parse_control_key
from kseg.log.segment.reader import Segment
from kseg.log.settings.cluster import Cluster, Place

_FIELDS: Final = ("offset", "key", "value", "control", "position", "timestamp")
_OnError = Callable[[KsegError], None]


class _Found(NamedTuple):
    """A record of the log, or of a snapshot."""

    place: Place
    key: bytes | None
    value: bytes | None
    is_control: bool
    time_ms: int


def read_cluster(
    directory: str | PathLike[str], *, end_offset: int | None = None, past_damage: bool = False
) -> Cluster:
    """Read what a log of KRaft says.

    Args:
        directory: the partition's, `__cluster_metadata-0`.
        end_offset: read no record of the log from here on.
        past_damage: go on behind batches that are damaged, and behind gaps.

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
    _read_log(listing.segments, cluster, end_offset, past_damage=past_damage)
    cluster.whole = cluster.trusted and _is_whole(listing.segments, cluster.snapshot_end)
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
        cluster.time_ms = found.time_ms
        if found.is_control:
            markers.append((count, parse_control_key(found.key).type))
            _note_voters(found, cluster)
        else:
            cluster.add(found.value, Place(found.place.path, found.place.position, -1))
        count += 1
    ends = [(0, ControlType.SNAPSHOT_HEADER), (count - 1, ControlType.SNAPSHOT_FOOTER)]
    if not set(ends) <= set(markers):
        raise CorruptRecordError("the snapshot has no header or no footer", path=snapshot.path)
    cluster.end_offset = cluster.snapshot_end
    return cluster


def _note_voters(found: _Found, cluster: Cluster) -> None:
    if parse_control_key(found.key).type is ControlType.KRAFT_VOTERS:
        voters = parse_control_as(KRaftVoters, found.key, found.value).voters
        cluster.voters = tuple(each.voter_id for each in voters)


def _read_log(
    segments: Sequence[SegmentFiles],
    cluster: Cluster,
    end_offset: int | None,
    *,
    past_damage: bool,
) -> None:
    """Apply the records behind the snapshot."""
    on_error = cluster.doubt if past_damage else None
    try:
        for found in _behind(segments, cluster.snapshot_end, on_error):
            if end_offset is not None and found.place.offset >= end_offset:
                return
            if found.place.offset != cluster.end_offset and not past_damage:
                reason = f"offset {found.place.offset} follows where {cluster.end_offset} should"
                raise CorruptRecordError(reason, path=found.place.path)
            cluster.end_offset, cluster.time_ms = found.place.offset + 1, found.time_ms
            if found.is_control:
                _note_voters(found, cluster)
            else:
                cluster.add(found.value, found.place)
    except KsegError as error:
        cluster.cut_at = cluster.end_offset
        cluster.doubt(error)


def _is_whole(segments: Sequence[SegmentFiles], snapshot_end: int) -> bool:
    """Whether a log that was read ends with a whole batch, and not before its snapshot does."""
    if not segments:
        return False
    end = segments[-1].base_offset
    stop = StopReason.END
    with Segment.open(segments[-1].log) as segment:
        for table in segment.headers():
            stop = table.stop
            end = int(table.last_offset[-1]) + 1 if len(table) else end
    return stop in (StopReason.END, StopReason.LIMIT) and end >= snapshot_end


def _behind(
    segments: Sequence[SegmentFiles], start: int, on_error: _OnError | None
) -> Iterator[_Found]:
    """The records of a log from an offset on; no segment that ends before it is read."""
    for index, segment in enumerate(segments):
        if index + 1 == len(segments) or segments[index + 1].base_offset > start:
            yield from _records(segment.log, start, on_error)


def _records(path: Path, start: int | None, on_error: _OnError | None = None) -> Iterator[_Found]:
    with Segment.open(path) as segment:
        read = segment.read(start_offset=start, fields=_FIELDS, control=True, on_error=on_error)
        for columns in read:
            times = columns.timestamp.tolist()
            offsets, positions = columns.offset.tolist(), columns.position.tolist()
            controls = columns.control.tolist()
            for row, offset in enumerate(offsets):
                place = Place(str(path), positions[row], offset)
                yield _Found(place, columns.key[row], columns.value[row], controls[row], times[row])
