/* Writing side of bytes.h: sizes and stores of the numbers that batches and messages are made of.
 *
 * A put function answers the position after what it wrote; the caller has made sure of the room.
 * Source: Kafka ByteUtils.
 */
#ifndef KSEG_ENCODE_H
#define KSEG_ENCODE_H

#include "bytes.h"

static inline uint32_t kseg_zigzag32(int32_t value) { return ((uint32_t)value << 1) ^ (0u - ((uint32_t)value >> 31)); }
static inline uint64_t kseg_zigzag64(int64_t value) { return ((uint64_t)value << 1) ^ (0u - ((uint64_t)value >> 63)); }

/* Bytes of an unsigned variable-length integer, 1 to 10: one for each seven bits begun. The lengths that records are
 * made of are predicted; counting zeros costs as much as a record on some processors. */
static __attribute__((noinline)) uint32_t kseg_uvarint_size_slow(uint64_t value) {
    return ((64u - (uint32_t)__builtin_clzll(value | 1)) * 9 + 64) >> 6;
}
static inline __attribute__((always_inline)) uint32_t kseg_uvarint_size(uint64_t value) {
    if (KSEG_LIKELY(value < 0x80))
        return 1;
    return KSEG_LIKELY(value < 0x4000) ? 2 : kseg_uvarint_size_slow(value);
}
static inline uint32_t kseg_varint_size(int32_t value) { return kseg_uvarint_size(kseg_zigzag32(value)); }
static inline uint32_t kseg_varlong_size(int64_t value) { return kseg_uvarint_size(kseg_zigzag64(value)); }

/* Bytes of a value with its length; null (-1) has a length only. */
static inline __attribute__((always_inline)) int64_t kseg_sized(int64_t size) {
    return KSEG_LIKELY(size >= 0) ? size + kseg_uvarint_size((uint64_t)size << 1) : 1;
}

static __attribute__((noinline)) uint8_t *kseg_put_uvarint_slow(uint8_t *p, uint64_t value) {
    while (value > 0x7f) {
        *p++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}
/* One and two bytes by predicted branches; other lengths are rare in records. */
static inline __attribute__((always_inline)) uint8_t *kseg_put_uvarint(uint8_t *p, uint64_t value) {
    if (KSEG_LIKELY(value < 0x80)) {
        *p = (uint8_t)value;
        return p + 1;
    }
    if (KSEG_LIKELY(value < 0x4000)) {
        p[0] = (uint8_t)(value | 0x80);
        p[1] = (uint8_t)(value >> 7);
        return p + 2;
    }
    return kseg_put_uvarint_slow(p, value);
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

/* Copies `size` bytes and touches no other: up to 256 go as two halves that overlap, so that neither side needs spare
 * bytes and no loop asks how many are left. */
static inline __attribute__((always_inline)) uint8_t *kseg_put_bytes(uint8_t *p, const uint8_t *from, size_t size) {
    uint8_t *end = p + size;
    const uint8_t *last = from + size;
    if (size > 32) {
        if (KSEG_LIKELY(size <= 128)) {
            memcpy(p, from, 32);
            if (size > 64) {
                memcpy(p + 32, from + 32, 32);
                memcpy(end - 64, last - 64, 32);
            }
            memcpy(end - 32, last - 32, 32);
        } else {
            memcpy(p, from, size);
        }
    } else if (size >= 16) {
        memcpy(p, from, 16);
        memcpy(end - 16, last - 16, 16);
    } else if (size >= 8) {
        memcpy(p, from, 8);
        memcpy(end - 8, last - 8, 8);
    } else if (size >= 4) {
        memcpy(p, from, 4);
        memcpy(end - 4, last - 4, 4);
    } else if (size > 0) {
        p[0] = from[0];
        p[size >> 1] = from[size >> 1];
        end[-1] = last[-1];
    }
    return end;
}

/* The header of a magic 2 batch; the checksum is left at zero until the rest is there.
 * Source: Kafka DefaultRecordBatch.writeHeader. */
typedef struct {
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t leader_epoch;
    int32_t base_sequence;
    int32_t count;
    int16_t attributes;
    int16_t producer_epoch;
} kseg_batch_header;

#define KSEG_BATCH_HEADER_BYTES 61

/* `size` is that of the whole batch. */
static inline void kseg_put_batch_header(uint8_t *p, const kseg_batch_header *h, uint32_t size) {
    p = kseg_put_u64(p, (uint64_t)h->base_offset);
    p = kseg_put_u32(p, size - 12);
    p = kseg_put_u32(p, (uint32_t)h->leader_epoch);
    *p++ = 2;
    p = kseg_put_u32(p, 0);
    p = kseg_put_u16(p, (uint16_t)h->attributes);
    p = kseg_put_u32(p, (uint32_t)((uint64_t)h->last_offset - (uint64_t)h->base_offset));
    p = kseg_put_u64(p, (uint64_t)h->base_timestamp);
    p = kseg_put_u64(p, (uint64_t)h->max_timestamp);
    p = kseg_put_u64(p, (uint64_t)h->producer_id);
    p = kseg_put_u16(p, (uint16_t)h->producer_epoch);
    p = kseg_put_u32(p, (uint32_t)h->base_sequence);
    kseg_put_u32(p, (uint32_t)h->count);
}

#endif
