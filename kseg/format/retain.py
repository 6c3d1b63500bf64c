"""The rewrite of compaction: batches without the records that a filter drops.

The caller decides what to drop: `decide` for batches by their headers, `keep` for records, each for
many at a time. A batch that shrinks keeps its offsets, producer fields and flags; tombstones get
the time from which they may go. Batches that lose nothing are copied byte for byte.

A kernel rewrites usual batches of magic 2 from their own bytes, without columns. Other batches are
read as columns: damaged ones, those that Kafka would have written in other bytes, and unusually
large ones.

Source: Kafka MemoryRecords.filterTo, of 3.9 and of 4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from kseg._kernels.encode import Rows
from kseg._kernels.located import Keep as KeepLocated
from kseg.constants import (
    BATCH_HEADER_BYTES,
    COMPACTION_RULES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Bools,
    Buffer,
    Compression,
    Int8s,
    Int64s,
)
from kseg.errors import BuilderStateError, FormatError, InvalidRecordError, KsegError
from kseg.format.bodies import at_batch, body_of
from kseg.format.codec import NO_CEILING, Arena
from kseg.format.columns import WholeBatches, check_walk, decode_whole, refused_in
from kseg.format.encode import RUN_FIELDS, empty_batch, encode_batch, encode_runs, rows_of
from kseg.format.header import (
    CODEC_MASK,
    COLUMN,
    DELETE_HORIZON,
    LOG_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    BatchTable,
    scan_all,
)
from kseg.format.located import (
    FATE,
    LAST_STAYING,
    LATEST,
    WRITTEN,
    Retention,
    Unread,
    Verdict,
    rewrite_located,
)
from kseg.format.options import BatchOptions, options_of_rewritten
from kseg.format.reader import Workspace
from kseg.format.request import FIELDS_DEFAULT, INFLATED_BYTES_MAX, OLD_FIELDS
from kseg.format.take import runs, take_rows
from kseg.format.values import RecordColumns

Decide: TypeAlias = "Callable[[BatchTable], Verdict]"
Keep: TypeAlias = "Callable[[RecordColumns], Bools]"
KeepWhole: TypeAlias = "Callable[[WholeBatches], Bools]"
Edit: TypeAlias = "Callable[[WholeBatches], WholeBatches]"


#: The treatment of a batch whose records were read: its bytes are copied; it is dropped; written
#: again from the records that stay; or only its header stays.
_COPY, _DROP, _REBUILD, _EMPTY = range(4)
#: The header fields that a rewritten batch takes over, and the places of some among them.
_FACTS = [
    COLUMN[name]
    for name in (
        "magic",
        "size",
        "base_offset",
        "last_offset",
        "attributes",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "base_timestamp",
        "max_timestamp",
    )
]
_SIZE, _ATTRIBUTES, _BASE_TIMESTAMP, _MAX_TIMESTAMP = 1, 4, 9, 10
_BEYOND = "a record lies past the last offset of its batch"
_BACKWARDS = "the last offset lies below the base offset"


@dataclass(slots=True)
class Filtered:
    """The output of a filter. Counts start at zero, offsets and times at -1.

    Attributes:
        bytes_read: how much of the input, in whole batches; go on from there if there was no room.
        bytes_retained: the size of the output.
        bytes_copied: the part of it that was copied byte for byte.
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
    bytes_copied: int = 0
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

    def _add(self, part: bytes | memoryview) -> None:
        self.parts.append(part)
        self.bytes_retained += len(part)

    def _count(self, messages: int, max_offset: int) -> None:
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
    """Rewrite batches without the records that are removed.

    Args:
        data: whole batches; the answer has views of them. An incomplete last one is not read.
        decide: returns the result for each batch of a table; called once, for all batches.
        keep: bool[n], the records that stay; called for the records of many batches at a time, with
            the fields `offset timestamp key value headers position` and those of `fields`.
        now_ms: the time now.
        delete_retention_ms: how long tombstones and markers stay on.
        rules: out of `COMPACTION_RULES`; since "4.0" kept records of magic 0 and 1 become magic 2.
        output_bytes: stop after the batch with which the output passes this size; no bound if
            None.
        fields: further fields that `keep` needs, from `kseg.format.request.FIELDS`.
        verify_crc: refuse a batch whose checksum is wrong. Kafka's cleaner does not look.
        inflated_max: refuse batches that inflate to more bytes.

    Raises:
        ValueError: unknown rules, or an answer of another length.
        BuilderStateError: a batch of magic 0 or 1 was to be kept empty.
        FormatError, LimitExceededError: a batch is damaged, or cannot be written again.

    Source: Kafka MemoryRecords.filterTo.
    """
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="note" if verify_crc else "ignore")
    check_walk(table)
    return filter_walked(
        view,
        table,
        decide(table),
        lambda whole: keep(whole.columns),
        horizon_ms=now_ms + delete_retention_ms,
        rules=rules,
        output_bytes=output_bytes,
        fields=fields,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
    )


def filter_walked(
    data: memoryview,
    table: BatchTable,
    verdict: Verdict,
    keep: KeepWhole,
    *,
    located: KeepLocated | None = None,
    edit: Edit | None = None,
    base: int = 0,
    horizon_ms: int,
    rules: str,
    output_bytes: int | None = None,
    fields: tuple[str, ...] = (),
    verify_crc: bool = False,
    inflated_max: int = INFLATED_BYTES_MAX,
    workspace: Workspace | None = None,
) -> Filtered:
    """As `filter_batches`, for batches whose headers were read already.

    Args:
        data: bytes of the file from `base` on, all batches of `table` inside.
        table: headers of whole batches that lie one after the other.
        verdict: the result for each.
        keep: as for `filter_batches`, with the batches that the records come from.
        located: answers as `keep` for usual batches of magic 2, for records at their places; it is
            called first, and `keep` for the other batches. None to call `keep` for all, as if the
            output has a bound, or checksums are compared.
        edit: changes the values of records before `keep` is asked; None to change none.
        base: file position of `data[0]`.
        horizon_ms: the time until which tombstones and markers stay that have none yet; -1 to give
            them no such time.
        rules, output_bytes, fields, inflated_max: as for `filter_batches`.
        verify_crc: compare checksums, where the walk has not done that.
        workspace: memory to use again.

    Raises:
        ValueError, BuilderStateError, FormatError, LimitExceededError: as `filter_batches`.
    """
    if rules not in COMPACTION_RULES:
        raise ValueError(f"rules are those of {' or '.join(COMPACTION_RULES)}, not {rules!r}")
    retention = verdict.retention if verdict.known is None else verdict.known
    if not len(verdict.retention) == len(retention) == len(table):
        raise ValueError(f"{len(verdict.retention)} answers for {len(table)} batches")
    rewrite = _Rewrite(
        data,
        table,
        verdict,
        base=base,
        horizon_ms=horizon_ms,
        magic_2_only=rules != COMPACTION_RULES[0],
        room=NO_CEILING if output_bytes is None else output_bytes,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
        workspace=workspace or Workspace(),
    )
    if located is not None:
        rewrite.take_located(located)
    names = (*FIELDS_DEFAULT, *(name for name in fields if name not in FIELDS_DEFAULT))
    pieces = rewrite.pieces(tuple(name for name in names if name != "position"))
    for whole in pieces if edit is None else map(edit, pieces):
        mask = keep(whole)
        if len(mask) != len(whole.columns):
            raise ValueError(f"{len(mask)} answers for {len(whole.columns)} records")
        rewrite.take(whole, np.asarray(mask, np.bool_))
        if not rewrite.result.complete:
            if rewrite.at > whole.batches[-1]:
                _raise_damage(pieces, base + rewrite.result.bytes_read)
            return rewrite.result
    rewrite.finish()
    return rewrite.result


def _raise_damage(pieces: Iterator[WholeBatches], end: int) -> None:
    """Go on with `pieces` once, so that damage before the position `end` is raised."""
    try:
        next(pieces, None)
    except KsegError as error:
        if error.position is None or error.position < end:
            raise


@dataclass(slots=True, eq=False)
class _Judged:
    """A piece, and the results for its batches.

    Attributes:
        whole: the piece.
        ways: int8[m], one a batch.
        horizons: bool[m], which batches get a time from which their tombstones or markers may go.
        rows: int64[k], rows of the piece that are rewritten.
        ends: int64[m + 1]; batch `i` has `rows[ends[i]:ends[i + 1]]`.
        lasts: int64[m]: the largest offset of these; undefined without records.
        columns: the columns of these rows.
    """

    whole: WholeBatches
    ways: Int8s
    horizons: Bools
    rows: Int64s
    ends: Int64s
    lasts: Int64s
    columns: RecordColumns
    _rows: dict[bool, Rows] = field(default_factory=dict)

    def rows_for(self, magic: int) -> Rows:
        """The records in the form in which a magic writes them; 0 and 1 have no headers."""
        old = magic < 2
        if old not in self._rows:
            names = OLD_FIELDS if old else FIELDS_DEFAULT
            self._rows[old] = rows_of({name: self.columns.arrays[name] for name in names})
        return self._rows[old]


@dataclass(slots=True, eq=False)
class _Rewrite:
    """An unfinished filter: `at` is the next batch of the table."""

    data: memoryview
    table: BatchTable
    verdict: Verdict
    base: int
    horizon_ms: int
    magic_2_only: bool
    room: int
    verify_crc: bool
    inflated_max: int
    workspace: Workspace
    result: Filtered = field(default_factory=Filtered)
    at: int = 0
    unread: Unread = field(init=False)
    alike: tuple[int, ...] = ()
    last_options: BatchOptions = field(default_factory=BatchOptions)

    def __post_init__(self) -> None:
        self.unread = Unread.of(self.table, self.verdict)

    def pieces(self, fields: tuple[str, ...]) -> Iterator[WholeBatches]:
        """Records of the batches that have to be read; batches count by the whole table."""
        read = self.unread.others
        if not len(read):
            return
        pieces = decode_whole(
            self.data,
            self.table.take(read),
            base=self.base,
            fields=fields,
            verify_crc=self.verify_crc,
            inflated_max=self.inflated_max,
            workspace=self.workspace,
        )
        for whole in pieces:
            yield replace(whole, batches=read[whole.batches])

    def take_located(self, keep: KeepLocated) -> None:
        """Rewrite the records of usual batches as bytes, without decoding them to columns."""
        others = self.unread.others
        if not len(others) or self.room < NO_CEILING or self.verify_crc:
            return
        usual = others[_has_usual_header(self.table.rows[others])]
        if len(usual):
            rewritten = rewrite_located(
                self.data,
                self.table,
                usual,
                keep,
                self.workspace.located,
                base=self.base,
                horizon_ms=self.horizon_ms,
            )
            self.unread = self.unread.with_made(self.table, rewritten)

    def take(self, whole: WholeBatches, keep: Bools) -> None:
        """Process the batches of a piece, and the batches without records before them."""
        piece = self._judge_piece(whole, keep)
        batches, counts = whole.batches, whole.counts
        written = piece.ways >= _REBUILD
        for first, end in runs(written, batches - np.arange(len(batches))):
            self._without_records(int(batches[first]))
            if self._outgrown():
                return
            if not written[first]:
                copied, read = piece.ways[first:end] == _COPY, counts[first:end]
                self._copy(int(batches[first]), copied, read, read)
            else:
                self._write_rebuilt(piece, first, end)
            if self._outgrown():
                return

    def finish(self) -> None:
        """Deal with the batches after the last record."""
        self._without_records(len(self.table))

    # ---- deciding --------------------------------------------------------------------------------

    def _judge_piece(self, whole: WholeBatches, keep: Bools) -> _Judged:
        """The result for each batch of a piece, and the records of batches to be rebuilt."""
        starts, batches = whole.ends[:-1], whole.batches
        retained = np.add.reduceat(keep, starts, dtype=np.int64)
        due = np.logical_or.reduceat(keep & ~whole.columns["value"].is_valid(), starts)
        if self.verdict.empty_txn is not None:
            due |= self.verdict.empty_txn[batches]
        horizons = due & ~self._has_horizon(batches)
        whole_again = (retained == whole.counts) & ~horizons
        if self.verdict.edited is not None:
            whole_again &= ~self.verdict.edited[batches]
        whole_again &= self._has_one_magic(batches, whole_again)
        emptied = self.verdict.retention[batches] == Retention.RETAIN_EMPTY
        ways = np.where(retained > 0, _REBUILD, np.where(emptied, _EMPTY, _DROP)).astype(np.int8)
        ways[whole_again] = _COPY
        rebuilt = ways == _REBUILD
        # All at once, and in turn the rows of each batch lie together.
        rows = np.flatnonzero(keep & np.repeat(rebuilt, whole.counts))
        ends = np.zeros(len(batches) + 1, np.int64)
        np.cumsum(np.where(rebuilt, retained, 0), out=ends[1:])
        columns = whole.columns if len(rows) == len(keep) else take_rows(whole.columns, rows)
        lasts = np.zeros(len(batches), np.int64)
        if len(rows):
            lasts[rebuilt] = np.maximum.reduceat(columns["offset"], ends[:-1][rebuilt])
        return _Judged(whole, ways, horizons, rows, ends, lasts, columns)

    def _has_horizon(self, batches: Int64s) -> Bools:
        """bool[n]: batches that have a delete horizon, or of old magics, which store none."""
        table = self.table
        old = table.magic[batches] < 2
        has: Bools = ~old & ((table.attributes[batches] & DELETE_HORIZON) != 0)
        if not self.magic_2_only:
            has |= old
        return has

    def _has_one_magic(self, batches: Int64s, asked: Bools) -> Bools:
        """Whether a batch, and the messages inside, have a magic with which it can stay, bool[m].

        Args:
            batches: their numbers in the table, int64[m].
            asked: bool[m], the batches that could stay; the others are not examined.
        """
        table = self.table
        if not table.magics_seen & 3:
            return np.ones(len(batches), np.bool_)
        old = table.magic[batches] < 2
        if self.magic_2_only:
            return ~old
        same = np.ones(len(batches), np.bool_)
        for number in np.flatnonzero(old & asked & (table.codec[batches] != 0)).tolist():
            # A bug of 0.10 wrote messages of another magic into a wrapper (KAFKA-4298).
            single = self.table.take(slice(int(batches[number]), int(batches[number]) + 1))
            body = body_of(
                self.data,
                single,
                base=self.base,
                arena=Arena(),
                inflated_max=self.inflated_max,
                refuse_bad_crc=False,
            )
            assert body is not None
            inside = scan_all(body, on_bad_crc="ignore")
            same[number] = bool((inside.magic == single.magic[0]).all())
        return same

    # ---- writing ---------------------------------------------------------------------------------

    def _copy(self, batch: int, stay: Bools, counts: Int64s, retained: Int64s) -> None:
        """Copy or leave out consecutive batches, as far as there is room in the output.

        Args:
            batch: the number of the first one.
            stay: bool[n], which batches stay.
            counts, retained: int64[n], how many records were processed, and how many stay.
        """
        table, result = self.table, self.result
        sizes = table.size[batch : batch + len(counts)]
        grown = np.cumsum(np.where(stay, sizes, 0))
        fitting = int(np.searchsorted(grown, self.room - result.bytes_retained, "right"))
        count = min(len(counts), fitting + 1)
        rows, stay = slice(batch, batch + count), stay[:count]
        result.messages_read += int(counts[:count].sum())
        if stay.any():
            self._copy_batches(rows, stay, int(retained[:count][stay].sum()))
        self._finish_batches(rows.stop, int(sizes[:count].sum()))

    def _copy_batches(self, rows: slice, stay: Bools, messages: int) -> None:
        """Write the batches that stay to the output, and count their records, offsets and times.

        Those that `rewrite_located` has written are taken from there, the others from the input.

        Args:
            rows: batches of the table.
            stay: bool[n], which of them do not go; at least one.
            messages: how many records stay in them.
        """
        table, result, made = self.table, self.result, self.unread.made
        last_offsets, times = table.last_offset[rows], table.max_timestamp[rows]
        reached = last_offsets
        written = np.zeros(len(stay), np.bool_)
        if made is not None:
            written = stay & (made.fates[rows, FATE] == WRITTEN)
            reached = np.where(written, made.fates[rows, LAST_STAYING], reached)
            times = np.where(written, made.fates[rows, LATEST], times)
        positions = (table.position[rows] - self.base).tolist()
        positions.append(positions[-1] + int(table.size[rows.stop - 1]))
        for first, end in runs(stay, written):
            if made is not None and written[first]:
                for part in made.parts(rows.start + first, rows.start + end):
                    result._add(part)
            elif stay[first]:
                result._add(self.data[positions[first] : positions[end]])
                result.bytes_copied += positions[end] - positions[first]
        latest = int(np.argmax(times[stay]))
        result._count(messages, int(reached[stay].max()))
        result._time(int(times[stay][latest]), int(last_offsets[stay][latest]))

    def _write_rebuilt(self, piece: _Judged, first: int, end: int) -> None:
        """Write batches that are rebuilt or kept empty: usual ones at once, others one by one."""
        usual = self._are_usual(piece, slice(first, end))
        for start, stop in runs(usual):
            if usual[start] and self._write_together(piece, first + start, first + stop):
                continue
            self._write_one_by_one(piece, first + start, first + stop)
            if self._outgrown():
                return

    def _are_usual(self, piece: _Judged, numbers: slice) -> Bools:
        """Which are data batches of magic 2 where only records can be wrong, bool[k].

        No batch counts if the output has a bound, which is compared after each batch.
        """
        rows = self.table.rows[piece.whole.batches[numbers]]
        if self.room < NO_CEILING:
            return np.zeros(len(rows), np.bool_)
        usual: Bools = (piece.ways[numbers] == _REBUILD) & _has_usual_header(rows)
        return usual & (piece.lasts[numbers] <= rows[:, COLUMN["last_offset"]])

    def _write_together(self, piece: _Judged, first: int, end: int) -> bool:
        """Write usual batches in one call; returns False, nothing done, if one is refused."""
        numbers = slice(first, end)
        batches = piece.whole.batches[numbers]
        rows = self.table.rows[batches]
        codecs = rows[:, COLUMN["attributes"]] & CODEC_MASK
        encoded = encode_runs(piece.rows_for(2), self._runs(piece, numbers, rows), codecs)
        if encoded is None:
            return False
        parts, times = encoded
        last_offsets, latest = rows[:, COLUMN["last_offset"]], int(np.argmax(times))
        self.result.messages_read += int(piece.whole.counts[numbers].sum())
        for part in parts:
            self.result._add(part)
        self.result._count(
            int(piece.ends[end] - piece.ends[first]), int(piece.lasts[numbers].max())
        )
        self.result._time(int(times[latest]), int(last_offsets[latest]))
        self._finish_batches(int(batches[-1]) + 1, int(rows[:, COLUMN["size"]].sum()))
        return True

    def _runs(self, piece: _Judged, numbers: slice, rows: Int64s) -> Int64s:
        """The arguments of `encode_runs`, a row for each batch, int64[k, 10]."""
        has = (rows[:, COLUMN["attributes"]] & DELETE_HORIZON) != 0
        base_timestamp = rows[:, COLUMN["base_timestamp"]]
        horizon = np.where(has, base_timestamp, -1)
        horizon[piece.horizons[numbers]] = self.horizon_ms
        flags = rows[:, COLUMN["attributes"]] & TRANSACTIONAL
        built = {
            "first": piece.ends[:-1][numbers],
            "end": piece.ends[1:][numbers],
            "attributes": np.where(horizon >= 0, flags | DELETE_HORIZON, flags),
            "delete_horizon_ms": horizon,
        }
        return np.stack(
            [built[name] if name in built else rows[:, COLUMN[name]] for name in RUN_FIELDS], axis=1
        )

    def _write_one_by_one(self, piece: _Judged, first: int, end: int) -> None:
        """Write batches that are rebuilt or kept empty, one by one, as far as there is room."""
        batches = piece.whole.batches[first:end]
        facts = self.table.rows[batches][:, _FACTS].tolist()
        counts, ends = piece.whole.counts[first:end].tolist(), piece.ends[first : end + 1].tolist()
        lasts, emptied = piece.lasts[first:end].tolist(), piece.ways[first:end] == _EMPTY
        for number, batch in enumerate(batches.tolist()):
            self.result.messages_read += counts[number]
            if emptied[number]:
                self._keep_empty(self.table[batch])
            else:
                row = first + number
                self._rebuild(piece, row, facts[number], ends[number : number + 2], lasts[number])
            self._finish_batches(batch + 1, facts[number][_SIZE])
            if self._outgrown():
                return

    def _rebuild(
        self, piece: _Judged, number: int, facts: list[int], rows: list[int], last: int
    ) -> None:
        """Rebuild one batch without the removed records, or with a horizon, or in magic 2.

        Args:
            piece: the piece that has the batch.
            number: the number of the batch in the piece.
            facts: header fields, `_FACTS`.
            rows: its first row in the piece's columns, and the row after its last.
            last: offset of its last record that stays.
        """
        magic, _, base_offset, last_offset, *_ = facts
        first, end = rows
        where: dict[str, int] = {}
        if magic >= 2:
            if last > last_offset:
                raise at_batch(InvalidRecordError(_BEYOND), self._header(piece, number))
            where = {"base_offset": base_offset, "last_offset": last_offset}
        horizon = -1
        if piece.horizons[number]:
            horizon = self.horizon_ms
        elif magic >= 2 and facts[_ATTRIBUTES] & DELETE_HORIZON:
            horizon = facts[_BASE_TIMESTAMP]
        options = self._options(piece, number, facts, horizon)
        try:
            encoded = encode_batch(
                piece.rows_for(options.magic), options, first=first, end=end, **where
            )
        except FormatError as error:
            numbers = piece.rows - piece.whole.ends[number]
            raise refused_in(error, self._header(piece, number), numbers) from None
        self.result._add(encoded.data)
        self.result._count(end - first, last)
        self.result._time(encoded.max_timestamp, encoded.offset_of_max_timestamp)

    def _header(self, piece: _Judged, number: int) -> BatchHeader:
        return self.table[int(piece.whole.batches[number])]

    def _options(self, piece: _Judged, number: int, facts: list[int], horizon: int) -> BatchOptions:
        """The options of a rewritten batch; consecutive batches mostly have the same.

        Args:
            piece, number, facts: as for `_rebuild`.
            horizon: its delete horizon in ms; -1 if it has none.
        """
        alike = (horizon, facts[0], *facts[_ATTRIBUTES:_BASE_TIMESTAMP])
        if facts[_ATTRIBUTES] & LOG_APPEND:
            alike = (*alike, facts[_MAX_TIMESTAMP])
        if alike != self.alike:
            self.alike = alike
            header = self._header(piece, number)
            magic = 2 if self.magic_2_only else header.magic
            self.last_options = options_of_rewritten(header, magic, delete_horizon_ms=horizon)
        return self.last_options

    def _without_records(self, end: int) -> None:
        """Process batches up to `end` of which no record was read: deleted, known, or empty."""
        unread = self.unread
        while self.at < end and not self._outgrown():
            emptied = np.flatnonzero(unread.emptied[self.at : end])
            stop = self.at + int(emptied[0]) if len(emptied) else end
            if self.at < stop:
                rows = slice(self.at, stop)
                self._copy(self.at, unread.stay[rows], unread.counts[rows], unread.kept[rows])
            elif stop < end:
                header = self.table[stop]
                self.result.messages_read += int(unread.counts[stop])
                self._keep_empty(header)
                self._finish_batches(stop + 1, header.size)

    def _keep_empty(self, header: BatchHeader) -> None:
        """Write a batch without its records: the header keeps the offsets and the producer."""
        if header.magic < 2:
            raise at_batch(
                BuilderStateError("only batches of magic 2 can be kept without records"), header
            )
        if header.last_offset < header.base_offset:
            raise at_batch(InvalidRecordError(_BACKWARDS), header)
        empty = empty_batch(
            options_of_rewritten(header, 2, Compression.NONE),
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        assert len(empty.data) == BATCH_HEADER_BYTES
        self.result._add(empty.data)
        self.result._count(0, header.last_offset)
        self.result._time(header.max_timestamp, header.last_offset)

    def _finish_batches(self, at: int, size: int) -> None:
        """Batches up to `at` are dealt with; stop if the output has outgrown its room."""
        self.at = at
        self.result.bytes_read += size
        self.result.complete = not self._outgrown()

    def _outgrown(self) -> bool:
        return self.result.bytes_retained > self.room


def _has_usual_header(rows: Int64s) -> Bools:
    """Which are data batches of magic 2 whose headers cannot be wrong, bool[n]."""
    attributes, producer = rows[:, COLUMN["attributes"]], rows[:, COLUMN["producer_id"]]
    named = (rows[:, COLUMN["producer_epoch"]] != NO_PRODUCER_EPOCH) & (
        rows[:, COLUMN["base_sequence"]] >= 0
    )
    nameless = (producer == NO_PRODUCER_ID) & ((attributes & TRANSACTIONAL) == 0)
    usual: Bools = rows[:, COLUMN["magic"]] == 2
    usual &= (attributes & ~(CODEC_MASK | TRANSACTIONAL | DELETE_HORIZON)) == 0
    usual &= nameless | ((producer >= 0) & named)
    return usual
