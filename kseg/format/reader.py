"""Pieces of record columns, each filled by one kernel in one block of memory.

`PieceReader` takes lent bytes, stretch after stretch, and gives `RecordColumns`. It reads batches
and messages of magic 0 to 2 that are in order, and stops in front of every other one, which it
reads alone when `kseg.format.columns` asks for that. Refuses to know files.

The columns of a piece lie in one block: a caller that keeps one of them keeps all of the block.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg._kernels.reader import block_layout, copy_records, count_records, read_batches
from kseg.format.header import BATCHES_MAX, COLUMN, join_tables, scan
from kseg.format.request import BODY_BYTES_MAX, HAS_VALUE, ROWS_MAX
from kseg.format.shared import Shared
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, freeze
from kseg.format.workspace import PIECE_BYTES, STREAMED_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable, Int64Array
    from kseg.format.request import Request
    from kseg.format.workspace import Workspace

    Array = npt.NDArray[Any]


class End(IntEnum):
    """Why a reading stopped; the numbers are those of `csrc/reader.h`."""

    END = 0  # the limit, or the end of the table
    FULL = 1  # the next batch does not fit into the piece any more
    NO_ROOM = 2  # the next batch does not fit into any piece
    MORE = 3  # the next batch goes on behind the bytes lent
    ODD = 4  # one batch that is unusual or damaged, or no batch at all
    OTHER = 5  # a compressed batch of a kind that is not read here
    PAST = 6  # nothing but offsets behind the last one wanted


_ENDS: Final = tuple(End)
#: Fields of the kernel's state, as `csrc/reader.h` orders them.
STATE_FIELDS: Final = 22
_AT, _ROWS, _BYTES, _HEADER_COUNT, _KEY_BYTES, _VALUE_BYTES, _NAME_BYTES = 0, 4, 5, 6, 7, 9, 11
_BATCHES, _TIME_TYPE, _LAST, _LAST_OFFSET, _NEED = 14, 15, 16, 18, 19
_ROOM: Final = slice(1, 4)
#: What a new piece starts without.
_IN_PIECE: Final = slice(4, 16)
#: Where the columns start in a block, in the order of `csrc/reader.h`.
_OFFSETS, _TIMES, _KEYS, _VALUES, _LISTS, _NAMES, _HEADERS = range(7)
#: How much further on the validity and the data of a column with ends stand.
_VALID_OF = {_KEYS: 7, _VALUES: 8, _HEADERS: 9}
_DATA_OF = {_KEYS: 10, _VALUES: 11, _NAMES: 12, _HEADERS: 13}
_HAS_VALUE, _MATCHES, _PLACES = 14, 15, 16
_NUMBERS: Final = {"offset": _OFFSETS, "timestamp": _TIMES}
#: A column, and where the state counts its bytes and nulls.
_BINARY: Final = {"key": (_KEYS, _KEY_BYTES), "value": (_VALUES, _VALUE_BYTES)}
_COUNTED: Final = (*_BINARY.values(), (_NAMES, _NAME_BYTES), (_HEADERS, _NAME_BYTES + 1))
_RECORD_BYTES_MIN: Final = 7
#: What is left to read makes room for so many times its bytes where batches are compressed.
_EXPANSION_MAX: Final = 8
#: Where in one batch a piece begins, as `csrc/careful.h` orders it.
_PLACE_FIELDS: Final = 7
_RECORD, _SHIFT, _FIRST, _STATUS, _FULL = 0, 3, 4, 5, 6
_COLUMN_BYTES_MAX: Final = 2**31 - 1
_NO_COUNTS: Final = np.empty((2, 0), np.int64)
_POSITION, _SIZE, _COUNT = COLUMN["position"], COLUMN["size"], COLUMN["record_count"]


class PieceReader:
    """Fills one piece after another; belongs to one reading in one thread."""

    __slots__ = (
        "_at",
        "_block",
        "_counts",
        "_plan",
        "_source",
        "_state",
        "_tables",
        "_workspace",
    )

    def __init__(self, request: Request, workspace: Workspace, *, source: str | None) -> None:
        """Read what a request asks for, with the memory of a workspace.

        Args:
            request: which records and fields.
            workspace: memory to use again, and the sizes of the pieces before.
            source: the name of the file, for the columns.
        """
        self._plan = workspace.plan(request)
        self._workspace = workspace
        self._source = source
        workspace.inflated.forget()
        self._state = np.zeros(STATE_FIELDS, np.int64)
        self._state[_LAST:_NEED] = -1
        self._at = np.zeros(_PLACES, np.int64)
        self._block: Array | None = None
        self._counts = _NO_COUNTS
        self._tables: list[BatchTable] = []

    @property
    def at(self) -> int:
        """File position, or row of the table, of the next batch."""
        return int(self._state[_AT])

    @property
    def last(self) -> int | None:
        """File position of the batch that was read last, None for none."""
        last = int(self._state[_LAST])
        return last if last >= 0 else None

    @property
    def last_offset(self) -> int:
        """The largest last offset of the batches read or passed over; -1 for none."""
        return int(self._state[_LAST_OFFSET])

    @property
    def needed(self) -> int:
        """Behind `End.MORE`: bytes that the next batch announces, or that its header takes."""
        return int(self._state[_NEED + 1])

    def move(self, at: int, last: int | None = None) -> None:
        """Go on elsewhere, behind batches that another has read, the last of them at `last`."""
        self._state[_AT] = at
        if last is not None:
            self._state[_LAST] = last

    def read(self, data: memoryview, *, base: int, limit: int, file_end: int) -> End:
        """Read on into the piece, from `at` on.

        Args:
            data: bytes `[base, base + len(data))` of a file, lent for this call.
            base: file position of `data[0]`.
            limit: no batch that starts here or later is read.
            file_end: the file's size.
        """
        start = self.at
        while True:
            self._reserve(min(limit, file_end) - self.at, None)
            end = self._call(data, None, base, limit, file_end)
            if end is not End.NO_ROOM or not self._enlarge():
                end = self._settled(end)
                break
        if self._plan.shares and self.at > start:
            self._tables.append(
                scan(data, base=base, start=start, limit=self.at, on_bad_crc="ignore")
            )
        return end

    def read_table(self, data: memoryview, table: BatchTable, *, base: int) -> End:
        """Read on into the piece, from row `at` of a table on.

        Args:
            data: bytes of a file from `base` on, lent for this call.
            table: headers.
            base: file position of `data[0]`.
        """
        start = self.at
        while True:
            self._reserve(len(data), table.rows[self.at :])
            end = self._call(data, table.rows, base, 0, 0)
            if end is not End.NO_ROOM or not self._enlarge():
                end = self._settled(end)
                break
        if self._plan.shares and self.at > start:
            self._tables.append(table.take(slice(start, self.at)))
        return end

    def read_alone(
        self, data: memoryview, table: BatchTable, body: memoryview | None, *, base: int
    ) -> Generator[RecordColumns, None, tuple[int, int]]:
        """Pieces of the one batch of a table, which may be damaged, or too large for one piece.

        Args:
            data, base: as for `read_table`.
            table: one header.
            body: what its compressed bytes hold; None for a batch that is read as it is.

        Returns:
            What is wrong with the batch, 0 for nothing, and with which record.
        """
        request = self._plan.request
        one: Any = {"base": base, "ask": self._plan.ask, "state": self._state}
        bounds: Any = {
            "rows_max": min(request.rows_max, _COLUMN_BYTES_MAX),
            "bytes_max": min(request.bytes_max, _COLUMN_BYTES_MAX),
            "at": self._at,
        }
        row, place = table.rows[0], np.zeros(_PLACE_FIELDS, np.int64)
        while True:
            begin = place.copy()
            total = count_records(data, row, body, place=place, **one, **bounds)
            if self._state[_ROWS]:
                begin[_SHIFT] = place[_SHIFT]  # the first call of a batch finds it
                block = self._block = self._workspace.empty(max(total, 1), np.uint8)
                copy_records(data, row, body, place=begin, block=block, **one)
                del block
                self._tables.append(table)
                self._counts = np.array([[self._state[_ROWS]], [place[_FIRST]]])
                yield self._taken()
            if not place[_FULL]:
                return int(place[_STATUS]), int(place[_RECORD])

    def pieces(self) -> Iterator[RecordColumns]:
        """The piece so far, unless no row is in it; the next one starts anew."""
        if self._state[_ROWS]:
            yield self._taken()
        else:  # batches without a row are counted, too, and there is room for so many
            self._begin_anew()

    # ---- room ------------------------------------------------------------------------------------

    def _call(
        self, data: memoryview, rows: Int64Array | None, base: int, limit: int, file_end: int
    ) -> End:
        assert self._block is not None
        end = read_batches(
            data,
            rows,
            base=base,
            limit=limit,
            file_end=file_end,
            ask=self._plan.ask,
            inflated=self._workspace.inflated,
            block=self._block,
            counts=self._counts,
            state=self._state,
        )
        return _ENDS[end]

    def _settled(self, end: End) -> End:
        """Of compressed batches that are too large, all go elsewhere: none is inflated twice."""
        return End.OTHER if end is End.NO_ROOM and self._workspace.inflated.holds else end

    def _reserve(self, left: int, rows: Int64Array | None) -> None:
        """A block for a new piece: sized by the piece before, and no larger than what is left.

        Args:
            left: bytes that are left to read.
            rows: of the table, where one is read.
        """
        if self._block is not None:
            return
        plan = self._plan
        if rows is not None and len(rows):
            stretch = int(rows[-1, _POSITION] + rows[-1, _SIZE] - rows[0, _POSITION])
            left = max(0, min(left, stretch))
        if not plan.as_large_as_possible:
            expansion = min(self._workspace.inflated.expansion, _EXPANSION_MAX)
            left = int(left * max(expansion, 1))
        size = min(plan.bytes_max, max(left, 0))
        rows_max, headers_max = size // _RECORD_BYTES_MIN, 0
        if plan.as_large_as_possible:
            if rows is not None:
                rows_max = _rows_in(rows, rows_max)
        elif plan.takes_data or plan.grows:
            size = min(size, self._workspace.piece_bytes())
            rows_max = min(rows_max, self._guess(self._workspace.rows_a_byte, size))
        if not (plan.as_large_as_possible or plan.grows):
            rows_max = min(rows_max, ROWS_MAX)
        if plan.wants_headers:
            headers_max = min(size // 2, self._guess(self._workspace.headers_a_byte, size))
        self._set_room(min(rows_max, plan.rows_max), size, headers_max)

    def _set_room(self, rows: int, size: int, headers: int) -> None:
        self._state[_ROOM] = rows, size, headers
        total = block_layout(int(self._plan.ask[0]), rows, size, headers, self._at)
        filled = self._filled(size, total) if size > STREAMED_BYTES else ()
        self._block = self._workspace.block(max(total, 1), size, filled)
        if self._plan.shares and not self._counts.size:  # batches without rows may be in it already
            self._counts = np.empty((2, BATCHES_MAX), np.int64)

    @staticmethod
    def _guess(a_byte: float, size: int) -> int:
        """Room for what a piece of so many bytes may hold, by the piece before."""
        return 64 + int(a_byte * size * 9 / 8)

    def _filled(self, size: int, total: int) -> list[tuple[int, int]]:
        """Stretches of a block that a piece like the one before fills: numbers, then bytes."""
        data = {column: self._at[column] for column in _DATA_OF.values() if self._at[column] >= 0}
        numbers = (0, int(min(data.values(), default=total)))
        a_byte = self._workspace.data_a_byte
        return [
            numbers,
            *(
                (int(start), int(start + a_byte.get(column, 0) * size))
                for column, start in data.items()
            ),
        ]

    def _enlarge(self) -> bool:
        """A larger block for one batch that does not fit; False where no piece may hold it."""
        rows, size, headers = self._state[_NEED:].tolist()
        most = min(self._plan.bytes_max, BODY_BYTES_MAX)
        if rows > self._plan.rows_max or size > most:
            return False
        room = np.maximum(self._state[_ROOM], (rows, size, headers)).tolist()
        if room == self._state[_ROOM].tolist():
            return False
        self._block = None
        self._set_room(*room)
        return True

    # ---- columns ---------------------------------------------------------------------------------

    def _taken(self) -> RecordColumns:
        """The piece as columns; the block goes with it."""
        state = self._state.tolist()
        size, rows = max(state[_BYTES], 1), state[_ROWS]
        self._workspace.rows_a_byte = rows / size
        self._workspace.headers_a_byte = state[_HEADER_COUNT] / size
        self._workspace.data_a_byte = {
            _DATA_OF[column]: state[filled] / size for column, filled in _COUNTED
        }
        places = self._at.tolist()
        arrays: dict[str, Any] = {}
        shared: Shared | None = None
        for name in self._plan.request.fields:
            if name in _NUMBERS:
                arrays[name] = self._view(np.int64, rows, places[_NUMBERS[name]])
            elif name in _BINARY:
                column, filled = _BINARY[name]
                arrays[name] = self._binary(places, column, rows, *state[filled : filled + 2])
            elif name == "headers":
                arrays[name] = self._lists(places, state)
            elif name == HAS_VALUE:
                arrays[name] = self._view(np.bool_, rows, places[_HAS_VALUE])
            else:
                shared = shared or self._shared(places, state)
                arrays[name] = shared.column(name)
                if name == "valid" and places[_MATCHES] >= 0:
                    # Not in place: the column may hold one value for all rows.
                    arrays[name] = arrays[name] & self._view(np.bool_, rows, places[_MATCHES])
                freeze(arrays[name])
        types = state[_TIME_TYPE] if self._plan.wants_types else None
        self._begin_anew()
        return RecordColumns(rows, arrays, self._source, timestamp_types=types)

    def _begin_anew(self) -> None:
        self._state[_IN_PIECE] = 0
        self._block = None
        self._counts = _NO_COUNTS
        self._tables.clear()

    def _view(self, dtype: type[np.generic], count: int, place: int) -> Array:
        """A part of the block, read-only."""
        array: Array = np.ndarray(count, dtype, self._block, place)
        array.flags.writeable = False
        return array

    def _binary(
        self, places: list[int], column: int, count: int, size: int, nulls: int
    ) -> BinaryColumn:
        ends = self._view(np.int32, count + 1, places[column])
        data = self._view(np.uint8, size, places[_DATA_OF[column]])
        if not nulls:
            return BinaryColumn(ends, data, None, 0)
        place = places[_VALID_OF[column]]
        if count & 7:  # no bit is set behind the last value's
            assert self._block is not None
            self._block[place + count // 8] &= (1 << (count & 7)) - 1
        return BinaryColumn(ends, data, self._view(np.uint8, (count + 7) // 8, place), nulls)

    def _lists(self, places: list[int], state: list[int]) -> HeadersColumn:
        count = state[_HEADER_COUNT]
        return HeadersColumn(
            self._view(np.int32, state[_ROWS] + 1, places[_LISTS]),
            self._binary(places, _NAMES, count, state[_NAME_BYTES], 0),
            self._binary(places, _HEADERS, count, *state[_NAME_BYTES + 1 : _NAME_BYTES + 3]),
        )

    def _shared(self, places: list[int], state: list[int]) -> Shared:
        """The batches of the piece, for columns that come from them."""
        tables = self._tables
        table = tables[0] if len(tables) == 1 else join_tables(tables, 0)
        counts, first_offsets = self._counts[:, : state[_BATCHES]]
        known = places[_OFFSETS] >= 0
        offsets = self._view(np.int64, state[_ROWS] * known, max(places[_OFFSETS], 0))
        once = self._plan.request.constants_once
        return Shared(table, counts, first_offsets, offsets, constants_once=once)


def _rows_in(rows: Int64Array, most: int) -> int:
    """The records that rows of a table count; `most` where compressed messages count none."""
    counts = rows[:, _COUNT]
    if (counts < 0).any():
        return most
    return min(most, int(counts.sum()))


__all__ = ["PIECE_BYTES", "End", "PieceReader"]
