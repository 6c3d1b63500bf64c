"""The answers of `examine` as small values that pickle, and a bounded list of findings.

`kseg.log.recovery` defines the codes of findings.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EIO
from os import fspath
from pathlib import Path
from typing import Any, Final

from kseg.commands import filled
from kseg.constants import BATCH_HEADER_BYTES, StrPath
from kseg.documents import fields_of, frozen_dataclass
from kseg.errors import KsegError, UnreadableError, os_reason
from kseg.files.names import LeftOut
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.frames import Table, TableRows
from kseg.log.data_directory import partition_of
from kseg.log.recovery import CODES, PER_CODE_MAX, Finding, Lost, Severity, TxnTrail
from kseg.log.settings import Cluster, SettingSources
from kseg.reports import PartitionSettings, Settings

_STOPPED: Final = "{reason}: {left} bytes are left[, the batch there wants {needed}]"
_OFFSETS: Final = "offsets {b.base_offset} to {b.last_offset}"
_SEQUENCES: Final = "producer {producer}, epoch {epoch}: sequences {first} to {last}"
_LATEST: Final = "{many} such a time, the latest {time}"
_RECORD: Final = "[record {record}: ]{reason}"
#: The sentences of findings by their codes and perhaps a word. The values of a finding and its
#: offset fill the names in braces; `b` is the header of a batch. A part in brackets is left out
#: where a value in it is None.
SENTENCES: Final[dict[str, str]] = {
    # Batches.
    "batch-crc": "the checksum stored, {b.crc:#010x}, is not that of the bytes",
    "batch-length": _STOPPED,
    "batch-length.short": f"{{b.size}} bytes are fewer than a header's {BATCH_HEADER_BYTES}",
    "batch-magic": _STOPPED,
    "torn-tail": _STOPPED,
    "zero-tail": _STOPPED,
    "batch-codec": "codec {b.codec} in magic {b.magic}",
    "batch-count": "{b.record_count} records at {b.base_offset} to {b.last_offset} in {b.size} "
    "bytes",
    "batch-producer": "producer id {b.producer_id}",
    "sequence-gap": f"{_SEQUENCES}, and {{expected}} was to come",
    "sequence-double": f"{_SEQUENCES}, which were there before",
    "record-over-limit": "a record of {size} bytes or more, and the topic's limit is {limit}",
    "transaction-mixed": "producer {b.producer_id} has a transaction open, of which this batch is "
    "no part",
    "control-record": "no control type in the record's key",
    "offset-order": f"{_OFFSETS} after higher ones",
    "offset-order.segments": "the segment starts at {offset}, {name} before it ends at "
    "{last}{overlap}",
    "offset-range": _OFFSETS,
    "offset-range.segment": f"{_OFFSETS} in a segment that starts at {{base}}",
    "segment-gap": "no segment has offsets {offset} to {last}: a segment may be missing, or the "
    "topic was compacted once",
    "segment-gap.epochs": "no segment has offsets {offset} to {last}, of which the leader epochs "
    "know: a segment may be missing",
    "leader-epoch-order": "leader epoch {b.leader_epoch} after a higher one",
    "leader-epoch-order.segments": "leader epoch {epoch} follows {before}, which ends {name}",
    "time-ahead": _LATEST,
    "time-in-seconds": _LATEST,
    "time-negative": "{many} such a time, the earliest {time}",
    # Records.
    "record-codec": _RECORD,
    "record-limit": _RECORD,
    "record-crc": _RECORD,
    "record-structure": _RECORD,
    "record-offset": "record offsets leave {b.base_offset} to {b.last_offset}, or do not grow",
    "max-timestamp": "timestamp {b.max_timestamp} in the header is not the latest of its records",
    # Beside the log.
    "snapshot-ahead": "the log ends at offset {end}",
    "snapshot-offset": "producer {entry.producer_id} has offset {entry.last_offset}, its "
    "transaction begins at {entry.current_txn_first_offset}; the snapshot ends below {end}",
    "epochs-missing": "batches have leader epochs, the log none",
    "epochs-order": "{count} entries lost",
    "epochs-ahead": "epoch {epoch} starts at {offset}, the log ends at {end}",
    "epochs-wrong": "the batch at offset {offset} has epoch {epoch}, the checkpoint says {stated}",
    "log-start-ahead": "{topic}-{partition} is said to be at offset {offset}, its log ends at "
    "{end}",
    "checkpoint-ahead": "{topic}-{partition} is said to be at offset {offset}, its log ends at "
    "{end}[: {missing} missing]",
    "orphan-index": "there is no log of this base offset",
    "leftover": "a file in transit: .{suffix}",
    "foreign-directory": "not a partition directory",
    "name.snapshot": "no offset and epoch of a snapshot",
    "name.twin": "a second file of base offset {base}",
    "name.negative": "base offset {base} is negative",
    "name-digits": "{digits!r} has {count} characters",
    # A tier.
    "tier-orphan": "no finished copy of a segment has this object",
    "tier-hole": "offsets {offset} to {last}",
    "tier-size": "{size} bytes; the metadata say {stated}",
    "tier-object": "segment {id}: {reason}",
    "tier-metadata.end": "it goes on past {end}, its end",
}


class Findings:
    """Collects the findings of one unit of work, a bounded number of each code and file."""

    __slots__ = ("_counts", "_findings")

    def __init__(self) -> None:
        """Start without findings."""
        self._findings: list[Finding] = []
        # (code, path) -> number of findings, those that are only counted among them.
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(
        self,
        code: str,
        path: str,
        message: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Note one finding; severity comes from the code unless given."""
        self.note(Finding(code, path, message, position, offset, severity))

    def say(
        self,
        sentence: str,
        path: str,
        /,
        *,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity | None = None,
        **values: Any,
    ) -> None:
        """Note one finding in its words.

        Args:
            sentence: a name of `SENTENCES`; the code is the part up to the dot.
            path, position, offset, severity: see `add`.
            values: fill the sentence.
        """
        text = filled(SENTENCES[sentence], {"offset": offset, **values})
        code = sentence.partition(".")[0]
        self.add(code, path, text, position=position, offset=offset, severity=severity)

    def note(self, finding: Finding) -> None:
        """Note one finding; only count it if `PER_CODE_MAX` of its code and file are noted."""
        code = finding.code
        path = os.fspath(finding.path)
        self._counts[code, path] += 1
        if self._counts[code, path] <= PER_CODE_MAX:
            severity = finding.severity or CODES[code].severity
            self._findings.append(replace(finding, severity=severity))

    def add_unreadable(self, error: UnreadableError) -> None:
        """Note that the disk cannot read bytes of a file."""
        assert error.path is not None
        self.add("unreadable", error.path, error.reason, position=error.position)

    @contextmanager
    def noting_unreadable(self) -> Iterator[None]:
        """Turn an EIO inside the block into a finding."""
        try:
            yield
        except UnreadableError as error:
            self.add_unreadable(error)
        except OSError as error:
            if error.errno != EIO or error.filename is None:
                raise
            self.add("unreadable", os.fsdecode(error.filename), os_reason(error))

    def count_more(self, code: str, path: str, number: int) -> None:
        """Count `number` more findings of a code in a file; 0 or less adds nothing."""
        self._counts[code, path] += max(number, 0)

    def finish(self) -> tuple[Finding, ...]:
        """The noted findings, and for each code and file one that counts the rest of them."""
        for (code, path), number in self._counts.items():
            if number > PER_CODE_MAX:
                message = f"{number - PER_CODE_MAX} more like the {PER_CODE_MAX} listed"
                rest = Finding(code, path, message, severity=CODES[code].severity)
                self._findings.append(rest)
        self._counts.clear()
        return tuple(self._findings)


SCHEMA = "kseg.verify/1"


@frozen_dataclass
class SegmentSummary:
    """The facts of one segment that checks across a partition need.

    Attributes:
        partition: the directory.
        path: the log file.
        base_offset: parsed from its name.
        first_offset, last_offset: the bounds of its sound batches; None if it has none.
        epochs: (leader epoch, first offset) where the epoch changes.
        whole: the walk reached the end of the file, past sound batches only.
        magics_seen: bit n is set where magic n occurs.
        kafka07: whether it has the format of Kafka 0.7, where offsets are positions.
        transactions: transactions in it and in its index; None if it has none.
        dense: whether each offset from the base offset on has a record.
    """

    partition: str
    path: str
    base_offset: int
    first_offset: int | None = None
    last_offset: int | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    whole: bool = False
    magics_seen: int = 0
    kafka07: bool = False
    transactions: TxnTrail | None = None
    dense: bool = False

    @property
    def end_offset(self) -> int:
        """The offset after the last; the base offset if there is no sound batch."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1


@frozen_dataclass
class PartitionSummary:
    """The facts of the files beside the segments of a partition.

    Attributes:
        path: the directory.
        key: topic and partition if the name says them and names a live log.
        epochs_path: the epoch checkpoint, if there is one.
        epochs: (epoch, start offset) as Kafka has them after loading; None if it cannot be read.
        snapshots: path and offset of each producer snapshot.
        begun: the producers with a transaction open where the first segment begins.
        bare: whether the directory has only segments, as a copy of them has.
        live: whether another process holds the data directory, and may write meanwhile.
    """

    path: str
    key: tuple[str, int] | None
    epochs_path: str | None
    epochs: tuple[tuple[int, int], ...] | None
    snapshots: tuple[tuple[str, int], ...]
    begun: tuple[ProducerSnapshotEntry, ...]
    bare: bool
    live: bool = False


@frozen_dataclass
class CheckpointSummary:
    """One offset checkpoint of a data directory.

    Attributes:
        directory: the data directory.
        path, name: the path and the name of the file.
        offsets: the offsets, keyed by topic and partition.
    """

    directory: str
    path: str
    name: str
    offsets: dict[tuple[str, int], int]


@frozen_dataclass
class Examined:
    """The answer of `examine` for some units; `merge` joins two of them.

    Attributes:
        files: the number of files that were read.
        bytes: the size of these files.
        batches: the number of batches that were walked.
        records: the number of records according to headers, or by decoding: all records with
            `deep`, otherwise those of compressed messages of magic 0 and 1, which no header counts.
        findings: the findings about the units.
        lost: each damaged place of their logs.
        segments, partitions, checkpoints: the facts for checks across files.
    """

    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    findings: tuple[Finding, ...] = ()
    lost: tuple[Lost, ...] = ()
    segments: tuple[SegmentSummary, ...] = ()
    partitions: tuple[PartitionSummary, ...] = ()
    checkpoints: tuple[CheckpointSummary, ...] = ()


#: The columns of tables of findings.
FINDING_COLUMNS: Final = "code severity path topic partition offset position message advice"


def finding_row(finding: Any, words: str) -> dict[str, Any]:
    """A row of a table of findings; topic and partition are those of the directory.

    Args:
        finding: a value with a `path`.
        words: the names of its fields, as in `DOCUMENT`.
    """
    path = os.fspath(finding.path)
    topic, partition = partition_of(path) or partition_of(os.path.dirname(path)) or (None, None)
    place = {"topic": topic, "partition": partition}
    return dict.fromkeys(FINDING_COLUMNS.split()) | fields_of(finding, words) | place


@frozen_dataclass(repr=False)
class Report(Table):
    """The answer of verify: a table with a row for each finding.

    Attributes:
        ok: nothing but warnings was found.
        files, bytes, batches, records: how much was examined, see `Examined`.
        findings: sorted by path and position.
        skipped: the paths that could not be read, with `on_error="skip"`; not in the document.
        lost: each damaged place of a log, sorted by path and position, with the number of sound
            batches after it in the file.
    """

    COLUMNS = FINDING_COLUMNS

    ok: bool
    files: int
    bytes: int
    batches: int
    records: int
    findings: tuple[Finding, ...]
    skipped: tuple[LeftOut, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def title(self) -> str:
        """The outcome in numbers."""
        seen = f"{self.files} files, {self.bytes} bytes, {len(self.findings)} findings"
        return f"{'ok' if self.ok else 'not ok'}, {seen}"

    def table_rows(self) -> TableRows:
        """The findings, with the topic and partition of each as far as its path names them."""
        words = "code severity path offset position message advice"
        return [finding_row(finding, words) for finding in self.findings]

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg verify --json`."""
        fields = fields_of(self, "ok files bytes batches records findings lost")
        return {"schema": SCHEMA, **fields}


class KnownSettings:
    """The settings of the partitions of some data directories, each read once."""

    def __init__(self, sources: SettingSources, data_directories: Iterable[Path]) -> None:
        """Read the metadata logs.

        Args:
            sources: where the settings come from.
            data_directories: those of one or several brokers.

        Raises:
            ValueError: an invalid setting is given, or `broker_config` is malformed.
        """
        sources.check()
        self.broker_config = sources.broker_config
        # Path of a partition, or of a data directory -> settings, or why they cannot be read.
        self._by_partition: dict[str, PartitionSettings | str] = {}
        self._by_directory: dict[Path, Settings | str] = {}
        for group in sources.groups(directory.resolve() for directory in data_directories):
            self._by_directory |= dict.fromkeys(group, _read_log(sources, group))

    def of(self, path: StrPath) -> PartitionSettings | str:
        """The settings of a partition, or the reason why they cannot be read, in words."""
        name = fspath(path)
        if name not in self._by_partition:
            self._by_partition[name] = self._read(path)
        return self._by_partition[name]

    def _read(self, path: StrPath) -> PartitionSettings | str:
        """As `of`, but found anew in the settings of the partition's data directory."""
        directory = Path(path).resolve().parent
        settings = self._by_directory.get(directory, "it is in none of the data directories")
        if isinstance(settings, str):
            return f"the settings cannot be read: {settings}"
        try:
            return settings.of(path)
        except (KsegError, OSError) as error:
            return f"its settings: {error}"

    @property
    def cluster(self) -> Cluster | None:
        """The cluster as the metadata log describes it; None if there is no such log."""
        logs = (log for log in self._by_directory.values() if not isinstance(log, str))
        return next((log.cluster for log in logs if log.cluster is not None), None)

    @property
    def errors(self) -> dict[Path, str]:
        """Why settings cannot be read, keyed by the data directory."""
        by_directory = self._by_directory.items()
        return {directory: error for directory, error in by_directory if isinstance(error, str)}


def _read_log(sources: SettingSources, group: list[Path]) -> Settings | str:
    """The settings of the data directories of a broker, or why they cannot be read."""
    try:
        return sources.read(group)
    except (KsegError, OSError) as error:
        return str(error)
