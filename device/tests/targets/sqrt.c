/* sqrt.c - port/soft/sqrt.c gives what the processor gives: for special values, for neighbours of squares, and for random bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double of_processor(double x) { return sqrt(x); }

#define sqrt soft_sqrt
#include "../../port/soft/sqrt.c"
#undef sqrt

enum { RANDOM = 1000000, SQUARES = 100000 };

static void same(uint64_t bits) {
    double x, processor, soft;
    memcpy(&x, &bits, sizeof x);
    processor = of_processor(x);
    soft = soft_sqrt(x);
    if (isnan(processor) ? isnan(soft) : memcmp(&processor, &soft, sizeof soft) == 0) return;
    fprintf(stderr, "sqrt(%a) is %a, not %a\n", x, processor, soft);
    exit(1);
}

int main(void) {
    static const uint64_t special[] = {0, 1, 2, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000,
                                       0x3FF0000000000001, 0x3FFFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
                                       0x7FF8000000000000, 0x8000000000000000, 0x8000000000000001, 0xBFF0000000000000,
                                       0xFFF0000000000000};
    uint64_t state = 88172645463325252;
    for (unsigned i = 0; i < sizeof special / sizeof special[0]; i++) same(special[i]);
    for (unsigned i = 1; i < SQUARES; i++) {
        double square = (double)i * 65537.0 * (double)i * 65537.0;
        uint64_t bits;
        memcpy(&bits, &square, sizeof bits);
        for (uint64_t near = bits - 2; near <= bits + 2; near++) same(near);
    }
    for (unsigned i = 0; i < RANDOM; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        same(state >> (i & 1)); /* half of them are not negative for sure */
    }
    return 0;
}
