/* mean.c - a function: the mean of the newest eight records of "raw", which are numbers with at most two decimals. */
#include "millrace.h"

enum { NEWEST = 8, TEXT = 16 };

/* A number in hundredths. */
static int hundredths(const char *text, int64_t size) {
    int value = 0, decimals = -1, negative = size > 0 && text[0] == '-';
    for (int64_t i = negative; i < size && decimals < 2; i++) {
        if (text[i] == '.') decimals = 0;
        else if (text[i] >= '0' && text[i] <= '9') {
            value = value * 10 + (text[i] - '0');
            if (decimals >= 0) decimals++;
        }
    }
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 2; decimals++) value *= 10;
    return negative ? -value : value;
}

static size_t put_hundredths(char *to, int value) {
    size_t size = 0;
    unsigned rest = (unsigned)(value < 0 ? -value : value), power = 100;
    if (value < 0) to[size++] = '-';
    while (rest / power >= 10) power *= 10;
    for (; power > 0; power /= 10) {
        if (power == 10) to[size++] = '.';
        to[size++] = (char)('0' + rest / power % 10);
    }
    return size;
}

int handle(const mr_record *record) {
    char text[TEXT];
    int sum = 0, count = 0;
    for (uint64_t seqno = record->seqno; seqno > 0 && count < NEWEST; seqno--, count++) {
        int64_t size = mr_get(record->log, seqno, text, sizeof text);
        if (size == MR_BELOW_HISTORY) break;
        if (size < 0 || size > TEXT) return 1;
        sum += hundredths(text, size);
    }
    return mr_append("mean", text, put_hundredths(text, sum / count));
}
