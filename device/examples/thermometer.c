/* thermometer.c - the main loop of a device that measures a temperature, here on the port to POSIX.
 *
 *     make -C device && device/build/thermometer kitchen.flash 21.5 21.6 21.7
 *
 * The function of mean.c is compiled into it.
 */
#include "../port/posix/flash.h"
#include "../port/posix/stack.h"
#include <stdio.h>
#include <string.h>

int mean_handle(const struct mr_record *record);

static const mrd_log logs[] = {{"raw", 2000, 0}, {"mean", 500, 0}, {"config", 1, MRD_KEEP}}; /* name, history */
static const mrd_function functions[] = {{"mean", mean_handle, "raw", 3, NULL, 0}};
static uint64_t memory[MRD_WORDS(3, 1, 512)]; /* logs, functions, bytes of a burst */
static mrd device;

int main(int count, char **words) {
    mrd_flash flash;
    if (count < 2 || mrd_flash_open(&flash, words[1], 16, 4096, 8, 8, 0x4B17C4E20001) < 0) return 2;
    if (mrd_stack_begin(&flash.port, 64 * 1024) < 0) return 2; /* functions get a stack of their own, and a time limit */
    if (mrd_open(&device, &flash.port, logs, 3, functions, 1, memory, sizeof memory) < 0) {
        fprintf(stderr, "%s\n", device.why); /* a refusal says what is wrong */
        return 1;
    }
    for (int i = 2; i < count; i++) {
        if (mrd_append(&device, "raw", words[i], strlen(words[i]), NULL) < 0) return 1;
        mrd_step(&device); /* runs a function, flushes if it is time; returns how long the board may sleep */
    }
    mrd_sync(&device);
    for (uint64_t seqno = 1; seqno <= (uint64_t)mrd_latest(&device, "mean"); seqno++) {
        char text[16];
        int64_t size = mrd_get(&device, "mean", seqno, text, sizeof text);
        if (size >= 0 && size <= 16) printf("mean %u: %.*s\n", (unsigned)seqno, (int)size, text);
    }
    mrd_flash_close(&flash);
    return 0;
}
