/* guard.c - a device verifies capabilities: the vectors of the format, and what a host can do with which capability. */
#include "host.h"
#include "millrace_identity.h"
#include "millrace_remote.h"
#include "token.h"

typedef struct {
    const char *name;
    const uint8_t *body;
    size_t size;
    const uint8_t *signature;
    int good;
} vector;

typedef struct {
    const char *name;
    const uint8_t *body;
    size_t size;
    mrd_action action;
    const uint8_t *revoked;
    unsigned revoked_count;
    int permitted;
} evaluation;

typedef struct {
    const uint8_t *token;
    size_t size;
    uint8_t nonce[MRW_CHANNEL_NONCE];
    uint16_t takes;
    uint8_t m2[MRW_M2_BYTES], exporter[MRW_HASH];
} shake;

const char *checking = "guard";

#include "guard.inc"

/* ---- vectors ---- */

static void check_vectors(void) {
    mrd_guard guard = {keys, sizeof keys / sizeof *keys, NULL, 0, {0}, 0};
    uint8_t signature[MRW_HASH], changed[MRD_TOKEN_MAX];
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const vector *one = &vectors[i];
        checking = one->name;
        EQUAL(mrd_token_verify(&guard, one->body, one->size, signature), one->good ? 0 : MRD_CAPABILITY_REFUSED);
        if (!one->good) continue;
        EQUAL(memcmp(signature, one->signature, MRW_HASH), 0);
        for (size_t at = 0; at < one->size; at++) {
            memcpy(changed, one->body, one->size);
            changed[at] ^= 1;
            int result = mrd_token_verify(&guard, changed, one->size, signature);
            CHECK(result < 0 || memcmp(signature, one->signature, MRW_HASH) != 0);
        }
    }
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        checking = forged[i].name;
        int result = mrd_token_verify(&guard, forged[i].body, forged[i].size, signature);
        CHECK(result < 0 || memcmp(signature, forged[i].signature, MRW_HASH) != 0);
    }
    for (size_t i = 0; i < sizeof evaluations / sizeof *evaluations; i++) {
        const evaluation *one = &evaluations[i];
        checking = one->name;
        guard.revoked = (const uint8_t(*)[MRD_ID_BYTES])one->revoked;
        guard.revoked_count = one->revoked_count;
        bool valid = mrd_token_verify(&guard, one->body, one->size, signature) == 0;
        EQUAL(valid && mrd_token_permits(one->body, one->size, &one->action), one->permitted);
    }
    for (size_t i = 0; i < sizeof shakes / sizeof *shakes; i++) {
        mrw_channel channel;
        uint8_t m1[MRW_M1_MAX];
        mrw_channel_begin(&channel, shakes[i].token, shakes[i].size, shakes[i].nonce, shakes[i].takes, m1);
        EQUAL(mrw_channel_answer(&channel, shakes[i].token, shakes[i].size, shakes[i].m2, MRW_M2_BYTES), MRW_M2_BYTES);
        EQUAL(memcmp(channel.open.exporter, shakes[i].exporter, MRW_HASH), 0);
    }
    checking = "guard";
}

/* ---- the host's side of the channel ---- */

static mrd_flash flash;
static mrd device;
static mrd_uplink uplink;
static host h;
static mrw_channel channel;
static queue sealed;
static mrd_line line;
static bool is_channel;
static uint8_t waiting[4096];
static size_t waiting_size;
static unsigned nonces;

static void hmac(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t sum[MRW_HASH]) {
    mrw_hmac mac;
    mrw_hmac_begin(&mac, key, key_size);
    mrw_hmac_add(&mac, bytes, size);
    mrw_hmac_end(&mac, sum);
}

static void answer_m1(const uint8_t *m1, size_t size) {
    static const uint8_t use[] = "\2channel", info[] = "millrace channel 1\1";
    const shake *of = &shakes[0];
    uint8_t m2[MRW_M2_BYTES] = {MRW_M2_BYTES - 2, 0, 1, 0, 2}, said[MRW_HASH], key[MRW_HASH], copy[MRW_M1_MAX];
    mrw_sha256 hash;
    m2[5] = (uint8_t)++nonces;
    mrw_sha256_begin(&hash);
    mrw_sha256_add(&hash, m1, size);
    mrw_sha256_add(&hash, m2, MRW_M2_BYTES - 16);
    mrw_sha256_end(&hash, said);
    hmac(of->token + of->size - MRW_HASH, MRW_HASH, use, 8, key);
    hmac(said, MRW_HASH, key, MRW_HASH, key);
    hmac(key, MRW_HASH, info, 19, key);
    hmac(key, MRW_HASH, said, MRW_HASH, key);
    memcpy(m2 + MRW_M2_BYTES - 16, key, 16);
    memcpy(sealed.bytes, m2, sizeof m2);
    sealed.size = sizeof m2;
    /* The keys are those that the device derives, with the directions exchanged. */
    mrw_channel_begin(&channel, of->token, of->size, m1 + 9, (uint16_t)mrd_load(m1 + 7, 2), copy);
    EQUAL(mrw_channel_answer(&channel, of->token, of->size, m2, sizeof m2), MRW_M2_BYTES);
    mrw_direction in = channel.open.out;
    channel.open.out = channel.open.in;
    channel.open.in = in;
    is_channel = true;
}

static int open_sealed(void *context) {
    (void)context;
    sealed.size = waiting_size = 0;
    is_channel = false;
    int result = host_open(&h);
    h.greeted = true; /* no preface in a channel */
    return result;
}

static long send_sealed(void *context, const void *bytes, size_t size) {
    (void)context;
    size_t plain;
    CHECK(waiting_size + size <= sizeof waiting);
    memcpy(waiting + waiting_size, bytes, size);
    waiting_size += size;
    if (!is_channel) {
        answer_m1(waiting, waiting_size);
        waiting_size = 0;
        return (long)size;
    }
    int used = mrw_channel_open(&channel, waiting, waiting_size, &plain);
    CHECK(used >= 0);
    if (used == 0) return (long)size;
    host_send(&h, waiting + MRW_RECORD_HEAD, plain);
    memmove(waiting, waiting + used, waiting_size - (size_t)used);
    waiting_size -= (size_t)used;
    return (long)size;
}

static long receive_sealed(void *context, void *bytes, size_t size) {
    uint8_t record[512];
    (void)context;
    long plain = is_channel ? host_receive(&h, record + MRW_RECORD_HEAD, 400) : 0;
    if (plain > 0) {
        size_t made = mrw_channel_seal(&channel, record, (size_t)plain);
        CHECK(made > 0);
        memcpy(sealed.bytes + sealed.size, record, made);
        sealed.size += made;
    }
    if (size > sealed.size) size = sealed.size;
    memcpy(bytes, sealed.bytes, size);
    memmove(sealed.bytes, sealed.bytes + size, sealed.size - size);
    sealed.size -= size;
    return (long)size;
}

static int random_sealed(void *context, void *bytes, size_t size) {
    (void)context;
    memset(bytes, (int)++nonces, size);
    return 0;
}

/* ---- capabilities ---- */

typedef struct {
    uint8_t body[MRD_TOKEN_MAX], signature[MRW_HASH];
    size_t size;
} capability;

static void add_item(capability *to, uint8_t tag, const void *value, size_t size) {
    to->body[to->size++] = tag;
    to->body[to->size++] = (uint8_t)size;
    memcpy(to->body + to->size, value, size);
    to->size += size;
}

static void begin_block(capability *to, size_t *at) {
    *at = to->size;
    to->size += 2;
}

static void end_block(capability *to, size_t at) {
    uint8_t message[MRD_TOKEN_MAX + 1];
    bool first = to->body[11]++ == 0;
    mrd_store(to->body + at, to->size - at - 2, 2);
    message[0] = !first;
    memcpy(message + 1, to->body, 11);
    memcpy(message + (first ? 12 : 1), to->body + at, to->size - at);
    hmac(first ? keys[0].key : to->signature, MRW_HASH, message, to->size - at + (first ? 12 : 1), to->signature);
}

/* `link` on the namespace, `append` on "config" and on everything below "more", and, if it `reads`, `read` on "raw". */
static capability issue_for(uint8_t id, bool reads) {
    capability one;
    uint8_t name[3 + 6] = {1, MRD_MAY_APPEND, 0, 'c', 'o', 'n', 'f', 'i', 'g'}, more[3 + 4] = {1 | 0x80, MRD_MAY_APPEND, 0, 'm', 'o', 'r', 'e'};
    uint8_t read[3 + 3] = {1, MRD_MAY_READ, 0, 'r', 'a', 'w'};
    uint8_t link[3] = {0, 0, MRD_MAY_LINK >> 8}, ids[MRD_ID_BYTES] = {id};
    size_t at;
    memset(&one, 0, sizeof one);
    one.body[0] = 1;
    memcpy(one.body + 1, keys[0].authority, 8);
    mrd_store(one.body + 9, keys[0].generation, 2);
    one.size = 12;
    begin_block(&one, &at);
    add_item(&one, 1, link, sizeof link);
    add_item(&one, 1, name, sizeof name);
    add_item(&one, 1, more, sizeof more);
    if (reads) add_item(&one, 1, read, sizeof read);
    add_item(&one, 16, ids, sizeof ids);
    end_block(&one, at);
    return one;
}

static capability issue(uint8_t id) { return issue_for(id, false); }

static capability narrow(capability one, uint8_t tag, uint32_t value) {
    uint8_t bytes[4];
    size_t at;
    mrd_store4(bytes, value);
    begin_block(&one, &at);
    add_item(&one, tag, bytes, 4);
    end_block(&one, at);
    return one;
}

/* ---- what a host asks ---- */

static const mrd_log logs[] = {{"raw", 100, 0}, {"config", 100, MRD_COMMANDS}, {"other", 100, MRD_COMMANDS}, {"more/x", 100, MRD_COMMANDS}};
static uint64_t memory[MRD_WORDS(4, 0, 512)];
static const uint8_t revoked[1][MRD_ID_BYTES] = {{66}};
static mrd_guard guard = {keys, sizeof keys / sizeof *keys, revoked, 1, {0}, 0};
static int answer; /* the type of the last answer, or the number of a refusal */

static int number_of(mrw_bytes code) { return -(int)strtol((const char *)code.at + 2, NULL, 10); }

static void note_answer(host *of, const mrw_frame *frame) {
    mrw_failure failure;
    mrw_delivered delivered;
    (void)of;
    answer = frame->type;
    if (frame->type == MRW_FAILURE) {
        EQUAL(mrw_decode(frame, MRW_FAILURE, &failure), 0);
        answer = number_of(failure.code);
    }
    if (frame->type == MRW_DELIVERED) {
        EQUAL(mrw_decode(frame, MRW_DELIVERED, &delivered), 0);
        if (delivered.refused.given) answer = number_of(delivered.refused.code);
    }
}

static void let_work(void) {
    for (unsigned i = 0; i < 50; i++) {
        CHECK(mrd_step(&device) >= 0);
        mrd_uplink_step(&uplink);
        flash.ms += 100;
    }
}

static void connect_again(void) {
    mrd_uplink_end(&uplink);
    let_work();
    CHECK(uplink.attached && uplink.idle);
}

static int present(const capability *one, const uint8_t exporter[MRW_HASH]) {
    uint8_t proof[MRW_HASH];
    mrw_bytes text = {"slot", 4}, bin = {one->body, one->size};
    mrw_writer to = {h.out.bytes + h.out.size + 4, 1000, 0, false, NULL, NULL};
    hmac(one->signature, MRW_HASH, "\2proof", 6, proof);
    hmac(proof, MRW_HASH, exporter, MRW_HASH, proof);
    mrw_write_array(&to, 5);
    mrw_write_uint(&to, 7);
    mrw_write_uint(&to, ++h.request);
    mrw_write_uint(&to, 0);
    mrw_write_nil(&to);
    mrw_write_map(&to, 3);
    mrw_write_text(&to, text);
    mrw_write_uint(&to, 0);
    text.at = "capability", text.size = 10;
    mrw_write_text(&to, text);
    mrw_write_bin(&to, bin);
    text.at = "proof", text.size = 5;
    bin.at = proof, bin.size = sizeof proof;
    mrw_write_text(&to, text);
    mrw_write_bin(&to, bin);
    mrd_store4(to.bytes - 4, (uint32_t)to.size);
    h.out.size += to.size + 4;
    answer = 0;
    let_work();
    return answer;
}

static int link_stream(void) {
    answer = 0;
    h.linked = false;
    h.issued = 1;
    host_link(&h);
    let_work();
    return answer;
}

static int deliver_item(mrw_item *item, uint64_t number) {
    mrw_deliver message;
    memset(&message, 0, sizeof message);
    message.link = h.link;
    message.first = number;
    message.items.count = 1;
    message.items.items = item;
    host_say(&h, MRW_DELIVER, ++h.request, &message);
    answer = 0;
    let_work();
    return answer;
}

static int deliver(uint64_t number, const char *log) {
    mrw_item item;
    memset(&item, 0, sizeof item);
    item.log.at = log;
    item.log.size = strlen(log);
    item.data.at = "12345678";
    item.data.size = 8;
    return deliver_item(&item, number);
}

/* A number that the host passes over. */
static int deliver_void(uint64_t number) {
    mrw_item item;
    memset(&item, 0, sizeof item);
    item.is_void = true;
    return deliver_item(&item, number);
}

static int get_newest(const char *log) {
    mrw_get message;
    memset(&message, 0, sizeof message);
    message.log.at = log;
    message.log.size = strlen(log);
    host_say(&h, MRW_GET, ++h.request, &message);
    answer = 0;
    let_work();
    return answer;
}

static int append_to(const char *log) {
    mrw_append message;
    memset(&message, 0, sizeof message);
    message.log.at = log;
    message.log.size = strlen(log);
    message.data.at = "12345678";
    message.data.size = 8;
    host_say(&h, MRW_APPEND, ++h.request, &message);
    answer = 0;
    let_work();
    return answer;
}

/* Each request needs its right, in every connection anew, and whoever lacks it does not get to know whether there is such a log. */
static void check_requests(void) {
    capability good = issue_for(1, true), only_link = issue(1), small = narrow(good, 4, 4);
    mrd_remote_begin(&uplink);
    connect_again();
    EQUAL(get_newest("raw"), -6132);
    EQUAL(append_to("config"), -6132);
    EQUAL(present(&only_link, channel.open.exporter), MRW_DONE);
    EQUAL(get_newest("raw"), -6132);
    EQUAL(get_newest("none"), -6132);
    EQUAL(append_to("other"), -6132);
    EQUAL(append_to("none"), -6132);
    EQUAL(append_to("config"), MRW_APPENDED);
    EQUAL(present(&good, channel.open.exporter), MRW_DONE);
    EQUAL(get_newest("raw"), MRW_RECORD);
    EQUAL(get_newest("config"), -6132);
    EQUAL(append_to("raw"), -6132);
    EQUAL(append_to("more/x"), MRW_APPENDED);
    /* Presenting another one in vain gives up the one before. */
    small.body[small.size - 1] ^= 1;
    EQUAL(present(&small, channel.open.exporter), -6138);
    EQUAL(get_newest("raw"), -6132);
    small.body[small.size - 1] ^= 1;
    EQUAL(present(&small, channel.open.exporter), MRW_DONE);
    EQUAL(append_to("config"), -6132);
    EQUAL(mrd_latest(&device, "config"), 3);
    connect_again();
    EQUAL(get_newest("raw"), -6132);
}

/* Without a channel, a proof would be bound to nothing: it could be given again in each connection. */
static void check_without_a_channel(const capability *good) {
    static const uint8_t nothing[MRW_HASH];
    mrd_uplink_begin(&uplink, &device, &h.line, "kitchen", NULL, 0);
    mrd_uplink_guard(&uplink, &guard);
    connect_again();
    EQUAL(present(good, nothing), -6138);
    EQUAL(link_stream(), -6132);
}

static void check_commands(void) {
    uint8_t before[MRW_HASH];
    capability good = issue(1), other = issue(66);
    CHECK(mrd_flash_open(&flash, NULL, 8, 4096, 8, 8, 7) == 0);
    flash.virtual_time = true;
    host_begin(&h, 4096);
    for (unsigned i = 0; i < 4; i++) h.log[i].name = logs[i].name;
    h.seen = note_answer;
    h.now_ms = 1700000000000;
    line.open = open_sealed;
    line.send = send_sealed;
    line.receive = receive_sealed;
    line.close = host_close;
    line.random = random_sealed;
    line.context = &h;
    EQUAL(mrd_open(&device, &flash.port, logs, 4, NULL, 0, memory, sizeof memory), 0);
    EQUAL(mrd_append(&device, "raw", "12345678", 8, NULL), 1);
    mrd_uplink_begin(&uplink, &device, &line, "kitchen", shakes[0].token, shakes[0].size);
    mrd_uplink_guard(&uplink, &guard);

    connect_again();
    EQUAL(h.log[0].newest, 1);
    EQUAL(link_stream(), -6132);
    EQUAL(present(&good, channel.open.exporter), MRW_DONE);
    EQUAL(link_stream(), MRW_LINKED);
    EQUAL(deliver(1, "config"), MRW_DELIVERED);
    EQUAL(deliver(2, "other"), -6132);
    EQUAL(deliver(2, "raw"), -6132);
    EQUAL(deliver(2, "more/x"), MRW_DELIVERED);
    EQUAL(deliver(4, "config"), -6069);
    EQUAL(deliver(3, "none"), MRD_LOG_NOT_FOUND);

    /* A presentation does not outlive its connection, nor does its proof fit another one. */
    memcpy(before, channel.open.exporter, MRW_HASH);
    connect_again();
    EQUAL(link_stream(), -6132);
    EQUAL(present(&good, before), -6138);
    EQUAL(present(&other, channel.open.exporter), -6138);
    other = narrow(good, 4, 4);
    EQUAL(present(&other, channel.open.exporter), MRW_DONE);
    EQUAL(link_stream(), MRW_LINKED);
    EQUAL(deliver(3, "config"), -6132);
    other = narrow(narrow(narrow(narrow(good, 2, 1800000000), 2, 1800000000), 3, 1), 3, 1);
    EQUAL(present(&other, channel.open.exporter), MRW_DONE);
    EQUAL(deliver(3, "config"), MRW_DELIVERED);
    other = narrow(other, 3, 1); /* a sixth block */
    EQUAL(present(&other, channel.open.exporter), -6138);
    other = narrow(good, 2, 1600000000);
    EQUAL(present(&other, channel.open.exporter), MRW_DONE);
    EQUAL(deliver(4, "config"), -6132);
    other.body[11]--; /* without its last block, which it cannot prove */
    other.size -= 8;
    EQUAL(present(&other, channel.open.exporter), -6138);
    EQUAL(deliver(4, "config"), -6132);
    EQUAL(mrd_latest(&device, "config"), 2);
    EQUAL(mrd_latest(&device, "more/x"), 1);
    /* A capability that has expired since the LINK passes over no number either, and writes nothing. */
    EQUAL(deliver_void(4), -6132);
    EQUAL(device.sender[0].number, 3);
    other = narrow(good, 2, 1600000000);
    EQUAL(present(&other, channel.open.exporter), MRW_DONE);
    EQUAL(deliver_void(4), -6132);
    EQUAL(device.sender[0].number, 3);
    EQUAL(present(&good, channel.open.exporter), MRW_DONE);
    EQUAL(deliver_void(4), MRW_DELIVERED);
    EQUAL(device.sender[0].number, 4);
    check_requests();
    check_without_a_channel(&good);
    mrd_flash_close(&flash);
}

/* ---- random bytes ---- */

static mrd_random source;
static uint8_t first_said[MRW_M1_MAX];

static int random_of_start(void *context, void *bytes, size_t size) {
    (void)context;
    mrd_random_fill(&source, bytes, size);
    return 0;
}

static long note_said(void *context, const void *bytes, size_t size) {
    (void)context;
    memcpy(first_said, bytes, size < sizeof first_said ? size : sizeof first_said);
    return (long)size;
}

static long say_nothing(void *context, void *bytes, size_t size) {
    (void)context, (void)bytes, (void)size;
    return 0;
}

/* A board without a source of random bytes begins each start with its epoch, as examples/board.c does. Power is lost before the device has appended
 * anything: if the next start said the same, whoever has recorded the answers could give them again, and they would be valid. */
static void check_starts(void) {
    static const uint8_t seed[MRD_SEED_BYTES] = {7};
    uint8_t said[4][MRW_M1_MAX];
    CHECK(mrd_flash_open(&flash, NULL, 8, 4096, 8, 8, 7) == 0);
    flash.virtual_time = true;
    host_begin(&h, 4096);
    line.random = random_of_start;
    line.send = note_said;
    line.receive = say_nothing;
    for (unsigned i = 0; i < 4; i++) {
        mrd_flash_on(&flash);
        flash.ms = 5;
        EQUAL(mrd_open(&device, &flash.port, logs, 4, NULL, 0, memory, sizeof memory), 0);
        uint32_t start[3] = {device.epoch, device.serial, flash.ms};
        mrd_random_begin(&source, seed, start, sizeof start);
        mrd_uplink_begin(&uplink, &device, &line, "kitchen", shakes[0].token, shakes[0].size);
        /* In the last start but one, the flash fails before the first byte. */
        if (i == 2) mrd_flash_cut(&flash, 1, MRD_CUT_PREFIX, 3);
        memset(first_said, 0, sizeof first_said);
        mrd_uplink_step(&uplink);
        memcpy(said[i], first_said, sizeof first_said);
        EQUAL(uplink.error, i == 2 ? MRD_FLUSH_FAILED : 0);
        if (i == 2) EQUAL(first_said[0], 0);
        for (unsigned j = 0; j < i; j++) CHECK(memcmp(said[i], said[j], sizeof first_said) != 0);
    }
    mrd_flash_close(&flash);
}

int main(void) {
    check_vectors();
    check_commands();
    check_starts();
    fprintf(stderr, "guard: %u tokens, %u actions: ok\n", (unsigned)(sizeof vectors / sizeof *vectors), (unsigned)(sizeof evaluations / sizeof *evaluations));
    return 0;
}
