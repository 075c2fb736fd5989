/* board.h - see board.c. */
#ifndef MILLRACE_DEVICE_BOARD_H
#define MILLRACE_DEVICE_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void board_print(const char *text);
void board_number(const char *name, uint32_t value);
void board_end(bool held);
/* Counts instructions, in steps of 40, at most 600 million. */
void board_count(void);
uint32_t board_counted(void);

#endif
