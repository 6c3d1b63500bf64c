"""Every single cut and every single flipped bit: kseg gives what the reference gives, or refuses.

The files are small and hold every format and codec. The walk must be the reference's to the letter.
Of records, kseg may refuse with a typed error what the reference lets pass, but must never give
other records, nor any that the reference refuses.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from kseg.constants import StopReason
from kseg.errors import KsegError
from kseg.format import columns, header
from kseg.format.request import Request
from tests import builders
from tests.builders import record
from tests.conformance.readers import Kseg, Read, Reference
from tests.property.oracle import same_walk
from tests.shares import share

RECORDS = [
    record(b"value" * 6, key=b"key", headers=[(b"h", b"1"), (b"", None)], timestamp=1_700_000),
    record(None, key=b"", timestamp=1_699_000),
]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FILES = {
    f"magic{magic}-{name}": builders.records_of(RECORDS, magic=magic, codec=codec, base_offset=9)
    for magic in (0, 1, 2)
    for name, codec in CODECS.items()
    if magic == 2 or name != "zstd"
}
FILES["control"] = builders.control_batch(builders.COMMIT, base_offset=3)
FILES["emptied"] = builders.batch(last_offset_delta=4)
MIXED = {"mixed": FILES["magic0-none"] + FILES["magic2-none"] + FILES["control"]}
FILES07 = {
    "none": builders.messages07([b"one", b"two"]) + builders.messages07([b"three"], magic=0),
    "gzip": builders.messages07([b"one", b"two"], codec=builders.GZIP),
    "snappy": builders.messages07([b"one", b"two"], codec=builders.SNAPPY),
}

plain, kseg = Reference(), Kseg()


def flips(data: bytes) -> list[bytes]:
    """Each bit flipped, one at a time."""
    flipped = []
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        flipped.append(bytes(changed))
    return flipped


def same_or_refused(got: Read, expected: Read) -> None:
    """`got` never holds a record that `expected` does not, and is no less strict."""
    if got.error is None:
        assert expected.error is None
        assert len(got.records) == len(expected.records)
    for row, record_ in zip(got.records, expected.records, strict=False):
        assert {name: row[name] for name in record_ if name in row} == {
            name: value for name, value in record_.items() if name in row
        }
    assert len(got.records) <= len(expected.records)


@pytest.mark.parametrize("name", [*FILES, *MIXED])
def test_every_cut_ends_the_walk_where_the_last_whole_batch_ends(name: str) -> None:
    data = {**FILES, **MIXED}[name]
    for length in range(len(data) + 1):
        table = same_walk(data[:length])
        assert table.stop in (StopReason.END, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
        assert table.bad_crc_count == 0


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_seen_by_both_readers_alike(name: str) -> None:
    for data in share(flips(FILES[name]), 300, name):
        for batch in same_walk(data):
            got = kseg.read(data, batch.position, batch.size)
            same_or_refused(got, plain.read(data, batch.position, batch.size))


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_under_the_checksum_yields_a_record(name: str) -> None:
    data = FILES[name]
    whole = Request(control=True)
    sound = header.scan(data)
    for flipped in flips(data):
        table = header.scan(flipped)
        good = [got for got in table if got.crc_ok == 1]
        with suppress(
            KsegError
        ):  # an offset outside the checksum may be one that a wrapper refuses
            pieces = columns.decode(memoryview(flipped), table, whole)
            assert sum(len(piece) for piece in pieces) <= 2 * len(sound)
        for got in good:
            same = next(row for row in sound if row.position == got.position)
            # Offset, size, epoch and magic lie outside the checksum; the size moves the end.
            assert (got.crc, got.attributes) == (same.crc, same.attributes)


@pytest.mark.parametrize("name", FILES07)
def test_kafka_0_7_damage_gives_the_reference_s_records_or_an_error(name: str) -> None:
    data = FILES07[name]
    cuts = [data[:length] for length in range(len(data))]
    for damaged in [*cuts, *flips(data)]:
        got, expected = kseg.read07(damaged, 70), plain.read07(damaged, 70)
        if got.error is None and got.records == expected.records == []:
            continue  # a first message that is cut is an error to a fetcher, the end to a file
        same_or_refused(got, expected)
