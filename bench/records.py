"""Seeded records as columns: what the logs of the benchmarks hold, and what writers are given.

Values are slices of JSON lines, +-25 % in length, keys are 16 hex digits, timestamps mostly ascend.
A size of values and a number of records give the same columns wherever NumPy is the same.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20_261_121
KEY_BYTES = 16
TEXT_BYTES = 4 << 20
#: Values copied at a time: bounds the index arrays that a ragged copy needs.
COPY_RECORDS = 16_384


def make(count: int, value_bytes: int, *, headers: int = 0) -> RecordColumns:
    """Records as a reader would give them: offset, timestamp, key, value and, if any, headers.

    Args:
        count: how many, at offsets 0, 1, 2...
        value_bytes: their mean size.
        headers: how many each one has.
    """
    rng = np.random.default_rng([SEED, value_bytes])
    spread = value_bytes // 4
    lengths = rng.integers(value_bytes - spread, value_bytes + spread + 1, count)
    starts = rng.integers(0, TEXT_BYTES - value_bytes - spread, count)
    # Mostly ascending, as producers' clocks are: deltas take one or two bytes and either sign.
    times = 1_700_000_000_000 + np.cumsum(rng.integers(0, 3, count)) + rng.integers(-4, 5, count)
    columns: dict[str, Any] = {
        "offset": np.arange(count, dtype=np.int64),
        "timestamp": times,
        "key": _equal(np.frombuffer(rng.bytes(count * KEY_BYTES // 2).hex().encode(), np.uint8)),
        "value": _slices(_text(), starts, lengths),
    }
    if headers:
        columns["headers"] = _headers(rng, count, headers)
    return RecordColumns(count, columns)


def part(records: RecordColumns, first: int, end: int) -> RecordColumns:
    """Some rows, as columns that own what they hold; not for records with headers."""
    rows = slice(first, end)
    columns: dict[str, Any] = {
        "offset": records["offset"][rows].copy(),
        "timestamp": records["timestamp_ms"][rows].copy(),
    }
    for name in ("key", "value"):
        offsets = records[name].offsets[first : end + 1]
        data = records[name].data[offsets[0] : offsets[-1]].copy()
        columns[name] = BinaryColumn(offsets - offsets[0], data, None, 0)
    return RecordColumns(len(columns["offset"]), columns)


def lists(records: RecordColumns) -> dict[str, list[Any]]:
    """The same records as Python objects, a list for each field; no headers."""
    return {
        "timestamp": records["timestamp_ms"].tolist(),
        "key": list(records["key"]),
        "value": list(records["value"]),
    }


def _equal(data: NDArray[np.uint8], size: int = KEY_BYTES) -> BinaryColumn:
    """Byte strings that are all of one size."""
    return BinaryColumn(np.arange(0, len(data) + 1, size, dtype=np.int32), data, None, 0)


def _slices(
    text: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> BinaryColumn:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    for first in range(0, len(lengths), COPY_RECORDS):
        piece = slice(first, first + COPY_RECORDS)
        to = offsets[first : first + COPY_RECORDS + 1]
        shifts = np.repeat(starts[piece] - to[:-1], lengths[piece])
        data[to[0] : to[-1]] = text[np.arange(to[0], to[-1]) + shifts]
    return BinaryColumn(offsets, data, None, 0)


def _headers(rng: np.random.Generator, count: int, per_record: int) -> HeadersColumn:
    """Headers `trace-id-<n>` of 16 hex digits each."""
    names = "".join(f"trace-id-{number}" for number in range(per_record)).encode()
    digits = np.frombuffer(rng.bytes(count * per_record * 8).hex().encode(), np.uint8)
    return HeadersColumn(
        np.arange(0, count * per_record + 1, per_record, dtype=np.int32),
        _equal(np.tile(np.frombuffer(names, np.uint8), count), len(names) // per_record),
        _equal(digits, 16),
    )


@cache
def _text() -> NDArray[np.uint8]:
    """Lines of JSON events: field names repeat, numbers and names vary."""
    rng = np.random.default_rng(SEED)
    cities = ("Berlin", "Nairobi", "Lima", "Osaka", "Oslo", "Quito", "Turin", "Perth")
    kinds = ("order", "refund", "view", "click", "payment", "shipment")
    lines: list[str] = []
    rows = TEXT_BYTES // 120
    numbers = rng.integers(0, 10**9, (rows, 5)).tolist()
    for a, b, c, d, e in numbers:
        lines.append(
            f'{{"id":{a},"type":"{kinds[b % 6]}","user":"u{b % 100_000:05}",'
            f'"city":"{cities[c % 8]}","amount":{c / 1e7:.2f},"currency":"EUR",'
            f'"session":"{d:08x}{e:08x}","ok":{"true" if e % 7 else "false"}}}\n'
        )
    return np.frombuffer("".join(lines).encode()[:TEXT_BYTES], np.uint8)
