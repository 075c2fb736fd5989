/* area.h - memory as the flash of a board in QEMU: a program only clears bits, so bytes that were not erased become wrong. */
#ifndef MILLRACE_CORTEX_M_AREA_H
#define MILLRACE_CORTEX_M_AREA_H

#include "millrace_device.h"

typedef struct area {
    uint8_t *bytes;
    uint32_t sector_bytes;
} area;

/* As in mrd_port; the context is an area. */
int area_read(void *context, uint32_t at, void *bytes, uint32_t size);
int area_program(void *context, uint32_t at, const void *bytes, uint32_t size);
int area_erase(void *context, uint32_t at);

#endif
