#include "internal.h"

/* The port's counter has 32 bits; the differences are added up. */
uint64_t mrd_now(mrd *device) {
    uint32_t ms = device->port->ms(device->port->context);
    device->uptime += (uint32_t)(ms - device->uptime_ms);
    device->uptime_ms = ms;
    return device->uptime;
}

uint64_t mrd_clock(mrd *device) {
    mrd_now(device);
    return mrd_last_clock(device);
}

/* Later times would not fit into the clock of a frame, nor, some time after, into that of a sector: they are a mistake of whoever tells them. */
enum { CLOCK_BITS = 42 };

/* The jump is an entry, so a reader can tell by how much the times before it, since the last start, are too early. */
int mrd_set_clock(mrd *device, uint64_t ms) {
    uint64_t now = mrd_clock(device);
    if (ms <= now || ms >> CLOCK_BITS != 0) return 0;
    int result = mrd_reserve(device, 1 + MRD_V_MAX, mrd_needed(device, -1));
    if (result < 0) return result;
    uint64_t jump = ms - device->clock;
    mrd_put(device, MRD_CLOCK << 5 | MRD_JUMP);
    mrd_put_v(device, jump);
    device->sequence++;
    device->jumped_ms += jump;
    device->clock = device->uptime = ms;
    return 0;
}

/* ---- sleep ---- */

enum { NAP = 0x4D524E50 };

/* 0: mark and checksum of the rest; 1: sequence; 2: clock; 3: jumps; 4: delivered; 5: serial and head; 6: crc and epoch; 7 to 10: a byte for each
 * function, with the attempts that failed and how often an end found no room. */
enum { NAP_RUNS = 7 };
static uint64_t nap_mark(const mrd_nap *nap) { return (uint64_t)NAP << 32 | mrd_crc(0, nap->words + 1, sizeof nap->words - 8); }

int mrd_sleep(mrd *device, mrd_nap *nap) {
    memset(nap, 0, sizeof *nap);
    int result = mrd_flush(device);
    if (result < 0) return result;
    /* A start that has written nothing begins again. */
    if (device->opening) return 0;
    nap->words[1] = device->sequence;
    nap->words[2] = mrd_clock(device);
    nap->words[3] = device->jumped_ms;
    nap->words[4] = device->sent;
    nap->words[5] = (uint64_t)device->serial << 32 | device->head;
    nap->words[6] = (uint64_t)device->crc << 32 | device->epoch;
    for (unsigned i = 0; device->own <= device->serial && i < device->function_count; i++) {
        const mrd_function_state_ *state = &device->function[i];
        ((uint8_t *)(nap->words + NAP_RUNS))[i] = (uint8_t)(state->attempt | state->full << 4);
    }
    nap->words[0] = nap_mark(nap);
    return 0;
}

bool mrd_wake(mrd *device, mrd_nap *nap, uint64_t slept_ms) {
    bool held = nap->words[0] == nap_mark(nap) && nap->words[1] == device->sequence && device->opening && device->used == 0 &&
                (uint32_t)(nap->words[5] >> 32) == device->serial && (uint32_t)(nap->words[6] >> 32) == device->crc &&
                (uint32_t)nap->words[6] == device->epoch_before && device->lost_bytes == 0;
    if (held) {
        device->opening = false;
        device->epoch = device->epoch_before;
        /* New firmware, with other logs or functions, begins a sector. */
        if (device->own <= device->serial) {
            device->head = (uint32_t)nap->words[5];
            for (unsigned i = 0; i < device->function_count; i++) {
                uint8_t run = ((const uint8_t *)(nap->words + NAP_RUNS))[i];
                device->function[i].attempt = run & 15;
                device->function[i].full = run >> 4;
            }
        }
        device->uptime = nap->words[2] + (slept_ms >> CLOCK_BITS == 0 ? slept_ms : 0);
        device->jumped_ms = nap->words[3];
        mrd_delivered(device, nap->words[4]);
    }
    /* What is written from now on may be interrupted, without a trace of where. */
    memset(nap, 0, sizeof *nap);
    return held;
}
