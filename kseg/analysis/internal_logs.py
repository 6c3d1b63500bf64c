"""The logs of coordinators' topics, as `groups` and `transactions` read them: up to a time.

A batch counts if its time is at or before the given time. Records that compaction has removed since
then are missing: `LogTaken.compacted` says so. Each answer names the last batch of each partition
that counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from itertools import islice
from os import fspath
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.catalog import Catalog
from kseg.constants import INT64_MAX, NEWEST_RELEASE, Bools, InternalTopic, Progress
from kseg.documents import document, frozen_dataclass
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KsegError,
    LimitExceededError,
    NotALogError,
    UnreadableError,
    os_reason,
)
from kseg.extras import require
from kseg.files import metadata
from kseg.files.checkpoints import read_clean_offset
from kseg.files.names import FileKind, Partition
from kseg.files.selection import StrPaths, some_of
from kseg.format.header import BatchTable
from kseg.format.values import RecordColumns
from kseg.frames import Listed, Table, TableRows, html_table
from kseg.internal.coordinators import COLUMNS, NONE, LastValues
from kseg.internal.records import InternalRecord, InternalRow, decode_or_keep
from kseg.internal.registry import PER_CODE_MAX, SchemaFinding, Severity
from kseg.log.data_directory import DirectoryFiles, partition_of
from kseg.log.reader import LogView, WholeBatches, age_of
from kseg.log.settings import Cluster, read_cluster

CODES: Final[dict[str, tuple[Severity, str]]] = {
    "log-unreadable": ("error", "a log cannot be read: its rows are missing here"),
    "log-damaged": ("error", "a batch is damaged: its records are missing here"),
    "record-damaged": ("error", "a record does not fit its schema; it is left out"),
    "record-unknown": ("warning", "a type or version that kseg does not know; it is left out"),
    "record-newer": (
        "warning",
        f"records that are newer than Kafka {NEWEST_RELEASE}; their known fields are taken",
    ),
    "record-unkeyed": ("error", "records without a key; they are left out"),
    "partition-missing": ("warning", "partitions of the topic are missing, with their records"),
    "compacted-since": ("warning", "compaction has removed records of that time; values may lack"),
    "marker-alone": ("warning", "transaction markers whose data is not there any more"),
    "metadata-log": ("warning", "the metadata log cannot be understood whole"),
}


#: The number of rows that are made from columns at a time.
_ROWS: Final = 10_000
#: The types of columns by the annotations of named tuples.
_KINDS: Final = {
    "str": "string",
    "str | int": "string",
    "bool": "bool",
    "tuple[str, ...]": "texts",
    "tuple[dict[str, Any], ...]": "parts",
}
#: Rows that a notebook shows.
_HTML_ROWS: Final = 200


class LogTaken(NamedTuple):
    """A partition of an internal topic, and how much of it was read.

    Attributes:
        path: the directory.
        topic, partition: its name.
        base_offset, last_offset, timestamp_ms: of the last batch that counts; None if none does.
        log_end_offset: the end of the whole log.
        compacted: whether compaction removed records from before the last batch that counts, and
            went past it.
    """

    path: str
    topic: str
    partition: int
    base_offset: int | None
    last_offset: int | None
    timestamp_ms: int | None
    log_end_offset: int
    compacted: bool


class Notes:
    """Collects the oddities of an answer, a bounded number of each code."""

    def __init__(self) -> None:
        """Start without any."""
        self.findings: list[SchemaFinding] = []
        self._counts: Counter[str] = Counter()
        #: Largest version of each type of record that has newer ones than are known.
        self._newer: dict[str, int] = {}

    def note_newer(self, record: InternalRecord) -> None:
        """Note a record of a newer version; one finding names all types."""
        name = record.name or ""
        version = record.version or 0
        self._newer[name] = max(version, self._newer.get(name, 0))

    def note(self, code: str, path: object, message: str, offset: int | None = None) -> None:
        """Add a finding about a file; beyond `PER_CODE_MAX` of a code they are only counted."""
        self._counts[code] += 1
        if self._counts[code] <= PER_CODE_MAX:
            finding = SchemaFinding(code, CODES[code][0], str(path), offset, message)
            self.findings.append(finding)

    def finish(self) -> tuple[SchemaFinding, ...]:
        """The findings: those that were kept, and one more for the rest of each code."""
        messages = [
            (code, f"{count - PER_CODE_MAX} more like the {PER_CODE_MAX} listed")
            for code, count in self._counts.items()
            if count > PER_CODE_MAX
        ]
        if self._newer:
            names = (f"version {number} of {name}" for name, number in sorted(self._newer.items()))
            messages.append(
                ("record-newer", f"newer than Kafka {NEWEST_RELEASE}: {', '.join(names)}")
            )
        further = (SchemaFinding(code, CODES[code][0], "", None, text) for code, text in messages)
        return (*self.findings, *further)


@frozen_dataclass(repr=False)
class Rows(Listed[Any]):
    """A table with a row for each value, which is a named tuple.

    Attributes:
        kind: the class of the values, whose annotations are the types of the columns.
    """

    kind: type[Any]

    def column_kinds(self) -> Mapping[str, str | None]:
        """The fields of the class, with their types."""
        names = self.kind.__annotations__.items()
        return {name: _KINDS.get(str(text).removesuffix(" | None")) for name, text in names}

    def table_rows(self) -> TableRows:
        """The fields of each value; times in ms."""
        return [document(value) for value in self]


class ColumnTable(Table):
    """Many rows in columns: object arrays of text, int64 arrays of numbers, `NONE` for none."""

    __slots__ = ("columns",)

    def __init__(self, columns: Mapping[str, Any]) -> None:
        """Take the columns by name."""
        self.columns = columns

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def title(self) -> str:
        """The number of rows."""
        return f"{len(self)} rows"

    def table_rows(self) -> TableRows:
        """All rows; `rows` gives one after the other."""
        return list(self.rows())

    def _repr_html_(self) -> str:
        """The title and the first rows, for notebooks."""
        return f"<p>{self!r}</p>{html_table(list(islice(self.rows(), _HTML_ROWS)))}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, None for a number that is not there."""
        names = tuple(self.columns)
        for first in range(0, len(self), _ROWS):
            parts = (column[first : first + _ROWS].tolist() for column in self.columns.values())
            lists = [[None if value == NONE else value for value in part] for part in parts]
            for values in zip(*lists, strict=True):
                yield dict(zip(names, values, strict=True))

    def to_arrow(self) -> Any:
        """The columns as a `pyarrow.Table`; needs `kseg[arrow]`."""
        arrow = require("pyarrow", extra="arrow")
        return arrow.table(
            {
                name: arrow.array(column, arrow.string())
                if column.dtype == object
                else arrow.array(column, arrow.int64(), mask=column == NONE)
                for name, column in self.columns.items()
            }
        )


class Taken(WholeBatches):
    """Selects the batches of a log up to a time, according to their headers.

    It remembers the last batch it selected, and whether offsets are missing before the first batch
    it left out.
    """

    def __init__(self, at: int | None, start_offset: int) -> None:
        """Begin at the start of a log.

        Args:
            at: the time of the last batches that count, in ms; None for all.
            start_offset: the start of the log.
        """
        super().__init__()
        self._at = INT64_MAX if at is None else at
        self._end = start_offset
        #: Base offset, last offset and time of the last batch that counts; None if none does.
        self.last: tuple[int, int, int] | None = None
        #: Whether offsets are missing up to the first batch that was left out.
        self.has_gaps = False
        #: The base offset of the first batch that was left out.
        self.left_out: int | None = None

    def keep(
        self, also: Callable[[BatchTable], BatchTable] | None, _start: int, _end: int
    ) -> Callable[[BatchTable], BatchTable]:
        """A function that selects the batches of a table up to the time.

        Args:
            also: selects batches first; None for no further selection.
        """

        def keep(table: BatchTable) -> BatchTable:
            """Leave out batches of later times, and remember the last one that stays."""
            chosen = table if also is None else also(table)
            early = chosen.max_timestamp <= self._at
            if self.left_out is None:
                self._note_gaps(chosen, early)
            if not early.all():
                chosen = chosen.take(early)
            if len(chosen) and (self.last is None or chosen.last_offset[-1] >= self.last[1]):
                last = chosen[len(chosen) - 1]
                self.last = (last.base_offset, last.last_offset, last.max_timestamp)
            return chosen

        return keep

    def _note_gaps(self, table: BatchTable, early: Bools) -> None:
        """Note the first batch that is left out, and whether offsets are missing before it.

        Args:
            table: the next batches.
            early: bool[n], the batches that count.
        """
        later = np.flatnonzero(~early)
        if len(later):
            self.left_out = int(table.base_offset[later[0]])
            table = table[: int(later[0]) + 1]
        if len(table):
            first = table.base_offset
            last = table.last_offset
            ends = np.concatenate(([self._end], last[:-1] + 1))
            self.has_gaps |= bool(
                (first > ends).any() or (table.record_count <= last - first).any()
            )
            self._end = max(self._end, int(last[-1]) + 1)


class Home:
    """The partitions under some paths, and the files beside them.

    Attributes:
        notes: receives the findings.
        sources: the directory of each partition, the newest one where there are several.
        cluster: the state of the metadata log; None where it is not here.
        missing: the numbers of partitions that are not here, keyed by the topic, for each topic
            that `of_topic` was called with.
    """

    def __init__(self, paths: StrPaths, notes: Notes) -> None:
        """Look for partitions.

        Raises:
            NotALogError: no partition is here, or they are of several clusters.
            ValueError, TypeError, OSError: as for `kseg.scan`.
        """
        catalog = Catalog.of(paths, replicas=age_of)
        self.notes = notes
        self.sources = [
            partition
            for partition in catalog
            if not partition.is_file and partition.topic is not None
        ]
        self._checkpoints = cache(partial(DirectoryFiles.read, locked=False))
        data_directories = {partition.path.resolve().parent for partition in self.sources}
        ids = map(_cluster_id, data_directories)
        clusters = {cluster_id for cluster_id in ids if cluster_id is not None}
        if len(clusters) > 1:
            reason = f"the directories are of several clusters: {', '.join(sorted(clusters))}"
            raise NotALogError(reason, path=catalog.partitions[0].path)
        self.missing: dict[InternalTopic, list[int]] = {}
        self.cluster: Cluster | None = None
        for partition in self.sources:
            if partition.topic == InternalTopic.METADATA:
                self.cluster = read_cluster(partition.path, past_damage=True)
                for error in self.cluster.findings[:PER_CODE_MAX]:
                    notes.note(
                        "metadata-log", error.path or partition.path, error.reason, error.offset
                    )

    def of_topic(self, topic: InternalTopic) -> list[Partition]:
        """The partitions of an internal topic; those that are missing are noted."""
        by_number = {
            partition.partition or 0: partition
            for partition in self.sources
            if partition.topic == topic
        }
        numbers: set[int] = set(range(max(by_number, default=-1)))
        if self.cluster is not None and topic in self.cluster.ids:
            numbers |= self.cluster.partitions.get(self.cluster.ids[topic], {}).keys()
        missing = self.missing[topic] = sorted(numbers - by_number.keys())
        if missing:
            words = "partition is" if len(missing) == 1 else "partitions are"
            message = f"{len(missing)} {words} not here: {some_of(missing)}"
            self.notes.note("partition-missing", topic, message)
        return [by_number[number] for number in sorted(by_number)]

    @cached_property
    def views(self) -> dict[tuple[str, int], Path]:
        """The directory of each partition, keyed by topic and number."""
        return {
            (partition.topic or "", partition.partition or 0): partition.path
            for partition in self.sources
        }

    @cached_property
    def topic_names(self) -> dict[UUID, str]:
        """Names of topics by their ids, of the metadata log and of `partition.metadata` files."""
        names = {} if self.cluster is None else dict(self.cluster.topics)
        for partition in self.sources:
            if (topic_id := metadata.topic_id_in(partition.path)) is not None:
                names.setdefault(topic_id, partition.topic or "")
        return names

    def high_watermark(self, directory: Path) -> int | None:
        """The high watermark in the checkpoint beside a partition; None if it has none."""
        checkpoints = self._checkpoints(directory.resolve().parent)
        return checkpoints.of(partition_of(directory)).high_watermark

    @contextmanager
    def noting_unreadable(self, directory: Path) -> Iterator[None]:
        """Turn an error of input and output inside the block into a finding."""
        try:
            yield
        except OSError as error:
            self.notes.note("log-unreadable", error.filename or directory, os_reason(error))

    def values(
        self, topic: InternalTopic, at: int | None, progress: Progress | None
    ) -> Iterator[tuple[LogTaken, Iterator[RecordColumns]]]:
        """The last values of each partition of a topic up to a time; see `LastValues.drain`."""
        for source, view in self.walked(self.of_topic(topic), progress):
            with self.noting_unreadable(source.path):
                yield self._values_of(source, view, topic, at)

    def walked(
        self, partitions: Iterable[Partition], progress: Progress | None
    ) -> Iterator[tuple[Partition, LogView]]:
        """The logs of partitions one after the other; those that cannot be read are noted.

        Args:
            partitions: the partitions.
            progress: called after each with the bytes of the segments so far, and of all.
        """
        views = list[tuple[Partition, LogView]]()
        for partition in partitions:
            with self.noting_unreadable(partition.path):
                views.append((partition, LogView.open(partition.path)))
        sizes = [sum(info.size for info in view.segments) for _, view in views]
        for number, walked in enumerate(views, 1):
            yield walked
            if progress is not None:
                progress(sum(sizes[:number]), sum(sizes))

    def _values_of(
        self, source: Partition, view: LogView, topic: InternalTopic, at: int | None
    ) -> tuple[LogTaken, Iterator[RecordColumns]]:
        """How much of a log counts, and the last value of each of its keys; damage is noted.

        Args:
            source, view: the partition and its log.
            topic: its topic.
            at: the time of the last batches that count, in ms; None for all.
        """
        taken = Taken(at, view.log_start_offset)
        values = LastValues(topic)
        path = fspath(source.path)

        def damaged(error: KsegError) -> None:
            self.notes.note("log-damaged", error.path or path, error.reason, error.offset)

        try:
            for columns in view.read(
                columns=COLUMNS, control=True, whole=taken, on_corrupt=damaged
            ):
                values.feed(columns)
        except (CorruptRecordError, UnreadableError) as error:
            damaged(error)
        if values.unkeyed:
            self.notes.note("record-unkeyed", path, f"{values.unkeyed} records have no key")
        compacted = taken.has_gaps and _was_cleaned_past(source.path, taken.left_out)
        if compacted:
            message = f"compaction has passed offset {taken.left_out}, the first one left out"
            self.notes.note("compacted-since", path, message, taken.left_out)
        base, last, time = taken.last or (None, None, None)
        name = (path, topic.value, source.partition or 0)
        log = LogTaken(*name, base, last, time, view.log_end_offset, compacted)
        return log, values.drain()

    def decoded(self, topic: InternalTopic, columns: RecordColumns) -> Iterator[InternalRow]:
        """Decode records one by one; unreadable records are noted and left out."""
        pairs = zip(columns["offset"].tolist(), columns["key"], columns["value"], strict=True)
        for offset, key, value in pairs:
            record, error = decode_or_keep(topic, key, value)
            if record.is_understood:
                if record.reason is not None:
                    self.notes.note_newer(record)
                yield InternalRow(columns.partition, offset, -1, record)
            else:
                code = "record-unknown" if error is None else "record-damaged"
                self.notes.note(code, columns.source or topic, str(record.reason), offset)


def _cluster_id(directory: Path) -> str | None:
    """The cluster id in the `meta.properties` of a data directory; None if it has none."""
    with suppress(FileNotFoundError, CorruptIndexError, LimitExceededError):
        return metadata.read_meta_properties(directory / FileKind.META_PROPERTIES.value).cluster_id
    return None


def _was_cleaned_past(directory: Path, left_out: int | None) -> bool:
    """Whether the cleaner may have gone past an offset; True if its checkpoint is missing."""
    if left_out is None:
        return False
    with suppress(CorruptIndexError, LimitExceededError):
        clean = read_clean_offset(directory, partition_of(directory))
        return clean is None or clean > left_out
    return True


__all__ = ["CODES", "NONE", "ColumnTable", "Home", "LogTaken", "Notes", "Rows", "Taken"]
