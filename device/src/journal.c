#include "internal.h"

/* ---- the staged burst ---- */

void mrd_put_v(mrd *device, uint64_t value) {
    device->used = (uint16_t)(device->used + mrd_store_v(device->burst + device->used, value));
}

static void begin_burst(mrd *device) {
    uint64_t now = mrd_now(device);
    /* Each burst has a time of its own, so an entry's clock follows from its burst. */
    uint64_t time = now > device->clock ? now : device->clock + 1;
    device->burst_sequence = device->sequence;
    device->burst_epoch = device->opening ? device->epoch_before : device->epoch;
    device->used = (uint16_t)(MRD_BURST_HEAD + mrd_store_long_v(device->burst + MRD_BURST_HEAD, time - device->clock));
    device->clock = time;
    device->staged_ms = device->uptime_ms;
    if (!device->opening) return;
    device->opening = false;
    mrd_put(device, (uint8_t)(MRD_OPEN << 5 | (device->port->reset_reason & 31)));
    mrd_store(device->burst + device->used, device->epoch, 3);
    device->used = (uint16_t)(device->used + 3);
    mrd_put_v(device, device->lost_bytes);
    device->sequence++;
    if (device->damaged_from == 0) return;
    mrd_put(device, MRD_NOTE << 5 | MRD_DAMAGED);
    mrd_put_v(device, mrd_v_size(device->damaged_from));
    mrd_put_v(device, device->damaged_from);
    device->sequence++;
}

/* Entries of a burst that came later than its first one say so. */
static void advance_clock(mrd *device) {
    uint64_t now = mrd_now(device);
    if (now <= device->clock) return;
    mrd_put(device, MRD_CLOCK << 5 | MRD_LATER);
    mrd_put_v(device, now - device->clock);
    device->clock = now;
}

static int fail(mrd *device, int error) {
    device->failed = true;
    return error;
}

int mrd_flush(mrd *device) {
    if (device->failed) return MRD_FLUSH_FAILED;
    if (device->used == 0) return 0;
    const mrd_port *port = device->port;
    uint32_t at = mrd_staged_at(device), size = mrd_align(device->used, device->grain);
    mrd_store(device->burst, device->used - (uint32_t)MRD_BURST_HEAD, 2);
    uint32_t crc = mrd_crc(mrd_crc_chain(device->crc), device->burst, 2);
    crc = mrd_crc(crc, device->burst + MRD_BURST_HEAD, device->used - (uint32_t)MRD_BURST_HEAD);
    mrd_store4(device->burst + 2, crc);
    memset(device->burst + device->used, 0xFF, size - device->used);
    if (port->program(port->context, at, device->burst, size) != 0) return fail(device, MRD_FLUSH_FAILED);
    device->crc = crc;
    device->head += size;
    device->used = 0;
    device->durable = device->sequence;
    return 0;
}

/* ---- the next sector ---- */

/* Pending runs need what they have to read, and room for their ends. So an append is refused if the sectors that can be begun
 * before the oldest one that is needed could not hold the ends of all pending runs, and of those that it starts. */

/* Of an attempt's FIRED, alone in its burst. */
enum { FIRED_BYTES = MRD_BURST_HEAD + MRD_V_MAX + 2 + 1 + MRD_V_MAX };

uint32_t mrd_run_bytes(const mrd *device, unsigned function) {
    uint32_t attempts = device->functions[function].attempts ? device->functions[function].attempts : 3;
    return device->burst_bytes + (attempts - 1) * mrd_align(FIRED_BYTES, device->grain);
}

static uint32_t or_zero(uint32_t from, uint32_t less) { return from > less ? from - less : 0; }

/* One sector is left out: a loss of power may spoil it. */
static uint32_t room(const mrd *device, uint32_t rest, uint32_t sectors) {
    return or_zero(rest, device->burst_bytes) + or_zero(sectors, 1) * device->room;
}

uint32_t mrd_room(const mrd *device, uint32_t kept) {
    return room(device, device->room, or_zero(device->port->sectors, kept + 1));
}

/* The oldest sector with the record of a pending run, or the newest sector. */
static uint32_t first_pending(const mrd *device) {
    uint32_t first = device->serial;
    for (unsigned i = 0; i < device->function_count; i++) {
        const mrd_function_state_ *state = &device->function[i];
        uint32_t serial = state->pending > 0 ? mrd_serial_of(device, state->cursor) : first;
        if (serial < first) first = serial;
    }
    return first;
}

/* How many sectors can be begun before one is needed. */
static uint32_t free_sectors(const mrd *device) {
    if (device->serial == MRD_NO_SERIAL) return device->port->sectors;
    uint32_t first = first_pending(device);
    if (device->on_full == MRD_REFUSE && device->unsent < first) first = device->unsent;
    return device->port->sectors - 1 - (device->serial - first);
}

bool mrd_runs_block(const mrd *device) {
    uint32_t first = first_pending(device);
    return first != device->serial && (device->on_full == MRD_DROP || first <= device->unsent);
}

void mrd_advance_unsent(mrd *device) {
    mrd_header next;
    if (device->serial == MRD_NO_SERIAL) return;
    if (device->unsent < device->oldest) device->unsent = device->oldest;
    while (device->unsent < device->serial &&
           (!mrd_header_of(device, device->unsent + 1, &next) || next.sequence <= device->sent + 1)) {
        device->unsent++;
    }
}

static void forget(mrd *device, uint32_t *at, uint32_t serial) {
    if (*at != MRD_NONE && mrd_serial_of(device, *at) == serial) *at = MRD_NONE;
}

static void drop_oldest(mrd *device) {
    mrd_header next;
    for (unsigned i = 0; i < device->log_count; i++) {
        forget(device, &device->log[i].last, device->oldest);
        forget(device, &device->log[i].base, device->oldest);
    }
    device->oldest++;
    if (mrd_header_of(device, device->oldest, &next)) device->held = next.sequence;
}

static int begin_sector(mrd *device) {
    const mrd_port *port = device->port;
    mrd_header header;
    uint8_t bytes[MRD_UNIT_MAX];
    uint32_t end, crc, serial = device->serial + 1, sector = mrd_sector_at(device, serial);
    if (device->serial != MRD_NO_SERIAL && serial - device->oldest >= port->sectors) drop_oldest(device);
    if (port->erase(port->context, sector) != 0) return MRD_FLUSH_FAILED;
    memset(bytes, 0xFF, sizeof bytes);
    header.serial = serial;
    header.epoch = device->opening ? device->epoch_before : device->epoch;
    header.sequence = device->sequence;
    header.clock = device->clock;
    mrd_header_encode(device, &header, bytes);
    int result = mrd_catalog_write(device, &header, &end, &crc);
    if (result < 0) return result;
    /* The header makes the sector valid, so it comes last. */
    uint32_t size = mrd_align(MRD_HEADER_BYTES, port->unit);
    if (port->program(port->context, sector, bytes, size) != 0) return MRD_FLUSH_FAILED;
    mrd_catalog_adopt(device, &header);
    device->serial = serial;
    device->sector = sector;
    device->head = end;
    device->crc = crc;
    /* A read in an older sector verifies it. */
    memset(device->recent, 0, sizeof device->recent);
    mrd_advance_unsent(device);
    return 0;
}

static bool fits(const mrd *device, uint32_t size) {
    return size <= device->burst_bytes &&
           device->head + size <= device->port->sector_bytes; /* a sector ends at a multiple of the grain */
}

/* Whether `spare` bytes are left for runs behind the burst that is staged, or behind the first one of the next sector. */
static bool leaves(const mrd *device, uint32_t spare, bool begins) {
    uint32_t rest = begins ? 0 : or_zero(device->port->sector_bytes - device->head, device->burst_bytes);
    if (!begins && room(device, rest, 0) >= spare) return true;
    uint32_t sectors = free_sectors(device);
    if (!begins) return room(device, rest, sectors) >= spare;
    return sectors > 0 && (spare == 0 || room(device, device->room, sectors - 1) >= spare);
}

int mrd_reserve(mrd *device, uint32_t size, uint32_t spare) {
    uint32_t need = size + 1 + MRD_V_MAX;
    if (device->used > 0 && !fits(device, device->used + need)) {
        int result = mrd_flush(device);
        if (result < 0) return result;
    }
    if (device->failed) return MRD_FLUSH_FAILED;
    if (device->used == 0) {
        uint32_t first = need + MRD_BURST_HEAD + MRD_V_MAX + (device->opening ? 6 + 2 * MRD_V_MAX : 0);
        if (first > device->burst_bytes) return MRD_BATCH_TOO_LARGE;
        bool begins = !fits(device, first);
        if ((begins || spare > 0) && !leaves(device, spare, begins)) return MRD_FULL;
        if (begins) {
            int result = begin_sector(device);
            if (result < 0) return fail(device, result);
        }
        begin_burst(device);
        return 0;
    }
    if (spare > 0 && !leaves(device, spare, false)) return MRD_FULL;
    advance_clock(device);
    return 0;
}

/* ---- entries ---- */

void mrd_count_runs(mrd *device, unsigned log, uint32_t burst) {
    device->needed += device->log[log].bound;
    for (unsigned i = 0; i < device->function_count; i++) {
        mrd_function_state_ *state = &device->function[i];
        if (device->counted != burst) state->here = 0;
        if (state->on != log) continue;
        if (state->pending == 0) {
            state->cursor = burst;
            state->sequence = device->burst_sequence;
            state->epoch = device->burst_epoch;
            state->skip = state->here;
            state->attempt = state->fired = state->full = 0;
        }
        state->pending++;
        state->here++;
    }
    device->counted = burst;
}

void mrd_put_append(mrd *device, unsigned log, const void *data, uint32_t size, uint8_t cause, const uint8_t *id) {
    const mrd_log_state_ *state = &device->log[log];
    uint32_t burst = mrd_staged_at(device), at = burst + device->used;
    uint8_t *start = device->burst + device->used, *to = start;
    *to++ = (uint8_t)(MRD_APPEND << 5 | log);
    to += mrd_store_v(to, size);
    to += mrd_store_v(to, state->last == state->base ? 0 : at - state->last);
    *to++ = cause;
    if (id) {
        memcpy(to, id, 16);
        to += 16;
    }
    /* What a run appends may be where its entry will be. */
    if (size > 0) memmove(to, data, size);
    uint32_t head = (uint32_t)(to - start);
    device->used = (uint16_t)(device->used + head + size);
    mrd_recent_ *recent = &device->recent[device->next_recent++ % MRD_RECENT];
    recent->body = at + head;
    recent->size = (uint16_t)size;
    recent->log = (uint8_t)(log + 1);
    mrd_count_record(device, log, at, burst);
    device->sequence += 1u + state->triggers;
}
