"""The doctor's answer as values; the fields are those of `kseg doctor --json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kseg.analysis.doctor.words import LACKING, LOSING, BrokerFinding, Outcome
from kseg.analysis.values import FINDING_COLUMNS, finding_row
from kseg.documents import Documented, VerbReport, frozen_dataclass
from kseg.frames import Table, TableRows
from kseg.log.recovery import Lost


def count_records(lost: Iterable[Lost | BrokerFinding]) -> int | None:
    """The number of records that are lost; None where it is not known."""
    counts = [loss.records for loss in lost]
    return None if None in counts else sum(count or 0 for count in counts)


@frozen_dataclass
class PartitionOutlook(Documented):
    """The load of one partition.

    Attributes:
        path: its directory.
        topic, partition: parsed from the directory's name.
        kind: log, future, delete, stray or cluster metadata.
        outcome: the outcome of its load.
        segments, bytes: the number and the size of log files before the load.
        swept_segments, swept_bytes: the segments that the load reads again.
        log_start_offset, log_end_offset: after the load; -1 where it cannot be loaded.
        cut_offset: the lowest offset that is cut off; None if the log is not cut. A sealed segment
            that has lost its index may be cut before others that stay.
        truncated_bytes: the bytes of log that are cut off.
        written_bytes: the bytes that the load writes.
        lost: the ranges that are cut off, with offsets and numbers of records.
        seconds: the time that reading took here.
        findings: the findings.
        reads_itself: whether the load deletes a segment, or reads where an open transaction begins,
            which it cannot in a directory that is offline by then.
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
        """The number of records that the load loses; None where it is not known."""
        return count_records(self.lost)


@frozen_dataclass
class DirectoryOutlook(Documented):
    """A start on one data directory.

    Attributes:
        path: the directory.
        outcome: the outcome for the directory.
        clean: whether it has the mark of a clean stop.
        cluster_id, node_id, directory_id: the ids in `meta.properties`; None if not known.
        threads: the number of threads that load its partitions, as configured.
        swept_bytes: the bytes that loading reads again.
        seconds: the time that loading takes about, at the rate measured here; None if not known.
        partitions: one value each, sorted by name.
        findings: the findings about the directory itself.
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


@frozen_dataclass(repr=False)
class DoctorReport(VerbReport, Table):
    """The answer for a broker: a table with a row for each finding.

    Attributes:
        release: the release of Kafka that would start.
        outcome: the outcome for the broker: it starts, perhaps without some directories, or fails.
        rate: bytes a second that were read again here; None if too few bytes were.
        directories: one value each, as given.
        findings: about the broker or the machine.
        as_of_ms: the time of the last record of the metadata log; None if there is no such log.
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

    def table_rows(self) -> TableRows:
        """The findings; `advice` is the attribute `mend` of a finding."""
        directories = {
            id(finding): directory.path
            for directory in self.directories
            for findings in (
                directory.findings,
                *(outlook.findings for outlook in directory.partitions),
            )
            for finding in findings
        }
        words = "code severity path message advice=mend outcome exception records partitions"
        return [
            {"directory": directories.get(id(finding)), **finding_row(finding, words)}
            for finding in self.all_findings()
        ]

    def all_findings(self) -> Iterator[BrokerFinding]:
        """The findings of the report, its directories and their partitions."""
        yield from self.findings
        for directory in self.directories:
            yield from directory.findings
            for outlook in directory.partitions:
                yield from outlook.findings

    @property
    def outlooks(self) -> tuple[PartitionOutlook, ...]:
        """The partitions of all directories."""
        return tuple(outlook for directory in self.directories for outlook in directory.partitions)

    @property
    def cluster_id(self) -> str | None:
        """The value of the first directory that has one; None if none has."""
        return next(
            (directory.cluster_id for directory in self.directories if directory.cluster_id), None
        )

    @property
    def node_id(self) -> int | None:
        """The value of the first directory that has one; None if none has."""
        node_ids = (
            directory.node_id for directory in self.directories if directory.node_id is not None
        )
        return next(node_ids, None)

    @property
    def losing(self) -> tuple[BrokerFinding, ...]:
        """The findings that take records from their readers."""
        losing = (finding for finding in self.all_findings() if finding.code in LOSING)
        return tuple(finding for finding in losing if finding.records != 0)

    @property
    def lacking(self) -> tuple[BrokerFinding, ...]:
        """The findings that a complete copy of the directories would not have."""
        return tuple(finding for finding in self.all_findings() if finding.code in LACKING)

    @property
    def lost_records(self) -> int | None:
        """The number of records that readers lose by a start; None where it is not known."""
        return count_records(self.losing)

    @property
    def ok(self) -> bool:
        """Whether the broker starts with all directories, and loses nothing."""
        return self.outcome is Outcome.STARTS and all(
            finding.severity != "error" for finding in self.all_findings()
        )
