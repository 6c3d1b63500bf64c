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
from tests.builders import GZIP, LZ4, SNAPPY, ZSTD, batch, message, messages, record, wrapper

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
    places = np.zeros(16, np.int64)
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
        "counts": np.zeros((2, 50), np.int64),
        "state": state,
    }


def read(data: bytes, **room: int) -> tuple[End, list[int], list[int]]:
    """Why the call ended, how far and with how many rows, and the records of each batch."""
    given = arguments(data, **room)
    end = End(read_batches(data, None, **given))
    state = given["state"]
    return end, [int(state[0]), int(state[4])], given["counts"][0, : state[14]].tolist()


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
        (batch(RECORDS, magic=3), End.ODD),
        (b"\0" * 70, End.ODD),
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
    given["ask"][9] = 4999
    assert read_batches(packed, None, **given) == End.OTHER
    given["ask"][9] = 6000
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


# ---- magic 0 and 1 -------------------------------------------------------------------------------

#: Headers do not exist there.
OLD = [record(each.value, key=each.key, timestamp=9 + at) for at, each in enumerate(RECORDS)]


def columns(data: bytes, table: bool = False) -> list[list[int]]:
    """Offsets and timestamps of bytes that are read to their end."""
    given = arguments(data)
    rows = scan(data, on_bad_crc="defer").rows if table else None
    assert read_batches(data, rows, **given) == End.END
    places = np.zeros(16, np.int64)
    block_layout(int(given["ask"][0]), *given["state"][1:4].tolist(), places)
    count = int(given["state"][4])
    found = [np.ndarray(count, np.int64, given["block"], int(at)).tolist() for at in places[:2]]
    return [*found, given["counts"][1, : given["state"][14]].tolist()]


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (messages(OLD, magic=0, base_offset=5), [[5, 6, 7], [-1] * 3, [5, 6, 7]]),
        (messages(OLD, magic=1, base_offset=5), [[5, 6, 7], [9, 10, 11], [5, 6, 7]]),
        (
            messages(OLD, magic=1, base_offset=5, log_append=True),
            [[5, 6, 7], [9, 10, 11], [5, 6, 7]],
        ),
        (wrapper(OLD, magic=0, codec=LZ4, base_offset=5), [[5, 6, 7], [-1] * 3, [5]]),
        (wrapper(OLD, magic=1, codec=LZ4, base_offset=5), [[5, 6, 7], [9, 10, 11], [5]]),
        (wrapper(OLD, magic=1, codec=SNAPPY, base_offset=5), [[5, 6, 7], [9, 10, 11], [5]]),
        # What clients that number no wrapper leave there.
        (wrapper(OLD, magic=1, codec=GZIP, offset=0), [[0, 1, 2], [9, 10, 11], [0]]),
        (
            wrapper(OLD, magic=1, codec=GZIP, log_append=True, timestamp=70),
            [[0, 1, 2], [70] * 3, [0]],
        ),
        # A set inside may end within a message.
        (
            wrapper(OLD, magic=1, codec=GZIP, inner=messages([*OLD, *OLD], magic=1)[:-420]),
            [[0, 1, 2], [9, 10, 11], [0]],
        ),
        # The messages inside tell their own magic.
        (
            wrapper(OLD, magic=1, codec=GZIP, inner=messages(OLD, magic=0)),
            [[0, 1, 2], [-1] * 3, [0]],
        ),
    ],
)
def test_messages_are_read_with_the_offsets_and_times_that_they_have(
    data: bytes, expected: list[list[int]], table: bool
) -> None:
    assert columns(data, table) == expected


def test_formats_may_follow_each_other() -> None:
    first, second = messages(OLD, magic=1), wrapper(OLD, magic=1, codec=GZIP)
    end, (at, rows), counts = read(first + GOOD + second + first, headers=20)
    assert (end, at) == (End.END, 2 * len(first) + len(GOOD) + len(second))
    assert (rows, counts) == (12, [1, 1, 1, 3, 3, 1, 1, 1])


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


def test_a_codec_that_older_formats_do_not_have_is_not_read_here() -> None:
    assert read(message(OLD[0], magic=1, attributes=ZSTD))[0] == End.OTHER


def test_a_row_that_tells_something_else_than_its_message_is_not_believed() -> None:
    data = messages(OLD, magic=1)
    rows = scan(data, on_bad_crc="defer").rows.copy()
    for column in (1, 4, 6, 7):  # size, last offset, checksum, attributes
        told = rows.copy()
        told[1, column] += 1
        given = arguments(data)
        assert read_batches(data, told, **given) == End.ODD, column
        assert given["state"][[0, 4]].tolist() == [1, 1]


@pytest.mark.parametrize("wanted", [0, 50])
@pytest.mark.parametrize("log_append", [False, True])
def test_a_run_of_messages_is_read_as_each_of_them(wanted: int, log_append: bool) -> None:
    many = [record(b"v" * at, key=b"k", timestamp=100 - at) for at in range(9)]
    data = messages(many, magic=1, base_offset=3, log_append=log_append)
    given = arguments(data)
    given["counts"] = np.zeros((2, wanted), np.int64)  # where they are wanted, there are no runs
    assert read_batches(data, None, **given) == End.END
    state = given["state"]
    last = len(data) - len(message(many[-1], magic=1))
    assert state[[0, 4, 14, 15, 16, 18]].tolist() == [len(data), 9, 9, log_append, last, 11]
    assert columns(data)[1] == [100 - at for at in range(9)]


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
        block_layout(31, 2**31, 0, 0, np.zeros(16, np.int64))
