"""Times of an append, and what a log asks around its records, one claim a row.

The claims are those of Kafka's LogValidatorTest, of UnifiedLog and of ProduceRequest.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kseg.constants import Compression
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from kseg.log.validate.append import (
    AppendOrigin,
    AppendRules,
    ValidatedBatch,
    ValidationMetrics,
    analyze,
    validate_append,
    validate_replica,
)
from tests.builders import (
    GZIP,
    NONE,
    batch,
    message,
    messages,
    record,
    records_of,
    wrapper,
)
from tests.conformance.appends import (
    CREATE,
    LOG_APPEND,
    NOW,
    OFFSET,
    indexes,
    refused,
    take,
    the_batch,
    three,
    timestamps,
)
from tests.conformance.outputs import batches_of

# Times


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (1, 2))])
@pytest.mark.parametrize(
    "timestamp", [NOW - 1001, NOW + 1001, NOW - 300_000, NOW + 300_000, 2**63 - 1]
)
def test_a_time_out_of_range_is_refused(timestamp: int, codec: int, magic: int) -> None:
    data = records_of(three(*[timestamp] * 3), magic=magic, codec=codec)
    error = refused(data, InvalidTimestampError, magic=magic)
    alone = magic == 1 and not codec
    assert indexes(error) == ([0] if alone else [0, 1, 2])
    assert str(timestamp) in error.record_errors[0].reason
    assert "1000 ms" in error.record_errors[0].reason


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (1, 2))])
@pytest.mark.parametrize("timestamp", [NOW - 1000, NOW + 1000, -1])
def test_a_time_at_the_limit_or_none_is_accepted(timestamp: int, codec: int, magic: int) -> None:
    data = records_of(three(*[timestamp] * 3), magic=magic, codec=codec)
    assert timestamps(take(data, magic=magic)) == [timestamp] * 3


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_bad_time_wins_over_a_missing_key(codec: int) -> None:
    bad = [record(timestamp=NOW - 2000, key=b"k")] * 2 + [record(timestamp=NOW)] * 4
    data = batch(bad, codec=codec)
    error = refused(data, InvalidTimestampError, compacted=True)
    assert indexes(error) == list(range(6))


def test_a_bad_time_wins_over_wrong_magics_inside() -> None:
    inner = messages([record(timestamp=NOW)] * 5, magic=0)
    inner += message(record(timestamp=NOW - 2000), magic=1, offset=5)
    data = wrapper(three(), magic=1, codec=GZIP, inner=inner, offset=5)
    assert indexes(refused(data, InvalidTimestampError, magic=1)) == list(range(6))


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (1, 2))])
def test_a_log_append_mark_is_the_log_s_own(codec: int, magic: int) -> None:
    marked: Any = {"log_append": True}
    if magic == 2:
        data = batch(three(), codec=codec, **marked)
    elif codec:
        data = wrapper(three(), magic=1, codec=codec, **marked)
    else:
        data = messages(three(), magic=1, **marked)
    error = refused(data, InvalidTimestampError, magic=magic, timestamp_type=LOG_APPEND)
    assert "log append time" in error.record_errors[0].reason
    # A create time log looks at the time first, and takes the mark off where that is in range.
    taken = take(data, magic=magic)
    assert {one.timestamp_type for one in batches_of(taken.to_bytes())} == {CREATE}
    assert timestamps(taken) == [NOW] * 3


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_log_append_mark_without_a_time_is_refused(codec: int) -> None:
    data = batch(three(-1, -1, -1), codec=codec, log_append=True)
    assert indexes(refused(data, InvalidTimestampError)) == [0, 1, 2]


@pytest.mark.parametrize("magic", [1, 2])
def test_log_append_time_is_written_over_gzip(magic: int) -> None:
    data = records_of(three(1234, 1234, 1234), magic=magic, codec=GZIP)
    taken = take(data, magic=magic, timestamp_type=LOG_APPEND)
    made = the_batch(taken)
    assert (len(taken), taken.sizes_maybe_changed) == (len(data), False)
    assert (made.timestamp_type, made.max_timestamp) == (LOG_APPEND, NOW)
    assert magic == 1 or made.base_timestamp == 1234
    assert timestamps(taken) == [NOW] * 3
    assert (taken.offset_of_max_timestamp, taken.log_append_time) == (2, NOW)


@pytest.mark.parametrize("magic", [1, 2])
def test_log_append_time_is_written_while_gzip_of_magic_0_is_converted(magic: int) -> None:
    taken = take(wrapper(three(), magic=0, codec=GZIP), magic=magic, timestamp_type=LOG_APPEND)
    made = the_batch(taken)
    assert timestamps(taken) == [NOW] * 3
    assert magic == 1 or made.base_timestamp == -1
    assert (taken.offset_of_max_timestamp, taken.sizes_maybe_changed) == (2, True)


# At the log


def append(data: bytes, *, offset: int = 0, **rules: Any) -> ValidatedBatch:
    return validate_append(data, AppendRules(**rules), next_offset=offset, now_ms=NOW)


def test_a_client_s_batch_starts_at_offset_0() -> None:
    data = batch(three(), base_offset=7)
    with pytest.raises(InvalidRecordError, match="starts at offset 0, not 7"):
        append(data)
    assert append(data, origin=AppendOrigin.COORDINATOR).record_count == 3


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("crc", [None, 7])
def test_too_large_a_batch_is_refused_before_its_checksum_is_looked_at(
    crc: int | None, codec: int
) -> None:
    data = batch(three(), codec=codec, crc=crc)
    with pytest.raises(RecordTooLargeError, match=f"{len(data)} bytes; .* allows {len(data) - 1}"):
        append(data, batch_bytes_max=len(data) - 1)
    if crc is None:
        assert append(data, batch_bytes_max=len(data)).record_count == 3


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (0, 1, 2))])
def test_a_wrong_checksum_is_refused_and_counted(codec: int, magic: int) -> None:
    data = records_of(three(), magic=magic, codec=codec)
    broken, metrics = data[:-1] + bytes([data[-1] ^ 1]), ValidationMetrics()
    with pytest.raises(CorruptRecordError):
        validate_append(
            broken, AppendRules(magic=magic), next_offset=0, now_ms=NOW, metrics=metrics
        )
    assert metrics == ValidationMetrics(invalid_checksum=1)


@pytest.mark.parametrize(("codec", "magic"), [*product((NONE, GZIP), (0, 1, 2))])
@pytest.mark.parametrize("left", [1, 11, 16, 30])
def test_k42_29_an_incomplete_batch_at_the_end_is_cut_off_for_followers_alone(
    left: int, codec: int, magic: int
) -> None:
    data = records_of(three(), magic=magic, codec=codec)
    tail = records_of([record(bytes(100), timestamp=NOW)], magic=magic, codec=codec)[:left]
    kept = validate_replica(data + tail, AppendRules(), next_offset=0)
    assert kept.to_bytes() == data
    # Kafka cuts it off for a leader, too; kseg's leader takes all that it is given, or nothing.
    with pytest.raises(CorruptRecordError, match=f"the last {left} bytes are not a whole batch"):
        append(data + tail, offset=OFFSET, magic=magic)


def test_a_batch_that_became_too_large_is_refused() -> None:
    data = batch([record(bytes(1000), timestamp=NOW)], codec=GZIP)
    assert append(data, batch_bytes_max=500).in_place
    with pytest.raises(RecordTooLargeError, match="allows 500"):
        append(data, batch_bytes_max=500, compression=Compression.NONE)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_ul_018_an_append_larger_than_a_segment_is_refused(codec: int) -> None:
    data = batch(three(), codec=codec)
    assert append(data, append_bytes_max=len(data)).record_count == 3
    with pytest.raises(RecordBatchTooLargeError, match=f"a segment holds {len(data) - 1}"):
        append(data, append_bytes_max=len(data) - 1)


FOLLOWER = AppendRules(origin=AppendOrigin.REPLICATION, batch_bytes_max=10)


@pytest.mark.parametrize("starts", [(5, 5), (7, 4), (5, 7)])
def test_ul_022_a_follower_s_offsets_have_to_grow(starts: tuple[int, int]) -> None:
    data = b"".join(batch(three(), base_offset=start) for start in starts)
    if starts == (5, 7):  # overlapping, but growing
        kept = validate_replica(data, FOLLOWER, next_offset=5)
        assert (kept.to_bytes(), kept.first_offset, kept.next_offset) == (data, 5, 10)
        return
    with pytest.raises(OffsetsOutOfOrderError, match="have to grow"):
        validate_replica(data, FOLLOWER, next_offset=0)


def test_a_raft_leader_s_batches_carry_its_epoch() -> None:
    rules = AppendRules(origin=AppendOrigin.RAFT_LEADER, leader_epoch=3)
    data = batch(three(), base_offset=9, leader_epoch=3)
    kept = validate_append(data, rules, next_offset=9, now_ms=NOW)
    assert (kept.to_bytes(), kept.first_offset, kept.next_offset) == (data, 9, 12)
    with pytest.raises(InvalidRecordError, match="leader epoch 2 in an append of epoch 3"):
        analyze(batch(three(), leader_epoch=2), rules)
