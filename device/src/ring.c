#include "internal.h"

static unsigned log2_of(uint32_t power) {
    unsigned bits = 0;
    for (; power > 1; power >>= 1) bits++;
    return bits;
}

uint8_t mrd_shape(const mrd *device) {
    return (uint8_t)(log2_of(device->grain) | (log2_of(device->port->sector_bytes) - 10) << 4);
}

uint32_t mrd_data_start(const mrd *device) { return mrd_align(MRD_HEADER_BYTES, device->grain); }

uint32_t mrd_sector_at(const mrd *device, uint32_t serial) {
    return serial % device->port->sectors * device->port->sector_bytes;
}

/* Of the sectors of the ring, one has this address, so its distance from the newest one gives its serial number. */
uint32_t mrd_serial_of(const mrd *device, uint32_t at) {
    uint32_t sectors = device->port->sectors, newest = device->serial % sectors;
    uint32_t index = at / device->port->sector_bytes;
    return device->serial - (newest + sectors - index) % sectors;
}

uint32_t mrd_back(const mrd *device, uint32_t serial, uint64_t back) {
    uint32_t size = device->port->sector_bytes;
    if (back > (uint64_t)1 << 31) return MRD_NONE;
    uint32_t sectors_back = ((uint32_t)back + size - 1) / size;
    if (back == 0 || serial < device->oldest || sectors_back > serial - device->oldest) return MRD_NONE;
    return mrd_sector_at(device, serial - sectors_back) + (sectors_back * size - (uint32_t)back);
}

uint64_t mrd_distance(const mrd *device, uint32_t serial, uint32_t at) {
    uint32_t size = device->port->sector_bytes;
    if (at == MRD_NONE) return 0;
    return (uint64_t)(serial - mrd_serial_of(device, at)) * size - at % size;
}

void mrd_header_encode(const mrd *device, mrd_header *header, uint8_t bytes[MRD_HEADER_BYTES]) {
    memcpy(bytes, "MRDJ", 4);
    bytes[4] = MRD_FORMAT;
    bytes[5] = mrd_shape(device);
    mrd_store(bytes + 6, device->port->sectors, 2);
    mrd_store(bytes + 8, device->port->namespace_id, 6);
    mrd_store(bytes + 14, header->epoch, 3);
    mrd_store(bytes + 17, header->serial, 4);
    mrd_store(bytes + 21, header->sequence, 7);
    mrd_store(bytes + 28, header->clock, 6);
    bytes[34] = (uint8_t)log2_of(device->port->unit);
    bytes[35] = 0;
    header->crc = mrd_crc(0, bytes, 36);
    mrd_store(bytes + 36, header->crc, 4);
}

bool mrd_header_read(mrd *device, uint32_t index, mrd_header *header) {
    uint8_t bytes[MRD_HEADER_BYTES];
    if (mrd_read(device, index * device->port->sector_bytes, bytes, sizeof bytes) < 0) return false;
    if (memcmp(bytes, "MRDJ", 4) != 0) return false;
    header->crc = (uint32_t)mrd_load(bytes + 36, 4);
    header->format = bytes[4];
    header->shape = bytes[5];
    header->sectors = (uint32_t)mrd_load(bytes + 6, 2);
    header->namespace_id = mrd_load(bytes + 8, 6);
    header->epoch = (uint32_t)mrd_load(bytes + 14, 3);
    header->serial = (uint32_t)mrd_load(bytes + 17, 4);
    header->sequence = mrd_load(bytes + 21, 7);
    header->clock = mrd_load(bytes + 28, 6);
    return header->crc == mrd_crc(0, bytes, 36);
}

bool mrd_header_of(mrd *device, uint32_t serial, mrd_header *header) {
    return mrd_header_read(device, serial % device->port->sectors, header) && header->serial == serial;
}

bool mrd_is_blank(mrd *device, uint32_t at, uint32_t end) {
    uint8_t bytes[MRD_WINDOW];
    while (at < end) {
        uint32_t size = end - at < sizeof bytes ? end - at : sizeof bytes;
        const uint8_t *seen = mrd_view(device, at, size, bytes);
        for (uint32_t i = 0; i < size; i++) {
            if (!seen || seen[i] != 0xFF) return false;
        }
        at += size;
    }
    return true;
}

/* Whether the area was never used, except that power was lost while its first sector was begun. */
static bool is_unused(mrd *device) {
    for (uint32_t i = 1; i < device->port->sectors; i++) {
        uint32_t at = i * device->port->sector_bytes;
        if (!mrd_is_blank(device, at, at + MRD_HEADER_BYTES)) return false;
    }
    return true;
}

/* The first sector in [from, end) with a valid header, or `end`. */
static uint32_t first_valid(mrd *device, uint32_t from, uint32_t end, mrd_header *header) {
    while (from < end && !mrd_header_read(device, from, header)) from++;
    return from;
}

static int check_header(mrd *device, const mrd_header *header) {
    if (header->format != MRD_FORMAT) {
        device->why = MRD_WHY("the flash has a journal of another format");
        return MRD_FORMAT_UNKNOWN;
    }
    if (header->shape != mrd_shape(device) || header->sectors != device->port->sectors) {
        device->why = MRD_WHY("the flash has a journal of another geometry");
        return MRD_OTHER_NAMESPACE;
    }
    if (header->namespace_id != device->port->namespace_id) {
        device->why = MRD_WHY("the flash has another namespace");
        return MRD_OTHER_NAMESPACE;
    }
    return 1;
}

/* Sector i of the newest lap has the serial number of sector 0 plus i. So there is one boundary, which a binary search
 * finds; sectors without a valid header (one may be under way, others damaged) are passed over. */
int mrd_ring_find(mrd *device, mrd_header *newest) {
    uint32_t sectors = device->port->sectors;
    uint32_t low = first_valid(device, 0, sectors, newest), high = sectors;
    if (low == sectors) {
        if (is_unused(device)) return 0;
        device->why = MRD_WHY("the flash has something else");
        return MRD_NOT_A_NAMESPACE;
    }
    uint32_t lap = newest->serial - low;
    int fits = check_header(device, newest);
    if (fits < 0) return fits;
    while (high - low > 1) {
        mrd_header header;
        uint32_t middle = low + (high - low) / 2;
        uint32_t valid = first_valid(device, middle, high, &header);
        if (valid < high && header.serial == lap + valid) {
            *newest = header;
            low = valid;
        } else {
            high = middle;
        }
    }
    fits = check_header(device, newest);
    if (fits > 0 && newest->serial % sectors != low) {
        device->why = MRD_WHY("the flash has sectors of another area");
        return MRD_OTHER_NAMESPACE;
    }
    return fits;
}
