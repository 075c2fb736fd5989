/* millrace_device.h - a Millrace namespace on a microcontroller: logs that survive a loss of power at any moment.
 *
 *     static const mrd_log logs[] = {{"raw", 2000, 0}, {"config", 1, MRD_KEEP}};
 *     static uint64_t memory[MRD_WORDS(2, 0, 512)];
 *     static mrd device;
 *
 *     if (mrd_open(&device, &port, logs, 2, NULL, 0, memory, sizeof memory) < 0) complain(device.why);
 *     mrd_append(&device, "raw", "21.5", 4, NULL);
 *
 * C99. Allocates no memory, needs no operating system and calls only memcpy, memmove, memset, memcmp and strlen. One
 * thread makes all calls. A call that fails returns the negative number of an error code, such as -2101 for MR2101;
 * docs/reference/errors.md has the cause and the remedy of each. The format of the flash is spec/formats/device.md.
 */
#ifndef MILLRACE_DEVICE_H
#define MILLRACE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MRD_LOGS_MAX = 32,
    MRD_FUNCTIONS_MAX = 32,
    MRD_NAME_MAX = 64, /* bytes of a name */
    MRD_BURST_MIN = 256,
    MRD_BURST_MAX = 4096,
    MRD_UNIT_MAX = 256,
    MRD_RUN_RECORD_MAX = 256 /* a function gets no longer record: its run fails with MR3124 */
};

enum {
    MRD_NAME_INVALID = -1001,     /* of a log or a function */
    MRD_SEQNO_INVALID = -1003,    /* a seqno is at least 1 */
    MRD_RECORD_TOO_LONG = -1004,  /* it would not fit into a burst, or, in a log with MRD_KEEP, into a catalog */
    MRD_SETTING_INVALID = -1006,  /* an argument of mrd_open; `why` says which */
    MRD_NOT_A_NAMESPACE = -2001,  /* the flash has something else: mrd_erase erases it */
    MRD_FORMAT_UNKNOWN = -2002,   /* a newer firmware wrote the flash */
    MRD_OTHER_NAMESPACE = -2004,  /* the flash belongs to another namespace, or has another geometry: mrd_erase erases it */
    MRD_FLUSH_FAILED = -2009,     /* the flash failed; nothing is written until mrd_open has been called again */
    MRD_RECORD_DAMAGED = -2010,   /* its checksum is wrong */
    MRD_READ_FAILED = -2012,      /* the port could not read */
    MRD_FULL = -2013,             /* the oldest sector is still needed; see on_full */
    MRD_BATCH_TOO_LARGE = -2016,  /* what a run appends does not fit into a burst */
    MRD_LOG_NOT_FOUND = -2101,
    MRD_BELOW_HISTORY = -2104,
    MRD_ABOVE_TAIL = -2105,
    MRD_FUNCTION_NOT_FOUND = -3001
};

/* The flash and the clock of a board. Each function gets `context`, and returns 0, or another number if it failed. */
typedef struct mrd_port {
    int (*read)(void *context, uint32_t at, void *bytes, uint32_t size);
    /* Writes bytes that were erased. `at` and `size` are multiples of `unit`. */
    int (*program)(void *context, uint32_t at, const void *bytes, uint32_t size);
    /* Sets all bytes of the sector that begins at `at` to 0xFF. */
    int (*erase)(void *context, uint32_t at);
    /* Milliseconds since any moment; it may overflow, but not while the board sleeps longer than 49 days. */
    uint32_t (*ms)(void *context);
    void *context;
    const uint8_t *mapped; /* where the area can be read as memory, which is faster, or NULL: then `read` reads it */
    uint32_t sectors;      /* 4 to 65535 */
    uint32_t sector_bytes; /* a power of two, 1 KiB to 256 KiB; all sectors together 8 KiB to 2 GiB */
    uint16_t unit;         /* the smallest piece that can be programmed: a power of two, 1 to 256 */
    uint16_t torn_bytes;   /* what a power failure may damage around an interrupted program: a power of two, `unit` to 256 */
    uint64_t namespace_id; /* of 48 bits, not 0, unique among all namespaces */
    uint8_t reset_reason;  /* of this start, 0 to 31: an MRD_RESET_ */
    /* Memory that keeps its value in a reset, or NULL: with it, a run that resets the board counts as a failed attempt. */
    uint32_t *retained;
    /* Calls call(argument) on a stack of its own, for at most this many milliseconds, and returns 0; or an MRD_RUN_ if it
     * ended the call. NULL: functions run on the caller's stack, without a limit. See mrd_may_end, and port/ for such ports. */
    int (*run_on)(void *context, void (*call)(void *argument), void *argument, uint32_t limit_ms);
} mrd_port;

/* Why a port ended a function; the numbers are those of error codes. */
enum { MRD_RUN_STACK = 3106, MRD_RUN_TIMEOUT = 3107, MRD_RUN_FAULT = 3111 };

enum { MRD_RESET_UNKNOWN, MRD_RESET_POWER, MRD_RESET_BROWN_OUT, MRD_RESET_WATCHDOG, MRD_RESET_SOFTWARE, MRD_RESET_PIN };

/* The newest record of this log is never dropped, however old it is. */
#define MRD_KEEP 1
/* A host may append to this log: such records are commands. */
#define MRD_COMMANDS 2

typedef struct mrd_log {
    const char *name;
    uint32_t history; /* how many of its newest records can be read, as long as the flash holds them */
    uint8_t flags;    /* MRD_KEEP, MRD_COMMANDS, both, or 0 */
} mrd_log;

struct mr_record;

typedef struct mrd_function {
    const char *name;
    int (*run)(const struct mr_record *record); /* written with sdk/c/millrace.h, and compiled with MILLRACE_DEVICE */
    const char *on;                             /* the log whose records run it */
    uint8_t attempts;                           /* 1 to 15; 0 means 3 */
    const char *dead_letter;                    /* the log that gets the records whose runs failed, or NULL */
    uint32_t timeout_ms;                        /* how long an attempt may take, if the port has run_on; 0 means 1000 */
} mrd_function;

/* An event of another namespace, as 16 bytes of spec/formats/journal.md. */
typedef struct mrd_cause {
    uint8_t id[16];
} mrd_cause;

/* What happens when the flash is full of entries that no host has; see mrd_delivered. */
enum { MRD_DROP, MRD_REFUSE };

/* Private. */
enum { MRD_VERIFIED = 4, MRD_SENDERS = 2, MRD_RECENT = 16 };

/* A namespace that sends commands, and the number of its last one that the journal has. */
typedef struct mrd_sender_ {
    uint64_t namespace_id, number, life, life_id;
} mrd_sender_;

typedef struct mrd_log_state_ {
    uint64_t seqno; /* of the newest record, 0 if there is none */
    uint32_t last;  /* where the newest record is */
    uint32_t base;  /* where the newest record was when the sector was begun */
    uint32_t bound; /* the most bytes that the runs of one record take */
    uint16_t most;  /* bytes of a record */
    uint8_t triggers; /* how many functions are bound to it */
} mrd_log_state_;

/* Where a record of the newest sector is that was appended since the start. */
typedef struct mrd_recent_ {
    uint32_t body; /* its payload */
    uint16_t size;
    uint8_t log;   /* its number plus 1; 0: none */
} mrd_recent_;

typedef struct mrd_function_state_ {
    uint8_t attempt; /* how many attempts of the first pending run have failed */
    uint8_t fired;   /* the last attempt of it that began and has a FIRED in flash, or 0 */
    uint8_t full;    /* how often its end found no room */
    uint8_t on;
    uint16_t here;   /* how many records of its log are in the burst `counted` */
    uint32_t cursor; /* a burst: the first pending record is in it, or behind it */
    uint32_t skip;   /* how many records of its log, from the cursor on, it has handled */
    uint32_t pending;
    uint32_t ended;
    uint32_t epoch;      /* of `sequence` */
    uint32_t not_before; /* when the next attempt may begin, in milliseconds of the port */
    uint64_t sequence;   /* of the first entry of the burst at `cursor` */
} mrd_function_state_;

typedef struct mrd {
    /* Set these after mrd_open, if the defaults do not fit. */
    uint8_t on_full;        /* MRD_DROP: the oldest records are dropped. MRD_REFUSE: appends are refused with MRD_FULL. */
    uint32_t write_back_ms; /* how long an append may wait in memory for others to be written with it: 2000 */
    /* After a refusal of mrd_open: the reason, as text. */
    const char *why;

    /* Private. In this order, because a Cortex-M reaches the first bytes of a structure with shorter instructions, and the more of them the
     * wider they are. */
    bool opening, failed;
    uint8_t log_count, function_count, keep_count;
    uint8_t turn, next_verified, next_recent;
    bool commands; /* a log has MRD_COMMANDS */
    uint8_t named; /* the senders whose namespaces and lives the journal has, as bits */
    bool careful;  /* the last run reset the board: each end of a run is flushed before the next run */
    uint16_t burst_bytes, used, grain;
    const mrd_port *port;
    const mrd_log *logs;
    const mrd_function *functions;
    mrd_log_state_ *log;
    mrd_function_state_ *function;
    uint8_t *burst;
    uint32_t sector; /* the address of the newest sector, whose number is `serial` */
    uint32_t serial, oldest, unsent, head, crc, counted; /* `unsent`: the oldest sector with entries that no host has */
    uint32_t own;  /* the sectors from this one on have the definitions of this firmware */
    uint32_t room; /* what a sector has behind its catalog, except that its end may be too short for a burst */
    uint32_t needed; /* the most bytes that all pending runs take */
    uint32_t uptime_ms, staged_ms;
    uint32_t epoch, epoch_before, burst_epoch;
    uint32_t lost_bytes;
    uint64_t sequence, durable, sent, held, damaged_from;
    uint64_t clock, uptime, burst_sequence;
    uint64_t jumped_ms; /* by how much the clock was corrected since the start */
    mrd_sender_ sender[MRD_SENDERS];
    uint32_t verified[MRD_VERIFIED], verified_end[MRD_VERIFIED]; /* old sectors whose checksums were verified, and how far */
    mrd_recent_ recent[MRD_RECENT];
} mrd;

/* The length of the array of uint64_t that mrd_open needs; `burst_bytes` is a multiple of 8 and of torn_bytes. */
#define MRD_WORDS(logs, functions, burst_bytes) \
    (((logs) * sizeof(mrd_log_state_) + (functions) * sizeof(mrd_function_state_) + (burst_bytes)) / 8)

/* Opens the namespace, or creates it if the flash is blank. Reads the flash and writes nothing. `port`, `logs` and
 * `functions` must stay valid. `memory_bytes` is exactly what MRD_WORDS gave for these numbers of logs and functions. */
int mrd_open(mrd *device, const mrd_port *port, const mrd_log *logs, unsigned log_count, const mrd_function *functions,
             unsigned function_count, void *memory, size_t memory_bytes);

/* Erases the whole area. Everything in it is lost, and the next mrd_open creates an empty namespace. */
int mrd_erase(const mrd_port *port);

/* Appends a record and returns its seqno. It is in memory until the next flush: within write_back_ms, if mrd_step is
 * called as often as it asks for, or in mrd_sync. `cause` is the event that caused it, or NULL. */
int64_t mrd_append(mrd *device, const char *log, const void *data, size_t size, const mrd_cause *cause);

/* Writes everything that was appended before to the flash. */
int mrd_sync(mrd *device);

/* Copies at most `capacity` bytes of a record, and returns the length of the whole record. */
int64_t mrd_get(mrd *device, const char *log, uint64_t seqno, void *buffer, size_t capacity);

/* The seqno of the newest record, 0 if there is none. */
int64_t mrd_latest(const mrd *device, const char *log);

/* How long mrd_step lets a board sleep that has nothing to do: an hour. */
#define MRD_IDLE_MS 3600000

/* Runs at most one function, and flushes if it is time; returns how many milliseconds the board may sleep before it must
 * call this again, or an error. */
int64_t mrd_step(mrd *device);

/* For a port with run_on, in its interrupt: whether the function that runs may be ended now. If not, it is in a call of this
 * library, which would leave the journal half changed. After a timeout, ask again in the next interrupt: the call does not
 * return to the function any more, and waits for that. After a fault, which would occur again, reset the board instead. */
bool mrd_may_end(void);

/* Tells the time, in milliseconds since 1970. The clock never goes back: an earlier time changes nothing. Neither does one from 2^42 on, which
 * is in the year 2109 or later, and therefore wrong. */
int mrd_set_clock(mrd *device, uint64_t ms);

/* The clock: milliseconds since 1970, or, until it is told the time, since the clock of the last start. */
uint64_t mrd_clock(mrd *device);

/* What a device keeps while it sleeps, in memory that survives: a wake then costs no new epoch and wastes no flash. */
typedef struct mrd_nap {
    uint64_t words[11];
} mrd_nap;

/* Flushes, and fills `nap`. Then the board may lose all other memory, and power as well: then it starts as after any loss. */
int mrd_sleep(mrd *device, mrd_nap *nap);

/* Directly after mrd_open: goes on as if the device had not slept, if `nap` is that of the last mrd_sleep, and returns true. The
 * nap cannot be used a second time. `slept_ms` is how long it slept, 0 if that is not known, as it is for 2^42 and more. */
bool mrd_wake(mrd *device, mrd_nap *nap, uint64_t slept_ms);

/* Notes that a host has all entries up to this one, so that their sectors may be used again. */
void mrd_delivered(mrd *device, uint64_t sequence);

typedef struct mrd_status {
    uint64_t sequence;     /* of the next entry */
    uint64_t durable;      /* of the first entry that is not in flash */
    uint64_t held;         /* of the oldest entry in flash */
    uint64_t delivered;    /* of the last entry that a host has */
    uint64_t lost;         /* how many entries were dropped before a host had them */
    uint64_t damaged_from; /* at the last start, entries from this one on had a wrong checksum; 0 if none had */
    uint32_t epoch;
    uint32_t sectors; /* in use */
    uint32_t erases;  /* since the area was first used */
    uint32_t pending; /* records that wait for a function */
} mrd_status;

void mrd_stat(mrd *device, mrd_status *status);

#ifdef __cplusplus
}
#endif

#endif
