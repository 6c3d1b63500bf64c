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

/* Why a record is refused; the numbers are those of the enum in _core.pxd. */
enum {
    KSEG_RECORD_OK = 0,
    KSEG_RECORD_LENGTH = 4,
    KSEG_RECORD_VARINT = 5,
    KSEG_RECORD_KEY = 6,
    KSEG_RECORD_VALUE = 7,
    KSEG_RECORD_HEADER_COUNT = 8,
    KSEG_RECORD_SLACK = 11
};

/* The fields in front of the headers; `[p, end)` is the record without its length. */
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

/* The same without a check in front of each number, for a record that at least KSEG_RECORD_AHEAD readable bytes
 * follow: its five numbers take 30 bytes at the most, so none is read past them wherever the record pretends to end.
 * Answers 0 where anything is unusual or wrong; the careful form then says what. */
enum { KSEG_RECORD_AHEAD = 48 };

#define KSEG_NUMBER(raw)                                                                                       \
    raw = *p++;                                                                                                \
    if (!KSEG_LIKELY(raw < 0x80)) {                                                                            \
        uint64_t byte_ = *p++;                                                                                 \
        raw = (raw & 0x7f) | (byte_ << 7);                                                                     \
        if (!KSEG_LIKELY(byte_ < 0x80)) {                                                                      \
            byte_ = *p++;                                                                                      \
            raw = (raw & 0x3fff) | (byte_ << 14);                                                              \
            if (byte_ >= 0x80) {                                                                               \
                byte_ = *p++;                                                                                  \
                raw = (raw & 0x1fffff) | (byte_ << 21);                                                        \
                if (byte_ >= 0x80)                                                                             \
                    return 0;                                                                                  \
            }                                                                                                  \
        }                                                                                                      \
    }

static inline __attribute__((always_inline)) int kseg_parse_plain_record(const uint8_t *p, const uint8_t *end,
                                                                         kseg_record *r) {
    uint64_t raw;
    p += 1;
    KSEG_NUMBER(raw)
    r->timestamp_delta = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    KSEG_NUMBER(raw)
    r->offset_delta = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    KSEG_NUMBER(raw)
    r->key_size = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    r->key = p;
    if (r->key_size > 0) {
        if (r->key_size > end - p)
            return 0;
        p += r->key_size;
    }
    KSEG_NUMBER(raw)
    r->value_size = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    r->value = p;
    if (r->value_size > 0) {
        if (r->value_size > end - p)
            return 0;
        p += r->value_size;
    }
    r->headers = p + 1;
    r->header_count = 0;
    return *p == 0 && p + 1 == end;
}

#undef KSEG_NUMBER

#endif
