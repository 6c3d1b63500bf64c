"""Copies of partitions against each other: replicas, backups, directories that were restored.

`kseg.analysis.pairs` compares the first copy with each other one.

Nothing is changed, and nothing is locked. `kseg.log.salvage` says which batches of a copy are
sound. The values have the fields of `kseg diff --json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Cells
from contextlib import suppress
from typing import Any

from kseg.analysis.pairs import RELATIONS, Compared, CopySeen, Pair
from kseg.analysis.units import Threads, run_units
from kseg.catalog import paths_of
from kseg.constants import Progress, StrPath
from kseg.documents import Documented, VerbReport, fields_of, frozen_dataclass
from kseg.errors import KsegError, NotALogError, text_of
from kseg.files.mapping import Mapping
from kseg.files.names import log_bytes
from kseg.files.selection import Chosen, Selection
from kseg.frames import Table
from kseg.log.copies import (
    Copy,
    CopyPath,
    join_copies,
    windows,
)


@frozen_dataclass
class PartitionDiff(Documented):
    """The copies of one partition.

    Attributes:
        topic, partition: parsed from the directories' names; None for copies under other names.
        first: the copy that the other copies were compared with.
        compared: the other copies, in the order in which they were given.
    """

    DOCUMENT = "topic partition ok first copies=compared"

    topic: str | None
    partition: int | None
    first: CopySeen
    compared: tuple[Compared, ...]

    @property
    def ok(self) -> bool:
        """Whether all copies are the same, and fully readable."""
        return all(pair.relation == "same" for pair in self.compared)

    @property
    def copies(self) -> Iterator[CopySeen]:
        """All copies, the first one first."""
        yield self.first
        yield from (pair.copy for pair in self.compared)


@frozen_dataclass(repr=False)
class Diff(VerbReport, Table):
    """The answer of `diff`: the partitions, sorted by name; a table with a row for each copy."""

    COLUMNS = (
        "topic partition first path relation log_start_offset log_end_offset same_batches "
        "differences differs_at error"
    )
    DOCUMENT = "ok totals bytes batches partitions"

    partitions: tuple[PartitionDiff, ...]

    @property
    def title(self) -> str:
        """The number of partitions, and of copies by their relation."""
        counts = ", ".join(f"{count} {word}" for word, count in self.totals.items())
        return f"{len(self.partitions)} partitions: {counts}"

    def table_rows(self) -> Sequence[Cells[str, Any]]:
        """All copies except the first of each partition; `relation` is a word of `RELATIONS`."""
        return [
            {
                **fields_of(partition, "topic partition first=first.path"),
                **fields_of(
                    pair,
                    "path=copy.path relation log_start_offset=copy.log_start_offset"
                    " log_end_offset=copy.log_end_offset same_batches differences=difference_count",
                ),
                "differs_at": pair.divergence and pair.divergence.first_offset,
                "error": pair.copy.error,
            }
            for partition in self.partitions
            for pair in partition.compared
        ]

    @property
    def ok(self) -> bool:
        """Whether nothing differs and nothing is unknown."""
        return all(partition.ok for partition in self.partitions)

    @property
    def totals(self) -> dict[str, int]:
        """The number of copies with each relation to the first one of their partition."""
        counts = Counter(
            pair.relation for partition in self.partitions for pair in partition.compared
        )
        return {word: counts[word] for word in RELATIONS if counts[word]}

    @property
    def bytes(self) -> int:
        """The bytes of the log files that were read."""
        return sum(copy.bytes for partition in self.partitions for copy in partition.copies)

    @property
    def batches(self) -> int:
        """The number of batches that were read."""
        return sum(copy.batches for partition in self.partitions for copy in partition.copies)


# ---- compare -------------------------------------------------------------------------------------


@frozen_dataclass
class DiffUnit:
    """One partition with its copies.

    Attributes:
        topic, partition: parsed from the directories' names; None for copies under other names.
        copies: the copies, beginning with the first one that has the partition.
        records: compare records where batches differ.
        mapping: see `kseg.files.mapping`.
        cost: the bytes of log to read, roughly.
    """

    topic: str | None
    partition: int | None
    copies: tuple[CopyPath, ...]
    records: bool
    mapping: Mapping
    cost: int = 0

    @property
    def path(self) -> str:
        """The directory of the first copy."""
        return self.copies[0].path


def plan(
    paths: Sequence[StrPath],
    *,
    records: bool = False,
    mapping: Mapping = "auto",
    chosen: Chosen | None = None,
) -> list[DiffUnit]:
    """The partitions under some paths, each with its copies; see `kseg.log.copies.join_copies`.

    Args:
        paths: two or more.
        records, mapping: see `DiffUnit`.
        chosen: whether a topic and a number are compared; None for all partitions.

    Raises:
        ValueError, NotALogError, OSError: as for `join_copies`.
    """
    return [
        DiffUnit(
            partition.topic,
            partition.partition,
            partition.copies,
            records,
            mapping,
            _cost(partition.copies),
        )
        for partition in join_copies(paths, chosen)
    ]


def _cost(copies: Sequence[CopyPath]) -> int:
    """The bytes of log of the copies that can be read."""
    total = 0
    for copy in copies:
        with suppress(OSError):
            total += log_bytes(copy.path) if copy.is_readable else 0
    return total


def examine(unit: DiffUnit) -> PartitionDiff:
    """Compare the copies of a partition; the answer names copies that cannot be read.

    The first attempt assumes that all copies are sound, and reads each once. If a copy may be
    damaged, the second attempt finds the provable batches of all copies first. If files change
    meanwhile, as by retention, a third attempt is made.
    """
    if sum(copy.is_readable for copy in unit.copies) > 1:
        with suppress(KsegError, OSError):
            return _partition_diff(unit, checks=False)
    with suppress(KsegError, OSError):
        return _partition_diff(unit)
    try:
        return _partition_diff(unit)
    except (KsegError, OSError) as error:
        why = f"it changed while it was read: {text_of(error)}"
        failed = [CopySeen(copy.path, copy.topic_id, error=why) for copy in unit.copies]
        compared = tuple(Compared(seen, "unreadable") for seen in failed[1:])
        return PartitionDiff(unit.topic, unit.partition, failed[0], compared)


def _copy_facts(copy_path: CopyPath, copy: Copy | CopySeen) -> CopySeen:
    """The facts about a copy for the answer; those of an unreadable copy are known already."""
    if isinstance(copy, CopySeen):
        return copy
    segments = copy.provable.segments
    return CopySeen(
        copy_path.path,
        copy_path.topic_id,
        copy.start_offset,
        copy.end_offset,
        len(segments),
        sum(segment.size for segment in segments),
        copy.batches,
        copy.unknown,
    )


def _partition_diff(unit: DiffUnit, *, checks: bool = True) -> PartitionDiff:
    """Compare the copies that can be read with the first of them.

    Args:
        unit: the partition.
        checks: compare the checksums of the copies; otherwise they are assumed to be sound.

    Raises:
        KsegError, OSError: a copy has changed since it was read, or may not be sound.
    """
    copies = [_read_copy(copy_path, unit, checks=checks) for copy_path in unit.copies]
    readable = [copy for copy in copies if isinstance(copy, Copy)]
    pairs = iter(_pairs(unit, readable))
    first_number = copies.index(readable[0]) if readable else 0
    compared = [
        Compared(copy, copy_path.lacks or "unreadable")
        if isinstance(copy, CopySeen)
        else next(pairs).value(_copy_facts(copy_path, copy))
        for number, (copy_path, copy) in enumerate(zip(unit.copies, copies, strict=True))
        if number != first_number
    ]
    first = _copy_facts(unit.copies[first_number], copies[first_number])
    return PartitionDiff(unit.topic, unit.partition, first, tuple(compared))


def _read_copy(copy_path: CopyPath, unit: DiffUnit, *, checks: bool) -> Copy | CopySeen:
    """Read one copy; a copy that cannot be read is a `CopySeen` with the reason.

    Raises:
        KsegError, OSError: without `checks`, reading failed.
    """
    error = copy_path.error
    if copy_path.is_readable:
        try:
            return (Copy.read if checks else Copy.assumed)(copy_path.path, unit.mapping)
        except (KsegError, OSError) as fault:
            if not checks:
                raise
            error = text_of(fault)
    return CopySeen(copy_path.path, copy_path.topic_id, error=error)


def _pairs(unit: DiffUnit, copies: list[Copy]) -> list[Pair]:
    """Compare the first of some copies with each of the others, in one walk over all copies."""
    pairs = [Pair(copies[0], other, records=unit.records) for other in copies[1:]]
    if pairs:
        for _, (first, *other_rows) in windows(copies):
            for pair, rows in zip(pairs, other_rows, strict=True):
                pair.feed(first, rows)
    return pairs


def diff(
    *copies: StrPath,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    records: bool = False,
    mapping: Mapping = "auto",
    threads: Threads = 1,
    progress: Progress | None = None,
) -> Diff:
    """Compare copies of a partition, or of whole data directories, with the first one.

    Batches are the same if their offsets, checksums and headers are. Different segment boundaries
    and index entries do not count as differences. Nothing is changed or locked: of a
    copy that is being written, the batches present at the start are compared.

    Args:
        copies: partition directories, copies of one partition whatever their names; or data
            directories, whose partitions are joined by topic, number and topic id. The data
            directories of one broker are one copy, with commas between them as in `log.dirs`.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        records: where batches differ, compare their records, as for copies that were compacted
            apart or hold other codecs.
        mapping: see `kseg.files.mapping`.
        threads: threads to share the work.
        progress: called with bytes of log done and bytes in all.

    Raises:
        ValueError: fewer than two copies, the same directory twice, `threads` below 1, or no
            partition is chosen.
        TypeError: an argument has a wrong type.
        NotALogError: a path is not Kafka's, or is a file.
        OSError: a path is missing, or cannot be listed.

    Example:
        >>> from kseg import diff
        >>> diff("data/orders-0", "backup/orders-0").ok  # doctest: +SKIP
        True
    """
    selection = Selection.of(topics, partitions)
    listed = list[tuple[str | None, int | None]]()

    def chosen(topic: str | None, partition: int | None) -> bool:
        listed.append((topic, partition))
        return selection.takes(topic, partition)

    try:
        return diff_of(
            paths_of(copies) if copies else (),
            records=records,
            chosen=chosen,
            mapping=mapping,
            threads=threads,
            progress=progress,
        )
    except NotALogError:
        if listed and not any(selection.takes(*name) for name in listed):
            raise ValueError(selection.why_nothing(listed)) from None
        raise


def diff_of(
    copies: Sequence[StrPath],
    *,
    records: bool = False,
    chosen: Chosen | None = None,
    mapping: Mapping = "auto",
    threads: Threads = 1,
    progress: Progress | None = None,
) -> Diff:
    """As `diff`, with a function that chooses partitions of data directories.

    Args:
        copies, records, mapping, progress: as for `diff`.
        chosen: whether a topic and a number are compared; None for all partitions.
        threads: as for `diff`; or a runner for the work.

    Raises:
        ValueError, NotALogError, OSError: as for `diff`; NotALogError where nothing is chosen.
    """
    units = plan(copies, records=records, mapping=mapping, chosen=chosen)
    return report(run_units(units, examine, threads=threads, progress=progress))


def report(partitions: Iterable[PartitionDiff]) -> Diff:
    """The answer from the results for the partitions, which may come in any order."""
    return Diff(
        tuple(
            sorted(
                partitions, key=lambda partition: (partition.topic or "", partition.partition or 0)
            )
        )
    )
