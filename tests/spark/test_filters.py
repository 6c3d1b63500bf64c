from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kseg.spark.plan import Narrowing, push


def at(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC).replace(second=1, microsecond=micros)


OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


@pytest.mark.parametrize(
    ("pushed", "narrowing"),
    [
        (EqualTo(OFFSET, 5), Narrowing(start_offset=5, end_offset=6)),
        (GreaterThan(OFFSET, 5), Narrowing(start_offset=6)),
        (GreaterThanOrEqual(OFFSET, 5), Narrowing(start_offset=5)),
        (LessThan(OFFSET, 5), Narrowing(end_offset=5)),
        (LessThanOrEqual(OFFSET, 5), Narrowing(end_offset=6)),
        (LessThanOrEqual(OFFSET, 2**63 - 1), Narrowing()),
        (GreaterThan(OFFSET, 2**63 - 1), Narrowing(start_offset=0, end_offset=0)),
        (GreaterThanOrEqual(("OFFSET",), 5), Narrowing(start_offset=5)),
        (EqualTo(PARTITION, 2), Narrowing(partitions=frozenset({2}))),
        (In(PARTITION, (1, 2, None)), Narrowing(partitions=frozenset({1, 2}))),
        (GreaterThan(PARTITION, 2), Narrowing(start_partition=3)),
        (LessThanOrEqual(PARTITION, 2), Narrowing(end_partition=3)),
        (EqualTo(TOPIC, "a"), Narrowing(topics=frozenset({"a"}))),
        (In(TOPIC, ("a", "b")), Narrowing(topics=frozenset({"a", "b"}))),
    ],
)
def test_what_planning_applies_exactly_is_not_checked_again(
    pushed: Filter, narrowing: Narrowing
) -> None:
    assert push([pushed]) == (narrowing, ())


@pytest.mark.parametrize(
    ("pushed", "narrowing"),
    [
        (In(OFFSET, (3, 9)), Narrowing(start_offset=3, end_offset=10)),
        (EqualTo(TIME, at(1500)), Narrowing(start_timestamp=1001, end_timestamp=1002)),
        (GreaterThan(TIME, at(1000)), Narrowing(start_timestamp=1001)),
        (GreaterThanOrEqual(TIME, at(1999)), Narrowing(start_timestamp=1001)),
        (LessThan(TIME, at(1000)), Narrowing(end_timestamp=1002)),
        (LessThanOrEqual(TIME, at(1500)), Narrowing(end_timestamp=1002)),
        (In(TIME, (at(0), at(5000))), Narrowing(start_timestamp=1000, end_timestamp=1006)),
        (Not(EqualTo(OFFSET, 5)), Narrowing()),
        (IsNotNull(OFFSET), Narrowing()),
        (EqualNullSafe(OFFSET, 5), Narrowing()),
        (EqualTo(("value",), b"x"), Narrowing()),
        (EqualTo(("offset", "x"), 5), Narrowing()),
        (EqualTo(OFFSET, "5"), Narrowing()),
        (GreaterThan(TOPIC, "a"), Narrowing()),
        (StringStartsWith(TOPIC, "a"), Narrowing()),
        (GreaterThan(TIME, 5), Narrowing()),
    ],
)
def test_what_only_narrows_goes_back_to_spark_as_the_same_object(
    pushed: Filter, narrowing: Narrowing
) -> None:
    narrowed, (recheck,) = push([pushed])
    assert narrowed == narrowing
    assert recheck is pushed


def test_filters_hold_all_at_once() -> None:
    narrowing, _recheck = push(
        [
            GreaterThan(OFFSET, 5),
            GreaterThan(OFFSET, 3),
            LessThan(OFFSET, 9),
            In(PARTITION, (1, 2)),
            EqualTo(PARTITION, 2),
        ]
    )
    assert narrowing == Narrowing(start_offset=6, end_offset=9, partitions=frozenset({2}))


@pytest.mark.parametrize(
    ("narrowing", "topic", "partition", "wanted"),
    [
        (Narrowing(), None, None, True),
        (Narrowing(partitions=frozenset({1})), "a", 1, True),
        (Narrowing(partitions=frozenset({1})), "a", 2, False),
        (Narrowing(partitions=frozenset({1})), "a", None, False),
        (Narrowing(start_partition=1, end_partition=3), "a", 3, False),
        (Narrowing(start_partition=1, end_partition=3), "a", 1, True),
        (Narrowing(start_partition=1), "a", None, False),
        (Narrowing(topics=frozenset({"a"})), "a", 0, True),
        (Narrowing(topics=frozenset({"a"})), None, 0, False),
        (Narrowing(topics=frozenset()), "a", 0, False),
    ],
)
def test_a_partition_is_wanted_unless_a_filter_says_no(
    narrowing: Narrowing, topic: str | None, partition: int | None, wanted: bool
) -> None:
    assert narrowing.wants(topic, partition) is wanted
