/* ends.c - tests/stack.c on a Cortex-M3: functions that never end, use too much stack, fault, reset the board, or stop all
 * interrupts. Each run becomes a dead letter after its attempts, and the board always comes back. */
#include "../../port/cortex_m/area.h"
#include "../../port/cortex_m/board.h"
#include "../../port/cortex_m/stack.h"

#define MILLRACE_DEVICE misbehave
#include "millrace.h"

enum { LOOP, LOOP_IN_CALLS, RECURSE, FAULT, FAULT_IN_A_CALL, RESET, MASK, WELL, KINDS };
enum { SECTORS = 8, SECTOR_BYTES = 2048, BEGUN = 0x424F4152, STARTS_MAX = 40, NOWHERE = 0x60000000 };

void *memset(void *to, int byte, size_t size);

typedef struct {
    uint32_t begun, retained, starts, attempts[KINDS];
    uint8_t area[SECTORS * SECTOR_BYTES];
} kept_memory;

static kept_memory *const kept = (kept_memory *)BOARD_KEPT;
static volatile uint32_t now, never;
static uint64_t stack[1536 / 8] __attribute__((aligned(32)));
static uint64_t memory[MRD_WORDS(3, 1, 512)];
static mrd device;

static uint32_t read_clock(void *context) {
    (void)context;
    return now;
}

static area flash = {NULL, SECTOR_BYTES};
static mrd_port port = {.read = area_read, .program = area_program, .erase = area_erase, .ms = read_clock, .context = &flash,
                        .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8, .namespace_id = 1,
                        .reset_reason = MRD_RESET_WATCHDOG};
static const mrd_log logs[] = {{"in", 100, 0}, {"out", 100, 0}, {"dead", 100, 0}};
static const mrd_function functions[] = {{"misbehave", misbehave_handle, "in", 3, "dead", 3}};

void board_tick(void) {
    now++;
    mrd_stack_tick();
}

void board_fault(void) {
    if (!mrd_stack_fault()) board_reset();
}

static void check(bool claim, const char *text) {
    if (claim) return;
    board_print(text);
    board_print(": not so\n");
    board_end(false);
}

/* Where a board ignores an access to an address that has nothing, the memory protection unit makes it a fault while a function runs. */
static void forbid_nowhere(void) {
#ifdef BOARD_WITHOUT_BUS_FAULTS
    volatile uint32_t *unit = (volatile uint32_t *)0xE000ED90;
    unit[2] = 0;
    unit[3] = NOWHERE;
    unit[4] = 1u << 28 | 4u << 1 | 1u; /* 32 bytes, without any access */
#endif
}

static uint32_t recurse(volatile uint32_t *before) {
    volatile uint32_t some[16];
    for (unsigned i = 0; i < 16; i++) some[i] = before ? before[i] : i;
    return never ? 0 : recurse(some) + some[7];
}

int misbehave_handle(const mr_record *record) {
    uint8_t byte;
    kept->attempts[record->data[0]]++;
    mr_append("out", "half", 4); /* of a run that does not end: nothing of it is left */
    switch (record->data[0]) {
    case LOOP: for (;;) never = 0; break;
    case LOOP_IN_CALLS: for (;;) mr_get("in", 1, &byte, 1); break;
    case RECURSE: return (int)recurse(NULL);
    case FAULT: __asm__ volatile("udf #1"); break;
    case FAULT_IN_A_CALL: mr_append("out", (const void *)NOWHERE, 8); break;
    case RESET: board_reset(); break;
    case MASK:
        __asm__ volatile("cpsid i");
        for (;;) never = 0;
    default: break;
    }
    return 0;
}

int main(void) {
    mrd_status status = {0};
    if (kept->begun != BEGUN) {
        memset(kept->area, 0xFF, sizeof kept->area);
        kept->begun = BEGUN;
    }
    check(++kept->starts < STARTS_MAX, "it comes to an end");
    flash.bytes = kept->area;
    port.retained = &kept->retained;
    forbid_nowhere();
    mrd_stack_begin(&port, stack, sizeof stack);
    board_start_ticks(BOARD_HZ / 10000);
    check(mrd_open(&device, &port, logs, 3, functions, 1, memory, sizeof memory) == 0, "it opens");
    for (uint8_t kind = 0; kind < KINDS && mrd_latest(&device, "in") < KINDS; kind++) mrd_append(&device, "in", &kind, 1, NULL);
    check(mrd_sync(&device) == 0, "it is flushed");
    do {
        board_watch(BOARD_HZ / 50);
        check(mrd_step(&device) >= 0, "a step");
        mrd_stat(&device, &status);
        now += 500;
    } while (status.pending > 0);
    check(mrd_sync(&device) == 0, "it is flushed");
    check(mrd_latest(&device, "out") == 1, "one run ended well");
    check(mrd_latest(&device, "dead") == WELL, "the others are dead letters");
    for (uint8_t kind = 0; kind < WELL; kind++) {
        uint8_t byte = 0;
        check(mrd_get(&device, "dead", kind + 1u, &byte, 1) == 1 && byte == kind, "a dead letter");
        /* One more if the reset came before the end of the run before was flushed. */
        check(kept->attempts[kind] == 3 || kept->attempts[kind] == 4, "three attempts");
    }
    check(kept->attempts[WELL] == 1, "one attempt");
    board_number("starts until all runs had ended", kept->starts);
    return 0;
}
