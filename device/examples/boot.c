/* boot.c - a boot loader for POSIX: it starts the program in a slot, and tries a new one once.
 *
 *     boot FLASH --slots FOLDER ...      starts FOLDER/slot-N with these arguments
 *
 * A program that is on trial and ends with an error before it is confirmed, or is killed, has had its chance: the confirmed one starts
 * again, as after the reset of a board. The end of a confirmed program is the end of the boot loader, except for the status
 * MRD_SLOT_RESET, with which a program resets itself. `millrace device sim` starts this program like any other device.
 */
#define _DEFAULT_SOURCE
#include "../port/posix/slots.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { USAGE = 2, NO_PROGRAM = 127 };

static volatile sig_atomic_t child, stopped;

static void forward(int signal) {
    stopped = 1;
    if (child > 0) kill((pid_t)child, signal);
}

static const char *folder_of(int count, char **words) {
    for (int i = 2; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--slots") == 0) return words[i + 1];
    }
    return NULL;
}

/* The slot that starts now. A trial begins once. */
static int choose(const char *folder) {
    mrd_boot_state state;
    if (mrd_boot_state_read(folder, &state) < 0) return -1;
    if (mrd_boot_next(&state) && mrd_boot_state_write(folder, &state) < 0) return -1;
    return mrd_boot_running(&state);
}

static bool is_on_trial(const char *folder) {
    mrd_boot_state state;
    return mrd_boot_state_read(folder, &state) == 0 && state.trial >= 0;
}

static void run(const char *folder, int slot, char **words) {
    char path[MRD_FOLDER_MAX + 16], number[2] = {(char)('0' + slot), 0};
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* without power, nothing runs */
#endif
    if (mrd_slot_path(folder, slot, path, sizeof path) == 0 && setenv("MILLRACE_SLOT", number, 1) == 0) execv(path, words);
    fprintf(stderr, "boot: %s: %s\n", path, strerror(errno));
    _exit(NO_PROGRAM);
}

int main(int count, char **words) {
    const char *folder = folder_of(count, words);
    if (!folder || strlen(folder) >= MRD_FOLDER_MAX) {
        fprintf(stderr, "boot FLASH --slots FOLDER ...\n");
        return USAGE;
    }
    signal(SIGTERM, forward);
    signal(SIGINT, forward);
    for (;;) {
        int status = 0, slot = choose(folder);
        if (slot < 0) return perror(folder), USAGE;
        fprintf(stderr, "boot: slot %d\n", slot);
        pid_t started = fork();
        if (started < 0) return perror("fork"), 1;
        if (started == 0) run(folder, slot, words);
        child = (sig_atomic_t)started;
        while (waitpid(started, &status, 0) < 0 && errno == EINTR) continue;
        child = 0;
        bool ended = WIFEXITED(status);
        if (ended && WEXITSTATUS(status) == 0) return 0;
        if (ended && WEXITSTATUS(status) == MRD_SLOT_RESET) continue;
        if (stopped || !is_on_trial(folder)) return ended ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}
