"""Compressed bodies of batches and wrapper messages, inflated without the GIL.

lz4, zstd and the deflate streams of gzip are left to C libraries: those that were linked into this
module (`linked.h`), else those of the system, which are opened by their sonames when this module is
imported; `loader.h` says where the loader looks. Only functions that these libraries call stable
are used, and only after they gave known answers. snappy is short enough to be here (`snappy.h`).
A codec without a library goes to packages of Python, by a function of `kseg.format.codec`.

This module does not distinguish damaged, refused and unusual bodies: the careful path in
`kseg.format.codec` takes such a body alone and words the error. It would accept all that this
module inflates.
"""

import os

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from kseg._core cimport crc32_of
from kseg._kernels.frames cimport *

cdef extern from "Python.h":
    void PyErr_SetInterrupt()

cdef extern from "loader.h" nogil:
    int OPENED "KSEG_OPENED"
    int ABSENT "KSEG_ABSENT"
    int RELATIVE_PATH "KSEG_RELATIVE_PATH"
    int NO_LOADER "KSEG_NO_LOADER"
    int open_library "kseg_open_library"(const char *soname, void **library, const char **path)
    void *symbol "kseg_symbol"(void *library, const char *name)

cdef extern from "linked.h" nogil:
    const char *LINKED_NAMES "kseg_linked_names"
    const char *DEFLATE_VERSION "LIBDEFLATE_VERSION_STRING"
    void *linked "kseg_linked"(const char *name)

cdef extern from "snappy.h" nogil:
    bint snappy_block "kseg_snappy"(const uint8_t *p, size_t size, uint8_t *out, size_t room)

cdef enum:
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    CODECS = 5

# The results of one attempt; `inflate_records` answers one of the first two.
cdef enum:
    INFLATED = 0
    UNUSUAL = 1
    NO_ROOM = 2

cdef enum:
    ROOM_FIRST = 1 << 16
    # Ordinary data shrinks less than this.
    USUAL_EXPANSION = 4
    # Scratch that has grown beyond this for one batch is given back before the next.
    ROOM_KEPT_MAX = 64 << 20


# ---- functions of the libraries ------------------------------------------------------------------

# Stable since: lz4 1.0; zstd 1.4.0; libdeflate 1.0. A size_t of zstd's
# may be an error. Source: lz4.h, zstd.h, libdeflate.h.

cdef enum:
    LZ4_VERSION_MIN = 10803
    ZSTD_VERSION_MIN = 10506  # until then bits left over after the last sequence pass
    ZSTD_RESET_SESSION = 1
    ZSTD_WINDOW_MAX = 1 << 27  # the library's own limit for streams
    # A context that has met a larger window holds that much memory: it is not kept.
    ZSTD_WINDOW_KEPT_MAX = 8 << 20
    DEFLATE_SUCCESS = 0
    DEFLATE_INSUFFICIENT_SPACE = 3

cdef struct ZstdInput:
    const void *bytes
    size_t size
    size_t position

cdef struct ZstdOutput:
    void *bytes
    size_t size
    size_t position

ctypedef unsigned int (*version_f)() noexcept nogil

ctypedef int (*lz4_decompress_f)(const uint8_t *source, uint8_t *to, int size,
                                 int room) noexcept nogil

ctypedef void *(*context_f)() noexcept nogil
ctypedef void (*free_deflate_f)(void *context) noexcept nogil
ctypedef int (*deflate_f)(void *context, const void *source, size_t size, void *to, size_t room,
                          size_t *taken, size_t *written) noexcept nogil

ctypedef size_t (*free_zstd_f)(void *context) noexcept nogil
ctypedef size_t (*zstd_reset_f)(void *context, int what) noexcept nogil
ctypedef size_t (*zstd_stream_f)(void *context, ZstdOutput *out,
                                 ZstdInput *source) noexcept nogil
ctypedef unsigned int (*zstd_is_error_f)(size_t code) noexcept nogil

cdef lz4_decompress_f lz4_decompress = NULL

cdef context_f deflate_new = NULL
cdef free_deflate_f deflate_free = NULL
cdef deflate_f deflate_decompress = NULL

cdef context_f zstd_new = NULL
cdef free_zstd_f zstd_free = NULL
cdef zstd_reset_f zstd_reset = NULL
cdef zstd_stream_f zstd_stream = NULL
cdef zstd_is_error_f zstd_is_error = NULL


# ---- one body ------------------------------------------------------------------------------------

# Where a body goes, and how much of it has arrived: `used` never passes `room`.
cdef struct Target:
    uint8_t *bytes
    int64_t used
    int64_t room


cdef int _snappy(const uint8_t *data, int64_t size, Target *out) noexcept nogil:
    """Inflate a xerial stream, or one raw block."""
    cdef Walk walk
    cdef int64_t block_bytes, number_bytes = 0
    cdef int status
    walk.start = walk.end = walk.next = 0
    if size == 0:
        return UNUSUAL
    while True:
        status = next_snappy(data, size, &walk)
        if status != SNAPPY_BLOCK:
            return INFLATED if status == SNAPPY_END else UNUSUAL
        block_bytes = snappy_size(data + walk.start, walk.end - walk.start, &number_bytes)
        # The densest element copies 64 bytes by 3.
        if block_bytes < 0 or 3 * block_bytes > 64 * (walk.end - walk.start):
            return UNUSUAL
        if block_bytes > out.room - out.used:
            return NO_ROOM
        walk.start += number_bytes
        if not snappy_block(data + walk.start, walk.end - walk.start, out.bytes + out.used,
                            block_bytes):
            return UNUSUAL
        out.used += block_bytes


cdef int _lz4(const uint8_t *data, int64_t size, int magic, Target *out) noexcept nogil:
    """Inflate one frame; blocks with checksums, which Kafka never writes, are unusual."""
    cdef Walk walk
    cdef int64_t block_bytes, block_bytes_max, room
    cdef int status
    if begin_lz4(data, size, magic > 0, &walk) != LZ4_BLOCK or walk.flags & LZ4_BLOCK_CHECKSUM:
        return UNUSUAL
    while True:
        status = next_lz4(data, size, &walk)
        room = out.room - out.used
        block_bytes = walk.end - walk.start
        if status == LZ4_BLOCK:
            # A block of n bytes becomes 255 n at most.
            block_bytes_max = min(walk.block_bytes_max, 255 * block_bytes)
            block_bytes = lz4_decompress(data + walk.start, out.bytes + out.used,
                                         <int>block_bytes, <int>min(room, block_bytes_max))
            if block_bytes < 0 or block_bytes > min(room, block_bytes_max):
                return NO_ROOM if room < block_bytes_max else UNUSUAL
        elif status == LZ4_BLOCK_STORED:
            if block_bytes > room:
                return NO_ROOM
            memcpy(out.bytes + out.used, data + walk.start, block_bytes)
        else:
            return INFLATED if status == LZ4_END else UNUSUAL
        out.used += block_bytes


cdef inline uint32_t _u32(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef int _gzip_member(const uint8_t *p, int64_t left, Scratch *contexts, int64_t *member_bytes,
                      Target *out) noexcept nogil:
    """Inflate the member at `p`, which has a plain header of ten bytes and something after it."""
    cdef size_t taken = 0, written = 0
    cdef size_t room = out.room - out.used
    cdef const uint8_t *trailer
    cdef int status
    if p[3]:
        return UNUSUAL
    status = deflate_decompress(contexts.deflate, p + 10, left - 10, out.bytes + out.used, room,
                                &taken, &written)
    if status == DEFLATE_INSUFFICIENT_SPACE:
        return NO_ROOM
    if status != DEFLATE_SUCCESS or written > room or taken > <size_t>left - 10:
        return UNUSUAL
    member_bytes[0] = 10 + <int64_t>taken + 8
    if member_bytes[0] > left:
        return UNUSUAL
    trailer = p + 10 + taken
    if (_u32(trailer) != crc32_of(out.bytes + out.used, written)
            or _u32(trailer + 4) != <uint32_t>written):
        return UNUSUAL
    out.used += written
    return INFLATED


cdef int _gzip(const uint8_t *data, int64_t size, Scratch *contexts, Target *out) noexcept nogil:
    """Inflate every member; bytes after the last one are ignored."""
    cdef int64_t at = 0, member_bytes = 0
    cdef int status
    if contexts.deflate == NULL:
        contexts.deflate = deflate_new()
        if contexts.deflate == NULL:
            return UNUSUAL
    while size - at > 10 and memcmp(data + at, b"\x1f\x8b\x08", 3) == 0:
        status = _gzip_member(data + at, size - at, contexts, &member_bytes, out)
        if status != INFLATED:
            return status
        at += member_bytes
        # What is shorter than the shortest member is not even looked at.
        if size - at <= 18:
            break
    return INFLATED if at else UNUSUAL


cdef int _zstd_frames(const uint8_t *data, int64_t size, void *context,
                      Target *out) noexcept nogil:
    """Inflate frames that have been walked, as a stream, which checks the most."""
    cdef ZstdInput source
    cdef ZstdOutput target
    cdef size_t code, taken, written
    source.bytes, source.size, source.position = data, size, 0
    target.bytes, target.size, target.position = out.bytes, out.room, 0
    code = zstd_reset(context, ZSTD_RESET_SESSION)
    while source.position < source.size or code:
        taken, written = source.position, target.position
        if zstd_is_error(code):
            return UNUSUAL
        code = zstd_stream(context, &target, &source)
        if source.position > source.size or target.position > target.size:
            return UNUSUAL
        if code and source.position == taken and target.position == written:
            return NO_ROOM if target.position == target.size else UNUSUAL
    out.used = target.position
    return INFLATED


cdef int _zstd(const uint8_t *data, int64_t size, Scratch *contexts, Target *out) noexcept nogil:
    """Inflate frames, one after another; no frame at all is empty output."""
    cdef Extent extent
    cdef int64_t fault
    cdef int status
    if walk_zstd(data, size, &fault, &extent) != ZSTD_OK or extent.window_max > ZSTD_WINDOW_MAX:
        return UNUSUAL
    if contexts.zstd == NULL:
        contexts.zstd = zstd_new()
        if contexts.zstd == NULL:
            return UNUSUAL
    status = _zstd_frames(data, size, contexts.zstd, out)
    if extent.window_max > ZSTD_WINDOW_KEPT_MAX:
        zstd_free(contexts.zstd)
        contexts.zstd = NULL
    return status


cdef const uint8_t *_copied(Scratch *contexts, const uint8_t *data, int64_t size) noexcept nogil:
    """The same bytes in memory that no other code changes; NULL without room for them."""
    if size > contexts.packed_room or contexts.packed_room > ROOM_KEPT_MAX:
        free(contexts.packed)
        contexts.packed_room = max(<int64_t>ROOM_FIRST, size)
        contexts.packed = <uint8_t *>malloc(contexts.packed_room)
        if contexts.packed == NULL:
            contexts.packed_room = 0
            return NULL
    if size:
        memcpy(contexts.packed, data, size)
    return contexts.packed


cdef int _inflate(int codec, int magic, const uint8_t *data, int64_t size, Scratch *contexts,
                  Target *out) noexcept nogil:
    """Inflate into `out`, which holds nothing yet, by a library that is there.

    A library may read a length twice: it gets a copy, since a mapped file may change meanwhile.
    """
    if codec == CODEC_SNAPPY:
        return _snappy(data, size, out)
    data = _copied(contexts, data, size)
    if data == NULL:
        return UNUSUAL
    if codec == CODEC_LZ4:
        return _lz4(data, size, magic, out)
    if codec == CODEC_GZIP:
        return _gzip(data, size, contexts, out)
    if codec == CODEC_ZSTD and magic >= 2:
        return _zstd(data, size, contexts, out)
    return UNUSUAL


# ---- the door for kernels ------------------------------------------------------------------------

cdef int inflate_records(int codec, int magic, const uint8_t *data, int64_t size,
                         Scratch *scratch, int64_t inflated_max) noexcept nogil:
    """Inflate a body into `scratch`: 0, or 1 where the careful path has to take it.

    Args:
        codec: low three bits of the attributes.
        magic: of the batch or wrapper message.
        data, size: the compressed bytes, all of them and nothing else.
        scratch: this thread's; the last body in it is lost.
        inflated_max: the most bytes the body may become.
    """
    cdef Target out
    cdef int status = NO_ROOM
    cdef int64_t wanted = max(ROOM_FIRST, min(USUAL_EXPANSION * size, inflated_max))
    scratch.size = 0
    if not CODEC_GZIP <= codec < CODECS or inflated_max < 0:
        return UNUSUAL
    if not usable[codec]:
        return _by_package(codec, magic, data, size, scratch, inflated_max)
    if scratch.room > ROOM_KEPT_MAX:
        _grow(scratch, 0)
    while status == NO_ROOM:
        if scratch.room < wanted and not _grow(scratch, wanted):
            return UNUSUAL
        out.bytes, out.used, out.room = scratch.bytes, 0, min(scratch.room, inflated_max)
        status = _inflate(codec, magic, data, size, scratch, &out)
        if out.room == inflated_max:
            break
        wanted = 2 * scratch.room
    scratch.size = out.used
    return INFLATED if status == INFLATED else UNUSUAL


cdef int _by_package(int codec, int magic, const uint8_t *data, int64_t size, Scratch *scratch,
                     int64_t inflated_max) noexcept with gil:
    """Inflate a body by the function of `lend_package`; every fault is left to the careful path."""
    cdef Py_buffer made
    cdef int status
    if package is None:
        return UNUSUAL
    try:
        with memoryview(<bytes>data[:size]) as body:
            result = package(codec, body, magic, inflated_max)
            if result is None:
                return UNUSUAL
            PyObject_GetBuffer(result, &made, PyBUF_SIMPLE)
            status = _take(scratch, <const uint8_t *>made.buf, made.len)
            PyBuffer_Release(&made)
            return status
    except KeyboardInterrupt:
        PyErr_SetInterrupt()  # raised again where Python goes on
        return UNUSUAL
    except BaseException:
        return UNUSUAL


cdef int _take(Scratch *scratch, const uint8_t *data, int64_t size) noexcept nogil:
    if size > scratch.room and not _grow(scratch, max(size, ROOM_FIRST)):
        return UNUSUAL
    if size:
        memcpy(scratch.bytes, data, size)
    scratch.size = size
    return INFLATED


cdef bint _grow(Scratch *scratch, int64_t room) noexcept nogil:
    """Other memory, of `room` bytes; the former contents are lost."""
    free(scratch.bytes)
    scratch.bytes = <uint8_t *>malloc(room) if room else NULL
    scratch.room = room if scratch.bytes != NULL else 0
    return scratch.bytes != NULL


cdef void drop_scratch(Scratch *scratch) noexcept nogil:
    """Give the memory back; the state is then like a new one."""
    free(scratch.bytes)
    free(scratch.packed)
    if scratch.zstd != NULL:
        zstd_free(scratch.zstd)
    if scratch.deflate != NULL:
        deflate_free(scratch.deflate)
    memset(scratch, 0, sizeof(Scratch))


# ---- the door for Python -------------------------------------------------------------------------

@cython.auto_pickle(False)
cdef class Inflater:
    """Contexts of the libraries, for one thread."""

    cdef Scratch contexts

    def __dealloc__(self):
        drop_scratch(&self.contexts)

    def into(self, int codec, int magic, data, room):
        """Inflate a body by a library that this module has open, or by its own code.

        Args:
            codec: low three bits of the attributes.
            magic: of the batch or wrapper message.
            data: the compressed bytes, all of them and nothing else.
            room: the bytes that may be written.

        Returns:
            How many bytes were written; -1 where the careful path has to take the body, -2 where it
            needs more room.
        """
        cdef Py_buffer source, target
        cdef Target out
        cdef int status = UNUSUAL
        if not (0 <= codec < CODECS and usable[codec]):
            return -1
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(room, &target, PyBUF_WRITABLE)
            out.bytes, out.used, out.room = <uint8_t *>target.buf, 0, target.len
            with nogil:
                status = _inflate(codec, magic, <const uint8_t *>source.buf, source.len,
                                  &self.contexts, &out)
            PyBuffer_Release(&target)
        finally:
            PyBuffer_Release(&source)
        return out.used if status == INFLATED else -status


def lend_package(function):
    """Set the inflaters for codecs without a library.

    Args:
        function: called with codec, bytes, magic and the most bytes there may be; it answers bytes,
            or None where the careful path has to take the body. It borrows the bytes for the call.
    """
    global package
    package = function


def inflate_in_scratch(int codec, int magic, data, int64_t inflated_max):
    """The result of `inflate_records` for a body, for tests; None for the careful path."""
    cdef Py_buffer source
    cdef Scratch scratch
    cdef int status
    memset(&scratch, 0, sizeof(Scratch))
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        with nogil:
            status = inflate_records(codec, magic, <const uint8_t *>source.buf, source.len,
                                     &scratch, inflated_max)
        return scratch.bytes[:scratch.size] if status == INFLATED else None
    finally:
        PyBuffer_Release(&source)
        drop_scratch(&scratch)


# ---- opening -------------------------------------------------------------------------------------

cdef object package = None
cdef bint usable[CODECS]
cdef bint uses_libraries = False
cdef bint uses_own = False
#: Codecs that are inflated here as of now, by number.
USABLE = set()
#: By codec: name, version, path, and why the library is not used.
cdef dict found = {}

_TEXT = b"".join(b"%d, %x; " % (i * 7919 % 1000, i * i) for i in range(24)) * 3 + b"y" * 99
_KNOWN = {
    CODEC_GZIP: bytes.fromhex(
        "1f8b08000000000000ffed8fcb6d44310c035b51013ae863cb365ccd6ef08a48f73b2a620f01e293419143c954"
        "eccaf1a3e257766e957165cda572aed42a740cf34c3e28d3874a6019992a49266790c113cb95f9c5672a85c70d"
        "ec2215604ff70cb82f845d807fba69037e082d1b5d85a902b207da1ca07d745bc1f62299db7a93ee3bbdf4bbf1"
        "0edf9f6e4c0ac2c9daff617fecb0dfefbf0fc9215794ee020000"
    ),
    CODEC_LZ4: bytes.fromhex(
        "04224d18604082e2000000f05c302c20303b203931392c20313b203833382c20343b203735372c20393b203637"
        "362c2031303b203539352c2031393b203531342c2032343b203433332c2033313b203335322c2034303b203237"
        "312c2035313b203139302c2036343b203130392c2037393b2032382c20396800e034372c2061393b203836362c"
        "20636a00b038352c2065313b203730346b00f005303b203632332c203132313b203534322c2031346e00c03631"
        "2c203136393b203338308a000070001039b50010625f006031382c20316572009f33372c203231313b20d900ff"
        "a01f7901004a50797979797900000000"
    ),
    CODEC_ZSTD: bytes.fromhex(
        "28b52ffd0400550400a28b1a14a015341d7f5af4078097b1dd849634e7a8ff5903039714cf0c5e0af80e032a9c"
        "71abf0b1109f207229f8862837503097c12347e095726e013c43f58eb8655e055e2a2f142fc9a31137d013645c"
        "8e37065d128f486ef1912237f015536e3d43cca577c6b97cc5bae1850a008f4fe22bd73488b182b3bd3936346c"
        "933896b9b15e1babebba0633efd6d495"
    ),
}
_WHY = {
    ABSENT: "not found",
    RELATIVE_PATH: "the loader's search path has an entry that is no absolute path",
    NO_LOADER: "this system's loader does not tell where it looks",
}


def use_libraries(bint wanted, bint own=True):
    """Inflate by libraries, or leave gzip, lz4 and zstd to packages.

    A library that cannot be opened, is too old or does not give known answers is never used.

    Args:
        wanted: whether libraries are used.
        own: whether this module inflates snappy; tests leave it to a package, too.

    Returns:
        The former values of both, for `use_libraries(*before)`.
    """
    global uses_libraries, uses_own
    before = uses_libraries, uses_own
    uses_libraries, uses_own = wanted, own
    if wanted and not found:
        found[CODEC_GZIP] = _library(CODEC_GZIP, b"libdeflate.so.0")
        found[CODEC_LZ4] = _library(CODEC_LZ4, b"liblz4.so.1")
        found[CODEC_ZSTD] = _library(CODEC_ZSTD, b"libzstd.so.1")
    for codec in range(CODECS):
        usable[codec] = own if codec == CODEC_SNAPPY else (wanted and codec in found
                                                           and not found[codec][3])
        (USABLE.add if usable[codec] else USABLE.discard)(codec)
    return before


def libraries():
    """By codec: name, version, path of the library, and why it is not used.

    The name is a soname where the library is one of the system. The version is None where the
    library does not tell, the path where it is linked, the last is empty where it is used. No codec
    is named before anything was opened.
    """
    return dict(found)


cdef tuple _library(int codec, const char *soname):
    """Take the linked library, else the system's, and test it: a row of `found`."""
    cdef str name = soname.decode().partition(".")[0]
    if os.environ.get("KSEG_CODECS") != "system" and name in LINKED_NAMES.decode().split():
        version, why = _bound(codec, NULL)
        if not why and _knows(codec):
            return name, version, None, ""
    return _opened(codec, soname)


cdef tuple _opened(int codec, const char *soname):
    cdef void *library = NULL
    cdef const char *path = NULL
    cdef str name = soname.decode()
    cdef int status = open_library(soname, &library, &path)
    if status != OPENED:
        return name, None, None, _WHY[status]
    place = os.fsdecode(path)
    version, why = _bound(codec, library)
    if not why and not _knows(codec):
        why = "it gives wrong answers"
    return name, version, place, why


cdef void *_function(void *library, const char *name) noexcept:
    """A function of a library of the system, or of a linked one where `library` is NULL."""
    return linked(name) if library == NULL else symbol(library, name)


cdef tuple _bound(int codec, void *library):
    """Take the functions of a library: its version, and why they cannot be used."""
    cdef version_f number_of = NULL
    cdef bint whole
    cdef int version, least
    global lz4_decompress, deflate_new, deflate_free, deflate_decompress
    global zstd_new, zstd_free, zstd_reset, zstd_stream, zstd_is_error
    if codec == CODEC_GZIP:
        deflate_new = <context_f>_function(library, "libdeflate_alloc_decompressor")
        deflate_free = <free_deflate_f>_function(library, "libdeflate_free_decompressor")
        deflate_decompress = <deflate_f>_function(library, "libdeflate_deflate_decompress_ex")
        whole = deflate_new != NULL and deflate_free != NULL and deflate_decompress != NULL
        version_text = DEFLATE_VERSION.decode() if library == NULL else None
        return version_text, "" if whole else "it lacks a function"
    if codec == CODEC_LZ4:
        least = LZ4_VERSION_MIN
        number_of = <version_f>_function(library, "LZ4_versionNumber")
        lz4_decompress = <lz4_decompress_f>_function(library, "LZ4_decompress_safe")
        whole = lz4_decompress != NULL
    else:
        least = ZSTD_VERSION_MIN
        number_of = <version_f>_function(library, "ZSTD_versionNumber")
        zstd_new = <context_f>_function(library, "ZSTD_createDCtx")
        zstd_free = <free_zstd_f>_function(library, "ZSTD_freeDCtx")
        zstd_reset = <zstd_reset_f>_function(library, "ZSTD_DCtx_reset")
        zstd_stream = <zstd_stream_f>_function(library, "ZSTD_decompressStream")
        zstd_is_error = <zstd_is_error_f>_function(library, "ZSTD_isError")
        whole = zstd_new != NULL and zstd_free != NULL and zstd_reset != NULL
        whole = whole and zstd_stream != NULL and zstd_is_error != NULL
    version = number_of() if number_of != NULL else 0
    found = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    if version < least:
        return found, "it is too old"
    return found, "" if whole else "it lacks a function"


cdef bint _knows(int codec):
    """Whether a library inflates a known frame, stays inside its room, and refuses cut input."""
    cdef Scratch contexts
    cdef Target out
    cdef bytes body = _KNOWN[codec]
    cdef bytearray room = bytearray(2 * len(_TEXT))
    cdef int whole, short, cut
    memset(&contexts, 0, sizeof(Scratch))
    cdef const uint8_t *p = body
    out.bytes, out.used, out.room = room, 0, len(_TEXT)
    whole = _inflate(codec, 2, p, len(body), &contexts, &out)
    well = whole == INFLATED and out.used == len(_TEXT) and room == _TEXT + bytes(len(_TEXT))
    room[len(_TEXT) - 1] = 0
    out.used, out.room = 0, len(_TEXT) - 1
    short = _inflate(codec, 2, p, len(body), &contexts, &out)
    well = well and short == NO_ROOM and room[len(_TEXT) - 1] == 0
    out.used, out.room = 0, 2 * len(_TEXT)
    cut = _inflate(codec, 2, p, len(body) - 9, &contexts, &out)
    drop_scratch(&contexts)
    return well and cut == UNUSUAL


use_libraries(os.environ.get("KSEG_CODECS") != "packages")
