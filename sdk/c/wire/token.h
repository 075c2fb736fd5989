/* token.h - capabilities as a client needs them: spec/formats/capability.md. A token is a body, which may be shown, and
 * a signature, which is a key. */
#ifndef MILLRACE_TOKEN_H
#define MILLRACE_TOKEN_H

#include "crypto.h"

#define MRW_TOKEN_MAX 1024
#define MRW_CAPABILITY_MALFORMED (-6130)

/* Decodes `mr1_…` into `token`, which takes `capacity` bytes; the text has `size` characters. How many bytes it has, or
 * MRW_CAPABILITY_MALFORMED. */
int mrw_token_parse(const char *text, size_t size, uint8_t *token, size_t capacity);

/* Whether a body has the form of one: 0, or MRW_CAPABILITY_MALFORMED. Whether it is valid, a host knows. */
int mrw_token_check(const uint8_t *body, size_t size);

#endif
