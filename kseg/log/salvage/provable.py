"""One copy of a partition: the provable batches, the bytes that are not kept, the lost offsets.

A batch is provable if its length, magic and checksum are right, if it belongs to the log and is not
data of a record (`Chains`), and if its place is certain (`places`). Files are read through windows
and never changed. Each segment is searched once, from its start; `kseg.format.search` says what
that costs. Memory grows with the damage, not with the log.

Chains: a record's value can hold whole batches, too. A file begins with a batch of the log, and
each sound one says where the next one begins. After a damaged batch the log goes on at the first
of

- the end up to which the checksum of the damaged batch is right: then only its length is wrong;
- the sound batch to which its length leads, over other damaged ones too: its contents are damaged.
  That counts only where the checksum is right for no other end, and passes over no index entry;
- a batch that an entry of the offset index names: by its position, and by the first offset of an
  append (Kafka up to 1.1) or the last one (since 2.0).

No producer writes such a batch. The end of the file proves nothing, nor does a chain that leads
there: a value may hold batches, and end where its own batch ends. So sound batches after damage
that nothing bridges do not count, and a torn batch covers all that follows. The time is linear in
the bytes: checksums take no more than `_SUMMED_SHARE` times the file.

Damage hides the offsets between the sound batches around it. If the log has a record for each
offset, these offsets are lost; so are those beyond the end of a file that ends too early. If
compaction has left holes, some of them may have had no record before the damage; a gap without
damaged bytes is not a loss there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Final

import numpy as np

from kseg.constants import INT32_MAX, LOG_OVERHEAD, Bools, Int64s, Progress, StrPath
from kseg.errors import (
    CorruptIndexError,
    KsegError,
    NotALogError,
    UnreadableError,
    UnsupportedFormatError,
)
from kseg.files.checkpoints import (
    EpochEntry,
    LeaderEpochs,
    TopicPartition,
    read_clean_offset,
)
from kseg.files.index import OffsetEntries, OffsetIndex
from kseg.files.log_file import LogFile
from kseg.files.metadata import stored_topic_id
from kseg.files.names import FileKind, PathKind, SegmentFiles, classify_path
from kseg.format.header import ENTRY_BYTES_MIN, HEAD_BYTES, BatchHeader
from kseg.log import data_directory
from kseg.log.recovery.lost import claimed
from kseg.log.salvage.places import place_runs
from kseg.log.salvage.values import (
    HARMLESS,
    LostOffsets,
    ProvablePartition,
    SegmentSeen,
    Span,
    gap_columns,
    is_dense,
    numbers_of,
    span_between,
)

#: A position in a partition: the number of a segment, and the position in its file.
_FilePosition = tuple[int, int]


#: Offsets that no run has: the first one; their end, None after the last run; and the place of the
#: gap in the files, which begins where the run before ends, and ends where the run after begins.
_Gap = tuple[int, int | None, _FilePosition, _FilePosition]


def lost_offsets(
    runs: Sequence[Span],
    unprovable: Sequence[Span],
    segments: Sequence[SegmentSeen],
    begin: int,
    *,
    compacted_to: int = 0,
) -> tuple[LostOffsets, ...]:
    """Offsets that are missing before the runs, between them and after them.

    Args:
        runs: sorted by offset.
        unprovable: the other bytes, sorted by segment and position.
        segments: sorted by base offset.
        begin: where the log begins, if not with its first segment.
        compacted_to: offsets before this one may have had no record.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    numbers = numbers_of(segments)
    damage = _Damage(unprovable, segments, numbers)
    dense = is_dense(runs, segments)
    ranges = []
    for first, end, place_begin, place_end in _gaps(runs, numbers, segments, begin, damage):
        damage_span, damaged_bytes = damage.between(first, end, place_begin, place_end)
        if damage_span is None and (not dense or end is None):
            continue
        number, position = place_end
        last = None if end is None else end - 1
        exact = dense and first >= compacted_to
        ranges.append(
            LostOffsets(
                first,
                last,
                last - first + 1 if exact and last is not None else None,
                not exact,
                segments[number].path if damage_span is None else damage_span.path,
                position if damage_span is None else damage_span.position,
                damaged_bytes,
            )
        )
    return tuple(ranges)


class _Damage:
    """Damaged bytes, to look up by position, and by the offsets that damaged batches state."""

    def __init__(
        self,
        unprovable: Sequence[Span],
        segments: Sequence[SegmentSeen],
        numbers: dict[str, int],
    ) -> None:
        # A file may be longer than its log, when it is made so ahead.
        ahead = [("zeros", segment.path, segment.size) for segment in segments[-1:]]
        damaged = [
            span
            for span in unprovable
            if span.reason not in HARMLESS and (span.reason, span.path, span.end) not in ahead
        ]
        stated = sorted(
            (span for span in damaged if span.first_offset >= 0),
            key=lambda span: span.first_offset,
        )
        self._by_position = _SizesByKey(
            ((numbers[span.path], span.position), span) for span in damaged
        )
        self._by_offset = _SizesByKey(((span.first_offset, 0), span) for span in stated)
        self._stated = np.array([span.first_offset for span in stated], np.int64)
        self.is_any = bool(damaged)

    def may_hide(self, first: Int64s, end: Int64s) -> Bools:
        """Which offsets without a batch may have been lost, bool[n]."""
        return np.searchsorted(self._stated, first) < np.searchsorted(self._stated, end)

    def between(
        self, first: int, end: int | None, place_begin: _FilePosition, place_end: _FilePosition
    ) -> tuple[Span | None, int]:
        """The damage that may have held the offsets of a gap (`_Gap`): its first span, its bytes.

        It is the damage in the gap. If there is none, it is damage in another place whose
        headers state offsets of the gap.
        """
        span, damaged_bytes = self._by_position.between(place_begin, place_end)
        if span is None and end is not None:
            return self._by_offset.between((first, 0), (end, 0))
        return span, damaged_bytes


class _SizesByKey:
    """Damaged spans under ascending keys: positions in the partition, or offsets with a 0."""

    def __init__(self, pairs: Iterable[tuple[_FilePosition, Span]]) -> None:
        by_key = list(pairs)
        self._keys = [key for key, _ in by_key]
        self._spans = [span for _, span in by_key]
        self._sums = [0, *accumulate(span.size for span in self._spans)]

    def between(self, first: _FilePosition, end: _FilePosition) -> tuple[Span | None, int]:
        """The first span with a key in `[first, end)`, and the bytes of all of these."""
        begins, ends = bisect_left(self._keys, first), bisect_left(self._keys, end)
        if begins >= ends:
            return None, 0
        return self._spans[begins], self._sums[ends] - self._sums[begins]


def _gaps(
    runs: Sequence[Span],
    numbers: dict[str, int],
    segments: Sequence[SegmentSeen],
    begin: int,
    damage: _Damage,
) -> Iterator[_Gap]:
    """The offsets from `begin` on that are in no run, also those before and after all runs.

    Args:
        runs: what is proved, sorted by offset.
        numbers: the numbers of the files, keyed by path.
        segments: all files.
        begin: where the log starts.
        damage: the damage in these files.
    """
    if not segments:
        return
    begin = max(segments[0].base_offset, begin)
    if not runs:
        yield begin, None, (0, 0), (len(segments), 0)
        return
    first, last = runs[0], runs[-1]
    if first.first_offset > begin:
        yield begin, first.first_offset, (0, 0), (numbers[first.path], first.position)
    yield from _inner_gaps(first, numbers[first.path], damage)
    for run, other in pairwise(runs):
        if other.first_offset > run.last_offset + 1:
            places = (numbers[run.path], run.end), (numbers[other.path], other.position)
            yield run.last_offset + 1, other.first_offset, *places
        yield from _inner_gaps(other, numbers[other.path], damage)
    # A segment begins where the log ended, so all before its base offset was there once.
    end, file_position, base = last.last_offset + 1, (numbers[last.path], last.end), segments[-1]
    if base.base_offset > end and file_position[0] < len(segments) - 1:
        yield end, base.base_offset, file_position, (len(segments) - 1, 0)
        end, file_position = base.base_offset, (len(segments) - 1, 0)
    yield end, None, file_position, (len(segments), 0)


def _inner_gaps(run: Span, number: int, damage: _Damage) -> Iterator[_Gap]:
    """Offsets missing between consecutive batches, if damage elsewhere may hide them.

    No bytes are in such a gap, so it ends at the position where it begins.
    """
    for first, end, position in gap_columns(run) if damage.is_any else ():
        for row in np.flatnonzero(damage.may_hide(first, end)).tolist():
            file_position = number, int(position[row])
            yield int(first[row]), int(end[row]), file_position, file_position


#: The most sound runs of one segment to examine; the bytes after them are reported, not kept.
RUNS_MAX: Final = 16_384
#: Lengths are followed over at most so many damaged batches.
_DAMAGED_MAX: Final = 64
#: Bytes whose checksums are compared to find where a damaged batch ends, in file sizes and besides.
_SUMMED_SHARE: Final = 8
_SUMMED_MIN: Final = 1 << 20
#: The largest damaged batch that is recognized.
_BATCH_MAX: Final = 64 << 20
#: A damaged batch of these reasons may state its offsets.
_STATES_OFFSETS: Final = ("batch-crc", "batch-length", "batch-fields", "offset-order", "torn-tail")


def read_provable(
    path: StrPath,
    *,
    proved: Mapping[str, Sequence[int]] | None = None,
    weighs: bool = True,
    progress: Progress | None = None,
) -> ProvablePartition:
    """Read one copy of a partition; changes nothing.

    Args:
        path: a partition directory, which may be under a name that Kafka would not take.
        proved: path of a log file -> ascending positions of batches that another copy has, too.
        weighs: whether the offset index, the checkpoint of epochs, and a gap before the last
            batch count against batches. They tell nothing where copies are compared.
        progress: called after each segment.

    Raises:
        NotALogError: the path is not a partition directory.
        UnsupportedFormatError: files of Kafka 0.7, whose lengths no checksum proves.
        CorruptRecordError: a file shrank while it was read.
        OSError: a file or the directory cannot be opened.

    Example:
        >>> read_provable("orders-0").lost  # doctest: +SKIP
        ()
    """
    classified = classify_path(Path(path))
    listing = classified.partition_files
    if classified.kind is not PathKind.PARTITION or listing is None:
        raise NotALogError("this is not a partition directory", path=path)
    old = [segment_files for segment_files in listing.segments if segment_files.kafka07]
    if old:
        raise UnsupportedFormatError("files of Kafka 0.7 cannot be salvaged", path=old[0].log)
    files = listing.segments
    # A batch is placed by its offset, so it may be in a file where others belong.
    bounds = (files[0].base_offset, files[-1].base_offset + INT32_MAX) if files else (0, 0)
    seen: list[SegmentSeen] = []
    runs: list[Span] = []
    unprovable: list[Span] = []
    total = sum(segment_files.log.stat().st_size for segment_files in files)
    for segment_files in files:
        seen.append(
            _read_segment(
                segment_files, segment_files is files[-1], bounds, proved or {}, runs, unprovable
            )
        )
        if progress is not None:
            progress(sum(segment.size for segment in seen), total)
    offsets = data_directory.offsets_beside(path)
    partition = data_directory.partition_of(path)
    compacted_to = clean_offset_of(Path(path), partition)
    agrees = partial(_is_confirmed, files, proved or {}, compacted_to)
    evidence = (epochs_of(Path(path)), agrees, partial(_index, files)) if weighs else ((), None)
    runs, refused = place_runs(runs, seen, *evidence)
    numbers = numbers_of(seen)
    unprovable = sorted(unprovable + refused, key=lambda span: (numbers[span.path], span.position))
    end = runs[-1].last_offset + 1 if runs else 0
    end = max([end, *(segment.base_offset for segment in seen[-1:])])
    # A start like this would let a broker delete everything here.
    beyond = offsets.log_start_offset if offsets.log_start_offset > end else None
    start = offsets.log_start_offset if beyond is None else 0
    return ProvablePartition(
        path=Path(path),
        partition=partition,
        topic_id=stored_topic_id(listing.metadata),
        log_start_offset=start,
        segments=tuple(seen),
        runs=tuple(runs),
        unprovable=tuple(unprovable),
        lost=lost_offsets(runs, unprovable, seen, start, compacted_to=compacted_to),
        start_beyond_end=beyond,
    )


def epochs_of(path: Path) -> Sequence[EpochEntry]:
    """The leader epochs in the checkpoint of a partition; empty if it cannot be read."""
    with suppress(KsegError, OSError):
        return LeaderEpochs.load(path / FileKind.LEADER_EPOCHS.value).entries
    return ()


def clean_offset_of(path: Path, partition: TopicPartition | None) -> int:
    """The end of the part that the log cleaner has compacted; 0 if it is unknown."""
    with suppress(KsegError, OSError):
        return read_clean_offset(path.resolve(), partition) or 0
    return 0


def _index(files: Sequence[SegmentFiles], path: str) -> OffsetEntries | None:
    """The entries of the offset index of a log file, as far as they can be read."""
    return next(
        (_entries(segment_files) for segment_files in files if str(segment_files.log) == path), None
    )


def _is_confirmed(
    files: Sequence[SegmentFiles],
    proved: Mapping[str, Sequence[int]],
    compacted_to: int,
    run: Span,
) -> bool:
    """Whether something else than its bytes confirms the offsets of a run of batches.

    Args:
        files: the files of the segments, sorted by base offset.
        proved: path of the log -> positions of sound batches that another copy has, too.
        compacted_to: the offset up to which the cleaner has gone, from its checkpoint; offsets
            before it may have gaps.
        run: the batches. The name of a segment, or an entry of an index, may have their offsets.
    """
    if run.position in proved.get(run.path, ()) or compacted_to >= run.first_offset:
        return True
    bases = [segment_files.base_offset for segment_files in files]
    number = max(bisect_right(bases, run.first_offset) - 1, 0)
    if run.first_offset == bases[number] or run.last_offset + 1 in bases[number + 1 : number + 2]:
        return True
    entries = _entries(files[number])
    named = () if entries is None else entries.offsets.tolist()
    return run.first_offset in named or run.last_offset in named


def _read_segment(
    files: SegmentFiles,
    is_last: bool,
    bounds: tuple[int, int],
    proved: Mapping[str, Sequence[int]],
    runs: list[Span],
    unprovable: list[Span],
) -> SegmentSeen:
    """Search one segment; add its runs to `runs`, and the bytes between them to `unprovable`."""
    with LogFile.open(files.log, mapping="never") as log:
        path, (first, last) = str(files.log), bounds
        sound_runs = log.sound_runs(0, first_offset=first, last_offset=last, every=True)
        sound = [
            Span(
                path, run.position, run.bytes, run.order, run.last_offset, run.batches, run.records
            )
            for run in islice(sound_runs, RUNS_MAX)
        ]
        chains = Chains(log, sound, _entries(files), proved.get(path, ()))
        runs += chains.log_runs
        unprovable += _UnkeptBytes(log, path, bounds, is_last=is_last).between(chains)
        return SegmentSeen(files.base_offset, path, log.size)


def _entries(files: SegmentFiles) -> OffsetEntries | None:
    """The entries of a segment's offset index that can be read."""
    if files.index is not None:
        with (
            suppress(CorruptIndexError, UnreadableError, OSError),
            OffsetIndex.open(files.index, files.base_offset, mapping="never") as index,
        ):
            return index.entries()
    return None


class _UnkeptBytes:
    """The bytes of a file between the runs that are kept, each span with a reason."""

    def __init__(self, log: LogFile, path: str, bounds: tuple[int, int], *, is_last: bool) -> None:
        self._log, self._path, self._is_last = log, path, is_last
        self._first, self._last = bounds

    def between(self, chains: Chains) -> Iterator[Span]:
        """The unkept bytes of each gap: first those that can be read, then the others."""
        unproved = (replace(run, reason="not-anchored") for run in chains.unproved_runs)
        spans = sorted((*chains.damaged, *unproved), key=lambda span: (span.position, -span.end))
        positions = [span.position for span in spans]
        starts = [0, *(run.end for run in chains.log_runs)]
        ends = [*(run.position for run in chains.log_runs), self._log.size]
        for start, end in zip(starts, ends, strict=True):
            if start < end:
                inside = slice(bisect_left(positions, start), bisect_left(positions, end))
                bad = list(self._log.unreadable_ranges(start, end))
                for part in self._parts(start, end, spans[inside]):
                    yield from _without_unreadable(part, bad)
                for first, last in bad:
                    yield Span(self._path, first, last - first, reason="unreadable")

    def _parts(self, start: int, end: int, spans: Iterable[Span]) -> Iterator[Span]:
        """Split a gap where damaged batches and sound runs in it begin and end."""
        for span in spans:
            if span.end <= start:
                continue
            if span.position > start:
                yield self._damage(start, span.position)
            yield span if span.reason else self._damage(max(span.position, start), span.end)
            start = span.end
        if start < end:
            yield self._damage(start, end)

    def _damage(self, start: int, end: int) -> Span:
        """A span of damaged bytes, with a reason, and with the offsets in its header, if any."""
        head = self._log.head_at(start)[: end - start]
        header = claimed(head, start)
        reason = self._reason(start, end, head, header)
        damage = Span(self._path, start, end - start, reason=reason)
        if header is None or reason not in _STATES_OFFSETS:
            return damage
        first = header.last_offset if header.base_offset < 0 else header.base_offset
        return replace(damage, first_offset=first, last_offset=header.last_offset)

    def _reason(self, start: int, end: int, head: bytes, header: BatchHeader | None) -> str:
        """Why the bytes are not kept: a word of `REASONS`.

        Args:
            start, end: the positions of the bytes.
            head: the first of these bytes.
            header: these bytes as a header; None if they are no header.
        """
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


def _without_unreadable(span: Span, bad: list[tuple[int, int]]) -> Iterator[Span]:
    """The parts of a span outside of the ranges `bad`, which the disk cannot read."""
    start = span.position
    for first, last in (*bad, (span.end, span.end)):
        if start < min(first, span.end):
            yield replace(span, position=start, size=min(first, span.end) - start)
        start = max(start, last)


# ---- chains --------------------------------------------------------------------------------------


class _Proved:
    """Batches that the offset index, or another copy, proves to be of the log."""

    def __init__(self, log: LogFile, entries: OffsetEntries | None, proved: Sequence[int]) -> None:
        """Take the entries of the offset index, and the positions that another copy proves."""
        self._log, self._proved_positions = log, proved
        self._positions = self._offsets = np.empty(0, np.int64)
        if entries is not None:
            order = np.argsort(entries.positions, kind="stable")
            self._positions, self._offsets = entries.positions[order], entries.offsets[order]
        # The entry that `next_after` has come to, and whether the batch there is as it says.
        self._at, self._agrees = 0, False

    def next_after(self, position: int) -> int | None:
        """The first proved position after a position; positions of calls must ascend."""
        at = bisect_right(self._proved_positions, position)
        proved_position = self._proved_positions[at] if at < len(self._proved_positions) else None
        while self._at < len(self._positions):
            named = int(self._positions[self._at])
            if proved_position is not None and proved_position <= named:
                break
            if named > position and not self._agrees:
                with suppress(UnreadableError):
                    self._agrees = self._is_named(self._at)
            self._agrees &= named > position
            if self._agrees:
                return named
            self._at += 1
        return proved_position

    def deny(self, position: int) -> bool:
        """Whether an entry has another offset for the batch at a position."""
        at = int(np.searchsorted(self._positions, position))
        if at == len(self._positions) or self._positions[at] != position:
            return False
        with suppress(UnreadableError):
            return not self._is_named(at)
        return False

    def _is_named(self, number: int) -> bool:
        """Whether a sound batch begins at the position of an entry and has the entry's offset."""
        position, offset = int(self._positions[number]), int(self._offsets[number])
        table = self._log.batch_at(position) if position < self._log.size else None
        if table is None or not len(table) or table.crc_ok[0] != 1:
            return False
        first = table[0]
        if first.base_offset < 0:
            # A compressed message of magic 0 or 1 does not say its first offset.
            before = int(self._offsets[number - 1]) if number else -1
            return before < offset <= first.last_offset
        if first.base_offset == offset:
            return True
        # The last offset of an append is that of one of the batches from its first one on.
        following = self._positions[number + 1] if number + 1 < len(self._positions) else None
        limit = self._log.size if following is None else int(following)
        return any(
            offset in table.last_offset for table in self._log.headers(start=position, limit=limit)
        )


class Chains:
    """The sound batches of one file: those of the log, and those that may be data of a record.

    Attributes:
        log_runs: runs of the log, sorted by position.
        unproved_runs: runs that may be data of a record, sorted by position.
        damaged: damaged batches with a known end, sorted by position.
    """

    def __init__(
        self,
        log: LogFile,
        runs: Sequence[Span],
        entries: OffsetEntries | None,
        proved: Sequence[int] = (),
    ) -> None:
        """Examine the runs of a file once.

        Args:
            log: the file, open.
            runs: each sound run of the file, sorted by position.
            entries: the entries of its offset index that can be read; None if it has no index.
            proved: positions of sound batches that another copy of the log has, too; ascending.
        """
        self._log, self._runs, self._proved = log, list(runs), _Proved(log, entries, proved)
        self._starts = [run.position for run in runs]
        self._budget = _SUMMED_SHARE * log.size + _SUMMED_MIN
        self.log_runs: list[Span] = []
        self.unproved_runs: list[Span] = []
        self.damaged: list[Span] = []
        # The next run, the position up to which all is decided, the last offset before it.
        number, position, last = 0, 0, -1
        while position < log.size:
            at = self._run_at(position, number)
            if at is not None:
                run = self._runs[at]
                self.log_runs.append(run)
                number, position, last = at + 1, run.end, run.last_offset
                continue
            proved_position = self._proved.next_after(position)
            stops = self._damaged_batch_bounds(position, number, last, proved_position)
            if stops is None and proved_position is None:
                break
            position = stops[-1] if stops is not None else proved_position or 0
            self._run_at(position, number)
            next_number = bisect_left(self._starts, position, lo=number)
            if stops is None:
                # Nothing says where the damaged batch ends.
                self.unproved_runs += self._runs[number:next_number]
            else:
                path = str(log.path)
                self.damaged += (Span(path, at, end - at) for at, end in pairwise(stops))
            number = next_number
        self.unproved_runs += self._runs[number:]

    # ---- over damaged batches --------------------------------------------------------------------

    def _damaged_batch_bounds(
        self, start: int, next_run: int, last_offset_before: int, next_proved: int | None
    ) -> list[int] | None:
        """Where damaged batches begin, and where the last one ends; None if that is not known.

        Follows the sizes in damaged headers until they lead to a sound batch, to the end of the
        file, or to an end that a checksum confirms.

        Args:
            start: where the first damaged batch begins.
            next_run: the number of the first run of sound batches after it.
            last_offset_before: the last offset before it.
            next_proved: the position of the next proved batch; None if there is none.
        """
        stops, limit = [start], self._log.size if next_proved is None else next_proved
        while len(stops) <= _DAMAGED_MAX:
            at = stops[-1]
            if at == limit:
                return stops
            run_number = self._run_at(at, next_run) if at > start else None
            if run_number is not None:
                rises = self._runs[run_number].first_offset > last_offset_before
                return stops if rises and not self._proved.deny(at) else None
            head = self._log.head_at(at)
            if claimed(head, at) is None:
                return None
            size = stored_size(head)
            end = self._log.end_by_checksum(at, self._possible_ends(at, size, next_run, limit))
            if end is not None:
                return [*stops, end]
            if self._budget <= 0 or not ENTRY_BYTES_MIN <= size <= limit - at:
                return None
            stops.append(at + size)
        return None

    def _possible_ends(self, position: int, size: int, number: int, limit: int) -> Iterator[int]:
        """Where the batch at a position may end, ascending, as long as there is a budget.

        The budget is in bytes, since a checksum is computed up to each end.
        """
        stored_end, reached = position + size, position + ENTRY_BYTES_MIN - 1
        limit = min(limit, position + _BATCH_MAX)
        for end in self._borders(reached + 1, number, limit):
            for possible_end in (stored_end, end) if reached < stored_end < end else (end,):
                self._budget -= possible_end - reached
                if self._budget <= 0:
                    return
                reached = possible_end
                yield possible_end

    def _borders(self, position: int, number: int, limit: int) -> Iterator[int]:
        """Where sound batches begin and end, from a position up to a limit; and the limit."""
        for run in self._runs[bisect_left(self._starts, position, lo=number) :]:
            if run.position >= limit:
                break
            for table in self._log.headers(start=run.position, limit=min(run.end, limit)):
                yield from table.position.tolist()
            if run.end < limit:
                yield run.end
        yield limit

    # ---- runs ------------------------------------------------------------------------------------

    def _run_at(self, position: int, number: int) -> int | None:
        """The number of the run with a batch that begins at a position; the run is split there."""
        run_number = bisect_right(self._starts, position, lo=number) - 1
        if run_number < number or self._runs[run_number].end <= position:
            return None
        if self._starts[run_number] == position:
            return run_number
        run = self._runs[run_number]
        front = span_between(self._log, run.path, run.position, position)
        if front is None:
            return None
        back = span_between(self._log, run.path, position, run.end)
        assert back is not None
        self._runs[run_number : run_number + 1] = [front, back]
        self._starts[run_number : run_number + 1] = [front.position, back.position]
        return run_number + 1


def stored_size(head: bytes) -> int:
    """The total size of a batch, from its length field; 0 if `head` ends before that field."""
    if len(head) < LOG_OVERHEAD:
        return 0
    return int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD
