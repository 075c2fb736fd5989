/* wire.h - frames and messages of the wire protocol, version 2: spec/protocol/wire.md.
 *
 * A message is a plain struct; a table describes how each is written and read. Reading makes no copies: text and bin
 * point into the frame. Nothing is allocated, so the code also runs on a microcontroller. A struct of zeros is a
 * message without its optional keys.
 *
 * A function that refuses returns a negative number: that of the error code in spec/errors.toml.
 */
#ifndef MILLRACE_WIRE_H
#define MILLRACE_WIRE_H

#include "pack.h"

#define MRW_PREFACE "MR/2" /* what a client sends first: 4 bytes */
#define MRW_VERSION 2
#define MRW_LENGTH_BYTES 4 /* before each frame, little-endian: its length */
#define MRW_FRAME_MAX ((size_t)(16u << 20) + (64u << 10))
#define MRW_HELLO_MAX (16u << 10) /* the longest frame before the end of the handshake */
#define MRW_BATCH_MAX 1024        /* most records of one APPEND MANY */

#define MRW_FRAME_TOO_LONG (-6002)
#define MRW_FRAME_MALFORMED (-6003)
#define MRW_MESSAGE_UNKNOWN (-6004)
#define MRW_MESSAGE_UNEXPECTED (-6005)

enum {
    MRW_HELLO = 1, MRW_WELCOME, MRW_FAILURE, MRW_PING, MRW_PONG,
    MRW_APPEND = 16, MRW_APPENDED, MRW_APPEND_MANY, MRW_APPENDED_MANY, MRW_GET, MRW_RECORD, MRW_RANGE, MRW_RECORDS,
    MRW_LATEST, MRW_SEQNO, MRW_TAIL, MRW_CREDIT, MRW_CANCEL, MRW_ENDED, MRW_CREATE_LOG, MRW_DONE, MRW_REMOVE_LOG,
    MRW_SHOW = 34, MRW_DOCUMENT,
    MRW_LINK = 48, MRW_LINKED, MRW_DELIVER, MRW_DELIVERED, MRW_ATTACH, MRW_ATTACHED, MRW_ENTRIES, MRW_ENTERED,
    MRW_SET_LOG = 140, MRW_CANCEL_RUN
};

/* The durability of the namespace; survives the death of every process; survives a power failure. */
enum { MRW_AS_NAMESPACE, MRW_MEMORY, MRW_DISK };

/* The id of an event, little-endian; all zeros mean that there is none. */
typedef struct mrw_id {
    uint8_t bytes[16];
} mrw_id;

/* When to retry, according to a failure. */
typedef struct mrw_retry {
    bool given;
    uint32_t after_ms;
} mrw_retry;

/* Elements of a message. To write them, set `items`, an array of their structs. After reading, they are in `packed`, for the
 * functions mrw_take_. */
typedef struct mrw_array {
    uint32_t count;
    const void *items;
    mrw_bytes packed;
} mrw_array;

typedef struct mrw_hello { uint16_t oldest, newest; mrw_bytes name, client; } mrw_hello;
typedef struct mrw_welcome {
    uint16_t version;
    mrw_bytes host, name;
    uint64_t namespace_id;
    uint32_t epoch, frame_max_bytes, record_max_bytes, requests_max;
    uint8_t durability;
} mrw_welcome;
typedef struct mrw_failure { mrw_bytes code, detail; mrw_retry retry; } mrw_failure;
typedef struct mrw_empty { uint8_t nothing; } mrw_empty; /* PING, PONG, CANCEL, ENDED, DONE */

typedef struct mrw_append { mrw_bytes log, data; uint8_t durability; mrw_bytes function, key; } mrw_append;
typedef struct mrw_appended { uint64_t seqno; mrw_id id; } mrw_appended;
typedef struct mrw_new_record { mrw_bytes log, data; } mrw_new_record;
typedef struct mrw_append_many {
    mrw_array records; /* mrw_new_record */
    uint8_t durability;
    mrw_bytes key;
} mrw_append_many;
typedef struct mrw_appended_many { mrw_array records; /* mrw_appended */ } mrw_appended_many;
typedef struct mrw_get { mrw_bytes log; uint64_t seqno; uint32_t wait_ms; uint8_t durability; } mrw_get;
typedef struct mrw_record { uint64_t seqno; mrw_id id; uint64_t hlc; mrw_id cause; mrw_bytes data; } mrw_record;
typedef struct mrw_range { mrw_bytes log; uint64_t from; uint32_t count; uint8_t durability; } mrw_range;
typedef struct mrw_records { uint32_t incarnation; mrw_array records; /* mrw_record */ uint64_t next; } mrw_records;
typedef struct mrw_latest { mrw_bytes log; uint64_t above; uint32_t wait_ms; uint8_t durability; } mrw_latest;
typedef struct mrw_seqno { uint64_t seqno; } mrw_seqno;
typedef struct mrw_tail { mrw_bytes log; uint64_t from; uint32_t incarnation, credit; uint8_t durability; } mrw_tail;
typedef struct mrw_credit { uint32_t records; } mrw_credit;
typedef struct mrw_create_log { mrw_bytes log; uint64_t history; } mrw_create_log;
typedef struct mrw_remove_log { mrw_bytes log; } mrw_remove_log;
typedef struct mrw_set_log { mrw_bytes log; uint64_t history; } mrw_set_log;
typedef struct mrw_cancel_run { mrw_id run; } mrw_cancel_run;
typedef struct mrw_show { mrw_bytes path; } mrw_show;
typedef struct mrw_document { mrw_bytes json; } mrw_document;

typedef struct mrw_step { uint64_t namespace_id; mrw_bytes log; } mrw_step;
typedef struct mrw_life { bool given; uint64_t number, id; } mrw_life;
typedef struct mrw_link {
    mrw_bytes stream;
    uint64_t namespace_id;
    uint32_t epoch;
    mrw_bytes target;
    mrw_array path; /* mrw_step */
    mrw_life life;  /* of the namespace that the stream comes from */
    bool forked;    /* the life in an earlier answer is none of the sender's */
} mrw_link;
typedef struct mrw_linked { uint64_t number, namespace_id; uint32_t epoch; mrw_life life; } mrw_linked;
typedef struct mrw_item { mrw_bytes log, data; mrw_id id; uint64_t hlc; mrw_bytes function; bool is_void; } mrw_item;
typedef struct mrw_deliver { uint64_t link, first; bool gap; mrw_array items; /* mrw_item */ } mrw_deliver;
typedef struct mrw_refused { bool given; mrw_bytes code, detail; mrw_retry retry; } mrw_refused;
typedef struct mrw_delivered { uint64_t number; mrw_refused refused; } mrw_delivered;

typedef struct mrw_attach {
    mrw_bytes device;
    uint64_t namespace_id;
    uint32_t epoch;
    uint64_t first, next, jumped_ms;
} mrw_attach;
typedef struct mrw_attached { uint64_t sequence; } mrw_attached;
typedef struct mrw_entries { uint32_t sector, at; mrw_bytes bytes; } mrw_entries;
typedef struct mrw_entered { uint64_t sequence; } mrw_entered;

/* The fields of every message. */
typedef struct mrw_heading {
    uint64_t request; /* the request that the message makes or answers; 0: it concerns the whole connection */
    uint64_t hlc;     /* the sender's clock; 0 if it has none */
    mrw_id cause;
} mrw_heading;

/* A frame in a buffer. */
typedef struct mrw_frame {
    uint8_t type;
    mrw_heading heading;
    mrw_reader message;
} mrw_frame;

/* Finds the first frame in `bytes`. Returns 1 if it is complete; it has `*used` bytes. Returns 0 if it is not complete yet;
 * if at least MRW_LENGTH_BYTES have arrived, `*used` is the number of bytes that it needs. Returns a negative number if the
 * bytes are not a frame, or if the frame is longer than `max_bytes`. */
int mrw_split(const void *bytes, size_t size, size_t max_bytes, mrw_frame *frame, size_t *used);

/* Reads the type and the request of a frame from its first `size` bytes. Returns 0, or a refusal. */
int mrw_peek(const void *bytes, size_t size, mrw_frame *frame);

/* Reads the message, which must have this type and fill the frame. Returns 0, or a refusal. */
int mrw_decode(const mrw_frame *frame, uint8_t type, void *message);

/* Appends a frame to `to`. Returns 0, or MRW_FRAME_TOO_LONG if it does not fit: then nothing is appended. With a drain,
 * every frame fits, and a long one is written in parts. If the drain fails, the function also returns MRW_FRAME_TOO_LONG,
 * and the stream can no longer be used. */
int mrw_encode(mrw_writer *to, uint8_t type, const mrw_heading *heading, const void *message);

/* Reads the next element of an array of a message; returns false after the last one. */
bool mrw_take_appended(mrw_array *from, mrw_appended *element);
bool mrw_take_record(mrw_array *from, mrw_record *element);
bool mrw_take_new_record(mrw_array *from, mrw_new_record *element);
bool mrw_take_step(mrw_array *from, mrw_step *element);
bool mrw_take_item(mrw_array *from, mrw_item *element);

#endif
