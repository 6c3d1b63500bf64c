"""The rules by which a broker takes batches: validation, offsets, conversion."""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.constants": ("AppendOrigin",),
    "kseg.format.compress": ("RatioEstimator",),
    "kseg.legacy.kafka_0_10": ("validate_append_010",),
    "kseg.log.validate.append": ("validate_append", "validate_replica"),
    "kseg.log.validate.rules": ("AppendRules", "ValidatedBatch", "ValidationMetrics"),
    "kseg.log.writer.append": ("AppendResult",),
}
__all__, __getattr__ = door(__name__, _HOMES)
