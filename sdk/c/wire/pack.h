/* pack.h - MessagePack, as far as the wire protocol needs it: whole numbers, booleans, text, bin, arrays and maps.
 *
 * Reads and writes only memory of the caller; does not allocate, and has no recursion. Floats and extensions can be
 * skipped, but not read. Format: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
#ifndef MILLRACE_PACK_H
#define MILLRACE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes in memory of the caller: text that does not end in zero, or binary data. `at` is NULL if there are none. */
typedef struct mrw_bytes {
    const void *at;
    size_t size;
} mrw_bytes;

/* The input that has not been read yet. */
typedef struct mrw_reader {
    const uint8_t *at, *end;
} mrw_reader;

/* The output. When something does not fit, `full` is set, and nothing more is written. */
typedef struct mrw_writer {
    uint8_t *bytes; /* NULL: bytes are only counted */
    size_t capacity, size;
    bool full;
    /* If this is set, it is called with the bytes that do not fit, in order, and returns whether it could write them; it
     * gets `context`. */
    bool (*drain)(void *context, const void *bytes, size_t size);
    void *context;
} mrw_writer;

/* All of these return false if the next value has another type or is incomplete. The reader can then no longer be used. */
bool mrw_read_uint(mrw_reader *from, uint64_t *value);
bool mrw_read_flag(mrw_reader *from, bool *value);
bool mrw_read_text(mrw_reader *from, mrw_bytes *text); /* checked to be UTF-8 */
bool mrw_read_bin(mrw_reader *from, mrw_bytes *bin);
bool mrw_read_array(mrw_reader *from, uint32_t *count);
bool mrw_read_map(mrw_reader *from, uint32_t *count);
/* Reads a nil, if it is next, and returns true; otherwise reads nothing. */
bool mrw_take_nil(mrw_reader *from);
/* Skips one value, which may nest `depth_max` levels deep, at most MRW_DEPTH_MAX. */
#define MRW_DEPTH_MAX 8
bool mrw_skip(mrw_reader *from, unsigned depth_max);

void mrw_write_uint(mrw_writer *to, uint64_t value);
void mrw_write_flag(mrw_writer *to, bool value);
void mrw_write_nil(mrw_writer *to);
void mrw_write_text(mrw_writer *to, mrw_bytes text);
void mrw_write_bin(mrw_writer *to, mrw_bytes bin);
void mrw_write_array(mrw_writer *to, uint32_t count);
void mrw_write_map(mrw_writer *to, uint32_t count);
void mrw_write_raw(mrw_writer *to, const void *bytes, size_t size);

/* Whether the bytes are valid UTF-8, without overlong forms, surrogates, and code points above U+10FFFF. */
bool mrw_is_utf8(const uint8_t *at, size_t size);

#endif
