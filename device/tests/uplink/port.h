/* port.h - a serial port for tests: two directions, of which a test writes each as it likes, and numbers that a seed determines. */
#ifndef MILLRACE_DEVICE_TESTS_PORT_H
#define MILLRACE_DEVICE_TESTS_PORT_H

#include "check.h"
#include <stdint.h>

enum { WIRE = 65536 };

/* One direction: what was written and not read yet. */
typedef struct {
    uint8_t bytes[WIRE];
    size_t size;
} wire;

static wire up, down; /* up: from the device */
static uint64_t random_state = 1, texts;

static unsigned pick(unsigned below) { return (unsigned)(mrd_flash_random(&random_state) >> 33) % below; }

static size_t take(wire *from, void *bytes, size_t size) {
    if (size > from->size) size = from->size;
    memcpy(bytes, from->bytes, size);
    memmove(from->bytes, from->bytes + size, from->size - size);
    from->size -= size;
    return size;
}

/* The parts of an mrd_uart that do not depend on what is written. */
static size_t read_port(void *context, void *bytes, size_t size) {
    (void)context;
    return take(&down, bytes, size);
}

static int random_bytes(void *context, void *bytes, size_t size) {
    (void)context;
    for (size_t i = 0; i < size; i++) ((uint8_t *)bytes)[i] = (uint8_t)pick(256);
    return 0;
}

static void console(void *context, uint8_t byte) {
    (void)context, (void)byte;
    texts++;
}

#endif
