#define SYS_REBOOT_WARM 0
#define SYS_REBOOT_COLD 1
__attribute__((noreturn)) void sys_reboot(int type);
