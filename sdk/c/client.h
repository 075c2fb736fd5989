/* client.h - declarations that the sources of the client share. Programs include millrace_client.h. */
#ifndef MILLRACE_CLIENT_INTERNAL_H
#define MILLRACE_CLIENT_INTERNAL_H

#include "millrace_client.h"
#include "wire/channel.h"
#include "wire/wire.h"

/* As in spec/errors.toml. */
#define MRC_LOG_NAME_BYTES_MAX 255

typedef enum mrc_kind { MRC_DIRECTORY, MRC_TCP, MRC_UNIX } mrc_kind;

/* The parsed address of a namespace. */
typedef struct mrc_place {
    mrc_kind kind;
    uint16_t port;
    char name[MRC_NAME_MAX + 1]; /* of the namespace; empty: the only one */
    char at[512];                /* a directory, a host, or a socket's path */
} mrc_place;

/* A log that is followed. */
typedef struct mrc_following {
    bool open;
    uint64_t request;
    uint32_t credit, taken; /* how many records the host may send; how many it has sent since */
    mrc_records batch;
    mrc_cursor cursor;
    mrc_durability durability;
    char log[MRC_LOG_NAME_BYTES_MAX + 1];
} mrc_following;

struct mrc_client {
    mrc_error error;
    mrc_info info;
    mrc_place place;
    const char *program;
    uint32_t connect_timeout_ms, request_timeout_ms;
    bool owns_memory, in_callback;

    void *local; /* the namespace's files; NULL: a connection */

    int fd; /* -1: none */
    uint64_t next_request, hlc;
    size_t frame_max; /* the longest frame that the host accepts */
    /* Received bytes are at [in_begin, in_end); the result of the last call points into the first `held` of them. Encrypted
     * bytes follow, up to in_sealed. A frame has at most in_capacity bytes; the rest is for a record of the channel. */
    uint8_t *in;
    size_t in_capacity, in_bytes, in_begin, in_end, in_sealed, held;
    uint64_t skip; /* bytes to skip: they belong to an answer that is too long */
    uint8_t *out;  /* to be sent: out_size bytes, unsent_appends frames */
    size_t out_capacity, out_size;
    uint32_t unsent_appends;
    const char *capability; /* NULL: that of MILLRACE_CAPABILITY */
    bool secure;            /* whether a channel is open */
    mrw_channel channel;
    uint8_t *sealing; /* a record that is being encrypted */
    size_t record_bytes;
    uint64_t silent_ms, ping; /* the time without received bytes; the number of an unanswered PING, or 0 */

    /* Appends without waiting: the request in slot `request % window`, or 0. */
    uint64_t pending[MRC_WINDOW_MAX];
    uint32_t window_asked, window, pending_count;
    mrc_error first_failure; /* number 0: none */
    mrc_appended *on_appended;
    void *context;

    mrc_following tail;
};

/* place.c */
int mrc_place_parse(mrc_client *client, const char *text);
/* Returns a socket that is connected to the address, or an error. */
int mrc_place_connect(mrc_client *client, uint64_t deadline_ms);
/* Reads the capability for the address: returns its length in bytes, 0 if there is none, or an error. */
int mrc_place_capability(mrc_client *client, uint8_t token[MRW_TOKEN_MAX]);
/* Fills the nonce with random bytes of the system; returns 0 or an error. */
int mrc_place_nonce(mrc_client *client, uint8_t nonce[MRW_CHANNEL_NONCE]);
/* Fails unless the other end is a process of this user on this machine. Before the handshake it checks the address only; once
 * the host has greeted, it also checks the user. */
int mrc_place_check(mrc_client *client, bool greeted);

/* remote.c: a connection to a host. */
int mrc_remote_open(mrc_client *client);
void mrc_remote_close(mrc_client *client);
/* Sends a request and waits for its answer, which is of this type. */
int mrc_remote_call(mrc_client *client, uint8_t type, const void *message, const mrc_id *cause, uint32_t wait_ms,
                    uint8_t answer_type, void *answer);
/* Adds a message to the send buffer. */
int mrc_remote_send(mrc_client *client, uint8_t type, uint64_t request, const mrc_id *cause, const void *message);
int mrc_remote_flush(mrc_client *client);
/* Waits for the next answer to this request: returns 1, 0 at the deadline, or an error, which may come from the host. */
int mrc_remote_answer(mrc_client *client, uint64_t request, uint64_t deadline_ms, mrw_frame *frame);
/* Waits for answers to appends until the slot is free; with NULL, until none is pending. An error of a single append
 * is not the result of this function. */
int mrc_remote_settle(mrc_client *client, const uint64_t *slot);
/* Closes the connection; all unanswered requests fail. */
int mrc_remote_lost(mrc_client *client, int number, const char *what);

bool mrc_is_name(const char *text, size_t size);

/* fault.c: stores an error in the client, and returns its number. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int mrc_fail(mrc_client *client, int number, const char *format, ...);
/* The same for an error that a host sent; returns 0 if its code is invalid. */
int mrc_fail_as(mrc_client *client, mrw_bytes code, mrw_bytes detail, mrw_optional_u32 retry_after_ms);

/* client.c */
/* Connects a client that uses a namespace's files to the host that serves them. */
int mrc_ask_host(mrc_client *client);
uint64_t mrc_now_ms(void);
/* Checks that the client may be called: returns 0 or MRC_C_CLIENT_BUSY. */
int mrc_check_free(mrc_client *client);
/* The name of a log, checked as far as the wire needs it. */
int mrc_check_log(mrc_client *client, const char *log, mrw_bytes *bytes);

#endif
