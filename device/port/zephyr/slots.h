/* slots.h - the slots of MCUboot in Zephyr's flash map as the two slots of a device. Compiled against stub headers, never run.
 *
 *     static mrd_zephyr_slots slots;
 *     mrd_zephyr_slots_begin(&slots, FIXED_PARTITION_ID(slot0_partition), FIXED_PARTITION_ID(slot1_partition));
 *     mrd_update_begin(&update, &device, &slots.slots, "1.4.0");
 *
 * For an MCUboot that swaps the images (move or scratch), with pages of one size in both slots. The image is the signed one, zephyr.signed.bin,
 * without encryption: MCUboot would decrypt it, and the new firmware would not know itself. Set up a watchdog.
 */
#ifndef MILLRACE_ZEPHYR_SLOTS_H
#define MILLRACE_ZEPHYR_SLOTS_H

#include "millrace_update.h"

typedef struct mrd_zephyr_slots {
    mrd_slots slots;
    const void *area[2]; /* struct flash_area: MRD_SLOT_RUNNING, MRD_SLOT_OTHER */
} mrd_zephyr_slots;

/* Returns 0, or what Zephyr returned. */
int mrd_zephyr_slots_begin(mrd_zephyr_slots *slots, unsigned running, unsigned other);

#endif
