/* power.c - a device loses power in each operation of its flash, in four ways, twice, and goes on.
 *
 *     power [--seeds N] [--seed S] [--every K] [--trace]
 *
 * One seed determines everything: the geometry of the flash, the logs, and a sequence of calls. The sequence runs once
 * without a loss of power, which counts the operations; then, for each K-th operation and each way, once with a loss of
 * power in it. The device is opened again, and soon loses power a second time. Then the sequence goes on to its end.
 * After each start everything is compared with what was appended. --trace writes what happened to the standard output,
 * with the image of the flash after each loss, for crates/device to check: see trace.h.
 */
#include "check.h"
#include "trace.h"

enum { LOGS = 3, STEPS = 500, RECORDS = STEPS, RECORD_MAX = 160 };

const char *checking = "";

typedef struct {
    uint8_t log;
    uint8_t life;
    uint8_t size;
} appended;

typedef struct {
    mrd_flash flash;
    mrd device;
    mrd_log logs[LOGS];
    uint64_t memory[MRD_WORDS(LOGS, 0, 512)];
    size_t memory_bytes;
    uint64_t random; /* of the calls */
    uint8_t on_full, large;
    /* What was appended, in this order; the first `flushed` of it must survive. */
    appended records[RECORDS];
    unsigned count, flushed;
    uint64_t newest[LOGS];
    uint16_t index[LOGS][RECORDS + 1]; /* of a seqno, in `records` */
    uint8_t life;
    bool tracing;
} world;

static unsigned pick(world *w, unsigned below) { return (unsigned)(mrd_flash_random(&w->random) >> 33) % below; }

static uint8_t content(const appended *record, uint64_t seqno, unsigned at) {
    return (uint8_t)(record->log * 89u + record->life * 37u + seqno * 11 + at * 5);
}

/* ---- comparing ---- */

static void keep_record(world *w) {
    unsigned log = w->records[w->count].log;
    w->index[log][++w->newest[log]] = (uint16_t)w->count++;
}

static void compare_record(world *w, unsigned log, uint64_t seqno) {
    uint8_t bytes[RECORD_MAX];
    const appended *record = &w->records[w->index[log][seqno]];
    EQUAL(mrd_get(&w->device, w->logs[log].name, seqno, bytes, sizeof bytes), record->size);
    for (unsigned i = 0; i < record->size; i++) EQUAL(bytes[i], content(record, seqno, i));
}

/* The records that can be read are the newest ones, without gaps, and as they were appended. */
static void compare_log(world *w, unsigned log) {
    const mrd_log *about = &w->logs[log];
    uint64_t newest = w->newest[log], seqno = newest;
    EQUAL(mrd_latest(&w->device, about->name), newest);
    for (; seqno > 0 && mrd_get(&w->device, about->name, seqno, NULL, 0) != MRD_BELOW_HISTORY; seqno--) {
        compare_record(w, log, seqno);
    }
    mrd_status status;
    mrd_stat(&w->device, &status);
    if (w->on_full == MRD_REFUSE) EQUAL(status.lost, 0);
    bool dropped = status.erases > w->flash.port.sectors - 1;
    if (!dropped) EQUAL(seqno, newest > about->history ? newest - about->history : 0);
    if (newest > 0 && about->flags & MRD_KEEP) CHECK(seqno < newest);
    for (; seqno > 0; seqno--) EQUAL(mrd_get(&w->device, about->name, seqno, NULL, 0), MRD_BELOW_HISTORY);
    EQUAL(mrd_get(&w->device, about->name, newest + 1, NULL, 0), MRD_ABOVE_TAIL);
}

static void compare(world *w) {
    for (unsigned i = 0; i < LOGS; i++) compare_log(w, i);
}

/* What survived is a beginning of what was appended, with everything that was flushed. */
static void accept_survivors(world *w) {
    unsigned before = w->count, found = 0;
    memset(w->newest, 0, sizeof w->newest);
    for (unsigned i = 0; i < LOGS; i++) found += (unsigned)mrd_latest(&w->device, w->logs[i].name);
    CHECK(found >= w->flushed && found <= before);
    for (w->count = 0; w->count < found;) keep_record(w);
    for (unsigned i = 0; i < LOGS; i++) EQUAL(mrd_latest(&w->device, w->logs[i].name), w->newest[i]);
    w->flushed = found;
}

/* ---- the calls ---- */

static void start(world *w) {
    mrd_flash_on(&w->flash);
    int result = mrd_open(&w->device, &w->flash.port, w->logs, LOGS, NULL, 0, w->memory, w->memory_bytes);
    if (result < 0) fprintf(stderr, "%s\n", w->device.why);
    EQUAL(result, 0);
    w->device.on_full = w->on_full;
    w->life++;
    accept_survivors(w);
    trace_start(w->tracing, &w->device, w->logs, LOGS);
    compare(w);
}

/* After a loss of power. */
static void restart(world *w) {
    CHECK(w->flash.off);
    trace_image(w->tracing, &w->flash);
    start(w);
}

static void append(world *w) {
    uint8_t bytes[RECORD_MAX];
    appended *record = &w->records[w->count];
    unsigned which = pick(w, 200);
    record->log = which < 3 ? 2 : which < 10 + 40u * (w->large & 1) ? 1 : 0;
    record->life = w->life;
    record->size = (uint8_t)pick(w, pick(w, w->large) == 0 ? RECORD_MAX : 30);
    uint64_t seqno = w->newest[record->log] + 1;
    mrd_cause cause;
    memset(cause.id, record->size, sizeof cause.id);
    const mrd_cause *by = pick(w, 8) == 0 ? &cause : NULL;
    for (unsigned i = 0; i < record->size; i++) bytes[i] = content(record, seqno, i);
    int64_t result = mrd_append(&w->device, w->logs[record->log].name, bytes, record->size, by);
    if (w->flash.off) return;
    if (w->on_full == MRD_REFUSE && result == MRD_FULL) {
        mrd_status status;
        mrd_stat(&w->device, &status);
        mrd_delivered(&w->device, status.durable - 1);
        trace_flush(w->tracing);
        w->flushed = w->count;
        return;
    }
    EQUAL(result, seqno);
    trace_append(w->tracing, record->log, seqno, bytes, record->size);
    keep_record(w);
}

static void sync_all(world *w) {
    if (mrd_sync(&w->device) < 0) {
        CHECK(w->flash.off);
        return;
    }
    w->flushed = w->count;
    trace_flush(w->tracing);
}

static void let_time_pass(world *w) {
    int64_t wait = mrd_step(&w->device);
    w->flash.ms += pick(w, 3000);
    if (wait >= 0) wait = mrd_step(&w->device);
    CHECK(wait >= 0 || w->flash.off);
    if (pick(w, 8) == 0) mrd_set_clock(&w->device, mrd_clock(&w->device) + pick(w, 100000));
}

static void call(world *w) {
    unsigned what = pick(w, 100);
    if (what < 76) append(w);
    else if (what < 86) sync_all(w);
    else if (what < 96) let_time_pass(w);
    else if (what < 98) compare(w);
    else {
        /* A restart without a loss of power, such as that of a watchdog. */
        trace_image(w->tracing, &w->flash);
        start(w);
    }
}

/* ---- one sequence ---- */

static void set_up(world *w, uint64_t seed, bool tracing) {
    memset(w, 0, sizeof *w);
    w->random = seed * 2 + 1;
    for (unsigned i = 0; i < 8; i++) mrd_flash_random(&w->random);
    uint16_t unit = (uint16_t)(1u << pick(w, 9));
    uint16_t torn = pick(w, 3) == 0 ? 256 : unit;
    uint32_t sector = 1024u << pick(w, 3);
    w->on_full = (uint8_t)(pick(w, 3) == 0 ? MRD_REFUSE : MRD_DROP);
    w->large = (uint8_t)(1 + pick(w, 8)); /* one record of so many is */
    w->logs[0] = (mrd_log){"raw", pick(w, 2) ? 10000u : 20u, 0};
    w->logs[1] = (mrd_log){"smooth/kitchen", 500, 0};
    w->logs[2] = (mrd_log){"config", 1 + pick(w, 3), MRD_KEEP};
    w->memory_bytes = sizeof w->memory - (sector == 1024 || pick(w, 2) ? 256 : 0);
    w->tracing = tracing;
    CHECK(mrd_flash_open(&w->flash, NULL, sector == 1024 ? 8 : 4 + pick(w, 3), sector, unit, torn, 0x4B17C4E20001) == 0);
    w->flash.virtual_time = true;
    if (seed % 2 == 0) w->flash.port.mapped = w->flash.bytes;
    w->flash.ms = (uint32_t)mrd_flash_random(&w->random);
    trace_begin(w->tracing, &w->flash, seed);
    start(w);
}

/* Returns the number of operations. Power is lost in operation `cut`, unless it is 0, and soon after once more. */
static uint64_t run(uint64_t seed, uint64_t cut, int way, bool tracing) {
    static world w;
    set_up(&w, seed, tracing);
    if (cut > 0) mrd_flash_cut(&w.flash, cut, way, seed ^ cut << 20);
    bool again = cut > 0;
    for (unsigned i = 0; i < STEPS; i++) {
        call(&w);
        if (!w.flash.off) continue;
        restart(&w);
        if (again) mrd_flash_cut(&w.flash, 1 + pick(&w, 4), (int)pick(&w, MRD_CUT_WAYS), w.random);
        again = false;
    }
    mrd_flash_on(&w.flash);
    sync_all(&w);
    compare(&w);
    trace_image(tracing, &w.flash);
    start(&w);
    EQUAL(w.count, w.flushed);
    uint64_t operations = w.flash.operations;
    mrd_flash_close(&w.flash);
    return operations;
}

int main(int count, char **words) {
    uint64_t first = 1, last = 6, every = 1, runs = 0;
    bool tracing = false;
    static char name[100];
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0) tracing = true;
        else if (i + 1 == count) return 2;
        else if (strcmp(words[i], "--seeds") == 0) last = strtoull(words[++i], NULL, 10);
        else if (strcmp(words[i], "--every") == 0) every = strtoull(words[++i], NULL, 10);
        else if (strcmp(words[i], "--seed") == 0) first = last = strtoull(words[++i], NULL, 10);
        else return 2;
    }
    for (uint64_t seed = first; seed <= last; seed++) {
        checking = name;
        snprintf(name, sizeof name, "power --seed %llu, without a loss", (unsigned long long)seed);
        uint64_t operations = run(seed, 0, 0, tracing);
        for (uint64_t cut = 1 + seed % every; cut <= operations; cut += every) {
            for (int way = 0; way < MRD_CUT_WAYS; way++, runs++) {
                snprintf(name, sizeof name, "power --seed %llu, operation %llu, way %d", (unsigned long long)seed,
                         (unsigned long long)cut, way);
                run(seed, cut, way, tracing);
            }
        }
    }
    fprintf(stderr, "power: %llu seeds, %llu losses of power and as many second ones: ok\n",
            (unsigned long long)(last - first + 1), (unsigned long long)runs);
    return 0;
}
