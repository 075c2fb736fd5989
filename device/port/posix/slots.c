#define _POSIX_C_SOURCE 200809L
#include "slots.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = MRD_FOLDER_MAX + 16 };

int mrd_slot_path(const char *folder, int slot, char *path, size_t capacity) {
    int size = snprintf(path, capacity, "%s/slot-%d", folder, slot);
    if (size > 0 && (size_t)size < capacity) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

/* ---- the state of the boot loader ---- */

int mrd_boot_state_read(const char *folder, mrd_boot_state *state) {
    char path[PATH_BYTES];
    *state = (mrd_boot_state){0, -1, 0};
    snprintf(path, sizeof path, "%s/boot", folder);
    FILE *file = fopen(path, "r");
    if (!file) return errno == ENOENT ? 0 : -1;
    int found = fscanf(file, "%d %d %d", &state->confirmed, &state->trial, &state->started);
    fclose(file);
    bool valid = found == 3 && state->confirmed >= 0 && state->confirmed <= 1 && state->trial >= -1 && state->trial <= 1;
    if (!valid) errno = EINVAL;
    return valid ? 0 : -1;
}

/* The whole file, or the one before: power may be lost at any moment. */
int mrd_boot_state_write(const char *folder, const mrd_boot_state *state) {
    char path[PATH_BYTES], next[PATH_BYTES];
    snprintf(path, sizeof path, "%s/boot", folder);
    snprintf(next, sizeof next, "%s/boot.new", folder);
    FILE *file = fopen(next, "w");
    if (!file) return -1;
    bool written = fprintf(file, "%d %d %d\n", state->confirmed, state->trial, state->started) > 0;
    written = fflush(file) == 0 && fsync(fileno(file)) == 0 && written;
    written = fclose(file) == 0 && written;
    return written ? rename(next, path) : -1;
}

/* ---- the slots ---- */

static int open_slot(const mrd_slot_files *files, int slot, int flags) {
    char path[PATH_BYTES];
    int number = slot == MRD_SLOT_RUNNING ? files->running : 1 - files->running;
    return mrd_slot_path(files->folder, number, path, sizeof path) < 0 ? -1 : open(path, flags, 0755);
}

/* What is behind the end of the file is erased. */
static int read_slot(void *context, int slot, uint32_t at, void *bytes, uint32_t size) {
    int file = open_slot((const mrd_slot_files *)context, slot, O_RDONLY);
    if (file < 0) return 1;
    ssize_t done = pread(file, bytes, size, (off_t)at);
    close(file);
    if (done < 0) return 1;
    memset((uint8_t *)bytes + done, 0xFF, size - (size_t)done);
    return 0;
}

static int write_bytes(const mrd_slot_files *files, uint32_t at, const void *bytes, uint32_t size) {
    int file = open_slot(files, MRD_SLOT_OTHER, O_WRONLY | O_CREAT);
    if (file < 0) return 1;
    bool written = pwrite(file, bytes, size, (off_t)at) == (ssize_t)size;
    return close(file) == 0 && written ? 0 : 1;
}

static void check_erased(void *context, uint32_t at, uint32_t size) {
    uint8_t *before = malloc(size);
    bool blank = before && read_slot(context, MRD_SLOT_OTHER, at, before, size) == 0;
    for (uint32_t i = 0; blank && i < size; i++) blank = before[i] == 0xFF;
    free(before);
    if (blank) return;
    fprintf(stderr, "slot: a second program of a unit at 0x%x\n", at);
    abort();
}

static int program_slot(void *context, uint32_t at, const void *bytes, uint32_t size) {
    mrd_slot_files *files = (mrd_slot_files *)context;
    if (at % files->slots.unit != 0 || size % files->slots.unit != 0) abort();
    check_erased(context, at, size);
    return write_bytes(files, at, bytes, size);
}

static int erase_slot(void *context, uint32_t at) {
    mrd_slot_files *files = (mrd_slot_files *)context;
    uint8_t *blank = malloc(files->slots.block_bytes);
    if (!blank) return 1;
    memset(blank, 0xFF, files->slots.block_bytes);
    int result = write_bytes(files, at, blank, files->slots.block_bytes);
    free(blank);
    return result;
}

static int start_other(void *context) {
    mrd_slot_files *files = (mrd_slot_files *)context;
    mrd_boot_state state = {files->running, 1 - files->running, 0};
    return mrd_boot_state_write(files->folder, &state);
}

static bool on_trial(void *context) {
    const mrd_slot_files *files = (const mrd_slot_files *)context;
    mrd_boot_state state;
    return mrd_boot_state_read(files->folder, &state) == 0 && state.trial == files->running;
}

static int confirm(void *context) {
    mrd_slot_files *files = (mrd_slot_files *)context;
    mrd_boot_state state = {files->running, -1, 0};
    return mrd_boot_state_write(files->folder, &state);
}

static void reset(void *context) {
    (void)context;
    fflush(stdout);
    _exit(MRD_SLOT_RESET);
}

int mrd_slot_files_begin(mrd_slot_files *files, const char *folder, uint32_t bytes, uint32_t block_bytes, uint16_t unit) {
    const char *running = getenv("MILLRACE_SLOT");
    memset(files, 0, sizeof *files);
    if (strlen(folder) >= sizeof files->folder || !running) {
        errno = running ? ENAMETOOLONG : EINVAL;
        return -1;
    }
    snprintf(files->folder, sizeof files->folder, "%s", folder);
    files->running = running[0] == '1';
    files->slots = (mrd_slots){read_slot, erase_slot, program_slot, start_other, on_trial, confirm, reset, files, bytes, block_bytes, unit};
    return 0;
}
