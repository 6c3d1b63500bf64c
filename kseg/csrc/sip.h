/* SipHash-2-4 of 128 bits, of one key or of several side by side. Source: Aumasson, Bernstein, "SipHash", 2012.
 *
 * The rounds of one key wait for each other. Four keys of about the same length take little longer than one where the
 * processor has vectors of four words; which it has is asked at run time.
 */
#ifndef KSEG_SIP_H
#define KSEG_SIP_H

#include <stdint.h>
#include <string.h>

#include "cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KSEG_SIP_VECTORS 1
#endif

#define KSEG_SIP_ROTATED(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
#define KSEG_SIP_ROUND(a, b, c, d)         \
    do {                                   \
        a += b;                            \
        b = KSEG_SIP_ROTATED(b, 13) ^ a;   \
        a = KSEG_SIP_ROTATED(a, 32);       \
        c += d;                            \
        d = KSEG_SIP_ROTATED(d, 16) ^ c;   \
        a += d;                            \
        d = KSEG_SIP_ROTATED(d, 21) ^ a;   \
        c += b;                            \
        b = KSEG_SIP_ROTATED(b, 17) ^ c;   \
        c = KSEG_SIP_ROTATED(c, 32);       \
    } while (0)
#define KSEG_SIP_START(a, b, c, d)                                  \
    do {                                                            \
        a ^= 0x736f6d6570736575u, b ^= 0x646f72616e646f6du ^ 0xee;  \
        c ^= 0x6c7967656e657261u, d ^= 0x7465646279746573u;         \
    } while (0)
#define KSEG_SIP_WORD(a, b, c, d, word) \
    do {                                \
        d ^= word;                      \
        KSEG_SIP_ROUND(a, b, c, d);     \
        KSEG_SIP_ROUND(a, b, c, d);     \
        a ^= word;                      \
    } while (0)
#define KSEG_SIP_FOUR_ROUNDS(a, b, c, d) \
    do {                                 \
        KSEG_SIP_ROUND(a, b, c, d);      \
        KSEG_SIP_ROUND(a, b, c, d);      \
        KSEG_SIP_ROUND(a, b, c, d);      \
        KSEG_SIP_ROUND(a, b, c, d);      \
    } while (0)

static inline uint64_t kseg_sip_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* The last word: what is left of the key, and its length. */
static inline uint64_t kseg_sip_rest(const uint8_t *data, int64_t size) {
    const uint8_t *rest = data + (size & ~(int64_t)7);
    uint64_t word = (uint64_t)size << 56;
    for (int i = 0; i < (size & 7); i++)
        word |= (uint64_t)rest[i] << (8 * i);
    return word;
}

static void kseg_sip(const uint8_t *data, int64_t size, const uint64_t *secret, uint64_t *out) {
    uint64_t a = secret[0], b = secret[1], c = secret[0], d = secret[1], word;
    KSEG_SIP_START(a, b, c, d);
    for (int64_t at = 0; at + 8 <= size; at += 8) {
        word = kseg_sip_load(data + at);
        KSEG_SIP_WORD(a, b, c, d, word);
    }
    word = kseg_sip_rest(data, size);
    KSEG_SIP_WORD(a, b, c, d, word);
    c ^= 0xee;
    KSEG_SIP_FOUR_ROUNDS(a, b, c, d);
    out[0] = a ^ b ^ c ^ d;
    b ^= 0xdd;
    KSEG_SIP_FOUR_ROUNDS(a, b, c, d);
    out[1] = a ^ b ^ c ^ d;
}

#ifdef KSEG_SIP_VECTORS
typedef uint64_t kseg_sip_lanes __attribute__((vector_size(32)));

/* The state of four keys. */
typedef struct {
    kseg_sip_lanes a, b, c, d;
} kseg_sip_four;

#define KSEG_SIP_INLINE __attribute__((target("avx2"), always_inline)) static inline

KSEG_SIP_INLINE kseg_sip_four kseg_sip_begin(const uint64_t *secret) {
    const uint64_t k = secret[0], l = secret[1];
    kseg_sip_four s = {{k, k, k, k}, {l, l, l, l}, {k, k, k, k}, {l, l, l, l}};
    KSEG_SIP_START(s.a, s.b, s.c, s.d);
    return s;
}

KSEG_SIP_INLINE void kseg_sip_take(kseg_sip_four *s, const uint8_t *const *data, int64_t at) {
    kseg_sip_lanes word = {kseg_sip_load(data[0] + at), kseg_sip_load(data[1] + at), kseg_sip_load(data[2] + at),
                           kseg_sip_load(data[3] + at)};
    KSEG_SIP_WORD(s->a, s->b, s->c, s->d, word);
}

KSEG_SIP_INLINE void kseg_sip_end(kseg_sip_four *s, const uint8_t *const *data, const int64_t *sizes) {
    kseg_sip_lanes word = {kseg_sip_rest(data[0], sizes[0]), kseg_sip_rest(data[1], sizes[1]),
                           kseg_sip_rest(data[2], sizes[2]), kseg_sip_rest(data[3], sizes[3])};
    KSEG_SIP_WORD(s->a, s->b, s->c, s->d, word);
    s->c ^= 0xee;
    KSEG_SIP_FOUR_ROUNDS(s->a, s->b, s->c, s->d);
}

KSEG_SIP_INLINE void kseg_sip_give(kseg_sip_four *s, uint64_t (*out)[2]) {
    kseg_sip_lanes low = s->a ^ s->b ^ s->c ^ s->d;
    s->b ^= 0xdd;
    KSEG_SIP_FOUR_ROUNDS(s->a, s->b, s->c, s->d);
    kseg_sip_lanes high = s->a ^ s->b ^ s->c ^ s->d;
    for (int i = 0; i < 4; i++)
        out[i][0] = low[i], out[i][1] = high[i];
}

/* Four keys with equally many whole words. */
__attribute__((target("avx2"))) static void kseg_sip_side_by_side(const uint8_t *const *data, const int64_t *sizes,
                                                                  const uint64_t *secret, uint64_t (*out)[2]) {
    kseg_sip_four s = kseg_sip_begin(secret);
    for (int64_t at = 0; at + 8 <= sizes[0]; at += 8)
        kseg_sip_take(&s, data, at);
    kseg_sip_end(&s, data, sizes);
    kseg_sip_give(&s, out);
}

/* Eight of them: the rounds of one half do not wait for those of the other. */
__attribute__((target("avx2"))) static void kseg_sip_in_two_rows(const uint8_t *const *data, const int64_t *sizes,
                                                                 const uint64_t *secret, uint64_t (*out)[2]) {
    kseg_sip_four s = kseg_sip_begin(secret), t = s;
    for (int64_t at = 0; at + 8 <= sizes[0]; at += 8) {
        kseg_sip_take(&s, data, at);
        kseg_sip_take(&t, data + 4, at);
    }
    kseg_sip_end(&s, data, sizes);
    kseg_sip_end(&t, data + 4, sizes + 4);
    kseg_sip_give(&s, out);
    kseg_sip_give(&t, out + 4);
}

static int kseg_sip_has_vectors(void) { return kseg_cpu_has(KSEG_CPU_AVX2); }
#else
static int kseg_sip_has_vectors(void) { return 0; }
static void kseg_sip_side_by_side(const uint8_t *const *data, const int64_t *sizes, const uint64_t *secret,
                                  uint64_t (*out)[2]) {
    for (int i = 0; i < 4; i++)
        kseg_sip(data[i], sizes[i], secret, out[i]);
}
static void kseg_sip_in_two_rows(const uint8_t *const *data, const int64_t *sizes, const uint64_t *secret,
                                 uint64_t (*out)[2]) {
    kseg_sip_side_by_side(data, sizes, secret, out);
    kseg_sip_side_by_side(data + 4, sizes + 4, secret, out + 4);
}
#endif

/* How many of the keys in front, at most eight, have equally many whole words. */
static inline int64_t kseg_sip_alike(const int64_t *sizes, int64_t count) {
    int64_t alike = 1, most = count < 8 ? count : 8;
    while (alike < most && sizes[alike] >> 3 == sizes[0] >> 3)
        alike++;
    return alike;
}

/* Hash `count` keys, eight or four at a time where `vectors` says so and their lengths are alike. */
static void kseg_sip_all(const uint8_t *const *data, const int64_t *sizes, int64_t count, const uint64_t *secret,
                         int vectors, uint64_t (*out)[2]) {
    for (int64_t i = 0; i < count;) {
        int64_t alike = vectors ? kseg_sip_alike(sizes + i, count - i) : 1;
        if (alike == 8) {
            kseg_sip_in_two_rows(data + i, sizes + i, secret, out + i);
            i += 8;
        } else if (alike >= 4) {
            kseg_sip_side_by_side(data + i, sizes + i, secret, out + i);
            i += 4;
        } else {
            kseg_sip(data[i], sizes[i], secret, out[i]);
            i += 1;
        }
    }
}

/* A number below `limit` from 64 even bits. */
static inline uint64_t kseg_sip_below(uint64_t bits, uint64_t limit) {
    return (uint64_t)(((unsigned __int128)bits * limit) >> 64);
}

#endif
