/* A raw block of snappy, inflated: literals and copies, each after a tag byte.
 *
 *     tag bits 1-0   00 literal: bits 7-2 are its length - 1, or 60 to 63 where that follows in 1 to 4 bytes
 *                    01 copy:    bits 4-2 are its length - 4, bits 7-5 and one byte are how far back
 *                    10, 11:     bits 7-2 are its length - 1, 2 or 4 bytes are how far back
 *
 * Nothing is read or written outside the buffers. Where sixteen bytes more are free, whole vectors are copied.
 * Numbers are little-endian. Source: snappy's format_description.txt.
 */

#ifndef KSEG_SNAPPY_H
#define KSEG_SNAPPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KSEG_SNAPPY_VECTOR = 16, KSEG_SNAPPY_COPY_MAX = 64, KSEG_SNAPPY_INLINE_MAX = 60 };

static inline size_t kseg_snappy_number(const uint8_t *p, size_t width) {
    size_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (size_t)p[i] << (8 * i);
    return value;
}

/* Copy what lies `back` bytes before `to`, which may overlap it; `room` bytes may be written. */
static inline void kseg_snappy_copy(uint8_t *to, size_t back, size_t length, size_t room) {
    const uint8_t *from = to - back;
    if (back >= KSEG_SNAPPY_VECTOR && room >= KSEG_SNAPPY_COPY_MAX) {
        for (size_t i = 0; i < length; i += KSEG_SNAPPY_VECTOR)
            memcpy(to + i, from + i, KSEG_SNAPPY_VECTOR);
    } else if (back >= 8 && room >= KSEG_SNAPPY_COPY_MAX) {
        for (size_t i = 0; i < length; i += 8)
            memcpy(to + i, from + i, 8);
    } else {
        for (size_t i = 0; i < length; i++)
            to[i] = from[i];
    }
}

/* Inflate the elements of a block, without the size before it, to exactly `room` bytes; whether they are sound. */
static inline int kseg_snappy(const uint8_t *p, size_t size, uint8_t *out, size_t room) {
    const uint8_t *end = p + size;
    uint8_t *to = out, *stop = out + room;
    while (p < end) {
        unsigned tag = *p++;
        size_t length = (tag >> 2) + 1, width = tag & 3, back;
        if (width == 0) {
            if (length <= KSEG_SNAPPY_VECTOR && end - p >= KSEG_SNAPPY_VECTOR && stop - to >= KSEG_SNAPPY_VECTOR) {
                memcpy(to, p, KSEG_SNAPPY_VECTOR);
            } else {
                if (length > KSEG_SNAPPY_INLINE_MAX) {
                    width = length - KSEG_SNAPPY_INLINE_MAX;
                    if ((size_t)(end - p) < width)
                        return 0;
                    length = kseg_snappy_number(p, width) + 1;
                    p += width;
                }
                if (length > (size_t)(end - p) || length > (size_t)(stop - to))
                    return 0;
                memcpy(to, p, length);
            }
            p += length;
            to += length;
            continue;
        }
        if (width == 3)
            width = 4;
        if ((size_t)(end - p) < width)
            return 0;
        back = kseg_snappy_number(p, width);
        p += width;
        if (width == 1) {
            length = ((tag >> 2) & 7) + 4;
            back |= (size_t)(tag >> 5) << 8;
        }
        if (back == 0 || back > (size_t)(to - out) || length > (size_t)(stop - to))
            return 0;
        kseg_snappy_copy(to, back, length, (size_t)(stop - to));
        to += length;
    }
    return to == stop;
}

#endif
