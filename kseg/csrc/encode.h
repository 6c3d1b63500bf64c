/* Writing side of bytes.h: sizes and stores of the numbers that batches and messages are made of.
 *
 * A put function answers the position behind what it wrote; the caller has seen to the room.
 * Source: Kafka ByteUtils.
 */
#ifndef KSEG_ENCODE_H
#define KSEG_ENCODE_H

#include "bytes.h"

static inline uint32_t kseg_zigzag32(int32_t value) { return ((uint32_t)value << 1) ^ (0u - ((uint32_t)value >> 31)); }
static inline uint64_t kseg_zigzag64(int64_t value) { return ((uint64_t)value << 1) ^ (0u - ((uint64_t)value >> 63)); }

/* Bytes of an unsigned variable-length integer, 1 to 10: one for each seven bits begun. */
static inline uint32_t kseg_uvarint_size(uint64_t value) {
    return ((64u - (uint32_t)__builtin_clzll(value | 1)) * 9 + 64) >> 6;
}
static inline uint32_t kseg_varint_size(int32_t value) { return kseg_uvarint_size(kseg_zigzag32(value)); }
static inline uint32_t kseg_varlong_size(int64_t value) { return kseg_uvarint_size(kseg_zigzag64(value)); }

static inline uint8_t *kseg_put_uvarint(uint8_t *p, uint64_t value) {
    while (value > 0x7f) {
        *p++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}
static inline uint8_t *kseg_put_varint(uint8_t *p, int32_t value) { return kseg_put_uvarint(p, kseg_zigzag32(value)); }
static inline uint8_t *kseg_put_varlong(uint8_t *p, int64_t value) { return kseg_put_uvarint(p, kseg_zigzag64(value)); }

static inline uint8_t *kseg_put_u16(uint8_t *p, uint16_t value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
    return p + 2;
}
static inline uint8_t *kseg_put_u32(uint8_t *p, uint32_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    memcpy(p, &value, sizeof value);
    return p + 4;
}
static inline uint8_t *kseg_put_u64(uint8_t *p, uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    memcpy(p, &value, sizeof value);
    return p + 8;
}

#endif
