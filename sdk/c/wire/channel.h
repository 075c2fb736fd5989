/* channel.h - the encrypted channel between a client and a host: spec/formats/capability.md, "Channel".
 *
 *     mrw_channel_begin --> M1 --> host --> M2 --> mrw_channel_answer, then records: mrw_channel_seal, mrw_channel_open
 *
 * The capability's signature is the key of the channel on both sides. The functions do no I/O and use only memory of
 * the caller: a channel has 160 bytes, and records are encrypted and decrypted in place. A channel serves one connection.
 */
#ifndef MILLRACE_CHANNEL_H
#define MILLRACE_CHANNEL_H

#include "token.h"

#define MRW_CHANNEL_NONCE 16
#define MRW_RECORD_HEAD 2 /* before each record: its length, little-endian */
#define MRW_RECORD_MIN 64 /* each side announces the longest record that it accepts: a number in these bounds */
#define MRW_RECORD_MAX 16384
#define MRW_M1_HEAD 25 /* M1 has this length plus that of the token's body */
#define MRW_M1_MAX (MRW_M1_HEAD + MRW_TOKEN_MAX - MRW_HASH)
#define MRW_M2_BYTES 37

#define MRW_CHANNEL_REFUSED (-6138)
#define MRW_CHANNEL_BROKEN (-6139)

/* One direction: its key, its first nonce, the number of records so far, and the limit of a record. */
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
        uint8_t exporter[MRW_HASH]; /* for proofs that are bound to this channel */
    } open;
} mrw_channel;

/* Begins a channel with a token of `size` bytes. The channel accepts records of up to `takes` bytes after their head.
 * Writes M1, and returns its length: MRW_M1_HEAD plus the length of the body.
 *
 * Never use a nonce twice with the same token: use random bytes, or an HMAC with a secret seed over the number of starts
 * of the device and the number of connections since the start. */
size_t mrw_channel_begin(mrw_channel *channel, const uint8_t *token, size_t size,
                         const uint8_t nonce[MRW_CHANNEL_NONCE], uint16_t takes, uint8_t m1[MRW_M1_MAX]);

/* Handles the host's answer, of which `size` bytes have been received. Returns 0 until M2 is complete, then the length of
 * M2: the host has proved that it knows the capability, and the channel is open. Returns a negative number for a refusal. */
int mrw_channel_answer(mrw_channel *channel, const uint8_t *token, size_t token_size, const uint8_t *m2, size_t size);

/* The most bytes of data in a record to the host. */
size_t mrw_channel_room(const mrw_channel *channel);

/* Encrypts the `size` bytes at `record + MRW_RECORD_HEAD` as a record; the buffer needs MRW_TAG more bytes after them.
 * Returns the length of the record with its head, or 0 if the channel has used all of its record numbers. */
size_t mrw_channel_seal(mrw_channel *channel, uint8_t *record, size_t size);

/* Decrypts, in place, the record at the start of `size` received bytes. Returns the length of the record with its head; its
 * `*plain` bytes of data are then at `bytes + MRW_RECORD_HEAD`. Returns 0 if the record is not complete yet, or a negative
 * number for a refusal: then the channel can no longer be used. */
int mrw_channel_open(mrw_channel *channel, uint8_t *bytes, size_t size, size_t *plain);

#endif
