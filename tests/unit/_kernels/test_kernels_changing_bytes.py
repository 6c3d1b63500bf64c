"""Bytes that change between two looks at them: what was checked is what is used.

Where a kernel writes, what it writes lies over what it reads; where it asks, the answer changes the
bytes. `tests.fuzz.changing` has another process change them.
"""

from __future__ import annotations

import numpy as np
import pytest

from kseg._kernels import inflate, legacy
from kseg.format import codec
from kseg.format.header import FIELDS
from tests.builders import GZIP, LZ4, ZSTD, deflate, messages07
from tests.unit.log.logs import stored
from tests.unit.log.writer.test_append_lane import places

HUGE = (-(1 << 30)).to_bytes(4, "big", signed=True)


class Entry:
    """What a producer is known by; to look at it changes bytes."""

    def __init__(self, data: bytearray, at: int) -> None:
        self._data, self._at = data, at

    def __getitem__(self, field: int) -> int | None:
        self._data[self._at : self._at + 4] = HUGE
        return {1: 0, 4: None}[field]


@pytest.mark.parametrize("number", [0, 1])
def test_a_length_that_changes_while_a_producer_is_looked_up_leads_nowhere(number: int) -> None:
    batches = [
        stored(5 + n, producer_id=4 + n, producer_epoch=0, base_sequence=9) for n in range(2)
    ]
    data = bytearray(b"".join(batches))
    entry = Entry(data, number * len(batches[0]) + 8)
    told = places().follow(memoryview(data), 5, 0, {4: entry})
    assert (told is None) == (number == 1)


def test_a_magic_of_0_7_that_changes_behind_the_check_makes_no_message_shorter() -> None:
    """The row of the answer lies over the message: its position, 256, makes the magic 1."""
    memory = np.zeros(64 + 8 * len(FIELDS), np.uint8)
    rows, data = memory[64:].view(np.int64).reshape(1, -1), memory[61:70]
    data[:] = np.frombuffer(messages07([b""], magic=0), np.uint8)
    where = {"base": 256, "start": 256, "limit": 265, "file_end": 265, "log_start": 0}
    walk = np.zeros(7, np.int64)
    legacy.scan_messages_07(data, **where, verify=2, rows=rows, walk=walk)
    assert data[4] == 1
    assert (rows[0, 0], rows[0, 1], rows[0, 2]) == (256, 9, 0)


@pytest.mark.parametrize("name", [GZIP, LZ4, ZSTD])
def test_a_package_gets_bytes_that_no_one_changes(name: int) -> None:
    text = b"to be or not to be" * 20
    data = bytearray(deflate(name, text))
    before = inflate.use_libraries(False)
    try:
        inflate.lend_package(lambda _codec, body, _magic, _most: _spoil_and_take(data, body))
        assert inflate.inflate_in_scratch(name, 2, data, 1000) == deflate(name, text)
    finally:
        inflate.lend_package(codec._inflate_by_package)
        inflate.use_libraries(*before)


def _spoil_and_take(data: bytearray, body: memoryview) -> bytes:
    data[:] = bytes(len(data))
    return bytes(body)
