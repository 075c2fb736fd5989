#include "millrace_guard.h"
#include "token.h"
#include "../src/internal.h"

enum { HEAD = 11, PLAIN = 1, HEADS = HEAD + 1 };
enum {
    GRANT = 1, NOT_AFTER, NOT_BEFORE, RECORD_MAX, WAY, PEER_NET, PEER_KEY, RATE, SOURCE, ONCE, ID = 16
};

/* The items of a block, or the blocks of a body: the form was checked before. */
typedef struct {
    const uint8_t *at, *end;
} span;

static span blocks_of(const uint8_t *body, size_t size) {
    span blocks = {body + HEADS, body + size};
    return blocks;
}

static bool next_block(span *blocks, span *block) {
    if (blocks->at == blocks->end) return false;
    block->at = blocks->at;
    block->end = blocks->at + 2 + mrd_load(blocks->at, 2);
    blocks->at = block->end;
    return true;
}

static bool next_item(span *block, uint8_t *tag, span *value) {
    if (block->at == block->end) return false;
    *tag = block->at[0];
    value->at = block->at + 2;
    value->end = value->at + block->at[1];
    block->at = value->end;
    return true;
}

/* ---- signatures ---- */

static void sign(mrw_hmac *mac, const uint8_t key[MRW_HASH], uint8_t mark, const uint8_t *head, const span *block, uint8_t sum[MRW_HASH]) {
    mrw_hmac_begin(mac, key, MRW_HASH);
    mrw_hmac_add(mac, &mark, 1);
    if (head) mrw_hmac_add(mac, head, HEAD);
    mrw_hmac_add(mac, block->at, (size_t)(block->end - block->at));
    mrw_hmac_end(mac, sum);
}

static bool is_revoked(const mrd_guard *guard, span block) {
    uint8_t tag;
    span value;
    block.at += 2;
    while (next_item(&block, &tag, &value)) {
        for (unsigned i = 0; tag == ID && i < guard->revoked_count; i++) {
            if (memcmp(value.at, guard->revoked[i], MRD_ID_BYTES) == 0) return true;
        }
    }
    return false;
}

int mrd_token_verify(const mrd_guard *guard, const uint8_t *body, size_t size, uint8_t signature[MRW_HASH]) {
    const mrd_key *key = NULL;
    span blocks, block;
    mrw_hmac mac;
    bool formed = size <= MRD_TOKEN_MAX && mrw_token_check(body, size) == 0;
    if (!formed || body[0] != PLAIN || body[HEAD] > MRD_BLOCKS_MAX) return MRD_CAPABILITY_REFUSED;
    for (unsigned i = 0; i < guard->key_count; i++) {
        const mrd_key *one = &guard->keys[i];
        if (memcmp(one->authority, body + 1, 8) == 0 && one->generation == mrd_load(body + 9, 2)) key = one;
    }
    if (!key) return MRD_CAPABILITY_REFUSED;
    blocks = blocks_of(body, size);
    for (unsigned i = 0; next_block(&blocks, &block); i++) {
        if (is_revoked(guard, block)) return MRD_CAPABILITY_REFUSED;
    }
    blocks = blocks_of(body, size);
    for (unsigned i = 0; next_block(&blocks, &block); i++) {
        sign(&mac, i == 0 ? key->key : signature, i > 0, i == 0 ? body : NULL, &block, signature);
    }
    mrw_wipe(&mac, sizeof mac);
    return 0;
}

/* ---- rights ---- */

static bool covers(const span *grant, const mrd_action *action) {
    uint8_t kind = grant->at[0] & 0x7F;
    const uint8_t *name = grant->at + 3;
    size_t size = (size_t)(grant->end - name);
    if ((mrd_load(grant->at + 1, 2) & action->right) == 0) return false;
    if (kind == MRD_OF_NAMESPACE) return true;
    if (kind != action->kind || action->name_size < size || memcmp(name, action->name, size) != 0) return false;
    if (kind == MRD_OF_LOG && action->name_size > 0 && action->name[0] == '_') return false;
    if (action->name_size == size) return true;
    return grant->at[0] & 0x80 && (size == 0 || action->name[size] == '/');
}

/* Whether an item that is no GRANT permits an action. */
static bool allows(uint8_t tag, const span *value, const mrd_action *action) {
    switch (tag) {
    case NOT_AFTER: return action->now > 0 && action->now <= mrd_load4(value->at);
    case NOT_BEFORE: return action->now > 0 && action->now >= mrd_load4(value->at);
    case RECORD_MAX: return action->purpose == MRD_REDEEM || action->bytes <= mrd_load4(value->at);
    case WAY: return value->at[0] & action->way;
    case ONCE: return action->purpose == MRD_REDEEM;
    case PEER_NET:
    case PEER_KEY:
    case RATE: return false; /* a device knows none of these */
    default: return true;
    }
}

static bool block_permits(span block, const mrd_action *action, bool *once) {
    bool granted = false, has_grants = false, sourced = false, has_sources = false;
    uint8_t tag;
    span value;
    block.at += 2;
    while (next_item(&block, &tag, &value)) {
        if (tag == GRANT) {
            has_grants = true;
            granted |= covers(&value, action);
        } else if (tag == SOURCE) {
            has_sources = true;
            sourced |= action->purpose == MRD_DELIVERY && mrd_load(value.at, 6) == action->source;
        } else if (!allows(tag, &value, action)) {
            return false;
        }
        *once |= tag == ONCE;
    }
    if (action->purpose == MRD_REDEEM) return true;
    return (granted || !has_grants) && (sourced || !has_sources);
}

bool mrd_token_permits(const uint8_t *body, size_t size, const mrd_action *action) {
    span blocks = blocks_of(body, size), block;
    bool once = false;
    while (next_block(&blocks, &block)) {
        if (!block_permits(block, action, &once)) return false;
    }
    return once || action->purpose != MRD_REDEEM;
}

/* ---- proofs ---- */

int mrd_guard_present(mrd_guard *guard, const uint8_t *body, size_t size, const uint8_t *proof, size_t proof_size,
                      const uint8_t exporter[MRW_HASH]) {
    static const uint8_t use[] = {2, 'p', 'r', 'o', 'o', 'f'};
    uint8_t signature[MRW_HASH];
    mrw_hmac mac;
    guard->size = 0;
    int result = mrd_token_verify(guard, body, size, signature);
    if (result < 0) return result;
    mrw_hmac_begin(&mac, signature, sizeof signature);
    mrw_hmac_add(&mac, use, sizeof use);
    mrw_hmac_end(&mac, signature);
    mrw_hmac_begin(&mac, signature, sizeof signature);
    mrw_hmac_add(&mac, exporter, MRW_HASH);
    mrw_hmac_end(&mac, signature);
    bool known = proof_size == MRW_HASH && mrw_same(signature, proof, MRW_HASH);
    mrw_wipe(&mac, sizeof mac);
    mrw_wipe(signature, sizeof signature);
    if (!known) return MRD_CAPABILITY_REFUSED;
    memcpy(guard->body, body, size);
    guard->size = (uint16_t)size;
    return 0;
}
