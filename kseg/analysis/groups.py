"""`groups`: consumer, share and streams groups, from Kafka's internal topics in data directories.

Members and states come from the last records of each group, commits from the last value of each
key, column by column. Facts without a record are left out: the coordinator's node, the steps of a
rebalance, positions of consumers that were not committed.

| type | state by |
|---|---|
| Classic | the members of the last generation |
| Consumer (KIP-848), Streams (KIP-1071) | members, and their epochs beside the target's |
| Share (KIP-932) | members |

A group of commits alone is Classic and Empty, as for Kafka's tools.

Source: Kafka `GroupMetadataManager`, `ConsumerGroup.maybeUpdateGroupState`, `StreamsGroup`,
`ClassicGroup.offsetExpirationCondition`, `ShareCoordinatorShard`, `PersisterStateBatchCombiner`,
`OffsetMetadataManager.cleanupExpiredOffsets`, `ConsumerGroupCommand`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.analysis.internal_logs import ColumnTable, Home, LogTaken, Notes, Rows
from kseg.constants import InternalTopic, Progress
from kseg.documents import fields_of
from kseg.errors import KsegError
from kseg.files.selection import StrPaths
from kseg.format.take import take_rows
from kseg.format.times import Time, bound_ms
from kseg.frames import Listed
from kseg.frozen import frozen_dataclass
from kseg.internal import InternalRecord
from kseg.internal.commits import NO_COMMITS, NONE, commit_rows, joined, none_for_minus_one
from kseg.internal.ids import id_text
from kseg.internal.records import InternalRow
from kseg.internal.registry import SchemaFinding
from kseg.log.clock import now_of
from kseg.log.reader import LogView

_KINDS: Final = {"CONSUMER_GROUP": "Consumer", "SHARE_GROUP": "Share", "STREAMS_GROUP": "Streams"}
_CLASSIC: Final = "GROUP_METADATA"
#: The state of a member that has all that it is to have, by the type of its group.
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
        type: Classic, Consumer, Share or Streams; "" for a group of which tombstones are left.
        state: Stable, Empty, Dead; of the newer protocols also Assigning, Reconciling, NotReady.
        protocol_type: consumer, share or streams; for a classic group also others, such as connect,
            and "" for commits alone.
        protocol: of a classic group, the assignor; of a consumer group, the server's.
        epoch: the generation of a classic group, else the group epoch.
        assignment_epoch: of the target assignment; None for a classic group.
        state_timestamp_ms: of the last change of state; None where records do not say.
        members: how many there are.
        commits: how many offsets are committed.
        pending: how many commits wait for the end of a transaction.
        lag: the sum over the commits, or share partitions, whose log is here; None without any,
            where a partition of a member has no commit, and where a commit is behind the end.
        expires_ms: the first of its commits to expire; None for none.
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
        epoch: of the member; None in a classic group.
        state: of the member, Kafka's number; None in a classic group.
        topics: that it subscribes to; None where they cannot be read.
        regex: that it subscribes to.
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
        group, topic, partition: which; the topic's id where its name is not known.
        start_offset: the first offset that may be delivered; -1 before the first one.
        end_offset, end_from: as for commits.
        lag: records to the end that are not yet done.
        delivery_complete_count: records from the start on that are done; None before Kafka 4.2.
        in_flight: records from the start on that have a state.
        available, acquired, acknowledged, archiving, archived: how many of them are in each.
        snapshot_epoch, state_epoch, leader_epoch: of the last snapshot and the updates after it.
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
    """The last records of one group: values by the record's name, then by member or expression."""

    log_partition: int
    values: dict[str, dict[str, Fields | None]] = field(
        default_factory=lambda: defaultdict(dict[str, "Fields | None"])
    )

    def live(self, name: str) -> dict[str, Fields]:
        """The values of a record that is not a tombstone."""
        return {key: value for key, value in self.values.get(name, {}).items() if value is not None}


@frozen_dataclass
class Built:
    """A group out of its records.

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
    """The group of a name."""
    for prefix, kind in _KINDS.items():
        if records.live(f"{prefix}_METADATA"):
            return _modern(name, kind, prefix, records, names)
    classic = records.live(_CLASSIC)
    if classic:
        return _classic(name, classic[""], records.log_partition)
    return Built(Group(name, "", "Dead", log_partition=records.log_partition))


def _classic(name: str, value: Fields, log_partition: int) -> Built:
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
    return len(part if isinstance(part, bytes) else part["userData"] or b"")


def _modern(name: str, kind: str, prefix: str, records: GroupRecords, names: Names) -> Built:
    """A group of one of the newer protocols."""
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


# ---- share groups --------------------------------------------------------------------------------


@dataclass(slots=True)
class Delivery:
    """The last snapshot of a share partition, and the updates behind it.

    Attributes:
        last: fields of the snapshot, with the changes of the updates.
        batches: first and last offset, delivery count and state, of all of these records.
    """

    last: Fields
    batches: list[tuple[int, int, int, int]]

    def counts(self) -> dict[str, int]:
        """The records from the start offset on in each state.

        Where batches overlap, the higher delivery count is right, then the higher state.
        """
        start = self.last["startOffset"]
        begun = sorted(
            (max(first, start), last, -count, -state)
            for first, last, count, state in self.batches
            if max(first, start) <= last
        )
        bounds = sorted({offset for batch in begun for offset in (batch[0], batch[1] + 1)})
        counts, open_batches, at = (
            dict.fromkeys(_DELIVERY.values(), 0),
            list[tuple[int, int, int]](),
            0,
        )
        for first, end in pairwise(bounds):
            while at < len(begun) and begun[at][0] <= first:
                heappush(open_batches, (*begun[at][2:], begun[at][1]))
                at += 1
            while open_batches and open_batches[0][2] < first:
                heappop(open_batches)
            if open_batches and (state := _DELIVERY.get(-open_batches[0][1])):
                counts[state] += end - first
        return counts

    def row(self, group: str, topic: str, partition: int, end: int | None, word: Any) -> ShareState:
        """The state, beside the end of its partition."""
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
            word,
            max((end or 0) - start - done, 0) if has_lag else None,
            None if done < 0 else done,
            sum(counts.values()),
            **counts,
            snapshot_epoch=self.last["snapshotEpoch"],
            state_epoch=self.last.get("stateEpoch"),
            leader_epoch=self.last["leaderEpoch"],
        )


def deliver(record: InternalRecord, into: dict[tuple[str, UUID, int], Delivery]) -> None:
    """Apply a record of `__share_group_state`, in the order of the log."""
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
    unchanged = ("snapshotEpoch", "stateEpoch")
    changed = {
        name: field_value
        for name, field_value in value.items()
        if name not in unchanged
        and not (field_value == -1 and name in ("startOffset", "leaderEpoch"))
    }
    delivery.last = delivery.last | changed
    delivery.batches += batches


# ---- the answer ----------------------------------------------------------------------------------

#: `offsets.retention.minutes`, by default.
RETENTION_MINUTES: Final = 10_080
_MINUTE_MS: Final = 60_000
#: Where lag ends.
LAG_TO: Final = ("high-watermark", "last-stable-offset")
#: No time of a commit is later, so that the retention can be added.
_TIME_MAX: Final = 1 << 62
_Columns = dict[str, Any]
_Records = dict[str, GroupRecords]
_Place = tuple[str, str, int]


class GroupChange(NamedTuple):
    """A difference from the state at `since`.

    Attributes:
        group: which.
        topic, partition: of a commit, or of a share group's state; None for the group.
        field: the changed field: state, epoch, members, offset or start_offset.
        before, after: None where it was not there, or is not there any more.
    """

    group: str
    topic: str | None
    partition: int | None
    field: str
    before: str | int | None
    after: str | int | None


class Commits(ColumnTable):
    """Committed offsets, in columns: object arrays of text, int64 arrays of numbers.

    Its columns:

    - `group`, `topic`, `partition`: of the commit.
    - `offset`, `leader_epoch`, `metadata`: the committed values; no offset for a partition that a
      member has, and for which nothing is committed.
    - `commit_timestamp`, `expire_timestamp`: in ms; the second one of old commits alone.
    - `log_start_offset`, `end_offset`, `end_from`: of the log, and the source of its end.
    - `lag`, `lag_ms`: to the end: records, and the time from the next record to the last.
    - `outside`: "before-start" or "behind-end": the log does not have this offset.
    - `expires_ms`: when the coordinator removes it, if nothing happens.
    - `pending`: the producer whose open transaction it waits for.
    - `record_offset`, `log_partition`: its record in `__consumer_offsets`.
    """

    __slots__ = ()


@frozen_dataclass(repr=False)
class Groups(Listed[Group]):
    """The answer of `kseg.groups`; a table with a row for each group.

    Attributes:
        members, share, changes: tables of `Member`, `ShareState` and `GroupChange`.
        commits: see `Commits`.
        logs: how much of each partition of the internal topics was taken.
        findings: the oddities.
    """

    COLUMNS = " ".join(Group._fields)

    members: Rows
    commits: Commits
    share: Rows
    changes: Rows
    logs: tuple[LogTaken, ...]
    findings: tuple[SchemaFinding, ...] = ()

    @property
    def title(self) -> str:
        """The numbers of groups, commits and findings."""
        return f"{len(self)} groups, {len(self.commits)} commits, {len(self.findings)} findings"

    def to_json(self, *, commits: bool = True) -> dict[str, Any]:
        """The document of `kseg groups --json`, without `schema` and `path`.

        Args:
            commits: with the commits, which may be many.
        """
        rows = {"commits": list(self.commits.rows())} if commits else {}
        return {
            **fields_of(self, "groups=values members share changes logs findings"),
            **rows,
        }


def groups(
    paths: StrPaths,
    *,
    at: Time | None = None,
    since: Time | None = None,
    group: str = "*",
    lag_to: str = LAG_TO[0],
    readable: bool = False,
    retention_minutes: int = RETENTION_MINUTES,
    now: Time | None = None,
    progress: Progress | None = None,
) -> Groups:
    """Read the groups of a cluster from its internal topics; no broker is asked.

    Args:
        paths: data directories of one or several brokers, partitions, or globs. Of two replicas of
            a partition, the replica with the newest leader epoch is read.
        at: the groups as they were then: batches are taken whose time is at or before it.
        since: also list the changes between this time and `at`.
        group: only groups whose ids match this glob.
        lag_to: "high-watermark" as the checkpoint beside the log has it, else the log's end; or
            "last-stable-offset". With `at`, lag ends with the last record of that time or before.
        readable: count as lag only the records that a consumer of committed records gets: no
            markers, no records of aborted transactions or behind an open one, and none that
            compaction or retention took. Reads the logs from the smallest committed offset on.
        retention_minutes: the broker's `offsets.retention.minutes`, by which commits expire.
        now: the time that "now" and "-7d" refer to; the machine's clock if None.
        progress: called with the bytes of the internal logs that are read, and of all of them.

    Raises:
        NotALogError: no partition is here, or they are of several clusters.
        ValueError, TypeError, OSError: as for `kseg.scan`.

    Example:
        >>> groups(".").findings
        ()
    """
    if lag_to not in LAG_TO:
        raise ValueError(f"lag_to is {' or '.join(LAG_TO)}, not {lag_to!r}")
    moments = [bound_ms(time, lambda: now_of(now)) for time in (at, since)]
    notes = Notes()
    home = Home(paths, notes)
    retention_ms = retention_minutes * _MINUTE_MS
    question = _Question(home, group, lag_to, readable, retention_ms)
    before = None if since is None else question.answer(moments[1], progress)
    answer = question.answer(moments[0], progress)
    changes = () if before is None else tuple(_changes(before, answer))
    return replace(answer, changes=Rows(changes, GroupChange), findings=notes.taken())


@frozen_dataclass
class _Question:
    """A question about the groups under some paths."""

    home: Home
    glob: str
    lag_to: str
    readable: bool
    retention_ms: int

    def answer(self, at: int | None, progress: Progress | None) -> Groups:
        """The groups as they were at a time; None for now."""
        home, logs, parts, records = self.home, list[LogTaken](), list[_Columns](), _Records()
        for log, chunks in home.values(InternalTopic.OFFSETS, at, progress):
            logs.append(log)
            for chunk in chunks:
                is_commit, columns = commit_rows(chunk)
                rest = take_rows(chunk, np.flatnonzero(~is_commit))
                producers = dict(zip(rest["offset"].tolist(), rest["producer_id"], strict=True))
                for row in home.decoded(InternalTopic.OFFSETS, rest):
                    if row.record.name in _COMMITS:
                        parts += _unusual(row, producers[row.offset], log.partition)
                    else:
                        file_record(row.record, log.partition, records)
                partition = np.full(len(columns["group"]), log.partition, np.int64)
                parts.append(columns | {"log_partition": partition})
        is_modern = any(
            name not in _NOT_MODERN
            for group_records in records.values()
            for name in group_records.values
        )
        names = home.topic_names if is_modern else {}
        built = {
            name: build(name, group_records, names)
            for name, group_records in sorted(records.items())
            if fnmatchcase(name, self.glob)
        }
        assigned = {partition for group in built.values() for partition in _assigned(group)}
        commits = self._commits(parts, assigned, at)
        share = self._share(at, progress, logs)
        chosen_groups = _with_commits(built, commits, self.retention_ms)
        lags: dict[str, list[int | None]] = {}
        for state in share:
            lags.setdefault(state.group, []).append(state.lag)
        chosen_groups = tuple(
            _with_share(group, lags.get(group.group, [])) for group in chosen_groups
        )
        members = Rows(
            tuple(member for group in built.values() for member in group.members), Member
        )
        return Groups(
            chosen_groups, members, Commits(commits), share, Rows((), GroupChange), tuple(logs)
        )

    def _commits(self, parts: list[_Columns], assigned: set[_Place], at: int | None) -> _Columns:
        """The commits of the chosen groups in order, with their lag.

        Args:
            parts: columns of commits.
            assigned: partitions of members: those without a commit get a row.
            at: the time of the ends.
        """
        columns = joined(parts or [NO_COMMITS])
        group, names = _codes(columns["group"])
        live = {partition[0] for partition in assigned}
        of_live = np.flatnonzero(np.array([name in live for name in names], np.bool_)[group])
        texts = (columns[name][of_live].tolist() for name in ("group", "topic", "partition"))
        unread = sorted(assigned.difference(zip(*texts, strict=True)))
        if unread:
            columns = joined([columns, _without_offsets(unread)])
            group, names = _codes(columns["group"])
        topic, topics = _codes(columns["topic"])
        chosen = np.array([fnmatchcase(name, self.glob) for name in names], np.bool_)
        rows = np.flatnonzero(chosen[group]) if len(names) else np.empty(0, np.intp)
        is_pending = columns["producer_id"][rows] >= 0
        order = rows[np.lexsort((is_pending, columns["partition"][rows], topic[rows], group[rows]))]
        columns = {name: column[order] for name, column in columns.items()}
        topic = topic[order]
        count = len(order)
        ends = {name: np.full(count, NONE, np.int64) for name in _LAG}
        words = {name: np.full(count, None, object) for name in ("end_from", "outside")}
        by_place = np.lexsort((columns["partition"], topic))
        places = np.stack((topic[by_place], columns["partition"][by_place]), axis=1)
        starts = np.flatnonzero((np.diff(places, axis=0, prepend=-1) != 0).any(axis=1))
        for of_partition in np.split(by_place, starts[1:]):
            if len(of_partition):
                partition = (
                    topics[topic[of_partition[0]]],
                    int(columns["partition"][of_partition[0]]),
                )
                if directory := self.home.views.get(partition):
                    with self.home.noting_unreadable(directory):
                        self._lag(directory, at, of_partition, columns["offset"], ends | words)
        columns["pending"] = columns.pop("producer_id")
        columns["pending"][columns["pending"] == -1] = NONE
        return {name: (columns | ends | words).get(name) for name in _COLUMNS}

    def _lag(
        self, directory: Path, at: int | None, rows: Any, offsets: Any, into: _Columns
    ) -> None:
        """Fill in the lag of the commits of one partition whose log is here."""
        view = LogView.open(directory)
        start = view.log_start_offset
        (end, word) = self._end(view, at)
        into["log_start_offset"][rows], into["end_offset"][rows] = start, end
        into["end_from"][rows] = word
        rows = rows[offsets[rows] != NONE]
        behind = offsets[rows] > view.log_end_offset
        if self.readable:
            lag = _readable_records(view, offsets[rows], end)
        else:
            lag = np.maximum(end - offsets[rows], 0)
        into["lag"][rows] = np.where(behind, NONE, lag)
        into["outside"][rows[offsets[rows] < start]] = "before-start"
        into["outside"][rows[behind]] = "behind-end"
        last = _last_time(view, end)
        times = dict[int, int]()
        for row, offset in zip(rows.tolist(), offsets[rows].tolist(), strict=True):
            if offset >= end or last is None:
                into["lag_ms"][row] = 0 if offset >= end else NONE
            else:
                if offset not in times:
                    times[offset] = _time_from(view, max(offset, start))
                if times[offset] != NONE:
                    into["lag_ms"][row] = max(last - times[offset], 0)

    def _end(self, view: LogView, at: int | None) -> tuple[int, str]:
        """The end that lag is measured to, and its source."""
        if at is not None:
            first_later = view.lookup_time(at + 1)
            return (view.log_end_offset if first_later is None else first_later.offset), "time"
        if self.lag_to == LAG_TO[1]:
            return view.last_stable_offset, self.lag_to
        end = self.home.high_watermark(view.path)
        return (view.log_end_offset, "log-end") if end is None else (end, self.lag_to)

    def _share(self, at: int | None, progress: Progress | None, logs: list[LogTaken]) -> Rows:
        """The states of share groups."""
        deliveries: dict[tuple[str, UUID, int], Delivery] = {}
        for log, chunks in self.home.values(InternalTopic.SHARE, at, progress):
            logs.append(log)
            for chunk in chunks:
                for row in self.home.decoded(InternalTopic.SHARE, chunk):
                    deliver(row.record, deliveries)
        rows = []
        for (group, topic_id, partition), state in sorted(deliveries.items()):
            if fnmatchcase(group, self.glob):
                topic = self.home.topic_names.get(topic_id) or id_text(topic_id)
                directory = self.home.views.get((topic, partition))
                end: tuple[int | None, str | None] = (None, None)
                if directory is not None:
                    with self.home.noting_unreadable(directory):
                        end = self._end(LogView.open(directory), at)
                rows.append(state.row(group, topic, partition, *end))
        return Rows(tuple(rows), ShareState)


# ---- commits -------------------------------------------------------------------------------------

_LAG: Final = ("log_start_offset", "end_offset", "lag", "lag_ms")
_COLUMNS: Final = (
    *("group", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_timestamp"),
    *("expire_timestamp", "log_start_offset", "end_offset", "end_from", "lag", "lag_ms"),
    *("outside", "expires_ms", "pending", "record_offset", "log_partition"),
)
_COMMITS: Final = ("OFFSET_COMMIT", "LEGACY_OFFSET_COMMIT")
_NOT_MODERN: Final = (*_COMMITS, _CLASSIC)
#: The fields of a commit's value, by their columns.
_FIELDS: Final = {
    "leader_epoch": "leaderEpoch",
    "commit_timestamp": "commitTimestamp",
    "expire_timestamp": "expireTimestamp",
}


def _assigned(built: Built) -> Iterator[_Place]:
    """The partitions that the members of a group have; none for the tasks of a streams group."""
    for member in built.members:
        for part in member.assignment or ():
            if part["role"] is None and built.group.type != "Share":
                yield from ((member.group, part["topic"], number) for number in part["partitions"])


def _without_offsets(places: Sequence[_Place]) -> _Columns:
    """Rows of commits that are not there."""
    groups, topics, partitions = zip(*places, strict=True)
    nothing = np.full(len(places), NONE, np.int64)
    columns = dict.fromkeys(NO_COMMITS, nothing) | {
        "group": np.array(groups, object),
        "topic": np.array(topics, object),
        "metadata": np.full(len(places), "", object),
        "partition": np.array(partitions, np.int64),
        "producer_id": np.full(len(places), -1, np.int64),
    }
    return columns


def _with_share(group: Group, lags: Sequence[int | None]) -> Group:
    """A share group with the sum of the lag of its partitions; None where one is not known."""
    if group.type != "Share" or not lags or None in lags:
        return group
    return group._replace(lag=sum(lag or 0 for lag in lags))


def _unusual(row: InternalRow, producer_id: int, log_partition: int) -> list[_Columns]:
    """A commit whose form `commit_rows` does not read; none for a tombstone."""
    key: Any = row.record.key
    value: Any = row.record.value
    if value is None:
        return []
    texts = {"group": key["group"], "topic": key["topic"], "metadata": value["metadata"]}
    numbers = {
        "partition": key["partition"],
        "offset": value["offset"],
        "record_offset": row.offset,
        "producer_id": producer_id,
        "log_partition": log_partition,
    } | {name: value.get(field, -1) for name, field in _FIELDS.items()}
    return [
        {name: np.array([text], object) for name, text in texts.items()}
        | {name: none_for_minus_one(name, np.array([n], np.int64)) for name, n in numbers.items()}
    ]


def _codes(texts: Any) -> tuple[Any, list[str]]:
    """The rank of each text among the different ones, and these in order."""
    names = sorted(set(texts.tolist()))
    ranks = {name: rank for rank, name in enumerate(names)}
    return np.array([ranks[text] for text in texts.tolist()], np.int64), names


def _readable_records(view: LogView, offsets: Any, end: int) -> Any:
    """How many committed records a consumer gets from each offset to an end."""
    counts = np.zeros(len(offsets), np.int64)
    begin = max(int(offsets.min(initial=end)), view.log_start_offset)
    if begin < end:
        pieces = view.read(offset=(begin, end), columns=("offset",), isolation="read_committed")
        for columns in pieces:
            counts += len(columns) - np.searchsorted(columns.offset, offsets)
    return counts


def _last_time(view: LogView, end: int) -> int | None:
    """The time of the batch in front of an offset; None for none."""
    try:
        return view.lookup(end - 1).max_timestamp
    except KsegError:
        return None


def _time_from(view: LogView, offset: int) -> int:
    """The time of the first record from an offset on; `NONE` where it has none."""
    try:
        for columns in view.read(offset=(offset, None), columns=("timestamp",), max_rows=1):
            time = int(columns["timestamp_ms"][0])
            return NONE if time < 0 else time
    except KsegError:
        pass
    return NONE


def _with_commits(
    built: Mapping[str, Built], commits: _Columns, retention_ms: int
) -> tuple[Group, ...]:
    """The groups with the sums over their commits; fills in when each commit expires."""
    code, names = _codes(commits["group"])
    pending = commits["pending"] != NONE
    lag = commits["lag"]
    groups = dict(built)
    first = np.searchsorted(code, np.arange(len(names)))
    for rank, name in enumerate(names):
        recorded = groups.get(name)
        if recorded is None or recorded.group.state == "Dead":
            # A group of commits alone.
            place = int(commits["log_partition"][first[rank]])
            groups[name] = Built(Group(name, "Classic", "Empty", "", log_partition=place))
    expires = commits["expires_ms"] = _expiry([groups[name] for name in names], code, commits)
    expires[expires != NONE] += retention_ms
    has_expiry = (expires != NONE) & (commits["expire_timestamp"] != NONE)
    expires[has_expiry] = commits["expire_timestamp"][has_expiry]
    bounds = [*first.tolist(), len(code)]
    unread = commits["offset"] == NONE
    is_open = unread | (commits["outside"] == "behind-end")
    for rank, name in enumerate(names):
        rows = slice(bounds[rank], bounds[rank + 1])
        counts = ~pending[rows] & (lag[rows] != NONE)
        due = expires[rows][expires[rows] != NONE]
        group = groups[name].group._replace(
            commits=int(np.count_nonzero(~pending[rows] & ~unread[rows])),
            pending=int(np.count_nonzero(pending[rows])),
            lag=int(lag[rows][counts].sum()) if counts.any() and not is_open[rows].any() else None,
            expires_ms=int(due.min()) if len(due) else None,
        )
        groups[name] = replace(groups[name], group=group)
    return tuple(groups[name].group for name in sorted(groups))


def _expiry(built: Sequence[Built], code: Any, commits: _Columns) -> Any:
    """int64[n]: the time from which each commit counts its retention; `NONE` if it is kept.

    Args:
        built: the groups by their codes.
        code: int64[n], the group of each commit.
        commits: its columns.
    """
    states = [
        group.group.state_timestamp_ms if group.expires_from == "state" else None for group in built
    ]
    by_state = np.array([NONE if time is None else time for time in states], np.int64)
    by_commit = np.array([group.expires_from == "commit" for group in built], np.bool_)
    if not len(code):
        return np.empty(0, np.int64)
    since = np.where(by_commit[code], commits["commit_timestamp"], by_state[code])
    if any(group.subscribed for group in built):
        pairs = zip(code.tolist(), commits["topic"].tolist(), strict=True)
        since[[topic in built[at].subscribed for at, topic in pairs]] = NONE
    since[commits["pending"] != NONE] = NONE
    return np.minimum(since, _TIME_MAX)


def _changes(before: Groups, after: Groups) -> Iterator[GroupChange]:
    """The differences between two answers."""
    olds, news = ({group.group: group for group in answer} for answer in (before, after))
    for name in sorted({*olds, *news}):
        for field_name in ("type", "state", "epoch", "members"):
            pair = [
                getattr(groups_by_name.get(name), field_name, None)
                for groups_by_name in (olds, news)
            ]
            if pair[0] != pair[1]:
                yield GroupChange(name, None, None, field_name, *pair)
    commits = [_by_place(answer.commits.rows(), "offset") for answer in (before, after)]
    share = [_by_place(answer.share.table_rows(), "start_offset") for answer in (before, after)]
    for field_name, (old, new) in (("offset", commits), ("start_offset", share)):
        for partition in sorted({*old, *new}):
            if old.get(partition) != new.get(partition):
                yield GroupChange(*partition, field_name, old.get(partition), new.get(partition))


def _by_place(rows: Iterable[Mapping[str, Any]], field: str) -> dict[tuple[str, str, int], int]:
    return {
        (row["group"], row["topic"], row["partition"]): row[field]
        for row in rows
        if row.get("pending") is None
    }
