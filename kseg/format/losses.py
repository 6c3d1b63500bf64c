"""What a conversion drops, counted by kind."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from kseg.constants import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TimestampType,
)
from kseg.format.header import LOG_APPEND

if TYPE_CHECKING:
    from kseg.format.header import BatchTable
    from kseg.format.values import RecordColumns
    from kseg.format.whole import WholeBatches


@dataclass(slots=True)
class Losses:
    """How many batches or records lost something that their new format has no room for.

    Attributes:
        control_batches: transaction markers and other control batches, left out.
        empty_batches: batches that compaction left without records, left out.
        producer_batches: batches whose producer id, epoch and sequences are gone.
        transactional_batches: batches that no longer say they belong to a transaction; consumers
            then see aborted records too.
        leader_epochs: batches whose leader epoch is gone.
        delete_horizons: batches whose delete horizon is gone.
        offset_ranges: batches that covered more offsets than their records have; a gap is left at
            their end.
        header_records: records whose headers are gone.
        timestamps: records whose timestamp is gone.
        append_times: messages of magic 0, which have no timestamp, that got the append time of the
            message around them: a batch under log append time has one for all.
        physical_offsets: messages of Kafka 0.7 whose offsets, positions in a file, became numbers.
    """

    control_batches: int = 0
    empty_batches: int = 0
    producer_batches: int = 0
    transactional_batches: int = 0
    leader_epochs: int = 0
    delete_horizons: int = 0
    offset_ranges: int = 0
    header_records: int = 0
    timestamps: int = 0
    append_times: int = 0
    physical_offsets: int = 0

    def __bool__(self) -> bool:
        """Whether anything was lost."""
        return any(self.as_dict().values())

    def __add__(self, other: Losses) -> Losses:
        """Both together."""
        mine, others = self.as_dict(), other.as_dict()
        return Losses(**{name: mine[name] + others[name] for name in mine})

    def as_dict(self) -> dict[str, int]:
        """Each count by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def sentences(self) -> list[str]:
        """What was lost, in words; one sentence for each kind."""
        return [
            text.format(count) for name, text in _TEXT.items() if (count := getattr(self, name))
        ]


_TEXT = {
    "control_batches": "{} control batches left out",
    "empty_batches": "{} batches without records left out",
    "producer_batches": "{} batches lost their producer id, epoch and sequences",
    "transactional_batches": "{} batches are no longer transactional, aborted ones included",
    "leader_epochs": "{} batches lost their leader epoch",
    "delete_horizons": "{} batches lost their delete horizon",
    "offset_ranges": "{} batches end at their last record, below the last offset they covered",
    "header_records": "{} records lost their headers",
    "timestamps": "{} records lost their timestamp",
    "append_times": "{} records without a timestamp got the append time of their batch",
    "physical_offsets": "{} messages got consecutive offsets for their physical ones",
}


def of_batches(table: BatchTable) -> Losses:
    """What batches of magic 2 lose by their headers when they become magic 0 or 1."""
    control = table.is_control
    data = table.take(~control)

    def count(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        return int(np.count_nonzero(mask))

    return Losses(
        control_batches=count(control),
        empty_batches=count(data.record_count == 0),
        producer_batches=count(data.producer_id > NO_PRODUCER_ID),
        transactional_batches=count(data.is_transactional),
        leader_epochs=count(data.leader_epoch != NO_PARTITION_LEADER_EPOCH),
        delete_horizons=count(data.delete_horizon_ms != -1),
    )


def of_records(columns: RecordColumns, magic: int) -> Losses:
    """What records lose in `magic`, of those fields that were asked for."""
    losses = Losses()
    if magic < 2 and "headers" in columns.arrays:
        losses.header_records = int(np.count_nonzero(np.diff(columns["headers"].offsets)))
    if magic == 0:
        losses.timestamps = int(np.count_nonzero(columns["timestamp"] != -1))
    return losses


def of_wrappers(whole: WholeBatches, table: BatchTable, magic: int) -> Losses:
    """What messages lose that become one batch each with those around them, as in Kafka.

    Args:
        whole: their records, with timestamps.
        table: the batches that `whole` is of.
        magic: what they become.

    Source: Kafka RecordsUtil.convertRecordBatch.
    """
    if not (magic and table.magics_seen & 0b10 and table.attributes_seen & LOG_APPEND):
        return Losses()
    batch_has_one = (table.timestamp_type == TimestampType.LOG_APPEND_TIME) & (
        table.max_timestamp != NO_TIMESTAMP
    )
    gained = whole.spread(batch_has_one) & (whole.columns["timestamp"] == NO_TIMESTAMP)
    return Losses(append_times=int(np.count_nonzero(gained)))


__all__ = ["Losses", "of_batches", "of_records", "of_wrappers"]
