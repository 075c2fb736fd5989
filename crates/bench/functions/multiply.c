/* An object that multiplies a number ten thousand times, as the same loop in Lua and Python does. */
#include "millrace.h"
#include "millrace_class.h"

typedef struct { int64_t calls; double product; } number;

static void multiply(mr_call *call) {
    number *self = call->object;
    double x = 1.0;
    for (int i = 0; i < 10000; i++) x = x * 1.0000001;
    self->product = x;
    mr_return_int(call, ++self->calls);
}

static void product(mr_call *call) { mr_return_double(call, ((number *)call->object)->product); }

MR_CLASS(number, 0, MR_NO_MIGRATION, {"multiply", multiply, 0}, {"product", product, MR_READONLY})
