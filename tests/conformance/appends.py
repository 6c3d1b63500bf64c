"""Appends in one line, for tests: what is appended, the log's rules, and what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.log.validate.append import AppendRules, ValidatedBatch, ValidationMetrics, validate
from tests import reference
from tests.builders import Record, record
from tests.conformance.outputs import batches_of, records_in

NOW = 1_700_000_000_000
OFFSET = 1_234_567
CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def three(*timestamps: int, keyed: bool = True) -> list[Record]:
    """Three records, all of now unless other times are given."""
    times = timestamps or (NOW, NOW, NOW)
    values = (b"hello", b"there", b"beautiful")
    return [
        record(value, key=b"k%d" % index if keyed else None, timestamp=timestamp)
        for index, (value, timestamp) in enumerate(zip(values, times, strict=True))
    ]


def take(
    data: bytes,
    *,
    offset: int = 0,
    now: int = NOW,
    source: Compression | None = None,
    metrics: ValidationMetrics | None = None,
    **rules: Any,
) -> ValidatedBatch:
    """The append, validated; `target` is the codec, 1000 ms either way where nothing is said."""
    rules = {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 1000, **rules}
    if "target" in rules:
        rules["compression"] = Compression(rules.pop("target"))
    asked = AppendRules(**rules)
    return validate(data, asked, next_offset=offset, now_ms=now, source=source, metrics=metrics)


def records(taken: ValidatedBatch) -> list[reference.Record]:
    return records_in(taken.to_bytes())


def offsets(taken: ValidatedBatch) -> list[int]:
    return [one.offset for one in records(taken)]


def timestamps(taken: ValidatedBatch) -> list[int]:
    return [one.timestamp for one in records(taken)]


def the_batch(taken: ValidatedBatch) -> reference.Batch:
    (one,) = batches_of(taken.to_bytes())
    return one


def refused(data: bytes, kind: type[Exception], **how: Any) -> Any:
    with pytest.raises(kind) as caught:
        take(data, **how)
    assert type(caught.value) is kind
    return caught.value


def indexes(error: Any) -> list[int]:
    return [fault.record_index for fault in error.record_errors]
