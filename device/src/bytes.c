#include "internal.h"

uint64_t mrd_load(const uint8_t *from, unsigned bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | from[bytes];
    return value;
}

void mrd_store(uint8_t *to, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++, value >>= 8) to[i] = (uint8_t)value;
}

unsigned mrd_store_v(uint8_t *to, uint64_t value) {
    unsigned size = 0;
    for (; value >= 0x80; value >>= 7) to[size++] = (uint8_t)(value | 0x80);
    to[size++] = (uint8_t)value;
    return size;
}

unsigned mrd_v_size(uint64_t value) {
    unsigned size = 1;
    for (; value >= 0x80; value >>= 7) size++;
    return size;
}

/* The checksums of the sixteen values of half a byte: a table for whole bytes would take 1 KiB. */
static const uint32_t crc_of[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

uint32_t mrd_crc(uint32_t crc, const void *bytes, size_t size) {
    const uint8_t *at = (const uint8_t *)bytes;
    crc = ~crc;
    while (size-- > 0) {
        crc ^= *at++;
        crc = crc >> 4 ^ crc_of[crc & 15];
        crc = crc >> 4 ^ crc_of[crc & 15];
    }
    return ~crc;
}

uint32_t mrd_crc_chain(uint32_t before) {
    uint8_t bytes[4];
    mrd_store(bytes, before, 4);
    return mrd_crc(0, bytes, 4);
}

uint32_t mrd_align(uint32_t value, uint32_t power) { return (value + power - 1) & ~(power - 1); }

bool mrd_is_same(const char *name, const char *other, size_t size) {
    return strlen(name) == size && memcmp(name, other, size) == 0;
}

int mrd_find_log(const mrd *device, const char *name) {
    size_t size = strlen(name);
    for (unsigned i = 0; i < device->log_count; i++) {
        if (mrd_is_same(device->logs[i].name, name, size)) return (int)i;
    }
    return -1;
}
