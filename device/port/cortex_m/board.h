/* board.h - see board.c. */
#ifndef MILLRACE_DEVICE_BOARD_H
#define MILLRACE_DEVICE_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registers.h"

void board_print(const char *text);
void board_number(const char *name, uint32_t value);
/* The same; false if it is above the limit. */
bool board_limit(const char *name, uint32_t value, uint32_t limit);
void board_end(bool held);
/* Counts instructions, in steps of one cycle of the board: of 40 on mps2-an385, at most 600 million. */
void board_count(void);
uint32_t board_counted(void);

/* BOARD_HZ / 1000 cycles are a millisecond. board_tick is called after each so many. */
void board_start_ticks(uint32_t cycles);
/* Resets the board, unless this is called again within so many cycles. */
void board_watch(uint32_t cycles);
void board_reset(void);
/* Of the program, or none. */
void board_tick(void);
void board_fault(void);

#endif
