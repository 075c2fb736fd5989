/* fails.c - firmware that a trial must end: it crashes, or with -DHANGS never ends. The watchdog runs since the boot loader started. */
#include "../../port/cortex_m/board.h"

void board_fault(void) { board_reset(); }

int main(void) {
#ifndef HANGS
    __asm__ volatile("udf #0");
#endif
    for (;;) continue;
}
