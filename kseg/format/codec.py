"""Inflate batches and wrapper messages, as strictly and as loosely as Kafka's reader.

Every size is bounded: by the caller's limit, by the largest possible output of the input, and by
the produced bytes. Usual bytes go to the kernel `inflate`, which has libraries of the system open.
Packages take the rest (damaged or unusual bytes, or a missing library): they are imported on first
use and work with the GIL released. The output goes into an `Arena`, which is used again.

    LZ4 frame   magic u32 (04 22 4D 18), FLG, BD, [content size u64], HC, block*, end mark
    FLG         version 01 (bits 7-6), block independence (5), block checksum (4),
                content size (3), content checksum (2), reserved (1-0)
    BD          block size code 4..7 (bits 6-4), the rest reserved
    HC          second byte of xxHash32 over FLG .. content size
    block       size u32, top bit = stored as is; bytes; [xxHash32 u32]
    end mark    a block of size 0; [content checksum u32, present but never checked]

    Zstd frame  magic u32 (28 B5 2F FD), FHD, [window], [dictionary id], [content size], block*,
                [checksum u32]
    FHD         content size flag (bits 7-6), single segment (5), checksum (2), dictionary id (1-0)
    block       u24: last (bit 0), type (2-1: raw, RLE, compressed, reserved), size (23-3); bytes
    skippable   magic u32 (5x 2A 4D 18), size u32, bytes

Integers are little-endian. A frame that is cut is found before the library makes output of it:
`kseg._kernels.frames` walks the frames first, block by block, and allocates nothing.

Source: Kafka CompressionType, Compression and the streams they wrap, Lz4BlockInputStream (named
KafkaLZ4BlockInputStream once), LZ4 frame format 1.5, RFC 8878 3.1.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from kseg._kernels.frames import lz4_blocks, snappy_chunks, xxh32, zstd_extent
from kseg._kernels.inflate import USABLE, Inflater, lend_package
from kseg.constants import Buffer, Compression, Uint8s
from kseg.errors import (
    DecompressionError,
    InvalidRecordError,
    LimitExceededError,
    UnsupportedFormatError,
)
from kseg.extras import check_memory

NO_CEILING = 2**62
_NOTHING = memoryview(b"")

_CAPACITY_FIRST = 1 << 16
#: A larger buffer is freed by `clear`, so that one huge batch does not hold memory for good.
CAPACITY_KEPT_MAX = 64 << 20


class Arena:
    """A growable byte buffer with a ceiling; not for use by two threads at once.

    Attributes:
        used: bytes written so far; set it back to drop the last ones.
        ceiling: `used` never passes this; `NO_CEILING` by default.

    Example:
        >>> arena = Arena()
        >>> arena.append(b"abc")
        >>> bytes(arena.view()), arena.used
        (b'abc', 3)
    """

    __slots__ = ("_bytes", "_view", "ceiling", "used")

    def __init__(self) -> None:
        """Start empty; memory is allocated with the first write."""
        self.used = 0
        self.ceiling = NO_CEILING
        self._adopt(np.empty(0, np.uint8))

    @property
    def capacity(self) -> int:
        """The allocated bytes, used or not."""
        return len(self._bytes)

    @property
    def room(self) -> int:
        """Bytes that may still be written below the ceiling."""
        return self.ceiling - self.used

    def claim(self, size: int) -> None:
        """Refuse more bytes than the ceiling allows.

        Raises:
            LimitExceededError: `size` bytes more would pass it.
        """
        if size > self.ceiling - self.used:
            raise LimitExceededError(
                f"inflates beyond the limit, by {size - self.room} bytes or more"
            )

    def reserve(self, size: int) -> None:
        """Make sure that `size` bytes can follow `used` without growing again."""
        if size > len(self._bytes) - self.used:
            capacity = max(_CAPACITY_FIRST, 2 * len(self._bytes), self.used + size)
            grown = np.empty(capacity, np.uint8)
            grown[: self.used] = self._bytes[: self.used]
            self._adopt(grown)

    def free(self, size: int) -> memoryview:
        """Writable space for exactly `size` bytes after `used`; `commit` counts the used ones."""
        end = self.used + size
        if end > len(self._bytes):
            self.reserve(size)
        return self._view[self.used : end]

    def commit(self, size: int) -> None:
        """Count `size` bytes of the space from the last `free` as used, if the ceiling allows."""
        used = self.used + size
        if used > self.ceiling:
            self.claim(size)
        self.used = used

    def append(self, data: bytes | memoryview) -> None:
        """Copy `data` after the present bytes, up to the ceiling."""
        size = len(data)
        start, end = self.used, self.used + size
        if end > self.ceiling:
            self.claim(size)
        if end > len(self._bytes):
            self.reserve(size)
        self._view[start:end] = data
        self.used = end

    def view(self) -> memoryview:
        """The used bytes, read only; they stay until `clear`, also when the arena grows."""
        return self._view[: self.used].toreadonly() if self.used else _NOTHING

    def array(self) -> Uint8s:
        """The used bytes as uint8[used], read only, under the same terms as `view`."""
        array = self._bytes[: self.used]
        array.flags.writeable = False
        return array

    def clear(self) -> None:
        """Forget the bytes; memory of ordinary size stays allocated for the next piece."""
        self.used = 0
        if len(self._bytes) > CAPACITY_KEPT_MAX:
            self._adopt(np.empty(0, np.uint8))

    def _adopt(self, array: Uint8s) -> None:
        self._bytes = array
        self._view: memoryview = array.data


#: A thread's own compressors: two threads that share one wait for each other. A child after a fork
#: makes its own, since its parent may have been changing the memory of these.
zstd_kept = threading.local()


def _forget() -> None:
    zstd_kept.__dict__.clear()


if hasattr(os, "register_at_fork"):
    # A child process has one thread only, the one that forked.
    os.register_at_fork(after_in_child=_forget)


@cache
def zstd_library() -> ModuleType:
    """The library of Python 3.14, or its backport.

    Raises:
        ImportError: it is not installed.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return zstd


_LZ4_BLOCK_CHECKSUM = 0x10
#: One byte of an LZ4 block adds at most 255 bytes of output.
_LZ4_EXPANSION_MAX = 255
#: Answers of `frames.lz4_blocks`: more blocks follow, the end mark, and faults.
_LZ4_MORE, _LZ4_END = 0, 2
_LZ4_FAULTS = {
    3: "the frame ends without an end mark",
    4: "block of {number} bytes, {allowed} allowed",
    5: "the frame is cut short",
    6: "no frame header",
    7: "unsupported frame flags 0x{number:02x}",
    8: "dependent blocks are not supported",
    9: "unsupported block size byte 0x{number:02x}",
    10: "frame header cut short",
    11: "frame header checksum does not match",
}
#: Start and end of a block's bytes in the frame, and whether they are stored as they are.
_Lz4Block = tuple[int, int, bool]


def inflate_lz4(data: memoryview, arena: Arena, magic: int) -> None:
    """Append the contents of one LZ4 frame; bytes beyond its end mark are ignored.

    Args:
        data: the frame, from its magic on.
        arena: receives the output.
        magic: the version of the message or batch; 0 leaves the header checksum unchecked.

    Raises:
        DecompressionError: the frame breaks a rule of Kafka's reader.
        LimitExceededError: the arena's ceiling.
    """
    status, position = _LZ4_MORE, 0
    while status == _LZ4_MORE:
        status, number, allowed, position, blocks = lz4_blocks(data, position, magic > 0)
        if blocks:
            _append_blocks(data, arena, blocks, allowed)
    if status != _LZ4_END:
        text = _LZ4_FAULTS[status].format(number=number, allowed=allowed)
        raise DecompressionError(f"lz4: {text}")


def _append_blocks(
    data: memoryview, arena: Arena, blocks: list[_Lz4Block], block_bytes_max: int
) -> None:
    """Inflate the blocks of an lz4 frame, one after the other.

    Args:
        data: the frame.
        arena: receives the bytes.
        blocks: their places, and whether they are stored without compression.
        block_bytes_max: the largest size of an inflated block, as the frame says.
    """
    cramjam = _cramjam()
    decode = cramjam.lz4.decompress_block_into
    checked = data[4] & _LZ4_BLOCK_CHECKSUM  # Kafka never writes block checksums
    for start, end, stored in blocks:
        if checked and xxh32(data[start:end]) != int.from_bytes(data[end : end + 4], "little"):
            raise DecompressionError(f"lz4: bad block at byte {start}")
        if stored:
            arena.append(data[start:end])
            continue
        capacity = _LZ4_EXPANSION_MAX * (end - start)
        if capacity > block_bytes_max:
            capacity = block_bytes_max
        try:
            size = decode(data[start:end], arena.free(capacity), output_len=capacity)
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"lz4: bad block at byte {start}") from error
        arena.commit(size)


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


#: As much output is made in one call: it is copied while it is still in the cache.
_ZSTD_PIECE_BYTES = 1 << 17


def inflate_zstd(data: memoryview, arena: Arena, magic: int = 2) -> None:
    """Append the contents of the frames in order; no frame at all is empty output.

    Raises:
        DecompressionError: a frame is cut, bytes after the last one are not a frame, or the
            library refuses the contents.
        LimitExceededError: the arena's ceiling.
    """
    status, position, _ = zstd_extent(data)
    if status:
        cut = "the frame is cut short" if status == 1 else f"no frame at byte {position}"
        raise DecompressionError(f"zstd: {cut}")
    library = zstd_library()
    try:
        while len(data):
            size = library.get_frame_size(data)
            _append_zstd_frame(library.ZstdDecompressor(), data[:size], arena)
            data = data[size:]
    except library.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error


def _append_zstd_frame(decompressor: Any, frame: memoryview, arena: Arena) -> None:
    """Inflate a frame in pieces, so that a frame with a wrong size allocates no extra memory."""
    while not decompressor.eof:
        # One byte more than allowed: the arena refuses it.
        room = arena.ceiling - arena.used + 1
        arena.append(decompressor.decompress(frame, min(_ZSTD_PIECE_BYTES, room)))
        frame = _NOTHING
        if decompressor.needs_input:
            raise DecompressionError("zstd: the blocks end early")


_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
#: Header and trailer of a member without optional fields.
_GZIP_OVERHEAD_BYTES = 18
#: Flags of a gzip header (RFC 1952 2.3.1), in the order of their fields.
_GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT, _GZIP_HEADER_CRC = 0x04, 0x08, 0x10, 0x02
#: Input goes to the library in pieces: its output is copied while it is still in the cache, and the
#: rest it keeps after the end of a member (`unused_data`) is never longer than this.
_GZIP_PIECE_BYTES = 1 << 14

#: Answers of `frames.snappy_chunks`: more may follow, the end, and faults.
_SNAPPY_MORE, _SNAPPY_END = 0, 1
_SNAPPY_TEXT = {
    2: "chunk of {number} bytes, {left} left",
    3: "a further header is cut short",
    4: "a further header has version {number}",
}
#: The densest element of a snappy block: 3 bytes that copy 64.
_SNAPPY_OUTPUT_BYTES, _SNAPPY_INPUT_BYTES = 64, 3

#: Answers of `Inflater.into` in place of a size, if it needs more room.
_NO_ROOM = -2
_ROOM_FIRST = 1 << 16
#: Ordinary data shrinks less than this.
_USUAL_EXPANSION = 4
#: Codecs that packages have inflated in this process because nothing faster is there.
BY_PACKAGE: set[int] = set()
#: For each thread: its contexts of the libraries, and memory for bodies of the fused reader.
_of_thread = threading.local()


def decompress(codec: int, data: Buffer, *, magic: int, limit: int) -> memoryview:
    """Inflate one batch body (magic 2) or one wrapper value (magic 0 and 1).

    Args:
        codec: 0 to 4, the low three bits of the attributes.
        data: the compressed bytes, all of them and nothing else.
        magic: the version of the batch or message; lz4 and zstd rules depend on it.
        limit: the most bytes the result may have.

    Returns:
        The inflated bytes, read only, owned by the view; for codec 0 `data` itself.

    Raises:
        DecompressionError: the codec refuses the bytes, or they end early.
        LimitExceededError: the result would be longer than `limit`.
        InvalidRecordError: the codec is unknown, or this magic lacks it.
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
        return flat(data)
    decompress_into(codec, data, arena, magic=magic, limit=limit)
    return arena.view()


def decompress_into(codec: int, data: Buffer, arena: Arena, *, magic: int, limit: int) -> int:
    """Inflate like `decompress`, after the present contents of `arena`.

    After an error the arena has its former contents. `limit` is only for this call.

    Returns:
        How many bytes were appended.
    """
    start, ceiling = arena.used, arena.ceiling
    inflate = _choose(codec, magic)
    view = flat(data)
    if start + limit < ceiling:
        arena.ceiling = start + limit
    try:
        if codec not in USABLE:
            BY_PACKAGE.add(codec)
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
        into = _of_thread.into
    except AttributeError:
        into = _of_thread.into = Inflater().into
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


def _inflate_by_package(codec: int, data: memoryview, magic: int, limit: int) -> memoryview | None:
    """Inflate by a Python package; None where the caller has to find the error."""
    try:
        arena: Arena = _of_thread.arena
    except AttributeError:
        arena = _of_thread.arena = Arena()
    arena.clear()
    arena.ceiling = limit
    BY_PACKAGE.add(codec)
    try:
        _choose(codec, magic)(data, arena, magic)
    except (DecompressionError, InvalidRecordError, LimitExceededError, ImportError):
        return None
    return arena.view()


lend_package(_inflate_by_package)


def _choose(codec: int, magic: int) -> Callable[[memoryview, Arena, int], None]:
    """The function for a codec; raises for a codec that the magic does not have."""
    inflate = _INFLATERS.get(codec)
    if inflate is None:
        raise InvalidRecordError(f"no codec has the number {codec}")
    if magic < 2 and codec == Compression.ZSTD:
        raise InvalidRecordError(f"zstd does not exist in magic {magic}")
    return inflate


def flat(data: Buffer) -> memoryview:
    """The buffer as single bytes, borrowed, for any item type."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _copy(data: memoryview, arena: Arena, magic: int) -> None:
    arena.append(data)


# gzip: RFC 1952, read as java.util.zip.GZIPInputStream reads it.


def _inflate_gzip(data: memoryview, arena: Arena, magic: int) -> None:
    """Append the contents of every gzip member; other bytes after a member are ignored."""
    start, body = 0, _gzip_body(data, 0)
    if body is None:
        raise DecompressionError("gzip: no gzip header")
    while body is not None:
        start = _inflate_member(data, start, body, arena)
        # Input shorter than the shortest member is refused at once.
        body = _gzip_body(data, start) if len(data) - start > _GZIP_OVERHEAD_BYTES else None


def _inflate_member(data: memoryview, start: int, body: int, arena: Arena) -> int:
    """Append the member at `start`, whose deflate stream begins at `body`; return its end.

    Libraries accept different headers, so each gets a plain one. They check the trailer.
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
    """The position after the next zero byte, or the end of the data."""
    while position < len(data):
        piece = bytes(data[position : position + 256])
        zero = piece.find(0)
        if zero >= 0:
            return position + zero + 1
        position += len(piece)
    return position


@cache
def _gzip_library() -> ModuleType:
    """The gzip library: isal if it is installed (the `speed` extra; faster), else zlib."""
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
        text = _SNAPPY_TEXT[status].format(number=number, left=left)
        raise DecompressionError(f"snappy: {text}")


_INFLATERS: dict[int, Callable[[memoryview, Arena, int], None]] = {
    Compression.NONE: _copy,
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: inflate_lz4,
    Compression.ZSTD: inflate_zstd,
}
