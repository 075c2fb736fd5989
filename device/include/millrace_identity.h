/* millrace_identity.h - who a device is: what `millrace device provision` made, in flash sectors of its own.
 *
 *     static mrd_identity identity;
 *     static uint8_t bytes[MRD_IDENTITY_MAX];
 *     if (mrd_identity_load(&identity, &area, bytes) < 0) complain();
 *     port.namespace_id = identity.namespace_id;
 *     mrd_uplink_begin(&uplink, &device, &line, identity.name, identity.token, identity.token_bytes);
 *     if (identity.guard.key_count > 0) mrd_uplink_guard(&uplink, &identity.guard);
 *
 * `area` is a port to two sectors of flash. `millrace device flash-image` makes an image of them, each with the identity, so that one is
 * valid at every moment; or millrace_provision.h writes them. The format is spec/formats/device.md.
 */
#ifndef MILLRACE_IDENTITY_H
#define MILLRACE_IDENTITY_H

#include "millrace_device.h"
#include "millrace_guard.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MRD_IDENTITY_MAX = 512, MRD_HOST_MAX = 127, MRD_SEED_BYTES = 32 };
enum { MRD_IDENTITY_INVALID = -6340 };

typedef struct mrd_identity {
    uint64_t namespace_id;
    char name[MRD_NAME_MAX + 1];
    char host[MRD_HOST_MAX + 1];   /* HOST:PORT, or empty */
    const uint8_t *token;          /* within the bytes that were read, or NULL */
    size_t token_bytes;
    mrd_guard guard;               /* with the key of the device, if it has one */
    uint8_t seed[MRD_SEED_BYTES];

    mrd_key key; /* Private: `guard` refers to it. */
} mrd_identity;

/* Reads the identity at the start of these bytes, which must stay valid if it has a token. Returns 0; MRD_IDENTITY_INVALID if
 * there is none or it was damaged; or MRD_FORMAT_UNKNOWN if a newer host made it. */
int mrd_identity_read(mrd_identity *identity, const uint8_t *bytes, size_t size);

/* Reads the identity from the first two sectors of this area: the first one that is valid. `bytes`, in which it is then, must stay
 * valid. Returns as mrd_identity_read. */
int mrd_identity_load(mrd_identity *identity, const mrd_port *area, uint8_t bytes[MRD_IDENTITY_MAX]);

/* Random bytes for a board that has no source of them: of the identity's seed, and of what tells this start from others, such as
 * the epoch and the clock. Two starts with the same `start` get the same bytes, and then what a host said to the first one, if somebody
 * recorded it, is valid for the second one as well. So `start` must have the epoch (device.epoch), which the uplink writes to the flash before it uses
 * random bytes; and, if the device sleeps with mrd_sleep, mrd_clock as well, because a wake goes on in its epoch. */
typedef struct mrd_random {
    uint8_t state[MRD_SEED_BYTES];
} mrd_random;

void mrd_random_begin(mrd_random *random, const uint8_t seed[MRD_SEED_BYTES], const void *start, size_t start_bytes);
void mrd_random_fill(mrd_random *random, void *bytes, size_t size);

#ifdef __cplusplus
}
#endif

#endif
