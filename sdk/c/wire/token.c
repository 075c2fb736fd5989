#include "token.h"

#include <string.h>

#define PLAIN 1
#define MERGED 129
#define HEAD 11
#define BLOCKS_MAX 8
#define KINDS 6
#define SUBTREE 0x80
#define RIGHTS 0x0fff

enum { GRANT = 1, NOT_AFTER, NOT_BEFORE, RECORD_MAX, WAY, PEER_NET, PEER_KEY, RATE, SOURCE, ONCE, ID = 16, SUBJECT, LABEL };

static bool is_zero(const uint8_t *bytes, size_t size) {
    while (size > 0 && bytes[size - 1] == 0) size--;
    return size == 0;
}

static bool is_grant(const uint8_t *value, size_t size) {
    uint8_t kind;
    uint16_t rights;
    if (size < 3) return false;
    kind = value[0] & (SUBTREE - 1);
    rights = (uint16_t)(value[1] | value[2] << 8);
    if (kind >= KINDS || rights == 0 || (rights & ~RIGHTS) != 0) return false;
    /* Of the namespace neither a subtree nor a name; of anything else a subtree, or a name. */
    return kind == 0 ? value[0] == 0 && size == 3 : (value[0] & SUBTREE) != 0 || size > 3;
}

/* The length of a prefix, and an address. */
static bool is_net(const uint8_t *value, size_t size) { return (size == 5 || size == 17) && value[0] <= 8 * (size - 1); }

static bool is_item(uint8_t tag, const uint8_t *value, size_t size) {
    switch (tag) {
    case GRANT: return is_grant(value, size);
    case NOT_AFTER: case NOT_BEFORE: case RECORD_MAX: return size == 4;
    case WAY: return size == 1 && value[0] != 0 && value[0] < 16;
    case PEER_NET: return is_net(value, size);
    case PEER_KEY: return size == MRW_HASH;
    case RATE: return size == 4 && !is_zero(value, 2) && !is_zero(value + 2, 2);
    case SOURCE: return size == 6 && !is_zero(value, 6);
    case ONCE: return size == 0;
    case ID: return size == 8;
    case SUBJECT: return size >= 1 && size <= 16;
    case LABEL: return size >= 1 && size <= 32;
    default: return false;
    }
}

static bool repeats(uint8_t tag) {
    return tag == GRANT || tag == PEER_NET || tag == PEER_KEY || tag == SOURCE || tag == ID;
}

/* The items of a block; the first one of a chain has a GRANT and an ID. */
static bool is_block(const uint8_t *at, size_t size, bool first) {
    uint8_t last = 0;
    bool grants = false, ids = false;
    while (size > 0) {
        uint8_t tag = at[0];
        if (size < 2 || size - 2 < at[1] || tag < last || (tag == last && !repeats(tag))) return false;
        if (!is_item(tag, at + 2, at[1])) return false;
        grants |= tag == GRANT;
        ids |= tag == ID;
        last = tag;
        size -= 2 + (size_t)at[1];
        at += 2 + (size_t)at[1];
    }
    return !first || (grants && ids);
}

/* A number of blocks and the blocks, which is all there is. */
static bool are_blocks(const uint8_t *at, size_t size, unsigned least) {
    unsigned count, i;
    if (size < 1) return false;
    count = *at++;
    size--;
    if (count < least || count > BLOCKS_MAX) return false;
    for (i = 0; i < count; i++) {
        size_t length;
        if (size < 2) return false;
        length = at[0] | (size_t)at[1] << 8;
        if (size - 2 < length || !is_block(at + 2, length, least > 0 && i == 0)) return false;
        at += 2 + length;
        size -= 2 + length;
    }
    return size == 0;
}

static bool is_plain(const uint8_t *at, size_t size) {
    return size > HEAD && at[0] == PLAIN && are_blocks(at + HEAD, size - HEAD, 1);
}

static bool is_merged(const uint8_t *at, size_t size) {
    unsigned count;
    if (size < 2 || at[0] != MERGED || at[1] < 2 || at[1] > 4) return false;
    count = at[1];
    at += 2;
    size -= 2;
    while (count-- > 0) {
        size_t length;
        if (size < 2) return false;
        length = at[0] | (size_t)at[1] << 8;
        if (size - 2 < length || !is_plain(at + 2, length)) return false;
        at += 2 + length;
        size -= 2 + length;
    }
    return are_blocks(at, size, 0);
}

int mrw_token_check(const uint8_t *body, size_t size) {
    if (size > MRW_TOKEN_MAX - MRW_HASH) return MRW_CAPABILITY_MALFORMED;
    return is_plain(body, size) || is_merged(body, size) ? 0 : MRW_CAPABILITY_MALFORMED;
}

/* The value of a character of base64url, without a table that secrets would choose places of; 64 or more if it is none. */
static unsigned sextet(char character) {
    unsigned c = (unsigned char)character, value = 64;
    value = c - 'A' < 26u ? c - 'A' : value;
    value = c - 'a' < 26u ? c - 'a' + 26 : value;
    value = c - '0' < 10u ? c - '0' + 52 : value;
    value = c == '-' ? 62 : value;
    return c == '_' ? 63 : value;
}

int mrw_token_parse(const char *text, size_t size, uint8_t *token, size_t capacity) {
    static const char prefix[4] = {'m', 'r', '1', '_'};
    uint32_t bits = 0;
    unsigned held = 0;
    size_t made = 0, i;
    if (size < sizeof prefix || memcmp(text, prefix, sizeof prefix) != 0) return MRW_CAPABILITY_MALFORMED;
    for (i = sizeof prefix; i < size; i++) {
        unsigned value = sextet(text[i]);
        if (value >= 64) return MRW_CAPABILITY_MALFORMED;
        bits = (bits << 6 | value) & 0xffffff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            if (made == capacity || made == MRW_TOKEN_MAX) return MRW_CAPABILITY_MALFORMED;
            token[made++] = (uint8_t)(bits >> held);
        }
    }
    /* A last character alone makes no byte, and unused bits are zero. */
    if (held >= 6 || (bits & ((1u << held) - 1)) != 0 || made < MRW_HASH) return MRW_CAPABILITY_MALFORMED;
    return mrw_token_check(token, made - MRW_HASH) < 0 ? MRW_CAPABILITY_MALFORMED : (int)made;
}
