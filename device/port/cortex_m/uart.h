/* uart.h - the first serial port of a board, for millrace_serial.h. What it is depends on the board (registers.h). */
#ifndef MILLRACE_CORTEX_M_UART_H
#define MILLRACE_CORTEX_M_UART_H

#include "millrace_serial.h"

/* Begins to receive. What arrives waits in a buffer, and wakes the processor. */
void uart_begin(uint32_t baud);
/* As in mrd_uart. */
size_t uart_write(void *context, const void *bytes, size_t size);
size_t uart_read(void *context, void *bytes, size_t size);
bool uart_has_bytes(void);
/* Text for people, between the frames. */
void uart_print(const char *text);

#endif
