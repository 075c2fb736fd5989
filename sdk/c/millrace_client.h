/* millrace_client.h - a program in C that appends to and reads from a namespace, on this machine or another one.
 *
 *     mrc_client *client;
 *     mrc_error error;
 *     if (mrc_open(&client, "mr://127.0.0.1:7070/farm", NULL, &error) < 0) return complain(&error);
 *     if (mrc_append(client, "raw/kitchen", "21.5", 4, NULL, NULL) < 0) complain(mrc_error_of(client));
 *     mrc_close(client);
 *
 * To reach another machine, set mrc_options.capability: the capability is also the key of an encrypted channel.
 *
 * Compile:  cc app.c sdk/c/[a-z]*.c sdk/c/wire/[a-z]*.c -Isdk/c        any namespace that a host serves
 *           or `make -C sdk/c local` and link libmillrace_local.a     also a namespace's own files
 *
 * Rules. A call that fails returns a negative number, such as -2101 for MR2101 (errors.h names them all), and mrc_error_of
 * has the details. A call that succeeds returns 0 or more. A client belongs to one thread at a time; open one for each
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
#define MRC_BATCH_MAX 1024 /* most records of one mrc_append_many; each takes 32 bytes of stack */
#endif
#ifndef MRC_WINDOW_MAX
#define MRC_WINDOW_MAX 1024 /* most unanswered appends of mrc_append_nowait; each takes 8 bytes of the client */
#endif
#define MRC_ID_TEXT_MAX 40  /* an id as text, without the zero */
#define MRC_NAME_MAX 64

typedef struct mrc_client mrc_client;

typedef enum mrc_durability {
    MRC_AS_NAMESPACE, /* the namespace's durability, by default disk */
    MRC_MEMORY,       /* survives the death of every process */
    MRC_DISK          /* survives a power failure */
} mrc_durability;

/* The id of an event, little-endian; all zeros mean that there is none. */
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
    size_t receive_bytes;        /* longest answer, default 16 MiB + 64 KiB, at least 4 KiB; memory is used only as needed */
    size_t send_bytes;           /* send buffer, default 64 KiB, at least 1 KiB; does not limit records */
    uint32_t connect_timeout_ms; /* default 5000 */
    uint32_t request_timeout_ms; /* default 30000, in addition to the request's own wait */
    uint32_t window;             /* most unanswered appends of mrc_append_nowait, default 256 */
    void *memory;                /* memory for the client; with NULL, mrc_open calls malloc once, and nothing else does */
    size_t memory_bytes;
    const char *name; /* the program's name, which the host shows to people */
    /* The capability for an mr:// address: "mr1_…", which the program must keep as long as the client. NULL: the text of
     * the file that $MILLRACE_CAPABILITY names, if it is set. */
    const char *capability;
    size_t channel_bytes; /* longest record of the channel; default 16 KiB, 1 KiB if receive_bytes is below 64 KiB */
} mrc_options;

/* The number of bytes that a client with these options needs; with a capability, two records of the channel more. */
size_t mrc_memory_bytes(const mrc_options *options);

/* Opens a place: the directory of a namespace, mr://HOST[:PORT]/NAMESPACE, or unix:PATH of a host's socket. A directory
 * is opened by its files if the program is linked with libmillrace_local.a, otherwise through the host that serves it. If
 * the call fails, *client is NULL, and `error` has the details, if it is not NULL. */
int mrc_open(mrc_client **client, const char *place, const mrc_options *options, mrc_error *error);

/* Whether the client can be used. A refusal such as MRC_CONNECTION_LOST, MRC_PEER_SILENT or MRC_REQUEST_TIMEOUT ends
 * the connection, because the outcome of requests in progress is unknown. */
bool mrc_connected(const mrc_client *client);

/* Connects again. Appends with a key can then be repeated safely. */
int mrc_reconnect(mrc_client *client);

/* Closes and frees the client; NULL is allowed. Call mrc_drain first, so that no unanswered append is lost. */
void mrc_close(mrc_client *client);

typedef struct mrc_info {
    char name[MRC_NAME_MAX + 1]; /* of the namespace on its host; of a local one, of its directory */
    uint64_t namespace_id;
    uint32_t epoch;
    size_t record_max_bytes;
    mrc_durability durability;
    bool local; /* opened by its files */
} mrc_info;

const mrc_info *mrc_info_of(const mrc_client *client);

/* The error of the last call that failed. */
const mrc_error *mrc_error_of(const mrc_client *client);

/* The cause and the remedy of a code such as "MR2101", in whole sentences. NULL if this version does not know the
 * code. */
const char *mrc_cause(const char *code);
const char *mrc_remedy(const char *code);

/* ------------------------------------------------------------------------------------------------------ appending */

typedef struct mrc_append_options {
    mrc_durability durability; /* the call returns when the record has this durability */
    const char *function;      /* one more function to run, besides those bound to the log */
    const char *key;           /* idempotency key, 1 to 128 bytes: a repeated append has the result of the first one */
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

/* Appends all of the records or none. `receipts`, one for each, may be NULL. how->function must be NULL. */
int mrc_append_many(mrc_client *client, const mrc_new_record *records, size_t count, const mrc_append_options *how,
                    mrc_receipt *receipts);

/* Appends without waiting for the answer, unless the maximum number of appends (the window) is unanswered. Returns a
 * ticket, or a refusal of this append. The callback of mrc_on_appended gets the outcome of each append. Other calls can be
 * made before the answer. */
int64_t mrc_append_nowait(mrc_client *client, const char *log, const void *data, size_t size,
                          const mrc_append_options *how);

/* Sends everything, waits for every answer, and returns 0, or the first refusal since the last drain. */
int mrc_drain(mrc_client *client);

/* `status` is 0, and there is a receipt; or it is a refusal, and mrc_error_of has the details. The callback must not use the
 * client for anything else. */
typedef void mrc_appended(void *context, int64_t ticket, int status, const mrc_receipt *receipt);
void mrc_on_appended(mrc_client *client, mrc_appended *call, void *context);

/* -------------------------------------------------------------------------------------------------------- reading */

typedef struct mrc_reading {
    uint32_t wait_ms;          /* how long to wait for a record that does not exist yet */
    mrc_durability durability; /* the durability that the records must have */
} mrc_reading;

/* Reads one record; seqno 0 is the newest. */
int mrc_get(mrc_client *client, const char *log, uint64_t seqno, const mrc_reading *how, mrc_record *record);

/* Records in order; mrc_next returns them one by one. */
typedef struct mrc_records {
    uint32_t incarnation; /* of the log: a recreated log has another one */
    uint64_t next;        /* the `from` of the next call */
    uint32_t count;       /* records that mrc_next has not returned yet */
    const mrc_record *list; /* private, as is the rest */
    const void *packed;
    size_t packed_size;
} mrc_records;

/* Reads at most `count` records from `from` on, as many as fit into one answer; none at the log's end. */
int mrc_range(mrc_client *client, const char *log, uint64_t from, uint32_t count, const mrc_reading *how,
              mrc_records *records);

/* Returns the next record in `record`; returns false after the last one. */
bool mrc_next(mrc_records *records, mrc_record *record);

/* The newest sequence number, 0 if there is none. With how->wait_ms, waits until it is above `above` or the time is over. */
int mrc_latest(mrc_client *client, const char *log, uint64_t above, const mrc_reading *how, uint64_t *seqno);

/* The position of a reader. All zeros: from now on. {0, N}: from record N on. */
typedef struct mrc_cursor {
    uint32_t incarnation;
    uint64_t from;
} mrc_cursor;

/* Follows a log from a cursor on. Until mrc_tail_end, the client can do nothing else. */
int mrc_tail(mrc_client *client, const char *log, mrc_cursor from, const mrc_reading *how);

/* Returns 1 and the next record, or 0 if none arrived within `wait_ms`, or a refusal, which ends the tail. */
int mrc_tail_next(mrc_client *client, uint32_t wait_ms, mrc_record *record);

/* The cursor after the last record that mrc_tail_next returned. Store it to resume the tail there later. */
mrc_cursor mrc_tail_cursor(const mrc_client *client);

int mrc_tail_end(mrc_client *client);

/* ------------------------------------------------------------------------------------------------------------ logs */

/* A log with this history keeps its records until they are trimmed. */
#define MRC_HISTORY_ALL ((uint64_t)1 << 62)

/* Creates a log that keeps its `history` newest records. If the log exists with the same history, nothing changes. */
int mrc_create_log(mrc_client *client, const char *log, uint64_t history);

/* Changes how many of its newest records a log keeps. A shorter history drops the records beyond it at once; a longer
 * one does not restore them. */
int mrc_set_history(mrc_client *client, const char *log, uint64_t history);

/* Removes a log that no function is bound to. */
int mrc_remove_log(mrc_client *client, const char *log);

typedef struct mrc_log_stat {
    uint64_t history, earliest, latest; /* 0: no records */
} mrc_log_stat;

int mrc_stat_log(mrc_client *client, const char *log, mrc_log_stat *stat);

/* Cancels a run that has not ended. It publishes nothing more, its process is stopped, it is not retried, and it leaves
 * no dead letter; what a streamed run has published stays. Returns MRC_RUN_OVER if the run has ended. */
int mrc_cancel_run(mrc_client *client, const mrc_id *run);

/* A document as JSON, such as "logs", "functions/smooth", "runs?limit=10". `*json` ends in zero. A host
 * creates the document; a client that uses files requests it from the host that serves them. */
int mrc_show(mrc_client *client, const char *path, const char **json, size_t *size);

/* ------------------------------------------------------------------------------------------------------------- ids */

/* NAMESPACE-EPOCH-SEQUENCE in hexadecimal, "-" for none. */
void mrc_id_text(const mrc_id *id, char text[MRC_ID_TEXT_MAX + 1]);

/* Reads such a text. Returns 0, or MRC_EVENT_ID_INVALID. */
int mrc_id_parse(const char *text, mrc_id *id);

#ifdef __cplusplus
}
#endif
#endif
