/* flash.h - the port to POSIX: a flash in memory, or in a file, that checks how it is used and can lose power.
 *
 *     mrd_flash flash;
 *     mrd_flash_open(&flash, "kitchen.flash", 16, 4096, 8, 8, 0x4B17C4E2);
 *     mrd_open(&device, &flash.port, ...);
 *
 * It ends the process if a unit is programmed twice without an erase between, or in a sector that was never erased or
 * whose erase was interrupted: flash with error correction forbids this, and other flash may store something else. The
 * first unit of an interrupted program counts as programmed even if it reads blank, unless that program was the first
 * since the start: no trace of such a program is left that a device could know about.
 */
#ifndef MILLRACE_DEVICE_FLASH_H
#define MILLRACE_DEVICE_FLASH_H

#include "millrace_device.h"

/* What a loss of power leaves of the operation that it interrupts. */
enum {
    MRD_CUT_PREFIX,  /* a program: its first bytes. An erase: its first bytes are erased */
    MRD_CUT_BITS,    /* a program: any of its bits. An erase: any bits are erased */
    MRD_CUT_GARBAGE, /* a program: its first bytes, and anything within torn_bytes around the next. An erase: anything */
    MRD_CUT_REST,    /* a program: all of it, but it is not reported. An erase: its last bytes are erased */
    MRD_CUT_WAYS
};

typedef struct mrd_flash {
    mrd_port port;
    uint8_t *bytes;
    uint8_t *programmed; /* for each unit */
    uint8_t *erased;     /* for each sector: whether its last erase was completed */
    int file;            /* -1: only in memory */
    bool virtual_time;   /* `ms` is the clock; otherwise the system's is */
    uint32_t ms;

    uint32_t weak; /* see above; UINT32_MAX if there is none */
    bool has_programmed; /* since the start */
    uint64_t operations, programs, program_bytes, erases;
    uint64_t cut_at; /* the number of the operation that is interrupted, 0 for none */
    int cut_way;
    uint64_t random; /* changed by each use */
    bool off;        /* every operation fails until mrd_flash_on */
} mrd_flash;

/* Opens the file, or creates it; without a path, the flash is in memory and blank. Returns 0, or -1 with errno. */
int mrd_flash_open(mrd_flash *flash, const char *path, uint32_t sectors, uint32_t sector_bytes, uint16_t unit,
                   uint16_t torn_bytes, uint64_t namespace_id);
void mrd_flash_close(mrd_flash *flash);
/* Loses power in the operation with this number, from now on counted from 1. */
void mrd_flash_cut(mrd_flash *flash, uint64_t operation, int way, uint64_t random);
void mrd_flash_on(mrd_flash *flash);
uint64_t mrd_flash_random(uint64_t *state);

#endif
