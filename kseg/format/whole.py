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

from kseg.constants import INT32_MAX, StopReason
from kseg.format.bodies import at_batch
from kseg.format.columns import decode
from kseg.format.header import crc_error, join_tables, scan, stop_error
from kseg.format.request import FIELDS_DEFAULT, INFLATED_BYTES_MAX, Request

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.errors import FormatError, KsegError
    from kseg.format.header import BatchHeader, BatchTable
    from kseg.format.values import RecordColumns
    from kseg.format.workspace import Workspace

    OnError = Callable[[KsegError], None]

_FIRST = np.zeros(1, np.int64)
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
        rows_max=INT32_MAX,
        bytes_max=INT32_MAX,
        control=True,
        verify_crc=verify_crc,
        inflated_max=inflated_max,
    )
    pieces = decode(data, table, request, base=base, workspace=workspace, on_error=on_error)
    for columns in pieces:
        position = columns["position"]
        behind = np.flatnonzero(position[1:] != position[:-1]) + 1
        starts = np.concatenate((_FIRST, behind))
        batches = np.searchsorted(table.position, position[starts])
        yield WholeBatches(columns, batches, np.append(starts, len(columns)))


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
    "WholeBatches",
    "check_walk",
    "decode_whole",
    "refused_in",
    "scan_all",
]
