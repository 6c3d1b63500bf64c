"""The state of a cluster by the records of its metadata log, and the settings of topics in it.

`Cluster.add` applies one record after the other; `kseg.log.settings.metadata_log` reads them.

Records between a BeginTransactionRecord and its end are applied with an EndTransactionRecord; the
records of a transaction that was aborted, or has no end, are not applied. A record that cannot be
understood makes a finding. If it may concern a topic or a configuration, the state is no longer
`trusted`, and no decision may rest on it.

Passwords: of a SCRAM user and a delegation token only the names are kept. The values of
configurations are kept as they are, and `repr` hides them; `kseg.internal.releases.shown`
decides which of them an output may have.

Source: Kafka `MetadataBatchLoader`, `TopicsDelta`, `PartitionRegistration.merge`, `ClusterDelta`,
`FeaturesDelta`, `ClientQuotaDelta`, `AclsDelta`, `ConfigurationsDelta`,
`ServerTopicConfigSynonyms`, `AbstractKafkaConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from kseg.constants import INT64_MAX
from kseg.documents import frozen_dataclass
from kseg.errors import InvalidRecordError, KsegError, UnsupportedFormatError, at_path
from kseg.files.checkpoints import TopicPartition
from kseg.format.control import Voter
from kseg.internal import InternalRecord, InternalTopic, decode
from kseg.log.config import topic_name_of

#: `ConfigRecord.resourceType`.
TOPIC: Final = 2
BROKER: Final = 4

POLICY: Final = "cleanup.policy"
REMOTE_STORAGE: Final = "remote.storage.enable"
_LIMITS: Final = ("retention.ms", "retention.bytes")
#: By these segments go: none has a default that is taken for granted.
DELETING: Final = frozenset({POLICY, *_LIMITS, "local.retention.bytes", "local.retention.ms"})
_EVERY: Final = {"delete", "compact"}
#: Settings of times for which nothing is compacted, or no tombstone is removed, with the default if
#: that is taken for granted. A shorter time may delete more.
_PATIENCE: Final = {"delete.retention.ms": None, "min.compaction.lag.ms": "0"}

#: A change of one of these, by its name for topics, may delete more than the value before it.
_TELLING: Final = {POLICY, REMOTE_STORAGE, *_LIMITS, *_PATIENCE}

#: Ids of directories up to this one have a meaning: migrating, unassigned, lost.
DIRECTORY_RESERVED_MAX: Final = 99
#: Field of a record -> the attribute of `Assigned`.
_ASSIGNED: Final = (
    ("replicas", "replicas"),
    ("isr", "isr"),
    ("addingReplicas", "adding"),
    ("removingReplicas", "removing"),
    ("eligibleLeaderReplicas", "elr"),
    ("lastKnownElr", "last_known_elr"),
    ("directories", "directories"),
)
#: `PartitionChangeRecord`: the leader stays; the state of its recovery stays.
_LEADER_STAYS: Final = -2
_RECOVERY_STAYS: Final = -1

_BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
_END: Final = "END_TRANSACTION_RECORD"
_ABORT: Final = "ABORT_TRANSACTION_RECORD"
#: A NoOpRecord; a controller writes two a second.
_NO_OP: Final = bytes((1, 20, 0, 0))
#: Further findings are counted, not kept.
_FINDINGS_MAX: Final = 1_000


class Place(NamedTuple):
    """The place of a record.

    Attributes:
        path: its file.
        position: the position of the record's batch in the file.
        offset: the offset of the record; -1 in a snapshot.
        time_ms: the time of the record; for a snapshot, that of the last record in it.
    """

    path: str
    position: int
    offset: int
    time_ms: int = -1


#: For objects without a record.
_NOWHERE: Final = Place("", 0, -1)


@frozen_dataclass
class Change:
    """A change of a setting, in records that no snapshot has yet.

    Attributes:
        resource: the kind and the name of the configured resource: a topic, or a broker.
        name: the name of the setting, one by which records are deleted.
        before, after: its value; None if it was not set.
        offset: the offset of the record.
    """

    resource: tuple[int, str]
    name: str
    before: str | None
    after: str | None
    offset: int

    @property
    def text(self) -> str:
        """The change as a sentence."""
        return (
            f"{self.name} was changed from {self.before or 'nothing'} to {self.after or 'nothing'}"
            f" at offset {self.offset} of the metadata log, which may not be committed"
        )


class Configured(NamedTuple):
    """A configuration's value, which may be a password, and the record that set it."""

    value: str
    place: Place

    def __repr__(self) -> str:
        """A text without the value, which may be a password."""
        return f"Configured(..., {self.place})"


class Fact(NamedTuple):
    """An object of the cluster: the fields of its record, and the place of its last change."""

    fields: Mapping[str, Any]
    place: Place


@dataclass(slots=True)
class Assigned:
    """The replicas of a partition, and its leader. Only the `Cluster` that has it changes it.

    Attributes:
        replicas: nodes that have it, or will.
        isr: the replicas that have all its records.
        adding, removing: the replicas that a reassignment adds, and takes away.
        leader: a node; -1 if there is none.
        leader_epoch, partition_epoch: the number of changes of the leader, and of all.
        elr, last_known_elr: the replicas that may lead though they are not in sync, of KIP-966.
        recovering: whether the leader was elected uncleanly, and recovers.
        directories: the data directory of each replica; empty before Kafka 3.7.
        place: the place of the last change.
    """

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    recovering: bool = False
    directories: tuple[UUID, ...] = ()
    place: Place = _NOWHERE

    def directory_of(self, node_id: int) -> UUID | None:
        """The data directory of a node's replica; None where the records do not say."""
        directory = dict(zip(self.replicas, self.directories, strict=False)).get(node_id)
        return None if directory is None or directory.int <= DIRECTORY_RESERVED_MAX else directory


#: The kinds of `Cluster.facts`, each with the names of the parts of its keys.
FACTS: Final = {
    "brokers": ("broker",),
    "controllers": ("controller",),
    "topics": ("topic",),
    "features": ("feature",),
    "quotas": ("entity", "quota"),
    "acls": ("acl_id",),
    "scram_users": ("user", "mechanism"),
    "delegation_tokens": ("token_id",),
}
_NODE: Final = {"incarnation_id": "incarnationId", "endpoints": "endPoints"}
_ACL: Final = {
    "resource_type": "resourceType",
    "resource": "resourceName",
    "pattern": "patternType",
    "principal": "principal",
    "host": "host",
    "operation": "operation",
    "permission": "permissionType",
}
#: Type of record -> kind, fields of the key, and kept fields: field of `Fact` -> field of record.
#: The salt and the keys of a SCRAM user are not, so that nothing can show them.
_KEPT: Final[dict[str, tuple[str, tuple[str, ...], dict[str, str]]]] = {
    "REGISTER_BROKER_RECORD": (
        "brokers",
        ("brokerId",),
        {
            "rack": "rack",
            "fenced": "fenced",
            "in_controlled_shutdown": "inControlledShutdown",
            "epoch": "brokerEpoch",
            "directories": "logDirs",
            "cordoned_directories": "cordonedLogDirs",
            **_NODE,
        },
    ),
    "REGISTER_CONTROLLER_RECORD": ("controllers", ("controllerId",), _NODE),
    "ACCESS_CONTROL_ENTRY_RECORD": ("acls", ("id",), _ACL),
    "USER_SCRAM_CREDENTIAL_RECORD": ("scram_users", ("name", "mechanism"), {}),
    "DELEGATION_TOKEN_RECORD": (
        "delegation_tokens",
        ("tokenId",),
        {"owner": "owner", "requester": "requester"},
    ),
}
#: Type of record -> kind and key of the object that it removes.
_GONE: Final = {
    "UNREGISTER_BROKER_RECORD": ("brokers", ("brokerId",)),
    "UNREGISTER_CONTROLLER_RECORD": ("controllers", ("controllerId",)),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": ("acls", ("id",)),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": ("scram_users", ("name", "mechanism")),
    "REMOVE_DELEGATION_TOKEN_RECORD": ("delegation_tokens", ("tokenId",)),
}


@dataclass(slots=True)
class Cluster:
    """The state of a cluster after the records that were applied.

    Attributes:
        topics: names by id.
        ids: topic ids, keyed by name.
        configs: configurations, keyed by the kind and the name of their owner; "" for all brokers.
        partitions: keyed by topic id and number. If a topic has none, its replicas are unknown.
        counts: topic id -> the number of partitions after each batch that made some. The records
            of a snapshot count as one batch: it has no older numbers.
        facts: the other objects by kind and key; the fields of their records that may be shown.
        changes: changes of settings by which records are deleted, in their order.
        changes_from: the offset of the first record whose change is kept.
        findings: records that could not be understood.
        notes: sentences about metadata transactions whose records were not applied.
        newer: the largest version of each type of record that has newer ones than kseg knows; the
            known fields of these records were applied.
        trusted: whether all that bears on topics and configurations was.
        knows_replicas: whether all that bears on replicas was, too.
        whole: whether the log ends with a whole batch, after which there is nothing.
        snapshot_end: the offset at which the snapshot ends that the records began with.
        end_offset: the offset after the records that were read.
        time_ms: the time of the last record; for a snapshot, that of the last record in it.
        epoch: the quorum leader's epoch, from the last record.
        last: the place of the last record; None if all are from a snapshot.
        cut_at: the offset at which the records of the log end in damage; None if they do not.
        leader: the quorum's leader, from its last change in the log; None if there is none.
        voters: the quorum's voters, from its log; None if that does not have them.
        elections_after_ms: elections in records after this time are kept.
        elections: changes of leaders: the topic's id, the partition, its state before, the fields
            of the record and its place.
    """

    topics: dict[UUID, str] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, Configured]] = field(default_factory=dict)
    partitions: dict[UUID, dict[int, Assigned]] = field(default_factory=dict)
    counts: dict[UUID, dict[tuple[str, int], int]] = field(default_factory=dict)
    facts: dict[str, dict[tuple[Any, ...], Fact]] = field(
        default_factory=lambda: {kind: {} for kind in FACTS}
    )
    changes: list[Change] = field(default_factory=list)
    findings: list[KsegError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    newer: dict[str, int] = field(default_factory=dict)
    trusted: bool = True
    knows_replicas: bool = True
    whole: bool = False
    changes_from: int = 0
    snapshot_end: int = 0
    end_offset: int = 0
    time_ms: int = -1
    epoch: int = -1
    last: Place | None = None
    cut_at: int | None = None
    leader: int | None = None
    voters: tuple[Voter, ...] | None = None
    elections_after_ms: int = INT64_MAX
    elections: list[tuple[UUID, int, Assigned, Mapping[str, Any], Place]] = field(
        default_factory=list
    )
    #: The batch in which a topic was made, by its name: its first settings are not a change.
    _made: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Records of the unfinished transaction; None outside of one.
    _pending: list[tuple[InternalRecord, Place]] | None = field(default=None, repr=False)

    def doubt(self, error: KsegError) -> None:
        """Keep a finding, because of which nothing is to be decided."""
        self._find(error)
        self.trusted = False

    def _find(self, error: KsegError) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(error)

    def add(self, value: bytes | None, place: Place) -> None:
        """Apply a record of the metadata log, or keep it until its transaction ends."""
        if value == _NO_OP:
            return
        try:
            record = decode(InternalTopic.METADATA, None, value)
        except InvalidRecordError as error:
            placed_error = InvalidRecordError(
                error.reason, position=place.position, offset=place.offset
            )
            self.doubt(at_path(placed_error, place.path))
            return
        applied = _OF_PARTITIONS.get(record.name)
        if record.reason is not None:
            self._note_unknown(record, place)
        if not record.is_understood:
            return
        if applied is not None and self._pending is None:  # most records are of this kind
            applied(self, record.value, place)
        elif record.name in (_BEGIN, _END, _ABORT):
            pending, self._pending = self._pending, None
            if (record.name == _BEGIN) is not (pending is None):
                reason = (
                    f"{record.name} {'inside' if pending is not None else 'outside'} a transaction"
                )
                self.doubt(InvalidRecordError(reason, path=place.path, offset=place.offset))
            if record.name == _BEGIN:
                self._pending = []
            elif record.name == _END:
                for pending_record, pending_place in pending or ():
                    self._apply(pending_record, pending_place)
            elif pending is not None:
                self._leave_out(pending, f"was aborted at offset {place.offset}")
        elif self._pending is not None:
            self._pending.append((record, place))
        else:
            self._apply(record, place)

    def _note_unknown(self, record: InternalRecord, record_place: Place) -> None:
        """Note a type or version that is not known, if it may bear on deletion.

        Records of partitions tell where replicas are, and nothing about deletion. A newer version
        without fields that are not known says what the known version says.
        """
        if record.is_understood:
            name, version = str(record.name), record.version or 0
            self.newer[name] = max(version, self.newer.get(name, 0))
            if not record.unknown_tags or record.name not in _APPLIED:
                return
        error = UnsupportedFormatError(
            str(record.reason),
            path=record_place.path,
            position=record_place.position,
            offset=record_place.offset,
        )
        if record.name is None or record.name in (*_APPLIED, _BEGIN, _END, _ABORT):
            self.doubt(error)
        else:
            self._find(error)
            self.knows_replicas &= record.name not in _OF_PARTITIONS

    def end(self) -> None:
        """Take note of a transaction that has no end."""
        if self._pending is not None:
            self._leave_out(self._pending, "has no end here")

    def _leave_out(self, pending: Sequence[tuple[InternalRecord, Place]], why: str) -> None:
        if len(self.notes) < _FINDINGS_MAX:
            first = f", from offset {pending[0][1].offset} on" if pending else ""
            text = f"a metadata transaction {why}: {len(pending)} records{first} are not applied"
            self.notes.append(text)

    def _apply(self, record: InternalRecord, record_place: Place) -> None:
        """Apply a record according to its type: call a function for it, or set or remove a fact."""
        name, value = record.name or "", record.value
        assert isinstance(value, dict)
        applied = _ALL_APPLIED.get(name)
        if applied is not None:
            applied(self, value, record_place)
        elif name in _KEPT:
            kind, keys, columns = _KEPT[name]
            fields = {
                column: value.get(name_in_record) for column, name_in_record in columns.items()
            }
            self.facts[kind][tuple(value[key] for key in keys)] = Fact(fields, record_place)
        elif name in _GONE:
            kind, keys = _GONE[name]
            self.facts[kind].pop(tuple(value[key] for key in keys), None)

    def stray_reason(self, partition: TopicPartition, topic_id: UUID, node_id: int | None) -> str:
        """Why a partition's directory is not this node's any more; empty if it is, or may be.

        Source: Kafka `LogManager.isStrayKraftReplica`.
        """
        if self.topics.get(topic_id) != partition.topic:
            is_other = partition.topic in self.ids
            how = "now has another id" if is_other else "no longer belongs to the cluster"
            return f"its topic {how}"
        partitions = self.partitions.get(topic_id)
        if not partitions or node_id is None or not self.knows_replicas:
            return ""
        assigned = partitions.get(partition.partition)
        if assigned is None:
            return "its topic has no such partition"
        if node_id in assigned.replicas:
            return ""
        nodes = ", ".join(map(str, assigned.replicas))
        return f"its replicas are on {nodes} and not on {node_id} any more"

    # ---- types of records ------------------------------------------------------------------------

    def _add_topic(self, value: dict[str, Any], record_place: Place) -> None:
        """Add a topic; an older topic of the same name is removed."""
        name: str = value["name"]
        if name in self.ids:
            self._remove_topic({"topicId": self.ids[name]}, record_place)
        self.topics[value["topicId"]] = name
        self.ids[name] = value["topicId"]
        self.facts["topics"][(name,)] = Fact({"topic_id": value["topicId"]}, record_place)
        self._made[name] = (record_place.path, record_place.position)

    def _remove_topic(self, value: dict[str, Any], record_place: Place) -> None:
        """Remove a topic with all facts about it."""
        topic_id: UUID = value["topicId"]
        name = self.topics.pop(topic_id, None)
        if name is not None:
            self.ids.pop(name, None)
            self.facts["topics"].pop((name,), None)
            self.configs.pop((TOPIC, name), None)
            self.changes = [change for change in self.changes if change.resource != (TOPIC, name)]
            self._made.pop(name, None)
        self.partitions.pop(topic_id, None)
        self.counts.pop(topic_id, None)

    def _assign(self, value: dict[str, Any], record_place: Place) -> None:
        """Add a partition, or change one; None leaves a field as it is.

        Source: Kafka `PartitionRegistration.merge`.
        """
        of_topic = self.partitions.get(value["topicId"])
        if of_topic is None:
            of_topic = self.partitions[value["topicId"]] = {}
        assigned = of_topic.get(value["partitionId"])
        if "leaderEpoch" in value:
            assigned = Assigned(
                leader_epoch=value["leaderEpoch"], partition_epoch=value["partitionEpoch"]
            )
            if value["partitionId"] not in of_topic:
                batch = (
                    record_place.path,
                    record_place.position if record_place.offset >= 0 else 0,
                )
                self.counts.setdefault(value["topicId"], {})[batch] = len(of_topic) + 1
            of_topic[value["partitionId"]] = assigned
        elif assigned is None:
            return
        else:
            if value["leader"] != _LEADER_STAYS and record_place.time_ms > self.elections_after_ms:
                numbers = value["topicId"], value["partitionId"]
                self.elections.append((*numbers, replace(assigned), value, record_place))
            if value["leader"] != _LEADER_STAYS:
                assigned.leader_epoch += 1
            assigned.partition_epoch += 1
            if value["replicas"] is not None:
                assigned.directories = ()
        for name, attribute in _ASSIGNED:
            new_value = value.get(name)
            if new_value is not None:
                setattr(assigned, attribute, new_value)
        if value["leader"] != _LEADER_STAYS:
            assigned.leader = value["leader"]
        if value["leaderRecoveryState"] != _RECOVERY_STAYS:
            assigned.recovering = value["leaderRecoveryState"] != 0
        assigned.place = record_place

    def _clear_elr(self, value: dict[str, Any], record_place: Place) -> None:
        """Forget the eligible replicas of a topic's partitions; of all topics if it has no name."""
        name = value["topicName"]
        topic_ids = [self.ids[name]] if name in self.ids else []
        for topic_id in topic_ids if name else self.partitions:
            for assigned in self.partitions.get(topic_id, {}).values():
                if assigned.elr or assigned.last_known_elr:
                    assigned.elr, assigned.last_known_elr, assigned.place = (), (), record_place

    def _configure(self, value: dict[str, Any], record_place: Place) -> None:
        """Set or remove a setting of a resource.

        A change counts for `changes` if it comes after their begin, and not with the making of its
        topic.
        """
        resource = (value["resourceType"], value["resourceName"])
        configured = self.configs.setdefault(resource, {})
        name, after = value["name"], value["value"]
        before = configured.get(name)
        if record_place.offset >= self.changes_from and topic_name_of(name) in _TELLING:
            is_first = self._made.get(resource[1]) == (record_place.path, record_place.position)
            if not (is_first and resource[0] == TOPIC):
                old = None if before is None else before.value
                self.changes.append(Change(resource, name, old, after, record_place.offset))
        if after is None:
            configured.pop(name, None)
        else:
            configured[name] = Configured(after, record_place)

    def _set_feature(self, value: dict[str, Any], record_place: Place) -> None:
        """Set the level of a feature; 0 removes it."""
        name, level = value["name"], value["featureLevel"]
        if level:
            self.facts["features"][(name,)] = Fact({"level": level}, record_place)
        else:
            self.facts["features"].pop((name,), None)

    def _set_quota(self, value: dict[str, Any], record_place: Place) -> None:
        """Set or remove a quota of an entity, such as a user and a client."""
        entity = ((part["entityType"], part["entityName"]) for part in value["entity"])
        key = (tuple(sorted(entity, key=str)), value["key"])
        if value["remove"]:
            self.facts["quotas"].pop(key, None)
        else:
            self.facts["quotas"][key] = Fact({"value": value["value"]}, record_place)

    def _change_broker(self, value: dict[str, Any], record_place: Place) -> None:
        """Change the registration of a broker; 1 fences it, -1 ends that, 0 does neither.

        Source: Kafka `ClusterDelta.replay` of a `BrokerRegistrationChangeRecord`.
        """
        changed: dict[str, Any] = {}
        if value["fenced"]:
            changed["fenced"] = value["fenced"] > 0
        if value.get("inControlledShutdown"):
            changed["in_controlled_shutdown"] = True
        if value.get("logDirs"):
            changed["directories"] = value["logDirs"]
        if value.get("cordonedLogDirs") is not None:
            changed["cordoned_directories"] = value["cordonedLogDirs"]
        self._amend_broker(value["brokerId"], changed, record_place)

    def _fence_broker(self, value: dict[str, Any], record_place: Place) -> None:
        self._amend_broker(value["id"], {"fenced": True}, record_place)

    def _unfence_broker(self, value: dict[str, Any], record_place: Place) -> None:
        self._amend_broker(value["id"], {"fenced": False}, record_place)

    def _amend_broker(self, number: int, changed: Mapping[str, Any], record_place: Place) -> None:
        before = self.facts["brokers"].get((number,))
        if before is not None:
            self.facts["brokers"][(number,)] = Fact({**before.fields, **changed}, record_place)


_Applied = Mapping[str | None, Callable[[Cluster, Any, Place], None]]
_APPLIED: Final[_Applied] = {
    "TOPIC_RECORD": Cluster._add_topic,
    "REMOVE_TOPIC_RECORD": Cluster._remove_topic,
    "CONFIG_RECORD": Cluster._configure,
    "FEATURE_LEVEL_RECORD": Cluster._set_feature,
}
_OF_PARTITIONS: Final[_Applied] = {
    "PARTITION_RECORD": Cluster._assign,
    "PARTITION_CHANGE_RECORD": Cluster._assign,
}
_OTHERS: Final[_Applied] = {
    "CLEAR_ELR_RECORD": Cluster._clear_elr,
    "CLIENT_QUOTA_RECORD": Cluster._set_quota,
    "BROKER_REGISTRATION_CHANGE_RECORD": Cluster._change_broker,
    "FENCE_BROKER_RECORD": Cluster._fence_broker,
    "UNFENCE_BROKER_RECORD": Cluster._unfence_broker,
}
_ALL_APPLIED: Final[_Applied] = {**_APPLIED, **_OF_PARTITIONS, **_OTHERS}


def towards_deletion(changes: Sequence[Change], weaker: str | None) -> Change | None:
    """The first of a setting's changes before which less is deleted than by the value in force.

    Args:
        changes: the changes of one setting of one resource, in their order.
        weaker: the value in force if the resource has none; None if unknown.

    Returns:
        The change, from the value before it to the value in force; None if there is none.
    """
    last = changes[-1].after
    for change in changes:
        before = weaker if change.before is None else change.before
        net_change = replace(change, before=before, after=weaker if last is None else last)
        if _deletes_more(net_change):
            return net_change
    return None


def _deletes_more(change: Change) -> bool:
    """Whether more may be deleted after a change than before; a text that is no number is 0."""
    name = topic_name_of(change.name) if change.resource[0] == BROKER else change.name
    before, after = change.before, change.after
    if name == POLICY:
        # A removed value leaves the broker's, which is unknown.
        return not _policies(after, _EVERY) <= _policies(before, set())
    if name == REMOTE_STORAGE:
        return is_true(before) and not is_true(after)
    if name in _PATIENCE:
        before = _PATIENCE[name] if before is None else before
    elif name not in _LIMITS:
        return False
    if after is None:  # the broker's value remains, which may be lower
        return before is not None
    now, then = _limit(after), _limit(before)
    return now is not None and (then is None or now < then)


def _policies(text: str | None, otherwise: set[str]) -> set[str]:
    return (
        otherwise if text is None else {policy.strip().lower() for policy in text.split(",")} - {""}
    )


def is_true(text: str | None) -> bool:
    """Whether a value is not plainly false."""
    return text is not None and text.strip().lower() != "false"


def _limit(text: str | None) -> int | None:
    """A limit as a number; None for no limit."""
    try:
        number = -1 if text is None else int(text)
    except ValueError:
        number = 0
    return number if number >= 0 else None


__all__: list[str] = []
