/* millrace_boot.h - two slots in flash and the marks of their boot loader, for boards whose system brings neither. MCUboot and ESP-IDF
 * have their own: port/zephyr/slots.h and port/esp_idf/slots.h.
 *
 * The boot loader:
 *
 *     mrd_boot_open(&boot, &slot_0, &slot_1, &marks);
 *     slot = mrd_boot_begin(&boot);            MRD_BOOT_NEW: no firmware was ever marked
 *     if (!is_whole(slot)) slot = mrd_boot_skip(&boot);
 *     start(slot);
 *
 * The firmware:
 *
 *     mrd_boot_open(&boot, &slot_0, &slot_1, &marks);
 *     boot.slots.reset = reset;
 *     mrd_update_begin(&update, &device, &boot.slots, "1.4.0");
 *
 * A mark says which slot is confirmed, which one is on trial, and whether its trial has begun. It is in both of two sectors, and one of
 * them is valid at any moment, so a loss of power leaves the mark before or the new one. A sector is erased before each mark: no unit is
 * programmed twice. What starts an image that is linked for one address is the board's: the boot loader copies it there, or maps it.
 */
#ifndef MILLRACE_BOOT_H
#define MILLRACE_BOOT_H

#include "millrace_update.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MRD_BOOT_FAILED = -1, MRD_BOOT_NEW = -2 };

/* What a mark says. `trial` is -1 if no slot is on trial. */
typedef struct mrd_boot_state {
    int confirmed, trial, started;
} mrd_boot_state;

/* Both slots have one geometry. */
typedef struct mrd_boot {
    mrd_slots slots; /* for mrd_update_begin; set `reset`, which gets `context` */

    /* Private. */
    const mrd_port *slot[2];
    const mrd_port *marks;
    mrd_boot_state state;
    uint32_t number;   /* of the newest mark */
    uint8_t next;      /* the sector that is written first */
    bool known, twice; /* there is a mark; both sectors have it */
} mrd_boot;

/* Reads the marks: of each port, `read`, `program`, `erase`, `sectors`, `sector_bytes` and `unit` are used. Returns 0, or MRD_SETTING_INVALID if
 * the slots differ, the marks have less than two sectors, or a unit is larger than MRD_SLOT_UNIT_MAX. */
int mrd_boot_open(mrd_boot *boot, const mrd_port *slot_0, const mrd_port *slot_1, const mrd_port *marks);

/* Of the boot loader: the slot that starts now, 0 or 1. A trial begins once. MRD_BOOT_NEW if there is no mark, MRD_BOOT_FAILED if the
 * flash failed: then nothing may start, because firmware could not tell in which slot it is. */
int mrd_boot_begin(mrd_boot *boot);
/* Of the boot loader, if the slot of mrd_boot_begin has no whole image: the other one, or MRD_BOOT_FAILED. */
int mrd_boot_skip(mrd_boot *boot);
/* Of the boot loader, when it has written the first firmware to slot 0. Returns 0 or MRD_BOOT_FAILED. */
int mrd_boot_install(mrd_boot *boot);

/* The rules without flash, for boot loaders that keep the state elsewhere. What a start does to the state: true if it changed, and must be
 * written before the slot starts. */
bool mrd_boot_next(mrd_boot_state *state);
/* The slot that runs after this. */
int mrd_boot_running(const mrd_boot_state *state);

#ifdef __cplusplus
}
#endif

#endif
