"""The offset map of compaction: the last offset of each key, in a bounded number of slots.

The contract is that of `_core`, but for `OffsetMap`, which owns its slots: 24 bytes each, 16 of a
hash and 8 of an offset, as in Kafka. A key is known by its hash alone. The hash is SipHash-2-4 of
128 bits under a secret that is drawn for each map. So a producer cannot make two keys that meet,
and by chance two of 2**40 keys do so once in 2**49 maps. Kafka takes MD5, for which a producer can.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kseg._core cimport pointer_to

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define KSEG_PREFETCH(p) __builtin_prefetch(p)
    #else
    #define KSEG_PREFETCH(p) ((void)(p))
    #endif
    """
    void prefetch "KSEG_PREFETCH"(const void *p) noexcept nogil

cdef enum:
    #: Keys that are hashed before the first of them is looked for, while their slots are fetched.
    AHEAD = 32

cdef struct Slot:
    uint64_t low
    uint64_t high
    uint64_t next_offset  # the offset plus one; 0 for an empty slot


cdef struct Sip:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline uint64_t _rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void _round(Sip *s) noexcept nogil:
    s.a += s.b
    s.b = _rotated(s.b, 13) ^ s.a
    s.a = _rotated(s.a, 32)
    s.c += s.d
    s.d = _rotated(s.d, 16) ^ s.c
    s.a += s.d
    s.d = _rotated(s.d, 21) ^ s.a
    s.c += s.b
    s.b = _rotated(s.b, 17) ^ s.c
    s.c = _rotated(s.c, 32)


cdef inline void _hash(const uint8_t *data, int64_t size, uint64_t k0, uint64_t k1,
                       Slot *out) noexcept nogil:
    """SipHash-2-4 of 128 bits. Source: Aumasson, Bernstein, "SipHash", 2012."""
    cdef Sip s
    cdef uint64_t word
    cdef int64_t left = size
    cdef int i, _i
    s.a = k0 ^ <uint64_t>0x736f6d6570736575
    s.b = k1 ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    s.c = k0 ^ <uint64_t>0x6c7967656e657261
    s.d = k1 ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, data, 8)
        s.d ^= word
        _round(&s)
        _round(&s)
        s.a ^= word
        data += 8
        left -= 8
    word = <uint64_t>size << 56
    for i in range(<int>left):
        word |= <uint64_t>data[i] << (8 * i)
    s.d ^= word
    _round(&s)
    _round(&s)
    s.a ^= word
    s.c ^= 0xee
    for _i in range(4):
        _round(&s)
    out.low = s.a ^ s.b ^ s.c ^ s.d
    s.b ^= 0xdd
    for _i in range(4):
        _round(&s)
    out.high = s.a ^ s.b ^ s.c ^ s.d


@cython.auto_pickle(False)
@cython.final
cdef class OffsetMap:
    """The last offset of each key. Not for several threads at once while anything is put in."""

    cdef Slot *_slots
    cdef uint64_t _k0
    cdef uint64_t _k1
    cdef readonly int64_t slots
    cdef readonly int64_t limit
    cdef readonly int64_t count

    def __cinit__(self, int64_t slots, int64_t limit, const uint8_t[::1] secret not None):
        """Room for keys.

        Args:
            slots: of 24 bytes; at most 2**40.
            limit: how many keys are taken, less than `slots`, so that every search ends.
            secret: 16 bytes.
        """
        if not 1 <= limit < slots or slots > <int64_t>1 << 40:
            raise ValueError("a map takes at least one key, and less than it has slots")
        if secret.shape[0] != 16:
            raise ValueError("the secret has 16 bytes")
        memcpy(&self._k0, &secret[0], 8)
        memcpy(&self._k1, &secret[8], 8)
        self.slots = slots
        self.limit = limit
        self._slots = <Slot *>calloc(<size_t>slots, sizeof(Slot))
        if not self._slots:
            raise MemoryError

    def __dealloc__(self):
        free(self._slots)

    cdef inline Slot *_home(self, const Slot *wanted) noexcept nogil:
        return self._slots + <int64_t>(wanted.low % <uint64_t>self.slots)

    cdef inline Slot *_find(self, const Slot *wanted) noexcept nogil:
        """The slot that has the key, or the empty one where it would go."""
        cdef Slot *slot = self._home(wanted)
        cdef Slot *end = self._slots + self.slots
        while slot.next_offset:
            if slot.low == wanted.low and slot.high == wanted.high:
                break
            slot += 1
            if slot == end:
                slot = self._slots
        return slot

    cdef Py_ssize_t _ahead(self, const uint8_t *data, const int32_t[::1] ends,
                           const uint8_t[::1] valid, Py_ssize_t row, Slot *wanted) noexcept nogil:
        """Hash the next keys, and let their slots be fetched; answers how many rows that is."""
        cdef Py_ssize_t i, rows = min(<Py_ssize_t>AHEAD, valid.shape[0] - row)
        for i in range(rows):
            if valid[row + i]:
                _hash(data + ends[row + i], ends[row + i + 1] - ends[row + i], self._k0, self._k1,
                      &wanted[i])
                prefetch(self._home(&wanted[i]))
        return rows

    def put(self, const uint8_t[::1] data not None, const int32_t[::1] ends not None,
            const uint8_t[::1] valid not None, const int64_t[::1] offsets not None,
            int64_t start_offset=0):
        """Note the offset of each key, until one comes for which there is no room.

        As in Kafka a full map takes nothing, not even of a key that it has.

        Args:
            data: bytes of the keys.
            ends: int32[n + 1], as Arrow has them.
            valid: uint8[n], 0 for a row without a key, which is passed over.
            offsets: int64[n], of the rows, not negative.
            start_offset: rows below it are passed over.

        Returns:
            The first row that was not taken, n if none is left.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        cdef Py_ssize_t row = 0, i, rows, count = valid.shape[0]
        cdef Slot wanted[AHEAD]
        cdef Slot *slot
        cdef const uint8_t *base = pointer_to(data)
        _check(data, ends, count)
        if offsets.shape[0] != count:
            raise ValueError("not an offset for each key")
        with nogil:
            # At least one slot is empty, so that every search ends.
            while row < count:
                rows = self._ahead(base, ends, valid, row, wanted)
                for i in range(rows):
                    if not valid[row + i] or offsets[row + i] < start_offset:
                        continue
                    if self.count >= self.limit:
                        break
                    slot = self._find(&wanted[i])
                    if not slot.next_offset:
                        slot.low, slot.high = wanted[i].low, wanted[i].high
                        self.count += 1
                    slot.next_offset = <uint64_t>offsets[row + i] + 1
                else:
                    row += rows
                    continue
                row += i
                break
        return row

    def get(self, const uint8_t[::1] data not None, const int32_t[::1] ends not None,
            const uint8_t[::1] valid not None, int64_t[::1] out not None):
        """Look up the last offset of each key.

        Args:
            data, ends, valid: as for `put`.
            out: int64[n], filled; -1 where there is no key, or none that was put in.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        cdef Py_ssize_t row = 0, i, rows, count = valid.shape[0]
        cdef Slot wanted[AHEAD]
        cdef const uint8_t *base = pointer_to(data)
        _check(data, ends, count)
        if out.shape[0] != count:
            raise ValueError("not a place for each key")
        with nogil:
            while row < count:
                rows = self._ahead(base, ends, valid, row, wanted)
                for i in range(rows):
                    if valid[row + i]:
                        out[row + i] = <int64_t>(self._find(&wanted[i]).next_offset - 1)
                    else:
                        out[row + i] = -1
                row += rows


cdef int _check(const uint8_t[::1] data, const int32_t[::1] ends, Py_ssize_t count) except -1:
    """Refuse offsets that do not ascend within the data."""
    cdef Py_ssize_t row
    cdef bint sound = ends.shape[0] == count + 1 and ends[0] >= 0
    if sound:
        for row in range(count):
            if ends[row] > ends[row + 1]:
                sound = False
                break
        sound = sound and ends[count] <= data.shape[0]
    if not sound:
        raise ValueError("offsets do not ascend within the data")
    return 0
