"""`partition_for`: what it takes as a key, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kseg import partition_for
from kseg._kernels.keymap import key_partitions
from kseg.format.values import binary_column

#: From Kafka's `UtilsTest.testMurmur2`.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
KEYS = ["a", None, "c"]


@pytest.mark.parametrize(("key", "value"), MURMUR2.items())
def test_murmur2_is_that_of_kafka(key: bytes, value: int) -> None:
    assert partition_for(key, 2**31 - 1) == (value & 0x7FFFFFFF) % (2**31 - 1)


@pytest.mark.parametrize(
    "column",
    [
        KEYS,
        np.array(KEYS, object),
        binary_column([b"a", None, b"c"]),
        pl.Series(KEYS),
        pl.Series(KEYS, dtype=pl.Categorical),
        pd.Series(KEYS),
        pa.array(KEYS),
        pa.array([b"a", None, b"c"], pa.binary_view()),
        pa.chunked_array([["a"], [None, "c"]]),
    ],
    ids=["list", "numpy", "kseg", "polars", "categorical", "pandas", "arrow", "view", "chunked"],
)
def test_a_column_gives_a_number_for_each_key(column: Any) -> None:
    found = partition_for(column, 4)
    assert found.dtype == np.int32
    assert found.tolist() == [partition_for("a", 4), -1, partition_for("c", 4)]


@pytest.mark.parametrize(
    ("partitions", "partitioner", "error", "words"),
    [
        (0, "murmur2", ValueError, "partitions is 0"),
        (2**31, "murmur2", ValueError, "partitions is"),
        ("4", "murmur2", TypeError, "whole number, not str"),
        (True, "murmur2", TypeError, "whole number, not bool"),
        (4, "murmur", ValueError, "murmur2 or crc32, not 'murmur'"),
    ],
)
def test_wrong_arguments_are_named(
    partitions: Any, partitioner: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        partition_for("a", partitions, partitioner)


def test_the_kernel_stays_within_the_data() -> None:
    out = np.zeros(1, np.int32)
    for offsets in ([0, 5], [3, 2], [-1, 2]):
        with pytest.raises(ValueError, match="do not ascend"):
            key_partitions(np.zeros(4, np.uint8), np.array(offsets, np.int32), 4, False, out)
    with pytest.raises(ValueError, match="shorter"):
        key_partitions(np.zeros(4, np.uint8), np.array([0, 1, 2], np.int32), 4, False, out)
    with pytest.raises(ValueError, match="at least one"):
        key_partitions(np.zeros(4, np.uint8), np.array([0, 1], np.int32), 0, False, out)
