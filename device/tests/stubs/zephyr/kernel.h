#include <stdint.h>
uint32_t k_uptime_get_32(void);
