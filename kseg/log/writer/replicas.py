"""What a follower asks of what its leader sends, where nothing is wrong with it: in few steps.

All rules are those of `kseg.log.validate.append.validate_replica`. Where one is broken, or anything
is unusual, the answer is None, and whoever asked goes there, where it is said what is wrong.
"""

from __future__ import annotations

from typing import Final

from kseg import _core
from kseg.constants import NO_TIMESTAMP, Compression, StopReason
from kseg.format.header import CODEC_MASK, COLUMN, scan
from kseg.log.validate.rules import (
    LAST_OFFSET_MAX,
    NEAR_OFFSET_MAX,
    NOTHING_CONVERTED,
    ValidatedBatch,
)
from kseg.log.writer.one_batch import OneBatch

#: Where begins what a checksum covers.
_COVERED_AT: Final = 21
#: Batches of magic 2 alone, as `BatchTable.magics_seen` says it.
_MAGIC_2: Final = 1 << 2
#: So many bytes a batch has on the average, for a table that holds all of them.
_BATCH_BYTES: Final = 256
_BASE, _LAST, _TIME, _COUNT, _EPOCH = (
    COLUMN[name]
    for name in ("base_offset", "last_offset", "max_timestamp", "record_count", "leader_epoch")
)


def take_replica(view: memoryview, batch: OneBatch, next_offset: int) -> ValidatedBatch | None:
    """What a follower asks of one batch; see `kseg.log.validate.append.validate_replica`."""
    first, delta = batch.base_offset, batch.last_offset_delta
    if not next_offset <= first <= NEAR_OFFSET_MAX or delta < 0:
        return None
    if batch.attributes & CODEC_MASK > Compression.ZSTD:
        return None
    if _core.crc32c(view[_COVERED_AT:]) != batch.crc:
        return None
    last, timestamp = first + delta, batch.max_timestamp
    return ValidatedBatch(
        b"",
        view,
        first,
        last,
        last + 1,
        max(batch.record_count, -1),
        max(timestamp, NO_TIMESTAMP),
        last if timestamp > NO_TIMESTAMP else -1,
        False,
        NO_TIMESTAMP,
        NOTHING_CONVERTED,
        True,
    )


def take_replicas(view: memoryview, next_offset: int) -> ValidatedBatch | None:
    """What a follower asks of many batches."""
    table = scan(view, batches_max=len(view) // _BATCH_BYTES + 16)
    whole = table.stop is StopReason.END and table.end_position == len(view)
    if not whole or table.magics_seen != _MAGIC_2:
        return None
    if table.attributes_seen & CODEC_MASK > Compression.ZSTD:
        return None
    rows = table.rows
    first, last = int(table.base_offset[0]), rows[:, _LAST]
    if not next_offset <= first <= NEAR_OFFSET_MAX or last[0] < 0 or last[-1] > LAST_OFFSET_MAX:
        return None
    base = rows[:, _BASE]
    if base.min() < 0 or rows[:, _EPOCH].min() < 0 or not (base <= last).all():
        return None
    if len(rows) > 1 and not (base[1:] > last[:-1]).all():
        return None
    latest = rows[rows[:, _TIME].argmax()]
    timestamp, end, counts = int(latest[_TIME]), int(last[-1]), rows[:, _COUNT]
    return ValidatedBatch(
        b"",
        view,
        first,
        end,
        end + 1,
        int(counts.sum()) if counts.min() >= 0 else -1,
        max(timestamp, NO_TIMESTAMP),
        int(latest[_LAST]) if timestamp > NO_TIMESTAMP else -1,
        False,
        NO_TIMESTAMP,
        NOTHING_CONVERTED,
        True,
        table,
    )


__all__ = ["take_replica", "take_replicas"]
