/* Checks the codec against the golden frames: each is written exactly, read as what it means, or refused. */
#include "wire/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vector {
    const char *name;
    mrw_bytes frame;
    uint8_t type;
    mrw_heading heading;
    const void *message;
} vector;
typedef struct refusal { const char *name; mrw_bytes frame; int code; } refusal;

#include "vectors.inc"

#define COUNT(of) (sizeof(of) / sizeof((of)[0]))

/* The largest message, and the elements of its array. */
typedef union message {
    mrw_hello hello; mrw_welcome welcome; mrw_failure failure; mrw_append append; mrw_append_many append_many;
    mrw_appended_many appended_many; mrw_records records; mrw_link link; mrw_deliver deliver; mrw_delivered delivered;
    mrw_record record; mrw_get get;
} message;
#define MEMBER(name) mrw_##name name[64];
static union { MRW_ELEMENTS(MEMBER) uint8_t bytes[1]; } elements;
static int failures;

static void fail(const char *name, const char *what) {
    printf("%s: %s\n", name, what);
    failures++;
}

/* Takes the elements out of an array that was read, so that they can be written from their structs. */
static void unpack(uint8_t type, message *of) {
    const mrw_shape *shape = mrw_shape_of(type);
    unsigned at;
    for (at = 0; at < shape->count; at++) {
        const mrw_field *field = &shape->fields[at];
        mrw_array *array = (mrw_array *)((uint8_t *)of + field->offset);
        uint32_t count = 0;
        if (field->kind != MRW_ARRAY) continue;
        while (count < 64 && mrw_take(array, field->of, elements.bytes + (size_t)count * field->of->size)) count++;
        if (array->count != 0) fail("array", "elements are left");
        array->count = count;
        array->items = &elements;
    }
}

static size_t write_frame(uint8_t *bytes, size_t capacity, uint8_t type, const mrw_heading *heading, const void *of) {
    mrw_writer to = {bytes, capacity, 0, false, NULL, NULL};
    return mrw_encode(&to, type, heading, of) == 0 ? to.size : 0;
}

static uint8_t drained[4096];
static size_t drained_size;

static bool drain(void *context, const void *bytes, size_t size) {
    (void)context;
    if (size > sizeof drained - drained_size) return false;
    memcpy(drained + drained_size, bytes, size);
    drained_size += size;
    return true;
}

static void check_writing(const vector *of) {
    static uint8_t bytes[4096];
    size_t size = write_frame(bytes, sizeof bytes, of->type, &of->heading, of->message), capacity;
    mrw_writer to = {bytes, 16, 0, false, drain, NULL};
    if (size != of->frame.size || memcmp(bytes, of->frame.at, size) != 0) fail(of->name, "is written otherwise");
    for (capacity = 0; capacity < size; capacity++) {
        if (write_frame(bytes, capacity, of->type, &of->heading, of->message) != 0) {
            fail(of->name, "fits where it cannot");
        }
    }
    drained_size = 0;
    if (mrw_encode(&to, of->type, &of->heading, of->message) != 0 || !drain(NULL, to.bytes, to.size) ||
        drained_size != of->frame.size || memcmp(drained, of->frame.at, drained_size) != 0) {
        fail(of->name, "is written otherwise in parts");
    }
}

/* Reads the frame from memory of exactly its size, so that a sanitizer sees a byte read too many. */
static int read_frame(const mrw_bytes *from, size_t size, uint8_t type, mrw_heading *heading, message *into,
                      uint8_t **kept) {
    mrw_frame frame;
    size_t used;
    int status;
    *kept = malloc(size > 0 ? size : 1);
    if (size > 0) memcpy(*kept, from->at, size);
    status = mrw_split(*kept, size, MRW_FRAME_MAX, &frame, &used);
    if (status <= 0) return status;
    *heading = frame.heading;
    status = mrw_decode(&frame, type == 0 ? frame.type : type, into);
    return status < 0 ? status : 1;
}

static void check_reading(const vector *of) {
    static uint8_t expected[4096], bytes[4096];
    size_t size = write_frame(expected, sizeof expected, of->type, &of->heading, of->message), cut;
    mrw_heading heading;
    message got;
    uint8_t *kept;
    if (read_frame(&of->frame, of->frame.size, of->type, &heading, &got, &kept) != 1) {
        fail(of->name, "is not read");
    } else {
        /* What is written is a function of every field, so equal bytes mean equal messages. */
        unpack(of->type, &got);
        if (write_frame(bytes, sizeof bytes, of->type, &heading, &got) != size || memcmp(bytes, expected, size) != 0) {
            fail(of->name, "is read as something else");
        }
    }
    free(kept);
    for (cut = 0; cut < of->frame.size; cut++) {
        if (read_frame(&of->frame, cut, of->type, &heading, &got, &kept) != 0) {
            fail(of->name, "is read before it is there");
        }
        free(kept);
    }
}

/* A PING whose message nests so deep, the map itself being the first level. */
static void check_depth(unsigned depth, int expected) {
    static const uint8_t head[] = {0x95, 0x04, 0x01, 0x00, 0xc0, 0x81, 0xa1, 'x'};
    uint8_t bytes[64] = {0};
    mrw_bytes frame = {bytes, MRW_LENGTH_BYTES + sizeof head + depth};
    mrw_heading heading;
    message got;
    uint8_t *kept;
    bytes[0] = (uint8_t)(sizeof head + depth);
    memcpy(bytes + MRW_LENGTH_BYTES, head, sizeof head);
    memset(bytes + MRW_LENGTH_BYTES + sizeof head, 0x91, depth - 1);
    bytes[frame.size - 1] = 0xc0;
    if (read_frame(&frame, frame.size, 0, &heading, &got, &kept) != expected) fail("depth", depth > 8 ? "9" : "8");
    free(kept);
}

/* Types that a byte cannot hold must not be taken for others: 260 is no PING. */
static void check_type(void) {
    static const uint8_t bytes[] = {8, 0, 0, 0, 0x95, 0xcd, 0x01, 0x04, 0x01, 0x00, 0xc0, 0x80};
    mrw_bytes frame = {bytes, sizeof bytes};
    mrw_heading heading;
    message got;
    uint8_t *kept;
    if (read_frame(&frame, frame.size, MRW_PING, &heading, &got, &kept) != MRW_MESSAGE_UNKNOWN) fail("type", "260");
    free(kept);
}

/* One value of each format that a key of a later version may have. */
static const mrw_bytes values[] = {
    {"\177", 1}, {"\340", 1}, {"\300", 1}, {"\302", 1}, {"\303", 1}, {"\312\061\062\063\064", 5},
    {"\313\061\062\063\064\065\066\067\070", 9}, {"\314\061", 2}, {"\315\061\062", 3}, {"\316\061\062\063\064", 5},
    {"\317\061\062\063\064\065\066\067\070", 9}, {"\320\061", 2}, {"\321\061\062", 3}, {"\322\061\062\063\064", 5},
    {"\323\061\062\063\064\065\066\067\070", 9}, {"\324\164\061", 3}, {"\325\164\061\062", 4},
    {"\326\164\061\062\063\064", 6}, {"\327\164\061\062\063\064\065\066\067\070", 10},
    {"\330\164\061\062\063\064\065\066\067\070\061\062\063\064\065\066\067\070", 18}, {"\307\002\164\061\062", 5},
    {"\310\000\002\164\061\062", 6}, {"\311\000\000\000\002\164\061\062", 8}, {"\304\001\141", 3},
    {"\305\000\001\141", 4}, {"\306\000\000\000\001\141", 6}, {"\331\001\141", 3}, {"\332\000\001\141", 4},
    {"\333\000\000\000\001\141", 6}, {"\241\141", 2}, {"\221\001", 2}, {"\334\000\001\001", 4},
    {"\335\000\000\000\001\001", 6}, {"\201\001\002", 3}, {"\336\000\001\001\002", 5},
    {"\337\000\000\000\001\001\002", 7},
};

/* A GET with such a value under an unknown key is read; with a byte less of it, it is not. */
static void check_passing_over(void) {
    static const char head[] = "\225\024\001\000\300\203\243log\241a\245seqno\011\241x";
    size_t i;
    for (i = 0; i < COUNT(values); i++) {
        uint8_t bytes[128] = {0}, *kept;
        mrw_bytes frame = {bytes, MRW_LENGTH_BYTES + sizeof head - 1 + values[i].size};
        mrw_heading heading;
        message got;
        memcpy(bytes + MRW_LENGTH_BYTES, head, sizeof head - 1);
        memcpy(bytes + MRW_LENGTH_BYTES + sizeof head - 1, values[i].at, values[i].size);
        bytes[0] = (uint8_t)(frame.size - MRW_LENGTH_BYTES);
        if (read_frame(&frame, frame.size, MRW_GET, &heading, &got, &kept) != 1) fail("a value", "is not passed over");
        free(kept);
        bytes[0]--;
        frame.size--;
        if (read_frame(&frame, frame.size, MRW_GET, &heading, &got, &kept) != MRW_FRAME_MALFORMED) {
            fail("a value", "is cut");
        }
        free(kept);
    }
}

/* Nil is no value for a key that may be left out, and no value at all for one that must be there. */
static void check_nil(void) {
    static const char nothing[] = "\037\000\000\000\225\024\001\000\300\203\243log\241a\245seqno\011\252durability\300";
    static const char no_log[] = "\022\000\000\000\225\024\001\000\300\202\243log\300\245seqno\011";
    mrw_bytes optional = {nothing, sizeof nothing - 1}, required = {no_log, sizeof no_log - 1};
    mrw_heading heading;
    message got;
    uint8_t *kept;
    if (read_frame(&optional, optional.size, MRW_GET, &heading, &got, &kept) != 1) fail("nil", "where nothing may be");
    free(kept);
    if (read_frame(&required, required.size, MRW_GET, &heading, &got, &kept) != MRW_FRAME_MALFORMED) {
        fail("nil", "as a log");
    }
    free(kept);
}

int main(void) {
    size_t i;
    check_passing_over();
    check_nil();
    check_depth(8, 1);
    check_depth(9, MRW_FRAME_MALFORMED);
    check_type();
    for (i = 0; i < COUNT(frames); i++) {
        check_writing(&frames[i]);
        check_reading(&frames[i]);
    }
    for (i = 0; i < COUNT(readable); i++) check_reading(&readable[i]);
    for (i = 0; i < COUNT(refused); i++) {
        mrw_heading heading;
        message got;
        uint8_t *kept;
        int status = read_frame(&refused[i].frame, refused[i].frame.size, 0, &heading, &got, &kept);
        free(kept);
        if (status != refused[i].code) {
            fail(refused[i].name, "is not refused with its code");
            printf("  %d where %d belongs\n", status, refused[i].code);
        }
    }
    printf("%d frames, %d readable, %d refused, %d failures\n", (int)COUNT(frames), (int)COUNT(readable),
           (int)COUNT(refused), failures);
    return failures == 0 ? 0 : 1;
}
