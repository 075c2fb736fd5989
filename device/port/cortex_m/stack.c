#include "stack.h"

enum { FRAME_WORDS = 8, GUARD_BYTES = 32, GUARD = 0x4D525354 };

/* The memory protection unit and the configurable faults, if the core has them. */
#define MPU ((volatile uint32_t *)0xE000ED90) /* type, control, number, base, attributes and size */
#define FAULT_STATUS (*(volatile uint32_t *)0xE000ED28)
#define RESET_CONTROL (*(volatile uint32_t *)0xE000ED0C)

static const mrd_port *port;
static uint32_t *bottom, *top;
static volatile uint32_t active; /* a function is on the process stack */
static uint32_t begun_ms, limit;
static bool guarded, own_unit;

/* Calls call(argument) on the stack that ends at `end`; returns 0, or what `end_function` gave. The flag is set when the
 * process stack is in use, without an interrupt between. Only instructions that all cores have. */
uint32_t mrd_stack_call(void (*call)(void *), void *argument, uint32_t *end, volatile uint32_t *flag);
__asm__(".syntax unified\n"
        ".thumb\n"
        ".text\n"
        ".global mrd_stack_call\n"
        ".global mrd_stack_leave\n"
        ".thumb_func\n"
        "mrd_stack_call:\n"
        "  push {r4-r7, lr}\n"
        "  mov r4, r8\n  mov r5, r9\n  mov r6, r10\n  mov r7, r11\n"
        "  push {r3-r7}\n"
        "  mov r4, r0\n  movs r5, #1\n"
        "  cpsid i\n"
        "  msr psp, r2\n  movs r6, #2\n  msr control, r6\n  isb\n"
        "  str r5, [r3]\n"
        "  cpsie i\n"
        "  mov r0, r1\n"
        "  blx r4\n"
        "  movs r0, #0\n"
        ".thumb_func\n"
        "mrd_stack_leave:\n" /* r0: the result; the main stack is as it was left */
        "  cpsid i\n"
        "  movs r6, #0\n  msr control, r6\n  isb\n"
        "  pop {r3-r7}\n"
        "  mov r8, r4\n  mov r9, r5\n  mov r10, r6\n  mov r11, r7\n"
        "  movs r6, #0\n  str r6, [r3]\n"
        "  cpsie i\n"
        "  pop {r4-r7, pc}\n");
void mrd_stack_leave(void);

/* In an interrupt: when it returns, the processor continues at mrd_stack_leave, whatever the function was doing. */
static void end_function(uint32_t why) {
    uint32_t *frame = top - FRAME_WORDS;
    for (unsigned i = 0; i < FRAME_WORDS; i++) frame[i] = 0;
    frame[0] = why;
    frame[6] = (uint32_t)(uintptr_t)mrd_stack_leave & ~1u;
    frame[7] = 1u << 24; /* Thumb, in no block of IT or LDM */
    active = 0;
    __asm__ volatile("msr psp, %0" : : "r"(frame) : "memory");
}

static bool is_overflowed(void) {
    for (unsigned i = 0; i < GUARD_BYTES / 4; i++) {
        if (bottom[i] != GUARD) return true;
    }
    return false;
}

/* Region 7 of the unit, without any access; the background is as without the unit. */
static void guard(bool on) {
    if (!guarded) return;
    MPU[2] = 7;
    MPU[3] = (uint32_t)(uintptr_t)bottom;
    MPU[4] = on ? 1u << 28 | 4u << 1 | 1u : 0;
    if (own_unit) MPU[1] = on ? 5 : 0;
    __asm__ volatile("dsb\n isb" : : : "memory");
}

static int run_on(void *context, void (*call)(void *), void *argument, uint32_t limit_ms) {
    (void)context;
    for (unsigned i = 0; i < GUARD_BYTES / 4; i++) bottom[i] = GUARD;
    begun_ms = port->ms(port->context);
    limit = limit_ms;
    guard(true);
    uint32_t why = mrd_stack_call(call, argument, top, &active);
    guard(false);
    if (why == MRD_RUN_STACK || !is_overflowed()) return (int)why;
    /* Something behind the stack has changed, and nobody knows what. */
    RESET_CONTROL = 0x05FA0004;
    for (;;) continue;
}

void mrd_stack_tick(void) {
    if (active && port->ms(port->context) - begun_ms > limit && mrd_may_end()) end_function(MRD_RUN_TIMEOUT);
}

bool mrd_stack_fault(void) {
    uint32_t *at;
    __asm__ volatile("mrs %0, psp" : "=r"(at));
    if (!active || !mrd_may_end()) return false;
    FAULT_STATUS = 0xFFFFFFFF;
    end_function(at < bottom + GUARD_BYTES / 4 + FRAME_WORDS ? MRD_RUN_STACK : MRD_RUN_FAULT);
    return true;
}

void mrd_stack_begin(mrd_port *for_port, void *stack, size_t bytes) {
    port = for_port;
    bottom = (uint32_t *)stack;
    top = bottom + bytes / 8 * 2;
    own_unit = MPU[1] == 0;
    guarded = MPU[0] >> 8 != 0 && (uintptr_t)stack % GUARD_BYTES == 0;
    for_port->run_on = run_on;
}
