/* check.h - what the tests of the device share. */
#ifndef MILLRACE_DEVICE_CHECK_H
#define MILLRACE_DEVICE_CHECK_H

#include "../port/posix/flash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char *checking; /* what is tested, with the seed that repeats it */

#define CHECK(claim) ((claim) ? (void)0 : failed(__FILE__, __LINE__, #claim, 0, 0))
#define EQUAL(one, other)                                                                                   \
    do {                                                                                                    \
        long long one_ = (long long)(one), other_ = (long long)(other);                                     \
        if (one_ != other_) failed(__FILE__, __LINE__, #one " == " #other, one_, other_);                   \
    } while (0)

static inline void failed(const char *file, int line, const char *claim, long long one, long long other) {
    fprintf(stderr, "%s:%d: %s: not %s: %lld, %lld\n", file, line, checking, claim, one, other);
    abort();
}

#endif
