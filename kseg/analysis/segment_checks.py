"""Examine one segment: a single walk over its log, with its indexes compared on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from kseg.analysis.findings import Findings
from kseg.analysis.index_checks import (
    IndexPlace,
    OffsetIndexChecks,
    TimeIndexChecks,
    TxnIndexChecks,
)
from kseg.analysis.log_checks import LogChecks
from kseg.analysis.values import Examined, SegmentSummary
from kseg.constants import StopReason
from kseg.errors import CorruptRecordError, UnreadableError
from kseg.files.log_file import LogFile, OnUnreadable
from kseg.files.mapping import held_by_another
from kseg.format.header import FIELDS, TRANSACTIONAL
from kseg.log.recovery import Lost, lost_ranges

if TYPE_CHECKING:
    from kseg.analysis.units import Unit
    from kseg.files.mapping import Mapping
    from kseg.format.header import BatchTable

#: Tiles are joined until they have so many batches: a megabyte of headers.
_ROWS_JOINED = 8192


def examine_segment(unit: Unit, *, deep: bool, inflated_max: int, mapping: Mapping) -> Examined:
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
        checks = LogChecks(unit.path, unit.base_offset, unit.is_last, deep, inflated_max, found)
        indexes = _Indexes(unit, size, mapping, found, live=live)
        stop, kafka07 = StopReason.LIMIT, log.kafka07
        unreadable: list[UnreadableError] = []
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
            missing = indexes.finish(StopReason.BAD_CRC if checks.bad_crc_count else stop)
            if missing and not unreadable:
                _report_missing_aborts(log, missing, unit, found)
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
    """The indexes of the segment that exist, and findings for those that are missing."""

    def __init__(
        self, unit: Unit, log_bytes: int, mapping: Mapping, found: Findings, *, live: bool
    ) -> None:
        self.files = self.bytes = 0
        self._offset: OffsetIndexChecks | None = None
        self._time: TimeIndexChecks | None = None
        base = unit.base_offset or 0
        self._base, self._unit, self._mapping = base, unit, mapping
        self._live = live
        log = IndexPlace(unit.path, base, unit.is_last, log_bytes, mapping, self._live)
        if unit.index is not None:
            with found.noting_unreadable():
                self._offset = OffsetIndexChecks(self._place(unit.index), found)
        elif unit.partition is not None and log_bytes and not unit.path.endswith(".kafka"):
            found.add(
                "index-missing",
                unit.path,
                "there is no offset index beside the log",
                severity="warning" if unit.is_last else "error",
            )
        if unit.time_index is not None:
            with found.noting_unreadable():
                self._time = TimeIndexChecks(self._place(unit.time_index), found)
        elif unit.wants_time_index and log_bytes:
            found.add("time-index-missing", unit.path, "there is no time index beside the log")
        txn = None if unit.txn_index is None else self._place(unit.txn_index)
        self._txn = TxnIndexChecks(txn, log, found)

    def _place(self, path: str) -> IndexPlace:
        size = os.stat(path).st_size
        self.files += 1
        self.bytes += size
        return IndexPlace(path, self._base, self._unit.is_last, size, self._mapping, self._live)

    def feed(self, table: BatchTable) -> None:
        """Compare with the batches of a table."""
        if self._offset is not None:
            self._offset.feed(table)
        if self._time is not None:
            self._time.feed(table)
        self._txn.feed(table)

    def finish(self, stop: StopReason) -> tuple[int, ...]:
        """Check the remaining entries; returns abort markers that have no entry."""
        if self._offset is not None:
            self._offset.finish(stop)
        if self._time is not None:
            self._time.finish(stop)
        return self._txn.finish(stop)


def _report_missing_aborts(
    log: LogFile, markers: tuple[int, ...], unit: Unit, found: Findings
) -> None:
    """Report abort markers without an entry whose records lie in this segment.

    Rare, hence a walk of its own. A transaction without records has no entry. One whose records lie
    in earlier segments only, or were compacted away, is not reported.
    """
    wanted = set(markers)
    open_since: dict[int, int] = {}
    for tile in log.walk(on_bad_crc="note"):
        table = tile.table
        if not table.attributes_seen & TRANSACTIONAL:
            continue
        chosen = table.is_transactional & (table.record_count > 0) & (table.crc_ok != 0)
        columns = (table.base_offset, table.producer_id, table.is_control, table.position)
        rows = np.stack([column[chosen] for column in columns]).T.tolist()
        for offset, producer, control, position in rows:
            if not control:
                open_since.setdefault(producer, offset)
                continue
            since = open_since.pop(producer, None)
            if offset in wanted and since is not None:
                found.add(
                    "txn-index-incomplete",
                    unit.txn_index or unit.path,
                    f"producer {producer} aborted its records from offset {since} on at offset "
                    f"{offset}, position {position}; no entry says so",
                    offset=offset,
                    severity="warning" if unit.is_last else "error",
                )
