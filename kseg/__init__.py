"""kseg: Apache Kafka log segments from Python, with no broker and no JVM.

    with kseg.Segment.open("orders-0/00000000000000000000.log") as segment:
        for columns in segment.read(start_offset=1_200, fields=("offset", "key", "value")):
            ...
    table = kseg.scan("orders-0", offset=(1_200, None)).to_arrow()

    options = kseg.BatchOptions(compression=kseg.Compression.ZSTD)
    for batch in kseg.encode_batches({"key": [b"42"], "value": [b"paid"]}, options):
        ...

Names are loaded when they are first used, so `import kseg` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Where each public name lives.
_HOMES = {
    "AppendError": "kseg.errors",
    "AppendOrigin": "kseg.log.validate.rules",
    "AppendResult": "kseg.log.writer.append_result",
    "AppendRules": "kseg.log.validate.rules",
    "BatchBuilder": "kseg.format.builder",
    "BatchHeader": "kseg.format.header",
    "BatchOptions": "kseg.format.options",
    "BatchTable": "kseg.format.header",
    "BinaryColumn": "kseg.format.values",
    "BuilderStateError": "kseg.errors",
    "Compression": "kseg.constants",
    "ControlType": "kseg.constants",
    "Conversion": "kseg.format.convert",
    "CorruptIndexError": "kseg.errors",
    "CorruptRecordError": "kseg.errors",
    "DecompressionError": "kseg.errors",
    "EncodedBatch": "kseg.format.encoded",
    "EndMarker": "kseg.format.control",
    "Endpoint": "kseg.format.control",
    "Fetched": "kseg.log.reader.fetch",
    "FormatError": "kseg.errors",
    "HeadersColumn": "kseg.format.values",
    "InconsistentTopicIdError": "kseg.errors",
    "InvalidProducerEpochError": "kseg.errors",
    "InvalidRecordError": "kseg.errors",
    "InvalidTimestampError": "kseg.errors",
    "InvalidTxnStateError": "kseg.errors",
    "KRaftVersion": "kseg.format.control",
    "KRaftVoters": "kseg.format.control",
    "KsegError": "kseg.errors",
    "LeaderChange": "kseg.format.control",
    "LimitExceededError": "kseg.errors",
    "Log": "kseg.log.log",
    "LogConfig": "kseg.log.config",
    "LogDirectory": "kseg.log.directory",
    "LogLockedError": "kseg.errors",
    "Message": "kseg.format.message",
    "Message07": "kseg.format.message07",
    "MessageAndMetadata": "kseg.format.message_metadata",
    "MessageAndOffset": "kseg.format.message_set",
    "MessageSet": "kseg.format.message_set",
    "MessageSet07": "kseg.format.message07",
    "MissingExtraError": "kseg.errors",
    "MissingFieldError": "kseg.errors",
    "NotALogError": "kseg.errors",
    "OffsetOutOfRangeError": "kseg.errors",
    "OffsetOverflowError": "kseg.errors",
    "OffsetsOutOfOrderError": "kseg.errors",
    "OutOfOrderSequenceError": "kseg.errors",
    "PoisonedFileError": "kseg.errors",
    "ProducerError": "kseg.errors",
    "RatioEstimator": "kseg.format.ratio",
    "Record": "kseg.format.values",
    "RecordBatchTooLargeError": "kseg.errors",
    "RecordColumns": "kseg.format.values",
    "RecordFault": "kseg.errors",
    "RecordTooLargeError": "kseg.errors",
    "RecoveryPlan": "kseg.log.recovery.plan_values",
    "RecoveryReport": "kseg.log.recovery.recover",
    "ReindexPlan": "kseg.log.recovery.reindex_plan",
    "ReindexReport": "kseg.log.recovery.reindex_plan",
    "RetentionPlan": "kseg.log.writer.retention",
    "RetentionReport": "kseg.log.writer.retention",
    "Scan": "kseg.log.scan",
    "Segment": "kseg.log.segment.reader",
    "SegmentInUseError": "kseg.errors",
    "SnapshotFooter": "kseg.format.control",
    "SnapshotHeader": "kseg.format.control",
    "StalePlanError": "kseg.errors",
    "StopReason": "kseg.constants",
    "TimestampType": "kseg.constants",
    "TopicPartition": "kseg.files.checkpoints",
    "TransactionCoordinatorFencedError": "kseg.errors",
    "UncleanShutdownError": "kseg.errors",
    "UnexpectedAppendOffsetError": "kseg.errors",
    "UnreadableError": "kseg.errors",
    "UnsupportedFormatError": "kseg.errors",
    "ValidatedBatch": "kseg.log.validate.rules",
    "ValidationMetrics": "kseg.log.validate.rules",
    "Voter": "kseg.format.control",
    "apply_recovery": "kseg.log.recovery.recover",
    "apply_reindex": "kseg.log.recovery.reindex",
    "apply_retention": "kseg.log.retain",
    "convert": "kseg.format.convert",
    "down_convert": "kseg.format.down_convert",
    "encode_batch": "kseg.format.encode",
    "encode_batches": "kseg.format.encode",
    "encode_messages_07": "kseg.format.encode",
    "parse_control": "kseg.format.control",
    "plan_recovery": "kseg.log.recovery.plan",
    "plan_reindex": "kseg.log.recovery.reindex",
    "plan_retention": "kseg.log.retain",
    "recover": "kseg.log.recovery.recover",
    "scan": "kseg.log.scan",
    "validate_append": "kseg.log.validate.append",
    "validate_replica": "kseg.log.validate.append",
}
_MODULES = ("analysis", "arrow", "spark")

__all__ = [
    "AppendError",
    "AppendOrigin",
    "AppendResult",
    "AppendRules",
    "BatchBuilder",
    "BatchHeader",
    "BatchOptions",
    "BatchTable",
    "BinaryColumn",
    "BuilderStateError",
    "Compression",
    "ControlType",
    "Conversion",
    "CorruptIndexError",
    "CorruptRecordError",
    "DecompressionError",
    "EncodedBatch",
    "EndMarker",
    "Endpoint",
    "Fetched",
    "FormatError",
    "HeadersColumn",
    "InconsistentTopicIdError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "KRaftVersion",
    "KRaftVoters",
    "KsegError",
    "LeaderChange",
    "LimitExceededError",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogLockedError",
    "Message",
    "Message07",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSet",
    "MessageSet07",
    "MissingExtraError",
    "MissingFieldError",
    "NotALogError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PoisonedFileError",
    "ProducerError",
    "RatioEstimator",
    "Record",
    "RecordBatchTooLargeError",
    "RecordColumns",
    "RecordFault",
    "RecordTooLargeError",
    "RecoveryPlan",
    "RecoveryReport",
    "ReindexPlan",
    "ReindexReport",
    "RetentionPlan",
    "RetentionReport",
    "Scan",
    "Segment",
    "SegmentInUseError",
    "SnapshotFooter",
    "SnapshotHeader",
    "StalePlanError",
    "StopReason",
    "TimestampType",
    "TopicPartition",
    "TransactionCoordinatorFencedError",
    "UncleanShutdownError",
    "UnexpectedAppendOffsetError",
    "UnreadableError",
    "UnsupportedFormatError",
    "ValidatedBatch",
    "ValidationMetrics",
    "Voter",
    "__version__",
    "apply_recovery",
    "apply_reindex",
    "apply_retention",
    "convert",
    "down_convert",
    "encode_batch",
    "encode_batches",
    "encode_messages_07",
    "parse_control",
    "plan_recovery",
    "plan_reindex",
    "plan_retention",
    "recover",
    "scan",
    "validate_append",
    "validate_replica",
]

if TYPE_CHECKING:
    from kseg.constants import Compression, ControlType, StopReason, TimestampType
    from kseg.errors import (
        AppendError,
        BuilderStateError,
        CorruptIndexError,
        CorruptRecordError,
        DecompressionError,
        FormatError,
        InconsistentTopicIdError,
        InvalidProducerEpochError,
        InvalidRecordError,
        InvalidTimestampError,
        InvalidTxnStateError,
        KsegError,
        LimitExceededError,
        LogLockedError,
        MissingExtraError,
        MissingFieldError,
        NotALogError,
        OffsetOutOfRangeError,
        OffsetOverflowError,
        OffsetsOutOfOrderError,
        OutOfOrderSequenceError,
        PoisonedFileError,
        ProducerError,
        RecordBatchTooLargeError,
        RecordFault,
        RecordTooLargeError,
        SegmentInUseError,
        StalePlanError,
        TransactionCoordinatorFencedError,
        UncleanShutdownError,
        UnexpectedAppendOffsetError,
        UnreadableError,
        UnsupportedFormatError,
    )
    from kseg.files.checkpoints import TopicPartition
    from kseg.format.builder import BatchBuilder
    from kseg.format.control import (
        EndMarker,
        Endpoint,
        KRaftVersion,
        KRaftVoters,
        LeaderChange,
        SnapshotFooter,
        SnapshotHeader,
        Voter,
        parse_control,
    )
    from kseg.format.convert import Conversion, convert
    from kseg.format.down_convert import down_convert
    from kseg.format.encode import encode_batch, encode_batches, encode_messages_07
    from kseg.format.encoded import EncodedBatch
    from kseg.format.header import BatchHeader, BatchTable
    from kseg.format.message import Message
    from kseg.format.message07 import Message07, MessageSet07
    from kseg.format.message_metadata import MessageAndMetadata
    from kseg.format.message_set import MessageAndOffset, MessageSet
    from kseg.format.options import BatchOptions
    from kseg.format.ratio import RatioEstimator
    from kseg.format.values import BinaryColumn, HeadersColumn, Record, RecordColumns
    from kseg.log.config import LogConfig
    from kseg.log.directory import LogDirectory
    from kseg.log.log import Log
    from kseg.log.reader.fetch import Fetched
    from kseg.log.recovery.plan import plan_recovery
    from kseg.log.recovery.plan_values import RecoveryPlan
    from kseg.log.recovery.recover import RecoveryReport, apply_recovery, recover
    from kseg.log.recovery.reindex import apply_reindex, plan_reindex
    from kseg.log.recovery.reindex_plan import ReindexPlan, ReindexReport
    from kseg.log.retain import apply_retention, plan_retention
    from kseg.log.scan import Scan, scan
    from kseg.log.segment.reader import Segment
    from kseg.log.validate.append import validate_append, validate_replica
    from kseg.log.validate.rules import AppendOrigin, AppendRules, ValidatedBatch, ValidationMetrics
    from kseg.log.writer.append_result import AppendResult
    from kseg.log.writer.retention import RetentionPlan, RetentionReport


def __getattr__(name: str) -> Any:
    """Load a public name, or one of the modules `analysis`, `arrow` and `spark`, on first use."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"kseg.{name}")
    raise AttributeError(f"module 'kseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Every public name."""
    return sorted([*__all__, *_MODULES])
