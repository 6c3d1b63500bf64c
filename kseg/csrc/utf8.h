/* UTF-8: characters and whether bytes are well formed. Source: Unicode 3.9, table 3-7. */
#ifndef KSEG_UTF8_H
#define KSEG_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KSEG_HIGHS 0x8080808080808080ULL

/* How many bytes below 0x80 the data begins with. */
static inline size_t kseg_ascii_run(const uint8_t *data, size_t size) {
    size_t i = 0;
    for (; size - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if ((word & KSEG_HIGHS) != 0)
            break;
    }
    while (i < size && data[i] < 0x80)
        i++;
    return i;
}

/* One character above ASCII: bytes taken, or their negative where they are not well formed. 0 where the bytes are well
 * formed as far as they go but end early. */
static inline ptrdiff_t kseg_take_utf8(const uint8_t *data, ptrdiff_t count, uint32_t *point) {
    uint8_t lead = data[0], low = 0x80, high = 0xBF;
    ptrdiff_t need;
    if (lead >= 0xC2 && lead <= 0xDF) {
        need = 2;
        *point = lead & 0x1Fu;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        need = 3;
        *point = lead & 0x0Fu;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        need = 4;
        *point = lead & 0x07u;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return -1;
    }
    for (ptrdiff_t i = 1; i < need; i++) {
        if (i == count)
            return 0;
        if (data[i] < low || data[i] > high)
            return -i;
        *point = (*point << 6) | (data[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return need;
}

/* Is this well-formed UTF-8? */
static inline int kseg_is_utf8(const uint8_t *data, ptrdiff_t count) {
    ptrdiff_t i = 0, taken;
    uint32_t point;
    while (i < count) {
        if (data[i] < 0x80) {
            i += (ptrdiff_t)kseg_ascii_run(data + i, (size_t)(count - i));
            continue;
        }
        taken = kseg_take_utf8(data + i, count - i, &point);
        if (taken <= 0)
            return 0;
        i += taken;
    }
    return 1;
}

#endif
