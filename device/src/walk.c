#include "internal.h"

/* Reads the flash, or, where the burst that is staged will be, that burst. */
int mrd_read(mrd *device, uint32_t at, void *bytes, uint32_t size) {
    const mrd_port *port = device->port;
    uint32_t offset = at - mrd_staged_at(device);
    if (offset < device->used) {
        uint32_t there = size < device->used - offset ? size : device->used - offset;
        memcpy(bytes, device->burst + offset, there);
        if (there < size) memset((uint8_t *)bytes + there, 0xFF, size - there);
        return 0;
    }
    if (port->mapped) {
        memcpy(bytes, port->mapped + at, size);
        return 0;
    }
    return port->read(port->context, at, bytes, size) == 0 ? 0 : MRD_READ_FAILED;
}

const uint8_t *mrd_view(mrd *device, uint32_t at, uint32_t size, uint8_t *buffer) {
    uint32_t offset = at - mrd_staged_at(device);
    bool staged = offset < device->used;
    if (staged && device->used - offset >= size) return device->burst + offset;
    if (!staged && device->port->mapped) return device->port->mapped + at;
    return mrd_read(device, at, buffer, size) < 0 ? NULL : buffer;
}

/* A LEB128 of at most 5 bytes. */
static uint32_t take_v32(const uint8_t **from) {
    const uint8_t *at = *from;
    uint32_t byte = *at++, value = byte & 0x7F;
    for (unsigned shift = 7; byte >= 0x80 && shift <= 28; shift += 7) {
        byte = *at++;
        value |= (byte & 0x7F) << shift;
    }
    *from = at;
    return value;
}

enum { HEAD_BYTES = 1 + 5 + 5 + 1 };

/* The first bytes of an entry; behind the end of the sector, zeros. */
static const uint8_t *head_of(mrd *device, uint32_t at, uint8_t bytes[HEAD_BYTES]) {
    uint32_t size = device->port->sector_bytes, left = size - (at & (size - 1));
    if (left >= HEAD_BYTES) return mrd_view(device, at, HEAD_BYTES, bytes);
    memset(bytes, 0, HEAD_BYTES);
    return mrd_read(device, at, bytes, left) < 0 ? NULL : bytes;
}

/* Without a reader: each read of a record passes here. */
bool mrd_append_at(mrd *device, uint32_t at, mrd_record_place *place) {
    uint8_t bytes[HEAD_BYTES];
    uint32_t size = device->port->sector_bytes, staged = mrd_staged_at(device);
    uint32_t end = at - staged < device->used ? staged + device->used : (at & ~(size - 1)) + size;
    const uint8_t *from = head_of(device, at, bytes);
    if (!from || *from >> 5 != MRD_APPEND) return false;
    const uint8_t *next = from + 1;
    place->size = take_v32(&next);
    place->back = take_v32(&next);
    place->is_carried = false;
    place->body = at + (uint32_t)(next + 1 - from) + (*next == MRD_CAUSE_ID ? 16 : 0);
    return place->body <= end && place->size <= end - place->body;
}

uint32_t mrd_go_back(mrd *device, uint32_t *at, uint64_t count) {
    uint8_t bytes[HEAD_BYTES];
    uint32_t gone = 0, mask = device->port->sector_bytes - 1;
    while (gone < count) {
        const uint8_t *from = head_of(device, *at, bytes);
        if (!from || *from >> 5 != MRD_APPEND) break;
        for (unsigned i = 0; i < 5 && *++from >= 0x80;) i++;
        uint32_t back = *++from;
        if (back >= 0x80) back = take_v32(&from);
        if (back == 0 || back > (*at & mask)) break;
        *at -= back;
        gone++;
    }
    return gone;
}

void mrd_reader_begin(mrd_reader *reader, mrd *device, uint32_t at, uint32_t end) {
    reader->device = device;
    reader->at = at;
    reader->end = end;
    reader->window_at = reader->window_end = 0;
    reader->failed = false;
}

uint8_t mrd_take(mrd_reader *reader) {
    if (reader->failed || reader->at >= reader->end) {
        reader->failed = true;
        return 0;
    }
    if (reader->at < reader->window_at || reader->at >= reader->window_end) {
        uint32_t size = reader->end - reader->at;
        if (size > MRD_WINDOW) size = MRD_WINDOW;
        reader->seen = mrd_view(reader->device, reader->at, size, reader->window);
        if (!reader->seen) {
            reader->failed = true;
            return 0;
        }
        reader->window_at = reader->at;
        reader->window_end = reader->at + size;
    }
    return reader->seen[reader->at++ - reader->window_at];
}

uint64_t mrd_take_v(mrd_reader *reader) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = mrd_take(reader);
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    reader->failed = true;
    return 0;
}

void mrd_take_bytes(mrd_reader *reader, void *to, uint32_t size) {
    if (reader->failed || size > reader->end - reader->at) {
        reader->failed = true;
    } else if (to && mrd_read(reader->device, reader->at, to, size) < 0) {
        reader->failed = true;
    } else {
        reader->at += size;
    }
}

static void read_append(mrd_reader *reader, mrd_entry *entry) {
    uint64_t size = mrd_take_v(reader);
    entry->back = mrd_take_v(reader);
    entry->cause = mrd_take(reader);
    if (entry->cause > MRD_CAUSE_ID || size > reader->end - reader->at) reader->failed = true;
    if (entry->cause == MRD_CAUSE_ID) mrd_take_bytes(reader, NULL, 16);
    entry->body = reader->at;
    entry->body_size = (uint32_t)size;
    mrd_take_bytes(reader, NULL, entry->body_size);
}

static void read_done(mrd_reader *reader, mrd_entry *entry) {
    uint8_t outcome = mrd_take(reader);
    entry->outcome = outcome & 3;
    entry->attempt = outcome >> 2 & 15;
    mrd_take(reader);
    entry->log = mrd_take(reader);
    entry->value = mrd_take_v(reader);
    mrd_take_v(reader);
    uint64_t rows = mrd_take_v(reader);
    entry->reads = rows > 0;
    for (; rows > 0 && !reader->failed; rows--) {
        mrd_take(reader);
        mrd_take_v(reader);
        mrd_take_v(reader);
    }
    if (entry->outcome == MRD_OUTCOME_DEAD) mrd_take_v(reader);
}

static void read_open(mrd_reader *reader, mrd_entry *entry) {
    uint8_t bytes[3];
    mrd_take_bytes(reader, bytes, sizeof bytes);
    if (!reader->failed) entry->epoch = (uint32_t)mrd_load(bytes, 3);
    entry->value = mrd_take_v(reader);
}

static void read_sized(mrd_reader *reader, mrd_entry *entry) {
    uint64_t size = mrd_take_v(reader);
    if (size > reader->end - reader->at) reader->failed = true;
    entry->body = reader->at;
    entry->body_size = (uint32_t)size;
    mrd_take_bytes(reader, NULL, entry->body_size);
}

bool mrd_next_entry(mrd_reader *reader, mrd_entry *entry) {
    if (reader->at >= reader->end || reader->failed) return false;
    entry->at = reader->at;
    entry->body = entry->body_size = 0;
    entry->attempt = 0;
    entry->reads = false;
    uint8_t first = mrd_take(reader);
    entry->kind = first >> 5;
    entry->id = first & 31;
    switch (entry->kind) {
    case MRD_APPEND: read_append(reader, entry); break;
    case MRD_DONE: read_done(reader, entry); break;
    case MRD_FIRED: entry->attempt = mrd_take(reader); break;
    case MRD_DEFINE:
        entry->what = mrd_take(reader);
        if (entry->what > MRD_DEFINE_FUNCTION) reader->failed = true;
        read_sized(reader, entry);
        break;
    case MRD_OPEN: read_open(reader, entry); break;
    case MRD_CLOCK:
        entry->value = mrd_take_v(reader);
        if (entry->id > MRD_JUMP) reader->failed = true;
        break;
    case MRD_NOTE: read_sized(reader, entry); break;
    default: reader->failed = true; break;
    }
    return !reader->failed;
}

void mrd_walk_begin(mrd_walk *walk, mrd *device, const mrd_header *header) {
    walk->device = device;
    walk->sector = mrd_sector_at(device, header->serial);
    walk->at = walk->done = mrd_data_start(device);
    walk->limit = device->port->sector_bytes;
    walk->crc = header->crc;
    walk->torn = false;
}

bool mrd_take_burst(mrd_walk *walk) {
    uint8_t head[MRD_BURST_HEAD], bytes[MRD_WINDOW];
    uint32_t at = walk->sector + walk->at;
    if (walk->limit - walk->at <= MRD_BURST_HEAD || mrd_read(walk->device, at, head, sizeof head) < 0) return false;
    uint32_t length = (uint32_t)mrd_load(head, 2), crc = mrd_crc_chain(walk->crc);
    if (length == 0 || length > walk->limit - walk->at - MRD_BURST_HEAD) return false;
    crc = mrd_crc(crc, head, 2);
    for (uint32_t done = 0; done < length; done += MRD_WINDOW) {
        uint32_t size = length - done < MRD_WINDOW ? length - done : MRD_WINDOW;
        const uint8_t *body = mrd_view(walk->device, at + MRD_BURST_HEAD + done, size, bytes);
        if (!body) return false;
        crc = mrd_crc(crc, body, size);
    }
    if (crc != mrd_load4(head + 2)) return false;
    walk->crc = crc;
    walk->body = at + MRD_BURST_HEAD;
    walk->end = walk->body + length;
    walk->at = mrd_align(walk->at + MRD_BURST_HEAD + length, walk->device->grain);
    walk->done = walk->at;
    return true;
}

/* A burst begins where the one before it ends or, after a start, at a multiple of MRD_PAGE behind blank bytes. */
bool mrd_next_burst(mrd_walk *walk) {
    while (walk->at + MRD_BURST_HEAD < walk->limit) {
        if (mrd_take_burst(walk)) return true;
        uint32_t next = mrd_align(walk->at + 1, MRD_PAGE);
        if (!mrd_is_blank(walk->device, walk->sector + walk->at, walk->sector + next)) {
            walk->torn = true;
            return false;
        }
        walk->at = next;
    }
    return false;
}

uint32_t mrd_verified_end(mrd *device, uint32_t serial) {
    mrd_header header;
    mrd_walk walk;
    unsigned slot;
    for (slot = 0; slot < MRD_VERIFIED; slot++) {
        if (device->verified[slot] == serial) return device->verified_end[slot];
    }
    slot = device->next_verified++ % MRD_VERIFIED;
    device->verified[slot] = serial;
    device->verified_end[slot] = 0;
    if (mrd_header_of(device, serial, &header)) {
        mrd_walk_begin(&walk, device, &header);
        while (mrd_next_burst(&walk)) device->verified_end[slot] = walk.done;
    }
    return device->verified_end[slot];
}

bool mrd_is_valid_in(mrd *device, uint32_t at) {
    uint32_t serial = mrd_serial_of(device, at);
    return serial == device->serial || (at & (device->port->sector_bytes - 1)) < mrd_verified_end(device, serial);
}
