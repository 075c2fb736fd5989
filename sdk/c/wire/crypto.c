#include "crypto.h"

#include <string.h>

bool mrw_same(const uint8_t *a, const uint8_t *b, size_t size) {
    uint8_t differ = 0;
    while (size-- > 0) differ |= (uint8_t)(*a++ ^ *b++);
    return differ == 0;
}

/* In a way that no compiler leaves out. */
void mrw_wipe(void *bytes, size_t size) {
#ifdef __GNUC__
    memset(bytes, 0, size);
    __asm__ volatile("" : : "r"(bytes) : "memory");
#else
    volatile uint8_t *at = bytes;
    while (size-- > 0) *at++ = 0;
#endif
}

static uint32_t load(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void store(uint8_t *to, uint32_t word) {
    to[0] = (uint8_t)word, to[1] = (uint8_t)(word >> 8), to[2] = (uint8_t)(word >> 16), to[3] = (uint8_t)(word >> 24);
}

/* ------------------------------------------------------------------------------------------------------ SHA-256 */

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t right(uint32_t word, unsigned by) { return word >> by | word << (32 - by); }

/* The schedule, whose last 16 words are kept: a word from those that are 15, 7 and 2 before it. */
#define NEXT(word, early, middle, late)                                                            \
    word += (right(early, 7) ^ right(early, 18) ^ (early) >> 3) + (middle) + (right(late, 17) ^ right(late, 19) ^ (late) >> 10)

/* A round changes two of the eight words. They take each other's places: with MRD_SMALL they move, otherwise only their names do. */
#define ROUND(a, b, c, d, e, f, g, h, add)                                                         \
    h += (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + (((f ^ g) & e) ^ g) + (add), d += h,        \
        h += (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + (((a | b) & c) | (a & b))

static void compress(uint32_t state[8], const uint8_t block[64]) {
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    unsigned i;
    for (i = 0; i < 16; i++, block += 4) {
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    }
#ifdef MRD_SMALL
    for (i = 0; i < 64; i++) {
        uint32_t last;
        if (i >= 16) NEXT(w[i & 15], w[(i + 1) & 15], w[(i + 9) & 15], w[(i + 14) & 15]);
        ROUND(a, b, c, d, e, f, g, h, rounds[i] + w[i & 15]);
        last = h, h = g, g = f, f = e, e = d, d = c, c = b, b = a, a = last;
    }
#else
    for (i = 0; i < 64; i += 8) {
        uint32_t *v = w + (i & 8), *u = w + (~i & 8); /* this half of the schedule, and the other */
        const uint32_t *k = rounds + i;
        if (i >= 16) {
            NEXT(v[0], v[1], u[1], u[6]), NEXT(v[1], v[2], u[2], u[7]), NEXT(v[2], v[3], u[3], v[0]), NEXT(v[3], v[4], u[4], v[1]);
            NEXT(v[4], v[5], u[5], v[2]), NEXT(v[5], v[6], u[6], v[3]), NEXT(v[6], v[7], u[7], v[4]), NEXT(v[7], u[0], v[0], v[5]);
        }
        ROUND(a, b, c, d, e, f, g, h, k[0] + v[0]), ROUND(h, a, b, c, d, e, f, g, k[1] + v[1]);
        ROUND(g, h, a, b, c, d, e, f, k[2] + v[2]), ROUND(f, g, h, a, b, c, d, e, k[3] + v[3]);
        ROUND(e, f, g, h, a, b, c, d, k[4] + v[4]), ROUND(d, e, f, g, h, a, b, c, k[5] + v[5]);
        ROUND(c, d, e, f, g, h, a, b, k[6] + v[6]), ROUND(b, c, d, e, f, g, h, a, k[7] + v[7]);
    }
#endif
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    mrw_wipe(w, sizeof w);
}

void mrw_sha256_begin(mrw_sha256 *hash) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->size = 0;
}

void mrw_sha256_add(mrw_sha256 *hash, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    while (size > 0) {
        size_t held = (size_t)(hash->size & 63), part = 64 - held < size ? 64 - held : size;
        memcpy(hash->block + held, at, part);
        hash->size += part, at += part, size -= part;
        if ((hash->size & 63) == 0) compress(hash->state, hash->block);
    }
}

void mrw_sha256_end(mrw_sha256 *hash, uint8_t sum[MRW_HASH]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = hash->size << 3;
    uint8_t length[8];
    unsigned i;
    for (i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    mrw_sha256_add(hash, padding, 1 + ((119 - (size_t)(hash->size & 63)) & 63));
    mrw_sha256_add(hash, length, sizeof length);
    for (i = 0; i < MRW_HASH; i++) sum[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i & 3)));
    mrw_wipe(hash, sizeof *hash);
}

/* --------------------------------------------------------------------------------------------------------- HMAC */

static void pad(mrw_hmac *mac, uint8_t with) {
    uint8_t key[64];
    unsigned i;
    for (i = 0; i < sizeof key; i++) key[i] = mac->key[i] ^ with;
    mrw_sha256_begin(&mac->hash);
    mrw_sha256_add(&mac->hash, key, sizeof key);
    mrw_wipe(key, sizeof key);
}

void mrw_hmac_begin(mrw_hmac *mac, const void *key, size_t size) {
    memset(mac->key, 0, sizeof mac->key);
    if (size <= sizeof mac->key) {
        if (size > 0) memcpy(mac->key, key, size);
    } else {
        mrw_sha256_begin(&mac->hash);
        mrw_sha256_add(&mac->hash, key, size);
        mrw_sha256_end(&mac->hash, mac->key);
    }
    pad(mac, 0x36);
}

void mrw_hmac_add(mrw_hmac *mac, const void *bytes, size_t size) { mrw_sha256_add(&mac->hash, bytes, size); }

void mrw_hmac_end(mrw_hmac *mac, uint8_t sum[MRW_HASH]) {
    uint8_t inner[MRW_HASH];
    mrw_sha256_end(&mac->hash, inner);
    pad(mac, 0x5c);
    mrw_sha256_add(&mac->hash, inner, sizeof inner);
    mrw_sha256_end(&mac->hash, sum);
    mrw_wipe(inner, sizeof inner);
    mrw_wipe(mac, sizeof *mac);
}

/* ----------------------------------------------------------------------------------------------------- ChaCha20 */

static uint32_t left(uint32_t word, unsigned by) { return word << by | word >> (32 - by); }

#define QUARTER(a, b, c, d)                                       \
    a += b, d = left(d ^ a, 16), c += d, b = left(b ^ c, 12),     \
        a += b, d = left(d ^ a, 8), c += d, b = left(b ^ c, 7)

/* Four of the words, through a function or in registers. */
#ifdef MRD_SMALL
static void quarter(uint32_t x[16], unsigned a, unsigned b, unsigned c, unsigned d) { QUARTER(x[a], x[b], x[c], x[d]); }
#else
#define quarter(x, a, b, c, d)                                    \
    do {                                                          \
        uint32_t xa = x[a], xb = x[b], xc = x[c], xd = x[d];      \
        QUARTER(xa, xb, xc, xd);                                  \
        x[a] = xa, x[b] = xb, x[c] = xc, x[d] = xd;               \
    } while (0)
#endif

/* One block of the stream: words in the order of its bytes. */
static void stream(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], uint32_t counter, uint32_t x[16]) {
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    unsigned i;
    for (i = 0; i < 8; i++) start[4 + i] = load(key + 4 * i);
    start[12] = counter;
    for (i = 0; i < 3; i++) start[13 + i] = load(nonce + 4 * i);
    memcpy(x, start, sizeof start);
    for (i = 0; i < 10; i++) {
        quarter(x, 0, 4, 8, 12);
        quarter(x, 1, 5, 9, 13);
        quarter(x, 2, 6, 10, 14);
        quarter(x, 3, 7, 11, 15);
        quarter(x, 0, 5, 10, 15);
        quarter(x, 1, 6, 11, 12);
        quarter(x, 2, 7, 8, 13);
        quarter(x, 3, 4, 9, 14);
    }
    for (i = 0; i < 16; i++) x[i] += start[i];
    mrw_wipe(start, sizeof start);
}

static void encrypt(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], uint8_t *bytes, size_t size) {
    uint32_t x[16], counter = 1;
    while (size > 0) {
        size_t part = size < 64 ? size : 64, i;
        stream(key, nonce, counter++, x);
#ifdef MRD_SMALL
        i = 0;
#else
        for (i = 0; i + 4 <= part; i += 4) store(bytes + i, load(bytes + i) ^ x[i / 4]);
#endif
        for (; i < part; i++) bytes[i] ^= (uint8_t)(x[i / 4] >> (8 * (i & 3)));
        bytes += part, size -= part;
    }
    mrw_wipe(x, sizeof x);
}

/* ----------------------------------------------------------------------------------------------------- Poly1305 */

/* Numbers modulo 2^130 - 5 in five limbs of 26 bits, which a product of 32 by 32 bits leaves room for. */
typedef struct poly {
    uint32_t r[5], h[5];
} poly;

#define LIMB 0x3ffffffu

static void limbs(uint32_t to[5], const uint8_t from[16]) {
    to[0] = load(from) & LIMB;
    to[1] = load(from + 3) >> 2 & LIMB;
    to[2] = load(from + 6) >> 4 & LIMB;
    to[3] = load(from + 9) >> 6 & LIMB;
    to[4] = load(from + 12) >> 8;
}

/* Adds a block, which ends with a one above its 16 bytes, and multiplies by r. */
static void poly_block(poly *p, const uint8_t block[16]) {
    uint32_t m[5], carry;
    uint64_t d[5], over = 0;
    unsigned i;
    limbs(m, block);
    m[4] |= 1u << 24;
    for (i = 0; i < 5; i++) m[i] += p->h[i];
#ifdef MRD_SMALL
    for (i = 0; i < 5; i++) {
        unsigned j;
        d[i] = 0;
        for (j = 0; j < 5; j++) d[i] += (uint64_t)m[j] * (j <= i ? p->r[i - j] : p->r[5 + i - j] * 5);
    }
#else
#define PRODUCT(a, b, c, e, f) ((uint64_t)m[0] * (a) + (uint64_t)m[1] * (b) + (uint64_t)m[2] * (c) + (uint64_t)m[3] * (e) + (uint64_t)m[4] * (f))
    {
        const uint32_t *r = p->r, r1 = r[1] * 5, r2 = r[2] * 5, r3 = r[3] * 5, r4 = r[4] * 5;
        d[0] = PRODUCT(r[0], r4, r3, r2, r1);
        d[1] = PRODUCT(r[1], r[0], r4, r3, r2);
        d[2] = PRODUCT(r[2], r[1], r[0], r4, r3);
        d[3] = PRODUCT(r[3], r[2], r[1], r[0], r4);
        d[4] = PRODUCT(r[4], r[3], r[2], r[1], r[0]);
    }
#endif
    for (i = 0; i < 5; i++) {
        d[i] += over;
        p->h[i] = (uint32_t)d[i] & LIMB;
        over = d[i] >> 26;
    }
    p->h[0] += (uint32_t)(over * 5 & LIMB);
    p->h[1] += (uint32_t)(over * 5 >> 26);
    carry = p->h[0] >> 26;
    p->h[0] &= LIMB;
    p->h[1] += carry;
    mrw_wipe(m, sizeof m);
    mrw_wipe(d, sizeof d);
}

/* Bytes and zeros up to a whole block. */
static void poly_add(poly *p, const uint8_t *bytes, size_t size) {
    for (; size >= 16; bytes += 16, size -= 16) poly_block(p, bytes);
    if (size > 0) {
        uint8_t block[16] = {0};
        memcpy(block, bytes, size);
        poly_block(p, block);
    }
}

static void poly_end(poly *p, const uint8_t add[16], uint8_t tag[MRW_TAG]) {
    uint32_t g[5], keep, carry;
    uint64_t sum = 0;
    unsigned i, round;
    for (round = 0; round < 2; round++) {
        for (carry = 0, i = 0; i < 5; i++) {
            p->h[i] += carry;
            carry = p->h[i] >> 26;
            p->h[i] &= LIMB;
        }
        p->h[0] += carry * 5;
    }
    carry = p->h[0] >> 26;
    p->h[0] &= LIMB;
    p->h[1] += carry;
    /* h - p, if that is not negative. */
    for (carry = 5, i = 0; i < 5; i++) {
        g[i] = p->h[i] + carry;
        carry = g[i] >> 26;
        g[i] &= LIMB;
    }
    keep = carry - 1; /* all ones: h is below p */
    for (i = 0; i < 5; i++) p->h[i] = (p->h[i] & keep) | (g[i] & ~keep);
    for (i = 0; i < 4; i++) {
        unsigned shift = 6 * i;
        uint32_t word = p->h[i] >> shift | p->h[i + 1] << (26 - shift);
        sum += (uint64_t)word + load(add + 4 * i);
        store(tag + 4 * i, (uint32_t)sum);
        sum >>= 32;
    }
    mrw_wipe(g, sizeof g);
    mrw_wipe(p, sizeof *p);
}

static void authenticate(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more,
                         size_t more_size, const uint8_t *bytes, size_t size, uint8_t tag[MRW_TAG]) {
    uint32_t x[16];
    uint8_t once[32];
    poly p;
    unsigned i;
    stream(key, nonce, 0, x);
    for (i = 0; i < 8; i++) store(once + 4 * i, x[i]);
    for (i = 0; i < 16; i++) once[i] &= (i & 3) == 3 ? 0x0f : i > 0 && (i & 3) == 0 ? 0xfc : 0xff;
    memset(&p, 0, sizeof p);
    limbs(p.r, once);
    poly_add(&p, more, more_size);
    poly_add(&p, bytes, size);
    memset(once, 0, 16);
    for (i = 0; i < 8; i++) {
        once[i] = (uint8_t)((uint64_t)more_size >> 8 * i);
        once[8 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    }
    poly_block(&p, once);
    poly_end(&p, once + 16, tag);
    mrw_wipe(x, sizeof x);
    mrw_wipe(once, sizeof once);
}

void mrw_seal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
              uint8_t *bytes, size_t size, uint8_t tag[MRW_TAG]) {
    encrypt(key, nonce, bytes, size);
    authenticate(key, nonce, more, more_size, bytes, size, tag);
}

bool mrw_unseal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
                uint8_t *bytes, size_t size, const uint8_t tag[MRW_TAG]) {
    uint8_t own[MRW_TAG];
    bool same;
    authenticate(key, nonce, more, more_size, bytes, size, own);
    same = mrw_same(own, tag, sizeof own);
    if (same) encrypt(key, nonce, bytes, size);
    mrw_wipe(own, sizeof own);
    return same;
}
