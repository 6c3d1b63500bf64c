"""Whatever is appended, a builder writes what the other writers write, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.constants import Compression, TimestampType
from kseg.errors import InvalidRecordError
from kseg.format.builder import BatchBuilder
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from tests.builders import Record
from tests.property.strategies import INT64_MAX, base_offsets, record_lists

#: What no builder takes behind a record at its base offset.
BAD_RECORDS: list[dict[str, Any]] = [
    {"timestamp_ms": -2},
    {"timestamp_ms": 2**64},
    {"offset": -(2**63)},
    {"headers": [(None, b"")]},
    {"value": 5},
]


@st.composite
def formats(draw: st.DrawFn) -> dict[str, Any]:
    """Magic, codec and time of a batch."""
    magic = draw(st.sampled_from([0, 1, 2, 2]))
    codec = draw(st.sampled_from([c for c in Compression if magic == 2 or c != Compression.ZSTD]))
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    if draw(st.booleans()) and magic:
        options |= {"timestamp_type": TimestampType.LOG_APPEND_TIME}
        options |= {"log_append_time": draw(st.integers(-1, INT64_MAX))}
    if magic == 2:
        options["leader_epoch"] = draw(st.integers(-1, 2**31 - 1))
        options["delete_horizon_ms"] = draw(st.integers(-1, INT64_MAX))
        options |= draw(st.one_of(st.just({}), producers))
    return options


#: Who produced a batch.
producers = st.fixed_dictionaries(
    {
        "producer_id": st.integers(0, INT64_MAX),
        "producer_epoch": st.integers(0, 2**15 - 1),
        "base_sequence": st.integers(0, 2**31 - 1),
        "transactional": st.booleans(),
    }
)


@st.composite
def sets(draw: st.DrawFn) -> tuple[dict[str, Any], int, list[Record]]:
    """A format, a base offset, and records from there on, some way behind it at times."""
    options = draw(formats())
    base_offset = draw(base_offsets)
    records = draw(record_lists(base_offset, magic=options["magic"], min_size=1))
    return options, base_offset, records


def append(builder: BatchBuilder, one: Record) -> int:
    return builder.append(
        one.key, one.value, timestamp_ms=one.timestamp, headers=one.headers, offset=one.offset
    )


def built(options: dict[str, Any], base_offset: int, records: list[Record]) -> BatchBuilder:
    builder = BatchBuilder(base_offset=base_offset, **options)
    assert [append(builder, one) for one in records] == [one.offset for one in records]
    return builder


def columns(records: list[Record]) -> dict[str, list[Any]]:
    fields = ("offset", "timestamp", "key", "value", "headers")
    return {name: [getattr(one, name) for one in records] for name in fields}


@given(drawn=sets())
def test_record_by_record_is_as_in_bulk(drawn: Any) -> None:
    options, base_offset, records = drawn
    bulk = encode_batch(columns(records), BatchOptions(**options), base_offset=base_offset)
    assert built(options, base_offset, records).build() == bulk


@given(drawn=sets(), bad=st.lists(st.sampled_from(BAD_RECORDS), min_size=1, max_size=3))
def test_refused_records_leave_no_trace(drawn: Any, bad: list[dict[str, Any]]) -> None:
    options, base_offset, records = drawn
    builder = BatchBuilder(base_offset=base_offset, **options)
    for one in records:
        append(builder, one)
        for refused in bad:
            with pytest.raises((InvalidRecordError, TypeError)):
                builder.append(**refused)
    assert builder.build() == built(options, base_offset, records).build()


@given(drawn=sets(), limit=st.integers(0, 1500))
def test_plain_batches_with_room_stay_below_their_limit(drawn: Any, limit: int) -> None:
    options, base_offset, records = drawn
    plain = {**options, "compression": Compression.NONE}
    builder = BatchBuilder(base_offset=base_offset, batch_bytes_max=limit, **plain)
    for number, one in enumerate(records):
        # An offset given may lie further on than the next one, which room is told for.
        fits = builder.has_room_for(one.key, one.value, one.headers, one.timestamp)
        builder.append(one.key, one.value, timestamp_ms=one.timestamp, headers=one.headers)
        if number == 0:
            assert fits
        elif fits:
            assert builder.estimated_bytes <= limit
        else:
            break
    assert builder.estimated_bytes == len(builder.build())
