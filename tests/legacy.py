"""The rules of Kafka 0.10.1 for message sets, asked with plain arguments."""

from __future__ import annotations

from typing import Any

from kseg.broker import AppendRules, ValidatedBatch
from kseg.constants import Compression
from kseg.legacy import old_brokers


def validate_0_10(
    data: Any,
    *,
    next_offset: int,
    now_ms: int,
    source: Compression,
    target: Compression,
    magic: int = 1,
    timestamp_difference_max_ms: int = 2**63 - 1,
    **rules: Any,
) -> ValidatedBatch:
    """`kseg.legacy.old_brokers.validate_0_10`, its rules as arguments."""
    bounds = dict.fromkeys(
        ("timestamp_before_max_ms", "timestamp_after_max_ms"), timestamp_difference_max_ms
    )
    return old_brokers.validate_0_10(
        data,
        AppendRules(magic=magic, compression=target, **bounds, **rules),
        source=source,
        next_offset=next_offset,
        now_ms=now_ms,
    )
