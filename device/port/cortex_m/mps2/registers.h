/* registers.h - the board mps2-an385: what differs between boards. The serial port is a CMSDK UART. */
#ifndef MILLRACE_BOARD_REGISTERS_H
#define MILLRACE_BOARD_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

#define BOARD_NAME "mps2-an385"
#define BOARD_HZ 25000000u

/* Memory that keeps its bytes in a reset, as sectors of an emulated flash; all bytes are 0 when the board is switched on. */
#define BOARD_KEPT 0x21000000u
enum { BOARD_SECTORS = 18, BOARD_SECTOR_BYTES = 4096 };

/* Its first expiry is the non-maskable interrupt, and the second one resets the board. */
#define BOARD_WATCHDOG ((volatile uint32_t *)0x40008000)

/* data, state (1: full to send, 2: received), control, interrupts, divider */
#define BOARD_UART ((volatile uint32_t *)0x40004000)
enum { BOARD_UART_INTERRUPT = 0 };

/* Sends, receives, and interrupts when it has received. */
static inline void board_uart_begin(uint32_t baud) {
    BOARD_UART[4] = BOARD_HZ / baud;
    BOARD_UART[2] = 1 | 2 | 8;
}

static inline bool board_uart_is_full(void) { return BOARD_UART[1] & 1; }
static inline bool board_uart_has_received(void) { return BOARD_UART[1] & 2; }
static inline void board_uart_clear_interrupt(void) { BOARD_UART[3] = 2; }

#endif
