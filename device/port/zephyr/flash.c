#include "flash.h"
#include <zephyr/drivers/flash.h>
#include <zephyr/kernel.h>
#include <zephyr/storage/flash_map.h>

static int read_area(void *context, uint32_t at, void *bytes, uint32_t size) {
    return flash_area_read((const struct flash_area *)context, (off_t)at, bytes, size);
}

static int program_area(void *context, uint32_t at, const void *bytes, uint32_t size) {
    return flash_area_write((const struct flash_area *)context, (off_t)at, bytes, size);
}

static int erase_area(void *context, uint32_t at) {
    const struct flash_area *area = (const struct flash_area *)context;
    struct flash_pages_info page;
    int result = flash_get_page_info_by_offs(flash_area_get_device(area), area->fa_off + (off_t)at, &page);
    return result != 0 ? result : flash_area_erase(area, (off_t)at, page.size);
}

static uint32_t uptime(void *context) {
    (void)context;
    return k_uptime_get_32();
}

int mrd_zephyr_port(mrd_port *port, unsigned partition, uint64_t namespace_id) {
    const struct flash_area *area;
    struct flash_pages_info page;
    int result = flash_area_open((uint8_t)partition, &area);
    if (result != 0) return result;
    result = flash_get_page_info_by_offs(flash_area_get_device(area), area->fa_off, &page);
    if (result != 0) return result;
    port->read = read_area;
    port->program = program_area;
    port->erase = erase_area;
    port->ms = uptime;
    port->context = (void *)(uintptr_t)area;
    port->sector_bytes = (uint32_t)page.size;
    port->sectors = (uint32_t)(area->fa_size / page.size);
    port->unit = (uint16_t)flash_area_align(area);
    port->torn_bytes = port->unit;
    port->namespace_id = namespace_id;
    return 0;
}
