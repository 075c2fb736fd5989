#include "area.h"

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

int area_read(void *context, uint32_t at, void *bytes, uint32_t size) {
    memcpy(bytes, ((const area *)context)->bytes + at, size);
    return 0;
}

int area_program(void *context, uint32_t at, const void *bytes, uint32_t size) {
    uint8_t *to = ((const area *)context)->bytes + at;
    for (uint32_t i = 0; i < size; i++) to[i] &= ((const uint8_t *)bytes)[i];
    return 0;
}

int area_erase(void *context, uint32_t at) {
    const area *of = (const area *)context;
    memset(of->bytes + at, 0xFF, of->sector_bytes);
    return 0;
}
