/* remote.c - a host asks a device what its logs have: every record with its id and cause, also those that are old or not in flash yet; what is
 * refused; and frames that nobody should send.
 */
#include "host.h"
#include "millrace_remote.h"
#define MILLRACE_DEVICE twice
#include "millrace.h"

int twice_handle(const mr_record *record) { return mr_append("twice", record->data, record->size); }
static int pass_handle(const mr_record *record) {
    (void)record;
    return 0;
}

enum { SECTOR = 4096, SECTORS = 8, FUZZED = 20000 };
enum { RAW, TWICE, CONFIG, WIDE };

static const mrd_log logs[] = {{"raw", 300, 0}, {"twice", 300, 0}, {"config", 1, MRD_KEEP | MRD_COMMANDS}, {"wide", 50, MRD_COMMANDS}};
/* The second function of the log has the second TRIGGER. */
static const mrd_function functions[] = {{"pass", pass_handle, "raw", 3, NULL, 0}, {"twice", twice_handle, "raw", 3, NULL, 0}};
static uint64_t memory[MRD_WORDS(4, 2, 1024)];
static mrd_flash flash;
static mrd device;
static mrd_uplink uplink;
static host h;
static unsigned answers;
static int answer; /* the type of the last answer, or the number of a refusal */
static int refusal; /* the code in the last DELIVERED, or 0 */
static uint64_t seqno, next;
static mrw_record records[15];
static unsigned count;
static uint8_t data[1024];
static size_t size;

const char *checking = "remote";

static void note_answer(host *of, const mrw_frame *frame) {
    mrw_failure failure;
    mrw_seqno newest;
    mrw_appended appended;
    mrw_records many;
    mrw_delivered delivered;
    (void)of;
    answers++;
    CHECK(uplink.out_end <= MRW_RECORD_HEAD + MRD_FRAME_MAX);
    answer = frame->type;
    if (frame->type == MRW_FAILURE) {
        EQUAL(mrw_decode(frame, MRW_FAILURE, &failure), 0);
        answer = -(int)strtol((const char *)failure.code.at + 2, NULL, 10);
    } else if (frame->type == MRW_DELIVERED) {
        EQUAL(mrw_decode(frame, MRW_DELIVERED, &delivered), 0);
        refusal = delivered.refused.given ? (int)strtol((const char *)delivered.refused.code.at + 2, NULL, 10) : 0;
    } else if (frame->type == MRW_SEQNO) {
        EQUAL(mrw_decode(frame, MRW_SEQNO, &newest), 0);
        seqno = newest.seqno;
    } else if (frame->type == MRW_APPENDED) {
        EQUAL(mrw_decode(frame, MRW_APPENDED, &appended), 0);
        seqno = appended.seqno;
        records[0].id = appended.id;
    } else if (frame->type == MRW_RECORD) {
        EQUAL(mrw_decode(frame, MRW_RECORD, &records[0]), 0);
        size = records[0].data.size;
        memcpy(data, records[0].data.at, size);
    } else if (frame->type == MRW_RECORDS) {
        EQUAL(mrw_decode(frame, MRW_RECORDS, &many), 0);
        next = many.next;
        for (count = 0; mrw_take_record(&many.records, &records[count]); count++) continue;
    }
}

static void let_work(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        CHECK(mrd_step(&device) >= 0);
        mrd_uplink_step(&uplink);
        flash.ms += 100;
    }
}

static void connect_again(void) {
    mrd_uplink_end(&uplink);
    let_work(5);
    for (unsigned i = 0; i < 20000 && !(uplink.attached && uplink.idle); i++) let_work(1);
    CHECK(uplink.attached && uplink.idle);
}

/* Sends a request that was written to the host's queue, and returns the answer. */
static int ask(uint8_t type, const void *message) {
    unsigned before = answers;
    host_say(&h, type, ++h.request, message);
    for (unsigned i = 0; i < 50 && answers == before; i++) {
        mrd_uplink_step(&uplink);
        flash.ms += 20;
    }
    EQUAL(answers, before + 1);
    return answer;
}

static mrw_bytes text(const char *of) {
    mrw_bytes bytes = {of, strlen(of)};
    return bytes;
}

static int get(const char *log, uint64_t of) {
    mrw_get message;
    memset(&message, 0, sizeof message);
    message.log = text(log);
    message.seqno = of;
    return ask(MRW_GET, &message);
}

static int range(const char *log, uint64_t from, uint32_t most) {
    mrw_range message;
    memset(&message, 0, sizeof message);
    message.log = text(log);
    message.from = from;
    message.count = most;
    return ask(MRW_RANGE, &message);
}

static int latest(const char *log) {
    mrw_latest message;
    memset(&message, 0, sizeof message);
    message.log = text(log);
    return ask(MRW_LATEST, &message);
}

static int append(const char *log, const void *bytes, size_t length) {
    mrw_append message;
    memset(&message, 0, sizeof message);
    message.log = text(log);
    message.data.at = bytes;
    message.data.size = length;
    return ask(MRW_APPEND, &message);
}

static void open_device(bool answers_requests) {
    EQUAL(mrd_open(&device, &flash.port, logs, 4, functions, 2, memory, sizeof memory), 0);
    mrd_uplink_begin(&uplink, &device, &h.line, "kitchen", NULL, 0);
    if (answers_requests) mrd_remote_begin(&uplink);
}

static void begin(bool answers_requests) {
    CHECK(mrd_flash_open(&flash, NULL, SECTORS, SECTOR, 8, 8, 7) == 0);
    flash.virtual_time = true;
    host_begin(&h, SECTOR);
    for (unsigned i = 0; i < 4; i++) h.log[i].name = logs[i].name;
    h.seen = note_answer;
    h.now_ms = 1700000000000;
    open_device(answers_requests);
}

static void measure(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        uint8_t bytes[24] = {0};
        uint64_t value = (uint64_t)mrd_latest(&device, "raw") + 1;
        mrd_store(bytes, value, 8);
        CHECK(mrd_append(&device, "raw", bytes, sizeof bytes - value % 8, NULL) > 0);
        let_work(3);
    }
}

static void check_id(const mrw_id *id, uint32_t epoch, uint64_t sequence) {
    EQUAL(mrd_load(id->bytes, 7), sequence);
    EQUAL(mrd_load(id->bytes + 7, 3), epoch);
    EQUAL(mrd_load(id->bytes + 10, 6), 7);
}

/* ---- what a host reads is what it has imported ---- */

/* The record that the answer has, as the host knows it from the journal. */
static void check_record(unsigned log, uint64_t of) {
    const host_log *known = &h.log[log];
    EQUAL(records[0].seqno, of);
    EQUAL(mrd_load(data, 8), known->content[of]);
    check_id(&records[0].id, known->epoch[of], known->sequence[of]);
}

static void check_reads(void) {
    uint64_t newest = h.log[RAW].newest, causes = 0;
    for (uint64_t of = 1; of <= newest; of++) {
        if (of + 300 <= newest) {
            EQUAL(get("raw", of), MRD_BELOW_HISTORY);
            continue;
        }
        int got = get("raw", of);
        if (got == MRD_BELOW_HISTORY) continue;
        EQUAL(got, MRW_RECORD);
        EQUAL(size, 24 - of % 8);
        check_record(RAW, of);
        /* The first ones are at most two seconds older than the connection; virtual time goes on by less than an hour. */
        CHECK(records[0].hlc >> 12 > 1699999980000000 && records[0].hlc >> 12 < 1700003600000000);
        EQUAL(mrd_load(records[0].cause.bytes, 8) + mrd_load(records[0].cause.bytes + 8, 8), 0);
        if (get("twice", of) == MRD_BELOW_HISTORY) continue;
        check_record(TWICE, of);
        /* Its cause is the run of the second function, whose TRIGGER is the second event behind the record; unless that was dropped. */
        if (mrd_load(records[0].cause.bytes, 7) == 0) continue;
        check_id(&records[0].cause, h.log[RAW].epoch[of], h.log[RAW].sequence[of] + 2);
        causes++;
    }
    CHECK(causes > 40);
    EQUAL(get("raw", newest + 1), MRD_ABOVE_TAIL);
    EQUAL(get("raw", 0), MRW_RECORD);
    check_record(RAW, newest);
    EQUAL(latest("raw"), MRW_SEQNO);
    EQUAL(seqno, newest);
    /* Ranges have what single requests have. */
    EQUAL(range("raw", newest - 30, 100), MRW_RECORDS);
    CHECK(count > 3 && next == newest - 30 + count);
    EQUAL(range("raw", newest - 1, 100), MRW_RECORDS);
    EQUAL(count, 2);
    EQUAL(next, newest + 1);
    EQUAL(range("raw", newest - 5, 2), MRW_RECORDS);
    EQUAL(count, 2);
    EQUAL(range("raw", newest + 1, 5), MRW_RECORDS);
    EQUAL(count, 0);
    EQUAL(next, newest + 1);
    EQUAL(range("raw", 0, 5), MRD_SEQNO_INVALID);
    if (newest > 300) EQUAL(range("raw", 1, 5), MRD_BELOW_HISTORY);
}

static void check_many(void) {
    checking = "many";
    begin(true);
    h.reachable = false;
    measure(20);
    h.reachable = true;
    connect_again();
    /* Those from before the clock was told the time have their time, too: check_reads looks at it. */
    CHECK(device.jumped_ms > 1600000000000);
    /* Starts, epochs, and laps of the ring. */
    for (unsigned start = 0; start < 6; start++) {
        measure(250);
        mrd_sync(&device);
        connect_again();
        check_reads();
        open_device(true);
        connect_again();
    }
    CHECK(device.serial > 2 * SECTORS);
    mrd_flash_close(&flash);
}

/* ---- appends, and what is not in flash ---- */

static void check_appends(void) {
    uint8_t bytes[600] = "12345678";
    checking = "appends";
    begin(true);
    connect_again();
    /* Before it attaches, what it has is in flash: its OPEN, too, whose epoch the host gets to know. */
    CHECK(device.used == 0 && !device.opening);
    EQUAL(latest("raw"), MRW_SEQNO);
    EQUAL(seqno, 0);
    EQUAL(get("raw", 0), MRD_ABOVE_TAIL);
    EQUAL(append("config", bytes, 8), MRW_APPENDED);
    EQUAL(seqno, 1);
    mrw_id id = records[0].id;
    CHECK(device.used == 0);
    EQUAL(get("config", 1), MRW_RECORD);
    EQUAL(memcmp(&id, &records[0].id, sizeof id), 0);
    EQUAL(append("config", bytes, 8), MRW_APPENDED);
    EQUAL(get("config", 1), MRD_BELOW_HISTORY);
    /* A record that waits in memory is in flash when it was told. */
    CHECK(mrd_append(&device, "raw", bytes, 8, NULL) == 1);
    CHECK(device.used > 0);
    EQUAL(latest("raw"), MRW_SEQNO);
    EQUAL(seqno, 1);
    CHECK(device.used == 0);
    CHECK(mrd_append(&device, "raw", bytes, 8, NULL) == 2);
    EQUAL(range("raw", 1, 9), MRW_RECORDS);
    EQUAL(count, 2);
    CHECK(device.used == 0);
    /* What is longer than a frame can be appended by the device, and not be read. */
    EQUAL(append("wide", bytes, 250), MRW_APPENDED);
    CHECK(mrd_append(&device, "wide", bytes, 600, NULL) == 2);
    EQUAL(get("wide", 1), MRW_RECORD);
    EQUAL(size, 250);
    EQUAL(get("wide", 2), MRW_FRAME_TOO_LONG);
    EQUAL(range("wide", 1, 9), MRW_RECORDS);
    EQUAL(count, 1);
    EQUAL(range("wide", 2, 9), MRW_FRAME_TOO_LONG);
    CHECK(uplink.attached);
    /* There is room for frames of 448 bytes: a longer one ends the connection, at once, and the next one is as good as the first. */
    mrw_append message;
    memset(&message, 0, sizeof message);
    message.log = text("wide");
    message.data.at = bytes;
    message.data.size = 430;
    host_say(&h, MRW_APPEND, ++h.request, &message);
    mrd_uplink_step(&uplink);
    CHECK(!uplink.attached);
    EQUAL(uplink.error, MRW_FRAME_TOO_LONG);
    connect_again();
    EQUAL(mrd_latest(&device, "wide"), 2);
}

/* Writes the head of a frame with a map. */
static mrw_writer begin_raw(uint8_t type, uint32_t keys) {
    mrw_writer to = {h.out.bytes + h.out.size + 4, 400, 0, false, NULL, NULL};
    mrw_write_array(&to, 5);
    mrw_write_uint(&to, type);
    mrw_write_uint(&to, ++h.request);
    mrw_write_uint(&to, 0);
    mrw_write_nil(&to);
    mrw_write_map(&to, keys);
    return to;
}

static int end_raw(const mrw_writer *to) {
    unsigned before = answers;
    mrd_store4(to->bytes - 4, (uint32_t)to->size);
    h.out.size += to->size + 4;
    let_work(5);
    EQUAL(answers, before + 1);
    return answer;
}

/* A LATEST of a log, with another key, that of the log or one that nobody knows. */
static int ask_twice(const char *key, const char *log, const char *other) {
    mrw_writer to = begin_raw(MRW_LATEST, 2);
    mrw_write_text(&to, text("log"));
    mrw_write_text(&to, text(log));
    mrw_write_text(&to, text(key));
    mrw_write_text(&to, text(other));
    return end_raw(&to);
}

/* A LATEST with bytes behind it. */
static int ask_more(void) {
    mrw_writer to = begin_raw(MRW_LATEST, 1);
    mrw_write_text(&to, text("log"));
    mrw_write_text(&to, text("config"));
    mrw_write_nil(&to);
    return end_raw(&to);
}

/* The name of a log, with a zero and more behind it, for which another right may hold. */
static int ask_with_zero(void) {
    mrw_bytes name = {"raw\0x", 5};
    mrw_latest message;
    memset(&message, 0, sizeof message);
    message.log = name;
    return ask(MRW_LATEST, &message);
}

static void check_refusals(void) {
    mrw_append message;
    checking = "refusals";
    EQUAL(append("raw", "12345678", 8), -6132); /* it takes no commands */
    EQUAL(append("none", "12345678", 8), MRD_LOG_NOT_FOUND);
    EQUAL(append("../x", "12345678", 8), MRD_NAME_INVALID);
    EQUAL(append("_keys", "12345678", 8), -6022);
    EQUAL(get("none", 1), MRD_LOG_NOT_FOUND);
    EQUAL(get("a//b", 1), MRD_NAME_INVALID);
    EQUAL(get("_keys", 1), MRD_LOG_NOT_FOUND);
    EQUAL(latest("none"), MRD_LOG_NOT_FOUND);
    EQUAL(range("none", 1, 1), MRD_LOG_NOT_FOUND);
    EQUAL(get("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1), MRD_LOG_NOT_FOUND);
    memset(&message, 0, sizeof message);
    message.log = text("config");
    message.data = text("12345678");
    message.function = text("twice");
    EQUAL(ask(MRW_APPEND, &message), MRD_FUNCTION_NOT_FOUND);
    message.function = text("");
    message.function.at = NULL;
    message.key = text("k");
    EQUAL(ask(MRW_APPEND, &message), -6025);
    /* A key that comes twice could have two meanings for who checks rights and for who acts. */
    EQUAL(ask_twice("log", "config", "raw"), MRW_FRAME_MALFORMED);
    EQUAL(ask_twice("log", "config", "config"), MRW_FRAME_MALFORMED);
    EQUAL(ask_twice("none", "config", "raw"), MRW_SEQNO);
    EQUAL(ask_more(), MRW_FRAME_MALFORMED);
    EQUAL(ask_with_zero(), MRD_NAME_INVALID);
    EQUAL(latest("config"), MRW_SEQNO);
    EQUAL(seqno, 2);
    CHECK(uplink.attached);
    mrd_flash_close(&flash);
}

/* Two records that leave any number of bytes of the frame: what stands behind them fits, too. */
static void check_frames_of_all_lengths(void) {
    uint8_t bytes[300] = {0};
    checking = "frames of all lengths";
    begin(true);
    connect_again();
    for (unsigned length = 180; length < 260; length++) {
        uint64_t first = (uint64_t)mrd_latest(&device, "wide") + 1;
        for (unsigned i = 0; i < 2; i++) CHECK(mrd_append(&device, "wide", bytes, length, NULL) > 0);
        EQUAL(range("wide", first, 9), MRW_RECORDS);
        CHECK(count == 2 || (count == 1 && length > 200));
        EQUAL(next, first + count);
    }
    mrd_flash_close(&flash);
}

/* ---- commands, without a guard ---- */

static int ask_link(uint64_t life, bool given) {
    mrw_link message;
    memset(&message, 0, sizeof message);
    message.stream = text("kitchen");
    message.namespace_id = 99;
    message.epoch = 1;
    message.life.given = given;
    message.life.number = life;
    message.life.id = 5;
    int result = ask(MRW_LINK, &message);
    h.link = h.request;
    return result;
}

static int ask_deliver(uint64_t link, uint64_t number, mrw_bytes log, size_t length) {
    mrw_item item;
    mrw_deliver message;
    memset(&item, 0, sizeof item);
    memset(&message, 0, sizeof message);
    item.log = log;
    item.data.at = data;
    item.data.size = length;
    message.link = link;
    message.first = number;
    message.items.count = 1;
    message.items.items = &item;
    refusal = 0;
    return ask(MRW_DELIVER, &message);
}

static void check_commands(void) {
    static const char *long_name = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    checking = "commands";
    begin(true);
    EQUAL(mrd_open(&device, &flash.port, logs, 4, functions, 2, memory, 8 * MRD_WORDS(4, 2, 256)), 0);
    connect_again();
    for (uint64_t link = 0; link < 2; link++) EQUAL(ask_deliver(link, 1, text("config"), 8), MRW_MESSAGE_UNEXPECTED); /* before a LINK */
    EQUAL(ask_link(0, false), MRW_FRAME_MALFORMED);
    EQUAL(ask_link(3, true), MRW_LINKED);
    EQUAL(ask_deliver(h.link + 1, 1, text("config"), 8), MRW_MESSAGE_UNEXPECTED);
    EQUAL(ask_deliver(h.link, 1, text("config"), 8), MRW_DELIVERED);
    EQUAL(refusal, 0);
    EQUAL(ask_deliver(h.link, 2, text("raw"), 8), MRW_DELIVERED);
    EQUAL(refusal, 6132);
    EQUAL(ask_deliver(h.link, 2, text(long_name), 8), MRW_DELIVERED);
    EQUAL(refusal, 2101);
    /* The longest command has room beside the number of its sender, and in a burst of its own. */
    size_t most = mrd_record_max(&device, WIDE) - MRD_SENDER_BYTES;
    EQUAL(ask_deliver(h.link, 2, text("wide"), most + 1), MRW_DELIVERED);
    EQUAL(refusal, 1004);
    EQUAL(ask_deliver(h.link, 2, text("wide"), most), MRW_DELIVERED);
    EQUAL(refusal, 0);
    EQUAL(mrd_latest(&device, "config") * 10 + mrd_latest(&device, "wide"), 11);
    /* A host that was put back to an earlier life would give the numbers again. */
    EQUAL(ask_link(2, true), -6081);
    EQUAL(ask_link(4, true), MRW_LINKED);
    EQUAL(device.sender[0].number, 2);
    mrd_flash_close(&flash);
}

/* Firmware without the module refuses, and stays connected. */
static void check_deaf(void) {
    checking = "without the module";
    begin(false);
    connect_again();
    EQUAL(latest("raw"), MRW_MESSAGE_UNEXPECTED);
    EQUAL(append("config", "12345678", 8), MRW_MESSAGE_UNEXPECTED);
    CHECK(uplink.attached);
    mrd_flash_close(&flash);
}

/* ---- frames that nobody should send ---- */

static uint64_t seed = 88172645463325252u;

static uint32_t below(uint32_t limit) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % limit;
}

static void say_any(void) {
    static const char *names[] = {"raw", "twice", "config", "wide", "none", "", "_x", "a/b", "../x"};
    const char *name = names[below(sizeof names / sizeof *names)];
    union {
        mrw_get get;
        mrw_range range;
        mrw_latest latest;
        mrw_append append;
    } message;
    memset(&message, 0, sizeof message);
    switch (below(4)) {
    case 0:
        message.get.log = text(name);
        message.get.seqno = below(80);
        host_say(&h, MRW_GET, ++h.request, &message);
        break;
    case 1:
        message.range.log = text(name);
        message.range.from = below(80);
        message.range.count = below(3) == 0 ? UINT32_MAX : below(20);
        host_say(&h, MRW_RANGE, ++h.request, &message);
        break;
    case 2:
        message.latest.log = text(name);
        host_say(&h, MRW_LATEST, ++h.request, &message);
        break;
    default:
        message.append.log = text(name);
        message.append.data.at = data;
        message.append.data.size = 8 + below(300);
        host_say(&h, MRW_APPEND, ++h.request, &message);
        break;
    }
}

static void check_fuzzed(void) {
    unsigned good = 0;
    checking = "fuzzed frames";
    begin(true);
    connect_again();
    measure(30);
    for (unsigned i = 0; i < FUZZED; i++) {
        if (!uplink.attached) connect_again();
        size_t before = h.out.size;
        say_any();
        for (unsigned flips = below(4); flips > 0; flips--) {
            /* The first bytes of the message, most of the time; seldom those of the frame's length. */
            uint32_t at = below(8) == 0 ? below(4) : 4 + below((uint32_t)(h.out.size - before - 4));
            h.out.bytes[before + at] = (uint8_t)(below(2) ? below(256) : h.out.bytes[before + at] ^ 1u << below(8));
        }
        if (below(50) == 0) h.out.size -= below((uint32_t)(h.out.size - before));
        unsigned had = answers;
        let_work(2);
        good += answers > had;
        CHECK(uplink.in_sealed <= sizeof uplink.in);
    }
    CHECK(good > FUZZED / 8);
    /* What was there before is there, and nothing but the logs that take commands has grown. */
    connect_again();
    EQUAL(h.log[RAW].newest, 30);
    EQUAL(latest("raw"), MRW_SEQNO);
    EQUAL(seqno, 30);
    mrd_flash_close(&flash);
}

int main(void) {
    check_many();
    check_appends();
    check_refusals();
    check_frames_of_all_lengths();
    check_commands();
    check_deaf();
    check_fuzzed();
    fprintf(stderr, "remote: %u answers: ok\n", answers);
    return 0;
}
