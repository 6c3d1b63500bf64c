"""From walked batches to record columns: only the fields asked for, a bounded piece at a time.

`decode` turns borrowed bytes and the headers that a walk found in them into `RecordColumns`, a
piece at a time, each bounded in rows and bytes. Refuses to know files.

Records of many batches in few pieces that cut no batch, for rewriting.

Reading bounds its pieces in rows and bytes. Rewriting needs every record of a batch at once, so
here a piece is bounded by the bytes at hand, and by the arena for what is compressed. In Kafka 0.7
a compressed set of very many messages still comes in several pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kseg.constants import INT32_MAX, NO_TIMESTAMP, Array, Int64s, StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import FormatError, KsegError, LimitExceededError, OnError
from kseg.format.bodies import Payloads, at_batch, body_of, each_payload, record_error
from kseg.format.header import CODEC_MASK, BatchHeader, BatchTable, crc_error, stop_error
from kseg.format.reader import End, PieceReader, Shared, Workspace
from kseg.format.request import (
    ANY_RECORD,
    FIELDS_DEFAULT,
    INFLATED_BYTES_MAX,
    Needle,
    Request,
    narrow,
)
from kseg.format.take import gather
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, freeze


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
        data: bytes of the file from `base` on, all batches of `table` inside; borrowed
            until the iterator is used up.
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
        FormatError, LimitExceededError: with position and offset of the batch, after the records
            before it.
    """
    workspace = workspace or Workspace()
    table = narrow(table, request)
    where = request, workspace, base, source, on_error
    if table.kafka07:
        yield from _decode_07(data, table, *where)
        return
    reader, first = PieceReader(request, workspace, source=source), 0
    while True:
        reader.kernel.move(first)
        end = reader.read_table(data, table, base=base)
        yield from reader.pieces()
        first = reader.kernel.at
        if end is End.END:
            return
        if end is not End.FULL:
            until = first + 1
            if end is End.OTHER:
                until = max(until, _compressed_end(table, first))
            yield from decode_with_care(data, table.take(slice(first, until)), *where)
            first = until


def _compressed_end(table: BatchTable, first: int) -> int:
    """The number of the first batch after `first` without a codec; the table's length if none is.

    A compressed batch that the reader cannot inflate in one pass is seldom the only one. So all
    compressed batches after it are read with care, too.
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
    """`decode` for narrowed batches, one at a time and record by record, with detailed errors."""
    reader = PieceReader(request, workspace, source=source)
    for index in range(len(table)):
        batch = table.take(slice(index, index + 1))
        try:
            body = body_of(
                data,
                batch,
                base=base,
                arena=workspace.arena,
                inflated_max=request.inflated_max,
                refuse_bad_crc=request.verify_crc,
            )
        except (FormatError, LimitExceededError) as error:
            _report(error, on_error)
            continue
        status, record = yield from reader.read_alone(data, batch, body, base=base)
        if status:
            _report(record_error(status, batch[0], record), on_error)


def _report(error: KsegError, on_error: OnError | None) -> None:
    if on_error is None:
        raise error
    on_error(error)


# ---- Kafka 0.7 -----------------------------------------------------------------------------------


def _decode_07(
    data: memoryview,
    table: BatchTable,
    request: Request,
    workspace: Workspace,
    base: int,
    source: str | None,
    on_error: OnError | None,
) -> Iterator[RecordColumns]:
    """`decode` for messages without key, time and headers, which may be in nested sets."""
    types = -1 if workspace.plan(request).wants_types else None
    payload_groups = each_payload(
        data,
        table,
        base=base,
        arena=workspace.arena,
        inflated_max=request.inflated_max,
        refuse_bad_crc=request.verify_crc,
    )
    for payloads in payload_groups:
        sources = data, workspace.arena.view()
        for chosen in _pieces_of(payloads, request):
            arrays = _payload_columns(sources, table, payloads, chosen, request)
            yield RecordColumns(len(chosen), arrays, source, timestamp_types=types)
        if payloads.fault is not None:
            _report(payloads.fault, on_error)


def _pieces_of(payloads: Payloads, request: Request) -> Iterator[Array]:
    """The numbers of the selected payloads, at most as many at a time as a piece may have."""
    least, last, earliest, latest = request.within.tolist()
    if not earliest <= NO_TIMESTAMP <= latest:
        return  # no message of Kafka 0.7 has a time
    chosen = np.flatnonzero((payloads.offsets >= least) & (payloads.offsets <= last))
    used = np.concatenate(([0], np.cumsum(payloads.spans[chosen, 2])))
    bytes_max = min(request.max_bytes, INT32_MAX)
    first = 0
    while first < len(chosen):
        end = int(np.searchsorted(used, used[first] + bytes_max, "right")) - 1
        end = min(max(end, first + 1), first + request.max_rows)
        yield chosen[first:end]
        first = end


def _payload_columns(
    sources: tuple[memoryview, memoryview],
    table: BatchTable,
    payloads: Payloads,
    chosen: Array,
    request: Request,
) -> dict[str, Any]:
    """The columns of the `chosen` messages of Kafka 0.7."""
    rows = len(chosen)
    offsets = payloads.offsets[chosen]
    shared = Shared(table.take(payloads.batches[chosen]), np.ones(rows, np.int64), offsets, offsets)
    arrays: dict[str, Any] = {}
    for name in request.columns:
        if name == "offset":
            column: Any = offsets
        elif name == "timestamp":
            column = np.full(rows, -1, np.int64)
        elif name == "key":
            column = _no_bytes(rows, nulls=rows)
        elif name == "headers":
            lists = np.zeros(rows + 1, np.int32)
            column = HeadersColumn(lists, _no_bytes(0), _no_bytes(0))
        elif name == "value":
            column = gather(*sources, payloads.spans[chosen])
        else:
            column = shared.column(name)
        freeze(column)
        arrays[name] = column
    return arrays


def _no_bytes(rows: int, *, nulls: int = 0) -> BinaryColumn:
    bits = np.zeros((rows + 7) // 8, np.uint8) if nulls else None
    return BinaryColumn(np.zeros(rows + 1, np.int32), np.empty(0, np.uint8), bits, nulls)


_FIRST = np.zeros(1, np.int64)
_DAMAGED = (StopReason.BAD_LENGTH, StopReason.BAD_MAGIC, StopReason.BAD_CRC)


@frozen_dataclass(eq=False)
class WholeBatches:
    """Records of some batches.

    Attributes:
        columns: their records in file order.
        batches: int64[m], the row of each batch in the table asked for. Batches without records do
            not occur.
        ends: int64[m + 1]; batch `i` has the rows `ends[i]` to `ends[i + 1]`.
    """

    columns: RecordColumns
    batches: Int64s
    ends: Int64s

    @property
    def counts(self) -> Int64s:
        """int64[m]: records of each batch."""
        return np.diff(self.ends)

    def spread(self, values: Array) -> Array:
        """One value for each record, from one value for each batch of the table."""
        return np.repeat(values[self.batches], self.counts)


def decode_whole(
    data: memoryview,
    table: BatchTable,
    *,
    base: int = 0,
    fields: tuple[str, ...] = FIELDS_DEFAULT,
    verify_crc: bool = True,
    inflated_max: int = INFLATED_BYTES_MAX,
    workspace: Workspace | None = None,
    on_error: OnError | None = None,
    contains: Needle = ANY_RECORD,
) -> Iterator[WholeBatches]:
    """Decode the batches of a table, control batches too, without cutting any.

    Args:
        data: bytes of the file from `base` on, all batches of `table` inside.
        table: headers from `scan`, at rising positions.
        base: file position of `data[0]`.
        fields: as of `Request`; `position` is added.
        verify_crc: refuse batches, and messages in compressed ones, whose checksum is wrong.
        inflated_max: refuse batches that inflate to more bytes.
        workspace: memory to use again.
        on_error: called with each fault instead of raising it; a damaged batch yields only the
            records before the damage, if there are any.
        contains: as of `Request`.

    Raises:
        FormatError, LimitExceededError: as `kseg.format.columns.decode`.
    """
    request = Request(
        columns=(*fields, "position"),
        max_rows=INT32_MAX,
        max_bytes=INT32_MAX,
        control=True,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
        contains=contains,
    )
    pieces = decode(data, table, request, base=base, workspace=workspace, on_error=on_error)
    for columns in pieces:
        position = columns["position"]
        changes = np.flatnonzero(position[1:] != position[:-1]) + 1
        starts = np.concatenate((_FIRST, changes))
        batches = np.searchsorted(table.position, position[starts])
        yield WholeBatches(columns, batches, np.append(starts, len(columns)))


def refused_in(error: FormatError, header: BatchHeader, rows: Int64s | range) -> FormatError:
    """Name the batch in a writer's error, and count the record from the batch's first.

    Args:
        error: the error of one of the rows.
        header: the batch that the rows are from.
        rows: for each row written, its number in the batch.
    """
    if error.record_index is not None:
        error.record_index = int(rows[error.record_index])
    return at_batch(error, header)


def check_walk(table: BatchTable) -> None:
    """Raise the error of a walk that ended at damage; a cut batch or zeros at the end are fine.

    Raises:
        CorruptRecordError: a length, a magic or, where the walk noted it, a checksum is wrong.
    """
    if table.bad_crc_count:
        bad = np.flatnonzero(table.crc_ok == 0)
        if len(bad):
            raise crc_error(table[int(bad[0])])
    if table.stop in _DAMAGED:
        raise stop_error(table)
