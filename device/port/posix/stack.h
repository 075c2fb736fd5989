/* stack.h - runs functions on a stack of their own, and ends one that runs too long, uses too much stack, or crashes.
 *
 *     mrd_stack_begin(&port, 64 * 1024);
 *
 * The limit of a function is one of processor time, so a busy machine ends none. One thread of a process can use this. It
 * handles SIGVTALRM, SIGSEGV, SIGBUS, SIGFPE and SIGILL; such a signal outside of a function ends the process, as usual.
 */
#ifndef MILLRACE_DEVICE_STACK_H
#define MILLRACE_DEVICE_STACK_H

#include "millrace_device.h"

/* Returns 0, or -1 with errno. */
int mrd_stack_begin(mrd_port *port, size_t stack_bytes);

#endif
