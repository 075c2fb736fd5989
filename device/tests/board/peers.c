/* peers.c - the same as count.c does for a synced record of 16 bytes, with littlefs and FlashDB: make peers PEERS=folder. Their sources are
 * not part of this repository. The flash and the C library are the same for all three. */
#include "../../port/cortex_m/board.h"
#include "millrace_device.h"
#include "lfs.h"
#include <flashdb.h>

enum { SECTORS = 16, SECTOR_BYTES = 4096, TIMES = 1000, RECORD = 16, CACHE = 256 };

static uint8_t area[SECTORS * SECTOR_BYTES];
static uint32_t programs, programmed, erases, now;
static const char record[RECORD + 1] = "0123456789abcdef";

static void take(uint32_t at, void *bytes, uint32_t size) { memcpy(bytes, area + at, size); }

static int put(uint32_t at, const void *bytes, uint32_t size) {
    const uint8_t *from = (const uint8_t *)bytes;
    for (uint32_t i = 0; i < size; i++) area[at + i] &= from[i];
    programs++;
    programmed += size;
    return 0;
}

static int clear(uint32_t at) {
    memset(area + at, 0xFF, SECTOR_BYTES);
    erases++;
    return 0;
}

static void report(const char *name, uint32_t instructions) {
    board_print(name);
    board_print("\n");
    board_number("instructions for one record", instructions);
    board_number("programs for 1000", programs);
    board_number("bytes programmed for 1000", programmed);
    board_number("erases for 1000", erases);
}

static void begin(void) {
    memset(area, 0xFF, sizeof area);
    programs = programmed = erases = 0;
}

static void check(bool claim, const char *what) {
    if (claim) return;
    board_print(what);
    board_print(" failed\n");
    board_end(false);
}

/* Each program and each erase takes instructions here, so that they are counted alike. */
static uint32_t total;

static void counted(void (*one)(void)) {
    total = 0;
    for (unsigned i = 0; i < TIMES; i++) {
        now += 1000;
        board_count();
        one();
        total += board_counted();
    }
}

/* ---- ours ---- */

static int read_port(void *context, uint32_t at, void *bytes, uint32_t size) {
    (void)context;
    take(at, bytes, size);
    return 0;
}

static int program_port(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)context;
    return put(at, bytes, size);
}

static int erase_port(void *context, uint32_t at) {
    (void)context;
    return clear(at);
}

static uint32_t clock_port(void *context) {
    (void)context;
    return now;
}

static const mrd_port port = {.read = read_port, .program = program_port, .erase = erase_port, .ms = clock_port,
                              .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8, .namespace_id = 1};
static const mrd_log logs[] = {{"raw", 2000, 0}};
static uint64_t memory[MRD_WORDS(1, 0, 512)];
static mrd device;

static void ours(void) { check(mrd_append(&device, "raw", record, RECORD, NULL) > 0 && mrd_sync(&device) == 0, "an append"); }

/* ---- littlefs ---- */

/* As in its lfs_util.c. */
uint32_t lfs_crc(uint32_t crc, const void *buffer, size_t size) {
    static const uint32_t of[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *data = (const uint8_t *)buffer;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 4 ^ of[(crc ^ data[i]) & 15];
        crc = crc >> 4 ^ of[(crc ^ data[i] >> 4) & 15];
    }
    return crc;
}

static bool has(const char *set, char c) {
    while (*set != 0 && *set != c) set++;
    return *set != 0;
}

size_t strspn(const char *text, const char *set) {
    size_t size = 0;
    while (text[size] != 0 && has(set, text[size])) size++;
    return size;
}

size_t strcspn(const char *text, const char *set) {
    size_t size = 0;
    while (text[size] != 0 && !has(set, text[size])) size++;
    return size;
}

static int read_lfs(const struct lfs_config *c, lfs_block_t block, lfs_off_t off, void *buffer, lfs_size_t size) {
    (void)c;
    take(block * SECTOR_BYTES + off, buffer, size);
    return 0;
}

static int program_lfs(const struct lfs_config *c, lfs_block_t block, lfs_off_t off, const void *buffer, lfs_size_t size) {
    (void)c;
    return put(block * SECTOR_BYTES + off, buffer, size);
}

static int erase_lfs(const struct lfs_config *c, lfs_block_t block) {
    (void)c;
    return clear(block * SECTOR_BYTES);
}

static int sync_lfs(const struct lfs_config *c) {
    (void)c;
    return 0;
}

static uint8_t read_cache[CACHE], program_cache[CACHE], lookahead[16], file_cache[CACHE];
static const struct lfs_config config = {.read = read_lfs, .prog = program_lfs, .erase = erase_lfs, .sync = sync_lfs, .read_size = 8,
                                         .prog_size = 8, .block_size = SECTOR_BYTES, .block_count = SECTORS, .block_cycles = 500,
                                         .cache_size = CACHE, .lookahead_size = 16, .read_buffer = read_cache,
                                         .prog_buffer = program_cache, .lookahead_buffer = lookahead};
static const struct lfs_file_config file_config = {.buffer = file_cache};
static lfs_t lfs;
static lfs_file_t file;

static void littlefs(void) { check(lfs_file_write(&lfs, &file, record, RECORD) == RECORD && lfs_file_sync(&lfs, &file) == 0, "a write"); }

/* ---- FlashDB ---- */

static struct fal_partition partition = {.name = "raw", .len = SECTORS * SECTOR_BYTES};
static struct fal_flash_dev flash = {.blk_size = SECTOR_BYTES, .len = SECTORS * SECTOR_BYTES};
static struct fdb_tsdb tsdb;

int fal_init(void) { return 1; }
const struct fal_partition *fal_partition_find(const char *name) { return name ? &partition : NULL; }
const struct fal_flash_dev *fal_flash_device_find(const char *name) { return name ? &flash : NULL; }

int fal_partition_read(const struct fal_partition *part, uint32_t at, uint8_t *bytes, size_t size) {
    (void)part;
    take(at, bytes, (uint32_t)size);
    return (int)size;
}

int fal_partition_write(const struct fal_partition *part, uint32_t at, const uint8_t *bytes, size_t size) {
    (void)part;
    put(at, bytes, (uint32_t)size);
    return (int)size;
}

int fal_partition_erase(const struct fal_partition *part, uint32_t at, size_t size) {
    (void)part;
    for (uint32_t done = 0; done < size; done += SECTOR_BYTES) clear(at + done);
    return (int)size;
}

static fdb_time_t time_of(void) { return (fdb_time_t)now; }

static void flashdb(void) {
    struct fdb_blob blob;
    check(fdb_tsl_append(&tsdb, fdb_blob_make(&blob, record, RECORD)) == FDB_NO_ERR, "a series");
}

int main(void) {
    begin();
    check(mrd_open(&device, &port, logs, 1, NULL, 0, memory, sizeof memory) == 0, "open");
    ours();
    programs = programmed = erases = 0;
    counted(ours);
    report("millrace", total / TIMES);
    begin();
    check(fdb_tsdb_init(&tsdb, "log", "raw", time_of, 128, NULL) == FDB_NO_ERR, "open");
    now += 1000;
    flashdb();
    programs = programmed = erases = 0;
    counted(flashdb);
    report("FlashDB", total / TIMES);
    begin();
    check(lfs_format(&lfs, &config) == 0 && lfs_mount(&lfs, &config) == 0, "format");
    check(lfs_file_opencfg(&lfs, &file, "raw", LFS_O_RDWR | LFS_O_CREAT | LFS_O_APPEND, &file_config) == 0, "open");
    littlefs();
    programs = programmed = erases = 0;
    counted(littlefs);
    report("littlefs", total / TIMES);
    return 0;
}
