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

/* The durability of the namespace; survives the death of every process; survives a power failure. */
enum { MRW_AS_NAMESPACE, MRW_MEMORY, MRW_DISK };

/* The id of an event, little-endian; all zeros mean that there is none. */
typedef struct mrw_id {
    uint8_t bytes[16];
} mrw_id;

typedef struct mrw_optional_u32 {
    bool given;
    uint32_t value;
} mrw_optional_u32;

/* Elements of a message. To write them, set `items`, an array of their structs. After reading, they are in `packed`, for the
 * functions mrw_take_. */
typedef struct mrw_array {
    uint32_t count;
    const void *items;
    mrw_bytes packed;
} mrw_array;

typedef struct mrw_empty { uint8_t nothing; } mrw_empty; /* a message without keys */

#include "messages.h"

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
#define MRW_TAKE(name) bool mrw_take_##name(mrw_array *from, mrw_##name *element);
MRW_ELEMENTS(MRW_TAKE)
#undef MRW_TAKE

#endif
