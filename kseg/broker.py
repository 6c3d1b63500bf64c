"""The rules by which a broker takes batches: validation, offsets, conversion."""

from __future__ import annotations

from kseg.constants import AppendOrigin
from kseg.format.compress import RatioEstimator
from kseg.log.validate.append import validate_append, validate_replica
from kseg.log.validate.kafka_0_10 import validate_append_010
from kseg.log.validate.rules import AppendRules, ValidatedBatch, ValidationMetrics
from kseg.log.writer.append import AppendResult

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "AppendRules",
    "RatioEstimator",
    "ValidatedBatch",
    "ValidationMetrics",
    "validate_append",
    "validate_append_010",
    "validate_replica",
]
