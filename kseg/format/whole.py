"""Records of many batches in few pieces that cut no batch, for rewriting.

Reading bounds its pieces in rows and bytes. Rewriting needs every record of a batch at once, so
here a piece is bounded by the bytes at hand, and by the arena for what is compressed. In Kafka 0.7
a compressed set of very many messages still comes in several pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kseg._core import locate_records
from kseg._kernels.frames import records_bound
from kseg.constants import INT64_MAX, StopReason
from kseg.format.bodies import STATE_FIELDS, at_batch, each_bodies, record_error
from kseg.format.columns import Workspace, decode
from kseg.format.header import crc_error, join_tables, scan, stop_error
from kseg.format.request import (
    FIELDS_DEFAULT,
    INFLATED_BYTES_MAX,
    INT64_MIN,
    Request,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.errors import FormatError, KsegError
    from kseg.format.bodies import Bodies
    from kseg.format.header import BatchHeader, BatchTable
    from kseg.format.values import RecordColumns

    OnError = Callable[[KsegError], None]

_BOUND = 2**31 - 1
#: Every offset and every time, as a locating kernel is told.
_EVERYTHING = np.array([INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX], np.int64)
_NO_TIMES = np.empty(0, np.int64)
#: The column of a located record that says how long its key is, -1 for none.
SPAN_KEY_SIZE = 1
_DAMAGED = (StopReason.BAD_LENGTH, StopReason.BAD_MAGIC, StopReason.BAD_CRC)


@dataclass(frozen=True, slots=True, eq=False)
class WholeBatches:
    """Records of some batches.

    Attributes:
        columns: their records in file order.
        batches: int64[m], the row of each batch in the table asked for. Batches without records do
            not occur.
        ends: int64[m + 1]; batch `i` has the rows `ends[i]` to `ends[i + 1]`.
    """

    columns: RecordColumns
    batches: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """int64[m]: records of each batch."""
        return np.diff(self.ends)

    def spread(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """One value a record, from one value a batch of the table asked for."""
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
        on_error: called with each fault instead of raising it; of a damaged batch only the records
            in front of the damage are given, if any.

    Raises:
        FormatError, LimitExceededError: as `kseg.format.columns.decode`.
    """
    request = Request(
        fields=(*fields, "position"),
        rows_max=_BOUND,
        bytes_max=_BOUND,
        control=True,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
    )
    pieces = decode(data, table, request, base=base, workspace=workspace, on_error=on_error)
    for columns in pieces:
        position = columns["position"]
        starts = np.flatnonzero(np.diff(position, prepend=position[0] - 1))
        batches = np.searchsorted(table.position, position[starts])
        yield WholeBatches(columns, batches, np.append(starts, len(columns)))


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBatches:
    """Where the records of some batches of magic 2 lie; lent until the next are asked for.

    Attributes:
        data, arena: the sources of the bodies: the bytes lent, and those inflated.
        bodies: int64[m, 11], see `kseg.format.bodies`.
        batches: int64[m], the row of each batch in the table asked for.
        last_offsets: int64[m], of each batch.
        ends: int64[m + 1]; batch `i` has the rows `ends[i]` to `ends[i + 1]`.
        spans: int32[n, 6], where keys, values and headers lie in their bodies.
        offsets: int64[n].
    """

    data: memoryview
    arena: memoryview
    bodies: npt.NDArray[np.int64]
    batches: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    @property
    def has_key(self) -> npt.NDArray[np.bool_]:
        """bool[n]: which records have a key."""
        has: npt.NDArray[np.bool_] = self.spans[:, SPAN_KEY_SIZE] >= 0
        return has


def locate_whole(
    data: memoryview,
    table: BatchTable,
    *,
    base: int = 0,
    inflated_max: int = INFLATED_BYTES_MAX,
    workspace: Workspace,
) -> Iterator[LocatedBatches]:
    """Parse the records of batches of magic 2 without copying any; checksums are not compared.

    Args:
        data, table, base, inflated_max: as for `decode_whole`.
        workspace: memory to use again; the answers lie in it.

    Raises:
        FormatError, LimitExceededError: as `decode_whole`, after the records in front of the batch.
    """
    pieces = each_bodies(
        data,
        table,
        base=base,
        arena=workspace.arena,
        inflated_max=inflated_max,
        refuse_bad_crc=False,
    )
    for bodies in pieces:
        if len(bodies.rows):
            yield _located(data, table, bodies, workspace)
        if bodies.fault is not None:
            raise bodies.fault


def _located(
    data: memoryview, table: BatchTable, bodies: Bodies, workspace: Workspace
) -> LocatedBatches:
    """Locate all records of some bodies.

    Raises:
        FormatError: a batch is damaged.
    """
    rows_max = records_bound(bodies.rows)
    offsets, spans = workspace.empty(rows_max, np.int64), workspace.spans_for(rows_max)
    ends, state = np.empty(len(bodies.rows) + 1, np.int64), np.zeros(STATE_FIELDS, np.int64)
    arena = workspace.arena.view()
    locate_records(
        data,
        arena,
        bodies.rows,
        within=_EVERYTHING,
        rows_max=rows_max,
        bytes_max=_BOUND,
        offsets=offsets,
        timestamps=_NO_TIMES,
        spans=spans,
        first_row=ends,
        state=state,
    )
    body, record, _, _, _, rows, status = state[:7].tolist()
    if status:
        raise record_error(status, table[int(bodies.batches[body])], record)
    assert body == len(bodies.rows)
    lasts = table.last_offset[bodies.batches]
    return LocatedBatches(
        data, arena, bodies.rows, bodies.batches, lasts, ends, spans[:rows], offsets[:rows]
    )


def scan_all(data: memoryview, *, on_bad_crc: str, kafka07: bool = False) -> BatchTable:
    """`scan` of any number of batches, as one table, whose memory grows with them."""
    first = scan(data, on_bad_crc=on_bad_crc, kafka07=kafka07)
    if first.stop is not StopReason.LIMIT:
        return first

    def tables() -> Iterator[BatchTable]:
        table = first
        yield table
        while table.stop is StopReason.LIMIT:
            table = scan(data, start=table.end_position, on_bad_crc=on_bad_crc, kafka07=kafka07)
            yield table

    return join_tables(tables(), len(data))


def refused_in(
    error: FormatError, header: BatchHeader, rows: npt.NDArray[np.int64] | range
) -> FormatError:
    """Name the batch in a writer's error, and count the record from the batch's first.

    Args:
        error: what refused one of the rows.
        header: the batch they come from.
        rows: for each row written, its number in the batch.
    """
    if error.record_index is not None:
        error.record_index = int(rows[error.record_index])
    return at_batch(error, header)


def check_walk(table: BatchTable) -> None:
    """Raise the error of a walk that ended at damage; an end inside a batch or in zeros is none.

    Raises:
        CorruptRecordError: a length, a magic or, where the walk noted it, a checksum is wrong.
    """
    if table.bad_crc_count:
        bad = np.flatnonzero(table.crc_ok == 0)
        if len(bad):
            raise crc_error(table[int(bad[0])])
    if table.stop in _DAMAGED:
        raise stop_error(table)


__all__ = [
    "LocatedBatches",
    "WholeBatches",
    "check_walk",
    "decode_whole",
    "locate_whole",
    "refused_in",
    "scan_all",
]
