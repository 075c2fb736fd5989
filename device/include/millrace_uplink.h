/* millrace_uplink.h - sends the journal of a device to a host, whenever one can be reached.
 *
 *     static mrd_uplink uplink;
 *     mrd_uplink_begin(&uplink, &device, &line, "kitchen", token, token_size);
 *     for (;;) {
 *         ...
 *         uint32_t step = mrd_step(&device), send = mrd_uplink_step(&uplink);
 *         board_sleep(step < send ? step : send);
 *     }
 *
 * The host gets each entry that was flushed once, in order, however often the line breaks. It may send commands: records for
 * logs with MRD_COMMANDS, each of which the journal gets once, and which the host regards as delivered when they are in flash. Nothing is allocated, no call
 * waits, and the same thread calls this as all of millrace_device.h. Needs sdk/c/wire.
 */
#ifndef MILLRACE_UPLINK_H
#define MILLRACE_UPLINK_H

#include "channel.h"
#include "millrace_guard.h"
#include "millrace_device.h"
#include "wire.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MRD_FRAME_MAX = 600,    /* bytes of a frame to the host, with its length */
    MRD_PIECE_MAX = 512,    /* bytes of the journal in it */
    MRD_ANSWER_MAX = 1024,  /* what is kept of what a host sends: frames of at most 448 bytes, and a record of the channel; longer ones end the connection */
    MRD_SILENT_MS = 60000,  /* an answer that takes longer than this ends the connection */
    MRD_REPEAT_MS = 500,    /* after so long without an answer, the line repeats what it sent last; then after twice as long, and so on */
    MRD_RETRY_MS = 1000,    /* before the first new attempt to connect; each further one waits twice as long */
    MRD_RETRY_MAX_MS = 300000
};

/* A connection to a host, such as one of TCP. No call waits. */
typedef struct mrd_line {
    /* Begins a connection. Returns 0, or another number if that is not possible now. */
    int (*open)(void *context);
    /* Both return how many bytes were sent or received, 0 if none can be now, or -1 if the connection is lost. */
    long (*send)(void *context, const void *bytes, size_t size);
    long (*receive)(void *context, void *bytes, size_t size);
    void (*close)(void *context);
    /* Random bytes, never the same again. Returns 0. Not needed without a token. */
    int (*random)(void *context, void *bytes, size_t size);
    void *context;
    /* Whether a host asks for a connection now, however long the next attempt would wait; `open` answers. NULL: none ever does. */
    bool (*called)(void *context);
    /* Sends the last bytes again, if that can do no harm: they, or the answer to them, may have been lost. NULL: nothing is ever lost. */
    void (*repeat)(void *context);
} mrd_line;

typedef struct mrd_uplink mrd_uplink;
struct mrd_uplink {
    int error;           /* the negative number of the last error, 0 after an answer of the host */
    uint64_t delivered;  /* the sequence of the last entry that the host has */
    bool attached;       /* the host has accepted the device */
    bool idle;           /* the host has everything that is in flash */

    /* Private. In this order, because a Cortex-M reaches the first bytes of a structure with shorter instructions. */
    uint8_t state, tries, sender;
    bool has_sector;
    mrd *device;
    const mrd_line *line;
    const char *name;
    const uint8_t *token;
    size_t token_bytes;
    uint32_t since, wait_ms; /* of the port's clock */
    uint32_t repeat_ms;      /* after so long without an answer, the line repeats */
    uint32_t serial, at, end, walk_at, walk_crc; /* the piece that is sent next, and where its sector is walked */
    uint32_t piece;                              /* bytes of the piece that was sent */
    mrd_guard *guard;
    bool (*remote)(mrd_uplink *uplink, const mrw_frame *frame); /* answers other requests, and returns whether it knows this one */
    size_t out_at, out_end, in_sealed, in_plain;
    uint64_t request;
    uint64_t link; /* the number of the host's request LINK, 0 if there was none */
    mrw_channel channel;
    uint8_t out[MRD_FRAME_MAX + MRW_RECORD_HEAD + MRW_TAG];
    uint8_t in[MRD_ANSWER_MAX];

    /* What the host said about the error. */
    char detail[96];
};

/* `device`, `line`, `name` and `token` must stay valid. `name` is that of the device at the host. A token is a capability in
 * its binary form, and encrypts everything; without one, `token` is NULL, and only a host at a loopback address answers. */
void mrd_uplink_begin(mrd_uplink *uplink, mrd *device, const mrd_line *line, const char *name, const uint8_t *token,
                      size_t token_bytes);

/* From now on, commands need a capability of the device's own key, which the host presents in the channel: `link` on the namespace
 * and `append` on each log. Without a guard, a host that knows the device's token may send them. Call it after mrd_uplink_begin. */
void mrd_uplink_guard(mrd_uplink *uplink, mrd_guard *guard);

/* Ends the connection, before the device sleeps. The next mrd_uplink_step connects again. */
void mrd_uplink_end(mrd_uplink *uplink);

/* Connects, sends and receives as much as is possible now. Returns how many milliseconds the device may sleep before it
 * must call this again; it may call it earlier, and does so when bytes have arrived. */
uint32_t mrd_uplink_step(mrd_uplink *uplink);

#ifdef __cplusplus
}
#endif

#endif
