/* marks.c - the marks of a boot loader: which slot starts after any history of trials, although power is lost in each operation, twice; and
 * what is damaged or not usable.
 *
 * The model of the test is the rule alone: a trial begins once, and what is confirmed stays. After a loss of power, the marks say what they
 * said before the call that was interrupted, or after it.
 */
#include "../../src/internal.h"
#include "check.h"
#include "millrace_boot.h"

enum { SECTOR = 1024, SLOT_SECTORS = 4, CALLS = 40, SEEDS = 200 };

const char *checking = "";

static mrd_flash slot[2], marks;
static mrd_boot boot;

static void open_marks(void) { EQUAL(mrd_boot_open(&boot, &slot[0].port, &slot[1].port, &marks.port), 0); }

static void set_up(uint16_t unit) {
    for (int i = 0; i < 2; i++) EQUAL(mrd_flash_open(&slot[i], NULL, SLOT_SECTORS, SECTOR, 8, 8, 1), 0);
    EQUAL(mrd_flash_open(&marks, NULL, 2, SECTOR, unit, unit, 1), 0);
    open_marks();
    EQUAL(mrd_boot_begin(&boot), MRD_BOOT_NEW);
    EQUAL(mrd_boot_install(&boot), 0);
}

static void tear_down(void) {
    mrd_flash_close(&slot[0]);
    mrd_flash_close(&slot[1]);
    mrd_flash_close(&marks);
}

static bool is_same(mrd_boot_state a, mrd_boot_state b) { return a.confirmed == b.confirmed && a.trial == b.trial && !a.started == !b.started; }

/* One thing that a boot loader or firmware does with the marks, and what they say then. */
enum { BEGIN, SKIP, START, CONFIRM, KINDS };

static mrd_boot_state after(mrd_boot_state state, int call) {
    int running = mrd_boot_running(&state);
    switch (call) {
    case BEGIN:
        mrd_boot_next(&state);
        return state;
    case SKIP: return (mrd_boot_state){1 - running, -1, 0};
    case START: return (mrd_boot_state){running, 1 - running, 0};
    default: return (mrd_boot_state){running, -1, 0};
    }
}

static int make(int call) {
    switch (call) {
    case BEGIN: return mrd_boot_begin(&boot) < 0;
    case SKIP: return mrd_boot_skip(&boot) < 0;
    case START: return boot.slots.start(&boot);
    default: return boot.slots.confirm(&boot);
    }
}

/* Random calls, with a loss of power in about every second one; whoever comes after it opens the marks again. */
static unsigned lose_power(uint64_t seed) {
    uint64_t random = seed << 8 | 1;
    unsigned losses = 0;
    set_up(seed % 2 == 0 ? 8 : 128);
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t chance = mrd_flash_random(&random);
        int call = (int)(chance % KINDS);
        mrd_boot_state before = boot.state, then = after(before, call);
        if (chance / 4 % 2 == 0) mrd_flash_cut(&marks, 1 + chance / 8 % 5, (int)(chance / 64 % MRD_CUT_WAYS), chance);
        int result = make(call);
        bool lost = marks.off;
        CHECK(lost || result == 0);
        losses += lost;
        mrd_flash_on(&marks);
        open_marks();
        CHECK(boot.known);
        CHECK(is_same(boot.state, then) || (lost && is_same(boot.state, before)));
        if (!lost) CHECK(boot.twice);
    }
    tear_down();
    return losses;
}

/* A trial begins once, and a mark that is in one sector only comes into both. */
static void goes_back(void) {
    set_up(8);
    EQUAL(mrd_boot_begin(&boot), 0);
    EQUAL(boot.slots.start(&boot), 0);
    EQUAL(mrd_boot_begin(&boot), 1);
    CHECK(boot.slots.on_trial(&boot));
    open_marks();
    CHECK(boot.slots.on_trial(&boot));
    EQUAL(mrd_boot_begin(&boot), 0);
    CHECK(!boot.slots.on_trial(&boot));
    EQUAL(mrd_boot_begin(&boot), 0);
    for (uint32_t sector = 0; sector < 2; sector++) {
        marks.bytes[sector * SECTOR + 5] ^= 1;
        open_marks();
        CHECK(boot.known && !boot.twice);
        EQUAL(mrd_boot_begin(&boot), 0);
        CHECK(boot.twice);
    }
    /* Both are damaged: as if there were none. */
    marks.bytes[5] ^= 1;
    marks.bytes[SECTOR + 5] ^= 1;
    open_marks();
    EQUAL(mrd_boot_begin(&boot), MRD_BOOT_NEW);
    EQUAL(mrd_boot_install(&boot), 0);
    EQUAL(mrd_boot_begin(&boot), 0);
    tear_down();
}

/* A mark with a right checksum that names slots which do not exist is none. */
static void knows_two_slots(void) {
    for (unsigned i = 0; i < 3; i++) {
        set_up(8);
        for (uint32_t sector = 0; sector < 2; sector++) {
            uint8_t *mark = marks.bytes + sector * SECTOR;
            mark[4 + i] = 2;
            mrd_store4(mark + 8, mrd_crc(0, mark, 8));
        }
        open_marks();
        EQUAL(mrd_boot_begin(&boot), MRD_BOOT_NEW);
        tear_down();
    }
}

/* Numbers go on after the last one. */
static void overflows(void) {
    set_up(8);
    boot.number = UINT32_MAX - 1;
    for (unsigned i = 0; i < 4; i++) {
        EQUAL(boot.slots.start(&boot), 0);
        CHECK(boot.state.trial >= 0);
        open_marks();
        CHECK(boot.state.trial >= 0);
        EQUAL(boot.slots.confirm(&boot), 0);
        open_marks();
        EQUAL(boot.state.trial, -1);
    }
    EQUAL(boot.number, 6);
    /* Power was lost between the two sectors, at the last number. */
    static uint8_t before[SECTOR];
    boot.number = UINT32_MAX - 1;
    EQUAL(boot.slots.confirm(&boot), 0);
    memcpy(before, marks.bytes, SECTOR);
    EQUAL(boot.slots.start(&boot), 0);
    memcpy(marks.bytes, before, SECTOR);
    open_marks();
    CHECK(!boot.twice && boot.number == 0 && boot.state.trial >= 0);
    tear_down();
}

/* The slot that runs is not the one that is written. */
static void writes_the_other_slot(void) {
    uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8}, found[8];
    set_up(8);
    mrd_boot_begin(&boot);
    EQUAL(boot.slots.erase(&boot, 0), 0);
    EQUAL(boot.slots.program(&boot, 0, bytes, sizeof bytes), 0);
    CHECK(memcmp(slot[1].bytes, bytes, sizeof bytes) == 0 && slot[0].operations == 0);
    EQUAL(boot.slots.read(&boot, MRD_SLOT_OTHER, 0, found, sizeof found), 0);
    CHECK(memcmp(found, bytes, sizeof bytes) == 0);
    EQUAL(boot.slots.start(&boot), 0);
    EQUAL(mrd_boot_begin(&boot), 1);
    EQUAL(boot.slots.read(&boot, MRD_SLOT_RUNNING, 0, found, sizeof found), 0);
    CHECK(memcmp(found, bytes, sizeof bytes) == 0);
    EQUAL(boot.slots.bytes, SLOT_SECTORS * SECTOR);
    EQUAL(boot.slots.block_bytes, SECTOR);
    EQUAL(boot.slots.unit, 8);
    tear_down();
}

static void refuses(void) {
    set_up(8);
    mrd_port other = slot[1].port, one = marks.port, wide = marks.port;
    other.sectors++;
    EQUAL(mrd_boot_open(&boot, &slot[0].port, &other, &marks.port), MRD_SETTING_INVALID);
    one.sectors = 1;
    EQUAL(mrd_boot_open(&boot, &slot[0].port, &slot[1].port, &one), MRD_SETTING_INVALID);
    wide.unit = 256;
    EQUAL(mrd_boot_open(&boot, &slot[0].port, &slot[1].port, &wide), MRD_SETTING_INVALID);
    tear_down();
}

int main(void) {
    unsigned losses = 0;
    checking = "marks";
    goes_back();
    knows_two_slots();
    overflows();
    writes_the_other_slot();
    refuses();
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static char name[40];
        checking = name;
        snprintf(name, sizeof name, "marks, seed %llu", (unsigned long long)seed);
        losses += lose_power(seed);
    }
    fprintf(stderr, "marks: %u losses of power: ok\n", losses);
    return 0;
}
