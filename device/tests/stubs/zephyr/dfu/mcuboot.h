#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#define BOOT_UPGRADE_TEST 0
#define BOOT_UPGRADE_PERMANENT 1
bool boot_is_img_confirmed(void);
int boot_write_img_confirmed(void);
int boot_request_upgrade(int permanent);
ssize_t boot_get_trailer_status_offset(size_t area_size);
