"""Record batches and message sets laid out by NumPy: every record of a log at once.

Written from the format itself and without kseg, so that a log made here tests kseg rather than
repeats it. Python loops only once per batch (its CRC, its compression) and, for magic 0 and 1,
once per message (its CRC). Source: Kafka `DefaultRecord`, `DefaultRecordBatch`, `LegacyRecord`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

LOG_OVERHEAD = 12
BATCH_HEADER_BYTES = 61
#: Bytes that the CRC of a batch does not cover: offset, size, epoch, magic and the CRC itself.
CRC_START = 21
#: Records copied at a time: bounds the index arrays that a ragged copy needs.
COPY_RECORDS = 16_384

BATCH_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_bytes", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_MESSAGE_COMMON = [
    ("offset", ">i8"),
    ("size", ">i4"),
    ("crc", ">u4"),
    ("magic", "i1"),
    ("attributes", "i1"),
]
MESSAGE_HEADER = {
    0: np.dtype([*_MESSAGE_COMMON, ("key_bytes", ">i4")]),
    1: np.dtype([*_MESSAGE_COMMON, ("timestamp", ">i8"), ("key_bytes", ">i4")]),
}


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """What a log is to hold, one row per record.

    Attributes:
        timestamps: ms, int64[n].
        keys: uint8[n, key bytes].
        text: the pool that values are cut from, uint8[m].
        value_starts: where each value starts in `text`, int64[n].
        value_bytes: and how long it is, int64[n].
        headers: headers, encoded and equally long for each record, uint8[n, h]; h = 1 where none.
    """

    timestamps: Ints
    keys: Bytes
    text: Bytes
    value_starts: Ints
    value_bytes: Ints
    headers: Bytes

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.timestamps)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A log as bytes, with what its indexes need: a row per batch (per entry for magic 0, 1)."""

    data: Bytes
    positions: Ints
    last_offsets: Ints
    max_timestamps: Ints


def split(record_bytes: Ints, batch_bytes: int) -> Ints:
    """Where each batch starts, int64[batches].

    As many whole records as fit `batch_bytes`, at least one; 0 gives each a batch of its own.
    """
    count = len(record_bytes)
    if batch_bytes == 0:
        return np.arange(count)
    ends = np.cumsum(record_bytes)
    starts = [0]
    while True:
        before = int(ends[starts[-1] - 1]) if starts[-1] else 0
        following = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        if following >= count:
            return np.array(starts, dtype=np.int64)
        starts.append(max(following, starts[-1] + 1))


def batches(
    records: Records,
    starts: Ints,
    *,
    codec: int = 0,
    compress: Callable[[bytes], bytes] | None = None,
) -> Layout:
    """Lay out magic 2 batches.

    Args:
        records: the records; record i gets offset i.
        starts: first record of each batch.
        codec: codec id for the attributes.
        compress: what makes the codec's stream of a batch's records; None for codec 0.
    """
    counts = np.diff(starts, append=len(records))
    gap = 0 if compress else BATCH_HEADER_BYTES
    body, body_starts = _record_bytes(records, starts, counts, gap)
    if compress is None:
        data, positions = body, body_starts - gap
    else:
        ends = np.append(body_starts[1:], len(body))
        parts = [compress(body[a:b].tobytes()) for a, b in zip(body_starts, ends, strict=True)]
        data, positions = _with_gaps(parts, BATCH_HEADER_BYTES)
    sizes = np.diff(positions, append=len(data))
    head = np.zeros(len(starts), BATCH_HEADER)
    head["base_offset"] = starts
    head["batch_bytes"] = sizes - LOG_OVERHEAD
    head["magic"] = 2
    head["attributes"] = codec
    head["last_offset_delta"] = counts - 1
    head["base_timestamp"] = records.timestamps[starts]
    head["max_timestamp"] = np.maximum.reduceat(records.timestamps, starts)
    for name in ("producer_id", "producer_epoch", "base_sequence"):
        head[name] = -1
    head["record_count"] = counts
    _put_rows(data, positions, head)
    view = memoryview(data)
    spans = zip((positions + CRC_START).tolist(), (positions + sizes).tolist(), strict=True)
    head["crc"] = [google_crc32c.value(bytes(view[a:b])) for a, b in spans]
    _put_rows(data, positions, head)
    return Layout(data, positions, starts + counts - 1, head["max_timestamp"].astype(np.int64))


def messages(
    records: Records,
    starts: Ints,
    *,
    magic: int,
    codec: int = 0,
    compress: Callable[[bytes], bytes] | None = None,
) -> Layout:
    """Lay out magic 0 or 1 messages, or with a codec wrappers of one set per batch.

    Args:
        records: the records; record i gets offset i. Magic 0 stores no timestamps.
        starts: first record of each wrapper; unused without a codec.
        magic: 0 or 1; inner offsets of a magic 1 wrapper are relative.
        codec: codec id for the wrappers' attributes.
        compress: what makes the codec's stream of a message set; None for codec 0.
    """
    counts = np.diff(starts, append=len(records))
    offsets = np.arange(len(records))
    if compress and magic == 1:
        offsets = offsets - np.repeat(starts, counts)
    data, positions = _message_bytes(records, offsets, magic)
    if compress is None:
        return Layout(data, positions, offsets, records.timestamps)
    set_starts = positions[starts]
    ends = np.append(set_starts[1:], len(data))
    parts = [compress(data[a:b].tobytes()) for a, b in zip(set_starts, ends, strict=True)]
    last_offsets = starts + counts - 1
    timestamps = np.maximum.reduceat(records.timestamps, starts)
    wrapped, wrapper_positions = _wrappers(parts, last_offsets, timestamps, magic, codec)
    return Layout(wrapped, wrapper_positions, last_offsets, timestamps)


def record_sizes(records: Records) -> Ints:
    """About how many bytes each magic 2 record takes: two for each delta, two for the length."""
    fixed = 2 + 1 + 2 + 2 + 1 + records.keys.shape[1] + records.headers.shape[1]
    return fixed + _varint_sizes(records.value_bytes * 2) + records.value_bytes


def _record_bytes(records: Records, starts: Ints, counts: Ints, gap: int) -> tuple[Bytes, Ints]:
    """Write all records, `gap` bytes left free before each batch; also where its first one lies."""
    count, key_bytes = records.keys.shape
    offset_deltas = np.arange(count) - np.repeat(starts, counts)
    time_deltas = records.timestamps - np.repeat(records.timestamps[starts], counts)
    varints = [_zigzag(time_deltas), _zigzag(offset_deltas)]
    value_varint = _zigzag(records.value_bytes)
    sizes = 1 + _varint_sizes(varints[0]) + _varint_sizes(varints[1]) + 1 + key_bytes
    sizes += _varint_sizes(value_varint) + records.value_bytes + records.headers.shape[1]
    length_varint = _zigzag(sizes)
    totals = sizes + _varint_sizes(length_varint)
    gaps = np.zeros(count, np.int64)
    gaps[starts] = gap
    ends = np.cumsum(totals + gaps)
    data = np.zeros(int(ends[-1]), np.uint8)
    first = ends - totals
    at = _put_varints(data, first, length_varint) + 1
    for varint in varints:
        at = _put_varints(data, at, varint)
    data[at] = key_bytes * 2
    _put_rows(data, at + 1, records.keys)
    at = _put_varints(data, at + 1 + key_bytes, value_varint)
    _copy_ragged(data, at, records)
    _put_rows(data, at + records.value_bytes, records.headers)
    return data, first[starts]


def _message_bytes(records: Records, offsets: Ints, magic: int) -> tuple[Bytes, Ints]:
    dtype = MESSAGE_HEADER[magic]
    count, key_bytes = records.keys.shape
    sizes = dtype.itemsize + key_bytes + 4 + records.value_bytes
    ends = np.cumsum(sizes)
    positions = ends - sizes
    data = np.zeros(int(ends[-1]), np.uint8)
    head = np.zeros(count, dtype)
    head["offset"] = offsets
    head["size"] = sizes - LOG_OVERHEAD
    head["magic"] = magic
    if magic == 1:
        head["timestamp"] = records.timestamps
    head["key_bytes"] = key_bytes
    _put_rows(data, positions, head)
    _put_rows(data, positions + dtype.itemsize, records.keys)
    at = positions + dtype.itemsize + key_bytes
    _put_rows(data, at, records.value_bytes.astype(">i4"))
    _copy_ragged(data, at + 4, records)
    view = memoryview(data)
    spans = zip((positions + 16).tolist(), ends.tolist(), strict=True)
    head["crc"] = [zlib.crc32(view[a:b]) for a, b in spans]
    _put_rows(data, positions, head)
    return data, positions


def _wrappers(
    parts: list[bytes], offsets: Ints, timestamps: Ints, magic: int, codec: int
) -> tuple[Bytes, Ints]:
    dtype = MESSAGE_HEADER[magic]
    data, positions = _with_gaps(parts, dtype.itemsize + 4)
    head = np.zeros(len(parts), dtype)
    head["offset"] = offsets
    head["size"] = np.diff(positions, append=len(data)) - LOG_OVERHEAD
    head["magic"] = magic
    head["attributes"] = codec
    if magic == 1:
        head["timestamp"] = timestamps
    head["key_bytes"] = -1
    _put_rows(data, positions, head)
    lengths = np.array([len(part) for part in parts], dtype=">i4")
    _put_rows(data, positions + dtype.itemsize, lengths)
    ends = positions + head["size"] + LOG_OVERHEAD
    view = memoryview(data)
    spans = zip((positions + 16).tolist(), ends.tolist(), strict=True)
    head["crc"] = [zlib.crc32(view[a:b]) for a, b in spans]
    _put_rows(data, positions, head)
    return data, positions


def _with_gaps(parts: list[bytes], gap: int) -> tuple[Bytes, Ints]:
    """Join `parts`, `gap` zero bytes before each; also where each gap starts."""
    sizes = np.array([gap + len(part) for part in parts], dtype=np.int64)
    space = bytes(gap)
    joined = bytearray().join(piece for part in parts for piece in (space, part))
    return np.frombuffer(joined, np.uint8), np.cumsum(sizes) - sizes


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _varint_sizes(values: Ints) -> Ints:
    """Bytes of each varint; values are zigzagged already and below 2^35."""
    return 1 + sum((values >= 1 << shift).astype(np.int64) for shift in (7, 14, 21, 28))


def _put_varints(data: Bytes, positions: Ints, values: Ints) -> Ints:
    """Write a varint at each position and answer where each ends."""
    sizes = _varint_sizes(values)
    for byte in range(int(sizes.max())):
        here = sizes > byte
        more = (sizes[here] > byte + 1).astype(np.uint8) << 7
        data[positions[here] + byte] = ((values[here] >> 7 * byte) & 0x7F).astype(np.uint8) | more
    return positions + sizes


def _put_rows(data: Bytes, positions: Ints, rows: NDArray[np.generic]) -> None:
    """Write one equally long row of bytes at each position."""
    flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(positions), -1)
    for column in range(flat.shape[1]):
        data[positions + column] = flat[:, column]


def _copy_ragged(data: Bytes, positions: Ints, records: Records) -> None:
    """Copy each value from the pool to its place, a bounded number of records at a time."""
    for first in range(0, len(records), COPY_RECORDS):
        piece = slice(first, first + COPY_RECORDS)
        sizes = records.value_bytes[piece]
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        source = np.repeat(records.value_starts[piece], sizes) + within
        data[np.repeat(positions[piece], sizes) + within] = records.text[source]
