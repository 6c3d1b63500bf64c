"""Whatever a log holds: conversion keeps its records, and a filter keeps those it is told to."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.constants import Compression
from kseg.errors import KsegError
from kseg.format.convert import convert
from kseg.format.header import BatchTable
from kseg.format.located import Retention, Verdict
from kseg.format.retain import Filtered, filter_batches
from kseg.format.values import RecordColumns
from kseg.legacy.old_brokers import down_convert
from tests import reference
from tests.property.oracle import rows_of
from tests.property.strategies import logs, logs07
from tests.property.test_hostile import mutated
from tests.reference07 import messages07

magics = st.sampled_from([0, 1, 2])
targets = st.one_of(
    st.tuples(magics, st.sampled_from([None, *list(Compression)[:4]])),
    st.tuples(st.just(2), st.just(Compression.ZSTD)),
)
WHERE = ("position", "codec")  # what any other codec changes


def in_format(row: dict[str, Any], magic: int) -> dict[str, Any]:
    """What is left of a record in another magic."""
    born = row["magic"]
    left = {name: row[name] for name in ("offset", "key", "value")}
    left["timestamp"] = row["timestamp"] if magic else -1
    kind = row["timestamp_type"] if born else "CreateTime"
    left["timestamp_type"] = kind if magic else "NoTimestampType"
    left["headers"] = row["headers"] if magic == 2 else []
    return left


def zstd_in(data: bytes) -> bool:
    return any(batch.codec == Compression.ZSTD for batch in reference.walk(data).batches)


@given(data=logs, target=targets)
def test_records_survive_any_conversion(
    data: bytes, target: tuple[int, Compression | None]
) -> None:
    magic, codec = target
    if codec is None and magic < 2 and zstd_in(data):
        codec = Compression.GZIP
    converted = convert(data, magic=magic, compression=codec, on_loss="drop")
    source = [row for row in rows_of(data) if magic == 2 or not row["control"]]
    got = rows_of(converted.data)
    assert [in_format(row, magic) for row in got] == [in_format(row, magic) for row in source]
    assert {row["magic"] for row in got} <= {magic}
    assert all(row["valid"] for row in got)
    if codec is not None:
        assert {row["codec"] for row in got if not row["control"]} <= {codec.label}


@given(data=logs, codec=st.sampled_from(Compression))
def test_where_magic_2_stays_all_else_stays(data: bytes, codec: Compression) -> None:
    parts = [bytes(data[b.position : b.position + b.size]) for b in reference.walk(data).batches]
    new = b"".join(part for part in parts if part[16] == 2)
    converted = convert(new, magic=2, compression=codec)
    assert strip(rows_of(converted.data)) == strip(rows_of(new))
    assert not converted.losses
    names = ("base_offset", "last_offset", "leader_epoch", "base_timestamp", "max_timestamp")
    names += ("producer_id", "producer_epoch", "base_sequence", "record_count")
    for before, after in zip(
        reference.walk(new).batches, reference.walk(converted.data).batches, strict=True
    ):
        assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]
        changed = before.codec != codec and before.record_count and not before.is_control
        if not changed:
            assert after.attributes == before.attributes
        else:
            assert after.attributes == before.attributes & 0x78 | codec


def strip(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name not in WHERE} for row in rows]


@given(data=logs, magic=magics)
def test_converting_twice_changes_nothing_more(data: bytes, magic: int) -> None:
    codec = Compression.LZ4 if zstd_in(data) else None
    once = convert(data, magic=magic, compression=codec, on_loss="drop").data
    again = convert(once, magic=magic, compression=codec)
    assert again.data == once
    assert not again.losses
    assert again.tally.records_converted == 0


@given(data=logs07(), target=targets, first=st.integers(0, 2**40))
def test_messages_of_0_7_are_numbered_in_order(
    data: bytes, target: tuple[int, Compression | None], first: int
) -> None:
    magic, codec = target
    converted = convert(data, magic=magic, compression=codec, kafka07=True, first_offset=first)
    got = [(row["offset"], row["key"], row["value"]) for row in rows_of(converted.data)]
    payloads = [message.payload for message in messages07(data, 0)]
    assert got == [(first + n, None, payload) for n, payload in enumerate(payloads)]
    assert converted.losses.physical_offsets == len(payloads)


# Filters


def chosen(data: bytes, seed: int, **how: Any) -> Filtered:
    """Keep records by the toss of a coin that falls alike for the same offset and value."""

    def decide(table: BatchTable) -> Verdict:
        return Verdict.same(Retention.DELETE_EMPTY, len(table))

    def keep(columns: RecordColumns) -> Any:
        pairs = zip(columns["offset"].tolist(), columns["value"], strict=True)
        return np.array([stays(seed, offset, value) for offset, value in pairs], np.bool_)

    return filter_batches(data, decide, keep, now_ms=1000, delete_retention_ms=24, **how)


def stays(seed: int, offset: int, value: bytes | None) -> bool:
    return random.Random(repr((seed, offset, value))).random() < 0.6


def writable(data: bytes) -> bool:
    """Whether a builder takes every batch: Kafka's refuses a transaction without a producer."""
    return not any(
        batch.is_transactional and batch.producer_id < 0 for batch in reference.walk(data).batches
    )


@given(data=logs, seed=st.integers(0, 99), rules=st.sampled_from(["3.9", "4.0"]))
def test_a_filter_leaves_the_chosen_records_as_they_were(
    data: bytes, seed: int, rules: str
) -> None:
    if not writable(data):
        return
    result = chosen(data, seed, rules=rules)
    before = [row for row in rows_of(data) if stays(seed, row["offset"], row["value"])]
    after = rows_of(result.data)
    assert len(after) == result.messages_retained
    for was, now in zip(before, after, strict=True):
        changed = {"position", "base_offset", "next_offset", "delete_horizon_ms"}
        if was["magic"] < 2 and rules == "4.0":
            assert now["magic"] == 2
            assert in_format(now, 2) == in_format(was, 2)
            continue
        same = [name for name in was if name not in changed]
        assert {name: now[name] for name in same} == {name: was[name] for name in same}
    assert result.messages_read == len(rows_of(data))
    assert result.bytes_read == len(data)


@given(data=logs, seed=st.integers(0, 99), room=st.integers(0, 600))
def test_passes_with_little_room_give_what_one_pass_gives(
    data: bytes, seed: int, room: int
) -> None:
    if not writable(data):
        return
    whole = chosen(data, seed)
    parts, counts, at = [], 0, 0
    while at < len(data):
        result = chosen(data[at:], seed, output_bytes=room)
        assert result.bytes_read > 0
        assert result.complete is (result.bytes_retained <= room)
        parts.append(result.data)
        counts += result.messages_read
        at += result.bytes_read
    assert b"".join(parts) == whole.data
    assert counts == whole.messages_read


# Damage


@given(data=logs.flatmap(mutated), magic=magics, seed=st.integers(0, 9))
def test_damage_is_refused_or_makes_sound_batches(data: bytes, magic: int, seed: int) -> None:
    attempts: list[Any] = [
        lambda: convert(data, magic=magic, compression=Compression.GZIP, on_loss="drop").data,
        lambda: down_convert(data, magic, verify_crc=False).data,
        lambda: chosen(data, seed, verify_crc=False).data,
        lambda: chosen(data, seed, verify_crc=False, rules="4.0").data,
    ]
    for attempt in attempts:
        try:
            made = attempt()
        except KsegError:
            continue
        walk = reference.walk(made)
        assert (walk.error, walk.end_position) == (None, len(made))
