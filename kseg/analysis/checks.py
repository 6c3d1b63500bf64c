"""The checks of `verify` on one segment, in one walk.

`examine_segment` walks a log file once and compares its indexes on the way. `LogChecks` checks the
headers of a table of batches at a time, and with `deep` the records; it works on columns, never on
single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from kseg.analysis.units import Unit
from kseg.analysis.values import (
    Examined,
    Findings,
    SegmentSummary,
)
from kseg.constants import (
    BATCH_HEADER_BYTES,
    INT32_MAX,
    INT64_MIN,
    NO_TIMESTAMP,
    TAILS,
    Bools,
    Compression,
    Int64s,
    StopReason,
)
from kseg.documents import frozen_dataclass
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    KsegError,
    LimitExceededError,
    UnreadableError,
)
from kseg.files.log_file import LogFile, OnUnreadable, Tile
from kseg.files.mapping import Mapping, held_by_another
from kseg.files.names import (
    FileKind,
    file_name,
)
from kseg.format.columns import decode
from kseg.format.header import (
    CODEC_MASK,
    CONTROL,
    FIELDS,
    TRANSACTIONAL,
    BatchTable,
    stop_code,
    stop_error,
)
from kseg.format.reader import Workspace
from kseg.format.request import Request
from kseg.format.times import DAY_MS, iso_text
from kseg.log import settings
from kseg.log.clock import now_of
from kseg.log.recovery import (
    PER_CODE_MAX,
    IndexChecks,
    IndexPlace,
    Lost,
    TxnTrail,
    judge_transactions,
    lost_ranges,
)
from kseg.stores.path import is_remote

_AHEAD_MS = DAY_MS
#: Times in seconds from 2001 to 2096; read as milliseconds, they would be days of 1970.
_SECONDS_MIN = 10**9
_SECONDS_MAX = 4 * 10**9
_RECORD_BYTES_MIN = 7
#: The most changes of the leader epoch that are noted; no real log has more.
EPOCH_CHANGES_MAX = 10_000


#: The bytes that a batch may inflate to.
INFLATED_BYTES_MAX: Final = 128 << 20


@frozen_dataclass
class VerifyOptions:
    """The options of an examination.

    Attributes:
        deep: decode every record, and not only those inside compressed messages before magic 2.
        inflated_max: with `deep`, no batch may inflate to more bytes.
        mapping: see `kseg.files.mapping`.
        now_ms: times more than a day after it are ahead; the machine's clock if None.
        sequences: look for gaps and doubles in the sequences of producers.
    """

    deep: bool = False
    inflated_max: int = INFLATED_BYTES_MAX
    mapping: Mapping = "auto"
    now_ms: int | None = None
    sequences: bool = False


@dataclass(slots=True)
class LogChecks:
    """The state of one walk.

    Attributes:
        unit: the log file; in the last one of a partition, a torn tail is benign.
        options: the options of the examination.
        findings: receives the findings.
        first_offset, last_offset: the bounds of the batches so far whose checksums match.
        epochs: (leader epoch, first offset) where the epoch changes.
        batches, records: the numbers of batches and records so far.
        magics_seen: bit n is set where magic n occurs.
        bad_crc_count: the number of batches that do not match their checksums.
        reached: the position where the last batch so far ends.
        damaged_at: the position of the first damage; None if there is none.
        damaged_from: the offset after the sound batches before the damage; None if no sound batch
            precedes it.
        dense: whether each offset from the base offset on has a record.
    """

    unit: Unit
    options: VerifyOptions
    findings: Findings
    first_offset: int | None = None
    last_offset: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    magics_seen: int = 0
    bad_crc_count: int = 0
    reached: int = 0
    damaged_at: int | None = None
    damaged_from: int | None = None
    dense: bool = True
    #: Code -> (number of batches with such a time, (worst time, its position, its last offset)).
    _odd_times: dict[str, tuple[int, tuple[int, int, int]]] = field(default_factory=dict)
    _has_transactions: bool = False
    #: Whether batches of idempotent producers without a transaction occur.
    _has_plain: bool = False
    #: The ids of the producers that have a transaction open; see `_check_transactions`.
    _open: set[int] = field(default_factory=set)
    _workspace: Workspace = field(default_factory=Workspace)

    def feed(self, table: BatchTable) -> None:
        """Check the batches of a table; a batch with a wrong checksum is only reported as such."""
        self.batches += len(table)
        self.magics_seen |= table.magics_seen
        good = table
        if table.bad_crc_count:
            self.bad_crc_count += table.bad_crc_count
            bad = table.crc_ok == 0
            self._report_bad_crc(table.take(bad))
            good = table.take(~bad)
            first = int(bad.argmax())
            last = int(table.last_offset[:first].max()) if first else self.last_offset
            self.note_damage(int(table.position[first]), last)
        if len(good) and not table.kafka07:
            self._check_headers(good)
            self._check_offsets(good)
            self._check_epochs(good)
            self._check_times(good)
        if not self.options.deep:
            self.records += int(np.maximum(good.record_count, 0).sum())
        if len(table):
            self.reached = int(table.position[-1] + table.size[-1])

    def finish(
        self, table: BatchTable, size: int, headers: Callable[[], Iterable[BatchTable]]
    ) -> None:
        """Report odd times, batches inside other transactions, and why the walk ended early.

        Few files have both transactions and other batches with producers: the headers of such a
        file are read once more, unless damage hides some of them.

        Args:
            table: the last table of the walk.
            size: the size of the file.
            headers: reads the headers of the file again.
        """
        # One finding for the file: a producer's clock causes many such times at once.
        for code in ("time-ahead", "time-negative", "time-in-seconds"):
            if code in self._odd_times:
                count, (time, position, offset) = self._odd_times[code]
                many = "1 batch has" if count == 1 else f"{count} batches have"
                self.findings.say(
                    code,
                    self.unit.path,
                    position=position,
                    offset=offset,
                    many=many,
                    time=iso_text(~time if code == "time-negative" else time),
                )
        if self._has_transactions and self._has_plain and self.damaged_at is None:
            for batches in headers():
                self._check_transactions(batches)
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        self.note_damage(table.end_position, self.last_offset)
        left = size - table.end_position
        benign = self.unit.is_last and table.stop in TAILS
        self.findings.say(
            stop_code(table.stop, is_last=self.unit.is_last),
            self.unit.path,
            position=table.end_position,
            offset=None if self.last_offset is None else self.last_offset + 1,
            severity="warning" if benign else "error",
            reason=stop_error(table).reason,
            left=left,
            needed=table.needed if table.needed > left else None,
        )

    def _check_times(self, table: BatchTable) -> None:
        """Count the batches with times that no broker would write, and note the worst times."""
        times = table.max_timestamp
        first = np.minimum(times, table.base_timestamp)
        # The inverted bits of the least number are the largest; a minus would overflow.
        for code, values, mask in (
            ("time-ahead", times, times > now_of(self.options.now_ms) + _AHEAD_MS),
            ("time-negative", ~first, first < NO_TIMESTAMP),
            ("time-in-seconds", times, (times >= _SECONDS_MIN) & (times < _SECONDS_MAX)),
        ):
            if mask.any():
                row = int(np.where(mask, values, INT64_MIN).argmax())
                worst_of_table = (
                    int(values[row]),
                    int(table.position[row]),
                    int(table.last_offset[row]),
                )
                count, worst = self._odd_times.get(code, (0, worst_of_table))
                worst = worst_of_table if worst_of_table[0] > worst[0] else worst
                self._odd_times[code] = count + int(np.count_nonzero(mask)), worst

    def note_damage(self, position: int, last_offset: int | None) -> None:
        """Remember where the first damage begins, and the last sound offset before it."""
        if self.damaged_at is None:
            self.damaged_at = position
            self.damaged_from = None if last_offset is None else last_offset + 1

    def _report_bad_crc(self, bad: BatchTable) -> None:
        """Report batches with wrong checksums; those shorter than a header as too short."""
        short = (bad.magic >= 2) & (bad.size < BATCH_HEADER_BYTES)
        self._report("batch-length.short", bad, short)
        self._report("batch-crc", bad, ~short)

    def _report(self, message_code: str, table: BatchTable, mask: Bools) -> None:
        """Report a finding for each batch selected by `mask`.

        The first `PER_CODE_MAX` are findings of their own, the others are only counted.

        Args:
            message_code: the code, and perhaps a word after a dot; the text of the message refers
                to the header of the batch as `b`.
            table: the batches.
            mask: bool[n], the batches to report.
        """
        if not mask.any():
            return
        chosen = table.take(mask)
        path = self.unit.path
        for header in chosen.take(slice(PER_CODE_MAX)):
            offset = header.base_offset if header.base_offset >= 0 else header.last_offset
            self.findings.say(
                message_code,
                path,
                position=header.position,
                offset=offset,
                b=header,
                base=self.unit.base_offset,
            )
        code = message_code.partition(".")[0]
        self.findings.count_more(code, path, len(chosen) - PER_CODE_MAX)  # ignores 0 and below

    def _check_headers(self, table: BatchTable) -> None:
        """Report headers that no writer makes: codecs, counts, producers, control batches.

        A count is impossible if the batch has fewer offsets, or is not compressed and has too few
        bytes. Except for the codec, only magic 2 has these fields.
        """
        codec, magic, count = table.codec, table.magic, table.record_count
        if table.attributes_seen & CODEC_MASK:
            unknown = (codec > Compression.ZSTD) | ((codec == Compression.ZSTD) & (magic < 2))
            self._report("batch-codec", table, unknown)
        if not table.magics_seen & ~3:
            return
        current = magic >= 2
        room = np.where(codec == 0, (table.size - BATCH_HEADER_BYTES) // _RECORD_BYTES_MIN, 2**31)
        deltas = table.last_offset - table.base_offset
        impossible = current & ((count < 0) | (count > room) | (count > deltas + 1))
        self._report("batch-count", table, impossible)
        lacks_producer = table.is_transactional & ~table.is_control & (table.producer_id < 0)
        odd = current & (lacks_producer | (table.producer_id < -1))
        self._report("batch-producer", table, odd)
        self._has_transactions |= bool(table.attributes_seen & TRANSACTIONAL)
        if not self._has_plain:
            plain = table.attributes & (TRANSACTIONAL | CONTROL) == 0
            self._has_plain = bool((plain & (table.producer_id >= 0)).any())
        if table.attributes_seen & CONTROL:
            blank = table.is_control & (count > 0) & (codec == 0) & (table.control_type < 0)
            self._report("control-record", table, blank)

    def _check_transactions(self, table: BatchTable) -> None:
        """Report batches outside of transactions whose producers have a transaction open.

        `_open` has the producers with a transaction that is open before the table, and afterwards
        those with one that is open after it.

        Source: Kafka `ProducerAppendInfo.appendDataBatch`.
        """
        order = np.argsort(table.producer_id, kind="stable")  # each producer's batches together
        ids = table.producer_id[order]
        opens = (table.is_transactional & ~table.is_control)[order]
        plain = ~(table.is_transactional | table.is_control)[order] & (ids >= 0)
        # For each row, the last row up to it that begins, continues or ends a transaction; that row
        # may belong to another producer.
        deciding = np.maximum.accumulate(np.where(plain, -1, np.arange(len(ids))))
        is_own = deciding >= np.searchsorted(ids, ids)
        is_open = np.where(is_own, opens[deciding], np.isin(ids, list(self._open)))
        mixed = np.zeros(len(ids), np.bool_)
        mixed[order] = plain & is_open
        self._report("transaction-mixed", table, mixed)
        ends = np.append(ids[1:] != ids[:-1], True) & (ids >= 0)
        self._open -= set(ids[ends].tolist())
        self._open |= set(ids[ends & is_open].tolist())

    def _check_offsets(self, table: BatchTable) -> None:
        """Report offsets that do not increase, or do not fit in 32 bits from the base offset.

        The header of a compressed message of magic 0 or 1 has only its last offset.
        """
        first = np.where(table.base_offset < 0, table.last_offset, table.base_offset)
        negative = (table.magic >= 2) & (table.base_offset < 0)
        self._report("offset-range", table, negative | (table.last_offset < first))
        if self.unit.base_offset is not None:
            deltas = table.last_offset - self.unit.base_offset
            far = (first < self.unit.base_offset) | (deltas > INT32_MAX)
            self._report("offset-range.segment", table, far & ~negative)
        before = INT64_MIN if self.last_offset is None else self.last_offset
        running = np.maximum.accumulate(np.concatenate(([before], table.last_offset[:-1])))
        self._report("offset-order", table, first <= running)
        expected = self.unit.base_offset if self.last_offset is None else self.last_offset + 1
        self.dense &= table.is_dense and int(first[0]) == expected
        if self.first_offset is None:
            self.first_offset = int(first[0])
        self.last_offset = max(int(running[-1]), int(table.last_offset[-1]))

    def _check_epochs(self, table: BatchTable) -> None:
        """Report leader epochs that decrease, and note the offsets where they change."""
        epochs = table.leader_epoch
        has_epoch = (table.magic >= 2) & (epochs >= 0)
        if not has_epoch.any():
            return
        table = table if has_epoch.all() else table.take(has_epoch)
        epochs = table.leader_epoch
        before = self.epochs[-1][0] if self.epochs else -1
        previous = np.concatenate(([before], epochs[:-1]))
        self._report("leader-epoch-order", table, epochs < previous)
        changes = np.flatnonzero(epochs != previous)
        if len(changes) and len(self.epochs) < EPOCH_CHANGES_MAX:
            offsets = table.base_offset[changes].tolist()
            self.epochs += zip(epochs[changes].tolist(), offsets, strict=True)

    # Records.

    def decode(self, tile: Tile) -> None:
        """Decode the records of those batches of a tile whose checksums match.

        Without `deep`, only compressed batches of magic 0 and 1, and of Kafka 0.7: the messages
        inside them have checksums of their own, which only inflating shows.
        """
        good = tile.table
        if not self.options.deep:
            wrappers = good.is_wrapper
            if not wrappers.any():
                return
            good = good.take(wrappers)
        if good.bad_crc_count:
            good = good.take(good.crc_ok != 0)
        fields = ("offset", "timestamp", "position")
        request = Request(fields, control=True, inflated_max=self.options.inflated_max)
        pieces = decode(
            tile.data,
            good,
            request,
            base=tile.base,
            workspace=self._workspace,
            on_error=self._report_record,
        )
        for columns in pieces:
            self.records += len(columns)
            if not good.kafka07:
                self._check_records(good, columns.position, columns.offset, columns.timestamp_ms)

    def _report_record(self, error: KsegError) -> None:
        """Report a record that cannot be decoded, under the code of its error."""
        codes = (code for kind, code in _OF_RECORDS.items() if isinstance(error, kind))
        self.findings.say(
            next(codes, "record-structure"),
            self.unit.path,
            position=error.position,
            offset=error.offset,
            record=error.record_index,
            reason=error.reason,
        )

    def _check_records(
        self, table: BatchTable, position: Int64s, offset: Int64s, timestamp: Int64s
    ) -> None:
        """Check that record offsets ascend within their batch, and the header's latest time.

        A batch whose records are split between two pieces is checked in each piece by itself.

        Args:
            table: the batches.
            position, offset, timestamp: int64[n], the position of the batch of each record, and
                the record's offset and time.
        """
        starts = np.concatenate(([0], np.flatnonzero(position[1:] != position[:-1]) + 1))
        counts = np.diff(np.append(starts, len(position)))
        batches = table.take(np.searchsorted(table.position, position[starts]))
        last = offset[starts + counts - 1]
        falls = np.flatnonzero(offset[1:] <= offset[:-1])
        falls = falls[position[falls + 1] == position[falls]]
        base = np.where(batches.base_offset < 0, -1, batches.base_offset)
        wrong = np.zeros(len(starts), np.bool_)
        wrong[np.searchsorted(starts, falls, "right") - 1] = True
        # A wrapper of magic 0 or 1 has its last record's offset, except for some that have 0.
        lacks_offset = (batches.magic < 2) & (batches.last_offset == 0)
        wrong |= (offset[starts] < base) | ((last > batches.last_offset) & ~lacks_offset)
        self._report("record-offset", batches, wrong)
        latest = np.maximum(np.maximum.reduceat(timestamp, starts), -1)
        whole = (batches.magic >= 2) & (batches.record_count == counts)
        wrong = whole & (latest != batches.max_timestamp)
        wrong |= batches.is_wrapper & (latest > batches.max_timestamp)
        wrong &= batches.timestamp_type == 0
        self._report("max-timestamp", batches, wrong)


#: The tables of tiles are joined until they have this many batches: a megabyte of headers.
_ROWS_JOINED = 8192


def examine_segment(unit: Unit, options: VerifyOptions) -> Examined:
    """Walk a log file once, with its checksums, and compare its indexes with the batches.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    findings = Findings()
    lost: tuple[Lost, ...] = ()
    live = held_by_another(unit.path)  # once for all files of the segment
    mapping = options.mapping
    if mapping == "auto":
        mapping = "never" if live else "unheld"
    with LogFile.open(unit.path, mapping) as log:
        size = log.size
        checks = LogChecks(unit, options, findings)
        indexes, index_sizes = _open_indexes(unit, size, mapping, findings, live=live)
        stop, kafka07 = StopReason.LIMIT, log.kafka07
        unreadable: list[UnreadableError] = []
        trail: TxnTrail | None = None
        try:
            for table in _tables(log, checks, unreadable.append):
                if not unreadable:
                    checks.feed(table)
                    indexes.feed(table)
                    continue
                before, after = _split_at_unreadable(table, unreadable[0])
                checks.feed(before)
                indexes.feed(before)  # no index is compared after that
                checks.note_damage(checks.reached, checks.last_offset)
                checks.feed(after)
            stop = StopReason.LIMIT if unreadable else table.stop
            if not _check_kraft(unit.path, table, findings):
                checks.finish(table, size, log.headers)
            # Bytes after a damaged batch may belong to it: its end is not known.
            index_stop = StopReason.BAD_CRC if checks.bad_crc_count else stop
            trail = indexes.finish(index_stop, log.headers)
            if unit.partition is None and not unreadable:
                judge_transactions((), [(unit.base_offset or 0, True, trail)], findings)
            lost = _lost_in(log, unit, checks)
        except CorruptRecordError as error:  # of the file, not of a batch: those are in the table
            # An object changes only if it is replaced, and then nothing of it was checked.
            findings.add(
                "changed",
                unit.path,
                error.reason,
                position=error.position,
                severity="error" if is_remote(unit.path) else None,
            )
        for unreadable_range in unreadable:
            findings.add_unreadable(unreadable_range)
    summary = SegmentSummary(
        partition=unit.partition or "",
        path=unit.path,
        base_offset=unit.base_offset or 0,
        first_offset=checks.first_offset,
        last_offset=checks.last_offset,
        epochs=tuple(checks.epochs),
        whole=stop is StopReason.END and not checks.bad_crc_count,
        magics_seen=checks.magics_seen,
        kafka07=kafka07,
        transactions=None if unreadable else trail,
        dense=checks.dense and checks.batches > 0,
    )
    return Examined(
        files=1 + len(index_sizes),
        bytes=size + sum(index_sizes),
        batches=checks.batches,
        records=checks.records,
        findings=findings.finish(),
        lost=lost,
        segments=(summary,) if unit.partition is not None else (),
    )


#: The codes of records that cannot be decoded, keyed by the class of the error; the first that
#: fits counts.
_OF_RECORDS: Final = {
    DecompressionError: "record-codec",
    LimitExceededError: "record-limit",
    CorruptRecordError: "record-crc",
}
#: Files of batches that no broker repairs.
_OF_KRAFT: Final = frozenset({FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP})


def _check_kraft(path: str, table: BatchTable, findings: Findings) -> bool:
    """Check a snapshot or a bootstrap file of KRaft; returns whether the file is one."""
    kind = file_name(path).kind
    if kind not in _OF_KRAFT:
        return False
    try:
        if table.stop is not StopReason.END:
            raise stop_error(table)
        is_bootstrap = kind is FileKind.BOOTSTRAP
        (settings.bootstrap_level if is_bootstrap else settings.check_snapshot)(path)
    except KsegError as error:
        findings.add(
            "kraft-snapshot", path, error.reason, position=error.position, offset=error.offset
        )
    return True


def _split_at_unreadable(
    table: BatchTable, error: UnreadableError
) -> tuple[BatchTable, BatchTable]:
    """The batches of a table before its unreadable range, and those after it."""
    assert error.position is not None
    is_before = table.position < error.position
    before, after = (
        replace(part, bad_crc_count=int((part.crc_ok == 0).sum()))
        for part in (table.take(is_before), table.take(~is_before))
    )
    end = int(before.position[-1] + before.size[-1]) if len(before) else 0
    return replace(before, end_position=end), after


def _lost_in(log: LogFile, unit: Unit, checks: LogChecks) -> tuple[Lost, ...]:
    """The damaged places of a log file, found in a walk of its own, as damage is rare.

    Empty for a file without damage, and for Kafka 0.7, whose batches have no offsets.
    """
    if checks.damaged_at is None or log.kafka07:
        return ()
    return lost_ranges(
        log,
        checks.damaged_at,
        next_offset=unit.base_offset if checks.damaged_from is None else checks.damaged_from,
        base_offset=unit.base_offset,
        following=unit.following,
    )


def _tables(log: LogFile, checks: LogChecks, on_unreadable: OnUnreadable) -> Iterator[BatchTable]:
    """The tables of the walk, joined into larger ones: a check costs time per table, not per row.

    The records of each tile are decoded on the way.
    """
    waiting: list[BatchTable] = []
    rows = 0
    for tile in log.walk(on_bad_crc="note", on_unreadable=on_unreadable):
        checks.decode(tile)
        waiting.append(tile.table)
        rows += len(tile.table)
        if rows >= _ROWS_JOINED:
            yield _join(waiting)
            waiting = []
            rows = 0
    if waiting:
        yield _join(waiting)


def _join(tables: list[BatchTable]) -> BatchTable:
    """Concatenate tables; the columns of the result are contiguous."""
    count = sum(map(len, tables))
    rows = np.empty((count, len(FIELDS)), np.int64, order="F")
    np.concatenate([table.rows for table in tables], out=rows)
    rows.flags.writeable = False
    return replace(
        tables[-1],
        rows=rows,
        attributes_seen=reduce(or_, (table.attributes_seen for table in tables)),
        magics_seen=reduce(or_, (table.magics_seen for table in tables)),
        bad_crc_count=sum(table.bad_crc_count for table in tables),
    )


def _open_indexes(
    unit: Unit, log_bytes: int, mapping: Mapping, findings: Findings, *, live: bool
) -> tuple[IndexChecks, list[int]]:
    """The checks of a segment's indexes, and the size of each index file that exists.

    Args:
        unit: the segment.
        log_bytes: the size of its log file.
        mapping: see `kseg.files.mapping`.
        findings: receives the findings.
        live: whether another process has the log file open.
    """
    base = unit.base_offset or 0
    log = IndexPlace(
        unit.path,
        base,
        unit.is_last,
        log_bytes=log_bytes,
        mapping=mapping,
        live=live,
        # A broker that is writing changes the indexes before any start reads them.
        believed=unit.believed and not live,
    )
    checks = IndexChecks(log, findings)
    sizes = []
    # In a partition directory a missing index is a fault; a single log file need not have its
    # indexes beside it, and Kafka 0.7 makes none.
    needs_indexes = unit.partition is not None and not unit.path.endswith(".kafka")
    for kind, path in (
        (FileKind.INDEX, unit.index),
        (FileKind.TIMEINDEX, unit.time_index),
        (FileKind.TXNINDEX, unit.txn_index),
    ):
        # Only aborted transactions need the transaction index: the walk finds out whether they
        # exist.
        if path is not None or needs_indexes or kind is FileKind.TXNINDEX:
            with findings.noting_unreadable():
                sizes.append(checks.add(kind, path))
    return checks, [size for size in sizes if size >= 0]
