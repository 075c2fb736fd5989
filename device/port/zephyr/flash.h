/* flash.h - a partition of Zephyr's flash map as the flash of a device. Compiled against stub headers, never run. */
#ifndef MILLRACE_ZEPHYR_FLASH_H
#define MILLRACE_ZEPHYR_FLASH_H

#include "millrace_device.h"

/* Fills the port from the partition with this number, such as FIXED_PARTITION_ID(millrace_partition). Returns 0, or what
 * Zephyr returned. */
int mrd_zephyr_port(mrd_port *port, unsigned partition, uint64_t namespace_id);

#endif
