/* vectors.c - the bursts and images of spec/vectors/device.json, which vectors.py turned into vectors.inc.
 *
 *     vectors [--bless]    --bless: prints the images as they are now, for vectors.py
 */
#include "../src/internal.h"
#include "check.h"

typedef struct {
    const char *name;
    uint32_t before, size;
    const uint8_t *bytes;
    unsigned entries;
    int valid;
} burst;

typedef struct {
    int kind;
    const char *log;
    uint32_t size;
    const uint8_t *data, *cause;
    uint64_t number;
} call;

typedef struct {
    uint32_t at, size;
    const uint8_t *bytes;
} span;

typedef struct {
    const char *name;
    uint32_t sectors, sector_bytes;
    uint16_t unit, torn_bytes;
    unsigned log_count;
    const mrd_log *logs;
    unsigned function_count;
    const mrd_function *functions;
    unsigned call_count;
    const call *calls;
    unsigned span_count;
    const span *spans;
} image;

const char *checking = "";

#include "functions.h"
#include "vectors.inc"

static void check_burst(const burst *one) {
    mrd_flash flash;
    mrd device;
    mrd_walk walk;
    mrd_reader reader;
    mrd_entry entry;
    unsigned entries = 0;
    CHECK(mrd_flash_open(&flash, NULL, 8, 1024, 1, 1, 1) == 0);
    memset(&device, 0, sizeof device);
    device.port = &flash.port;
    device.grain = 1;
    memcpy(flash.bytes, one->bytes, one->size);
    memset(&walk, 0, sizeof walk);
    walk.device = &device;
    walk.limit = 1024;
    walk.crc = one->before;
    bool valid = mrd_next_burst(&walk);
    if (valid) {
        EQUAL(walk.done, one->size);
        mrd_reader_begin(&reader, &device, walk.body, walk.end);
        mrd_take_v(&reader);
        while (mrd_next_entry(&reader, &entry)) entries++;
        valid = !reader.failed;
    }
    EQUAL(valid, one->valid);
    if (one->valid) EQUAL(entries, one->entries);
    mrd_flash_close(&flash);
}

static void make(const image *one, mrd_flash *flash) {
    static uint64_t memory[MRD_WORDS(MRD_LOGS_MAX, MRD_FUNCTIONS_MAX, 512)];
    static mrd device;
    size_t bytes = 8 * MRD_WORDS(one->log_count, one->function_count, 512);
    CHECK(mrd_flash_open(flash, NULL, one->sectors, one->sector_bytes, one->unit, one->torn_bytes, 0x4B17C4E20001) == 0);
    flash->virtual_time = true;
    for (unsigned i = 0; i < one->call_count; i++) {
        const call *now = &one->calls[i];
        mrd_cause cause;
        if (now->cause) memcpy(cause.id, now->cause, 16);
        switch (now->kind) {
        case 0:
            flash->port.reset_reason = (uint8_t)now->number;
            EQUAL(mrd_open(&device, &flash->port, one->logs, one->log_count, one->functions, one->function_count, memory,
                           bytes), 0);
            break;
        case 1: CHECK(mrd_append(&device, now->log, now->data, now->size, now->cause ? &cause : NULL) > 0); break;
        case 2: flash->ms += (uint32_t)now->number; break;
        case 3: EQUAL(mrd_sync(&device), 0); break;
        case 4: EQUAL(mrd_set_clock(&device, now->number), 0); break;
        case 5: CHECK(mrd_step(&device) >= 0); break;
        default: mrd_delivered(&device, now->number); break;
        }
    }
}

/* Bytes that differ from blank ones, with gaps of at most 8. */
static void print_image(const image *one, const mrd_flash *flash) {
    uint32_t size = one->sectors * one->sector_bytes;
    for (uint32_t at = 0, end; at < size; at = end + 1) {
        end = at;
        for (uint32_t i = at; i < size && i < end + 8 && flash->bytes[at] != 0xFF; i++) {
            if (flash->bytes[i] != 0xFF) end = i + 1;
        }
        if (end == at) continue;
        printf("%s %u ", one->name, (unsigned)at);
        for (uint32_t i = at; i < end; i++) printf("%02x", flash->bytes[i]);
        printf("\n");
    }
}

static void check_image(const image *one, const mrd_flash *flash) {
    uint32_t size = one->sectors * one->sector_bytes;
    uint8_t *expected = malloc(size);
    CHECK(expected);
    memset(expected, 0xFF, size);
    for (unsigned i = 0; i < one->span_count; i++) memcpy(expected + one->spans[i].at, one->spans[i].bytes, one->spans[i].size);
    for (uint32_t i = 0; i < size; i++) {
        if (flash->bytes[i] != expected[i]) {
            fprintf(stderr, "at %u\n", (unsigned)i);
            EQUAL(flash->bytes[i], expected[i]);
        }
    }
    free(expected);
}

int main(int count, char **words) {
    bool blessing = count > 1 && strcmp(words[1], "--bless") == 0;
    for (size_t i = 0; i < sizeof bursts / sizeof *bursts; i++) {
        checking = bursts[i].name;
        check_burst(&bursts[i]);
    }
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        mrd_flash flash;
        checking = images[i].name;
        make(&images[i], &flash);
        if (blessing) print_image(&images[i], &flash);
        else check_image(&images[i], &flash);
        mrd_flash_close(&flash);
    }
    fprintf(stderr, "vectors: ok\n");
    return 0;
}
