/* station.c - a device that measures, computes means (mean.c), and sends everything to a host, here on the port to POSIX.
 *
 *     station FLASH --host 127.0.0.1:7070 --name kitchen [--identity HEX] [--capability FILE] [--records N] [--every MS]
 *     station FLASH --provisioned FILE [--host 127.0.0.1:7070] [--records N] [--every MS] [--linger MS]
 *
 * It measures until "raw" has N records, sends what its host lacks, prints what the host has, and ends. A command for "config" runs
 * the function `apply`, which reports to "applied". The file of --provisioned is what `millrace device provision` wrote: name,
 * identity, key, capability and host. With --linger, it stays for so long after everything was sent. `millrace device sim` starts
 * it. For tests: --cut-power K loses power in the K-th operation of the flash, with --way as in flash.h, and
 * --cut-line B loses the first connection after B bytes. --sectors N is the size of the flash. With --patience MS, it ends
 * if the last connection failed. With --deaf 1, it answers no requests but commands, as firmware without millrace_remote.h. With --logs
 * raw:100,other:3, it has these logs with these histories, each for commands, and no functions. With --flood N, it measures N more records at
 * once after it has sent --after P pieces of sectors.
 *
 * With --slots FOLDER, as examples/boot.c starts it, it takes updates of its firmware (millrace_update.h) for slots of --slot-bytes N; new
 * firmware tries for --trial MS to reach a host. While it gets an image, --patience ends it only after --quiet MS without a piece of it.
 * STATION_VERSION is the version of this one.
 */
#define _POSIX_C_SOURCE 200809L
#include "../port/posix/flash.h"
#include "../port/posix/line.h"
#include "../port/posix/slots.h"
#include "../port/posix/stack.h"
#include "millrace_identity.h"
#include "millrace_remote.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef STATION_VERSION
#define STATION_VERSION "1"
#endif
#define MILLRACE_DEVICE apply
#include "millrace.h"

int mean_handle(const struct mr_record *record);

/* What a device would do with its settings; here it says that it has them. */
int apply_handle(const mr_record *record) { return mr_append("applied", record->data, record->size); }

enum { RECORD_MAX = 16, STACK_BYTES = 64 * 1024, POWER_LOST = 3, REFUSED = 4, SLOT_BLOCK = 4096, SLOT_UNIT = 8 };
/* Rows of the tables, without those of updates, and with them. */
enum { LOGS = 4, FUNCTIONS = 2, UPDATE_LOGS = 6, UPDATE_FUNCTIONS = 3, OTHER_LOGS = 6 };

static const mrd_log logs[UPDATE_LOGS] = {{"raw", 2000, 0}, {"mean", 500, 0}, {"config", 1, MRD_KEEP | MRD_COMMANDS}, {"applied", 100, 0},
                                          MRD_UPDATE_LOGS};
static const mrd_function functions[UPDATE_FUNCTIONS] = {{"mean", mean_handle, "raw", 3, NULL, 0}, {"apply", apply_handle, "config", 3, NULL, 0},
                                                         MRD_UPDATE_FUNCTION};
static mrd_log others[OTHER_LOGS];
static char other_names[256];
static uint64_t memory[MRD_WORDS(UPDATE_LOGS, UPDATE_FUNCTIONS, 512)];
static mrd_slot_files files;
static mrd_update update;
static mrd_identity provisioned;
static uint8_t identity_bytes[MRD_IDENTITY_MAX];
static mrd device;
static mrd_uplink uplink;
static mrd_flash flash;
static mrd_tcp tcp;
static mrd_line line;
static unsigned long flood, after;
static uint8_t token[MRW_TOKEN_MAX];

static const char *option(int count, char **words, const char *name, const char *otherwise) {
    for (int i = 2; i + 1 < count; i += 2) {
        if (strcmp(words[i], name) == 0) return words[i + 1];
    }
    return otherwise;
}

static bool is_set(int count, char **words, const char *name) { return option(count, words, name, NULL) != NULL; }

static unsigned long number(int count, char **words, const char *name, const char *otherwise) {
    return strtoul(option(count, words, name, otherwise), NULL, 10);
}

static int read_token(const char *path) {
    char text[2048];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' ')) size--;
    return mrw_token_parse(text, size, token, sizeof token);
}

static int read_identity(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(identity_bytes, 1, sizeof identity_bytes, file) : 0;
    if (file) fclose(file);
    return mrd_identity_read(&provisioned, identity_bytes, size);
}

/* A temperature that goes up and down: what record n of "raw" has is the same at each start. */
static int measure(char text[RECORD_MAX], uint64_t seqno) {
    unsigned day = (unsigned)(seqno % 48), hundredths = 2100 + 10 * (day < 24 ? day : 48 - day);
    return snprintf(text, RECORD_MAX, "%u.%02u", hundredths / 100, hundredths % 100);
}

/* Whether the piece of a sector was sent after which it measures more. HELLO and ATTACH came before the pieces. */
static bool is_due(void) { return flood > 0 && uplink.attached && uplink.request >= 2 + after; }

/* The answer to that piece waits until the records are there. */
static long receive(void *context, void *bytes, size_t size) {
    return is_due() ? 0 : tcp.line.receive(context, bytes, size);
}

/* Without slots, the device has no logs for updates. */
static int open_device(bool updates) {
    unsigned log_count = updates ? UPDATE_LOGS : LOGS, function_count = updates ? UPDATE_FUNCTIONS : FUNCTIONS;
    size_t words = updates ? MRD_WORDS(UPDATE_LOGS, UPDATE_FUNCTIONS, 512) : MRD_WORDS(LOGS, FUNCTIONS, 512);
    int result = mrd_open(&device, &flash.port, logs, log_count, functions, function_count, memory, words * sizeof memory[0]);
    if (result == 0 && updates) result = mrd_update_begin(&update, &device, &files.slots, STATION_VERSION);
    return result;
}

/* With the logs that --logs names. */
static int open_others(const char *names) {
    unsigned count = 0;
    snprintf(other_names, sizeof other_names, "%s", names);
    for (char *name = strtok(other_names, ","); name && count < OTHER_LOGS; name = strtok(NULL, ",")) {
        char *history = strchr(name, ':');
        if (!history) return MRD_SETTING_INVALID;
        *history++ = 0;
        mrd_log log = {name, (uint32_t)strtoul(history, NULL, 10), MRD_COMMANDS};
        others[count++] = log;
    }
    return mrd_open(&device, &flash.port, others, count, NULL, 0, memory, MRD_WORDS(count, 0, 512) * sizeof memory[0]);
}

static int end_of(int result) {
    if (flash.off) {
        printf("power lost\n");
        return POWER_LOST;
    }
    fprintf(stderr, "MR%d\n", -result);
    return 1;
}

int main(int count, char **words) {
    const char *host = option(count, words, "--host", NULL), *name = option(count, words, "--name", "kitchen");
    const char *capability = option(count, words, "--capability", NULL), *file = option(count, words, "--provisioned", NULL);
    const char *slots = option(count, words, "--slots", NULL);
    unsigned long linger = number(count, words, "--linger", "0");
    unsigned long records = number(count, words, "--records", "100"), every = number(count, words, "--every", "0");
    unsigned long cut = number(count, words, "--cut-power", "0"), patience = number(count, words, "--patience", "0");
    unsigned long cut_line = number(count, words, "--cut-line", "0");
    uint64_t identity = strtoull(option(count, words, "--identity", "4b17c4e20001"), NULL, 16);
    int token_size = capability ? read_token(capability) : 0;
    const uint8_t *shown = token;
    int64_t result = 0;
    if (file && (result = read_identity(file)) < 0) return fprintf(stderr, "%s: MR%d, no identity\n", file, (int)-result), 2;
    if (file) {
        name = provisioned.name;
        identity = provisioned.namespace_id;
        shown = provisioned.token;
        token_size = (int)provisioned.token_bytes;
        if (!host && provisioned.host[0] != 0) host = provisioned.host;
    }
    if (count < 2 || !host) {
        fprintf(stderr, "station FLASH --host HOST:PORT [--name NAME] [--records N] [--every MS] [--capability FILE]\n");
        return 2;
    }
    if (token_size < 0) return fprintf(stderr, "%s: no capability\n", capability), 2;
    if (mrd_flash_open(&flash, words[1], (uint32_t)number(count, words, "--sectors", "16"), 4096, 8, 8, identity) < 0) {
        perror(words[1]);
        return 2;
    }
    if (mrd_stack_begin(&flash.port, STACK_BYTES) < 0) return perror("stack"), 1;
    uint32_t slot_bytes = (uint32_t)number(count, words, "--slot-bytes", "4194304");
    if (slots && mrd_slot_files_begin(&files, slots, slot_bytes, SLOT_BLOCK, SLOT_UNIT) < 0) return perror(slots), 2;
    const char *other_logs = option(count, words, "--logs", NULL);
    if (other_logs) records = 0;
    if ((result = other_logs ? open_others(other_logs) : open_device(slots != NULL)) < 0) {
        fprintf(stderr, "MR%d %s\n", (int)-result, device.why ? device.why : "");
        return 1;
    }
    if (slots) {
        update.trial_ms = (uint32_t)number(count, words, "--trial", "600000");
        update.quiet_ms = (uint32_t)number(count, words, "--quiet", "30000");
    }
    device.on_full = strcmp(option(count, words, "--full", "drop"), "refuse") == 0 ? MRD_REFUSE : MRD_DROP;
    if (cut > 0) mrd_flash_cut(&flash, cut, (int)number(count, words, "--way", "0"), cut);
    mrd_tcp_begin(&tcp, host);
    tcp.cut_after = cut_line;
    flood = number(count, words, "--flood", "0");
    after = number(count, words, "--after", "0");
    line = tcp.line;
    line.receive = receive;
    mrd_uplink_begin(&uplink, &device, &line, name, token_size > 0 ? shown : NULL, (size_t)token_size);
    if (provisioned.guard.key_count > 0) mrd_uplink_guard(&uplink, &provisioned.guard);
    if (!is_set(count, words, "--deaf")) mrd_remote_begin(&uplink);
    uint32_t begun = flash.port.ms(&flash), measured = begun - (uint32_t)every, idle_since = begun;
    bool flooding = false;
    for (;;) {
        char text[RECORD_MAX];
        uint32_t now = flash.port.ms(&flash);
        mrd_status status;
        uint64_t newest = (uint64_t)mrd_latest(&device, "raw");
        if (is_due()) {
            records += flood;
            flood = 0;
            flooding = true;
        }
        flooding = flooding && newest < records;
        if (newest < records && (flooding || now - measured >= every)) {
            result = mrd_append(&device, "raw", text, (size_t)measure(text, newest + 1), NULL);
            measured = now;
            if (result < 0 && result != MRD_FULL) return end_of((int)result);
        }
        int64_t wait = mrd_step(&device);
        if (wait < 0) return end_of((int)wait);
        mrd_stat(&device, &status);
        bool measures = (uint64_t)mrd_latest(&device, "raw") < records;
        if (!measures && status.pending == 0 && (result = mrd_sync(&device)) < 0) return end_of((int)result);
        if (flooding) continue;
        uint32_t sleep = mrd_uplink_step(&uplink);
        uint32_t rest = slots ? mrd_update_step(&update, &uplink) : MRD_IDLE_MS;
        if (rest < sleep) sleep = rest;
        if (flash.off) return end_of(0);
        mrd_stat(&device, &status);
        bool updating = slots && mrd_update_is_busy(&update);
        if (measures || status.pending > 0 || !uplink.idle || updating) idle_since = now;
        else if (now - idle_since >= linger) break;
        /* A line that was cut on purpose is not opened again. */
        bool was_cut = cut_line > 0 && tcp.cut_after == 0;
        bool gives_up = patience > 0 && !measures && !updating && uplink.error != 0 && (was_cut || now - begun > patience);
        if (uplink.error == -6300 || uplink.error == -6302 || gives_up) {
            fprintf(stderr, "MR%d %s\n", -uplink.error, uplink.detail);
            return REFUSED;
        }
        if (measures && every < sleep) sleep = (uint32_t)every;
        if (wait < sleep) sleep = (uint32_t)wait;
        if (linger > 0 && sleep > 20) sleep = 20;
        if (sleep > 0) mrd_tcp_wait(&tcp, sleep);
    }
    printf("delivered %llu: raw %llu, mean %llu\n", (unsigned long long)uplink.delivered,
           (unsigned long long)mrd_latest(&device, "raw"), (unsigned long long)mrd_latest(&device, "mean"));
    mrd_flash_close(&flash);
    return 0;
}
