"""Each checksum kernel that this machine can run, against the table and against others' code."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import numpy as np
import pytest

from kseg import _core

Sum = Callable[..., int]

LENGTHS = 5000
DATA = random.Random(20110).randbytes(LENGTHS)
#: A wide kernel takes 512 bytes a turn: these lie around its turns and those of the narrow ones.
EDGES = sorted(
    {n + d for n in (0, 8, 16, 32, 64, 128, 192, 256, 512, 1024, 12288) for d in (0, 1, 9)}
)
KERNELS = [
    pytest.param(_core.crc32c, google_crc32c.value, google_crc32c.extend, id="crc32c"),
    pytest.param(_core.crc32, zlib.crc32, lambda value, data: zlib.crc32(data, value), id="crc32"),
]


@pytest.fixture(params=_core.crc_variants())
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    _core.set_crc_variant(request.param)
    yield request.param
    _core.set_crc_variant("auto")


def table_sums(kernel: Sum) -> list[int]:
    """The sum of every prefix of DATA, byte by byte: no kernel's bulk loop takes part."""
    sums = [0]
    for i in range(LENGTHS - 1):
        sums.append(kernel(DATA[i : i + 1], sums[-1]))
    return sums


def test_oracle_is_compiled() -> None:
    assert google_crc32c.implementation == "c"


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(
    ("kernel", "data", "expected"),
    [
        # Greg Cook, Catalogue of parametrised CRC algorithms: CRC-32/ISCSI and CRC-32/ISO-HDLC.
        (_core.crc32c, b"123456789", 0xE3069283),
        (_core.crc32, b"123456789", 0xCBF43926),
        # RFC 3720, B.4.
        (_core.crc32c, bytes(32), 0x8A9136AA),
        (_core.crc32c, b"\xff" * 32, 0x62A8AB43),
        (_core.crc32c, bytes(range(32)), 0x46DD794E),
        (_core.crc32c, bytes(range(31, -1, -1)), 0x113FDB5C),
        (_core.crc32c, b"", 0),
        (_core.crc32, b"", 0),
    ],
)
def test_published_sums(kernel: Sum, data: bytes, expected: int) -> None:
    assert kernel(data) == expected


@pytest.mark.parametrize(("kernel", "oracle", "_extend"), KERNELS)
def test_every_length_at_every_alignment(
    variant: str, kernel: Sum, oracle: Sum, _extend: Sum
) -> None:
    _core.set_crc_variant("table")
    expected = table_sums(kernel)
    assert expected[-1] == oracle(DATA[: LENGTHS - 1])
    _core.set_crc_variant(variant)
    for shift in range(16):
        view = memoryview(bytes(shift) + DATA)
        wrong = [
            length
            for length, total in enumerate(expected)
            if kernel(view[shift : shift + length]) != total
        ]
        assert wrong == [], f"{variant}, {shift} bytes into the buffer"


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(("kernel", "_oracle", "extend"), KERNELS)
def test_a_sum_goes_on_from_any_split(kernel: Sum, _oracle: Sum, extend: Sum) -> None:
    data = random.Random(7).randbytes(EDGES[-1] * 2)
    for first in EDGES:
        for second in EDGES:
            head, tail = data[:first], data[first : first + second]
            value = kernel(head)
            assert kernel(tail, value) == extend(value, tail) == kernel(head + tail)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(("kernel", "oracle", "_extend"), KERNELS)
def test_one_flipped_bit_is_seen_wherever_it_lies(kernel: Sum, oracle: Sum, _extend: Sum) -> None:
    data = bytearray(DATA[:1500])
    for bit in range(0, 8 * len(data), 7):
        data[bit >> 3] ^= 1 << (bit & 7)
        assert kernel(data) == oracle(bytes(data)), bit
        data[bit >> 3] ^= 1 << (bit & 7)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(("kernel", "oracle", "_extend"), KERNELS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer_serves(
    kind: Callable[[bytes], object], kernel: Sum, oracle: Sum, _extend: Sum
) -> None:
    # Exact allocations of every short length: a byte read beyond one shows under the sanitizers.
    for length in range(0, 1100, 3):
        data = bytes(bytearray(DATA[:length]))
        assert kernel(kind(data)) == oracle(data)


def test_variants_are_named_slowest_first_and_the_last_is_chosen() -> None:
    names = _core.crc_variants()
    assert names[0] == "table"
    order = ("table", "sse42", "vpclmul256", "vpclmul512", "armv8")
    assert [order.index(name) for name in names] == sorted(order.index(name) for name in names)
    _core.set_crc_variant("auto")
    assert _core.crc_variant() == names[-1]


@pytest.mark.parametrize("distance", [0, 256, 4096])
def test_sums_are_the_same_at_each_prefetch_distance(variant: str, distance: int) -> None:
    chosen = _core.prefetch_bytes()
    try:
        _core.set_prefetch_bytes(distance)
        assert _core.crc32c(DATA) == google_crc32c.value(DATA), variant
        assert _core.crc32(DATA) == zlib.crc32(DATA), variant
    finally:
        _core.set_prefetch_bytes(chosen)


FIRST, SECOND = b"abcdef", b"ghi"


def arguments(spans: list[tuple[int, int, int]]) -> dict[str, Any]:
    total = sum(max(size, 0) for *_, size in spans)
    return {
        "spans": np.array(spans, np.int64).reshape(-1, 3),
        "ends": np.empty(len(spans) + 1, np.int32),
        "data": np.empty(total + 64, np.uint8),
        "valid": np.zeros((len(spans) + 7) // 8, np.uint8),
    }


def test_values_come_from_either_source_in_order() -> None:
    given = arguments([(0, 4, 2), (1, 0, 3), (0, 0, -1), (1, 3, 0), (0, 0, 1)])
    _core.gather(FIRST, SECOND, **given)
    assert given["ends"].tolist() == [0, 2, 5, 5, 5, 6]
    assert given["data"][:6].tobytes() == b"efghia"
    assert given["valid"].tolist() == [0b11011]
    _core.gather(b"", b"", **arguments([]))


@pytest.mark.parametrize(
    "span", [(0, 5, 2), (0, -1, 2), (1, 0, 4), (1, 4, 1), (0, 2**63 - 1, 2), (0, 0, 2**62)]
)
def test_a_span_outside_of_its_source_is_refused(span: tuple[int, int, int]) -> None:
    given = arguments([(0, 0, 6)]) | {"spans": np.array([span], np.int64)}
    with pytest.raises(ValueError, match="outside its source"):
        _core.gather(FIRST, SECOND, **given)


@pytest.mark.parametrize(
    "change",
    [
        {"spans": np.zeros((2, 2), np.int64)},
        {"ends": np.zeros(2, np.int32)},
        {"data": np.zeros(63, np.uint8)},
        {"data": np.zeros(65, np.uint8)},
        {"valid": np.zeros(1, np.uint8)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_outputs_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    given = arguments([(0, 0, 2), *[(0, 0, 0)] * 8])
    with pytest.raises(ValueError, match=r"shape|length|room"):
        _core.gather(FIRST, SECOND, **given | change)
