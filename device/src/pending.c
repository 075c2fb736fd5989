#include "internal.h"

/* Bursts from an address on, without their checksums, which were verified. */
typedef struct {
    mrd *device;
    uint32_t serial, at, limit; /* offsets in the sector */
    uint32_t body, end;
    uint32_t crc; /* of the burst before `at`; not known at the first one, which is at `at` */
    bool begun;
    uint64_t sequence;
    uint32_t epoch;
    int on, log;                     /* the log whose records are sought: its number, and that in this sector */
    uint8_t triggers[MRD_LOGS_MAX]; /* of a sector of other firmware */
} hop;

static void enter_sector(hop *to, uint32_t serial, uint32_t at) {
    mrd *device = to->device;
    to->serial = serial;
    to->at = at;
    to->limit = device->head + (device->used > 0);
    if (serial != device->serial) to->limit = mrd_verified_end(device, serial);
    to->log = to->on;
    if (serial < device->own) to->log = mrd_catalog_ids(device, serial, device->logs[to->on].name, to->triggers);
}

static bool enter_next_sector(hop *to) {
    mrd_header header;
    uint8_t head[MRD_BURST_HEAD];
    while (to->serial != to->device->serial) {
        uint32_t start = mrd_data_start(to->device), serial = to->serial + 1;
        enter_sector(to, serial, start);
        if (!mrd_header_of(to->device, serial, &header)) continue;
        if (mrd_read(to->device, mrd_sector_at(to->device, serial) + start, head, sizeof head) < 0) continue;
        to->at = mrd_align(start + MRD_BURST_HEAD + (uint32_t)mrd_load(head, 2), to->device->grain);
        to->crc = (uint32_t)mrd_load(head + 2, 4);
        to->begun = true;
        to->sequence = header.sequence;
        to->epoch = header.epoch;
        return true;
    }
    return false;
}

/* Whether blank bytes up to the next page are here. At the last byte of a page, 0xFF may also be the first byte of a burst. */
static bool is_gap(const hop *to, const uint8_t head[2]) {
    mrd_walk walk;
    if (!to->begun || head[0] != 0xFF) return false;
    if ((to->at + 1) % MRD_PAGE != 0) return head[1] == 0xFF;
    walk.device = to->device;
    walk.sector = mrd_sector_at(to->device, to->serial);
    walk.at = to->at;
    walk.limit = to->device->port->sector_bytes;
    walk.crc = to->crc;
    return !mrd_take_burst(&walk);
}

static bool next_hop(hop *to) {
    uint8_t head[MRD_BURST_HEAD];
    for (;;) {
        if (to->at >= to->limit) {
            if (!enter_next_sector(to)) return false;
            continue;
        }
        uint32_t at = mrd_sector_at(to->device, to->serial) + to->at;
        bool staged = to->device->used > 0 && at == mrd_staged_at(to->device);
        uint32_t left = to->device->port->sector_bytes - to->at;
        memset(head, 0xFF, sizeof head);
        if (!staged && mrd_read(to->device, at, head, left < sizeof head ? left : sizeof head) < 0) return false;
        uint32_t size = staged ? to->device->used - (uint32_t)MRD_BURST_HEAD : (uint32_t)mrd_load(head, 2);
        if (!staged && is_gap(to, head)) {
            to->at = mrd_align(to->at + 1, MRD_PAGE);
            continue;
        }
        /* Damage since the sector was verified. */
        if (!staged && size + MRD_BURST_HEAD > left) return false;
        if (!staged) to->crc = (uint32_t)mrd_load(head + 2, 4);
        to->begun = true;
        to->body = at + MRD_BURST_HEAD;
        to->end = to->body + size;
        to->at = mrd_align(to->at + MRD_BURST_HEAD + size, to->device->grain);
        return true;
    }
}

unsigned mrd_events_of(const mrd_entry *entry, unsigned triggers) {
    switch (entry->kind) {
    case MRD_APPEND: return 1 + triggers;
    case MRD_DONE: return 1u + (entry->attempt == 1) + entry->reads;
    case MRD_FIRED: return entry->attempt == 2 ? 2 : 1;
    case MRD_CLOCK: return entry->id != MRD_LATER;
    case MRD_DEFINE: return 0;
    default: return 1;
    }
}

static unsigned triggers_of(const hop *to, unsigned log) {
    return to->serial < to->device->own ? to->triggers[log] : log < to->device->log_count ? to->device->log[log].triggers : 0;
}

bool mrd_walk_pending(mrd *device, mrd_function_state_ *state, mrd_entry *entry, uint64_t *sequence, uint32_t *epoch) {
    hop to;
    mrd_reader reader;
    uint32_t skip = state->skip;
    to.device = device;
    to.on = state->on;
    to.begun = false;
    to.crc = 0;
    to.sequence = state->sequence;
    to.epoch = state->epoch;
    enter_sector(&to, mrd_serial_of(device, state->cursor), state->cursor % device->port->sector_bytes);
    if (!mrd_is_valid(device, state->cursor)) to.limit = 0;
    while (next_hop(&to)) {
        uint32_t here = 0;
        uint64_t first = to.sequence;
        uint32_t before = to.epoch;
        mrd_reader_begin(&reader, device, to.body, to.end);
        mrd_take_v(&reader);
        while (mrd_next_entry(&reader, entry)) {
            if (entry->kind == MRD_APPEND && entry->id == to.log) {
                if (skip == 0) {
                    state->cursor = to.body - MRD_BURST_HEAD;
                    state->sequence = first;
                    state->skip = here;
                    state->epoch = before;
                    *sequence = to.sequence;
                    *epoch = to.epoch;
                    return true;
                }
                skip--;
                here++;
            }
            if (entry->kind == MRD_OPEN) to.epoch = entry->epoch;
            to.sequence += mrd_events_of(entry, triggers_of(&to, entry->id));
        }
    }
    return false;
}

bool mrd_find_pending(mrd *device, unsigned function, mrd_record_place *place) {
    mrd_function_state_ *state = &device->function[function];
    mrd_entry entry;
    uint64_t sequence;
    uint32_t epoch;
    /* A cursor that stays behind keeps its sector from being dropped, so it stays in the newest one at most. */
    bool near = state->cursor - device->sector < device->port->sector_bytes;
    if (near && mrd_find_recent(device, state->on, state->pending - 1, place)) return true;
    if (mrd_walk_pending(device, state, &entry, &sequence, &epoch)) {
        place->body = entry.body;
        place->size = entry.body_size;
        return true;
    }
    /* Damage has taken them. */
    device->needed -= state->pending * mrd_run_bytes(device, function);
    state->pending = 0;
    return false;
}
