/* update.c - an image arrives as records, is tried and confirmed, although power is lost in each operation of the journal's flash, of the
 * slots, and of the marks of the boot loader, in four ways; also in those of the boot loader itself.
 *
 *     update [--every K]
 *
 * The slots and the marks (millrace_boot.h) are flash as in port/posix/flash.h, which ends the test if a unit is programmed twice. The boot
 * loader refuses to start a slot that has no whole image. A model of the host sends the next records, and sends again what the device asks for.
 */
#include "../../src/internal.h"
#include "check.h"
#include "millrace_boot.h"
#include <setjmp.h>

#define MILLRACE_DEVICE test_unused
#include "millrace.h"

enum { SECTORS = 8, SECTOR_BYTES = 4096, SLOT_SECTORS = 8, BLOCK = 1024, SLOT_BYTES = SLOT_SECTORS * BLOCK, UNIT = 8 };
enum { LOGS = 2, FUNCTIONS = 1, STEPS_MAX = 20000, TEXT = 400, BEGIN = 1, PIECE = 2 };

const char *checking = "";

static const mrd_log logs[LOGS] = {MRD_UPDATE_LOGS};
static const mrd_function functions[FUNCTIONS] = {MRD_UPDATE_FUNCTION};

typedef struct {
    uint8_t bytes[SLOT_BYTES];
    uint32_t size;
    const char *version;
} image;

/* What a host knows. */
typedef struct {
    const image *image;
    uint32_t number, next, resend;
    int64_t seen;
    unsigned waited;
    bool begun, lies; /* it announces another hash */
} sender;

typedef struct {
    mrd_flash journal, slot[2], marks;
    mrd_boot boot;
    int running;
    bool reset, cut_in_trial, unreachable, broken, again; /* again: power is lost a second time, soon after the first */
    uint64_t memory[MRD_WORDS(LOGS, FUNCTIONS, 512)];
    mrd device;
    mrd_update update;
    mrd_slots slots;
    mrd_uplink uplink;
    sender sender;
    unsigned resets;
} world;

static image old, new;

/* ---- the board ---- */

static bool is_off(const world *w) { return w->journal.off || w->slot[0].off || w->slot[1].off || w->marks.off; }

static mrd_flash *slot_of(world *w, int slot) { return &w->slot[slot == MRD_SLOT_RUNNING ? w->running : 1 - w->running]; }

/* All parts of the board lose power together. */
static int done(world *w, int result) {
    if (is_off(w)) w->journal.off = w->slot[0].off = w->slot[1].off = w->marks.off = true;
    return result;
}

static int read_slot(void *context, int slot, uint32_t at, void *bytes, uint32_t size) {
    mrd_boot *boot = &((world *)context)->boot;
    return boot->slots.read(boot, slot, at, bytes, size);
}

static int erase_slot(void *context, uint32_t at) {
    world *w = (world *)context;
    return done(w, w->boot.slots.erase(&w->boot, at));
}

static int program_slot(void *context, uint32_t at, const void *bytes, uint32_t size) {
    world *w = (world *)context;
    if (w->broken) return 1;
    return done(w, w->boot.slots.program(&w->boot, at, bytes, size));
}

static int start_slot(void *context) {
    world *w = (world *)context;
    return done(w, w->boot.slots.start(&w->boot));
}

static bool on_trial(void *context) {
    mrd_boot *boot = &((world *)context)->boot;
    return boot->slots.on_trial(boot);
}

static int confirm_slot(void *context) {
    world *w = (world *)context;
    return done(w, w->boot.slots.confirm(&w->boot));
}

static void reset(void *context) { ((world *)context)->reset = true; }

static bool has(world *w, int slot, const image *one) { return memcmp(w->slot[slot].bytes, one->bytes, one->size) == 0; }

static const image *running_image(world *w) { return has(w, w->running, &new) ? &new : &old; }

static void open_slots(world *w) { EQUAL(mrd_boot_open(&w->boot, &w->slot[0].port, &w->slot[1].port, &w->marks.port), 0); }

static void power_on(world *w) {
    mrd_flash_on(&w->journal);
    mrd_flash_on(&w->slot[0]);
    mrd_flash_on(&w->slot[1]);
    mrd_flash_on(&w->marks);
}

/* Loses power a second time, at once or soon. */
static void cut_again(world *w, mrd_flash *flash) {
    uint64_t random = mrd_flash_random(&w->journal.random);
    w->again = false;
    mrd_flash_cut(flash, 1 + random % 8, (int)(random / 8 % MRD_CUT_WAYS), random);
}

/* The boot loader, which may lose power, too. */
static int load(world *w) {
    for (unsigned starts = 0; starts < 3; starts++) {
        bool lost = is_off(w);
        power_on(w);
        if (lost && w->again && mrd_flash_random(&w->journal.random) % 2 == 0) cut_again(w, &w->marks);
        open_slots(w);
        if (lost && w->boot.state.trial >= 0) w->cut_in_trial = true;
        int slot = mrd_boot_begin(&w->boot);
        if (slot >= 0 && !is_off(w)) return slot;
        CHECK(is_off(w));
    }
    CHECK(false);
    return 0;
}

/* What happens after power is there again, or after a reset. */
static void boot(world *w) {
    int slot = load(w);
    w->reset = false;
    open_slots(w);
    w->running = mrd_boot_running(&w->boot.state);
    EQUAL(w->running, slot);
    CHECK(has(w, w->running, &old) || has(w, w->running, &new));
    w->resets++;
    if (mrd_open(&w->device, &w->journal.port, logs, LOGS, functions, FUNCTIONS, w->memory, sizeof w->memory) < 0) {
        fprintf(stderr, "%s\n", w->device.why);
        CHECK(false);
    }
    EQUAL(mrd_update_begin(&w->update, &w->device, &w->slots, running_image(w)->version), 0);
    w->uplink.attached = w->uplink.idle = !w->unreachable;
}

/* ---- the host ---- */

static void newest(world *w, char text[TEXT]) {
    int64_t seqno = mrd_latest(&w->device, "update"), size = 0;
    if (seqno > 0) size = mrd_get(&w->device, "update", (uint64_t)seqno, text, TEXT - 1);
    CHECK(size >= 0 && size < TEXT);
    text[size] = 0;
}

static uint32_t member(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? (uint32_t)strtoul(at + strlen(name), NULL, 10) : 0;
}

static bool says(world *w, const char *words) {
    char text[TEXT];
    newest(w, text);
    return strstr(text, words) != NULL;
}

static bool give(world *w, const uint8_t *bytes, size_t size) {
    int64_t result = mrd_append(&w->device, "firmware", bytes, size, NULL);
    CHECK(result > 0 || result == MRD_FULL || is_off(w));
    return result > 0;
}

static bool send_begin(world *w) {
    sender *s = &w->sender;
    uint8_t bytes[80] = {BEGIN};
    mrw_sha256 hash;
    mrd_store(bytes + 1, s->number, 4);
    mrd_store(bytes + 5, s->image->size, 4);
    mrw_sha256_begin(&hash);
    mrw_sha256_add(&hash, s->image->bytes, s->image->size);
    mrw_sha256_end(&hash, bytes + 9);
    if (s->lies) bytes[9] ^= 1;
    memcpy(bytes + 41, s->image->version, strlen(s->image->version));
    return give(w, bytes, 41 + strlen(s->image->version));
}

static bool send_piece(world *w, uint32_t number, uint32_t at, uint32_t size) {
    uint8_t bytes[MRD_RUN_RECORD_MAX] = {PIECE};
    mrd_store(bytes + 1, number, 4);
    mrd_store(bytes + 5, at, 4);
    memcpy(bytes + 9, w->sender.image->bytes + at, size);
    return give(w, bytes, 9 + size);
}

/* Hears what the device says, and sends the next record. */
static void host(world *w) {
    sender *s = &w->sender;
    char text[TEXT];
    mrd_status status;
    mrd_stat(&w->device, &status);
    /* The host gets what is in flash. */
    if (status.durable < status.sequence) {
        if (++s->waited % 4 == 0) CHECK(mrd_sync(&w->device) == 0 || is_off(w));
        return;
    }
    newest(w, text);
    int64_t seqno = mrd_latest(&w->device, "update");
    bool ours = member(text, "\"update\":") == s->number;
    if (seqno != s->seen && s->begun) {
        if (!ours) s->begun = false;
        if (ours && member(text, "\"resend\":") != s->resend) {
            s->resend = member(text, "\"resend\":");
            s->next = member(text, "\"bytes\":");
        }
    }
    s->seen = seqno;
    if (status.pending > 2) return;
    sender before = *s;
    if (!s->begun) {
        s->next = s->resend = 0;
        s->begun = send_begin(w);
    } else if (s->next < s->image->size && ours && strstr(text, "\"state\":\"receiving\"")) {
        uint32_t size = member(text, "\"piece\":");
        if (size > s->image->size - s->next) size = s->image->size - s->next;
        if (send_piece(w, s->number, s->next, size)) s->next += size;
    }
    /* What was sent is acknowledged when it is in flash. If not, it is sent again. */
    if (mrd_sync(&w->device) == 0) return;
    CHECK(is_off(w));
    *s = before;
}

static void announce(world *w, uint32_t number, const image *one) {
    memset(&w->sender, 0, sizeof w->sender);
    w->sender.number = number;
    w->sender.image = one;
    w->sender.seen = mrd_latest(&w->device, "update");
}

/* ---- one update ---- */

static void set_up(world *w) {
    memset(w, 0, sizeof *w);
    w->slots = (mrd_slots){read_slot, erase_slot, program_slot, start_slot, on_trial, confirm_slot, reset, w, SLOT_BYTES, BLOCK, UNIT};
    EQUAL(mrd_flash_open(&w->journal, NULL, SECTORS, SECTOR_BYTES, 8, 8, 0x4B17C4E20001), 0);
    for (int i = 0; i < 2; i++) EQUAL(mrd_flash_open(&w->slot[i], NULL, SLOT_SECTORS, BLOCK, UNIT, UNIT, 1), 0);
    EQUAL(mrd_flash_open(&w->marks, NULL, 2, BLOCK, UNIT, UNIT, 1), 0);
    w->journal.virtual_time = true;
    memcpy(w->slot[0].bytes, old.bytes, old.size);
    memset(w->slot[1].bytes, 0x5A, SLOT_BYTES); /* what an earlier image left */
    open_slots(w);
    EQUAL(mrd_boot_begin(&w->boot), MRD_BOOT_NEW);
    EQUAL(mrd_boot_install(&w->boot), 0);
    w->marks.operations = 0;
    boot(w);
}

static void tear_down(world *w) {
    mrd_flash_close(&w->journal);
    mrd_flash_close(&w->slot[0]);
    mrd_flash_close(&w->slot[1]);
    mrd_flash_close(&w->marks);
}

static void step(world *w, bool with_host) {
    if (with_host && !w->unreachable) host(w);
    if (!is_off(w)) {
        CHECK(mrd_step(&w->device) >= 0 || is_off(w));
        w->journal.ms += 7;
    }
    if (!is_off(w)) mrd_update_step(&w->update, &w->uplink);
    bool lost = is_off(w);
    if (lost || w->reset) boot(w);
    if (!lost || !w->again) return;
    cut_again(w, mrd_flash_random(&w->journal.random) % 3 == 0 ? slot_of(w, MRD_SLOT_OTHER) : &w->journal);
}

static bool has_ended(world *w, uint32_t number) {
    char text[TEXT];
    newest(w, text);
    bool end = strstr(text, "\"confirmed\"") || strstr(text, "\"reverted\"") || strstr(text, "\"refused\"");
    return end && member(text, "\"update\":") == number;
}

static void run(world *w) {
    for (unsigned i = 0; !has_ended(w, w->sender.number); i++) {
        if (i == STEPS_MAX) {
            char text[TEXT];
            newest(w, text);
            fprintf(stderr, "%s: it does not end: %s\n", checking, text);
            abort();
        }
        step(w, true);
    }
    CHECK(mrd_sync(&w->device) == 0 || is_off(w));
    if (is_off(w)) boot(w);
}

/* Updates, with losses of power; if one was in the trial, the boot loader may have gone back, and the next update succeeds. */
static void update_with(world *w) {
    for (uint32_t number = 1; number <= 3; number++) {
        announce(w, number, &new);
        run(w);
        if (says(w, "\"confirmed\"")) break;
        CHECK(says(w, "\"reverted\""));
        CHECK(w->cut_in_trial);
        CHECK(running_image(w) == &old);
    }
    CHECK(says(w, "\"confirmed\""));
    CHECK(has(w, w->running, &new) && w->boot.state.confirmed == w->running && w->boot.state.trial == -1);
    char text[TEXT];
    newest(w, text);
    CHECK(strstr(text, "\"running\":\"2.0\"") && strstr(text, "\"version\":\"2.0\""));
    CHECK(!mrd_update_is_busy(&w->update));
}

/* `seed` says what is torn, and where power is lost a second time. */
static void cut_once(int where, uint64_t cut, int way, unsigned seed) {
    static world w;
    static char name[100];
    checking = name;
    snprintf(name, sizeof name, "update, place %d, operation %llu, way %d, seed %u", where, (unsigned long long)cut, way, seed);
    set_up(&w);
    mrd_flash *flash = where == 0 ? &w.journal : where == 1 ? &w.slot[1] : &w.marks;
    mrd_flash_cut(flash, cut, way, cut << 4 | seed);
    w.journal.random = 2 * ((seed << 16) + cut * MRD_CUT_WAYS + (unsigned)way) + 1;
    w.again = (cut + seed) % 2 == 0;
    update_with(&w);
    tear_down(&w);
}

static unsigned cut_everywhere(unsigned every) {
    static world w;
    uint64_t operations[3];
    unsigned runs = 0;
    set_up(&w);
    update_with(&w);
    EQUAL(w.resets, 2);
    operations[0] = w.journal.operations;
    operations[1] = w.slot[1].operations;
    operations[2] = w.marks.operations;
    EQUAL(operations[2], 12); /* of three marks: to start, that the trial has begun, that it is confirmed */
    tear_down(&w);
    for (int where = 0; where < 3; where++) {
        unsigned seeds = where == 2 ? 16 : 1;
        for (uint64_t cut = 1; cut <= operations[where]; cut += where == 2 ? 1 : every) {
            for (unsigned i = 0; i < seeds * MRD_CUT_WAYS; i++, runs++) cut_once(where, cut, (int)(i % MRD_CUT_WAYS), i / MRD_CUT_WAYS);
        }
    }
    return runs;
}

/* ---- what is refused, and what is sent again ---- */

static void refuses(const char *code, void (*prepare)(world *w)) {
    static world w;
    set_up(&w);
    announce(&w, 1, &new);
    prepare(&w);
    run(&w);
    CHECK(says(&w, "\"refused\""));
    CHECK(says(&w, code));
    EQUAL(w.resets, 1);
    CHECK(running_image(&w) == &old);
    /* It comes back. */
    w.broken = false;
    w.slots.bytes = SLOT_BYTES;
    announce(&w, 2, &new);
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    tear_down(&w);
}

/* What the host gives is never more than a string, or a number, of the report. */
static void reports_no_more_than_a_version(void) {
    static world w;
    uint8_t bytes[80] = {BEGIN, 5, 0, 0, 0, 100};
    set_up(&w);
    memcpy(bytes + 41, "1\",\"x\\\n!", 8);
    CHECK(give(&w, bytes, 41 + 8));
    step(&w, false);
    CHECK(says(&w, "\"version\":\"1?,?x?" "?!\""));
    CHECK(says(&w, "\"receiving\""));
    /* No bytes are no image. */
    bytes[5] = 0;
    CHECK(give(&w, bytes, 42));
    step(&w, false);
    CHECK(says(&w, "\"refused\"") && says(&w, "\"MR6346\""));
    tear_down(&w);
}

static void lie(world *w) { w->sender.lies = true; }
static void shrink(world *w) { w->slots.bytes = new.size - 1; }
static void break_slot(world *w) { w->broken = true; }

static void receive_some(world *w, uint32_t bytes) {
    for (unsigned i = 0; w->sender.next < bytes && i < STEPS_MAX; i++) step(w, true);
    while (mrd_step(&w->device), w->device.function[0].pending > 0) continue;
}

/* A gap, a piece that comes twice, one of another update, and records that are none. */
static void asks_again(void) {
    static world w;
    set_up(&w);
    announce(&w, 1, &new);
    receive_some(&w, 3000);
    uint32_t next = w.sender.next;
    send_piece(&w, 1, next + 240, 240);
    send_piece(&w, 1, next + 480, 240);
    send_piece(&w, 1, next - 240, 240);
    send_piece(&w, 9, next, 240);
    give(&w, (const uint8_t *)"\x02", 1);
    give(&w, (const uint8_t *)"\x01\x07\x00\x00\x00", 5);
    give(&w, (const uint8_t *)"not a record of an image", 24);
    while (mrd_step(&w.device), w.device.function[0].pending > 0) continue;
    CHECK(says(&w, "\"resend\":1,"));
    CHECK(says(&w, "\"receiving\""));
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    CHECK(has(&w, w.running, &new));
    tear_down(&w);
}

/* Pieces that fit by their offset, but not by anything else. */
static void takes_no_other_piece(void) {
    static world w;
    static image junk;
    set_up(&w);
    announce(&w, 1, &new);
    receive_some(&w, 3000);
    uint32_t next = w.sender.next;
    memset(junk.bytes, 0x11, sizeof junk.bytes);
    junk.size = new.size;
    w.sender.image = &junk;
    send_piece(&w, 9, next, 240);
    w.sender.image = &new;
    while (mrd_step(&w.device), w.device.function[0].pending > 0) continue;
    CHECK(says(&w, "\"resend\":0,"));
    /* No multiple of the unit. */
    send_piece(&w, 1, next, 7);
    while (mrd_step(&w.device), w.device.function[0].pending > 0) continue;
    CHECK(says(&w, "\"resend\":1,"));
    receive_some(&w, new.size - 239);
    uint32_t left = new.size - w.sender.next;
    CHECK(left > 0 && left < 232);
    /* More than is left of the image. */
    send_piece(&w, 1, w.sender.next, (left / UNIT + 1) * UNIT);
    while (mrd_step(&w.device), w.device.function[0].pending > 0) continue;
    CHECK(says(&w, "\"resend\":2,"));
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    CHECK(has(&w, w.running, &new));
    tear_down(&w);
}

/* Records that are too short, in memory of exactly their length. */
static void reads_no_further(void) {
    static world w;
    set_up(&w);
    announce(&w, 1, &new);
    receive_some(&w, 2000);
    for (size_t size = 0; size < 50; size++) {
        for (uint8_t kind = BEGIN; kind <= PIECE; kind++) {
            uint8_t *bytes = malloc(size > 0 ? size : 1);
            mr_record record;
            memset(&record, 0, sizeof record);
            memset(bytes, 0, size > 0 ? size : 1);
            bytes[0] = kind;
            record.log = "firmware";
            record.seqno = 100000 + 2 * size + kind;
            record.data = size > 0 ? (void *)bytes : NULL;
            record.size = size;
            record.attempt = 1;
            if (kind == PIECE || size < 41) mrd_update_run(&record);
            free(bytes);
        }
    }
    CHECK(says(&w, "\"receiving\""));
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    tear_down(&w);
}

/* The host has removed the device, or is gone: the device may sleep, and the update goes on when it is told more. */
static void sleeps_without_pieces(void) {
    static world w;
    set_up(&w);
    CHECK(!mrd_update_is_busy(&w.update));
    announce(&w, 1, &new);
    receive_some(&w, 3000);
    CHECK(mrd_update_is_busy(&w.update));
    w.journal.ms += MRD_QUIET_MS - 1000;
    step(&w, false);
    CHECK(mrd_update_is_busy(&w.update));
    w.journal.ms += 1000;
    step(&w, false);
    CHECK(!mrd_update_is_busy(&w.update));
    receive_some(&w, 4000);
    CHECK(mrd_update_is_busy(&w.update));
    /* It slept, and asks again. */
    w.journal.ms += MRD_QUIET_MS;
    boot(&w);
    CHECK(mrd_update_is_busy(&w.update));
    w.journal.ms += MRD_QUIET_MS;
    CHECK(!mrd_update_is_busy(&w.update));
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    CHECK(has(&w, w.running, &new));
    tear_down(&w);
}

/* Another image begins in the middle of one. */
static void begins_anew(void) {
    static world w;
    static image other;
    set_up(&w);
    other = new;
    other.size = 2500;
    other.bytes[0] ^= 1;
    announce(&w, 1, &other);
    receive_some(&w, 1500);
    announce(&w, 2, &new);
    run(&w);
    CHECK(says(&w, "\"confirmed\"") && says(&w, "\"update\":2,"));
    CHECK(has(&w, w.running, &new));
    tear_down(&w);
}

/* New firmware that reaches no host gives up. */
static void goes_back(void) {
    static world w;
    set_up(&w);
    announce(&w, 1, &new);
    for (unsigned i = 0; w.resets < 2 && i < STEPS_MAX; i++) step(&w, true);
    CHECK(running_image(&w) == &new && on_trial(&w));
    w.unreachable = true;
    w.uplink.attached = w.uplink.idle = false;
    /* A command that was delivered before has to wait: the other slot has the image to go back to. */
    uint8_t other[80] = {BEGIN, 7, 0, 0, 0, 0, 1};
    give(&w, other, sizeof other);
    uint32_t begun = w.journal.ms;
    for (unsigned i = 0; w.resets < 3 && i < STEPS_MAX; i++) {
        step(&w, false);
        w.journal.ms += 1000;
    }
    CHECK(w.journal.ms - begun >= MRD_TRIAL_MS);
    CHECK(running_image(&w) == &old);
    CHECK(says(&w, "\"reverted\"") && says(&w, "\"MR6348\"") && says(&w, "\"update\":1,") && says(&w, "\"running\":\"1.0\""));
    w.unreachable = false;
    w.uplink.attached = w.uplink.idle = true;
    announce(&w, 2, &new);
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    tear_down(&w);
}

static jmp_buf out_of_run;
static unsigned crashes;

static int crash(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)program_slot(context, at, bytes, size - UNIT);
    if (crashes-- > 0) longjmp(out_of_run, 1);
    return 0;
}

static int run_on(void *context, void (*call)(void *argument), void *argument, uint32_t limit_ms) {
    (void)context, (void)limit_ms;
    if (setjmp(out_of_run)) return MRD_RUN_TIMEOUT;
    call(argument);
    return 0;
}

/* A run that is ended while it programs: what it programmed is erased, and comes again. */
static void is_ended_in_the_middle(void) {
    static world w;
    set_up(&w);
    w.journal.port.run_on = run_on;
    announce(&w, 1, &new);
    receive_some(&w, 2000);
    crashes = 1;
    w.slots.program = crash;
    for (unsigned i = 0; crashes > 0 && i < STEPS_MAX; i++) step(&w, true);
    w.slots.program = program_slot;
    w.journal.ms += 5000;
    run(&w);
    CHECK(says(&w, "\"confirmed\""));
    tear_down(&w);
}

static const mrd_update *watched;

/* The end of the run that refuses the image is lost, once. */
static int lose_end(void *context, void (*call)(void *argument), void *argument, uint32_t limit_ms) {
    (void)context, (void)limit_ms;
    call(argument);
    if (!watched || watched->code == 0) return 0;
    watched = NULL;
    return MRD_RUN_TIMEOUT;
}

static void repeats_its_report(void) {
    static world w;
    set_up(&w);
    w.journal.port.run_on = lose_end;
    watched = &w.update;
    announce(&w, 1, &new);
    w.sender.lies = true;
    run(&w);
    CHECK(!watched);
    CHECK(says(&w, "\"MR6347\""));
    tear_down(&w);
}

static void refuses_settings(void) {
    static world w;
    set_up(&w);
    const char *versions[] = {"", "1.0\"", "1\\0", "a version that is much too long", "\n"};
    for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        EQUAL(mrd_update_begin(&w.update, &w.device, &w.slots, versions[i]), MRD_SETTING_INVALID);
    }
    w.slots.unit = 3;
    EQUAL(mrd_update_begin(&w.update, &w.device, &w.slots, "1.0"), MRD_SETTING_INVALID);
    w.slots.unit = UNIT;
    w.slots.block_bytes = 1001;
    EQUAL(mrd_update_begin(&w.update, &w.device, &w.slots, "1.0"), MRD_SETTING_INVALID);
    tear_down(&w);
}

int main(int count, char **words) {
    unsigned every = count == 3 && strcmp(words[1], "--every") == 0 ? (unsigned)strtoul(words[2], NULL, 10) : 1;
    old.size = 1500;
    old.version = "1.0";
    new.size = 7003; /* no multiple of the unit */
    new.version = "2.0";
    for (unsigned i = 0; i < SLOT_BYTES; i++) {
        old.bytes[i] = (uint8_t)(i * 7 + 1);
        new.bytes[i] = (uint8_t)(i * 13 + (i >> 8) + 2);
    }
    checking = "update, what is refused";
    refuses("\"MR6347\"", lie);
    refuses("\"MR6346\"", shrink);
    refuses("\"MR6349\"", break_slot);
    refuses_settings();
    reports_no_more_than_a_version();
    checking = "update, what is sent again";
    asks_again();
    takes_no_other_piece();
    reads_no_further();
    begins_anew();
    checking = "update, without pieces";
    sleeps_without_pieces();
    checking = "update, goes back";
    goes_back();
    checking = "update, a run that is ended";
    is_ended_in_the_middle();
    repeats_its_report();
    unsigned runs = cut_everywhere(every);
    fprintf(stderr, "update: %u losses of power: ok\n", runs);
    return 0;
}
