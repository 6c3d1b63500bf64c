"""What the fuzzer found and bytes alone do not show: each stays found."""

from __future__ import annotations

import pytest

from kseg.errors import CorruptIndexError
from kseg.files.index import TimeIndex
from kseg.format import columns, header
from kseg.format.request import Request
from tests import builders

LEAST, LARGEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("end", ["offset", "time"])
def test_nothing_lies_in_front_of_the_least_number(magic: int, end: str) -> None:
    data = builders.records_of([builders.record(b"value", timestamp=5)], magic=magic, codec=0)
    table = header.scan(data)
    for value, expected in ((LEAST, 0), (LARGEST, 1)):
        request = Request(columns=("value",), **{end: (None, value)})
        pieces = columns.decode(memoryview(data), table, request)
        assert sum(len(piece) for piece in pieces) == expected


def test_a_time_index_entry_past_the_last_offset_is_refused_by_every_lookup(
    tmp_path: object,
) -> None:
    path = f"{tmp_path}/{LARGEST}.timeindex"
    with open(path, "wb") as file:
        file.write((1000).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    with (
        TimeIndex.open(path, LARGEST) as index,
        pytest.raises(CorruptIndexError, match="overflows"),
    ):
        index.lookup(2000)
