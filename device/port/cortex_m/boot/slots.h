/* slots.h - two slots of firmware on the board mps2-an385 in QEMU, for its boot loader (boot.c) and its firmware.
 *
 *     0x00000000    boot loader, with the first firmware
 *     0x20200000    where firmware runs: the boot loader copies it there from its slot
 *     0x21000000    identity (2 sectors) and journal, as `millrace device flash-image` makes them
 *     0x21100000    marks (2 sectors)
 *     0x21120000    slot 0, 128 KiB
 *     0x21140000    slot 1
 *
 * The flash is memory that keeps its bytes in a reset, and has none when the board is switched on.
 */
#ifndef MILLRACE_CORTEX_M_SLOTS_H
#define MILLRACE_CORTEX_M_SLOTS_H

#include "millrace_boot.h"

enum { BOARD_SECTOR = 4096, BOARD_SLOT_SECTORS = 32, BOARD_SLOT_BYTES = BOARD_SLOT_SECTORS * BOARD_SECTOR };
/* Without being called for so long, board_watch resets the board: the boot loader starts the watchdog, and firmware has to call it. It takes
 * twice as long, since the board warns once. */
enum { BOARD_WATCH_CYCLES = 75000000 }; /* 3 s */

#define BOARD_LOADED 0x20200000u

/* Opens the slots, and sets `reset`. Returns 0, or what mrd_boot_open returned. */
int board_slots_open(mrd_boot *boot);
const mrd_port *board_slot(int slot);
/* Its bytes, which this processor can read. */
const uint8_t *board_image(int slot);

#endif
