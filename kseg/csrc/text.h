/* Bytes to text, sixteen at a time: runs that stay as they are, strings of JSON, base64, digits.
 *
 * A run is copied up to the first byte that its kind does not hold as it is; what such a byte becomes is the caller's
 * business. Each function may write up to KSEG_TEXT_SLACK bytes more than it answers for. `readable` is at least `size`:
 * bytes up to there may be read, and do not count. All may be called without the GIL and from any thread;
 * kseg_text_select changes the whole process, and both forms write the same bytes.
 *
 * Sources: RFC 8259 section 7 (JSON), RFC 4648 section 4 (base64); W. Mula, "SSE: conversion to base64".
 */
#ifndef KSEG_TEXT_H
#define KSEG_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"
#include "utf8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define KSEG_FOR_SSE42 __attribute__((target("sse4.2,popcnt")))
#endif

#define KSEG_TEXT_SLACK 16
#define KSEG_LIKELY(x) __builtin_expect(!!(x), 1)
#define KSEG_INLINE static inline __attribute__((always_inline))

/* Which bytes a run holds. */
enum {
    KSEG_ASCII = 0,   /* all below 0x80 */
    KSEG_NO_QUOTE,    /* these but for the quote */
    KSEG_PRINTABLE,   /* 0x20 to 0x7E */
    KSEG_JSON_PLAIN,  /* these but for quote and backslash */
};

#define KSEG_ONES 0x0101010101010101ULL

/* ---- runs that stay as they are ---- */

KSEG_INLINE int kseg_is_plain(uint8_t byte, int kind) {
    if (byte >= 0x80 || (kind != KSEG_ASCII && kind != KSEG_PRINTABLE && byte == 0x22))
        return 0;
    if (kind <= KSEG_NO_QUOTE)
        return 1;
    return byte >= 0x20 && byte != 0x7F && (kind == KSEG_PRINTABLE || byte != 0x5C);
}

/* Highs of the bytes that end a run; after the first of them there may be false ones. */
KSEG_INLINE uint64_t kseg_special_8(uint64_t word, int kind) {
    uint64_t quote = word ^ (KSEG_ONES * 0x22), odd = word;
    if (kind == KSEG_NO_QUOTE || kind == KSEG_JSON_PLAIN)
        odd |= (quote - KSEG_ONES) & ~quote;
    if (kind >= KSEG_PRINTABLE) {
        uint64_t del = word ^ (KSEG_ONES * 0x7F);
        odd |= ((word - KSEG_ONES * 0x20) & ~word) | ((del - KSEG_ONES) & ~del);
    }
    if (kind == KSEG_JSON_PLAIN) {
        uint64_t slash = word ^ (KSEG_ONES * 0x5C);
        odd |= (slash - KSEG_ONES) & ~slash;
    }
    return odd & KSEG_HIGHS;
}

#if defined(__x86_64__)

/* The next bytes, 16 of them if so many may be read, else fewer than 16 and zeros after them. */
KSEG_INLINE __m128i kseg_load(const uint8_t *p, size_t size, size_t readable) {
    if (KSEG_LIKELY(readable >= 16))
        return _mm_loadu_si128((const __m128i *)p);
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        memcpy(&low, p, 8);
        memcpy(&high, p + size - 8, 8);
        high = size == 8 ? 0 : high >> (8 * (16 - size));
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + size - 4, 4);
        low = first | (uint64_t)last << (8 * (size - 4));
    } else if (size > 0) {
        low = p[0] | (uint64_t)p[size / 2] << (8 * (size / 2)) | (uint64_t)p[size - 1] << (8 * (size - 1));
    }
    return _mm_set_epi64x((long long)high, (long long)low);
}

KSEG_INLINE unsigned kseg_special_16(__m128i bytes, int kind) {
    __m128i odd = bytes; /* the sign bit is that of bytes above ASCII */
    if (kind == KSEG_NO_QUOTE || kind == KSEG_JSON_PLAIN)
        odd = _mm_or_si128(odd, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x22)));
    if (kind >= KSEG_PRINTABLE) {
        odd = _mm_or_si128(odd, _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)));
        odd = _mm_or_si128(odd, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7F)));
    }
    if (kind == KSEG_JSON_PLAIN)
        odd = _mm_or_si128(odd, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x5C)));
    return (unsigned)_mm_movemask_epi8(odd);
}

#endif

KSEG_INLINE size_t kseg_copy_kind(char *out, const uint8_t *data, size_t size, size_t readable, int kind) {
    size_t i = 0;
#if defined(__x86_64__)
    for (; i < size; i += 16) {
        __m128i bytes = kseg_load(data + i, size - i, readable - i);
        unsigned odd = kseg_special_16(bytes, kind);
        _mm_storeu_si128((__m128i *)(out + i), bytes);
        if (odd != 0) {
            i += (size_t)__builtin_ctz(odd);
            break;
        }
    }
    if (i > size)
        i = size;
#else
    (void)readable;
    for (; size - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if (kseg_special_8(word, kind) != 0)
            break;
        memcpy(out + i, &word, 8);
    }
    for (; i < size && kseg_is_plain(data[i], kind); i++)
        out[i] = (char)data[i];
#endif
    return i;
}

/* Copy the run that begins here; answers its length. */
static inline size_t kseg_copy_run(char *out, const uint8_t *data, size_t size, size_t readable, int kind) {
    switch (kind) {
    case KSEG_ASCII: return kseg_copy_kind(out, data, size, readable, KSEG_ASCII);
    case KSEG_NO_QUOTE: return kseg_copy_kind(out, data, size, readable, KSEG_NO_QUOTE);
    case KSEG_PRINTABLE: return kseg_copy_kind(out, data, size, readable, KSEG_PRINTABLE);
    default: return kseg_copy_kind(out, data, size, readable, KSEG_JSON_PLAIN);
    }
}

/* ---- strings of JSON ---- */

/* The letter after a backslash, for bytes that have such an escape; else 0. */
static inline char kseg_letter(uint8_t byte) {
    switch (byte) {
    case 0x22: return 0x22;
    case 0x5C: return 0x5C;
    case 0x0A: return 0x6E;
    case 0x0D: return 0x72;
    case 0x09: return 0x74;
    default: return 0;
    }
}

/* Bytes and their two-letter escapes, up to one that wants more than that: answers the bytes taken, and moves `out`. */
static size_t kseg_json(char **out, const uint8_t *data, size_t size, size_t readable) {
    size_t i = 0;
    for (;;) {
        size_t run = kseg_copy_run(*out, data + i, size - i, readable - i, KSEG_JSON_PLAIN);
        *out += run;
        i += run;
        if (i == size || kseg_letter(data[i]) == 0)
            return i;
        (*out)[0] = 0x5C;
        (*out)[1] = kseg_letter(data[i]);
        *out += 2;
        i++;
    }
}

/* ---- base64: all of it, or whole groups of three bytes, as many as are quick; the caller writes the rest ---- */

#if defined(__x86_64__)

/* Twelve bytes a turn: four sextets of each three bytes are moved apart, and each becomes its digit by an addition. */
KSEG_FOR_SSE42 static size_t kseg_base64_sse42(char *out, const uint8_t *data, size_t size, size_t readable) {
    const __m128i spread = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    const __m128i shifts = _mm_setr_epi8(71, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -19, -16, 65, 0, 0);
    size_t i = 0, taken;
    for (; size - i >= 3 && readable - i >= 16; i += taken, out += taken / 3 * 4) {
        taken = size - i >= 12 ? 12 : (size - i) / 3 * 3;
        __m128i in = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + i)), spread);
        __m128i odd = _mm_mulhi_epu16(_mm_and_si128(in, _mm_set1_epi32(0x0FC0FC00)), _mm_set1_epi32(0x04000040));
        __m128i even = _mm_mullo_epi16(_mm_and_si128(in, _mm_set1_epi32(0x003F03F0)), _mm_set1_epi32(0x01000010));
        __m128i sextets = _mm_or_si128(odd, even);
        __m128i range = _mm_subs_epu8(sextets, _mm_set1_epi8(51));
        __m128i capital = _mm_cmpgt_epi8(_mm_set1_epi8(26), sextets);
        range = _mm_or_si128(range, _mm_and_si128(capital, _mm_set1_epi8(13)));
        _mm_storeu_si128((__m128i *)out, _mm_add_epi8(_mm_shuffle_epi8(shifts, range), sextets));
    }
    return i;
}

#endif

/* ---- numbers ---- */

static char kseg_pairs[200];       /* "00" to "99" */
static char kseg_thousand[1000][4]; /* "0" to "999" */

static inline char *kseg_put_pair(char *out, uint32_t value) {
    memcpy(out, kseg_pairs + 2 * (size_t)value, 2);
    return out + 2;
}

static inline char *kseg_put_4(char *out, uint32_t value) {
    kseg_put_pair(out, value / 100);
    return kseg_put_pair(out + 2, value % 100);
}

/* Below 10,000, without zeros in front. */
static inline char *kseg_put_small(char *out, uint32_t value) {
    if (value >= 1000)
        return kseg_put_4(out, value);
    memcpy(out, kseg_thousand[value], 4);
    return out + 1 + (value >= 10) + (value >= 100);
}

static inline char *kseg_put_8(char *out, uint32_t value) {
    kseg_put_4(out, value / 10000);
    return kseg_put_4(out + 4, value % 10000);
}

static inline char *kseg_put_uint(char *out, uint64_t value) {
    if (value >= 100000000) {
        uint64_t high = value / 100000000;
        if (high >= 100000000) {
            out = kseg_put_small(out, (uint32_t)(high / 100000000));
            high %= 100000000;
            out = kseg_put_8(out, (uint32_t)high);
        } else if (high >= 10000) {
            out = kseg_put_4(kseg_put_small(out, (uint32_t)high / 10000), (uint32_t)high % 10000);
        } else {
            out = kseg_put_small(out, (uint32_t)high);
        }
        return kseg_put_8(out, (uint32_t)(value % 100000000));
    }
    if (value >= 10000)
        return kseg_put_4(kseg_put_small(out, (uint32_t)value / 10000), (uint32_t)value % 10000);
    return kseg_put_small(out, (uint32_t)value);
}

/* Text whose bytes lie `KSEG_TEXT_SLACK` before the end of their memory, or further. */
static inline char *kseg_put_padded(char *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i += 16)
        memcpy(out + i, text + i, 16);
    return out + size;
}

/* ---- rows that repeat ---- */

static inline int kseg_ones(uint64_t bits) { return __builtin_popcountll(bits); }

/* Whether the first of them all differ: such columns are seldom worth a closer look. */
#define KSEG_LOOKED_AT 4

KSEG_INLINE uint64_t kseg_changes_of(const char *base, ptrdiff_t stride, size_t itemsize, size_t rows) {
    uint64_t changed = 1, before = 0, value = 0;
    memcpy(&before, base, itemsize);
    for (size_t i = 1; i < rows; i++, before = value) {
        if (i == KSEG_LOOKED_AT && changed == (1U << KSEG_LOOKED_AT) - 1)
            return ~(uint64_t)0;
        memcpy(&value, base + (ptrdiff_t)i * stride, itemsize);
        changed |= (uint64_t)(value != before) << i;
    }
    return changed;
}

/* Of 1 to 64 elements: bits of those that differ from the one before, or of all; the first counts as different. */
static inline uint64_t kseg_changes(const char *base, ptrdiff_t stride, size_t itemsize, size_t rows) {
    switch (itemsize) {
    case 8: return kseg_changes_of(base, stride, 8, rows);
    case 4: return kseg_changes_of(base, stride, 4, rows);
    case 2: return kseg_changes_of(base, stride, 2, rows);
    default: return kseg_changes_of(base, stride, 1, rows);
    }
}

/* ---- the choice ---- */

static int kseg_text_vectors;

static size_t kseg_base64(char *out, const uint8_t *data, size_t size, size_t readable) {
#if defined(__x86_64__)
    if (kseg_text_vectors)
        return kseg_base64_sse42(out, data, size, readable);
#endif
    return (void)out, (void)data, (void)size, (void)readable, 0;
}

/* Take the vector form, if this CPU has it, or leave all to the caller; answers whether the choice could be had. */
static int kseg_text_select(int vectors) {
    if (vectors && !kseg_cpu_has(KSEG_CPU_SSE42 | KSEG_CPU_POPCNT))
        return 0;
    kseg_text_vectors = vectors;
    return 1;
}

/* Build the tables and choose; once, from one thread (module initialisation). */
static void kseg_text_init(void) {
    for (int i = 0; i < 100; i++) {
        kseg_pairs[2 * i] = (char)(48 + i / 10);
        kseg_pairs[2 * i + 1] = (char)(48 + i % 10);
    }
    for (int i = 0; i < 1000; i++) {
        char *text = kseg_thousand[i];
        if (i >= 100)
            *text++ = (char)(48 + i / 100);
        if (i >= 10)
            *text++ = (char)(48 + i / 10 % 10);
        *text = (char)(48 + i % 10);
    }
    kseg_text_select(1);
}

#endif
