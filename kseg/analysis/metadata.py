"""`metadata`: the state of a cluster by the log of KRaft, now, at a moment, or between two.

Values of configurations may be passwords: `kseg.internal.releases.shown` decides which of them
a row has. It has the others as null, with `hidden` true. Rows are compared before that, so that a
change of a password shows, and its values do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from errno import ENOENT
from functools import lru_cache
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kseg.catalog import paths_of
from kseg.constants import INT64_MAX, NEWEST_RELEASE, Progress
from kseg.documents import fields_of, frozen_dataclass, id_text
from kseg.errors import (
    CorruptIndexError,
    KsegError,
    NotALogError,
    OffsetOutOfRangeError,
    UnsupportedFormatError,
)
from kseg.extras import require
from kseg.files import metadata as metadata_files
from kseg.files.names import CLUSTER_METADATA, FileKind, list_partition
from kseg.files.selection import Selection, StrPaths, some_of
from kseg.format.control import Voter
from kseg.format.times import Time, cell_of, iso_text, time_ms
from kseg.frames import Listed, Row, Table, TableRows
from kseg.internal.releases import is_known, metadata_versions, shown
from kseg.log.clock import machine_ms
from kseg.log.recovery import Finding, Severity
from kseg.log.settings import (
    BROKER,
    FACTS,
    Cluster,
    Fact,
    Place,
    certain_end,
    end_at,
    log_batches,
    read_cluster,
    voters_of,
)

if TYPE_CHECKING:
    import pyarrow

    from kseg.constants import Int64s

    #: A metadata log: its directory, the id of its node, and its batches as `log_batches` returns
    #: them.
    _Copy = tuple[Path, int | None, Int64s]

Key = tuple[Any, ...]

CODES: Final[dict[str, tuple[Severity, str]]] = {
    "damaged": (
        "error",
        "records that are damaged or contradict the state; the later state is a guess",
    ),
    "unknown": ("warning", "a type or version of records that kseg does not know; not applied"),
    "left-out": ("warning", "a metadata transaction was aborted, or has no end; not applied"),
    "newer": (
        "warning",
        f"a metadata version or records that are newer than Kafka {NEWEST_RELEASE}; of the records"
        " the known fields are here",
    ),
    "setting-unknown": ("warning", "settings that kseg does not know; their values are hidden"),
    "not-certain": ("warning", "records that a majority of the voters may not have"),
    "snapshot-ahead": ("warning", "the log ends before a snapshot, which has the state"),
    "no-history": ("warning", "older changes have no offset: only a snapshot has them"),
}
_NO_LEVEL: Final = Fact({"level": 0}, Place("", 0, -1))
#: Table -> its columns with their Arrow types, key columns first.
_COLUMNS: Final = {
    "voters": "voter:int32 directory_id:string endpoints:texts",
    "brokers": "broker:int32 endpoints:texts rack:string fenced:bool in_controlled_shutdown:bool"
    " epoch:int64 incarnation_id:string directories:texts cordoned_directories:texts",
    "controllers": "controller:int32 endpoints:texts incarnation_id:string",
    "topics": "topic:string topic_id:string partitions:int32",
    "partitions": "topic:string partition:int32 leader:int32 replicas:numbers isr:numbers"
    " elr:numbers last_known_elr:numbers adding:numbers removing:numbers recovering:bool"
    " leader_epoch:int32 partition_epoch:int32 directories:texts",
    "configs": "level:string resource:string config:string value:string hidden:bool",
    "features": "feature:string level:int32",
    "quotas": "entity:texts quota:string value:double",
    "acls": "acl_id:string resource_type:string resource:string pattern:string principal:string"
    " host:string operation:string permission:string",
    "scram_users": "user:string mechanism:string",
    "delegation_tokens": "token_id:string owner:string requester:string",
    "elections": "topic:string partition:int32 unclean:bool leader_before:int32 leader:int32"
    " leader_epoch:int32 isr_before:numbers",
    "changes": "table:string key:json before:json after:json",
}
_KEYS: Final = {
    **FACTS,
    "voters": ("voter",),
    "partitions": ("topic", "partition"),
    "configs": ("level", "resource", "config"),
}
#: The tables about changes between two moments; the others have the state at one moment.
_OF_HISTORY: Final = ("elections", "changes")
#: The last columns of each table.
_STAMP: Final = ("offset", "timestamp", "certain")
_OF_PARTITIONS: Final = [column.partition(":")[0] for column in _COLUMNS["partitions"].split()[2:]]
#: The tables that have rows of topics; with `topics`, the other tables are empty.
_OF_TOPICS: Final = ("topics", "partitions", "configs")
_LEVELS: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
_CLUSTER: Final = "cluster"
_DIRECTORIES: Final = {0: "MIGRATING", 1: "UNASSIGNED", 2: "LOST"}
#: Numbers in records, as Kafka's tools print them.
_WORDS: Final = {
    "resource_type": "- ANY TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER",
    "pattern": "- ANY MATCH LITERAL PREFIXED",
    "operation": "- ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION"
    " DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE CREATE_TOKENS DESCRIBE_TOKENS"
    " TWO_PHASE_COMMIT",
    "permission": "- ANY DENY ALLOW",
    "mechanism": "- SCRAM-SHA-256 SCRAM-SHA-512",
}
#: Fields that rows have in another form than records.
_MADE: Final = {*_WORDS, "cordoned_directories", "directories", "endpoints", "entity"}


@frozen_dataclass(repr=False)
class MetadataTable(Listed[Row]):
    """Objects of one kind.

    The last columns are `offset` and `timestamp`, of the record that changed the object last (null
    where only a snapshot has it), and `certain`, whether a majority of the voters has that record.

    Attributes:
        kind: the kind of the objects, such as "partitions".
    """

    kind: str = ""

    @property
    def title(self) -> str:
        """The kind, and the number of objects."""
        return f"{self.kind}: {len(self)}"

    def table_rows(self) -> TableRows:
        """The objects, with times as times."""
        return [{**row, "timestamp": cell_of(row["timestamp"])} for row in self]

    def to_arrow(self) -> pyarrow.Table:
        """The objects as a `pyarrow.Table`, whose types do not depend on them."""
        pa = require("pyarrow", extra="arrow")
        kinds = {
            "texts": pa.list_(pa.string()),
            "numbers": pa.list_(pa.int32()),
            "json": pa.string(),
            "time": pa.timestamp("ms", "UTC"),
        }
        words = f"{_COLUMNS[self.kind]} offset:int64 timestamp:time certain:bool".split()
        return pa.table(
            {
                name: pa.array(
                    [_text(row[name]) if kind == "json" else row[name] for row in self],
                    kinds.get(kind) or pa.type_for_alias(kind),
                )
                for name, kind in (word.split(":") for word in words)
            }
        )


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


@frozen_dataclass(repr=False)
class Metadata(Table):
    """The answer of `kseg.metadata`. `answer["partitions"]` is one of its tables.

    Attributes:
        path: the metadata log that was read: of several, the longest.
        cluster_id: the id in `meta.properties`; None where that is not known.
        end_offset: the offset after the last record that was applied.
        certain_end_offset: the end of the records that a majority of the voters has.
        last_batch: the place of the last batch that was applied; None if all is from a snapshot.
        timestamp: the time of the last record that was applied, in ms; -1 if it is not known.
        leader, leader_epoch: of the quorum, according to the log; None and -1 if it names none.
        tables: a table for each kind of object; with `since`, `elections` and `changes` too.
        findings: records that cannot be understood, and facts that are not certain.
    """

    path: str
    cluster_id: str | None
    end_offset: int
    certain_end_offset: int
    last_batch: Place | None
    timestamp: int
    leader: int | None
    leader_epoch: int
    tables: Mapping[str, MetadataTable]
    findings: tuple[Finding, ...]
    _raw: Mapping[str, dict[Key, Row]] = field(default_factory=dict)
    _show: bool = False

    @property
    def title(self) -> str:
        """The end, and the numbers of objects."""
        numbers = ", ".join(table.title for table in self.tables.values() if len(table))
        return f"up to offset {self.end_offset}: {numbers}"

    def __getitem__(self, kind: str) -> MetadataTable:
        """A table by the kind of its objects.

        Raises:
            KeyError: there is no such table.
        """
        if kind not in self.tables:
            raise KeyError(f"no table {kind!r}; there are: {', '.join(self.tables)}")
        return self.tables[kind]

    def table_rows(self) -> TableRows:
        """The names of the tables with the numbers of their rows."""
        return [{"table": kind, "rows": len(table)} for kind, table in self.tables.items()]

    def changes_since(self, before: Metadata) -> MetadataTable:
        """The differences from another state.

        Args:
            before: the same cluster earlier, or another one.

        Returns:
            A row for each object that was added (`before` is null), changed, or removed (`after`
            is null), with the fields that differ. A value that is hidden in one state is null in
            both.
        """
        rows = []
        for kind in (kind for kind in _COLUMNS if kind not in _OF_HISTORY):
            old = before._raw.get(kind, {})
            new = self._raw.get(kind, {})
            for key in sorted(old.keys() | new.keys(), key=str):
                old_row = old.get(key)
                new_row = new.get(key)
                difference = _differences(kind, old_row, new_row, show=self._show and before._show)
                if difference is not None:
                    stamp = {name: new_row and new_row[name] for name in _STAMP}
                    key_values = [(old_row or new_row or {})[name] for name in _KEYS[kind]]
                    rows.append({"table": kind, "key": key_values, **difference, **stamp})
        return MetadataTable(tuple(rows), "changes")

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg metadata --json`."""
        last = self.last_batch
        return {
            **fields_of(self, "path cluster_id end_offset certain_end_offset timestamp"),
            **fields_of(self, "leader leader_epoch"),
            "last_batch": last and fields_of(last, "path position"),
            **{kind: list(table) for kind, table in self.tables.items()},
            "findings": [
                {**finding.noted(), "severity": finding.severity} for finding in self.findings
            ],
        }


def metadata(
    paths: StrPaths,
    *,
    at: Time | None = None,
    at_offset: int | None = None,
    since: Time | None = None,
    topics: str | Iterable[str] | None = None,
    show_secrets: bool = False,
    progress: Progress | None = None,
) -> Metadata:
    """Read the state of a cluster from the log of KRaft and its snapshots.

    Args:
        paths: data directories with `__cluster_metadata-0`, of one controller or broker or of
            several; or that directory itself.
        at: the state by the batches up to the first one after this time.
        at_offset: the state up to the record with this offset.
        since: add the table `changes`, the differences from the state at this time, and the table
            `elections`, each change of a leader between the two moments, the unclean ones first:
            the new leader was not in sync, so that acknowledged records may be lost.
        topics: topics, partitions and configurations of these alone: a name or a glob, or several.
            The configurations of brokers, which topics fall back on, stay; other tables are empty.
        show_secrets: show values of configurations that are passwords, or have unknown names.
        progress: called now and then with the offset after the records that were read, and the
            end.

    Returns:
        A table for each kind of object. Salts and keys of SCRAM users and tokens are never read
        into it.

    Raises:
        NotALogError: no path has a metadata log, as in ZooKeeper's era.
        OffsetOutOfRangeError: the moment lies before the contents of the log and its snapshots, or
            `at_offset` beyond the end.
        KsegError: the snapshot that the log needs is damaged.
        ValueError: the paths are of several clusters, no topic is chosen, or a time is invalid.
        OSError: a file cannot be read.

    Example:
        >>> found = metadata("/var/lib/kafka", topics="orders")  # doctest: +SKIP
        >>> found["configs"].to_polars()  # doctest: +SKIP
    """
    copies, cluster_id = _copies(paths_of(paths))
    chosen = Selection.of(topics, None)
    since_ms = None if since is None else time_ms(since, now_ms=machine_ms)

    def state(moment: Time | None, offset: int | None) -> Metadata:
        """The state at a time or after an offset; at the end for neither."""
        at_ms = None if moment is None else time_ms(moment, now_ms=machine_ms)
        cluster, certain_end, findings = _read(copies, at_ms, offset, since_ms, progress)
        raw = _raw_rows(cluster, certain_end, chosen)
        tables = {
            kind: MetadataTable(
                tuple(_mask_secrets(kind, row, show=show_secrets) for row in rows.values()), kind
            )
            for kind, rows in raw.items()
        }
        if since_ms is not None:
            elections = tuple(_elections(cluster, certain_end, chosen))
            tables["elections"] = MetadataTable(elections, "elections")
        return Metadata(
            fspath(copies[0][0]),
            cluster_id,
            cluster.end_offset,
            min(certain_end, cluster.end_offset),
            cluster.last,
            cluster.time_ms,
            cluster.leader,
            cluster.epoch,
            tables,
            findings,
            raw,
            show_secrets,
        )

    answer = state(at, at_offset)
    if since is not None:
        changes = answer.changes_since(state(since_ms, None))
        answer = replace(answer, tables={**answer.tables, "changes": changes})
    if chosen and not any(len(answer.tables.get(kind, ())) for kind in ("topics", "changes")):
        raise ValueError(f"the cluster has no topic {', '.join(map(repr, chosen.topics))}")
    return answer


# ---- the logs ------------------------------------------------------------------------------------


def _copies(directories: Sequence[Path]) -> tuple[list[_Copy], str | None]:
    """The metadata logs under some paths, the longest first; and the cluster's id.

    Raises:
        NotALogError: there is no metadata log.
        ValueError: they are of several clusters.
    """
    logs = {}
    ids = {}
    for path in directories:
        log = path if path.name == f"{CLUSTER_METADATA}-0" else path / f"{CLUSTER_METADATA}-0"
        directory = log.parent
        meta = None
        with suppress(FileNotFoundError, NotADirectoryError, CorruptIndexError):
            meta = metadata_files.read_meta_properties(directory / FileKind.META_PROPERTIES.value)
        if meta is not None and meta.cluster_id is not None:
            ids[meta.cluster_id] = directory
        if log.is_dir():
            logs[log] = log, None if meta is None else meta.node_id, log_batches(log)
        elif not (path.is_dir() or path.exists()):
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), fspath(path))
    if len(ids) > 1:
        raise ValueError(f"these are of several clusters: {', '.join(map(str, ids.values()))}")
    if not logs:
        raise NotALogError(
            "no __cluster_metadata-0 is here: it is in another data directory of the broker, or"
            " ZooKeeper has the metadata, as before KRaft, where no log has it",
            path=directories[0],
        )
    copies = sorted(logs.values(), key=lambda copy: _end_of(copy[2]), reverse=True)
    return copies, next(iter(ids), None)


def _end_of(batches: Int64s) -> tuple[int, int]:
    """The leader epoch and the offset of the last record; the newest log has the largest pair.

    Args:
        batches: as `log_batches` returns them.
    """
    if not len(batches):
        return -1, -1
    _base_offset, last_offset, leader_epoch, _time_ms, _crc = batches[-1].tolist()
    return leader_epoch, last_offset


def _read(
    copies: Sequence[_Copy],
    at_ms: int | None,
    at_offset: int | None,
    since_ms: int | None,
    progress: Progress | None,
) -> tuple[Cluster, int, tuple[Finding, ...]]:
    """The state at a moment, the end of the certain records, and the findings.

    Args:
        copies: the metadata logs, the longest first, which is read.
        at_ms, at_offset: the moment; None for the end of the log.
        since_ms: elections after this time are collected; None for no elections.
        progress: called with the offset reached so far, and the end.

    Raises:
        OffsetOutOfRangeError: the moment is not in the log.
    """
    log, _, batches = copies[0]
    path = fspath(log)
    log_end = _end_of(batches)[1] + 1
    if at_offset is not None and at_offset >= log_end:
        raise OffsetOutOfRangeError(f"the log ends at offset {log_end}", path=path)
    ends = [None if at_offset is None else at_offset + 1]
    ends += [None if at_ms is None else end_at(batches, at_ms)]
    end = min((bound for bound in ends if bound is not None), default=None)
    total = log_end if end is None else end
    report = None if progress is None else lambda done: progress(min(done, total), total)
    after_ms = INT64_MAX if since_ms is None else since_ms
    cluster = read_cluster(
        log, end_offset=end, history=True, elections_after_ms=after_ms, progress=report
    )
    if at_ms is not None and cluster.last is None and cluster.time_ms > at_ms:
        raise OffsetOutOfRangeError(
            f"the oldest snapshot is of {iso_text(cluster.time_ms)}, and no log goes back further",
            path=path,
        )
    voters = voters_of(cluster, log)
    cluster.voters = cluster.voters or tuple(Voter(voter_id, UUID(int=0)) for voter_id in voters)
    snapshots = [snapshot.name.base_offset or 0 for snapshot in list_partition(log).kraft_snapshots]
    of_voters = [voter_batches for _, node_id, voter_batches in copies if node_id in voters]
    # A snapshot has only records that a majority had.
    certain = max(certain_end(of_voters, len(voters)), *snapshots, 0)
    findings = [_finding(error, path) for error in cluster.findings]
    findings += [Finding("left-out", path, note) for note in cluster.notes]
    here = f"of {len(voters)} voters the logs of {len(of_voters)} are here"
    findings += _odd_findings(cluster, path, log_end, certain, here)
    return (
        cluster,
        certain,
        tuple(replace(finding, severity=CODES[finding.code][0]) for finding in findings),
    )


def _odd_findings(
    cluster: Cluster, path: str, log_end: int, certain: int, here: str
) -> Iterator[Finding]:
    """Findings about a state as a whole.

    Args:
        cluster: the state.
        path: the metadata log.
        log_end: the end of the log.
        certain: the end of the certain records.
        here: the number of voters whose logs are here, in words.
    """
    level = cluster.facts["features"].get(("metadata.version",), _NO_LEVEL).fields["level"]
    newest_level = metadata_versions()[NEWEST_RELEASE][1]
    newer = [f"metadata.version {level} ({newest_level})"] if level > newest_level else []
    newer += [f"version {version} of {name}" for name, version in sorted(cluster.newer.items())]
    configs = (name for config in cluster.configs.values() for name in config)
    unknown = sorted({name for name in configs if not is_known(name)})
    # Code, whether it is a finding here, offset, reason.
    possible = (
        (
            "setting-unknown",
            bool(unknown),
            None,
            f"Kafka {NEWEST_RELEASE} has no setting {some_of(unknown)}; values are hidden",
        ),
        (
            "newer",
            bool(newer),
            None,
            f"newer than those of Kafka {NEWEST_RELEASE}, the newest that kseg knows: "
            f"{', '.join(newer)}",
        ),
        (
            "not-certain",
            certain < cluster.end_offset,
            certain,
            f"{here}; the records are certain up to offset {certain}, and taken up to "
            f"{cluster.end_offset}",
        ),
        (
            "snapshot-ahead",
            cluster.snapshot_end > log_end > 0,
            log_end,
            f"the log ends at offset {log_end}, the snapshot at {cluster.snapshot_end}",
        ),
        (
            "no-history",
            cluster.snapshot_end > 0,
            cluster.snapshot_end,
            f"changes before offset {cluster.snapshot_end} are in a snapshot",
        ),
    )
    for code, is_so, at, text in possible:
        if is_so:
            yield Finding(code, path, text, None, at)


def _finding(error: KsegError, log: str) -> Finding:
    code = "unknown" if isinstance(error, UnsupportedFormatError) else "damaged"
    return Finding(code, error.path or log, error.reason, error.position, error.offset)


# ---- rows ----------------------------------------------------------------------------------------


def _raw_rows(cluster: Cluster, certain_end: int, chosen: Selection) -> dict[str, dict[Key, Row]]:
    """The rows of each table by their keys, with every value, also of secrets.

    Args:
        cluster: the state.
        certain_end: records before this offset are certain.
        chosen: the topics whose rows are wanted; false for all rows.
    """
    tables: dict[str, dict[Key, Row]] = {kind: {} for kind in _COLUMNS if kind not in _OF_HISTORY}
    for kind, key, fields, place in _objects(cluster):
        keys = {name: _cell(name, part) for name, part in zip(_KEYS[kind], key, strict=True)}
        if chosen and not _is_chosen(kind, keys, chosen):
            continue
        # A fact of a snapshot has no record in the log, and a negative offset.
        record = None if place is None or place.offset < 0 else place
        row = {**keys, **{name: _cell(name, cell) for name, cell in fields.items()}}
        row["offset"] = record and record.offset
        row["timestamp"] = record and record.time_ms
        row["certain"] = record is None or record.offset < certain_end
        tables[kind][key] = row
    return tables


def _is_chosen(kind: str, keys: Row, chosen: Selection) -> bool:
    """Whether a row is of a chosen topic, or a configuration of brokers, which stays as well."""
    level = keys.get("level", "topic")  # only rows of `configs` have levels
    if level in (_CLUSTER, "broker"):
        return True
    is_of_topic = kind in _OF_TOPICS and level == "topic"
    return is_of_topic and chosen.takes(keys.get("topic") or keys["resource"], None)


def _elections(cluster: Cluster, certain_end: int, chosen: Selection) -> list[Row]:
    """The changes of leaders, unclean elections first, otherwise in the order of the log.

    A leader that recovers, or was not in sync and not eligible before, was elected uncleanly.

    Source: Kafka `PartitionChangeBuilder.electAnyLeader`, `LeaderRecoveryState`.
    """
    rows = []
    for topic_id, partition, before, record, position in cluster.elections:
        topic = cluster.topics.get(topic_id, id_text(topic_id))
        if chosen and not chosen.takes(topic, partition):
            continue
        leader = record["leader"]
        if leader == before.leader and record["leaderRecoveryState"] != 1:
            continue  # a new epoch of the same leader
        is_unclean = record["leaderRecoveryState"] == 1 or (
            leader >= 0 and leader not in (*before.isr, *before.elr)
        )
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "unclean": is_unclean,
                "leader_before": before.leader,
                "leader": leader,
                "leader_epoch": before.leader_epoch + 1,
                "isr_before": list(before.isr),
                "offset": position.offset,
                "timestamp": position.time_ms,
                "certain": position.offset < certain_end,
            }
        )
    return sorted(rows, key=lambda row: not row["unclean"])


def _objects(
    cluster: Cluster,
) -> Iterator[tuple[str, Key, Mapping[str, Any], Place | None]]:
    """Each object: its table, its key, its fields, and the place of its last record; sorted by key.

    The place is None where no record is known.
    """
    for voter in cluster.voters or ():
        fields = {"directory_id": voter.directory_id, "endpoints": voter.endpoints}
        yield "voters", (voter.voter_id,), fields, None
    for kind, facts in cluster.facts.items():
        for key, (stored, position) in sorted(facts.items(), key=str):
            fields = dict(stored)
            if kind == "topics":
                fields["partitions"] = len(cluster.partitions.get(stored["topic_id"], ()))
            yield kind, key, fields, position
    for topic, topic_id in sorted(cluster.ids.items()):
        for number, partition in sorted(cluster.partitions.get(topic_id, {}).items()):
            fields = {name: getattr(partition, name) for name in _OF_PARTITIONS}
            yield "partitions", (topic, number), fields, partition.place
    for (kind_id, name), configs in sorted(cluster.configs.items()):
        level = _LEVELS.get(kind_id, str(kind_id)) if name or kind_id != BROKER else _CLUSTER
        for config, (value, position) in sorted(configs.items()):
            yield "configs", (level, name, config), {"value": value, "hidden": False}, position


def _cell(name: str, value: Any) -> Any:
    """The value of a row's column, from the field of a record."""
    if name not in _MADE:
        value = id_text(value) if isinstance(value, UUID) else value
        return list(value) if isinstance(value, tuple) else value
    if name in _WORDS:
        words = _WORDS[name].split()
        return words[value] if 0 < value < len(words) else str(value)
    if name == "endpoints":
        endpoints = [  # name, host, port, and perhaps more
            (*endpoint.values(),) if isinstance(endpoint, dict) else endpoint for endpoint in value
        ]
        return [f"{listener}://{host}:{port}" for listener, host, port, *_ in endpoints]
    if name == "entity":  # without a name it is the default of its type
        return [
            kind if entity_name is None else f"{kind}={entity_name}" for kind, entity_name in value
        ]
    if value is None and name == "cordoned_directories":
        return None  # a broker before 4.3 does not say
    return list(map(_directory, value or ()))


@lru_cache(maxsize=4096)
def _directory(directory_id: UUID) -> str:
    """A directory's id, or the word that stands for none; many partitions have the same ones."""
    return _DIRECTORIES.get(directory_id.int) or id_text(directory_id)


def _mask_secrets(kind: str, row: Row, *, show: bool) -> Row:
    """A row in which a secret value is null and `hidden`, unless `show`."""
    if kind != "configs":
        return row
    value = shown(row["config"], row["value"], show_secrets=show)
    return {**row, "value": value, "hidden": value is None}


def _differences(kind: str, old: Row | None, new: Row | None, *, show: bool) -> Row | None:
    """The differing fields of an object, before and after; None if nothing differs.

    Args:
        kind: the table.
        old, new: the rows of the object; None where it does not exist.
        show: show secrets.
    """
    names = [name for name in new or old or () if name not in (*_KEYS[kind], *_STAMP)]
    if old and new:
        names = [name for name in names if old[name] != new[name]]
        if not names:
            return None
        names += ["hidden"] if kind == "configs" else []
    before, after = (
        version and {name: _mask_secrets(kind, version, show=show)[name] for name in names}
        for version in (old, new)
    )
    return {"before": before, "after": after}
