"""The metadata of a cluster, from the log of KRaft: topics, replicas, configurations and features.

    00000000000000000792-0000000001.checkpoint   the state after offsets 0..791, in epoch 1
    00000000000000000000.log                     records; those before 792 need not be read

`read_cluster` takes the newest sound snapshot and the records behind it. A snapshot is sound if
every checksum is, and it begins with a header and ends with a footer. An unsound snapshot makes a
finding, and an older one is taken.

Records between a BeginTransactionRecord and its end are applied with an EndTransactionRecord; the
records of a transaction that was aborted, or has no end, are not applied. A record that cannot be
understood makes a finding. If it may concern a topic or a configuration, the image is no longer
`trusted`, and no decision may rest on it.

Source: Kafka `MetadataBatchLoader`, `TopicsDelta`, `PartitionRegistration.merge`,
`ConfigurationsDelta`, `KafkaMetadataLog.latestSnapshot`, `RecordsSnapshotReader`,
`ServerTopicConfigSynonyms`, `AbstractKafkaConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from kseg.constants import ControlType, StopReason
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KsegError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import NamedFile, SegmentFiles, list_partition
from kseg.format.control import KRaftVoters, parse_control_as, parse_control_key
from kseg.internal import InternalRecord, InternalTopic, decode
from kseg.log.segment.reader import Segment

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class SettingValue(NamedTuple):
    """A setting's value, in Kafka's spelling, and where it comes from."""

    value: str
    source: str


#: Topic setting -> the broker's names for it, the strongest first, with what one unit is.
_NAMES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
}
_TOPIC_NAMES: Final = {name: own for own, names in _NAMES.items() for name, _ in names}
#: The names above: no other property of a broker is looked at, since some are secret.
BROKER_NAMES: Final = frozenset(_TOPIC_NAMES)


def topic_name_of(name: str) -> str:
    """The topic setting of a broker's property; the name itself for any other property.

    >>> topic_name_of("log.cleaner.min.compaction.lag.ms")
    'min.compaction.lag.ms'
    """
    return _TOPIC_NAMES.get(name, name)


def topic_settings(properties: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings of topics that a broker's properties say, by their names as topics have them.

    A smaller unit goes before a larger one, wherever the two come from: a broker joins its
    configurations first.

    >>> topic_settings({"log.retention.hours": SettingValue("2", "broker-config")})
    {'retention.ms': SettingValue(value='7200000', source='broker-config')}
    """
    found = {}
    for topic_name, names in _NAMES.items():
        for name, unit in names:
            if name in properties:
                value, source = properties[name]
                found[topic_name] = SettingValue(_in_ms(value.strip(), unit), source)
                break
    return found


def _in_ms(text: str, unit: int) -> str:
    """A number of units in ms; other text stays, and is refused later."""
    if unit == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        return text
    return str(number * unit if number >= 0 else -1)


#: `ConfigRecord.resourceType`.
TOPIC: Final = 2
BROKER: Final = 4

POLICY: Final = "cleanup.policy"
REMOTE_STORAGE: Final = "remote.storage.enable"
_LIMITS: Final = ("retention.ms", "retention.bytes")
#: By these segments go: none has a default that is taken for granted.
DELETING: Final = frozenset({POLICY, *_LIMITS})
_EVERY: Final = {"delete", "compact"}
#: For so long nothing is compacted, or nothing of it goes; by default for one is no time at all.
_PATIENCE: Final = {"delete.retention.ms": None, "min.compaction.lag.ms": "0"}

#: Ids of directories up to this one are words: migrating, unassigned, lost.
_DIRECTORY_RESERVED_MAX: Final = 99
#: Field of a record -> the attribute of `Assigned`.
_ASSIGNED: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "addingReplicas": "adding",
    "directories": "directories",
}
#: `PartitionChangeRecord.leader` where it stays.
_LEADER_STAYS: Final = -2

_BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
_END: Final = "END_TRANSACTION_RECORD"
_ABORT: Final = "ABORT_TRANSACTION_RECORD"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: its file, its batch's position there, its offset."""

    path: str
    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a setting, in records that no snapshot has yet.

    Attributes:
        resource: the kind and the name of what is configured: a topic, or a broker.
        name: of the setting.
        before, after: its value; None for none.
        offset: of the record.
    """

    resource: tuple[int, str]
    name: str
    before: str | None
    after: str | None
    offset: int

    @property
    def text(self) -> str:
        """The change in words."""
        return (
            f"{self.name} was changed from {self.before or 'nothing'} to {self.after or 'nothing'}"
            f" at offset {self.offset} of the metadata log, which may not be committed"
        )


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a partition is.

    Attributes:
        replicas: nodes that have it, or will.
        isr: the replicas that have all its records.
        adding: the replicas that are still copying it.
        leader: a node; -1 for none.
        directories: the data directory of each replica; none before Kafka 3.7.
    """

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader: int = -1
    directories: tuple[UUID, ...] = ()

    def directory_of(self, node_id: int) -> UUID | None:
        """The data directory of a node's replica; None where the records do not say."""
        found = dict(zip(self.replicas, self.directories, strict=False)).get(node_id)
        return None if found is None or found.int <= _DIRECTORY_RESERVED_MAX else found


@dataclass(slots=True)
class Cluster:
    """Topics and configurations, as far as the records went that were applied.

    Attributes:
        topics: names by id.
        ids: ids by name.
        configs: settings by the kind and the name of what they are for; "" for all brokers.
        partitions: by topic id and number. A topic without any says nothing of its replicas.
        counts: by topic id, the number of partitions behind each batch that made some. The records
            of a snapshot count as one batch: it has no older numbers.
        features: levels by name.
        changes: of settings, in records behind `snapshot_end`, in their order.
        findings: what could not be understood.
        trusted: whether all that bears on topics and configurations was.
        knows_replicas: whether all that bears on replicas was, too.
        whole: whether the log ends with a whole batch, behind which there is nothing.
        snapshot_end: the offset at which the snapshot ends that the records began with.
        end_offset, time_ms: up to where, and when, the records went that were read.
        cut_at: the offset at which the records of the log end in damage; None if they do not.
        voters: of the quorum, by its log; None where that does not have them.
    """

    topics: dict[UUID, str] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    partitions: dict[UUID, dict[int, Assigned]] = field(default_factory=dict)
    counts: dict[UUID, dict[tuple[str, int], int]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    findings: list[KsegError] = field(default_factory=list)
    trusted: bool = True
    knows_replicas: bool = True
    whole: bool = False
    snapshot_end: int = 0
    end_offset: int = 0
    time_ms: int = -1
    cut_at: int | None = None
    voters: tuple[int, ...] | None = None
    #: The batch in which a topic was made, by its name: its first settings are no change.
    _made: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Records of the transaction under way; None outside of one.
    _pending: list[tuple[InternalRecord, Place]] | None = None

    def doubt(self, error: KsegError) -> None:
        """Keep a finding, because of which nothing is to be decided."""
        self.findings.append(error)
        self.trusted = False

    def add(self, value: bytes | None, place: Place) -> None:
        """Apply a record of the metadata log, or keep it until its transaction ends."""
        try:
            record = decode(InternalTopic.METADATA, None, value)
        except InvalidRecordError as error:
            said = InvalidRecordError(error.reason, position=place.position, offset=place.offset)
            self.doubt(at_path(said, place.path))
            return
        if record.reason is not None:
            self._note_unknown(record, place)
        elif record.name in (_BEGIN, _END, _ABORT):
            self._turn(record, place)
        elif self._pending is not None:
            self._pending.append((record, place))
        else:
            self._apply(record, place)

    def _note_unknown(self, record: InternalRecord, place: Place) -> None:
        """A type or version that is not known; other known types bear on nothing here.

        Records of partitions say where replicas are, and nothing of what is deleted by settings.
        """
        error = UnsupportedFormatError(
            str(record.reason), path=place.path, position=place.position, offset=place.offset
        )
        if record.name is None or record.name in (*_APPLIED, _BEGIN, _END, _ABORT):
            self.doubt(error)
        else:
            self.findings.append(error)
            self.knows_replicas &= record.name not in _OF_PARTITIONS

    def _turn(self, record: InternalRecord, place: Place) -> None:
        """Begin or end a transaction."""
        pending, self._pending = self._pending, None
        if (record.name == _BEGIN) is not (pending is None):
            reason = f"{record.name} {'inside' if pending is not None else 'outside'} a transaction"
            self.doubt(InvalidRecordError(reason, path=place.path, offset=place.offset))
        if record.name == _BEGIN:
            self._pending = []
        elif record.name == _END:
            for each, its_place in pending or ():
                self._apply(each, its_place)

    def _apply(self, record: InternalRecord, place: Place) -> None:
        name = record.name or ""
        applied = _APPLIED.get(name) or _OF_PARTITIONS.get(name)
        if applied is not None:
            assert isinstance(record.value, dict)
            applied(self, record.value, place)

    def stray_reason(self, partition: TopicPartition, topic_id: UUID, node_id: int | None) -> str:
        """Why a partition's directory is not this node's any more; nothing if it is, or may be.

        Source: Kafka `LogManager.isStrayKraftReplica`.
        """
        if self.topics.get(topic_id) != partition.topic:
            is_other = partition.topic in self.ids
            how = "now has another id" if is_other else "is none of the cluster's any more"
            return f"its topic {how}"
        known = self.partitions.get(topic_id)
        if not known or node_id is None or not self.knows_replicas:
            return ""
        found = known.get(partition.partition)
        if found is None:
            return "its topic has no such partition"
        if node_id in found.replicas:
            return ""
        nodes = ", ".join(map(str, found.replicas))
        return f"its replicas are on {nodes} and not on {node_id} any more"

    # ---- types of records ------------------------------------------------------------------------

    def _add_topic(self, value: dict[str, Any], place: Place) -> None:
        name: str = value["name"]
        if name in self.ids:
            self._remove_topic({"topicId": self.ids[name]}, place)
        self.topics[value["topicId"]] = name
        self.ids[name] = value["topicId"]
        self._made[name] = (place.path, place.position)

    def _remove_topic(self, value: dict[str, Any], place: Place) -> None:
        topic_id: UUID = value["topicId"]
        name = self.topics.pop(topic_id, None)
        if name is not None:
            self.ids.pop(name, None)
            self.configs.pop((TOPIC, name), None)
            self.changes = [each for each in self.changes if each.resource != (TOPIC, name)]
            self._made.pop(name, None)
        self.partitions.pop(topic_id, None)
        self.counts.pop(topic_id, None)

    def _assign(self, value: dict[str, Any], place: Place) -> None:
        """A partition, or a change of one; None leaves a field as it is."""
        of_topic = self.partitions.get(value["topicId"], {})
        before = of_topic.get(value["partitionId"], Assigned())
        if not before.replicas and value["replicas"] is None:
            return
        changed: dict[str, Any] = {
            own: tuple(value[name])
            for name, own in _ASSIGNED.items()
            if value.get(name) is not None
        }
        if value["leader"] != _LEADER_STAYS:
            changed["leader"] = value["leader"]
        if value["partitionId"] not in of_topic:
            batch = (place.path, place.position if place.offset >= 0 else 0)
            self.counts.setdefault(value["topicId"], {})[batch] = len(of_topic) + 1
        of_topic[value["partitionId"]] = replace(before, **changed)
        self.partitions[value["topicId"]] = of_topic

    def _configure(self, value: dict[str, Any], place: Place) -> None:
        resource = (value["resourceType"], value["resourceName"])
        if resource[0] not in (TOPIC, BROKER):
            return
        found = self.configs.setdefault(resource, {})
        name, after = value["name"], value["value"]
        before = found.get(name)
        is_first = self._made.get(resource[1]) == (place.path, place.position)
        if place.offset >= self.snapshot_end and not (is_first and resource[0] == TOPIC):
            self.changes.append(Change(resource, name, before, after, place.offset))
        if after is None:
            found.pop(name, None)
        else:
            found[name] = after

    def _set_feature(self, value: dict[str, Any], place: Place) -> None:
        self.features[value["name"]] = value["featureLevel"]


_APPLIED: Final[dict[str, Callable[[Cluster, dict[str, Any], Place], None]]] = {
    "TOPIC_RECORD": Cluster._add_topic,
    "REMOVE_TOPIC_RECORD": Cluster._remove_topic,
    "CONFIG_RECORD": Cluster._configure,
    "FEATURE_LEVEL_RECORD": Cluster._set_feature,
}
_OF_PARTITIONS: Final[dict[str, Callable[[Cluster, dict[str, Any], Place], None]]] = {
    "PARTITION_RECORD": Cluster._assign,
    "PARTITION_CHANGE_RECORD": Cluster._assign,
}


def towards_deletion(changes: Sequence[Change], weaker: str | None) -> Change | None:
    """The first of a setting's changes before which less is deleted than by the value in force.

    Args:
        changes: of one setting of one resource, in their order.
        weaker: the value in force where the resource has none; None where that is not known.

    Returns:
        The change, from the value before it to the value in force; None without such a change.
    """
    last = changes[-1].after
    for each in changes:
        before = weaker if each.before is None else each.before
        found = replace(each, before=before, after=weaker if last is None else last)
        if _deletes_more(found):
            return found
    return None


def _deletes_more(change: Change) -> bool:
    """Whether more may be deleted after a change than before it; of what is no number, too."""
    name = topic_name_of(change.name) if change.resource[0] == BROKER else change.name
    before, after = change.before, change.after
    if name == POLICY:
        # One that is taken away leaves the broker's, which may be any.
        return not _policies(after, _EVERY) <= _policies(before, set())
    if name == REMOTE_STORAGE:
        return is_true(before) and not is_true(after)
    if name in _PATIENCE:
        before = _PATIENCE[name] if before is None else before
    elif name not in _LIMITS:
        return False
    if after is None:  # what is left is the broker's, which may be lower
        return before is not None
    now, then = _limit(after), _limit(before)
    return now is not None and (then is None or now < then)


def _policies(text: str | None, otherwise: set[str]) -> set[str]:
    return otherwise if text is None else {each.strip().lower() for each in text.split(",")} - {""}


def is_true(text: str | None) -> bool:
    """Whether a value is no plain false."""
    return text is not None and text.strip().lower() != "false"


def _limit(text: str | None) -> int | None:
    """A limit as a number; None for no limit."""
    try:
        number = -1 if text is None else int(text)
    except ValueError:
        number = 0
    return number if number >= 0 else None


_FIELDS: Final = ("offset", "key", "value", "control", "position", "timestamp")
_OnError = Callable[[KsegError], None]


class _MetadataRecord(NamedTuple):
    """A record of the log, or of a snapshot."""

    place: Place
    key: bytes | None
    value: bytes | None
    is_control: bool
    time_ms: int


def read_cluster(
    directory: str | PathLike[str],
    *,
    end_offset: int | None = None,
    past_damage: bool = False,
    oldest: bool = False,
) -> Cluster:
    """Read what a log of KRaft says.

    Args:
        directory: the partition's, `__cluster_metadata-0`.
        end_offset: read no record of the log from here on.
        past_damage: go on behind batches that are damaged, and behind gaps.
        oldest: begin with the first record, or the oldest snapshot: for what has changed since.

    Returns:
        What it came to. Damage, gaps and what is not known are findings; see `Cluster.trusted`.

    Raises:
        OSError: the directory, or a file of it, cannot be read.
    """
    listing = list_partition(directory)
    findings: list[KsegError] = []
    snapshots = sorted(listing.kraft_snapshots, key=_snapshot_id, reverse=not oldest)
    if oldest and listing.segments and listing.segments[0].base_offset == 0:
        snapshots = []
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
    # Records of a snapshot are committed: no change among them may be undone.
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


def _note_voters(found: _MetadataRecord, cluster: Cluster) -> None:
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
) -> Iterator[_MetadataRecord]:
    """The records of a log from an offset on; no segment that ends before it is read."""
    for index, segment in enumerate(segments):
        if index + 1 == len(segments) or segments[index + 1].base_offset > start:
            yield from _records(segment.log, start, on_error)


def _records(
    path: Path, start: int | None, on_error: _OnError | None = None
) -> Iterator[_MetadataRecord]:
    with Segment.open(path) as segment:
        read = segment.read(
            offset=(start, None), columns=_FIELDS, control=True, on_corrupt=on_error or "raise"
        )
        for columns in read:
            times = columns.timestamp_ms.tolist()
            offsets, positions = columns.offset.tolist(), columns.position.tolist()
            controls = columns.control.tolist()
            for row, offset in enumerate(offsets):
                place = Place(str(path), positions[row], offset)
                yield _MetadataRecord(
                    place, columns.key[row], columns.value[row], controls[row], times[row]
                )


__all__ = []
