#include "internal.h"

int64_t mrd_append(mrd *device, const char *log, const void *data, size_t size, const mrd_cause *cause) {
    int at = mrd_find_log(device, log);
    if (at < 0) return MRD_LOG_NOT_FOUND;
    if (size > mrd_record_max(device, (unsigned)at)) return MRD_RECORD_TOO_LONG;
    int result = mrd_reserve(device, MRD_APPEND_BYTES + (cause ? 16u : 0) + (uint32_t)size, mrd_needed(device, at));
    if (result < 0) return result;
    mrd_put_append(device, (unsigned)at, data, (uint32_t)size, cause ? MRD_CAUSE_ID : MRD_CAUSE_OUTSIDE, cause ? cause->id : NULL);
    return (int64_t)device->log[at].seqno;
}

int mrd_sync(mrd *device) { return mrd_flush(device); }

int64_t mrd_latest(const mrd *device, const char *log) {
    int at = mrd_find_log(device, log);
    return at < 0 ? MRD_LOG_NOT_FOUND : (int64_t)device->log[at].seqno;
}

/* From a record to the newest one before the start of its sector, by the catalog of that sector. */
static bool leave_sector(mrd *device, const char *log, uint32_t *at, uint64_t *seqno) {
    mrd_definition found;
    uint32_t serial = mrd_serial_of(device, *at);
    if (!mrd_catalog_find(device, serial, log, &found)) return false;
    *seqno = found.seqno;
    *at = found.flags & MRD_LOG_CARRIED && found.at != *at ? found.at : mrd_back(device, serial, found.back);
    return true;
}

/* Near records are found by their distances; for others, and behind damage, catalogs are read first. */
enum { NEAR = 32 };

static int find_record(mrd *device, unsigned log, uint64_t wanted, uint32_t *at) {
    const char *name = device->logs[log].name;
    uint64_t seqno = device->log[log].seqno;
    mrd_record_place place;
    *at = device->log[log].last;
    while (seqno > wanted && *at != MRD_NONE) {
        uint32_t before = *at;
        uint64_t older = seqno;
        bool valid = mrd_is_valid(device, *at);
        if (seqno - wanted > NEAR || !valid) {
            if (!leave_sector(device, name, &before, &older)) return MRD_RECORD_DAMAGED;
            if (older >= wanted) {
                /* A carried record has the seqno of its catalog. */
                if (older == seqno && before == *at) return MRD_BELOW_HISTORY;
                *at = before;
                seqno = older;
                continue;
            }
        }
        if (!valid) return MRD_RECORD_DAMAGED;
        /* What stands before a valid record in its sector is valid. */
        seqno -= mrd_go_back(device, at, seqno - wanted);
        if (seqno == wanted) break;
        if (!mrd_record_at(device, *at, &place)) return MRD_RECORD_DAMAGED;
        if (place.is_carried) return MRD_BELOW_HISTORY;
        if (place.back > 0 || !leave_sector(device, name, at, &seqno)) return MRD_RECORD_DAMAGED;
    }
    if (*at == MRD_NONE || seqno != wanted) return MRD_BELOW_HISTORY;
    return 0;
}

/* The newest records were appended a moment ago, and nothing need be read to find them. */
bool mrd_find_recent(const mrd *device, unsigned log, uint32_t back, mrd_record_place *place) {
    for (unsigned i = 1; i <= MRD_RECENT && back < MRD_RECENT; i++) {
        const mrd_recent_ *one = &device->recent[(device->next_recent - i) % MRD_RECENT];
        if (one->log != log + 1 || back-- > 0) continue;
        place->body = one->body;
        place->size = one->size;
        return true;
    }
    return false;
}

/* Otherwise, what leads to them is followed through the flash. */
static int find_old(mrd *device, unsigned log, uint64_t seqno, mrd_record_place *place) {
    uint32_t at;
    int result = find_record(device, log, seqno, &at);
    bool found = result == 0 && mrd_is_valid(device, at) && (mrd_append_at(device, at, place) || mrd_record_at(device, at, place));
    if (result == 0 && !found) result = MRD_RECORD_DAMAGED;
    /* Power may have been lost while the oldest sector was erased. */
    if (result == MRD_RECORD_DAMAGED && mrd_serial_of(device, at) == device->oldest) result = MRD_BELOW_HISTORY;
    return result;
}

int64_t mrd_get(mrd *device, const char *log, uint64_t seqno, void *buffer, size_t capacity) {
    int index = mrd_find_log(device, log);
    if (index < 0) return MRD_LOG_NOT_FOUND;
    return mrd_get_at(device, (unsigned)index, seqno, buffer, capacity);
}

int64_t mrd_get_at(mrd *device, unsigned log, uint64_t seqno, void *buffer, size_t capacity) {
    uint64_t newest = device->log[log].seqno;
    mrd_record_place place;
    if (seqno == 0) return MRD_SEQNO_INVALID;
    if (seqno > newest) return MRD_ABOVE_TAIL;
    if (newest - seqno >= device->logs[log].history) return MRD_BELOW_HISTORY;
    int result = mrd_find_recent(device, log, (uint32_t)(newest - seqno), &place) ? 0 : find_old(device, log, seqno, &place);
    if (result < 0) return result;
    uint32_t size = place.size < capacity ? place.size : (uint32_t)capacity;
    if (size > 0 && mrd_read(device, place.body, buffer, size) < 0) return MRD_READ_FAILED;
    return place.size;
}

void mrd_delivered(mrd *device, uint64_t sequence) {
    if (sequence <= device->sent || sequence >= device->durable) return;
    device->sent = sequence;
    mrd_advance_unsent(device);
}

void mrd_stat(mrd *device, mrd_status *status) {
    memset(status, 0, sizeof *status);
    status->sequence = device->sequence;
    status->durable = device->durable;
    status->held = device->held;
    status->delivered = device->sent;
    status->lost = device->held > device->sent + 1 ? device->held - device->sent - 1 : 0;
    status->damaged_from = device->damaged_from;
    status->epoch = device->epoch;
    status->erases = device->serial + 1;
    status->sectors = device->serial + 1 - device->oldest;
    for (unsigned i = 0; i < device->function_count; i++) status->pending += device->function[i].pending;
}
