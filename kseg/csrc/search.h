/* The filter of the search for batches: where can one begin at all? */
#ifndef KSEG_SEARCH_H
#define KSEG_SEARCH_H

#include <stdint.h>

enum {
    KSEG_FILTER_BYTES = 64, /* positions that are looked at together */
    KSEG_LENGTH_MIN = 14,
    KSEG_MAGIC_MAX = 2
};

/* Whether a batch can begin at `p`, by the first byte of its offset, its length and its magic. */
static inline int kseg_may_begin(const uint8_t *p, uint8_t offset_max, uint8_t length_max) {
    return (p[0] <= offset_max) & (p[8] <= length_max) & (p[16] <= KSEG_MAGIC_MAX) &
           (((p[8] | p[9] | p[10]) != 0) | (p[11] >= KSEG_LENGTH_MIN));
}

/* The first position of [position, end) where a batch can begin; `end` for none. The 17 bytes from
 * end - 1 on can be read. */
static inline int64_t kseg_next_begin(const uint8_t *data, int64_t position, int64_t end,
                                      uint8_t offset_max, uint8_t length_max) {
    /* Up to the next border one by one, so that no block is filtered twice. */
    for (; position < end && position % KSEG_FILTER_BYTES != 0; position++) {
        if (kseg_may_begin(data + position, offset_max, length_max)) {
            return position;
        }
    }
    while (end - position >= KSEG_FILTER_BYTES) {
        const uint8_t *p = data + position;
        uint8_t any = 0;
        for (int i = 0; i < KSEG_FILTER_BYTES; i++) { /* becomes a few vector instructions */
            any |= (uint8_t)kseg_may_begin(p + i, offset_max, length_max);
        }
        if (any != 0) {
            break;
        }
        position += KSEG_FILTER_BYTES;
    }
    while (position < end && !kseg_may_begin(data + position, offset_max, length_max)) {
        position++;
    }
    return position;
}

#endif
