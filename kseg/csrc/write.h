/* The records of a magic 2 batch, written: the loops over columns of records, once to size them and once to write.
 *
 * A column of byte strings comes as a tuple of bytes objects and None, or in Arrow's layout. Each loop is written once
 * and made three times: for tuples, for plain columns, and for everything else (nulls, headers, a mixture), so that
 * the common ones ask nothing twice.
 *
 * A bytes object never changes and the tuple keeps it alive, so that both may be read without the GIL. The numbers of
 * a column may be changed by somebody meanwhile: each is read once a pass and held against its data, and the second
 * pass writes no further than the sizes of the first.
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

/* Why a record is not written; what is said about it stands in kseg.format.encode. */
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
    KSEG_WRITE_CHANGED
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

/* Bytes of a value with its length; null (-1) has a length only. */
static inline __attribute__((always_inline)) int64_t kseg_sized(int64_t size) {
    return KSEG_LIKELY(size >= 0) ? size + kseg_uvarint_size((uint64_t)size << 1) : 1;
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

/* A record's headers, which must end where the record ends; NULL where they would not. */
static uint8_t *kseg_put_headers(const kseg_columns *rows, int64_t row, uint8_t *p, const uint8_t *stop) {
    const uint8_t *at = NULL;
    int64_t start = rows->headers[row], end = rows->headers[row + 1], total = 0;
    if (kseg_headers_size(rows, start, end, &total) != KSEG_WRITE_OK || total != stop - p)
        return NULL;
    p = kseg_put_varint(p, (int32_t)(end - start));
    for (int64_t header = start; header < end; header++) {
        int64_t size = kseg_take(&rows->header_key, header, KSEG_ANY, &at);
        if (size < 0 || kseg_sized(size) > stop - p)
            return NULL;
        p = kseg_put_sized(p, at, size);
        size = kseg_take(&rows->header_value, header, KSEG_ANY, &at);
        if (size < KSEG_NULL_VALUE || kseg_sized(size) > stop - p)
            return NULL;
        p = kseg_put_sized(p, at, size);
    }
    return p;
}

/* What is asked of the loops, and what the first one answers. */
typedef struct {
    int64_t first;
    int64_t end;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t bytes_max;
    int64_t count;
    int64_t bytes;
    int64_t last_offset;
    int64_t max_timestamp;
    int status;
} kseg_job;

/* Bytes of a record between its length and its headers. */
static inline __attribute__((always_inline)) int64_t kseg_fields_size(int64_t timestamp_delta, int64_t offset_delta,
                                                                      int64_t key, int64_t value) {
    return 1 + (int64_t)kseg_varlong_size(timestamp_delta) + kseg_uvarint_size((uint64_t)offset_delta << 1)
           + kseg_sized(key) + kseg_sized(value);
}

static inline __attribute__((always_inline)) void kseg_measure_as(const kseg_columns *lent, kseg_job *job,
                                                                  int32_t *sizes, int form) {
    /* Copies that no store can reach, so that the compiler need not read them anew. */
    const kseg_columns rows = *lent;
    const int64_t base_offset = job->base_offset, base_timestamp = job->base_timestamp;
    const int64_t first = job->first, end = job->end, bytes_max = job->bytes_max;
    int64_t row = first, last = 0, latest = -1, total = KSEG_BATCH_HEADER_BYTES;
    const uint8_t *at;
    int status = KSEG_WRITE_OK;
    for (; row < end; row++) {
        int64_t offset = rows.offsets ? rows.offsets[row] : kseg_add64(base_offset, row - first);
        int64_t timestamp = rows.timestamps ? rows.timestamps[row] : -1;
        int64_t delta = kseg_sub64(offset, base_offset);
        if (!KSEG_LIKELY(offset > last || row == first)) {
            status = KSEG_WRITE_OFFSET_ORDER;
            break;
        }
        if (!KSEG_LIKELY(timestamp >= -1)) {
            status = KSEG_WRITE_TIMESTAMP;
            break;
        }
        if (!KSEG_LIKELY((uint64_t)delta <= INT32_MAX)) {
            status = KSEG_WRITE_OFFSET_RANGE;
            break;
        }
        int64_t key = kseg_take(&rows.key, row, form, &at);
        int64_t value = kseg_take(&rows.value, row, form, &at);
        if (!KSEG_LIKELY(key >= KSEG_NULL_VALUE && value >= KSEG_NULL_VALUE)) {
            status = kseg_refusal(key < KSEG_NULL_VALUE ? key : value);
            break;
        }
        int64_t body = 1;
        if (form == KSEG_ANY && rows.headers != NULL) {
            status = kseg_headers_size(lent, rows.headers[row], rows.headers[row + 1], &body);
            if (status != KSEG_WRITE_OK)
                break;
        }
        /* Sizes of objects in memory: their sum is far from 2^63. */
        body += kseg_fields_size(kseg_sub64(timestamp, base_timestamp), delta, key, value);
        if (!KSEG_LIKELY(body <= INT32_MAX)) {
            status = KSEG_WRITE_RECORD_SIZE;
            break;
        }
        int64_t size = body + kseg_uvarint_size((uint64_t)body << 1);
        if (!KSEG_LIKELY(size <= bytes_max - total) && row > first)
            break;
        if (!KSEG_LIKELY(size <= INT32_MAX - total)) {
            status = KSEG_WRITE_BATCH_SIZE;
            break;
        }
        total += size;
        sizes[row - first] = (int32_t)body;
        last = offset;
        latest = timestamp > latest ? timestamp : latest;
    }
    job->count = row - first;
    job->bytes = total - KSEG_BATCH_HEADER_BYTES;
    job->last_offset = last;
    job->max_timestamp = latest;
    job->status = status;
}

/* Sizes of the records that fit into the job's bytes, from its first row on and at least one; `count` is the refused
 * row, from the first on, where the status is not OK. `sizes` has room for as many records as there are rows or fit. */
static void kseg_measure(const kseg_columns *rows, kseg_job *job, int32_t *sizes) {
    int form = kseg_form_of(rows);
    if (form == KSEG_ITEMS)
        kseg_measure_as(rows, job, sizes, KSEG_ITEMS);
    else if (form == KSEG_COLUMNS)
        kseg_measure_as(rows, job, sizes, KSEG_COLUMNS);
    else
        kseg_measure_as(rows, job, sizes, KSEG_ANY);
}

/* The numbers of a record with their lengths, at their longest, and its attributes. */
#define KSEG_NUMBERS_MAX 36

static inline __attribute__((always_inline)) int kseg_put_records_as(const kseg_columns *lent, const kseg_job *job,
                                                                     const int32_t *sizes, uint8_t *p,
                                                                     const uint8_t *end, int form) {
    const kseg_columns rows = *lent;
    const int64_t base_offset = job->base_offset, base_timestamp = job->base_timestamp;
    const int64_t first = job->first, count = job->count;
    const uint8_t *key_at = NULL, *value_at = NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = first + i, size = sizes[i];
        int64_t timestamp_delta = kseg_sub64(rows.timestamps ? rows.timestamps[row] : -1, base_timestamp);
        int64_t offset_delta = rows.offsets ? kseg_sub64(rows.offsets[row], base_offset) : i;
        int64_t key = kseg_take(&rows.key, row, form, &key_at);
        int64_t value = kseg_take(&rows.value, row, form, &value_at);
        if (!KSEG_LIKELY(key >= KSEG_NULL_VALUE && value >= KSEG_NULL_VALUE))
            return 0;
        /* With room for the longest numbers, what has grown is noticed behind the record and before the end; without
         * it, in front of the record. */
        if (!KSEG_LIKELY(key + value <= end - p - KSEG_NUMBERS_MAX)
            && kseg_fields_size(timestamp_delta, (uint32_t)offset_delta, key, value) >= size)
            return 0;
        p = kseg_put_uvarint(p, (uint64_t)size << 1);
        const uint8_t *stop = p + size;
        *p = 0;
        p = kseg_put_varlong(p + 1, timestamp_delta);
        p = kseg_put_uvarint(p, (uint64_t)(uint32_t)offset_delta << 1);
        p = kseg_put_sized(p, key_at, key);
        p = kseg_put_sized(p, value_at, value);
        if (form == KSEG_ANY && rows.headers != NULL) {
            if (p >= stop || (p = kseg_put_headers(lent, row, p, stop)) == NULL)
                return 0;
        } else {
            *p++ = 0;
        }
        if (!KSEG_LIKELY(p == stop))
            return 0;
    }
    return p == end;
}

/* The records that were measured, in `[p, end)`; 0 where a column has changed since. */
static int kseg_put_records(const kseg_columns *rows, const kseg_job *job, const int32_t *sizes, uint8_t *p,
                            const uint8_t *end) {
    int form = kseg_form_of(rows);
    if (form == KSEG_ITEMS)
        return kseg_put_records_as(rows, job, sizes, p, end, KSEG_ITEMS);
    if (form == KSEG_COLUMNS)
        return kseg_put_records_as(rows, job, sizes, p, end, KSEG_COLUMNS);
    return kseg_put_records_as(rows, job, sizes, p, end, KSEG_ANY);
}

#endif
