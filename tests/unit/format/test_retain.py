"""The rewrite of compaction: who is asked what, in which order, and what cannot be written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg.errors import CorruptRecordError, InvalidRecordError
from kseg.format.header import BatchTable
from kseg.format.located import Retention, Verdict
from kseg.format.retain import filter_batches
from kseg.format.values import RecordColumns
from tests.builders import batch, encode_record, record
from tests.conformance.outputs import records_in

NOW: dict[str, Any] = {"now_ms": 0, "delete_retention_ms": 0}


def delete_empty(table: BatchTable) -> Verdict:
    return Verdict.same(Retention.DELETE_EMPTY, len(table))


def every(columns: RecordColumns) -> Any:
    return np.ones(len(columns), np.bool_)


def odd(columns: RecordColumns) -> Any:
    return columns["offset"] % 2 == 1


MANY = b"".join(
    batch([record(b"v%03d" % n) for n in range(start, start + 10)], base_offset=start)
    for start in range(0, 1000, 10)
)


def test_both_questions_are_asked_for_many_at_a_time() -> None:
    asked: list[tuple[str, int]] = []

    def decide(table: BatchTable) -> Verdict:
        asked.append(("batches", len(table)))
        return delete_empty(table)

    def keep(columns: RecordColumns) -> Any:
        asked.append(("records", len(columns)))
        return odd(columns)

    result = filter_batches(MANY, decide, keep, **NOW)
    assert asked == [("batches", 100), ("records", 1000)]
    assert [one.offset for one in records_in(result.data)] == list(range(1, 1000, 2))


@pytest.mark.parametrize("room", [None, 0, 1, 1 << 20])
def test_the_front_of_a_damaged_batch_never_passes_for_the_whole(room: int | None) -> None:
    body = b"".join(encode_record(record(), offset_delta=n, timestamp_delta=0) for n in range(2))
    damaged = batch([], body=body + b"\x05", count=3, last_offset_delta=2, base_offset=10)
    with pytest.raises(InvalidRecordError, match="@ 0, offset 10"):
        filter_batches(damaged, delete_empty, every, output_bytes=room, **NOW)


def test_damage_behind_the_room_is_left_to_the_next_call() -> None:
    damaged = batch([], body=b"\x05", count=1, base_offset=20)
    data = batch([record(), record()], base_offset=10)
    result = filter_batches(data + damaged, delete_empty, odd, output_bytes=0, **NOW)
    assert (result.complete, result.bytes_read) == (False, len(data))


def test_a_filter_sees_the_fields_it_asks_for() -> None:
    seen = []

    def keep(columns: RecordColumns) -> Any:
        seen.append(set(columns.fields))
        return columns["control"] | columns["key"].is_valid()

    filter_batches(MANY, delete_empty, keep, fields=("control", "key"), **NOW)
    common = {"offset", "timestamp", "key", "value", "headers", "position"}
    assert seen == [common | {"control"}]


REFUSED: dict[str, tuple[bytes, type[Exception], str]] = {
    "a wrong checksum": (batch([record()], crc=1), CorruptRecordError, "checksum"),
    "offsets that do not rise": (
        batch([record(offset=3), record(offset=1), record(offset=2)], last_offset_delta=9),
        InvalidRecordError,
        "not above",
    ),
    "a transaction without a producer": (
        batch([record(), record()], transactional=True),
        InvalidRecordError,
        "producer id",
    ),
    "a record behind the last offset": (
        batch([record(), record()], last_offset_delta=0),
        InvalidRecordError,
        "past the last offset",
    ),
    "a time below -1": (
        batch([record(), record(timestamp=-2)]),
        InvalidRecordError,
        "timestamp",
    ),
}


@pytest.mark.parametrize("claim", REFUSED)
def test_what_cannot_be_written_again_is_refused_and_named(claim: str) -> None:
    sound = batch([record(), record()])
    data, kind, reason = REFUSED[claim]
    with pytest.raises(kind, match=reason) as caught:
        filter_batches(sound + data, delete_empty, odd, **NOW)
    assert caught.value.position == len(sound)


def test_a_last_offset_below_the_base_cannot_be_kept() -> None:
    def decide(table: BatchTable) -> Verdict:
        return Verdict.same(Retention.RETAIN_EMPTY, len(table))

    with pytest.raises(InvalidRecordError, match="below the base offset"):
        filter_batches(batch([], last_offset_delta=-3), decide, every, **NOW)


def test_answers_must_fit_the_questions() -> None:
    def decide(table: BatchTable) -> Verdict:
        return Verdict.same(Retention.DELETE, len(table) - 1)

    with pytest.raises(ValueError, match="99 answers for 100 batches"):
        filter_batches(MANY, decide, every, **NOW)
    with pytest.raises(ValueError, match="1 answers for 1000 records"):
        filter_batches(MANY, delete_empty, lambda _columns: [True], **NOW)
    with pytest.raises(ValueError, match="rules"):
        filter_batches(MANY, delete_empty, every, rules="2.0", **NOW)
