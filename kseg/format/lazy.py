"""Down-conversion a chunk at a time, into an answer whose size was promised beforehand.

A fetch states its size first. So a broker that converts while it sends promises the size of the
original, or of the first converted batch if that is larger. If bytes are missing in the end, it
adds an entry that ends behind the answer; every consumer takes it for an incomplete one.

Source: Kafka LazyDownConversionRecords, LazyDownConversionRecordsSend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kseg.constants import BATCH_HEADER_BYTES, LOG_OVERHEAD
from kseg.errors import UnsupportedFormatError
from kseg.format.down_convert import Converted, convert_table
from kseg.format.whole import check_walk, scan_all

if TYPE_CHECKING:
    from kseg.format.header import Buffer

#: Bytes of batches that are converted at a time while they are sent.
READ_BYTES = 128 << 10


class LazyDownConversion:
    """Batches that are converted when they are asked for.

    If the first batches convert to nothing, each batch is still given once; Kafka's class goes back
    then, and gives some a second time.

    Example:
        >>> LazyDownConversion(b"", 1).size_bytes
        0
    """

    def __init__(
        self, data: Buffer, to_magic: int, *, first_offset: int = 0, verify_crc: bool = True
    ) -> None:
        """Convert the first batch that gives bytes.

        Args:
            data: whole batches, lent for as long as this is used; an incomplete last one is left
                out.
            to_magic: 0, 1 or 2.
            first_offset: as for `kseg.format.down_convert.down_convert`.
            verify_crc: as for `kseg.format.down_convert.down_convert`.

        Raises:
            UnsupportedFormatError: a zstd batch comes before anything that can be converted.
            FormatError: a batch is damaged; damage in its records is raised when its turn comes.
        """
        if to_magic not in (0, 1, 2):
            raise ValueError(f"magic is 0, 1 or 2, not {to_magic}")
        self.to_magic = to_magic
        self.first_offset = first_offset
        self.verify_crc = verify_crc
        self._data = memoryview(data)
        self._table = scan_all(self._data, on_bad_crc="note" if verify_crc else "ignore")
        check_walk(self._table)
        self._ends = np.cumsum(self._table.size)
        self._first, self._next = self._chunk(0, 0)
        self.size_bytes = self._promised()

    def _promised(self) -> int:
        """Bytes that will be sent."""
        if self._first is not None:
            return max(len(self._data), len(self._first.data))
        return LOG_OVERHEAD if len(self._table) else 0

    def _chunk(self, row: int, read_bytes: int) -> tuple[Converted | None, int]:
        """The next chunk that is not empty, from a batch on, and the batch behind it."""
        table, ends = self._table, self._ends
        while row < len(table):
            until = (int(ends[row - 1]) if row else 0) + read_bytes
            end = max(row + 1, int(np.searchsorted(ends, until, "right")))
            some = table.take(slice(row, end))
            converted = convert_table(
                self._data, some, self.to_magic, self.first_offset, verify_crc=self.verify_crc
            )
            row = end
            if converted.data:
                return converted, row
        return None, row

    def chunks(self, read_bytes: int = READ_BYTES) -> Iterator[Converted]:
        """Each chunk that is not empty: the first batch, then `read_bytes` of batches at a time.

        Raises:
            FormatError: as `down_convert`, behind the chunks in front of the batch.
        """
        chunk, row = self._first, self._next
        while chunk is not None:
            yield chunk
            chunk, row = self._chunk(row, read_bytes)

    def sent(
        self, size_bytes: int | None = None, *, read_bytes: int = READ_BYTES
    ) -> Iterator[bytes]:
        """The bytes for the wire, `size_bytes` in all; None for the promised size.

        The last chunk is cut, or overflow entries follow it. A batch that cannot be converted ends
        the chunks.
        """
        left = self.size_bytes if size_bytes is None else size_bytes
        chunks = self.chunks(read_bytes)
        while left > 0:
            try:
                chunk = next(chunks, None)
            except UnsupportedFormatError:
                # Records are on their way already. The consumer asks from here on again, and is
                # told then.
                chunk = None
            part = overflow_entry(left) if chunk is None else chunk.data
            part = part[:left]
            left -= len(part)
            yield part


def overflow_entry(left_bytes: int) -> bytes:
    """An entry longer than the bytes left, so that readers take it for an incomplete one.

    Source: Kafka LazyDownConversionRecordsSend.buildOverflowBatch.
    """
    length = max(left_bytes + 1, BATCH_HEADER_BYTES)
    head = (-1).to_bytes(8, "big", signed=True) + length.to_bytes(4, "big")
    return head.ljust(max(LOG_OVERHEAD, min(left_bytes + 1, READ_BYTES)), b"\0")


__all__ = ["READ_BYTES", "LazyDownConversion", "overflow_entry"]
