/* functions.h - functions for tests, which stand in one file here. */
#ifndef MILLRACE_DEVICE_FUNCTIONS_H
#define MILLRACE_DEVICE_FUNCTIONS_H

#define MILLRACE_DEVICE copy
#include "millrace.h"

/* The first byte of a record decides what happens to it. */
static inline bool fails_once(uint8_t byte) { return byte % 8 == 1; }
static inline bool fails_always(uint8_t byte) { return byte % 16 == 2; }

/* Appends the record to "out", after its predecessor's first byte, unless it fails. */
int copy_handle(const mr_record *record) {
    uint8_t bytes[64];
    bytes[0] = 0;
    if (record->seqno > 1) mr_get(record->log, record->seqno - 1, bytes, 1);
    if (fails_always(record->data[0]) || (record->attempt == 1 && fails_once(record->data[0]))) return 1;
    size_t size = record->size < sizeof bytes - 1 ? record->size : sizeof bytes - 1;
    memcpy(bytes + 1, record->data, size);
    return mr_append("out", bytes, size + 1);
}

/* Appends more than fits into a burst. */
int flood_handle(const mr_record *record) {
    for (unsigned i = 0; i < 100; i++) {
        if (mr_append("out", record->data, record->size) < 0) break;
    }
    return 0;
}

#endif
