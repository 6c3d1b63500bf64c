"""From walked batches to record columns: only the fields asked for, a bounded piece at a time.

`decode` turns lent bytes and the headers that a walk found in them into `RecordColumns`, a piece at
a time, each bounded in rows and bytes. Refuses to know files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg import _core
from kseg._kernels import frames as _frames
from kseg._kernels import legacy as _legacy
from kseg.errors import KsegError
from kseg.format.bodies import (
    BASE_OFFSET,
    END,
    START,
    STATE_FIELDS,
    STATE_KEPT,
    Bodies,
    each_bodies,
    record_error,
)
from kseg.format.header import CODEC_MASK
from kseg.format.reader import End, PieceReader
from kseg.format.request import (
    BYTES_MAX,
    FIELDS,
    FIELDS_DEFAULT,
    INFLATED_BYTES_MAX,
    ROWS_MAX,
    Request,
    narrow,
)
from kseg.format.shared import Shared, common_timestamp_type
from kseg.format.values import (
    RECORD_FIELDS,
    BinaryColumn,
    HeadersColumn,
    Record,
    RecordColumns,
    freeze,
)
from kseg.format.workspace import Plan, Workspace

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable

    Array = npt.NDArray[Any]
    OnError = Callable[[KsegError], None]

_COPY_SLACK = 64
#: Keys and values of bodies up to this size are copied while they are located.
_AT_ONCE_BYTES_MAX = 4 << 20
_SPAN_FIELDS = 6
_SPAN_KEY, _SPAN_VALUE = 0, 2


def decode(
    data: memoryview,
    table: BatchTable,
    request: Request,
    *,
    base: int = 0,
    source: str | None = None,
    workspace: Workspace | None = None,
    on_error: OnError | None = None,
) -> Iterator[RecordColumns]:
    """The records of walked batches, as columns.

    Args:
        data: bytes of the file from `base` on, all batches of `table` inside; lent until the
            iterator is used up.
        table: headers from `scan`, narrowed or not.
        request: which records and fields.
        base: file position of `data[0]`.
        source: the name of the file, for the columns.
        workspace: memory to use again.
        on_error: called with each fault instead of raising it; the batch's other records are lost,
            the next go on.

    Yields:
        Pieces in file order, none empty.

    Raises:
        FormatError, LimitExceededError: with position and offset of the batch, after the records in
            front of it.
    """
    workspace = workspace or Workspace()
    table = narrow(table, request)
    where = request, workspace, base, source, on_error
    if table.kafka07:
        yield from decode_with_care(data, table, *where)
        return
    reader, first = PieceReader(request, workspace, source=source), 0
    while True:
        reader.move(first)
        end = reader.read_table(data, table, base=base)
        yield from reader.pieces()
        first = reader.at
        if end is End.END:
            return
        if end is not End.FULL:
            until = first + 1
            if end is End.OTHER:
                until = max(until, _other_end(table, first))
            yield from decode_with_care(data, table.take(slice(first, until)), *where)
            first = until


def _other_end(table: BatchTable, first: int) -> int:
    """The end of the batches from `first` on that are compressed.

    A batch that is not inflated in one pass is seldom alone.
    """
    plain = np.flatnonzero(table.attributes[first:] & CODEC_MASK == 0)
    return first + int(plain[0]) if len(plain) else len(table)


def decode_with_care(
    data: memoryview,
    table: BatchTable,
    request: Request,
    workspace: Workspace,
    base: int,
    source: str | None,
    on_error: OnError | None,
) -> Iterator[RecordColumns]:
    """`decode` of narrowed batches of any format, step by step, each fault in words."""
    kind = common_timestamp_type(table) if workspace.plan(request).wants_types else None
    pieces = each_bodies(
        data,
        table,
        base=base,
        arena=workspace.arena,
        inflated_max=request.inflated_max,
        refuse_bad_crc=request.verify_crc,
    )
    for bodies in pieces:
        if len(bodies.rows):
            given = data, table, bodies, request, workspace, source, kind
            yield from _decode_bodies(*given, on_error)
        if bodies.fault is not None:
            _report(bodies.fault, on_error)


def _report(error: KsegError, on_error: OnError | None) -> None:
    if on_error is None:
        raise error
    on_error(error)


@dataclass(slots=True)
class _Located:
    """One piece, located: which rows of which bodies, and where their parts lie."""

    rows: int
    first_row: Array
    first_offsets: Array | None  # of the records, where the bodies do not say them
    offsets: Array
    timestamps: Array
    spans: Array
    valid: Array  # uint8 a row: whether a message inside a wrapper matches its checksum; or empty
    state: list[int]
    columns: dict[str, tuple[Array, Array, Array]]  # keys and values that are copied already


_EMPTY = np.empty(0, np.int64)
_NO_SPANS = np.empty((0, _SPAN_FIELDS), np.int32)
_NO_VALID = np.empty(0, np.uint8)


def _decode_bodies(
    data: memoryview,
    table: BatchTable,
    bodies: Bodies,
    request: Request,
    workspace: Workspace,
    source: str | None,
    kind: int | None,
    on_error: OnError | None,
) -> Iterator[RecordColumns]:
    """Locate and gather until every body is used up."""
    count = len(bodies.rows)
    plan = workspace.plan(request)
    state = np.zeros(STATE_FIELDS, np.int64)
    arena = workspace.arena.view()
    # More records cannot lie in the bodies, whatever their headers count.
    left = count if table.kafka07 else _frames.records_bound(bodies.rows)
    while True:
        rows_max = min(left, request.rows_max)
        if table.kafka07:
            located = _locate_07(bodies, request, state)
        else:
            located = _locate(data, arena, bodies, plan, workspace, state, rows_max)
        body, record, rows, status = (located.state[index] for index in (0, 1, 5, 6))
        if rows:
            left -= rows
            arrays = _build(data, arena, table, bodies, request, workspace, located)
            types: int | Array | None = kind
            if kind is None and plan.wants_types:
                types = _share(table, bodies, located).column("timestamp_type")
            yield RecordColumns(rows, arrays, source, timestamp_types=types)
            del arrays
        # Nothing here may hold the columns' memory when the next piece asks for some.
        del located
        if status:
            header = table[int(bodies.batches[body])]
            _report(record_error(status, header, record), on_error)
            state[:] = 0
            body += 1
            state[0] = body
        if body >= count:
            return
        state[STATE_KEPT:] = 0


def _locate(
    data: memoryview,
    arena: memoryview,
    bodies: Bodies,
    plan: Plan,
    workspace: Workspace,
    state: Array,
    rows_max: int,
) -> _Located:
    offsets = workspace.empty(rows_max, np.int64) if plan.wants_offset else _EMPTY
    timestamps = workspace.empty(rows_max, np.int64) if plan.wants_timestamp else _EMPTY
    columns = _columns(bodies, plan, workspace, rows_max)
    wants_spans = plan.wants_headers or len(columns) < len(plan.binary)
    spans = workspace.spans_for(rows_max) if wants_spans else _NO_SPANS
    first_row = np.empty(len(bodies.rows) + 1, np.int64)
    first_offsets: Array | None = None
    valid = _NO_VALID
    arguments: dict[str, Any] = {
        "within": plan.within,
        "rows_max": rows_max,
        "bytes_max": plan.bytes_max,
        "offsets": offsets,
        "timestamps": timestamps,
        "spans": spans,
        "first_row": first_row,
        "state": state,
    }
    if bodies.legacy:
        first_offsets = bodies.rows[:, BASE_OFFSET].copy()
        if plan.notes_valid:
            valid = np.empty(rows_max, np.uint8)
        _legacy.locate_messages(
            data,
            arena,
            bodies.rows,
            check_crc=plan.request.verify_crc,
            valid=valid,
            first_offsets=first_offsets,
            **arguments,
        )
    else:
        keys, values = columns.get("key"), columns.get("value")
        _core.locate_records(data, arena, bodies.rows, keys=keys, values=values, **arguments)
    found = state.tolist()
    return _Located(
        found[5], first_row, first_offsets, offsets, timestamps, spans, valid, found, columns
    )


def _columns(
    bodies: Bodies, plan: Plan, workspace: Workspace, rows_max: int
) -> dict[str, tuple[Array, Array, Array]]:
    """Room for keys and values that are copied while they are located, in pieces of modest size.

    Their sizes are not known yet, so each gets room for all bytes of all bodies.
    """
    if bodies.legacy or not plan.binary:
        return {}
    room = _frames.bytes_bound(bodies.rows)
    if room > _AT_ONCE_BYTES_MAX:
        return {}
    new = workspace.empty
    return {
        name: (
            new(rows_max + 1, np.int32),
            new(room + _COPY_SLACK, np.uint8),
            np.zeros((rows_max + 7) // 8, np.uint8),
        )
        for name in plan.binary
    }


def _locate_07(bodies: Bodies, request: Request, state: Array) -> _Located:
    """Kafka 0.7: every body is one payload; it has no key, no time and no headers."""
    rows = bodies.rows
    begin = int(state[0])
    sizes = rows[begin:, END] - rows[begin:, START]
    starts = rows[begin:, BASE_OFFSET]
    least, last, earliest, latest = request.within.tolist()
    keep = (starts >= least) & (starts <= last) & (earliest <= -1 <= latest)
    used = np.cumsum(np.where(keep, sizes, 0))
    fits = (np.cumsum(keep) <= request.rows_max) & (used <= request.bytes_max)
    taken = max(1, int(np.searchsorted(~fits, True)))
    chosen = keep[:taken]
    first_row = np.zeros(len(rows) + 1, np.int64)
    first_row[begin + 1 : begin + taken + 1] = np.cumsum(chosen)
    count = int(chosen.sum())
    first_row[begin + taken :] = count
    spans = np.zeros((count, _SPAN_FIELDS), np.int32)
    spans[:, 1] = -1
    spans[:, 3] = sizes[:taken][chosen]
    offsets = starts[:taken][chosen]
    state[0] = begin + taken
    found = [0] * STATE_FIELDS
    found[0], found[5] = begin + taken, count
    found[8], found[9] = count, int(spans[:, 3].sum())
    times = np.full(count, -1, np.int64)
    return _Located(count, first_row, None, offsets, times, spans, _NO_VALID, found, {})


# ---- building the columns ------------------------------------------------------------------------


def _build(
    data: memoryview,
    arena: memoryview,
    table: BatchTable,
    bodies: Bodies,
    request: Request,
    workspace: Workspace,
    located: _Located,
) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    gather: _Gather | None = None
    shared: Shared | None = None
    for name in request.fields:
        if name == "offset":
            column: Any = located.offsets[: located.rows]
        elif name == "timestamp":
            column = located.timestamps[: located.rows]
        elif name in ("key", "value", "headers"):
            gather = gather or _Gather(data, arena, bodies, located, workspace)
            column = gather.headers() if name == "headers" else gather.binary(name)
        else:
            shared = shared or _share(table, bodies, located)
            column = shared.column(name)
            if name == "valid" and len(located.valid):
                column &= located.valid[: located.rows].view(np.bool_)
        freeze(column)
        arrays[name] = column
    return arrays


def _share(table: BatchTable, bodies: Bodies, located: _Located) -> Shared:
    first_offsets = located.first_offsets
    if first_offsets is None:
        first_offsets = bodies.rows[:, BASE_OFFSET]
    offsets = located.offsets[: located.rows]
    return Shared(table.take(bodies.batches), np.diff(located.first_row), first_offsets, offsets)


class _Gather:
    """Copies located bytes into Arrow's layout."""

    def __init__(
        self,
        data: memoryview,
        arena: memoryview,
        bodies: Bodies,
        located: _Located,
        workspace: Workspace,
    ):
        self.source = (data, arena, bodies.rows, located.first_row, located.spans)
        self.located = located
        self.new = workspace.empty

    def binary(self, name: str) -> BinaryColumn:
        """The key or value column."""
        rows, state = self.located.rows, self.located.state
        span, total, nulls = (
            (_SPAN_KEY, *state[7:9]) if name == "key" else (_SPAN_VALUE, *state[9:11])
        )
        if name in self.located.columns:
            offsets, data, validity = self.located.columns[name]
            return _binary(offsets[: rows + 1], data[:total], validity[: (rows + 7) // 8], nulls)
        offsets, data, validity = self._empty_binary(rows, total, nulls)
        _core.gather_bytes(*self.source, span, offsets, data, validity)
        return _binary(offsets, data[:total], validity, nulls)

    def headers(self) -> HeadersColumn:
        """The headers column."""
        rows = self.located.rows
        count, key_bytes, value_bytes, value_nulls = self.located.state[11:15]
        lists = self.new(rows + 1, np.int32)
        key_offsets, keys, no_bits = self._empty_binary(count, key_bytes, 0)
        value_offsets, values, validity = self._empty_binary(count, value_bytes, value_nulls)
        _core.gather_headers(
            *self.source, lists, key_offsets, keys, value_offsets, values, validity
        )
        return HeadersColumn(
            lists,
            _binary(key_offsets, keys[:key_bytes], no_bits, 0),
            _binary(value_offsets, values[:value_bytes], validity, value_nulls),
        )

    def _empty_binary(self, rows: int, total: int, nulls: int) -> tuple[Array, Array, Array]:
        """Offsets, data and validity to be filled, with the spare bytes that the kernels want."""
        validity = np.zeros((rows + 7) // 8, np.uint8) if nulls else _NO_BITS
        return self.new(rows + 1, np.int32), self.new(total + _COPY_SLACK, np.uint8), validity


_NO_BITS = np.empty(0, np.uint8)


def _binary(offsets: Array, data: Array, validity: Array, nulls: int) -> BinaryColumn:
    return BinaryColumn(offsets, data, validity if nulls else None, nulls)


__all__ = [
    "BYTES_MAX",
    "FIELDS",
    "FIELDS_DEFAULT",
    "INFLATED_BYTES_MAX",
    "RECORD_FIELDS",
    "ROWS_MAX",
    "BinaryColumn",
    "HeadersColumn",
    "Record",
    "RecordColumns",
    "Request",
    "Workspace",
    "decode",
    "narrow",
]
