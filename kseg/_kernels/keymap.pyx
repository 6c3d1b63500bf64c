"""Keys by their 64-bit hashes: hashing a column, counting how many differ, adding up by key.

The contract is that of `_core`, but for `KeyTable`, which owns the table that it adds up in. Keys
with equal hashes are taken for one: among a billion keys that happens about once in forty times.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kseg._core cimport crc32_of, pointer_to

cdef enum:
    REGISTER_BITS = 12
    REGISTERS = 1 << REGISTER_BITS

cdef uint64_t _MULTIPLIER = 0xc6a4a7935bd1e995


cdef inline uint64_t _hash(const uint8_t *data, int64_t size) noexcept nogil:
    """MurmurHash64A with seed 0, words taken little-endian as x86 and ARM have them."""
    cdef uint64_t h = <uint64_t> size * _MULTIPLIER, word
    cdef int64_t left = size
    while left >= 8:
        memcpy(&word, data, 8)
        word *= _MULTIPLIER
        word ^= word >> 47
        word *= _MULTIPLIER
        h = (h ^ word) * _MULTIPLIER
        data += 8
        left -= 8
    if left:
        word = 0
        memcpy(&word, data, <size_t> left)
        h = (h ^ word) * _MULTIPLIER
    h ^= h >> 47
    h *= _MULTIPLIER
    return h ^ (h >> 47)


def hash_values(const uint8_t[::1] data not None, const int32_t[::1] offsets not None,
                uint64_t[::1] out not None):
    """Hash each value of a binary column.

    Args:
        data: the column's bytes.
        offsets: int32[n + 1], as Arrow has them.
        out: uint64[n], filled with MurmurHash64A of each value, seed 0.

    Raises:
        ValueError: the offsets do not ascend within `data`, or `out` is too short.
    """
    cdef Py_ssize_t row, count = offsets.shape[0] - 1
    cdef int64_t start, end
    cdef const uint8_t *base = pointer_to(data)
    cdef bint sound = True
    if count < 0 or out.shape[0] < count:
        raise ValueError("out is shorter than the column")
    with nogil:
        # `row` stays below `count`; each value is checked against the data before it is read.
        for row in range(count):
            start, end = offsets[row], offsets[row + 1]
            if not 0 <= start <= end <= data.shape[0]:
                sound = False
                break
            out[row] = _hash(base + start, end - start)
    if not sound:
        raise ValueError("offsets do not ascend within the data")


cdef inline uint32_t _murmur2(const uint8_t *data, int64_t size) noexcept nogil:
    """Kafka `Utils.murmur2`: MurmurHash2 of 32 bits with its seed."""
    cdef uint32_t h = <uint32_t> 0x9747b28c ^ <uint32_t> size, word
    cdef int64_t left = size
    while left >= 4:
        memcpy(&word, data, 4)
        word *= <uint32_t> 0x5bd1e995
        word ^= word >> 24
        word *= <uint32_t> 0x5bd1e995
        h = (h * <uint32_t> 0x5bd1e995) ^ word
        data += 4
        left -= 4
    if left:
        word = 0
        memcpy(&word, data, <size_t> left)
        h = (h ^ word) * <uint32_t> 0x5bd1e995
    h ^= h >> 13
    h *= <uint32_t> 0x5bd1e995
    return h ^ (h >> 15)


def key_partitions(const uint8_t[::1] data not None, const int32_t[::1] offsets not None,
                   int32_t partitions, bint crc, int32_t[::1] out not None):
    """The partition of each key of a binary column; null keys are the caller's.

    Args:
        data: the column's bytes.
        offsets: int32[n + 1], as Arrow has them.
        partitions: how many partitions the topic has.
        crc: librdkafka's CRC-32, which gives an empty key no partition (-1); else murmur2.
        out: int32[n], filled.

    Raises:
        ValueError: there is no partition, the offsets do not ascend within `data`, or `out` is too
            short.
    """
    cdef Py_ssize_t row, count = offsets.shape[0] - 1
    cdef int64_t start, end
    cdef uint32_t hashed
    cdef const uint8_t *base = pointer_to(data)
    cdef bint sound = True
    if count < 0 or out.shape[0] < count:
        raise ValueError("out is shorter than the column")
    if partitions < 1:
        raise ValueError("a topic has at least one partition")
    with nogil:
        # `row` stays below `count`; each value is checked against the data before it is read.
        for row in range(count):
            start, end = offsets[row], offsets[row + 1]
            if not 0 <= start <= end <= data.shape[0]:
                sound = False
                break
            if crc and start == end:
                out[row] = -1
                continue
            if crc:
                hashed = crc32_of(base + start, <size_t> (end - start))
            else:
                hashed = _murmur2(base + start, end - start) & <uint32_t> 0x7fffffff
            out[row] = <int32_t> (hashed % <uint32_t> partitions)
    if not sound:
        raise ValueError("offsets do not ascend within the data")


def note_distinct(const uint64_t[::1] hashes not None, uint8_t[::1] registers not None):
    """Let hashes leave their mark in the registers of a HyperLogLog counter.

    Args:
        hashes: uint64[n].
        registers: uint8[4096]; each keeps the longest run of leading zeros seen, plus one.

    Raises:
        ValueError: there are not 4096 registers.

    Source: Flajolet et al., "HyperLogLog", 2007.
    """
    cdef Py_ssize_t row
    cdef uint64_t rest
    cdef uint8_t rank
    if registers.shape[0] != REGISTERS:
        raise ValueError(f"a counter has {REGISTERS} registers")
    with nogil:
        # The register's number has 12 bits, and there are 4096 of them.
        for row in range(hashes.shape[0]):
            rest = (hashes[row] << REGISTER_BITS) | (<uint64_t> 1 << (REGISTER_BITS - 1))
            rank = 1
            while not rest >> 63:
                rest <<= 1
                rank += 1
            if registers[hashes[row] >> (64 - REGISTER_BITS)] < rank:
                registers[hashes[row] >> (64 - REGISTER_BITS)] = rank


@cython.auto_pickle(False)
@cython.final
cdef class KeyTable:
    """How often each key occurred and how many bytes went with it, by its hash.

    Holds as many keys as it was made for and no more. Keys are numbered from 0 in the order in
    which they first came. Not for several threads at once.
    """

    cdef uint64_t *_hashes
    cdef int64_t *_counts
    cdef int64_t *_bytes
    cdef int32_t *_places
    cdef readonly int64_t count
    cdef readonly int64_t limit
    cdef uint64_t _mask

    def __cinit__(self, int64_t limit):
        """Room for `limit` keys, of at most 2**26."""
        if not 1 <= limit <= 1 << 26:
            raise ValueError("limit is 1 to 2**26")
        cdef uint64_t places = 16
        while places < 2 * <uint64_t> limit:
            places *= 2
        self.limit = limit
        self._mask = places - 1
        self._hashes = <uint64_t *> calloc(<size_t> limit, 8)
        self._counts = <int64_t *> calloc(<size_t> limit, 8)
        self._bytes = <int64_t *> calloc(<size_t> limit, 8)
        self._places = <int32_t *> calloc(<size_t> places, 4)  # number of the key plus one
        if not self._hashes or not self._counts or not self._bytes or not self._places:
            raise MemoryError

    def __dealloc__(self):
        free(self._hashes)
        free(self._counts)
        free(self._bytes)
        free(self._places)

    def feed(self, const uint64_t[::1] hashes not None, const int64_t[::1] sizes not None,
             const int64_t[::1] counts not None, int32_t[::1] numbers not None,
             Py_ssize_t start=0):
        """Add rows up until one needs a key more than there is room for.

        Args:
            hashes: uint64[n], of each row's key.
            sizes: int64[n], bytes to add.
            counts: int64[n], occurrences to add.
            numbers: int32[n], filled with the number of each row's key.
            start: the first row to take.

        Returns:
            The first row that was not taken, n if none is left.

        Raises:
            ValueError: the arrays differ in length, or `start` lies outside of them.
        """
        cdef Py_ssize_t rows = hashes.shape[0], row
        cdef uint64_t place
        cdef int32_t number
        if sizes.shape[0] != rows or counts.shape[0] != rows or numbers.shape[0] != rows:
            raise ValueError("columns of different lengths")
        if not 0 <= start <= rows:
            raise ValueError("start lies outside the columns")
        row = start
        with nogil:
            # At least half of the places are free, so that every search ends; `place` is masked.
            while row < rows:
                place = hashes[row] & self._mask
                while True:
                    number = self._places[place] - 1
                    if number < 0 or self._hashes[number] == hashes[row]:
                        break
                    place = (place + 1) & self._mask
                if number < 0:
                    if self.count == self.limit:
                        break
                    number = <int32_t> self.count
                    self.count += 1
                    self._places[place] = number + 1
                    self._hashes[number] = hashes[row]
                self._counts[number] += counts[row]
                self._bytes[number] += sizes[row]
                numbers[row] = number
                row += 1
        return row

    def copy_into(self, uint64_t[::1] hashes not None, int64_t[::1] counts not None,
                  int64_t[::1] sizes not None):
        """Copy hash, occurrences and bytes of each key, in order of number.

        Raises:
            ValueError: an array is not of `count` values.
        """
        cdef Py_ssize_t rows = self.count
        if hashes.shape[0] != rows or counts.shape[0] != rows or sizes.shape[0] != rows:
            raise ValueError("arrays that do not have a place for each key")
        if rows:
            memcpy(&hashes[0], self._hashes, <size_t> rows * 8)
            memcpy(&counts[0], self._counts, <size_t> rows * 8)
            memcpy(&sizes[0], self._bytes, <size_t> rows * 8)

    def bytes_of(self, const int32_t[::1] numbers not None, int64_t[::1] sizes not None):
        """Look up the bytes of keys by their numbers.

        Args:
            numbers: int32[n], as `feed` gives them.
            sizes: int64[n], filled.

        Raises:
            ValueError: the arrays differ in length, or a number is of no key.
        """
        cdef Py_ssize_t row
        cdef int32_t number
        cdef bint sound = True
        if numbers.shape[0] != sizes.shape[0]:
            raise ValueError("arrays of different lengths")
        with nogil:
            for row in range(numbers.shape[0]):
                number = numbers[row]
                if not 0 <= number < self.count:
                    sound = False
                    break
                sizes[row] = self._bytes[number]
        if not sound:
            raise ValueError("a number of no key")
