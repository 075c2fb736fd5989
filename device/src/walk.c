#include "internal.h"

/* Reads the flash, or, where the burst that is staged will be, that burst. */
int mrd_read(mrd *device, uint32_t at, void *bytes, uint32_t size) {
    uint32_t staged = mrd_staged_at(device);
    if (device->used > 0 && at >= staged && at - staged < device->used) {
        uint32_t offset = at - staged;
        uint32_t there = size < device->used - offset ? size : device->used - offset;
        memcpy(bytes, device->burst + offset, there);
        memset((uint8_t *)bytes + there, 0xFF, size - there);
        return 0;
    }
    return device->port->read(device->port->context, at, bytes, size) == 0 ? 0 : MRD_READ_FAILED;
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
        if (mrd_read(reader->device, reader->at, reader->window, size) < 0) {
            reader->failed = true;
            return 0;
        }
        reader->window_at = reader->at;
        reader->window_end = reader->at + size;
    }
    return reader->window[reader->at++ - reader->window_at];
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
    memset(entry, 0, sizeof *entry);
    entry->at = reader->at;
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
    if (mrd_read(walk->device, at, head, sizeof head) < 0) return false;
    uint32_t length = (uint32_t)mrd_load(head, 2), crc = mrd_crc_chain(walk->crc);
    if (length == 0 || length > walk->limit - walk->at - MRD_BURST_HEAD) return false;
    crc = mrd_crc(crc, head, 2);
    for (uint32_t done = 0; done < length; done += MRD_WINDOW) {
        uint32_t size = length - done < MRD_WINDOW ? length - done : MRD_WINDOW;
        if (mrd_read(walk->device, at + MRD_BURST_HEAD + done, bytes, size) < 0) return false;
        crc = mrd_crc(crc, bytes, size);
    }
    if (crc != mrd_load(head + 2, 4)) return false;
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

bool mrd_is_valid(mrd *device, uint32_t at) {
    uint32_t serial = mrd_serial_of(device, at);
    if (serial == device->serial) return true;
    if (serial != device->verified) {
        mrd_header header;
        mrd_walk walk;
        device->verified = serial;
        device->verified_end = 0;
        if (mrd_header_of(device, serial, &header)) {
            mrd_walk_begin(&walk, device, &header);
            while (mrd_next_burst(&walk)) device->verified_end = walk.done;
        }
    }
    return at % device->port->sector_bytes < device->verified_end;
}
