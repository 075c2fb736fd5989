/* millrace.h - a function in C, which Millrace runs as WebAssembly or as a native process.
 *
 *     #include "millrace.h"
 *
 *     int handle(const mr_record *record) {
 *         return mr_append("clean/kitchen", record->data, record->size);
 *     }
 *
 * WebAssembly:  clang --target=wasm32 -O2 -ffp-contract=off -nostdlib -Wl,--no-entry handler.c -o handler.wasm
 *               or, with a C library: clang --target=wasm32-wasi -mexec-model=reactor -O2 -ffp-contract=off ...
 *               and in millrace.toml: runtime = "wasm", code = "handler.wasm"
 * Native:       cc -std=c99 -O2 -ffp-contract=off handler.c -o handler
 *               and in millrace.toml: runtime = "process", command = ["./handler"]
 *
 * Device:       cc -std=c99 -Os -ffp-contract=off -DMILLRACE_DEVICE=smooth -c smooth.c, which defines smooth_handle, for the
 *               table of functions of device/include/millrace_device.h
 *
 * All give the same results, bit for bit, if the code is compiled with -ffp-contract=off (a fused multiply-add rounds
 * once where two operations round twice) and does not read the payload of a NaN. This header is C99 and allocates no
 * memory. Include it in only one source file, the one that defines `handle`.
 *
 * handle returns 0 on success: then all of its appends become visible at once. With any other value, the run fails and
 * is retried.
 *
 * In a function that is deployed with `streamed = true`, each append is visible at once. If such a run is interrupted,
 * the next attempt runs the function again: every mr_ call returns the same result as before, and nothing is appended
 * twice. The function may depend only on the record and on mr_ calls, and not on record->attempt, a clock, a file or an
 * environment variable.
 *
 * A function with effects outside of the namespace, such as a request to a service, passes mr_idempotency_key with
 * them, so that the service can recognise what an earlier attempt has already done.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

/* The longest record for which handle is called; with a longer one, the run fails with MR3124. */
#ifndef MR_RECORD_MAX
#define MR_RECORD_MAX 65536
#endif
/* The longest result of a run. */
#define MR_RESULT_MAX 1048576

#define MR_LOG_NAME_MAX 255
#define MR_KEY_MAX 1024
#define MR_RUN_ID_MAX 40
#define MR_RANDOM_MAX 65536

/* A refused call returns a negative number: that of the error code, such as -2105 for MR2105. These are the common ones. */
#define MR_SEQNO_INVALID (-1003)
#define MR_RECORD_TOO_LONG (-1004)
#define MR_LOG_NOT_FOUND (-2101)
#define MR_BELOW_HISTORY (-2104)
#define MR_ABOVE_TAIL (-2105)
#define MR_CALL_INVALID (-3121)
#define MR_RIGHT_MISSING (-3130)
#define MR_TABLE_UNAVAILABLE (-7306)

/* A key has no value. */
#define MR_ABSENT (-1)

/* The status of a run that the library itself fails. */
#define MR_STATUS_RECORD_TOO_LONG 3124

typedef struct mr_record {
    const char *log; /* ends in zero */
    uint64_t seqno;
    const unsigned char *data; /* valid only during this run */
    size_t size;
    uint32_t attempt; /* from 1; all attempts have the same run and idempotency key */
} mr_record;

/* A firmware links several functions, so each has a name of its own. */
#ifdef MILLRACE_DEVICE
#define MR_HANDLE_(name) name##_handle
#define MR_HANDLE_OF_(name) MR_HANDLE_(name)
#define handle MR_HANDLE_OF_(MILLRACE_DEVICE)
#endif

/* Defined by you. */
int handle(const mr_record *record);

/* Appends a record. Returns 0, or a refusal. A refused append fails the run, whatever handle returns. In an atomic run, a
 * native process gets only some refusals here (such as for a name that is too long); the others fail the run when it ends. */
int mr_append(const char *log, const void *data, size_t size);

/* Appends a record as mr_append does. In a streamed run, returns the seqno of the record (for an address, its number in
 * the outbox). */
int64_t mr_publish(const char *log, const void *data, size_t size);

/* Copies at most `capacity` bytes of a record, and returns the length of the whole record, or a refusal. */
int64_t mr_get(const char *log, uint64_t seqno, void *buffer, size_t capacity);

/* The seqno of the newest record of a log, 0 if it has none, or a refusal. */
int64_t mr_latest(const char *log);

/* A key of a table has 1 to MR_KEY_MAX bytes, and its value here at most MR_RECORD_MAX. A run sees each table as it was when the run
 * began, with the run's own changes; these become visible with its appends, when it ends. If another run has meanwhile
 * changed a key that this one has read and changes, this one is run again. Only atomic runs can use tables; others, and
 * devices, have none. */

/* Copies at most `capacity` bytes of the value of a key, and returns the length of the whole value, MR_ABSENT, or a refusal. */
int64_t mr_table_get(const char *table, const void *key, size_t key_size, void *buffer, size_t capacity);

/* Finds the first key that is not below `from`, of `from_size` bytes, in the order of bytes. Copies the key to `key`, which has
 * room for MR_KEY_MAX bytes, its length to `key_size`, and its value as mr_table_get does. The key after that one is found
 * with the found key and a zero byte. */
int64_t mr_table_find(const char *table, const void *from, size_t from_size, void *key, size_t *key_size, void *buffer, size_t capacity);

/* Sets the value of a key, for `ttl_ms` milliseconds, or if that is 0, as long as the table says. Returns 0, or a refusal,
 * which does not end the run. So do the next two. */
int mr_table_put(const char *table, const void *key, size_t key_size, const void *value, size_t size, uint64_t ttl_ms);

/* Deletes the value of a key. */
int mr_table_delete(const char *table, const void *key, size_t key_size);

/* Adds to the whole number that a key has, or to 0. Runs that increment a key are not run again because of each other. */
int mr_table_increment(const char *table, const void *key, size_t key_size, int64_t amount);

/* Nanoseconds since 1970. */
int64_t mr_now_ns(void);

/* Fills `size` bytes, at most MR_RANDOM_MAX, and returns 0, or a refusal. */
int mr_random(void *buffer, size_t size);

/* Copies at most `capacity` bytes of a secret that the function's definition names, and returns the length of the whole
 * secret, or MR_RIGHT_MISSING. */
int64_t mr_secret(const char *name, void *buffer, size_t capacity);

/* Adds to the run's output. */
void mr_print(const char *text);

/* What the bytes of a result are. */
#define MR_TEXT 0
#define MR_BYTES 1
#define MR_JSON 2

/* Sets the result of the run, which is the answer to the caller who invoked the function: text or JSON in UTF-8, or any
 * bytes, at most MR_RESULT_MAX of them. The last result counts, and only if handle returns 0. Returns 0, or
 * MR_CALL_INVALID if it is too long. */
int mr_result(int kind, const void *data, size_t size);

/* Writes the run's id, which is the cause of all records that it appends, as text that ends in zero. */
void mr_run_id(char buffer[MR_RUN_ID_MAX + 1]);

/* Writes the same text, to be used as the idempotency key of effects outside of the namespace: it is different for each
 * run, and the same in each attempt of a run and after restarts. */
void mr_idempotency_key(char buffer[MR_RUN_ID_MAX + 1]);

static inline size_t mr_length_(const char *text) {
    size_t length = 0;
    while (text[length] != 0) length++;
    return length;
}

#ifndef MILLRACE_DEVICE

static uint64_t mr_load_(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | from[bytes];
    return value;
}

static void mr_store_(unsigned char *to, uint64_t value, int bytes) {
    int i;
    for (i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i);
}

/* Sends a request to a table, and returns the length of the whole answer, of which `capacity` bytes are copied, or a refusal. The
 * answer may take the place of the request. */
static int64_t mr_ask_table_(const char *table, const void *request, size_t size, void *answer, size_t capacity);
static void mr_copy_(unsigned char *to, const unsigned char *from, size_t size);

#endif

/* ------------------------------------------------------------------------------------------------- WebAssembly */
#if defined(__wasm__) && !defined(MILLRACE_DEVICE) /* a device may be compiled to WebAssembly as well */

#define MR_IMPORT_(name) __attribute__((import_module("millrace"), import_name(#name)))

MR_IMPORT_(append) int32_t mr_host_append_(const char *, size_t, const void *, size_t);
MR_IMPORT_(result) int32_t mr_host_result_(uint32_t, const void *, size_t);
MR_IMPORT_(publish) int64_t mr_host_publish_(const char *, size_t, const void *, size_t);
MR_IMPORT_(get) int64_t mr_host_get_(const char *, size_t, int64_t, void *, size_t);
MR_IMPORT_(latest) int64_t mr_host_latest_(const char *, size_t);
MR_IMPORT_(table) int64_t mr_host_table_(const char *, size_t, const void *, size_t, void *, size_t);
MR_IMPORT_(now) int64_t mr_host_now_(void);
MR_IMPORT_(random) int32_t mr_host_random_(void *, size_t);
MR_IMPORT_(secret) int64_t mr_host_secret_(const char *, size_t, void *, size_t);
MR_IMPORT_(print) void mr_host_print_(const char *, size_t);
MR_IMPORT_(log_name) int32_t mr_host_log_name_(char *, size_t);
MR_IMPORT_(record) int32_t mr_host_record_(void *, size_t);
MR_IMPORT_(seqno) int64_t mr_host_seqno_(void);
MR_IMPORT_(attempt) int32_t mr_host_attempt_(void);
MR_IMPORT_(cause) int32_t mr_host_cause_(char *, size_t);

static char mr_log_[MR_LOG_NAME_MAX + 1];
static unsigned char mr_data_[MR_RECORD_MAX] __attribute__((aligned(16)));

int mr_result(int kind, const void *data, size_t size) {
    if (size > MR_RESULT_MAX) return MR_CALL_INVALID;
    return mr_host_result_((uint32_t)kind, data, size);
}

int mr_append(const char *log, const void *data, size_t size) {
    return mr_host_append_(log, mr_length_(log), data, size);
}

int64_t mr_publish(const char *log, const void *data, size_t size) {
    return mr_host_publish_(log, mr_length_(log), data, size);
}

int64_t mr_get(const char *log, uint64_t seqno, void *buffer, size_t capacity) {
    return mr_host_get_(log, mr_length_(log), (int64_t)seqno, buffer, capacity);
}

int64_t mr_latest(const char *log) { return mr_host_latest_(log, mr_length_(log)); }
int64_t mr_now_ns(void) { return mr_host_now_(); }
int64_t mr_secret(const char *name, void *buffer, size_t capacity) {
    return mr_host_secret_(name, mr_length_(name), buffer, capacity);
}
void mr_print(const char *text) { mr_host_print_(text, mr_length_(text)); }

int mr_random(void *buffer, size_t size) {
    return size > MR_RANDOM_MAX ? MR_CALL_INVALID : mr_host_random_(buffer, size);
}

void mr_run_id(char buffer[MR_RUN_ID_MAX + 1]) { buffer[mr_host_cause_(buffer, MR_RUN_ID_MAX)] = 0; }
void mr_idempotency_key(char buffer[MR_RUN_ID_MAX + 1]) { mr_run_id(buffer); }

static int64_t mr_ask_table_(const char *table, const void *request, size_t size, void *answer, size_t capacity) {
    return mr_host_table_(table, mr_length_(table), request, size, answer, capacity);
}

static void mr_copy_(unsigned char *to, const unsigned char *from, size_t size) {
    while (size-- > 0) *to++ = *from++;
}

__attribute__((export_name("handle"))) int32_t mr_enter_(void) {
    mr_record record;
    int32_t size = mr_host_record_(mr_data_, sizeof mr_data_);
    if (size < 0 || (size_t)size > sizeof mr_data_) return MR_STATUS_RECORD_TOO_LONG;
    mr_log_[mr_host_log_name_(mr_log_, MR_LOG_NAME_MAX)] = 0;
    record.log = mr_log_;
    record.seqno = (uint64_t)mr_host_seqno_();
    record.data = mr_data_;
    record.size = (size_t)size;
    record.attempt = (uint32_t)mr_host_attempt_();
    return handle(&record);
}

#elif !defined(MILLRACE_DEVICE) /* -------------------------------------------- native: spec/protocol/worker.md */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MR_HEAD_ 16
#define MR_WORK_FIXED_ 32
#define MR_WORK_MAX_ (MR_HEAD_ + MR_WORK_FIXED_ + MR_LOG_NAME_MAX + MR_RECORD_MAX)
#define MR_PAYLOAD_MAX_ (16u << 20)
#define MR_PROTOCOL_ 4
enum { MR_WORK_ = 1, MR_ANSWER_ = 2 };
/* The number of a WORK frame, and the bit of it in HELLO. */
enum { MR_RUN_ = 1 };
enum { MR_HELLO_ = 16, MR_APPEND_ = 18, MR_DONE_, MR_GET_, MR_LATEST_, MR_NOW_, MR_RANDOM_, MR_OUTPUT_, MR_TABLE_ = 29 };

typedef struct {
    uint32_t length;
    uint8_t kind;
    uint16_t name_length;
    uint32_t work, number;
} mr_head_;

static int mr_fd_ = 3;
/* Received and not yet used: [mr_begin_, mr_end_). WORK frames wait here while an answer is awaited; the window that
 * our HELLO announces bounds them to half of it. */
static unsigned char mr_in_[2 * MR_WORK_MAX_];
static size_t mr_begin_, mr_end_;
/* Staged, to be written before the next answer is awaited or the run is done. */
static unsigned char mr_out_[65536];
static size_t mr_staged_;
static uint64_t mr_run_low_, mr_run_high_;
/* The work in progress, which each frame names. */
static uint32_t mr_work_id_;
/* Whether each append of the run is answered. */
static int mr_streamed_;
/* The run's record, apart from what arrives meanwhile. */
static char mr_log_[MR_LOG_NAME_MAX + 1];
static unsigned char mr_data_[MR_RECORD_MAX] __attribute__((aligned(16)));
/* The run's result, which goes with its DONE. */
static unsigned char mr_result_[1 + MR_RESULT_MAX];
static size_t mr_result_size_;

/* Without a host there is nothing left to do. */
static void mr_quit_(void) { _exit(0); }

static void mr_write_(const void *data, size_t size) {
    const unsigned char *from = (const unsigned char *)data;
    while (size > 0) {
        ssize_t written = write(mr_fd_, from, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) mr_quit_();
        from += written;
        size -= (size_t)written;
    }
}

static size_t mr_read_(void *to, size_t capacity) {
    for (;;) {
        ssize_t count = read(mr_fd_, to, capacity);
        if (count > 0) return (size_t)count;
        if (count == 0 || errno != EINTR) mr_quit_();
    }
}

static void mr_flush_(void) {
    mr_write_(mr_out_, mr_staged_);
    mr_staged_ = 0;
}

static void mr_stage_(const void *data, size_t size) {
    if (size > sizeof mr_out_ - mr_staged_) mr_flush_();
    if (size > sizeof mr_out_) {
        mr_write_(data, size);
        return;
    }
    if (size > 0) memcpy(mr_out_ + mr_staged_, data, size);
    mr_staged_ += size;
}

static void mr_frame_(int kind, uint32_t number, const char *name, size_t name_length, const void *data, size_t size) {
    unsigned char head[MR_HEAD_];
    mr_store_(head, name_length + size, 4);
    mr_store_(head + 4, (uint64_t)kind, 2);
    mr_store_(head + 6, name_length, 2);
    mr_store_(head + 8, mr_work_id_, 4);
    mr_store_(head + 12, number, 4);
    mr_stage_(head, sizeof head);
    mr_stage_(name, name_length);
    mr_stage_(data, size);
}

/* Makes at least `size` bytes available from offset `at`, which is counted from mr_begin_. */
static void mr_need_(size_t at, size_t size) {
    while (mr_end_ - mr_begin_ < at + size) {
        if (sizeof mr_in_ - mr_begin_ < at + size) {
            memmove(mr_in_, mr_in_ + mr_begin_, mr_end_ - mr_begin_);
            mr_end_ -= mr_begin_;
            mr_begin_ = 0;
            /* The host sent more than the window allows. */
            if (sizeof mr_in_ < at + size) mr_quit_();
        }
        mr_end_ += mr_read_(mr_in_ + mr_end_, sizeof mr_in_ - mr_end_);
    }
}

static mr_head_ mr_head_at_(size_t at) {
    mr_head_ head;
    const unsigned char *from;
    mr_need_(at, MR_HEAD_);
    from = mr_in_ + mr_begin_ + at;
    head.length = (uint32_t)mr_load_(from, 4);
    head.kind = from[4];
    head.name_length = (uint16_t)mr_load_(from + 6, 2);
    head.work = (uint32_t)mr_load_(from + 8, 4);
    head.number = (uint32_t)mr_load_(from + 12, 4);
    return head;
}

/* Takes up to `capacity` bytes from offset `at` out of what was received, and drops the rest of `length` bytes. */
static void mr_take_(size_t at, size_t length, void *buffer, size_t capacity) {
    unsigned char *to = (unsigned char *)buffer;
    while (length > 0) {
        size_t part, kept;
        mr_need_(at, 1);
        part = mr_end_ - mr_begin_ - at;
        if (part > length) part = length;
        kept = part < capacity ? part : capacity;
        if (kept > 0) memcpy(to, mr_in_ + mr_begin_ + at, kept);
        to += kept;
        capacity -= kept;
        memmove(mr_in_ + mr_begin_ + at, mr_in_ + mr_begin_ + at + part, mr_end_ - mr_begin_ - at - part);
        mr_end_ -= part;
        length -= part;
    }
}

/* The code of a refusal, whose digits follow "MR", as a negative number. */
static int64_t mr_refusal_(const unsigned char *code, size_t size) {
    int64_t number = 0;
    size_t i;
    for (i = 2; i < size; i++) number = 10 * number + (code[i] - '0');
    return number == 0 ? MR_CALL_INVALID : -number;
}

/* Sends what was staged and waits for the answer, behind WORK frames that may be under way. */
static int64_t mr_answer_(void *buffer, size_t capacity) {
    size_t at = 0;
    unsigned char *head_at, code[8];
    mr_head_ head;
    mr_flush_();
    while ((head = mr_head_at_(at)).kind != MR_ANSWER_) at += MR_HEAD_ + head.length;
    head_at = mr_in_ + mr_begin_ + at;
    memmove(head_at, head_at + MR_HEAD_, mr_end_ - mr_begin_ - at - MR_HEAD_);
    mr_end_ -= MR_HEAD_;
    if (head.name_length == 0) {
        mr_take_(at, head.length, buffer, capacity);
        return (int64_t)head.length;
    }
    if (head.name_length > sizeof code || head.name_length > head.length) mr_quit_();
    mr_take_(at, head.name_length, code, sizeof code);
    mr_take_(at, head.length - head.name_length, NULL, 0);
    return mr_refusal_(code, head.name_length);
}

int64_t mr_publish(const char *log, const void *data, size_t size) {
    unsigned char seqno[8] = {0};
    size_t length = mr_length_(log);
    if (length > MR_LOG_NAME_MAX) length = MR_LOG_NAME_MAX + 1; /* for the host to refuse */
    if (size > MR_PAYLOAD_MAX_) size = MR_PAYLOAD_MAX_ + 1;     /* likewise */
    mr_frame_(MR_APPEND_, 0, log, length, data, size);
    if (mr_streamed_) {
        int64_t answer = mr_answer_(seqno, sizeof seqno);
        return answer < 0 ? answer : (int64_t)mr_load_(seqno, 8);
    }
    return length > MR_LOG_NAME_MAX ? -1001 : size > MR_PAYLOAD_MAX_ ? MR_RECORD_TOO_LONG : 0;
}

int mr_result(int kind, const void *data, size_t size) {
    if (size > MR_RESULT_MAX) return MR_CALL_INVALID;
    mr_result_[0] = (unsigned char)kind;
    if (size > 0) memcpy(mr_result_ + 1, data, size);
    mr_result_size_ = 1 + size;
    return 0;
}

int mr_append(const char *log, const void *data, size_t size) {
    int64_t published = mr_publish(log, data, size);
    return published < 0 ? (int)published : 0;
}

int64_t mr_get(const char *log, uint64_t seqno, void *buffer, size_t capacity) {
    size_t length = mr_length_(log);
    unsigned char of[8];
    mr_store_(of, seqno, 8);
    mr_frame_(MR_GET_, 0, log, length > MR_LOG_NAME_MAX ? MR_LOG_NAME_MAX + 1 : length, of, sizeof of);
    return mr_answer_(buffer, capacity);
}

int64_t mr_latest(const char *log) {
    unsigned char seqno[8] = {0};
    size_t length = mr_length_(log);
    int64_t answer;
    mr_frame_(MR_LATEST_, 0, log, length > MR_LOG_NAME_MAX ? MR_LOG_NAME_MAX + 1 : length, NULL, 0);
    answer = mr_answer_(seqno, sizeof seqno);
    return answer < 0 ? answer : (int64_t)mr_load_(seqno, 8);
}

static int64_t mr_ask_table_(const char *table, const void *request, size_t size, void *answer, size_t capacity) {
    size_t length = mr_length_(table);
    mr_frame_(MR_TABLE_, 0, table, length > MR_LOG_NAME_MAX ? MR_LOG_NAME_MAX + 1 : length, request, size);
    return mr_answer_(answer, capacity);
}

static void mr_copy_(unsigned char *to, const unsigned char *from, size_t size) {
    if (size > 0) memcpy(to, from, size);
}

int64_t mr_now_ns(void) {
    unsigned char now[8] = {0};
    mr_frame_(MR_NOW_, 0, NULL, 0, NULL, 0);
    mr_answer_(now, sizeof now);
    return (int64_t)mr_load_(now, 8);
}

int mr_random(void *buffer, size_t size) {
    int64_t answer;
    unsigned char count[4];
    if (size > MR_RANDOM_MAX) return MR_CALL_INVALID;
    mr_store_(count, size, 4);
    mr_frame_(MR_RANDOM_, 0, NULL, 0, count, sizeof count);
    answer = mr_answer_(buffer, size);
    return answer < 0 ? (int)answer : 0;
}

int64_t mr_secret(const char *name, void *buffer, size_t capacity) {
    const char *folder = getenv("MILLRACE_SECRETS");
    char path[1024];
    int64_t size = 0;
    ssize_t got;
    int file;
    if (folder == NULL || *name == 0 || strchr(name, '/') != NULL) return MR_RIGHT_MISSING;
    if (strlen(folder) + strlen(name) + 2 > sizeof path) return MR_RIGHT_MISSING;
    strcpy(path, folder);
    strcat(path, "/");
    strcat(path, name);
    file = open(path, O_RDONLY);
    if (file < 0) return MR_RIGHT_MISSING;
    for (;;) {
        char beyond[512];
        int fits = (size_t)size < capacity;
        void *to = fits ? (void *)((unsigned char *)buffer + size) : (void *)beyond;
        got = read(file, to, fits ? capacity - (size_t)size : sizeof beyond);
        if (got > 0) size += got;
        else if (got == 0 || errno != EINTR) break;
    }
    close(file);
    return got < 0 ? MR_RIGHT_MISSING : size;
}

void mr_print(const char *text) {
    mr_frame_(MR_OUTPUT_, 0, NULL, 0, text, mr_length_(text));
    mr_flush_();
}

static char *mr_hex_(char *to, uint64_t value, int digits) {
    while (digits < 16 && value >> 4 * digits != 0) digits++;
    while (digits-- > 0) *to++ = "0123456789abcdef"[value >> 4 * digits & 15];
    return to;
}

/* NAMESPACE-EPOCH-SEQUENCE: 48, 24 and 56 bits. */
void mr_run_id(char buffer[MR_RUN_ID_MAX + 1]) {
    char *to = buffer;
    if (mr_run_high_ >> 16 != 0) {
        to = mr_hex_(to, mr_run_high_ >> 16, 12);
        *to++ = '-';
        to = mr_hex_(to, (mr_run_high_ & 0xffff) << 8 | mr_run_low_ >> 56, 1);
        *to++ = '-';
        to = mr_hex_(to, mr_run_low_ & 0xffffffffffffffu, 1);
    } else {
        *to++ = '-';
    }
    *to = 0;
}

void mr_idempotency_key(char buffer[MR_RUN_ID_MAX + 1]) { mr_run_id(buffer); }

/* Says how the run ended: a code and a message, or neither. */
static void mr_done_(int status) {
    static const char too_long[] = "the record is longer than MR_RECORD_MAX: the handler was not called";
    char text[48] = "the handler returned ", digits[12];
    size_t at = mr_length_(text), count = 0;
    uint32_t left = status < 0 ? 0u - (uint32_t)status : (uint32_t)status;
    if (status == 0) {
        mr_frame_(MR_DONE_, 0, NULL, 0, mr_result_, mr_result_size_);
    } else if (status == MR_STATUS_RECORD_TOO_LONG) {
        mr_frame_(MR_DONE_, 0, "MR3124", 6, too_long, sizeof too_long - 1);
    } else {
        if (status < 0) text[at++] = '-';
        do digits[count++] = (char)('0' + left % 10);
        while ((left /= 10) != 0);
        while (count > 0) text[at++] = digits[--count];
        mr_frame_(MR_DONE_, 0, "MR3109", 6, text, at);
    }
}

/* Runs the frame at the front, and takes it away. Other frames than WORK do not come unasked, and only for runs, as HELLO says. */
static void mr_run_one_(void) {
    const unsigned char *from;
    mr_record record;
    mr_head_ head = mr_head_at_(0);
    size_t kept = MR_HEAD_ + head.length;
    int status = MR_STATUS_RECORD_TOO_LONG;
    if (head.kind != MR_WORK_ || head.number != MR_RUN_ || head.length < MR_WORK_FIXED_ + (uint32_t)head.name_length) mr_quit_();
    mr_work_id_ = head.work;
    if (head.name_length <= MR_LOG_NAME_MAX && kept <= MR_HEAD_ + MR_WORK_FIXED_ + head.name_length + (size_t)MR_RECORD_MAX) {
        mr_need_(0, kept);
        from = mr_in_ + mr_begin_ + MR_HEAD_;
        mr_run_low_ = mr_load_(from + 8, 8);
        mr_run_high_ = mr_load_(from + 16, 8);
        memcpy(mr_log_, from + MR_WORK_FIXED_, head.name_length);
        mr_log_[head.name_length] = 0;
        record.log = mr_log_;
        record.seqno = mr_load_(from, 8);
        record.attempt = (uint32_t)mr_load_(from + 24, 4);
        mr_streamed_ = (int)mr_load_(from + 28, 4) & 1;
        record.size = head.length - MR_WORK_FIXED_ - head.name_length;
        record.data = mr_data_;
        memcpy(mr_data_, from + MR_WORK_FIXED_ + head.name_length, record.size);
        mr_begin_ += kept;
        mr_result_size_ = 0;
        status = handle(&record);
    } else {
        mr_begin_ += MR_HEAD_;
        mr_take_(0, head.length, NULL, 0);
    }
    mr_done_(status);
    mr_flush_();
}

int main(void) {
    unsigned char hello[12] = {0};
    const char *fd = getenv("MILLRACE_FD");
    if (fd != NULL) mr_fd_ = atoi(fd);
    if (fcntl(mr_fd_, F_SETFD, FD_CLOEXEC) != 0) {
        static const char text[] = "this program is a Millrace function: run it with runtime = \"process\"\n";
        return write(2, text, sizeof text - 1) < 0 ? 3 : 2;
    }
    /* window, works, kinds, features */
    mr_store_(hello, MR_WORK_MAX_, 4);
    mr_store_(hello + 4, 1, 2);
    mr_store_(hello + 6, 1u << (MR_RUN_ - 1), 2);
    mr_frame_(MR_HELLO_, MR_PROTOCOL_, NULL, 0, hello, sizeof hello);
    mr_flush_();
    for (;;) mr_run_one_();
}

#endif

#ifndef MILLRACE_DEVICE /* --------------------------------------------------------- tables: spec/protocol/table.md */

enum { MR_TABLE_GET_, MR_TABLE_PUT_, MR_TABLE_DELETE_, MR_TABLE_INCREMENT_, MR_TABLE_SCAN_ };
/* Version, expiry, time, flags and length of the value, which follow the key in an entry. */
#define MR_ENTRY_FIXED_ 29
/* The parts of a request before the value, and those of an answer, fit in this. */
#define MR_TABLE_FIXED_ (32 + MR_KEY_MAX)

static unsigned char mr_table_[MR_TABLE_FIXED_ + MR_RECORD_MAX];

/* Begins a request; returns its length so far. Of a key that is too long, one byte too many is sent, for the host to refuse. */
static size_t mr_table_request_(int kind, const void *key, size_t key_size) {
    if (key_size > MR_KEY_MAX) key_size = MR_KEY_MAX + 1;
    mr_table_[0] = (unsigned char)kind;
    mr_store_(mr_table_ + 1, key_size, 2);
    mr_copy_(mr_table_ + 3, (const unsigned char *)key, key_size);
    return 3 + key_size;
}

/* Asks for at most one entry. */
static int64_t mr_table_entry_(const char *table, size_t size, void *key, size_t *key_size, void *buffer, size_t capacity) {
    int64_t answer = mr_ask_table_(table, mr_table_, size, mr_table_, sizeof mr_table_);
    size_t length, value, copied;
    if (answer < 0) return answer;
    if (answer <= 1) return MR_ABSENT;
    length = (size_t)mr_load_(mr_table_ + 1, 2);
    value = (size_t)mr_load_(mr_table_ + 3 + length + MR_ENTRY_FIXED_ - 4, 4);
    if (key != NULL) {
        mr_copy_((unsigned char *)key, mr_table_ + 3, length);
        *key_size = length;
    }
    copied = value < capacity ? value : capacity;
    if (copied > MR_RECORD_MAX) copied = MR_RECORD_MAX;
    mr_copy_((unsigned char *)buffer, mr_table_ + 3 + length + MR_ENTRY_FIXED_, copied);
    return (int64_t)value;
}

int64_t mr_table_get(const char *table, const void *key, size_t key_size, void *buffer, size_t capacity) {
    return mr_table_entry_(table, mr_table_request_(MR_TABLE_GET_, key, key_size), NULL, NULL, buffer, capacity);
}

int64_t mr_table_find(const char *table, const void *from, size_t from_size, void *key, size_t *key_size, void *buffer, size_t capacity) {
    size_t size = mr_table_request_(MR_TABLE_SCAN_, from, from_size);
    mr_store_(mr_table_ + size, 0, 2);     /* no end */
    mr_store_(mr_table_ + size + 2, 1, 4); /* one entry */
    mr_table_[size + 6] = 0;               /* with its value */
    return mr_table_entry_(table, size + 7, key, key_size, buffer, capacity);
}

static int mr_table_change_(const char *table, size_t size) {
    int64_t answer = mr_ask_table_(table, mr_table_, size, mr_table_, sizeof mr_table_);
    return answer < 0 ? (int)answer : 0;
}

int mr_table_put(const char *table, const void *key, size_t key_size, const void *value, size_t size, uint64_t ttl_ms) {
    size_t at = mr_table_request_(MR_TABLE_PUT_, key, key_size);
    if (size > MR_RECORD_MAX) return MR_RECORD_TOO_LONG;
    mr_store_(mr_table_ + at, ~(uint64_t)0, 8); /* without a condition */
    mr_store_(mr_table_ + at + 8, ttl_ms, 8);
    mr_copy_(mr_table_ + at + 16, (const unsigned char *)value, size);
    return mr_table_change_(table, at + 16 + size);
}

int mr_table_delete(const char *table, const void *key, size_t key_size) {
    size_t at = mr_table_request_(MR_TABLE_DELETE_, key, key_size);
    mr_store_(mr_table_ + at, ~(uint64_t)0, 8);
    return mr_table_change_(table, at + 8);
}

int mr_table_increment(const char *table, const void *key, size_t key_size, int64_t amount) {
    size_t at = mr_table_request_(MR_TABLE_INCREMENT_, key, key_size);
    mr_store_(mr_table_ + at, (uint64_t)amount, 8);
    return mr_table_change_(table, at + 8);
}

#endif
#endif
