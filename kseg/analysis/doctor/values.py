"""The doctor's answer as values, and its codes; the fields are those of `kseg doctor --json`.

An error is a loss of records, or a reason for which a broker, or one of its directories, does not
come up. A warning costs time, or takes a partition away from its readers. A note is information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kseg.analysis.values import FINDING_COLUMNS, finding_row
from kseg.documents import Documented, VerbReport, fields_of
from kseg.frames import Table
from kseg.log.recovery import Lost

Weight = Literal["error", "warning", "note"]


class Outcome(Enum):
    """The outcome of a start for a directory, or for the broker; the worst last."""

    STARTS = "starts"
    UNKNOWN = "unknown"
    OFFLINE = "directory-offline"
    FAILS = "broker-fails"

    @classmethod
    def worst(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """The worst of several outcomes; `STARTS` without any."""
        order = list(cls)
        return max(outcomes, key=order.index, default=cls.STARTS)


class Code(NamedTuple):
    """A kind of finding: its weight, its meaning, the usual outcome and exception of Kafka."""

    weight: Weight
    meaning: str
    outcome: Outcome = Outcome.STARTS
    exception: str | None = None


CODES: Final[dict[str, Code]] = {
    # A partition.
    "load-fails": Code("error", "Kafka cannot load a partition; its exception is named"),
    "records-cut": Code("error", "loading cuts off records, also sound ones after the damage"),
    "bytes-cut": Code("warning", "loading cuts bytes off that hold no record"),
    "log-start-ahead": Code("error", "the log ends before its start: all of it is deleted"),
    "records-missing": Code("error", "checkpoints or neighbours know records that are not here"),
    "index-unused": Code("error", "Kafka trusts unused index entries: retention deletes records"),
    "hidden": Code("error", "records at the end stay on the disk, and nobody can read them"),
    "tier-deleted": Code("error", "leader epochs are lost: a broker deletes segments of the tier"),
    "swept": Code("warning", "loading reads segments again, which takes time"),
    "stray": Code("warning", "the partition is not this broker's any more: renamed, not served"),
    "partition-lost": Code(
        "error",
        "a missing partition of this node is created empty; no other replica has its records",
    ),
    "partition-behind": Code(
        "warning",
        "a missing partition of this node is created empty, and copied from other replicas",
    ),
    "partition-elsewhere": Code(
        "note", "a partition of this node is still being copied, or in a directory not given"
    ),
    "set-aside": Code("note", "a directory that is kept, in the making, or waits for deletion"),
    "not-imitated": Code(
        "warning", "Kafka's load may differ from this prediction here", Outcome.UNKNOWN
    ),
    # A data directory.
    "missing": Code("error", "the directory does not exist: a broker makes a new, empty one"),
    "quorum-state": Code("error", "the node's quorum state cannot be parsed", Outcome.FAILS),
    "unreadable": Code(
        "error", "a file or directory cannot be read", Outcome.OFFLINE, "IOException"
    ),
    "foreign-directory": Code(
        "error",
        "a folder that is not a partition: no broker starts beside it",
        Outcome.FAILS,
        "KafkaException",
    ),
    "not-formatted": Code(
        "error",
        "no meta.properties, without which a broker does not start",
        Outcome.FAILS,
        "RuntimeException",
    ),
    "meta-properties": Code(
        "error", "meta.properties cannot be understood", Outcome.OFFLINE, "IOException"
    ),
    "checkpoint-format": Code("error", "a checkpoint cannot be understood"),
    "checkpoint-missing": Code("warning", "a checkpoint that every broker writes is not there"),
    "checkpoint-entry": Code("note", "a checkpoint names a partition that is not there"),
    "unclean": Code("warning", "no mark of a clean stop"),
    "in-use": Code(
        "warning",
        "a process holds the lock; the findings may change at any time",
        Outcome.UNKNOWN,
        "KafkaException",
    ),
    "read-only": Code("error", "the file system can only be read", Outcome.OFFLINE, "IOException"),
    "rights": Code(
        "error",
        "a file that the directory's owner may not read and write",
        Outcome.OFFLINE,
        "IOException",
    ),
    "room": Code("error", "less free room than loading writes", Outcome.OFFLINE, "IOException"),
    "inodes": Code(
        "error", "the file system has no room for more files", Outcome.OFFLINE, "IOException"
    ),
    # The directories of a broker together.
    "same-directory": Code(
        "error", "a data directory is given twice", Outcome.FAILS, "KafkaException"
    ),
    "duplicate-partition": Code(
        "error", "two directories hold the same partition", Outcome.FAILS, "IllegalStateException"
    ),
    "ids": Code(
        "error",
        "the ids of the data directories contradict each other",
        Outcome.FAILS,
        "RuntimeException",
    ),
    "metadata-elsewhere": Code(
        "error", "a metadata log outside of the metadata directory", Outcome.FAILS, "KafkaException"
    ),
    "metadata-missing": Code("error", "no metadata log: a controller forgets the cluster"),
    "metadata-snapshot": Code(
        "error", "a snapshot or bootstrap file of KRaft that no node can read", Outcome.FAILS
    ),
    "feature-level": Code(
        "error",
        "a metadata version that the release does not know",
        Outcome.FAILS,
        "IllegalArgumentException",
    ),
    "metadata-cut": Code("error", "loading cuts the metadata log, and the broker forgets topics"),
    "metadata-fetched": Code("note", "the node fetches its metadata log from the controllers"),
    "metadata-offline": Code(
        "error", "the metadata directory does not come up", Outcome.FAILS, "RuntimeException"
    ),
    "no-directory": Code("error", "no data directory comes online", Outcome.FAILS),
    "not-given": Code(
        "note", "server.properties names a data directory that was not looked at", Outcome.UNKNOWN
    ),
    # The settings.
    "setting-refused": Code(
        "error", "a setting that Kafka refuses at its start", Outcome.FAILS, "ConfigException"
    ),
    "setting-missing": Code("warning", "a setting without which no broker starts"),
    "setting-ignored": Code("warning", "a setting that a broker ignores under this name"),
    "tier-off": Code("warning", "topics with records in a tier, and a broker without one"),
    # The machine.
    "open-files": Code("warning", "more files than this shell's limit lets a process open"),
    "maps": Code("warning", "more indexes than the kernel lets a process map"),
}

#: The findings by which readers lose records: cut, or put aside.
LOSING: Final = frozenset(
    {
        *("records-cut", "log-start-ahead", "hidden", "partition-lost", "tier-deleted"),
        *("metadata-missing", "metadata-cut"),
    }
)

#: The findings that say what is not here.
LACKING: Final = frozenset(
    {
        *("records-missing", "log-start-ahead", "records-cut", "hidden", "load-fails"),
        *("partition-lost", "partition-behind", "partition-elsewhere", "checkpoint-entry"),
        *("missing", "unreadable", "not-formatted", "checkpoint-missing", "not-given"),
        *("metadata-missing", "metadata-cut", "metadata-fetched"),
        *("meta-properties", "quorum-state"),
    }
)


@dataclass(frozen=True, slots=True)
class BrokerFinding(Documented):
    """A finding of the doctor.

    Attributes:
        code: a word of `CODES`.
        path: the file or directory.
        message: the fault, with the values that show it.
        outcome: its consequence by itself.
        exception: of Kafka; None where Kafka raises nothing.
        mend: the advice, in lines; a command has a line of its own.
        records: number of records that a start takes from their readers; None if not known.
        partitions: the names of the partitions with these records; empty for the path itself.
    """

    DOCUMENT = "code severity path message outcome exception mend records partitions"

    code: str
    path: str
    message: str
    outcome: Outcome = Outcome.STARTS
    exception: str | None = None
    mend: str | None = None
    records: int | None = None
    partitions: tuple[str, ...] = ()

    @property
    def severity(self) -> Weight:
        """Its weight."""
        return CODES[self.code].weight


def finding(
    code: str, path: str | Path, message: str, mend: str | None = None, **given: Any
) -> BrokerFinding:
    """A finding with the usual outcome and exception of its code, unless others are given."""
    usual = {"outcome": CODES[code].outcome, "exception": CODES[code].exception}
    return BrokerFinding(code, str(path), message, mend=mend, **{**usual, **given})


def count_records(lost: Iterable[Lost | BrokerFinding]) -> int | None:
    """How many records go; None where that is not known."""
    counts = [one.records for one in lost]
    return None if None in counts else sum(count or 0 for count in counts)


@dataclass(frozen=True, slots=True)
class PartitionOutlook(Documented):
    """The load of one partition.

    Attributes:
        path: its directory.
        topic, partition: by the directory's name.
        kind: log, future, delete, stray or cluster metadata.
        outcome: of its load.
        segments, bytes: of log before the load.
        swept_segments, swept_bytes: that the load reads again.
        log_start_offset, log_end_offset: afterwards; -1 where it cannot be loaded.
        cut_offset: the lowest offset that goes; None if the log is not cut. A sealed segment that
            has lost its index may be cut in front of others that stay.
        truncated_bytes: of log that go.
        written_bytes: that the load writes.
        lost: the stretches that go, with offsets and numbers of records.
        seconds: that reading took here.
        findings: the findings.
        reads_itself: the load deletes a segment, or reads where an open transaction begins, which
            it cannot in a directory that is offline by then.
    """

    DOCUMENT = (
        "path topic partition kind outcome segments bytes swept_segments swept_bytes "
        "log_start_offset log_end_offset cut_offset truncated_bytes written_bytes lost_records "
        "lost findings"
    )

    path: str
    topic: str | None
    partition: int | None
    kind: str
    outcome: Outcome
    segments: int = 0
    bytes: int = 0
    swept_segments: int = 0
    swept_bytes: int = 0
    log_start_offset: int = -1
    log_end_offset: int = -1
    cut_offset: int | None = None
    truncated_bytes: int = 0
    written_bytes: int = 0
    lost: tuple[Lost, ...] = ()
    seconds: float = 0.0
    findings: tuple[BrokerFinding, ...] = ()
    reads_itself: bool = False

    @property
    def lost_records(self) -> int | None:
        """How many records go; None where that is not known."""
        return count_records(self.lost)


@dataclass(frozen=True, slots=True)
class DirectoryOutlook(Documented):
    """A start on one data directory.

    Attributes:
        path: the directory.
        outcome: of the directory.
        clean: whether it has the mark of a clean stop.
        cluster_id, node_id, directory_id: of `meta.properties`; None where they are not known.
        threads: that load its partitions, as configured.
        swept_bytes: that loading reads again.
        seconds: that loading takes about, at the rate measured here; None if it is not known.
        partitions: one value each, by name.
        findings: findings beside them.
    """

    path: str
    outcome: Outcome
    clean: bool
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    threads: int
    swept_bytes: int
    seconds: float | None
    partitions: tuple[PartitionOutlook, ...]
    findings: tuple[BrokerFinding, ...]


@dataclass(frozen=True, slots=True, repr=False)
class DoctorReport(VerbReport, Table):
    """The answer for a broker: a table with a row for each finding.

    Attributes:
        release: the release in question.
        outcome: of the broker: it starts, perhaps without some directories, or fails.
        rate: bytes a second that were read again here; None if too few were.
        directories: one value each, as given.
        findings: about the broker or the machine.
        as_of_ms: the time of the last record of the metadata log; None without one.
    """

    COLUMNS = f"directory {FINDING_COLUMNS} outcome exception records partitions"
    DOCUMENT = "ok for=release outcome rate directories findings"

    release: str
    outcome: Outcome
    rate: float | None
    directories: tuple[DirectoryOutlook, ...]
    findings: tuple[BrokerFinding, ...]
    as_of_ms: int | None = None

    @property
    def title(self) -> str:
        """The outcome, and the number of findings."""
        count = len(tuple(self.all_findings()))
        return f"Kafka {self.release}: {self.outcome.value}, {count} findings"

    def column_kinds(self) -> Mapping[str, str | None]:
        """The columns, with the names of partitions as text."""
        return {**Table.column_kinds(self), "partitions": "texts"}

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """The findings; `advice` is the attribute `mend` of a finding."""
        directories = {
            id(one): directory.path
            for directory in self.directories
            for findings in (directory.findings, *(each.findings for each in directory.partitions))
            for one in findings
        }
        return [
            {
                "directory": directories.get(id(one)),
                **finding_row(one.code, one.severity, one.path, one.message, one.mend),
                **fields_of(one, "outcome exception records partitions"),
            }
            for one in self.all_findings()
        ]

    def all_findings(self) -> Iterator[BrokerFinding]:
        """All findings."""
        yield from self.findings
        for directory in self.directories:
            yield from directory.findings
            for outlook in directory.partitions:
                yield from outlook.findings

    @property
    def outlooks(self) -> tuple[PartitionOutlook, ...]:
        """All partitions."""
        return tuple(one for directory in self.directories for one in directory.partitions)

    @property
    def cluster_id(self) -> str | None:
        """Of the first directory that has one."""
        return next((each.cluster_id for each in self.directories if each.cluster_id), None)

    @property
    def node_id(self) -> int | None:
        """Of the first directory that has one."""
        known = (each.node_id for each in self.directories if each.node_id is not None)
        return next(known, None)

    @property
    def losing(self) -> tuple[BrokerFinding, ...]:
        """The findings that take records from their readers."""
        found = (one for one in self.all_findings() if one.code in LOSING)
        return tuple(one for one in found if one.records != 0)

    @property
    def lacking(self) -> tuple[BrokerFinding, ...]:
        """The findings that a complete copy of the directories would not have."""
        return tuple(one for one in self.all_findings() if one.code in LACKING)

    @property
    def lost_records(self) -> int | None:
        """How many records a start takes from their readers; None where that is not known."""
        return count_records(self.losing)

    @property
    def ok(self) -> bool:
        """Whether the broker starts with all directories, and loses nothing."""
        return self.outcome is Outcome.STARTS and all(
            one.severity != "error" for one in self.all_findings()
        )
