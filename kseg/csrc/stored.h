/* Records as they lie in their batches, for those who read them in place. */
#ifndef KSEG_STORED_H
#define KSEG_STORED_H

#include "reader.h"

/* The end of a record whose headers are sound, too; NULL where anything is wrong. With `any`, its shape is not guessed. */
KSEG_INLINE const uint8_t *kseg_sound_record(const uint8_t *p, const kseg_batch *batch, kseg_record *r, int any) {
    const uint8_t *stop = any ? NULL : kseg_plain_record(p, batch->end, r);
    if (KSEG_LIKELY(stop != NULL)) {
        kseg_fetch_on(p, stop);
        return stop;
    }
    stop = kseg_any_record(p, batch->end, r);
    if (stop != NULL && r->header_count != 0 && kseg_read_headers(r, stop, stop, NULL, 0))
        return NULL;
    return stop;
}

#endif
