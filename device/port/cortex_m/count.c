/* count.c - how many instructions of a Cortex-M3 the calls of a device take; the flash takes no time. */
#include "board.h"
#include "millrace_device.h"

#define MILLRACE_DEVICE answer
#include "millrace.h"

enum { SECTORS = 16, SECTOR_BYTES = 4096, TIMES = 100, RECORD = 16 };

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

static uint8_t area[SECTORS * SECTOR_BYTES];
static uint32_t programs, programmed, erases, now;

static int read_area(void *context, uint32_t at, void *bytes, uint32_t size) {
    (void)context;
    memcpy(bytes, area + at, size);
    return 0;
}

static int program_area(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)context;
    memcpy(area + at, bytes, size);
    programs++;
    programmed += size;
    return 0;
}

static int erase_area(void *context, uint32_t at) {
    (void)context;
    memset(area + at, 0xFF, SECTOR_BYTES);
    erases++;
    return 0;
}

static uint32_t read_clock(void *context) {
    (void)context;
    return now;
}

/* What was counted when the function began. */
static uint32_t begun;

int answer_handle(const mr_record *record) {
    begun += board_counted();
    return mr_append("smooth", record->data, record->size);
}

static mrd_port port = {.read = read_area, .program = program_area, .erase = erase_area, .ms = read_clock,
                              .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8,
                              .namespace_id = 1};
static const mrd_log logs[] = {{"raw", 2000, 0}, {"smooth", 500, 0}};
static const mrd_function functions[] = {{"answer", answer_handle, "raw", 3, NULL, 0}};
static uint64_t memory[MRD_WORDS(2, 1, 512)];
static const char record[RECORD + 1] = "0123456789abcdef";
static mrd device;
static bool within = true;

/* The limits are a tenth above what GCC 12 gave with -Os; raise one only for a reason that the commit names. */
static void number(const char *name, uint32_t value, uint32_t limit) { within &= board_limit(name, value, limit); }

static void start(unsigned function_count) {
    if (mrd_open(&device, &port, logs, 2, functions, function_count, memory, 8 * MRD_WORDS(2, function_count, 512)) < 0) {
        board_print(device.why);
        board_end(false);
    }
}

static void append(const char *log) {
    if (mrd_append(&device, log, record, RECORD, NULL) < 0) board_end(false);
}

static void count_appends(void) {
    uint32_t appends = 0, flushes = 0;
    for (unsigned i = 0; i < TIMES; i++) {
        now += 1000;
        board_count();
        append("raw");
        appends += board_counted();
        board_count();
        if (mrd_sync(&device) < 0) board_end(false);
        flushes += board_counted();
    }
    number("append a record of 16 bytes", appends / TIMES, 308);
    number("flush it", flushes / TIMES, 530);
    programs = programmed = erases = 0;
    for (unsigned i = 0; i < 1000; i++) {
        now += 1000;
        append("raw");
        mrd_sync(&device);
    }
    number("programs for 1000 flushed records", programs, 1030);
    number("bytes programmed", programmed, 36000);
    number("erases", erases, 9);
}

static void count_gets(const char *name, uint64_t before_newest, uint32_t limit) {
    char bytes[RECORD];
    uint64_t seqno = (uint64_t)mrd_latest(&device, "raw") - before_newest;
    board_count();
    for (unsigned i = 0; i < TIMES; i++) {
        if (mrd_get(&device, "raw", seqno, bytes, RECORD) != RECORD) board_end(false);
    }
    number(name, board_counted() / TIMES, limit);
}

static void count_runs(void) {
    uint32_t runs = 0;
    for (unsigned i = 0; i < TIMES; i++) {
        now += 1000;
        append("raw");
        board_count();
        if (mrd_step(&device) < 0) board_end(false);
        runs += board_counted();
        mrd_sync(&device);
    }
    if (mrd_latest(&device, "smooth") != TIMES) board_end(false);
    number("run a function that appends a record", runs / TIMES, 1350);
    begun = 0;
    for (unsigned i = 0; i < TIMES; i++) {
        now += 1000;
        board_count();
        append("raw");
        if (mrd_step(&device) < 0) board_end(false);
        mrd_sync(&device);
    }
    number("from an append to the first instruction of its function", begun / TIMES, 725);
}

int main(void) {
    memset(area, 0xFF, sizeof area);
    start(0);
    append("raw");
    mrd_sync(&device);
    count_appends();
    count_gets("get the newest record", 0, 185);
    count_gets("get the tenth-newest record", 9, 295);
    port.mapped = area;
    count_gets("get the newest record, if the flash is mapped", 0, 176);
    count_gets("get the tenth-newest record, if the flash is mapped", 9, 286);
    port.mapped = NULL;
    board_count();
    start(0);
    number("open", board_counted(), 180000);
    if (mrd_erase(&port) < 0) return 1;
    start(1);
    count_runs();
    return within ? 0 : 1;
}
