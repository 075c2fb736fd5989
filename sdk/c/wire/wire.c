#include "wire.h"
#include "shapes.h"

#include <string.h>

#define ELEMENTS 5
/* What a message's map and an array in it leave of the depth for the array's elements. */
#define ELEMENT_DEPTH_MAX (MRW_DEPTH_MAX - 2)

static bool decode_map(mrw_reader *from, const mrw_shape *shape, void *into, unsigned depth);

static const mrw_bytes level_names[] = {{"", 0}, {"memory", 6}, {"disk", 4}};

static bool same(mrw_bytes a, const char *b, size_t size) { return a.size == size && memcmp(a.at, b, size) == 0; }

static bool is_zero(const void *at, size_t size) {
    const uint8_t *bytes = at;
    while (size > 0 && *bytes == 0) bytes++, size--;
    return size == 0;
}

/* ------------------------------------------------------------------------------------------------------ reading */

static bool decode_uint(mrw_reader *from, uint64_t max, uint64_t *value) {
    return mrw_read_uint(from, value) && *value <= max;
}

static bool decode_level(mrw_reader *from, uint8_t *level) {
    mrw_bytes name;
    if (!mrw_read_text(from, &name)) return false;
    for (*level = MRW_MEMORY; *level <= MRW_DISK; ++*level) {
        if (same(name, level_names[*level].at, level_names[*level].size)) return true;
    }
    return false;
}

/* Checks every element, so that taking them later cannot fail. */
static bool decode_array(mrw_reader *from, const mrw_shape *of, mrw_array *array, unsigned depth) {
#define MEMBER(name) mrw_##name name;
    union { MRW_ELEMENTS(MEMBER) } element;
#undef MEMBER
    uint32_t i;
    if (!mrw_read_array(from, &array->count)) return false;
    array->packed.at = from->at;
    for (i = 0; i < array->count; i++) {
        if (!decode_map(from, of, &element, depth - 1)) return false;
    }
    array->packed.size = (size_t)(from->at - (const uint8_t *)array->packed.at);
    return true;
}

static bool decode_field(mrw_reader *from, const mrw_field *field, void *into, unsigned depth) {
    uint64_t number = 0;
    mrw_bytes bytes;
    switch ((mrw_kind)field->kind) {
    case MRW_U16:
        if (!decode_uint(from, UINT16_MAX, &number)) return false;
        *(uint16_t *)into = (uint16_t)number;
        return true;
    case MRW_U32:
        if (!decode_uint(from, UINT32_MAX, &number)) return false;
        *(uint32_t *)into = (uint32_t)number;
        return true;
    case MRW_U64: return mrw_read_uint(from, into);
    case MRW_FLAG: return mrw_read_flag(from, into);
    case MRW_TEXT: return mrw_read_text(from, into);
    case MRW_BIN: return mrw_read_bin(from, into);
    case MRW_ID:
        if (!mrw_read_bin(from, &bytes) || bytes.size != sizeof(mrw_id)) return false;
        memcpy(into, bytes.at, bytes.size);
        return true;
    case MRW_LEVEL: return decode_level(from, into);
    case MRW_OPTIONAL_U32:
        if (!decode_uint(from, UINT32_MAX, &number)) return false;
        ((mrw_optional_u32 *)into)->given = true;
        ((mrw_optional_u32 *)into)->value = (uint32_t)number;
        return true;
    case MRW_MAP:
        if (!decode_map(from, field->of, into, depth)) return false;
        *(bool *)into = true;
        return true;
    case MRW_ARRAY: return depth > 0 && decode_array(from, field->of, into, depth);
    }
    return false;
}

/* The field of this key; `*next` is where it stands if the writer keeps our order. */
static const mrw_field *find_field(const mrw_shape *shape, mrw_bytes key, unsigned *next) {
    unsigned tried;
    for (tried = 0; tried < shape->count; tried++) {
        unsigned at = (*next + tried) % shape->count;
        const mrw_field *field = &shape->fields[at];
        if (same(key, field->key, field->key_size)) {
            *next = at + 1;
            return field;
        }
    }
    return NULL;
}

/* Reads a map into a struct. `depth`: how many more levels may be opened, this one included. */
static bool decode_map(mrw_reader *from, const mrw_shape *shape, void *into, unsigned depth) {
    uint32_t count, seen = 0;
    unsigned next = 0, i;
    if (depth == 0 || !mrw_read_map(from, &count)) return false;
    memset(into, 0, shape->size);
    for (; count > 0; count--) {
        const mrw_field *field;
        mrw_bytes key;
        if (!mrw_read_text(from, &key)) return false;
        field = find_field(shape, key, &next);
        if (field == NULL) {
            if (!mrw_skip(from, depth - 1)) return false;
            continue;
        }
        if (seen >> (field - shape->fields) & 1) return false; /* it comes twice */
        seen |= 1u << (field - shape->fields);
        if (field->presence == MRW_OPTIONAL && mrw_take_nil(from)) continue;
        if (!decode_field(from, field, (uint8_t *)into + field->offset, depth - 1)) return false;
    }
    for (i = 0; i < shape->count; i++) {
        if (shape->fields[i].presence == MRW_REQUIRED && !(seen >> i & 1)) return false;
    }
    return true;
}

int mrw_decode(const mrw_frame *frame, uint8_t type, void *message) {
    const mrw_shape *shape = mrw_shape_of(type);
    mrw_reader from = frame->message;
    if (shape == NULL) return MRW_MESSAGE_UNKNOWN;
    if (frame->type != type) return mrw_shape_of(frame->type) ? MRW_MESSAGE_UNEXPECTED : MRW_MESSAGE_UNKNOWN;
    if (!decode_map(&from, shape, message, MRW_DEPTH_MAX) || from.at != from.end) return MRW_FRAME_MALFORMED;
    return 0;
}

int mrw_peek(const void *bytes, size_t size, mrw_frame *frame) {
    mrw_reader from;
    uint32_t elements;
    uint64_t type;
    from.at = bytes;
    from.end = from.at + size;
    memset(&frame->heading, 0, sizeof frame->heading);
    if (!mrw_read_array(&from, &elements) || elements != ELEMENTS || !mrw_read_uint(&from, &type)) {
        return MRW_FRAME_MALFORMED;
    }
    if (type > UINT8_MAX) return MRW_MESSAGE_UNKNOWN;
    frame->type = (uint8_t)type;
    if (!mrw_read_uint(&from, &frame->heading.request) || !mrw_read_uint(&from, &frame->heading.hlc)) {
        return MRW_FRAME_MALFORMED;
    }
    if (!mrw_take_nil(&from)) {
        mrw_bytes cause;
        if (!mrw_read_bin(&from, &cause) || cause.size != sizeof(mrw_id)) return MRW_FRAME_MALFORMED;
        memcpy(frame->heading.cause.bytes, cause.at, cause.size);
    }
    frame->message = from;
    return 0;
}

int mrw_split(const void *bytes, size_t size, size_t max_bytes, mrw_frame *frame, size_t *used) {
    const uint8_t *at = bytes;
    size_t length;
    int status;
    *used = 0;
    if (size < MRW_LENGTH_BYTES) return 0;
    length = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    *used = MRW_LENGTH_BYTES + length;
    if (length > max_bytes) return MRW_FRAME_TOO_LONG;
    if (size - MRW_LENGTH_BYTES < length) return 0;
    status = mrw_peek(at + MRW_LENGTH_BYTES, length, frame);
    return status < 0 ? status : 1;
}

bool mrw_take(mrw_array *from, const mrw_shape *shape, void *element) {
    mrw_reader reader;
    if (from->count == 0) return false;
    reader.at = from->packed.at;
    reader.end = reader.at + from->packed.size;
    if (!decode_map(&reader, shape, element, ELEMENT_DEPTH_MAX)) return false;
    from->count--;
    from->packed.at = reader.at;
    from->packed.size = (size_t)(reader.end - reader.at);
    return true;
}

/* ------------------------------------------------------------------------------------------------------ writing */

static bool has_value(const mrw_field *field, const void *at) {
    if (field->presence == MRW_REQUIRED || field->presence == MRW_DEFAULTED) return true;
    switch ((mrw_kind)field->kind) {
    case MRW_TEXT: return ((const mrw_bytes *)at)->at != NULL;
    case MRW_BIN: return ((const mrw_bytes *)at)->size > 0;
    case MRW_ID: return !is_zero(at, sizeof(mrw_id));
    case MRW_LEVEL: return *(const uint8_t *)at != MRW_AS_NAMESPACE;
    case MRW_FLAG: return *(const bool *)at;
    case MRW_OPTIONAL_U32: return ((const mrw_optional_u32 *)at)->given;
    case MRW_MAP: return *(const bool *)at;
    case MRW_U16: return !is_zero(at, sizeof(uint16_t));
    case MRW_U32: return !is_zero(at, sizeof(uint32_t));
    case MRW_U64: return !is_zero(at, sizeof(uint64_t));
    case MRW_ARRAY: return ((const mrw_array *)at)->count > 0;
    }
    return true;
}

static void encode_scalar(mrw_writer *to, const mrw_field *field, const void *at) {
    mrw_bytes bytes;
    switch ((mrw_kind)field->kind) {
    case MRW_U16: mrw_write_uint(to, *(const uint16_t *)at); break;
    case MRW_U32: mrw_write_uint(to, *(const uint32_t *)at); break;
    case MRW_U64: mrw_write_uint(to, *(const uint64_t *)at); break;
    case MRW_FLAG: mrw_write_flag(to, *(const bool *)at); break;
    case MRW_TEXT: mrw_write_text(to, *(const mrw_bytes *)at); break;
    case MRW_BIN: mrw_write_bin(to, *(const mrw_bytes *)at); break;
    case MRW_ID:
        bytes.at = at;
        bytes.size = sizeof(mrw_id);
        mrw_write_bin(to, bytes);
        break;
    case MRW_LEVEL: mrw_write_text(to, level_names[*(const uint8_t *)at % 3]); break;
    case MRW_OPTIONAL_U32: mrw_write_uint(to, ((const mrw_optional_u32 *)at)->value); break;
    case MRW_MAP: case MRW_ARRAY: break; /* hold others: see encode_map */
    }
}

static void encode_map(mrw_writer *to, const mrw_shape *shape, const void *from) {
    uint32_t count = 0;
    unsigned i;
    for (i = 0; i < shape->count; i++) {
        if (has_value(&shape->fields[i], (const uint8_t *)from + shape->fields[i].offset)) count++;
    }
    mrw_write_map(to, count);
    for (i = 0; i < shape->count; i++) {
        const mrw_field *field = &shape->fields[i];
        const void *at = (const uint8_t *)from + field->offset;
        mrw_bytes key;
        key.at = field->key;
        key.size = field->key_size;
        if (!has_value(field, at)) continue;
        mrw_write_text(to, key);
        if (field->kind == MRW_MAP) {
            encode_map(to, field->of, at);
        } else if (field->kind == MRW_ARRAY) {
            const mrw_array *array = at;
            uint32_t item;
            mrw_write_array(to, array->count);
            if (array->items == NULL) mrw_write_raw(to, array->packed.at, array->packed.size);
            for (item = 0; array->items != NULL && item < array->count && !to->full; item++) {
                encode_map(to, field->of, (const uint8_t *)array->items + (size_t)item * field->of->size);
            }
        } else {
            encode_scalar(to, field, at);
        }
    }
}

static void encode_body(mrw_writer *to, uint8_t type, const mrw_heading *heading, const void *message) {
    mrw_bytes cause;
    mrw_write_array(to, ELEMENTS);
    mrw_write_uint(to, type);
    mrw_write_uint(to, heading->request);
    mrw_write_uint(to, heading->hlc);
    cause.at = heading->cause.bytes;
    cause.size = sizeof heading->cause.bytes;
    if (is_zero(cause.at, cause.size)) mrw_write_nil(to);
    else mrw_write_bin(to, cause);
    encode_map(to, mrw_shape_of(type), message);
}

static void write_length(uint8_t bytes[MRW_LENGTH_BYTES], size_t length) {
    unsigned i;
    for (i = 0; i < MRW_LENGTH_BYTES; i++) bytes[i] = (uint8_t)(length >> 8 * i);
}

int mrw_encode(mrw_writer *to, uint8_t type, const mrw_heading *heading, const void *message) {
    uint8_t length[MRW_LENGTH_BYTES] = {0};
    size_t start = to->size;
    if (mrw_shape_of(type) == NULL) return MRW_MESSAGE_UNKNOWN;
    to->full = false;
    if (to->drain != NULL) {
        /* The length leaves before the rest is written, so it is counted first. */
        mrw_writer count;
        memset(&count, 0, sizeof count);
        encode_body(&count, type, heading, message);
        if (count.full || count.size > MRW_FRAME_MAX) return MRW_FRAME_TOO_LONG;
        write_length(length, count.size);
    }
    mrw_write_raw(to, length, sizeof length);
    encode_body(to, type, heading, message);
    if (to->drain != NULL) return to->full ? MRW_FRAME_TOO_LONG : 0;
    if (to->full || to->size - start - MRW_LENGTH_BYTES > MRW_FRAME_MAX) {
        to->size = start;
        return MRW_FRAME_TOO_LONG;
    }
    if (to->bytes != NULL) write_length(to->bytes + start, to->size - start - MRW_LENGTH_BYTES);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ shapes */

#define FIELD(of, member, key, kind, presence) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), NULL }
#define NESTED(of, member, key, kind, presence, shape) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), shape }
#define SHAPE(name) { name##_fields, sizeof name##_fields / sizeof name##_fields[0], sizeof(mrw_##name) }

static const mrw_shape empty_shape = {NULL, 0, sizeof(mrw_empty)};

#include "shapes.inc"

#ifdef MRW_DEVICE /* only what the uplink of a device sends and receives; the other tables are left out */
const mrw_shape *mrw_shape_of(uint8_t type) {
    switch (type) {
    case MRW_HELLO: return &hello_shape;
    case MRW_WELCOME: return &welcome_shape;
    case MRW_FAILURE: return &failure_shape;
    case MRW_PING: case MRW_PONG: case MRW_DONE: return &empty_shape;
    case MRW_LINK: return &link_shape;
    case MRW_LINKED: return &linked_shape;
    case MRW_DELIVER: return &deliver_shape;
    case MRW_DELIVERED: return &delivered_shape;
    case MRW_ATTACH: return &attach_shape;
    case MRW_ATTACHED: return &attached_shape;
    case MRW_ENTRIES: return &entries_shape;
    case MRW_ENTERED: return &entered_shape;
    default: (void)shapes, (void)places; return NULL;
    }
}
#else
const mrw_shape *mrw_shape_of(uint8_t type) {
    return type < sizeof places && places[type] > 0 ? shapes[places[type] - 1] : NULL;
}
#endif

#define TAKE(name) \
    bool mrw_take_##name(mrw_array *from, mrw_##name *element) { return mrw_take(from, &name##_shape, element); }
MRW_ELEMENTS(TAKE)
