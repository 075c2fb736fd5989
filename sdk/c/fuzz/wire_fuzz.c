/* wire_fuzz.c - any bytes: they are a frame that can be written again, or they are refused. For libFuzzer. */
#include "wire/shapes.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX 4096

typedef union message {
    mrw_welcome welcome; mrw_append_many append_many; mrw_appended_many appended_many; mrw_records records;
    mrw_link link; mrw_deliver deliver; mrw_delivered delivered;
} message;

static union { mrw_new_record new_records[ELEMENTS_MAX]; mrw_appended appended[ELEMENTS_MAX];
               mrw_record records[ELEMENTS_MAX]; mrw_step steps[ELEMENTS_MAX]; mrw_item items[ELEMENTS_MAX]; } elements;

/* Takes the elements out and puts their structs in their place; false if there are too many of them to try. */
static bool unpack(uint8_t type, message *of) {
    mrw_array *array = type == MRW_APPEND_MANY ? &of->append_many.records : type == MRW_APPENDED_MANY ?
        &of->appended_many.records : type == MRW_RECORDS ? &of->records.records : type == MRW_LINK ? &of->link.path :
        type == MRW_DELIVER ? &of->deliver.items : NULL;
    uint32_t count, i;
    if (array == NULL) return true;
    count = array->count;
    if (count > ELEMENTS_MAX) return false;
    for (i = 0; i < count; i++) {
        bool taken = type == MRW_APPEND_MANY ? mrw_take_new_record(array, &elements.new_records[i]) :
            type == MRW_APPENDED_MANY ? mrw_take_appended(array, &elements.appended[i]) :
            type == MRW_RECORDS ? mrw_take_record(array, &elements.records[i]) :
            type == MRW_LINK ? mrw_take_step(array, &elements.steps[i]) : mrw_take_item(array, &elements.items[i]);
        if (!taken) abort(); /* all of them were read before */
    }
    if (array->count != 0 || array->packed.size != 0) abort();
    array->count = count;
    array->items = &elements;
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
