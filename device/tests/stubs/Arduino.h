#ifndef STUB_ARDUINO_H
#define STUB_ARDUINO_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
struct EspClass {
    bool flashEraseSector(uint32_t sector);
    bool flashWrite(uint32_t address, const uint32_t *data, size_t size);
    bool flashRead(uint32_t address, uint32_t *data, size_t size);
};
extern EspClass ESP;
unsigned long millis();
#endif
