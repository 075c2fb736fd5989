/* crypto.c - the functions of sdk/c/wire/crypto.h by BearSSL 0.6, in half the instructions. Compile everything with -DMRW_BEARSSL, and
 * this file instead of the other crypto.c; link BearSSL, which a project may have already (the core of Arduino for the ESP8266 has). */
#include "crypto.h"

#include <string.h>

void mrw_sha256_begin(mrw_sha256 *hash) { br_sha256_init(hash); }
void mrw_sha256_add(mrw_sha256 *hash, const void *bytes, size_t size) { br_sha256_update(hash, bytes, size); }
void mrw_sha256_end(mrw_sha256 *hash, uint8_t sum[MRW_HASH]) { br_sha256_out(hash, sum); }

void mrw_hmac_begin(mrw_hmac *mac, const void *key, size_t size) {
    br_hmac_key_init(&mac->key, &br_sha256_vtable, key, size);
    br_hmac_init(&mac->mac, &mac->key, 0);
}

void mrw_hmac_add(mrw_hmac *mac, const void *bytes, size_t size) { br_hmac_update(&mac->mac, bytes, size); }
void mrw_hmac_end(mrw_hmac *mac, uint8_t sum[MRW_HASH]) { br_hmac_out(&mac->mac, sum); }

void mrw_seal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size, uint8_t *bytes,
              size_t size, uint8_t tag[MRW_TAG]) {
    br_poly1305_ctmul_run(key, nonce, bytes, size, more, more_size, tag, br_chacha20_ct_run, 1);
}

bool mrw_unseal(const uint8_t key[MRW_HASH], const uint8_t nonce[MRW_NONCE], const void *more, size_t more_size, uint8_t *bytes,
                size_t size, const uint8_t tag[MRW_TAG]) {
    uint8_t found[MRW_TAG];
    br_poly1305_ctmul_run(key, nonce, bytes, size, more, more_size, found, br_chacha20_ct_run, 0);
    if (mrw_same(found, tag, MRW_TAG)) return true;
    /* Encrypts again what must stay as it was. */
    br_chacha20_ct_run(key, nonce, 1, bytes, size);
    return false;
}

bool mrw_same(const uint8_t *a, const uint8_t *b, size_t size) {
    uint8_t differs = 0;
    for (size_t i = 0; i < size; i++) differs = (uint8_t)(differs | (a[i] ^ b[i]));
    return differs == 0;
}

void mrw_wipe(void *bytes, size_t size) {
    volatile uint8_t *at = (volatile uint8_t *)bytes;
    while (size-- > 0) *at++ = 0;
}
