#include "slots.h"
#include <esp_ota_ops.h>
#include <esp_partition.h>
#include <esp_system.h>

/* A partition that is encrypted is written in pieces of 16 bytes. */
enum { SECTOR = 4096, UNIT = 4, ENCRYPTED_UNIT = 16 };

static const esp_partition_t *partition_of(void *context, int slot) {
    return (const esp_partition_t *)((const mrd_esp_slots *)context)->partition[slot];
}

static int read_slot(void *context, int slot, uint32_t at, void *bytes, uint32_t size) {
    return esp_partition_read(partition_of(context, slot), at, bytes, size);
}

static int erase_slot(void *context, uint32_t at) { return esp_partition_erase_range(partition_of(context, MRD_SLOT_OTHER), at, SECTOR); }

static int program_slot(void *context, uint32_t at, const void *bytes, uint32_t size) {
    return esp_partition_write(partition_of(context, MRD_SLOT_OTHER), at, bytes, size);
}

static int start_slot(void *context) { return esp_ota_set_boot_partition(partition_of(context, MRD_SLOT_OTHER)); }

static bool on_trial(void *context) {
    esp_ota_img_states_t state;
    return esp_ota_get_state_partition(partition_of(context, MRD_SLOT_RUNNING), &state) == ESP_OK && state == ESP_OTA_IMG_PENDING_VERIFY;
}

static int confirm_slot(void *context) {
    (void)context;
    return esp_ota_mark_app_valid_cancel_rollback();
}

static void reset(void *context) {
    (void)context;
    esp_restart();
}

int mrd_esp_slots_begin(mrd_esp_slots *slots) {
    const esp_partition_t *running = esp_ota_get_running_partition(), *other = esp_ota_get_next_update_partition(NULL);
    if (!running || !other) return -1;
    slots->partition[MRD_SLOT_RUNNING] = running;
    slots->partition[MRD_SLOT_OTHER] = other;
    slots->slots = (mrd_slots){.read = read_slot, .erase = erase_slot, .program = program_slot, .start = start_slot, .on_trial = on_trial,
                               .confirm = confirm_slot, .reset = reset, .context = slots, .bytes = other->size, .block_bytes = SECTOR,
                               .unit = other->encrypted ? ENCRYPTED_UNIT : UNIT};
    return 0;
}
