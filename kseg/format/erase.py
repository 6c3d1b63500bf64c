"""Which records of a batch are erased, and the batch without them.

A record goes if its key is one of some keys, or its offset lies in a range. Markers never go. A
batch that loses a record keeps its offsets, its producer's fields and its delete horizon. Others
keep their bytes.

A record is emptied instead, so that only its offset and its times stay, if it is the last of a
compressed wrapper of magic 0 or 1, or the last of the log in these magics: no batch of them can
say that it ends after its records. With `tombstones` the last record of each key is emptied, and
keeps the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kseg._kernels.offset_map import OffsetMap
from kseg.constants import COMPACTION_RULES, INT64_MAX, Bools, Int64s
from kseg.documents import frozen_dataclass
from kseg.format.columns import WholeBatches, decode_whole
from kseg.format.header import BatchTable
from kseg.format.located import Known, Retention, Verdict
from kseg.format.reader import Workspace
from kseg.format.request import ANY_RECORD, FIELDS_DEFAULT, HAS_VALUE, Needle, Request, key_needle
from kseg.format.retain import Filtered, filter_walked
from kseg.format.take import gather, take_binary, take_headers
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, binary_column

#: The rules of compaction by which batches of magic 0 and 1 keep their magic.
_RULES: Final = COMPACTION_RULES[0]
_NO_HORIZON: Final = -1
#: The fields by which records are found, and by which they are emptied.
_SEARCHED: Final = ("offset", "key")
_JUDGED: Final = (*_SEARCHED, HAS_VALUE, "headers")


class KeySet:
    """A set of keys to compare many records with at once; 48 bytes of memory for each key."""

    __slots__ = ("_map",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take the keys."""
        self._map = OffsetMap(2 * len(keys) + 2, len(keys) + 1, secrets.token_bytes(16))
        self.add(binary_column(keys), np.ones(len(keys), np.int64))

    def add(self, keys: BinaryColumn, offsets: Int64s) -> None:
        """Note the last offset of each key."""
        valid = keys.is_valid().view(np.uint8)
        self._map.put(keys.data, keys.offsets, valid, offsets)

    def has_none_after(self, keys: BinaryColumn, offsets: Int64s) -> Bools:
        """bool[n]: which keys were not noted at a later offset; false for no key."""
        out = np.empty(len(keys), np.uint8)
        valid = keys.is_valid().view(np.uint8)
        self._map.latest(keys.data, keys.offsets, valid, offsets, -1, out)
        return out.view(np.bool_)

    def holds(self, keys: BinaryColumn) -> Bools:
        """Which keys are in the set, bool[n]; false for null."""
        unknown = self.has_none_after(keys, np.zeros(len(keys), np.int64))
        return keys.is_valid() & ~unknown


@frozen_dataclass
class Targets:
    """The records that are erased.

    Attributes:
        keys: all records with one of these keys.
        null_key: all records without a key.
        offsets: records with these offsets; None for no offsets.
        tombstones: the last record of each key stays without its value and headers.
    """

    keys: tuple[bytes, ...] = ()
    null_key: bool = False
    offsets: range | None = None
    tombstones: bool = False

    def __post_init__(self) -> None:
        """Refuse to erase nothing, and a range that is not one.

        Raises:
            ValueError: there is no key and no offset, or offsets together with keys.
        """
        by_key = bool(self.keys) or self.null_key
        if by_key == (self.offsets is not None):
            raise ValueError("records are erased by their keys, or by their offsets")
        if self.offsets is not None and (self.offsets.step != 1 or not self.offsets):
            raise ValueError(f"offsets are a range that is not empty, unlike {self.offsets!r}")
        if self.tombstones and not self.keys:
            raise ValueError("tombstones belong to keys")

    @property
    def needle(self) -> Needle:
        """Bytes that a batch must have if one of its records can be among the targets."""
        is_one_key = len(self.keys) == 1 and not self.null_key
        return key_needle(self.keys[0]) if is_one_key else ANY_RECORD

    def reached(self, table: BatchTable) -> Bools:
        """The data batches that can have such records, according to their headers, bool[n]."""
        reached: Bools = ~table.is_control
        if self.offsets is not None:
            # The first offset of a wrapper is known only once it is inflated.
            begins = table.is_wrapper | (table.base_offset < self.offsets.stop)
            reached &= begins & (table.last_offset >= self.offsets.start)
        return reached


@dataclass(slots=True, eq=False)
class Erased:
    """The records of some batches that are erased.

    Attributes:
        batches: bool[n], the batches that change.
        edited: bool[n], those in which a record is emptied.
        goes: bool[k], the records that go, of all records of the batches that change, in order.
        emptied: bool[k], those that are emptied.
    """

    batches: Bools
    edited: Bools
    goes: Bools
    emptied: Bools

    @property
    def records(self) -> int:
        """How many records are erased."""
        return int(np.count_nonzero(self.goes)) + int(np.count_nonzero(self.emptied))


@dataclass(slots=True, eq=False)
class Eraser:
    """Finds the records of one log to erase, and writes its batches without them.

    The methods take `data`, bytes of the file from `base` on; `table`, headers of whole batches in
    it, whose checksums are right; and `base`, the file position of `data[0]`. They raise a
    FormatError or LimitExceededError for a batch that is damaged.

    Attributes:
        targets: the records.
        keys: the keys of the targets.
        log_end_offset: the end of the log.
        stays_empty: bool[n] for a table: the batches that stay as a header if no record does.
        last_records: the last offset of each key; filled by `note_last` for `tombstones`.
    """

    targets: Targets
    keys: KeySet
    log_end_offset: int
    stays_empty: Callable[[BatchTable], Bools]
    last_records: KeySet | None = None
    _workspace: Workspace = field(default_factory=Workspace, init=False)

    @property
    def request(self) -> Request:
        """A request for the columns that `means` needs, and for as few others as possible."""
        return Request(columns=_SEARCHED, offset=self.targets.offsets, contains=self.targets.needle)

    def means(self, columns: RecordColumns) -> Bools:
        """bool[n]: the records with a key or an offset that is meant; see `request`."""
        targets = self.targets
        if targets.offsets is not None:
            offsets = columns["offset"]
            meant: Bools = (offsets >= targets.offsets.start) & (offsets < targets.offsets.stop)
            return meant
        meant = self.keys.holds(columns["key"])
        return meant | ~columns["key"].is_valid() if targets.null_key else meant

    def note_last(self, data: memoryview, table: BatchTable, base: int) -> None:
        """Note where the keys occur, for `tombstones`."""
        if self.last_records is None:
            self.last_records = KeySet(self.targets.keys)
        for whole in self._decode_marked(data, table, self.targets.reached(table), base, _SEARCHED):
            rows = np.flatnonzero(self._matches(whole, table))
            keys = take_binary(whole.columns["key"], rows)
            self.last_records.add(keys, whole.columns["offset"][rows])

    def find(self, data: memoryview, table: BatchTable, base: int) -> Erased:
        """Find the records that are erased."""
        reached, changed = self.targets.reached(table), np.zeros(len(table), np.bool_)
        parts = [changed[:0]]
        for whole in self._decode_marked(data, table, reached, base, _SEARCHED):
            meant = self._matches(whole, table)
            changes = np.logical_or.reduceat(meant, whole.ends[:-1])
            changed[whole.batches] = changes
            parts.append(meant[np.repeat(changes, whole.counts)])
        meant = np.concatenate(parts)
        ends_log = table.last_offset == self.log_end_offset - 1
        may_empty = changed & (table.is_wrapper | ((table.magic < 2) & ends_log))
        if self.last_records is None and not may_empty.any():
            none = np.zeros_like(changed)
            return Erased(changed, none, meant, np.zeros_like(meant))
        return self._judge_records(data, table, base, changed, meant)

    def measured(
        self, data: memoryview, table: BatchTable, base: int, matches: Erased
    ) -> tuple[int, int, int]:
        """Measure what is erased: the first and the last offset, and the bytes of the records.

        Args:
            matches: the records to erase; at least one.
            matches: with one record at least.
        """
        first, last, size = INT64_MAX, -1, 0
        erased_of_next = _next_marks(matches.goes | matches.emptied)
        for whole in self._decode_marked(data, table, matches.batches, base, FIELDS_DEFAULT):
            rows = np.flatnonzero(erased_of_next(len(whole.columns)))
            if len(rows):
                offsets = whole.columns["offset"][rows]
                first, last = min(first, int(offsets[0])), int(offsets[-1])
                size += _bytes_of(whole.columns, rows)
        return first, last, size

    def rewrite(self, data: memoryview, table: BatchTable, base: int) -> Filtered:
        """The batches without the records that are erased."""
        erased = self.find(data, table, base)
        stays_empty = self.stays_empty(table) & (table.magic >= 2)
        retention = np.where(stays_empty, Retention.RETAIN_EMPTY, Retention.DELETE_EMPTY)
        fates = np.where(erased.batches, Known.NOTHING, Known.ALL_STAY)
        verdict = Verdict(
            retention.astype(np.uint8), None, fates.astype(np.uint8), edited=erased.edited
        )
        emptied, goes = _next_marks(erased.emptied), _next_marks(erased.goes)

        def edit(whole: WholeBatches) -> WholeBatches:
            columns, rows = whole.columns, emptied(len(whole.columns))
            if not rows.any():
                return whole
            return replace(
                whole, columns=_empty_records(columns, rows, rows & ~self._is_last(columns))
            )

        return filter_walked(
            data,
            table,
            verdict,
            lambda whole: ~goes(len(whole.columns)),
            edit=edit,
            base=base,
            horizon_ms=_NO_HORIZON,
            rules=_RULES,
            workspace=self._workspace,
        )

    # ---- the records of batches ------------------------------------------------------------------

    def _decode_marked(
        self,
        data: memoryview,
        table: BatchTable,
        batches: Bools,
        base: int,
        fields: tuple[str, ...],
    ) -> Iterator[WholeBatches]:
        """The records of the marked batches, with the batches' numbers in the whole table."""
        numbers = np.flatnonzero(batches)
        if not len(numbers):
            return
        pieces = decode_whole(
            data,
            table.take(numbers),
            base=base,
            fields=fields,
            verify_crc=False,
            workspace=self._workspace,
            contains=self.targets.needle,
        )
        for whole in pieces:
            yield replace(whole, batches=numbers[whole.batches])

    def _matches(self, whole: WholeBatches, table: BatchTable) -> Bools:
        """bool[n]: the records of data that have a key or an offset that is meant."""
        return self.means(whole.columns) & ~whole.spread(table.is_control)

    def _is_last(self, columns: RecordColumns) -> Bools:
        """The last record of each key, if it stays without its value, bool[n]."""
        if self.last_records is None:
            return np.zeros(len(columns), np.bool_)
        keys = columns["key"]
        last = self.last_records.has_none_after(keys, columns["offset"])
        return last & self.keys.holds(keys)

    def _judge_records(
        self, data: memoryview, table: BatchTable, base: int, changed: Bools, meant: Bools
    ) -> Erased:
        """The records to remove, and those to empty, unless they are empty already.

        Args:
            data, table, base: as for `find`.
            changed: bool[n], the batches with a record to erase.
            meant: bool[k], which of their records are to be erased.
        """
        erased = Erased(np.zeros_like(changed), np.zeros_like(changed), meant, meant)
        goes, emptied, meant_of = [meant[:0]], [meant[:0]], _next_marks(meant)
        for whole in self._decode_marked(data, table, changed, base, _JUDGED):
            columns, old = whole.columns, whole.spread(table.magic < 2)
            keeps_key = self._is_last(columns)
            # Records that stay without their value: the last of the log and of a wrapper, by which
            # offsets are known, and tombstones. Of these, `empty` have nothing to lose.
            stays = old & (columns["offset"] == self.log_end_offset - 1) | keeps_key
            stays[whole.ends[1:] - 1] |= table.is_wrapper[whole.batches]
            empty = ~columns[HAS_VALUE] & (np.diff(columns["headers"].offsets) == 0)
            empty &= keeps_key | ~columns["key"].is_valid()
            here = meant_of(len(columns)) & ~(stays & empty)
            changes = np.logical_or.reduceat(here, whole.ends[:-1])
            erased.batches[whole.batches] = changes
            erased.edited[whole.batches] = np.logical_or.reduceat(here & stays, whole.ends[:-1])
            in_changed = np.repeat(changes, whole.counts)
            goes.append((here & ~stays)[in_changed])
            emptied.append((here & stays)[in_changed])
        erased.goes, erased.emptied = np.concatenate(goes), np.concatenate(emptied)
        return erased


def _next_marks(marks: Bools) -> Callable[[int], Bools]:
    """A function that returns the next `count` marks at each call."""
    at = 0

    def take(count: int) -> Bools:
        nonlocal at
        at += count
        return marks[at - count : at]

    return take


def _bytes_of(columns: RecordColumns, rows: Int64s) -> int:
    """The bytes of the keys, values and headers of some rows."""
    headers = take_headers(columns["headers"], rows)
    count = len(headers.keys.data) + len(headers.values.data)
    for name in ("key", "value"):
        count += int(np.maximum(columns[name].sizes()[rows], 0).sum())
    return count


def _empty_records(columns: RecordColumns, emptied: Bools, without_key: Bools) -> RecordColumns:
    """The records; some of them without value and headers, some of these without key too."""
    headers = columns["headers"]
    counts = np.where(emptied, 0, np.diff(headers.offsets))
    ends = np.zeros(len(columns) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    stay = np.flatnonzero(~np.repeat(emptied, np.diff(headers.offsets)))
    first = int(headers.offsets[0])
    arrays = {
        **columns.arrays,
        "key": _with_nulls(columns["key"], without_key),
        "value": _with_nulls(columns["value"], emptied),
        "headers": HeadersColumn(
            ends, take_binary(headers.keys, stay + first), take_binary(headers.values, stay + first)
        ),
    }
    return replace(columns, arrays=arrays)


def _with_nulls(column: BinaryColumn, rows: Bools) -> BinaryColumn:
    """The column with null in some rows."""
    spans = np.zeros((len(column), 3), np.int64)
    spans[:, 1] = column.offsets[:-1]
    spans[:, 2] = np.where(rows, -1, column.sizes())
    return gather(column.data.data, column.data.data, spans)
