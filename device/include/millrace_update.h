/* millrace_update.h - new firmware over the uplink: the host sends an image as records of the log "firmware", and the device writes them to
 * the slot that does not run, verifies the SHA-256 of the whole image, and starts it for a trial. The new firmware has to reach a host
 * once; otherwise the boot loader goes back to the old one.
 *
 *     static const mrd_log logs[] = {{"raw", 2000, 0}, MRD_UPDATE_LOGS};
 *     static const mrd_function functions[] = {MRD_UPDATE_FUNCTION};
 *     static mrd_update update;
 *     mrd_update_begin(&update, &device, &slots, "1.4.0");
 *     for (;;) {
 *         ...
 *         wait = mrd_update_step(&update, &uplink);
 *     }
 *
 * A firmware without this module pays nothing for it. Two slots, and a boot loader that can try an image once, are what the board brings
 * (`mrd_slots`); if it has none, millrace_boot.h helps. Whether an image may run at all, by its signature, is the boot loader's decision:
 * the SHA-256 protects against damage only. Who may send one is decided by capabilities: `link`, and `append` on the log "firmware".
 * docs/adr/0152-firmware-updates.md has the reasons, spec/formats/device.md the records.
 */
#ifndef MILLRACE_UPDATE_H
#define MILLRACE_UPDATE_H

#include "crypto.h"
#include "millrace_device.h"
#include "millrace_uplink.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MRD_VERSION_MAX = 24,      /* bytes of the version of a firmware */
    MRD_SLOT_UNIT_MAX = 128,   /* a record has at least one unit of the image */
    MRD_TRIAL_MS = 600000,     /* how long new firmware tries to reach a host before it resets the board */
    MRD_QUIET_MS = 30000,      /* how long a device that receives an image stays awake without a further piece of it */
    MRD_RESET_WAIT_MS = 10000, /* how long a device waits, before it starts new firmware, until the host knows that it does */
    MRD_MARKS = 16             /* how many times the progress of one update is recorded */
};

/* Why an update failed; the numbers are those of error codes. */
enum { MRD_UPDATE_TOO_LARGE = 6346, MRD_UPDATE_DAMAGED = 6347, MRD_UPDATE_REVERTED = 6348, MRD_SLOT_FAILED = 6349 };

enum { MRD_SLOT_RUNNING, MRD_SLOT_OTHER };

/* The two slots of a board, and its boot loader. Each function gets `context`, and returns 0, or another number if it failed. Offsets
 * are those in the image, so 0 is the beginning of a slot's image. */
typedef struct mrd_slots {
    int (*read)(void *context, int slot, uint32_t at, void *bytes, uint32_t size);
    /* Erases the block of the other slot that begins at `at`. */
    int (*erase)(void *context, uint32_t at);
    /* Writes bytes that were erased to the other slot. `at` and `size` are multiples of `unit`; `bytes` may have any address. */
    int (*program)(void *context, uint32_t at, const void *bytes, uint32_t size);
    /* Tells the boot loader to start the other slot once, in the next start, and to go back if it is not confirmed until the start after. */
    int (*start)(void *context);
    /* Whether the firmware that runs waits for being confirmed. */
    bool (*on_trial)(void *context);
    /* The firmware that runs stays. */
    int (*confirm)(void *context);
    void (*reset)(void *context);
    void *context;
    uint32_t bytes;       /* the longest image */
    uint32_t block_bytes; /* what is erased at once: a multiple of `unit` */
    uint16_t unit;        /* the smallest piece that can be programmed: a power of two, 1 to MRD_SLOT_UNIT_MAX */
} mrd_slots;

typedef struct mrd_update {
    /* Set these after mrd_update_begin, if the defaults do not fit. */
    uint32_t trial_ms, quiet_ms;

    /* Private. */
    mrd *device;
    const mrd_slots *slots;
    const char *running; /* the version of the firmware that runs */
    uint64_t seqno;      /* of the last record that was handled */
    uint32_t number, size;
    uint32_t at, mark; /* how much of the image is in the slot; from where on it is written again after a reset */
    uint32_t since;    /* the last piece, or the beginning of the trial */
    uint16_t code, resend;
    uint8_t state;
    bool asked;    /* the host was asked for what follows, which has not come yet */
    bool unsaid;   /* the state is not in the journal yet */
    bool trying;   /* this firmware is on trial */
    bool leaving;  /* the next firmware starts as soon as the host knows it */
    uint8_t sha256[MRW_HASH];
    char version[MRD_VERSION_MAX + 1];
} mrd_update;

/* The rows that the tables of logs and of functions need. Erasing a block and hashing a whole image have to fit into the time limit. */
#define MRD_UPDATE_LOGS {"firmware", 20, MRD_COMMANDS}, {"update", 20, MRD_KEEP}
#define MRD_UPDATE_FUNCTION {"update", mrd_update_run, "firmware", 3, NULL, 30000}

/* Directly after mrd_open. `version` is that of this firmware: 1 to MRD_VERSION_MAX printable characters, without '"' and '\'. One firmware has
 * one mrd_update. Returns 0, or MRD_SETTING_INVALID or MRD_LOG_NOT_FOUND. */
int mrd_update_begin(mrd_update *update, mrd *device, const mrd_slots *slots, const char *version);

/* Confirms a new firmware, starts the next one, or gives up a trial: it may reset the board. Call it after mrd_uplink_step. Returns
 * how many milliseconds the board may sleep. */
uint32_t mrd_update_step(mrd_update *update, const mrd_uplink *uplink);

/* Whether an update makes progress: a board that sleeps now begins a part of it again. If no piece has come for `quiet_ms`, the board may sleep: the host may
 * have lost its connection, or have removed this device. After each start that is so again, and the device asks for what it lacks. */
bool mrd_update_is_busy(const mrd_update *update);

/* The function for the table of functions. */
int mrd_update_run(const struct mr_record *record);

#ifdef __cplusplus
}
#endif

#endif
