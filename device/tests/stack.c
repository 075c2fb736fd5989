/* stack.c - functions that never end, use too much stack, or crash: each run becomes a dead letter, and the device goes on.
 *
 * A crash in a call of the library ends the process, as it resets a board. So the device is a child here, which is started
 * again until it ends by itself; its flash is a file, and the word that survives a reset is shared memory.
 */
#define _DEFAULT_SOURCE
#include "../port/posix/stack.h"
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MILLRACE_DEVICE misbehave
#include "millrace.h"

enum { LOOP, LOOP_IN_CALLS, RECURSE, CRASH, CRASH_IN_A_CALL, EXIT, WELL, KINDS };

const char *checking = "stack";

static const char path[] = "build/stack.flash";
static const mrd_log logs[] = {{"in", 100, 0}, {"out", 100, 0}, {"dead", 100, 0}};
static const mrd_function functions[] = {{"misbehave", misbehave_handle, "in", 3, "dead", 20}};
static uint64_t memory[MRD_WORDS(3, 1, 512)];

typedef struct {
    uint32_t retained;
    unsigned starts, attempts[KINDS];
} shared;

static shared *kept;
static volatile int never;

static int recurse(volatile const uint8_t *before) {
    volatile uint8_t some[512];
    for (unsigned i = 0; i < sizeof some; i++) some[i] = before ? before[i] : (uint8_t)i;
    return never ? 0 : recurse(some) + some[7];
}

int misbehave_handle(const mr_record *record) {
    volatile uint8_t *nowhere = (volatile uint8_t *)(uintptr_t)64;
    uint8_t byte;
    kept->attempts[record->data[0]]++;
    mr_append("out", "half", 4); /* of a run that does not end: nothing of it is left */
    switch (record->data[0]) {
    case LOOP: for (;;) never = 0; break;
    case LOOP_IN_CALLS: for (;;) mr_get("in", 1, &byte, 1); break;
    case RECURSE: return recurse(NULL);
    case CRASH: *nowhere = 1; break;
    case CRASH_IN_A_CALL: mr_append("out", (const void *)(uintptr_t)64, 8); break;
    case EXIT: _exit(1);
    default: break;
    }
    return 0;
}

/* The whole life of the device between two resets. */
static int live(void) {
    mrd_flash flash;
    mrd device;
    mrd_status status;
    CHECK(mrd_flash_open(&flash, path, 8, 4096, 8, 8, 7) == 0);
    flash.virtual_time = true;
    flash.port.reset_reason = MRD_RESET_WATCHDOG;
    flash.port.retained = &kept->retained;
    CHECK(mrd_stack_begin(&flash.port, 64 * 1024) == 0);
    EQUAL(mrd_open(&device, &flash.port, logs, 3, functions, 1, memory, sizeof memory), 0);
    kept->starts++;
    for (uint8_t kind = 0; kind < KINDS && mrd_latest(&device, "in") < KINDS; kind++) mrd_append(&device, "in", &kind, 1, NULL);
    EQUAL(mrd_sync(&device), 0);
    do {
        CHECK(mrd_step(&device) >= 0);
        mrd_stat(&device, &status);
        flash.ms += 500;
    } while (status.pending > 0);
    EQUAL(mrd_sync(&device), 0);
    EQUAL(mrd_latest(&device, "out"), 1);
    EQUAL(mrd_latest(&device, "dead"), KINDS - 1);
    for (uint8_t kind = 0; kind < WELL; kind++) {
        uint8_t byte = 0;
        EQUAL(mrd_get(&device, "dead", kind + 1u, &byte, 1), 1);
        EQUAL(byte, kind);
    }
    mrd_flash_close(&flash);
    return 0;
}

int main(void) {
    int status = -1;
    unlink(path);
    kept = mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(kept != MAP_FAILED);
    for (unsigned i = 0; i < 100 && status != 0; i++) {
        pid_t child = fork();
        if (child == 0) _exit(live());
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(!WIFSIGNALED(status) || WTERMSIG(status) == SIGSEGV);
    }
    EQUAL(status, 0);
    /* One more if the reset came before the end of the run before was flushed. */
    for (unsigned i = 0; i < WELL; i++) CHECK(kept->attempts[i] == 3 || kept->attempts[i] == 4);
    EQUAL(kept->attempts[WELL], 1);
    CHECK(kept->starts <= 1 + 4 + 4);
    unlink(path);
    fprintf(stderr, "stack: %u starts: ok\n", kept->starts);
    return 0;
}
