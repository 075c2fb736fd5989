/* registers.h - the board lm3s6965evb: what differs between boards. The serial port is a PL011. A real board would also have to give it a
 * clock and pins. */
#ifndef MILLRACE_BOARD_REGISTERS_H
#define MILLRACE_BOARD_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

#define BOARD_NAME "lm3s6965evb"
#define BOARD_HZ 12500000u /* as it is after a reset in QEMU */
#define BOARD_WITHOUT_BUS_FAULTS /* QEMU ignores an access to an address that has nothing, on this board */

/* Memory that keeps its bytes in a reset, as sectors of an emulated flash; all bytes are 0 when the board is switched on. It is the end of
 * the RAM, which has only 64 KB: after the two sectors of the identity, 24 KB are left for the journal. */
#define BOARD_KEPT 0x20009000u
enum { BOARD_SECTORS = 14, BOARD_SECTOR_BYTES = 2048 };

/* Its first expiry is an interrupt that stays disabled, and the second one resets the board. */
#define BOARD_WATCHDOG ((volatile uint32_t *)0x40000000)

/* The registers have 4 bytes each. */
#define BOARD_UART ((volatile uint32_t *)0x4000C000)
enum { BOARD_UART_INTERRUPT = 5 };
enum { UART_FLAGS = 6, UART_DIVIDER = 9, UART_FRACTION = 10, UART_LINE = 11, UART_CONTROL = 12, UART_MASK = 14, UART_CLEAR = 17 };

/* Interrupts when a quarter of its queue has arrived, or after a pause. */
static inline void board_uart_begin(uint32_t baud) {
    uint32_t divider = BOARD_HZ * 4u / baud; /* in 64ths of 16 bauds */
    BOARD_UART[UART_DIVIDER] = divider / 64;
    BOARD_UART[UART_FRACTION] = divider % 64;
    BOARD_UART[UART_LINE] = 3u << 5 | 1u << 4; /* 8 bits, with the queue */
    BOARD_UART[UART_MASK] = 1u << 4 | 1u << 6;
    BOARD_UART[UART_CONTROL] = 1u | 1u << 8 | 1u << 9;
}

static inline bool board_uart_is_full(void) { return BOARD_UART[UART_FLAGS] & 1u << 5; }
static inline bool board_uart_has_received(void) { return !(BOARD_UART[UART_FLAGS] & 1u << 4); }
static inline void board_uart_clear_interrupt(void) { BOARD_UART[UART_CLEAR] = 1u << 4 | 1u << 6; }

#endif
