"""The changed beginning of a batch that stays as it is: offset, epoch, and time where that differs.

Everything behind a head is the producer's own bytes. Only where the time changes does the checksum,
which is then taken over head and tail as they are. Refuses to know rules.
"""

from __future__ import annotations

from struct import Struct

from kseg import _core, _validate
from kseg.constants import LOG_OVERHEAD
from kseg.format.header import LOG_APPEND, BatchHeader, wrap_int64

#: A batch of magic 2 up to its checksum, then on to the end of its largest time.
_HEAD, _TIMED_HEAD = Struct(">qiibI"), Struct(">hiqq")
#: An entry of magic 1 up to its checksum, then on to the end of its time.
_ENTRY_HEAD, _TIMED_ENTRY = Struct(">qiI"), Struct(">bbq")
_TIMED_HEAD_BYTES, _TIMED_ENTRY_BYTES = 43, 26
#: Attributes that a rewrite keeps: codec, transactional, control, delete horizon.
_KEPT_ATTRIBUTES = 0x77


def batch_head(
    view: memoryview,
    header: BatchHeader,
    *,
    last_offset: int,
    leader_epoch: int,
    log_append: bool,
    max_timestamp: int | None,
) -> bytes:
    """The head of a magic 2 batch: 21 bytes, or 43 where its time changes and so its checksum.

    Args:
        view: the batch.
        header: of the batch.
        last_offset: what its last offset becomes.
        leader_epoch: what its epoch becomes.
        log_append: whether its time becomes the log's.
        max_timestamp: what its largest time becomes; None to leave time and type alone.

    Source: Kafka DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    # As it is stored: the last offset of a header that lies may have gone round 64 bits.
    _, delta, base_timestamp, _ = _TIMED_HEAD.unpack_from(view, 21)
    front = (
        wrap_int64(last_offset - delta),
        header.size - LOG_OVERHEAD,
        leader_epoch,
        header.magic,
    )
    same_type = bool(header.attributes & LOG_APPEND) == log_append
    if max_timestamp is None or (same_type and header.max_timestamp == max_timestamp):
        return _HEAD.pack(*front, header.crc)
    attributes = header.attributes & _KEPT_ATTRIBUTES | (LOG_APPEND if log_append else 0)
    timed = _TIMED_HEAD.pack(attributes, delta, base_timestamp, max_timestamp)
    crc = _core.crc32c(view[_TIMED_HEAD_BYTES:], _core.crc32c(timed))
    return _HEAD.pack(*front, crc) + timed


def entry_head(
    view: memoryview, header: BatchHeader, *, offset: int, log_append: bool, timestamp: int
) -> bytes:
    """The first 26 bytes of a magic 1 message, its checksum changed only where its time is.

    Args:
        view: the entry.
        header: of the entry.
        offset: what its offset becomes.
        log_append: whether its time becomes the log's.
        timestamp: what its time becomes.

    Source: Kafka AbstractLegacyRecordBatch.ByteBufferLegacyRecordBatch.setMaxTimestamp.
    """
    timed, crc = bytes(view[16:_TIMED_ENTRY_BYTES]), header.crc
    same_type = bool(header.attributes & LOG_APPEND) == log_append
    if not same_type or header.max_timestamp != timestamp:
        attributes = header.codec | (LOG_APPEND if log_append else 0)
        timed = _TIMED_ENTRY.pack(header.magic, attributes, timestamp)
        crc = _core.crc32(view[_TIMED_ENTRY_BYTES:], _core.crc32(timed))
    return _ENTRY_HEAD.pack(offset, header.size - LOG_OVERHEAD, crc) + timed


def plain_entries(view: memoryview, *, next_offset: int, append_time: int | None) -> bytes:
    """Plain messages with their new offsets, copied.

    Args:
        view: whole entries of magic 0 or 1.
        next_offset: offset of the first.
        append_time: the log's time, which those of magic 1 get; None to leave them theirs.

    Source: as `entry_head`.
    """
    changed = bytearray(view)
    _validate.assign_messages(
        changed,
        next_offset=next_offset,
        create_time=append_time is None,
        now=append_time or 0,
    )
    return bytes(changed)
