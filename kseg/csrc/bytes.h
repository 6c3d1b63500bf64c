/* Big-endian loads and Kafka's variable-length integers, inlined into every kernel.
 *
 * A varint reader takes the position and the end and answers the next position, or NULL where the bytes end inside
 * the number or its last permitted byte still says "more follows". Surplus bits of that last byte are dropped and
 * longer-than-needed forms are accepted, as Kafka's ByteUtils does.
 */
#ifndef KSEG_BYTES_H
#define KSEG_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KSEG_LIKELY(x) __builtin_expect(!!(x), 1)
#define KSEG_INLINE static inline __attribute__((always_inline))

static inline uint16_t kseg_u16(const uint8_t *p) {
    return (uint16_t)(((uint32_t)p[0] << 8) | p[1]);
}

static inline uint32_t kseg_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t kseg_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline int16_t kseg_i16(const uint8_t *p) { return (int16_t)kseg_u16(p); }
static inline int32_t kseg_i32(const uint8_t *p) { return (int32_t)kseg_u32(p); }
static inline int64_t kseg_i64(const uint8_t *p) { return (int64_t)kseg_u64(p); }

/* Asks for the lines of a header at `p`, which may begin anywhere in one. */
static inline void kseg_prefetch_header(const uint8_t *p) {
    __builtin_prefetch(p);
    __builtin_prefetch(p + 60);
}

enum {
    KSEG_FETCHED_MIN = 512, /* shorter batches are asked for whole */
    KSEG_AHEAD = 2048       /* so far ahead */
};

/* Asks for as many bytes as a short batch has, so far ahead of `p`: such batches come faster than the processor guesses.
 * The checksum of a long one asks for what follows itself. An address past the data is a hint only, and reads nothing.
 * Always inlined: compilers drop a call that does nothing else. */
static inline __attribute__((always_inline)) void kseg_prefetch_short(const uint8_t *p, int64_t size) {
    for (int64_t line = 0; size < KSEG_FETCHED_MIN && line < size; line += 64)
        __builtin_prefetch((const void *)((uintptr_t)p + KSEG_AHEAD + (uintptr_t)line));
}

/* Wrapping additions: Java's long arithmetic, without C's undefined overflow. */
static inline int64_t kseg_add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t kseg_sub64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static __attribute__((noinline)) const uint8_t *kseg_uvarint_slow(const uint8_t *p, const uint8_t *end, unsigned last_shift,
                                               uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift <= last_shift; shift += 7) {
        if (p == end)
            return NULL;
        uint64_t byte = *p++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return p;
        }
    }
    return NULL;
}

/* Up to four bytes by predicted branches: prediction breaks the dependency from one field to the next. */
static inline __attribute__((always_inline)) const uint8_t *kseg_uvarint(const uint8_t *p, const uint8_t *end,
                                                                         unsigned last_shift, uint64_t *out) {
    if (KSEG_LIKELY(end - p >= 4)) {
        uint64_t value = p[0];
        if (KSEG_LIKELY(value < 0x80)) {
            *out = value;
            return p + 1;
        }
        uint64_t byte = p[1];
        value = (value & 0x7f) | (byte << 7);
        if (KSEG_LIKELY(byte < 0x80)) {
            *out = value;
            return p + 2;
        }
        byte = p[2];
        value = (value & 0x3fff) | (byte << 14);
        if (KSEG_LIKELY(byte < 0x80)) {
            *out = value;
            return p + 3;
        }
        byte = p[3];
        value = (value & 0x1fffff) | (byte << 21);
        if (byte < 0x80) {
            *out = value;
            return p + 4;
        }
    } else if (end - p >= 1 && p[0] < 0x80) {
        *out = p[0];
        return p + 1;
    }
    return kseg_uvarint_slow(p, end, last_shift, out);
}

static inline __attribute__((always_inline)) const uint8_t *kseg_varint(const uint8_t *p, const uint8_t *end,
                                                                        int32_t *out) {
    uint64_t wide = 0;
    p = kseg_uvarint(p, end, 28, &wide);
    uint32_t raw = (uint32_t)wide;
    *out = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    return p;
}

static inline __attribute__((always_inline)) const uint8_t *kseg_varlong(const uint8_t *p, const uint8_t *end,
                                                                         int64_t *out) {
    uint64_t raw = 0;
    p = kseg_uvarint(p, end, 63, &raw);
    *out = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    return p;
}

/* Sixteen bytes at any address. A memcpy of a fixed size becomes a loop of its own wherever the compiler takes a branch
 * for an unlikely one, at five times the cost; these are moves everywhere. */
typedef uint8_t kseg_vector __attribute__((vector_size(16), aligned(1), may_alias));

static inline __attribute__((always_inline)) void kseg_copy_64(uint8_t *to, const uint8_t *from) {
    const kseg_vector *source = (const kseg_vector *)(const void *)from;
    kseg_vector *target = (kseg_vector *)(void *)to;
    kseg_vector a = source[0], b = source[1], c = source[2], d = source[3];
    target[0] = a;
    target[1] = b;
    target[2] = c;
    target[3] = d;
}

/* Copies `size` bytes. Up to a few hundred go as blocks of fixed size where both sides have room for it (the caller
 * keeps 64 spare bytes after the destination), which costs less than asking how many there are. */
static inline __attribute__((always_inline)) void kseg_copy(uint8_t *to, const uint8_t *from, size_t size,
                                                            size_t readable) {
    if (KSEG_LIKELY(readable >= 64)) {
        if (size <= 64) {
            kseg_copy_64(to, from);
            return;
        }
        if (size <= 256) {
            kseg_copy_64(to, from);
            if (size > 128)
                kseg_copy_64(to + 64, from + 64);
            if (size > 192)
                kseg_copy_64(to + 128, from + 128);
            kseg_copy_64(to + size - 64, from + size - 64);
            return;
        }
    }
    memcpy(to, from, size);
}

static inline int kseg_all_zero(const uint8_t *p, size_t size) {
    return size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0);
}

#endif
