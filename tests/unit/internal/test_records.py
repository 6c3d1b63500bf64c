"""Records of internal topics: the frame around them, and bytes that lie."""

from __future__ import annotations

import tracemalloc

import pytest

from kseg.errors import InvalidRecordError
from kseg.internal import InternalTopic, decode
from kseg.internal.schemas import Cursor, message_reader, record_types
from tests.internal_schemas import encode_fields, encode_message
from tests.tidy.test_surface import modules_loaded_by

GROUP_KEY = bytes.fromhex("0002000141")


def test_every_layout_of_the_schemas_can_be_compiled() -> None:
    for topic in InternalTopic:
        for record in record_types(topic).values():
            for version in range(record.versions[0], record.versions[1] + 1):
                assert callable(message_reader(record.value, version))


def test_a_topic_that_is_not_internal_is_refused() -> None:
    with pytest.raises(ValueError, match="'orders' is none of __consumer_offsets"):
        decode("orders", b"", b"")


def test_no_schema_is_read_before_a_record_is() -> None:
    assert "numpy" not in modules_loaded_by("import kseg.internal")
    assert "json" not in modules_loaded_by(
        "import kseg.internal, sys\n"
        "from kseg.internal import schemas\n"
        "assert schemas.load.cache_info().currsize == 0\n"
        "sys.modules.pop('json')"
    ) - {"json"}


@pytest.mark.parametrize(
    ("topic", "key", "value", "reason"),
    [
        ("__consumer_offsets", "0009000141", "00", "type 9 is not known"),
        ("__consumer_offsets", "0063", None, "type 99 is not known"),
        ("__consumer_offsets", "0002000141", "0005", "version 5 of GROUP_METADATA is not known"),
        ("__cluster_metadata", None, "000300", "frame version 0 is not known"),
        ("__cluster_metadata", None, "010600", "type 6 is not known"),
        ("__cluster_metadata", None, "010201", "version 1 of TOPIC_RECORD is not known"),
    ],
)
def test_what_is_not_known_stays_bytes_and_says_why(
    topic: str, key: str | None, value: str | None, reason: str
) -> None:
    key_bytes = None if key is None else bytes.fromhex(key)
    value_bytes = None if value is None else bytes.fromhex(value)
    record = decode(topic, key_bytes, value_bytes)
    assert str(record.reason).startswith(reason)
    assert record.value == value_bytes


@pytest.mark.parametrize(
    ("value", "reason", "position"),
    [
        ("", "the value: the version of the frame is a cut varint", 0),
        ("808080808001", "the version of the frame is a varint of more than 5 bytes", 0),
        ("01ffff0f", "the type is 262143, and 0 to 32767 is allowed", 1),
        ("01ffffffff0f", "the type is -1", 1),
        ("0102000941", "name has 8 bytes, 1 are left", 4),
        ("010200", "the length of name is a cut varint", 3),
        ("01020000", "name is null, which it may not be", 4),
        ("0118000002ab", "2 bytes are left over after END_TRANSACTION_RECORD", 4),
        ("01180001", "a tag is a cut varint", 4),
        ("0118000163ffffffff07", "tag 99 has 2147483647 bytes, 0 are left", 10),
        ("0118000163ffffffff0f", "tag 99 has -1 bytes", 10),
        ("011800ffffffff07", "a tag is a cut varint", 8),
        ("011700010004026100ff", "2 bytes are left over in tag 0, name", 8),
    ],
)
def test_bytes_that_lie_are_refused_where_they_do(value: str, reason: str, position: int) -> None:
    with pytest.raises(InvalidRecordError, match=reason) as raised:
        decode("__cluster_metadata", None, bytes.fromhex(value))
    assert raised.value.position == position


def test_a_count_takes_no_memory_on_its_word() -> None:
    # A share group's update says that it has 2^31 - 2 batches, in 64 KiB.
    key = bytes.fromhex("0001000167") + bytes(20)
    value = bytes.fromhex("0000") + bytes(16) + b"\xff\xff\xff\xff\x07" + bytes(2**16)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError, match=r"2147483646 items, [0-9]+ bytes are left"):
            decode("__share_group_state", key, value)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_the_items_of_a_record_have_a_limit() -> None:
    # An assignment's topics: 2^20 + 1 empty names of one byte.
    names = encode_fields(
        [{"name": "names", "type": "compact_array", "items": {"type": "compact_string"}}],
        False,
        {"names": ("",) * (2**20 + 1)},
    )
    reader = message_reader("ShareGroupMemberMetadataValue", 0)
    with pytest.raises(InvalidRecordError, match="more than 1048576 items in all"):
        reader(Cursor(b"\x00\x01\x01" + names + b"\x00", "value"))


def test_members_share_the_limit_of_their_group() -> None:
    # Each member's subscription has 400,000 names: the third one stays bytes.
    topics = ("",) * 400_000
    subscription = b"\0\0" + encode_message(
        "ConsumerProtocolSubscription", 0, {"topics": topics, "userData": None}
    )
    member = {
        **{name: "m" for name in ("memberId", "clientId", "clientHost")},
        "sessionTimeout": 1,
        "subscription": subscription,
        "assignment": b"",
    }
    group = {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": None}
    value = encode_message("GroupMetadataValue", 0, {**group, "members": (member,) * 3})
    found = decode("__consumer_offsets", GROUP_KEY, b"\0\0" + value).value
    assert isinstance(found, dict)
    kinds = [type(each["subscription"]) for each in found["members"]]
    assert kinds == [dict, dict, bytes]


def test_a_tag_that_is_not_there_has_its_default() -> None:
    reader = message_reader("OffsetCommitValue", 4)
    assert reader(Cursor(bytes(12) + b"\x01" + bytes(8) + b"\x00", "value"))["topicId"].int == 0


def test_one_value_of_a_default_is_not_shared() -> None:
    key = bytes.fromhex("000500016700016d")
    value = bytes.fromhex("0000" + "0000" + "0101" + "01" + "00" + "ffffffff" + "00" + "00")
    first, second = (decode("__consumer_offsets", key, value) for _ in range(2))
    assert isinstance(first.value, dict)
    assert isinstance(second.value, dict)
    first.value["classicMemberMetadata"]["sessionTimeoutMs"] = 7
    assert second.value["classicMemberMetadata"]["sessionTimeoutMs"] == 0
