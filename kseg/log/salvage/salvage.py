"""Salvage: `plan_salvage` finds the provable batches, `SalvagePlan.apply` writes them.

A plan reads each partition once with its checksums and changes nothing. `apply` copies the
bytes from their files and sweeps them again in their new place, so it notices a file that has
changed since. The fields of a plan are those of `kseg salvage --json` and of `report.json`.

Lost offsets may hide the marker of a transaction: `Transactions` lists such transactions,
and `abort_markers` writes markers that end them.

The log of KRaft is kept up to its first gap. Each of its records changes the state that the records
before it made, so a record after a gap may mean something else without those in the gap. A sound
snapshot holds the state at an offset, so gaps before that offset do no harm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kseg.catalog import Catalog
from kseg.constants import INT32_MAX, Progress, StrPath
from kseg.documents import Documented, document, fields_of, frozen_dataclass
from kseg.errors import (
    DecompressionError,
    InvalidRecordError,
    KsegError,
    NotALogError,
    UnreadableError,
)
from kseg.files import atomic, io
from kseg.files.checkpoints import LeaderEpochs, TopicPartition
from kseg.files.mapping import MappedFile
from kseg.files.names import CLUSTER_METADATA, list_partition, log_bytes
from kseg.files.selection import ALL, Chosen, Selection
from kseg.format.request import Request
from kseg.frames import Table, TableRows, counted
from kseg.log import data_directory
from kseg.log.recovery.plan import sum_of
from kseg.log.salvage.output import (
    QUARANTINE,
    REPORT,
    TargetPartition,
    TargetSegment,
    beside,
    check_output,
    target_segments,
    write_output,
)
from kseg.log.salvage.provable import epochs_of, lost_offsets, read_provable
from kseg.log.salvage.values import (
    HARMLESS,
    NO_OFFSET,
    DamagedTransaction,
    LostOffsets,
    ProvablePartition,
    Span,
    Transactions,
    abort_markers,
    gap_columns,
    numbers_of,
    provable_tables,
    run_between,
)
from kseg.log.segment.reader import Segment
from kseg.log.settings.metadata_log import read_cluster
from kseg.log.tier.history import with_tier_epochs
from kseg.log.tier.tier import Tier, TierLike
from kseg.workers import Put, in_order

#: Bytes of these reasons were never a batch, so nothing is lost with them.
_NOTHING: Final = frozenset(("zeros",))
#: Bytes of these reasons are not copied: OUT has them, or the disk cannot read them.
_NOT_COPIED: Final = HARMLESS | {"unreadable"}
#: Below the quarantine of a partition, files that hold nothing but sound batches.
READABLE: Final = "readable"


@frozen_dataclass
class Quarantined:
    """Bytes that are not kept, and their place in the quarantine.

    Attributes:
        source: the bytes in the log file.
        path: the file, below the directory beside OUT.
        position: the position in that file where they begin.
    """

    source: Span
    path: str
    position: int


@dataclass(frozen=True)
class SalvagedPartition(Documented):
    """One partition of a plan.

    Attributes:
        path: its directory.
        partition: topic and number.
        topic_id: from `partition.metadata`; None if that has none.
        log_start_offset, log_end_offset: the bounds of the new log.
        bytes: the size of its log files.
        batches: the number of batches that are kept, and of markers that are added.
        records: the number of records in them; None if unknown without inflating.
        lost: offsets that no sound batch has.
        unprovable: bytes that are not kept, and batches that are there twice.
        transactions: those that may have lost offsets.
        markers: how many markers are added.
        indexed: whether a segment with batches that are not kept has an offset index.
        undecodable: sound batches that are kept, but whose records no client can read.
        start_beyond_end: the offset in `log-start-offset-checkpoint`, if it is ignored because it
            is beyond the end of the log; else None.
    """

    DOCUMENT = (
        "topic=partition.topic partition=partition.partition path topic_id ok log_start_offset"
        " log_end_offset segments=target.segment_count bytes kept_bytes=target.bytes batches"
        " records duplicates=duplicate_batches lost_records at_most lost undecodable unprovable"
        " transactions markers unproved=unproved_batches start_beyond_end"
    )

    path: str
    partition: TopicPartition
    topic_id: UUID | None
    log_start_offset: int
    log_end_offset: int
    bytes: int
    batches: int
    records: int | None
    lost: tuple[LostOffsets, ...]
    unprovable: tuple[Span, ...]
    transactions: tuple[DamagedTransaction, ...]
    markers: int
    target: TargetPartition = field(repr=False)
    indexed: bool = False
    undecodable: tuple[LostOffsets, ...] = ()
    start_beyond_end: int | None = None

    @property
    def name(self) -> str:
        """The name of its directory in OUT."""
        return self.target.name

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and all kept records can be read."""
        is_harmless = (span.reason in HARMLESS | _NOTHING for span in self.unprovable)
        return not (self.lost or self.undecodable) and all(is_harmless)

    @property
    def lost_records(self) -> int | None:
        """The number of lost records, the most if a range is not certain; None if unknown."""
        records = 0
        for lost_range in self.lost:
            if lost_range.last_offset is None:
                return None
            records += lost_range.last_offset - lost_range.first_offset + 1
        return records

    @property
    def at_most(self) -> bool:
        """Whether some lost offsets may have had no record."""
        return any(lost_range.at_most for lost_range in self.lost)

    @property
    def unproved_batches(self) -> int:
        """How many readable batches after damage are left out, since nothing proves them."""
        return sum(span.batches for span in self.unprovable if span.reason == "not-anchored")

    @property
    def duplicate_batches(self) -> int:
        """How many batches are in OUT already."""
        return sum(span.batches for span in self.unprovable if span.reason in HARMLESS)

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The bytes that are copied beside OUT, for each log file; sound bytes separately."""
        ends: dict[str, int] = {}
        quarantined = []
        for span in sorted(self.unprovable, key=lambda span: bool(span.batches)):
            if span.reason not in _NOT_COPIED:
                folder = f"{self.name}/{READABLE}" if span.batches else self.name
                path = f"{QUARANTINE}/{folder}/{Path(span.path).name}"
                quarantined.append(Quarantined(span, path, ends.get(path, 0)))
                ends[path] = ends.get(path, 0) + span.size
        return tuple(quarantined)

    def to_dict(self) -> dict[str, Any]:
        """The document of `--json`."""
        places = {id(part.source): part for part in self.quarantined}
        unprovable = [_unprovable_document(span, places.get(id(span))) for span in self.unprovable]
        return Documented.to_dict(self) | {"unprovable": unprovable}


def _unprovable_document(span: Span, quarantined: Quarantined | None) -> dict[str, Any]:
    """The object of `--json` for bytes that are not kept."""
    is_known = span.first_offset != NO_OFFSET
    return {
        **fields_of(span, "path position size reason"),
        "first_offset": span.first_offset if is_known else None,
        "last_offset": span.last_offset if is_known else None,
        **fields_of(span, "batches places"),
        "quarantine": None if quarantined is None else quarantined.path,
        "quarantine_position": None if quarantined is None else quarantined.position,
    }


@dataclass(frozen=True, repr=False)
class SalvagePlan(Table):
    """The plan of a salvage; see `kseg.plan_salvage`.

    Attributes:
        sources: the directories that were given.
        out: the new data directory.
        partitions: sorted by topic and number.
        left_alone: logs of KRaft in data directories: they are salvaged only if they are named.
    """

    sources: tuple[str, ...]
    out: Path
    partitions: tuple[SalvagedPartition, ...]
    left_alone: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is lost."""
        return all(partition.ok for partition in self.partitions)

    @property
    def beside(self) -> Path:
        """The directory for the report, and for bytes that are not kept."""
        return beside(self.out)

    @property
    def kept_bytes(self) -> int:
        """The size of the new log files."""
        return sum(partition.target.bytes for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """The size of the log files that were read."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def lost(self) -> tuple[LostOffsets, ...]:
        """Offsets that no sound batch has, of all partitions."""
        return tuple(lost for partition in self.partitions for lost in partition.lost)

    @property
    def quarantined(self) -> Iterator[Quarantined]:
        """The bytes that are copied beside OUT."""
        return (part for partition in self.partitions for part in partition.quarantined)

    @property
    def quarantined_bytes(self) -> int:
        """The number of bytes that are copied beside OUT."""
        return sum(part.source.size for part in self.quarantined)

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg salvage --json`, and `report.json`."""
        return {
            "path": list(self.sources),
            **fields_of(self, "out beside ok bytes kept_bytes"),
            "batches": sum(partition.batches for partition in self.partitions),
            "records": sum_of(partition.records for partition in self.partitions),
            "lost_records": sum_of(partition.lost_records for partition in self.partitions),
            "duplicates": sum(partition.duplicate_batches for partition in self.partitions),
            **fields_of(self, "quarantined_bytes left_alone partitions"),
        }

    @property
    def title(self) -> str:
        """One line with the output directory, its bytes, and the number of lost ranges."""
        return (
            f"{self.out}: {len(self.partitions)} partitions, {self.kept_bytes} of {self.bytes} "
            f"bytes kept, {len(self.lost)} ranges of offsets lost"
        )

    def table_rows(self) -> TableRows:
        """The partitions as rows; a list of offsets or of findings appears as its length."""
        return [counted(row) for row in document(self.partitions)]

    def apply(self, *, progress: Progress | None = None) -> SalvageReport:
        """Write the batches of a plan: the whole data directory, or nothing.

        It has derived indexes, epochs, producer snapshots and checkpoints, and the mark of a clean
        shutdown: a broker adopts it. `OUT.kseg-salvage` beside it holds `report.json` and the bytes
        that are not kept. A run that is killed leaves no `out`; the next one begins again.

        Args:
            progress: called with bytes copied and bytes in all.

        Raises:
            StalePlanError: a source is not as it was when the plan was made.
            FileExistsError, NotADirectoryError, KsegError: `out` is not free any more.
            OSError: the disk refuses, or has no room. `out` does not exist then.
        """

        def finish(beside_target: Path) -> None:
            """Write the quarantine and the report, lasting before the output has its name."""
            parts = list(self.quarantined)
            _quarantine(beside_target, parts)
            folders = {folder for part in parts for folder in Path(part.path).parents}
            for folder in sorted(folders - {Path()}):
                io.flush_directory(beside_target / folder)
            document = {"schema": "kseg.salvage/1", **self.to_json()}
            atomic.replace_file(
                beside_target / REPORT, json.dumps(document, indent=1).encode() + b"\n"
            )

        write_output(
            self.out,
            [partition.target for partition in self.partitions],
            sources=[*self.sources, *(partition.path for partition in self.partitions)],
            finish=finish,
            finish_bytes=self.quarantined_bytes,
            progress=progress,
        )
        return SalvageReport(self, beside(self.out) / REPORT)

    def __str__(self) -> str:
        """One line for each partition."""
        return "\n".join(
            f"{partition.path}: {partition.batches} batches kept, "
            f"{len(partition.lost)} ranges of offsets lost"
            for partition in self.partitions
        )


@frozen_dataclass(repr=False)
class SalvageReport(Table):
    """The result of a salvage.

    Attributes:
        plan: the plan that was applied.
        path: the path of `report.json`.
    """

    plan: SalvagePlan
    path: Path

    @property
    def title(self) -> str:
        """The title of the plan."""
        return self.plan.title

    def table_rows(self) -> TableRows:
        """The rows of the plan."""
        return self.plan.table_rows()

    @property
    def ok(self) -> bool:
        """Whether nothing is lost."""
        return self.plan.ok

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg salvage --json`."""
        return self.plan.to_json()


#: Votes of the controller; without this file, it would vote twice in one epoch.
_QUORUM_STATE = "quorum-state"


def up_to_first_gap(partition: ProvablePartition) -> tuple[ProvablePartition, tuple[Path, ...]]:
    """The part of the log of KRaft up to its first gap, and the files that belong to it.

    Raises:
        KsegError, OSError: a file has changed, or cannot be read.
    """
    covered = read_cluster(partition.path).snapshot_end
    kept_runs: list[Span] = []
    remaining_runs = list(partition.runs)
    end = 0
    while remaining_runs and remaining_runs[0].first_offset <= max(end, covered):
        run = remaining_runs.pop(0)
        gaps = (position[first > covered] for _, first, position in gap_columns(run))
        cut = next((int(positions[0]) for positions in gaps if len(positions)), run.end)
        provable, remainder = run_between(run, run.position, cut), run_between(run, cut, run.end)
        if provable is not None:
            kept_runs.append(provable)
            end = provable.last_offset + 1
        if remainder is not None:
            remaining_runs.insert(0, remainder)
            break
    numbers = numbers_of(partition.segments)
    unprovable = [
        *partition.unprovable,
        *(replace(run, reason="behind-gap") for run in remaining_runs),
    ]
    unprovable.sort(key=lambda span: (numbers[span.path], span.position))
    up_to_gap = replace(
        partition,
        runs=tuple(kept_runs),
        unprovable=tuple(unprovable),
        lost=lost_offsets(kept_runs, unprovable, partition.segments, partition.log_start_offset),
        segments=tuple(
            segment
            for number, segment in enumerate(partition.segments)
            if not number or segment.base_offset <= end
        ),
    )
    files = [
        snapshot.path
        for snapshot in list_partition(partition.path).kraft_snapshots
        if snapshot.name.base_offset == covered
    ]
    state = partition.path / _QUORUM_STATE
    return up_to_gap, (*files, *([state] if state.is_file() else ()))


_COPIED_BYTES: Final = 2**20

# ---- deciding ------------------------------------------------------------------------------------


def plan_salvage(
    *directories: StrPath,
    out: StrPath,
    abort_open: bool = False,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int | range] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    tier: TierLike | None = None,
) -> SalvagePlan:
    """Plan a salvage of damaged partitions; changes nothing, and takes no lock.

    Kafka's recovery cuts all after the first bad byte. This finds each sound batch after it.

    Args:
        directories: partition directories or `Log` objects; or data directories, whose live
            partitions are taken. The log of KRaft is taken only where it is named.
        out: a new data directory, or an empty one; outside of the sources.
        abort_open: add a marker that aborts each transaction whose own marker may be lost.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        threads: threads to share the reading.
        progress: called with bytes of log searched and bytes in all.
        tier: has earlier leader epochs, if a checkpoint lost them; None for what
            `__remote_log_metadata` beside a partition says.

    Raises:
        ValueError: the same partition twice, no directory, or `threads` below 1.
        NotALogError: a path is not a directory of Kafka's, or nothing is chosen.
        UnsupportedFormatError: files of Kafka 0.7.
        FileExistsError, NotADirectoryError, KsegError: `out` is not free, or is in a source.
        TierError: leader epochs of a log with a tier are lost, and nothing else has them.
        OSError: a path is missing, or cannot be listed.

    Example:
        >>> plan_salvage("data/orders-0", out="salvaged").ok  # doctest: +SKIP
        False
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}, not 1 or more")
    check_output(out, directories)
    left_alone: list[Path] = []
    chosen = Selection.of(topics, partitions).choice
    sources = _sources([Path(directory) for directory in directories], chosen, left_alone)
    note = _total_progress(progress, sum(map(log_bytes, sources.values())))
    tier = Tier.beside() if tier is None else tier
    pieces = (
        partial(_put_plan, *source, abort_open, note, tier) for source in sorted(sources.items())
    )
    with closing(in_order(pieces, threads=threads)) as results:
        planned = list(results)
    names = tuple(os.fspath(directory) for directory in directories)
    return SalvagePlan(
        names, Path(os.path.abspath(out)), tuple(planned), tuple(map(str, left_alone))
    )


def _sources(
    directories: Sequence[Path], chosen: Chosen | None, left_alone: list[Path]
) -> dict[TopicPartition, Path]:
    """The partitions under some paths; adds logs of KRaft in data directories to `left_alone`."""
    if not directories:
        raise ValueError("name a directory")
    paths: dict[TopicPartition, Path] = {}
    catalog = Catalog.of(
        directories,
        ALL if chosen is None else lambda *name: name[0] == CLUSTER_METADATA or chosen(*name),
        replicas="all",
        files="refuse",
        may_be_empty=True,
    )
    for path, name in ((partition.path, partition.name) for partition in catalog):
        if name is None or name.suffix is not None:
            if path in catalog.named:
                raise NotALogError("its name is not <topic>-<partition>: rename a copy", path=path)
            continue
        if name.topic == CLUSTER_METADATA and path not in catalog.named:
            left_alone.append(path)
            continue
        if chosen is not None and not chosen(name.topic, name.partition):
            continue
        other = paths.setdefault(TopicPartition(name.topic, name.partition), path)
        if other is not path:
            raise ValueError(
                f"{other} and {path} are the same partition: 'kseg merge' makes one log of two"
            )
    if not paths:
        raise NotALogError("no partition here is chosen", path=directories[0])
    return paths


def _total_progress(progress: Progress | None, total: int) -> Callable[[Path, int, int], None]:
    """A function for the progress of each partition, which reports the sum of all."""
    searched: dict[Path, int] = {}

    def note(path: Path, done: int, _total: int) -> None:
        searched[path] = done
        if progress is not None:
            progress(min(sum(list(searched.values())), total), total)

    return note


def _put_plan(
    partition: TopicPartition,
    path: Path,
    abort_open: bool,
    note: Callable[[Path, int, int], None],
    tier: TierLike,
    put: Put,
) -> None:
    """Plan one partition and put its plan: sound batches, their segments, and abort markers."""
    provable = read_provable(path, progress=partial(note, path))
    files: tuple[Path, ...] = ()
    is_kraft = partition.topic == CLUSTER_METADATA
    if is_kraft:
        provable, files = up_to_first_gap(provable)
    runs, lost = provable.runs, provable.lost
    bases = [segment.base_offset for segment in provable.segments] or [provable.log_start_offset]
    segments = target_segments(runs, bases)
    end = max(bases[-1], runs[-1].last_offset + 1 if runs else 0)
    transactions = Transactions(runs, lost)
    markers = sum(transaction.is_open for transaction in transactions.damaged) if abort_open else 0
    if markers:
        segments = _with_tail(segments, abort_markers(transactions, end), end)
    offsets = data_directory.offsets_beside(path)
    start, entries = provable.log_start_offset, epochs_of(path)
    epochs = with_tier_epochs(path, entries, start, tier, is_lost=not entries)
    target = TargetPartition(
        partition,
        segments,
        end + markers,
        topic_id=provable.topic_id,
        log_start_offset=min(start, end),
        high_watermark=None if offsets.high_watermark is None else min(offsets.high_watermark, end),
        epochs=LeaderEpochs(epochs).within(start, end),
        files=files,
        is_derived=not is_kraft,
    )
    records = sum_of(run.records for run in runs)
    plan = SalvagedPartition(
        path=str(path),
        partition=partition,
        topic_id=provable.topic_id,
        log_start_offset=max(target.log_start_offset, segments[0].base_offset),
        log_end_offset=target.log_end_offset,
        bytes=sum(segment.size for segment in provable.segments),
        batches=sum(run.batches for run in runs) + markers,
        records=None if records is None else records + markers,
        lost=lost,
        unprovable=provable.unprovable,
        transactions=tuple(transactions.damaged),
        markers=markers,
        target=target,
        indexed=any(
            Path(span.path).with_suffix(".index").exists()
            for span in provable.unprovable
            if span.reason == "not-anchored"
        ),
        undecodable=tuple(_undecodable_batches(runs)),
        start_beyond_end=provable.start_beyond_end,
    )
    put(plan)


def _undecodable_batches(runs: Sequence[Span]) -> Iterator[LostOffsets]:
    """The batches whose records cannot be decoded, though their checksums are right."""
    for run in runs:
        faults: list[KsegError] = []
        with Segment.open(run.path, mapping="never", is_last=False) as segment:
            request = Request(columns=("key", "value", "headers"), on_corrupt=faults.append)
            for _ in segment.read(request, start_position=run.position, end_position=run.end):
                pass
        broken = InvalidRecordError, DecompressionError
        places = {fault.position for fault in faults if isinstance(fault, broken)}
        for _, table in provable_tables([run]) if places else ():
            for header in table:
                if header.position in places:
                    last = header.last_offset
                    yield LostOffsets(
                        header.base_offset if header.base_offset >= 0 else last,
                        last,
                        path=run.path,
                        position=header.position,
                        bytes=header.size,
                    )


def _with_tail(
    segments: tuple[TargetSegment, ...], tail: bytes, end: int
) -> tuple[TargetSegment, ...]:
    """The segments with the tail added to the last one, or to a new one if that is full."""
    last = segments[-1]
    size = sum(extent.size for extent in last.extents) + len(tail)
    if size <= INT32_MAX and end + len(tail) - last.base_offset <= INT32_MAX:
        return (*segments[:-1], replace(last, tail=tail))
    return (*segments, TargetSegment(end, (), tail))


# ---- doing ---------------------------------------------------------------------------------------


def _quarantine(beside_target: Path, parts: Sequence[Quarantined]) -> None:
    """Copy bytes that are not kept to the files of the quarantine; zeros become holes."""
    for path, of_file in groupby(parts, key=lambda part: part.path):
        io.make_directories((beside_target / path).parent)
        with io.WriteFile.open(beside_target / path, exclusive=True) as file:
            for part in of_file:
                with MappedFile.open(part.source.path, "never") as source:
                    _copy(source, part.source, file, part.position)
            file.truncate(part.position + part.source.size)
            file.flush()


def _copy(source: MappedFile, span: Span, file: io.WriteFile, position: int) -> None:
    """Copy bytes that are not kept; bytes that the disk cannot read stay zeros."""
    for start in range(0, span.size, _COPIED_BYTES):
        size = min(_COPIED_BYTES, span.size - start)
        try:
            data = source.read(span.position + start, size)
        except UnreadableError:
            continue  # the disk has got worse since the plan was made
        if any(data):
            file.write_at(position + start, data)
