#include "flash.h"
#include <esp_attr.h>
#include <esp_partition.h>
#include <esp_system.h>
#include <esp_timer.h>

enum { SECTOR = 4096, PAGE = 256 };

static RTC_NOINIT_ATTR uint32_t retained;

static int read_area(void *context, uint32_t at, void *bytes, uint32_t size) {
    return esp_partition_read((const esp_partition_t *)context, at, bytes, size);
}

static int program_area(void *context, uint32_t at, const void *bytes, uint32_t size) {
    return esp_partition_write((const esp_partition_t *)context, at, bytes, size);
}

static int erase_area(void *context, uint32_t at) { return esp_partition_erase_range((const esp_partition_t *)context, at, SECTOR); }

static uint32_t uptime(void *context) {
    (void)context;
    return (uint32_t)(esp_timer_get_time() / 1000);
}

static uint8_t reason(void) {
    switch (esp_reset_reason()) {
    case ESP_RST_POWERON: return MRD_RESET_POWER;
    case ESP_RST_BROWNOUT: return MRD_RESET_BROWN_OUT;
    case ESP_RST_INT_WDT: case ESP_RST_TASK_WDT: case ESP_RST_WDT: return MRD_RESET_WATCHDOG;
    case ESP_RST_SW: case ESP_RST_PANIC: return MRD_RESET_SOFTWARE;
    case ESP_RST_EXT: return MRD_RESET_PIN;
    default: return MRD_RESET_UNKNOWN;
    }
}

int mrd_esp_port(mrd_port *port, const char *label, uint64_t namespace_id) {
    const esp_partition_t *area = esp_partition_find_first(ESP_PARTITION_TYPE_DATA, ESP_PARTITION_SUBTYPE_ANY, label);
    if (!area) return -1;
    port->read = read_area;
    port->program = program_area;
    port->erase = erase_area;
    port->ms = uptime;
    port->context = (void *)(uintptr_t)area;
    port->sectors = area->size / SECTOR;
    port->sector_bytes = SECTOR;
    /* Flash on SPI: a loss of power may damage the page that is programmed. */
    port->unit = 4;
    port->torn_bytes = PAGE;
    port->namespace_id = namespace_id;
    port->reset_reason = reason();
    port->retained = &retained;
    return 0;
}
