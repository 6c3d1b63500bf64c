"""Commits read column by column are those that `decode` reads one by one."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow
import pytest

from kseg.arrow import from_record_batch
from kseg.format.values import RecordColumns
from kseg.internal import decode
from kseg.internal.coordinators import NONE, commit_rows
from tests.coordinators import OFFSETS, Pair, commit, pair

#: The names of a value's fields, as a commit's columns have them.
NAMES = {
    "offset": "offset",
    "leader_epoch": "leaderEpoch",
    "metadata": "metadata",
    "commit_timestamp": "commitTimestamp",
    "expire_timestamp": "expireTimestamp",
}


def columns_of(pairs: list[Pair]) -> RecordColumns:
    fields = {
        "offset": list(range(len(pairs))),
        "timestamp": [0] * len(pairs),
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
    }
    columns = from_record_batch(pyarrow.record_batch(fields))
    arrays = {**columns.arrays, "producer_id": np.full(len(pairs), -1, np.int64)}
    return RecordColumns(len(pairs), arrays)


def one(given: Pair) -> tuple[bool, dict[str, object] | None]:
    """Whether a record is read, and its columns if it has a value."""
    read, found = commit_rows(columns_of([given]))
    row = {name: None if each[0] == NONE else each[0] for name, each in found.items() if len(each)}
    return bool(read[0]), row or None


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("metadata", ["", "метка", "x" * 120])
def test_every_version_is_read(version: int, metadata: str) -> None:
    more = {"metadata": metadata, "leaderEpoch": 4, "commitTimestamp": 5, "expireTimestamp": 6}
    given = commit("gruppe", "t", 3, 7, version=version, **more, topicId=UUID(int=9))
    read, row = one(given)
    assert read
    assert row is not None
    value = decode(OFFSETS, *given).value
    assert isinstance(value, dict)
    assert {name: row[name] for name in NAMES} == {
        name: value.get(field) for name, field in NAMES.items()
    }
    assert (row["group"], row["topic"], row["partition"]) == ("gruppe", "t", 3)


def test_the_legacy_key_and_tombstones_are_read() -> None:
    key = {"group": "g", "topic": "t", "partition": 0}
    read, row = one(pair(OFFSETS, "LEGACY_OFFSET_COMMIT", key, {"offset": 5}))
    assert read
    assert row is not None
    assert row["offset"] == 5
    assert one(commit("g", "t", 0, None)) == (True, None)


def test_a_group_of_30_kb_and_bad_utf_8_is_read() -> None:
    read, row = one(commit("g" * 30_000, "t", 0, 1))
    assert read
    assert row is not None
    assert row["group"] == "g" * 30_000
    key, value = commit("gg", "t", 0, 1)
    read, row = one((key.replace(b"gg", b"g\xff"), value))
    assert read
    assert row is not None
    assert row["group"] == "g\ufffd"


def test_other_records_and_long_compact_texts_are_left_to_decode() -> None:
    assert one(pair(OFFSETS, "GROUP_METADATA", {"group": "g"}, {})) == (False, None)
    assert one(commit("g", "t", 0, 1, metadata="x" * 200)) == (False, None)
