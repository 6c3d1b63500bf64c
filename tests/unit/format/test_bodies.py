"""Bodies of Kafka 0.7: sets of any size and depth come a piece at a time, none out of order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kseg import CorruptRecordError, KsegError
from kseg.errors import InvalidRecordError, LimitExceededError
from kseg.format import bodies, columns, header
from kseg.format.request import Request
from tests.builders import GZIP, SNAPPY, deflate, message07, messages07
from tests.reference import RefusedError
from tests.reference07 import messages07 as read_messages07

Row = tuple[int, bytes]


@pytest.fixture(params=[1, 3, 4, 10_000])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Messages of a piece."""
    monkeypatch.setattr(bodies, "MESSAGES_PIECE", request.param)
    return int(request.param)


def decoded(data: bytes, **where: int) -> tuple[list[Row], list[KsegError]]:
    errors: list[KsegError] = []
    table = header.scan(data, kafka07=True, on_bad_crc="note")
    request = Request(columns=("offset", "value"), **where)
    found = columns.decode(memoryview(data), table, request, on_error=errors.append)
    rows = [
        (int(offset), value or b"")
        for one in found
        for offset, value in zip(one.offset, one.value, strict=True)
    ]
    return rows, errors


def expected(data: bytes) -> list[Row]:
    def good() -> Iterator[Row]:
        try:
            for message in read_messages07(data):
                yield message.offset, message.payload
        except RefusedError:
            return

    return list(good())


def set_of(count: int, *, magic: int = 1, codec: int = GZIP) -> bytes:
    payloads = [b"%d" % at for at in range(count)]
    return messages07(payloads, magic=magic, codec=codec)


def nested(depth: int, inside: bytes) -> bytes:
    for level in range(depth):
        codec = GZIP if level % 2 else SNAPPY
        inside = message07(deflate(codec, inside), codec=codec)
    return inside


LOGS = {
    "plain": set_of(9, codec=0),
    "one set": set_of(9),
    "sets and messages": set_of(5) + message07(b"x") + set_of(3, magic=0, codec=SNAPPY) + set_of(1),
    "sets within sets": nested(2, set_of(4, codec=0) + set_of(5) + message07(b"end")) + set_of(2),
    "as deep as may be": nested(8, set_of(3, codec=0)),
    "a set whose last message is cut": message07(
        deflate(GZIP, set_of(5, codec=0) + message07(b"cut")[:-1]), codec=GZIP
    )
    + set_of(2),
}


@pytest.mark.parametrize("name", LOGS)
def test_sets_come_in_order_whatever_a_piece_holds(piece: int, name: str) -> None:
    rows, errors = decoded(LOGS[name])
    assert rows == expected(LOGS[name])
    assert errors == []
    assert decoded(LOGS[name], max_rows=2)[0] == rows
    assert decoded(LOGS[name], max_bytes=1)[0] == rows


BAD = message07(b"bad", crc=1)
FAULTS = {
    "a checksum inside": (
        message07(deflate(GZIP, set_of(6, codec=0) + BAD + message07(b"no")), codec=GZIP),
        CorruptRecordError,
    ),
    "a checksum two sets down": (nested(2, set_of(2, codec=0) + BAD), CorruptRecordError),
    "a set of half a message": (
        message07(deflate(GZIP, message07(b"half")[:-1]), codec=GZIP),
        CorruptRecordError,
    ),
    "no codec of 0.7's": (message07(b"lz4", codec=3), InvalidRecordError),
    "too deep": (nested(9, set_of(3, codec=0)), LimitExceededError),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_inside_a_set_follows_what_is_good_and_ends_the_set(piece: int, name: str) -> None:
    faulty, kind = FAULTS[name]
    front, behind = set_of(2), set_of(3)
    data = front + faulty + behind
    rows, (error,) = decoded(data)
    offset = len(front)
    assert [row for row in rows if row[0] == offset] == [
        (offset, payload) for _, payload in expected(faulty) if kind is not LimitExceededError
    ]
    assert [payload for at, payload in rows if at != offset] == [b"0", b"1", b"0", b"1", b"2"]
    assert type(error) is kind
    assert (error.position, error.offset) == (offset, offset)


def test_the_limit_is_each_outermost_message_s_own(piece: int) -> None:
    one = messages07([bytes(700)], codec=GZIP)
    rows, errors = decoded(one * 5, inflated_max=1000)
    assert (len(rows), errors) == (5, [])
    deep = nested(1, one)
    assert decoded(deep, inflated_max=2000)[1] == []
    rows, errors = decoded(deep + one, inflated_max=720)
    assert [type(error) for error in errors] == [LimitExceededError]
    assert len(rows) == 1
