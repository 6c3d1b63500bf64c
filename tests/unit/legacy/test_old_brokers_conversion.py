"""Down-conversion where Kafka's own tests do not look: falling offsets, refusals, many messages."""

from __future__ import annotations

import pytest

from kseg.errors import CorruptRecordError, InvalidRecordError
from kseg.legacy.old_brokers import down_convert
from tests.builders import batch, messages, record
from tests.conformance.outputs import records_in


def test_plain_messages_whose_offsets_fall_are_converted_one_after_the_other() -> None:
    given = [record(b"%d" % n, offset=n) for n in (5, 6, 2, 2, 9)]
    converted = down_convert(messages(given, magic=1), 0)
    assert converted.data == messages(given, magic=0)
    assert converted.stats.records_converted == 5
    assert converted.stats.temporary_bytes == sum(
        len(messages([one], magic=magic)) for one in given for magic in (0, 1)
    )
    later = down_convert(messages(given, magic=1), 0, first_offset=6)
    assert [one.offset for one in records_in(later.data)] == [6, 9]


@pytest.mark.parametrize("bad", [0, 3])
def test_a_message_that_cannot_be_written_is_named(bad: int) -> None:
    given = [record(timestamp=-9 if n == bad else n) for n in range(5)]
    data = messages(given, magic=1)
    with pytest.raises(InvalidRecordError, match="timestamp") as caught:
        down_convert(data, 0)
    assert caught.value.position == bad * (len(data) // 5)
    assert (caught.value.offset, caught.value.record_index) == (bad, 0)


def test_a_wrong_checksum_is_refused_unless_kafka_s_way_is_asked_for() -> None:
    data = batch([record(b"v")], crc=1)
    with pytest.raises(CorruptRecordError):
        down_convert(data, 1)
    assert [one.value for one in records_in(down_convert(data, 1, verify_crc=False).data)] == [b"v"]


@pytest.mark.parametrize("magic", [-1, 3])
def test_only_three_magics_can_be_asked_for(magic: int) -> None:
    with pytest.raises(ValueError, match="magic is 0, 1 or 2"):
        down_convert(b"", magic)
