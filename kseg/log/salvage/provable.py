"""One copy of a partition: the batches that can be proved, the bytes that cannot, lost offsets.

A batch is provable if its length, magic and checksum are right, if it is one of the log's and not
data of a record (`chains`), and if its offsets and its leader epoch fit to those around it
(`places`). Files are read through windows and never changed.

Each segment is searched once, from its start; `kseg.format.search` says what that costs. Memory
grows with the damage, not with the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.errors import CorruptIndexError, NotALogError, UnreadableError, UnsupportedFormatError
from kseg.files import metadata
from kseg.files.log_file import LogFile
from kseg.files.names import PathKind, SegmentFiles, classify_path
from kseg.files.offset_index import OffsetEntries, OffsetIndex
from kseg.format.header import ENTRY_BYTES_MIN, HEAD_BYTES, BatchHeader
from kseg.format.search import SoundRun
from kseg.log import data_directory
from kseg.log.recovery.lost import claimed
from kseg.log.salvage.chains import Chains, follow_chains, stored_size
from kseg.log.salvage.losses import lost_offsets
from kseg.log.salvage.misfits import Named, strays_that_fit, with_fitting_epochs, without_strays
from kseg.log.salvage.places import Placed, place_runs
from kseg.log.salvage.tables import provable_tables
from kseg.log.salvage.values import ProvablePartition, ProvableRun, SegmentSeen, Unprovable, refused

if TYPE_CHECKING:
    from uuid import UUID

    from kseg.files import io
    from kseg.files.names import PartitionFiles

#: `progress(done, total)`: bytes of log searched so far, and in all.
Progress = Callable[[int, int], None]

#: Sound runs of one segment that are looked at; the bytes behind them are reported, not kept.
RUNS_MAX: Final = 16_384
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
#: A damaged batch of these may say its offsets.
_TELL_OFFSETS: Final = ("batch-crc", "batch-length", "batch-fields", "offset-order", "torn-tail")


def read_provable(path: io.StrPath, *, progress: Progress | None = None) -> ProvablePartition:
    """Read one copy of a partition; changes nothing.

    Args:
        path: a partition directory, which may be under a name that Kafka would not take.
        progress: called after each segment.

    Raises:
        NotALogError: the path is no partition directory.
        UnsupportedFormatError: files of Kafka 0.7, whose lengths no checksum proves.
        CorruptRecordError: a file shrank while it was read.
        OSError: a file or the directory cannot be opened.

    Example:
        >>> read_provable("orders-0").lost  # doctest: +SKIP
        ()
    """
    known = classify_path(Path(path))
    listing = known.partition_files
    if known.kind is not PathKind.PARTITION or listing is None:
        raise NotALogError("this is no partition directory", path=path)
    old = [each for each in listing.segments if each.kafka07]
    if old:
        raise UnsupportedFormatError("files of Kafka 0.7 cannot be salvaged", path=old[0].log)
    reader = _Reader(listing.segments)
    total, done = sum(each.log.stat().st_size for each in listing.segments), 0
    for files in listing.segments:
        reader.read(files)
        done += reader.seen[-1].size
        if progress is not None:
            progress(done, total)
    placed = _placed(reader.runs, reader.seen, _Named(listing.segments).name)
    numbers = {each.path: number for number, each in enumerate(reader.seen)}
    unprovable = sorted(
        [*reader.unprovable, *placed.refused], key=lambda one: (numbers[one.path], one.position)
    )
    told = data_directory.told_of(path)
    return ProvablePartition(
        path=Path(path),
        partition=data_directory.partition_of(path),
        topic_id=_topic_id(listing),
        log_start_offset=told.log_start_offset,
        segments=tuple(reader.seen),
        runs=placed.runs,
        unprovable=tuple(unprovable),
        lost=lost_offsets(placed.runs, unprovable, reader.seen, told),
    )


def _placed(runs: Sequence[ProvableRun], segments: Sequence[SegmentSeen], named: Named) -> Placed:
    """Runs by offset, without batches that do not fit where they lie."""
    others, strays = without_strays(runs, segments)
    start = segments[0].base_offset if segments else 0
    first = place_runs([*others, *(one.run for one in strays)], provable_tables)
    duplicates = {(one.path, one.position) for one in first.refused if one.reason == "duplicate"}
    kept, refused = strays_that_fit(
        strays, place_runs(others, provable_tables).runs, duplicates, start, named
    )
    # Where two have the same offsets, a batch that lies in the segment of its offsets goes first,
    # and one that lies in order before a stray one.
    bounds = {one.path: (one.base_offset, other) for one, other in _with_ends(segments)}
    others.sort(key=lambda run: not _is_at_home(run, bounds[run.path]))
    placed = place_runs([*others, *kept], provable_tables)
    fitting, falling = with_fitting_epochs(placed.runs)
    if falling:
        # Their offsets are free now for batches that they kept out.
        placed = place_runs([*fitting, *map(_run_again, placed.refused)], provable_tables)
        fitting, again = with_fitting_epochs(placed.runs)
        falling += again
    return Placed(tuple(fitting), (*placed.refused, *refused, *falling))


def _run_again(one: Unprovable) -> ProvableRun:
    """Sound batches that were refused, as a run."""
    assert one.first_offset is not None
    assert one.last_offset is not None
    return ProvableRun(
        one.path, one.position, one.size, one.first_offset, one.last_offset, one.batches
    )


def _with_ends(segments: Sequence[SegmentSeen]) -> Iterator[tuple[SegmentSeen, int]]:
    """Each segment with the offset at which the next one begins."""
    bases = (*(each.base_offset for each in segments[1:]), _INT64_MAX)
    return zip(segments, bases, strict=False)


def _is_at_home(run: ProvableRun, bounds: tuple[int, int]) -> bool:
    """Whether the offsets of a run are those of the segment that it lies in."""
    return bounds[0] <= run.first_offset and run.last_offset < bounds[1]


def _topic_id(listing: PartitionFiles) -> UUID | None:
    """What `partition.metadata` says; None if it is missing or cannot be understood."""
    if listing.metadata is not None:
        with suppress(CorruptIndexError, OSError):
            return metadata.read_partition_metadata(listing.metadata).uuid
    return None


class _Reader:
    """Reads the segments of a partition, one after the other."""

    def __init__(self, segments: tuple[SegmentFiles, ...]) -> None:
        # A batch is placed by its offset, so it may lie in a file that others belong to.
        self._bounds = (
            (segments[0].base_offset, segments[-1].base_offset + _INT32_MAX) if segments else (0, 0)
        )
        self._last = segments[-1].base_offset if segments else -1
        self.seen: list[SegmentSeen] = []
        self.runs: list[ProvableRun] = []
        self.unprovable: list[Unprovable] = []

    def read(self, files: SegmentFiles) -> None:
        """Search one segment."""
        first, last = self._bounds
        with LogFile.open(files.log, mapping="never") as log:
            found = log.sound_runs(0, first_offset=first, last_offset=last, every=True)
            chains = follow_chains(log, list(islice(found, RUNS_MAX)), _entries(files))
            path = str(files.log)
            self.runs += (_run_of(path, run) for run in chains.kept)
            is_last = files.base_offset == self._last
            gaps = _Gaps(log, path, chains, self._bounds, is_last=is_last)
            self.unprovable += gaps.told()
            self.seen.append(SegmentSeen(files.base_offset, path, log.size))


def _run_of(path: str, run: SoundRun) -> ProvableRun:
    records = None if run.first_offset is None else run.records
    return ProvableRun(
        path, run.position, run.bytes, run.order, run.last_offset, run.batches, records
    )


def _entries(files: SegmentFiles) -> OffsetEntries | None:
    """The entries of a segment's offset index, as far as there is one that can be read."""
    if files.index is not None:
        with (
            suppress(CorruptIndexError, UnreadableError, OSError),
            OffsetIndex.open(files.index, files.base_offset, mapping="never") as index,
        ):
            return index.entries()
    return None


class _Named:
    """Offsets that the offset indexes name, of the segment that was asked for last."""

    def __init__(self, segments: Sequence[SegmentFiles]) -> None:
        self._segments = segments
        self._bases = [each.base_offset for each in segments]
        self._at = -1
        self._entries: OffsetEntries | None = None

    def name(self, run: ProvableRun) -> bool:
        """Whether an entry has the first or the last offset of a batch."""
        at = bisect_right(self._bases, run.first_offset) - 1
        if at < 0:
            return False
        if at != self._at:
            self._at, self._entries = at, _entries(self._segments[at])
        offsets = None if self._entries is None else self._entries.offsets
        return offsets is not None and bool(
            np.isin((run.first_offset, run.last_offset), offsets).any()
        )


class _Gaps:
    """The bytes of a file between the runs that count, each with a reason."""

    def __init__(
        self, log: LogFile, path: str, chains: Chains, bounds: tuple[int, int], *, is_last: bool
    ) -> None:
        self._log, self._path, self._is_last = log, path, is_last
        self._first, self._last = bounds
        self._kept = chains.kept
        self._damaged = _Spans([(start, end, None) for start, end in chains.damaged])
        self._others = _Spans([(run.position, run.end, run) for run in chains.others])

    def told(self) -> Iterator[Unprovable]:
        """Them, by position."""
        start = 0
        for run in self._kept:
            yield from self._gap(start, run.position)
            start = run.end
        yield from self._gap(start, self._log.size)

    def _gap(self, start: int, end: int) -> Iterator[Unprovable]:
        if start >= end:
            return
        bad = list(self._log.unreadable_ranges(start, end))
        for one in self._parts(start, end):
            yield from _without(one, bad)
        for first, last in bad:
            yield Unprovable(self._path, first, last - first, "unreadable")

    def _parts(self, start: int, end: int) -> Iterator[Unprovable]:
        """A gap cut where damaged batches and sound runs in it begin and end."""
        known = (*self._damaged.within(start, end), *self._others.within(start, end))
        for first, last, run in sorted(known, key=lambda one: (one[0], -one[1])):
            first, last = max(first, start), min(last, end)
            if last <= start:
                continue
            if first > start:
                yield self._damage(start, first)
            yield self._damage(first, last) if run is None else self._unanchored(run)
            start = last
        if start < end:
            yield self._damage(start, end)

    def _unanchored(self, run: SoundRun) -> Unprovable:
        return refused(_run_of(self._path, run), "not-anchored")

    def _damage(self, start: int, end: int) -> Unprovable:
        head = self._log.head_at(start)[: end - start]
        header = claimed(head, start)
        reason = self._reason(start, end, head, header)
        if header is None or reason not in _TELL_OFFSETS:
            return Unprovable(self._path, start, end - start, reason)
        first = header.last_offset if header.base_offset < 0 else header.base_offset
        return Unprovable(self._path, start, end - start, reason, first, header.last_offset)

    def _reason(self, start: int, end: int, head: bytes, header: BatchHeader | None) -> str:
        if not any(head) and len(head) >= ENTRY_BYTES_MIN:
            return "zeros" if self._log.is_zero(start, end) else "batch-length"
        is_end = self._is_last and end == self._log.size
        if header is None and len(head) < HEAD_BYTES and head[16:17] <= b"\2":
            return "torn-tail" if is_end else "batch-length"
        if header is None:
            return "batch-magic"
        size = stored_size(head)
        if size < ENTRY_BYTES_MIN:
            return "batch-length"
        if size > self._log.size - start:
            return "torn-tail" if is_end else "batch-length"
        table = self._log.batch_at(start) if size == end - start else None
        if table is None or not len(table) or table.crc_ok[0] != 1:
            return "batch-crc"
        within = self._first <= header.base_offset <= header.last_offset <= self._last
        return "batch-fields" if within else "offset-order"


class _Spans:
    """Parts of a file that do not overlap, each with the sound run that it is, if any."""

    def __init__(self, spans: list[tuple[int, int, SoundRun | None]]) -> None:
        self._spans = spans
        self._ends = [end for _, end, _ in spans]

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, SoundRun | None]]:
        """Those that have a byte of `[start, end)`."""
        numbers = range(bisect_right(self._ends, start), len(self._spans))
        behind = map(self._spans.__getitem__, numbers)
        return takewhile(lambda one: one[0] < end, behind)


def _without(one: Unprovable, bad: list[tuple[int, int]]) -> Iterator[Unprovable]:
    """An extent without the ranges of it that the disk cannot read."""
    start = one.position
    for first, last in bad:
        if last <= start or first >= one.end:
            continue
        if first > start:
            yield _cut(one, start, first)
        start = last
    if start < one.end:
        yield _cut(one, start, one.end)


def _cut(one: Unprovable, start: int, end: int) -> Unprovable:
    return replace(one, position=start, size=end - start)


__all__ = ["RUNS_MAX", "Progress", "read_provable"]
