/* token.h - capabilities, as far as a client needs them: spec/formats/capability.md. A token has a body, which is not
 * secret, and a signature, which is a secret key. */
#ifndef MILLRACE_TOKEN_H
#define MILLRACE_TOKEN_H

#include "crypto.h"

#define MRW_TOKEN_MAX 1024
#define MRW_CAPABILITY_MALFORMED (-6130)

/* Decodes a text `mr1_…` of `size` characters into `token`, which has room for `capacity` bytes. Returns the number of
 * bytes, or MRW_CAPABILITY_MALFORMED. */
int mrw_token_parse(const char *text, size_t size, uint8_t *token, size_t capacity);

/* Checks the form of a body: returns 0, or MRW_CAPABILITY_MALFORMED. Only a host can check whether it is valid. */
int mrw_token_check(const uint8_t *body, size_t size);

#endif
