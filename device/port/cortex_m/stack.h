/* stack.h - runs functions on a stack of their own on a Cortex-M, and ends one that runs too long, uses too much stack, or faults.
 *
 *     static uint64_t stack[1536 / 8];
 *     mrd_stack_begin(&port, stack, sizeof stack);
 *
 *     void SysTick_Handler(void) { now_ms++; mrd_stack_tick(); }
 *     void HardFault_Handler(void) { if (!mrd_stack_fault()) reset_the_board(); }   also for MemManage, BusFault, UsageFault
 *
 * The function runs in thread mode on the process stack, everything else on the main stack: the program that calls mrd_step
 * must not use the process stack itself, as tasks of an operating system do. It runs privileged, so a function that disables
 * interrupts, or writes anywhere, is not stopped; the watchdog is for such. The lowest 32 bytes of the stack are guarded by
 * the memory protection unit, if there is one; without it, the board is reset after a run that overflowed. Let the stack begin
 * at the lowest address of the RAM, if you can: then a larger overflow is a fault, too.
 * For cores without a floating-point unit, or with soft floats. GCC or clang.
 */
#ifndef MILLRACE_CORTEX_M_STACK_H
#define MILLRACE_CORTEX_M_STACK_H

#include "millrace_device.h"

/* Sets port->run_on. `stack` must stay valid; it is aligned to 32 bytes if the memory protection unit is to guard it. */
void mrd_stack_begin(mrd_port *port, void *stack, size_t bytes);

/* In the interrupt of a timer, every millisecond or so: ends the function that runs, if its time is over. */
void mrd_stack_tick(void);

/* In the interrupt of a fault: ends the function that runs, if it caused the fault. Then it returns true, and the interrupt
 * returns; otherwise the board must be reset. */
bool mrd_stack_fault(void);

#endif
