#include "slots.h"
#include "../area.h"
#include "../board.h"

enum { MARKS_AT = 0x21100000, SLOT_0_AT = 0x21120000, SLOT_1_AT = SLOT_0_AT + BOARD_SLOT_BYTES, UNIT = 8 };

static area areas[3] = {{(uint8_t *)SLOT_0_AT, BOARD_SECTOR}, {(uint8_t *)SLOT_1_AT, BOARD_SECTOR}, {(uint8_t *)MARKS_AT, BOARD_SECTOR}};

#define FLASH_OF(which, count) \
    {.read = area_read, .program = area_program, .erase = area_erase, .context = &areas[which], .sectors = (count), \
     .sector_bytes = BOARD_SECTOR, .unit = UNIT, .torn_bytes = UNIT}
static const mrd_port slots[2] = {FLASH_OF(0, BOARD_SLOT_SECTORS), FLASH_OF(1, BOARD_SLOT_SECTORS)};
static const mrd_port marks = FLASH_OF(2, 2);

static void reset_board(void *context) {
    (void)context;
    board_reset();
}

const mrd_port *board_slot(int slot) { return &slots[slot]; }

const uint8_t *board_image(int slot) { return areas[slot].bytes; }

int board_slots_open(mrd_boot *boot) {
    int result = mrd_boot_open(boot, &slots[0], &slots[1], &marks);
    boot->slots.reset = reset_board;
    return result;
}
