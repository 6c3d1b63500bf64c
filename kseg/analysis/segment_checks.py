"""Examine one segment: a single walk over its log, with its indexes compared on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from kseg.analysis.findings import Findings
from kseg.analysis.log_checks import LogChecks
from kseg.analysis.values import Examined, SegmentSummary
from kseg.constants import StopReason
from kseg.errors import CorruptRecordError, UnreadableError
from kseg.files.log_file import LogFile, OnUnreadable
from kseg.files.mapping import held_by_another
from kseg.files.names import FileKind
from kseg.format.header import FIELDS
from kseg.log.recovery import (
    IndexChecks,
    IndexPlace,
    Lost,
    TxnTrail,
    judge_transactions,
    lost_ranges,
)

if TYPE_CHECKING:
    from kseg.analysis.units import Unit
    from kseg.files.mapping import Mapping
    from kseg.format.header import BatchTable

#: Tiles are joined until they have so many batches: a megabyte of headers.
_ROWS_JOINED = 8192


def examine_segment(
    unit: Unit, *, deep: bool, inflated_max: int, mapping: Mapping, now_ms: int
) -> Examined:
    """Walk a log file once, with its checksums, and compare its indexes with the batches.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    found = Findings()
    lost: tuple[Lost, ...] = ()
    live = held_by_another(unit.path)  # asked once for all files of the segment
    if mapping == "auto":
        mapping = "never" if live else "unheld"
    with LogFile.open(unit.path, mapping) as log:
        size = log.size
        checks = LogChecks(
            unit.path, unit.base_offset, unit.is_last, deep, inflated_max, found, now_ms=now_ms
        )
        indexes = _Indexes(unit, size, mapping, found, live=live)
        stop, kafka07 = StopReason.LIMIT, log.kafka07
        unreadable: list[UnreadableError] = []
        trail: TxnTrail | None = None
        try:
            for table in _tables(log, checks, unreadable.append):
                if not unreadable:
                    checks.feed(table)
                    indexes.feed(table)
                    continue
                front, behind = _parted(table, unreadable[0])
                checks.feed(front)
                indexes.feed(front)  # no index is compared behind that
                checks.note_damage(checks.reached)
                checks.feed(behind)
            stop = StopReason.LIMIT if unreadable else table.stop
            checks.finish(table, size)
            # What lies behind a damaged batch may be its own: its end is not known.
            trail = indexes.finish(log, StopReason.BAD_CRC if checks.bad_crc_count else stop)
            if unit.partition is None and not unreadable:
                judge_transactions((), [(unit.base_offset or 0, True, trail)], found)
            lost = _lost_in(log, unit, checks)
        except CorruptRecordError as error:  # of the file, not of a batch: those are in the table
            found.add("changed", unit.path, error.reason, position=error.position)
        for each in unreadable:
            found.add_unreadable(each)
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
    )
    return Examined(
        files=1 + indexes.files,
        bytes=size + indexes.bytes,
        batches=checks.batches,
        records=checks.records,
        findings=found.taken(),
        lost=lost,
        segments=(summary,) if unit.partition is not None else (),
    )


def _parted(table: BatchTable, error: UnreadableError) -> tuple[BatchTable, BatchTable]:
    """The batches in front of the unreadable range, and those behind it."""
    assert error.position is not None
    in_front = table.position < error.position
    front, behind = (
        replace(part, bad_crc_count=int((part.crc_ok == 0).sum()))
        for part in (table.take(in_front), table.take(~in_front))
    )
    end = int(front.position[-1] + front.size[-1]) if len(front) else 0
    return replace(front, end_position=end), behind


def _lost_in(log: LogFile, unit: Unit, checks: LogChecks) -> tuple[Lost, ...]:
    """The damaged places, of files whose batches have offsets; a walk of its own, as it is rare."""
    if checks.damaged_at is None or log.kafka07:
        return ()
    return lost_ranges(
        log,
        checks.damaged_at,
        next_offset=unit.base_offset if checks.damaged_from is None else checks.damaged_from,
        base_offset=unit.base_offset,
        following=unit.following,
    )


def _tables(log: LogFile, decoder: LogChecks, on_unreadable: OnUnreadable) -> Iterator[BatchTable]:
    """The tables of the walk, joined: checks cost by the table and hardly by the row."""
    waiting: list[BatchTable] = []
    rows = 0
    for tile in log.walk(on_bad_crc="note", on_unreadable=on_unreadable):
        decoder.decode(tile)
        waiting.append(tile.table)
        rows += len(tile.table)
        if rows >= _ROWS_JOINED:
            yield _join(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _join(waiting)


def _join(tables: list[BatchTable]) -> BatchTable:
    """Tables one behind another as one, its columns contiguous."""
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


class _Indexes:
    """The indexes of the segment, compared with its batches, and what these make of them."""

    def __init__(
        self, unit: Unit, log_bytes: int, mapping: Mapping, found: Findings, *, live: bool
    ) -> None:
        self.files = self.bytes = 0
        base = unit.base_offset or 0
        believed = unit.believed and not live
        log = IndexPlace(unit.path, base, unit.is_last, -1, log_bytes, mapping, live, believed)
        self._checks = IndexChecks(log, found)
        whole = unit.partition is not None and not unit.path.endswith(".kafka")
        for kind, path in (
            (FileKind.INDEX, unit.index),
            (FileKind.TIMEINDEX, unit.time_index),
            (FileKind.TXNINDEX, unit.txn_index),
        ):
            if path is not None or whole or kind is FileKind.TXNINDEX:
                with found.noting_unreadable():
                    self._add(kind, path)

    def _add(self, kind: FileKind, path: str | None) -> None:
        size = self._checks.add(kind, path)
        self.files += size >= 0
        self.bytes += max(size, 0)

    def feed(self, table: BatchTable) -> None:
        """Compare with the batches of a table."""
        self._checks.feed(table)

    def finish(self, log: LogFile, stop: StopReason) -> TxnTrail | None:
        """Judge what is left; answers what there is to know of transactions."""
        return self._checks.finish(stop, log.headers)
