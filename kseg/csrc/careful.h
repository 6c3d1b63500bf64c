/* One batch, record by record: how much of it goes into a piece, and what is wrong with it. This is for the batch that
 * ended a pass of `reader.h`, and has one job each call: to count what the next piece holds, or to copy what was counted.
 *
 * A status says what is wrong. The records before it are counted, but of a compressed batch of magic 2
 * only if all of it is sound. The bytes may change under a call: nothing is copied for which no room was counted.
 *
 * Source: Kafka DefaultRecord.readFrom, DefaultRecordBatch.iterator, AbstractLegacyRecordBatch, LegacyRecord.
 */
#ifndef KSEG_CAREFUL_H
#define KSEG_CAREFUL_H

#include "reader.h"

/* Where in a batch a piece begins, and how the one before ended. */
enum {
    KSEG_ONE_RECORD,  /* its number */
    KSEG_ONE_AT,      /* its place in the body */
    KSEG_ONE_CHECKED, /* the batch was looked at as a whole */
    KSEG_ONE_SHIFT,   /* what offsets of messages inside are moved by */
    KSEG_ONE_FIRST,   /* the first message's offset */
    KSEG_ONE_STATUS,  /* what is wrong with the record; KSEG_RECORD_OK */
    KSEG_ONE_FULL,    /* the next record is for another piece */
    KSEG_ONE_FIELDS
};

/* Not a status for people: what was counted is not what lies there now. */
enum { KSEG_CHANGED = -1 };

/* What was counted, or copied. */
typedef struct {
    int64_t rows;
    int64_t headers;
    int64_t bytes[KSEG_OF];
    int64_t nulls[KSEG_OF];
} kseg_tally;

typedef struct {
    const kseg_source *source;
    kseg_batch batch;
    int inner; /* its body was inflated */
    int64_t rows_max;
    int64_t bytes_max;
    kseg_piece *out;        /* NULL to count */
    const kseg_tally *room; /* what was counted */
} kseg_one;

/* The batch of a row, whose body lies in the borrowed bytes, or is inflated: 0, or KSEG_CHANGED where it lies outside. */
static int kseg_one_of(const kseg_source *source, const int64_t *row, const uint8_t *body, int64_t body_size,
                       kseg_one *one) {
    kseg_batch *batch = &one->batch;
    int64_t place = kseg_sub64(row[KSEG_ROW_POSITION], source->base), size = row[KSEG_ROW_SIZE];
    int64_t head = row[KSEG_ROW_MAGIC] < 2 ? 0 : KSEG_HEAD;
    if (place < 0 || place > source->size || size < head || size > source->size - place)
        return KSEG_CHANGED;
    batch->entry = source->data + place;
    batch->size = size;
    batch->end = batch->entry + size;
    batch->room_end = source->data + source->size;
    batch->magic = (int)row[KSEG_ROW_MAGIC];
    kseg_listed_header(row, batch);
    batch->start = batch->entry + head;
    batch->shift = 0;
    batch->compare = source->ask[KSEG_ASK_VERIFY] && row[KSEG_ROW_CRC_OK] < 0;
    if (batch->magic < 2)
        batch->time_type = batch->magic == 0 ? -1 : batch->time_type;
    one->source = source;
    one->inner = body != NULL;
    if (body != NULL) {
        batch->start = body;
        batch->end = batch->room_end = body + body_size;
        batch->compare = batch->magic < 2 && source->ask[KSEG_ASK_VERIFY];
    }
    return 0;
}

/* ---- One record. ---- */

static const uint8_t *kseg_next_record(const kseg_batch *batch, const uint8_t *p, int64_t number, kseg_record *r,
                                       int *status) {
    int32_t length = 0;
    *status = KSEG_RECORD_OK;
    if (number >= batch->count)
        return NULL;
    *status = KSEG_RECORD_COUNT_TOO_HIGH;
    if (p == batch->end)
        return NULL;
    *status = KSEG_RECORD_VARINT;
    p = kseg_varint(p, batch->end, &length);
    if (p == NULL)
        return NULL;
    *status = KSEG_RECORD_LENGTH;
    if (length <= 0 || length > batch->end - p)
        return NULL;
    *status = KSEG_RECORD_LEFTOVER;
    if (number == batch->count - 1 && length != batch->end - p)
        return NULL;
    *status = kseg_parse_record(p, p + length, r);
    return *status == KSEG_RECORD_OK ? p + length : NULL;
}

/* Bytes of the entry at `p`; 0 where an incomplete one ends the set, -1 where its size is impossible. */
static int64_t kseg_entry(const uint8_t *p, const uint8_t *end) {
    if (end - p < KSEG_OVERHEAD)
        return 0;
    int64_t size = kseg_i32(p + 8);
    if (size < KSEG_MESSAGE_MIN - KSEG_OVERHEAD)
        return -1;
    return size <= end - p - KSEG_OVERHEAD ? size + KSEG_OVERHEAD : 0;
}

static int kseg_matches(const kseg_source *source, const uint8_t *p, int64_t size) {
    return source->message_sum(p + KSEG_MESSAGE_COVERED, (size_t)(size - KSEG_MESSAGE_COVERED)) == kseg_u32(p + 12);
}

/* What is wrong with a message that does not parse. */
static int kseg_message_fault(const uint8_t *p, const uint8_t *end) {
    p += p[16] ? 26 : 18;
    if (end - p < 4 || kseg_i32(p) > end - p - 4)
        return KSEG_RECORD_KEY;
    return KSEG_RECORD_VALUE;
}

static const uint8_t *kseg_next_message(const kseg_one *one, const uint8_t *p, kseg_record *r, int *status) {
    int64_t size = kseg_entry(p, one->batch.end);
    *status = size < 0 ? KSEG_MESSAGE_SIZE : KSEG_RECORD_OK;
    if (size <= 0)
        return NULL;
    if (p[16] > 1)
        *status = KSEG_MESSAGE_MAGIC;
    else if (one->inner && (p[17] & 7))
        *status = KSEG_MESSAGE_NESTED;
    else if (one->batch.compare && !kseg_matches(one->source, p, size))
        *status = KSEG_MESSAGE_CRC;
    else if (!kseg_parse_message(p, p + size, r))
        *status = kseg_message_fault(p, p + size);
    r->headers = p + size;
    r->header_count = 0;
    return *status == KSEG_RECORD_OK ? p + size : NULL;
}

/* A value of a column, counted and, where there is a column, copied: 0 or KSEG_CHANGED. */
static int kseg_take_value(const kseg_one *one, kseg_tally *tally, int of, kseg_column *column, int64_t row,
                           const uint8_t *data, int64_t size) {
    if (one->out && size > one->room->bytes[of] - tally->bytes[of])
        return KSEG_CHANGED;
    if (size >= 0)
        tally->bytes[of] += size;
    else
        tally->nulls[of]++;
    if (one->out && column->ends)
        kseg_append(column, row, data, size, one->batch.room_end);
    return 0;
}

/* The headers of a record: a status, or KSEG_CHANGED. */
static int kseg_take_headers(const kseg_one *one, kseg_tally *tally, const kseg_record *r, const uint8_t *end) {
    kseg_column none = {0}, *names = one->out ? &one->out->name : &none, *values = one->out ? &one->out->header : &none;
    const uint8_t *p = r->headers;
    int32_t size = 0;
    if (one->out && r->header_count > one->room->headers - tally->headers)
        return KSEG_CHANGED;
    for (int32_t i = 0; i < r->header_count; i++) {
        p = kseg_varint(p, end, &size);
        if (p == NULL || size < 0 || size > end - p)
            return KSEG_RECORD_HEADER_KEY;
        if (kseg_take_value(one, tally, KSEG_OF_NAME, names, tally->headers, p, size))
            return KSEG_CHANGED;
        p = kseg_varint(p + size, end, &size);
        if (p == NULL || size > end - p)
            return KSEG_RECORD_HEADER_VALUE;
        if (kseg_take_value(one, tally, KSEG_OF_HEADER, values, tally->headers, p, size))
            return KSEG_CHANGED;
        p += size > 0 ? size : 0;
        tally->headers++;
    }
    return p == end ? KSEG_RECORD_OK : KSEG_RECORD_SLACK;
}

/* A record that is wanted, or whose headers are only looked at. */
static int kseg_take_record(const kseg_one *one, kseg_tally *tally, const kseg_record *r, const uint8_t *end) {
    kseg_column none = {0}, *keys = one->out ? &one->out->key : &none, *values = one->out ? &one->out->value : &none;
    int status = r->header_count ? kseg_take_headers(one, tally, r, end) : KSEG_RECORD_OK;
    if (status != KSEG_RECORD_OK)
        return status;
    if (kseg_take_value(one, tally, KSEG_OF_KEY, keys, tally->rows, r->key, r->key_size) ||
        kseg_take_value(one, tally, KSEG_OF_VALUE, values, tally->rows, r->value, r->value_size))
        return KSEG_CHANGED;
    tally->rows++;
    return KSEG_RECORD_OK;
}

/* What of a row is no bytes of the record; it was taken just before. */
static void kseg_describe_row(const kseg_one *one, const kseg_tally *tally, const uint8_t *p, const uint8_t *end,
                              const kseg_record *r, int64_t offset, int64_t timestamp) {
    kseg_piece *out = one->out;
    int64_t row = tally->rows - 1;
    if (out->offsets)
        out->offsets[row] = offset;
    if (out->timestamps)
        out->timestamps[row] = timestamp;
    if (out->lists)
        out->lists[row + 1] = (int32_t)tally->headers;
    if (out->has_value)
        out->has_value[row] = r->value_size >= 0;
    if (out->matches)
        out->matches[row] = !one->inner || one->batch.magic >= 2 || kseg_matches(one->source, p, end - p);
}

/* ---- The records of a piece. ---- */

static int64_t kseg_bytes_of(const kseg_tally *tally) {
    return tally->bytes[KSEG_OF_KEY] + tally->bytes[KSEG_OF_VALUE] + tally->bytes[KSEG_OF_NAME] +
           tally->bytes[KSEG_OF_HEADER];
}

/* Records from a place on, until the piece is full, the batch ends, or one is wrong. The place moves past
 * them. Answers 0, or KSEG_CHANGED. */
static int kseg_take_records(const kseg_one *one, kseg_tally *tally, int64_t *place) {
    const kseg_batch *batch = &one->batch;
    const uint8_t *p = batch->start + place[KSEG_ONE_AT], *stop;
    kseg_one unwanted = *one;
    kseg_record r;
    int status = KSEG_RECORD_OK, legacy = batch->magic < 2;
    unwanted.out = NULL;
    place[KSEG_ONE_FULL] = 0;
    while (one->room == NULL || tally->rows < one->room->rows) {
        kseg_tally before = *tally;
        stop = legacy ? kseg_next_message(one, p, &r, &status)
                      : kseg_next_record(batch, p, place[KSEG_ONE_RECORD], &r, &status);
        if (stop == NULL)
            break;
        int64_t offset = legacy ? kseg_add64(kseg_i64(p), place[KSEG_ONE_SHIFT])
                                : kseg_add64(batch->base_offset, r.offset_delta);
        int64_t timestamp = legacy && p[16] == 0      ? -1
                            : batch->time_type == 1   ? batch->max_timestamp
                            : legacy                  ? kseg_i64(p + 18)
                                                      : kseg_add64(batch->base_timestamp, r.timestamp_delta);
        int wanted = kseg_in_range(one->source, offset, timestamp);
        status = kseg_take_record(wanted ? one : &unwanted, tally, &r, stop);
        if (status != KSEG_RECORD_OK || !wanted)
            *tally = before;
        if (status != KSEG_RECORD_OK)
            break;
        if (wanted && one->out) {
            kseg_describe_row(one, tally, p, stop, &r, offset, timestamp);
        } else if (wanted && (before.rows == one->rows_max ||
                              (kseg_bytes_of(tally) > one->bytes_max && before.rows))) {
            *tally = before;
            place[KSEG_ONE_FULL] = 1;
            break;
        }
        p = stop;
        place[KSEG_ONE_RECORD]++;
    }
    place[KSEG_ONE_AT] = p - batch->start;
    place[KSEG_ONE_STATUS] = status;
    return status == KSEG_CHANGED || (one->room && tally->rows < one->room->rows) ? KSEG_CHANGED : 0;
}

/* What a set's offsets are moved by; a status. */
static int kseg_survey_carefully(const kseg_batch *batch, int64_t *shift) {
    const uint8_t *p = batch->start;
    int64_t size, last = 0, count = 0;
    while ((size = kseg_entry(p, batch->end)) > 0) {
        last = kseg_i64(p);
        count++;
        p += size;
    }
    if (size < 0)
        return KSEG_MESSAGE_SIZE;
    if (count == 0)
        return KSEG_MESSAGE_EMPTY_SET;
    if (batch->magic == 1 && batch->last_offset != 0) {
        if (batch->last_offset < last)
            return KSEG_MESSAGE_OFFSET;
        *shift = kseg_sub64(batch->last_offset, last);
    }
    return KSEG_RECORD_OK;
}

/* What is to be known of a batch before its first record; a status. */
static int kseg_look_at(const kseg_one *one, int64_t *place) {
    const kseg_batch *batch = &one->batch;
    int status = KSEG_RECORD_OK;
    place[KSEG_ONE_FIRST] = batch->base_offset;
    if (batch->magic >= 2) {
        if (batch->compare && kseg_sum_of(one->source, batch) != batch->crc)
            return KSEG_BATCH_CRC;
        return batch->count < 0 ? KSEG_RECORD_COUNT_NEGATIVE : KSEG_RECORD_OK;
    }
    place[KSEG_ONE_FIRST] = batch->last_offset;
    if (one->inner)
        status = kseg_survey_carefully(batch, &place[KSEG_ONE_SHIFT]);
    if (status == KSEG_RECORD_OK && batch->end - batch->start >= KSEG_OVERHEAD)
        place[KSEG_ONE_FIRST] = kseg_add64(kseg_i64(batch->start), place[KSEG_ONE_SHIFT]);
    return status;
}

/* Count the records of the next piece; the place becomes that of the next piece. */
static void kseg_count_records(const kseg_one *one, kseg_tally *tally, int64_t *place) {
    int64_t before[KSEG_ONE_FIELDS];
    int all_or_nothing = one->inner && one->batch.magic >= 2 && !place[KSEG_ONE_CHECKED];
    memset(tally, 0, sizeof *tally);
    place[KSEG_ONE_STATUS] = KSEG_RECORD_OK;
    if (place[KSEG_ONE_AT] == 0 && place[KSEG_ONE_RECORD] == 0) {
        place[KSEG_ONE_FULL] = 0;
        place[KSEG_ONE_STATUS] = kseg_look_at(one, place);
        if (place[KSEG_ONE_STATUS] != KSEG_RECORD_OK)
            return;
    }
    memcpy(before, place, sizeof before);
    kseg_take_records(one, tally, place);
    if (!all_or_nothing)
        return;
    int64_t rest[KSEG_ONE_FIELDS];
    memcpy(rest, place, sizeof rest);
    if (place[KSEG_ONE_FULL]) { /* no record goes out before the others are looked at */
        kseg_one all = *one;
        kseg_tally none = {0};
        all.rows_max = all.bytes_max = INT64_MAX;
        kseg_take_records(&all, &none, rest);
    }
    if (rest[KSEG_ONE_STATUS] != KSEG_RECORD_OK) {
        memcpy(place, before, sizeof before);
        memset(tally, 0, sizeof *tally);
        place[KSEG_ONE_STATUS] = rest[KSEG_ONE_STATUS];
    }
    place[KSEG_ONE_CHECKED] = 1;
}

#endif
