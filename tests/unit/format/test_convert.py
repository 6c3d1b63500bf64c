"""Conversion between formats and codecs: what stays, what is refused, what is dropped and said."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.constants import Compression
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    FormatError,
    InvalidRecordError,
    KsegError,
    UnsupportedFormatError,
)
from kseg.format.convert import Converter, Losses, Target, convert
from kseg.format.header import scan
from tests.builders import (
    COMMIT,
    GZIP,
    batch,
    control_batch,
    messages,
    record,
    wrapper,
)
from tests.conformance.outputs import batches_of, records_in

PRODUCER = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}


def spans(data: bytes) -> list[tuple[int, int]]:
    return [(one.base_offset, one.last_offset) for one in batches_of(data)]


# Up


def test_messages_that_cannot_share_a_batch_do_not() -> None:
    data = b"".join(
        [
            messages([record(b"a", timestamp=1), record(b"b", timestamp=2)], magic=1),
            messages([record(b"c", timestamp=3, offset=2)], magic=1, log_append=True),
            messages([record(b"d", timestamp=4, offset=3)], magic=1, log_append=True),
            messages([record(b"e", timestamp=4, offset=4)], magic=1, log_append=True),
            messages([record(b"f", timestamp=9, offset=4)], magic=1, log_append=True),
            messages([record(b"g", offset=2)], magic=0),
            messages([record(b"h", offset=3)], magic=0),
            messages([record(b"i", offset=2**31 + 3)], magic=0),
        ]
    )
    converted = convert(data, magic=2)
    assert spans(converted.data) == [
        (0, 1),
        (2, 2),
        (3, 4),
        (4, 4),
        (2, 3),
        (2**31 + 3, 2**31 + 3),
    ]
    times = [(one.timestamp_type, one.max_timestamp) for one in batches_of(converted.data)]
    assert times == [(0, 2), (1, 3), (1, 4), (1, 9), (0, -1), (0, -1)]
    assert [one.value for one in records_in(converted.data)] == [b"%c" % n for n in b"abcdefghi"]


# Down


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (control_batch(COMMIT), "control batches"),
        (batch([record()], **PRODUCER), "producer ids"),
        (batch([], last_offset_delta=3, **PRODUCER), "producer ids"),
        (batch([record()], transactional=True), "transactions"),
        (batch([record(), record(headers=[(b"h", None)])]), "headers"),
    ],
    ids=["markers", "a producer", "a producer's empty batch", "a transaction", "headers"],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_an_append_refuses_to_lose_is_refused(data: bytes, reason: str, magic: int) -> None:
    sound = batch([record()])
    with pytest.raises(UnsupportedFormatError, match=f"magic {magic} has no {reason}") as caught:
        convert(sound + data, magic=magic)
    assert caught.value.position == len(sound)
    assert convert(sound + data, magic=magic, on_loss="drop").losses


def test_everything_dropped_is_counted() -> None:
    data = b"".join(
        [
            batch(
                [record(headers=[(b"h", b"x")], timestamp=4), record(timestamp=-1)],
                last_offset_delta=5,
                leader_epoch=3,
                transactional=True,
                **PRODUCER,
            ),
            control_batch(COMMIT, base_offset=6),
            batch([], base_offset=7, last_offset_delta=1, leader_epoch=-1),
            batch([record(timestamp=8)], base_offset=9, base_timestamp=5, delete_horizon=True),
        ]
    )
    losses = convert(data, magic=0, on_loss="drop").losses
    assert losses == Losses(
        control_batches=1,
        empty_batches=1,
        producer_batches=1,
        transactional_batches=1,
        leader_epochs=2,
        delete_horizons=1,
        offset_ranges=1,
        header_records=1,
        timestamps=2,
    )
    assert len(losses.sentences()) == 9
    assert convert(data, magic=1, on_loss="drop").losses.timestamps == 0


# Damage


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


DAMAGED: dict[str, tuple[bytes, type[FormatError]]] = {
    "a wrong checksum": (broken(batch([record()], base_offset=1)), CorruptRecordError),
    "a body that its codec refuses": (
        batch([], base_offset=1, attributes=GZIP, body=b"no gzip", count=1),
        DecompressionError,
    ),
    "a negative record count": (
        batch([record()], base_offset=1, codec=GZIP, count=-1),
        InvalidRecordError,
    ),
}


@pytest.mark.parametrize("claim", DAMAGED)
def test_damage_can_be_passed_over(claim: str) -> None:
    damaged, kind = DAMAGED[claim]
    first, last = batch([record(b"a")]), batch([record(b"b")], base_offset=2)
    data = first + damaged + last
    faults: list[KsegError] = []
    converter = Converter(Target(2, Compression.LZ4), on_error=faults.append)
    parts = converter.convert(memoryview(data), scan(data, on_bad_crc="note"))
    assert [one.value for one in records_in(b"".join(parts))] == [b"a", b"b"]
    assert [type(fault) for fault in faults] == [kind]
    assert faults[0].position == len(first)
    strict = Converter(Target(2, Compression.LZ4))
    with pytest.raises(kind):
        list(strict.convert(memoryview(data), scan(data, on_bad_crc="note")))


@pytest.mark.parametrize("magic", [1, 2])
def test_only_records_that_cannot_be_written_are_left_out(magic: int) -> None:
    times = [1, -9, 2, 3, -9, -9, 4]
    given = [record(b"%d" % n, timestamp=time) for n, time in enumerate(times)]
    data = messages(given, magic=1) if magic == 2 else batch(given)
    faults: list[KsegError] = []
    converter = Converter(Target(magic, Compression.GZIP), on_error=faults.append)
    parts = b"".join(converter.convert(memoryview(data), scan(data, on_bad_crc="note")))
    assert [(one.offset, one.timestamp) for one in records_in(parts)] == [
        (n, time) for n, time in enumerate(times) if time > 0
    ]
    size = len(data) // 7
    places = [(size * n if magic == 2 else 0, 0 if magic == 2 else n) for n in (1, 4, 5)]
    assert [(fault.position, fault.record_index) for fault in faults] == places
    assert converter.tally.records_converted == 4


def test_offsets_below_0_fit_no_wrapper_of_magic_1() -> None:
    data = batch([record(), record()], base_offset=-5)
    with pytest.raises(InvalidRecordError, match="negative"):
        convert(data, magic=1, compression=Compression.GZIP)


@pytest.mark.parametrize(
    "arguments",
    [
        {"magic": 3},
        {"magic": 2, "level": 3},
        {"magic": 2, "compression": Compression.GZIP, "level": 10},
        {"magic": 2, "compression": Compression.SNAPPY, "level": 1},
        {"magic": 1, "compression": Compression.ZSTD},
        {"magic": 2, "on_loss": "ignore"},
    ],
)
def test_arguments_that_exclude_each_other_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        convert(b"", **arguments)


_NEGATIVE_TIME = {
    "magic 2": batch([record()], log_append=True, max_timestamp=-5),
    "a wrapper": wrapper([record()], magic=1, codec=1, log_append=True, timestamp=-5),
    "a message": messages([record(timestamp=-5)], magic=1, log_append=True),
}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("data", _NEGATIVE_TIME.values(), ids=_NEGATIVE_TIME)
def test_no_append_was_at_a_negative_time(data: bytes, magic: int) -> None:
    own = scan(data)[0].magic
    if magic == own:
        magic = 2 if own < 2 else 1
    with pytest.raises(InvalidRecordError, match="the time of its append is -5 ms"):
        convert(data, magic=magic)
    sound = batch([record(b"behind", timestamp=7)], base_offset=9)
    found: list[KsegError] = []
    converter = Converter(Target(magic), on_error=found.append)
    both = memoryview(data + sound)
    made = b"".join(converter.convert(both, scan(both, on_bad_crc="note")))
    assert [each.value for each in records_in(made)] == [b"behind"]
    assert [str(error.reason)[:22] for error in found] == ["the time of its append"]


@pytest.mark.parametrize("log_append", [True, False])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_append_times_that_messages_of_magic_0_get_are_counted(
    magic: int, log_append: bool
) -> None:
    old = [messages([record(b"a", offset=at, timestamp=-1)], magic=0) for at in (0, 1)]
    new = messages([record(b"b", offset=2, timestamp=5)], magic=1)
    how = {"magic": 1, "codec": GZIP, "log_append": log_append, "timestamp": 9}
    data = wrapper([record()] * 3, inner=b"".join([*old, new]), **how)
    before = [one.timestamp for one in records_in(data)]
    assert before == [-1, -1, 9 if log_append else 5]
    converted = convert(data, magic=magic, compression=Compression.LZ4, on_loss="drop")
    after = [one.timestamp for one in records_in(converted.data)]
    changed = sum(was != now for was, now in zip(before, after, strict=True))
    assert converted.losses.append_times + converted.losses.timestamps == changed
    assert converted.losses.append_times == (2 if magic and log_append else 0)
    assert bool(converted.losses) == (changed > 0)
