/* deviation.c - a function: the mean and the standard deviation of the newest 16 records of "raw", which are decimal numbers of at most 15
 * digits, and how many deviations the newest one is away from the mean. Its record is these three as doubles, little-endian.
 *
 * A board without a floating-point unit and without libm needs port/soft/sqrt.c. Compile with -ffp-contract=off.
 */
#include "millrace.h"

enum { NEWEST = 16, TEXT = 24 };

/* Both operands of the division are exact, so it is the double that is nearest to the decimal number. */
static double number(const char *text, int64_t size) {
    double digits = 0, scale = 1;
    int negative = size > 0 && text[0] == '-', fraction = 0;
    for (int64_t i = negative; i < size; i++) {
        if (text[i] == '.') fraction = 1;
        else if (text[i] >= '0' && text[i] <= '9') {
            digits = digits * 10 + (text[i] - '0');
            if (fraction) scale *= 10;
        }
    }
    return (negative ? -digits : digits) / scale;
}

int handle(const mr_record *record) {
    double newest = 0, mean = 0, squares = 0, found[3];
    int count = 0;
    for (uint64_t seqno = record->seqno; seqno > 0 && count < NEWEST; seqno--) {
        char text[TEXT];
        int64_t size = mr_get(record->log, seqno, text, sizeof text);
        if (size == MR_BELOW_HISTORY) break;
        if (size < 0 || size > TEXT) return 1;
        /* Welford's algorithm: one pass, without the difference of two large sums. */
        double value = number(text, size), before = value - mean;
        if (count++ == 0) newest = value;
        mean += before / count;
        squares += before * (value - mean);
    }
    found[0] = mean;
    found[1] = count > 1 ? __builtin_sqrt(squares / (count - 1)) : 0;
    found[2] = found[1] > 0 ? (newest - mean) / found[1] : 0;
    return mr_append("deviation", found, sizeof found);
}
