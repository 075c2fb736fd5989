/* flash.h - a data partition of ESP-IDF as the flash of a device. Compiled against stub headers, never run. */
#ifndef MILLRACE_ESP_IDF_FLASH_H
#define MILLRACE_ESP_IDF_FLASH_H

#include "millrace_device.h"

/* Fills the port from the data partition with this label. Returns 0, or -1 if there is none. */
int mrd_esp_port(mrd_port *port, const char *label, uint64_t namespace_id);

#endif
