"""The offset map of compaction: the last offset of each key, in a bounded number of slots.

The contract is that of `_core`, but for `OffsetMap`, which owns its slots: 24 bytes each, 16 of a
hash and 8 of an offset, as in Kafka. A key is known by its hash alone. The hash is SipHash-2-4 of
128 bits under a secret that is drawn for each map. So a producer cannot make two keys that meet,
and by chance two of 2**40 keys do so once in 2**49 maps. Kafka takes MD5, for which a producer can.

Beside the slots a map may have two bits for each offset of a range: whether the record there is the
last of its key, and whether one has to look at it (it has no key, or no value). They answer for
most batches whether all records stay, or none, so that their records are not read a second time.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kseg._core cimport BASE_OFFSET, LAST_OFFSET, ROW_FIELDS, add64, pointer_to
from kseg._kernels.located cimport Found, Keep, Located, Record

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *p) noexcept nogil
    int ones "__builtin_popcountll"(unsigned long long word) noexcept nogil

cdef extern from "sip.h" nogil:
    int has_vectors "kseg_sip_has_vectors"() noexcept
    void hash_all "kseg_sip_all"(const uint8_t **data, const int64_t *sizes, int64_t count,
                                 const uint64_t *secret, int vectors, uint64_t (*out)[2]) noexcept
    uint64_t below "kseg_sip_below"(uint64_t bits, uint64_t limit) noexcept

cdef enum: AHEAD = 32

# Answers of `told` for a batch, in the order of kseg.format.located.Known.
cdef enum:
    KNOWN_NOTHING
    KNOWN_NONE_STAYS
    KNOWN_ALL_STAY

cdef struct Slot:
    uint64_t hash[2]
    uint64_t next_offset  # the offset plus one; 0 for an empty slot


# Rows whose keys are hashed before the first of them is looked for, while their slots are fetched.
cdef struct Ahead:
    const uint8_t *keys[AHEAD]
    int64_t sizes[AHEAD]  # 0 where there is no key
    uint64_t hashes[AHEAD][2]
    int64_t offsets[AHEAD]
    bint keyed[AHEAD]
    bint has_value[AHEAD]
    int64_t count


cdef inline void _add(Ahead *ahead, const uint8_t *key, int64_t size, int64_t offset,
                      bint has_value) noexcept nogil:
    """Add a row; a negative size is that of no key."""
    cdef int64_t at = ahead.count
    ahead.keyed[at], ahead.has_value[at], ahead.offsets[at] = size >= 0, has_value, offset
    ahead.keys[at], ahead.sizes[at] = key, max(size, <int64_t>0)
    ahead.count += 1


cdef inline void _add_row(Ahead *ahead, const uint8_t *base, int64_t size, int64_t start,
                          int64_t end, bint valid, int64_t offset, bint has_value) noexcept nogil:
    """Add a row of columns. `_check` has seen its ends; should they have changed, it has no key."""
    if not (valid and 0 <= start <= end <= size):
        start, end = 0, -1
    _add(ahead, base + start, end - start, offset, has_value)


cdef void _add_found(Ahead *ahead, const Found *found, int64_t first) noexcept nogil:
    """Take up records of a batch from `first` on, as many as there is room for."""
    cdef int64_t i
    cdef const Record *record
    ahead.count = 0
    for i in range(first, min(first + AHEAD, found.count)):
        record = &found.records[i]
        _add(ahead, record.key, record.key_size, add64(found.base_offset, record.offset_delta),
             record.value_size >= 0)


@cython.auto_pickle(False)
@cython.final
cdef class OffsetMap:
    """The last offset of each key. Not for several threads at once while anything is put in."""

    cdef Slot *_slots
    cdef Slot *_heap  # the same, unless the caller gave memory
    cdef uint64_t _secret[2]
    cdef bint _vectors
    cdef uint64_t *_latest
    cdef uint64_t *_odd
    cdef int64_t _first
    cdef int64_t _last
    cdef bint _rising
    cdef uint8_t[::1] _memory
    cdef readonly int64_t slots
    cdef readonly int64_t limit
    cdef readonly int64_t count
    cdef readonly int64_t span

    def __cinit__(self, int64_t slots, int64_t limit, const uint8_t[::1] secret not None,
                  int64_t first_offset=0, int64_t span=0, uint8_t[::1] memory=None):
        """Room for keys.

        Args:
            slots: of 24 bytes; at most 2**40.
            limit: how many keys are taken, less than `slots`, so that every search ends.
            secret: 16 bytes.
            first_offset, span: the range of offsets that has two bits each; at most 2**40.
            memory: zeros for the slots, this map's alone, aligned to 8 bytes; None for the heap.
        """
        if first_offset < 0 or not 0 <= span <= <int64_t>1 << 40:
            raise ValueError("a range of offsets begins at 0 or above, and has at most 2**40")
        if not 1 <= limit < slots or slots > <int64_t>1 << 40:
            raise ValueError("a map takes at least one key, and less than it has slots")
        if secret.shape[0] != 16:
            raise ValueError("the secret has 16 bytes")
        memcpy(self._secret, &secret[0], 16)
        self._vectors = has_vectors()
        self.slots = slots
        self.limit = limit
        self.span = span
        self._first = first_offset
        self._last = -1
        self._rising = True
        if memory is None:
            self._heap = self._slots = <Slot *>calloc(<size_t>slots, sizeof(Slot))
        elif memory.shape[0] < slots * <int64_t>sizeof(Slot) or <size_t>&memory[0] % 8:
            raise ValueError("the memory for the slots is too small, or not aligned")
        else:
            self._memory, self._slots = memory, <Slot *>&memory[0]
        # A word more, so that there is one where the range is empty.
        self._latest = <uint64_t *>calloc(<size_t>span // 64 + 1, 8)
        self._odd = <uint64_t *>calloc(<size_t>span // 64 + 1, 8)
        if not self._slots or not self._latest or not self._odd:
            raise MemoryError

    def __dealloc__(self):
        free(self._heap)
        free(self._latest)
        free(self._odd)

    # ---- the bits --------------------------------------------------------------------------------

    cdef inline int64_t _bit(self, int64_t offset) noexcept nogil:
        """The number of an offset's bits, -1 where it has none."""
        # Neither is negative, so that the difference does not overflow.
        if offset < self._first or offset - self._first >= self.span:
            return -1
        return offset - self._first

    cdef inline void _note(self, int64_t offset, bint odd) noexcept nogil:
        """Pass over a row. If offsets do not ascend, the bits become useless."""
        cdef int64_t bit = self._bit(offset)
        if offset <= self._last:
            self._rising = False
        self._last = offset
        if odd and bit >= 0:
            self._odd[bit >> 6] |= <uint64_t>1 << (bit & 63)

    cdef inline void _move(self, int64_t old, int64_t offset) noexcept nogil:
        """Let the last record of a key lie at another offset; `old` is -1 if there was none."""
        cdef int64_t bit = self._bit(old)
        if bit >= 0:
            self._latest[bit >> 6] &= ~(<uint64_t>1 << (bit & 63))
        bit = self._bit(offset)
        if bit >= 0:
            self._latest[bit >> 6] |= <uint64_t>1 << (bit & 63)

    cdef inline int64_t _count_set(self, const uint64_t *bits, int64_t first,
                                   int64_t last) noexcept nogil:
        """How many of the bits `first` to `last` are set."""
        cdef int64_t word, end = last >> 6, found = 0
        cdef uint64_t kept = ~<uint64_t>0 << (first & 63)
        for word in range(first >> 6, end):
            found += ones(bits[word] & kept)
            kept = ~<uint64_t>0
        return found + ones(bits[end] & kept & (~<uint64_t>0 >> (63 - (last & 63))))

    def told(self, const int64_t[::1] first_offsets not None,
             const int64_t[::1] last_offsets not None, const int64_t[::1] counts not None,
             int64_t known_to, uint8_t[::1] out not None):
        """Say for batches whether all their records are the last of their keys, or none of them.

        Args:
            first_offsets, last_offsets: int64[n], the range of each batch, which holds all its
                records; those of batches that were not put in mean nothing.
            counts: int64[n], of their records.
            known_to: the last offset that was put in.
            out: uint8[n], filled: 1 where none is, 2 where all are; 0 where the bits do not tell,
                or where a record has no key or no value.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        cdef Py_ssize_t i, n = out.shape[0]
        cdef int64_t first, last, latest
        if first_offsets.shape[0] != n or last_offsets.shape[0] != n or counts.shape[0] != n:
            raise ValueError("arrays of different lengths")
        with nogil:
            for i in range(n):
                out[i] = KNOWN_NOTHING
                first, last = self._bit(first_offsets[i]), self._bit(last_offsets[i])
                if (not self._rising or first < 0 or last < first or last_offsets[i] > known_to
                        or self._count_set(self._odd, first, last)):
                    continue
                latest = self._count_set(self._latest, first, last)
                if latest == 0:
                    out[i] = KNOWN_NONE_STAYS
                elif latest == counts[i]:
                    out[i] = KNOWN_ALL_STAY

    # ---- the slots -------------------------------------------------------------------------------

    cdef inline Slot *_home(self, const uint64_t *wanted) noexcept nogil:
        return self._slots + <int64_t>below(wanted[0], <uint64_t>self.slots)

    cdef inline Slot *_find(self, const uint64_t *wanted) noexcept nogil:
        """The slot that has the key, or the empty one where it would go."""
        cdef Slot *slot = self._home(wanted)
        cdef Slot *end = self._slots + self.slots
        while slot.next_offset:
            if slot.hash[0] == wanted[0] and slot.hash[1] == wanted[1]:
                break
            slot += 1
            if slot == end:
                slot = self._slots
        return slot

    cdef void _seek(self, Ahead *ahead) noexcept nogil:
        """Hash the keys, and let their slots be fetched."""
        cdef int64_t i
        cdef Slot *slot
        hash_all(ahead.keys, ahead.sizes, ahead.count, self._secret, self._vectors, ahead.hashes)
        for i in range(ahead.count):
            slot = self._home(ahead.hashes[i])
            # A slot may lie in two lines; the second holds its `next_offset`.
            prefetch(&slot.next_offset)
            prefetch(slot)

    cdef inline bint _place(self, const uint64_t *wanted, int64_t offset) noexcept nogil:
        """Note the offset of a key; answers whether there was room."""
        cdef Slot *slot
        if self.count >= self.limit:
            return False
        slot = self._find(wanted)
        if not slot.next_offset:
            slot.hash[0], slot.hash[1] = wanted[0], wanted[1]
            self.count += 1
        self._move(<int64_t>slot.next_offset - 1, offset)
        slot.next_offset = <uint64_t>offset + 1
        return True

    cdef int64_t _put(self, const Ahead *ahead, int64_t start_offset) noexcept nogil:
        """Note the offsets of rows sought; answers how many were taken until there was no room."""
        cdef int64_t i, offset
        for i in range(ahead.count):
            offset = ahead.offsets[i]
            if offset >= start_offset:
                # Where nothing is known of its value, it has to be looked at.
                self._note(offset, not (ahead.keyed[i] and ahead.has_value[i]))
                if ahead.keyed[i] and not self._place(ahead.hashes[i], offset):
                    return i
        return ahead.count

    cdef void _latest_of(self, Ahead *ahead, int64_t known_to, uint8_t *out) noexcept nogil:
        """Say of rows whether the map has their keys at no later offset, as `latest` does."""
        cdef int64_t i, bit, asked = 0
        # Answers from the bits first; where they do not tell, keys are hashed, and marked 2.
        for i in range(ahead.count):
            bit = self._bit(ahead.offsets[i])
            if not ahead.keyed[i]:
                out[i] = 0
            elif bit >= 0 and self._rising and ahead.offsets[i] <= known_to:
                out[i] = self._latest[bit >> 6] >> (bit & 63) & 1
            else:
                out[i] = 2
                asked += 1
        if asked:
            self._seek(ahead)
            for i in range(ahead.count):
                if out[i] == 2:
                    out[i] = ahead.offsets[i] >= <int64_t>(
                        self._find(ahead.hashes[i]).next_offset - 1)

    def put(self, const uint8_t[::1] data not None, const int32_t[::1] ends not None,
            const uint8_t[::1] valid not None, const int64_t[::1] offsets not None,
            int64_t start_offset=0, *, const uint8_t[::1] has_value=None,
            const int64_t[::1] first_row=None, const int64_t[::1] base_offsets=None,
            const int64_t[::1] last_offsets=None):
        """Note the offset of each key, until one comes for which there is no room.

        As in Kafka a full map takes nothing, not even of a key that it has.

        Args:
            data: bytes of the keys.
            ends: int32[n + 1], as Arrow has them.
            valid: uint8[n], 0 for a row without a key, which is passed over.
            offsets: int64[n], of the rows, not negative.
            start_offset: rows below it are passed over.
            has_value: uint8[n], 0 for a row without a value; None where that is not known.
            first_row: int64[m + 1], the first row of each batch, n after the last; None where the
                headers of the batches are not known.
            base_offsets, last_offsets: int64[m], of those headers.

        Returns:
            The first row that was not taken, n if none is left.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        cdef Py_ssize_t row = 0, i, count = valid.shape[0], batch = 0
        cdef Ahead ahead
        cdef int64_t taken, next_batch = count
        cdef const uint8_t *base = pointer_to(data)
        cdef bint has_batches = first_row is not None, values = has_value is not None
        _check(data, ends, count)
        if offsets.shape[0] != count or (values and has_value.shape[0] != count):
            raise ValueError("not an offset for each key")
        if has_batches:
            _check_batches(first_row, base_offsets, last_offsets, count)
            next_batch = first_row[1] if count else 0
        with nogil:
            # At least one slot is empty, so that every search ends.
            while row < count:
                ahead.count = 0
                for i in range(row, min(row + AHEAD, count)):
                    while i >= next_batch and batch + 2 < first_row.shape[0]:
                        batch += 1
                        next_batch = first_row[batch + 1]
                    if has_batches and not base_offsets[batch] <= offsets[i] <= last_offsets[batch]:
                        # `told` goes by what headers say of the records.
                        self._rising = False
                    _add_row(&ahead, base, data.shape[0], ends[i], ends[i + 1], valid[i],
                             offsets[i], values and has_value[i])
                self._seek(&ahead)
                taken = self._put(&ahead, start_offset)
                row += taken
                if taken < ahead.count:
                    break
        return row

    def put_batches(self, Located located not None, const uint8_t[::1] data not None,
                    const int64_t[:, ::1] rows not None, int64_t base, int64_t start_offset):
        """Note the offset of each key of batches, until one comes that is not read here.

        Args:
            located: memory to use again.
            data: bytes of a file from `base` on.
            rows: int64[n, 17], headers of batches of data.
            base: position of `data[0]`.
            start_offset: records below it are passed over.

        Returns:
            The first batch that was not taken whole, n if none is left; whether there was no room
            for one of its keys; and the offset of the last record of it that was taken and has a
            key, -1 for none.

        Raises:
            ValueError: the table has another width.
        """
        cdef const uint8_t *bytes_ = pointer_to(data)
        cdef const Found *found = &located.found
        cdef int64_t at = 0, count = rows.shape[0], last = -1
        cdef bint full = False
        if rows.shape[1] != ROW_FIELDS:
            raise ValueError("the table has the wrong width")
        located.forget()
        with nogil:
            while at < count and not full:
                if not located.find(bytes_, data.shape[0], base, &rows[at, 0], False):
                    break
                self._check_range(found, rows[at, BASE_OFFSET], rows[at, LAST_OFFSET])
                full = self._put_found(found, start_offset, &last)
                located.forget()
                at += not full
        return at, full, last if full else -1

    cdef bint _put_found(self, const Found *found, int64_t start_offset,
                         int64_t *last) noexcept nogil:
        """Put the records of a batch in; whether there was no room for one.

        The slots of the next ones are fetched meanwhile. `last` is the offset of the last key that
        was taken, -1 for none.
        """
        cdef Ahead ahead[2]
        cdef int64_t first = 0, i, taken
        cdef int turn = 0
        last[0] = -1
        _add_found(&ahead[0], found, 0)
        self._seek(&ahead[0])
        while first < found.count:
            if first + AHEAD < found.count:
                _add_found(&ahead[1 - turn], found, first + AHEAD)
                self._seek(&ahead[1 - turn])
            taken = self._put(&ahead[turn], start_offset)
            for i in range(taken):
                if ahead[turn].keyed[i] and ahead[turn].offsets[i] >= start_offset:
                    last[0] = ahead[turn].offsets[i]
            if taken < ahead[turn].count:
                return True
            first, turn = first + AHEAD, 1 - turn
        return False

    cdef void _check_range(self, const Found *found, int64_t first, int64_t last) noexcept nogil:
        """Keep `told` from using a header after which other offsets lie."""
        cdef int64_t i
        for i in range(found.count):
            if not first <= add64(found.base_offset, found.records[i].offset_delta) <= last:
                self._rising = False

    def latest(self, const uint8_t[::1] data not None, const int32_t[::1] ends not None,
               const uint8_t[::1] valid not None, const int64_t[::1] offsets not None,
               int64_t known_to, uint8_t[::1] out not None):
        """Say of rows whether the map has their keys at no later offset.

        Args:
            data, ends, valid: as for `put`.
            offsets: int64[n], of the rows.
            known_to: the last offset that was put in. Up to there, and from the range's first
                offset on, the bits answer: what was not put in is not the last of its key.
            out: uint8[n], filled: 1 where it has, or where it does not have the key; 0 for a row
                without a key.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        cdef Py_ssize_t row = 0, i, count = valid.shape[0]
        cdef Ahead ahead
        cdef const uint8_t *base = pointer_to(data)
        _check(data, ends, count)
        if offsets.shape[0] != count or out.shape[0] != count:
            raise ValueError("not an offset and a place for each key")
        with nogil:
            while row < count:
                ahead.count = 0
                for i in range(row, min(row + AHEAD, count)):
                    _add_row(&ahead, base, data.shape[0], ends[i], ends[i + 1], valid[i],
                             offsets[i], True)
                self._latest_of(&ahead, known_to, &out[row])
                row += ahead.count


@cython.auto_pickle(False)
@cython.final
cdef class KeepLatest(Keep):
    """Keeps records after the end of a map, and the last of each key, unless it has no value.

    Attributes:
        unkeyed: how many went that have no key.
        removed_tombstones: how many went whose key the map has at no later offset.
    """

    cdef OffsetMap _map
    cdef int64_t _known_to
    cdef const uint8_t[::1] _tombstones
    cdef const uint8_t[::1] _discarded
    cdef readonly int64_t unkeyed
    cdef readonly int64_t removed_tombstones

    def __cinit__(self, OffsetMap map not None, int64_t known_to,
                  const uint8_t[::1] tombstones not None, const uint8_t[::1] discarded not None):
        """Keep the records that a map knows as last.

        Args:
            map: the last offset of each key.
            known_to: the last offset that was put in.
            tombstones: uint8[n], of each batch of a table: 1 where tombstones stay, too.
            discarded: uint8[n]: 1 where no record stays. Of batches after these all stay.

        Raises:
            ValueError: the arrays have different lengths.
        """
        if tombstones.shape[0] != discarded.shape[0]:
            raise ValueError("arrays of different lengths")
        self._map, self._known_to = map, known_to
        self._tombstones, self._discarded = tombstones, discarded
        self.unkeyed = self.removed_tombstones = 0

    cdef void ask(self, const Found *found, int64_t number) noexcept nogil:
        cdef Ahead ahead
        cdef uint8_t latest[AHEAD]
        cdef bint kept, tombstones, discarded
        cdef int64_t first = 0, i
        if not 0 <= number < self._tombstones.shape[0]:
            memset(found.kept, 1, <size_t>found.count)
            return
        tombstones, discarded = self._tombstones[number], self._discarded[number]
        while first < found.count:
            _add_found(&ahead, found, first)
            self._map._latest_of(&ahead, self._known_to, latest)
            for i in range(ahead.count):
                kept = not discarded and (ahead.offsets[i] > self._known_to or (
                    latest[i] and (ahead.has_value[i] or tombstones)))
                found.kept[first + i] = kept
                if not kept and not ahead.keyed[i]:
                    self.unkeyed += 1
                if not kept and latest[i] and not ahead.has_value[i]:
                    self.removed_tombstones += 1
            first += AHEAD


cdef int _check_batches(const int64_t[::1] first_row, const int64_t[::1] base_offsets,
                        const int64_t[::1] last_offsets, Py_ssize_t count) except -1:
    """Refuse batches that do not follow each other up to the last row."""
    cdef Py_ssize_t batch, batches = first_row.shape[0] - 1
    cdef bint sound = (base_offsets is not None and last_offsets is not None and batches >= 0
                       and base_offsets.shape[0] == batches and last_offsets.shape[0] == batches
                       and first_row[0] == 0 and first_row[batches] == count)
    if sound:
        for batch in range(batches):
            if first_row[batch] > first_row[batch + 1]:
                sound = False
                break
    if not sound:
        raise ValueError("batches do not follow each other up to the last row")
    return 0


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
