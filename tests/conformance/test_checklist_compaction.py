"""The rewrite of compaction, one claim a row: what must come out, and what is counted.

The claims are those of Kafka's MemoryRecordsTest (filterTo), and rules that only code tells. Input
comes from the plain encoder, output is read by the plain reader.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kseg.errors import BuilderStateError
from kseg.format.header import BatchTable
from kseg.format.located import Retention, Verdict
from kseg.format.retain import Filtered, filter_batches
from kseg.format.values import RecordColumns
from tests import reference
from tests.builders import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    batch,
    messages,
    record,
    records_of,
    wrapper,
)
from tests.conformance.outputs import batches_of, records_in

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
FORMATS = [(magic, codec) for magic, codec in product((0, 1, 2), CODECS.values()) if codec < ZSTD]
FORMATS += [(2, ZSTD)]


def keyed(columns: RecordColumns) -> Any:
    return columns["key"].is_valid()


def every(columns: RecordColumns) -> Any:
    return np.ones(len(columns), np.bool_)


def none(columns: RecordColumns) -> Any:
    return np.zeros(len(columns), np.bool_)


def offsets(*kept: int) -> Any:
    return lambda columns: np.isin(columns["offset"], kept)


def rewritten(
    data: bytes,
    keep: Any,
    retention: Retention | list[Retention] = Retention.DELETE_EMPTY,
    *,
    now_ms: int = 0,
    delete_retention_ms: int = 0,
    empty_txn: bool = False,
    **how: Any,
) -> Filtered:
    def decide(table: BatchTable) -> Verdict:
        count = len(table)
        answers = retention if isinstance(retention, list) else [retention] * count
        return Verdict(np.array(answers, np.uint8), np.full(count, empty_txn))

    return filter_batches(
        data, decide, keep, now_ms=now_ms, delete_retention_ms=delete_retention_ms, **how
    )


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_the_leader_epoch_is_kept_where_there_is_one(magic: int, codec: int) -> None:
    given = [record(key=b"k"), record(key=None)]
    if magic == 2:
        data = batch(given, codec=codec, leader_epoch=67)
    else:
        data = records_of(given, magic=magic, codec=codec)
    result = rewritten(data, keyed)
    assert {one.leader_epoch for one in batches_of(result.data)} == {67 if magic == 2 else -1}
    assert [one.offset for one in records_in(result.data)] == [0]


def test_an_emptied_batch_keeps_its_header() -> None:
    flags = {"producer_id": 23423, "producer_epoch": 145, "base_sequence": 983}
    given = [record(timestamp=7), record(timestamp=5)]
    data = batch(
        given,
        base_offset=3,
        codec=ZSTD,
        leader_epoch=15,
        transactional=True,
        log_append=True,
        **flags,
    )
    result = rewritten(data, none, Retention.RETAIN_EMPTY)
    (found,) = batches_of(result.data)
    assert (found.size, found.record_count, found.codec) == (61, 0, NONE)
    assert (found.base_offset, found.last_offset, found.base_timestamp) == (3, 4, -1)
    assert (found.max_timestamp, found.timestamp_type, found.leader_epoch) == (7, 1, 15)
    assert {name: getattr(found, name) for name in flags} == flags
    assert (found.last_sequence, found.is_transactional, found.is_control) == (984, True, False)
    assert (result.messages_read, result.messages_retained, result.bytes_retained) == (2, 0, 61)
    assert (result.max_offset, result.max_timestamp) == (4, 7)
    assert result.shallow_offset_of_max_timestamp == 4


def empty(**fields: Any) -> bytes:
    return batch([], max_timestamp=5, last_offset_delta=4, base_offset=10, **fields)


@pytest.mark.parametrize("retention", Retention)
def test_an_already_empty_batch_is_kept_only_where_that_is_asked(retention: Retention) -> None:
    data = empty(producer_id=4, producer_epoch=1, base_sequence=2, control=True, transactional=True)
    result = rewritten(data, every, retention)
    kept = retention is Retention.RETAIN_EMPTY
    assert result.data == (data if kept else b"")
    assert (result.messages_read, result.bytes_read) == (0, 61)
    assert (result.bytes_retained, result.max_offset) == ((61, 14) if kept else (0, -1))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_tombstone_sets_the_delete_horizon_and_no_other_time(codec: int) -> None:
    given = [
        record(timestamp=5, key=b"a"),
        record(None, timestamp=10, key=b"b"),
        record(timestamp=15),
    ]
    result = rewritten(batch(given, codec=codec), every, now_ms=99, delete_retention_ms=1)
    (found,) = batches_of(result.data)
    assert (found.delete_horizon_ms, found.base_timestamp, found.codec) == (100, 100, codec)
    assert [one.timestamp for one in records_in(result.data)] == [5, 10, 15]
    assert result.messages_retained == 3


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_batches_that_stay_whole_are_there_byte_for_byte(magic: int, codec: int) -> None:
    lists = [[record(), record()], [record()], [record(), record(), record()], [record()]]
    starts = [0, 2, 3, 6]
    parts = [
        records_of(given, magic=magic, codec=codec, base_offset=start)
        for given, start in zip(lists, starts, strict=True)
    ]
    plain = magic < 2 and codec == NONE
    wanted = [Retention.DELETE, Retention.RETAIN_EMPTY, Retention.DELETE_EMPTY, Retention.DELETE]
    answers = [
        kind
        for kind, given in zip(wanted, lists, strict=True)
        for _ in range(len(given) if plain else 1)
    ]
    result = rewritten(b"".join(parts), every, answers, empty_txn=magic < 2)
    assert result.data == parts[1] + parts[2]
    assert (result.messages_read, result.messages_retained) == (4, 4)
    assert (result.bytes_read, result.max_offset) == (sum(map(len, parts)), 5)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_batch_that_was_compacted_before_keeps_what_it_covers(magic: int, codec: int) -> None:
    given = [record(key=b"k", offset=offset, timestamp=offset) for offset in (5, 8, 10)]
    data = records_of(given, magic=magic, codec=codec)
    result = rewritten(data, offsets(8))
    (found,) = batches_of(result.data)
    (kept,) = records_in(result.data)
    assert (kept.offset, kept.timestamp) == (8, 8 if magic else -1)
    covered = (0, 10) if magic == 2 else (8, 8)
    assert (kept.offset if magic < 2 else found.base_offset, found.last_offset) == covered
    assert result.max_offset == 8


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_producers_and_sequences_stay(codec: int, transactional: bool) -> None:
    producer = {"producer_id": 99, "producer_epoch": 17, "base_sequence": 2**31 - 2}
    given = [
        record(key=None),
        record(key=b"1"),
        record(key=None),
        record(key=b"2"),
        record(key=None),
    ]
    data = batch(given, base_offset=3, codec=codec, transactional=transactional, **producer)
    result = rewritten(data, keyed)
    (found,) = batches_of(result.data)
    assert {name: getattr(found, name) for name in producer} == producer
    assert (found.base_offset, found.last_offset, found.last_sequence) == (3, 7, 2)
    assert found.is_transactional is transactional
    assert [(one.offset, one.sequence) for one in records_in(result.data)] == [
        (4, 2**31 - 1),
        (6, 1),
    ]


FOUR = [
    (0, [record(b"a", timestamp=10)]),
    (1, [record(b"b", key=b"1", timestamp=11), record(b"c", timestamp=12)]),
    (
        3,
        [
            record(b"d", timestamp=13),
            record(b"e", key=b"4", timestamp=20),
            record(b"f", key=b"5", timestamp=15),
        ],
    ),
    (6, [record(b"g", key=b"6", timestamp=16)]),
]
#: First and last offset of each batch that stays.
COVERED = {
    "plain": [(1, 1), (4, 4), (5, 5), (6, 6)],
    "wrapper": [(1, 1), (4, 5), (6, 6)],
    "batch": [(1, 2), (3, 5), (6, 6)],
}


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_counter_of_a_mixed_filter_is_right(magic: int, codec: int) -> None:
    parts = [
        records_of(given, magic=magic, codec=codec, base_offset=start) for start, given in FOUR
    ]
    data = b"".join(parts)
    result = rewritten(data, keyed)
    assert (result.messages_read, result.messages_retained) == (7, 4)
    assert (result.bytes_read, result.bytes_retained) == (len(data), len(result.data))
    plain = magic < 2 and codec == NONE
    shallow = -1 if magic == 0 else 4 if plain else 5
    assert result.max_timestamp == (20 if magic else -1)
    assert (result.max_offset, result.shallow_offset_of_max_timestamp) == (6, shallow)
    kind = "batch" if magic == 2 else "plain" if plain else "wrapper"
    found = batches_of(result.data)
    firsts = [
        one.base_offset if magic == 2 else next(iter(reference.records(one))).offset
        for one in found
    ]
    assert list(zip(firsts, [one.last_offset for one in found], strict=True)) == COVERED[kind]
    assert [(one.offset, one.value) for one in records_in(result.data)] == [
        (1, b"b"),
        (4, b"e"),
        (5, b"f"),
        (6, b"g"),
    ]


@pytest.mark.parametrize(("magic", "codec"), [one for one in FORMATS if one[0]])
def test_log_append_time_stays(magic: int, codec: int) -> None:
    given = [record(key=None), record(key=b"k"), record(key=b"l")]
    if magic == 2:
        data = batch(given, codec=codec, log_append=True, max_timestamp=1234)
    elif codec:
        data = wrapper(given, magic=1, codec=codec, log_append=True, timestamp=1234)
    else:
        timed = [Record(one.value, one.key, timestamp=1234) for one in given]
        data = messages(timed, magic=1, log_append=True)
    result = rewritten(data, keyed)
    assert {(one.timestamp_type, one.max_timestamp) for one in batches_of(result.data)} == {
        (1, 1234)
    }
    assert [one.timestamp for one in records_in(result.data)] == [1234, 1234]


def test_an_existing_horizon_survives_and_the_base_time_else_becomes_the_first_record_s() -> None:
    given = [
        record(timestamp=5),
        record(timestamp=9, key=b"k"),
        record(None, timestamp=7, key=b"l"),
    ]
    with_horizon = batch(given, base_timestamp=3000, delete_horizon=True)
    (found,) = batches_of(rewritten(with_horizon, keyed, now_ms=9999).data)
    assert (found.delete_horizon_ms, found.base_timestamp) == (3000, 3000)
    (found,) = batches_of(rewritten(batch(given), offsets(1)).data)
    assert (found.delete_horizon_ms, found.base_timestamp, found.max_timestamp) == (None, 9, 9)


@pytest.mark.parametrize("rules", ["3.9", "4.0"])
@pytest.mark.parametrize(("magic", "codec"), [one for one in FORMATS if one[0] < 2])
def test_old_messages_cannot_be_kept_empty(magic: int, codec: int, rules: str) -> None:
    data = records_of([record()], magic=magic, codec=codec)
    with pytest.raises(BuilderStateError):
        rewritten(data, none, Retention.RETAIN_EMPTY, rules=rules)


@pytest.mark.parametrize(("magic", "codec"), [one for one in FORMATS if one[0] < 2])
def test_since_4_0_old_messages_become_batches_one_by_one(magic: int, codec: int) -> None:
    given = [
        record(b"a", key=b"x", timestamp=3),
        record(b"b", timestamp=4),
        record(b"c", timestamp=5),
    ]
    data = records_of(given, magic=magic, codec=codec, base_offset=10)
    result = rewritten(data, every, rules="4.0")
    found = batches_of(result.data)
    assert {(one.magic, one.producer_id, one.leader_epoch, one.codec) for one in found} == {
        (2, -1, -1, codec)
    }
    spans = [(one.base_offset, one.last_offset) for one in found]
    assert spans == ([(10, 12)] if codec else [(10, 10), (11, 11), (12, 12)])
    times = [3, 4, 5] if magic else [-1, -1, -1]
    assert [(one.timestamp, one.value) for one in records_in(result.data)] == list(
        zip(times, [b"a", b"b", b"c"], strict=True)
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_since_4_0_an_old_tombstone_gets_a_horizon(magic: int) -> None:
    data = messages([record(None, key=b"k", timestamp=6)], magic=magic)
    result = rewritten(data, every, rules="4.0", now_ms=1000, delete_retention_ms=24)
    (found,) = batches_of(result.data)
    assert (found.base_timestamp, found.attributes, found.delete_horizon_ms) == (1024, 0x40, 1024)
    assert [one.timestamp for one in records_in(result.data)] == [6 if magic else -1]


def test_cln_37_messages_of_another_magic_inside_a_wrapper_are_put_right() -> None:
    inner = messages([record(b"a", timestamp=5), record(b"b", timestamp=6)], magic=1)
    data = wrapper([], magic=0, codec=GZIP, inner=inner, offset=1, timestamp=0)
    result = rewritten(data, every)
    assert result.data != data
    (found,) = batches_of(result.data)
    assert [(one.offset, one.value) for one in reference.records(found)] == [(0, b"a"), (1, b"b")]
    assert rewritten(result.data, every).data == result.data
