/* The records of a magic 2 batch where they lie, and a batch rewritten of those that stay.
 *
 * A record whose bytes are those that Kafka writes for it is copied; of its numbers only the timestamp delta, and with it
 * the record's length, may have to change. What is longer than needed or otherwise unusual is left to those who read
 * columns.
 *
 * Source: Kafka DefaultRecord.readFrom, DefaultRecord.writeTo.
 */
#ifndef KSEG_LOCATE_H
#define KSEG_LOCATE_H

#include "encode.h"
#include "records.h"

/* A record ends where the next one starts; after the last one there is another start. */
typedef struct {
    const uint8_t *start; /* its length */
    const uint8_t *key;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size; /* negative for null */
    int32_t value_size;
} kseg_located;

enum {
    /* A number of this size or more may have bits in its last byte that do not count. */
    KSEG_EXACT_MAX = 1 << 27,
    KSEG_LONG_MAX = 10,
    /* By so much a record may grow: its timestamp delta, and its length. */
    KSEG_GROWTH_MAX = 12,
    /* What is written after the end of a batch, and is overwritten or left. */
    KSEG_LOCATE_SPARE = 64
};

/* Whether the headers of a record end where it ends; and the bytes that they need, with their count. */
static int kseg_pass_headers(const kseg_record *r, const uint8_t *end, int64_t *needed) {
    const uint8_t *p = r->headers;
    int32_t size = 0;
    *needed = kseg_varint_size(r->header_count);
    for (int32_t i = 0; i < 2 * r->header_count; i++) {
        p = kseg_varint(p, end, &size);
        if (p == NULL || size > end - p || (size < 0 && i % 2 == 0))
            return 0;
        *needed += size < -1 ? KSEG_EXACT_MAX : kseg_sized(size);
        p += size > 0 ? size : 0;
    }
    return p == end;
}

/* Whether a record has the bytes that Kafka writes. No form of a number is shorter than that, so that all of them are
 * if the record is as long as it needs to be. */
KSEG_INLINE int kseg_is_exact(const uint8_t *p, const uint8_t *stop, const kseg_record *r, int64_t headers) {
    int64_t timestamp = kseg_varlong_size(r->timestamp_delta);
    int64_t body = 1 + timestamp + kseg_uvarint_size((uint64_t)(uint32_t)r->offset_delta << 1) +
                   kseg_sized(r->key_size) + kseg_sized(r->value_size) + headers;
    int64_t length = kseg_uvarint_size((uint64_t)body << 1);
    return KSEG_LIKELY(length + body == stop - p && p[length] == 0 && r->key_size >= -1 && r->value_size >= -1 &&
                       (uint32_t)r->offset_delta < KSEG_EXACT_MAX && body < KSEG_EXACT_MAX && timestamp < KSEG_LONG_MAX);
}

/* Finds `count` records, which must be all that lies there: whether they are sound.
 *
 * `exact` asks for more: their bytes are those that Kafka writes, and their offsets rise. */
KSEG_INLINE int kseg_locate_as(const uint8_t *p, const uint8_t *end, int64_t count, kseg_located *out, int exact) {
    kseg_record r;
    int headed = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < count; i++, out++) {
        int64_t headers = 1;
        const uint8_t *stop = headed ? kseg_small_record(p, end, &r, 1) : kseg_plain_record(p, end, &r);
        if (!KSEG_LIKELY(stop != NULL)) {
            stop = kseg_any_record(p, end, &r);
            if (stop == NULL)
                return 0;
            headed = r.header_count != 0;
        }
        if (r.header_count != 0 && !kseg_pass_headers(&r, stop, &headers))
            return 0;
        if (exact && !KSEG_LIKELY(r.offset_delta > last && kseg_is_exact(p, stop, &r, headers)))
            return 0;
        last = r.offset_delta;
        kseg_fetch_on(p, stop);
        out->start = p;
        out->key = r.key;
        out->timestamp_delta = r.timestamp_delta;
        out->offset_delta = r.offset_delta;
        out->key_size = r.key_size;
        out->value_size = r.value_size;
        p = stop;
    }
    out->start = p;
    return p == end;
}

static __attribute__((noinline)) int kseg_locate(const uint8_t *p, const uint8_t *end, int64_t count,
                                                 kseg_located *out) {
    return kseg_locate_as(p, end, count, out, 0);
}

static __attribute__((noinline)) int kseg_locate_exact(const uint8_t *p, const uint8_t *end, int64_t count,
                                                       kseg_located *out) {
    return kseg_locate_as(p, end, count, out, 1);
}

/* Writes the records that stay, of those that `kseg_locate_exact` found, each timestamp delta larger by `shift`; answers
 * the position after them. There is room for each record grown, and spare room after. */
static uint8_t *kseg_put_located(const kseg_located *r, int64_t count, const uint8_t *kept, int64_t shift, uint8_t *p) {
    const uint8_t *end = r[count].start;
    for (int64_t i = 0; i < count; i++) {
        if (!kept[i])
            continue;
        const uint8_t *from = r[i].start, *stop = r[i + 1].start;
        if (shift != 0) {
            int64_t delta = kseg_add64(r[i].timestamp_delta, shift);
            from = r[i].key - kseg_varint_size(r[i].key_size) -
                   kseg_uvarint_size((uint64_t)(uint32_t)r[i].offset_delta << 1);
            int64_t body = 1 + (int64_t)kseg_varlong_size(delta) + (stop - from);
            p = kseg_put_uvarint(p, (uint64_t)body << 1);
            *p++ = 0;
            p = kseg_put_varlong(p, delta);
        }
        kseg_copy(p, from, (size_t)(stop - from), (size_t)(end - from));
        p += stop - from;
    }
    return p;
}

#endif
