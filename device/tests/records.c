/* records.c - what the calls of a device return, and what it refuses. */
#include "../src/internal.h"
#include "check.h"
#define MILLRACE_DEVICE pass
#include "millrace.h"

const char *checking = "records";

static mrd_flash flash;
static mrd device;
static uint64_t memory[MRD_WORDS(MRD_LOGS_MAX, MRD_FUNCTIONS_MAX, 1024)];
static const mrd_log logs[] = {{"raw", 100, 0}, {"smooth", 10, 0}, {"config", 1, MRD_KEEP}};

static void blank(uint32_t sectors, uint32_t sector_bytes) {
    if (flash.bytes) mrd_flash_close(&flash);
    CHECK(mrd_flash_open(&flash, NULL, sectors, sector_bytes, 8, 8, 7) == 0);
    flash.virtual_time = true;
}

static int reopen(unsigned count) {
    return mrd_open(&device, &flash.port, logs, count, NULL, 0, memory, 8 * MRD_WORDS(count, 0, 512));
}

static void a_thousandth_is_exact(void) {
    static const uint64_t values[] = {0, 999, 1000, 65535999, 4294967296000, 1700000000000123, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) CHECK(mrd_thousandth(values[i]) == values[i] / 1000);
}

static void records_are_read_as_they_were_appended(void) {
    char buffer[8];
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_latest(&device, "raw"), 0);
    EQUAL(mrd_get(&device, "raw", 1, NULL, 0), MRD_ABOVE_TAIL);
    EQUAL(mrd_append(&device, "raw", "21.5", 4, NULL), 1);
    EQUAL(mrd_append(&device, "raw", NULL, 0, NULL), 2);
    /* Before the flush, and after it. */
    for (unsigned i = 0; i < 2; i++) {
        EQUAL(mrd_get(&device, "raw", 1, buffer, sizeof buffer), 4);
        EQUAL(memcmp(buffer, "21.5", 4), 0);
        EQUAL(mrd_get(&device, "raw", 1, buffer, 2), 4);
        EQUAL(mrd_get(&device, "raw", 2, buffer, sizeof buffer), 0);
        EQUAL(mrd_sync(&device), 0);
    }
    EQUAL(mrd_get(&device, "raw", 0, NULL, 0), MRD_SEQNO_INVALID);
    EQUAL(mrd_get(&device, "none", 1, NULL, 0), MRD_LOG_NOT_FOUND);
    EQUAL(mrd_append(&device, "none", "x", 1, NULL), MRD_LOG_NOT_FOUND);
    EQUAL(mrd_append(&device, "raw", logs, 512, NULL), MRD_RECORD_TOO_LONG);
    for (unsigned i = 1; i <= 12; i++) EQUAL(mrd_append(&device, "smooth", "x", 1, NULL), i);
    EQUAL(mrd_get(&device, "smooth", 2, NULL, 0), MRD_BELOW_HISTORY);
    EQUAL(mrd_get(&device, "smooth", 3, NULL, 0), 1);
}

static void a_flush_waits_for_others(void) {
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_step(&device), MRD_IDLE_MS);
    mrd_append(&device, "raw", "1", 1, NULL);
    uint64_t before = flash.programs;
    flash.ms += 1500;
    EQUAL(mrd_step(&device), 500);
    mrd_append(&device, "raw", "2", 1, NULL);
    EQUAL(flash.programs, before);
    flash.ms += 500;
    EQUAL(mrd_step(&device), MRD_IDLE_MS);
    EQUAL(flash.programs, before + 1);
}

static void the_clock_goes_on_after_a_restart(void) {
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_set_clock(&device, 1700000000000), 0);
    EQUAL(mrd_set_clock(&device, 1600000000000), 0);
    flash.ms += 5000;
    EQUAL(mrd_clock(&device), 1700000005000);
    EQUAL(mrd_append(&device, "raw", "1", 1, NULL), 1);
    EQUAL(mrd_sync(&device), 0);
    EQUAL(reopen(3), 0);
    CHECK(mrd_clock(&device) >= 1700000005000);
}

/* A time that would not fit into what keeps it is a mistake of whoever tells it, and would make the clock go back at the next start. */
static void a_time_that_cannot_be_is_not_taken(void) {
    static const uint8_t record[400];
    mrd_nap nap;
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_set_clock(&device, 1700000000000), 0);
    for (unsigned bits = 42; bits < 64; bits++) EQUAL(mrd_set_clock(&device, ((uint64_t)1 << bits) + 1800000000000), 0);
    EQUAL(mrd_set_clock(&device, UINT64_MAX), 0);
    EQUAL(mrd_clock(&device), 1700000000000);
    EQUAL(mrd_set_clock(&device, ((uint64_t)1 << 42) - 1), 0);
    EQUAL(mrd_clock(&device), ((uint64_t)1 << 42) - 1);
    /* It goes on, in each sector and over each start. */
    uint64_t before = mrd_clock(&device);
    for (unsigned i = 0; i < 30; i++) {
        flash.ms += 1000;
        CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
        EQUAL(mrd_sleep(&device, &nap), 0);
        EQUAL(reopen(3), 0);
        if (i % 2 == 0) CHECK(mrd_wake(&device, &nap, i % 4 == 0 ? UINT64_MAX : (uint64_t)1 << 63));
        CHECK(mrd_clock(&device) > before && mrd_clock(&device) < before + 10000);
        before = mrd_clock(&device);
    }
}

int pass_handle(const mr_record *record) {
    (void)record;
    return 0;
}

/* A flash whose area ends where the memory ends: a read beyond it is found by the sanitizer. */
static void nothing_is_read_behind_the_area(void) {
    static const mrd_function pass = {"pass", pass_handle, "raw", 3, NULL, 0};
    static const uint8_t record[200];
    mrd_walk walk;
    if (flash.bytes) mrd_flash_close(&flash);
    CHECK(mrd_flash_open(&flash, NULL, 4, 4096, 1, 256, 7) == 0);
    flash.port.mapped = flash.bytes;
    flash.virtual_time = true;
    EQUAL(reopen(3), 0);
    /* The last burst of the last sector ends where the area ends. */
    while (device.serial != 3 || device.head < 4096) {
        CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
        EQUAL(mrd_sync(&device), 0);
    }
    EQUAL(reopen(3), 0);
    EQUAL(device.head, 4096);
    /* No burst begins in the last bytes. */
    for (uint32_t left = 1; left <= MRD_BURST_HEAD; left++) {
        walk.device = &device;
        walk.sector = 3 * 4096;
        walk.limit = 4096;
        walk.at = 4096 - left;
        CHECK(!mrd_take_burst(&walk));
    }
    /* The length of a burst that a run needs changes after the start. */
    uint32_t cursor;
    for (uint16_t length = 0xFFFE; length > 0x3FFF; length = (uint16_t)(length - 0x1FFF)) {
        mrd_flash_close(&flash);
        CHECK(mrd_flash_open(&flash, NULL, 4, 4096, 1, 256, 7) == 0);
        flash.port.mapped = flash.bytes;
        flash.virtual_time = true;
        do {
            EQUAL(mrd_open(&device, &flash.port, logs, 3, &pass, 1, memory, 8 * MRD_WORDS(3, 1, 512)), 0);
            while (device.function[0].pending > 0) CHECK(mrd_step(&device) >= 0);
            cursor = device.serial * 4096 + device.head;
            CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
            EQUAL(mrd_sync(&device), 0);
        } while (cursor < 3 * 4096 + 2048);
        EQUAL(mrd_open(&device, &flash.port, logs, 3, &pass, 1, memory, 8 * MRD_WORDS(3, 1, 512)), 0);
        EQUAL(device.function[0].pending, 1);
        mrd_store(flash.bytes + device.function[0].cursor, length, 2);
        /* Entries of two bytes, up to the end of the sector. */
        memset(flash.bytes + device.function[0].cursor + MRD_BURST_HEAD, MRD_FIRED << 5, 4096 - device.function[0].cursor % 4096 - MRD_BURST_HEAD);
        CHECK(mrd_step(&device) >= 0);
    }
}

static void a_full_flash_refuses_or_drops(void) {
    static const uint8_t record[100];
    mrd_status status;
    int64_t result;
    blank(4, 2048);
    EQUAL(reopen(3), 0);
    device.on_full = MRD_REFUSE;
    EQUAL(mrd_append(&device, "config", "kept", 4, NULL), 1);
    do result = mrd_append(&device, "raw", record, sizeof record, NULL);
    while (result > 0);
    EQUAL(result, MRD_FULL);
    EQUAL(mrd_sync(&device), 0);
    mrd_stat(&device, &status);
    EQUAL(status.lost, 0);
    EQUAL(status.sectors, 4);
    /* A host cannot have what is not in flash. */
    mrd_delivered(&device, status.durable);
    mrd_delivered(&device, UINT64_MAX);
    EQUAL(mrd_append(&device, "raw", record, sizeof record, NULL), MRD_FULL);
    mrd_delivered(&device, status.durable - 1);
    CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
    device.on_full = MRD_DROP;
    for (unsigned i = 0; i < 200; i++) CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
    EQUAL(mrd_sync(&device), 0);
    EQUAL(reopen(3), 0);
    mrd_stat(&device, &status);
    CHECK(status.lost > 0);
    EQUAL(status.sectors, 4);
    EQUAL(mrd_get(&device, "config", 1, NULL, 0), 4);
}

static void other_firmware_keeps_the_records(void) {
    static const mrd_log others[] = {{"more", 5, 0}, {"raw", 50, 0}};
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    for (uint8_t i = 1; i <= 60; i++) EQUAL(mrd_append(&device, "raw", &i, 1, NULL), i);
    EQUAL(mrd_sync(&device), 0);
    EQUAL(mrd_open(&device, &flash.port, others, 2, NULL, 0, memory, 8 * MRD_WORDS(2, 0, 512)), 0);
    EQUAL(mrd_latest(&device, "raw"), 60);
    EQUAL(mrd_append(&device, "raw", "x", 1, NULL), 61);
    EQUAL(mrd_append(&device, "more", "x", 1, NULL), 1);
    uint8_t byte;
    EQUAL(mrd_get(&device, "raw", 12, &byte, 1), 1);
    EQUAL(byte, 12);
    EQUAL(mrd_get(&device, "raw", 11, NULL, 0), MRD_BELOW_HISTORY);
}

static void damage_is_not_returned_as_a_record(void) {
    mrd_status status;
    uint8_t record[64];
    memset(record, 'a', sizeof record);
    blank(4, 2048);
    EQUAL(reopen(3), 0);
    for (unsigned i = 0; i < 70; i++) CHECK(mrd_append(&device, "raw", record, sizeof record, NULL) > 0);
    EQUAL(mrd_sync(&device), 0);
    mrd_stat(&device, &status);
    CHECK(status.sectors == 3);
    /* In the second sector, somewhere in the middle. */
    flash.bytes[2048 + 1200] ^= 1;
    EQUAL(reopen(3), 0);
    unsigned damaged = 0, intact = 0;
    for (uint64_t i = 1; i <= 70; i++) {
        int64_t result = mrd_get(&device, "raw", i, NULL, 0);
        damaged += result == MRD_RECORD_DAMAGED;
        intact += result == 64;
    }
    CHECK(damaged > 0 && damaged < 30);
    EQUAL(damaged + intact, 70);
    /* In the newest sector, before its last burst: the device says so, and goes on. */
    flash.bytes[2 * 2048 + 200] ^= 1;
    EQUAL(reopen(3), 0);
    mrd_stat(&device, &status);
    CHECK(status.damaged_from > 0);
    CHECK(status.epoch > 2);
    CHECK(mrd_append(&device, "raw", "x", 1, NULL) > 0);
    EQUAL(mrd_sync(&device), 0);
    /* The catalog of the newest sector. */
    flash.bytes[3 * 2048 + 50] ^= 1;
    EQUAL(reopen(3), 0);
    CHECK(mrd_append(&device, "raw", "x", 1, NULL) > 0);
    EQUAL(mrd_sync(&device), 0);
}

/* Where the newest records are is remembered; but a record of an older sector is verified, however short a time ago it was appended. */
static void a_record_behind_the_newest_sector_is_verified(void) {
    uint8_t record[64], copy[64];
    memset(record, 'a', sizeof record);
    blank(4, 2048);
    EQUAL(reopen(3), 0);
    int64_t seqno;
    do seqno = mrd_append(&device, "raw", record, sizeof record, NULL);
    while (seqno > 0 && device.serial < 2);
    EQUAL(mrd_sync(&device), 0);
    for (unsigned back = 0; back < 2; back++) EQUAL(mrd_get(&device, "raw", (uint64_t)seqno - back, copy, sizeof copy), 64);
    uint32_t at = 2 * 2048 - 1;
    while (flash.bytes[at] != 'a') at--;
    flash.bytes[at] ^= 1;
    EQUAL(mrd_get(&device, "raw", (uint64_t)seqno - 1, copy, sizeof copy), 64); /* the sector was verified a moment ago */
    memset(device.verified, 0xFF, sizeof device.verified);
    EQUAL(mrd_get(&device, "raw", (uint64_t)seqno, copy, sizeof copy), 64);
    EQUAL(mrd_get(&device, "raw", (uint64_t)seqno - 1, copy, sizeof copy), MRD_RECORD_DAMAGED);
}

static void failing_flash_is_not_written_again(void) {
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    mrd_append(&device, "raw", "1", 1, NULL);
    flash.off = true;
    EQUAL(mrd_sync(&device), MRD_FLUSH_FAILED);
    flash.off = false;
    EQUAL(mrd_sync(&device), MRD_FLUSH_FAILED);
    EQUAL(mrd_append(&device, "raw", "2", 1, NULL), MRD_FLUSH_FAILED);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_append(&device, "raw", "2", 1, NULL), 1);
}

static void other_content_is_refused(void) {
    blank(4, 4096);
    EQUAL(reopen(3), 0);
    mrd_append(&device, "raw", "1", 1, NULL);
    EQUAL(mrd_sync(&device), 0);
    flash.port.namespace_id = 8;
    EQUAL(reopen(3), MRD_OTHER_NAMESPACE);
    EQUAL(mrd_append(&device, "raw", "2", 1, NULL), MRD_FLUSH_FAILED);
    flash.port.namespace_id = 7;
    flash.port.torn_bytes = 256;
    EQUAL(reopen(3), MRD_OTHER_NAMESPACE);
    flash.port.torn_bytes = 8;
    /* A header of another format, with the right checksum. */
    flash.bytes[4] = 2;
    mrd_store(flash.bytes + 36, mrd_crc(0, flash.bytes, 36), 4);
    EQUAL(reopen(3), MRD_FORMAT_UNKNOWN);
    memset(flash.bytes, 0xA5, 4 * 4096);
    EQUAL(reopen(3), MRD_NOT_A_NAMESPACE);
    EQUAL(mrd_erase(&flash.port), 0);
    EQUAL(reopen(3), 0);
    EQUAL(mrd_latest(&device, "raw"), 0);
}

static void entries_of_newer_firmware_are_refused(void) {
    /* An entry of kind 0, a CLOCK and a DEFINE of an unknown kind, with the right checksum. */
    static const uint8_t bodies[3][6] = {{1, 0x00, 0, 0, 0, 0}, {1, 0xC2, 1, 0xC0, 1, 0xC0}, {1, 0x80, 2, 1, 0, 0xE0}};
    for (unsigned i = 0; i < 3; i++) {
        blank(4, 4096);
        EQUAL(reopen(3), 0);
        EQUAL(mrd_append(&device, "raw", "1", 1, NULL), 1);
        EQUAL(mrd_sync(&device), 0);
        uint8_t *burst = flash.bytes + device.head;
        mrd_store(burst, sizeof bodies[i], 2);
        memcpy(burst + MRD_BURST_HEAD, bodies[i], sizeof bodies[i]);
        uint32_t crc = mrd_crc(mrd_crc_chain(device.crc), burst, 2);
        mrd_store(burst + 2, mrd_crc(crc, bodies[i], sizeof bodies[i]), 4);
        uint8_t before[256];
        memcpy(before, flash.bytes, sizeof before);
        EQUAL(reopen(3), MRD_FORMAT_UNKNOWN);
        EQUAL(memcmp(before, flash.bytes, sizeof before), 0);
    }
}

static void settings_are_checked(void) {
    static const mrd_log twice[] = {{"raw", 1, 0}, {"raw", 1, 0}}, unnamed[] = {{"", 1, 0}}, hidden[] = {{"_x", 1, 0}},
                         endless[] = {{"raw", 0, 0}}, slash[] = {{"a/", 1, 0}}, deep[] = {{"a/b.c", 1, 0}};
    size_t bytes = 8 * MRD_WORDS(2, 0, 512);
    blank(4, 4096);
    EQUAL(mrd_open(&device, &flash.port, twice, 2, NULL, 0, memory, bytes), MRD_NAME_INVALID);
    EQUAL(mrd_open(&device, &flash.port, unnamed, 1, NULL, 0, memory, bytes), MRD_NAME_INVALID);
    EQUAL(mrd_open(&device, &flash.port, hidden, 1, NULL, 0, memory, bytes), MRD_NAME_INVALID);
    EQUAL(mrd_open(&device, &flash.port, slash, 1, NULL, 0, memory, bytes), MRD_NAME_INVALID);
    EQUAL(mrd_open(&device, &flash.port, endless, 1, NULL, 0, memory, bytes), MRD_SETTING_INVALID);
    EQUAL(mrd_open(&device, &flash.port, deep, 1, NULL, 0, memory, bytes), 0);
    EQUAL(mrd_open(&device, &flash.port, logs, 0, NULL, 0, memory, bytes), MRD_SETTING_INVALID);
    EQUAL(mrd_open(&device, &flash.port, logs, 3, NULL, 0, memory, 200), MRD_SETTING_INVALID);
    CHECK(strstr(device.why, "memory"));
    flash.port.sector_bytes = 1024;
    EQUAL(reopen(3), MRD_SETTING_INVALID);
    flash.port.sectors = 8;
    EQUAL(mrd_open(&device, &flash.port, logs, 3, NULL, 0, memory, 8 * MRD_WORDS(3, 0, 1024)), MRD_SETTING_INVALID);
    CHECK(strstr(device.why, "sector_bytes"));
    flash.port.sectors = 4;
    flash.port.sector_bytes = 4000;
    EQUAL(reopen(3), MRD_SETTING_INVALID);
    flash.port.sector_bytes = 4096;
    flash.port.unit = 3;
    EQUAL(reopen(3), MRD_SETTING_INVALID);
    flash.port.unit = 8;
    flash.port.namespace_id = 0;
    EQUAL(reopen(3), MRD_SETTING_INVALID);
}

static void a_file_keeps_the_flash(void) {
    char path[] = "/tmp/millrace-device-XXXXXX.flash";
    snprintf(path, sizeof path, "/tmp/millrace-device-%06x.flash", (unsigned)((uintptr_t)&path >> 4 & 0xFFFFFF));
    remove(path);
    for (int64_t i = 1; i <= 3; i++) {
        mrd_flash_close(&flash);
        EQUAL(mrd_flash_open(&flash, path, 4, 4096, 8, 8, 7), 0);
        EQUAL(reopen(3), 0);
        EQUAL(mrd_append(&device, "raw", "1", 1, NULL), i);
        EQUAL(mrd_sync(&device), 0);
    }
    remove(path);
}

int main(void) {
    a_thousandth_is_exact();
    records_are_read_as_they_were_appended();
    a_flush_waits_for_others();
    the_clock_goes_on_after_a_restart();
    a_time_that_cannot_be_is_not_taken();
    nothing_is_read_behind_the_area();
    a_full_flash_refuses_or_drops();
    other_firmware_keeps_the_records();
    damage_is_not_returned_as_a_record();
    a_record_behind_the_newest_sector_is_verified();
    failing_flash_is_not_written_again();
    other_content_is_refused();
    entries_of_newer_firmware_are_refused();
    settings_are_checked();
    a_file_keeps_the_flash();
    mrd_flash_close(&flash);
    fprintf(stderr, "records: ok\n");
    return 0;
}
