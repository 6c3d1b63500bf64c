"""The kernel that reads batches in one pass: nothing of a batch counts unless all is sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels.reader import Inflated, block_layout, read_batches
from kseg.format.columns import Request
from kseg.format.header import scan
from kseg.format.reader import STATE_FIELDS, End
from kseg.format.workspace import Plan
from tests.builders import GZIP, LZ4, SNAPPY, ZSTD, batch, record, records_of

FIELDS = ("offset", "timestamp", "key", "value", "headers")
RECORDS = [
    record(b"one", key=b"k", headers=((b"h", b"x"), (b"h", None))),
    record(None, key=None),
    record(b"x" * 300, key=b"y" * 40),
]
GOOD = batch(RECORDS, base_offset=5)
#: Larger than what is summed at a time, so that records are read in front of their checksum.
LARGE = batch([record(b"v" * 5000, key=None)] * 60, base_offset=10)


def arguments(data: bytes, *, rows: int = 100, size: int = 1 << 20, headers: int = 10) -> Any:
    """What a call needs that reads everything."""
    places = np.zeros(14, np.int64)
    ask = Plan(Request(fields=FIELDS)).ask
    state = np.zeros(STATE_FIELDS, np.int64)
    state[1:4] = rows, size, headers
    state[16:19] = -1
    return {
        "base": 0,
        "limit": len(data),
        "file_end": len(data),
        "ask": ask,
        "inflated": Inflated(),
        "block": np.empty(block_layout(int(ask[0]), rows, size, headers, places), np.uint8),
        "counts": np.zeros(50, np.int64),
        "state": state,
    }


def read(data: bytes, **room: int) -> tuple[End, list[int], list[int]]:
    """Why the call ended, how far and with how many rows, and the records of each batch."""
    given = arguments(data, **room)
    end = End(read_batches(data, None, **given))
    state = given["state"]
    return end, [int(state[0]), int(state[4])], given["counts"][: state[14]].tolist()


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_batches_are_read_up_to_the_limit() -> None:
    assert read(GOOD * 3) == (End.END, [3 * len(GOOD), 9], [3, 3, 3])
    assert read(b"") == (End.END, [0, 0], [])


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
        (records_of(RECORDS[:1], magic=1, codec=0), End.OTHER),
        (batch(RECORDS, magic=3), End.ODD),
        (b"\0" * 70, End.OTHER),
        (spoiled(LARGE, 200_000), End.ODD),
        (spoiled(LARGE, len(LARGE) - 1), End.ODD),
    ],
)
def test_a_batch_that_is_not_usual_ends_the_call_in_front_of_it(bad: bytes, end: End) -> None:
    assert read(GOOD + bad + GOOD) == (end, [len(GOOD), 3], [3])


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_batches_are_read_among_others(codec: int) -> None:
    packed = batch(RECORDS * 3, codec=codec)
    assert read(packed + GOOD + packed, headers=20) == (
        (End.END, [2 * len(packed) + len(GOOD), 21], [9, 3, 9])
    )


def test_a_batch_that_inflates_to_more_than_the_limit_goes_elsewhere() -> None:
    packed = batch([record(b"0" * 5000)], codec=GZIP)
    given = arguments(packed)
    given["ask"][8] = 4999
    assert read_batches(packed, None, **given) == End.OTHER
    given["ask"][8] = 6000
    assert read_batches(packed, None, **given) == End.END


def test_a_batch_that_did_not_fit_is_not_inflated_twice() -> None:
    packed = batch(RECORDS, codec=GZIP)
    given = arguments(packed, rows=2)
    assert read_batches(packed, None, **given) == End.NO_ROOM
    assert given["inflated"].holds
    again = arguments(packed) | {"inflated": given["inflated"]}
    # Its bytes are not looked at again.
    blank = packed[:61] + bytes(len(packed) - 61)
    assert read_batches(blank, None, **again) == End.END
    assert int(again["state"][4]) == 3
    assert not given["inflated"].holds


def test_batches_elsewhere_have_nothing_to_do_with_the_one_before() -> None:
    packed = batch(RECORDS, codec=GZIP)
    given = arguments(packed, rows=2)
    read_batches(packed, None, **given)
    given["inflated"].forget()
    blank = packed[:61] + bytes(len(packed) - 61)
    again = arguments(packed) | {"inflated": given["inflated"]}
    assert read_batches(blank, None, **again) == End.ODD


@pytest.mark.parametrize("size", [1, 16, 60, 61, len(GOOD) - 1])
def test_a_torn_batch_ends_the_call_in_front_of_it(size: int) -> None:
    assert read(GOOD + GOOD[:size]) == (End.ODD, [len(GOOD), 3], [3])


def test_the_largest_last_offset_is_told_of_batches_that_are_passed_over_too() -> None:
    batches = [batch(RECORDS, base_offset=at) for at in (-9, 40, 5)]
    for within, largest in (((-(2**63), 2**63 - 1), 42), ((0, 3), 42), ((0, 39), 42)):
        given = arguments(b"".join(batches))
        given["ask"][4:6] = within
        assert read_batches(b"".join(batches), None, **given) == End.END
        assert int(given["state"][18]) == largest
    given = arguments(batches[0] + batches[1][:-1])
    assert read_batches(batches[0] + batches[1][:-1], None, **given) == End.ODD
    assert int(given["state"][18]) == -1


def test_a_large_batch_is_summed_while_it_is_read() -> None:
    assert read(LARGE + GOOD) == (End.END, [len(LARGE) + len(GOOD), 63], [60, 3])


def test_a_batch_of_a_window_that_ends_goes_on_behind_it() -> None:
    given = arguments(GOOD * 2)
    window = (GOOD * 2)[: len(GOOD) + 90]
    assert read_batches(window, None, **given) == End.MORE
    assert (int(given["state"][0]), int(given["state"][20])) == (len(GOOD), len(GOOD))
    given["base"] = len(GOOD)
    assert read_batches((GOOD * 2)[len(GOOD) :], None, **given) == End.END
    assert int(given["state"][4]) == 6


@pytest.mark.parametrize(
    "room",
    [{"rows": 5}, {"size": len(GOOD) + 50}, {"headers": 3}],
    ids=["rows", "bytes", "headers"],
)
def test_what_does_not_fit_stays_outside(room: dict[str, int]) -> None:
    assert read(GOOD * 3, **room)[0] == End.FULL
    assert read(GOOD * 3, **room)[1:] == ([len(GOOD), 3], [3])
    assert read(GOOD, **{name: 1 for name in room})[0] == End.NO_ROOM


def test_rows_of_a_table_are_read_and_no_others() -> None:
    data = GOOD + LARGE + GOOD
    table = scan(data, on_bad_crc="defer").take(np.array([0, 2]))
    given = arguments(data)
    assert read_batches(data, table.rows, **given) == End.END
    assert given["state"][[0, 4]].tolist() == [2, 6]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ask": np.zeros(7, np.int64)}, "length"),
        ({"state": np.zeros(20, np.int64)}, "length"),
        ({"block": np.empty(100, np.uint8)}, "no room"),
        ({"base": 1}, "do not fit"),
        ({"file_end": 10}, "do not fit"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_batches(GOOD, None, **{**arguments(GOOD), **change})


@pytest.mark.parametrize(("field", "value"), [(1, 2**40), (4, 101), (5, -1), (7, 1), (6, 11)])
def test_a_state_that_does_not_fit_its_room_is_refused(field: int, value: int) -> None:
    given = arguments(GOOD)
    given["state"][field] = value
    with pytest.raises(ValueError, match="room"):
        read_batches(GOOD, None, **given)


def test_a_table_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width"):
        read_batches(GOOD, np.zeros((1, 3), np.int64), **arguments(GOOD))


def test_a_layout_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="2\\^31"):
        block_layout(31, 2**31, 0, 0, np.zeros(14, np.int64))
