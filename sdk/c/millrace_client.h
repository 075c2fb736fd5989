/* millrace_client.h - a program in C that appends to and reads from a namespace, on this machine or another one.
 *
 *     mrc_client *client;
 *     mrc_error error;
 *     if (mrc_open(&client, "mr://127.0.0.1:7070/farm", NULL, &error) < 0) return complain(&error);
 *     if (mrc_append(client, "raw/kitchen", "21.5", 4, NULL, NULL) < 0) complain(mrc_error_of(client));
 *     mrc_close(client);
 *
 * Another machine is reached with a capability, which is the key of an encrypted channel: mrc_options.capability.
 *
 * Compile:  cc app.c sdk/c/[a-z]*.c sdk/c/wire/[a-z]*.c -Isdk/c        any namespace that a host serves
 *           or `make -C sdk/c local` and link libmillrace_local.a     also a namespace's own files
 *
 * Rules. A call that fails returns a negative number, -2101 for MR2101 (errors.h names them all), and mrc_error_of has
 * the details; a call that succeeds returns 0 or more. A client belongs to one thread at a time; open one for each
 * thread. Results that point into the client's memory (a record's data, an error's text) are valid until its next call.
 * `how` may be NULL everywhere. Text ends in zero. This header is not the one for functions: that is millrace.h.
 */
#ifndef MILLRACE_CLIENT_H
#define MILLRACE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Smaller values, the same for all sources, save memory on small machines. */
#ifndef MRC_BATCH_MAX
#define MRC_BATCH_MAX 1024 /* records of one mrc_append_many; 32 bytes of stack each */
#endif
#ifndef MRC_WINDOW_MAX
#define MRC_WINDOW_MAX 1024 /* appends that mrc_append_nowait leaves unanswered; 8 bytes of the client each */
#endif
#define MRC_ID_TEXT_MAX 40  /* an id as text, without the zero */
#define MRC_NAME_MAX 64

typedef struct mrc_client mrc_client;

typedef enum mrc_durability {
    MRC_AS_NAMESPACE, /* the namespace's durability, by default disk */
    MRC_MEMORY,       /* survives the death of every process */
    MRC_DISK          /* survives a power failure */
} mrc_durability;

/* The id of an event, little-endian; all zeros is none. */
typedef struct mrc_id {
    uint8_t bytes[16];
} mrc_id;

typedef struct mrc_error {
    int number;              /* as it was returned: -2101 */
    char code[8];            /* "MR2101" */
    bool may_retry;          /* the same call may succeed later, ... */
    uint32_t retry_after_ms; /* ... after this time */
    char detail[240];        /* the details, without control characters; truncated if longer */
} mrc_error;

typedef struct mrc_record {
    uint64_t seqno;
    mrc_id id;
    uint64_t hlc;     /* when it was appended: microseconds since 1970, times 4096, plus a count */
    mrc_id cause;     /* the run that appended it, if any */
    const void *data; /* in the client's memory */
    size_t size;
} mrc_record;

typedef struct mrc_receipt {
    uint64_t seqno;
    mrc_id id;
} mrc_receipt;

/* ------------------------------------------------------------------------------------------- opening and closing */

/* Zero means the default. */
typedef struct mrc_options {
    size_t receive_bytes;        /* longest answer, default 16 MiB + 64 KiB, at least 4 KiB; only touched as needed */
    size_t send_bytes;           /* send buffer, default 64 KiB, at least 1 KiB; does not limit records */
    uint32_t connect_timeout_ms; /* default 5000 */
    uint32_t request_timeout_ms; /* default 30000, in addition to the request's own wait */
    uint32_t window;             /* appends without waiting that may be unanswered, default 256 */
    void *memory;                /* where the client lives: NULL for one malloc in mrc_open, the only one there is */
    size_t memory_bytes;
    const char *name; /* of the program, for people */
    /* The capability for an mr:// address: "mr1_…", kept by the program as long as the client. NULL: the text of the file
     * that $MILLRACE_CAPABILITY names, if it names one. */
    const char *capability;
    size_t channel_bytes; /* longest record of the channel; default 16 KiB, 1 KiB if receive_bytes is below 64 KiB */
} mrc_options;

/* The memory that a client with these options needs; with a capability, two more records of the channel. */
size_t mrc_memory_bytes(const mrc_options *options);

/* Opens a place: the directory of a namespace, mr://HOST[:PORT]/NAMESPACE, or unix:PATH of a host's socket. A directory
 * is opened by its files if the program has the local part, else through the host that serves it. Fills `error`, if it
 * is not NULL, when it fails; *client is then NULL. */
int mrc_open(mrc_client **client, const char *place, const mrc_options *options, mrc_error *error);

/* Whether the client can be used. A refusal such as MRC_CONNECTION_LOST, MRC_PEER_SILENT or MRC_REQUEST_TIMEOUT ends
 * the connection, because the outcome of requests in progress is unknown. */
bool mrc_connected(const mrc_client *client);

/* Connects again. Appends with a key can then be repeated safely. */
int mrc_reconnect(mrc_client *client);

/* Closes and frees; NULL is allowed. Drain first what must not be lost. */
void mrc_close(mrc_client *client);

typedef struct mrc_info {
    char name[MRC_NAME_MAX + 1]; /* of the namespace on its host; of a local one, its directory's */
    uint64_t namespace_id;
    uint32_t epoch;
    size_t record_max_bytes;
    mrc_durability durability;
    bool local; /* by its files */
} mrc_info;

const mrc_info *mrc_info_of(const mrc_client *client);

/* The error of the last call that failed. */
const mrc_error *mrc_error_of(const mrc_client *client);

/* Why errors of a code, such as "MR2101", arise, and what to do: whole sentences. NULL if this version knows no
 * such. */
const char *mrc_cause(const char *code);
const char *mrc_remedy(const char *code);

/* ------------------------------------------------------------------------------------------------------ appending */

typedef struct mrc_append_options {
    mrc_durability durability; /* the call returns when the record has it */
    const char *function;      /* one more function to run, besides those bound to the log */
    const char *key;           /* idempotency key, 1 to 128 bytes: a repeated append gets the first answer */
    mrc_id cause;
} mrc_append_options;

typedef struct mrc_new_record {
    const char *log;
    const void *data;
    size_t size;
} mrc_new_record;

/* Appends one record. `receipt` may be NULL. */
int mrc_append(mrc_client *client, const char *log, const void *data, size_t size, const mrc_append_options *how,
               mrc_receipt *receipt);

/* Appends all of the records or none. `receipts`, one for each, may be NULL. There is no function to name here. */
int mrc_append_many(mrc_client *client, const mrc_new_record *records, size_t count, const mrc_append_options *how,
                    mrc_receipt *receipts);

/* Appends without waiting for the answer, unless as many as the window allows are unanswered. Returns a ticket, or a
 * refusal of this one. The callback of mrc_on_appended gets the outcome of each. Other calls may come in between. */
int64_t mrc_append_nowait(mrc_client *client, const char *log, const void *data, size_t size,
                          const mrc_append_options *how);

/* Sends everything, waits for every answer, and returns 0, or the first refusal since the last drain. */
int mrc_drain(mrc_client *client);

/* `status` is 0, and there is a receipt, or a refusal, and mrc_error_of says more. It must not call the client. */
typedef void mrc_appended(void *context, int64_t ticket, int status, const mrc_receipt *receipt);
void mrc_on_appended(mrc_client *client, mrc_appended *call, void *context);

/* -------------------------------------------------------------------------------------------------------- reading */

typedef struct mrc_reading {
    uint32_t wait_ms;          /* how long to wait for a record that is not there yet */
    mrc_durability durability; /* that the records must have */
} mrc_reading;

/* Reads one record; seqno 0 is the newest. */
int mrc_get(mrc_client *client, const char *log, uint64_t seqno, const mrc_reading *how, mrc_record *record);

/* Records in order, to be taken by mrc_next. */
typedef struct mrc_records {
    uint32_t incarnation; /* of the log: a recreated log has another one */
    uint64_t next;        /* the `from` of the next call */
    uint32_t count;       /* not taken yet */
    const mrc_record *list; /* private, as is the rest */
    const void *packed;
    size_t packed_size;
} mrc_records;

/* Reads at most `count` records from `from` on, and as many as fit an answer; none at the log's end. */
int mrc_range(mrc_client *client, const char *log, uint64_t from, uint32_t count, const mrc_reading *how,
              mrc_records *records);

/* Takes the next; false after the last. */
bool mrc_next(mrc_records *records, mrc_record *record);

/* The newest sequence number, 0 if there is none. With how->wait_ms, once it is above `above` or the time is over. */
int mrc_latest(mrc_client *client, const char *log, uint64_t above, const mrc_reading *how, uint64_t *seqno);

/* The position of a reader. All zeros: from now on. {0, N}: from record N on. */
typedef struct mrc_cursor {
    uint32_t incarnation;
    uint64_t from;
} mrc_cursor;

/* Follows a log from a cursor on. Until mrc_tail_end the client does nothing else. */
int mrc_tail(mrc_client *client, const char *log, mrc_cursor from, const mrc_reading *how);

/* 1 and the next record, 0 if none came within `wait_ms`, or a refusal, which ends the tail. */
int mrc_tail_next(mrc_client *client, uint32_t wait_ms, mrc_record *record);

/* The cursor after the last record that was taken. Store it to resume the tail there later. */
mrc_cursor mrc_tail_cursor(const mrc_client *client);

int mrc_tail_end(mrc_client *client);

/* ------------------------------------------------------------------------------------------------------------ logs */

/* A log with this history keeps its records until they are trimmed. */
#define MRC_HISTORY_ALL ((uint64_t)1 << 62)

/* Creates a log that keeps its `history` newest records. An existing log with the same attributes stays unchanged. */
int mrc_create_log(mrc_client *client, const char *log, uint64_t history);

/* Changes how many of its newest records a log keeps. A shorter history drops the records beyond it at once; a longer
 * one does not bring them back. */
int mrc_set_history(mrc_client *client, const char *log, uint64_t history);

/* Removes a log that no function is bound to. */
int mrc_remove_log(mrc_client *client, const char *log);

typedef struct mrc_log_stat {
    uint64_t history, earliest, latest; /* 0: no records */
} mrc_log_stat;

int mrc_stat_log(mrc_client *client, const char *log, mrc_log_stat *stat);

/* Cancels a run that has not ended. It publishes nothing more, its process is stopped, and it is neither retried nor
 * left as a dead letter; what a streamed run has published stays. MRC_RUN_OVER if it has ended. */
int mrc_cancel_run(mrc_client *client, const mrc_id *run);

/* A document as JSON, such as "logs", "functions/smooth", "runs?limit=10". `*json` ends in zero. It is made by a host;
 * a client of files asks the one that serves them. */
int mrc_show(mrc_client *client, const char *path, const char **json, size_t *size);

/* ------------------------------------------------------------------------------------------------------------- ids */

/* NAMESPACE-EPOCH-SEQUENCE in hexadecimal, "-" for none. */
void mrc_id_text(const mrc_id *id, char text[MRC_ID_TEXT_MAX + 1]);

/* The other way round; 0, or MRC_EVENT_ID_INVALID. */
int mrc_id_parse(const char *text, mrc_id *id);

#ifdef __cplusplus
}
#endif
#endif
