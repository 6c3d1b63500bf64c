"""Where one batch ends and the next begins when plain messages are gathered into batches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import TimestampType

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.values import RecordColumns

    Array = npt.NDArray[Any]

#: What a record takes besides its key and value, about.
_RECORD_BYTES = 20
_OFFSET_DELTA_MAX = 2**31 - 1


def batch_cuts(
    columns: RecordColumns,
    kinds: Array,
    codecs: Array,
    *,
    magic: int,
    bounded: bool,
    batch_bytes: int,
    kafka07: bool,
) -> list[int]:
    """Rows where a new batch begins, since records cannot share one or it is full; and the end.

    Args:
        columns: the records: `offset timestamp key value position`.
        kinds: int[n], type of each record's timestamp; all that share a batch have one.
        codecs: int[n], of the message each record comes from; compressed only in Kafka 0.7.
        magic: what the batches become.
        bounded: whether batches are wrapped at all; plain messages need no bounds.
        batch_bytes: about how large a batch may become.
        kafka07: offsets are positions, which are not kept.
    """
    times, offsets = columns["timestamp"], columns["offset"]
    apart = (np.diff(kinds) != 0) | (np.diff(codecs) != 0)
    if magic:
        # Under log append time a batch has but one time.
        apart |= (kinds[1:] == TimestampType.LOG_APPEND_TIME) & (np.diff(times) != 0)
    if kafka07:
        # A compressed set stays one.
        apart |= (codecs[1:] != 0) & (np.diff(columns["position"]) != 0)
    else:
        apart |= offsets[1:] <= offsets[:-1]
    forced = [0, *(np.flatnonzero(apart) + 1).tolist(), len(columns)]
    if not bounded and not codecs.any():
        return forced
    sizes = columns["value"].sizes() + columns["key"].sizes() + np.int64(_RECORD_BYTES)
    return _full(forced, np.cumsum(sizes), offsets, codecs, batch_bytes)


def _full(
    forced: list[int], sizes: Array, offsets: Array, codecs: Array, batch_bytes: int
) -> list[int]:
    """Further cuts where a batch of plain messages is full, or its offsets are too far apart."""
    cuts = []
    for first, end in pairwise(forced):
        while first < end:
            cuts.append(first)
            before = int(sizes[first - 1]) if first else 0
            room = int(np.searchsorted(sizes[first:end], before + batch_bytes, "right"))
            if codecs[first]:
                room = end - first
            far = int(offsets[first]) + _OFFSET_DELTA_MAX
            near = int(np.searchsorted(offsets[first:end], far, "right"))
            first += max(1, min(room, near))
    return [*cuts, forced[-1]]


__all__ = ["batch_cuts"]
