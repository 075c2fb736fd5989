/* `raw/x` -> `smooth/x`: smooth.py in C, with the same results to the last bit.
 *
 * One source, several targets, and no library but sdk/c/millrace.h:
 *
 *   clang --target=wasm32 -nostdlib -Wl,--no-entry -O2 -ffp-contract=off -I../../../sdk/c smooth.c -o smooth.wasm
 *   cc -O2 -ffp-contract=off -I../../../sdk/c smooth.c -o smooth
 *
 * -ffp-contract=off keeps compilers from fusing a multiplication and an addition, which would round once instead of
 * twice on some machines. Everything else here is IEEE 754 arithmetic in a fixed order.
 */

#include "millrace.h"

#ifndef STEP_S
#define STEP_S 3600
#endif
#ifndef WINDOW_S
#define WINDOW_S 10800
#endif

enum {
    SAMPLES_MIN = 3, /* a mean of fewer says little */
    SAMPLES_MAX = 4096,
    RECORD_MAX = 512,
    DIGITS_MAX = 15, /* an integer of 15 digits is exact as a double */
    POWER_MAX = 22   /* and so is every power of ten up to this one */
};

typedef struct {
    int64_t t; /* when it was measured, in seconds since 1970 */
    double v;
    int64_t at; /* when it became known, never before t */
} sample;

/* Text that is being read. */
typedef struct {
    const char *p, *end;
} cursor;

/* The samples of the raw log up to the run's record, newest first, as far as they have been read. */
static struct {
    const char *log;
    uint64_t newest_seqno;
    uint32_t count;
    sample samples[SAMPLES_MAX + 2];
} past;

/* ---- reading a sample ---- */

static void skip_space(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) c->p++;
}

static int take(cursor *c, char wanted) {
    skip_space(c);
    if (c->p == c->end || *c->p != wanted) return 0;
    c->p++;
    return 1;
}

/* Digits, as an integer of at most DIGITS_MAX of them; how many, or -1 if there are more. */
static int take_digits(cursor *c, int64_t *value) {
    int count = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++, count++) {
        if (*value >= 100000000000000) return -1;
        *value = *value * 10 + (*c->p - '0');
    }
    return count;
}

static double power_of_ten(int n) {
    double power = 1;
    while (n-- > 0) power *= 10;
    return power;
}

/* A number, rounded once and so correctly: both operands of the last operation are exact. `whole` says if it was written
 * without fraction and exponent. */
static int take_number(cursor *c, double *value, int *whole) {
    int64_t mantissa = 0, exponent = 0;
    int negative = c->p < c->end && *c->p == '-', fraction = 0, down = 0;
    c->p += negative;
    const char *first = c->p;
    int digits = take_digits(c, &mantissa);
    if (digits < 1 || (digits > 1 && *first == '0')) return 0;
    *whole = 1;
    if (c->p < c->end && *c->p == '.') {
        c->p++, *whole = 0;
        if ((fraction = take_digits(c, &mantissa)) < 1) return 0;
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++, *whole = 0;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-')) down = *c->p++ == '-';
        if (take_digits(c, &exponent) < 1 || exponent > 99) return 0;
    }
    int power = (int)(down ? -exponent : exponent) - fraction;
    if (power < -POWER_MAX || power > POWER_MAX) return 0;
    *value = power < 0 ? (double)mantissa / power_of_ten(-power) : (double)mantissa * power_of_ten(power);
    if (negative) *value = -*value;
    return 1;
}

/* A text without escapes; its first character and its length. */
static int take_text(cursor *c, const char **text, size_t *length) {
    if (!take(c, '"')) return 0;
    *text = c->p;
    while (c->p < c->end && *c->p != '"' && *c->p != '\\') c->p++;
    *length = (size_t)(c->p - *text);
    return take(c, '"');
}

static int take_time(cursor *c, int64_t *t) {
    double value;
    int whole;
    skip_space(c);
    if (!take_number(c, &value, &whole) || !whole || value < 0) return 0;
    *t = (int64_t)value;
    return 1;
}

/* A flat JSON object with the numbers "t", "v" and perhaps "at"; other fields are texts or numbers and passed over.
 * smooth.py takes any JSON: nested fields, escapes, more digits. What this does not take fails its run. */
static int read_sample(const void *text, size_t length, sample *s) {
    cursor c = {text, (const char *)text + length};
    int has_t = 0, has_v = 0, has_at = 0, whole;
    if (!take(&c, '{')) return 0;
    do {
        const char *name, *other;
        size_t name_length, other_length;
        double ignored;
        if (!take_text(&c, &name, &name_length) || !take(&c, ':')) return 0;
        skip_space(&c);
        if (name_length == 1 && *name == 't') {
            if (!(has_t = take_time(&c, &s->t))) return 0;
        } else if (name_length == 2 && name[0] == 'a' && name[1] == 't') {
            if (!(has_at = take_time(&c, &s->at))) return 0;
        } else if (name_length == 1 && *name == 'v') {
            if (!(has_v = take_number(&c, &s->v, &whole))) return 0;
        } else if (!take_text(&c, &other, &other_length) && !take_number(&c, &ignored, &whole)) {
            return 0;
        }
    } while (take(&c, ','));
    if (!take(&c, '}') || !has_t || !has_v) return 0;
    skip_space(&c);
    if (!has_at) s->at = s->t;
    return c.p == c.end && s->at >= s->t && s->v >= -1e9 && s->v <= 1e9;
}

/* ---- writing one ---- */

static char *put_text(char *p, const char *text) {
    while (*text) *p++ = *text++;
    return p;
}

static char *put_integer(char *p, int64_t n) {
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count) *p++ = digits[--count];
    return p;
}

/* A value rounded to four decimals, as short as it can be written: 39.0, 39.25, -0.0001. */
static char *put_value(char *p, double v) {
    double scaled = v * 10000 + 0.5;
    int64_t n = (int64_t)scaled;
    if ((double)n > scaled) n--; /* floor, as in samples.py */
    if (n < 0) *p++ = '-', n = -n;
    p = put_integer(p, n / 10000);
    *p++ = '.';
    for (int64_t rest = n % 10000, unit = 1000; unit && (rest || unit == 1000); rest %= unit, unit /= 10)
        *p++ = (char)('0' + rest / unit);
    return p;
}

/* ---- the function ---- */

static int fail(const char *why) {
    mr_print(why);
    return 1;
}

/* The `n`-th sample before the run's record: 1 if there is one, 0 if the log began later, negative if it is none. */
static int past_sample(uint32_t n, const sample **found) {
    while (n >= past.count) {
        char text[RECORD_MAX];
        if (past.newest_seqno <= past.count) return 0;
        int64_t length = mr_get(past.log, past.newest_seqno - past.count, text, sizeof text);
        if (length < 0 || (size_t)length > sizeof text) return -1;
        if (!read_sample(text, (size_t)length, &past.samples[past.count])) return -1;
        past.count++;
    }
    *found = &past.samples[n];
    return 1;
}

/* Appends the mean of the window that ends at `step`, if enough samples are in it. */
static int publish(const char *log, int64_t step) {
    const sample *s;
    double total = 0;
    uint32_t count = 0, n = 0;
    int found;
    while ((found = past_sample(n, &s)) > 0 && s->t > step - WINDOW_S) {
        n++;
        if (s->t > step) continue;
        total += s->v;
        if (++count > SAMPLES_MAX) return fail("too many samples in a window");
    }
    if (found < 0) return fail("an earlier record is no sample");
    if (count < SAMPLES_MIN) return 0;
    char text[RECORD_MAX], *p = text;
    p = put_integer(put_text(p, "{\"t\":"), step);
    p = put_value(put_text(p, ",\"v\":"), total / count);
    p = put_integer(put_text(p, ",\"at\":"), past.samples[0].at);
    p = put_text(p, "}");
    return mr_append(log, text, (size_t)(p - text));
}

/* The newest step that the smoothed log has, -1 if none; 0 if the log holds something else. */
static int newest_step(const char *log, int64_t *step) {
    char text[RECORD_MAX];
    sample newest;
    int64_t last = mr_latest(log);
    *step = -1;
    if (last == 0) return 1;
    int64_t length = last < 0 ? last : mr_get(log, (uint64_t)last, text, sizeof text);
    if (length < 0 || (size_t)length > sizeof text || !read_sample(text, (size_t)length, &newest)) return 0;
    *step = newest.t;
    return 1;
}

/* "raw/x" -> "smooth/x" */
static void name_smoothed(char *smoothed, const char *raw) {
    const char *name = raw, *prefix = "raw/";
    while (*prefix && *name == *prefix) name++, prefix++;
    *put_text(put_text(smoothed, "smooth/"), *prefix ? raw : name) = 0;
}

int handle(const mr_record *record) {
    char log[MR_LOG_NAME_MAX + 8];
    const sample *before;
    int64_t done;

    past.log = record->log, past.newest_seqno = record->seqno, past.count = 1;
    if (!read_sample(record->data, record->size, &past.samples[0])) return fail("the record is no sample");
    const int64_t now = past.samples[0].t;
    name_smoothed(log, record->log);
    if (!newest_step(log, &done)) return fail("the smoothed log holds something else");

    const int found = past_sample(1, &before);
    if (found < 0) return fail("an earlier record is no sample");
    if (found && before->t % STEP_S) { /* the step of the sample before this one, which this one ends */
        const int64_t step = before->t - before->t % STEP_S + STEP_S;
        const int status = step < now && step > done ? publish(log, step) : 0;
        if (status) return status;
    }
    return now % STEP_S == 0 && now > done ? publish(log, now) : 0; /* its own, if it is on the mark */
}
