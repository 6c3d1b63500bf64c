"""Groups put together from their last records: states, members, assignments, and shares.

| type | state by |
|---|---|
| Classic | the members of the last generation |
| Consumer (KIP-848), Streams (KIP-1071) | members, and their epochs beside the target's |
| Share (KIP-932) | members |

A group that has only commits is Classic and Empty, as for Kafka's tools.

Source: Kafka `GroupMetadataManager`, `ConsumerGroup.maybeUpdateGroupState`, `StreamsGroup`,
`ShareCoordinatorShard`, `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from kseg.documents import frozen_dataclass, id_text
from kseg.internal import InternalRecord

_KINDS: Final = {"CONSUMER_GROUP": "Consumer", "SHARE_GROUP": "Share", "STREAMS_GROUP": "Streams"}
_CLASSIC: Final = "GROUP_METADATA"
#: Type of group -> Kafka's number for the state of a member that has its whole assignment.
_STABLE: Final = {"Consumer": 0, "Share": 0, "Streams": 1}
_TASKS: Final = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
#: `StateBatch.deliveryState`.
_DELIVERY: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
Fields = dict[str, Any]
Names = Mapping[UUID, str]


class Group(NamedTuple):
    """A group.

    Attributes:
        group: its id.
        type: Classic, Consumer, Share or Streams; "" for a group that has only tombstones.
        state: Stable, Empty, Dead; of the newer protocols also Assigning, Reconciling, NotReady.
        protocol_type: consumer, share or streams; for a classic group also others, such as connect,
            and "" for a group that has only commits.
        protocol: the assignor: of a classic group, or the server's for a consumer group.
        epoch: the generation of a classic group, else the group epoch.
        assignment_epoch: the epoch of the target assignment; None for a classic group.
        state_timestamp_ms: the time of the last change of state; None where records do not say.
        members: the number of members.
        commits: the number of committed offsets.
        pending: the number of commits that wait for the end of a transaction.
        lag: the sum over the commits, or share partitions, whose log is here; None if there are
            none, if a partition of a member has no commit, or if a commit is beyond the end.
        expires_ms: when the first of its commits expires; None if none does.
        log_partition: the partition of `__consumer_offsets` that has it.
    """

    group: str
    type: str
    state: str
    protocol_type: str | None = None
    protocol: str | None = None
    epoch: int | None = None
    assignment_epoch: int | None = None
    state_timestamp_ms: int | None = None
    members: int = 0
    commits: int = 0
    pending: int = 0
    lag: int | None = None
    expires_ms: int | None = None
    log_partition: int | None = None


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        group, member_id, instance_id, client_id, host, rack: names.
        epoch: the member's epoch; None in a classic group.
        state: Kafka's number of the member's state; None in a classic group.
        topics: the topics that it subscribes to; None where they cannot be read.
        regex: the regular expression that it subscribes to.
        assignment: its `topic` (for a streams group, the subtopology), `partitions`, and `role`
            (active, standby or warmup, for a streams group).
        target: the assignment to reach; None in a classic group.
        user_data_bytes: the size of its additions to subscription and assignment.
    """

    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    state: int | None
    topics: tuple[str, ...] | None
    regex: str | None
    assignment: tuple[dict[str, Any], ...] | None
    target: tuple[dict[str, Any], ...] | None
    user_data_bytes: int


class ShareState(NamedTuple):
    """How far a share group has come in a partition.

    Attributes:
        group, topic, partition: the group and the partition; the topic's id if it has no known
            name.
        start_offset: the first offset that may be delivered; -1 before the first one.
        end_offset, end_from: as for commits.
        lag: records to the end that are not yet done.
        delivery_complete_count: records from the start on that are done; None before Kafka 4.2.
        in_flight: records from the start on that have a state.
        available, acquired, acknowledged, archiving, archived: the number of records in each
            state.
        snapshot_epoch, state_epoch, leader_epoch: as the last snapshot and its updates say.
    """

    group: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int | None
    end_from: str | None
    lag: int | None
    delivery_complete_count: int | None
    in_flight: int
    available: int
    acquired: int
    acknowledged: int
    archiving: int
    archived: int
    snapshot_epoch: int
    state_epoch: int | None
    leader_epoch: int


@dataclass(slots=True)
class GroupRecords:
    """The last records of one group.

    Attributes:
        log_partition: the partition of `__consumer_offsets` that has them.
        values: name of a record -> member id or regular expression ("" if neither) -> value.
    """

    log_partition: int
    values: dict[str, dict[str, Fields | None]] = field(
        default_factory=lambda: defaultdict(dict[str, "Fields | None"])
    )

    def live(self, name: str) -> dict[str, Fields]:
        """The values of the records of a name, keyed as in `values`, without tombstones."""
        return {key: value for key, value in self.values.get(name, {}).items() if value is not None}


@frozen_dataclass
class Built:
    """A group put together from its records.

    Attributes:
        group, members: the group, without its commits.
        expires_from: "commit" if commits expire by their own time, "state" by that of the group's
            last change; "" if none expires.
        subscribed: topics whose commits do not expire.
    """

    group: Group
    members: tuple[Member, ...] = ()
    expires_from: str = "commit"
    subscribed: frozenset[str] = frozenset()


def file_record(record: InternalRecord, log_partition: int, into: dict[str, GroupRecords]) -> None:
    """Add a record of `__consumer_offsets` to its group."""
    key: Any = record.key
    group = key.get("groupId", key.get("group"))
    records = into.setdefault(group, GroupRecords(log_partition))
    member: str = key.get("memberId", key.get("regularExpression", ""))
    value: Any = record.value
    records.values[record.name or ""][member] = value


def build(name: str, records: GroupRecords, names: Names) -> Built:
    """Put a group together.

    Args:
        name: its id.
        records: its last records.
        names: topic ids -> names of topics.
    """
    for prefix, kind in _KINDS.items():
        if records.live(f"{prefix}_METADATA"):
            return _modern_group(name, kind, prefix, records, names)
    classic = records.live(_CLASSIC)
    if classic:
        return _classic(name, classic[""], records.log_partition)
    return Built(Group(name, "", "Dead", log_partition=records.log_partition))


def _classic(name: str, value: Fields, log_partition: int) -> Built:
    """A group of the classic protocol.

    As in Kafka, the commits of an empty group expire by the time of its last change; those of a
    consumer group whose subscriptions are known by their own time, except for subscribed topics;
    and those of other groups not at all.
    """
    members = tuple(_classic_member(name, member) for member in value["members"])
    kind = value["protocolType"] or ""
    changed = value.get("currentStateTimestamp", -1)
    group = Group(
        name,
        "Classic",
        "Stable" if members else "Empty",
        kind,
        value["protocol"],
        epoch=value["generation"],
        state_timestamp_ms=None if changed == -1 else changed,
        members=len(members),
        log_partition=log_partition,
    )
    topics = [member.topics for member in members]
    if not kind or (not members and changed == -1):
        return Built(group, members)
    if not members:
        return Built(group, members, "state")
    if kind != "consumer" or value["protocol"] is None or None in topics:
        return Built(group, members, "")
    return Built(
        group,
        members,
        subscribed=frozenset(topic for subscription in topics for topic in subscription or ()),
    )


def _classic_member(group: str, value: Fields) -> Member:
    """A member, from the value of its group; an undecoded subscription or assignment is bytes."""
    subscription = value["subscription"]
    assignment = value["assignment"]
    parts = None
    if isinstance(assignment, dict):
        parts = tuple(
            {"topic": topic["topic"], "partitions": list(topic["partitions"]), "role": None}
            for topic in assignment["assignedPartitions"]
        )
    return Member(
        group,
        value["memberId"],
        value.get("groupInstanceId"),
        value["clientId"],
        value["clientHost"],
        None,
        None,
        None,
        tuple(subscription["topics"]) if isinstance(subscription, dict) else None,
        None,
        parts,
        None,
        _user_bytes(subscription) + _user_bytes(assignment),
    )


def _user_bytes(part: Fields | bytes) -> int:
    """The size of the user data of a subscription or assignment; of all of it if undecoded."""
    return len(part if isinstance(part, bytes) else part["userData"] or b"")


def _modern_group(name: str, kind: str, prefix: str, records: GroupRecords, names: Names) -> Built:
    """A group of one of the newer protocols.

    Args:
        name: its id.
        kind, prefix: from `_KINDS`.
        records: its last records.
        names: topic ids -> names of topics.
    """
    value = records.live(f"{prefix}_METADATA")[""]
    target = records.live(f"{prefix}_TARGET_ASSIGNMENT_METADATA").get("", {})
    assignment_epoch = target.get("assignmentEpoch", 0)
    targets = records.live(f"{prefix}_TARGET_ASSIGNMENT_MEMBER")
    current = records.live(f"{prefix}_CURRENT_MEMBER_ASSIGNMENT")
    metadata = records.live(f"{prefix}_MEMBER_METADATA")
    members = tuple(
        _member(
            name,
            member_id,
            metadata[member_id],
            current.get(member_id, {}),
            targets.get(member_id),
            names,
        )
        for member_id in sorted(metadata)
    )
    topology = records.live("STREAMS_GROUP_TOPOLOGY").get("")
    has_topology = topology and topology["epoch"] == value.get("validatedTopologyEpoch")
    settled = all(
        (member.state, member.epoch) == (_STABLE[kind], assignment_epoch) for member in members
    )
    if not members:
        state = "Empty"
    elif kind == "Streams" and not has_topology:
        state = "NotReady"
    elif kind != "Share" and value["epoch"] > assignment_epoch:
        state = "Assigning"
    else:
        state = "Stable" if settled or kind == "Share" else "Reconciling"
    group = Group(
        name,
        kind,
        state,
        kind.lower(),
        next(
            (assignor for value in metadata.values() if (assignor := value.get("serverAssignor"))),
            None,
        ),
        value["epoch"],
        assignment_epoch,
        None,
        len(members),
        log_partition=records.log_partition,
    )
    subscribed = {topic for member in members for topic in member.topics or ()}
    for expression in records.live(f"{prefix}_REGULAR_EXPRESSION").values():
        subscribed.update(expression["topics"])
    if topology and members:
        for part in topology["subtopologies"]:
            subscribed.update(part["sourceTopics"])
    return Built(group, members, subscribed=frozenset(subscribed))


def _member(
    group: str, name: str, value: Fields, current: Fields, target: Fields | None, names: Names
) -> Member:
    """A member of one of the newer protocols: its metadata, its assignment, and that to reach."""
    topics = value.get("subscribedTopicNames")
    return Member(
        group,
        name,
        value.get("instanceId"),
        value["clientId"],
        value["clientHost"],
        value["rackId"],
        current.get("memberEpoch"),
        current.get("state"),
        None if topics is None else tuple(topics),
        value.get("subscribedTopicRegex"),
        _parts(current, names),
        None if target is None else _parts(target, names),
        0,
    )


def _parts(value: Fields, names: Names) -> tuple[Fields, ...]:
    """The partitions, or tasks, of an assignment."""
    parts = [
        {
            "topic": names.get(part["topicId"]) or id_text(part["topicId"]),
            "partitions": list(part["partitions"]),
            "role": None,
        }
        for part in (*value.get("assignedPartitions", ()), *value.get("topicPartitions", ()))
    ]
    for tasks, role in _TASKS.items():
        for task in value.get(tasks, ()):
            partitions = list(task["partitions"])
            parts.append({"topic": task["subtopologyId"], "partitions": partitions, "role": role})
    return tuple(parts)


@dataclass(slots=True)
class Delivery:
    """The last snapshot of a share partition, and the updates after it.

    Attributes:
        last: the fields of the snapshot, changed by the updates.
        batches: first offset, last offset, delivery count and state of all batches in the snapshot
            and the updates.
    """

    last: Fields
    batches: list[tuple[int, int, int, int]]

    def counts(self) -> dict[str, int]:
        """The number of records from the start offset on in each state.

        Where batches overlap, the higher delivery count is right, then the higher state.
        """
        start = self.last["startOffset"]
        # Counts and states are negated, so that the smallest batch of the heap is the right one.
        batches = sorted(
            (max(first, start), last, -count, -state)
            for first, last, count, state in self.batches
            if max(first, start) <= last
        )
        bounds = sorted({bound for first, last, *_ in batches for bound in (first, last + 1)})
        counts, next_batch = dict.fromkeys(_DELIVERY.values(), 0), 0
        heap = list[tuple[int, int, int]]()  # batches that have begun: -count, -state, last offset
        for start_of_part, end_of_part in pairwise(bounds):
            while next_batch < len(batches) and batches[next_batch][0] <= start_of_part:
                _, last, count, state_number = batches[next_batch]
                heappush(heap, (count, state_number, last))
                next_batch += 1
            while heap and heap[0][2] < start_of_part:
                heappop(heap)
            if heap and (state := _DELIVERY.get(-heap[0][1])):
                counts[state] += end_of_part - start_of_part
        return counts

    def row(
        self, group: str, topic: str, partition: int, end: int | None, end_from: Any
    ) -> ShareState:
        """The state, beside the end of its partition and the source of this end.

        The lag is known where Kafka counts the records that are done, since 4.2.
        """
        start = self.last["startOffset"]
        done = self.last.get("deliveryCompleteCount", -1)
        has_lag = end is not None and start >= 0 and done >= 0
        counts: dict[str, Any] = self.counts()
        return ShareState(
            group,
            topic,
            partition,
            start,
            end,
            end_from,
            max((end or 0) - start - done, 0) if has_lag else None,
            None if done < 0 else done,
            sum(counts.values()),
            **counts,
            snapshot_epoch=self.last["snapshotEpoch"],
            state_epoch=self.last.get("stateEpoch"),
            leader_epoch=self.last["leaderEpoch"],
        )


def deliver(record: InternalRecord, into: dict[tuple[str, UUID, int], Delivery]) -> None:
    """Apply a record of `__share_group_state`; records come in the order of the log.

    An update after a snapshot adds batches; -1 stands for a field that it does not change.

    Args:
        record: the record.
        into: (group, topic id, partition) -> its state so far; is updated.
    """
    key: Any = record.key
    value: Any = record.value
    partition = (key["groupId"], key["topicId"], key["partition"])
    if value is None:
        if record.name == "SHARE_SNAPSHOT":
            into.pop(partition, None)
        return
    batches = [
        (batch["firstOffset"], batch["lastOffset"], batch["deliveryCount"], batch["deliveryState"])
        for batch in value["stateBatches"]
    ]
    if record.name == "SHARE_SNAPSHOT" or partition not in into:
        into[partition] = Delivery(value, batches)
        return
    delivery = into[partition]
    of_snapshots = ("snapshotEpoch", "stateEpoch")
    changed = {
        name: field_value
        for name, field_value in value.items()
        if name not in of_snapshots
        and not (field_value == -1 and name in ("startOffset", "leaderEpoch"))
    }
    delivery.last = delivery.last | changed
    delivery.batches += batches
