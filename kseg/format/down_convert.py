"""Down-conversion as brokers up to 3.9 did it for old consumers: losses go unreported.

Headers, producer fields, flags and leader epochs go; control batches are left out; offsets stay.
`kseg.format.convert` reports its losses, and converts upwards too.

Source: Kafka RecordsUtil.downConvert, FileRecords.downConvert.

Down-conversion a chunk at a time, into an answer whose size was promised beforehand.

A fetch states its size first. So a broker that converts while it sends promises the size of the
original, or of the first converted batch if that is larger. If bytes are missing in the end, it
adds an entry that ends behind the answer; every consumer takes it for an incomplete one.

Source: Kafka LazyDownConversionRecords, LazyDownConversionRecordsSend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kseg.constants import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Buffer,
    Compression,
    Int64s,
    TimestampType,
)
from kseg.errors import FormatError, InvalidRecordError, UnsupportedFormatError
from kseg.format.bodies import at_batch
from kseg.format.columns import WholeBatches, check_walk, decode_whole, refused_in, scan_all
from kseg.format.encode import encode_batch, rows_of
from kseg.format.header import BatchHeader, BatchTable
from kseg.format.options import BatchOptions, overhead_bytes
from kseg.format.request import FIELDS_DEFAULT
from kseg.format.take import runs, take_rows

#: The fields that magic 0 and 1 have.
OLD_FIELDS = ("offset", "timestamp", "key", "value")


@dataclass(frozen=True, slots=True)
class ConversionStats:
    """The memory and records that a conversion took, for a fetch or on append.

    Attributes:
        temporary_bytes: bytes inflated or built on the way. For a fetch: sizes of all source
            batches that were not dropped, and of the converted ones once more, before compression.
        records_converted: rewritten records.

    Source: Kafka RecordValidationStats, until 3.9 RecordConversionStats.
    """

    temporary_bytes: int = 0
    records_converted: int = 0

    def __add__(self, other: ConversionStats) -> ConversionStats:
        """Both together."""
        return ConversionStats(
            self.temporary_bytes + other.temporary_bytes,
            self.records_converted + other.records_converted,
        )


@dataclass(frozen=True, slots=True)
class Converted:
    """Batches after conversion.

    Attributes:
        data: the bytes.
        stats: its cost.
    """

    data: bytes
    stats: ConversionStats


def down_convert(
    data: Buffer,
    to_magic: int,
    *,
    first_offset: int = 0,
    as_file: bool = False,
    verify_crc: bool = True,
) -> Converted:
    """Convert batches newer than `to_magic`, and copy the rest byte for byte.

    Args:
        data: whole batches; an incomplete last one is left out.
        to_magic: 0, 1 or 2.
        first_offset: the offset that a consumer asked for. Records below it are left out of
            converted batches that are not compressed, where `to_magic` is 0 or 1.
        as_file: as for a slice of a file: where no record was converted the answer is the very
            input, an incomplete batch and control batches included.
        verify_crc: refuse a batch whose checksum is wrong. Kafka does not check it, and so gives
            damaged records a right checksum.

    Raises:
        ValueError: the magic is unknown.
        UnsupportedFormatError: a zstd batch is to become magic 0 or 1, or stay so.
        FormatError: a batch is damaged, or holds a record that an older format cannot hold.

    Source: Kafka RecordsUtil.downConvert; with `as_file`, FileRecords.downConvert.
    """
    if to_magic not in (0, 1, 2):
        raise ValueError(f"magic is 0, 1 or 2, not {to_magic}")
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="note" if verify_crc else "ignore")
    check_walk(table)
    converted = convert_table(view, table, to_magic, first_offset, verify_crc=verify_crc)
    if as_file and not converted.stats.records_converted:
        return Converted(bytes(view), ConversionStats())
    return converted


def convert_table(
    data: memoryview,
    table: BatchTable,
    to_magic: int,
    first_offset: int,
    *,
    verify_crc: bool = True,
) -> Converted:
    """`down_convert` of walked batches, as many as the table has; `data[0]` is at position 0."""
    parts: list[bytes | memoryview] = []
    stats = ConversionStats()
    keep = np.ones(len(table), np.bool_) if to_magic >= 2 else ~table.is_control
    newer = table.magic > to_magic
    fields = OLD_FIELDS if to_magic < 2 else FIELDS_DEFAULT
    refused = keep & (to_magic < 2) & (table.codec == Compression.ZSTD)
    plain = newer & (table.magic < 2) & (table.codec == Compression.NONE)
    for first, end in runs(keep, newer, refused, plain):
        if refused[first]:
            reason = "batches compressed with zstd have no older format"
            raise at_batch(UnsupportedFormatError(reason), table[first])
        if not keep[first]:
            continue
        if not newer[first]:
            start, stop = table.position[first], table.position[end - 1] + table.size[end - 1]
            parts.append(data[start:stop])
            stats += ConversionStats(int(stop - start), 0)
            continue
        some = table.take(slice(first, end))
        convert = _convert_plain if plain[first] else _convert_whole
        for whole in decode_whole(data, some, fields=fields, verify_crc=verify_crc):
            for part, cost in convert(some, whole, to_magic, first_offset):
                parts.append(part)
                stats += cost
    return Converted(b"".join(parts), stats)


def _convert_whole(
    table: BatchTable, whole: WholeBatches, to_magic: int, first_offset: int
) -> Iterator[tuple[bytes, ConversionStats]]:
    """One batch after the other. A plain message is a batch too."""
    rows, ends = rows_of(whole.columns), whole.ends.tolist()
    for number, batch in enumerate(whole.batches.tolist()):
        header = table[batch]
        source, first, end = rows, ends[number], ends[number + 1]
        numbers: range | Int64s = range(-first, end - first)
        if to_magic < 2 and not header.codec:
            wanted = np.flatnonzero(whole.columns["offset"][first:end] >= first_offset)
            if not len(wanted):
                continue
            if len(wanted) < end - first:
                source = rows_of(take_rows(whole.columns, wanted + first))
                first, end, numbers = 0, len(wanted), wanted
        options = options_for(header, to_magic)
        try:
            encoded = encode_batch(source, options, first=first, end=end)
        except FormatError as error:
            raise refused_in(error, header, numbers) from None
        cost = (
            header.size + overhead_bytes(to_magic, options.compression) + encoded.uncompressed_bytes
        )
        yield encoded.data, ConversionStats(cost, end - first)


def _convert_plain(
    table: BatchTable, whole: WholeBatches, to_magic: int, first_offset: int
) -> Iterator[tuple[bytes, ConversionStats]]:
    """Plain messages of magic 1, each a batch of its own, but written many at a time."""
    offsets = whole.columns["offset"]
    wanted = np.flatnonzero(offsets >= first_offset)
    sizes = table.size[whole.batches]
    rows = rows_of(take_rows(whole.columns, wanted))
    falls = np.flatnonzero(np.diff(offsets[wanted]) <= 0) + 1
    for first, end in pairwise([0, *falls.tolist(), len(wanted)]):
        if first == end:
            continue
        try:
            encoded = encode_batch(rows, BatchOptions(magic=to_magic), first=first, end=end)
        except FormatError as error:
            at = int(wanted[error.record_index or 0])
            raise refused_in(error, table[int(whole.batches[at])], np.zeros(end, int)) from None
        cost = int(sizes[wanted[first:end]].sum()) + encoded.uncompressed_bytes
        yield encoded.data, ConversionStats(cost, end - first)


def no_append_time(timestamp: int) -> InvalidRecordError:
    """The error for an append time that no broker writes."""
    return InvalidRecordError(f"the time of its append is {timestamp} ms, negative and not -1")


def options_for(
    header: BatchHeader, magic: int, compression: Compression | None = None
) -> BatchOptions:
    """The options to write a batch's records in another magic: its codec, and its kind of times.

    Magic 0 has no times; in a later magic its records are of create time, and have -1 for none.

    Raises:
        InvalidRecordError: the time of its append is below -1, which no broker writes.

    Source: Kafka RecordsUtil.convertRecordBatch.
    """
    kind = header.timestamp_type
    if kind == TimestampType.NO_TIMESTAMP_TYPE:
        kind = TimestampType.CREATE_TIME
    log_append = kind == TimestampType.LOG_APPEND_TIME
    if log_append and header.max_timestamp < NO_TIMESTAMP:
        raise at_batch(no_append_time(header.max_timestamp), header)
    return BatchOptions(
        magic=magic,
        compression=header.compression if compression is None else compression,
        timestamp_type=kind,
        log_append_time=header.max_timestamp if log_append else NO_TIMESTAMP,
    )


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
            data: whole batches, borrowed as long as this is used; an incomplete last one is
                left out.
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
                # Records were returned already. The consumer's next fetch begins here and gets the
                # error.
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
