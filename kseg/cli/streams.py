"""Batches out of a pipe: tiles as of `LogFile.walk`, for input that cannot seek."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from kseg.constants import StopReason
from kseg.files.log_file import Tile
from kseg.format.header import scan

#: Bytes read from the pipe at a time. No memory is allocated for announced bytes that have not
#: come.
_CHUNK_BYTES = 1 << 20
_UNKNOWN_END = 2**62


def stream_tiles(stream: IO[bytes]) -> Iterator[Tile]:
    """Walk the batches of a stream to its end, or to bytes that are not a batch.

    Positions count from the first byte of the stream.
    """
    data, base, ended = b"", 0, False
    while True:
        chunk = b"" if ended else stream.read(max(_CHUNK_BYTES, len(data)))
        ended = not chunk
        data += chunk
        file_end = base + len(data) if ended else _UNKNOWN_END
        table = scan(memoryview(data), base=base, file_end=file_end, on_bad_crc="note")
        if table.stop is StopReason.ZERO_TAIL and not ended:
            table = table.ended(_zeros_to_the_end(stream))
        if len(table) or table.stop is not StopReason.LIMIT:
            yield Tile(memoryview(data), base, table)
        if table.stop is not StopReason.LIMIT:
            return
        data = data[table.end_position - base :]
        base = table.end_position


def _zeros_to_the_end(stream: IO[bytes]) -> StopReason:
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk.count(0) != len(chunk):
            return StopReason.BAD_LENGTH
    return StopReason.ZERO_TAIL
