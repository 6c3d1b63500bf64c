/* The search for bytes that records have to hold.
 *
 * The C library finds bytes as they are. Where the case of letters does not count, two bytes of the needle that are rare in
 * records are compared at 64 positions together, which the compiler turns into a few vector instructions; the whole needle
 * is compared where both fit. Needles of one byte have the same byte twice.
 */
#ifndef KSEG_NEEDLE_H
#define KSEG_NEEDLE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    KSEG_SEARCHED_AT = 64,     /* positions that are looked at together */
    KSEG_RARE_WITHIN = 4096, /* the two bytes are among so many of the needle's first */
    KSEG_COMPARED_MAX = 64   /* times the bytes of data, in which the needle is compared with them */
};

typedef struct {
    const uint8_t *bytes; /* small letters, if it folds */
    int64_t size;         /* 0: there is no needle */
    int64_t rare[2];      /* places of two bytes in it */
    int folds;            /* the case of ASCII letters does not count */
} kseg_needle;

static inline uint8_t kseg_small(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c; }

static inline uint8_t kseg_capital(uint8_t c) { return c >= 'a' && c <= 'z' ? (uint8_t)(c & 0xdf) : c; }

/* How common a byte is in records: text, JSON, small numbers. */
static int kseg_commonness(uint8_t c) {
    static const char common[] = "etaoinsr\"01l,:dc2-345678u9mpf.h_g/bvyw{}kTSACxEDIRNOPLMzjUGFqHBV[]=";
    const char *found = (const char *)memchr(common, c, sizeof common - 1);
    if (c == 0 || c == ' ')
        return 256;
    if (found == NULL && c < 8)
        return 128;
    return found == NULL ? c != kseg_capital(c) : (int)(sizeof common - (size_t)(found - common));
}

static kseg_needle kseg_needle_of(const uint8_t *bytes, int64_t size, int folds) {
    kseg_needle needle = {bytes, size, {0, 0}, folds};
    int least[2] = {1 << 10, 1 << 10};
    for (int64_t i = 0; i < size && i < KSEG_RARE_WITHIN; i++) {
        int common = kseg_commonness(bytes[i]);
        if (common < least[0]) {
            needle.rare[1] = needle.rare[0];
            least[1] = least[0];
            needle.rare[0] = i;
            least[0] = common;
        } else if (common < least[1]) {
            needle.rare[1] = i;
            least[1] = common;
        }
    }
    return needle;
}

static inline int kseg_is_needle(const kseg_needle *needle, const uint8_t *p) {
    for (int64_t i = 0; i < needle->size; i++)
        if (kseg_small(p[i]) != needle->bytes[i])
            return 0;
    return 1;
}

/* The same search in linear time, for data in which the needle begins almost everywhere. The bytes are copied; without
 * memory for that the answer is their end, which is no place of a needle. */
static const uint8_t *kseg_find_steadily(const kseg_needle *needle, const uint8_t *p, const uint8_t *end) {
    const size_t size = (size_t)(end - p);
    uint8_t *small = (uint8_t *)malloc(size + 1);
    if (small == NULL)
        return end;
    for (size_t i = 0; i < size; i++)
        small[i] = kseg_small(p[i]);
    const uint8_t *found = (const uint8_t *)memmem(small, size, needle->bytes, (size_t)needle->size);
    const uint8_t *answer = found == NULL ? NULL : p + (found - small);
    free(small);
    return answer;
}

/* Where the needle begins in [p, end); NULL for nowhere, `end` for no memory. Nothing outside is read. */
static const uint8_t *kseg_find_folded(const kseg_needle *needle, const uint8_t *p, const uint8_t *end) {
    const int64_t at = needle->rare[0], behind = needle->rare[1];
    const uint8_t a = needle->bytes[at], b = needle->bytes[behind];
    const uint8_t other_a = kseg_capital(a), other_b = kseg_capital(b);
    const uint8_t *start = p;
    int64_t left = end - p - needle->size + 1, compared = 0; /* places at which it may begin */
    for (; left >= KSEG_SEARCHED_AT; p += KSEG_SEARCHED_AT, left -= KSEG_SEARCHED_AT) {
        const uint8_t *first = p + at, *second = p + behind;
        uint8_t fits[KSEG_SEARCHED_AT], any = 0;
        for (int i = 0; i < KSEG_SEARCHED_AT; i++) { /* becomes a few vector instructions */
            fits[i] = (uint8_t)((first[i] == a) | (first[i] == other_a)) &
                      (uint8_t)((second[i] == b) | (second[i] == other_b));
            any |= fits[i];
        }
        if (any == 0)
            continue;
        for (int i = 0; i < KSEG_SEARCHED_AT; i++) {
            if (!fits[i])
                continue;
            if (kseg_is_needle(needle, p + i))
                return p + i;
            compared += needle->size;
        }
        if (compared > KSEG_COMPARED_MAX * (p - start + KSEG_SEARCHED_AT))
            return kseg_find_steadily(needle, p + KSEG_SEARCHED_AT, end);
    }
    for (; left > 0; p++, left--)
        if (kseg_is_needle(needle, p))
            return p;
    return NULL;
}

static const uint8_t *kseg_find(const kseg_needle *needle, const uint8_t *p, const uint8_t *end) {
    if (needle->folds)
        return kseg_find_folded(needle, p, end);
    return (const uint8_t *)memmem(p, (size_t)(end - p), needle->bytes, (size_t)needle->size);
}

#endif
