"""The rewrite of compaction: batches without the records that a filter drops.

What to drop is the caller's: `decide` answers for batches by their headers, `keep` for records,
each for many at a time. What a shrunk batch looks like is decided here: it keeps its offsets,
producer fields and flags; tombstones get the time from which they may go. Batches that lose nothing
are copied byte for byte.

Source: Kafka MemoryRecords.filterTo, of 3.9 and of 4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from kseg.constants import BATCH_HEADER_BYTES, NO_TIMESTAMP, Compression
from kseg.errors import BuilderStateError, FormatError, InvalidRecordError, KsegError
from kseg.format.arena import NO_CEILING, Arena
from kseg.format.bodies import END, SOURCE, START, at_batch, each_bodies
from kseg.format.columns import Workspace
from kseg.format.down_convert import options_for
from kseg.format.encode import empty_batch, encode_batch
from kseg.format.header import DELETE_HORIZON, scan
from kseg.format.options import BatchOptions
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.format.take import take_rows
from kseg.format.whole import RECORD_FIELDS, WholeBatches, check_walk, decode_whole, refused_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.encoded import EncodedBatch
    from kseg.format.header import BatchHeader, BatchTable, Buffer
    from kseg.format.values import RecordColumns

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    Decide = Callable[[BatchTable], "Verdict"]
    Keep = Callable[[RecordColumns], Bools]

#: Releases whose compaction differs: until 3.9 a batch keeps its magic, since 4.0 all become 2.
RULES = ("3.9", "4.0")
_BEYOND = "a record lies behind the last offset of its batch"
_BACKWARDS = "the last offset lies below the base offset"


class Retention(IntEnum):
    """What becomes of a batch."""

    DELETE = 0  #: dropped, its records not read
    DELETE_EMPTY = 1  #: dropped if no record stays
    RETAIN_EMPTY = 2  #: its header stays even if no record does; magic 2 only


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What becomes of batches, one value a batch.

    Attributes:
        retention: uint8[n], each a `Retention`.
        empty_txn: bool[n], the markers of transactions that have no data left; None for no batch.
    """

    retention: npt.NDArray[np.uint8]
    empty_txn: Bools | None = None

    @classmethod
    def same(cls, retention: Retention, count: int) -> Verdict:
        """One answer for `count` batches."""
        return cls(np.full(count, retention, np.uint8))


@dataclass(slots=True)
class Filtered:
    """What a filter made of batches. Counts start at none, offsets and times at -1.

    Attributes:
        bytes_read: of the input, whole batches; where to go on from if there was no room.
        bytes_retained: of the output.
        messages_read: records of batches that were not deleted unread.
        messages_retained: records in the output.
        max_offset: the last offset of a batch copied or kept empty, and the last record's of one
            that shrank; the largest of these.
        max_timestamp: the largest of the output's batches, in ms.
        shallow_offset_of_max_timestamp: last offset of the first batch that has it.
        complete: whether the whole input was read; false where the output had grown past its room.
    """

    parts: list[bytes | memoryview] = field(default_factory=list, repr=False)
    bytes_read: int = 0
    bytes_retained: int = 0
    messages_read: int = 0
    messages_retained: int = 0
    max_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    shallow_offset_of_max_timestamp: int = -1
    complete: bool = True

    @property
    def data(self) -> bytes:
        """The output."""
        return b"".join(self.parts)

    def _add(self, part: bytes | memoryview, messages: int, max_offset: int) -> None:
        self.parts.append(part)
        self.bytes_retained += len(part)
        self.messages_retained += messages
        self.max_offset = max(self.max_offset, max_offset)

    def _time(self, max_timestamp: int, shallow_offset: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.shallow_offset_of_max_timestamp = shallow_offset


def filter_batches(
    data: Buffer,
    decide: Decide,
    keep: Keep,
    *,
    now_ms: int,
    delete_retention_ms: int,
    rules: str = "3.9",
    output_bytes: int | None = None,
    fields: tuple[str, ...] = (),
    verify_crc: bool = True,
    inflated_max: int = INFLATED_BYTES_MAX,
) -> Filtered:
    """Write batches anew without the records that are not to be kept.

    Args:
        data: whole batches, lent to the answer; an incomplete last one is not read.
        decide: what becomes of each batch of a table; asked once, for all batches.
        keep: bool[n], which records stay; asked for the records of many batches at a time, with the
            fields `offset timestamp key value headers position` and those of `fields`.
        now_ms: the time now.
        delete_retention_ms: how long tombstones and markers stay on.
        rules: "3.9", or "4.0" where whatever is kept of magic 0 and 1 becomes magic 2.
        output_bytes: stop behind the batch with which the output passes this; no bound if None.
        fields: what `keep` looks at besides, names out of `kseg.format.request.FIELDS`.
        verify_crc: refuse a batch whose checksum is wrong. Kafka's cleaner does not look.
        inflated_max: refuse batches that inflate to more bytes.

    Raises:
        ValueError: unknown rules, or an answer of another length.
        BuilderStateError: a batch of magic 0 or 1 was to be kept empty.
        FormatError, LimitExceededError: a batch is damaged, or cannot be written again.

    Source: Kafka MemoryRecords.filterTo.
    """
    if rules not in RULES:
        raise ValueError(f"rules are those of {' or '.join(RULES)}, not {rules!r}")
    view = memoryview(data)
    table = scan(view, on_bad_crc="note" if verify_crc else "ignore", batches_max=len(view))
    check_walk(table)
    verdict = decide(table)
    if len(verdict.retention) != len(table):
        raise ValueError(f"{len(verdict.retention)} answers for {len(table)} batches")
    rewrite = _Rewrite(
        view,
        table,
        verdict,
        horizon_ms=now_ms + delete_retention_ms,
        magic_2_only=rules == "4.0",
        room=NO_CEILING if output_bytes is None else output_bytes,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
    )
    asked = (*RECORD_FIELDS, *(name for name in fields if name not in RECORD_FIELDS))
    pieces = rewrite.pieces(tuple(name for name in asked if name != "position"))
    for whole in pieces:
        mask = keep(whole.columns)
        if len(mask) != len(whole.columns):
            raise ValueError(f"{len(mask)} answers for {len(whole.columns)} records")
        rewrite.take(whole, np.asarray(mask, np.bool_))
        if not rewrite.result.complete:
            if rewrite.at > whole.batches[-1]:
                _raise_damage(pieces, rewrite.result.bytes_read)
            return rewrite.result
    rewrite.finish()
    return rewrite.result


def _raise_damage(pieces: Iterator[WholeBatches], end: int) -> None:
    """Raise what is wrong with the last batch given, which was only the front of a damaged one."""
    try:
        next(pieces, None)
    except KsegError as error:
        if error.position is None or error.position < end:
            raise


@dataclass(slots=True, eq=False)
class _Rewrite:
    """A filter under way: `at` is the first batch of the table that is not dealt with."""

    data: memoryview
    table: BatchTable
    verdict: Verdict
    horizon_ms: int
    magic_2_only: bool
    room: int
    verify_crc: bool
    inflated_max: int
    result: Filtered = field(default_factory=Filtered)
    at: int = 0

    def pieces(self, fields: tuple[str, ...]) -> Iterator[WholeBatches]:
        """Records of the batches that are not deleted; batches count by the whole table."""
        read = np.flatnonzero(self.verdict.retention != Retention.DELETE)
        pieces = decode_whole(
            self.data,
            self.table.take(read),
            fields=fields,
            verify_crc=self.verify_crc,
            inflated_max=self.inflated_max,
            workspace=Workspace(),
        )
        for whole in pieces:
            yield replace(whole, batches=read[whole.batches])

    def take(self, whole: WholeBatches, keep: Bools) -> None:
        """Deal with the batches of a piece, and those without records in front of them."""
        starts = whole.ends[:-1]
        kept = np.add.reduceat(keep, starts, dtype=np.int64)
        tombstones = np.logical_or.reduceat(keep & ~whole.columns["value"].is_valid(), starts)
        counts, batches = whole.counts, whole.batches
        copied = (kept == counts) & ~self._needs_horizon(batches, tombstones)
        copied &= self._has_one_magic(batches, copied)
        number = 0
        while number < len(batches):
            self._without_records(int(batches[number]))
            end = _run_of(copied, batches, number)
            if self._outgrown():
                return
            if copied[number]:
                self._copy(int(batches[number]), counts[number:end])
            else:
                self._shrink(whole, keep, number, bool(tombstones[number]))
            number = end
            if self._outgrown():
                return

    def finish(self) -> None:
        """Deal with the batches behind the last record."""
        self._without_records(len(self.table))

    # ---- deciding --------------------------------------------------------------------------------

    def _needs_horizon(self, batches: Int64s, tombstones: Bools) -> Bools:
        """bool[m]: whether the batch gets a time from which its tombstones or markers may go."""
        table = self.table.take(batches)
        due = tombstones
        if self.verdict.empty_txn is not None:
            due = due | self.verdict.empty_txn[batches]
        if not self.magic_2_only:
            due = due & (table.magic >= 2)
        needs: Bools = due & ~_has_horizon(table)
        return needs

    def _has_one_magic(self, batches: Int64s, asked: Bools) -> Bools:
        """bool[m]: whether a batch can stay as it is for its magic, and that of messages inside."""
        table = self.table
        if not table.magics_seen & 3:
            return np.ones(len(batches), np.bool_)
        old = table.magic[batches] < 2
        if self.magic_2_only:
            return ~old
        same = np.ones(len(batches), np.bool_)
        for number in np.flatnonzero(old & asked & (table.codec[batches] != 0)).tolist():
            same[number] = self._holds_its_magic(int(batches[number]))
        return same

    def _holds_its_magic(self, batch: int) -> bool:
        """Whether the messages in a wrapper have its magic, which a bug of 0.10 did not see to.

        Source: KAFKA-4298.
        """
        one, arena = self.table.take(slice(batch, batch + 1)), Arena()
        (bodies,) = each_bodies(
            self.data,
            one,
            base=0,
            arena=arena,
            inflated_max=self.inflated_max,
            refuse_bad_crc=False,
        )
        row = bodies.rows[0]
        assert row[SOURCE] == 1
        inside = scan(arena.view()[row[START] : row[END]], on_bad_crc="ignore")
        return bool((inside.magic == one.magic[0]).all())

    # ---- writing ---------------------------------------------------------------------------------

    def _copy(self, batch: int, counts: Int64s) -> None:
        """Consecutive batches byte for byte, as far as there is room."""
        table, result = self.table, self.result
        sizes = np.cumsum(table.size[batch : batch + len(counts)])
        fitting = int(np.searchsorted(sizes, self.room - result.bytes_retained, "right"))
        taken = min(len(counts), fitting + 1)
        rows = slice(batch, batch + taken)
        start, size = int(table.position[batch]), int(sizes[taken - 1])
        messages = int(counts[:taken].sum())
        result.messages_read += messages
        last_offsets, times = table.last_offset[rows], table.max_timestamp[rows]
        result._add(self.data[start : start + size], messages, int(last_offsets.max()))
        latest = int(np.argmax(times))
        result._time(int(times[latest]), int(last_offsets[latest]))
        self._done(batch + taken, size)

    def _shrink(self, whole: WholeBatches, keep: Bools, number: int, tombstones: bool) -> None:
        """One batch without the records that go, or with a horizon, or in magic 2."""
        batch = int(whole.batches[number])
        header = self.table[batch]
        first, end = int(whole.ends[number]), int(whole.ends[number + 1])
        self.result.messages_read += end - first
        kept = np.flatnonzero(keep[first:end]) + first
        if len(kept):
            due = self._needs_horizon(whole.batches[number : number + 1], np.array([tombstones]))
            horizon = self.horizon_ms if due[0] else _horizon_of(header)
            last = int(whole.columns["offset"][kept].max())
            if last > header.last_offset and header.magic >= 2:
                raise at_batch(InvalidRecordError(_BEYOND), header)
            try:
                encoded = self._encode(header, whole.columns, kept, horizon)
            except FormatError as error:
                # Rows that lie together were written from where they lie.
                together = len(kept) == kept[-1] + 1 - kept[0]
                numbers = range(-first, end - first) if together else kept - first
                raise refused_in(error, header, numbers) from None
            self.result._add(encoded.data, len(kept), last)
            self.result._time(encoded.max_timestamp, encoded.offset_of_max_timestamp)
        elif self.verdict.retention[batch] == Retention.RETAIN_EMPTY:
            self._keep_empty(header)
        self._done(batch + 1, header.size)

    def _encode(
        self, header: BatchHeader, columns: RecordColumns, kept: Int64s, horizon: int
    ) -> EncodedBatch:
        options = options_for(header, 2 if self.magic_2_only else header.magic)
        first, end = int(kept[0]), int(kept[-1]) + 1
        if end - first != len(kept):
            columns, first, end = take_rows(columns, kept), 0, len(kept)
        if header.magic < 2:
            options = replace(options, delete_horizon_ms=horizon)
            source = columns if options.magic >= 2 else _old_records(columns)
            return encode_batch(source, options, first=first, end=end)
        options = replace(_with_header(options, header), delete_horizon_ms=horizon)
        return encode_batch(
            columns,
            options,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            first=first,
            end=end,
        )

    def _without_records(self, end: int) -> None:
        """Batches up to `end` that gave no record: deleted unread, or empty already."""
        retention = self.verdict.retention
        while self.at < end and not self._outgrown():
            kept = np.flatnonzero(retention[self.at : end] == Retention.RETAIN_EMPTY)
            stop = self.at + int(kept[0]) if len(kept) else end
            self._done(stop, int(self.table.size[self.at : stop].sum()))
            if stop < end and not self._outgrown():
                header = self.table[stop]
                self._keep_empty(header)
                self._done(stop + 1, header.size)

    def _keep_empty(self, header: BatchHeader) -> None:
        if header.magic < 2:
            raise at_batch(
                BuilderStateError("only batches of magic 2 can be kept without records"), header
            )
        if header.last_offset < header.base_offset:
            raise at_batch(InvalidRecordError(_BACKWARDS), header)
        options = _with_header(options_for(header, 2, Compression.NONE), header)
        empty = empty_batch(
            options,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        assert len(empty.data) == BATCH_HEADER_BYTES
        self.result._add(empty.data, 0, header.last_offset)
        self.result._time(header.max_timestamp, header.last_offset)

    def _done(self, at: int, size: int) -> None:
        """Batches up to `at` are dealt with; stop if the output has outgrown its room."""
        self.at = at
        self.result.bytes_read += size
        self.result.complete = not self._outgrown()

    def _outgrown(self) -> bool:
        return self.result.bytes_retained > self.room


def _run_of(copied: Bools, batches: Int64s, number: int) -> int:
    """The end of the run of batches copied together: neighbours in the table; else one batch."""
    if not copied[number]:
        return number + 1
    parted = ~copied[number + 1 :] | (np.diff(batches[number:]) != 1)
    return number + 1 + (int(np.argmax(parted)) if parted.any() else len(parted))


def _has_horizon(table: BatchTable) -> Bools:
    """bool[n]: whether the attributes say so, whatever the horizon is."""
    has: Bools = (table.magic >= 2) & ((table.attributes & DELETE_HORIZON) != 0)
    return has


def _horizon_of(header: BatchHeader) -> int:
    horizon = header.delete_horizon_ms
    return -1 if horizon is None else horizon


def _with_header(options: BatchOptions, header: BatchHeader) -> BatchOptions:
    """What a batch of magic 2 keeps of its header."""
    return replace(
        options,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.leader_epoch,
    )


def _old_records(columns: RecordColumns) -> dict[str, object]:
    """What magic 0 and 1 have room for."""
    return {name: columns[name] for name in ("offset", "timestamp", "key", "value")}


__all__ = ["RULES", "Filtered", "Retention", "Verdict", "filter_batches"]
