/* provision.c - a device gets its identity over a serial line: whatever is lost on the line, and wherever power is lost, it has the identity
 * before or the new one, and the host can begin again.
 *
 *     provision [--seeds N] [--seed S]
 */
#include "../../src/internal.h"
#include "millrace_provision.h"
#include "port.h"

enum { SECTORS = 2, SECTOR_BYTES = 1024, UNIT = 8, STEPS_MAX = 4000, REPEAT_STEPS = 20, TRANSFERS_MAX = 60 };
enum { GO_ON = 0, STORED = 1, AGAIN = 2, NOBODY = -1, NO_POWER = -2 };

const char *checking = "provision";

typedef struct {
    uint8_t bytes[MRD_IDENTITY_MAX];
    size_t size;
} encoded;

static mrd_flash flash;
static mrd_provision provision;
static unsigned noise;
static size_t port_takes = WIRE; /* how many bytes the port takes at once */
static bool pulled; /* the jumper that permits another identity */
static encoded kitchen, cellar, empty;

/* ---- identities ---- */

static void put(encoded *to, uint8_t tag, const void *value, size_t size) {
    to->bytes[to->size] = tag;
    mrd_store(to->bytes + to->size + 1, size, 2);
    memcpy(to->bytes + to->size + 3, value, size);
    to->size += 3 + size;
}

static void seal(encoded *to) {
    memcpy(to->bytes, "MRDI\1\0", 6);
    mrd_store(to->bytes + 6, to->size - 12, 2);
    mrd_store4(to->bytes + 8, mrd_crc(mrd_crc(0, to->bytes, 8), to->bytes + 12, to->size - 12));
}

static void make(encoded *to, const char *name, uint8_t secret, size_t token) {
    uint8_t key[42], id[6] = {secret, 1, 2, 3, 4, 5}, shown[300];
    memset(to, 0, sizeof *to);
    memset(key, secret, sizeof key);
    memset(shown, secret, sizeof shown);
    to->size = 12;
    put(to, 1, id, sizeof id);
    put(to, 2, name, strlen(name));
    put(to, 3, key, sizeof key);
    if (token > 0) put(to, 5, shown, token);
    seal(to);
}

/* The identity that a start of the device finds. */
static const encoded *found(void) {
    static uint8_t bytes[MRD_IDENTITY_MAX];
    mrd_identity identity;
    int result = mrd_identity_load(&identity, &flash.port, bytes);
    if (result < 0) return &empty;
    const encoded *one = strcmp(identity.name, "kitchen") == 0 ? &kitchen : &cellar;
    EQUAL(memcmp(bytes, one->bytes, one->size), 0);
    return one;
}

static bool both_have(const encoded *one) {
    return memcmp(flash.bytes, one->bytes, one->size) == 0 && memcmp(flash.bytes + SECTOR_BYTES, one->bytes, one->size) == 0;
}

/* ---- the line ---- */

static void put_byte(wire *to, uint8_t byte) {
    if (noise > 0 && pick(noise * 10) == 0) return;
    if (noise > 0 && pick(noise * 10) == 0) byte ^= (uint8_t)(1u << pick(8));
    if (to->size < WIRE) to->bytes[to->size++] = byte;
    if (noise > 0 && pick(noise * 10) == 0 && to->size < WIRE) to->bytes[to->size++] = (uint8_t)pick(256);
}

static size_t write_port(void *context, const void *bytes, size_t size) {
    (void)context;
    if (size > port_takes) size = port_takes;
    for (size_t i = 0; i < size; i++) put_byte(&up, ((const uint8_t *)bytes)[i]);
    return size;
}

static const mrd_uart uart = {write_port, read_port, random_bytes, console, NULL};

static bool is_pulled(void *context) { return *(const bool *)context; }

static void start(void) {
    mrd_flash_on(&flash);
    mrd_provision_begin(&provision, &uart, &flash.port, is_pulled, &pulled);
}

static void blank(void) {
    if (flash.bytes) mrd_flash_close(&flash);
    CHECK(mrd_flash_open(&flash, NULL, 4, SECTOR_BYTES, UNIT, UNIT, 1) == 0);
    up.size = down.size = 0;
    start();
}

/* ---- the host ---- */

static mrd_serial_reader reader;
static int told; /* the device told its caller that it has a new identity */

static void send_frame(uint32_t session, uint16_t number, const uint8_t *data, size_t size) {
    mrd_serial_frame frame;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    frame.kind = MRD_SERIAL_PROVISION;
    frame.session = session;
    frame.number = number;
    frame.size = (uint8_t)size;
    if (size > 0) memcpy(frame.data, data, size);
    size = mrd_serial_encode(&frame, bytes);
    for (size_t i = 0; i < size; i++) put_byte(&down, bytes[i]);
}

/* Sends a frame until it is answered, for a while. */
static int exchange(uint32_t session, uint16_t number, const uint8_t *data, size_t size) {
    for (unsigned step = 0; step < STEPS_MAX; step++) {
        mrd_serial_frame frame;
        uint8_t byte;
        if (step % REPEAT_STEPS == 0) send_frame(session, number, data, size);
        int result = mrd_provision_step(&provision);
        if (flash.off) return NO_POWER;
        if (result == MRD_PROVISIONED) told++;
        while (take(&up, &byte, 1) == 1) {
            if (mrd_serial_take(&reader, byte, &frame) <= 0 || frame.kind != MRD_SERIAL_PROVISION) continue;
            if (frame.session == session && frame.number == number && frame.size == 2) return frame.data[0] | frame.data[1] << 8;
        }
    }
    return NOBODY;
}

/* Gives an identity, and returns the last answer. */
static int give(const encoded *one) {
    for (unsigned transfer = 0; transfer < TRANSFERS_MAX; transfer++) {
        uint32_t session = 1 + pick(1u << 30);
        uint8_t size[2] = {(uint8_t)one->size, (uint8_t)(one->size >> 8)};
        int answer = exchange(session, 0, size, sizeof size);
        uint16_t number = 1;
        for (size_t at = 0; answer == GO_ON && at < one->size; at += MRD_SERIAL_DATA_MAX) {
            size_t some = one->size - at < MRD_SERIAL_DATA_MAX ? one->size - at : MRD_SERIAL_DATA_MAX;
            answer = exchange(session, number++, one->bytes + at, some);
        }
        if (answer != AGAIN) return answer;
    }
    return NOBODY;
}

static int ask(void) { return exchange(77, 0, NULL, 0); }

/* ---- the tests ---- */

static void a_device_gets_an_identity_and_keeps_it(void) {
    blank();
    pulled = false;
    CHECK(found() == &empty);
    EQUAL(ask(), GO_ON);
    told = 0;
    EQUAL(give(&kitchen), STORED);
    CHECK(both_have(&kitchen) && told == 1);
    for (size_t i = 0; i < sizeof provision.bytes; i++) EQUAL(provision.bytes[i], 0); /* no secret stays in memory */
    /* The same again changes nothing. */
    uint64_t operations = flash.operations;
    EQUAL(give(&kitchen), STORED);
    EQUAL(flash.operations, operations);
    EQUAL(told, 1);
    /* Another one is refused, before and after a start, and only as a whole: no part of an answer tells how much is right. */
    encoded close = kitchen;
    close.bytes[close.size - 1] ^= 1;
    seal(&close);
    for (unsigned round = 0; round < 2; round++, start()) {
        EQUAL(ask(), 6353);
        EQUAL(give(&cellar), 6353);
        EQUAL(give(&close), 6353);
        EQUAL(flash.operations, operations);
    }
    pulled = true;
    EQUAL(ask(), GO_ON);
    EQUAL(give(&cellar), STORED);
    CHECK(both_have(&cellar) && told == 2);
    pulled = false;
    EQUAL(give(&kitchen), 6353);
    /* Its own copy that was damaged is written again. */
    flash.bytes[20] ^= 1;
    CHECK(found() == &cellar);
    start();
    CHECK(both_have(&cellar));
    flash.bytes[20] ^= 1;
    EQUAL(give(&kitchen), 6353);
    EQUAL(give(&cellar), STORED);
    CHECK(both_have(&cellar) && told == 2);
}

/* The jumper is pulled out while the identity comes. */
static void the_jumper_counts_when_the_identity_is_complete(void) {
    blank();
    EQUAL(give(&kitchen), STORED);
    uint8_t size[2] = {(uint8_t)cellar.size, (uint8_t)(cellar.size >> 8)};
    pulled = true;
    EQUAL(exchange(9, 0, size, sizeof size), GO_ON);
    pulled = false;
    CHECK(cellar.size <= 2 * MRD_SERIAL_DATA_MAX);
    EQUAL(exchange(9, 1, cellar.bytes, MRD_SERIAL_DATA_MAX), GO_ON);
    EQUAL(exchange(9, 2, cellar.bytes + MRD_SERIAL_DATA_MAX, cellar.size - MRD_SERIAL_DATA_MAX), 6353);
    CHECK(both_have(&kitchen));
}

static void what_is_no_identity_is_refused(void) {
    encoded odd;
    blank();
    uint8_t size[2] = {1, 2};
    EQUAL(exchange(5, 0, size, sizeof size), 6340); /* 513 bytes */
    memset(size, 0xFF, sizeof size);
    EQUAL(exchange(5, 0, size, sizeof size), 6340);
    /* And there is no room for what a peer sends although it was refused. */
    for (uint16_t number = 1; number <= 8; number++) EQUAL(exchange(5, number, kitchen.bytes, 100), number == 1 ? 6340 : AGAIN);
    EQUAL(provision.at, 0);
    /* More than was announced. */
    size[0] = 100, size[1] = 0;
    EQUAL(exchange(6, 0, size, sizeof size), GO_ON);
    EQUAL(exchange(6, 1, kitchen.bytes, 101), 6340);
    for (size_t at = 0; at < kitchen.size; at++) {
        odd = kitchen;
        odd.bytes[at] ^= 1;
        EQUAL(give(&odd), at == 4 ? 2002 : 6340);
    }
    odd = kitchen;
    odd.size--;
    EQUAL(give(&odd), 6340);
    odd = kitchen;
    put(&odd, 1, "short", 5);
    seal(&odd);
    EQUAL(give(&odd), 6340);
    CHECK(found() == &empty);
    EQUAL(flash.operations, 0);
    /* A newer host made the one that the device has: it is kept. */
    blank();
    EQUAL(give(&kitchen), STORED);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *at = flash.bytes + i * SECTOR_BYTES;
        at[4] = 2;
        mrd_store4(at + 8, mrd_crc(mrd_crc(0, at, 8), at + 12, kitchen.size - 12));
    }
    start();
    EQUAL(ask(), 6353);
    EQUAL(give(&kitchen), 6353);
}

static void frames_out_of_turn_begin_again(void) {
    blank();
    uint8_t size[2] = {(uint8_t)kitchen.size, (uint8_t)(kitchen.size >> 8)};
    EQUAL(exchange(3, 1, kitchen.bytes, 10), AGAIN);
    EQUAL(exchange(3, 0, size, sizeof size), GO_ON);
    EQUAL(exchange(3, 2, kitchen.bytes, 10), AGAIN);
    EQUAL(exchange(4, 1, kitchen.bytes, 10), AGAIN);
    /* The answer was lost, so the frame comes again. */
    for (unsigned i = 0; i < 2; i++) EQUAL(exchange(3, 1, kitchen.bytes, 128), GO_ON);
    for (unsigned i = 0; i < 2; i++) EQUAL(exchange(3, 2, kitchen.bytes + 128, kitchen.size - 128), STORED);
    blank();
    EQUAL(exchange(3, 0, size, sizeof size), GO_ON);
    EQUAL(exchange(3, 1, kitchen.bytes, 128), GO_ON);
    start(); /* it restarted meanwhile */
    EQUAL(exchange(3, 2, kitchen.bytes + 128, 10), AGAIN);
    /* Session 0 calls the device; it is no transfer. */
    EQUAL(exchange(0, 0, size, sizeof size), NOBODY);
    EQUAL(give(&kitchen), STORED);
    EQUAL(exchange(0, 0, NULL, 0), NOBODY);
}

/* Sectors that wear out: the device says so, and never that it has what it does not have. */
static int refuse_program(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)context, (void)at, (void)bytes, (void)size;
    return 1;
}
static int forget_program(void *context, uint32_t at, const void *bytes, uint32_t size) {
    (void)context, (void)at, (void)bytes, (void)size;
    return 0;
}
static void a_flash_that_fails_is_reported(void) {
    blank();
    int (*program)(void *, uint32_t, const void *, uint32_t) = flash.port.program;
    int (*broken[])(void *, uint32_t, const void *, uint32_t) = {refuse_program, forget_program};
    for (unsigned i = 0; i < 2; i++) {
        flash.port.program = broken[i];
        EQUAL(give(&kitchen), 6354);
        CHECK(found() == &empty);
    }
    flash.port.program = program;
    EQUAL(give(&kitchen), STORED);
}

/* Power is lost in each operation of the flash, and again in the start after it. */
static void whatever_is_cut_an_identity_remains(void) {
    static const struct { const encoded *before, *after; bool first_damaged, second_damaged; } cases[] = {
        {&empty, &kitchen, false, false}, {&kitchen, &cellar, false, false}, {&kitchen, &cellar, true, false}, {&kitchen, &cellar, false, true}};
    unsigned cuts = 0;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t cut = 1;; cut++) {
            bool was_cut = false;
            for (int way = 0; way < MRD_CUT_WAYS; way++) {
                for (uint64_t again = 0; again < 5; again++) {
                    blank();
                    pulled = true;
                    if (cases[i].before != &empty) EQUAL(give(cases[i].before), STORED);
                    if (cases[i].first_damaged) flash.bytes[20] ^= 1;
                    if (cases[i].second_damaged) flash.bytes[SECTOR_BYTES + 20] ^= 1;
                    mrd_flash_cut(&flash, cut, way, 17 * cut + again);
                    if (give(cases[i].after) == NO_POWER) was_cut = true, cuts++;
                    mrd_flash_on(&flash);
                    const encoded *left = found();
                    CHECK(left == cases[i].before || left == cases[i].after);
                    if (again > 0) mrd_flash_cut(&flash, again, way, again);
                    mrd_provision_begin(&provision, &uart, &flash.port, is_pulled, &pulled);
                    mrd_flash_on(&flash);
                    CHECK(found() == left);
                    start();
                    CHECK(found() == left && (left == &empty || both_have(left)));
                    EQUAL(give(cases[i].after), STORED);
                    CHECK(both_have(cases[i].after));
                }
            }
            if (!was_cut) break;
            CHECK(cut < 100);
        }
    }
    CHECK(cuts > 100);
    fprintf(stderr, "provision: %u losses of power\n", cuts);
}

/* A line that loses, changes and adds bytes, and on which boot messages come, too. */
static void a_bad_line_only_takes_longer(uint64_t seed) {
    random_state = seed * 2 + 1;
    blank();
    noise = 60 + (unsigned)(seed % 4) * 40;
    port_takes = 1 + pick(20);
    pulled = false;
    for (unsigned i = 0; i < 40; i++) put_byte(&down, (uint8_t)"boot 1.2\n"[i % 9]);
    EQUAL(give(&kitchen), STORED);
    CHECK(both_have(&kitchen));
    EQUAL(give(&cellar), 6353);
    CHECK(both_have(&kitchen));
    noise = 0;
    port_takes = WIRE;
}

/* Behind a serial line, the same port carries connections and text; and a device that has waited goes on without a reset. */
static void the_line_goes_on_while_identities_come(void) {
    static mrd_serial serial;
    mrd_serial_frame frame;
    uint8_t byte, bytes[MRD_SERIAL_FRAME_MAX], got[8];
    pulled = false;
    blank();
    EQUAL(give(&kitchen), STORED);
    start();
    mrd_serial_begin(&serial, &provision.uart);
    const mrd_line *line = &serial.line;
    EQUAL(line->open(line->context), 0);
    mrd_serial_reader one;
    memset(&one, 0, sizeof one);
    int frames = 0;
    while (take(&up, &byte, 1) == 1) frames += mrd_serial_take(&one, byte, &frame) > 0;
    CHECK(frames == 1 && frame.kind == MRD_SERIAL_OPEN);
    uint32_t session = frame.session;
    down.size = mrd_serial_encode(&frame, down.bytes);
    EQUAL(line->send(line->context, "abc", 3), 3);
    up.size = 0;
    /* Someone gives another identity meanwhile. */
    uint64_t before = texts;
    send_frame(session + 1, 0, NULL, 0);
    for (const char *text = "boot\n"; *text; text++) down.bytes[down.size++] = (uint8_t)*text;
    EQUAL(line->receive(line->context, got, sizeof got), 0);
    EQUAL(texts - before, 5);
    port_takes = 3;
    EQUAL(mrd_provision_step(&provision), 0);
    EQUAL(line->send(line->context, "def", 3), 3); /* behind the answer */
    for (unsigned i = 0; i < 20; i++) mrd_provision_step(&provision), line->receive(line->context, got, sizeof got);
    port_takes = WIRE;
    memset(&one, 0, sizeof one);
    bool answered = false, sent = false;
    while (take(&up, &byte, 1) == 1) {
        if (mrd_serial_take(&one, byte, &frame) <= 0) continue;
        if (frame.kind == MRD_SERIAL_PROVISION) answered = frame.session == session + 1 && (frame.data[0] | frame.data[1] << 8) == 6353;
        if (frame.kind == MRD_SERIAL_DATA) sent = memcmp(frame.data, "def", 3) == 0;
    }
    CHECK(answered && sent);
    /* The connection still is what it was. */
    frame.kind = MRD_SERIAL_DATA;
    frame.session = session;
    frame.number = 1;
    frame.size = 2;
    memcpy(frame.data, "hi", 2);
    size_t size = mrd_serial_encode(&frame, bytes);
    memcpy(down.bytes, bytes, size);
    down.size = size;
    EQUAL(line->receive(line->context, got, sizeof got), 2);
}

/* A line reads several frames before the device comes to answer the first one: a transfer that is complete is not disturbed. */
static void what_comes_before_the_answer_is_ignored(void) {
    uint8_t bytes[WIRE], size[2] = {(uint8_t)cellar.size, (uint8_t)(cellar.size >> 8)};
    blank();
    EQUAL(exchange(8, 0, size, sizeof size), GO_ON);
    EQUAL(exchange(8, 1, cellar.bytes, MRD_SERIAL_DATA_MAX), GO_ON);
    send_frame(8, 2, cellar.bytes + MRD_SERIAL_DATA_MAX, cellar.size - MRD_SERIAL_DATA_MAX);
    send_frame(9, 0, size, sizeof size);
    CHECK(provision.uart.read(provision.uart.context, bytes, sizeof bytes) > 0);
    EQUAL(mrd_provision_step(&provision), MRD_PROVISIONED);
    CHECK(both_have(&cellar));
}

/* No frame to the host has a part of an identity. */
static void nothing_of_an_identity_goes_to_the_host(void) {
    blank();
    pulled = true;
    EQUAL(give(&kitchen), STORED);
    static uint8_t all[1 << 16];
    size_t size = 0;
    uint8_t begin[2] = {(uint8_t)cellar.size, 0};
    for (unsigned i = 0; i < 200; i++) {
        if (pick(2)) send_frame(1 + pick(3), 0, begin, sizeof begin);
        else send_frame(1 + pick(3), (uint16_t)pick(4), cellar.bytes, MRD_SERIAL_DATA_MAX);
        mrd_provision_step(&provision);
        size += take(&up, all + size, sizeof all - size);
    }
    for (size_t i = 0; i + 8 <= size; i++) {
        for (size_t at = 20; at + 8 <= kitchen.size; at++) CHECK(memcmp(all + i, kitchen.bytes + at, 8) != 0);
    }
}

int main(int count, char **words) {
    uint64_t first = 1, last = 30;
    static char name[60];
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 10);
        if (strcmp(words[i], "--seeds") == 0) last = value;
        if (strcmp(words[i], "--seed") == 0) first = last = value;
    }
    make(&kitchen, "kitchen", 7, 100);
    make(&cellar, "cellar", 9, 90);
    a_device_gets_an_identity_and_keeps_it();
    the_jumper_counts_when_the_identity_is_complete();
    what_is_no_identity_is_refused();
    frames_out_of_turn_begin_again();
    a_flash_that_fails_is_reported();
    whatever_is_cut_an_identity_remains();
    the_line_goes_on_while_identities_come();
    what_comes_before_the_answer_is_ignored();
    nothing_of_an_identity_goes_to_the_host();
    checking = name;
    for (uint64_t seed = first; seed <= last; seed++) {
        snprintf(name, sizeof name, "provision --seed %llu", (unsigned long long)seed);
        a_bad_line_only_takes_longer(seed);
    }
    mrd_flash_close(&flash);
    fprintf(stderr, "provision: ok\n");
    return 0;
}
