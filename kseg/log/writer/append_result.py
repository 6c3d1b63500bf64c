"""What is answered to an append."""

from __future__ import annotations

from typing import NamedTuple

from kseg.constants import NO_TIMESTAMP
from kseg.format.down_convert import ConversionStats
from kseg.log.validate.rules import NOTHING_CONVERTED


class AppendResult(NamedTuple):
    """What became of an append; -1 stands where there is nothing to say. Made for each, so a tuple.

    Attributes:
        first_offset, last_offset: of its records; of those written before, if it is a duplicate.
        record_count: how many; -1 where only inflating would tell it.
        valid_bytes: bytes that were written, or were there already.
        max_timestamp: the largest timestamp in ms.
        offset_of_max_timestamp: the last offset of the earliest batch that has it.
        log_append_time: the time of the append in ms, if records have that instead of their own;
            also the largest timestamp of the batch that a duplicate repeats, as in Kafka.
        log_start_offset: the first offset of the log that may be read.
        last_leader_epoch: of the last batch, where it was brought and not given.
        duplicate: whether the producer had sent it before, so that nothing was written.
        stats: what validating cost.
        trimmed_bytes: what a follower's append left out behind the batches that were written: an
            incomplete one, or those of a later epoch. A leader's leaves nothing out.
    """

    first_offset: int = -1
    last_offset: int = -1
    record_count: int = 0
    valid_bytes: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = 0
    last_leader_epoch: int = -1
    duplicate: bool = False
    stats: ConversionStats = NOTHING_CONVERTED
    trimmed_bytes: int = 0


def merged(one: AppendResult, next_one: AppendResult) -> AppendResult:
    """The answer for two appends, one behind the other; a duplicate only if both are."""
    later = next_one.max_timestamp > one.max_timestamp
    counts = one.record_count, next_one.record_count
    return next_one._replace(
        first_offset=one.first_offset if one.first_offset >= 0 else next_one.first_offset,
        last_offset=next_one.last_offset if next_one.last_offset >= 0 else one.last_offset,
        record_count=-1 if min(counts) < 0 else sum(counts),
        valid_bytes=one.valid_bytes + next_one.valid_bytes,
        max_timestamp=next_one.max_timestamp if later else one.max_timestamp,
        offset_of_max_timestamp=(next_one if later else one).offset_of_max_timestamp,
        duplicate=one.duplicate and next_one.duplicate,
        stats=one.stats + next_one.stats,
        trimmed_bytes=one.trimmed_bytes + next_one.trimmed_bytes,
    )


__all__ = ["AppendResult", "merged"]
