"""One whole batch of magic 2, told from its first 61 bytes: what most appends consist of.

Where anything is unusual the answer is None, and whoever asked goes the way that serves all, and
says what is wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kseg import _core
from kseg.constants import LOG_OVERHEAD, NO_TIMESTAMP, Compression
from kseg.format.header import CODEC_MASK, CONTROL, LOG_APPEND, BatchHeader
from kseg.log.append_rules import NOTHING_CONVERTED, ValidatedBatch

#: Where the checksum is, and where begins what it covers; a header's bytes.
_COVERED_AT: Final = 21
_HEADER: Final = Struct(">qiibIhiqqqhii")
_OFFSET_MAX: Final = 2**63 - 2**33


class OneBatch(NamedTuple):
    """The header of a batch, each field as stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker, whose kind only its record tells."""
        return bool(self.attributes & CONTROL)

    def header(
        self,
        *,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        log_append: bool,
    ) -> BatchHeader:
        """The header of a data batch, with what it gets from the log; the checksum stays as is."""
        attributes = self.attributes & ~LOG_APPEND | (LOG_APPEND if log_append else 0)
        return BatchHeader(
            0,
            self.length + LOG_OVERHEAD,
            self.magic,
            base_offset,
            last_offset,
            leader_epoch,
            self.crc,
            attributes,
            self.base_timestamp,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
            -1,
            -1,
            -1,
        )


def one_batch(view: memoryview) -> OneBatch | None:
    """The header, if the bytes are one batch of magic 2 and nothing else; no checksum is asked."""
    if len(view) < _HEADER.size:
        return None
    batch = OneBatch._make(_HEADER.unpack_from(view))
    whole = batch.length == len(view) - LOG_OVERHEAD and batch.magic == 2
    return batch if whole else None


def take_replica(view: memoryview, batch: OneBatch, next_offset: int) -> ValidatedBatch | None:
    """What a follower asks of one batch; see `kseg.log.validation.validate_replica`."""
    first, delta = batch.base_offset, batch.last_offset_delta
    if not next_offset <= first <= _OFFSET_MAX or delta < 0:
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
        batch.record_count,
        max(timestamp, NO_TIMESTAMP),
        last if timestamp > NO_TIMESTAMP else -1,
        False,
        NO_TIMESTAMP,
        NOTHING_CONVERTED,
        True,
    )


__all__ = ["OneBatch", "one_batch", "take_replica"]
