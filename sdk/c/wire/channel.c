#include "channel.h"

#include <string.h>

#define VERSION 1
#define MAC 16
#define FIELDS 19 /* version, limit and nonce */

static unsigned load16(const uint8_t *from) { return from[0] | (unsigned)from[1] << 8; }

static void store16(uint8_t *to, unsigned value) {
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

size_t mrw_channel_begin(mrw_channel *channel, const uint8_t *token, size_t size,
                         const uint8_t nonce[MRW_CHANNEL_NONCE], uint16_t takes, uint8_t m1[MRW_M1_MAX]) {
    static const uint8_t magic[4] = {'M', 'R', '/', 'P'};
    size_t body = size - MRW_HASH;
    memcpy(m1, magic, sizeof magic);
    store16(m1 + 4, (unsigned)(FIELDS + body));
    m1[6] = VERSION;
    channel->opening.takes = takes < MRW_RECORD_MIN ? MRW_RECORD_MIN : takes > MRW_RECORD_MAX ? MRW_RECORD_MAX : takes;
    store16(m1 + 7, channel->opening.takes);
    memcpy(m1 + 9, nonce, MRW_CHANNEL_NONCE);
    memcpy(m1 + MRW_M1_HEAD, token, body);
    mrw_sha256_begin(&channel->opening.said);
    mrw_sha256_add(&channel->opening.said, m1, MRW_M1_HEAD + body);
    return MRW_M1_HEAD + body;
}

static void hmac(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t sum[MRW_HASH]) {
    mrw_hmac mac;
    mrw_hmac_begin(&mac, key, key_size);
    mrw_hmac_add(&mac, bytes, size);
    mrw_hmac_end(&mac, sum);
}

/* HKDF-Expand for the exporter, which has one block. */
static void derive_exporter(const uint8_t master[MRW_HASH], uint8_t exporter[MRW_HASH]) {
    static const uint8_t info[] = {'m', 'i', 'l', 'l', 'r', 'a', 'c', 'e', ' ', 'e', 'x', 'p', 'o', 'r', 't', 'e', 'r', 1};
    hmac(master, MRW_HASH, info, sizeof info, exporter);
}

/* HKDF-Expand (RFC 5869): the next 32 bytes, which stand in `sum`, as the ones before do. */
static void expand(const uint8_t master[MRW_HASH], uint8_t number, uint8_t sum[MRW_HASH]) {
    static const char info[] = {'m', 'i', 'l', 'l', 'r', 'a', 'c', 'e', ' ', 'c', 'h', 'a', 'n', 'n', 'e', 'l', ' ', '1'};
    mrw_hmac mac;
    mrw_hmac_begin(&mac, master, MRW_HASH);
    if (number > 1) mrw_hmac_add(&mac, sum, MRW_HASH);
    mrw_hmac_add(&mac, info, sizeof info);
    mrw_hmac_add(&mac, &number, 1);
    mrw_hmac_end(&mac, sum);
}

int mrw_channel_answer(mrw_channel *channel, const uint8_t *token, size_t token_size, const uint8_t *m2, size_t size) {
    static const uint8_t use[] = {2, 'c', 'h', 'a', 'n', 'n', 'e', 'l'};
    uint8_t said[MRW_HASH], master[MRW_HASH], sum[MRW_HASH], own[MRW_HASH];
    unsigned takes = channel->opening.takes, sends;
    bool known;
    if (size < 2) return 0;
    if (load16(m2) == 0) return MRW_CHANNEL_REFUSED;
    if (load16(m2) != MRW_M2_BYTES - 2) return MRW_CHANNEL_BROKEN;
    if (size < MRW_M2_BYTES) return 0;
    sends = load16(m2 + 3);
    if (m2[2] != VERSION || sends < MRW_RECORD_MIN || sends > MRW_RECORD_MAX) return MRW_CHANNEL_BROKEN;
    mrw_sha256_add(&channel->opening.said, m2, MRW_M2_BYTES - MAC);
    mrw_sha256_end(&channel->opening.said, said);
    hmac(token + token_size - MRW_HASH, MRW_HASH, use, sizeof use, own);
    hmac(said, sizeof said, own, sizeof own, master);
    expand(master, 1, sum);
    hmac(sum, sizeof sum, said, sizeof said, own);
    known = mrw_same(own, m2 + MRW_M2_BYTES - MAC, MAC);
    memset(channel, 0, sizeof *channel);
    if (known) {
        mrw_direction *out = &channel->open.out, *in = &channel->open.in;
        expand(master, 2, sum);
        memcpy(out->key, sum, MRW_HASH);
        expand(master, 3, sum);
        memcpy(in->key, sum, MRW_HASH);
        expand(master, 4, sum);
        memcpy(out->start, sum, MRW_NONCE);
        memcpy(in->start, sum + MRW_NONCE, MRW_NONCE);
        derive_exporter(master, channel->open.exporter);
        out->max = (uint16_t)sends;
        in->max = (uint16_t)takes;
    }
    mrw_wipe(master, sizeof master);
    mrw_wipe(sum, sizeof sum);
    mrw_wipe(own, sizeof own);
    return known ? MRW_M2_BYTES : MRW_CHANNEL_BROKEN;
}

/* The nonce of the next record; false if there is none left. */
static bool next(mrw_direction *direction, uint8_t nonce[MRW_NONCE]) {
    unsigned i;
    memcpy(nonce, direction->start, MRW_NONCE);
    for (i = 0; i < 8; i++) nonce[4 + i] ^= (uint8_t)(direction->count >> 8 * i);
    if (direction->ended || direction->count == UINT64_MAX) return false;
    direction->count++;
    return true;
}

size_t mrw_channel_room(const mrw_channel *channel) { return channel->open.out.max - (size_t)MRW_TAG; }

size_t mrw_channel_seal(mrw_channel *channel, uint8_t *record, size_t size) {
    uint8_t nonce[MRW_NONCE];
    if (size > mrw_channel_room(channel) || !next(&channel->open.out, nonce)) return 0;
    store16(record, (unsigned)(size + MRW_TAG));
    mrw_seal(channel->open.out.key, nonce, record, MRW_RECORD_HEAD, record + MRW_RECORD_HEAD, size,
             record + MRW_RECORD_HEAD + size);
    return MRW_RECORD_HEAD + size + MRW_TAG;
}

int mrw_channel_open(mrw_channel *channel, uint8_t *bytes, size_t size, size_t *plain) {
    mrw_direction *in = &channel->open.in;
    uint8_t nonce[MRW_NONCE];
    size_t length;
    if (in->ended) return MRW_CHANNEL_BROKEN;
    if (size < MRW_RECORD_HEAD) return 0;
    length = load16(bytes);
    in->ended = length < MRW_TAG || length > in->max;
    if (in->ended) return MRW_CHANNEL_BROKEN;
    if (size - MRW_RECORD_HEAD < length) return 0;
    *plain = length - MRW_TAG;
    in->ended = !next(in, nonce) || !mrw_unseal(in->key, nonce, bytes, MRW_RECORD_HEAD, bytes + MRW_RECORD_HEAD, *plain,
                                                bytes + MRW_RECORD_HEAD + *plain);
    return in->ended ? MRW_CHANNEL_BROKEN : (int)(MRW_RECORD_HEAD + length);
}
