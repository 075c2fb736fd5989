/* runs.c - each record is handled exactly once, or becomes a dead letter, whenever power is lost; afterwards the next is accepted.
 *
 *     runs [--seeds N] [--seed S] [--every K]    as power.c does
 */
#include "check.h"
#include "functions.h"
#include <setjmp.h>

enum { STEPS = 120, COUNT_MAX = STEPS + 1 };

const char *checking = "runs";

static mrd_flash flash;
static mrd device;
static uint64_t memory[MRD_WORDS(3, 2, 512)];
static const mrd_log logs[] = {{"in", 1000, 0}, {"out", 1000, 0}, {"dead", 1000, 0}};
static mrd_function copy = {"copy", copy_handle, "in", 3, "dead", 0};
static uint64_t random_state;
static uint8_t appended[COUNT_MAX][2];
static unsigned count, flushed;

static unsigned pick(unsigned below) { return (unsigned)(mrd_flash_random(&random_state) >> 33) % below; }

static void start(const mrd_function *functions, unsigned function_count) {
    mrd_flash_on(&flash);
    int result = mrd_open(&device, &flash.port, logs, 3, functions, function_count, memory,
                          8 * MRD_WORDS(3, function_count, 512));
    if (result < 0) fprintf(stderr, "%s\n", device.why);
    EQUAL(result, 0);
}

static void blank(uint32_t sector_bytes, uint16_t unit, uint16_t torn) {
    if (flash.bytes) mrd_flash_close(&flash);
    CHECK(mrd_flash_open(&flash, NULL, 4, sector_bytes, unit, torn, 0x4B17C4E20001) == 0);
    flash.virtual_time = true;
}

/* Runs everything that is pending. */
static void settle(void) {
    mrd_status status = {0};
    for (unsigned i = 0; i < 10000; i++) {
        CHECK(mrd_step(&device) >= 0);
        mrd_stat(&device, &status);
        if (status.pending == 0) return;
        flash.ms += 500;
    }
    EQUAL(status.pending, 0);
}

/* What was copied, or has failed, is a beginning of what was appended. */
static void compare(bool settled) {
    uint64_t in = (uint64_t)mrd_latest(&device, "in"), out = 0, dead = 0;
    uint8_t bytes[8];
    CHECK(in >= flushed && in <= count);
    count = flushed = (unsigned)in;
    mrd_status status;
    mrd_stat(&device, &status);
    for (unsigned i = 0; i < count - status.pending; i++) {
        const char *log = fails_always(appended[i][0]) ? "dead" : "out";
        uint64_t seqno = log[0] == 'd' ? ++dead : ++out;
        int64_t size = mrd_get(&device, log, seqno, bytes, sizeof bytes);
        if (size == MRD_BELOW_HISTORY) continue;
        EQUAL(size, log[0] == 'd' ? 2 : 3);
        EQUAL(memcmp(bytes + size - 2, appended[i], 2), 0);
        /* It may have been dropped before it was read. */
        if (size == 3 && i > 0) CHECK(bytes[0] == appended[i - 1][0] || bytes[0] == 0);
    }
    EQUAL(mrd_latest(&device, "out"), out);
    EQUAL(mrd_latest(&device, "dead"), dead);
    if (settled) EQUAL(status.pending, 0);
}

static void call(void) {
    unsigned what = pick(10);
    if (what < 6) {
        appended[count][0] = (uint8_t)pick(256);
        appended[count][1] = (uint8_t)count;
        int64_t result = mrd_append(&device, "in", appended[count], 2, NULL);
        if (result > 0) {
            EQUAL(result, ++count);
        } else {
            CHECK(flash.off || result == MRD_FULL);
        }
    } else if (what == 6) {
        if (mrd_sync(&device) == 0) flushed = count;
    } else {
        flash.ms += pick(3000);
        mrd_step(&device);
    }
}

static uint64_t run(uint64_t seed, uint64_t cut, int way) {
    random_state = seed * 2 + 1;
    for (unsigned i = 0; i < 8; i++) pick(2);
    uint16_t unit = (uint16_t)(1u << pick(6));
    blank(2048u << pick(2), unit, pick(3) == 0 ? 256 : unit);
    copy.attempts = (uint8_t)(2 + pick(4));
    if (seed % 2 == 0) flash.port.mapped = flash.bytes;
    count = flushed = 0;
    start(&copy, 1);
    if (cut > 0) mrd_flash_cut(&flash, cut, way, seed ^ cut << 20);
    bool again = cut > 0;
    for (unsigned i = 0; i < STEPS; i++) {
        call();
        if (!flash.off) continue;
        start(&copy, 1);
        compare(false);
        if (again) mrd_flash_cut(&flash, 1 + pick(4), (int)pick(MRD_CUT_WAYS), random_state);
        again = pick(2) == 0;
    }
    mrd_flash_on(&flash);
    if (device.failed) start(&copy, 1);
    settle();
    EQUAL(mrd_sync(&device), 0);
    compare(true);
    start(&copy, 1);
    compare(true);
    /* Whatever happened, the next record is accepted. */
    CHECK(mrd_append(&device, "in", "\4x", 2, NULL) > 0);
    return flash.operations;
}

static uint32_t retained;
static jmp_buf reset;
static unsigned resets;

/* Resets the board for some records, as a function does that overwrites memory: the call never ends. */
static int crash(const mr_record *record) {
    if (record->data[0] != 'x') return mr_append("out", record->data, record->size);
    resets++;
    longjmp(reset, 1);
}

/* The first record's run ends well, but its end was not flushed when the second one resets the board: the first one is not blamed. */
static void a_run_that_resets_the_device_ends_as_a_dead_letter(uint32_t *word) {
    static const mrd_function crasher = {"crasher", crash, "in", 3, "dead", 0};
    static const char records[] = "axxb";
    char byte = 0;
    blank(4096, 8, 8);
    flash.port.retained = word;
    flash.port.reset_reason = MRD_RESET_WATCHDOG;
    resets = 0;
    start(&crasher, 1);
    for (unsigned i = 0; i < 4; i++) EQUAL(mrd_append(&device, "in", &records[i], 1, NULL), i + 1);
    EQUAL(mrd_sync(&device), 0);
    (void)setjmp(reset);
    CHECK(resets < 20);
    start(&crasher, 1);
    settle();
    CHECK(resets >= 6 && resets <= 8);
    EQUAL(mrd_latest(&device, "dead"), 2);
    for (unsigned i = 1; i <= 2; i++) {
        EQUAL(mrd_get(&device, "dead", i, &byte, 1), 1);
        EQUAL(byte, 'x');
        EQUAL(mrd_get(&device, "out", i, &byte, 1), 1);
        EQUAL(byte, i == 1 ? 'a' : 'b');
    }
    EQUAL(mrd_latest(&device, "out"), 2);
    flash.port.retained = NULL;
}

static void a_run_that_appends_too_much_is_given_up(void) {
    static const mrd_function flood = {"flood", flood_handle, "in", 1, "dead", 0};
    blank(4096, 8, 8);
    start(&flood, 1);
    EQUAL(mrd_append(&device, "in", "abcdefgh", 8, NULL), 1);
    settle();
    EQUAL(mrd_latest(&device, "out"), 0);
    EQUAL(mrd_latest(&device, "dead"), 1);
}

static char ran[64];
static unsigned ran_count;

static int note(const mr_record *record) {
    ran[ran_count++ % sizeof ran] = record->size == 1 ? ((const char *)record->data)[0] : '?';
    return 0;
}

static int append_nothing_often(const mr_record *record) {
    for (unsigned i = 0; i < 300; i++) {
        if (mr_append("out", record->data, 0) < 0) break;
    }
    return 0;
}

/* A DONE counts at most 255 records: a run that appends more keeps none of them. And a function gets records of at most 256 bytes. */
static void a_run_has_limits(void) {
    static const mrd_function often = {"often", append_nothing_often, "in", 1, "dead", 0}, noting = {"note", note, "in", 1, "dead", 0};
    static uint64_t wide[MRD_WORDS(3, 1, 4096)];
    static const uint8_t record[300] = {4};
    blank(16384, 8, 8);
    EQUAL(mrd_open(&device, &flash.port, logs, 3, &often, 1, wide, sizeof wide), 0);
    EQUAL(mrd_append(&device, "in", "a", 1, NULL), 1);
    settle();
    EQUAL(mrd_latest(&device, "out"), 0);
    EQUAL(mrd_latest(&device, "dead"), 1);
    blank(4096, 8, 8);
    start(&noting, 1);
    EQUAL(mrd_append(&device, "in", record, 257, NULL), 1);
    EQUAL(mrd_append(&device, "in", record, 256, NULL), 2);
    ran_count = 0;
    settle();
    EQUAL(ran_count, 1);
    EQUAL(mrd_latest(&device, "dead"), 1);
}

static void functions_take_turns(void) {
    static const mrd_function both[] = {{"copy", copy_handle, "in", 3, "dead", 0}, {"again", copy_handle, "in", 3, NULL, 0}};
    blank(4096, 8, 8);
    start(both, 2);
    for (unsigned i = 0; i < 5; i++) CHECK(mrd_append(&device, "in", "\4x", 2, NULL) > 0);
    settle();
    EQUAL(mrd_latest(&device, "out"), 10);
    EQUAL(mrd_sync(&device), 0);
    /* Firmware without one of them: the other goes on where it was. */
    start(both + 1, 1);
    CHECK(mrd_append(&device, "in", "\4x", 2, NULL) > 0);
    settle();
    EQUAL(mrd_latest(&device, "out"), 11);
}

static void append_letters(const char *log, const char *letters) {
    for (; *letters; letters++) CHECK(mrd_append(&device, log, letters, 1, NULL) > 0);
}

/* The numbers of logs and functions are others in the sectors of other firmware. Its pending records are those of the log with this name. */
static void pending_runs_outlive_their_firmware(void) {
    static const mrd_log older[] = {{"in", 1000, 0}, {"out", 1000, 0}}, newer[] = {{"out", 1000, 0}, {"more", 9, 0}, {"in", 1000, 0}};
    static const mrd_function noting[] = {{"idle", copy_handle, "out", 3, NULL, 0}, {"note", note, "in", 3, NULL, 0}};
    for (unsigned sectors = 0; sectors < 3; sectors++) {
        char id[MR_RUN_ID_MAX + 1];
        blank(4096, 8, 8);
        EQUAL(mrd_open(&device, &flash.port, older, 2, noting + 1, 1, memory, 8 * MRD_WORDS(2, 1, 512)), 0);
        append_letters("in", "ab");
        append_letters("out", "XY");
        EQUAL(mrd_sync(&device), 0);
        /* The older firmware, and then the newer one, may have begun sectors. */
        for (uint32_t begun = device.serial; device.serial < begun + (sectors > 1); mrd_sync(&device)) append_letters("out", "ZZZZZZZZZZZZZZZZZZZZ");
        append_letters("in", "c");
        EQUAL(mrd_sync(&device), 0);
        EQUAL(mrd_open(&device, &flash.port, newer, 3, noting + 1, 1, memory, 8 * MRD_WORDS(3, 1, 512)), 0);
        if (sectors > 0) append_letters("in", "d");
        if (sectors > 0) EQUAL(mrd_sync(&device), 0);
        if (sectors > 1) EQUAL(mrd_open(&device, &flash.port, newer, 3, noting + 1, 1, memory, 8 * MRD_WORDS(3, 1, 512)), 0);
        ran_count = 0;
        settle();
        EQUAL(ran_count, sectors > 0 ? 4 : 3);
        EQUAL(memcmp(ran, "abcd", ran_count), 0);
        mr_run_id(id);
        EQUAL(id[0], 0);
    }
}

static int fail_always(const mr_record *record) {
    (void)record;
    ran_count++;
    return 1;
}

/* A device that sleeps between two attempts does not forget the first one; and what it remembers is not that of another function. */
static void attempts_are_counted_across_sleep(void) {
    static const mrd_function failing[] = {{"note", note, "out", 3, NULL, 0}, {"fail", fail_always, "in", 3, "dead", 0}};
    mrd_nap nap = {{0}};
    for (unsigned changes = 0; changes < 2; changes++) {
        blank(4096, 8, 8);
        flash.port.reset_reason = MRD_RESET_POWER;
        start(failing, 2);
        append_letters("in", "x");
        ran_count = 0;
        for (unsigned wake = 0; wake < 10; wake++) {
            CHECK(mrd_step(&device) >= 0);
            EQUAL(mrd_sleep(&device, &nap), 0);
            flash.ms += 60000;
            start(changes && wake == 1 ? failing + 1 : failing, changes && wake == 1 ? 1 : 2);
            CHECK(mrd_wake(&device, &nap, 60000));
            if (device.function_count == 2) EQUAL(device.function[0].attempt, 0);
        }
        EQUAL(mrd_latest(&device, "dead"), 1);
        CHECK(ran_count >= 3 && ran_count <= (changes ? 6 : 3));
    }
}

/* A record that is found without a walk leaves the cursor where it is; but not in a sector that has to be dropped. */
static void a_function_that_is_always_behind_keeps_no_sector(void) {
    static const mrd_function noting = {"note", note, "in", 3, NULL, 0};
    mrd_status status;
    blank(4096, 8, 8);
    start(&noting, 1);
    append_letters("in", "ab");
    ran_count = 0;
    unsigned here = 0;
    for (unsigned i = 2; device.serial < 20; i++) {
        uint32_t serial = device.serial;
        char letter = (char)('a' + i % 26);
        EQUAL(mrd_append(&device, "in", &letter, 1, NULL), i + 1);
        CHECK(mrd_step(&device) >= 0);
        here = device.serial == serial ? here + 1 : 0;
        if (here > 3) CHECK(device.function[0].cursor - device.sector < 4096);
        EQUAL(ran_count, i - 1);
        EQUAL(ran[(ran_count - 1) % sizeof ran], 'a' + (i - 2) % 26);
        mrd_stat(&device, &status);
        EQUAL(status.pending, 2);
    }
}

int main(int words_count, char **words) {
    uint64_t first = 1, last = 8, every = 5, runs = 0;
    static char name[100];
    for (int i = 1; i + 1 < words_count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 10);
        if (strcmp(words[i], "--seeds") == 0) last = value;
        if (strcmp(words[i], "--every") == 0) every = value;
        if (strcmp(words[i], "--seed") == 0) first = last = value;
    }
    a_run_that_resets_the_device_ends_as_a_dead_letter(&retained);
    a_run_that_resets_the_device_ends_as_a_dead_letter(NULL);
    a_run_that_appends_too_much_is_given_up();
    functions_take_turns();
    a_run_has_limits();
    pending_runs_outlive_their_firmware();
    attempts_are_counted_across_sleep();
    a_function_that_is_always_behind_keeps_no_sector();
    checking = name;
    for (uint64_t seed = first; seed <= last; seed++) {
        snprintf(name, sizeof name, "runs --seed %llu, without a loss", (unsigned long long)seed);
        uint64_t operations = run(seed, 0, 0);
        for (uint64_t cut = 1 + seed % every; cut <= operations; cut += every) {
            for (int way = 0; way < MRD_CUT_WAYS; way++, runs++) {
                snprintf(name, sizeof name, "runs --seed %llu, operation %llu, way %d", (unsigned long long)seed,
                         (unsigned long long)cut, way);
                run(seed, cut, way);
            }
        }
    }
    mrd_flash_close(&flash);
    fprintf(stderr, "runs: %llu losses of power and as many second ones: ok\n", (unsigned long long)runs);
    return 0;
}
