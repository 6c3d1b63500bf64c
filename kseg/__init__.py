"""kseg: Apache Kafka log segments from Python, with no broker and no JVM.

    with kseg.Segment.open("orders-0/00000000000000000000.log") as segment:
        for columns in segment.read(offset=(1_200, None), columns=("offset", "key", "value")):
            ...
    table = kseg.scan("orders-0", offset=(1_200, None)).to_arrow()

    options = kseg.BatchOptions(compression=kseg.Compression.ZSTD)
    for batch in kseg.encode_batches({"key": [b"42"], "value": [b"paid"]}, options):
        ...

Names are loaded when they are first used, so `import kseg` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from kseg._door import door

__version__ = "0.1.0"

#: The public names, by the module that each one lives in; their types stand in `__init__.pyi`.
_HOMES: Final = {
    "kseg.analysis.diff": ("Diff", "diff"),
    "kseg.analysis.doctor.answer": ("doctor",),
    "kseg.analysis.doctor.values": ("DoctorReport",),
    "kseg.analysis.explain.answer": ("explain",),
    "kseg.analysis.explain.values": ("ExplainReport",),
    "kseg.analysis.info": ("PartitionInfo", "SegmentFacts", "info"),
    "kseg.analysis.stats": ("StatsOptions", "StatsReport", "stats"),
    "kseg.analysis.values": ("Report",),
    "kseg.analysis.verify": ("VerifyOptions", "verify"),
    "kseg.constants": ("AppendOrigin", "Compression", "ControlType", "StopReason", "TimestampType"),
    "kseg.errors": (
        "AppendError",
        "BuilderStateError",
        "ConflictingCopiesError",
        "CorruptIndexError",
        "CorruptRecordError",
        "DecompressionError",
        "FormatError",
        "InconsistentTopicIdError",
        "InvalidProducerEpochError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "InvalidTxnStateError",
        "KsegError",
        "LimitExceededError",
        "LogLockedError",
        "MissingExtraError",
        "MissingFieldError",
        "NotALogError",
        "OffsetOutOfRangeError",
        "OffsetOverflowError",
        "OffsetsOutOfOrderError",
        "OutOfOrderSequenceError",
        "PoisonedFileError",
        "ProducerError",
        "RecordBatchTooLargeError",
        "RecordFault",
        "RecordTooLargeError",
        "SegmentInUseError",
        "StalePlanError",
        "TransactionCoordinatorFencedError",
        "UncleanShutdownError",
        "UnexpectedAppendOffsetError",
        "UnreadableError",
        "UnsupportedFormatError",
    ),
    "kseg.files.checkpoints": ("TopicPartition",),
    "kseg.format.builder": ("BatchBuilder",),
    "kseg.format.codec_libraries": ("CodecLibrary", "codecs"),
    "kseg.format.compress": ("RatioEstimator",),
    "kseg.format.control": (
        "EndMarker",
        "Endpoint",
        "KRaftVersion",
        "KRaftVoters",
        "LeaderChange",
        "SnapshotFooter",
        "SnapshotHeader",
        "Voter",
        "parse_control",
    ),
    "kseg.format.convert": ("Conversion", "convert"),
    "kseg.format.down_convert": ("down_convert",),
    "kseg.format.encode": ("encode_batch", "encode_batches", "encode_messages_07"),
    "kseg.format.header": ("BatchHeader", "BatchTable", "EncodedBatch"),
    "kseg.format.message": ("Message", "MessageAndMetadata", "MessageAndOffset", "MessageSet"),
    "kseg.format.message07": ("Message07", "MessageSet07"),
    "kseg.format.options": ("BatchOptions",),
    "kseg.format.times": ("as_datetime", "time_ms"),
    "kseg.format.typed": ("decode_columns",),
    "kseg.format.values": (
        "BinaryColumn",
        "HeadersColumn",
        "Record",
        "RecordColumns",
        "TypedColumn",
    ),
    "kseg.log.cleaner.values": ("CompactionPlan", "CompactionReport"),
    "kseg.log.cleanup": (
        "apply_compaction",
        "apply_retention",
        "plan_compaction",
        "plan_retention",
    ),
    "kseg.log.closed": ("TruncationReport", "apply_truncation", "plan_truncation"),
    "kseg.log.config": ("LogConfig",),
    "kseg.log.copies.merge": ("MergePlan", "apply_merge", "plan_merge"),
    "kseg.log.directory": ("LogDirectory",),
    "kseg.log.log": ("Log",),
    "kseg.log.reader.fetch": ("Fetched",),
    "kseg.log.recovery.recover": (
        "RecoveryPlan",
        "RecoveryReport",
        "apply_recovery",
        "plan_recovery",
        "recover",
    ),
    "kseg.log.recovery.reindex": ("ReindexPlan", "ReindexReport", "apply_reindex", "plan_reindex"),
    "kseg.log.salvage.salvage": ("SalvagePlan", "SalvageReport", "apply_salvage", "plan_salvage"),
    "kseg.log.scan": ("Scan", "scan"),
    "kseg.log.segment.reader": ("Segment",),
    "kseg.log.settings.cluster": ("SettingValue",),
    "kseg.log.settings.joined": ("PartitionSettings", "Settings", "settings"),
    "kseg.log.validate.append": ("validate_append", "validate_replica"),
    "kseg.log.validate.kafka_0_10": ("validate_append_010",),
    "kseg.log.validate.rules": ("AppendRules", "ValidatedBatch", "ValidationMetrics"),
    "kseg.log.writer.append": ("AppendResult",),
    "kseg.log.writer.retention": ("RetentionPlan", "RetentionReport"),
    "kseg.log.writer.truncate": ("TruncationPlan",),
}
_MODULES = ("analysis", "arrow", "internal", "spark")

_names, _load = door(__name__, _HOMES)
__all__ = [*_names, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a public name, or one of the public modules, on first use."""
    return import_module(f"kseg.{name}") if name in _MODULES else _load(name)


def __dir__() -> list[str]:
    """Every public name."""
    return sorted([*__all__, *_MODULES])
