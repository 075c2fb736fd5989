/* fleet.c - many simulated devices in one process, against one real host: days of waking, measuring, sending and sleeping pass in a minute.
 *
 *     fleet --host 127.0.0.1:7070 [--devices 1000] [--hours 72] [--every 60] [--seed 1] [--awake 64] [--faults 0] [--capability FILE]
 *
 * Each device wakes every --every minutes of its own time, appends a few records, which run a function, sends what the host lacks, and
 * sleeps. With a capability for all of them, lines are encrypted. Unless --faults is 0, lines are cut, devices have no network for up to
 * two days, and power is lost in any operation of the flash. At last every device sends what is left. Then the program prints a line for
 * each: name, newest seqno of "raw" and of "echo", and "small" if its flash is so small that it may have dropped records; and a line about
 * all. Record N of device D is "D N" in both logs. The seed determines what happens to a device, except how far a connection came that
 * was cut.
 */
#define _POSIX_C_SOURCE 200809L
#include "../port/posix/flash.h"
#include "../port/posix/line.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MILLRACE_DEVICE echo
#include "millrace.h"

enum { LOGS = 2, SECTORS = 8, SECTOR_BYTES = 4096, TEXT = 24, AWAKE_MAX = 256, PATIENCE_MS = 60000, OUTAGE_HOURS = 24 };
/* Every tenth device has a flash of 8 KiB, measures more, and is away for longer: it has to drop records that the host lacks. */
enum { SMALL_EVERY = 10, SMALL_SECTORS = 4, SMALL_SECTOR_BYTES = 2048, SMALL_RECORDS = 20, SMALL_OUTAGE_HOURS = 48 };

static int echo(const mr_record *record) { return mr_append("echo", record->data, record->size); }

static const mrd_log logs[LOGS] = {{"raw", 10000, 0}, {"echo", 10000, 0}};
static const mrd_function functions[] = {{"echo", echo, "raw", 3, NULL, 0}};

typedef struct {
    mrd_flash flash;
    mrd device;
    mrd_uplink uplink;
    mrd_tcp tcp;
    mrd_nap nap;
    uint64_t memory[MRD_WORDS(LOGS, 1, 512)];
    uint64_t random;
    char name[TEXT / 2];
    uint64_t flushed; /* the newest record of "raw" that a flush has promised */
    uint32_t end_ms;  /* its clock then: it wakes no more, except to send the rest */
    uint32_t away_ms; /* it has no network before this */
    uint32_t slept_ms;
    uint32_t woke, looked; /* the clock of this computer */
    bool awake, done, alone, last, small;
} unit;

static unit *units;
static unsigned count_of_units, faults, awake_most;
static uint64_t wakes, cuts, losses;
static const char *host;
static uint8_t token[MRW_TOKEN_MAX];
static size_t token_bytes;

static uint32_t real_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

static void fail(const unit *one, const char *what, long code) {
    fprintf(stderr, "fleet: device %s: %s (MR%ld) %s\n", one->name, what, -code, one->uplink.detail);
    exit(1);
}

static unsigned pick(unit *one, unsigned below) { return (unsigned)(mrd_flash_random(&one->random) >> 33) % below; }

/* A device without a network. */
static int open_nothing(void *context) {
    (void)context;
    return 1;
}

static void boot(unit *one) {
    mrd_flash_on(&one->flash);
    int result = mrd_open(&one->device, &one->flash.port, logs, LOGS, functions, 1, one->memory, sizeof one->memory);
    if (result < 0) fail(one, one->device.why, result);
    mrd_wake(&one->device, &one->nap, one->slept_ms);
    if ((uint64_t)mrd_latest(&one->device, "raw") < one->flushed) fail(one, "a flushed record is missing", 0);
    mrd_tcp_begin(&one->tcp, host);
    one->alone = one->away_ms > one->flash.ms;
    if (one->alone) one->tcp.line.open = open_nothing;
    mrd_uplink_begin(&one->uplink, &one->device, &one->tcp.line, one->name, token_bytes > 0 ? token : NULL, token_bytes);
}

static void measure(unit *one) {
    char text[TEXT];
    uint64_t next = (uint64_t)mrd_latest(&one->device, "raw") + 1;
    int size = snprintf(text, sizeof text, "%s %llu", one->name, (unsigned long long)next);
    int64_t result = mrd_append(&one->device, "raw", text, (size_t)size, NULL);
    if (result < 0 && result != MRD_FULL && !one->flash.off) fail(one, "append", (long)result);
}

static mrd_status run_all(unit *one) {
    mrd_status status;
    do {
        int64_t result = mrd_step(&one->device);
        if (result < 0 && !one->flash.off) fail(one, "step", (long)result);
        mrd_stat(&one->device, &status);
    } while (!one->flash.off && status.pending > 0);
    return status;
}

static void wake(unit *one) {
    one->last = one->flash.ms >= one->end_ms;
    if (one->last) one->away_ms = 0;
    boot(one);
    if (!one->last && faults > 0) {
        if (pick(one, 8) == 0) one->tcp.cut_after = 2 + pick(one, 2000), cuts++;
        if (pick(one, 10) == 0) mrd_flash_cut(&one->flash, 1 + pick(one, 6), (int)pick(one, MRD_CUT_WAYS), one->random);
        unsigned hours = one->small ? SMALL_OUTAGE_HOURS : OUTAGE_HOURS;
        if (pick(one, one->small ? 10 : 60) == 0) one->away_ms = one->flash.ms + pick(one, hours * 60) * 60000;
    }
    for (unsigned i = one->last ? 0 : one->small ? SMALL_RECORDS : 1 + pick(one, 3); i > 0 && !one->flash.off; i--) {
        measure(one);
        run_all(one);
    }
    one->awake = true;
    one->woke = one->looked = real_ms();
    wakes++;
}

static void sleep_until_next(unit *one, uint32_t every_ms) {
    mrd_uplink_end(&one->uplink);
    one->awake = false;
    one->slept_ms = every_ms / 2 + pick(one, every_ms);
    if (!one->flash.off && mrd_sleep(&one->device, &one->nap) == 0) one->flushed = (uint64_t)mrd_latest(&one->device, "raw");
    else losses++;
    one->flash.ms += one->slept_ms;
}

/* Does what the device can do now; whether it is still awake. */
static void step(unit *one, uint32_t every_ms) {
    uint32_t now = real_ms();
    /* While it is awake, its time is that of this computer. */
    one->flash.ms += now - one->looked;
    one->looked = now;
    mrd_status status = run_all(one);
    if (!one->flash.off && mrd_sync(&one->device) == 0) one->flushed = (uint64_t)mrd_latest(&one->device, "raw");
    if (!one->flash.off) mrd_uplink_step(&one->uplink);
    mrd_stat(&one->device, &status);
    int error = one->uplink.error;
    bool is_refused = !one->flash.off && error < 0 && error != -6060 && error != -6125;
    if (is_refused) fail(one, "refused", error);
    if (one->last && !one->flash.off && one->uplink.idle && status.pending == 0) {
        mrd_uplink_end(&one->uplink);
        one->awake = false;
        one->done = true;
    } else if (one->flash.off || one->alone || one->uplink.idle || (error < 0 && !one->last)) {
        sleep_until_next(one, every_ms);
    } else if (real_ms() - one->woke > PATIENCE_MS) {
        fail(one, "the host does not answer", error);
    }
}

static const char *option(int count, char **words, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], name) == 0) return words[i + 1];
    }
    return otherwise;
}

static unsigned number(int count, char **words, const char *name, const char *otherwise) {
    return (unsigned)strtoul(option(count, words, name, otherwise), NULL, 10);
}

static void read_token(const char *path) {
    char text[2048];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' ')) size--;
    int result = mrw_token_parse(text, size, token, sizeof token);
    if (result < 0) fprintf(stderr, "%s: no capability\n", path), exit(2);
    token_bytes = (size_t)result;
}

static void begin(unit *one, unsigned index, uint64_t seed, uint32_t hours) {
    snprintf(one->name, sizeof one->name, "d%04u", index);
    one->random = (seed << 20 | index) * 2 + 1;
    for (unsigned i = 0; i < 8; i++) pick(one, 2);
    uint64_t identity = (uint64_t)0xF1EE7 << 24 | (seed & 0xFFF) << 12 | (index + 1);
    one->small = index % SMALL_EVERY == SMALL_EVERY - 1;
    uint32_t sectors = one->small ? SMALL_SECTORS : SECTORS, sector_bytes = one->small ? SMALL_SECTOR_BYTES : SECTOR_BYTES;
    if (mrd_flash_open(&one->flash, NULL, sectors, sector_bytes, 8, 8, identity) < 0) perror("flash"), exit(1);
    one->flash.virtual_time = true;
    /* Not all wake at the same time. */
    one->flash.ms = 1 + pick(one, 3600000);
    one->end_ms = one->flash.ms + hours * 3600000;
}

int main(int count, char **words) {
    count_of_units = number(count, words, "--devices", "1000");
    faults = number(count, words, "--faults", "1");
    awake_most = number(count, words, "--awake", "64");
    uint32_t hours = number(count, words, "--hours", "72"), every_ms = number(count, words, "--every", "60") * 60000;
    const char *capability = option(count, words, "--capability", NULL);
    host = option(count, words, "--host", NULL);
    if (!host || count_of_units < 1 || count_of_units > 4000 || awake_most < 1 || awake_most > AWAKE_MAX || hours > 1000 || every_ms < 60000) {
        fprintf(stderr, "fleet --host HOST:PORT [--devices 1..4000] [--hours 0..1000] [--every MINUTES] [--seed N] [--awake 1..256] "
                        "[--faults 0|1] [--capability FILE]\n");
        return 2;
    }
    if (capability) read_token(capability);
    units = calloc(count_of_units, sizeof *units);
    if (!units) return perror("memory"), 1;
    for (unsigned i = 0; i < count_of_units; i++) begin(&units[i], i, number(count, words, "--seed", "1"), hours);
    static unsigned who[AWAKE_MAX];
    static struct pollfd fds[AWAKE_MAX];
    unsigned left = count_of_units, next = 0, awake = 0;
    while (left > 0) {
        /* Devices wake in turn; none overtakes another by more than a wake. */
        for (unsigned tried = 0; awake < awake_most && tried < count_of_units; tried++) {
            unit *one = &units[next];
            if (!one->awake && !one->done) wake(one), who[awake++] = next;
            next = (next + 1) % count_of_units;
        }
        unsigned kept = 0, waiting = 0;
        for (unsigned i = 0; i < awake; i++) {
            unit *one = &units[who[i]];
            step(one, every_ms);
            if (one->done) left--;
            if (!one->awake) continue;
            fds[waiting].fd = one->tcp.fd;
            fds[waiting++].events = POLLIN;
            who[kept++] = who[i];
        }
        /* All of those that are awake wait for the host. */
        if (kept == awake && kept > 0) poll(fds, waiting, 5);
        awake = kept;
    }
    for (unsigned i = 0; i < count_of_units; i++) {
        printf("%s %lld %lld%s\n", units[i].name, (long long)mrd_latest(&units[i].device, "raw"),
               (long long)mrd_latest(&units[i].device, "echo"), units[i].small ? " small" : "");
        mrd_flash_close(&units[i].flash);
    }
    free(units);
    printf("fleet: %u devices, %llu wakes, %llu lines to be cut, %llu losses of power\n", count_of_units, (unsigned long long)wakes,
            (unsigned long long)cuts, (unsigned long long)losses);
    return 0;
}
