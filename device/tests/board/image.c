/* image.c - a whole firmware, for its size: two logs, a function on a stack of its own, a serial uplink that is encrypted, commands that
 * need a capability, and sleep. make image compares it with the limits of sizes.txt. It runs, but nobody is at the port. */
#include "../../port/cortex_m/board.h"
#include "../../port/cortex_m/stack.h"
#include "millrace_serial.h"

enum { SECTORS = 16, SECTOR_BYTES = 4096, TOKEN_BYTES = 12 + 2 + 5 + 10 + 32, CYCLES = 20 };

/* The flash, and the registers of a serial port, at addresses of their own. */
#define AREA ((uint8_t *)BOARD_KEPT)
#define UART ((volatile uint32_t *)0x40004000)

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int mean_handle(const struct mr_record *record);

static volatile uint32_t now;
static uint64_t stack[1536 / 8] __attribute__((aligned(32)));
static uint64_t memory[MRD_WORDS(3, 1, 512)];
static mrd device;
static mrd_serial serial;
static mrd_uplink uplink;
static mrd_nap nap;
static uint32_t retained;

static int read_area(void *context, uint32_t at, void *bytes, uint32_t size) {
    (void)context;
    memcpy(bytes, AREA + at, size);
    return 0;
}

static int program_area(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)context;
    memcpy(AREA + at, bytes, size);
    return 0;
}

static int erase_area(void *context, uint32_t at) {
    (void)context;
    memset(AREA + at, 0xFF, SECTOR_BYTES);
    return 0;
}

static uint32_t read_clock(void *context) {
    (void)context;
    return now;
}

static size_t write_port(void *context, const void *bytes, size_t size) {
    (void)context;
    for (size_t i = 0; i < size; i++) UART[0] = ((const uint8_t *)bytes)[i];
    return size;
}

static size_t read_port(void *context, void *bytes, size_t size) {
    /* The library asks for one byte at a time. */
    (void)context, (void)size;
    if ((UART[1] & 2) == 0) return 0;
    *(uint8_t *)bytes = (uint8_t)UART[0];
    return 1;
}

static int random_bytes(void *context, void *bytes, size_t size) {
    (void)context;
    memset(bytes, (int)now, size);
    return 0;
}

static mrd_port port = {.read = read_area, .program = program_area, .erase = erase_area, .ms = read_clock, .mapped = AREA,
                        .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8, .namespace_id = 1,
                        .retained = &retained};
static const mrd_log logs[] = {{"raw", 2000, 0}, {"mean", 500, 0}, {"config", 1, MRD_KEEP | MRD_COMMANDS}};
static const mrd_function functions[] = {{"mean", mean_handle, "raw", 3, NULL, 100}};
static const mrd_uart uart = {write_port, read_port, random_bytes, NULL, NULL};
static const uint8_t token[TOKEN_BYTES] = {1, 'k', 'i', 't', 'c', 'h', 'e', 'n', '1', 1, 0, 1, 15, 0, 1, 3, 0, 0, 2, 16, 8, 1};
static const mrd_key keys[] = {{{'k', 'i', 't', 'c', 'h', 'e', 'n', '1'}, 1, {1}}};
static mrd_guard guard;

void board_tick(void) {
    now++;
    mrd_stack_tick();
}

void board_fault(void) {
    if (!mrd_stack_fault()) board_reset();
}

int main(void) {
    memset(AREA, 0xFF, SECTORS * SECTOR_BYTES);
    mrd_stack_begin(&port, stack, sizeof stack);
    mrd_serial_begin(&serial, &uart);
    guard.keys = keys;
    guard.key_count = 1;
    board_start_ticks(BOARD_HZ / 1000);
    for (unsigned i = 0; i < CYCLES; i++) {
        if (mrd_open(&device, &port, logs, 3, functions, 1, memory, sizeof memory) < 0) return 1;
        if (mrd_wake(&device, &nap, 1000) != (i > 0)) return 1;
        mrd_uplink_begin(&uplink, &device, &serial.line, "kitchen", token, sizeof token);
        mrd_uplink_guard(&uplink, &guard);
        if (mrd_append(&device, "raw", "21.5", 4, NULL) != (int64_t)i + 1) return 1;
        if (mrd_step(&device) < 0) return 1;
        mrd_uplink_step(&uplink);
        mrd_uplink_end(&uplink);
        if (mrd_sleep(&device, &nap) < 0) return 1;
    }
    return mrd_latest(&device, "mean") == CYCLES ? 0 : 1;
}
