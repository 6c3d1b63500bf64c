"""`groups`: consumer, share and streams groups, from Kafka's internal topics in data directories.

Members and states come from the last records of each group, commits from the last value of each
key, column by column. Facts without a record are left out: the coordinator's node, the steps of a
rebalance, positions of consumers that were not committed.

Source: Kafka `ClassicGroup.offsetExpirationCondition`,
`OffsetMetadataManager.cleanupExpiredOffsets`, `ConsumerGroupCommand`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.analysis.group_records import (
    _CLASSIC,
    Built,
    Delivery,
    Group,
    GroupRecords,
    Member,
    ShareState,
    build,
    deliver,
    file_record,
)
from kseg.analysis.internal_logs import ColumnTable, Home, LogTaken, Notes, Rows
from kseg.constants import InternalTopic, Progress
from kseg.documents import fields_of, frozen_dataclass, id_text
from kseg.errors import KsegError
from kseg.files.selection import StrPaths
from kseg.format.take import take_rows
from kseg.format.times import Time, bound_ms
from kseg.frames import Listed
from kseg.internal.coordinators import NO_COMMITS, NONE, commit_rows, joined, none_for_minus_one
from kseg.internal.records import InternalRow
from kseg.internal.registry import SchemaFinding
from kseg.log.clock import now_of
from kseg.log.reader import LogView

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
        group: the id of the group.
        topic, partition: of a commit, or of a share group's state; None for the group.
        field: the changed field: state, epoch, members, offset or start_offset.
        before, after: the values; None where the object did not exist then.
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
        logs: how much of each partition of the internal topics was read.
        findings: what is odd in the logs.
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
            commits: include the commits, which may be many.
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
            markers, no records of aborted transactions or after an open one, and none that
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
    return replace(answer, changes=Rows(changes, GroupChange), findings=notes.finish())


@frozen_dataclass
class _Question:
    """A question about the groups under some paths.

    Attributes:
        home: the partitions and the files beside them.
        glob: only groups with matching ids.
        lag_to: a word of `LAG_TO`.
        readable: count only records that a consumer of committed records gets.
        retention_ms: how long the broker keeps commits.
    """

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
                        parts += _unusual_commit(row, producers[row.offset], log.partition)
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
        assigned = {partition for group in built.values() for partition in _assigned_places(group)}
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
            assigned: the partitions of members: those without a commit get a row.
            at: the time at which the logs end for the lag, in ms; None for now.
        """
        columns = joined(parts or [NO_COMMITS])
        group, names = _codes(columns["group"])
        with_members = {partition[0] for partition in assigned}
        has_members = np.array([name in with_members for name in names], np.bool_)
        rows = np.flatnonzero(has_members[group])
        committed = (columns[name][rows].tolist() for name in ("group", "topic", "partition"))
        without_commit = sorted(assigned.difference(zip(*committed, strict=True)))
        if without_commit:
            columns = joined([columns, _without_offsets(without_commit)])
            group, names = _codes(columns["group"])
        topic, topics = _codes(columns["topic"])
        chosen = np.array([fnmatchcase(name, self.glob) for name in names], np.bool_)
        rows = np.flatnonzero(chosen[group]) if len(names) else np.empty(0, np.intp)
        is_pending = columns["producer_id"][rows] >= 0
        order = rows[np.lexsort((is_pending, columns["partition"][rows], topic[rows], group[rows]))]
        columns = {name: column[order] for name, column in columns.items()}
        topic = topic[order]
        count = len(order)
        # What `_lag` fills in, partition by partition.
        numbers = {name: np.full(count, NONE, np.int64) for name in _LAG}
        texts = {name: np.full(count, None, object) for name in ("end_from", "outside")}
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
                        self._lag(directory, at, of_partition, columns["offset"], numbers | texts)
        columns["pending"] = columns.pop("producer_id")
        columns["pending"][columns["pending"] == -1] = NONE
        return {name: (columns | numbers | texts).get(name) for name in _COLUMNS}

    def _lag(
        self, directory: Path, at: int | None, rows: Any, offsets: Any, into: _Columns
    ) -> None:
        """Fill in the lag of the commits of one partition whose log is here.

        Args:
            directory: the directory of the partition.
            at: the time at which the log ends for the lag, in ms; None for now.
            rows: the rows of its commits.
            offsets: the committed offsets of all rows; `NONE` where nothing is committed.
            into: the columns of all rows, which receive the values.
        """
        view = LogView.open(directory)
        start = view.log_start_offset
        end, end_from = self._end(view, at)
        into["log_start_offset"][rows], into["end_offset"][rows] = start, end
        into["end_from"][rows] = end_from
        rows = rows[offsets[rows] != NONE]
        is_beyond = offsets[rows] > view.log_end_offset
        if self.readable:
            lag = _readable_records(view, offsets[rows], end)
        else:
            lag = np.maximum(end - offsets[rows], 0)
        into["lag"][rows] = np.where(is_beyond, NONE, lag)
        into["outside"][rows[offsets[rows] < start]] = "before-start"
        into["outside"][rows[is_beyond]] = "behind-end"
        last = _last_time(view, end)
        times = dict[int, int]()  # committed offset -> time of the next record, read once
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
        """The states of the partitions of share groups.

        Args:
            at: the time of the state, in ms; None for now.
            progress: called with the bytes that are read.
            logs: receives the partitions of the internal topic.
        """
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
    "group",
    "topic",
    "partition",
    "offset",
    "leader_epoch",
    "metadata",
    "commit_timestamp",
    "expire_timestamp",
    "log_start_offset",
    "end_offset",
    "end_from",
    "lag",
    "lag_ms",
    "outside",
    "expires_ms",
    "pending",
    "record_offset",
    "log_partition",
)
_COMMITS: Final = ("OFFSET_COMMIT", "LEGACY_OFFSET_COMMIT")
_NOT_MODERN: Final = (*_COMMITS, _CLASSIC)
#: Column -> field of a commit's value.
_FIELDS: Final = {
    "leader_epoch": "leaderEpoch",
    "commit_timestamp": "commitTimestamp",
    "expire_timestamp": "expireTimestamp",
}


def _assigned_places(built: Built) -> Iterator[_Place]:
    """The partitions that the members of a group have; nothing for tasks of a streams group."""
    for member in built.members:
        for part in member.assignment or ():
            if part["role"] is None and built.group.type != "Share":
                yield from ((member.group, part["topic"], number) for number in part["partitions"])


def _without_offsets(places: Sequence[_Place]) -> _Columns:
    """Rows for partitions of members without a commit: their columns have no offset."""
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


def _unusual_commit(row: InternalRow, producer_id: int, log_partition: int) -> list[_Columns]:
    """The columns of a commit that `commit_rows` does not read; empty for a tombstone.

    Args:
        row: its record.
        producer_id: the producer whose open transaction it is part of; -1 if it is not.
        log_partition: the partition of `__consumer_offsets` that has it.
    """
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
    """int64[n], the rank of each text among the distinct texts; and the distinct texts, sorted."""
    names = sorted(set(texts.tolist()))
    ranks = {name: rank for rank, name in enumerate(names)}
    return np.array([ranks[text] for text in texts.tolist()], np.int64), names


def _readable_records(view: LogView, offsets: Any, end: int) -> Any:
    """int64[n]: the number of committed records that a consumer gets from each offset to an end."""
    counts = np.zeros(len(offsets), np.int64)
    begin = max(int(offsets.min(initial=end)), view.log_start_offset)
    if begin < end:
        pieces = view.read(offset=(begin, end), columns=("offset",), isolation="read_committed")
        for columns in pieces:
            counts += len(columns) - np.searchsorted(columns.offset, offsets)
    return counts


def _last_time(view: LogView, end: int) -> int | None:
    """The time of the batch before an offset; None if there is no such batch."""
    try:
        return view.lookup(end - 1).max_timestamp
    except KsegError:
        return None


def _time_from(view: LogView, offset: int) -> int:
    """The time of the first record from an offset on; `NONE` if it is not known."""
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
    """The groups with the sums over their commits.

    Args:
        built: group id -> the group from its records.
        commits: the columns of all commits; receives `expires_ms`.
        retention_ms: how long the broker keeps commits.
    """
    code, names = _codes(commits["group"])
    pending = commits["pending"] != NONE
    lag = commits["lag"]
    groups = dict(built)
    first = np.searchsorted(code, np.arange(len(names)))  # the first row of each group
    for rank, name in enumerate(names):
        recorded = groups.get(name)
        if recorded is None or recorded.group.state == "Dead":
            # A group that has commits, but no records of its own.
            place = int(commits["log_partition"][first[rank]])
            groups[name] = Built(Group(name, "Classic", "Empty", "", log_partition=place))
    expires = commits["expires_ms"] = _expiry([groups[name] for name in names], code, commits)
    expires[expires != NONE] += retention_ms
    has_expiry = (expires != NONE) & (commits["expire_timestamp"] != NONE)
    expires[has_expiry] = commits["expire_timestamp"][has_expiry]
    bounds = [*first.tolist(), len(code)]
    has_none = commits["offset"] == NONE
    is_unknown = has_none | (commits["outside"] == "behind-end")  # then the sum of lags is unknown
    for rank, name in enumerate(names):
        rows = slice(bounds[rank], bounds[rank + 1])
        counts = ~pending[rows] & (lag[rows] != NONE)
        due = expires[rows][expires[rows] != NONE]
        group = groups[name].group._replace(
            commits=int(np.count_nonzero(~pending[rows] & ~has_none[rows])),
            pending=int(np.count_nonzero(pending[rows])),
            lag=int(lag[rows][counts].sum())
            if counts.any() and not is_unknown[rows].any()
            else None,
            expires_ms=int(due.min()) if len(due) else None,
        )
        groups[name] = replace(groups[name], group=group)
    return tuple(groups[name].group for name in sorted(groups))


def _expiry(built: Sequence[Built], code: Any, commits: _Columns) -> Any:
    """int64[n]: the time from which each commit counts its retention; `NONE` if it is kept.

    A commit is kept while its topic is subscribed to, and while it is pending.

    Args:
        built: the groups; `code` is an index of them.
        code: int64[n], the group of each commit.
        commits: the columns of the commits.
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
    """(group, topic, partition) -> a field of its row; pending commits are left out."""
    return {
        (row["group"], row["topic"], row["partition"]): row[field]
        for row in rows
        if row.get("pending") is None
    }
