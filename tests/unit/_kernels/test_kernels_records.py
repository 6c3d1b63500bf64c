"""Lines of records straight from their batches: buffers too small, damage, templates that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg.format import text
from kseg.format.header import scan
from kseg.format.reader import End
from tests.builders import COMMIT, GZIP, batch, control_batch, messages, record

RAW = text.RAW | text.BARE
VALUE = (text.BYTES, b" ", b"-", RAW, text.RECORD_VALUE, None, None)
LINE = ((text.INT, b"", None, text.OFFSET, None), VALUE, (text.TEXT, b"\n"))


def written(
    data: bytes, pieces: tuple = LINE, *, size: int = 1 << 16, gaps: int = 0, **more: Any
) -> tuple[bytes, int, int, list]:
    """All lines, through a buffer of `size` bytes; why it ended, where, and the gaps."""
    rows = scan(data, on_bad_crc="ignore").rows
    out, state, found = bytearray(size), np.zeros(text.STATE_FIELDS, np.int64), b""
    state[text.LAST_OFFSET] = -1
    pairs, seen = (np.zeros((gaps, 2), np.int64), []) if gaps else (None, [])
    while True:
        end = text.write_records(pieces, data, rows, state, out, base=0, gaps=pairs, **more)
        found += out[: end.written]
        if pairs is not None:
            seen += pairs[: state[text.GAPS]].tolist()
            state[text.GAPS] = 0
        if end.why != End.FULL:
            return found, end.why, int(state[text.AT_BATCH]), seen
        assert end.written, "the buffer is too small for one line"


def numbered(count: int, *, first: int = 0, size: int = 20) -> bytes:
    return batch([record(b"%0*d" % (size, n)) for n in range(count)], base_offset=first)


def lines_of(count: int, *, first: int = 0, size: int = 20) -> bytes:
    return b"".join(b"%d %0*d\n" % (first + n, size, n) for n in range(count))


@pytest.mark.parametrize("size", [150, 200, 333, 1 << 10, 1 << 16])
def test_every_buffer_that_holds_a_line_gives_the_same_lines(size: int) -> None:
    data = numbered(3) + numbered(50, first=3) + numbered(1, first=53)
    expected = lines_of(3) + lines_of(50, first=3) + lines_of(1, first=53)
    assert written(data, size=size) == (expected, End.END, 3, [])


@pytest.mark.parametrize("size", [200, 1 << 16])
@pytest.mark.parametrize(
    "spoilt", ["a header that is missing", "records too few", "records too many"]
)
def test_nothing_is_written_of_a_damaged_batch_however_small_the_buffer(
    size: int, spoilt: str
) -> None:
    records = [record(b"%020d" % n) for n in range(40)]
    damaged = {
        "a header that is missing": batch([*records[:-1], record(b"x" * 20, key=b"k")])[:-1]
        + b"\x02",
        "records too few": batch(records, count=41),
        "records too many": batch(records, count=39),
    }[spoilt]
    found = written(numbered(2) + damaged + numbered(1), size=size)
    assert found == (lines_of(2), End.ODD, 1, [])


@pytest.mark.parametrize(
    "unusual",
    [
        batch([record(b"v")], codec=GZIP),
        control_batch(COMMIT, producer_id=7),
        messages([record(b"v")], magic=1),
        batch([record(b"v" * 1000)]),
        batch([record(b"v", headers=[(b"n" * 1000, None)])]),
    ],
    ids=["compressed", "control", "older", "a long value", "a long header"],
)
def test_what_is_unusual_is_left_to_others(unusual: bytes) -> None:
    pieces = (*LINE[:2], (text.HEADERS, b" ", None, RAW, text.RECORD_HEADERS), LINE[2])
    found = written(numbered(2) + unusual + numbered(1), pieces, size=1200)
    assert found == (lines_of(2), End.ODD, 1, [])


def test_gaps_are_noted_where_there_is_room_for_one_only() -> None:
    data = batch([record(b"v", offset=n) for n in (0, 1, 5, 6, 9)])
    data += batch([record(b"v", offset=n) for n in (10, 20)], base_offset=10)
    gaps = [[1, 5], [6, 9], [10, 20]]
    assert written(data, gaps=1)[1:] == (End.END, 2, gaps)
    assert written(data, gaps=9) == (written(data)[0], End.END, 2, gaps)


def test_lines_in_front_of_a_batch_come_with_it_and_without_records_too() -> None:
    data = numbered(1) + batch([], base_offset=1, last_offset_delta=0) + numbered(1, first=2)
    before, ends = b"first\nsecond\nthird\n", np.array([0, 6, 13, 19], np.int32)
    expected = b"first\n" + lines_of(1) + b"second\nthird\n" + lines_of(1, first=2)
    assert written(data, before=before, ends=ends) == (expected, End.END, 3, [])


def test_sequences_go_on_with_0_behind_the_largest() -> None:
    data = batch([record(b"")] * 3, base_sequence=2**31 - 2, producer_id=1)
    data += batch([record(b"")] * 2)
    line = ((text.INT, b"", None, text.SEQUENCE, None), (text.TEXT, b"\n"))
    assert written(data, line)[0] == b"2147483646\n2147483647\n0\n-1\n-1\n"


@pytest.mark.parametrize(
    "values",
    [
        [0, 9999, 10_000, 10_001, 19_999, 20_000, 5],
        [-1, 2**63 - 1, -(2**63), 2**63 - 20_000, 10**15, 10**15 + 9999],
    ],
)
def test_times_that_are_near_each_other_or_far_print_right(values: list[int]) -> None:
    data = b"".join(batch([record(b"", timestamp=each)]) for each in values)
    line = ((text.INT, b"", None, text.TIMESTAMP, None), (text.TEXT, b"\n"))
    assert written(data, line)[0] == b"".join(b"%d\n" % each for each in values)


def test_columns_have_a_row_a_batch() -> None:
    data = numbered(2) + numbered(1) + numbered(1)
    column = np.array([7, 8, 8], np.int64)
    line = ((text.INT, b"", None, column, None), (text.TEXT, b"\n"))
    assert written(data, line)[0] == b"7\n7\n8\n8\n"


LIES: dict[str, Any] = {
    "a number as bytes": {"pieces": ((text.INT, b"", None, text.RECORD_KEY, None),)},
    "bytes of a number": {"pieces": ((text.BYTES, b"", None, RAW, text.OFFSET, None, None),)},
    "headers as bytes": {"pieces": ((text.BYTES, b"", None, RAW, 7, None, None),)},
    "a name of a number": {"pieces": ((text.ENUM, b"", None, text.OFFSET, (b"x",), 0),)},
    "no such field": {"pieces": ((text.INT, b"", None, 99, None),)},
    "below all fields": {"pieces": ((text.INT, b"", None, -1, None),)},
    "a short column": {"pieces": ((text.INT, b"", None, np.zeros(0, np.int64), None),)},
    "too few ends": {"before": b"x", "ends": np.zeros(1, np.int32)},
    "an end outside": {"before": b"x", "ends": np.array([0, 2], np.int32)},
    "ends that fall": {"before": b"xy", "ends": np.array([2, 1], np.int32)},
    "too many pieces": {"pieces": ((text.TEXT, b""),) * 49},
}


@pytest.mark.parametrize("name", LIES)
def test_what_does_not_fit_the_batches_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=" "):
        written(numbered(1), **LIES[name])


@pytest.mark.parametrize("at", [text.AT_BATCH, text.AT_BYTE, text.AT_RECORD])
@pytest.mark.parametrize("far", [-1, 10**6])
def test_a_state_that_leads_elsewhere_reads_nothing(at: int, far: int) -> None:
    data, out = numbered(1), bytearray(1 << 12)
    state = np.zeros(text.STATE_FIELDS, np.int64)
    state[at] = far
    rows = scan(data).rows
    if far < 0:
        with pytest.raises(ValueError, match="outside"):
            text.write_records(LINE, data, rows, state, out, base=0)
        return
    assert text.write_records(LINE, data, rows, state, out, base=0).written == 0


@pytest.mark.parametrize("now", [b"\xfe\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff", b"\x0d"])
def test_headers_whose_lengths_change_behind_the_check_stay_inside_their_record(now: bytes) -> None:
    """The lines are written over the bytes that are read, as another process might change them."""
    data = batch([record(b"value", headers=[(b"name", b"value" * 5)] * 3, width=5)])
    at = data.index(b"name") - 5  # where the lengths of the first header begin
    memory = np.zeros(1 << 16, np.uint8)
    memory[: len(data)] = np.frombuffer(data, np.uint8)
    pieces = (
        (text.TEXT, now),
        (text.HEADERS, b"", None, text.UTF8, text.RECORD_HEADERS, *[None] * 5),
    )
    state = np.zeros(text.STATE_FIELDS, np.int64)
    rows = scan(data).rows
    end = text.write_records(pieces, memory[: len(data)], rows, state, memory[at:], base=0)
    assert end.why == End.END
    assert end.written < len(now) + 400
