"""Fields that all records of a written batch share, and the checks that need no record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kseg.commands import suggestion
from kseg.constants import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Codec,
    Compression,
    TimestampType,
)
from kseg.documents import frozen_dataclass
from kseg.errors import InvalidRecordError
from kseg.format.bodies import at_batch
from kseg.format.compress import check_level
from kseg.format.header import BatchHeader

if TYPE_CHECKING:

    class _CodecField:
        """A field that is set with a codec or its name, and returns the codec."""

        def __get__(self, instance: object | None, owner: type) -> Compression: ...
        def __set__(self, instance: object, value: Codec) -> None: ...


#: Widths of the numbers that go into a header.
_BITS = {
    "log_append_time": 64,
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
    "leader_epoch": 32,
    "delete_horizon_ms": 64,
}


def overhead_bytes(magic: int, codec: int) -> int:
    """Bytes around the records of a batch or wrapper, for which a builder leaves room.

    Source: Kafka AbstractRecords.recordBatchHeaderSizeInBytes.
    """
    if magic >= 2:
        return BATCH_HEADER_BYTES
    return LOG_OVERHEAD + (22 if magic else 14) if codec else 0


#: Options of batches: an object of `BatchOptions`, or a dict of its fields.
OptionsLike: TypeAlias = "BatchOptions | Mapping[str, Any]"


@frozen_dataclass
class BatchOptions:
    """How a batch is written, besides its records and offsets.

    Attributes:
        magic: 0, 1 or 2.
        compression: codec of the batch, or of the wrapper message for magic 0 and 1; or its name,
            such as "zstd".
        level: the codec's level; None for Kafka's default.
        timestamp_type: create time unless given; magic 0 has none.
        log_append_time: the time of every record under log append time, in ms.
        producer_id, producer_epoch, base_sequence: the idempotent producer's; -1 if there is none.
        transactional: the records belong to a transaction.
        control: the records are markers rather than data.
        leader_epoch: partition leader epoch; -1 from producers.
        delete_horizon_ms: when compaction may drop tombstones and markers; -1 if not set.
        is_log_append: whether every record reports the time of its append.
        attributes: the header's bits for all of these.

    Raises:
        ValueError: the arguments exclude each other, as in Kafka's builder, or a number does not
            fit its field.

    Source: Kafka MemoryRecordsBuilder's constructor.
    """

    magic: int = 2
    if TYPE_CHECKING:
        compression: _CodecField = _CodecField()
    else:
        compression: Compression = Compression.NONE
    level: int | None = None
    timestamp_type: TimestampType | None = None
    log_append_time: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    delete_horizon_ms: int = -1
    is_log_append: bool = field(init=False, repr=False, compare=False)
    attributes: int = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, options: OptionsLike | None) -> BatchOptions:
        """Options, or a dict of them; the defaults for None.

        Args:
            options: either of them.

        Raises:
            ValueError: as of the class, or a name is not known.
        """
        if isinstance(options, BatchOptions):
            return options
        chosen = dict(options or {})
        option_names = [option.name for option in fields(cls) if option.init]
        for name in chosen.keys() - set(option_names):
            hint = suggestion([str(name)], option_names, f"there are: {', '.join(option_names)}")
            raise ValueError(f"{name!r} is not an option of a batch{hint}")
        return cls(**chosen)

    def __post_init__(self) -> None:
        """Refuse options that Kafka's builder refuses before its first record."""
        magic = self.magic
        if magic not in (0, 1, 2):
            raise ValueError(f"magic is 0, 1 or 2, not {magic}")
        object.__setattr__(self, "compression", Compression(self.compression))
        if self.timestamp_type is None:
            kind = TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE
            object.__setattr__(self, "timestamp_type", kind)
        elif magic and self.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError(f"magic {magic} has timestamps, so their type must be given")
        if magic < 2:
            self._check_old()
        if self.level is not None:
            check_level(self.compression, self.level)
        for name, bits in _BITS.items():
            if not -(1 << bits - 1) <= getattr(self, name) < 1 << bits - 1:
                raise ValueError(f"{name} {getattr(self, name)} does not fit {bits} bits")
        if self.log_append_time < NO_TIMESTAMP:
            raise ValueError(f"log_append_time {self.log_append_time} is negative and not -1")
        log_append = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        object.__setattr__(self, "is_log_append", log_append)
        object.__setattr__(self, "attributes", self._attributes())

    def _attributes(self) -> int:
        if self.magic == 0:
            return int(self.compression)
        flags = self.is_log_append << 3 | self.transactional << 4 | self.control << 5
        return self.compression | flags | self.has_delete_horizon << 6

    def _check_old(self) -> None:
        """Refuse fields that magic 0 and 1 do not have."""
        magic = self.magic
        if self.transactional:
            raise ValueError(f"magic {magic} has no transactions")
        if self.control:
            raise ValueError(f"magic {magic} has no control records")
        if self.compression == Compression.ZSTD:
            raise ValueError(f"magic {magic} has no zstd compression")
        if self.delete_horizon_ms != -1:
            raise ValueError(f"magic {magic} has no delete horizon")

    @property
    def has_producer(self) -> bool:
        """Whether the batch names its producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base timestamps give the delete horizon."""
        return self.magic >= 2 and self.delete_horizon_ms >= 0

    def check_producer(self) -> None:
        """Refuse producer fields that do not fit each other, as Kafka's builder does on closing.

        Raises:
            InvalidRecordError: a transaction without producer, a producer without epoch or
                sequence, or a producer where the format has none.

        Source: Kafka MemoryRecordsBuilder.validateProducerState.
        """
        # Readers treat any negative id as none, Kafka's builder only -1.
        if self.producer_id == NO_PRODUCER_ID:
            if self.transactional:
                raise InvalidRecordError("a transactional batch needs a producer id")
            return
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            raise InvalidRecordError(f"producer {self.producer_id} has no epoch")
        if self.base_sequence < 0 and not self.control:
            raise InvalidRecordError(f"producer {self.producer_id} has no base sequence")
        if self.magic < 2:
            raise InvalidRecordError(f"magic {self.magic} has no producer ids")


def no_append_time(timestamp: int) -> InvalidRecordError:
    """The error for an append time that no broker writes."""
    return InvalidRecordError(f"the time of its append is {timestamp} ms, negative and not -1")


def options_for(
    header: BatchHeader, magic: int, compression: Compression | None = None
) -> BatchOptions:
    """The options to write a batch's records in another magic: its codec, and its kind of times.

    Magic 0 has no times; in a later magic its records have create time -1, which means no time.

    Raises:
        InvalidRecordError: the time of its append is below -1, which no broker writes.

    Source: Kafka RecordsUtil.convertRecordBatch.
    """
    kind = header.timestamp_type
    if kind == TimestampType.NO_TIMESTAMP_TYPE:
        kind = TimestampType.CREATE_TIME
    log_append = kind == TimestampType.LOG_APPEND_TIME
    if log_append and header.max_timestamp < NO_TIMESTAMP:
        raise at_batch(no_append_time(header.max_timestamp), header)
    return BatchOptions(
        magic=magic,
        compression=header.compression if compression is None else compression,
        timestamp_type=kind,
        log_append_time=header.max_timestamp if log_append else NO_TIMESTAMP,
    )


def options_of_rewritten(
    header: BatchHeader,
    magic: int,
    compression: Compression | None = None,
    *,
    delete_horizon_ms: int = -1,
) -> BatchOptions:
    """As `options_for`, but a batch of magic 2 keeps its producer, its epoch and its kind."""
    options = options_for(header, magic, compression)
    if header.magic < 2:
        return replace(options, delete_horizon_ms=delete_horizon_ms)
    return replace(
        options,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
    )
