#include "internal.h"

/* The port's counter has 32 bits; the differences are added up. */
uint64_t mrd_now(mrd *device) {
    uint32_t ms = device->port->ms(device->port->context);
    device->uptime += (uint32_t)(ms - device->uptime_ms);
    device->uptime_ms = ms;
    return device->uptime;
}

uint64_t mrd_clock(mrd *device) {
    uint64_t now = mrd_now(device);
    return now > device->clock ? now : device->clock;
}

/* The jump is an entry, so a reader can tell by how much the times before it, since the last start, are too early. */
int mrd_set_clock(mrd *device, uint64_t ms) {
    uint64_t now = mrd_clock(device);
    if (ms <= now || ms >> 48 != 0) return 0;
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
