/* sqrt.c - the square root of a double for a processor that computes doubles in software, if the firmware is linked without libm. It rounds
 * correctly, as IEEE 754 demands and as the instructions of other processors do, so a function gives the same results on all of them. */
#include <stdint.h>

double sqrt(double x);

typedef union {
    double value;
    uint64_t bits;
} number;

enum { FRACTION = 52, BIAS = 1023, SPECIAL = 2047, PAIRS = 54, PAIRS_OF_MANTISSA = 27 };

/* The integer root of mantissa * 2^54, one bit for each pair of bits. The mantissa has 53 or 54 bits, so the root has 54: one more than a
 * double. */
static uint64_t root_of(uint64_t mantissa) {
    uint64_t root = 0, rest = 0;
    for (int pair = 1; pair <= PAIRS; pair++) {
        rest <<= 2;
        if (pair <= PAIRS_OF_MANTISSA) rest |= mantissa >> 2 * (PAIRS_OF_MANTISSA - pair) & 3;
        uint64_t trial = root << 2 | 1;
        root <<= 1;
        if (rest >= trial) {
            rest -= trial;
            root |= 1;
        }
    }
    return root;
}

double sqrt(double x) {
    number of = {x}, found;
    int exponent = (int)(of.bits >> FRACTION & SPECIAL);
    uint64_t mantissa = of.bits & (((uint64_t)1 << FRACTION) - 1);
    if (of.bits << 1 == 0) return x; /* both zeros */
    if (of.bits >> 63 || exponent == SPECIAL) return of.bits >> 63 ? (x - x) / (x - x) : x + x;
    if (exponent > 0) mantissa |= (uint64_t)1 << FRACTION;
    else {
        for (exponent = 1; !(mantissa >> FRACTION); exponent--) mantissa <<= 1;
    }
    exponent -= BIAS;
    if (exponent & 1) mantissa <<= 1;
    exponent = (exponent - (exponent & 1)) / 2;
    /* The last bit says how to round: a root with exactly one bit more than a double would have a square with more than its 53. */
    uint64_t root = root_of(mantissa);
    found.bits = ((uint64_t)(exponent + BIAS - 1) << FRACTION) + (root >> 1) + (root & 1);
    return found.value;
}
