"""What validation hands on and says: heads, borrowed tails, texts, counters, arguments."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from kseg._kernels import validate as _validate
from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    LimitExceededError,
    RecordFault,
)
from kseg.log.validate import batches as rewrite
from kseg.log.validate.append import (
    AppendOrigin,
    AppendRules,
    analyze,
    validate,
    validate_append,
    validate_replica,
)
from tests import reference
from tests.builders import GZIP, LZ4, ZSTD, batch, messages, record

NOW = 1_700_000_000_000
PLAIN = batch([record(b"a", timestamp=NOW), record(b"b", key=b"k", timestamp=NOW + 7)])
COMPRESSED = batch([record(b"a" * 100, timestamp=NOW)] * 50, codec=LZ4)


def append(data: Any, rules: AppendRules | None = None, **how: Any) -> Any:
    how = {"next_offset": 0, "now_ms": NOW, **how}
    return validate_append(data, rules or AppendRules(), **how)


# Results


@pytest.mark.parametrize("data", [b"", PLAIN[:50]])
def test_nothing_whole_is_nothing_to_append(data: bytes) -> None:
    with pytest.raises((CorruptRecordError, InvalidRecordError), match=r"no batch|a whole batch"):
        append(data)
    with pytest.raises(InvalidRecordError, match="no whole batch"):
        validate_replica(data, AppendRules(), next_offset=0)
    assert analyze(data, AppendRules()).end_position == 0


@pytest.mark.parametrize("zeros", [11, 12, 40])
def test_zeros_behind_a_batch_are_corrupt_once_they_show_a_size(zeros: int) -> None:
    data = PLAIN + bytes(zeros)
    with pytest.raises(CorruptRecordError, match="zero" if zeros > 11 else "not a whole batch"):
        append(data)
    if zeros < 12:
        assert validate_replica(data, AppendRules(), next_offset=0).record_count == 2
    else:
        with pytest.raises(CorruptRecordError, match="zero"):
            validate_replica(data, AppendRules(), next_offset=0)


# Texts and counters


def test_an_error_shows_three_records_and_keeps_all() -> None:
    data = batch([record(timestamp=time) for time in (NOW, 1, 2, 3, 4)], codec=GZIP)
    rules = AppendRules(timestamp_before_max_ms=10, compacted=True)
    with pytest.raises(InvalidTimestampError) as caught:
        append(batch([record(timestamp=time, key=b"k") for time in (NOW, 1, 2, 3, 4)]), rules)
    error = caught.value
    assert [fault.record_index for fault in error.record_errors] == [1, 2, 3, 4]
    text = f"timestamp 1 is more than 10 ms older than {NOW}"
    assert error.record_errors[0] == RecordFault(1, f"its {text}")
    assert "record 3: " in str(error)
    assert "record 4: " not in str(error)
    assert str(error).endswith("; and 1 more")
    assert (error.position, error.offset) == (0, 0)
    with pytest.raises(InvalidRecordError, match=r"5 of the batch's records.* no key, which"):
        append(data, AppendRules(compacted=True))


def test_errors_keep_their_records_through_pickle() -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        append(PLAIN, AppendRules(timestamp_after_max_ms=3), now_ms=NOW)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.record_errors == caught.value.record_errors != ()
    assert str(again) == str(caught.value)


def test_a_plain_message_in_the_middle_is_named_by_its_position() -> None:
    data = messages([record(timestamp=time) for time in (NOW, 1, 2)], magic=1, base_offset=4)
    with pytest.raises(InvalidTimestampError) as caught:
        append(data, AppendRules(magic=1, timestamp_before_max_ms=10))
    assert (caught.value.position, caught.value.offset) == (len(data) // 3, 5)
    assert [fault.record_index for fault in caught.value.record_errors] == [0]


def test_a_batch_that_inflates_too_far_is_refused() -> None:
    rules = AppendRules(inflated_bytes_max=1000)
    with pytest.raises(LimitExceededError) as caught:
        append(COMPRESSED, rules)
    assert (caught.value.position, caught.value.offset) == (0, 0)
    # The arena is used again, and the next append is none the worse for it.
    assert append(COMPRESSED).record_count == 50


def test_a_very_large_batch_is_not_held_on_to() -> None:
    data = batch([record(bytes(65 << 20), timestamp=NOW)], codec=ZSTD)
    assert append(data).record_count == 1
    assert rewrite._kept.arena.capacity == 0


# Arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"magic": 3}, "magic is 0, 1 or 2"),
        ({"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, "create time or log append"),
        ({"timestamp_before_max_ms": -1}, "timestamp_before_max_ms is 0"),
        ({"timestamp_after_max_ms": 2**63}, "timestamp_after_max_ms is 0"),
        ({"leader_epoch": -2}, "leader_epoch is -1"),
        ({"level": 3}, "a level needs a codec"),
        ({"level": 10, "compression": Compression.GZIP}, "gzip has levels 1 to 9"),
        ({"compression": Compression.ZSTD, "magic": 1}, "magic 1 has no zstd"),
        ({"compression": 9}, "9"),
        ({"origin": 9}, "9"),
    ],
)
def test_rules_that_cannot_be_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AppendRules(**arguments)


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_the_next_offset_has_64_bits(offset: int) -> None:
    for how in (validate, validate_append):
        with pytest.raises(ValueError, match="next_offset is 0"):
            how(PLAIN, AppendRules(), next_offset=offset, now_ms=NOW)
    with pytest.raises(ValueError, match="next_offset is 0"):
        validate_replica(PLAIN, AppendRules(), next_offset=offset)


@pytest.mark.parametrize("base_offset", [2**63 - 1, -(2**63), 2**62])
@pytest.mark.parametrize("delta", [0, 1, 2])
def test_a_header_that_lies_does_not_lead_offsets_astray(base_offset: int, delta: int) -> None:
    data = batch([record()] * 3, base_offset=base_offset, last_offset_delta=delta)
    rules = AppendRules(origin=AppendOrigin.COORDINATOR)
    taken = append(data, rules, next_offset=2**63 - 2**33)
    stepwise = validate(data, rules, next_offset=2**63 - 2**33, now_ms=NOW)
    assert (taken.next_offset, taken.to_bytes()) == (stepwise.next_offset, stepwise.to_bytes())
    (header,) = reference.walk(taken.to_bytes()).batches
    assert header.last_offset == taken.last_offset == 2**63 - 2**33 + 2


@pytest.mark.parametrize("base_offset", [2**63 - 1, -(2**63), 2**62])
@pytest.mark.parametrize("delta", [5, -5, 2**31 - 1, -(2**31)])
def test_a_batch_that_would_lie_over_the_one_before_it_is_refused(
    base_offset: int, delta: int
) -> None:
    data = batch([record()], base_offset=base_offset, last_offset_delta=delta)
    rules = AppendRules(origin=AppendOrigin.COORDINATOR)
    for how in (append, partial(validate, now_ms=NOW)):
        with pytest.raises(InvalidRecordError, match="1 records, and"):
            how(data, rules, next_offset=2**63 - 2**33)


def test_faults_of_another_width_are_refused() -> None:
    asked: dict[str, Any] = {
        "log_append": False,
        "compacted": False,
        "create_time": True,
        "now": 0,
        "before_max": 0,
        "after_max": 0,
        "faults": np.empty((0, 3), np.int64),
    }
    header = {"count": 1, "base_offset": 0, "base_timestamp": 0, "max_timestamp": 0}
    with pytest.raises(ValueError, match="wrong width"):
        _validate.examine_records(b"", skip=False, **header, **asked)
    with pytest.raises(ValueError, match="wrong width"):
        _validate.examine_messages(b"", inner=True, magic=1, offset=0, timestamp=0, **asked)
