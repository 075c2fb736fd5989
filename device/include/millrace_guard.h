/* millrace_guard.h - a device that verifies capabilities (spec/formats/capability.md): who may send it commands.
 *
 *     static const mrd_key keys[] = {{{'k','i','t','c','h','e','n','1'}, 1, {...}}};
 *     static mrd_guard guard = {keys, 1, NULL, 0, {0}, 0};
 *     mrd_uplink_guard(&uplink, &guard);
 *
 * The key is the device's own: who provisions it issues a capability with it, and keeps that instead of the key. Its holders
 * attenuate it without the device. A host shows one with PRESENT, once in a connection; then a command costs a comparison of
 * rights. Chains have at most 5 blocks and 256 bytes. Merged capabilities, and those with RATE, PEER_NET or PEER_KEY, permit
 * nothing here.
 */
#ifndef MILLRACE_GUARD_H
#define MILLRACE_GUARD_H

#include "crypto.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MRD_TOKEN_MAX = 256, MRD_BLOCKS_MAX = 5, MRD_ID_BYTES = 8 };
enum { MRD_CAPABILITY_REFUSED = -6138 };

typedef struct mrd_key {
    uint8_t authority[8];
    uint16_t generation;
    uint8_t key[MRW_HASH];
} mrd_key;

typedef struct mrd_guard {
    const mrd_key *keys;
    unsigned key_count;
    const uint8_t (*revoked)[MRD_ID_BYTES]; /* IDs of capabilities that are refused */
    unsigned revoked_count;
    /* Private: the body that was presented in this connection. */
    uint8_t body[MRD_TOKEN_MAX];
    uint16_t size;
} mrd_guard;

enum { MRD_OF_NAMESPACE, MRD_OF_LOG, MRD_OF_FUNCTION, MRD_OF_OBJECT };
enum { MRD_MAY_READ = 1, MRD_MAY_APPEND = 2, MRD_MAY_LINK = 1 << 9 }; /* the bits of all rights are those of the format */
enum { MRD_REQUEST, MRD_DELIVERY, MRD_REDEEM };
enum { MRD_BY_CHANNEL = 2 };

typedef struct mrd_action {
    uint16_t right;   /* one */
    uint8_t kind;     /* of the resource */
    uint8_t purpose;
    uint8_t way;      /* one of the transports */
    const char *name; /* of the resource; need not end in zero */
    size_t name_size;
    uint32_t bytes;
    uint64_t source;  /* the namespace that delivers, or 0 */
    uint32_t now;     /* seconds since 1970; 0 if they are not known */
} mrd_action;

/* Computes the signature of a body, if one of the guard's keys made it and it is not revoked. Returns 0 or a refusal. */
int mrd_token_verify(const mrd_guard *guard, const uint8_t *body, size_t size, uint8_t signature[MRW_HASH]);
/* Whether a body, which was verified, permits an action. */
bool mrd_token_permits(const uint8_t *body, size_t size, const mrd_action *action);
/* Verifies a body and the proof that its holder has the signature, and keeps the body. Returns 0 or a refusal. */
int mrd_guard_present(mrd_guard *guard, const uint8_t *body, size_t size, const uint8_t *proof, size_t proof_size,
                      const uint8_t exporter[MRW_HASH]);

#ifdef __cplusplus
}
#endif

#endif
