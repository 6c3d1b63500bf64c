"""Contents of logs, from headers and indexes only: `info`, as `kseg info` prints it.

`Summary` sums up the headers of any number of batches: counts, times, codecs, formats.
`topics` has the topics of data directories, in a small table; `describe` a partition and its tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from os import fspath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kseg import Segment
from kseg.analysis.units import Unit, UnitKind, all_files, run_units
from kseg.catalog import Catalog, OnError
from kseg.constants import NO_TIMESTAMP, Progress, codec_label
from kseg.documents import fields_of, frozen_dataclass
from kseg.errors import KsegError, NotALogError, os_reason
from kseg.files.checkpoints import EpochEntry
from kseg.files.names import (
    LeftOut,
    classify_path,
)
from kseg.files.selection import Selection, StrPaths
from kseg.format.header import BatchTable
from kseg.format.times import cell_of
from kseg.frames import Listed, TableRows
from kseg.log.log import Log
from kseg.log.reader import LogView
from kseg.log.tier import Tier, TierLog, holes
from kseg.stores.path import is_remote, name_of, path_at
from kseg.stores.store import Store

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Summary:
    """Sums over the headers of some batches.

    Attributes:
        batches: the number of batches.
        records: the number of records, with control records; None where compressed messages of
            magic 0 and 1 do not say how many they hold.
        min_timestamp, max_timestamp: in ms, as headers state them; None where no header does.
        codecs, magics: the codecs and magics of the batches.
        first_offset, last_offset: of the first and the last batch that was fed; None if there are
            no batches.
    """

    batches: int = 0
    records: int | None = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    codecs: set[int] = field(default_factory=set)
    magics: set[int] = field(default_factory=set)
    first_offset: int | None = None
    last_offset: int | None = None

    def feed(self, table: BatchTable) -> None:
        """Add the next headers of a walk."""
        if not len(table):
            return
        self.batches += len(table)
        counts = table.record_count
        has_counts = bool((counts >= 0).all())
        self.records = (
            self.records + int(counts.sum()) if has_counts and self.records is not None else None
        )
        self.codecs.update(np.unique(table.codec).tolist())
        self.magics.update(np.unique(table.magic).tolist())
        if self.first_offset is None:
            first = table[0]
            self.first_offset = first.base_offset if first.base_offset >= 0 else first.last_offset
        self.last_offset = int(table.last_offset[-1])
        self._feed_times(table)

    def _feed_times(self, table: BatchTable) -> None:
        """Update the smallest and the largest time.

        A base timestamp does not count where it is a delete horizon, or not the records' time.
        """
        largest = table.max_timestamp
        is_of_records = (table.delete_horizon_ms == -1) & (table.timestamp_type == 0)
        smallest = np.where(is_of_records, table.base_timestamp, largest)
        has_time = (largest != NO_TIMESTAMP) & (table.record_count != 0) & (table.magic > 0)
        if table.kafka07 or not has_time.any():
            return
        low = int(smallest[has_time].min())
        high = int(largest[has_time].max())
        self.min_timestamp = _of_both(min, low, self.min_timestamp)
        self.max_timestamp = _of_both(max, high, self.max_timestamp)

    def merge(self, other: Summary) -> Summary:
        """The sums over the batches of both."""
        both = self.records is not None and other.records is not None
        return Summary(
            self.batches + other.batches,
            (self.records or 0) + (other.records or 0) if both else None,
            _of_both(min, self.min_timestamp, other.min_timestamp),
            _of_both(max, self.max_timestamp, other.max_timestamp),
            self.codecs | other.codecs,
            self.magics | other.magics,
            _of_both(min, self.first_offset, other.first_offset),
            _of_both(max, self.last_offset, other.last_offset),
        )

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        return {
            **fields_of(self, "batches records min_timestamp max_timestamp"),
            "codecs": [codec_label(codec) for codec in sorted(self.codecs)],
            "magics": sorted(self.magics),
        }

    def cells(self) -> dict[str, Any]:
        """The fields as they stand in a table, with times as `datetime`."""
        times = {"min_timestamp": self.min_timestamp, "max_timestamp": self.max_timestamp}
        return self.document() | {name: cell_of(time) for name, time in times.items()}


def _of_both(choose: Callable[[int, int], int], first: int | None, other: int | None) -> int | None:
    """The least or the greatest of two numbers that may be missing."""
    if first is None or other is None:
        return other if first is None else first
    return choose(first, other)


@frozen_dataclass
class SegmentFacts:
    """The facts of one segment, from its headers and indexes.

    Attributes:
        file: the name of the log file.
        base_offset: parsed from the name.
        last_offset: the last offset of its last batch; None if it has no batches.
        bytes: the size of the log file.
        summary: counts, times, codecs and formats of its batches.
        index_entries, time_index_entries, txn_index_entries: the entries in use; None if the file
            is missing or broken.
        end_position: where the walk ended.
        stop: why it ended: the name of a `StopReason`.
    """

    file: str
    base_offset: int
    last_offset: int | None
    bytes: int
    summary: Summary
    index_entries: int | None
    time_index_entries: int | None
    txn_index_entries: int | None
    end_position: int
    stop: str

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        return {
            **fields_of(self, "file base_offset last_offset bytes"),
            **self.summary.document(),
            **fields_of(self, "index_entries time_index_entries txn_index_entries"),
            **fields_of(self, "end_position stop"),
        }


@frozen_dataclass
class PartitionInfo:
    """One partition, or a file by itself.

    Attributes:
        dir: the directory's name; None for a file by itself.
        topic, partition: parsed from the name; None for a file, or a copy under another name.
        log_start_offset, log_end_offset: the first offset to be read, and the next to be written.
        bytes: the size of all log files.
        summary: counts, times, codecs and formats of all batches.
        segments: the segments, in ascending order.
        leader_epochs: as the checkpoint has them; None for a file, or a broken checkpoint.
        leftovers: the names of files that interrupted work has left.
        faults: the reasons for missing facts; the numbers leave these parts out.
        path: the directory or the file, as it was given.
        remote_start_offset: where the log of a tiered topic began if its first segments are not on
            this disk; otherwise None.
        notes: facts that cannot be known here, in words.
        last_stable_offset: where committed records end; None for a file, or where damage hides it.
    """

    dir: str | None
    topic: str | None
    partition: int | None
    log_start_offset: int
    log_end_offset: int
    bytes: int
    summary: Summary
    segments: tuple[SegmentFacts, ...]
    leader_epochs: tuple[EpochEntry, ...] | None = None
    leftovers: tuple[str, ...] = ()
    faults: tuple[KsegError, ...] = field(default=(), compare=False)
    path: str = ""
    remote_start_offset: int | None = None
    notes: tuple[str, ...] = ()
    last_stable_offset: int | None = None

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        document = {
            **fields_of(self, "dir path topic partition remote_start_offset log_start_offset"),
            **fields_of(self, "log_end_offset last_stable_offset"),
            "segments": len(self.segments),
            "bytes": self.bytes,
            **self.summary.document(),
        }
        if self.dir is not None:
            document |= fields_of(self, "leader_epochs leftovers")
        return {**document, "segment_files": [segment.document() for segment in self.segments]}


@frozen_dataclass(repr=False)
class Infos(Listed[PartitionInfo]):
    """The answer of `info`; a table with a row for each partition or file.

    Attributes:
        skipped: the paths that could not be read, with `on_error="skip"`.
    """

    COLUMNS = (
        "directory topic partition segments bytes log_start_offset log_end_offset "
        "last_stable_offset batches records min_timestamp max_timestamp codecs magics"
    )

    skipped: tuple[LeftOut, ...] = ()

    @property
    def title(self) -> str:
        """The number of partitions, and their size."""
        return f"{len(self)} partitions, {sum(partition.bytes for partition in self)} bytes"

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg info --json`."""
        return {"partitions": [partition.document() for partition in self]}

    def table_rows(self) -> TableRows:
        """The numbers of each; `directory` is the path."""
        return [
            {
                **fields_of(partition, "directory=path topic partition"),
                "segments": len(partition.segments),
                **fields_of(partition, "bytes log_start_offset log_end_offset last_stable_offset"),
                **partition.summary.cells(),
            }
            for partition in self
        ]


def info(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    on_error: OnError = "raise",
) -> Infos:
    """Describe files, partition directories and data directories, by headers and indexes.

    Args:
        paths: one path or several, or globs.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        threads: that share the work; 1 does all of it in this one.
        progress: called with bytes done and bytes in all, as far as their directories say.
        on_error: "raise" the error of a path that cannot be read, or "skip" it and look at the
            rest, see `Infos.skipped`.

    Returns:
        One value for each partition directory (replicas separately) and each named file; damage is
        among its `faults`. A path that is given twice counts once. Counts
        are of the files: an offset that two segments hold counts twice.

    Raises:
        NotALogError: a path is not Kafka's, or holds no batches.
        ValueError: no partition is chosen, a path is a URL, `threads` is below 1, or `on_error`
            neither of its values.
        TypeError: an argument has a wrong type.
        OSError: something is missing or cannot be read.

    Example:
        >>> (orders,) = info("orders-0")
        >>> orders.topic, orders.log_end_offset, len(orders.segments)
        ('orders', 254, 5)
    """
    catalog, skipped = all_files(paths, topics, partitions, on_error)
    infos = info_of(catalog, threads=threads, progress=progress, skipped=skipped)
    return Infos(infos, tuple(skipped or ()))


def info_of(
    catalog: Catalog,
    *,
    threads: int = 1,
    progress: Progress | None = None,
    skipped: list[LeftOut] | None = None,
) -> tuple[PartitionInfo, ...]:
    """As `info`, for a catalog of files of all kinds.

    Args:
        catalog: the partitions and files.
        threads, progress: as for `info`.
        skipped: takes what cannot be read; None to raise the error.

    Raises:
        NotALogError, OSError, ValueError: as for `info`.
    """
    units = [
        Unit(UnitKind.BATCHES if partition.is_file else UnitKind.PARTITION, name_of(partition.path))
        for partition in catalog
    ]
    answers = run_units(units, _info_of_unit, threads=threads, progress=progress, skipped=skipped)
    by_path = {answer.path: answer for answer in answers}
    return tuple(by_path[unit.path] for unit in units if unit.path in by_path)


def _info_of_unit(unit: Unit) -> PartitionInfo:
    """The facts of a unit: of a file of batches, or of a partition directory."""
    describe_path = info_of_file if unit.kind is UnitKind.BATCHES else info_of_partition
    return describe_path(path_at(unit.path))


def info_of_file(path: Path) -> PartitionInfo:
    """The facts of one file of batches.

    Args:
        path: the file.

    Raises:
        NotALogError: it holds none.
        OSError: it is missing or cannot be read.
    """
    path_class = classify_path(path)
    if path_class.file is None or not path_class.file.kind.holds_batches:
        raise NotALogError("a file without batches; 'kseg dump' shows its entries", path=path)
    faults: list[KsegError] = []
    with Segment.open(path) as segment:
        facts = _segment(segment, faults)
        base = segment.base_offset
        size = segment.size
    end = base if facts.last_offset is None else facts.last_offset + 1
    return PartitionInfo(
        None,
        None,
        None,
        base,
        end,
        size,
        facts.summary,
        (facts,),
        faults=tuple(faults),
        path=fspath(path),
    )


def info_of_partition(path: Path) -> PartitionInfo:
    """The facts of one partition directory.

    Args:
        path: the directory.

    Raises:
        NotALogError: no segment is in it.
        OSError: it cannot be read.
    """
    total = Summary()
    faults = list[KsegError]()
    segments = []
    with Log.open(path) as log:
        for segment_info in log.segments:
            with log.open_segment(segment_info) as segment:
                segments.append(_segment(segment, faults))
            total = total.merge(segments[-1].summary)
        return PartitionInfo(
            dir=path.resolve().name,
            topic=log.topic,
            partition=log.partition,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            bytes=sum(facts.bytes for facts in segments),
            summary=total,
            segments=tuple(segments),
            leader_epochs=_value_or_fault(lambda: log.leader_epochs, faults),
            leftovers=tuple(file.path.name for file in log.files.temporary_files),
            faults=tuple(faults),
            path=fspath(path),
            remote_start_offset=log.view.remote_start_offset,
            notes=tuple(filter(None, [log.view.remote_warning])),
            last_stable_offset=_value_or_fault(lambda: log.last_stable_offset, []),
        )


def _segment(segment: Segment, faults: list[KsegError]) -> SegmentFacts:
    """The facts of a segment, from its headers and its indexes; `faults` receives its faults."""
    summary = Summary()
    for table in segment.headers():
        summary.feed(table)
    fault = segment.stop_fault(table)
    if fault is not None:
        faults.append(fault)
    return SegmentFacts(
        file=segment.path.name,
        base_offset=segment.base_offset,
        last_offset=summary.last_offset,
        bytes=segment.size,
        summary=summary,
        index_entries=_value_or_fault(lambda: _count(segment.offset_index), faults),
        time_index_entries=_value_or_fault(lambda: _count(segment.time_index), faults),
        txn_index_entries=_value_or_fault(lambda: len(segment.txn_index) or None, faults),
        end_position=table.end_position,
        stop=table.stop.name,
    )


def _value_or_fault(get: Callable[[], _Value], faults: list[KsegError]) -> _Value | None:
    """A value; None if its file is broken, and then `faults` receives the error."""
    try:
        return get()
    except KsegError as error:
        faults.append(error)
        return None


def _count(index: Any) -> int | None:
    """The number of entries of an index; None if it is missing."""
    return None if index.missing else int(index.entry_count)


# ---- topics --------------------------------------------------------------------------------------


@dataclass(slots=True)
class TopicSize:
    """The size of one topic, over all partitions that are here.

    Attributes:
        topic: its name.
        partitions: the number of its directories.
        segments, bytes: the number of segments of their logs, and their size.
        offsets: the number of offsets from the start to the end of each log; compaction and
            transactions leave gaps, so the records may be fewer.
    """

    topic: str
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    offsets: int = 0


class Topics(Listed[TopicSize]):
    """The topics, sorted by name; a table with a row for each."""

    __slots__ = ()
    COLUMNS = "topic partitions segments bytes offsets"

    @property
    def title(self) -> str:
        """The names of the topics."""
        return ", ".join(size.topic for size in self)

    def table_rows(self) -> TableRows:
        """The attributes of each topic."""
        return [asdict(size) for size in self]


def topics(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    progress: Progress | None = None,
) -> Topics:
    """List the topics of data directories; no record is read.

    Args:
        paths: data directories and partitions, or globs.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        progress: called with partitions done and partitions in all.

    Raises:
        NotALogError, ValueError, TypeError, OSError: as for `kseg.scan`.

    Example:
        >>> [(each.topic, each.partitions) for each in topics(".") if each.topic[0] > "b"]
        [('clicks', 2), ('customers', 1), ('orders', 2), ('payments', 1), ('shipments', 1)]
    """
    sizes: dict[str, TopicSize] = {}
    chosen = Catalog.of(paths, Selection.of(topics, partitions), replicas="all")
    directories = {partition.directory: partition for partition in chosen}
    for done, (directory, source) in enumerate(directories.items(), 1):
        view = LogView.open(directory)
        name = source.topic or directory.name
        size = sizes.setdefault(name, TopicSize(name))
        size.partitions += 1
        size.segments += len(view.segments)
        size.bytes += sum(info.size for info in view.segments)
        size.offsets += view.log_end_offset - view.log_start_offset
        if progress is not None:
            progress(done, len(directories))
    return Topics(tuple(sizes[name] for name in sorted(sizes)))


def describe(tier: Tier, log: TierLog) -> dict[str, Any]:
    """A partition and its tier as the document of `kseg info --tier` has them.

    Raises:
        KsegError, OSError: the log's end cannot be read.
    """
    local = () if log.local is None else log.local.segments
    spans = log.spans
    view = log.view
    first = None if log.local is None else log.local.first_offset
    finished = log.finished
    ids = {span.segment.id for span in spans}
    read = _sums([copy for copy in finished if copy.id in ids])
    overlap = [copy for copy in finished if first is not None and copy.end_offset >= first]
    document: dict[str, Any] = {
        "path": str(view.path),
        **fields_of(view, "topic partition"),
        **fields_of(log, "topic_id layout source"),
        **fields_of(view, "log_start_offset log_end_offset"),
        "local_start_offset": first,
        "highest_remote_offset": log.highest_remote,
        "local": _sums(local),
        "remote": {
            **_sums(finished),
            **{f"read_{name}": number for name, number in read.items()},
        },
        "overlap": _sums(overlap),
        "holes": [list(hole) for hole in holes_of(log)],
        "unread_objects": len(log.strays),
        "faults": [
            str(fault) if isinstance(fault, KsegError) else f"{fault.filename}: {os_reason(fault)}"
            for fault in log.faults
        ],
    }
    return document | traffic(tier)


def _sums(segments: Sequence[Any]) -> dict[str, int]:
    """The number and the bytes of segments, of the log or of the tier."""
    return {"segments": len(segments), "bytes": sum(segment.size for segment in segments)}


def traffic(tier: Tier) -> dict[str, int]:
    """The requests sent to a tier's store so far, and the bytes read from it; 0 for a directory."""
    if not is_remote(tier.root):
        return {"requests": 0, "bytes_read": 0}
    store = Store.of(tier.root)
    return {"requests": store.requests, "bytes_read": store.bytes}


def holes_of(log: TierLog) -> list[tuple[int, int]]:
    """The first and last offsets of ranges that neither the log nor its tier has."""
    end = log.view.log_end_offset if log.local is None else log.local.first_offset
    return holes(log.spans, log.view.log_start_offset, max(end, log.view.log_start_offset))
