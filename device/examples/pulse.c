/* pulse.c - a device that appends a record for each byte of its standard input, flushes it, and sends it to a host.
 *
 *     pulse FLASH HOST:PORT NAME
 *
 * `make bench` measures with it how long a record takes from a device to the cloud.
 */
#define _POSIX_C_SOURCE 200809L
#include "../port/posix/flash.h"
#include "../port/posix/line.h"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { SECTORS = 16, SECTOR_BYTES = 4096, UNIT = 8, IDENTITY = 0x9015E };

static const mrd_log logs[] = {{"raw", 2000, 0}};
static uint64_t memory[MRD_WORDS(1, 0, 512)];
static const char record[16] = "0123456789abcdef";
static mrd device;
static mrd_uplink uplink;
static mrd_flash flash;
static mrd_tcp tcp;

static int fail(const char *what, int64_t code) { return fprintf(stderr, "pulse: %s: MR%d %s\n", what, (int)-code, uplink.detail), 1; }

/* Appends a record for each byte that has come; 0 at the end of the input. */
static int64_t take(void) {
    char bytes[64];
    ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    int64_t result = size > 0 ? 1 : 0;
    for (; size > 0 && result > 0; size--) result = mrd_append(&device, "raw", record, sizeof record, NULL);
    if (result > 0 && (result = mrd_sync(&device)) == 0) result = 1;
    return result;
}

int main(int count, char **words) {
    if (count != 4) return fail("pulse FLASH HOST:PORT NAME", 0);
    if (mrd_flash_open(&flash, words[1], SECTORS, SECTOR_BYTES, UNIT, UNIT, IDENTITY) < 0) return fail(words[1], 0);
    int64_t result = mrd_open(&device, &flash.port, logs, 1, NULL, 0, memory, sizeof memory);
    if (result < 0) return fail("open", result);
    mrd_tcp_begin(&tcp, words[2]);
    mrd_uplink_begin(&uplink, &device, &tcp.line, words[3], NULL, 0);
    for (;;) {
        int64_t step = mrd_step(&device);
        if (step < 0) return fail("step", step);
        uint32_t wait = mrd_uplink_step(&uplink);
        if (uplink.error < 0) return fail("uplink", uplink.error);
        if (step < wait) wait = (uint32_t)step;
        struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {tcp.fd, POLLIN, 0}};
        poll(fds, 2, wait > 1000 ? 1000 : (int)wait);
        if (fds[0].revents == 0) continue;
        result = take();
        if (result < 0) return fail("append", result);
        if (result == 0) return 0;
    }
}
