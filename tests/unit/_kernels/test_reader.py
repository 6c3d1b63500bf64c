"""The kernel that reads batches in one pass: nothing of a batch counts unless all is sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels.blocks import Blocks
from kseg._kernels.reader import BatchReader, Inflated
from kseg.format.header import scan
from kseg.format.reader import End, Plan, Workspace
from kseg.format.request import Request
from tests.builders import GZIP, batch, message, messages, record, wrapper

FIELDS = ("offset", "timestamp", "key", "value", "headers")
RECORDS = [
    record(b"one", key=b"k", headers=((b"h", b"x"), (b"h", None))),
    record(None, key=None),
    record(b"x" * 300, key=b"y" * 40),
]
GOOD = batch(RECORDS, base_offset=5)
#: Larger than what is summed at a time, so that records are read in front of their checksum.
LARGE = batch([record(b"v" * 5000, key=None)] * 60, base_offset=10)


WIDE = np.array([-(2**63), 2**63 - 1] * 2)


class Reading:
    """A reader of one file's bytes, and what came of it."""

    def __init__(self, data: bytes, *, inflated: Inflated | None = None, **how: Any) -> None:
        """Begin; `how` replaces what is asked for."""
        asked = Plan(Request(columns=FIELDS)).asked
        self.data = data
        self.inflated = inflated or Inflated()
        self.counts = np.zeros((2, 50), np.int64)
        self.memory = Workspace().blocks
        counts = how.pop("counts", self.counts)
        self.kernel = BatchReader(self.memory, self.inflated, counts, **(asked | how))

    def read(self) -> End:
        """Read on, to the end of the bytes."""
        size = len(self.data)
        return End(self.kernel.read(self.data, 0, size, size, size))

    def table(self, rows: Any) -> End:
        """Read on in a table."""
        return End(self.kernel.read_table(self.data, rows, 0))

    def taken(self) -> tuple[int, list[int], list[int]]:
        """The rows of the piece, and the records and base offsets of its batches."""
        piece = self.kernel.take()
        if piece is None:
            return 0, [], []
        counts, firsts = self.counts[:, : piece.batches].tolist()
        return piece.rows, counts, firsts


def read(data: bytes, **how: Any) -> tuple[End, list[int], list[int]]:
    """Why the call ended, how far and with how many rows, and the records of each batch."""
    reading = Reading(data, **how)
    end = reading.read()
    rows, counts, _ = reading.taken()
    return end, [reading.kernel.at, rows], counts


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("bad", "end"),
    [
        (spoiled(GOOD, 100), End.ODD),
        (batch(RECORDS, count=4), End.ODD),
        (batch(RECORDS, count=2), End.ODD),
        (batch(RECORDS, count=-1), End.ODD),
        (batch(body=b"\0", count=1), End.ODD),
        (spoiled(batch(RECORDS, codec=GZIP), 80), End.ODD),
        (batch(RECORDS, codec=GZIP, count=4), End.ODD),
        (batch([], codec=GZIP), End.ODD),
        (batch(body=b"no gzip", codec=5, count=1), End.OTHER),
        (batch(RECORDS, magic=3), End.ODD),
        (b"\0" * 70, End.ODD),
        (spoiled(LARGE, 200_000), End.ODD),
        (spoiled(LARGE, len(LARGE) - 1), End.ODD),
    ],
)
def test_a_batch_that_is_not_usual_ends_the_call_in_front_of_it(bad: bytes, end: End) -> None:
    assert read(GOOD + bad + GOOD) == (end, [len(GOOD), 3], [3])


def test_a_batch_that_inflates_to_more_than_the_limit_goes_elsewhere() -> None:
    packed = batch([record(b"0" * 5000)], codec=GZIP)
    assert read(packed, inflated_max=4999)[0] == End.OTHER
    assert read(packed, inflated_max=6000)[0] == End.END


def test_a_batch_that_did_not_fit_is_not_inflated_twice() -> None:
    packed = batch(RECORDS, codec=GZIP)
    first = Reading(packed, rows_max=2)
    assert first.read() == End.OTHER
    # Its bytes are not looked at again.
    blank = packed[:61] + bytes(len(packed) - 61)
    again = Reading(blank, inflated=first.inflated)
    assert again.read() == End.END
    assert again.taken()[0] == 3
    assert Reading(blank, inflated=first.inflated).read() == End.ODD


def test_batches_elsewhere_have_nothing_to_do_with_the_one_before() -> None:
    packed = batch(RECORDS, codec=GZIP)
    first = Reading(packed, rows_max=2)
    first.read()
    first.inflated.forget()
    blank = packed[:61] + bytes(len(packed) - 61)
    assert Reading(blank, inflated=first.inflated).read() == End.ODD


# ---- magic 0 and 1 -------------------------------------------------------------------------------

#: Headers do not exist there.
OLD = [record(each.value, key=each.key, timestamp=9 + at) for at, each in enumerate(RECORDS)]


def columns(data: bytes, table: bool = False) -> list[list[int]]:
    """Offsets and timestamps of bytes that are read to their end."""
    reading = Reading(data)
    rows = scan(data, on_bad_crc="defer").rows
    assert (reading.table(rows) if table else reading.read()) == End.END
    piece = reading.kernel.take()
    assert piece is not None
    places = [piece.numbers(name) for name in ("offset", "timestamp")]
    found = [np.ndarray(count, np.int64, piece.block, at).tolist() for count, at in places]
    return [*found, reading.counts[1, : piece.batches].tolist()]


def test_a_piece_holds_times_of_one_type_where_that_is_asked() -> None:
    first = messages(OLD, magic=0)
    assert read(first + GOOD) == (End.FULL, [len(first), 3], [1, 1, 1])


@pytest.mark.parametrize(
    "bad",
    [
        spoiled(messages(OLD[:1], magic=1), 30),
        message(OLD[0], magic=1, crc=1),
        spoiled(wrapper(OLD, magic=1, codec=GZIP), 60),
        wrapper(OLD, magic=1, codec=GZIP, inner=b""),
        wrapper(OLD, magic=1, codec=GZIP, inner=message(OLD[0], magic=1, crc=1)),
        wrapper(OLD, magic=1, codec=GZIP, inner=messages(OLD, magic=1) + bytes(26)),
        wrapper(OLD, magic=1, codec=GZIP, inner=wrapper(OLD, magic=1, codec=GZIP)),
        wrapper(OLD, magic=1, codec=GZIP, offset=1),
        message(record(None), magic=1, attributes=GZIP),
        messages(OLD[:1], magic=1)[:-1],
    ],
)
def test_a_message_that_is_not_usual_ends_the_call_in_front_of_it(bad: bytes) -> None:
    front = messages(OLD, magic=1)
    assert read(front + bad) == (End.ODD, [len(front), 3], [1, 1, 1])


def test_a_row_that_tells_something_else_than_its_message_is_not_believed() -> None:
    data = messages(OLD, magic=1)
    rows = scan(data, on_bad_crc="defer").rows.copy()
    for column in (1, 4, 6, 7):  # size, last offset, checksum, attributes
        told = rows.copy()
        told[1, column] += 1
        reading = Reading(data)
        assert reading.table(told) == End.ODD, column
        assert (reading.kernel.at, reading.taken()[0]) == (1, 1)


@pytest.mark.parametrize("size", [1, 16, 60, 61, len(GOOD) - 1])
def test_a_torn_batch_ends_the_call_in_front_of_it(size: int) -> None:
    assert read(GOOD + GOOD[:size]) == (End.ODD, [len(GOOD), 3], [3])


def test_the_largest_last_offset_is_told_of_batches_that_are_passed_over_too() -> None:
    batches = [batch(RECORDS, base_offset=at) for at in (-9, 40, 5)]
    for within, largest in (((-(2**63), 2**63 - 1), 42), ((0, 3), 42), ((0, 39), 42)):
        reading = Reading(b"".join(batches), within=np.array([*within, *WIDE[:2]]))
        assert reading.read() == End.END
        assert reading.kernel.last_offset == largest
    torn = Reading(batches[0] + batches[1][:-1])
    assert torn.read() == End.ODD
    assert torn.kernel.last_offset == -1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"within": np.zeros(3, np.int64)}, "length"),
        ({"counts": np.zeros((3, 2), np.int64)}, "width"),
        ({"rows_max": 0}, "2\\^31"),
        ({"bytes_max": 2**31}, "2\\^31"),
        ({"rows_usual": 0}, "2\\^31"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Reading(GOOD, **change)


@pytest.mark.parametrize(
    ("at", "base", "file_end"),
    [
        (0, 1, 2**40),
        (-1, 0, 2**40),
        (0, -1, 2**40),
        (0, 0, 10),
        (10**6, 0, 2**40),
        (2**63 - 1, 2**63 - 1, 2**63 - 1),
        (2**63 - 1, -(2**63), 2**63 - 1),
    ],
)
def test_places_outside_the_bytes_are_refused(at: int, base: int, file_end: int) -> None:
    reading = Reading(GOOD)
    reading.kernel.move(at)
    with pytest.raises(ValueError, match="do not fit"):
        reading.kernel.read(GOOD, base, 2**63 - 1, file_end, file_end)


@pytest.mark.parametrize("size", [0, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("position", [0, 2**63 - 1, -(2**63)])
def test_a_table_that_makes_no_sense_is_not_believed(position: int, size: int) -> None:
    told = scan(GOOD * 2).rows.copy()
    told[1, :2] = position, size
    for how in ({}, {"sized": False, "as_large_as_possible": True}):
        reading = Reading(GOOD * 2, **how)
        assert reading.table(told) in (End.ODD, End.FULL, End.NO_ROOM)
        assert reading.taken()[0] <= 3


def test_memory_that_fails_ends_the_call_and_nothing_else() -> None:
    reading = Reading(GOOD)

    def none(_size: int) -> Any:
        raise MemoryError

    reading.kernel = BatchReader(
        Blocks(none, first_bytes=1000), Inflated(), **Plan(Request(columns=FIELDS)).asked
    )
    for _ in range(2):
        with pytest.raises(MemoryError):
            reading.read()
    assert reading.kernel.take() is None
