/* slots.h - the port to POSIX of two slots: files in a folder, which boot.c starts.
 *
 *     FOLDER/slot-0, FOLDER/slot-1   programs; the one that does not run has the erased bytes of its flash behind it
 *     FOLDER/boot                    "confirmed trial started": the slot that stays, the one on trial or -1, and whether its trial has begun
 *
 * A reset is the end of the process with the status MRD_SLOT_RESET. Like flash.c, it ends the process if a unit is programmed twice
 * without an erase between.
 */
#ifndef MILLRACE_DEVICE_SLOTS_H
#define MILLRACE_DEVICE_SLOTS_H

#include "millrace_boot.h"

enum { MRD_SLOT_RESET = 99, MRD_FOLDER_MAX = 240 };

typedef struct mrd_slot_files {
    mrd_slots slots;
    char folder[MRD_FOLDER_MAX];
    int running;
} mrd_slot_files;

/* For the program that boot.c has started. Returns 0, or -1 with errno. */
int mrd_slot_files_begin(mrd_slot_files *files, const char *folder, uint32_t bytes, uint32_t block_bytes, uint16_t unit);

/* For the boot loader. Without a file, slot 0 is the confirmed one. */
int mrd_boot_state_read(const char *folder, mrd_boot_state *state);
int mrd_boot_state_write(const char *folder, const mrd_boot_state *state);
int mrd_slot_path(const char *folder, int slot, char *path, size_t capacity);

#endif
