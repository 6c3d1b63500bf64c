"""Headers: the walk's arguments, the table's views, what it says when it stops."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kseg.constants import Compression, StopReason, TimestampType
from kseg.format.header import (
    FIELDS,
    BatchTable,
    checksum_rule,
    scan,
)
from tests.builders import GZIP, ZSTD, batch, control_batch, message, messages07, record, wrapper

FIRST = batch([record(b"a"), record(b"b")], codec=ZSTD, leader_epoch=4)
SECOND = control_batch(1, base_offset=2, producer_id=9, coordinator_epoch=5)
THIRD = wrapper([record(b"x"), record(b"y")], magic=1, codec=GZIP, base_offset=10)
LOG = FIRST + SECOND + THIRD
BAD = FIRST[:-1] + bytes([FIRST[-1] ^ 1])


def test_one_header_has_the_names_of_every_field() -> None:
    header = scan(LOG)[0]
    assert [getattr(header, name) for name in FIELDS] == scan(LOG).rows[0].tolist()
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.last_offset, header.next_offset, header.record_count) == (1, 2, 2)


def test_rows_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        scan(LOG).position[0] = 1


def test_an_unknown_column_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="colour"):
        scan(LOG).colour  # noqa: B018


def test_what_was_seen_is_summed_up() -> None:
    table = scan(LOG)
    assert table.magics_seen == 0b110
    assert table.attributes_seen & 0x20
    assert table.bad_crc_count == 0


@pytest.mark.parametrize(
    "chosen", [slice(1, None), np.array([1, 2]), np.array([False, True, True])]
)
def test_a_choice_of_rows_is_a_table(chosen: Any) -> None:
    table = scan(LOG)[chosen]
    assert isinstance(table, BatchTable)
    assert (table.last_offset.tolist(), table.end_offset) == ([2, 11], 12)
    assert not table.rows.flags.writeable


def test_a_table_survives_pickling_read_only() -> None:
    table = pickle.loads(pickle.dumps(scan(LOG)))
    assert table.rows.tolist() == scan(LOG).rows.tolist()
    assert (table.stop, table.end_position) == (StopReason.END, len(LOG))
    assert not table.rows.flags.writeable


def test_a_limit_ends_the_walk_before_a_batch_that_starts_there() -> None:
    table = scan(LOG, limit=len(FIRST) + 1)
    assert (len(table), table.stop) == (2, StopReason.LIMIT)
    assert table.end_position == len(FIRST) + len(SECOND)
    at_batch = scan(LOG, limit=len(FIRST))
    assert (len(at_batch), at_batch.stop) == (1, StopReason.LIMIT)


@pytest.mark.parametrize(
    "where",
    [{"base": -1}, {"base": 5, "start": 4}, {"start": len(LOG) + 1}, {"file_end": len(LOG) - 1}],
)
def test_places_outside_the_bytes_are_refused(where: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="fit the data"):
        scan(LOG, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("on_bad_crc", "count", "crc_ok", "stop"),
    [
        ("stop", 1, [1], StopReason.BAD_CRC),
        ("note", 3, [1, 0, 1], StopReason.END),
        ("ignore", 3, [-1, -1, -1], StopReason.END),
    ],
)
def test_a_bad_checksum_stops_is_noted_or_is_not_looked_at(
    on_bad_crc: str, count: int, crc_ok: list[int], stop: StopReason
) -> None:
    table = scan(FIRST + BAD + FIRST, on_bad_crc=on_bad_crc)
    assert len(table) == count
    assert table.crc_ok.tolist() == crc_ok
    assert table.stop is stop
    assert table.bad_crc_count == crc_ok.count(0)


@pytest.mark.parametrize(
    ("data", "kafka07", "covered_at"),
    [
        (FIRST, False, 21),
        (message(record(b"v"), magic=1), False, 16),
        (messages07([b"v"]), True, 10),
        (messages07([b"v"], magic=0), True, 9),
    ],
    ids=["magic 2", "magic 1", "0.7 magic 1", "0.7 magic 0"],
)
def test_each_format_has_its_own_checksum(data: bytes, kafka07: bool, covered_at: int) -> None:
    rule = checksum_rule(data[:61], kafka07=kafka07)
    assert rule.covered_at == covered_at
    assert rule.function(data[covered_at:]) == rule.stored(data[:61])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"on_bad_crc": "skip"}, "on_bad_crc is one of ignore, defer, stop, note, not 'skip'"),
        ({"on_bad_crc": "no", "kafka07": True}, "on_bad_crc is one of .*, not 'no'"),
        ({"policy": "lax"}, "policy is one of strict, file, not 'lax'"),
    ],
)
def test_a_word_that_a_walk_does_not_know_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        scan(b"", **given)
