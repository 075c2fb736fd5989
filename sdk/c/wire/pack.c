#include "pack.h"

#include <string.h>

/* First bytes of the formats. */
enum {
    FIX_MAP = 0x80,
    FIX_ARRAY = 0x90,
    FIX_TEXT = 0xa0,
    NIL = 0xc0,
    NEVER = 0xc1,
    FLAG_FALSE = 0xc2,
    FLAG_TRUE = 0xc3,
    BIN_8 = 0xc4,
    EXT_8 = 0xc7,
    FLOAT_32 = 0xca,
    UINT_8 = 0xcc,
    INT_8 = 0xd0,
    FIX_EXT_1 = 0xd4,
    TEXT_8 = 0xd9,
    ARRAY_16 = 0xdc,
    MAP_16 = 0xde,
    FIX_NEGATIVE = 0xe0
};

static bool take_byte(mrw_reader *from, uint8_t *byte) {
    if (from->at == from->end) return false;
    *byte = *from->at++;
    return true;
}

/* A big-endian number of 1, 2, 4 or 8 bytes. */
static bool take_number(mrw_reader *from, unsigned bytes, uint64_t *number) {
    if ((size_t)(from->end - from->at) < bytes) return false;
    for (*number = 0; bytes > 0; bytes--) *number = *number << 8 | *from->at++;
    return true;
}

static bool take_bytes(mrw_reader *from, uint64_t size, mrw_bytes *bytes) {
    if ((uint64_t)(from->end - from->at) < size) return false;
    bytes->at = from->at;
    bytes->size = (size_t)size;
    from->at += size;
    return true;
}

bool mrw_read_uint(mrw_reader *from, uint64_t *value) {
    uint8_t head;
    if (!take_byte(from, &head)) return false;
    if (head < FIX_MAP) {
        *value = head;
        return true;
    }
    if (head >= UINT_8 && head < INT_8) return take_number(from, 1u << (head - UINT_8), value);
    if (head >= INT_8 && head < FIX_EXT_1) {
        unsigned bytes = 1u << (head - INT_8);
        /* A writer may have chosen a signed format; a negative number has its highest bit set. */
        return take_number(from, bytes, value) && *value >> (8 * bytes - 1) == 0;
    }
    return false;
}

bool mrw_read_flag(mrw_reader *from, bool *value) {
    uint8_t head;
    if (!take_byte(from, &head) || (head != FLAG_FALSE && head != FLAG_TRUE)) return false;
    *value = head == FLAG_TRUE;
    return true;
}

bool mrw_read_text(mrw_reader *from, mrw_bytes *text) {
    uint8_t head;
    uint64_t size;
    if (!take_byte(from, &head)) return false;
    if (head >= FIX_TEXT && head < NIL) size = head - FIX_TEXT;
    else if (head < TEXT_8 || head >= ARRAY_16 || !take_number(from, 1u << (head - TEXT_8), &size)) return false;
    return take_bytes(from, size, text) && mrw_is_utf8(text->at, text->size);
}

bool mrw_read_bin(mrw_reader *from, mrw_bytes *bin) {
    uint8_t head;
    uint64_t size;
    if (!take_byte(from, &head) || head < BIN_8 || head >= EXT_8) return false;
    return take_number(from, 1u << (head - BIN_8), &size) && take_bytes(from, size, bin);
}

static bool read_count(mrw_reader *from, uint8_t fix, uint8_t wide, uint32_t *count) {
    uint8_t head;
    uint64_t number;
    if (!take_byte(from, &head)) return false;
    if ((head & 0xf0) == fix) number = head & 0x0f;
    else if ((head != wide && head != wide + 1) || !take_number(from, head == wide ? 2 : 4, &number)) return false;
    *count = (uint32_t)number;
    return true;
}

bool mrw_read_array(mrw_reader *from, uint32_t *count) { return read_count(from, FIX_ARRAY, ARRAY_16, count); }
bool mrw_read_map(mrw_reader *from, uint32_t *count) { return read_count(from, FIX_MAP, MAP_16, count); }

bool mrw_take_nil(mrw_reader *from) {
    if (from->at == from->end || *from->at != NIL) return false;
    from->at++;
    return true;
}

/* Passes over a value that holds no others. */
static bool skip_scalar(mrw_reader *from, uint8_t head) {
    uint64_t size = 0;
    mrw_bytes ignored;
    if (head < FIX_MAP || head >= FIX_NEGATIVE || head == NIL || head == FLAG_FALSE || head == FLAG_TRUE) return true;
    if (head == NEVER) return false;
    if (head < NIL) size = head - FIX_TEXT;
    else if (head < EXT_8 && !take_number(from, 1u << (head - BIN_8), &size)) return false;
    else if (head >= EXT_8 && head < FLOAT_32) {
        if (!take_number(from, 1u << (head - EXT_8), &size)) return false;
        size++; /* the extension's type */
    } else if (head >= FLOAT_32 && head < UINT_8) size = 4u << (head - FLOAT_32);
    else if (head >= UINT_8 && head < INT_8) size = 1u << (head - UINT_8);
    else if (head >= INT_8 && head < FIX_EXT_1) size = 1u << (head - INT_8);
    else if (head >= FIX_EXT_1 && head < TEXT_8) size = (1u << (head - FIX_EXT_1)) + 1u;
    else if (head >= TEXT_8 && !take_number(from, 1u << (head - TEXT_8), &size)) return false;
    return take_bytes(from, size, &ignored);
}

bool mrw_skip(mrw_reader *from, unsigned depth_max) {
    /* How many values are left in each of the containers around; a map's keys count as values. The loop ends, because
     * every turn takes a byte or closes a container that took one. */
    uint64_t left[MRW_DEPTH_MAX];
    unsigned depth = 0;
    if (depth_max > MRW_DEPTH_MAX) depth_max = MRW_DEPTH_MAX;
    do {
        uint8_t head;
        uint32_t count;
        if (depth > 0 && left[depth - 1] == 0) {
            depth--;
            continue;
        }
        if (depth > 0) left[depth - 1]--;
        if (from->at == from->end) return false;
        head = *from->at;
        if ((head >= FIX_MAP && head < FIX_TEXT) || (head >= ARRAY_16 && head < FIX_NEGATIVE)) {
            bool is_map = head < FIX_ARRAY || head >= MAP_16;
            if (depth == depth_max || !(is_map ? mrw_read_map(from, &count) : mrw_read_array(from, &count))) {
                return false;
            }
            left[depth++] = is_map ? 2 * (uint64_t)count : count;
        } else {
            from->at++;
            if (!skip_scalar(from, head)) return false;
        }
    } while (depth > 0);
    return true;
}

void mrw_write_raw(mrw_writer *to, const void *bytes, size_t size) {
    if (to->full || size == 0) return;
    if (to->bytes == NULL) {
        to->size += size;
        return;
    }
    if (size > to->capacity - to->size) {
        to->full = to->drain == NULL || !to->drain(to->context, to->bytes, to->size);
        if (to->full) return;
        to->size = 0;
        if (size > to->capacity) {
            to->full = !to->drain(to->context, bytes, size);
            return;
        }
    }
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

/* A head, and a big-endian number of 0, 1, 2, 4 or 8 bytes. */
static void write_head(mrw_writer *to, unsigned head, uint64_t number, unsigned bytes) {
    uint8_t all[9];
    unsigned i;
    all[0] = (uint8_t)head;
    for (i = 1; i <= bytes; i++) all[i] = (uint8_t)(number >> 8 * (bytes - i));
    mrw_write_raw(to, all, 1 + bytes);
}

/* The shortest of the formats for 1, 2, 4 and 8 bytes, whose heads follow one another. */
static void write_sized(mrw_writer *to, unsigned head, uint64_t number) {
    unsigned step = number <= 0xff ? 0 : number <= 0xffff ? 1 : number <= 0xffffffff ? 2 : 3;
    write_head(to, head + step, number, 1u << step);
}

void mrw_write_uint(mrw_writer *to, uint64_t value) {
    if (value < FIX_MAP) write_head(to, (unsigned)value, 0, 0);
    else write_sized(to, UINT_8, value);
}

void mrw_write_flag(mrw_writer *to, bool value) { write_head(to, value ? FLAG_TRUE : FLAG_FALSE, 0, 0); }
void mrw_write_nil(mrw_writer *to) { write_head(to, NIL, 0, 0); }

void mrw_write_text(mrw_writer *to, mrw_bytes text) {
    if (text.size > UINT32_MAX) to->full = true;
    else if (text.size < 32) write_head(to, FIX_TEXT + (unsigned)text.size, 0, 0);
    else write_sized(to, TEXT_8, text.size);
    mrw_write_raw(to, text.at, text.size);
}

void mrw_write_bin(mrw_writer *to, mrw_bytes bin) {
    if (bin.size > UINT32_MAX) to->full = true;
    else write_sized(to, BIN_8, bin.size);
    mrw_write_raw(to, bin.at, bin.size);
}

static void write_count(mrw_writer *to, unsigned fix, unsigned wide, uint32_t count) {
    if (count < 16) write_head(to, fix + count, 0, 0);
    else if (count <= 0xffff) write_head(to, wide, count, 2);
    else write_head(to, wide + 1, count, 4);
}

void mrw_write_array(mrw_writer *to, uint32_t count) { write_count(to, FIX_ARRAY, ARRAY_16, count); }
void mrw_write_map(mrw_writer *to, uint32_t count) { write_count(to, FIX_MAP, MAP_16, count); }

bool mrw_is_utf8(const uint8_t *at, size_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint32_t point;
        unsigned more, i;
        if (*at < 0x80) {
            at++;
            continue;
        }
        more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : 1;
        if (*at < 0xc2 || *at > 0xf4 || (size_t)(end - at) <= more) return false;
        point = *at & (0x3fu >> more);
        for (i = 1; i <= more; i++) {
            if ((at[i] & 0xc0) != 0x80) return false;
            point = point << 6 | (at[i] & 0x3fu);
        }
        if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
            (more == 3 && (point < 0x10000 || point > 0x10ffff))) {
            return false;
        }
        at += more + 1;
    }
    return true;
}
