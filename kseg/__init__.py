"""kseg: Apache Kafka log segments from Python, with no broker and no JVM.

    with kseg.Segment.open("orders-0/00000000000000000000.log") as segment:
        for columns in segment.read(start_offset=1_200, fields=("offset", "key", "value")):
            ...
    table = kseg.scan("orders-0", offset=(1_200, None)).to_arrow()

Names are loaded when they are first used, so `import kseg` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Where each public name lives.
_HOMES = {
    "BatchHeader": "kseg.format.header",
    "BatchTable": "kseg.format.header",
    "BinaryColumn": "kseg.format.values",
    "Compression": "kseg.constants",
    "ControlType": "kseg.constants",
    "CorruptIndexError": "kseg.errors",
    "CorruptRecordError": "kseg.errors",
    "DecompressionError": "kseg.errors",
    "FormatError": "kseg.errors",
    "HeadersColumn": "kseg.format.values",
    "InvalidRecordError": "kseg.errors",
    "KsegError": "kseg.errors",
    "LimitExceededError": "kseg.errors",
    "Log": "kseg.log.partition",
    "MissingExtraError": "kseg.errors",
    "NotALogError": "kseg.errors",
    "OffsetOutOfRangeError": "kseg.errors",
    "Record": "kseg.format.values",
    "RecordColumns": "kseg.format.values",
    "Scan": "kseg.log.scan",
    "Segment": "kseg.log.segment",
    "StopReason": "kseg.constants",
    "TimestampType": "kseg.constants",
    "UnsupportedFormatError": "kseg.errors",
    "scan": "kseg.log.scan",
}
_MODULES = ("analysis", "arrow", "spark")

__all__ = [
    "BatchHeader",
    "BatchTable",
    "BinaryColumn",
    "Compression",
    "ControlType",
    "CorruptIndexError",
    "CorruptRecordError",
    "DecompressionError",
    "FormatError",
    "HeadersColumn",
    "InvalidRecordError",
    "KsegError",
    "LimitExceededError",
    "Log",
    "MissingExtraError",
    "NotALogError",
    "OffsetOutOfRangeError",
    "Record",
    "RecordColumns",
    "Scan",
    "Segment",
    "StopReason",
    "TimestampType",
    "UnsupportedFormatError",
    "__version__",
    "scan",
]

if TYPE_CHECKING:
    from kseg.constants import Compression, ControlType, StopReason, TimestampType
    from kseg.errors import (
        CorruptIndexError,
        CorruptRecordError,
        DecompressionError,
        FormatError,
        InvalidRecordError,
        KsegError,
        LimitExceededError,
        MissingExtraError,
        NotALogError,
        OffsetOutOfRangeError,
        UnsupportedFormatError,
    )
    from kseg.format.header import BatchHeader, BatchTable
    from kseg.format.values import BinaryColumn, HeadersColumn, Record, RecordColumns
    from kseg.log.partition import Log
    from kseg.log.scan import Scan, scan
    from kseg.log.segment import Segment


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
