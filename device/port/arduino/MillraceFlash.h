/* MillraceFlash.h - the end of the flash of an ESP8266, with Arduino's core, as the flash of a device. Compiled against stub headers,
 * never run. */
#ifndef MILLRACE_FLASH_H
#define MILLRACE_FLASH_H

#include <Arduino.h>
#include "millrace_device.h"

/* Fills the port with `sectors` sectors of 4096 bytes from the address `at` on, which the sketch and its file system must not use. */
inline void millracePort(mrd_port &port, uint32_t at, uint32_t sectors, uint64_t namespaceId) {
    static uint32_t begin;
    begin = at;
    port = mrd_port();
    port.read = [](void *, uint32_t from, void *bytes, uint32_t size) -> int {
        /* The core reads words at addresses of words. */
        uint8_t *to = static_cast<uint8_t *>(bytes);
        while (size > 0) {
            uint32_t word, skip = from & 3, part = 4 - skip < size ? 4 - skip : size;
            if (!ESP.flashRead(begin + from - skip, &word, 4)) return 1;
            memcpy(to, reinterpret_cast<const uint8_t *>(&word) + skip, part);
            from += part, to += part, size -= part;
        }
        return 0;
    };
    port.program = [](void *, uint32_t to, const void *bytes, uint32_t size) -> int {
        for (uint32_t done = 0; done < size; done += 4) {
            uint32_t word;
            memcpy(&word, static_cast<const uint8_t *>(bytes) + done, 4);
            if (!ESP.flashWrite(begin + to + done, &word, 4)) return 1;
        }
        return 0;
    };
    port.erase = [](void *, uint32_t from) -> int { return ESP.flashEraseSector((begin + from) / 4096) ? 0 : 1; };
    port.ms = [](void *) -> uint32_t { return millis(); };
    port.sectors = sectors;
    port.sector_bytes = 4096;
    port.unit = 4;
    port.torn_bytes = 256;
    port.namespace_id = namespaceId;
}

#endif
