#include "shapes.h"

#define FIELD(of, member, key, kind, presence) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), NULL }
#define NESTED(of, member, key, kind, presence, shape) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), shape }
#define SHAPE(name) { name##_fields, sizeof name##_fields / sizeof name##_fields[0], sizeof(mrw_##name) }

static const mrw_shape empty_shape = {NULL, 0, sizeof(mrw_empty)};

#include "shapes.inc"

const mrw_shape *mrw_shape_of(uint8_t type) {
    return type < sizeof places && places[type] > 0 ? shapes[places[type] - 1] : NULL;
}

#define TAKE(name) \
    bool mrw_take_##name(mrw_array *from, mrw_##name *element) { return mrw_take(from, &name##_shape, element); }
MRW_ELEMENTS(TAKE)
