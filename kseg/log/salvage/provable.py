"""One copy of a partition: the batches that can be proved, the bytes that cannot, lost offsets.

A batch is provable if its length, magic and checksum are right, if it is one of the log's and not
data of a record (`chains`), and if its place is certain (`places`). Files are read through windows
and never changed.

Each segment is searched once, from its start; `kseg.format.search` says what that costs. Memory
grows with the damage, not with the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import (
    CorruptIndexError,
    KsegError,
    NotALogError,
    UnreadableError,
    UnsupportedFormatError,
)
from kseg.files import metadata
from kseg.files.log_file import LogFile
from kseg.files.names import PathKind, SegmentFiles, classify_path
from kseg.files.offset_index import OffsetEntries, OffsetIndex
from kseg.format.header import ENTRY_BYTES_MIN, HEAD_BYTES, BatchHeader
from kseg.format.search import SoundRun
from kseg.log import data_directory
from kseg.log.clean_offsets import read_clean_offset
from kseg.log.epochs import FILE_NAME, LeaderEpochs
from kseg.log.recovery.lost import claimed
from kseg.log.salvage.chains import Chains, follow_chains, stored_size
from kseg.log.salvage.losses import lost_offsets
from kseg.log.salvage.places import place_runs
from kseg.log.salvage.values import ProvablePartition, ProvableRun, SegmentSeen, Unprovable, refused

if TYPE_CHECKING:
    from uuid import UUID

    from kseg.files import io
    from kseg.files.checkpoints import EpochEntry, TopicPartition
    from kseg.files.names import PartitionFiles

#: `progress(done, total)`: bytes of log searched so far, and in all.
Progress = Callable[[int, int], None]

#: Sound runs of one segment that are looked at; the bytes behind them are reported, not kept.
RUNS_MAX: Final = 16_384
_INT32_MAX: Final = 2**31 - 1
#: A damaged batch of these may say its offsets.
_TELL_OFFSETS: Final = ("batch-crc", "batch-length", "batch-fields", "offset-order", "torn-tail")


def read_provable(
    path: io.StrPath,
    *,
    proved: Mapping[str, Sequence[int]] | None = None,
    weighs: bool = True,
    progress: Progress | None = None,
) -> ProvablePartition:
    """Read one copy of a partition; changes nothing.

    Args:
        path: a partition directory, which may be under a name that Kafka would not take.
        proved: by log file, ascending positions of sound batches that another copy has, too.
        weighs: whether the offset index, the checkpoint of epochs, and a gap in front of the last
            batch count against batches. They tell nothing where copies are compared.
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
    reader = _Reader(listing.segments, proved or {})
    total, done = sum(each.log.stat().st_size for each in listing.segments), 0
    for files in listing.segments:
        reader.read(files)
        done += reader.seen[-1].size
        if progress is not None:
            progress(done, total)
    told = data_directory.told_of(path)
    partition = data_directory.partition_of(path)
    beside = _Beside(Path(path), partition, listing.segments, proved or {})
    evidence = (beside.epochs(), beside.agrees, beside.index) if weighs else ((), None)
    placed = place_runs(reader.runs, reader.seen, *evidence)
    numbers = {each.path: number for number, each in enumerate(reader.seen)}
    unprovable = sorted(
        [*reader.unprovable, *placed.refused], key=lambda one: (numbers[one.path], one.position)
    )
    end = placed.runs[-1].last_offset + 1 if placed.runs else 0
    end = max([end, *(each.base_offset for each in reader.seen[-1:])])
    # Such a start would let a broker delete all that is here.
    beyond = told.log_start_offset if told.log_start_offset > end else None
    start = told.log_start_offset if beyond is None else 0
    return ProvablePartition(
        path=Path(path),
        partition=partition,
        topic_id=_topic_id(listing),
        log_start_offset=start,
        segments=tuple(reader.seen),
        runs=placed.runs,
        unprovable=tuple(unprovable),
        lost=lost_offsets(
            placed.runs, unprovable, reader.seen, start, compacted_to=beside.clean_offset()
        ),
        start_beyond_end=beyond,
    )


class _Beside:
    """What the files beside a log say of its batches."""

    def __init__(
        self,
        path: Path,
        partition: TopicPartition | None,
        segments: Sequence[SegmentFiles],
        proved: Mapping[str, Sequence[int]],
    ) -> None:
        self._path, self._partition, self._segments = path, partition, segments
        self._proved = proved
        self._bases = [each.base_offset for each in segments]

    def epochs(self) -> Sequence[EpochEntry]:
        """The checkpoint of leader epochs, as far as it can be read."""
        with suppress(KsegError, OSError):
            return LeaderEpochs.load(self._path / FILE_NAME).entries
        return ()

    def clean_offset(self) -> int:
        """Up to where the log was compacted; 0 where nothing says so."""
        with suppress(KsegError, OSError):
            return read_clean_offset(self._path.resolve(), self._partition) or 0
        return 0

    def index(self, path: str) -> OffsetEntries | None:
        """The entries of the offset index of a log file, as far as they can be read."""
        return next((_entries(each) for each in self._segments if str(each.log) == path), None)

    def agrees(self, run: ProvableRun) -> bool:
        """Whether one of them has the offsets of a batch."""
        if run.position in self._proved.get(run.path, ()):
            return True
        number = max(bisect_right(self._bases, run.first_offset) - 1, 0)
        names = (self._bases[number], *self._bases[number + 1 : number + 2])
        if run.first_offset == names[0] or run.last_offset + 1 in names[1:]:
            return True
        entries = _entries(self._segments[number])
        if entries is not None and {run.first_offset, run.last_offset} & {
            *entries.offsets.tolist()
        }:
            return True
        return self.clean_offset() >= run.first_offset


def _topic_id(listing: PartitionFiles) -> UUID | None:
    """What `partition.metadata` says; None if it is missing or cannot be understood."""
    if listing.metadata is not None:
        with suppress(CorruptIndexError, OSError):
            return metadata.read_partition_metadata(listing.metadata).uuid
    return None


class _Reader:
    """Reads the segments of a partition, one after the other."""

    def __init__(
        self, segments: tuple[SegmentFiles, ...], proved: Mapping[str, Sequence[int]]
    ) -> None:
        self._proved = proved
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
            path = str(files.log)
            runs = list(islice(found, RUNS_MAX))
            chains = follow_chains(log, runs, _entries(files), self._proved.get(path, ()))
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
        is_whole = self._log.end_by_checksum(start, [end]) == end
        if size < ENTRY_BYTES_MIN or (is_whole and size != end - start):
            return "batch-length"
        if size > self._log.size - start:
            return "torn-tail" if is_end else "batch-length"
        if not is_whole:
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
