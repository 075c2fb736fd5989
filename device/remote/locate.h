/* locate.h - a record with what only its place in the journal tells: its id, its time and its cause. */
#ifndef MILLRACE_DEVICE_LOCATE_H
#define MILLRACE_DEVICE_LOCATE_H

#include "../src/internal.h"

typedef struct mrd_located {
    uint64_t seqno;
    uint64_t hlc;        /* as in a frame, with the corrections of the clock that followed soon; 0 if it is not known */
    uint32_t body, size; /* the payload */
    mrd_cause id;        /* zero if the record was carried on and its original was dropped */
    mrd_cause cause;     /* zero if there is none, or the record that caused it was dropped */
} mrd_located;

/* Finds a record that mrd_get_at finds. Returns 0, or an error. */
int mrd_locate(mrd *device, unsigned log, uint64_t seqno, mrd_located *found);
/* The id of an event of this device. */
void mrd_event_id(const mrd *device, uint32_t epoch, uint64_t sequence, mrd_cause *id);

#endif
