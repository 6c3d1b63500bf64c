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

import sys
from importlib import import_module
from typing import Any, Final

from kseg._door import door

if sys.platform == "win32":
    raise ImportError(
        "kseg runs on Linux and macOS, not on Windows; "
        "the Windows Subsystem for Linux (WSL) runs it"
    )

if sys.version_info < (3, 11):  # noqa: UP036  (a checkout: pip refuses to install)
    _FOUND = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"kseg needs Python 3.11 or newer, and this is {_FOUND} ({sys.executable})")

__version__ = "0.1.0"

#: The public names, by the module that each one lives in; their types stand in `__init__.pyi`.
_HOMES: Final = {
    "kseg.analysis.diff": ("diff",),
    "kseg.analysis.doctor.answer": ("doctor",),
    "kseg.analysis.explain.answer": ("explain",),
    "kseg.analysis.groups": ("groups",),
    "kseg.analysis.info": ("info", "topics"),
    "kseg.analysis.metadata": ("metadata",),
    "kseg.analysis.report": ("report",),
    "kseg.analysis.schemas": ("schemas",),
    "kseg.analysis.stats": ("stats",),
    "kseg.analysis.transactions": ("transactions",),
    "kseg.analysis.verify": ("verify",),
    "kseg.change.compact": ("plan_compaction",),
    "kseg.change.erase": ("plan_erasure",),
    "kseg.change.retain": ("plan_retention",),
    "kseg.change.truncate": ("plan_truncation",),
    "kseg.constants": (
        "Compression",
        "StopReason",
        "TimestampType",
    ),
    "kseg.errors": (
        "AppendError",
        "CorruptRecordError",
        "FormatError",
        "KsegError",
        "LogLockedError",
        "MissingExtraError",
        "NotALogError",
        "OffsetOutOfRangeError",
        "SchemaError",
        "StalePlanError",
        "UncleanShutdownError",
        "UnreadableError",
    ),
    "kseg.catalog.catalog": ("Catalog",),
    "kseg.files.checkpoints": ("TopicPartition",),
    "kseg.format.builder": ("BatchBuilder",),
    "kseg.format.codec_libraries": (
        "CodecLibrary",
        "codecs",
    ),
    "kseg.format.convert": ("convert",),
    "kseg.format.encode": (
        "encode_batch",
        "encode_batches",
    ),
    "kseg.format.header": (
        "BatchHeader",
        "BatchTable",
        "EncodedBatch",
    ),
    "kseg.format.options": ("BatchOptions",),
    "kseg.format.typed": ("decode_columns",),
    "kseg.format.values": (
        "BinaryColumn",
        "HeadersColumn",
        "Record",
        "RecordColumns",
        "TypedColumn",
    ),
    "kseg.log.config": ("LogConfig",),
    "kseg.log.copies.merge": ("plan_merge",),
    "kseg.log.directory": ("LogDirectory",),
    "kseg.records.grep": ("grep",),
    "kseg.log.log": ("Log",),
    "kseg.records.partitioners": ("partition_for",),
    "kseg.log.recovery.recover": (
        "plan_recovery",
        "recover",
    ),
    "kseg.log.recovery.reindex": ("plan_reindex",),
    "kseg.log.salvage.salvage": ("plan_salvage",),
    "kseg.records.scan": (
        "Scan",
        "dataset",
        "scan",
    ),
    "kseg.log.segment.reader": ("Segment",),
    "kseg.log.settings.joined": ("settings",),
    "kseg.log.tier.tier": ("Tier",),
    "kseg.records.topic_writer": ("write_topic",),
    "kseg.log.writer.append": ("AppendResult",),
}
_MODULES = (
    *("analysis", "arrow", "broker", "control", "errors", "internal", "legacy", "reports", "spark"),
    "times",
)

_names, _load = door(__name__, _HOMES)
__all__ = [*_names, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a public name, or one of the public modules, on first use."""
    return import_module(f"kseg.{name}") if name in _MODULES else _load(name)


def __dir__() -> list[str]:
    """Every public name."""
    return sorted([*__all__, *_MODULES])
