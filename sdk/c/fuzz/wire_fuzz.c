/* wire_fuzz.c - any bytes: they are a frame that can be written again, or they are refused. For libFuzzer. */
#include "wire/shapes.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX 4096

typedef union message {
    mrw_hello hello; mrw_welcome welcome; mrw_append append; mrw_append_many append_many; mrw_records records; mrw_link link;
    mrw_deliver deliver; mrw_delivered delivered;
} message;

#define MEMBER(name) mrw_##name name[ELEMENTS_MAX];
static union { MRW_ELEMENTS(MEMBER) uint8_t bytes[1]; } elements;

/* Takes the elements out and puts their structs in their place; false if there are too many of them to try. */
static bool unpack(uint8_t type, message *of) {
    const mrw_shape *shape = mrw_shape_of(type);
    unsigned at;
    for (at = 0; at < shape->count; at++) {
        const mrw_field *field = &shape->fields[at];
        mrw_array *array = (mrw_array *)((uint8_t *)of + field->offset);
        uint32_t count, i;
        if (field->kind != MRW_ARRAY) continue;
        count = array->count;
        if (count > ELEMENTS_MAX) return false;
        for (i = 0; i < count; i++) {
            /* All of them were read before. */
            if (!mrw_take(array, field->of, elements.bytes + (size_t)i * field->of->size)) abort();
        }
        if (array->count != 0 || array->packed.size != 0) abort();
        array->count = count;
        array->items = &elements;
    }
    return true;
}

static size_t write_frame(uint8_t *to, size_t capacity, const mrw_frame *frame, const message *of) {
    mrw_writer writer = {to, capacity, 0, false, NULL, NULL};
    return mrw_encode(&writer, frame->type, &frame->heading, of) == 0 ? writer.size : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static uint8_t once[1 << 20], twice[1 << 20];
    mrw_frame frame, again;
    message read, back;
    size_t used, written, used_again;
    /* Half of the inputs need not guess a length. */
    uint8_t *copy = malloc(size + MRW_LENGTH_BYTES);
    int status;
    if (copy == NULL || size > sizeof once / 4) {
        free(copy);
        return 0;
    }
    if (size > 0) memcpy(copy + MRW_LENGTH_BYTES, bytes, size);
    for (used = 0; used < MRW_LENGTH_BYTES; used++) copy[used] = (uint8_t)(size >> 8 * used);
    status = size % 2 == 0 ? mrw_split(copy, size + MRW_LENGTH_BYTES, MRW_FRAME_MAX, &frame, &used)
                           : mrw_split(copy + MRW_LENGTH_BYTES, size, 1 << 20, &frame, &used);
    if (status == 1 && mrw_shape_of(frame.type) != NULL && mrw_decode(&frame, frame.type, &read) == 0 &&
        unpack(frame.type, &read)) {
        written = write_frame(once, sizeof once, &frame, &read);
        if (written == 0 || mrw_split(once, written, MRW_FRAME_MAX, &again, &used_again) != 1 || used_again != written) {
            abort();
        }
        if (mrw_decode(&again, frame.type, &back) != 0 || !unpack(frame.type, &back)) abort();
        /* What was read from the canonical bytes writes the same ones. */
        if (write_frame(twice, sizeof twice, &again, &back) != written || memcmp(once, twice, written) != 0) abort();
    }
    free(copy);
    return 0;
}
