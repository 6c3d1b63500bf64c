"""Down-conversion as brokers up to 3.9 did it for old consumers: losses go unreported.

Headers, producer fields, flags and leader epochs go; control batches are left out; offsets stay.
`kseg.format.convert` reports its losses, and converts upwards too.

Source: Kafka RecordsUtil.downConvert, FileRecords.downConvert.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kseg.constants import (
    Buffer,
    Compression,
    Int64s,
)
from kseg.errors import FormatError, UnsupportedFormatError
from kseg.format.bodies import at_batch
from kseg.format.columns import WholeBatches, check_walk, decode_whole, refused_in
from kseg.format.encode import encode_batch, rows_of
from kseg.format.header import BatchTable, scan_all
from kseg.format.options import options_for, overhead_bytes
from kseg.format.request import FIELDS_DEFAULT, OLD_FIELDS
from kseg.format.take import runs, take_rows
from kseg.frozen import frozen_dataclass
from kseg.log.validate.rules import ConversionStats


@frozen_dataclass
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
    converted = _convert(view, table, to_magic, first_offset, verify_crc)
    if as_file and not converted.stats.records_converted:
        return Converted(bytes(view), ConversionStats())
    return converted


def _convert(
    data: memoryview, table: BatchTable, to_magic: int, first_offset: int, verify_crc: bool
) -> Converted:
    parts: list[bytes | memoryview] = []
    stats = ConversionStats()
    keep = np.ones(len(table), np.bool_) if to_magic >= 2 else ~table.is_control
    newer = table.magic > to_magic
    fields = OLD_FIELDS if to_magic < 2 else FIELDS_DEFAULT
    refused = keep & (to_magic < 2) & (table.codec == Compression.ZSTD)
    for first, end in runs(keep, newer, refused):
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
        for whole in decode_whole(data, some, fields=fields, verify_crc=verify_crc):
            for part, cost in _batches(some, whole, to_magic, first_offset):
                parts.append(part)
                stats += cost
    return Converted(b"".join(parts), stats)


def _batches(
    table: BatchTable, whole: WholeBatches, to_magic: int, first_offset: int
) -> Iterator[tuple[bytes, ConversionStats]]:
    """One batch after the other. A plain message is a batch too."""
    rows, ends = rows_of(whole.columns), whole.ends.tolist()
    for number, batch in enumerate(whole.batches.tolist()):
        header = table[batch]
        source, first, end = rows, ends[number], ends[number + 1]
        numbers: range | Int64s = range(-first, end - first)
        if to_magic < 2 and not header.codec:
            chosen = np.flatnonzero(whole.columns["offset"][first:end] >= first_offset)
            if not len(chosen):
                continue
            if len(chosen) < end - first:
                source = rows_of(take_rows(whole.columns, chosen + first))
                first, end, numbers = 0, len(chosen), chosen
        options = options_for(header, to_magic)
        try:
            encoded = encode_batch(source, options, first=first, end=end)
        except FormatError as error:
            raise refused_in(error, header, numbers) from None
        cost = (
            header.size + overhead_bytes(to_magic, options.compression) + encoded.uncompressed_bytes
        )
        yield encoded.data, ConversionStats(cost, end - first)
