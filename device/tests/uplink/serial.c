/* serial.c - a device and a host on a serial port that loses, changes, repeats and reorders, and on which others write.
 *
 *     serial [--seeds N] [--seed S]
 */
#include "host.h"
#include "millrace_serial.h"
#include "port.h"

enum { ROUNDS = 40000, RECORDS = 300 };

const char *checking = "serial";

/* A frame that the next one of its direction overtakes. */
typedef struct {
    uint8_t bytes[MRD_SERIAL_FRAME_MAX * 2];
    size_t size;
} overtaken;

static mrd_flash flash;
static mrd device;
static mrd_uplink uplink;
static mrd_serial serial;
static host h;
static const mrd_log logs[] = {{"raw", 10000, 0}, {"config", 10000, MRD_COMMANDS}};
static uint64_t memory[MRD_WORDS(2, 0, 512)];
static uint64_t forged, breaks;
static unsigned noise;
static overtaken of_up, of_down;
/* The host's side of the port. */
static mrd_serial_reader reader;
static uint32_t session;
static uint16_t expected, sent;
static uint8_t said[MRD_SERIAL_FRAME_MAX]; /* its last frame */
static size_t said_size;
/* Counts frames of both directions; the one with this number is lost. */
static uint64_t frames, lost_frame;

static void put(wire *to, uint8_t byte) {
    if (noise > 0 && pick(noise * 20) == 0) return;
    if (noise > 0 && pick(noise * 20) == 0) byte ^= (uint8_t)(1u << pick(8));
    CHECK(to->size < WIRE);
    to->bytes[to->size++] = byte;
    if (noise > 0 && pick(noise * 40) == 0) to->bytes[to->size++] = (uint8_t)pick(256);
}

static void put_all(wire *to, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) put(to, bytes[i]);
}

/* Somebody who does not know the session writes frames of his own. */
static void forge(wire *to) {
    mrd_serial_frame frame;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    frame.kind = (uint8_t)(1 + pick(4));
    frame.session = pick(2) ? (uint32_t)mrd_flash_random(&random_state) : session - 1;
    frame.number = (uint16_t)pick(100);
    frame.size = (uint8_t)pick(MRD_SERIAL_DATA_MAX);
    for (unsigned i = 0; i < frame.size; i++) frame.data[i] = (uint8_t)pick(256);
    /* A host cannot know which of two devices on one port begins a session; the last one counts. */
    if (frame.kind == MRD_SERIAL_OPEN && to == &up) return;
    put_all(to, bytes, mrd_serial_encode(&frame, bytes));
    forged++;
}

static void put_frame(wire *to, const uint8_t *bytes, size_t size) {
    overtaken *held = to == &up ? &of_up : &of_down;
    if (++frames == lost_frame) return;
    if (noise > 0 && pick(noise) == 0) put_all(to, bytes, size);            /* repeated */
    if (noise > 0 && pick(noise) == 0) size = pick((unsigned)size);         /* torn */
    if (noise > 0 && pick(noise * 2) == 0) put_all(to, (const uint8_t *)"boot 1.2\n", 9);
    if (noise > 0 && pick(noise) == 0) forge(to);
    if (noise > 0 && held->size == 0 && pick(noise) == 0) {
        memcpy(held->bytes, bytes, size);
        held->size = size;
        return;
    }
    put_all(to, bytes, size);
    put_all(to, held->bytes, held->size);
    held->size = 0;
}

static size_t write_port(void *context, const void *bytes, size_t size) {
    (void)context;
    put_frame(&up, (const uint8_t *)bytes, size);
    return size;
}

static const mrd_uart uart = {write_port, read_port, random_bytes, console, NULL};

static void host_frame(uint8_t kind, const uint8_t *data, size_t size) {
    mrd_serial_frame frame;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    frame.kind = kind;
    frame.session = session;
    frame.number = sent++;
    frame.size = (uint8_t)size;
    if (size > 0) memcpy(frame.data, data, size);
    said_size = mrd_serial_encode(&frame, bytes);
    memcpy(said, bytes, said_size);
    put_frame(&down, bytes, said_size);
}

static void host_takes(const mrd_serial_frame *frame) {
    if (frame->kind == MRD_SERIAL_OPEN && frame->number == 0 && frame->session != session) {
        session = frame->session;
        expected = 1;
        sent = 0;
        host_open(&h);
        host_frame(MRD_SERIAL_OPEN, NULL, 0);
        return;
    }
    if (frame->session != session || !h.open) return;
    uint16_t ahead = (uint16_t)(frame->number - expected);
    if (ahead == UINT16_MAX) put_frame(&down, said, said_size);
    if (ahead > UINT16_MAX / 2) return;
    if (ahead > 0 || frame->kind != MRD_SERIAL_DATA) {
        h.open = false;
        breaks++;
        host_frame(MRD_SERIAL_CLOSE, NULL, 0);
        return;
    }
    expected++;
    for (size_t at = 0; at < frame->size;) {
        long taken = host_send(&h, frame->data + at, frame->size - at);
        if (taken < 0) break;
        at += (size_t)taken;
    }
}

/* A host that has just come asks for a connection. */
static void host_calls(void) {
    mrd_serial_frame frame;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    memset(&frame, 0, sizeof frame);
    frame.kind = MRD_SERIAL_OPEN;
    put_frame(&down, bytes, mrd_serial_encode(&frame, bytes));
    h.open = false;
}

static void host_port(void) {
    mrd_serial_frame frame;
    uint8_t byte;
    while (take(&up, &byte, 1) == 1) {
        if (mrd_serial_take(&reader, byte, &frame) > 0) host_takes(&frame);
    }
    if (pick(4) == 0) put_all(&up, of_up.bytes, of_up.size), of_up.size = 0;
    if (pick(4) == 0) put_all(&down, of_down.bytes, of_down.size), of_down.size = 0;
    uint8_t data[MRD_SERIAL_DATA_MAX];
    for (long size; h.open && (size = host_receive(&h, data, sizeof data)) > 0;) host_frame(MRD_SERIAL_DATA, data, (size_t)size);
}

static void run(uint64_t seed) {
    random_state = seed * 2 + 1;
    for (unsigned i = 0; i < 8; i++) pick(2);
    CHECK(mrd_flash_open(&flash, NULL, 16, 4096, 8, 8, 0x4B17C4E20001) == 0);
    flash.virtual_time = true;
    memset(&up, 0, sizeof up);
    memset(&down, 0, sizeof down);
    memset(&reader, 0, sizeof reader);
    session = 0;
    host_begin(&h, 4096);
    for (unsigned i = 0; i < 2; i++) h.log[i].name = logs[i].name;
    EQUAL(mrd_open(&device, &flash.port, logs, 2, NULL, 0, memory, sizeof memory), 0);
    mrd_serial_begin(&serial, &uart);
    mrd_uplink_begin(&uplink, &device, &serial.line, "kitchen", NULL, 0);
    unsigned round = 0;
    for (; round < ROUNDS; round++) {
        uint8_t bytes[8];
        uint64_t newest = (uint64_t)mrd_latest(&device, "raw");
        mrd_store(bytes, newest + 1, 8);
        noise = round < ROUNDS / 2 ? 10 + (unsigned)(seed % 4) * 30 : 0; /* in the end, the line is good */
        if (newest < RECORDS && pick(3) == 0) CHECK(mrd_append(&device, "raw", bytes, 8, NULL) > 0);
        if (h.issued < RECORDS / 3 && pick(20) == 0) h.issued++;
        h.now_ms = 1700000000000 + flash.ms;
        CHECK(mrd_step(&device) >= 0);
        mrd_uplink_step(&uplink);
        host_port();
        if (noise > 0 && pick(300) == 0) host_calls();
        flash.ms += 20 + pick(100);
        if (newest == RECORDS && uplink.idle && h.issued == RECORDS / 3 && h.acknowledged == h.issued && h.log[1].newest == h.issued) break;
    }
    CHECK(round < ROUNDS);
    EQUAL(h.lost, 0);
    for (unsigned i = 0; i < 2; i++) {
        EQUAL(h.log[i].newest, mrd_latest(&device, logs[i].name));
        for (uint64_t seqno = 1; seqno <= h.log[i].newest; seqno++) EQUAL(h.log[i].content[seqno], seqno);
    }
    mrd_flash_close(&flash);
}

/* Nobody answered for a day, so the device waits for minutes; a host that calls gets a connection at once, and so does the next one. */
static void a_host_that_calls_is_answered(void) {
    CHECK(mrd_flash_open(&flash, NULL, 16, 4096, 8, 8, 0x4B17C4E20001) == 0);
    flash.virtual_time = true;
    noise = 0;
    host_begin(&h, 4096);
    for (unsigned i = 0; i < 2; i++) h.log[i].name = logs[i].name;
    EQUAL(mrd_open(&device, &flash.port, logs, 2, NULL, 0, memory, sizeof memory), 0);
    mrd_serial_begin(&serial, &uart);
    mrd_uplink_begin(&uplink, &device, &serial.line, "kitchen", NULL, 0);
    uint8_t bytes[8];
    mrd_store(bytes, 1, 8);
    CHECK(mrd_append(&device, "raw", bytes, 8, NULL) == 1);
    for (unsigned i = 0; i < 86400; i++, flash.ms += 1000) {
        mrd_step(&device);
        mrd_uplink_step(&uplink);
        up.size = 0;
    }
    for (unsigned call = 0; call < 2; call++) {
        /* Whatever the device is waiting for. */
        for (uint32_t i = 0; call == 0 && i < 1000 && mrd_uplink_step(&uplink) <= 100000; i++) flash.ms += 1000;
        up.size = 0;
        host_calls();
        for (unsigned i = 0; i < 100; i++, flash.ms += 20) {
            mrd_uplink_step(&uplink);
            host_port();
        }
        CHECK(uplink.attached && uplink.idle);
        EQUAL(h.log[0].newest, 1);
    }
    mrd_flash_close(&flash);
}

/* Whichever frame is lost, also the last one of a request or of an answer: the device goes on within seconds, not after a minute. */
static void a_lost_frame_costs_seconds(void) {
    static char name[60];
    checking = name;
    for (uint64_t lost = 1;; lost++) {
        snprintf(name, sizeof name, "serial without frame %llu", (unsigned long long)lost);
        CHECK(mrd_flash_open(&flash, NULL, 16, 4096, 8, 8, 0x4B17C4E20001) == 0);
        flash.virtual_time = true;
        noise = 0;
        memset(&up, 0, sizeof up);
        memset(&down, 0, sizeof down);
        memset(&reader, 0, sizeof reader);
        session = 0;
        host_begin(&h, 4096);
        for (unsigned i = 0; i < 2; i++) h.log[i].name = logs[i].name;
        EQUAL(mrd_open(&device, &flash.port, logs, 2, NULL, 0, memory, sizeof memory), 0);
        mrd_serial_begin(&serial, &uart);
        mrd_uplink_begin(&uplink, &device, &serial.line, "kitchen", NULL, 0);
        for (uint64_t seqno = 1; seqno <= 80; seqno++) {
            uint8_t bytes[8];
            mrd_store(bytes, seqno, 8);
            CHECK(mrd_append(&device, "raw", bytes, 8, NULL) == (int64_t)seqno);
        }
        EQUAL(mrd_sync(&device), 0);
        frames = 0;
        lost_frame = lost;
        uint32_t begun = flash.ms;
        while (flash.ms - begun < 10000 && !(uplink.attached && uplink.idle)) {
            mrd_uplink_step(&uplink);
            host_port();
            flash.ms += 20;
        }
        CHECK(uplink.attached && uplink.idle);
        CHECK(flash.ms - begun < 4000);
        EQUAL(h.log[0].newest, 80);
        mrd_flash_close(&flash);
        if (frames < lost) break;
        CHECK(lost < 1000);
    }
    lost_frame = 0;
    checking = "serial";
}

/* Every frame is found whatever stands before it, and no frame is found in what was changed. */
static void frames_are_found(void) {
    mrd_serial_frame frame = {MRD_SERIAL_DATA, 0x01020304, 5, 0, {0}}, found;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    for (unsigned round = 0; round < 20000; round++) {
        mrd_serial_reader one;
        memset(&one, 0, sizeof one);
        for (unsigned i = pick(40); i > 0; i--) mrd_serial_take(&one, pick(3) == 0 ? 0 : (uint8_t)pick(256), &found);
        mrd_serial_take(&one, 0, &found);
        frame.size = (uint8_t)pick(MRD_SERIAL_DATA_MAX + 1);
        for (unsigned i = 0; i < frame.size; i++) frame.data[i] = (uint8_t)(pick(2) ? 0 : pick(256));
        size_t size = mrd_serial_encode(&frame, bytes);
        unsigned changed = pick(2) ? 1 + pick((unsigned)size - 2) : 0, times = 0;
        if (changed > 0) bytes[changed] ^= (uint8_t)(1u << pick(8));
        for (size_t i = 0; i < size; i++) times += mrd_serial_take(&one, bytes[i], &found) > 0;
        EQUAL(times, changed == 0);
        if (times > 0) EQUAL(memcmp(found.data, frame.data, frame.size), 0);
        if (times > 0) CHECK(found.size == frame.size && found.session == frame.session && found.number == frame.number);
    }
}

/* A frame that the device takes as bytes of the line; returns how many. */
static long take_line(uint32_t of, uint16_t number, const char *text) {
    mrd_serial_frame frame = {MRD_SERIAL_DATA, of, number, (uint8_t)strlen(text), {0}};
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    memcpy(frame.data, text, frame.size);
    put_all(&down, bytes, mrd_serial_encode(&frame, bytes));
    return serial.line.receive(&serial, bytes, sizeof bytes);
}

/* Frames of another session, and one that comes twice, are no bytes of this connection; and a frame is not found in the beginning of a longer one. */
static void frames_of_others_are_ignored(void) {
    mrd_serial_frame frame = {MRD_SERIAL_OPEN, 0, 0, 0, {0}}, found;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX + 2];
    memset(&up, 0, sizeof up);
    memset(&down, 0, sizeof down);
    mrd_serial_begin(&serial, &uart);
    EQUAL(serial.line.open(&serial), 0);
    frame.session = serial.session;
    put_all(&down, bytes, mrd_serial_encode(&frame, bytes));
    EQUAL(serial.line.receive(&serial, bytes, sizeof bytes), 0);
    EQUAL(take_line(serial.session, 1, "one"), 3);
    EQUAL(take_line(serial.session + 1, 2, "other"), 0);
    EQUAL(take_line(serial.session, 1, "one"), 0);
    EQUAL(take_line(serial.session, 2, "three"), 5);
    EQUAL(take_line(serial.session, 4, "gap"), -1);
    mrd_serial_reader one;
    memset(&one, 0, sizeof one);
    frame.kind = MRD_SERIAL_DATA;
    frame.size = MRD_SERIAL_DATA_MAX;
    memset(frame.data, 7, sizeof frame.data);
    size_t size = mrd_serial_encode(&frame, bytes);
    EQUAL(size, MRD_SERIAL_FRAME_MAX);
    memset(bytes + size - 1, 9, 2);
    bytes[size + 1] = 0;
    for (size_t i = 0; i < size + 2; i++) CHECK(mrd_serial_take(&one, bytes[i], &found) <= 0);
}

int main(int count, char **words) {
    uint64_t first = 1, last = 12, connections = 0;
    static char name[100];
    random_state = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 10);
        if (strcmp(words[i], "--seeds") == 0) last = value;
        if (strcmp(words[i], "--seed") == 0) first = last = value;
    }
    frames_are_found();
    frames_of_others_are_ignored();
    a_host_that_calls_is_answered();
    a_lost_frame_costs_seconds();
    checking = name;
    for (uint64_t seed = first; seed <= last; seed++) {
        snprintf(name, sizeof name, "serial --seed %llu", (unsigned long long)seed);
        run(seed);
        connections += h.connections;
    }
    fprintf(stderr, "serial: %llu lines, %llu connections, %llu broken by the host, %llu forged frames, %llu bytes of text: ok\n",
            (unsigned long long)(last - first + 1), (unsigned long long)connections, (unsigned long long)breaks,
            (unsigned long long)forged, (unsigned long long)texts);
    return 0;
}
