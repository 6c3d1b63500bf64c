"""Salvage: `plan_salvage` says what can be proved, `apply_salvage` writes it into a new directory.

A plan reads each partition once with its checksums and changes nothing. Bytes that are kept are
copied from their files when the plan is applied, and swept again in their new place, so that a file
that has changed meanwhile is noticed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import NotALogError, UnreadableError
from kseg.files import atomic, io
from kseg.files.checkpoints import TopicPartition
from kseg.files.mapping import MappedFile
from kseg.files.names import PathKind, classify_path, log_bytes
from kseg.log import data_directory
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.salvage.kraft import up_to_first_gap
from kseg.log.salvage.output import (
    REPORT,
    TargetPartition,
    TargetSegment,
    beside,
    check_output,
    write_output,
)
from kseg.log.salvage.plan import Quarantined, SalvagedPartition, SalvagePlan, SalvageReport
from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.segments import target_segments
from kseg.log.salvage.transactions import abort_markers, hurt_transactions
from kseg.log.sub_directories import EntryKind, entry_of
from kseg.workers import in_order

if TYPE_CHECKING:
    from kseg.log.salvage.provable import Progress
    from kseg.log.salvage.values import Unprovable
    from kseg.workers import Put

#: Chooses partitions by topic and number.
Chosen = Callable[[str | None, int | None], bool]

_COPIED_BYTES: Final = 2**20
#: What a directory may be that is named itself.
_NAMED: Final = (EntryKind.LOG, EntryKind.CLUSTER_METADATA)


@dataclass(frozen=True, slots=True)
class _Source:
    """A partition to be salvaged."""

    path: Path
    partition: TopicPartition


# ---- deciding ------------------------------------------------------------------------------------


def plan_salvage(
    *directories: io.StrPath,
    out: io.StrPath,
    abort_open: bool = False,
    chosen: Chosen | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SalvagePlan:
    """Plan a salvage of damaged partitions; changes nothing, and takes no lock.

    Kafka's recovery cuts all behind the first bad byte. This finds each sound batch behind it.

    Args:
        directories: partition directories, or data directories, whose live partitions are taken.
            The log of KRaft is taken only where it is named.
        out: a new data directory, or an empty one; in none of the others.
        abort_open: add a marker that aborts each transaction whose own marker may be lost.
        chosen: leaves out partitions, by topic and number.
        jobs: threads to share the reading.
        progress: called with bytes of log searched and bytes in all.

    Raises:
        ValueError: the same partition twice, no directory, or `jobs` below 1.
        NotALogError: a path is no directory of Kafka's, or nothing is chosen.
        UnsupportedFormatError: files of Kafka 0.7.
        FileExistsError, NotADirectoryError, KsegError: `out` is not free, or lies in a source.
        OSError: a path is missing, or cannot be listed.

    Example:
        >>> plan_salvage("data/orders-0", out="salvaged").ok  # doctest: +SKIP
        False
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, not 1 or more")
    check_output(out, directories)
    left_alone: list[Path] = []
    sources = _sources([Path(each) for each in directories], chosen, left_alone)
    done = _Done(progress, sum(log_bytes(each.path) for each in sources))
    pieces = (partial(_put_plan, each, abort_open, done) for each in sources)
    if jobs == 1 or len(sources) == 1:
        found = [_plan_of(each, abort_open, done) for each in sources]
    else:
        with closing(in_order(pieces, threads=jobs)) as results:
            found = list(results)
    names = tuple(os.fspath(each) for each in directories)
    return SalvagePlan(names, Path(os.path.abspath(out)), tuple(found), tuple(map(str, left_alone)))


def _sources(
    directories: Sequence[Path], chosen: Chosen | None, left_alone: list[Path]
) -> list[_Source]:
    """The partitions under some paths, by topic and number; logs of KRaft in them are noted."""
    found: dict[TopicPartition, _Source] = {}
    for path in directories:
        for each in _under(path, left_alone):
            if chosen is not None and not chosen(each.partition.topic, each.partition.partition):
                continue
            known = found.setdefault(each.partition, each)
            if known is not each:
                raise ValueError(
                    f"{known.path} and {each.path} are the same partition: 'kseg merge' makes one "
                    "log of two"
                )
    if not directories:
        raise ValueError("name a directory")
    if not found:
        raise NotALogError("no partition here is chosen", path=directories[0])
    return [found[key] for key in sorted(found)]


def _under(path: Path, left_alone: list[Path]) -> Iterator[_Source]:
    known = classify_path(path)
    if known.kind is PathKind.FILE:
        raise NotALogError("a file; a salvage takes partitions and data directories", path=path)
    if known.kind is PathKind.PARTITION:
        entry = entry_of(path.resolve())
        if entry.kind not in _NAMED or entry.partition is None:
            raise NotALogError("its name is not <topic>-<partition>: rename a copy", path=path)
        yield _Source(path, entry.partition)
        return
    listing = known.data_directory
    assert listing is not None
    for each in listing.partitions:
        entry = entry_of(Path(os.path.abspath(each.path)))
        if entry.kind is EntryKind.LOG and entry.partition is not None:
            yield _Source(each.path, entry.partition)
        elif entry.kind is EntryKind.CLUSTER_METADATA:
            left_alone.append(each.path)


class _Done:
    """How far several partitions are, told as one."""

    def __init__(self, tell: Progress | None, total: int) -> None:
        self._tell, self._total = tell, total
        self._searched: dict[Path, int] = {}

    def of(self, path: Path) -> Progress:
        """What one partition tells."""

        def tell(done: int, _total: int) -> None:
            self._searched[path] = done
            if self._tell is not None:
                self._tell(min(sum(list(self._searched.values())), self._total), self._total)

        return tell


def _put_plan(source: _Source, abort_open: bool, done: _Done, put: Put) -> None:
    put(_plan_of(source, abort_open, done))


def _plan_of(source: _Source, abort_open: bool, done: _Done) -> SalvagedPartition:
    """What becomes of one partition."""
    known = read_provable(source.path, progress=done.of(source.path))
    files: tuple[Path, ...] = ()
    is_kraft = source.partition.topic == CLUSTER_METADATA
    if is_kraft:
        known, files = up_to_first_gap(known)
    runs, lost = known.runs, known.lost
    bases = [each.base_offset for each in known.segments] or [known.log_start_offset]
    segments = target_segments(runs, bases)
    end = max(bases[-1], runs[-1].last_offset + 1 if runs else 0)
    transactions = hurt_transactions(runs, lost)
    markers = sum(one.is_open for one in transactions.hurt) if abort_open else 0
    if markers:
        segments = _with_tail(segments, abort_markers(transactions, end), end)
    told = data_directory.told_of(source.path)
    target = TargetPartition(
        source.partition,
        segments,
        end + markers,
        topic_id=known.topic_id,
        log_start_offset=min(known.log_start_offset, end),
        high_watermark=None if told.high_watermark is None else min(told.high_watermark, end),
        files=files,
        is_derived=not is_kraft,
    )
    records = [run.records for run in runs]
    return SalvagedPartition(
        path=str(source.path),
        partition=source.partition,
        topic_id=known.topic_id,
        log_start_offset=max(target.log_start_offset, segments[0].base_offset),
        log_end_offset=target.end_offset,
        bytes=sum(each.size for each in known.segments),
        batches=sum(run.batches for run in runs) + markers,
        records=_sum(records) + markers if None not in records else None,
        lost=lost,
        unprovable=known.unprovable,
        transactions=transactions.hurt,
        markers=markers,
        target=target,
        indexed=any(
            Path(one.path).with_suffix(".index").exists()
            for one in known.unprovable
            if one.reason == "not-anchored"
        ),
        start_beyond_end=known.start_beyond_end,
    )


def _sum(numbers: Sequence[int | None]) -> int:
    return sum(one or 0 for one in numbers)


def _with_tail(
    segments: tuple[TargetSegment, ...], tail: bytes, end: int
) -> tuple[TargetSegment, ...]:
    """The segments with batches behind the last one, or in a new one where it is full."""
    last = segments[-1]
    size = sum(extent.size for extent in last.extents) + len(tail)
    if size <= 2**31 - 1 and end + len(tail) - last.base_offset <= 2**31 - 1:
        return (*segments[:-1], replace(last, tail=tail))
    return (*segments, TargetSegment(end, (), tail))


# ---- doing ---------------------------------------------------------------------------------------


def apply_salvage(plan: SalvagePlan, *, progress: Progress | None = None) -> SalvageReport:
    """Write what a plan keeps: the whole data directory, or none of it.

    It has indexes, epochs, producer snapshots and checkpoints made anew, and the mark of a clean
    shutdown: a broker adopts it. `OUT.kseg-salvage` beside it holds `report.json` and the bytes
    that are not kept. A run that is killed leaves no `out`; the next one begins anew.

    Args:
        plan: from `plan_salvage`.
        progress: called with bytes copied and bytes in all.

    Raises:
        StalePlanError: a source is not as it was when the plan was made.
        FileExistsError, NotADirectoryError, KsegError: `out` is not free any more.
        OSError: the disk refuses, or has no room. There is no `out` then.
    """

    def finish(place: Path) -> None:
        parts = list(plan.quarantined)
        _quarantine(place, parts)
        folders = {folder for each in parts for folder in Path(each.path).parents}
        for folder in sorted(folders - {Path()}):
            io.flush_directory(place / folder)
        document = {"schema": "kseg.salvage/1", **plan.to_json()}
        atomic.replace_file(place / REPORT, json.dumps(document, indent=1).encode() + b"\n")

    write_output(
        plan.out,
        [each.target for each in plan.partitions],
        sources=[*plan.sources, *(each.path for each in plan.partitions)],
        finish=finish,
        finish_bytes=plan.quarantined_bytes,
        progress=progress,
    )
    return SalvageReport(plan, beside(plan.out) / REPORT)


def _quarantine(place: Path, parts: Sequence[Quarantined]) -> None:
    """Copy bytes that are not kept; zeros as holes."""
    file: io.WriteFile | None = None
    try:
        for number, one in enumerate(parts):
            if file is None:
                io.make_directories((place / one.path).parent)
                file = io.WriteFile.open(place / one.path, exclusive=True)
            with MappedFile.open(one.source.path, "never") as source:
                _copy(source, one.source, file, one.position)
            if number + 1 == len(parts) or parts[number + 1].path != one.path:
                file.truncate(one.position + one.source.size)
                file.flush()
                file.close()
                file = None
    finally:
        if file is not None:
            file.close()


def _copy(source: MappedFile, one: Unprovable, file: io.WriteFile, position: int) -> None:
    for start in range(0, one.size, _COPIED_BYTES):
        size = min(_COPIED_BYTES, one.size - start)
        try:
            data = source.read(one.position + start, size)
        except UnreadableError:
            continue  # the disk has got worse since the plan was made
        if any(data):
            file.write_at(position + start, data)


__all__ = ["Chosen", "apply_salvage", "plan_salvage"]
