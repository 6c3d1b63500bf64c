"""One whole batch of magic 2, told from its first 61 bytes: what most appends consist of.

Where anything is unusual the answer is None, and whoever asked goes the way that serves all, and
says what is wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kseg.constants import LOG_OVERHEAD
from kseg.format.header import LOG_APPEND, BatchHeader

_HEADER: Final = Struct(">qiibIhiqqqhii")


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


__all__ = ["OneBatch", "one_batch"]
