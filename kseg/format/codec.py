"""Inflate what a batch or a wrapper message holds, as strictly and as loosely as Kafka's reader.

Every size is bounded: by the caller's limit, by what the input can become at most, and by what was
really produced. Usual bytes go to the kernel `inflate`, which has libraries of the system open.
What that leaves, because it is damaged or unusual or because a library is missing, goes to
packages, the careful path: they are imported on first use and work with the GIL released. This
module reads gzip members and xerial snappy streams with them; lz4 and zstd have modules of their
own.

Source: Kafka CompressionType, Compression and the streams they wrap.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import NoReturn

from kseg._kernels.frames import snappy_chunks
from kseg._kernels.inflate import USABLE, Inflater, lend_package
from kseg.constants import Compression
from kseg.errors import (
    DecompressionError,
    InvalidRecordError,
    LimitExceededError,
    UnsupportedFormatError,
)
from kseg.extras import check_memory
from kseg.format import _lz4_frame, _zstd_frame
from kseg.format.arena import Arena

__all__ = ["Arena", "decompress", "decompress_into"]

Data = bytes | bytearray | memoryview

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
#: Header and trailer of a member without optional fields.
_GZIP_OVERHEAD_BYTES = 18
#: Flags of a gzip header (RFC 1952 2.3.1), in the order of their fields.
_GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT, _GZIP_HEADER_CRC = 0x04, 0x08, 0x10, 0x02
#: Input goes to the library in pieces: its output is copied while it is still in the cache, and the
#: rest it keeps after the end of a member (`unused_data`) is never longer than this.
_GZIP_PIECE_BYTES = 1 << 14

#: What `frames.snappy_chunks` returns where more may follow, at the end, and for faults.
_SNAPPY_MORE, _SNAPPY_END = 0, 1
_SNAPPY_TEXT = {
    2: "chunk of {number} bytes, {left} left",
    3: "a further header is cut short",
    4: "a further header has version {number}",
}
#: The densest element of a snappy block: 3 bytes that copy 64.
_SNAPPY_OUTPUT_BYTES, _SNAPPY_INPUT_BYTES = 64, 3

#: What `Inflater.into` answers in place of a size where it needs more room.
_NO_ROOM = -2
_ROOM_FIRST = 1 << 16
#: Ordinary data shrinks less than this.
_USUAL_EXPANSION = 4
#: By thread: its contexts of the libraries, and what bodies of the fused reader are inflated into.
_kept = threading.local()


def decompress(codec: int, data: Data, *, magic: int, limit: int) -> memoryview:
    """Inflate one batch body (magic 2) or one wrapper value (magic 0 and 1).

    Args:
        codec: 0 to 4, the low three bits of the attributes.
        data: the compressed bytes, all of them and nothing else.
        magic: of the batch or message they come from; lz4 and zstd rules depend on it.
        limit: the most bytes the result may have.

    Returns:
        The inflated bytes, read only, owned by the view; for codec 0 `data` itself.

    Raises:
        DecompressionError: the codec refuses the bytes, or they end early.
        LimitExceededError: the result would be longer than `limit`.
        InvalidRecordError: no such codec, or one that this magic does not have.
        UnsupportedFormatError: the codec's library is not installed.

    Example:
        >>> import zlib
        >>> squeeze = zlib.compressobj(wbits=31)
        >>> body = squeeze.compress(b"to be") + squeeze.flush()
        >>> bytes(decompress(1, body, magic=2, limit=100))
        b'to be'
    """
    arena = Arena()
    if codec == Compression.NONE:
        arena.ceiling = limit
        arena.claim(len(data))
        return _flat(data)
    decompress_into(codec, data, arena, magic=magic, limit=limit)
    return arena.view()


def decompress_into(codec: int, data: Data, arena: Arena, *, magic: int, limit: int) -> int:
    """Inflate like `decompress`, behind what `arena` already holds.

    After an error the arena holds what it held before. `limit` is for this call alone.

    Returns:
        How many bytes were appended.
    """
    start, ceiling = arena.used, arena.ceiling
    inflate = _choose(codec, magic)
    view = _flat(data)
    if start + limit < ceiling:
        arena.ceiling = start + limit
    try:
        if codec not in USABLE or not _inflate_by_kernel(codec, view, arena, magic):
            # A package may read a length twice, and a mapped file may change meanwhile.
            inflate(memoryview(bytes(view)), arena, magic)
    except ImportError as error:
        arena.used = start
        check_memory(error)
        name = Compression(codec).label
        raise UnsupportedFormatError(f"{name} needs a missing library: {error}") from error
    except BaseException:
        arena.used = start
        raise
    finally:
        arena.ceiling = ceiling
    return arena.used - start


def _inflate_by_kernel(codec: int, data: memoryview, arena: Arena, magic: int) -> bool:
    """Append a body by a library of the system; False where packages have to."""
    try:
        into = _kept.into
    except AttributeError:
        into = _kept.into = Inflater().into
    room, most = arena.capacity - arena.used, arena.ceiling - arena.used
    if room < _ROOM_FIRST:
        room = max(_ROOM_FIRST, _USUAL_EXPANSION * len(data))
    while True:
        if room > most:
            room = most
        written: int = into(codec, magic, data, arena.free(room))
        if written >= 0:
            arena.used += written
            return True
        if written != _NO_ROOM or room == most:
            return False
        room *= 2


def _inflate_by_package(
    codec: int, data: memoryview, magic: int, limit: int
) -> memoryview | bytes | None:
    """What kernels get where no library is open; None where an error has to be put in words."""
    if codec == Compression.ZSTD and magic >= 2:
        # The usual frame goes without an arena: a kernel copies what it gets anyway.
        try:
            made = _zstd_frame.inflate_at_once(data, limit)
        except (DecompressionError, ImportError):
            return None
        if made is not None and len(made) <= limit:
            return made
    try:
        arena: Arena = _kept.arena
    except AttributeError:
        arena = _kept.arena = Arena()
    arena.clear()
    arena.ceiling = limit
    try:
        _choose(codec, magic)(data, arena, magic)
    except (DecompressionError, InvalidRecordError, LimitExceededError, ImportError):
        return None
    return arena.view()


lend_package(_inflate_by_package)


def _choose(codec: int, magic: int) -> Callable[[memoryview, Arena, int], None]:
    inflate = _INFLATERS.get(codec)
    if inflate is None:
        raise InvalidRecordError(f"no codec has the number {codec}")
    if magic < 2 and codec == Compression.ZSTD:
        raise InvalidRecordError(f"zstd does not exist in magic {magic}")
    return inflate


def _flat(data: Data) -> memoryview:
    view = data if isinstance(data, memoryview) else memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _copy(data: memoryview, arena: Arena, magic: int) -> None:
    arena.append(data)


# gzip: RFC 1952, read as java.util.zip.GZIPInputStream reads it.


def _inflate_gzip(data: memoryview, arena: Arena, magic: int) -> None:
    """Append every member; bytes behind a member that start no other are ignored."""
    start, body = 0, _gzip_body(data, 0)
    if body is None:
        raise DecompressionError("gzip: no gzip header")
    while body is not None:
        start = _inflate_member(data, start, body, arena)
        # What is shorter than the shortest member is not even looked at.
        body = _gzip_body(data, start) if len(data) - start > _GZIP_OVERHEAD_BYTES else None


def _inflate_member(data: memoryview, start: int, body: int, arena: Arena) -> int:
    """Append the member at `start`, whose deflate stream begins at `body`; answer where it ends.

    Libraries differ in what headers they take: each sees a plain one. They check the trailer.
    """
    library = _gzip_library()
    inflater = library.decompressobj(31)
    position = start
    try:
        if data[start + 3]:
            inflater.decompress(_GZIP_HEADER)
            position = body
        while not inflater.eof:
            if position >= len(data):
                raise DecompressionError("gzip: the stream is cut short")
            piece = data[position : position + _GZIP_PIECE_BYTES]
            # One byte more than allowed: the arena refuses it.
            arena.append(inflater.decompress(piece, arena.ceiling - arena.used + 1))
            position += len(piece)
    except library.error as error:
        raise DecompressionError(f"gzip: {error}") from error
    return position - len(inflater.unused_data)


def _gzip_body(data: memoryview, start: int) -> int | None:
    """Where the deflate stream of the member at `start` begins; None if no header is there."""
    head = bytes(data[start : start + 10])
    if head[:3] != _GZIP_HEADER[:3] or len(head) < 10:
        return None
    flags, position = head[3], start + 10
    if not flags:
        return position if position < len(data) else None
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for field in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & field:
            position = _after_zero(data, position)
    if flags & _GZIP_HEADER_CRC:
        stored = int.from_bytes(data[position : position + 2], "little")
        if stored != zlib.crc32(data[start:position]) & 0xFFFF:
            return None
        position += 2
    return position if position < len(data) else None


def _after_zero(data: memoryview, position: int) -> int:
    """The position behind the next zero byte, or the end of the data."""
    while position < len(data):
        piece = bytes(data[position : position + 256])
        found = piece.find(0)
        if found >= 0:
            return position + found + 1
        position += len(piece)
    return position


@cache
def _gzip_library() -> ModuleType:
    """The faster isal where it is installed (the `speed` extra), else zlib."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


# snappy: the stream of snappy-java ("xerial"), or one raw block as other clients send it. Blocks
# are inflated where they are wanted: python-snappy, which `compress` writes with, makes a bytes
# object of its own first, as large as the block says.


def _inflate_snappy(data: memoryview, arena: Arena, magic: int) -> None:
    """Append the chunks of one or more xerial streams, or one raw block."""
    if not len(data):
        raise DecompressionError("snappy: no bytes at all")
    cramjam = _cramjam()
    decode = cramjam.snappy.decompress_raw_into
    status, position = _SNAPPY_MORE, 0
    try:
        while status == _SNAPPY_MORE:
            status, number, left, position, chunks = snappy_chunks(data, position)
            for start, end, size in chunks:
                block = data[start:end]
                if size < 0:
                    size = cramjam.snappy.decompress_raw_len(block)
                if size * _SNAPPY_INPUT_BYTES > _SNAPPY_OUTPUT_BYTES * (end - start):
                    raise DecompressionError(f"snappy: {end - start} bytes cannot hold {size}")
                if size > arena.ceiling - arena.used:
                    arena.claim(size)
                if decode(block, arena.free(size)) != size:
                    raise DecompressionError("snappy: the block ends early")
                arena.commit(size)
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
    if status > _SNAPPY_END:
        _refuse_stream(status, number, left)


def _refuse_stream(status: int, number: int, left: int) -> NoReturn:
    text = _SNAPPY_TEXT[status].format(number=number, left=left)
    raise DecompressionError(f"snappy: {text}")


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


_INFLATERS: dict[int, Callable[[memoryview, Arena, int], None]] = {
    Compression.NONE: _copy,
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _lz4_frame.inflate,
    Compression.ZSTD: _zstd_frame.inflate,
}
