/* duty.c - three days of a device that wakes, measures, sends and sleeps, in virtual time; lines break, the host is away, and power
 * is lost in any operation. At the end the host has every record and the device every command once, except for records that
 * were dropped when the flash was full, which the host knows of.
 *
 *     duty [--seeds N] [--seed S] [--wakes N]
 */
#include "host.h"

#define MILLRACE_DEVICE mean
#include "millrace.h"

enum { RAW, MEAN, CONFIG, APPLIED, LOGS, WAKES = 864, EVERY_MS = 300000, AWAKE_MS = 4000 };

const char *checking = "duty";

static mrd_flash flash;
static mrd device;
static mrd_uplink uplink;
static mrd_nap nap;
static host h;
static const mrd_log logs[LOGS] = {{"raw", 10000, 0}, {"mean", 10000, 0}, {"config", 10000, MRD_KEEP | MRD_COMMANDS}, {"applied", 10000, 0}};
static int apply_handle(const mr_record *record) { return mr_append("applied", record->data, record->size); }
static const mrd_function functions[] = {{"mean", mean_handle, "raw", 3, NULL, 0}, {"apply", apply_handle, "config", 3, NULL, 0}};
static uint64_t memory[MRD_WORDS(LOGS, 2, 512)];
static uint64_t truth[HOST_RECORDS], flushed, random_state, boots, wakes_in_epoch, losses;
static uint8_t on_full;

int mean_handle(const mr_record *record) { return mr_append("mean", record->data, record->size); }

static unsigned pick(unsigned below) { return (unsigned)(mrd_flash_random(&random_state) >> 33) % below; }

/* A start, with what the nap says, or after a loss of power. */
static void boot(uint64_t slept_ms) {
    mrd_flash_on(&flash);
    memset(&device, 0xA5, sizeof device);
    memset(memory, 0xA5, sizeof memory);
    int result = mrd_open(&device, &flash.port, logs, LOGS, functions, 2, memory, sizeof memory);
    if (result < 0) fprintf(stderr, "%s\n", device.why);
    EQUAL(result, 0);
    if (mrd_wake(&device, &nap, slept_ms)) wakes_in_epoch++;
    device.on_full = on_full;
    boots++;
    CHECK((uint64_t)mrd_latest(&device, "raw") >= flushed);
    CHECK((uint64_t)mrd_latest(&device, "raw") >= h.log[RAW].newest);
    CHECK((uint64_t)mrd_latest(&device, "config") >= h.acknowledged);
    flushed = (uint64_t)mrd_latest(&device, "raw");
    mrd_uplink_begin(&uplink, &device, &h.line, "kitchen", NULL, 0);
}

static void measure(void) {
    uint64_t seqno = (uint64_t)mrd_latest(&device, "raw") + 1;
    uint8_t bytes[40];
    memset(bytes, (int)seqno, sizeof bytes);
    mrd_store(bytes, seqno | boots << 32, 8);
    int64_t result = mrd_append(&device, "raw", bytes, 8 + pick(sizeof bytes - 8), NULL);
    if (result > 0) truth[seqno] = seqno | boots << 32;
    CHECK(result == (int64_t)seqno || result == MRD_FULL || flash.off);
}

/* Until there is nothing to do, or the device has been awake for long enough. */
static void be_awake(void) {
    mrd_status status;
    for (uint32_t begun = flash.ms; flash.ms - begun < AWAKE_MS && !flash.off;) {
        if (mrd_step(&device) < 0) CHECK(flash.off);
        if (!flash.off && mrd_sync(&device) == 0) flushed = (uint64_t)mrd_latest(&device, "raw");
        if (!flash.off) mrd_uplink_step(&uplink);
        h.now_ms = 1700000000000 + flash.ms;
        flash.ms += 20 + pick(50);
        if (flash.off) break;
        mrd_stat(&device, &status);
        bool done = uplink.idle && h.acknowledged == h.issued && h.out.size == 0;
        if (status.pending == 0 && (done || (!h.reachable && !h.open))) break;
    }
}

/* One cycle. Returns whether power was lost. */
static bool cycle(void) {
    for (unsigned i = 0; i <= pick(4) && !flash.off; i++) measure();
    be_awake();
    mrd_uplink_end(&uplink);
    if (!flash.off && mrd_sleep(&device, &nap) == 0) flushed = (uint64_t)mrd_latest(&device, "raw");
    bool off = flash.off;
    /* Its memory may survive the loss of power, or be lost without one. */
    if (pick(off ? 2 : 12) == 0) memset(&nap, (int)pick(256), sizeof nap);
    losses += off;
    return off;
}

static void compare(void) {
    for (unsigned i = 0; i < LOGS; i++) {
        const host_log *log = &h.log[i];
        EQUAL(log->newest, mrd_latest(&device, logs[i].name));
        for (uint64_t seqno = 1; seqno <= log->newest; seqno++) {
            uint64_t expected = i == RAW || i == MEAN ? truth[seqno] : seqno;
            if (!log->lost[seqno]) EQUAL(log->content[seqno], expected);
        }
    }
    EQUAL(h.log[MEAN].newest, h.log[RAW].newest);
    EQUAL(h.log[CONFIG].newest, h.issued);
    EQUAL(h.log[APPLIED].newest, h.issued);
    if (on_full == MRD_REFUSE) EQUAL(h.lost, 0);
}

static uint64_t run(uint64_t seed, unsigned wakes) {
    random_state = seed * 2 + 1;
    for (unsigned i = 0; i < 8; i++) pick(2);
    uint16_t unit = (uint16_t)(1u << pick(6));
    uint32_t sector = 2048u << pick(2);
    CHECK(mrd_flash_open(&flash, NULL, 8, sector, unit, pick(3) == 0 ? 256 : unit, 0x4B17C4E20001) == 0);
    flash.virtual_time = true;
    flash.ms = (uint32_t)mrd_flash_random(&random_state) >> 2;
    on_full = seed % 3 == 0 ? MRD_REFUSE : MRD_DROP;
    host_begin(&h, sector);
    for (unsigned i = 0; i < LOGS; i++) h.log[i].name = logs[i].name;
    memset(&nap, 0, sizeof nap);
    memset(truth, 0, sizeof truth);
    flushed = boots = 0;
    uint64_t slept = 0;
    unsigned away = 0, until_away = 20 + pick(60);
    for (unsigned wake = 0; wake < wakes; wake++) {
        if (away > 0 && --away == 0) until_away = 20 + pick(200);
        else if (away == 0 && --until_away == 0) away = 1 + pick(seed % 2 ? 30 : 250);
        h.reachable = away == 0;
        h.cut_after = pick(3) == 0 ? 2 + pick(3000) : 0;
        if (h.issued + 3 < HOST_COMMANDS_MAX) h.issued += pick(6) == 0 ? 1 + pick(3) : 0;
        boot(slept);
        if (pick(5) == 0) mrd_flash_cut(&flash, 1 + pick(8), (int)pick(MRD_CUT_WAYS), random_state);
        slept = cycle() ? pick(100000) : EVERY_MS;
        flash.ms += (uint32_t)slept;
    }
    h.reachable = true;
    mrd_status status;
    do {
        h.cut_after = 0;
        boot(slept);
        be_awake();
        flash.ms += 1000;
        slept = 1000;
        CHECK(!flash.off && mrd_sleep(&device, &nap) == 0);
        mrd_stat(&device, &status);
    } while (status.pending > 0 || !uplink.idle || h.acknowledged < h.issued || h.log[APPLIED].newest < h.issued);
    compare();
    mrd_flash_close(&flash);
    return h.lost;
}

/* A host refuses entries that it is too old for, each time that they come. The device keeps them, asks more and more rarely, and at the end once
 * in five minutes, although each connection begins well. When the host is updated, it gets everything. */
static void a_host_that_is_too_old_gets_everything_later(void) {
    checking = "duty with an old host";
    CHECK(mrd_flash_open(&flash, NULL, 16, 4096, 8, 8, 0x4B17C4E20001) == 0);
    flash.virtual_time = true;
    on_full = MRD_DROP;
    host_begin(&h, 4096);
    for (unsigned i = 0; i < LOGS; i++) h.log[i].name = logs[i].name;
    memset(&nap, 0, sizeof nap);
    memset(truth, 0, sizeof truth);
    flushed = boots = 0;
    h.knows = 40;
    boot(0);
    for (unsigned i = 0; i < 60; i++) {
        measure();
        be_awake();
    }
    uint64_t before = 0, hours = 24;
    for (uint64_t second = 0; second < hours * 3600; second++) {
        if (second == hours * 1800) before = h.connections;
        if (second % 7200 == 0) measure();
        CHECK(mrd_step(&device) >= 0);
        mrd_uplink_step(&uplink);
        h.now_ms = 1700000000000 + flash.ms;
        flash.ms += 1000;
    }
    uint64_t later = h.connections - before, most = hours * 1800 / 300;
    CHECK(later <= most + 1 && later + 3 >= most);
    CHECK(h.sequence >= 40 && h.log[RAW].newest < 40);
    EQUAL(uplink.error, -2002);
    h.knows = 0;
    flash.ms += 300000;
    while (!uplink.idle || mrd_latest(&device, "mean") < mrd_latest(&device, "raw")) {
        CHECK(mrd_step(&device) >= 0);
        CHECK(mrd_sync(&device) == 0);
        mrd_uplink_step(&uplink);
        flash.ms += 20;
    }
    flushed = (uint64_t)mrd_latest(&device, "raw");
    mrd_uplink_step(&uplink);
    compare();
    EQUAL(h.lost, 0);
    EQUAL(uplink.error, 0);
    /* It has nothing to send when the host comes back after hours; if this connection is lost, the next attempt does not take minutes. */
    h.reachable = h.open = false;
    for (unsigned i = 0; i < 7200; i++, flash.ms += 1000) mrd_uplink_step(&uplink);
    h.reachable = true;
    for (unsigned i = 0; i < 600 && !uplink.idle; i++, flash.ms += 1000) mrd_uplink_step(&uplink);
    CHECK(uplink.idle);
    h.open = false;
    for (unsigned i = 0; i < 5 && !h.open; i++, flash.ms += 1000) mrd_uplink_step(&uplink);
    CHECK(h.open);
    mrd_flash_close(&flash);
}

int main(int count, char **words) {
    uint64_t first = 1, last = 12, lost = 0, commands = 0;
    unsigned wakes = WAKES;
    static char name[100];
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 10);
        if (strcmp(words[i], "--seeds") == 0) last = value;
        if (strcmp(words[i], "--seed") == 0) first = last = value;
        if (strcmp(words[i], "--wakes") == 0) wakes = (unsigned)value;
    }
    a_host_that_is_too_old_gets_everything_later();
    checking = name;
    for (uint64_t seed = first; seed <= last; seed++) {
        snprintf(name, sizeof name, "duty --seed %llu", (unsigned long long)seed);
        lost += run(seed, wakes);
        commands += h.issued;
    }
    fprintf(stderr, "duty: %llu devices, %u wakes each, %llu of all in the epoch before, %llu losses of power, %llu commands, %llu records lost: ok\n",
            (unsigned long long)(last - first + 1), wakes, (unsigned long long)wakes_in_epoch, (unsigned long long)losses,
            (unsigned long long)commands, (unsigned long long)lost);
    return 0;
}
