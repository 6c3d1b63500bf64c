"""Whatever is appended, a builder writes what the other writers write, and what comes back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.constants import Compression, ControlType, TimestampType
from kseg.errors import InvalidRecordError
from kseg.format import control
from kseg.format.builder import BatchBuilder, estimate_bytes_upper_bound, estimate_set_bytes
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from kseg.format.values import Record as KsegRecord
from tests.builders import Record
from tests.property.strategies import INT64_MAX, base_offsets, record_lists

TYPES = {0: TimestampType.NO_TIMESTAMP_TYPE, 1: TimestampType.CREATE_TIME}
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


@given(drawn=sets())
def test_estimates_of_plain_sets_are_exact_and_bounds_hold(drawn: Any) -> None:
    options, base_offset, records = drawn
    kind, magic = TYPES[min(options["magic"], 1)], options["magic"]
    values = [
        KsegRecord(one.offset, one.timestamp, kind, one.key, one.value, tuple(one.headers))
        for one in records
    ]
    batch = built({"magic": magic}, base_offset, records).build()
    assert estimate_set_bytes(values, magic=magic, base_offset=base_offset) == len(batch)
    single = built(options, base_offset, records[:1])
    one = records[0]
    bound = estimate_bytes_upper_bound(one.key, one.value, one.headers, magic=magic)
    uncompressed = {"magic": magic, "delete_horizon_ms": options.get("delete_horizon_ms", -1)}
    assert len(built(uncompressed, base_offset, records[:1]).build()) <= bound
    assert single.uncompressed_bytes <= bound


# Control records


ids = st.integers(-(2**31), 2**31 - 1)
versions = st.integers(-(2**15), 2**15 - 1)
endpoints = st.builds(control.Endpoint, st.text(), st.text(), st.integers(0, 65535))
voters = st.builds(
    control.Voter, ids, st.uuids(), st.lists(endpoints, max_size=2).map(tuple), versions, versions
)
placed_voters = st.lists(st.tuples(ids, st.uuids()))


def placed(
    leader: int, voters: list[tuple[int, UUID]], granting: list[tuple[int, UUID]]
) -> control.LeaderChange:
    """A change of leader of version 1."""
    (ids, at), (granted, granted_at) = (
        (tuple(each for each, _place in some), tuple(place for _each, place in some))
        for some in (voters, granting)
    )
    return control.LeaderChange(leader, ids, granted, 1, at, granted_at)


markers = st.one_of(
    st.builds(control.EndMarker, st.sampled_from([ControlType.ABORT, ControlType.COMMIT]), ids),
    st.builds(control.LeaderChange, ids, st.lists(ids).map(tuple), st.lists(ids).map(tuple)),
    st.builds(placed, ids, placed_voters, placed_voters),
    st.builds(control.SnapshotHeader, st.integers(-(2**63), INT64_MAX), versions),
    st.builds(control.SnapshotFooter, versions),
    st.builds(control.KRaftVersion, versions, versions),
    st.builds(control.KRaftVoters, st.lists(voters, max_size=3).map(tuple), versions),
)


def key_of(marker: Any) -> bytes:
    return control.control_key(getattr(marker, "TYPE", None) or marker.type)


@given(marker=markers)
def test_markers_come_back(marker: Any) -> None:
    assert control.parse_control(key_of(marker), marker.to_bytes()) == marker


@given(marker=markers, data=st.data())
def test_a_cut_marker_is_refused(marker: Any, data: st.DataObject) -> None:
    value = marker.to_bytes()
    size = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(InvalidRecordError):
        control.parse_control(key_of(marker), value[:size])


@given(kind=st.integers(0, 6), value=st.binary(max_size=80))
@example(kind=6, value=b"\0\0\xff\xff\xff\xff\x0f" + bytes(40))
def test_any_bytes_are_a_marker_or_invalid(kind: int, value: bytes) -> None:
    try:
        marker = control.parse_control(control.control_key(ControlType(kind)), value)
    except InvalidRecordError:
        return
    assert control.parse_control(key_of(marker), marker.to_bytes()) == marker
