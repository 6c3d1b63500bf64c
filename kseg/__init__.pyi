from collections.abc import Mapping
from typing import Final

from kseg import analysis as analysis
from kseg import arrow as arrow
from kseg import spark as spark
from kseg.constants import (
    Compression as Compression,
)
from kseg.constants import (
    ControlType as ControlType,
)
from kseg.constants import (
    StopReason as StopReason,
)
from kseg.constants import (
    TimestampType as TimestampType,
)
from kseg.errors import (
    AppendError as AppendError,
)
from kseg.errors import (
    BuilderStateError as BuilderStateError,
)
from kseg.errors import (
    CorruptIndexError as CorruptIndexError,
)
from kseg.errors import (
    CorruptRecordError as CorruptRecordError,
)
from kseg.errors import (
    DecompressionError as DecompressionError,
)
from kseg.errors import (
    FormatError as FormatError,
)
from kseg.errors import (
    InconsistentTopicIdError as InconsistentTopicIdError,
)
from kseg.errors import (
    InvalidProducerEpochError as InvalidProducerEpochError,
)
from kseg.errors import (
    InvalidRecordError as InvalidRecordError,
)
from kseg.errors import (
    InvalidTimestampError as InvalidTimestampError,
)
from kseg.errors import (
    InvalidTxnStateError as InvalidTxnStateError,
)
from kseg.errors import (
    KsegError as KsegError,
)
from kseg.errors import (
    LimitExceededError as LimitExceededError,
)
from kseg.errors import (
    LogLockedError as LogLockedError,
)
from kseg.errors import (
    MissingExtraError as MissingExtraError,
)
from kseg.errors import (
    MissingFieldError as MissingFieldError,
)
from kseg.errors import (
    NotALogError as NotALogError,
)
from kseg.errors import (
    OffsetOutOfRangeError as OffsetOutOfRangeError,
)
from kseg.errors import (
    OffsetOverflowError as OffsetOverflowError,
)
from kseg.errors import (
    OffsetsOutOfOrderError as OffsetsOutOfOrderError,
)
from kseg.errors import (
    OutOfOrderSequenceError as OutOfOrderSequenceError,
)
from kseg.errors import (
    PoisonedFileError as PoisonedFileError,
)
from kseg.errors import (
    ProducerError as ProducerError,
)
from kseg.errors import (
    RecordBatchTooLargeError as RecordBatchTooLargeError,
)
from kseg.errors import (
    RecordFault as RecordFault,
)
from kseg.errors import (
    RecordTooLargeError as RecordTooLargeError,
)
from kseg.errors import (
    SegmentInUseError as SegmentInUseError,
)
from kseg.errors import (
    StalePlanError as StalePlanError,
)
from kseg.errors import (
    TransactionCoordinatorFencedError as TransactionCoordinatorFencedError,
)
from kseg.errors import (
    UncleanShutdownError as UncleanShutdownError,
)
from kseg.errors import (
    UnexpectedAppendOffsetError as UnexpectedAppendOffsetError,
)
from kseg.errors import (
    UnreadableError as UnreadableError,
)
from kseg.errors import (
    UnsupportedFormatError as UnsupportedFormatError,
)
from kseg.files.checkpoints import TopicPartition as TopicPartition
from kseg.format.builder import BatchBuilder as BatchBuilder
from kseg.format.control import (
    EndMarker as EndMarker,
)
from kseg.format.control import (
    Endpoint as Endpoint,
)
from kseg.format.control import (
    KRaftVersion as KRaftVersion,
)
from kseg.format.control import (
    KRaftVoters as KRaftVoters,
)
from kseg.format.control import (
    LeaderChange as LeaderChange,
)
from kseg.format.control import (
    SnapshotFooter as SnapshotFooter,
)
from kseg.format.control import (
    SnapshotHeader as SnapshotHeader,
)
from kseg.format.control import (
    Voter as Voter,
)
from kseg.format.control import (
    parse_control as parse_control,
)
from kseg.format.convert import Conversion as Conversion
from kseg.format.convert import convert as convert
from kseg.format.down_convert import down_convert as down_convert
from kseg.format.encode import (
    encode_batch as encode_batch,
)
from kseg.format.encode import (
    encode_batches as encode_batches,
)
from kseg.format.encode import (
    encode_messages_07 as encode_messages_07,
)
from kseg.format.encoded import EncodedBatch as EncodedBatch
from kseg.format.header import BatchHeader as BatchHeader
from kseg.format.header import BatchTable as BatchTable
from kseg.format.message import Message as Message
from kseg.format.message07 import Message07 as Message07
from kseg.format.message07 import MessageSet07 as MessageSet07
from kseg.format.message_metadata import MessageAndMetadata as MessageAndMetadata
from kseg.format.message_set import MessageAndOffset as MessageAndOffset
from kseg.format.message_set import MessageSet as MessageSet
from kseg.format.options import BatchOptions as BatchOptions
from kseg.format.ratio import RatioEstimator as RatioEstimator
from kseg.format.values import (
    BinaryColumn as BinaryColumn,
)
from kseg.format.values import (
    HeadersColumn as HeadersColumn,
)
from kseg.format.values import (
    Record as Record,
)
from kseg.format.values import (
    RecordColumns as RecordColumns,
)
from kseg.log.config import LogConfig as LogConfig
from kseg.log.directory import LogDirectory as LogDirectory
from kseg.log.log import Log as Log
from kseg.log.reader.fetch import Fetched as Fetched
from kseg.log.recovery.plan import plan_recovery as plan_recovery
from kseg.log.recovery.plan_values import RecoveryPlan as RecoveryPlan
from kseg.log.recovery.recover import (
    RecoveryReport as RecoveryReport,
)
from kseg.log.recovery.recover import (
    apply_recovery as apply_recovery,
)
from kseg.log.recovery.recover import (
    recover as recover,
)
from kseg.log.recovery.reindex import apply_reindex as apply_reindex
from kseg.log.recovery.reindex import plan_reindex as plan_reindex
from kseg.log.recovery.reindex_plan import (
    ReindexPlan as ReindexPlan,
)
from kseg.log.recovery.reindex_plan import (
    ReindexReport as ReindexReport,
)
from kseg.log.retain import apply_retention as apply_retention
from kseg.log.retain import plan_retention as plan_retention
from kseg.log.scan import Scan as Scan
from kseg.log.scan import scan as scan
from kseg.log.segment.reader import Segment as Segment
from kseg.log.validate.append import (
    validate_append as validate_append,
)
from kseg.log.validate.append import (
    validate_replica as validate_replica,
)
from kseg.log.validate.rules import (
    AppendOrigin as AppendOrigin,
)
from kseg.log.validate.rules import (
    AppendRules as AppendRules,
)
from kseg.log.validate.rules import (
    ValidatedBatch as ValidatedBatch,
)
from kseg.log.validate.rules import (
    ValidationMetrics as ValidationMetrics,
)
from kseg.log.writer.append_result import AppendResult as AppendResult
from kseg.log.writer.retention import (
    RetentionPlan as RetentionPlan,
)
from kseg.log.writer.retention import (
    RetentionReport as RetentionReport,
)

__version__: str
_HOMES: Final[Mapping[str, tuple[str, ...]]]
