"""The rules for an append, its origin, and the validated result: values only.

The checks are in `kseg.log.validate.batches` and `kseg.log.validate.batches`. Their order is in
`kseg.log.validate.append`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kseg.constants import INT64_MAX, NO_TIMESTAMP, AppendOrigin, Compression, TimestampType
from kseg.documents import frozen_dataclass
from kseg.format.compress import check_level
from kseg.format.header import BatchTable
from kseg.format.request import INFLATED_BYTES_MAX

#: No batch of a log ends past this: the offset after it has 64 bits, too.
LAST_OFFSET_MAX = INT64_MAX - 1
#: No append has as many offsets as are left from here on; the short ways stop before it.
NEAR_OFFSET_MAX = 2**63 - 2**33


def check_given(next_offset: int, now_ms: int) -> None:
    """Raises ValueError for an invalid offset or time."""
    if not 0 <= next_offset <= INT64_MAX:
        raise ValueError(f"next_offset is 0 to 2^63 - 1, not {next_offset}")
    if not 0 <= now_ms <= INT64_MAX:
        raise ValueError(f"now_ms is 0 to 2^63 - 1, not {now_ms}")


@frozen_dataclass
class AppendRules:
    """The rules for an append, and the format in which it is stored.

    Attributes:
        magic: the format that is stored, 0 to 2.
        compression: the codec that is stored; None to keep the producer's.
        level: the level of that codec, for rebuilt batches; None for Kafka's default.
        compacted: the log is compacted, so every record needs a key.
        timestamp_type: create time or log append time.
        timestamp_before_max_ms: how much older than now a create time may be, in ms.
        timestamp_after_max_ms: how much newer than now it may be, in ms.
        leader_epoch: written into batches of magic 2; for a Raft leader the epoch that they must
            have.
        origin: where the batches come from.
        batch_bytes_max: `max.message.bytes`, with the 12 of offset and size; None for no limit.
        append_bytes_max: `segment.bytes`; None for no limit.
        zstd_allowed: false if the inter-broker version is below 2.1.
        inflated_bytes_max: no batch may inflate to more bytes.

    Raises:
        ValueError: the arguments exclude each other.

    Source: Kafka LogValidator's constructor, LogConfig.
    """

    magic: int = 2
    compression: Compression | None = None
    level: int | None = None
    compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    leader_epoch: int = 0
    origin: AppendOrigin = AppendOrigin.CLIENT
    batch_bytes_max: int | None = None
    append_bytes_max: int | None = None
    zstd_allowed: bool = True
    inflated_bytes_max: int = INFLATED_BYTES_MAX

    def __post_init__(self) -> None:
        """Refuse arguments that exclude each other."""
        if self.magic not in (0, 1, 2):
            raise ValueError(f"magic is 0, 1 or 2, not {self.magic}")
        if self.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("a log's timestamps are create time or log append time")
        for name in ("timestamp_before_max_ms", "timestamp_after_max_ms"):
            if not 0 <= getattr(self, name) <= INT64_MAX:
                raise ValueError(f"{name} is 0 to 2^63 - 1, not {getattr(self, name)}")
        if not -1 <= self.leader_epoch < 2**31:
            raise ValueError(f"leader_epoch is -1 to 2^31 - 1, not {self.leader_epoch}")
        object.__setattr__(self, "timestamp_type", TimestampType(self.timestamp_type))
        object.__setattr__(self, "origin", AppendOrigin(self.origin))
        if self.compression is not None:
            object.__setattr__(self, "compression", Compression(self.compression))
        elif self.level is not None:
            raise ValueError("a level needs a codec; the producer's is kept at Kafka's default")
        if self.compression == Compression.ZSTD and self.magic < 2:
            raise ValueError(f"magic {self.magic} has no zstd compression")
        if self.level is not None and self.compression is not None:
            check_level(self.compression, self.level)

    @property
    def is_log_append(self) -> bool:
        """Whether the log, not the producer, says when a record was made."""
        return self.timestamp_type == TimestampType.LOG_APPEND_TIME


@dataclass(slots=True)
class ValidationMetrics:
    """How often appends were refused, for each reason; the counts go on from append to append.

    Source: Kafka LogValidator.MetricsRecorder.
    """

    invalid_magic: int = 0
    invalid_offset: int = 0
    invalid_sequence: int = 0
    invalid_checksum: int = 0
    no_key_compacted: int = 0


@frozen_dataclass
class ConversionStats:
    """The memory and records that a conversion took, for a fetch or on append.

    Attributes:
        temporary_bytes: bytes inflated or built on the way. For a fetch: sizes of all source
            batches that were not dropped, and of the converted ones once more, before compression.
        records_converted: rewritten records.

    Source: Kafka RecordValidationStats, until 3.9 RecordConversionStats.
    """

    temporary_bytes: int = 0
    records_converted: int = 0

    def __add__(self, other: ConversionStats) -> ConversionStats:
        """Both together."""
        return ConversionStats(
            self.temporary_bytes + other.temporary_bytes,
            self.records_converted + other.records_converted,
        )


#: The statistics of nearly every append.
NOTHING_CONVERTED = ConversionStats()


@dataclass(slots=True, eq=False)  # a frozen dataclass takes longer to make
class ValidatedBatch:
    """An append to be written as it is: with the offsets, epoch and times of the log.

    Attributes:
        head: the bytes that were made or changed: 21 of a batch of magic 2 whose time stays, 43
            where it does not, 26 of a wrapper message, or everything.
        first_offset, last_offset: the offsets given.
        record_count: the number of records.
        max_timestamp: the largest timestamp; -1 if there is none.
        offset_of_max_timestamp: the last offset of the batch that has it; -1 if there is none.
        tail: the bytes after the head, borrowed from the input, which must not change until they
            are written; empty if all was rebuilt.
        sizes_maybe_changed: whether batches were rebuilt, so that their sizes may differ.
        log_append_time: the time of the append in ms under log append time, else -1.
        stats: its cost.
        table: the headers, if they were read and keep their offsets; else None.
    """

    head: bytes
    first_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    offset_of_max_timestamp: int
    tail: memoryview | bytes = b""
    sizes_maybe_changed: bool = False
    log_append_time: int = NO_TIMESTAMP
    stats: ConversionStats = NOTHING_CONVERTED
    table: BatchTable | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.last_offset + 1

    @property
    def in_place(self) -> bool:
        """Whether the records are the input's, byte for byte."""
        return not self.sizes_maybe_changed

    def __len__(self) -> int:
        """How many bytes."""
        return len(self.head) + len(self.tail)

    def parts(self) -> tuple[bytes, memoryview | bytes]:
        """Head and tail, to be written by one call."""
        return self.head, self.tail

    def to_bytes(self) -> bytes:
        """All bytes in one piece, copied."""
        return b"".join((self.head, self.tail))
