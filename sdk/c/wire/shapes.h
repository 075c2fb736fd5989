/* shapes.h - how each message is encoded: its keys, their types, and their places in its struct. */
#ifndef MILLRACE_SHAPES_H
#define MILLRACE_SHAPES_H

#include "wire.h"

typedef enum mrw_kind {
    MRW_U16,
    MRW_U32,
    MRW_U64,
    MRW_FLAG,
    MRW_TEXT,
    MRW_BIN,
    MRW_ID,
    MRW_LEVEL, /* a durability */
    MRW_OPTIONAL_U32,
    MRW_MAP, /* a struct whose first member is true if the map is present */
    MRW_ARRAY
} mrw_kind;

typedef enum mrw_presence {
    MRW_REQUIRED,
    MRW_DEFAULTED, /* written always, may be absent */
    MRW_SPARED,    /* written unless it is zero or empty, may be absent */
    MRW_OPTIONAL   /* written if it has a value, may be absent or nil */
} mrw_presence;

typedef struct mrw_shape mrw_shape;

typedef struct mrw_field {
    const char *key;
    uint8_t key_size, kind, presence;
    uint16_t offset;
    const mrw_shape *of; /* of a map, or of the elements of an array */
} mrw_field;

struct mrw_shape {
    const mrw_field *fields;
    uint8_t count;
    uint16_t size; /* of the struct */
};

/* The shape of a type of message, NULL if there is none. */
const mrw_shape *mrw_shape_of(uint8_t type);

/* Reads the next element of an array, which has this shape; returns false after the last one. */
bool mrw_take(mrw_array *from, const mrw_shape *shape, void *element);

#endif
