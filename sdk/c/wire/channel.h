/* channel.h - the encrypted channel between a client and a host: spec/formats/capability.md, "Channel".
 *
 *     mrw_channel_begin --> M1 --> host --> M2 --> mrw_channel_answer, then records: mrw_channel_seal, mrw_channel_open
 *
 * The capability's signature is the key of the channel, at both ends. No I/O, no memory but the caller's:
 * a channel has 128 bytes, and a record is sealed and opened where it stands. A channel serves one connection.
 */
#ifndef MILLRACE_CHANNEL_H
#define MILLRACE_CHANNEL_H

#include "token.h"

#define MRW_CHANNEL_NONCE 16
#define MRW_RECORD_HEAD 2 /* before each record: its length, little-endian */
#define MRW_RECORD_MIN 64 /* the bounds of what a side may take as the longest record */
#define MRW_RECORD_MAX 16384
#define MRW_M1_HEAD 25 /* M1 is so long, and the body of the token */
#define MRW_M1_MAX (MRW_M1_HEAD + MRW_TOKEN_MAX - MRW_HASH)
#define MRW_M2_BYTES 37

#define MRW_CHANNEL_REFUSED (-6138)
#define MRW_CHANNEL_BROKEN (-6139)

/* One direction: its key, where its nonces start, how many records there were, and the longest. */
typedef struct mrw_direction {
    uint8_t key[MRW_HASH], start[MRW_NONCE];
    uint64_t count;
    uint16_t max;
    bool ended;
} mrw_direction;

typedef union mrw_channel {
    struct {
        mrw_sha256 said; /* M1 */
        uint16_t takes;
    } opening;
    struct {
        mrw_direction out, in;
    } open;
} mrw_channel;

/* Begins a channel with a token of `size` bytes. It will take records of up to `takes` bytes behind their head. Writes
 * M1, and returns how long it is: MRW_M1_HEAD and the body.
 *
 * No nonce may be used twice with one token: take random bytes, or HMAC of a seed over a count of the device's starts and
 * of the connections since. */
size_t mrw_channel_begin(mrw_channel *channel, const uint8_t *token, size_t size,
                         const uint8_t nonce[MRW_CHANNEL_NONCE], uint16_t takes, uint8_t m1[MRW_M1_MAX]);

/* Takes what the host answers, of which `size` bytes are there. Their number once M2 is there as a whole: the host has
 * shown that it knows the capability, and the channel is open. 0 before that, or a refusal. */
int mrw_channel_answer(mrw_channel *channel, const uint8_t *token, size_t token_size, const uint8_t *m2, size_t size);

/* How many bytes a record to the host carries at most. */
size_t mrw_channel_room(const mrw_channel *channel);

/* Makes a record of the `size` bytes that stand at `record + MRW_RECORD_HEAD`; behind them there is room for MRW_TAG
 * bytes. How long it is with its head, or 0 if the channel has used all of its record numbers. */
size_t mrw_channel_seal(mrw_channel *channel, uint8_t *record, size_t size);

/* Opens the record at the start of `size` bytes where it stands. How long it is with its head, and what it holds stands
 * at `bytes + MRW_RECORD_HEAD`, `*plain` bytes of it. 0 if it is not there as a whole, or a refusal: then the channel takes
 * no more. */
int mrw_channel_open(mrw_channel *channel, uint8_t *bytes, size_t size, size_t *plain);

#endif
