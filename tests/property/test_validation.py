"""Whatever a producer sends: in place, rebuilt and step by step come to the same records, and
to the same refusals; no bytes do more than be refused.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.constants import Compression, TimestampType
from kseg.errors import InvalidRecordError, InvalidTimestampError, KsegError
from kseg.log.validate.append import AppendRules, ValidatedBatch, validate, validate_append
from tests import reference
from tests.builders import Record, batch, messages, record, records_of, wrapper
from tests.conformance.outputs import records_in
from tests.fuzz.mutate import MUTATORS
from tests.property.strategies import byte_strings, codecs, headers, timestamps

NOW = 1_700_000_000_000
OFFSET = 2**40

times = st.one_of(timestamps, st.integers(NOW - 1002, NOW + 1002))
sent_records = st.builds(
    Record,
    byte_strings,
    key=byte_strings,
    headers=headers,
    timestamp=times,
    attributes=st.sampled_from([0, 0, 255]),
    width=st.sampled_from([1, 1, 1, 2, 5]),
)
sent = st.lists(sent_records, min_size=1, max_size=8)
old = st.lists(st.builds(Record, byte_strings, key=byte_strings, timestamp=times), min_size=1)
rules_drawn = st.builds(
    AppendRules,
    compacted=st.booleans(),
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    timestamp_before_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
)


def faults_of(records: list[Record], rules: AppendRules, *, mark: bool = False) -> dict[int, str]:
    """Which records may not be appended, from the rules as they are written down."""
    found: dict[int, str] = {}
    log_append = rules.is_log_append
    for index, one in enumerate(records):
        # Times differ by what 64 bits hold, however far they are apart.
        age = reference.int64(NOW - one.timestamp)
        if rules.compacted and one.key is None:
            found[index] = "key"
        elif not log_append and one.timestamp != -1:
            late = age > rules.timestamp_before_max_ms
            if late or reference.int64(-age) > rules.timestamp_after_max_ms:
                found[index] = "time"
        elif mark:
            found[index] = "time"
    return found


def expected(records: list[Record], rules: AppendRules, magic: int) -> list[tuple[Any, ...]]:
    """What the log holds then: offset, time, key, value, headers."""
    when = {True: NOW, False: None}[rules.is_log_append]
    return [
        (
            OFFSET + index,
            -1 if magic == 0 else one.timestamp if when is None else when,
            one.key,
            one.value,
            tuple(one.headers),
        )
        for index, one in enumerate(records)
    ]


def held(taken: ValidatedBatch) -> list[tuple[Any, ...]]:
    return [
        (one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
        for one in records_in(taken.to_bytes())
    ]


def take(data: bytes, rules: AppendRules) -> ValidatedBatch:
    return validate_append(data, rules, next_offset=OFFSET, now_ms=NOW)


def check_refusal(data: bytes, rules: AppendRules, faults: dict[int, str]) -> None:
    kind = InvalidTimestampError if "time" in faults.values() else InvalidRecordError
    with pytest.raises(kind) as caught:
        take(data, rules)
    assert [one.record_index for one in caught.value.record_errors] == list(faults)


@given(records=sent, codec=codecs, rules=rules_drawn)
@example(records=[record(timestamp=2**63 - 1)], codec=0, rules=AppendRules())
def test_a_batch_left_in_place_holds_what_was_sent(
    records: list[Record], codec: int, rules: AppendRules
) -> None:
    data = batch(records, codec=codec, max_timestamp=7)
    faults = faults_of(records, rules)
    if faults:
        check_refusal(data, rules, faults)
        return
    taken = take(data, rules)
    assert taken.in_place
    assert bytes(taken.tail) == data[len(taken.head) :]
    assert held(taken) == expected(records, rules, 2)
    latest = max(-1, *(one.timestamp for one in records))
    assert taken.max_timestamp == (NOW if rules.is_log_append else latest)


@given(records=sent, codec=codecs, target=codecs, rules=rules_drawn)
def test_a_batch_built_anew_holds_the_same(
    records: list[Record], codec: int, target: int, rules: AppendRules
) -> None:
    data = batch(records, codec=codec)
    fields = {name: getattr(rules, name) for name in AppendRules.__slots__}
    anew = AppendRules(**{**fields, "compression": Compression(target)})
    faults = faults_of(records, rules)
    if faults:
        check_refusal(data, anew, faults)
        return
    taken, left = take(data, anew), take(data, rules)
    assert held(taken) == held(left) == expected(records, rules, 2)
    assert taken.in_place is (codec == target)
    assert taken.max_timestamp == left.max_timestamp
    (made,) = reference.walk(taken.to_bytes()).batches
    assert (made.codec, made.max_timestamp) == (target, taken.max_timestamp)


@given(records=old, magic=st.integers(0, 1), codec=codecs, to=st.integers(0, 2), target=codecs)
def test_old_messages_hold_what_was_sent_in_any_format(
    records: list[Record], magic: int, codec: int, to: int, target: int
) -> None:
    data = records_of(records, magic=magic, codec=codec)
    rules = AppendRules(magic=to, compression=Compression(target))
    wanted = expected(records, rules, min(magic, to))
    if to and not magic:
        wanted = [(offset, -1, *rest) for offset, _, *rest in wanted]
    assert held(take(data, rules)) == wanted


@given(records=old, rules=rules_drawn, mark=st.booleans(), codec=codecs)
@example(
    records=[record(timestamp=5), record(timestamp=6)], rules=AppendRules(), mark=True, codec=1
)
def test_old_messages_are_refused_by_the_same_rules(
    records: list[Record], rules: AppendRules, mark: bool, codec: int
) -> None:
    fields = {name: getattr(rules, name) for name in AppendRules.__slots__}
    rules = AppendRules(**{**fields, "magic": 1})
    own = records
    if codec:
        data = wrapper(records, magic=1, codec=codec, log_append=mark)
        shared = max(-1, *(one.timestamp for one in records))
        if mark:  # every message has the wrapper's time
            records = [Record(one.value, key=one.key, timestamp=shared) for one in records]
        faults = faults_of(records, rules, mark=mark)
    else:
        data = messages(records, magic=1, log_append=mark)
        # Each is a batch of its own, and the first bad one ends it.
        first = min(faults_of(records, rules, mark=mark).items(), default=None)
        faults = {0: first[1]} if first else {}
    if faults:
        check_refusal(data, rules, faults)
    else:
        taken = take(data, rules)
        # In place the mark goes, and with it the wrapper's hold over the times of its messages.
        assert held(taken) == expected(own if taken.in_place else records, rules, 1)


@given(
    records=sent,
    codec=codecs,
    magic=st.integers(0, 2),
    rules=rules_drawn,
    seed=st.integers(0, 2**32),
)
def test_changed_bytes_are_taken_or_refused_but_never_more(
    records: list[Record], codec: int, magic: int, rules: AppendRules, seed: int
) -> None:
    source = Random(seed)
    data = records_of(records, magic=magic, codec=codec)
    data = MUTATORS["log"](data, source, [data])
    fields = {name: getattr(rules, name) for name in AppendRules.__slots__}
    for to in (0, 1, 2):
        asked = AppendRules(**{**fields, "magic": to})
        for how in (validate, validate_append):
            with suppress(KsegError):
                taken = how(data, asked, next_offset=OFFSET, now_ms=NOW)
                assert taken.next_offset == OFFSET + taken.record_count
