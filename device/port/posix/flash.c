#define _POSIX_C_SOURCE 200809L
#include "flash.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* xorshift64*: the same numbers on every machine. */
uint64_t mrd_flash_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1D;
}

static void refuse(const char *what, uint32_t at) {
    fprintf(stderr, "flash: %s at 0x%x\n", what, at);
    abort();
}

static int store(mrd_flash *flash, uint32_t at, uint32_t size) {
    if (flash->file < 0) return 0;
    return pwrite(flash->file, flash->bytes + at, size, (off_t)at) == (ssize_t)size ? 0 : 1;
}

/* Whether power is lost in this operation. */
static bool is_cut(mrd_flash *flash) {
    flash->operations++;
    if (flash->cut_at == 0 || flash->operations != flash->cut_at) return false;
    flash->off = true;
    return true;
}

static uint8_t some_bits(mrd_flash *flash, unsigned density) {
    uint8_t bits = 0;
    for (unsigned i = 0; i < 8; i++) {
        if (mrd_flash_random(&flash->random) % 8 < density) bits |= (uint8_t)(1u << i);
    }
    return bits;
}

static int read_flash(void *context, uint32_t at, void *bytes, uint32_t size) {
    mrd_flash *flash = (mrd_flash *)context;
    uint64_t end = (uint64_t)flash->port.sectors * flash->port.sector_bytes;
    if (flash->off) return 1;
    if (at + (uint64_t)size > end) refuse("a read outside of the area", at);
    memcpy(bytes, flash->bytes + at, size);
    return 0;
}

static void mark(mrd_flash *flash, uint32_t from, uint32_t to) {
    uint32_t unit = flash->port.unit;
    for (uint32_t i = from / unit; i < (to + unit - 1) / unit; i++) flash->programmed[i] = 1;
}

static void check_program(const mrd_flash *flash, uint32_t at, uint32_t size) {
    uint32_t unit = flash->port.unit, sector = at / flash->port.sector_bytes;
    if (at % unit != 0 || size % unit != 0 || size == 0) refuse("a program that is no multiple of the unit", at);
    if ((at + size - 1) / flash->port.sector_bytes != sector) refuse("a program across sectors", at);
    if (!flash->erased[sector]) refuse("a program in a sector that is not erased", at);
    for (uint32_t i = at / unit; i < (at + size) / unit; i++) {
        if (flash->programmed[i]) refuse("a second program of a unit", i * unit);
        if (i * unit == flash->weak) refuse("a program of a unit that may have been programmed a little", i * unit);
    }
}

/* What an interrupted program leaves. */
static void tear_program(mrd_flash *flash, uint32_t at, const uint8_t *bytes, uint32_t size) {
    uint32_t done = (uint32_t)(mrd_flash_random(&flash->random) % (size + 1)), torn = flash->port.torn_bytes;
    if (flash->cut_way == MRD_CUT_REST) done = size;
    if (flash->cut_way == MRD_CUT_BITS) {
        unsigned density = (unsigned)(mrd_flash_random(&flash->random) % 9);
        for (uint32_t i = 0; i < size; i++) {
            uint8_t byte = (uint8_t)(bytes[i] | (uint8_t)~some_bits(flash, density));
            if (byte != 0xFF) mark(flash, at + i, at + i + 1);
            flash->bytes[at + i] &= byte;
        }
        return;
    }
    memcpy(flash->bytes + at, bytes, done);
    mark(flash, at, at + done);
    if (flash->cut_way == MRD_CUT_GARBAGE) {
        uint32_t from = (at + (done < size ? done : size - 1)) & ~(torn - 1);
        for (uint32_t i = from; i < from + torn; i++) flash->bytes[i] = (uint8_t)mrd_flash_random(&flash->random);
        mark(flash, from, from + torn);
    }
}

static int program_flash(void *context, uint32_t at, const void *bytes, uint32_t size) {
    mrd_flash *flash = (mrd_flash *)context;
    if (flash->off) return 1;
    check_program(flash, at, size);
    if (is_cut(flash)) {
        flash->weak = flash->has_programmed ? at : UINT32_MAX;
        tear_program(flash, at, (const uint8_t *)bytes, size);
        store(flash, at & ~(flash->port.torn_bytes - 1u), size + 2u * flash->port.torn_bytes);
        return 1;
    }
    memcpy(flash->bytes + at, bytes, size);
    mark(flash, at, at + size);
    flash->has_programmed = true;
    flash->programs++;
    flash->program_bytes += size;
    return store(flash, at, size);
}

static void tear_erase(mrd_flash *flash, uint32_t at, uint32_t size) {
    uint32_t done = (uint32_t)(mrd_flash_random(&flash->random) % (size + 1));
    unsigned density = (unsigned)(mrd_flash_random(&flash->random) % 9);
    for (uint32_t i = 0; i < size; i++) {
        uint8_t *byte = flash->bytes + at + i;
        switch (flash->cut_way) {
        case MRD_CUT_PREFIX: *byte = i < done ? 0xFF : *byte; break;
        case MRD_CUT_BITS: *byte |= some_bits(flash, density); break;
        case MRD_CUT_GARBAGE: *byte = (uint8_t)mrd_flash_random(&flash->random); break;
        default: *byte = i >= done ? 0xFF : *byte; break;
        }
    }
}

static int erase_flash(void *context, uint32_t at) {
    mrd_flash *flash = (mrd_flash *)context;
    uint32_t size = flash->port.sector_bytes, sector = at / size, unit = flash->port.unit;
    if (flash->off) return 1;
    if (at % size != 0 || sector >= flash->port.sectors) refuse("an erase of no sector", at);
    flash->erased[sector] = 0;
    if (is_cut(flash)) {
        tear_erase(flash, at, size);
        store(flash, at, size);
        return 1;
    }
    memset(flash->bytes + at, 0xFF, size);
    memset(flash->programmed + at / unit, 0, size / unit);
    flash->erased[sector] = 1;
    if (flash->weak / size == sector) flash->weak = UINT32_MAX;
    flash->erases++;
    return store(flash, at, size);
}

static uint32_t clock_ms(void *context) {
    const mrd_flash *flash = (const mrd_flash *)context;
    struct timespec now;
    if (flash->virtual_time) return flash->ms;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* A file has no marks: a unit that is not blank was programmed, and a sector with such a unit was erased before. */
static void derive_marks(mrd_flash *flash) {
    uint32_t size = flash->port.sectors * flash->port.sector_bytes;
    for (uint32_t i = 0; i < size; i++) {
        if (flash->bytes[i] == 0xFF) continue;
        flash->programmed[i / flash->port.unit] = 1;
        flash->erased[i / flash->port.sector_bytes] = 1;
    }
}

static int open_file(mrd_flash *flash, const char *path, uint32_t size) {
    struct stat stat;
    flash->file = open(path, O_RDWR | O_CREAT, 0644);
    if (flash->file < 0 || fstat(flash->file, &stat) < 0) return -1;
    if (stat.st_size == 0) return store(flash, 0, size) == 0 ? 0 : -1;
    if (pread(flash->file, flash->bytes, size, 0) != (ssize_t)size) return -1;
    derive_marks(flash);
    return 0;
}

int mrd_flash_open(mrd_flash *flash, const char *path, uint32_t sectors, uint32_t sector_bytes, uint16_t unit,
                   uint16_t torn_bytes, uint64_t namespace_id) {
    uint32_t size = sectors * sector_bytes;
    memset(flash, 0, sizeof *flash);
    flash->port.read = read_flash;
    flash->port.program = program_flash;
    flash->port.erase = erase_flash;
    flash->port.ms = clock_ms;
    flash->port.context = flash;
    flash->port.sectors = sectors;
    flash->port.sector_bytes = sector_bytes;
    flash->port.unit = unit;
    flash->port.torn_bytes = torn_bytes;
    flash->port.namespace_id = namespace_id;
    flash->port.reset_reason = MRD_RESET_POWER;
    flash->file = -1;
    flash->weak = UINT32_MAX;
    flash->random = 1;
    flash->bytes = malloc(size);
    flash->programmed = calloc(size / unit, 1);
    flash->erased = calloc(sectors, 1);
    if (!flash->bytes || !flash->programmed || !flash->erased) {
        mrd_flash_close(flash);
        return -1;
    }
    memset(flash->bytes, 0xFF, size);
    if (path && open_file(flash, path, size) < 0) {
        mrd_flash_close(flash);
        return -1;
    }
    return 0;
}

void mrd_flash_close(mrd_flash *flash) {
    if (flash->file >= 0) close(flash->file);
    free(flash->bytes);
    free(flash->programmed);
    free(flash->erased);
    flash->bytes = flash->programmed = flash->erased = NULL;
    flash->file = -1;
}

void mrd_flash_cut(mrd_flash *flash, uint64_t operation, int way, uint64_t random) {
    flash->cut_at = flash->operations + operation;
    flash->cut_way = way;
    flash->random = random | 1;
}

void mrd_flash_on(mrd_flash *flash) {
    flash->off = flash->has_programmed = false;
    flash->cut_at = 0;
}
