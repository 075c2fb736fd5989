/* area.h - memory as the flash of a board in QEMU: a program only clears bits, so bytes that were not erased become wrong. */
#ifndef MILLRACE_CORTEX_M_AREA_H
#define MILLRACE_CORTEX_M_AREA_H

#include "millrace_device.h"

typedef struct area {
    uint8_t *bytes;
    uint32_t sector_bytes;
} area;

/* What the flash does now; a test reads it in the memory of the emulator, to cut the power at that moment. */
enum { AREA_PROGRAMS = 1, AREA_ERASES };
extern volatile uint32_t area_work;

/* As in mrd_port; the context is an area. */
int area_read(void *context, uint32_t at, void *bytes, uint32_t size);
int area_program(void *context, uint32_t at, const void *bytes, uint32_t size);
int area_erase(void *context, uint32_t at);

#endif
