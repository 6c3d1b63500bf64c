"""Records by the million become batches one at a time; what they take does not grow with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory.capped import MIB, capped

#: Twelve bytes of key and value a record, with all numbers 36 MB for a million of them.
MAKE = """
from kseg.format.encode import encode_batch, encode_batches
from kseg.format.options import BatchOptions
from kseg.format.values import BinaryColumn

def column(size):
    ends = np.arange(0, size * (count + 1), size, dtype=np.int32)
    return BinaryColumn(ends, np.zeros(size * count, np.uint8), None, 0)

count = 1_000_000
records = {"key": column(4), "value": column(8), "timestamp": np.arange(count, dtype=np.int64)}
made = bytes_ = 0
"""
MANY = """
for batch in encode_batches(records, BatchOptions(magic=MAGIC, compression=CODEC)):
    made += batch.record_count
    bytes_ += batch.uncompressed_bytes
print(made, bytes_ // 10**6)
"""


@pytest.mark.parametrize(
    ("magic", "codec", "each"), [(2, 0, 21), (2, 3, 21), (2, 4, 21), (1, 0, 46), (1, 3, 46)]
)
def test_a_million_records_take_no_more_than_their_columns(
    tmp_path: Path, magic: int, codec: int, each: int
) -> None:
    code = MAKE + MANY.replace("MAGIC", str(magic)).replace("CODEC", str(codec))
    made, bytes_ = map(int, capped(code, tmp_path, cap=44 * MIB).split())
    assert made == 1_000_000
    assert each - 1 <= bytes_ <= each + 1


def test_one_batch_of_a_million_takes_its_size_once(tmp_path: Path) -> None:
    code = MAKE + "print(len(encode_batch(records, BatchOptions())))"
    assert int(capped(code, tmp_path, cap=36 * MIB + 28 * MIB)) > 20_000_000
