"""Pieces of record columns, each filled by one kernel in one block of memory.

`PieceReader` borrows bytes, stretch after stretch, and gives `RecordColumns`. It reads batches
and messages of magic 0 to 2 that are in order, and stops before every other one, which it
reads alone when `kseg.format.columns` asks for that. Refuses to know files.

The columns of a piece lie in one block: a caller that keeps one of them keeps all of the block. A
column is made when it is first asked for. A `Workspace` is what a reader keeps between pieces: the
parsed request, and memory to use again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from kseg._kernels import reader as kernel
from kseg._kernels.blocks import Blocks
from kseg._kernels.located import Located
from kseg._kernels.reader import FIELD_BITS, BatchReader, Inflated
from kseg.constants import INT32_MAX, Array, ControlType, Int64s, Uint8s
from kseg.errors import CorruptRecordError
from kseg.format.codec import Arena
from kseg.format.header import (
    BATCH_FIELDS,
    BATCHES_MAX,
    BatchTable,
    join_tables,
    scan,
    sequence_after,
)
from kseg.format.request import BODY_BYTES_MAX, BYTES_MAX, HAS_VALUE, ROWS_MAX, Request
from kseg.format.values import RECORD_FIELDS, BinaryColumn, HeadersColumn, RecordColumns, freeze


class End(IntEnum):
    """The reasons why a reading stopped; the numbers are those of the kernel."""

    END = kernel.END  # the limit, or the end of the table
    FULL = kernel.FULL  # the next batch does not fit into the piece any more
    NO_ROOM = kernel.NO_ROOM  # the next batch does not fit into any piece
    MORE = kernel.MORE  # the next batch continues after the borrowed bytes
    ODD = kernel.ODD  # one batch that is unusual or damaged, or no batch at all
    OTHER = kernel.OTHER  # a compressed batch of a kind that is not read here
    PAST = kernel.PAST  # only offsets after the last requested one


_ENDS: Final = tuple(End)
#: The type of columns that are numbers.
_NUMBERS: Final[dict[str, type[np.generic]]] = {
    "offset": np.int64,
    "timestamp": np.int64,
    HAS_VALUE: np.bool_,
}


class PieceReader:
    """Fills one piece after another; belongs to one reading in one thread.

    Attributes:
        kernel: its state: `at` and `last`, the positions of the next batch and of the one before;
            `last_offset`, the largest in the headers so far; `needed` bytes after `End.MORE`. With
            `move` it goes on elsewhere.
    """

    __slots__ = ("_fields", "_plan", "_source", "_tables", "_workspace", "kernel")

    def __init__(self, request: Request, workspace: Workspace, *, source: str | None) -> None:
        """Read by a request, with the memory of a workspace.

        Args:
            request: which records and fields.
            workspace: memory to use again, and the sizes of the pieces before.
            source: the name of the file, for the columns.
        """
        self._plan = workspace.plan(request)
        self._fields = dict.fromkeys(request.columns)
        self._workspace = workspace
        self._source = source
        self.kernel = workspace.reader(self._plan)
        self._tables: list[BatchTable] = []

    def read(
        self,
        data: memoryview,
        *,
        base: int,
        limit: int,
        file_end: int,
        wanted_end: int | None = None,
    ) -> End:
        """Read on into the piece, from `at` on.

        Args:
            data: bytes `[base, base + len(data))` of a file, borrowed for this call.
            base: file position of `data[0]`.
            limit: no batch that starts here or later is read.
            file_end: the file's size.
            wanted_end: the possible end of further calls for the same piece, to estimate its size;
                the limit if None.
        """
        ends = limit if wanted_end is None else wanted_end
        start = self.kernel.at
        end = _ENDS[self.kernel.read(data, base, limit, file_end, ends)]
        if self._plan.shares and self.kernel.at > start:
            self._tables.append(
                scan(data, base=base, start=start, limit=self.kernel.at, on_bad_crc="ignore")
            )
        return end

    def read_table(self, data: memoryview, table: BatchTable, *, base: int) -> End:
        """Read on into the piece, from row `at` of a table on.

        Args:
            data: bytes of a file from `base` on, borrowed for this call.
            table: headers.
            base: file position of `data[0]`.
        """
        start = self.kernel.at
        end = _ENDS[self.kernel.read_table(data, table.rows, base)]
        if self._plan.shares and self.kernel.at > start:
            self._tables.append(table.take(slice(start, self.kernel.at)))
        return end

    def read_alone(
        self, data: memoryview, table: BatchTable, body: memoryview | None, *, base: int
    ) -> Generator[RecordColumns, None, tuple[int, int]]:
        """Pieces of the only batch of a table, which may be damaged, or too large for one piece.

        Args:
            data, base: as for `read_table`.
            table: one header.
            body: its inflated records; None for a batch that needs no inflating.

        Returns:
            The fault of the batch, 0 if there is none, and the number of the faulty record.

        Raises:
            CorruptRecordError: its bytes changed while they were read.
        """
        request = self._plan.request
        bounds = {
            "rows_max": min(request.max_rows, INT32_MAX),
            "bytes_max": min(request.max_bytes, INT32_MAX),
        }
        self.kernel.begin_one()
        goes_on = True
        while goes_on:
            try:
                goes_on, status, record = self.kernel.read_one(
                    data, table.rows[0], body, base=base, **bounds
                )
            except ValueError as error:
                raise CorruptRecordError(str(error)) from error
            if self._plan.shares:
                self._tables.append(table)
            yield from self.pieces()
        return status, record

    def pieces(self) -> Iterator[RecordColumns]:
        """The piece so far, if it has rows; the next piece begins here."""
        piece = self.take()
        if piece is not None:
            yield piece

    def take(self) -> RecordColumns | None:
        """The piece so far, None if it has no rows; the next piece begins here."""
        piece = self.kernel.take()
        if piece is None:
            self._tables.clear()
            return None
        batch_columns = self._batch_columns(piece) if self._plan.shares else {}
        types = piece.time_type if self._plan.wants_types else None
        columns = _Columns(self._fields, piece, batch_columns)
        return RecordColumns(piece.rows, columns, self._source, timestamp_types=types)

    def _batch_columns(self, piece: kernel.Piece) -> dict[str, Any]:
        """The columns that come from the batches of a piece."""
        tables = self._tables
        if sum(map(len, tables)) != piece.batches:
            raise CorruptRecordError("the bytes of a batch changed while they were read")
        counts, first_offsets = self._workspace.counts[:, : piece.batches]
        shared = Shared(
            tables[0] if len(tables) == 1 else join_tables(tables, 0),
            counts,
            first_offsets,
            _numbers(piece, "offset", np.int64),
            constants_once=self._plan.request.constants_once,
        )
        tables.clear()
        columns = {}
        for name in self._fields.keys() - kernel.FIELD_BITS.keys():
            column = shared.column(name)
            if name == "valid" and piece.has_matches:
                # Not in place: the column may hold one value for all rows.
                column = column & _numbers(piece, "matches", np.bool_)
            freeze(column)
            columns[name] = column
        return columns


class _Columns(Mapping[str, Any]):
    """The columns of a piece, keyed by name; keeps the block of the piece alive.

    A column is made when it is first used, so readers pay only for their columns.
    """

    __slots__ = ("_fields", "_made", "_piece")

    def __init__(self, fields: dict[str, None], piece: kernel.Piece, made: dict[str, Any]) -> None:
        self._fields = fields
        self._piece = piece
        self._made = made

    @property
    def nbytes(self) -> int:
        return len(self._piece.block)

    def __getitem__(self, name: str) -> Any:
        column = self._made.get(name)
        if column is None:
            if name not in self._fields:
                raise KeyError(name)
            column = self._made[name] = _column(self._piece, name)
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _column(piece: kernel.Piece, name: str) -> Any:
    """A column that the kernel has made for the piece."""
    if name == "headers":
        lists = _numbers(piece, "lists", np.int32)
        return HeadersColumn(lists, _strings(piece, "header_name"), _strings(piece, "header_value"))
    if name in _NUMBERS:
        return _numbers(piece, name, _NUMBERS[name])
    return _strings(piece, name)


def _numbers(piece: kernel.Piece, name: str, dtype: type[np.generic]) -> Array:
    count, start = piece.numbers(name)
    return _view(piece.block, dtype, count, start)


def _strings(piece: kernel.Piece, name: str) -> BinaryColumn:
    """A binary column over the memory of a piece."""
    count, ends, data, size, nulls, bits = piece.strings(name)
    block = piece.block
    return BinaryColumn(
        _view(block, np.int32, count + 1, ends),
        _view(block, np.uint8, size, data),
        _view(block, np.uint8, (count + 7) // 8, bits) if nulls else None,
        nulls,
    )


def _view(block: Any, dtype: type[np.generic], count: int, start: int) -> Array:
    """A part of a block, read-only."""
    array: Array = np.ndarray(count, dtype, block, start)
    array.setflags(write=False)
    return array


# ---- memory that is used again -------------------------------------------------------------------


#: Bytes of bodies in a piece with keys, values or headers: its columns are written while they are
#: in the second-level cache.
PIECE_BYTES: Final = 512 << 10
#: The same in a stream whose consumer lets pieces go: fewer objects for each outweigh that the end
#: of a piece leaves that cache.
STREAMED_BYTES: Final = 1 << 20
#: If a caller keeps so many pieces, it does not show yet that it keeps all.
_KEPT_FIRST: Final = 8
#: The use of pieces. "held": each is dropped, or kept, as it is. "streamed": a consumer that keeps
#: all gets larger ones. "kept": all are kept.
Use = Literal["held", "streamed", "kept"]
#: Takes bytes, and stretches of them that will be filled for sure; gives uint8[bytes].
Fresh = Callable[[int, Sequence[tuple[int, int]]], "Uint8s"]
#: For those: the bytes of a piece, as a multiple of the bytes kept so far, and the maximum.
GROWTH: Final[dict[str, dict[str, int]]] = {
    "streamed": {
        "growth": 1,
        "most": 32 << 20,
        "again_bytes": STREAMED_BYTES,
        "least_kept": _KEPT_FIRST,
    },
    "kept": {"growth": 4, "most": 1 << 30},
}


class Plan:
    """A request in the terms of the kernels; made once for each reader.

    Attributes:
        asked: the requested fields, and the bounds of a piece, as `BatchReader` accepts them.
        shares: a column comes from the batches rather than the records.
        wants_types: all that `RecordColumns.records` needs is wanted but for the type, which is
            cheap to know.
    """

    __slots__ = ("asked", "request", "shares", "wants_types")

    def __init__(self, request: Request, *, grows: bool = False) -> None:
        """Compute the plan.

        Args:
            request: the request.
            grows: unless the request sets bounds of its own, pieces may be larger than usual.
        """
        fields = set(request.columns)
        self.request = request
        self.wants_types = set(RECORD_FIELDS) - fields == {"timestamp_type"}
        self.shares = not fields <= FIELD_BITS.keys()
        read = fields & FIELD_BITS.keys()
        if "sequence" in fields:  # it follows from the offset
            read.add("offset")
        takes_data = not fields.isdisjoint(("key", "value", "headers"))
        usual = request.max_rows == ROWS_MAX and request.max_bytes == BYTES_MAX
        grows = grows and usual
        # With larger bounds than usual, a caller wants all that is available in one piece.
        at_hand = request.max_rows > ROWS_MAX and request.max_bytes > BYTES_MAX
        # Arrow's binary offsets have 32 bits.
        bytes_max = INT32_MAX if grows else min(request.max_bytes, INT32_MAX)
        self.asked: dict[str, Any] = {
            "fields": sum(FIELD_BITS[name] for name in read),
            "control": request.control,
            "verify_crc": request.verify_crc,
            "one_type": self.wants_types,
            # Wrong checksums that are not refused are noted.
            "notes": "valid" in fields and not request.verify_crc,
            "within": request.within,
            "inflated_max": min(request.inflated_max, bytes_max, BODY_BYTES_MAX),
            "rows_max": INT32_MAX if grows else min(request.max_rows, INT32_MAX),
            "bytes_max": bytes_max,
            "rows_usual": INT32_MAX if grows or at_hand else ROWS_MAX,
            "body_max": BODY_BYTES_MAX,
            "sized": takes_data or grows,
            "as_large_as_possible": at_hand,
            "needle": request.contains.data,
            "folds": request.contains.folds,
        }


class Workspace:
    """Memory that a reader uses again for each piece; belongs to one reader in one thread.

    Attributes:
        inflated: memory for batches inflated by the kernel.
        blocks: memory for the columns of pieces.
    """

    def __init__(
        self, *, use: Use = "held", fresh: Fresh | None = None, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """Start empty.

        Args:
            use: what the pieces are used for.
            piece_bytes: bytes of bodies in a piece that is held.
            fresh: allocates memory for large pieces; the heap if None.
        """
        self.inflated = Inflated()
        self._grows = use != "held"
        growth: dict[str, Any] = GROWTH[use] if self._grows else {}
        if self._grows:
            growth = growth | {"fresh": fresh or _from_heap, "large_bytes": STREAMED_BYTES}
        self.blocks = Blocks(_new_buffer, first_bytes=piece_bytes, **growth)
        self._plan: Plan | None = None

    @cached_property
    def arena(self) -> Arena:
        """For batches inflated by Python."""
        return Arena()

    @cached_property
    def located(self) -> Located:
        """Memory for records that are examined where they are, without a copy."""
        return Located()

    def plan(self, request: Request) -> Plan:
        """The plan for a request; the last plan is cached."""
        plan = self._plan
        if plan is None or plan.request is not request:
            plan = self._plan = Plan(request, grows=self._grows)
        return plan

    @cached_property
    def counts(self) -> Int64s:
        """int64[2, n], memory for record counts and base offsets of the batches of one piece."""
        return np.empty((2, BATCHES_MAX), np.int64)

    def reader(self, plan: Plan) -> BatchReader:
        """A reader of batches with this memory; bytes inflated for another reader are dropped."""
        self.inflated.forget()
        return BatchReader(
            self.blocks, self.inflated, self.counts if plan.shares else None, **plan.asked
        )


def _new_buffer(size: int) -> Uint8s:
    return np.empty(size, np.uint8)


def _from_heap(size: int, _filled: Sequence[tuple[int, int]]) -> Uint8s:
    return np.empty(size, np.uint8)


class Shared:
    """The batches of one piece, from which columns for their records are made."""

    def __init__(
        self,
        table: BatchTable,
        counts: Array,
        first_offsets: Array,
        offsets: Array,
        *,
        constants_once: bool = False,
    ) -> None:
        """Keep for each batch header, record count and first offset; and the records' offsets."""
        self.constants_once = constants_once
        self.table = table
        self.counts = counts
        self.first_offsets = first_offsets
        self.offsets = offsets

    def column(self, name: str) -> Array:
        """A field, one value for each record."""
        if name in BATCH_FIELDS:
            values, dtype = BATCH_FIELDS[name]
            return self._spread(values(self.table), dtype)
        if name == "base_offset":
            return self._spread(self.first_offsets, np.int64)
        if name == "next_offset":
            # In Kafka 0.7, the position of the next outermost message.
            step = self.table.size if self.table.kafka07 else 1
            return self._spread(self.table.last_offset + step, np.int64)
        if name == "sequence" and (self.table.base_sequence < 0).all():
            return self._spread(np.full(len(self.table), -1), np.int32)
        if name == "sequence":
            bases = self._spread(self.table.base_sequence, np.int64)
            deltas = self.offsets - self._spread(self.table.base_offset, np.int64)
            return sequence_after(bases, deltas).astype(np.int32)
        types = self.table.control_type
        is_known = (types >= 0) & (types <= int(ControlType.KRAFT_VOTERS))
        types = np.where(is_known & self.table.is_control, types, int(ControlType.UNKNOWN))
        return self._spread(types, np.int8)

    def _spread(self, values: Array, dtype: type) -> Array:
        values = values.astype(dtype, copy=False)
        if self.constants_once and len(values) and (values == values[0]).all():
            return np.ndarray(int(self.counts.sum()), dtype, values[:1].copy(), strides=(0,))
        return np.repeat(values, self.counts)
