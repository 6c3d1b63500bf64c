"""Compressed messages that match their checksums and hold one that does not."""

from __future__ import annotations

from pathlib import Path

from tests.builders import (
    GZIP,
    deflate,
    message,
    message07,
    messages07,
    record,
    wrapper,
    write_segment,
)

#: The formats whose messages carry checksums of their own inside compressed ones.
ERAS = ("magic 0", "magic 1", "Kafka 0.7")


def wrong_inner_message(directory: Path, era: str) -> Path:
    """A segment of one compressed message with three inside, the second with a wrong checksum."""
    if era == "Kafka 0.7":
        inner = messages07([b"a"]) + message07(b"b", crc=7) + messages07([b"c"])
        outer = _compressed07(inner)
        return write_segment(directory, 0, outer, suffix=".kafka")
    magic = int(era[-1])
    inner = b"".join(
        message(record(value), magic=magic, offset=offset, crc=7 if offset == 1 else None)
        for offset, value in enumerate((b"a", b"b", b"c"))
    )
    given = [record(value) for value in (b"a", b"b", b"c")]
    return write_segment(directory, 0, wrapper(given, magic=magic, codec=GZIP, inner=inner))


def _compressed07(inner: bytes) -> bytes:
    return message07(deflate(GZIP, inner), codec=GZIP)
