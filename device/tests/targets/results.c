/* results.c - what mean.c and deviation.c make of many records, as functions of a device: a hash after each BATCH of them, which is the
 * same on every target. A board prints the hashes to the debugger; as WebAssembly, this is a function of a host that appends them to a log.
 */
#include "../../port/cortex_m/area.h"

#if defined(BOARD)
#include "../../port/cortex_m/board.h"
#define START int main(void)
static void print(const char *text) { board_print(text); }
#elif defined(__wasm__)
#define START __attribute__((export_name("handle"))) int start(void)
__attribute__((import_module("millrace"), import_name("append"))) int append(const char *log, size_t log_size, const void *data, size_t size);
static void print(const char *text) { append("hashes", 6, text, 16); }
#else
#include <stdio.h>
#define START int main(void)
static void print(const char *text) { fputs(text, stdout); }
#endif

enum { INPUTS = 20480, BATCH = 1024, TEXT = 12, RESULT = 64, SECTORS = 8, SECTOR_BYTES = 2048 };

struct mr_record;
int mean_handle(const struct mr_record *record);
int deviation_handle(const struct mr_record *record);

static uint32_t now;
static uint8_t bytes_of_flash[SECTORS * SECTOR_BYTES];
static area flash = {bytes_of_flash, SECTOR_BYTES};

static uint32_t read_clock(void *context) {
    (void)context;
    return now;
}

static const mrd_port port = {.read = area_read, .program = area_program, .erase = area_erase, .ms = read_clock, .context = &flash,
                              .mapped = bytes_of_flash, .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8,
                              .namespace_id = 1};
static const mrd_log logs[] = {{"raw", 100, 0}, {"mean", 100, 0}, {"deviation", 100, 0}};
static const mrd_function functions[] = {{"mean", mean_handle, "raw", 1, NULL, 0}, {"deviation", deviation_handle, "raw", 1, NULL, 0}};
static uint64_t memory[MRD_WORDS(3, 2, 512)];
static mrd device;

/* A walk between -400 and 600 in hundredths, with jumps: most digits occur, and so do deviations from very small to large. */
static size_t input(char text[TEXT]) {
    static uint32_t state = 1;
    static int32_t value = 2000;
    state = state * 1664525 + 1013904223;
    value += (int32_t)(state >> 24) % 7 - 3;
    if ((state >> 16 & 63) == 0 || value < -40000 || value > 60000) value = (int32_t)(state >> 12) % 100000 - 40000;
    uint32_t rest = (uint32_t)(value < 0 ? -value : value), power = 100;
    size_t size = 0;
    if (value < 0) text[size++] = '-';
    while (rest / power >= 10) power *= 10;
    for (; power > 0; power /= 10) {
        if (power == 10) text[size++] = '.';
        text[size++] = (char)('0' + rest / power % 10);
    }
    text[size] = 0;
    return size;
}

/* FNV-1a, of the length and the bytes of each result. */
static uint64_t hash = 0xCBF29CE484222325;

static void add(uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3; }

static int add_newest(const char *log) {
    uint8_t bytes[RESULT];
    int64_t size = mrd_get(&device, log, (uint64_t)mrd_latest(&device, log), bytes, sizeof bytes);
    if (size < 0 || size > RESULT) return -1;
    add((uint8_t)size);
    for (int64_t i = 0; i < size; i++) add(bytes[i]);
    return 0;
}

static void print_hash(void) {
    char text[18];
    for (unsigned i = 0; i < 16; i++) text[i] = "0123456789abcdef"[hash >> 4 * (15 - i) & 15];
    text[16] = '\n';
    text[17] = 0;
    print(text);
}

START {
    mrd_status status;
    if (mrd_erase(&port) < 0 || mrd_open(&device, &port, logs, 3, functions, 2, memory, sizeof memory) < 0) return 1;
    for (unsigned i = 1; i <= INPUTS; i++) {
        char text[TEXT];
        now += 1000;
        if (mrd_append(&device, "raw", text, input(text), NULL) != (int64_t)i) return 2;
        do {
            if (mrd_step(&device) < 0) return 3;
            mrd_stat(&device, &status);
        } while (status.pending > 0);
        if (mrd_latest(&device, "mean") != (int64_t)i || mrd_latest(&device, "deviation") != (int64_t)i) return 4;
        if (add_newest("mean") < 0 || add_newest("deviation") < 0) return 5;
        if (i % BATCH == 0) print_hash();
    }
    return 0;
}
