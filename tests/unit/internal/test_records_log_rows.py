"""Rows and tables of internal topics: where they come from, and records that stay bytes."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from uuid import UUID

import pyarrow as pa
import pytest

from kseg import Log, internal, scan
from kseg.errors import InvalidRecordError
from kseg.internal import InternalTopic
from kseg.internal.schemas import load, record_types
from tests.builders import COMMIT, batch, control_batch, record, write_segment
from tests.internal_schemas import encode_message
from tests.tidy.test_surface import modules_loaded_by

TOPIC_ID = UUID("00ee8fd1-c44d-4f56-8dcf-5702cb252f1f")
KEY = pack(">h", 1) + encode_message(
    "OffsetCommitKey", 0, {"group": "g", "topic": "orders", "partition": 3}
)
COMMITS = {
    1: {"offset": 1, "metadata": "m", "commitTimestamp": 7, "expireTimestamp": 8},
    4: {"offset": 2, "leaderEpoch": 5, "metadata": "", "commitTimestamp": 9, "topicId": TOPIC_ID},
}
GROUP_KEY = pack(">h", 2) + encode_message("GroupMetadataKey", 0, {"group": "g"})


def commit(version: int) -> bytes:
    return pack(">h", version) + encode_message("OffsetCommitValue", version, COMMITS[version])


@pytest.fixture
def offsets(tmp_path: Path) -> Path:
    directory = tmp_path / "__consumer_offsets-7"
    records = [
        record(commit(1), key=KEY, timestamp=5),
        record(commit(4), key=KEY, timestamp=-1),
        record(None, key=KEY, timestamp=6),
        record(b"\0\x09", key=KEY, timestamp=7),
        record(b"x", key=b"\0\x63", timestamp=8),
    ]
    write_segment(directory, 0, batch(records), control_batch(COMMIT, base_offset=5))
    return directory


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    directory = tmp_path / "__consumer_offsets-0"
    write_segment(directory, 0, batch([record(b"\0\x04\0", key=KEY), record(commit(4), key=KEY)]))
    return directory


def test_rows_come_from_a_scan_a_log_or_one_piece(offsets: Path) -> None:
    (piece,) = scan(offsets)
    with Log.open(offsets) as log:
        by_log = list(internal.rows(log))
    by_scan, by_piece = list(internal.rows(scan(offsets))), list(internal.rows(piece))
    assert [row.record for row in by_scan] == [row.record for row in by_log]
    assert by_scan == by_piece
    assert [row.offset for row in by_scan] == [0, 1, 2, 3, 4]
    assert by_scan[0].partition == 7
    assert by_scan[1].timestamp == -1


def test_control_records_are_no_rows(offsets: Path) -> None:
    assert len(list(internal.rows(scan(offsets, control=True, columns=FIELDS)))) == 5


FIELDS = ("offset", "timestamp", "key", "value", "control")


def test_a_topic_that_is_not_known_has_to_be_named(offsets: Path) -> None:
    file = offsets.rename(offsets.with_name("copy")) / f"{0:020d}.log"
    with pytest.raises(ValueError, match="name it as `topic`"):
        next(internal.rows(scan(file)))
    assert next(internal.rows(scan(file), InternalTopic.OFFSETS)).record.name == "OFFSET_COMMIT"
    with pytest.raises(ValueError, match="'orders' is not a valid InternalTopic"):
        next(internal.rows(scan(file), "orders"))
    with pytest.raises(ValueError, match="on_error is raise or raw"):
        internal.rows(scan(file), on_error="skip")


def test_a_damaged_record_raises_with_its_place_or_stays_bytes(damaged: Path) -> None:
    with pytest.raises(InvalidRecordError, match=r"log, offset 0: the value: ") as raised:
        list(internal.rows(scan(damaged)))
    assert raised.value.offset == 0
    first, second = internal.rows(scan(damaged), on_error="raw")
    assert (first.record.key, first.record.value) == (KEY, b"\0\x04\0")
    assert str(first.record.reason).startswith("the value: offset has 8 bytes, 1 are left, at 2")
    assert second.record.reason is None
    found = internal.tables(scan(damaged), on_error="raw")
    assert {name: table.num_rows for name, table in found.items()} == {
        "UNKNOWN": 1,
        "OFFSET_COMMIT": 1,
    }


def test_a_table_has_typed_columns_of_every_version(offsets: Path) -> None:
    found = internal.tables(scan(offsets))
    commits = found["OFFSET_COMMIT"]
    assert commits.schema == internal.table_schema("__consumer_offsets", "OFFSET_COMMIT")
    value = commits.schema.field("value").type
    types = [value.field(name).type for name in ("offset", "leaderEpoch", "metadata", "topicId")]
    assert types == [pa.int64(), pa.int32(), pa.string(), pa.string()]
    rows = commits.to_pylist()
    assert [row["version"] for row in rows] == [1, 4, None, 9]
    assert [row["tombstone"] for row in rows] == [False, False, True, False]
    assert [row["value"] and row["value"]["topicId"] for row in rows] == [
        None,
        "AO6P0cRNT1aNz1cCyyUvHw",
        None,
        None,
    ]
    assert rows[0]["value"]["expireTimestamp"] == 8
    assert rows[1]["value"]["expireTimestamp"] is None
    assert rows[2]["key"] == {"group": "g", "topic": "orders", "partition": 3}
    assert (rows[3]["value_bytes"], rows[3]["key"]) == (b"\0\x09", rows[2]["key"])
    assert rows[3]["reason"].startswith("version 9 of OFFSET_COMMIT is not known")
    (unknown,) = found["UNKNOWN"].to_pylist()
    assert (unknown["type"], unknown["key_bytes"], unknown["value_bytes"]) == (99, b"\0\x63", b"x")
    assert unknown["timestamp"].timestamp() == 0.008


def test_members_have_messages_as_structs_or_as_bytes(tmp_path: Path) -> None:
    protocol = encode_message(
        "ConsumerProtocolSubscription", 0, {"topics": ("a", "b"), "userData": None}
    )
    member = {
        "memberId": "m",
        "clientId": "c",
        "clientHost": "h",
        "sessionTimeout": 1,
        "subscription": b"\0\0" + protocol,
        "assignment": b"?",
    }
    fields = {"generation": 1, "protocol": None, "leader": None, "members": (member,)}
    records = [
        record(
            b"\0\0" + encode_message("GroupMetadataValue", 0, {**fields, "protocolType": kind}),
            key=GROUP_KEY,
        )
        for kind in ("consumer", "connect")
    ]
    directory = tmp_path / "__consumer_offsets-1"
    write_segment(directory, 0, batch(records))
    groups = internal.tables(scan(directory))["GROUP_METADATA"].to_pylist()
    consumer, connect = (group["value"]["members"][0] for group in groups)
    assert consumer["subscription"]["topics"] == ["a", "b"]
    assert (consumer["subscription_bytes"], consumer["assignment_bytes"]) == (None, b"?")
    assert connect["subscription"] is None
    assert connect["subscription_bytes"] == b"\0\0" + protocol


def test_every_type_of_record_has_a_schema() -> None:
    for topic in load()["topics"]:
        for known in record_types(topic).values():
            schema = internal.table_schema(topic, known.name)
            assert ("key" in schema.names) == (known.key is not None)
            assert pa.types.is_struct(schema.field("value").type)
    with pytest.raises(ValueError, match="has no records 'NOTHING', only TRANSACTION_LOG, UNKNOWN"):
        internal.table_schema("__transaction_state", "NOTHING")


def test_one_piece_makes_record_batches(offsets: Path) -> None:
    (piece,) = scan(offsets)
    found = internal.record_batches(piece)
    assert {name: batch.num_rows for name, batch in found.items()} == {
        "OFFSET_COMMIT": 4,
        "UNKNOWN": 1,
    }


def test_rows_need_no_arrow() -> None:
    assert "pyarrow" not in modules_loaded_by("import kseg.internal; kseg.internal.rows")
