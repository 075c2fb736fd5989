/* crypto.h - SHA-256 (FIPS 180-4), HMAC (RFC 2104) and ChaCha20-Poly1305 (RFC 8439), as much as the channel needs.
 *
 * No branch and no address depends on a secret. Nothing is allocated. A device with hardware for one of these leaves
 * crypto.c out and defines the same functions.
 */
#ifndef MILLRACE_CRYPTO_H
#define MILLRACE_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MRW_HASH 32 /* bytes of a hash, a MAC, and a key */
#define MRW_TAG 16
#define MRW_NONCE 12

typedef struct mrw_sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
} mrw_sha256;

void mrw_sha256_begin(mrw_sha256 *hash);
void mrw_sha256_add(mrw_sha256 *hash, const void *bytes, size_t size);
void mrw_sha256_end(mrw_sha256 *hash, uint8_t sum[MRW_HASH]);

typedef struct mrw_hmac {
    mrw_sha256 hash;
    uint8_t key[64];
} mrw_hmac;

void mrw_hmac_begin(mrw_hmac *mac, const void *key, size_t size);
void mrw_hmac_add(mrw_hmac *mac, const void *bytes, size_t size);
void mrw_hmac_end(mrw_hmac *mac, uint8_t sum[MRW_HASH]);

/* Encrypts in place. `more` is authenticated too. */
void mrw_seal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
              uint8_t *bytes, size_t size, uint8_t tag[MRW_TAG]);
/* Decrypts in place; false, and the bytes are as they were, if the tag is not theirs. */
bool mrw_unseal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
                uint8_t *bytes, size_t size, const uint8_t tag[MRW_TAG]);

/* Whether both are the same; it takes as long whichever byte differs. */
bool mrw_same(const uint8_t *a, const uint8_t *b, size_t size);
/* Overwrites what must not stay in memory. */
void mrw_wipe(void *bytes, size_t size);

#endif
