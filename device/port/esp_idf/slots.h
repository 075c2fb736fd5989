/* slots.h - the OTA partitions of ESP-IDF as the two slots of a device. Compiled against stub headers, never run.
 *
 *     static mrd_esp_slots slots;
 *     if (mrd_esp_slots_begin(&slots) == 0) mrd_update_begin(&update, &device, &slots.slots, "1.4.0");
 *
 * It needs CONFIG_BOOTLOADER_APP_ROLLBACK_ENABLE, without which new firmware is never on trial, and a watchdog. The image is the .bin of the
 * project (idf.py build). ESP-IDF verifies it, and its signature if secure boot is on, before it is started: one that it refuses ends the
 * update with MR6349.
 */
#ifndef MILLRACE_ESP_IDF_SLOTS_H
#define MILLRACE_ESP_IDF_SLOTS_H

#include "millrace_update.h"

typedef struct mrd_esp_slots {
    mrd_slots slots;
    const void *partition[2]; /* esp_partition_t: MRD_SLOT_RUNNING, MRD_SLOT_OTHER */
} mrd_esp_slots;

/* Returns 0, or -1 if the partition table has no second partition for firmware. */
int mrd_esp_slots_begin(mrd_esp_slots *slots);

#endif
