"""The checksum of each message of magic 0 and 1, those inside compressed messages too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kseg.constants import StopReason
from kseg.format.arena import Arena
from kseg.format.bodies import wrapper_value
from kseg.format.codec import decompress_into
from kseg.format.header import scan
from kseg.format.request import INFLATED_BYTES_MAX

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchHeader, BatchTable


class Checksums(NamedTuple):
    """Of each message: the checksum stored, int64[n], and whether it is right, bool[n]."""

    crc: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]


class MessageChecksums:
    """Checksums of decoded messages, a piece at a time; a compressed one may reach over pieces."""

    def __init__(self) -> None:
        """Start in front of the first piece."""
        self._position = -1
        self._taken = 0
        self._inner: Checksums | None = None

    def of(
        self, data: memoryview, base: int, table: BatchTable, rows: npt.NDArray[np.int64]
    ) -> Checksums:
        """The checksums of the messages of one piece.

        Args:
            data: bytes of the file from `base` on.
            base: position of `data[0]`.
            table: outermost messages in `data`.
            rows: int64[n], the outermost message of each decoded one, in order.
        """
        crc, valid = table.crc[rows], table.crc_ok[rows] != 0
        for row in np.unique(rows[table.is_wrapper[rows]]).tolist():
            first, end = np.searchsorted(rows, [row, row + 1]).tolist()
            inner = self._take(data, base, table[row], end - first)
            end = first + len(inner.crc)
            crc[first:end], valid[first:end] = inner
        return Checksums(crc, valid)

    def _take(self, data: memoryview, base: int, header: BatchHeader, count: int) -> Checksums:
        if header.position != self._position or self._inner is None:
            self._position, self._taken = header.position, 0
            self._inner = _inside(data[header.position - base :][: header.size], header)
        start = self._taken
        self._taken += count
        crc, valid = self._inner
        return Checksums(crc[start : self._taken], valid[start : self._taken])


def _inside(entry: memoryview, header: BatchHeader) -> Checksums:
    arena = Arena()
    body = wrapper_value(entry, header.codec)
    decompress_into(header.codec, body, arena, magic=header.magic, limit=INFLATED_BYTES_MAX)
    inflated = arena.view()[: arena.used]
    tables = [scan(inflated, on_bad_crc="note")]
    while tables[-1].stop is StopReason.LIMIT:
        tables.append(scan(inflated, start=tables[-1].end_position, on_bad_crc="note"))
    return Checksums(
        np.concatenate([table.crc for table in tables]),
        np.concatenate([table.crc_ok for table in tables]) != 0,
    )
