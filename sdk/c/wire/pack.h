/* pack.h - MessagePack, as much of it as the wire protocol needs: whole numbers, flags, text, bin, arrays and maps.
 *
 * Reads from and writes to memory of the caller's; allocates nothing, recurses nowhere. Floats and extensions can be
 * passed over, not read. Format: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
#ifndef MILLRACE_PACK_H
#define MILLRACE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes: text without an end mark, or binary. `at` is NULL if there are none. */
typedef struct mrw_bytes {
    const void *at;
    size_t size;
} mrw_bytes;

/* The rest of the input. */
typedef struct mrw_reader {
    const uint8_t *at, *end;
} mrw_reader;

/* Where to write. Once something did not fit, `full` stays set, and nothing more is written. */
typedef struct mrw_writer {
    uint8_t *bytes; /* NULL: only counts */
    size_t capacity, size;
    bool full;
    /* If there is one, it takes what does not fit, in order, and says whether it could; `context` is its own. */
    bool (*drain)(void *context, const void *bytes, size_t size);
    void *context;
} mrw_writer;

/* All of these return false if something else is there, or too little. The reader is then of no more use. */
bool mrw_read_uint(mrw_reader *from, uint64_t *value);
bool mrw_read_flag(mrw_reader *from, bool *value);
bool mrw_read_text(mrw_reader *from, mrw_bytes *text); /* which is UTF-8 */
bool mrw_read_bin(mrw_reader *from, mrw_bytes *bin);
bool mrw_read_array(mrw_reader *from, uint32_t *count);
bool mrw_read_map(mrw_reader *from, uint32_t *count);
/* Takes a nil, if one is there; else takes nothing. */
bool mrw_take_nil(mrw_reader *from);
/* Passes over one value, which may nest `depth_max` deep, at most MRW_DEPTH_MAX. */
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

/* Whether this is UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool mrw_is_utf8(const uint8_t *at, size_t size);

#endif
