/* trace.h - what a test did, for the model in crates/device. A packet is: tag (1), length (4), content.
 *
 *     B  the beginning of a run: seed (8)
 *     A  an append: log (1), seqno (8), the record
 *     F  everything so far is flushed
 *     I  the flash as it is now: its bytes
 *     S  the device was opened: epoch (4), next sequence (8); for each log its latest seqno (8)
 */
#ifndef MILLRACE_DEVICE_TRACE_H
#define MILLRACE_DEVICE_TRACE_H

#include "check.h"

static inline void trace_number(uint64_t value, unsigned bytes) {
    for (; bytes > 0; bytes--, value >>= 8) putchar((int)(value & 0xFF));
}

static inline void trace_packet(char tag, uint64_t length) {
    putchar(tag);
    trace_number(length, 4);
}

static inline void trace_begin(bool on, const mrd_flash *flash, uint64_t seed) {
    (void)flash;
    if (!on) return;
    trace_packet('B', 8);
    trace_number(seed, 8);
}

static inline void trace_append(bool on, unsigned log, uint64_t seqno, const void *bytes, size_t size) {
    if (!on) return;
    trace_packet('A', 9 + size);
    trace_number(log, 1);
    trace_number(seqno, 8);
    fwrite(bytes, 1, size, stdout);
}

static inline void trace_flush(bool on) {
    if (on) trace_packet('F', 0);
}

static inline void trace_image(bool on, const mrd_flash *flash) {
    size_t size = (size_t)flash->port.sectors * flash->port.sector_bytes;
    if (!on) return;
    trace_packet('I', size);
    fwrite(flash->bytes, 1, size, stdout);
}

static inline void trace_start(bool on, mrd *device, const mrd_log *logs, unsigned count) {
    mrd_status status;
    if (!on) return;
    mrd_stat(device, &status);
    trace_packet('S', 12 + 8 * (uint64_t)count);
    trace_number(status.epoch, 4);
    trace_number(status.sequence, 8);
    for (unsigned i = 0; i < count; i++) trace_number((uint64_t)mrd_latest(device, logs[i].name), 8);
}

#endif
