/* The records of a magic 2 batch, written: the loop over columns of records.
 *
 * A column of byte strings comes as a tuple of bytes objects and None, or in Arrow's layout. The loop is written once
 * and made three times: for tuples, for plain columns, and for everything else (nulls, headers, a mixture), so that
 * the common ones ask nothing in vain.
 *
 * A bytes object never changes and the tuple keeps it alive, so that both may be read without the GIL. The numbers of
 * a column may be changed by another thread meanwhile: each is read once and held against its data and the buffer.
 *
 * Source: Kafka DefaultRecord.writeTo, MemoryRecordsBuilder.appendWithOffset.
 */
#ifndef KSEG_WRITE_H
#define KSEG_WRITE_H

#include <Python.h>

#include "encode.h"

typedef struct {
    PyObject **items;
    const int32_t *offsets;
    const uint8_t *data;
    int64_t data_bytes;
    const uint8_t *validity;
} kseg_field;

/* All columns of records; NULL where one is not given. */
typedef struct {
    const int64_t *offsets;
    const int64_t *timestamps;
    kseg_field key;
    kseg_field value;
    const int32_t *headers;
    int64_t header_count;
    kseg_field header_key;
    kseg_field header_value;
} kseg_columns;

/* Why a record is not written; the messages are in kseg.format.encode. */
enum {
    KSEG_WRITE_OK = 0,
    KSEG_WRITE_OFFSET_ORDER,
    KSEG_WRITE_OFFSET_RANGE,
    KSEG_WRITE_TIMESTAMP,
    KSEG_WRITE_HEADERS,
    KSEG_WRITE_RECORD_SIZE,
    KSEG_WRITE_BATCH_SIZE,
    KSEG_WRITE_NAME_NULL,
    KSEG_WRITE_PAYLOAD_NULL,
    KSEG_WRITE_LAST_OFFSET,
    KSEG_WRITE_COLUMN,
    KSEG_WRITE_TYPE,
    KSEG_WRITE_CHANGED,
    /* The caller does not see these: the batch, or the buffer, is full. */
    KSEG_WRITE_FULL,
    KSEG_WRITE_ROOM
};

/* What kseg_take answers instead of a size. */
enum { KSEG_NULL_VALUE = -1, KSEG_BAD_COLUMN = -2, KSEG_BAD_TYPE = -3 };

/* How keys and values are given. */
enum { KSEG_ANY, KSEG_ITEMS, KSEG_COLUMNS };

/* Size and place of a value. */
static inline __attribute__((always_inline)) int64_t kseg_take(const kseg_field *field, int64_t row, int form,
                                                               const uint8_t **at) {
    if (form == KSEG_COLUMNS || (form == KSEG_ANY && field->offsets != NULL)) {
        int64_t start = field->offsets[row];
        int64_t size = field->offsets[row + 1] - start;
        if (!KSEG_LIKELY((start | size) >= 0 && size <= field->data_bytes - start))
            return KSEG_BAD_COLUMN;
        if (form == KSEG_ANY && field->validity != NULL && !(field->validity[row >> 3] >> (row & 7) & 1))
            return KSEG_NULL_VALUE;
        *at = field->data + start;
        return size;
    }
    if (form == KSEG_ANY && field->items == NULL)
        return KSEG_NULL_VALUE;
    PyObject *item = field->items[row];
    if (!KSEG_LIKELY(PyBytes_CheckExact(item))) {
        if (item == Py_None)
            return KSEG_NULL_VALUE;
        if (!PyBytes_Check(item))
            return KSEG_BAD_TYPE;
    }
    *at = (const uint8_t *)PyBytes_AS_STRING(item);
    return PyBytes_GET_SIZE(item);
}

/* The status for what kseg_take answered, if it is no size. */
static inline int kseg_refusal(int64_t size) {
    if (size >= KSEG_NULL_VALUE)
        return KSEG_WRITE_OK;
    return size == KSEG_BAD_COLUMN ? KSEG_WRITE_COLUMN : KSEG_WRITE_TYPE;
}

static inline int kseg_form_of(const kseg_columns *rows) {
    if (rows->headers != NULL || rows->key.validity != NULL || rows->value.validity != NULL)
        return KSEG_ANY;
    if (rows->key.items != NULL && rows->value.items != NULL)
        return KSEG_ITEMS;
    return rows->key.offsets != NULL && rows->value.offsets != NULL ? KSEG_COLUMNS : KSEG_ANY;
}

static inline __attribute__((always_inline)) uint8_t *kseg_put_sized(uint8_t *p, const uint8_t *at, int64_t size) {
    if (KSEG_LIKELY(size >= 0))
        return kseg_put_bytes(kseg_put_uvarint(p, (uint64_t)size << 1), at, (size_t)size);
    *p = 1;
    return p + 1;
}

/* Bytes of the headers `[start, end)` of a record with their count. */
static int kseg_headers_size(const kseg_columns *rows, int64_t start, int64_t end, int64_t *total) {
    const uint8_t *at;
    if (start < 0 || start > end || end > rows->header_count)
        return KSEG_WRITE_COLUMN;
    int64_t sum = kseg_varint_size((int32_t)(end - start));
    for (int64_t header = start; header < end; header++) {
        int64_t name = kseg_take(&rows->header_key, header, KSEG_ANY, &at);
        int64_t value = kseg_take(&rows->header_value, header, KSEG_ANY, &at);
        if (name < 0)
            return name == KSEG_NULL_VALUE ? KSEG_WRITE_NAME_NULL : kseg_refusal(name);
        if (value < KSEG_NULL_VALUE)
            return kseg_refusal(value);
        if (name > INT32_MAX || value > INT32_MAX)
            return KSEG_WRITE_RECORD_SIZE;
        sum += kseg_sized(name) + kseg_sized(value);
        if (sum > INT32_MAX)
            return KSEG_WRITE_RECORD_SIZE;
    }
    *total = sum;
    return KSEG_WRITE_OK;
}

/* Headers that were sized, in `[p, end)`; NULL where a column has changed since. */
static uint8_t *kseg_put_headers(const kseg_columns *rows, int64_t header, int64_t stop, uint8_t *p,
                                 const uint8_t *end) {
    const uint8_t *at = NULL;
    p = kseg_put_varint(p, (int32_t)(stop - header));
    for (; header < stop; header++) {
        int64_t size = kseg_take(&rows->header_key, header, KSEG_ANY, &at);
        if (size < 0 || kseg_sized(size) > end - p)
            return NULL;
        p = kseg_put_sized(p, at, size);
        size = kseg_take(&rows->header_value, header, KSEG_ANY, &at);
        if (size < KSEG_NULL_VALUE || kseg_sized(size) > end - p)
            return NULL;
        p = kseg_put_sized(p, at, size);
    }
    return p == end ? p : NULL;
}

/* The state of the loop: what is asked of it, what it has done, and why it stopped. */
typedef struct {
    int64_t row; /* the next one */
    int64_t end;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t bytes_max; /* of all records; the first is written in any case */
    int64_t count;
    int64_t bytes; /* of the records written */
    int64_t room;  /* bytes of the buffer */
    int64_t last_offset;
    int64_t max_timestamp;
    int64_t wanted; /* with KSEG_WRITE_ROOM: a buffer of so many bytes holds the next record */
    int status;
} kseg_job;

/* The numbers of a record with their lengths, at their longest, and its attributes. */
#define KSEG_NUMBERS_MAX 36
/* The size of a batch is a positive int32. */
#define KSEG_RECORDS_MAX ((int64_t)INT32_MAX - KSEG_BATCH_HEADER_BYTES)

/* What a record needs, and whether it may have it: the status where it is too large for everything, for the batch, or
 * for the buffer. */
typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    int64_t key;
    int64_t value;
    int64_t headers; /* with their count */
} kseg_sizes;

static int kseg_no_room(kseg_job *job, const kseg_sizes *of) {
    if (of->key > INT32_MAX || of->value > INT32_MAX)
        return KSEG_WRITE_RECORD_SIZE;
    int64_t body = 1 + (int64_t)kseg_varlong_size(of->timestamp_delta)
                   + kseg_uvarint_size((uint64_t)of->offset_delta << 1) + kseg_sized(of->key) + kseg_sized(of->value)
                   + of->headers;
    if (body > INT32_MAX)
        return KSEG_WRITE_RECORD_SIZE;
    int64_t bytes = job->bytes + body + kseg_uvarint_size((uint64_t)body << 1);
    if (bytes > job->bytes_max && job->count > 0)
        return KSEG_WRITE_FULL;
    if (bytes > KSEG_RECORDS_MAX)
        return KSEG_WRITE_BATCH_SIZE;
    job->wanted = bytes + KSEG_NUMBERS_MAX;
    return KSEG_WRITE_ROOM;
}

static inline __attribute__((always_inline)) void kseg_put_records_as(const kseg_columns *given, kseg_job *job,
                                                                      uint8_t *begin, int form) {
    /* Copies that no store can reach, so that the compiler need not read them again. */
    const kseg_columns rows = *given;
    const int64_t base_offset = job->base_offset, base_timestamp = job->base_timestamp, end_row = job->end;
    const int64_t bytes_max = job->bytes_max, limit = bytes_max < KSEG_RECORDS_MAX ? bytes_max : KSEG_RECORDS_MAX;
    const uint8_t *end = begin + job->room;
    const uint8_t *key_at = NULL, *value_at = NULL;
    uint8_t *p = begin + job->bytes;
    int64_t row = job->row, count = job->count, last = job->last_offset, latest = job->max_timestamp;
    kseg_sizes of = {0, 0, 0, 0, 1};
    /* A record is written after room for its length, as many bytes as the last one's length took, and moved where
     * they were too many or too few. */
    int64_t width = 2;
    int status = KSEG_WRITE_OK;
    for (; row < end_row; row++) {
        int64_t offset = rows.offsets ? rows.offsets[row] : kseg_add64(base_offset, count);
        int64_t timestamp = rows.timestamps ? rows.timestamps[row] : -1;
        if (!KSEG_LIKELY(offset > last || count == 0)) {
            status = KSEG_WRITE_OFFSET_ORDER;
            break;
        }
        if (!KSEG_LIKELY(timestamp >= -1)) {
            status = KSEG_WRITE_TIMESTAMP;
            break;
        }
        int64_t delta = kseg_sub64(offset, base_offset);
        if (!KSEG_LIKELY((uint64_t)delta <= INT32_MAX)) {
            status = KSEG_WRITE_OFFSET_RANGE;
            break;
        }
        int64_t key = kseg_take(&rows.key, row, form, &key_at);
        int64_t value = kseg_take(&rows.value, row, form, &value_at);
        if (!KSEG_LIKELY(key >= KSEG_NULL_VALUE && value >= KSEG_NULL_VALUE)) {
            status = kseg_refusal(key < KSEG_NULL_VALUE ? key : value);
            break;
        }
        int64_t headers = 1, header = 0, header_stop = 0;
        if (form == KSEG_ANY && rows.headers != NULL) {
            header = rows.headers[row], header_stop = rows.headers[row + 1];
            status = kseg_headers_size(given, header, header_stop, &headers);
            if (status != KSEG_WRITE_OK)
                break;
        }
        int64_t timestamp_delta = kseg_sub64(timestamp, base_timestamp);
        /* Sizes of objects in memory: their sum is far from 2^63. */
        if (!KSEG_LIKELY(key + value + headers <= end - p - KSEG_NUMBERS_MAX)) {
            of = (kseg_sizes){timestamp_delta, delta, key, value, headers};
            status = KSEG_WRITE_ROOM;
            break;
        }
        uint8_t *body = p + width;
        *body = 0;
        uint8_t *q = kseg_put_varlong(body + 1, timestamp_delta);
        q = kseg_put_uvarint(q, (uint64_t)delta << 1);
        q = kseg_put_sized(q, key_at, key);
        q = kseg_put_sized(q, value_at, value);
        if (form == KSEG_ANY && rows.headers != NULL) {
            q = kseg_put_headers(given, header, header_stop, q, q + headers);
            if (q == NULL) {
                status = KSEG_WRITE_CHANGED;
                break;
            }
        } else {
            *q++ = 0;
        }
        int64_t size = q - body;
        int64_t needed = kseg_uvarint_size((uint64_t)size << 1);
        if (!KSEG_LIKELY(needed == width)) {
            memmove(p + needed, body, (size_t)size);
            q = p + needed + size;
            width = needed;
        }
        kseg_put_uvarint(p, (uint64_t)size << 1);
        if (!KSEG_LIKELY(q - begin <= limit)) {
            status = q - begin > bytes_max && count > 0 ? KSEG_WRITE_FULL
                     : q - begin > KSEG_RECORDS_MAX     ? KSEG_WRITE_BATCH_SIZE
                                                        : KSEG_WRITE_OK;
            if (status != KSEG_WRITE_OK)
                break;
        }
        p = q;
        count++;
        last = offset;
        latest = timestamp > latest ? timestamp : latest;
    }
    job->row = row;
    job->count = count;
    job->bytes = p - begin;
    job->last_offset = last;
    job->max_timestamp = latest;
    job->status = status == KSEG_WRITE_ROOM ? kseg_no_room(job, &of) : status;
}

/* Write records into the job's buffer until all are written, or one is refused, does not fit into the batch, or not
 * into the buffer: then the loop goes on in a larger one that begins with the same bytes. */
static void kseg_put_records(const kseg_columns *rows, kseg_job *job, uint8_t *begin) {
    int form = kseg_form_of(rows);
    if (form == KSEG_ITEMS)
        kseg_put_records_as(rows, job, begin, KSEG_ITEMS);
    else if (form == KSEG_COLUMNS)
        kseg_put_records_as(rows, job, begin, KSEG_COLUMNS);
    else
        kseg_put_records_as(rows, job, begin, KSEG_ANY);
}

/* About how many bytes the values of `[first, end)` have: exact for a column that is in order, else from a sample. */
static int64_t kseg_estimate(const kseg_field *field, int64_t first, int64_t end) {
    const uint8_t *at;
    int64_t step = (end - first) / 32 + 1, sum = 0;
    if (field->offsets != NULL) {
        int64_t bytes = (int64_t)field->offsets[end] - field->offsets[first];
        return bytes < 0 ? 0 : bytes > field->data_bytes ? field->data_bytes : bytes;
    }
    for (int64_t row = first; row < end; row += step) {
        int64_t size = kseg_take(field, row, KSEG_ANY, &at);
        sum += size > 0 ? size : 0;
    }
    return sum * step;
}

/* Whether keys and values alone are too much for a batch: seen before gigabytes are written. The status then, with the
 * row as the job's; the first row is left to the loop, which sizes it exactly. */
static int kseg_too_much(const kseg_columns *rows, kseg_job *job) {
    const uint8_t *at;
    int64_t bytes = 0;
    for (int64_t row = job->row; row < job->end; row++) {
        int64_t key = kseg_take(&rows->key, row, KSEG_ANY, &at);
        int64_t value = kseg_take(&rows->value, row, KSEG_ANY, &at);
        int64_t size = (key > 0 ? key : 0) + (value > 0 ? value : 0);
        bytes += size;
        if (bytes > KSEG_RECORDS_MAX && row > job->row) {
            job->row = row;
            return size > INT32_MAX ? KSEG_WRITE_RECORD_SIZE : KSEG_WRITE_BATCH_SIZE;
        }
    }
    return KSEG_WRITE_OK;
}

#endif
