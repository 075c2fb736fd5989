#include "area.h"

/* How long a unit of 8 bytes takes to be programmed or erased, in turns of a loop: flash is slow, and a loss of power finds it at work. */
#ifndef AREA_UNIT_TURNS
#define AREA_UNIT_TURNS 0
#endif

enum { UNIT = 8 };

volatile uint32_t area_work;

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

static void pause_for_unit(void) {
    for (volatile uint32_t turns = AREA_UNIT_TURNS; turns > 0; turns--) continue;
}

int area_read(void *context, uint32_t at, void *bytes, uint32_t size) {
    memcpy(bytes, ((const area *)context)->bytes + at, size);
    return 0;
}

int area_program(void *context, uint32_t at, const void *bytes, uint32_t size) {
    uint8_t *to = ((const area *)context)->bytes + at;
    area_work = AREA_PROGRAMS;
    for (uint32_t i = 0; i < size; i++) {
        to[i] &= ((const uint8_t *)bytes)[i];
        if (i % UNIT == 0) pause_for_unit();
    }
    area_work = 0;
    return 0;
}

int area_erase(void *context, uint32_t at) {
    const area *of = (const area *)context;
    area_work = AREA_ERASES;
    for (uint32_t done = 0; done < of->sector_bytes; done += UNIT) {
        memset(of->bytes + at + done, 0xFF, UNIT);
        pause_for_unit();
    }
    area_work = 0;
    return 0;
}
