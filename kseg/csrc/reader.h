/* Batches of magic 2, and messages of magic 0 and 1, read in one pass: header, checksum, codec, records, columns. Whatever
 * is unusual ends the pass before its batch, and nothing of that batch is kept: a batch counts only when all of it
 * is sound. A batch here is an outermost message, too, plain or compressed.
 *
 * Limits are held once a batch: its records are at most its bytes / 7, keys and values together fit into as many
 * bytes as the batch has, and each column has room for those and 64 spare ones. Headers alone are counted one by one.
 *
 * Layout of a header: _core.pxd; of a message: below. Source: Kafka DefaultRecordBatch, DefaultRecord.readFrom,
 * AbstractLegacyRecordBatch, LegacyRecord.
 */
#ifndef KSEG_READER_H
#define KSEG_READER_H

#include "needle.h"
#include "records.h"

/* Fields of records that can be wanted: the last two are bytes, 1 where a record has a value, and where a message
 * inside another has the checksum that it says, which `careful.h` alone finds. */
enum {
    KSEG_OFFSET = 1,
    KSEG_TIMESTAMP = 2,
    KSEG_KEY = 4,
    KSEG_VALUE = 8,
    KSEG_HEADERS = 16,
    KSEG_HAS_VALUE = 32,
    KSEG_MATCHES = 64
};

/* Why a call ends; kseg.format.reader names them. */
enum {
    KSEG_END,        /* the limit, or the end of the table */
    KSEG_FULL,       /* the next batch does not fit into the piece any more */
    KSEG_NO_ROOM,    /* the next batch does not fit into an empty piece of this size */
    KSEG_MORE,       /* the next batch goes on after the borrowed bytes */
    KSEG_ODD,        /* one batch that is unusual, damaged, or no batch at all */
    KSEG_OTHER,      /* a compressed batch of a kind that is not read here */
    KSEG_PAST,       /* a stretch of batches after the last offset that is wanted */
    KSEG_OLDER,      /* between the two loops: the next batch is of magic 0 or 1, */
    KSEG_NEWER       /* or it is not */
};

/* What of a piece outlives a call. */
enum {
    KSEG_AT,            /* file position, or row of the table, of the next batch */
    KSEG_ROWS_MAX,      /* the room of the piece: rows, bytes of bodies, headers */
    KSEG_BYTES_MAX,
    KSEG_HEADERS_MAX,
    KSEG_ROWS,          /* what is in it */
    KSEG_BYTES,
    KSEG_HEADER_COUNT,
    KSEG_KEY_BYTES,
    KSEG_KEY_NULLS,
    KSEG_VALUE_BYTES,
    KSEG_VALUE_NULLS,
    KSEG_NAME_BYTES,
    KSEG_HEADER_BYTES,
    KSEG_HEADER_NULLS,
    KSEG_BATCHES,       /* batches read or passed over */
    KSEG_TIME_TYPE,     /* of its timestamps: -1 none, 0 create, 1 log append */
    KSEG_LAST,          /* position of the batch read last, -1 for none */
    KSEG_PAST_FROM,     /* position of the first of the batches after the last offset, -1 for none */
    KSEG_LAST_OFFSET,   /* the largest last offset of the batches read or passed over, -1 for none */
    KSEG_NEED_ROWS,     /* with KSEG_NO_ROOM: what the batch needs; with KSEG_MORE: its bytes */
    KSEG_NEED_BYTES,
    KSEG_NEED_HEADERS,
    KSEG_STATE_FIELDS
};

/* What a request is to this pass; kseg.format.reader fills it in this order. */
enum {
    KSEG_ASK_FIELDS,
    KSEG_ASK_CONTROL,
    KSEG_ASK_VERIFY,
    KSEG_ASK_ONE_TYPE, /* a piece holds timestamps of one type */
    KSEG_ASK_NOTES,    /* wrong checksums of messages inside others are noted: those are not read here */
    KSEG_ASK_OFFSET_MIN,
    KSEG_ASK_OFFSET_MAX,
    KSEG_ASK_TIME_MIN,
    KSEG_ASK_TIME_MAX,
    KSEG_ASK_INFLATED_MAX,
    KSEG_ASK_COUNT
};

/* Columns of the table's rows that are used; the numbers are those of the enum in _core.pxd. */
enum {
    KSEG_ROW_POSITION = 0,
    KSEG_ROW_SIZE = 1,
    KSEG_ROW_MAGIC = 2,
    KSEG_ROW_BASE_OFFSET = 3,
    KSEG_ROW_LAST_OFFSET = 4,
    KSEG_ROW_CRC = 6,
    KSEG_ROW_ATTRIBUTES = 7,
    KSEG_ROW_BASE_TIMESTAMP = 8,
    KSEG_ROW_MAX_TIMESTAMP = 9,
    KSEG_ROW_RECORD_COUNT = 13,
    KSEG_ROW_CRC_OK = 14,
    KSEG_ROW_WIDTH = 17
};

enum {
    KSEG_HEAD = 61,
    KSEG_COVERED = 21, /* by the checksum: from here on */
    KSEG_OVERHEAD = 12, /* of a message: offset and size */
    KSEG_MESSAGE_MIN = 26,
    KSEG_MESSAGE_COVERED = 16,
    KSEG_SLACK = 64,
    KSEG_SUM_STEP = 32 << 10, /* so much is summed ahead of the records, and still near when they are read */
    KSEG_PAST_BYTES = 2 << 20, /* a damaged offset alone does not end a reading */
    KSEG_LACKING_BYTES = 8 << 20 /* so many without the needle end a call, so that a reading can be interrupted */
};

typedef uint32_t (*kseg_sum_fn)(uint32_t value, const uint8_t *data, size_t size);
typedef uint32_t (*kseg_message_sum_fn)(const uint8_t *data, size_t size);

/* The records of a compressed batch. They outlive a call that ends before their batch. */
typedef struct {
    const uint8_t *bytes;
    int64_t size;
    int64_t position; /* of the batch, -1 for none */
    int64_t packed;   /* its compressed bytes, attributes and checksum */
    int64_t attributes;
    uint32_t crc;
    void *scratch; /* where `bytes` belong to */
} kseg_inflated;

/* Sets `bytes` and `size`; not 0 where it cannot. */
typedef int (*kseg_inflate_fn)(kseg_inflated *to, int codec, int magic, const uint8_t *data, int64_t size,
                               int64_t inflated_max);

typedef struct {
    int32_t *ends; /* Arrow's offsets */
    uint8_t *data;
    uint8_t *valid; /* all bits set beforehand */
    int64_t used;
    int64_t nulls;
} kseg_column;

typedef struct {
    int64_t *offsets;
    int64_t *timestamps;
    kseg_column key;
    kseg_column value;
    int32_t *lists;
    kseg_column name;
    kseg_column header;
    uint8_t *has_value;
    uint8_t *matches;
    int64_t rows;
    int64_t headers;
    int64_t headers_max;
} kseg_piece;

typedef struct {
    const uint8_t *entry; /* its header, or the message */
    const uint8_t *start; /* its records */
    const uint8_t *end;
    const uint8_t *room_end; /* what may be read, though not used */
    int64_t position;
    int64_t size;
    int64_t count;
    int64_t base_offset; /* -1 for a compressed message: only those inside tell */
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t attributes;
    int64_t time_type;
    int64_t shift; /* what the offsets inside a message are moved by */
    uint32_t crc;
    int magic;
    int compare; /* hold it against its checksum */
} kseg_batch;

typedef struct {
    const uint8_t *data;
    int64_t base;
    int64_t size;
    int64_t limit;
    int64_t file_end;
    const int64_t *table; /* NULL to find batches by their lengths */
    int64_t table_count;
    const int64_t *ask;
    const kseg_needle *needle; /* batches of magic 2 that lack it are passed over; NULL for none */
    int filtered;
    kseg_sum_fn sum; /* CRC-32C */
    kseg_message_sum_fn message_sum; /* CRC-32 */
    kseg_inflate_fn inflate;
    kseg_inflated *inflated;
    int64_t *counts; /* records of each batch, or NULL */
    int64_t *firsts; /* as many: the batch's base offset, or that of the first message inside */
    int64_t counts_max;
} kseg_source;

/* ---- Where the columns of a piece lie in its block. ---- */

enum {
    KSEG_AT_OFFSETS,
    KSEG_AT_TIMESTAMPS,
    KSEG_AT_KEY_ENDS,
    KSEG_AT_VALUE_ENDS,
    KSEG_AT_LISTS,
    KSEG_AT_NAME_ENDS,
    KSEG_AT_HEADER_ENDS,
    KSEG_AT_KEY_VALID,
    KSEG_AT_VALUE_VALID,
    KSEG_AT_HEADER_VALID,
    KSEG_AT_KEY,
    KSEG_AT_VALUE,
    KSEG_AT_NAME,
    KSEG_AT_HEADER,
    KSEG_AT_HAS_VALUE,
    KSEG_AT_MATCHES,
    KSEG_PLACES
};

/* The number of each column of bytes, in tables with one value a column. */
enum { KSEG_OF_KEY, KSEG_OF_VALUE, KSEG_OF_NAME, KSEG_OF_HEADER, KSEG_OF };

KSEG_INLINE int64_t kseg_place(int64_t *at, int64_t used, int wanted, int64_t size) {
    *at = wanted ? used : -1;
    return wanted ? (used + size + 63) & ~(int64_t)63 : used;
}

/* Bytes of a block for so many rows, headers and bytes of each column; `at` becomes where each column starts, -1 for
 * those that are not wanted. All are below 2^32, so nothing overflows. */
static int64_t kseg_layout(int64_t fields, int64_t rows, const int64_t *bytes, int64_t headers, int64_t *at) {
    int key = (fields & KSEG_KEY) != 0, value = (fields & KSEG_VALUE) != 0, lists = (fields & KSEG_HEADERS) != 0;
    int64_t used = 0, ends = 4 * (rows + 1), bits = (rows + 7) / 8;
    used = kseg_place(at + KSEG_AT_OFFSETS, used, (fields & KSEG_OFFSET) != 0, 8 * rows);
    used = kseg_place(at + KSEG_AT_TIMESTAMPS, used, (fields & KSEG_TIMESTAMP) != 0, 8 * rows);
    used = kseg_place(at + KSEG_AT_KEY_ENDS, used, key, ends);
    used = kseg_place(at + KSEG_AT_VALUE_ENDS, used, value, ends);
    used = kseg_place(at + KSEG_AT_LISTS, used, lists, ends);
    used = kseg_place(at + KSEG_AT_NAME_ENDS, used, lists, 4 * (headers + 1));
    used = kseg_place(at + KSEG_AT_HEADER_ENDS, used, lists, 4 * (headers + 1));
    used = kseg_place(at + KSEG_AT_KEY_VALID, used, key, bits);
    used = kseg_place(at + KSEG_AT_VALUE_VALID, used, value, bits);
    used = kseg_place(at + KSEG_AT_HEADER_VALID, used, lists, (headers + 7) / 8);
    used = kseg_place(at + KSEG_AT_HAS_VALUE, used, (fields & KSEG_HAS_VALUE) != 0, rows);
    used = kseg_place(at + KSEG_AT_MATCHES, used, (fields & KSEG_MATCHES) != 0, rows);
    used = kseg_place(at + KSEG_AT_KEY, used, key, bytes[KSEG_OF_KEY] + KSEG_SLACK);
    used = kseg_place(at + KSEG_AT_VALUE, used, value, bytes[KSEG_OF_VALUE] + KSEG_SLACK);
    used = kseg_place(at + KSEG_AT_NAME, used, lists, bytes[KSEG_OF_NAME] + KSEG_SLACK);
    return kseg_place(at + KSEG_AT_HEADER, used, lists, bytes[KSEG_OF_HEADER] + KSEG_SLACK);
}

/* The same where each column has room for all bytes of all bodies. */
static int64_t kseg_even_layout(int64_t fields, int64_t rows, int64_t bytes, int64_t headers, int64_t *at) {
    const int64_t each[KSEG_OF] = {bytes, bytes, bytes, bytes};
    return kseg_layout(fields, rows, each, headers, at);
}

KSEG_INLINE kseg_column kseg_column_at(uint8_t *block, int64_t ends, int64_t data, int64_t valid, int64_t used,
                                       int64_t nulls) {
    kseg_column column = {NULL, NULL, NULL, used, nulls};
    if (ends >= 0) {
        column.ends = (int32_t *)(void *)(block + ends);
        column.data = block + data;
        column.valid = valid >= 0 ? block + valid : NULL;
        column.ends[0] = 0;
    }
    return column;
}

/* The columns in a block of the layout's size, as the state says they are filled. */
static kseg_piece kseg_piece_in(uint8_t *block, const int64_t *at, const int64_t *state) {
    int64_t rows_max = state[KSEG_ROWS_MAX], headers_max = state[KSEG_HEADERS_MAX];
    kseg_piece piece = {0};
    if (at[KSEG_AT_OFFSETS] >= 0)
        piece.offsets = (int64_t *)(void *)(block + at[KSEG_AT_OFFSETS]);
    if (at[KSEG_AT_TIMESTAMPS] >= 0)
        piece.timestamps = (int64_t *)(void *)(block + at[KSEG_AT_TIMESTAMPS]);
    piece.key = kseg_column_at(block, at[KSEG_AT_KEY_ENDS], at[KSEG_AT_KEY], at[KSEG_AT_KEY_VALID],
                               state[KSEG_KEY_BYTES], state[KSEG_KEY_NULLS]);
    piece.value = kseg_column_at(block, at[KSEG_AT_VALUE_ENDS], at[KSEG_AT_VALUE], at[KSEG_AT_VALUE_VALID],
                                 state[KSEG_VALUE_BYTES], state[KSEG_VALUE_NULLS]);
    piece.name = kseg_column_at(block, at[KSEG_AT_NAME_ENDS], at[KSEG_AT_NAME], -1, state[KSEG_NAME_BYTES], 0);
    piece.header = kseg_column_at(block, at[KSEG_AT_HEADER_ENDS], at[KSEG_AT_HEADER], at[KSEG_AT_HEADER_VALID],
                                  state[KSEG_HEADER_BYTES], state[KSEG_HEADER_NULLS]);
    if (at[KSEG_AT_LISTS] >= 0) {
        piece.lists = (int32_t *)(void *)(block + at[KSEG_AT_LISTS]);
        piece.lists[0] = 0;
    }
    if (at[KSEG_AT_HAS_VALUE] >= 0)
        piece.has_value = block + at[KSEG_AT_HAS_VALUE];
    if (at[KSEG_AT_MATCHES] >= 0)
        piece.matches = block + at[KSEG_AT_MATCHES];
    piece.rows = state[KSEG_ROWS];
    piece.headers = state[KSEG_HEADER_COUNT];
    piece.headers_max = headers_max;
    if (piece.rows == 0) {
        if (piece.key.valid)
            memset(piece.key.valid, 0xff, (size_t)((rows_max + 7) / 8));
        if (piece.value.valid)
            memset(piece.value.valid, 0xff, (size_t)((rows_max + 7) / 8));
        if (piece.header.valid)
            memset(piece.header.valid, 0xff, (size_t)((headers_max + 7) / 8));
    }
    return piece;
}

static void kseg_keep_piece(const kseg_piece *piece, int64_t *state) {
    state[KSEG_ROWS] = piece->rows;
    state[KSEG_HEADER_COUNT] = piece->headers;
    state[KSEG_KEY_BYTES] = piece->key.used;
    state[KSEG_KEY_NULLS] = piece->key.nulls;
    state[KSEG_VALUE_BYTES] = piece->value.used;
    state[KSEG_VALUE_NULLS] = piece->value.nulls;
    state[KSEG_NAME_BYTES] = piece->name.used;
    state[KSEG_HEADER_BYTES] = piece->header.used;
    state[KSEG_HEADER_NULLS] = piece->header.nulls;
}

/* ---- The records of one batch. ---- */

KSEG_INLINE void kseg_append(kseg_column *column, int64_t row, const uint8_t *data, int64_t size, const uint8_t *end) {
    if (KSEG_LIKELY(size >= 0)) {
        kseg_copy(column->data + column->used, data, (size_t)size, (size_t)(end - data));
        column->used += size;
    } else if (column->valid) {
        column->valid[row >> 3] = (uint8_t)(column->valid[row >> 3] & ~(1u << (row & 7)));
        column->nulls++;
    }
    column->ends[row + 1] = (int32_t)column->used;
}

/* The bits of a column's nulls from `row` to `end` set again. */
static void kseg_forget_nulls(uint8_t *valid, int64_t row, int64_t end) {
    for (; valid != NULL && row < end; row++)
        valid[row >> 3] = (uint8_t)(valid[row >> 3] | (1u << (row & 7)));
}

/* The headers of one record, which must end where it ends; copied where they are wanted. Answers 0, KSEG_ODD or
 * KSEG_NO_ROOM. */
KSEG_INLINE int kseg_read_headers(const kseg_record *r, const uint8_t *end, const uint8_t *room_end, kseg_piece *out,
                                  int wanted) {
    const uint8_t *p = r->headers;
    int32_t size = 0;
    if (wanted && r->header_count > out->headers_max - out->headers)
        return KSEG_NO_ROOM;
    for (int32_t i = 0; i < r->header_count; i++) {
        p = kseg_varint(p, end, &size);
        if (!KSEG_LIKELY(p != NULL && size >= 0 && size <= end - p))
            return KSEG_ODD;
        if (wanted)
            kseg_append(&out->name, out->headers, p, size, room_end);
        p = kseg_varint(p + size, end, &size);
        if (!KSEG_LIKELY(p != NULL && size <= end - p))
            return KSEG_ODD;
        if (wanted) {
            kseg_append(&out->header, out->headers, p, size, room_end);
            out->headers++;
        }
        p += size > 0 ? size : 0;
    }
    return p == end ? 0 : KSEG_ODD;
}

/* What a piece held before a batch whose records turn out not to be sound. */
typedef struct {
    int64_t rows, headers, key_used, key_nulls, value_used, value_nulls, name_used, header_used, header_nulls;
} kseg_mark;

KSEG_INLINE kseg_mark kseg_mark_of(const kseg_piece *out) {
    kseg_mark mark;
    mark.rows = out->rows;
    mark.headers = out->headers;
    mark.key_used = out->key.used;
    mark.key_nulls = out->key.nulls;
    mark.value_used = out->value.used;
    mark.value_nulls = out->value.nulls;
    mark.name_used = out->name.used;
    mark.header_used = out->header.used;
    mark.header_nulls = out->header.nulls;
    return mark;
}

KSEG_INLINE void kseg_take_back(kseg_piece *out, const kseg_mark *mark) {
    kseg_forget_nulls(out->key.valid, mark->rows, out->rows);
    kseg_forget_nulls(out->value.valid, mark->rows, out->rows);
    kseg_forget_nulls(out->header.valid, mark->headers, out->headers);
    out->rows = mark->rows;
    out->headers = mark->headers;
    out->key.used = mark->key_used;
    out->key.nulls = mark->key_nulls;
    out->value.used = mark->value_used;
    out->value.nulls = mark->value_nulls;
    out->name.used = mark->name_used;
    out->header.used = mark->header_used;
    out->header.nulls = mark->header_nulls;
}

KSEG_INLINE int kseg_in_range(const kseg_source *source, int64_t offset, int64_t timestamp) {
    const int64_t *ask = source->ask;
    return ask[KSEG_ASK_OFFSET_MIN] <= offset && offset <= ask[KSEG_ASK_OFFSET_MAX] &&
           ask[KSEG_ASK_TIME_MIN] <= timestamp && timestamp <= ask[KSEG_ASK_TIME_MAX];
}

/* A record as the next row; its headers are in their columns already. */
KSEG_INLINE void kseg_add_row(kseg_piece *out, int64_t fields, int64_t offset, int64_t timestamp,
                              const kseg_record *r, const uint8_t *room_end) {
    if (fields & KSEG_OFFSET)
        out->offsets[out->rows] = offset;
    if (fields & KSEG_TIMESTAMP)
        out->timestamps[out->rows] = timestamp;
    if (fields & KSEG_KEY)
        kseg_append(&out->key, out->rows, r->key, r->key_size, room_end);
    if (fields & KSEG_VALUE)
        kseg_append(&out->value, out->rows, r->value, r->value_size, room_end);
    if (fields & KSEG_HEADERS)
        out->lists[out->rows + 1] = (int32_t)out->headers;
    if (fields & KSEG_HAS_VALUE)
        out->has_value[out->rows] = r->value_size >= 0;
    out->rows++;
}

/* While records are parsed, memory would idle, and the checksum of the next batch would then wait for it. So the bytes
 * after them are requested in step with the records, as far ahead as the batch or a step of its sum is long. Long records
 * that are not copied take no time in which to do so. Answers up to where it has asked. */
KSEG_INLINE uintptr_t kseg_fetch_next(uintptr_t asked, const uint8_t *p, const uint8_t *stop, uintptr_t distance,
                                      int64_t fields) {
    if ((fields & (KSEG_KEY | KSEG_VALUE)) || stop - p < KSEG_FETCHED_MIN)
        for (; asked < (uintptr_t)stop + distance; asked += 64)
            __builtin_prefetch((const void *)asked);
    return asked;
}

/* All records of a batch after the rows of a piece, and its checksum: 0, KSEG_ODD or KSEG_NO_ROOM; the caller then
 * takes the rows back. */
KSEG_INLINE int kseg_read_records(const kseg_source *source, const kseg_batch *batch, kseg_piece *out,
                                  int64_t fields, int filtered) {
    kseg_record r;
    const uint8_t *p = batch->start, *end = batch->end, *room_end = batch->room_end;
    const uint8_t *summed = batch->start - (KSEG_HEAD - KSEG_COVERED), *known = end;
    int64_t left = batch->count, base_offset = batch->base_offset, base_timestamp = batch->base_timestamp;
    int64_t append_time = batch->max_timestamp;
    int log_append = batch->time_type == 1, headed = 0, wrong = 0;
    int fetches = !batch->compare && batch->size >= KSEG_FETCHED_MIN && p == batch->entry + KSEG_HEAD;
    uintptr_t distance = (uintptr_t)(batch->size < KSEG_SUM_STEP ? batch->size : KSEG_SUM_STEP);
    uintptr_t asked = (uintptr_t)p + distance;
    int overlaps = batch->compare && batch->size >= KSEG_FETCHED_MIN;
    uint32_t sum = 0;
    if (batch->compare) {
        known = end - summed <= 2 * KSEG_SUM_STEP ? end : summed + KSEG_SUM_STEP;
        sum = source->sum(0, summed, (size_t)(known - summed));
        if (known == end && sum != batch->crc)
            return KSEG_ODD;
    }
    while (left > 0) {
        if (!KSEG_LIKELY(p < known)) {
            const uint8_t *next = end - known <= KSEG_SUM_STEP ? end : known + KSEG_SUM_STEP;
            if (p == end || next == known)
                break; /* fewer records than the header counts */
            sum = source->sum(sum, known, (size_t)(next - known));
            known = next;
            continue;
        }
        const uint8_t *stop = headed ? kseg_small_record(p, end, &r, 1) : kseg_plain_record(p, end, &r);
        if (!KSEG_LIKELY(stop != NULL)) {
            stop = kseg_any_record(p, end, &r);
            if (stop == NULL) {
                wrong = KSEG_ODD;
                break;
            }
            headed = r.header_count != 0;
        }
        if (fetches)
            kseg_fetch_on(p, stop);
        if (overlaps)
            asked = kseg_fetch_next(asked, p, stop, distance, fields);
        int64_t offset = kseg_add64(base_offset, r.offset_delta);
        int64_t timestamp = log_append ? append_time : kseg_add64(base_timestamp, r.timestamp_delta);
        int taken = !filtered || kseg_in_range(source, offset, timestamp);
        if (r.header_count) {
            wrong = kseg_read_headers(&r, stop, room_end, out, (fields & KSEG_HEADERS) && taken);
            if (wrong)
                break;
        }
        if (taken)
            kseg_add_row(out, fields, offset, timestamp, &r, room_end);
        p = stop;
        left--;
    }
    if (!wrong && (left > 0 || (p != end && batch->count > 0)))
        wrong = KSEG_ODD;
    if (!wrong && batch->compare) {
        if (known != end)
            sum = source->sum(sum, known, (size_t)(end - known));
        wrong = sum == batch->crc ? 0 : KSEG_ODD;
    }
    return wrong;
}

/* ---- One batch. ---- */

/* Position and size of the batch that begins at a place of the file, and which loop reads it: KSEG_NEWER or KSEG_OLDER;
 * or why it is not to be read here. */
KSEG_INLINE int kseg_frame(const kseg_source *source, int64_t position, int64_t *state, kseg_batch *batch) {
    if (position >= source->limit)
        return KSEG_END;
    int64_t left = source->base + source->size - position, in_file = source->file_end - position;
    const uint8_t *p = source->data + (position - source->base);
    state[KSEG_NEED_BYTES] = KSEG_HEAD;
    if (left < KSEG_MESSAGE_MIN)
        return left < in_file ? KSEG_MORE : KSEG_ODD;
    /* Read once: the file may change, and the loop that reads the batch counts on the size for its magic. */
    int magic = p[16];
    if (magic >= 2 && left < KSEG_HEAD)
        return left < in_file ? KSEG_MORE : KSEG_ODD;
    batch->size = (int64_t)kseg_i32(p + 8) + KSEG_OVERHEAD;
    if (magic > 2 || batch->size < (magic == 2 ? KSEG_HEAD : KSEG_MESSAGE_MIN) || batch->size > in_file)
        return KSEG_ODD;
    state[KSEG_NEED_BYTES] = batch->size;
    if (batch->size > left)
        return KSEG_MORE;
    batch->position = position;
    batch->entry = p;
    batch->end = p + batch->size;
    batch->room_end = source->data + source->size;
    batch->magic = magic;
    batch->compare = source->ask[KSEG_ASK_VERIFY] != 0;
    return magic == 2 ? KSEG_NEWER : KSEG_OLDER;
}

/* The same, of the batch of a row of the table. */
KSEG_INLINE int kseg_listed(const kseg_source *source, int64_t at, kseg_batch *batch) {
    if (at >= source->table_count)
        return KSEG_END;
    const int64_t *row = source->table + at * KSEG_ROW_WIDTH;
    int64_t place = kseg_sub64(row[KSEG_ROW_POSITION], source->base), magic = row[KSEG_ROW_MAGIC];
    batch->size = row[KSEG_ROW_SIZE];
    if (magic < 0 || magic > 2 || batch->size < (magic == 2 ? KSEG_HEAD : KSEG_MESSAGE_MIN))
        return KSEG_ODD;
    if (place < 0 || place > source->size || batch->size > source->size - place)
        return KSEG_ODD;
    if (row[KSEG_ROW_CRC_OK] == 0 && source->ask[KSEG_ASK_VERIFY])
        return KSEG_ODD;
    batch->position = row[KSEG_ROW_POSITION];
    batch->entry = source->data + place;
    batch->end = batch->entry + batch->size;
    batch->room_end = source->data + source->size;
    batch->magic = (int)magic;
    batch->compare = source->ask[KSEG_ASK_VERIFY] && row[KSEG_ROW_CRC_OK] < 0;
    return magic == 2 ? KSEG_NEWER : KSEG_OLDER;
}

/* The header of a batch of magic 2, as it lies there. */
KSEG_INLINE void kseg_header(kseg_batch *batch) {
    const uint8_t *p = batch->entry;
    batch->start = p + KSEG_HEAD;
    batch->crc = kseg_u32(p + 17);
    batch->attributes = kseg_i16(p + 21);
    batch->base_offset = kseg_i64(p);
    batch->last_offset = kseg_add64(batch->base_offset, kseg_i32(p + 23));
    batch->base_timestamp = kseg_i64(p + 27);
    batch->max_timestamp = kseg_i64(p + 35);
    batch->count = kseg_i32(p + 57);
    batch->time_type = (batch->attributes >> 3) & 1;
}

/* The same by a row. The row decides, also where the bytes differ from it. */
KSEG_INLINE void kseg_listed_header(const int64_t *row, kseg_batch *batch) {
    batch->start = batch->entry + KSEG_HEAD;
    batch->crc = (uint32_t)row[KSEG_ROW_CRC];
    batch->attributes = row[KSEG_ROW_ATTRIBUTES];
    batch->base_offset = row[KSEG_ROW_BASE_OFFSET];
    batch->last_offset = row[KSEG_ROW_LAST_OFFSET];
    batch->base_timestamp = row[KSEG_ROW_BASE_TIMESTAMP];
    batch->max_timestamp = row[KSEG_ROW_MAX_TIMESTAMP];
    batch->count = row[KSEG_ROW_RECORD_COUNT];
    batch->time_type = (batch->attributes >> 3) & 1;
}

/* Whether no record can be newer than the header says. Some clients left -1 there, or 0 for a compressed set. */
KSEG_INLINE int kseg_bounds_time(const kseg_batch *batch) {
    if (batch->time_type == 1)
        return 1; /* it is the time of each record */
    if (batch->magic < 2)
        return !(batch->attributes & 7) || batch->max_timestamp > 0;
    const int horizon = (batch->attributes & 0x40) != 0; /* lies in place of the base time */
    return batch->max_timestamp > -1 && (horizon || batch->max_timestamp >= batch->base_timestamp);
}

/* Whether a batch cannot hold a record that is wanted, by its header alone; `kseg.format.request.narrow` agrees. */
KSEG_INLINE int kseg_unwanted(const kseg_source *source, const kseg_batch *batch, int filtered) {
    const int64_t *ask = source->ask;
    if (batch->magic == 2 && (batch->attributes & 0x20) && !ask[KSEG_ASK_CONTROL])
        return 1;
    /* The largest time is that of each record if the broker gave them their time. */
    const int one_time = batch->magic == 2 && batch->time_type == 1;
    return filtered &&
           (batch->last_offset < ask[KSEG_ASK_OFFSET_MIN] || batch->base_offset > ask[KSEG_ASK_OFFSET_MAX] ||
            (batch->max_timestamp < ask[KSEG_ASK_TIME_MIN] && kseg_bounds_time(batch)) ||
            (one_time && batch->max_timestamp > ask[KSEG_ASK_TIME_MAX]));
}

/* Whether batches after the last offset wanted have lasted for long; one alone may be damaged and lie. */
KSEG_INLINE int kseg_is_past(const kseg_source *source, const kseg_batch *batch, int64_t *state) {
    if (batch->base_offset <= source->ask[KSEG_ASK_OFFSET_MAX])
        state[KSEG_PAST_FROM] = -1;
    else if (state[KSEG_PAST_FROM] < 0)
        state[KSEG_PAST_FROM] = batch->position;
    return state[KSEG_PAST_FROM] >= 0 && !source->table &&
           batch->position - state[KSEG_PAST_FROM] >= KSEG_PAST_BYTES;
}

KSEG_INLINE void kseg_need(const kseg_batch *batch, int64_t *state, int64_t headers) {
    state[KSEG_NEED_ROWS] = batch->count;
    state[KSEG_NEED_BYTES] = batch->end - batch->start;
    state[KSEG_NEED_HEADERS] = headers;
}

/* Whether the batch goes into what is left of the piece. */
KSEG_INLINE int kseg_fits(const kseg_source *source, const kseg_batch *batch, const kseg_piece *piece,
                          int64_t *state) {
    int64_t bytes = batch->end - batch->start;
    if (batch->count > state[KSEG_ROWS_MAX] - piece->rows || bytes > state[KSEG_BYTES_MAX] - state[KSEG_BYTES]) {
        kseg_need(batch, state, 0);
        return piece->rows ? KSEG_FULL : KSEG_NO_ROOM;
    }
    if (source->ask[KSEG_ASK_ONE_TYPE] && piece->rows && batch->time_type != state[KSEG_TIME_TYPE])
        return KSEG_FULL;
    return KSEG_END;
}

KSEG_INLINE int kseg_is_inflated(const kseg_inflated *held, const kseg_batch *batch) {
    return held->position == batch->position && held->packed == batch->end - batch->start &&
           held->attributes == batch->attributes && held->crc == batch->crc;
}

static uint32_t kseg_sum_of(const kseg_source *source, const kseg_batch *batch) {
    int64_t from = batch->magic == 2 ? KSEG_COVERED : KSEG_MESSAGE_COVERED;
    const uint8_t *covered = batch->entry + from;
    size_t size = (size_t)(batch->size - from);
    return batch->magic == 2 ? source->sum(0, covered, size) : source->message_sum(covered, size);
}

/* A compressed batch becomes one whose records lie inflated: KSEG_END, or why it is not read here. No codec sees bytes
 * whose checksum is wrong. */
static __attribute__((noinline)) int kseg_inflate(const kseg_source *source, kseg_batch *batch) {
    kseg_inflated *held = source->inflated;
    int64_t packed = batch->end - batch->start;
    if (batch->count <= 0)
        return KSEG_ODD;
    if (!kseg_is_inflated(held, batch)) {
        held->position = -1;
        if (batch->compare && kseg_sum_of(source, batch) != batch->crc)
            return KSEG_ODD;
        if (source->inflate(held, (int)(batch->attributes & 7), batch->magic, batch->start, packed,
                            source->ask[KSEG_ASK_INFLATED_MAX]))
            return KSEG_OTHER;
        held->position = batch->position;
        held->packed = packed;
        held->attributes = batch->attributes;
        held->crc = batch->crc;
    }
    batch->start = held->bytes;
    batch->end = batch->room_end = held->bytes + held->size;
    batch->compare = 0;
    return KSEG_END;
}

/* Whether a batch lacks the needle, and has the right checksum. One that does not is read, so that its records, or its
 * fault, are found. */
static __attribute__((noinline)) int kseg_lacks(const kseg_source *source, const kseg_batch *batch) {
    const uint8_t *p = batch->start, *end = batch->end;
    uint32_t sum = batch->compare ? source->sum(0, p - (KSEG_HEAD - KSEG_COVERED), KSEG_HEAD - KSEG_COVERED) : 0;
    while (p < end) {
        const uint8_t *stop = end - p <= KSEG_SUM_STEP ? end : p + KSEG_SUM_STEP;
        int64_t before = p - batch->start < source->needle->size ? p - batch->start : source->needle->size - 1;
        if (batch->compare)
            sum = source->sum(sum, p, (size_t)(stop - p));
        if (kseg_find(source->needle, p - before, stop) != NULL)
            return 0;
        p = stop;
    }
    return !batch->compare || sum == batch->crc;
}

/* Records of a batch that do not get into the piece leave no trace in it; why the call ends then. */
KSEG_INLINE int kseg_refused(const kseg_batch *batch, kseg_piece *out, const kseg_mark *mark, int64_t *state,
                             int why) {
    kseg_take_back(out, mark);
    if (why == KSEG_NO_ROOM && out->rows)
        return KSEG_FULL;
    kseg_need(batch, state, (batch->end - batch->start) / 2);
    return why;
}

/* A batch is done: its records are in the piece, or passed over. */
KSEG_INLINE void kseg_count(const kseg_source *source, const kseg_batch *batch, const kseg_piece *out, int64_t rows,
                            int64_t *state) {
    if (out->rows > rows)
        state[KSEG_TIME_TYPE] = batch->time_type;
    if (source->counts) {
        source->counts[state[KSEG_BATCHES]] = out->rows - rows;
        source->firsts[state[KSEG_BATCHES]] = batch->base_offset;
    }
    state[KSEG_BATCHES]++;
    state[KSEG_LAST] = batch->position;
    if (batch->last_offset > state[KSEG_LAST_OFFSET])
        state[KSEG_LAST_OFFSET] = batch->last_offset;
    state[KSEG_AT] += source->table ? 1 : batch->size;
}

KSEG_INLINE int kseg_next(const kseg_source *source, int64_t *state, kseg_batch *batch) {
    if (source->counts && state[KSEG_BATCHES] == source->counts_max)
        return KSEG_FULL;
    return source->table ? kseg_listed(source, state[KSEG_AT], batch)
                         : kseg_frame(source, state[KSEG_AT], state, batch);
}

/* ---- Batch after batch of magic 2. ---- */

/* Read on into a piece until something ends it; see the reasons above. The caller gives `fields` and `filtered` as
 * constants, so that each set of columns has a loop of its own, and the piece lies in a local of the caller: the
 * compiler then keeps in registers what it must otherwise take for changed by each store. */
KSEG_INLINE int kseg_read_batches(const kseg_source *source, kseg_piece *out, int64_t *state, int64_t fields,
                                  int filtered) {
    kseg_batch batch;
    kseg_mark mark;
    int why;
    int64_t lacking = 0;
    for (;;) {
        if (lacking > KSEG_LACKING_BYTES)
            return KSEG_FULL;
        why = kseg_next(source, state, &batch);
        if (!KSEG_LIKELY(why == KSEG_NEWER))
            return why;
        if (source->table)
            kseg_listed_header(source->table + state[KSEG_AT] * KSEG_ROW_WIDTH, &batch);
        else
            kseg_header(&batch);
        if (filtered && kseg_is_past(source, &batch, state))
            return KSEG_PAST;
        mark = kseg_mark_of(out);
        if (!kseg_unwanted(source, &batch, filtered)) {
            int packed = (batch.attributes & 7) != 0;
            if (packed) {
                kseg_batch other = batch; /* no other function sees the address of `batch` */
                why = kseg_inflate(source, &other);
                if (why != KSEG_END)
                    return why;
                batch = other;
            }
            if (batch.count < 0 || batch.count > (batch.end - batch.start) / KSEG_RECORD_MIN)
                return KSEG_ODD;
            if (source->needle != NULL && kseg_lacks(source, &batch)) {
                source->inflated->position = -1;
                lacking += batch.end - batch.start;
                kseg_count(source, &batch, out, mark.rows, state);
                continue;
            }
            why = kseg_fits(source, &batch, out, state);
            if (!KSEG_LIKELY(why == KSEG_END))
                return why;
            kseg_prefetch_short(batch.start, batch.size);
            why = kseg_read_records(source, &batch, out, fields, filtered);
            if (packed && why != KSEG_NO_ROOM)
                source->inflated->position = -1;
            if (!KSEG_LIKELY(why == 0))
                return kseg_refused(&batch, out, &mark, state, why);
            state[KSEG_BYTES] += batch.end - batch.start;
        }
        kseg_count(source, &batch, out, mark.rows, state);
    }
}

/* ---- Messages of magic 0 and 1. ----
 *
 *   offset 8 | size 4 | CRC-32 4 | magic 1 | attributes 1 | timestamp 8, magic 1 alone
 *   | key length 4, key | value length 4, value
 *
 * The checksum covers what follows it. A negative length is null; bytes after the value are passed over. The value of
 * a compressed message holds a set of messages, which may end inside one. */

/* Key and value of a message; whether they are inside it. */
KSEG_INLINE int kseg_parse_message(const uint8_t *p, const uint8_t *end, kseg_record *r) {
    p += p[16] ? 26 : 18;
    if (!KSEG_LIKELY(end - p >= 8))
        return 0;
    r->key_size = kseg_i32(p);
    p += 4;
    r->key = p;
    if (r->key_size > 0) {
        if (!KSEG_LIKELY(r->key_size <= end - p - 4))
            return 0;
        p += r->key_size;
    }
    r->value_size = kseg_i32(p);
    r->value = p + 4;
    return r->value_size <= end - r->value;
}

/* The fields as the message itself has them. A row must agree: the careful path looks at both. */
KSEG_INLINE int kseg_describe(const int64_t *row, kseg_batch *batch) {
    const uint8_t *p = batch->entry;
    int attributes = p[17];
    batch->attributes = attributes;
    batch->crc = kseg_u32(p + 12);
    batch->last_offset = kseg_i64(p);
    batch->base_offset = (attributes & 7) ? -1 : batch->last_offset;
    batch->max_timestamp = batch->magic ? kseg_i64(p + 18) : -1;
    batch->time_type = batch->magic ? (attributes >> 3) & 1 : -1;
    batch->start = p + KSEG_MESSAGE_MIN;
    batch->count = 1;
    batch->shift = 0;
    return row == NULL ||
           (p[16] == batch->magic && kseg_i32(p + 8) + (int64_t)KSEG_OVERHEAD == batch->size &&
            batch->last_offset == row[KSEG_ROW_LAST_OFFSET] && batch->attributes == row[KSEG_ROW_ATTRIBUTES] &&
            (int64_t)batch->crc == row[KSEG_ROW_CRC]);
}

/* Counts the whole messages of a set, and finds what their offsets are moved by: all sizes are known before a message is
 * given. Magic 1 stores relative offsets, and the absolute one of the last message outside; but some clients left 0
 * there. */
static int kseg_survey(kseg_batch *batch) {
    const uint8_t *p = batch->start;
    int64_t last = 0, size;
    for (batch->count = 0; batch->end - p >= KSEG_OVERHEAD; batch->count++) {
        size = kseg_i32(p + 8);
        if (size < KSEG_MESSAGE_MIN - KSEG_OVERHEAD)
            return KSEG_ODD;
        if (size > batch->end - p - KSEG_OVERHEAD)
            break;
        last = kseg_i64(p);
        p += size + KSEG_OVERHEAD;
    }
    batch->end = p;
    if (batch->count == 0)
        return KSEG_ODD;
    if (batch->magic == 1 && batch->last_offset != 0) {
        if (batch->last_offset < last)
            return KSEG_ODD;
        batch->shift = kseg_sub64(batch->last_offset, last);
    }
    batch->base_offset = kseg_add64(kseg_i64(batch->start), batch->shift);
    return KSEG_END;
}

/* A compressed message becomes the set inside: KSEG_END, or why it is not read here. */
static __attribute__((noinline)) int kseg_unwrap(const kseg_source *source, kseg_batch *batch) {
    kseg_record r;
    int why;
    if (source->ask[KSEG_ASK_NOTES])
        return KSEG_OTHER;
    if (!kseg_parse_message(batch->entry, batch->end, &r) || r.value_size < 0)
        return KSEG_ODD;
    batch->start = r.value;
    batch->end = r.value + r.value_size;
    why = kseg_inflate(source, batch);
    batch->compare = source->ask[KSEG_ASK_VERIFY] != 0;
    return why == KSEG_END ? kseg_survey(batch) : why;
}

/* The message `[p, end)` as a row: 0 or KSEG_ODD. */
KSEG_INLINE int kseg_read_message(const kseg_source *source, const kseg_batch *batch, const uint8_t *p,
                                  const uint8_t *end, kseg_piece *out, int64_t fields, int filtered) {
    kseg_record r;
    if (batch->compare &&
        source->message_sum(p + KSEG_MESSAGE_COVERED, (size_t)(end - p) - KSEG_MESSAGE_COVERED) != kseg_u32(p + 12))
        return KSEG_ODD;
    if (!KSEG_LIKELY(kseg_parse_message(p, end, &r)))
        return KSEG_ODD;
    int64_t offset = kseg_add64(kseg_i64(p), batch->shift);
    int64_t timestamp = p[16] == 0 ? -1 : batch->time_type == 1 ? batch->max_timestamp : kseg_i64(p + 18);
    if (!filtered || kseg_in_range(source, offset, timestamp))
        kseg_add_row(out, fields, offset, timestamp, &r, batch->room_end);
    return 0;
}

/* The messages of a set: 0 or KSEG_ODD; the caller then takes the rows back. */
KSEG_INLINE int kseg_read_set(const kseg_source *source, const kseg_batch *batch, kseg_piece *out, int64_t fields,
                              int filtered) {
    const uint8_t *p = batch->start, *end;
    for (; p < batch->end; p = end) {
        end = p + KSEG_OVERHEAD + kseg_i32(p + 8);
        if (p[16] > 1 || (p[17] & 7) || kseg_read_message(source, batch, p, end, out, fields, filtered))
            return KSEG_ODD;
    }
    return 0;
}

/* Further plain messages after one that is a row already: while they are like it, sound, wanted, and fit. It does what
 * the loop below does, with the state in registers; whatever ends a run, that loop meets again. */
KSEG_INLINE void kseg_read_plain(const kseg_source *source, const kseg_batch *before, kseg_piece *out, int64_t *state,
                                 int64_t fields, int filtered) {
    const uint8_t *p = before->end, *room_end = before->room_end, *last = NULL;
    int64_t left = source->limit - (before->position + before->size), last_offset = state[KSEG_LAST_OFFSET];
    const uint8_t *stop = left < room_end - p ? p + left : room_end;
    int64_t rows = out->rows, rows_max = state[KSEG_ROWS_MAX], bytes_max = state[KSEG_BYTES_MAX] - state[KSEG_BYTES];
    kseg_batch batch = *before;
    const int magic = before->magic, attributes = (int)before->attributes;
    while (KSEG_LIKELY(p < stop && room_end - p >= KSEG_MESSAGE_MIN && out->rows < rows_max)) {
        batch.size = (int64_t)kseg_i32(p + 8) + KSEG_OVERHEAD;
        int64_t bytes = batch.size - KSEG_MESSAGE_MIN, offset = kseg_i64(p);
        if (!KSEG_LIKELY(p[16] == magic && p[17] == attributes && bytes >= 0 && bytes <= bytes_max &&
                         batch.size <= room_end - p))
            break;
        batch.max_timestamp = magic ? kseg_i64(p + 18) : -1;
        if (filtered && !kseg_in_range(source, offset, batch.max_timestamp))
            break;
        batch.start = p;
        kseg_prefetch_short(batch.start, batch.size);
        if (!KSEG_LIKELY(kseg_read_message(source, &batch, p, p + batch.size, out, fields, 0) == 0))
            break;
        last_offset = offset > last_offset ? offset : last_offset;
        bytes_max -= bytes;
        last = p;
        p += batch.size;
    }
    if (last != NULL) {
        state[KSEG_BYTES] = state[KSEG_BYTES_MAX] - bytes_max;
        state[KSEG_BATCHES] += out->rows - rows;
        state[KSEG_AT] += p - before->end;
        state[KSEG_LAST] = before->position + (last - before->entry);
        state[KSEG_LAST_OFFSET] = last_offset;
    }
}

/* As `kseg_read_batches`. */
KSEG_INLINE int kseg_read_messages(const kseg_source *source, kseg_piece *out, int64_t *state, int64_t fields,
                                   int filtered) {
    kseg_batch batch;
    kseg_mark mark;
    int why;
    for (;;) {
        why = kseg_next(source, state, &batch);
        if (!KSEG_LIKELY(why == KSEG_OLDER))
            return why;
        if (!kseg_describe(source->table ? source->table + state[KSEG_AT] * KSEG_ROW_WIDTH : NULL, &batch))
            return KSEG_ODD;
        if (filtered && kseg_is_past(source, &batch, state))
            return KSEG_PAST;
        mark = kseg_mark_of(out);
        if (!kseg_unwanted(source, &batch, filtered)) {
            int packed = (batch.attributes & 7) != 0;
            if (packed) {
                kseg_batch other = batch; /* no other function sees the address of `batch` */
                why = kseg_unwrap(source, &other);
                if (why != KSEG_END)
                    return why;
                batch = other;
            }
            why = kseg_fits(source, &batch, out, state);
            if (!KSEG_LIKELY(why == KSEG_END))
                return why;
            if (packed) {
                why = kseg_read_set(source, &batch, out, fields, filtered);
                source->inflated->position = -1;
            } else {
                kseg_prefetch_short(batch.start, batch.size);
                why = kseg_read_message(source, &batch, batch.entry, batch.end, out, fields, filtered);
            }
            if (!KSEG_LIKELY(why == 0))
                return kseg_refused(&batch, out, &mark, state, why);
            state[KSEG_BYTES] += batch.end - batch.start;
        }
        kseg_count(source, &batch, out, mark.rows, state);
        if (KSEG_LIKELY(out->rows - mark.rows == 1 && !source->table && !source->counts && !(batch.attributes & 7)))
            kseg_read_plain(source, &batch, out, state, fields, filtered);
    }
}

/* ---- Both. ---- */

#define KSEG_READ(name, read, fields, filtered)                                                    \
    static __attribute__((noinline)) int name(const kseg_source *source, kseg_piece *piece, int64_t *state) {  \
        kseg_piece out = *piece;                                                                   \
        int why = read(source, &out, state, fields, filtered);                                     \
        *piece = out;                                                                              \
        return why;                                                                                \
    }

#define KSEG_READ_BOTH(what, fields, filtered)                                                     \
    KSEG_READ(kseg_batches_##what, kseg_read_batches, fields, filtered)                            \
    KSEG_READ(kseg_messages_##what, kseg_read_messages, fields, filtered)

#define KSEG_READ_ALL(what, fields)                                                                \
    KSEG_READ_BOTH(what, fields, 0)                                                                \
    KSEG_READ_BOTH(what##_within, fields, 1)

#define KSEG_LOOPS(what)                                                                           \
    {{kseg_batches_##what, kseg_messages_##what}, {kseg_batches_##what##_within, kseg_messages_##what##_within}}

enum {
    KSEG_TIMES = KSEG_OFFSET | KSEG_TIMESTAMP,
    KSEG_PAIRS = KSEG_TIMES | KSEG_KEY | KSEG_VALUE,
    KSEG_ALL = KSEG_PAIRS | KSEG_HEADERS,
    KSEG_KEYS = KSEG_OFFSET | KSEG_KEY | KSEG_HAS_VALUE
};

KSEG_READ_ALL(offsets, KSEG_OFFSET)
KSEG_READ_ALL(times, KSEG_TIMES)
KSEG_READ_ALL(pairs, KSEG_PAIRS)
KSEG_READ_ALL(all, KSEG_ALL)
KSEG_READ_ALL(keys, KSEG_KEYS)
KSEG_READ_BOTH(some, source->ask[KSEG_ASK_FIELDS], source->filtered)
#undef KSEG_READ_ALL
#undef KSEG_READ_BOTH
#undef KSEG_READ

typedef int (*kseg_read_fn)(const kseg_source *source, kseg_piece *piece, int64_t *state);

/* For each set of columns that is usual a loop over batches and one over messages, with bounds (as the reads of a log
 * have) and without; and a pair that asks for each column. */
static const kseg_read_fn *kseg_loops(const kseg_source *source) {
    static const struct {
        int64_t fields;
        kseg_read_fn read[2][2];
    } usual[] = {
        {KSEG_OFFSET, KSEG_LOOPS(offsets)},
        {KSEG_TIMES, KSEG_LOOPS(times)},
        {KSEG_PAIRS, KSEG_LOOPS(pairs)},
        {KSEG_ALL, KSEG_LOOPS(all)},
        {KSEG_KEYS, KSEG_LOOPS(keys)},
    };
    static const kseg_read_fn others[2] = {kseg_batches_some, kseg_messages_some};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (usual[i].fields == source->ask[KSEG_ASK_FIELDS])
            return usual[i].read[source->filtered != 0];
    return others;
}

static int kseg_read(const kseg_source *source, kseg_piece *piece, int64_t *state) {
    const kseg_read_fn *read = kseg_loops(source);
    int why = KSEG_NEWER;
    while (why == KSEG_NEWER || why == KSEG_OLDER)
        why = read[why == KSEG_OLDER](source, piece, state);
    return why;
}

#endif
