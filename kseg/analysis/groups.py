"""`groups`: consumer, share and streams groups, from Kafka's internal topics in data directories.

Members and states come from the last records of each group (see `group_states`), commits from the
last value of each key, column by column. Facts without a record are left out: the coordinator's
node, the steps of a rebalance, positions of consumers that were not committed.

Source: Kafka `OffsetMetadataManager.cleanupExpiredOffsets`, `ConsumerGroupCommand`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.analysis.group_states import (
    Built,
    Delivery,
    Group,
    GroupRecords,
    build,
    deliver,
    file_record,
    simple,
)
from kseg.analysis.internal_logs import ColumnTable, Home, LogTaken, Notes, Rows
from kseg.analysis.units import Progress
from kseg.documents import document
from kseg.errors import KsegError
from kseg.files.selection import StrPaths
from kseg.format.take import take_rows
from kseg.format.times import Time, bound_ms
from kseg.frames import Listed
from kseg.internal.commits import NO_COMMITS, NONE, commit_rows, joined, none_for_minus_one
from kseg.internal.ids import id_text
from kseg.internal.log_rows import InternalRow
from kseg.internal.registry import SchemaFinding
from kseg.internal.topics import InternalTopic
from kseg.log.clock import now_of
from kseg.log.reader import LogView

#: `offsets.retention.minutes`, by default.
RETENTION_MINUTES: Final = 10_080
_MINUTE_MS: Final = 60_000
#: Where lag ends.
LAG_TO: Final = ("high-watermark", "last-stable-offset")
#: No time of a commit is later, so that the retention can be added.
_TIME_MAX: Final = 1 << 62
_Columns = dict[str, Any]
_Records = dict[str, GroupRecords]


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
    - `offset`, `leader_epoch`, `metadata`: the committed values.
    - `commit_timestamp`, `expire_timestamp`: in ms; the second one of old commits alone.
    - `log_start_offset`, `end_offset`, `end_from`: of the log, and the source of its end.
    - `lag`, `lag_ms`: to the end: records, and the time from the next record to the last.
    - `outside`: "before-start" or "behind-end": the log does not have this offset.
    - `expires_ms`: when the coordinator removes it, if nothing happens.
    - `pending`: the producer whose open transaction it waits for.
    - `record_offset`, `log_partition`: its record in `__consumer_offsets`.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
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
            "groups": document(self.values),
            "members": self.members.table_rows(),
            "share": self.share.table_rows(),
            "changes": self.changes.table_rows(),
            "logs": document(self.logs),
            "findings": document(self.findings),
            **rows,
        }


def groups(
    paths: StrPaths,
    *,
    at: Time | None = None,
    since: Time | None = None,
    group: str = "*",
    lag_to: str = LAG_TO[0],
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
    question = _Question(Home(paths, notes), group, lag_to, retention_minutes * _MINUTE_MS)
    before = None if since is None else question.answer(moments[1], progress)
    found = question.answer(moments[0], progress)
    changes = () if before is None else tuple(_changes(before, found))
    return replace(found, changes=Rows(changes), findings=notes.taken())


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about the groups under some paths."""

    home: Home
    glob: str
    lag_to: str
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
        is_modern = any(name not in _CLASSIC for each in records.values() for name in each.values)
        names = home.topic_names if is_modern else {}
        built = {
            name: build(name, each, names)
            for name, each in sorted(records.items())
            if fnmatchcase(name, self.glob)
        }
        commits = self._commits(parts, at)
        share = self._share(at, progress, logs)
        found = _with_commits(built, commits, self.retention_ms)
        members = Rows(tuple(member for each in built.values() for member in each.members))
        return Groups(found, members, Commits(commits), share, Rows(()), tuple(logs))

    def _commits(self, parts: list[_Columns], at: int | None) -> _Columns:
        """The commits of the chosen groups in order, with their lag."""
        columns = joined(parts or [NO_COMMITS])
        group, names = _codes(columns["group"])
        topic, topics = _codes(columns["topic"])
        chosen = np.array([fnmatchcase(name, self.glob) for name in names], np.bool_)
        rows = np.flatnonzero(chosen[group]) if len(names) else np.empty(0, np.intp)
        is_pending = columns["producer_id"][rows] >= 0
        order = rows[np.lexsort((is_pending, columns["partition"][rows], topic[rows], group[rows]))]
        columns = {name: column[order] for name, column in columns.items()}
        topic, count = topic[order], len(order)
        ends = {name: np.full(count, NONE, np.int64) for name in _LAG}
        words = {name: np.full(count, None, object) for name in ("end_from", "outside")}
        by_place = np.lexsort((columns["partition"], topic))
        places = np.stack((topic[by_place], columns["partition"][by_place]), axis=1)
        starts = np.flatnonzero((np.diff(places, axis=0, prepend=-1) != 0).any(axis=1))
        for some in np.split(by_place, starts[1:]):
            if len(some):
                place = (topics[topic[some[0]]], int(columns["partition"][some[0]]))
                if place in self.home.views:
                    self._lag(place, at, some, columns["offset"], ends | words)
        columns["pending"] = columns.pop("producer_id")
        columns["pending"][columns["pending"] == -1] = NONE
        return {name: (columns | ends | words).get(name) for name in _COLUMNS}

    def _lag(
        self, place: tuple[str, int], at: int | None, rows: Any, offsets: Any, into: _Columns
    ) -> None:
        """Fill in the lag of the commits of one partition whose log is here."""
        view = LogView.open(self.home.views[place])
        start, (end, word) = view.log_start_offset, self._end(view, at)
        into["log_start_offset"][rows], into["end_offset"][rows] = start, end
        into["end_from"][rows] = word
        into["lag"][rows] = np.maximum(end - offsets[rows], 0)
        into["outside"][rows[offsets[rows] < start]] = "before-start"
        into["outside"][rows[offsets[rows] > view.log_end_offset]] = "behind-end"
        last, known = _last_time(view, end), dict[int, int]()
        for row, offset in zip(rows.tolist(), offsets[rows].tolist(), strict=True):
            if offset >= end or last is None:
                into["lag_ms"][row] = 0 if offset >= end else NONE
            else:
                if offset not in known:
                    known[offset] = _time_from(view, max(offset, start))
                if known[offset] != NONE:
                    into["lag_ms"][row] = max(last - known[offset], 0)

    def _end(self, view: LogView, at: int | None) -> tuple[int, str]:
        """The end that lag is measured to, and its source."""
        if at is not None:
            found = view.lookup_time(at + 1)
            return (view.log_end_offset if found is None else found.offset), "time"
        if self.lag_to == LAG_TO[1]:
            return view.last_stable_offset, self.lag_to
        end = self.home.high_watermark(view.path)
        return (view.log_end_offset, "log-end") if end is None else (end, self.lag_to)

    def _share(self, at: int | None, progress: Progress | None, logs: list[LogTaken]) -> Rows:
        """The states of share groups."""
        found: dict[tuple[str, UUID, int], Delivery] = {}
        for log, chunks in self.home.values(InternalTopic.SHARE, at, progress):
            logs.append(log)
            for chunk in chunks:
                for row in self.home.decoded(InternalTopic.SHARE, chunk):
                    deliver(row.record, found)
        rows = []
        for (group, topic_id, partition), state in sorted(found.items()):
            if fnmatchcase(group, self.glob):
                topic = self.home.topic_names.get(topic_id) or id_text(topic_id)
                directory = self.home.views.get((topic, partition))
                end: tuple[int | None, str | None] = (None, None)
                if directory is not None:
                    end = self._end(LogView.open(directory), at)
                rows.append(state.row(group, topic, partition, *end))
        return Rows(tuple(rows))


# ---- commits -------------------------------------------------------------------------------------

_LAG: Final = ("log_start_offset", "end_offset", "lag", "lag_ms")
_COLUMNS: Final = (
    *("group", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_timestamp"),
    *("expire_timestamp", "log_start_offset", "end_offset", "end_from", "lag", "lag_ms"),
    *("outside", "expires_ms", "pending", "record_offset", "log_partition"),
)
_COMMITS: Final = ("OFFSET_COMMIT", "LEGACY_OFFSET_COMMIT")
_CLASSIC: Final = (*_COMMITS, "GROUP_METADATA")
#: The fields of a commit's value, by their columns.
_FIELDS: Final = {
    "leader_epoch": "leaderEpoch",
    "commit_timestamp": "commitTimestamp",
    "expire_timestamp": "expireTimestamp",
}


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
    pending, lag = commits["pending"] != NONE, commits["lag"]
    found = dict(built)
    first = np.searchsorted(code, np.arange(len(names)))
    for rank, name in enumerate(names):
        known = found.get(name)
        if known is None or known.group.state == "Dead":
            found[name] = simple(name, int(commits["log_partition"][first[rank]]))
    expires = commits["expires_ms"] = _expiry([found[name] for name in names], code, commits)
    expires[expires != NONE] += retention_ms
    own = (expires != NONE) & (commits["expire_timestamp"] != NONE)
    expires[own] = commits["expire_timestamp"][own]
    bounds = [*first.tolist(), len(code)]
    for rank, name in enumerate(names):
        rows = slice(bounds[rank], bounds[rank + 1])
        counts = ~pending[rows] & (lag[rows] != NONE)
        due = expires[rows][expires[rows] != NONE]
        group = found[name].group._replace(
            commits=int(np.count_nonzero(~pending[rows])),
            pending=int(np.count_nonzero(pending[rows])),
            lag=int(lag[rows][counts].sum()) if counts.any() else None,
            expires_ms=int(due.min()) if len(due) else None,
        )
        found[name] = replace(found[name], group=group)
    return tuple(found[name].group for name in sorted(found))


def _expiry(built: Sequence[Built], code: Any, commits: _Columns) -> Any:
    """int64[n]: the time from which each commit counts its retention; `NONE` if it is kept.

    Args:
        built: the groups by their codes.
        code: int64[n], the group of each commit.
        commits: its columns.
    """
    states = [
        each.group.state_timestamp_ms if each.expires_from == "state" else None for each in built
    ]
    by_state = np.array([NONE if time is None else time for time in states], np.int64)
    by_commit = np.array([each.expires_from == "commit" for each in built], np.bool_)
    if not len(code):
        return np.empty(0, np.int64)
    since = np.where(by_commit[code], commits["commit_timestamp"], by_state[code])
    if any(each.subscribed for each in built):
        pairs = zip(code.tolist(), commits["topic"].tolist(), strict=True)
        since[[topic in built[at].subscribed for at, topic in pairs]] = NONE
    since[commits["pending"] != NONE] = NONE
    return np.minimum(since, _TIME_MAX)


def _changes(before: Groups, after: Groups) -> Iterator[GroupChange]:
    """The differences between two answers."""
    olds, news = ({each.group: each for each in found} for found in (before, after))
    for name in sorted({*olds, *news}):
        for field in ("type", "state", "epoch", "members"):
            pair = [getattr(known.get(name), field, None) for known in (olds, news)]
            if pair[0] != pair[1]:
                yield GroupChange(name, None, None, field, *pair)
    commits = [_by_place(found.commits.rows(), "offset") for found in (before, after)]
    share = [_by_place(found.share.table_rows(), "start_offset") for found in (before, after)]
    for field, (old, new) in (("offset", commits), ("start_offset", share)):
        for place in sorted({*old, *new}):
            if old.get(place) != new.get(place):
                yield GroupChange(*place, field, old.get(place), new.get(place))


def _by_place(rows: Iterable[Mapping[str, Any]], field: str) -> dict[tuple[str, str, int], int]:
    return {
        (row["group"], row["topic"], row["partition"]): row[field]
        for row in rows
        if row.get("pending") is None
    }


__all__ = [
    "LAG_TO",
    "RETENTION_MINUTES",
    "Commits",
    "GroupChange",
    "Groups",
    "groups",
]
