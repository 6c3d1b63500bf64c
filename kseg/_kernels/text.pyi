"""The Python interface of the text kernels; `text.pyx` describes templates."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from _typeshed import ReadableBuffer, WriteableBuffer

TEXT: Final = 0
INT: Final = 1
TIME: Final = 2
ENUM: Final = 3
BYTES: Final = 4
HEADERS: Final = 5

BASE64: Final = 0
HEX: Final = 1
UTF8: Final = 2
RAW: Final = 3
CSV: Final = 4
NESTED: Final = 8
EXACT: Final = 16
BARE: Final = 32
JAVA: Final = 64

class RowsEnd(NamedTuple):
    next_row: int
    written: int

class BytesEnd(NamedTuple):
    used: int
    written: int

def write_rows(
    pieces: tuple[tuple[Any, ...], ...],
    start: int,
    stop: int,
    out: WriteableBuffer,
    mask: Any = None,
) -> RowsEnd: ...
def count_not_utf8(
    offsets: ReadableBuffer, data: ReadableBuffer, start: int, stop: int, mask: Any = None
) -> int: ...
def encode_bytes(
    data: ReadableBuffer, style: int, final: bool, out: WriteableBuffer
) -> BytesEnd: ...
def use_vectors(wanted: bool) -> bool: ...
