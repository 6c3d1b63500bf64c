"""Files that are large, or say they are: made in moments from one batch told many times."""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import pack

from kseg import _core
from tests.builders import (
    batch,
    encode_record,
    message07,
    record,
    write_segment,
)
from tests.memory.capped import MIB


def sealed(data: bytes) -> bytes:
    """A magic 2 batch with its checksum put right; the builders' own takes its time."""
    return data[:17] + pack(">I", _core.crc32c(data[21:])) + data[21:]


def at_offset(data: bytes, offset: int) -> bytes:
    """The batch at another offset, which no checksum covers."""
    return pack(">q", offset) + data[8:]


def batch_of(value_bytes: int, count: int, *, codec: int = 0) -> bytes:
    """A batch of alike records of so many bytes each, all at offset 0 of it."""
    one = encode_record(record(bytes(value_bytes)), offset_delta=0, timestamp_delta=0)
    times = {"base_timestamp": 9, "max_timestamp": 9}
    return sealed(batch([], body=one * count, count=count, codec=codec, crc=0, **times))


def repeated(path: Path, data: bytes, size: int) -> Path:
    """A log of the same batch, over and over, with rising offsets."""
    with path.open("wb") as file:
        for offset in range(size // len(data)):
            file.write(at_offset(data, offset))
    return path


def large_log(directory: Path) -> Path:
    """80 MiB: records of 1,000 bytes, 64 to a batch."""
    path = write_segment(directory / "large-0", 0)
    return repeated(path, batch_of(1000, 64), 80 * MIB)


def single_records(directory: Path) -> Path:
    """8 MiB: 100,000 batches of one record."""
    path = write_segment(directory / "single-0", 0)
    return repeated(path, batch_of(10, 1), 8 * MIB)


def bomb(directory: Path, codec: int, inflated: int) -> Path:
    """A batch of little that inflates to much, then one that does not."""
    parts = [batch_of(1000, inflated // 1009, codec=codec), at_offset(batch_of(10, 1), 1)]
    return write_segment(directory / f"bomb{codec}-0", 0, *parts)


def sparse(directory: Path, head: bytes, size: int) -> Path:
    """A file that begins with these bytes and goes on with a hole."""
    path = write_segment(directory, 0, head)
    with path.open("r+b") as file:
        file.truncate(size)
    return path


def tiny_messages07(directory: Path, count: int) -> Path:
    """One compressed message of Kafka 0.7 that holds so many of 9 bytes."""
    one = message07(b"", magic=0)
    stream = zlib.compressobj(1, wbits=31)
    payload = b"".join(stream.compress(one * 1000) for _ in range(count // 1000)) + stream.flush()
    crc = zlib.crc32(payload)
    entry = pack(">ibbI", 6 + len(payload), 1, 1, crc) + payload
    return write_segment(directory / "tiny-0", 0, entry, message07(b"end"), suffix=".kafka")
