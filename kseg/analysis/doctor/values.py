"""The doctor's answer as values; the fields are those of `kseg doctor --json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kseg.analysis.doctor.codes import CODES, LOSING, Weight
from kseg.log.recovery import Lost


class Outcome(Enum):
    """What becomes of a directory, or of the broker, at a start; the worst last."""

    STARTS = "starts"
    UNKNOWN = "unknown"
    OFFLINE = "directory-offline"
    FAILS = "broker-fails"

    @classmethod
    def worst(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """The worst of several; `STARTS` of none."""
        order = list(cls)
        return max(outcomes, key=order.index, default=cls.STARTS)


@dataclass(frozen=True, slots=True)
class Noticed:
    """One thing that was noticed.

    Attributes:
        code: a word of `CODES`.
        path: the file or directory.
        message: what it is, with the values that show it.
        outcome: what it leads to by itself.
        exception: Kafka's; None where none is raised.
        mend: what mends it, a line each; a command has a line of its own.
        records: how many a start takes from their readers; None where that is not known.
        partitions: whose records these are, by name; of the path itself if there are none.
    """

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
        """How much it weighs."""
        return CODES[self.code].weight

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "message": self.message,
            "outcome": self.outcome.value,
            "exception": self.exception,
            "mend": self.mend,
            "records": self.records,
            "partitions": list(self.partitions),
        }


def count_records(lost: Iterable[Lost | Noticed]) -> int | None:
    """How many records go; None where that is not known."""
    counts = [one.records for one in lost]
    return None if None in counts else sum(count or 0 for count in counts)


@dataclass(frozen=True, slots=True)
class PartitionOutlook:
    """What loading makes of one partition.

    Attributes:
        path: its directory.
        topic, partition: by the directory's name.
        kind: log, future, delete, stray or cluster metadata.
        outcome: of its load.
        segments, bytes: of log, as they lie.
        swept_segments, swept_bytes: that the load reads again.
        log_start_offset, log_end_offset: afterwards; -1 where it cannot be loaded.
        cut_offset: the lowest offset that goes; None if the log is not cut. A sealed segment that
            has lost its index may be cut in front of others that stay.
        truncated_bytes: of log that go.
        written_bytes: that the load writes.
        lost: what goes, with offsets and numbers of records.
        seconds: that reading took here.
        noticed: what was noticed.
        reads_itself: the load deletes a segment, or reads where an open transaction begins, which
            it cannot in a directory that is offline by then.
    """

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
    noticed: tuple[Noticed, ...] = ()
    reads_itself: bool = False

    @property
    def lost_records(self) -> int | None:
        """How many records go; None where that is not known."""
        return count_records(self.lost)

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "path": self.path,
            "topic": self.topic,
            "partition": self.partition,
            "kind": self.kind,
            "outcome": self.outcome.value,
            "segments": self.segments,
            "bytes": self.bytes,
            "swept_segments": self.swept_segments,
            "swept_bytes": self.swept_bytes,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "cut_offset": self.cut_offset,
            "truncated_bytes": self.truncated_bytes,
            "written_bytes": self.written_bytes,
            "lost_records": self.lost_records,
            "lost": [one.to_dict() for one in self.lost],
            "findings": [one.to_dict() for one in self.noticed],
        }


@dataclass(frozen=True, slots=True)
class DirectoryOutlook:
    """What a start makes of one data directory.

    Attributes:
        path: the directory.
        outcome: of the directory.
        clean: whether the mark of a clean stop lies there.
        cluster_id, node_id, directory_id: of `meta.properties`; None where they are not known.
        threads: that load its partitions, as configured.
        swept_bytes: that loading reads again.
        seconds: that loading takes about, at the rate measured here; None if it is not known.
        partitions: one value each, by name.
        noticed: what was noticed beside them.
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
    noticed: tuple[Noticed, ...]

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "path": self.path,
            "outcome": self.outcome.value,
            "clean": self.clean,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "directory_id": self.directory_id,
            "threads": self.threads,
            "swept_bytes": self.swept_bytes,
            "seconds": self.seconds,
            "partitions": [one.to_dict() for one in self.partitions],
            "findings": [one.to_dict() for one in self.noticed],
        }


@dataclass(frozen=True, slots=True)
class Doctored:
    """The answer for a broker.

    Attributes:
        release: the one that was asked about.
        outcome: of the broker: it starts, perhaps without some directories, or fails.
        rate: bytes a second that were read again here; None if too few were.
        directories: one value each, as given.
        noticed: what is about the broker or the machine.
    """

    release: str
    outcome: Outcome
    rate: float | None
    directories: tuple[DirectoryOutlook, ...]
    noticed: tuple[Noticed, ...]

    def all_noticed(self) -> Iterator[Noticed]:
        """What was noticed anywhere."""
        return (one for _, one in self.noticed_by_directory())

    def noticed_by_directory(self) -> Iterator[tuple[str | None, Noticed]]:
        """What was noticed anywhere, each with its data directory; None for the broker or more."""
        yield from ((None, one) for one in self.noticed)
        for each in self.directories:
            inside = (one for partition in each.partitions for one in partition.noticed)
            yield from ((each.path, one) for one in (*each.noticed, *inside))

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
    def losing(self) -> tuple[Noticed, ...]:
        """What takes records from their readers."""
        found = (one for one in self.all_noticed() if one.code in LOSING)
        return tuple(one for one in found if one.records != 0)

    @property
    def lost_records(self) -> int | None:
        """How many records a start takes from their readers; None where that is not known."""
        return count_records(self.losing)

    @property
    def ok(self) -> bool:
        """Whether the broker starts with all directories, and loses nothing."""
        return self.outcome is Outcome.STARTS and all(
            one.severity != "error" for one in self.all_noticed()
        )

    def to_json(self) -> dict[str, Any]:
        """As in `--json`, but for its schema."""
        return {
            "ok": self.ok,
            "for": self.release,
            "outcome": self.outcome.value,
            "rate": self.rate,
            "directories": [one.to_dict() for one in self.directories],
            "findings": [one.to_dict() for one in self.noticed],
        }


__all__ = ["DirectoryOutlook", "Doctored", "Noticed", "Outcome", "PartitionOutlook"]
