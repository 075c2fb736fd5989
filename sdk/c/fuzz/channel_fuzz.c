/* channel_fuzz.c - any bytes: the text of a capability, what a host answers, and its records, or they are refused. For
 * libFuzzer. */
#include "wire/channel.h"

#include <stdlib.h>
#include <string.h>

/* What is sealed is opened as it was, and not when a byte is another one. */
static void seal(const uint8_t *bytes, size_t size) {
    uint8_t record[MRW_RECORD_HEAD + 512 + MRW_TAG], own[512];
    mrw_channel out, in;
    size_t made, plain, part = size < sizeof own ? size : sizeof own;
    memset(&out, 0, sizeof out);
    memcpy(out.open.out.key, bytes, size < MRW_HASH ? size : MRW_HASH);
    out.open.out.max = MRW_RECORD_MAX;
    in.open.in = out.open.out;
    memcpy(own, bytes, part);
    memcpy(record + MRW_RECORD_HEAD, own, part);
    made = mrw_channel_seal(&out, record, part);
    if (made != MRW_RECORD_HEAD + part + MRW_TAG) abort();
    if (mrw_channel_open(&in, record, made, &plain) != (int)made || plain != part ||
        memcmp(record + MRW_RECORD_HEAD, own, part) != 0) {
        abort();
    }
    memcpy(record + MRW_RECORD_HEAD, own, part);
    if (mrw_channel_seal(&out, record, part) != made) abort();
    record[MRW_RECORD_HEAD + bytes[0] % (made - MRW_RECORD_HEAD)] ^= 1;
    if (mrw_channel_open(&in, record, made, &plain) != MRW_CHANNEL_BROKEN) abort();
    if (mrw_channel_open(&in, record, 0, &plain) != MRW_CHANNEL_BROKEN) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t token[MRW_TOKEN_MAX], m1[MRW_M1_MAX], nonce[MRW_CHANNEL_NONCE] = {0}, *copy = malloc(size > 0 ? size : 1);
    mrw_channel channel;
    size_t plain;
    int made;
    if (copy == NULL || size == 0) {
        free(copy);
        return 0;
    }
    memcpy(copy, bytes, size);
    made = mrw_token_parse((char *)copy, size, token, sizeof token);
    if (made > 0 && mrw_token_check(token, (size_t)made - MRW_HASH) != 0) abort();
    mrw_token_check(copy, size);
    memset(token, 3, sizeof token);
    mrw_channel_begin(&channel, token, 64, nonce, MRW_RECORD_MAX, m1);
    if (mrw_channel_answer(&channel, token, 64, copy, size) > 0) abort(); /* nobody knows the capability */
    memset(&channel, 0, sizeof channel);
    channel.open.in.max = 1024;
    mrw_channel_open(&channel, copy, size, &plain);
    seal(bytes, size);
    free(copy);
    return 0;
}
