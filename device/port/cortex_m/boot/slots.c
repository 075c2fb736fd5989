#include "slots.h"
#include "../board.h"

enum { MARKS_AT = 0x21100000, SLOT_0_AT = 0x21120000, SLOT_1_AT = SLOT_0_AT + BOARD_SLOT_BYTES, UNIT = 8 };

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

/* The context of a port is where its flash begins. */
static int read_flash(void *context, uint32_t at, void *bytes, uint32_t size) {
    memcpy(bytes, (const uint8_t *)context + at, size);
    return 0;
}

static int program_flash(void *context, uint32_t at, const void *bytes, uint32_t size) {
    memcpy((uint8_t *)context + at, bytes, size);
    return 0;
}

static int erase_flash(void *context, uint32_t at) {
    memset((uint8_t *)context + at, 0xFF, BOARD_SECTOR);
    return 0;
}

#define FLASH_AT(address, count) \
    {.read = read_flash, .program = program_flash, .erase = erase_flash, .context = (void *)(address), .sectors = (count), \
     .sector_bytes = BOARD_SECTOR, .unit = UNIT, .torn_bytes = UNIT}
static const mrd_port marks = FLASH_AT(MARKS_AT, 2);
static const mrd_port slots[2] = {FLASH_AT(SLOT_0_AT, BOARD_SLOT_SECTORS), FLASH_AT(SLOT_1_AT, BOARD_SLOT_SECTORS)};

static void reset_board(void *context) {
    (void)context;
    board_reset();
}

const mrd_port *board_slot(int slot) { return &slots[slot]; }

int board_slots_open(mrd_boot *boot) {
    int result = mrd_boot_open(boot, &slots[0], &slots[1], &marks);
    boot->slots.reset = reset_board;
    return result;
}
