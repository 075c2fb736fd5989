/* millrace_class.h - classes of shared objects in C. Their methods run as WebAssembly within the host.
 *
 *     #include "millrace.h"
 *     #include "millrace_class.h"
 *
 *     typedef struct { int64_t size, inside; } gate;
 *
 *     static void make(mr_call *call) { ((gate *)call->object)->size = mr_int(call, 0); }
 *
 *     static void enter(mr_call *call) {
 *         gate *self = call->object;
 *         if (self->inside == self->size)
 *             mr_raise(call, "RuntimeError", "the gate is full");
 *         else
 *             mr_return_int(call, ++self->inside);
 *     }
 *
 *     static void inside(mr_call *call) { mr_return_int(call, ((gate *)call->object)->inside); }
 *
 *     MR_CLASS(gate, make, MR_NO_MIGRATION, {"enter", enter, 0}, {"inside", inside, MR_READONLY})
 *
 * clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry gate.c -o gate.wasm
 * In Python: farm.shared_module("gate.wasm", methods=["enter"], readonly=["inside"])("front", 3).enter()
 *
 * An object is one struct without pointers, which is zero at first. `make` gets the arguments of the constructor and fills the struct;
 * it may be 0. No other method runs on the object at the same time. If a method raises an exception, the object is not changed. Reading
 * an argument that is missing or has another type raises TypeError. Arguments and results are nil, booleans, integers, numbers, text and
 * bytes.
 *
 * Give the class a higher version when its struct or its code changes. The migration of the newer class,
 * void migrate(mr_call *call, int64_t older, const void *object, size_t size), gets the struct of the older version and fills
 * call->object.
 */
#ifndef MILLRACE_CLASS_H
#define MILLRACE_CLASS_H

#ifndef __wasm__
#error "a class of shared objects is compiled to WebAssembly"
#endif

/* The longest text or bytes that a method returns. */
#ifndef MR_ANSWER_MAX
#define MR_ANSWER_MAX 65536
#endif

#define MR_READONLY 1
#define MR_NO_MIGRATION ((mr_migration)0)
/* The status of a run that is not a method call: a task was submitted to the pool of the class. */
#define MR_STATUS_NO_STEP 3121

typedef struct mr_call {
    void *object;
    const unsigned char *arguments_; /* the first one */
    const unsigned char *end_;
    size_t count;                    /* how many there are */
    const char *raised_, *text_;
    unsigned char *answer_;
    size_t answered_;
} mr_call;

typedef void (*mr_migration)(mr_call *call, int64_t older, const void *object, size_t size);

typedef struct mr_method {
    const char *name;
    void (*run)(mr_call *call);
    int flags;
} mr_method;

/* Raises the exception with this name in Python: RuntimeError, ValueError, KeyError. Both texts must stay valid, as literals do. */
static inline void mr_raise(mr_call *call, const char *name, const char *text) {
    if (call->raised_ == 0) call->raised_ = name, call->text_ = text;
}

/* Compilers call these for loops and structs, also where there is no C library. */
__attribute__((weak, no_builtin)) void *memcpy(void *to, const void *from, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}

__attribute__((weak, no_builtin)) void *memset(void *to, int value, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)to)[i] = (unsigned char)value;
    return to;
}

/* ------------------------------------------------------------------------------------------------- MessagePack */
static inline uint64_t mr_be_(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

/* How many bytes of lengths follow the marker of text, bytes, an array or a map, and how many the marker itself contains. */
static inline int mr_length_bytes_(unsigned char marker) {
    switch (marker) {
        case 0xC4: case 0xD9: return 1;
        case 0xC5: case 0xDA: case 0xDC: return 2;
        case 0xC6: case 0xDB: case 0xDD: return 4;
        default: return 0;
    }
}

/* The bytes of a value of text or bytes, or null; `at` moves behind it. */
static inline const unsigned char *mr_run_(const unsigned char **at, const unsigned char *end, size_t *size) {
    if (*at >= end) return 0;
    unsigned char marker = **at;
    int bytes = mr_length_bytes_(marker);
    int is_short = marker >= 0xA0 && marker < 0xC0;
    if ((bytes == 0 && !is_short) || marker == 0xDC || marker == 0xDD || end - *at < 1 + bytes) return 0;
    uint64_t length = is_short ? (uint64_t)(marker & 31) : mr_be_(*at + 1, bytes);
    const unsigned char *from = *at + 1 + bytes;
    if ((uint64_t)(end - from) < length) return 0;
    *size = (size_t)length;
    *at = from + length;
    return from;
}

/* How many elements an array has, or -1; `at` moves to the first one. */
static inline int64_t mr_array_(const unsigned char **at, const unsigned char *end) {
    if (*at >= end) return -1;
    unsigned char marker = **at;
    int bytes = mr_length_bytes_(marker);
    if (marker >= 0x90 && marker < 0xA0) return *at += 1, marker & 15;
    if ((marker != 0xDC && marker != 0xDD) || end - *at < 1 + bytes) return -1;
    int64_t count = (int64_t)mr_be_(*at + 1, bytes);
    *at += 1 + bytes;
    return count;
}

/* Moves behind one value without elements; whether it is one. */
static inline int mr_skip_(const unsigned char **at, const unsigned char *end) {
    static const unsigned char fixed[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* 0xCA to 0xD3 */
    size_t size;
    if (*at >= end) return 0;
    unsigned char marker = **at;
    if (marker < 0x80 || marker >= 0xE0 || marker == 0xC0 || marker == 0xC2 || marker == 0xC3) return *at += 1, 1;
    if (marker >= 0xCA && marker <= 0xD3) {
        if (end - *at < 1 + fixed[marker - 0xCA]) return 0;
        return *at += 1 + fixed[marker - 0xCA], 1;
    }
    return mr_run_(at, end, &size) != 0;
}

static inline int mr_read_int_(const unsigned char **at, const unsigned char *end, int64_t *value) {
    const unsigned char *from = *at;
    if (!mr_skip_(at, end)) return 0;
    unsigned char marker = *from;
    if (marker < 0x80) return *value = marker, 1;
    if (marker >= 0xE0) return *value = (int64_t)marker - 256, 1;
    if (marker >= 0xCC && marker <= 0xCF) {
        uint64_t whole = mr_be_(from + 1, 1 << (marker - 0xCC));
        return *value = (int64_t)whole, whole <= INT64_MAX;
    }
    switch (marker) {
        case 0xD0: return *value = (int8_t)from[1], 1;
        case 0xD1: return *value = (int16_t)mr_be_(from + 1, 2), 1;
        case 0xD2: return *value = (int32_t)mr_be_(from + 1, 4), 1;
        case 0xD3: return *value = (int64_t)mr_be_(from + 1, 8), 1;
        default: return 0;
    }
}

static inline unsigned char *mr_put_be_(unsigned char *out, unsigned char marker, uint64_t value, int bytes) {
    *out++ = marker;
    while (bytes-- > 0) *out++ = (unsigned char)(value >> 8 * bytes);
    return out;
}

/* --------------------------------------------------------------------------------------------------- arguments */
/* The place of an argument, or null: then the call raises TypeError. */
static inline const unsigned char *mr_argument_(mr_call *call, size_t which) {
    const unsigned char *at = call->arguments_;
    if (which >= call->count) return mr_raise(call, "TypeError", "an argument is missing"), (const unsigned char *)0;
    while (which-- > 0) mr_skip_(&at, call->end_);
    return at;
}

static inline int mr_is_nil(mr_call *call, size_t which) {
    const unsigned char *at = mr_argument_(call, which);
    return at != 0 && *at == 0xC0;
}

static inline int64_t mr_int(mr_call *call, size_t which) {
    const unsigned char *at = mr_argument_(call, which);
    int64_t value = 0;
    if (at != 0 && !mr_read_int_(&at, call->end_, &value)) mr_raise(call, "TypeError", "an argument is not an integer of 64 bits");
    return value;
}

static inline int mr_bool(mr_call *call, size_t which) {
    const unsigned char *at = mr_argument_(call, which);
    if (at != 0 && *at != 0xC2 && *at != 0xC3) mr_raise(call, "TypeError", "an argument is not a boolean");
    return at != 0 && *at == 0xC3;
}

static inline double mr_double(mr_call *call, size_t which) {
    const unsigned char *at = mr_argument_(call, which);
    int64_t whole = 0;
    union { uint64_t bits; double value; } wide = {0};
    union { uint32_t bits; float value; } narrow = {0};
    if (at == 0) return 0;
    if (*at == 0xCB) return wide.bits = mr_be_(at + 1, 8), wide.value;
    if (*at == 0xCA) return narrow.bits = (uint32_t)mr_be_(at + 1, 4), (double)narrow.value;
    if (!mr_read_int_(&at, call->end_, &whole)) mr_raise(call, "TypeError", "an argument is not a number");
    return (double)whole;
}

/* Text or bytes, valid during the call. Text does not end in zero. */
static inline const unsigned char *mr_bytes(mr_call *call, size_t which, size_t *size) {
    const unsigned char *at = mr_argument_(call, which), *found = 0;
    *size = 0;
    if (at != 0 && (found = mr_run_(&at, call->end_, size)) == 0) mr_raise(call, "TypeError", "an argument is neither text nor bytes");
    return found;
}

/* ----------------------------------------------------------------------------------------------------- answers */
/* A method that calls none of these returns nil. */
static inline void mr_return_int(mr_call *call, int64_t value) {
    unsigned char *out = call->answer_;
    if (value >= 0 && value < 128)
        *out++ = (unsigned char)value;
    else
        out = mr_put_be_(out, 0xD3, (uint64_t)value, 8);
    call->answered_ = (size_t)(out - call->answer_);
}

static inline void mr_return_bool(mr_call *call, int value) {
    call->answer_[0] = value ? 0xC3 : 0xC2;
    call->answered_ = 1;
}

static inline void mr_return_double(mr_call *call, double value) {
    union { double value; uint64_t bits; } wide = {value};
    call->answered_ = (size_t)(mr_put_be_(call->answer_, 0xCB, wide.bits, 8) - call->answer_);
}

static inline void mr_return_run_(mr_call *call, unsigned char marker, const void *data, size_t size) {
    if (size > MR_ANSWER_MAX) {
        mr_raise(call, "ValueError", "the answer is longer than MR_ANSWER_MAX");
        return;
    }
    unsigned char *out = mr_put_be_(call->answer_, marker, size, 4);
    memcpy(out, data, size);
    call->answered_ = (size_t)(out - call->answer_) + size;
}

static inline void mr_return_text(mr_call *call, const char *text, size_t size) { mr_return_run_(call, 0xDB, text, size); }
static inline void mr_return_bytes(mr_call *call, const void *data, size_t size) { mr_return_run_(call, 0xC6, data, size); }

/* -------------------------------------------------------------------------------------------------------- steps */
MR_IMPORT_(fields) int64_t mr_host_fields_(void *, size_t);
/* Markers and lengths around an object, an answer, and the text of an exception. */
#define MR_STEP_OVERHEAD_ 64

static inline int mr_same_(const char *text, const unsigned char *other, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] == 0 || (unsigned char)text[i] != other[i]) return 0;
    }
    return text[size] == 0;
}

static inline unsigned char *mr_put_text_(unsigned char *out, const char *text) {
    size_t size = mr_length_(text);
    if (size > 1024) size = 1024;
    out = mr_put_be_(out, 0xDA, size, 2);
    memcpy(out, text, size);
    return out + size;
}

/* Begins a call of what these bytes are the arguments of, an array; whether they are. */
static inline int mr_arguments_(mr_call *call, const unsigned char *data, size_t size) {
    const unsigned char *at = data, *end = data + size;
    int64_t count = mr_array_(&at, end);
    const unsigned char *first = at;
    for (int64_t i = 0; i < count; i++) {
        if (!mr_skip_(&at, end)) return 0;
    }
    call->arguments_ = first, call->end_ = end, call->count = count < 0 ? 0 : (size_t)count;
    return count >= 0 && at == end;
}

/* The object as the host has it, or made here, or migrated. */
static inline void mr_object_(mr_call *call, size_t size, void (*make)(mr_call *), mr_migration migrate, int is_new,
                              const unsigned char *created, size_t created_size, int is_older, int64_t older, unsigned char *fields,
                              size_t capacity) {
    if (is_new) {
        if (!mr_arguments_(call, created, created_size)) mr_raise(call, "TypeError", "an argument has a type that a class in C does not support");
        if (make != 0 && call->raised_ == 0) make(call);
        return;
    }
    int64_t length = mr_host_fields_(fields, capacity);
    const unsigned char *at = fields, *end = fields + length, *name, *found = 0;
    size_t named, found_size = 0;
    if (length >= 0 && (size_t)length <= capacity && mr_array_(&at, end) == 2 && (name = mr_run_(&at, end, &named)) != 0 &&
        mr_same_("object", name, named)) {
        found = mr_run_(&at, end, &found_size);
        /* The field's value contains the struct as bytes. */
        at = found;
        found = found == 0 ? 0 : mr_run_(&at, found + found_size, &found_size);
    }
    if (found == 0) {
        mr_raise(call, "RuntimeError", "the object does not belong to a class in C, or is too large for this class");
    } else if (is_older) {
        if (migrate == 0)
            mr_raise(call, "millrace.ClassChanged", "the object has an older version, and the class has no migration");
        else
            migrate(call, older, found, found_size);
    } else if (found_size != size) {
        mr_raise(call, "millrace.ClassChanged", "the object has another size than the struct of the class: give the class a higher version");
    } else {
        memcpy(call->object, found, size);
    }
}

/* Runs one step: `before` and `object` have room for the struct, `fields` and `out` for more than that. */
static inline int mr_step_(const mr_record *record, const mr_method *methods, size_t count, size_t size, void (*make)(mr_call *),
                           mr_migration migrate, unsigned char *object, unsigned char *before, unsigned char *fields, size_t capacity,
                           unsigned char *answer, unsigned char *out) {
    const unsigned char *at = record->data, *end = at + record->size, *created = 0, *name = 0, *payload = 0;
    size_t ignored, created_size = 0, named = 0, payload_size = 0;
    int64_t number, older = 0;
    mr_call call = {object, 0, 0, 0, 0, 0, answer, 1};
    answer[0] = 0xC0;
    if (mr_array_(&at, end) != 11) return MR_STATUS_NO_STEP;
    /* key, incarnation, changed, number */
    if (!mr_run_(&at, end, &ignored)) return MR_STATUS_NO_STEP;
    for (int i = 0; i < 3; i++) {
        if (!mr_read_int_(&at, end, &number)) return MR_STATUS_NO_STEP;
    }
    int reads = at < end && *at == 0xC3;
    /* reads, pool, body */
    if (!mr_skip_(&at, end) || !mr_run_(&at, end, &ignored) || !mr_read_int_(&at, end, &number)) return MR_STATUS_NO_STEP;
    int is_older = at < end && *at != 0xC0;
    if (!(is_older ? mr_read_int_(&at, end, &older) : mr_skip_(&at, end))) return MR_STATUS_NO_STEP;
    int is_new = at < end && *at != 0xC0;
    if (is_new ? (created = mr_run_(&at, end, &created_size)) == 0 : !mr_skip_(&at, end)) return MR_STATUS_NO_STEP;
    /* application; the method, its time, its arguments */
    if (!mr_run_(&at, end, &ignored) || mr_array_(&at, end) != 3 || (name = mr_run_(&at, end, &named)) == 0 ||
        !mr_read_int_(&at, end, &number) || (payload = mr_run_(&at, end, &payload_size)) == 0)
        return MR_STATUS_NO_STEP;

    const mr_method *method = 0;
    for (size_t i = 0; i < count; i++) {
        if (mr_same_(methods[i].name, name, named)) method = &methods[i];
    }
    if (method == 0)
        mr_raise(&call, "AttributeError", "the class has no such method");
    else if (reads && !(method->flags & MR_READONLY))
        mr_raise(&call, "TypeError", "the method is not marked MR_READONLY");
    if (call.raised_ == 0) mr_object_(&call, size, make, migrate, is_new, created, created_size, is_older, older, fields, capacity);
    if (call.raised_ == 0) {
        memcpy(before, object, size);
        if (!mr_arguments_(&call, payload, payload_size))
            mr_raise(&call, "TypeError", "an argument has a type that a class in C does not support");
        else
            method->run(&call);
    }
    int is_changed = is_new || is_older;
    for (size_t i = 0; i < size && !is_changed; i++) is_changed = object[i] != before[i];
    if (call.raised_ == 0 && is_changed && reads && !is_new && !is_older)
        mr_raise(&call, "TypeError", "a method that is marked MR_READONLY changed the object");

    unsigned char *to = out;
    *to++ = 0x93;
    if (call.raised_ != 0) {
        *to++ = 2; /* nothing changes */
        unsigned char *length = to;
        to = mr_put_be_(to, 0xC6, 0, 4);
        *to++ = 0x92;
        to = mr_put_text_(to, call.raised_);
        to = mr_put_text_(to, call.text_);
        mr_put_be_(length, 0xC6, (uint64_t)(to - length - 5), 4);
        *to++ = 0x80;
    } else {
        *to++ = 0;
        to = mr_put_be_(to, 0xC6, call.answered_, 4);
        memcpy(to, answer, call.answered_);
        to += call.answered_;
        *to++ = is_changed ? 0x81 : 0x80;
        if (is_changed) {
            to = mr_put_text_(to, "object");
            to = mr_put_be_(to, 0xC6, size + 5, 4);
            to = mr_put_be_(to, 0xC6, size, 4);
            memcpy(to, object, size);
            to += size;
        }
    }
    return mr_host_result_(1, out, (size_t)(to - out));
}

/* Defines `handle` for a class: the struct of its objects, the function that makes one (or 0), the migration (or MR_NO_MIGRATION), and the
 * methods. */
#define MR_CLASS(type, make, migrate, ...)                                                                                     \
    int handle(const mr_record *record) {                                                                                      \
        static const mr_method methods[] = {__VA_ARGS__};                                                                      \
        static type object __attribute__((aligned(16)));                                                                       \
        static unsigned char before[sizeof(type)], fields[2 * sizeof(type) + 4096];                                            \
        static unsigned char answer[MR_ANSWER_MAX + MR_STEP_OVERHEAD_];                                                        \
        static unsigned char out[sizeof(type) + MR_ANSWER_MAX + 4 * MR_STEP_OVERHEAD_ + 4096];                                 \
        return mr_step_(record, methods, sizeof methods / sizeof *methods, sizeof(type), make, migrate,                        \
                        (unsigned char *)&object, before, fields, sizeof fields, answer, out);                                 \
    }

#endif
