/* One record of a magic 2 batch, located: the loop over records inlines this, so that nothing goes through memory.
 *
 *   length varint | attributes 1 | timestamp delta varlong | offset delta varint
 *   | key length varint, key | value length varint, value | header count varint, headers
 *
 * A negative key or value length is null. Source: Kafka DefaultRecord.readFrom.
 */
#ifndef KSEG_RECORDS_H
#define KSEG_RECORDS_H

#include "bytes.h"

typedef struct {
    int64_t timestamp_delta;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;
    int32_t offset_delta;
    int32_t key_size;
    int32_t value_size;
    int32_t header_count;
} kseg_record;

enum { KSEG_RECORD_MIN = 7 }; /* the least bytes of a record */

/* Why a record is refused; the numbers are those of the enum in _core.pxd. */
enum {
    KSEG_RECORD_OK,
    KSEG_RECORD_COUNT_NEGATIVE,
    KSEG_RECORD_COUNT_TOO_HIGH,
    KSEG_RECORD_LEFTOVER,
    KSEG_RECORD_LENGTH,
    KSEG_RECORD_VARINT,
    KSEG_RECORD_KEY,
    KSEG_RECORD_VALUE,
    KSEG_RECORD_HEADER_COUNT,
    KSEG_RECORD_HEADER_KEY,
    KSEG_RECORD_HEADER_VALUE,
    KSEG_RECORD_SLACK,
    KSEG_MESSAGE_SIZE,
    KSEG_MESSAGE_CRC,
    KSEG_MESSAGE_EMPTY_SET,
    KSEG_MESSAGE_OFFSET,
    KSEG_MESSAGE_NESTED,
    KSEG_MESSAGE_MAGIC,
    KSEG_BATCH_CRC
};

/* The fields before the headers; `[p, end)` is the record without its length. */
static inline __attribute__((always_inline)) int kseg_parse_record(const uint8_t *p, const uint8_t *end,
                                                                   kseg_record *r) {
    if (p == end)
        return KSEG_RECORD_LENGTH;
    p = kseg_varlong(p + 1, end, &r->timestamp_delta);
    if (!KSEG_LIKELY(p != NULL))
        return KSEG_RECORD_VARINT;
    p = kseg_varint(p, end, &r->offset_delta);
    if (!KSEG_LIKELY(p != NULL))
        return KSEG_RECORD_VARINT;
    p = kseg_varint(p, end, &r->key_size);
    if (!KSEG_LIKELY(p != NULL))
        return KSEG_RECORD_VARINT;
    r->key = p;
    if (r->key_size > 0) {
        if (!KSEG_LIKELY(r->key_size <= end - p))
            return KSEG_RECORD_KEY;
        p += r->key_size;
    }
    p = kseg_varint(p, end, &r->value_size);
    if (!KSEG_LIKELY(p != NULL))
        return KSEG_RECORD_VARINT;
    r->value = p;
    if (r->value_size > 0) {
        if (!KSEG_LIKELY(r->value_size <= end - p))
            return KSEG_RECORD_VALUE;
        p += r->value_size;
    }
    p = kseg_varint(p, end, &r->header_count);
    if (!KSEG_LIKELY(p != NULL))
        return KSEG_RECORD_VARINT;
    r->headers = p;
    if (KSEG_LIKELY(r->header_count == 0))
        return KSEG_LIKELY(p == end) ? KSEG_RECORD_OK : KSEG_RECORD_SLACK;
    if (r->header_count < 0 || r->header_count > end - p)
        return KSEG_RECORD_HEADER_COUNT;
    return KSEG_RECORD_OK;
}

/* A record of any shape: its end, or NULL where anything is wrong. */
KSEG_INLINE const uint8_t *kseg_any_record(const uint8_t *p, const uint8_t *end, kseg_record *r) {
    int32_t length = 0;
    p = kseg_varint(p, end, &length);
    if (!KSEG_LIKELY(p != NULL && length > 0 && length <= end - p))
        return NULL;
    return KSEG_LIKELY(kseg_parse_record(p, p + length, r) == KSEG_RECORD_OK) ? p + length : NULL;
}

/* A whole record of the common shape, its length included: small numbers, no negative ones but null (-1), and no
 * headers unless it may be `headed`; those are left to the caller. The end of the record, or NULL where anything is
 * unusual or wrong; the careful form above then says what.
 *
 * The first five numbers take 11 bytes at the most, so sixteen readable ones need no further check; the rest is held
 * against the record's own end. */
#define KSEG_SMALL(raw)                                                                                        \
    raw = *p++;                                                                                                \
    if (!KSEG_LIKELY(raw < 0x80)) {                                                                            \
        uint32_t next_ = *p++;                                                                                 \
        if (!KSEG_LIKELY(next_ < 0x80))                                                                        \
            return NULL;                                                                                       \
        raw = (raw & 0x7f) | (next_ << 7);                                                                     \
    }

static inline __attribute__((always_inline)) const uint8_t *kseg_small_record(const uint8_t *p, const uint8_t *end,
                                                                              kseg_record *r, int headed) {
    uint32_t raw;
    if (!KSEG_LIKELY(end - p >= 16))
        return NULL;
    KSEG_SMALL(raw)
    const uint8_t *stop = p + (raw >> 1);
    if (!KSEG_LIKELY(!(raw & 1) && (int64_t)(raw >> 1) <= end - p && raw >= 14))
        return NULL;
    p += 1;
    raw = *p++;
    if (!KSEG_LIKELY(raw < 0x80)) {
        uint32_t next = *p++;
        raw = (raw & 0x7f) | (next << 7);
        if (!KSEG_LIKELY(next < 0x80)) {
            next = *p++;
            raw = (raw & 0x3fff) | (next << 14);
            if (!KSEG_LIKELY(next < 0x80))
                return NULL;
        }
    }
    r->timestamp_delta = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    KSEG_SMALL(raw)
    r->offset_delta = (int32_t)(raw >> 1);
    if (!KSEG_LIKELY(!(raw & 1)))
        return NULL;
    KSEG_SMALL(raw)
    r->key = p;
    r->key_size = (int32_t)(raw >> 1);
    if (!KSEG_LIKELY(!(raw & 1))) {
        if (raw != 1)
            return NULL;
        r->key_size = -1;
        raw = 0;
    }
    if (!KSEG_LIKELY(stop - p >= (int64_t)(raw >> 1) + 2))
        return NULL;
    p += raw >> 1;
    KSEG_SMALL(raw)
    r->value = p;
    r->value_size = (int32_t)(raw >> 1);
    if (!KSEG_LIKELY(!(raw & 1))) {
        if (raw != 1)
            return NULL;
        r->value_size = -1;
        raw = 0;
    }
    r->headers = stop;
    r->header_count = 0;
    if (!headed)
        return KSEG_LIKELY(p + (raw >> 1) + 1 == stop && stop[-1] == 0) ? stop : NULL;
    if (!KSEG_LIKELY(stop - p > (int64_t)(raw >> 1)))
        return NULL;
    p += raw >> 1;
    raw = *p++;
    r->headers = p;
    r->header_count = (int32_t)(raw >> 1);
    if (!KSEG_LIKELY(!(raw & 0x81) && r->header_count <= stop - p))
        return NULL;
    return KSEG_LIKELY(raw != 0 || p == stop) ? stop : NULL;
}

/* The same for a record without headers. */
static inline __attribute__((always_inline)) const uint8_t *kseg_plain_record(const uint8_t *p, const uint8_t *end,
                                                                              kseg_record *r) {
    return kseg_small_record(p, end, r, 0);
}

#undef KSEG_SMALL

enum { KSEG_RECORDS_AHEAD = 8 };

/* A checksum fetches a batch for the records after it. Where none is compared, what comes so many records on is asked
 * for, and the next header: the first lines, since where long records begin is what a loop waits for. */
KSEG_INLINE void kseg_fetch_on(const uint8_t *p, const uint8_t *stop) {
    uintptr_t next = (uintptr_t)p + KSEG_RECORDS_AHEAD * (uintptr_t)(stop - p);
    __builtin_prefetch((const void *)next);
    __builtin_prefetch((const void *)(next + 64));
}

#endif
