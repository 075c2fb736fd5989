/* board.c - what a program without a C library needs on a board in QEMU: a start, output and an end. What differs
 * between boards is in memory.ld and registers.h of each.
 *
 * Not a port for real boards: the flash is memory, and output goes to the debugger (semihosting).
 */
#include "board.h"

extern uint32_t data_start, data_end, data_load, bss_start, bss_end, stack_top;
int main(void);

/* Words at any address, as this processor allows. The C libraries of its vendors copy words, too. */
typedef struct __attribute__((packed)) {
    uint32_t word;
} __attribute__((may_alias)) any;

void *memcpy(void *to, const void *from, size_t size) {
    any *word = (any *)to;
    const any *other = (const any *)from, *end = other + size / 4;
    while (other != end) *word++ = *other++;
    uint8_t *at = (uint8_t *)word;
    const uint8_t *byte = (const uint8_t *)other;
    for (size &= 3; size > 0; size--) *at++ = *byte++;
    return to;
}

void *memmove(void *to, const void *from, size_t size) {
    uint8_t *at = (uint8_t *)to;
    const uint8_t *byte = (const uint8_t *)from;
    if (at < byte || at >= byte + size) return memcpy(to, from, size);
    while (size-- > 0) at[size] = byte[size];
    return to;
}

void *memset(void *to, int byte, size_t size) {
    uint8_t *at = (uint8_t *)to;
    for (; size >= 4; size -= 4, at += 4) ((any *)at)->word = (uint32_t)(byte & 0xFF) * 0x01010101u;
    while (size-- > 0) *at++ = (uint8_t)byte;
    return to;
}

int memcmp(const void *one, const void *other, size_t size) {
    const uint8_t *a = (const uint8_t *)one, *b = (const uint8_t *)other;
    for (; size-- > 0; a++, b++) {
        if (*a != *b) return *a - *b;
    }
    return 0;
}

size_t strlen(const char *text) {
    size_t size = 0;
    while (text[size] != 0) size++;
    return size;
}

static void semihosting(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void board_print(const char *text) { semihosting(0x04, text); }

void board_end(bool held) {
    semihosting(0x18, (const void *)(uintptr_t)(held ? 0x20026 : 0x20023));
    for (;;) {}
}

void board_number(const char *name, uint32_t value) {
    char text[12];
    unsigned at = sizeof text - 1;
    text[at] = 0;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (at > 3) text[--at] = ' ';
    board_print(text + at);
    board_print("  ");
    board_print(name);
    board_print("\n");
}

bool board_limit(const char *name, uint32_t value, uint32_t limit) {
    board_number(name, value);
    if (value > limit) board_print("above its limit\n");
    return value <= limit;
}

/* The timer counts cycles; with -icount shift=0, an instruction takes a nanosecond. */
#define SYSTICK ((volatile uint32_t *)0xE000E010)
static uint32_t started;

void board_count(void) {
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    started = SYSTICK[2];
}

uint32_t board_counted(void) { return ((started - SYSTICK[2]) & 0xFFFFFF) * (1000000000u / BOARD_HZ); }

void reset(void);
void reset(void) {
    uint32_t *from = &data_load;
    for (uint32_t *to = &data_start; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
    board_end(main() == 0);
}

/* The program may define these. */
__attribute__((weak)) void board_fault(void) {
    board_print("fault\n");
    board_end(false);
}

__attribute__((weak)) void board_tick(void) {}

/* The watchdog's first warning, on boards where it is this interrupt; it resets the board at the second one. */
static void wait_for_reset(void) {
    for (;;) continue;
}

#define RESET_CONTROL (*(volatile uint32_t *)0xE000ED0C)
void board_reset(void) {
    RESET_CONTROL = 0x05FA0004;
    for (;;) continue;
}

void board_watch(uint32_t cycles) {
    BOARD_WATCHDOG[0] = cycles;
    BOARD_WATCHDOG[2] = 3;
}

void board_start_ticks(uint32_t cycles) {
    SYSTICK[1] = cycles - 1;
    SYSTICK[2] = 0;
    SYSTICK[0] = 7;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    (const void *)&stack_top,  (const void *)reset,       (const void *)wait_for_reset, (const void *)board_fault,
    (const void *)board_fault, (const void *)board_fault, (const void *)board_fault,    [15] = (const void *)board_tick,
};
