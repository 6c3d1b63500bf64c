"""The log of KRaft and its snapshots: where its records lie, and which of them are applied.

    00000000000000000792-0000000001.checkpoint   the state after offsets 0..791, in epoch 1
    00000000000000000000.log                     records; those before 792 need not be read

`read_cluster` takes the newest sound snapshot and the records after it. A snapshot is sound if
every checksum is, and it begins with a header and ends with a footer. An unsound snapshot makes a
finding, and an older one is taken. With `history` it begins as early as the log goes back, so that
each object has the offset of its last change; where that ends in damage, with the next snapshot.

Source: Kafka `KafkaMetadataLog.latestSnapshot`, `RecordsSnapshotReader`; `LeaderState` and its
`updateLeaderEndOffsetAndTimestamp`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Final

import numpy as np

from kseg.commands import command_line
from kseg.constants import INT64_MAX, ControlType, Int64s, StopReason, StrPath
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    OffsetOutOfRangeError,
    OnError,
)
from kseg.files import io, metadata
from kseg.files.names import (
    CLUSTER_METADATA,
    FileKind,
    NamedFile,
    PartitionFiles,
    SegmentFiles,
    file_name,
    list_partition,
)
from kseg.format.control import (
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotHeader,
    parse_control,
    parse_control_key,
)
from kseg.format.header import stop_error
from kseg.log.segment.reader import Segment
from kseg.log.settings.cluster import Cluster, Fact, Place
from kseg.stores.path import RemotePath, path_at

_FIELDS: Final = ("offset", "key", "value", "control", "position", "timestamp", "leader_epoch")
#: The errors of a malformed quorum-state.
_MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
#: The number of records between two calls of progress.
_TOLD_RECORDS: Final = 10_000
#: A quorum-state is one line; no more is read.
_STATE_BYTES_MAX: Final = 1 << 20
_NO_LOG: Final = (
    "no __cluster_metadata-0 is here: ZooKeeper has the settings of topics, or another directory,"
    " which --metadata-dir names"
)
_LOG_BESIDE: Final = (
    "its broker's settings of topics lie in another directory, which may be the one beside this:"
)
#: Columns of `log_batches`.
_FIRST, _LAST, _EPOCH, _TIME = range(4)
_TOO_EARLY: Final = (
    "the log and its snapshots begin later, or are empty: the state of that time is not known"
)


#: A record of the log, or of a snapshot: place, key, value, whether it is a control record, epoch.
_MetadataRecord = tuple[Place, bytes | None, bytes | None, bool, int]


def read_cluster(
    directory: StrPath,
    *,
    end_offset: int | None = None,
    past_damage: bool = False,
    history: bool = False,
    elections_after_ms: int = INT64_MAX,
    progress: Callable[[int], object] | None = None,
) -> Cluster:
    """Read a log of KRaft.

    Args:
        directory: the partition's, `__cluster_metadata-0`.
        end_offset: read no record of the log from here on.
        past_damage: go on after batches that are damaged, and after gaps.
        history: begin as early as possible, and with no snapshot that ends after `end_offset`.
        elections_after_ms: keep the elections after this time.
        progress: called now and then with the offset of a record that was read.

    Returns:
        The cluster. Damage, gaps and unknown records are findings; see `Cluster.trusted`.

    Raises:
        OffsetOutOfRangeError: with `history`, the log and its snapshots begin after `end_offset`.
        OSError: the directory, or a file of it, cannot be read.
    """
    listing = list_partition(directory)
    segments, findings = listing.segments, list[KsegError]()
    starts = _starts(listing, end_offset) if history else [*_newest_first(listing), None]
    newest = max(
        (snapshot.name.base_offset or 0 for snapshot in starts if snapshot is not None), default=0
    )
    best: Cluster | None = None
    for start in starts:
        try:
            cluster = _read_snapshot(start)
        except KsegError as error:
            findings.append(error)
            continue
        cluster.elections_after_ms = elections_after_ms
        cluster.changes_from = INT64_MAX if history else cluster.snapshot_end
        _read_log(segments, cluster, end_offset, past_damage=past_damage, progress=progress)
        if best is None or cluster.end_offset > best.end_offset:
            findings += best.findings if best is not None else ()
            best = cluster
        if not history or (best.cut_at is None and best.end_offset >= newest):
            break
    if best is None:
        raise findings[-1] if findings else OffsetOutOfRangeError(_TOO_EARLY, path=directory)
    best.findings[:0] = findings
    if not (listing.kraft_snapshots or segments):
        best.doubt(CorruptRecordError("the log has no records and no snapshot", path=directory))
    best.whole = best.trusted and _is_whole(segments, best.snapshot_end)
    return best


def _newest_first(listing: PartitionFiles) -> list[NamedFile]:
    return sorted(listing.kraft_snapshots, key=_snapshot_id, reverse=True)


def _starts(listing: PartitionFiles, end_offset: int | None) -> list[NamedFile | None]:
    """Possible starts of the records, the earliest first; None is the start of an empty cluster."""
    first = listing.segments[0].base_offset if listing.segments else 0
    starts: list[NamedFile | None] = [
        snapshot
        for snapshot in reversed(_newest_first(listing))
        if _snapshot_id(snapshot)[0] >= first
        if end_offset is None or _snapshot_id(snapshot)[0] <= end_offset
    ]
    is_whole = first == 0 and listing.segments
    has_first = any(_snapshot_id(snapshot)[0] == 0 for snapshot in listing.kraft_snapshots)
    return [None, *starts] if is_whole and not has_first else starts


def log_batches(directory: StrPath) -> Int64s:
    """The batches of a metadata log that can be told apart; only headers are read.

    Returns:
        int64[n, 5], in the order of the log: base offset, last offset, leader epoch, largest time
        (ms), checksum.

    Raises:
        OSError: the directory, or a file of it, cannot be read.
    """
    batches = [np.empty((0, 5), np.int64)]
    for files in list_partition(directory).segments:
        with Segment.open(files.log) as segment:
            for table in segment.headers():
                columns = table.base_offset, table.last_offset, table.leader_epoch
                batches.append(np.stack([*columns, table.max_timestamp, table.crc], axis=1))
    return np.concatenate(batches)


def end_at(batches: Int64s, at_ms: int) -> int | None:
    """The offset of the first batch after a time; None if there is none.

    Args:
        batches: the answer of `log_batches`.
        at_ms: the time.
    """
    later = np.flatnonzero(batches[:, _TIME] > at_ms)
    return int(batches[later[0], _FIRST]) if len(later) else None


def certain_end(copies: Sequence[Int64s], voters_count: int) -> int:
    """The offset up to which a majority of the voters has the records of the first copy.

    Args:
        copies: the batches of the voters' logs that are here, sorted from the newest log on.
        voters_count: the number of voters.

    Returns:
        The end; 0 if fewer than a majority are here, or if they have no record of the newest epoch
        in common: a leader commits nothing before a record of its own epoch is replicated.
    """
    majority = voters_count // 2 + 1
    if len(copies) < majority or not len(copies[0]):
        return 0
    ends = sorted((_common_end(copies[0], copy) for copy in copies), reverse=True)
    end, newest = ends[majority - 1], copies[0]
    begin = newest[newest[:, _EPOCH] == newest[-1, _EPOCH]][0, _FIRST]
    return end if end > begin else 0


def _common_end(newest: Int64s, other: Int64s) -> int:
    """The offset up to which two logs have the same batches, from where both have some."""
    if not len(other):
        return 0
    begin = max(newest[0, _FIRST], other[0, _FIRST])
    ours, theirs = (batches[batches[:, _FIRST] >= begin] for batches in (newest, other))
    count = min(len(ours), len(theirs))
    differ = np.flatnonzero((ours[:count] != theirs[:count]).any(axis=1))
    same = int(differ[0]) if len(differ) else count
    return int(ours[same - 1, _LAST]) + 1 if same else 0


def voters_of(cluster: Cluster | None, directory: StrPath) -> tuple[int, ...]:
    """The voters of the quorum: from the log, or from a `quorum-state` of version 0 beside it.

    Args:
        cluster: the state that the log says; None where it is not known.
        directory: the log's.

    Returns:
        Their ids; empty if no file has them.
    """
    if cluster is not None and cluster.voters is not None:
        return tuple(voter.voter_id for voter in cluster.voters)
    path = path_at(directory) / FileKind.QUORUM_STATE.value
    with suppress(OSError, KsegError, *_MALFORMED):
        state = json.loads(io.read_file(path, bytes_max=_STATE_BYTES_MAX))
        return tuple(int(voter["voterId"]) for voter in state["currentVoters"])
    return ()


def _snapshot_id(snapshot: NamedFile) -> tuple[int, int]:
    """The offset at which a snapshot ends, and the epoch of the last record in it."""
    return snapshot.name.base_offset or 0, snapshot.name.epoch or 0


def _read_snapshot(snapshot: NamedFile | None) -> Cluster:
    """Read a snapshot; returns an empty cluster if there is none.

    Raises:
        KsegError: the snapshot is damaged, or not whole.
    """
    if snapshot is None:
        return Cluster()
    end, epoch = _snapshot_id(snapshot)
    cluster = Cluster(snapshot_end=end, epoch=epoch)
    markers: list[tuple[int, ControlType]] = []
    count = 0
    # Records of a snapshot are committed: no change in them may be undone.
    for at, key, value, is_control, _ in _records(snapshot.path):
        record_place = Place(at.path, at.position, -1, cluster.time_ms)
        if is_control:
            markers.append((count, parse_control_key(key).type))
            _note_control(key, value, record_place, cluster)
        else:
            cluster.add(value, record_place)
        count += 1
    ends = [(0, ControlType.SNAPSHOT_HEADER), (count - 1, ControlType.SNAPSHOT_FOOTER)]
    if not set(ends) <= set(markers):
        raise CorruptRecordError("the snapshot has no header or no footer", path=snapshot.path)
    cluster.end_offset = cluster.snapshot_end
    return cluster


def check_snapshot(path: StrPath) -> None:
    """Check that a node can read a snapshot: all of it is sound, from its header to its footer.

    Raises:
        KsegError: it is damaged, or not whole.
        OSError: it cannot be read.
    """
    snapshot_path = path_at(path)
    _check_end(snapshot_path, StopReason.END)
    _read_snapshot(NamedFile(file_name(snapshot_path), snapshot_path))


def bootstrap_level(path: StrPath) -> int:
    """The metadata version in a bootstrap file; a torn end of the file is allowed, as for a node.

    Raises:
        KsegError: it is damaged, or has no metadata version.
        OSError: it cannot be read.
    """
    file, cluster = path_at(path), Cluster()
    _check_end(file, StopReason.END, StopReason.TORN_TAIL)
    for at, _, value, is_control, _ in _records(file):
        if not is_control:
            cluster.add(value, at)
    fact = cluster.facts["features"].get(("metadata.version",))
    if fact is None:
        error = CorruptRecordError("no record has a metadata.version", path=file)
        raise error.as_kafka("RuntimeException")
    level: int = fact.fields["level"]
    return level


def _check_end(path: Path, *benign: StopReason) -> None:
    with Segment.open(path) as segment:
        for table in segment.headers():
            if table.stop not in (*benign, StopReason.LIMIT):
                raise stop_error(table)


def _note_control(
    key: bytes | None, value: bytes | None, record_place: Place, cluster: Cluster
) -> None:
    """Note a control record: the state of the quorum, or the time of a snapshot."""
    try:
        marker = parse_control(key, value)
    except InvalidRecordError:
        if parse_control_key(key).type is ControlType.KRAFT_VOTERS:
            raise
        return  # nothing is decided by the others
    match marker:
        case KRaftVoters(voters):
            cluster.voters = voters
        case LeaderChange(leader):
            cluster.leader = leader
        case KRaftVersion(level):
            cluster.facts["features"]["kraft.version",] = Fact({"level": level}, record_place)
        case SnapshotHeader(time_ms):
            cluster.time_ms = time_ms


def _read_log(
    segments: Sequence[SegmentFiles],
    cluster: Cluster,
    end_offset: int | None,
    *,
    past_damage: bool,
    progress: Callable[[int], object] | None,
) -> None:
    """Apply the records after the snapshot, up to an offset, to damage, or to a gap.

    `past_damage` goes on after damage and gaps. Either way the cluster is not trusted then.
    """
    on_error = cluster.doubt if past_damage else None
    offsets = cluster.snapshot_end, end_offset
    last, expected, add = None, cluster.end_offset, cluster.add  # it is done a million times
    try:
        for record in _records_from(segments, offsets, on_error):
            record_place, key, value, is_control, _ = record
            offset = record_place.offset
            if offset != expected and not past_damage:
                reason = f"offset {offset} follows where {expected} should"
                raise CorruptRecordError(reason, path=record_place.path)
            last, expected = record, offset + 1
            if progress is not None and not offset % _TOLD_RECORDS:
                progress(offset)
            if is_control:
                _note_control(key, value, record_place, cluster)
            else:
                add(value, record_place)
    except KsegError as error:
        cluster.cut_at = expected
        cluster.doubt(error)
    if last is not None:
        cluster.last, _key, _value, _is_control, cluster.epoch = last
        cluster.end_offset, cluster.time_ms = expected, cluster.last.time_ms
    cluster.end()


def _is_whole(segments: Sequence[SegmentFiles], snapshot_end: int) -> bool:
    """Whether a log that was read ends with a whole batch, and not before its snapshot does."""
    if not segments:
        return False
    end = segments[-1].base_offset
    stop = StopReason.END
    with Segment.open(segments[-1].log) as segment:
        for table in segment.headers():
            stop = table.stop
            end = table.end_offset if len(table) else end
    return stop in (StopReason.END, StopReason.LIMIT) and end >= snapshot_end


def _records_from(
    segments: Sequence[SegmentFiles], offsets: tuple[int, int | None], on_error: OnError | None
) -> Iterator[_MetadataRecord]:
    """The records of a log in a range of offsets; segments that end before it are not read."""
    start, end = offsets
    for index, segment in enumerate(segments):
        is_late = end is not None and segment.base_offset >= end
        if not is_late and (index + 1 == len(segments) or segments[index + 1].base_offset > start):
            yield from _records(segment.log, offsets, on_error)


def _records(
    path: Path, offsets: tuple[int, int | None] | None = None, on_error: OnError | None = None
) -> Iterator[_MetadataRecord]:
    """The records of a file, control records among them.

    Args:
        path: a segment, a snapshot or a bootstrap file.
        offsets: start and end; None for all records.
        on_error: is called with damage, and reading goes on; None to raise it.
    """
    with Segment.open(path) as segment:
        read = segment.read(
            offset=offsets, columns=_FIELDS, control=True, on_corrupt=on_error or "raise"
        )
        for columns in read:
            name = str(path)
            numbers = (columns.position, columns.offset, columns.timestamp_ms)
            places = zip(repeat(name), *(column.tolist() for column in numbers))
            marks = columns.control.tolist(), columns.leader_epoch.tolist()
            yield from zip(
                map(Place._make, places),
                columns.key,
                columns.value,
                *marks,
                strict=True,
            )


# ---- the directory with the log ------------------------------------------------------------------


def metadata_home(directories: Sequence[Path], metadata_directory: StrPath | None) -> Path | None:
    """The data directory that has the metadata log; None where none has."""
    if metadata_directory is not None:
        directory = path_at(metadata_directory).resolve()
        return directory.parent if directory.name == f"{CLUSTER_METADATA}-0" else directory
    with_log = with_metadata_log(directories)
    if len(with_log) > 1:
        raise ValueError(
            f"{with_log[0]} and {with_log[1]} have a metadata log each; name one of them"
        )
    return with_log[0] if with_log else None


def metadata_beside(directory: Path) -> Path | None:
    """A directory beside this one with the metadata log of the same broker, found by its ids.

    It is named and not read: it may be an old copy. Beside a URL is the rest of the store, which is
    not looked through.
    """
    if isinstance(directory, RemotePath):
        return None
    broker = _broker_of(directory)
    with suppress(OSError):
        for log in sorted(directory.parent.glob(f"*/{CLUSTER_METADATA}-0")):
            if broker is not None and _broker_of(log.parent) == broker:
                return log.parent
    return None


def why_no_metadata_log(directory: Path) -> str:
    """Why the settings of topics are not known here, and which option names their directory."""
    beside = metadata_beside(directory)
    return _NO_LOG if beside is None else f"{_LOG_BESIDE} {command_line('--metadata-dir', beside)}"


def group_by_broker(homes: Iterable[Path]) -> list[list[Path]]:
    """Data directories, grouped by broker, in order; one with unknown ids is its own group."""
    groups: dict[object, list[Path]] = {}
    for directory in homes:
        groups.setdefault(_broker_of(directory) or directory, []).append(directory)
    return list(groups.values())


def _broker_of(home: Path) -> tuple[str, int] | None:
    """Cluster and node of a data directory; None if its ids are not known."""
    try:
        ids = metadata.read_meta_properties(home / FileKind.META_PROPERTIES.value)
    except (CorruptIndexError, LimitExceededError, OSError):
        return None
    if ids.cluster_id is None or ids.node_id is None:
        return None
    return ids.cluster_id, ids.node_id


def with_metadata_log(homes: Iterable[Path]) -> list[Path]:
    """The data directories that have a metadata log."""
    return [home for home in homes if (home / f"{CLUSTER_METADATA}-0").is_dir()]


def meta_properties_of(directory: Path) -> metadata.MetaProperties | None:
    """The ids in a data directory; None if they cannot be read."""
    with suppress(FileNotFoundError, CorruptIndexError):
        return metadata.read_meta_properties(directory / FileKind.META_PROPERTIES.value)
    return None
