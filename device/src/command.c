#include "internal.h"

enum { SENDERS_FULL = -6062, OTHER_LIFE = -6081 };

int mrd_sender_of(mrd *device, uint64_t namespace_id, uint64_t life, uint64_t life_id) {
    int at = -1;
    for (int i = MRD_SENDERS - 1; i >= 0; i--) {
        if (device->sender[i].namespace_id == 0) at = i;
    }
    for (int i = 0; i < MRD_SENDERS; i++) {
        if (device->sender[i].namespace_id == namespace_id) at = i;
    }
    if (at < 0) return SENDERS_FULL;
    mrd_sender_ *sender = &device->sender[at];
    if (sender->namespace_id == namespace_id && sender->life == life && sender->life_id == life_id) return at;
    /* A host that was put back from a backup would give numbers again that the device has. */
    if (sender->namespace_id == namespace_id && life <= sender->life) return OTHER_LIFE;
    sender->namespace_id = namespace_id;
    sender->life = life;
    sender->life_id = life_id;
    device->named = (uint8_t)(device->named & ~(1u << at));
    return at;
}

unsigned mrd_sender_encode(const mrd *device, unsigned sender, bool whole, uint8_t body[MRD_SENDER_BYTES]) {
    const mrd_sender_ *one = &device->sender[sender];
    unsigned size = 1;
    body[0] = (uint8_t)sender;
    size += mrd_store_v(body + size, one->number);
    if (!whole) return size;
    mrd_store(body + size, one->namespace_id, 6);
    mrd_store(body + size + 6, one->life_id, 8);
    return size + 14 + mrd_store_v(body + size + 14, one->life);
}

void mrd_sender_replay(mrd *device, uint32_t body, uint32_t size) {
    mrd_reader reader;
    uint8_t bytes[14];
    mrd_reader_begin(&reader, device, body, body + size);
    unsigned at = mrd_take(&reader);
    uint64_t number = mrd_take_v(&reader);
    if (reader.failed || at >= MRD_SENDERS) return;
    mrd_sender_ *one = &device->sender[at];
    one->number = number;
    if (reader.at == reader.end) return;
    mrd_take_bytes(&reader, bytes, sizeof bytes);
    uint64_t life = mrd_take_v(&reader);
    if (reader.failed) return;
    one->namespace_id = mrd_load(bytes, 6);
    one->life_id = mrd_load(bytes + 6, 8);
    one->life = life;
    device->named = (uint8_t)(device->named | 1u << at);
}

int mrd_stage_command(mrd *device, unsigned sender, uint64_t number, int log, const void *data, uint32_t size, const uint8_t *id) {
    uint8_t body[MRD_SENDER_BYTES];
    uint32_t need = 2 + MRD_SENDER_BYTES + (log < 0 ? 0 : MRD_APPEND_BYTES + 16u + size);
    int result = mrd_reserve(device, need, mrd_needed(device, log));
    if (result < 0) return result;
    if (log >= 0) mrd_put_append(device, (unsigned)log, data, size, MRD_CAUSE_ID, id);
    device->sender[sender].number = number;
    unsigned bytes = mrd_sender_encode(device, sender, !(device->named >> sender & 1), body);
    mrd_put(device, MRD_NOTE << 5 | MRD_STREAM);
    mrd_put_v(device, bytes);
    for (unsigned i = 0; i < bytes; i++) mrd_put(device, body[i]);
    device->sequence++;
    device->named = (uint8_t)(device->named | 1u << sender);
    return 0;
}
