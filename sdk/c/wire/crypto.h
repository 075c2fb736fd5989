/* crypto.h - SHA-256 (FIPS 180-4), HMAC (RFC 2104) and ChaCha20-Poly1305 (RFC 8439), as far as the channel needs them.
 *
 * No branch and no address depends on a secret. Nothing is allocated. For a device with hardware for these
 * algorithms, or a library, leave crypto.c out and define the same functions.
 */
#ifndef MILLRACE_CRYPTO_H
#define MILLRACE_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MRW_HASH 32 /* bytes of a hash, a MAC, and a key */
#define MRW_TAG 16
#define MRW_NONCE 12

#ifdef MRW_BEARSSL /* with device/port/bearssl/crypto.c instead of crypto.c */
#include <bearssl.h>

typedef br_sha256_context mrw_sha256;

typedef struct mrw_hmac {
    br_hmac_key_context key;
    br_hmac_context mac;
} mrw_hmac;
#else
typedef struct mrw_sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
} mrw_sha256;

typedef struct mrw_hmac {
    mrw_sha256 hash;
    uint8_t key[64];
} mrw_hmac;
#endif

void mrw_sha256_begin(mrw_sha256 *hash);
void mrw_sha256_add(mrw_sha256 *hash, const void *bytes, size_t size);
void mrw_sha256_end(mrw_sha256 *hash, uint8_t sum[MRW_HASH]);

void mrw_hmac_begin(mrw_hmac *mac, const void *key, size_t size);
void mrw_hmac_add(mrw_hmac *mac, const void *bytes, size_t size);
void mrw_hmac_end(mrw_hmac *mac, uint8_t sum[MRW_HASH]);

/* Encrypts in place. `more` is authenticated as well, but not encrypted. */
void mrw_seal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
              uint8_t *bytes, size_t size, uint8_t tag[MRW_TAG]);
/* Decrypts in place. Returns false, and leaves the bytes unchanged, if the tag does not match. */
bool mrw_unseal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size,
                uint8_t *bytes, size_t size, const uint8_t tag[MRW_TAG]);

/* Whether both are equal; the time does not depend on which bytes differ. */
bool mrw_same(const uint8_t *a, const uint8_t *b, size_t size);
/* Overwrites secrets that must not stay in memory. */
void mrw_wipe(void *bytes, size_t size);

#endif
