#include "slots.h"
#include <zephyr/dfu/mcuboot.h>
#include <zephyr/drivers/flash.h>
#include <zephyr/storage/flash_map.h>
#include <zephyr/sys/reboot.h>

static const struct flash_area *area_of(void *context, int slot) {
    return (const struct flash_area *)((const mrd_zephyr_slots *)context)->area[slot];
}

static int find_page(const struct flash_area *area, off_t at, struct flash_pages_info *page) {
    return flash_get_page_info_by_offs(flash_area_get_device(area), area->fa_off + at, page);
}

/* The page in which the trailer of MCUboot begins: what is written there says whether an image waits for its trial. */
static int find_trailer(const struct flash_area *area, off_t *at, struct flash_pages_info *page) {
    ssize_t status = boot_get_trailer_status_offset(area->fa_size);
    int result = status < 0 ? (int)status : find_page(area, (off_t)status, page);
    if (result == 0) *at = page->start_offset - area->fa_off;
    return result;
}

static int read_slot(void *context, int slot, uint32_t at, void *bytes, uint32_t size) {
    return flash_area_read(area_of(context, slot), (off_t)at, bytes, size);
}

/* With the first block, the trailer is erased to the end of the slot: MCUboot would take an older mark there for that of the new image, and it may
 * say that the image stays without a trial. */
static int erase_slot(void *context, uint32_t at) {
    const struct flash_area *area = area_of(context, MRD_SLOT_OTHER);
    struct flash_pages_info page;
    off_t trailer;
    int result = at == 0 ? find_trailer(area, &trailer, &page) : 0;
    if (result == 0 && at == 0) result = flash_area_erase(area, trailer, area->fa_size - (size_t)trailer);
    if (result == 0) result = find_page(area, (off_t)at, &page);
    return result != 0 ? result : flash_area_erase(area, (off_t)at, page.size);
}

static int program_slot(void *context, uint32_t at, const void *bytes, uint32_t size) {
    return flash_area_write(area_of(context, MRD_SLOT_OTHER), (off_t)at, bytes, size);
}

static int start_slot(void *context) {
    (void)context;
    return boot_request_upgrade(BOOT_UPGRADE_TEST);
}

static bool on_trial(void *context) {
    (void)context;
    return !boot_is_img_confirmed();
}

static int confirm_slot(void *context) {
    (void)context;
    return boot_write_img_confirmed();
}

static void reset(void *context) {
    (void)context;
    sys_reboot(SYS_REBOOT_COLD);
}

int mrd_zephyr_slots_begin(mrd_zephyr_slots *slots, unsigned running, unsigned other) {
    const struct flash_area *area[2];
    struct flash_pages_info page;
    off_t trailer;
    int result = flash_area_open((uint8_t)running, &area[MRD_SLOT_RUNNING]);
    if (result == 0) result = flash_area_open((uint8_t)other, &area[MRD_SLOT_OTHER]);
    if (result == 0) result = find_trailer(area[MRD_SLOT_OTHER], &trailer, &page);
    if (result == 0) result = find_page(area[MRD_SLOT_OTHER], 0, &page);
    if (result != 0) return result;
    for (int i = 0; i < 2; i++) slots->area[i] = area[i];
    slots->slots = (mrd_slots){.read = read_slot, .erase = erase_slot, .program = program_slot, .start = start_slot, .on_trial = on_trial,
                               .confirm = confirm_slot, .reset = reset, .context = slots, .bytes = (uint32_t)trailer,
                               .block_bytes = (uint32_t)page.size, .unit = (uint16_t)flash_area_align(area[MRD_SLOT_OTHER])};
    return 0;
}
