#include "millrace_identity.h"
#include "../src/internal.h"

enum { FORMAT = 1, HEAD = 12, NAMESPACE = 1, NAME, KEY, SEED, TOKEN, HOST, KEY_HEAD = 10 };

/* A text of 1 to `most` bytes, with a zero behind it. */
static bool take_text(char *to, size_t most, const uint8_t *value, size_t size) {
    if (size == 0 || size > most) return false;
    memcpy(to, value, size);
    to[size] = 0;
    return true;
}

/* Whether an item is as it should be; one that is not known is. */
static bool take_item(mrd_identity *identity, uint8_t tag, const uint8_t *value, size_t size) {
    switch (tag) {
    case NAMESPACE: identity->namespace_id = mrd_load(value, size == 6 ? 6 : 0); return identity->namespace_id != 0;
    case NAME: return take_text(identity->name, MRD_NAME_MAX, value, size);
    case HOST: return take_text(identity->host, MRD_HOST_MAX, value, size);
    case KEY:
        if (size != KEY_HEAD + MRW_HASH) return false;
        memcpy(identity->key.authority, value, 8);
        identity->key.generation = (uint16_t)(value[8] | value[9] << 8);
        memcpy(identity->key.key, value + KEY_HEAD, MRW_HASH);
        identity->guard.keys = &identity->key;
        identity->guard.key_count = 1;
        return true;
    case SEED:
        if (size != MRD_SEED_BYTES) return false;
        memcpy(identity->seed, value, size);
        return true;
    case TOKEN:
        identity->token = value;
        identity->token_bytes = size;
        return size > MRW_HASH; /* a body, and a signature behind it */
    default: return true;
    }
}

int mrd_identity_read(mrd_identity *identity, const uint8_t *bytes, size_t size) {
    static const uint8_t magic[] = {'M', 'R', 'D', 'I'};
    memset(identity, 0, sizeof *identity);
    if (size < HEAD || memcmp(bytes, magic, sizeof magic) != 0) return MRD_IDENTITY_INVALID;
    if (bytes[4] != FORMAT) return MRD_FORMAT_UNKNOWN;
    size_t length = (size_t)(bytes[6] | bytes[7] << 8);
    if (length > size - HEAD || length > MRD_IDENTITY_MAX - HEAD) return MRD_IDENTITY_INVALID;
    const uint8_t *at = bytes + HEAD, *end = at + length;
    if (mrd_crc(mrd_crc(0, bytes, 8), at, length) != mrd_load4(bytes + 8)) return MRD_IDENTITY_INVALID;
    while (end - at >= 3) {
        size_t item = (size_t)(at[1] | at[2] << 8);
        if (item > (size_t)(end - at) - 3 || !take_item(identity, at[0], at + 3, item)) return MRD_IDENTITY_INVALID;
        at += 3 + item;
    }
    return at == end && identity->namespace_id != 0 && identity->name[0] != 0 ? 0 : MRD_IDENTITY_INVALID;
}

int mrd_identity_load(mrd_identity *identity, const mrd_port *area, uint8_t bytes[MRD_IDENTITY_MAX]) {
    int found = MRD_IDENTITY_INVALID;
    for (uint32_t sector = 0; sector < 2; sector++) {
        if (area->read(area->context, sector * area->sector_bytes, bytes, MRD_IDENTITY_MAX) != 0) continue;
        int result = mrd_identity_read(identity, bytes, MRD_IDENTITY_MAX);
        if (result == 0) return 0;
        if (result == MRD_FORMAT_UNKNOWN) found = result;
    }
    return found;
}

/* ---- random bytes ---- */

static void turn(uint8_t state[MRD_SEED_BYTES], uint8_t mark, const void *bytes, size_t size, uint8_t sum[MRW_HASH]) {
    mrw_hmac mac;
    mrw_hmac_begin(&mac, state, MRD_SEED_BYTES);
    mrw_hmac_add(&mac, &mark, 1);
    mrw_hmac_add(&mac, bytes, size);
    mrw_hmac_end(&mac, sum);
    mrw_wipe(&mac, sizeof mac);
}

void mrd_random_begin(mrd_random *random, const uint8_t seed[MRD_SEED_BYTES], const void *start, size_t start_bytes) {
    memcpy(random->state, seed, sizeof random->state);
    turn(random->state, 0, start, start_bytes, random->state);
}

void mrd_random_fill(mrd_random *random, void *bytes, size_t size) {
    uint8_t sum[MRW_HASH], *to = (uint8_t *)bytes;
    while (size > 0) {
        size_t some = size < sizeof sum ? size : sizeof sum;
        turn(random->state, 1, NULL, 0, sum);
        memcpy(to, sum, some);
        /* What was given cannot be computed from what is kept. */
        turn(random->state, 2, NULL, 0, random->state);
        to += some;
        size -= some;
    }
    mrw_wipe(sum, sizeof sum);
}
