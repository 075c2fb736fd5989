/* client_fuzz.c - a host that sends any bytes to a client that calls anything. For libFuzzer; takes the place of place.c.
 *
 * The first two bytes choose the client's memory, whether the host greets properly, whether it does so through a channel,
 * whether what it says then is sealed, and what is called.
 */
#define _POSIX_C_SOURCE 200809L

#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];

bool mrc_is_name(const char *text, size_t size) { return size > 0 && size <= MRC_NAME_MAX && memchr(text, '/', size) == NULL; }

int mrc_place_parse(mrc_client *client, const char *text) {
    (void)text;
    client->place.kind = MRC_TCP;
    return 0;
}

int mrc_place_check(mrc_client *client, bool greeted) {
    (void)client, (void)greeted;
    return 0;
}

int mrc_place_connect(mrc_client *client, uint64_t deadline_ms) {
    (void)client, (void)deadline_ms;
    return dup(ends[0]);
}

static bool safe;

int mrc_place_capability(mrc_client *client, uint8_t token[MRW_TOKEN_MAX]) {
    (void)client;
    memset(token, 7, 40); /* whose form nobody looks at here */
    return safe ? 40 : 0;
}

int mrc_place_nonce(mrc_client *client, uint8_t nonce[MRW_CHANNEL_NONCE]) {
    (void)client;
    memset(nonce, 9, MRW_CHANNEL_NONCE);
    return 0;
}

static void sum(const void *key, const void *bytes, size_t size, uint8_t into[MRW_HASH]) {
    mrw_hmac mac;
    mrw_hmac_begin(&mac, key, MRW_HASH);
    mrw_hmac_add(&mac, bytes, size);
    mrw_hmac_end(&mac, into);
}

/* What the host answers to M1, which is always the same, and the host's end of the channel. */
static void accept_channel(uint16_t takes, uint8_t m2[MRW_M2_BYTES], mrw_channel *host) {
    static const char info[] = "millrace channel 1\001";
    static const uint8_t start[] = {MRW_M2_BYTES - 2, 0, 1, 128, 0};
    uint8_t token[MRW_TOKEN_MAX], nonce[MRW_CHANNEL_NONCE], m1[MRW_M1_MAX], said[MRW_HASH], key[MRW_HASH];
    mrw_channel client, opened;
    mrw_direction out;
    mrc_place_capability(NULL, token);
    mrc_place_nonce(NULL, nonce);
    mrw_channel_begin(&client, token, 40, nonce, takes, m1);
    memset(m2, 5, MRW_M2_BYTES);
    memcpy(m2, start, sizeof start);
    opened = client;
    mrw_sha256_add(&opened.opening.said, m2, MRW_M2_BYTES - 16);
    mrw_sha256_end(&opened.opening.said, said);
    sum(token + 8, "\002channel", 8, key);
    sum(said, key, sizeof key, key);
    sum(key, info, sizeof info - 1, key);
    sum(key, said, sizeof said, key);
    memcpy(m2 + MRW_M2_BYTES - 16, key, 16);
    if (mrw_channel_answer(&client, token, 40, m2, MRW_M2_BYTES) != MRW_M2_BYTES) abort();
    *host = client;
    out = host->open.in;
    host->open.in = host->open.out;
    host->open.out = out;
}

/* Says something to the client: in a channel it is sealed, as records of different lengths. It is written at once: a socket
 * has no room for thousands of pieces. */
static void say(mrw_channel *channel, const uint8_t *bytes, size_t size) {
    static uint8_t records[1 << 17];
    size_t made = 0;
    while (channel != NULL && size > 0) {
        size_t part = size, room = mrw_channel_room(channel), sent;
        if (part > 1 + bytes[0] * 4u) part = 1 + bytes[0] * 4u;
        if (part > room) part = room;
        if (made + part + MRW_RECORD_HEAD + MRW_TAG > sizeof records) return;
        memcpy(records + made + MRW_RECORD_HEAD, bytes, part);
        sent = mrw_channel_seal(channel, records + made, part);
        if (sent == 0) abort();
        made += sent;
        bytes += part;
        size -= part;
    }
    if (channel == NULL ? write(ends[1], bytes, size) < 0 : write(ends[1], records, made) < 0) abort();
}

static long told;

static void tell(void *context, int64_t ticket, int status, const mrc_receipt *receipt) {
    if (context != &told || ticket <= 0 || (status == 0) != (receipt != NULL) || status > 0) abort();
    told--;
}

/* Looks at every byte that a call handed out. */
static void look(const void *data, size_t size) {
    static volatile uint8_t sink;
    const uint8_t *at = data;
    while (size-- > 0) sink = (uint8_t)(sink ^ *at++);
}

static void check(mrc_client *client, int status) {
    const mrc_error *error = mrc_error_of(client);
    if (status >= 0) return;
    if (error->number >= 0 || error->number < -9999 || strlen(error->code) != 6) abort();
    if (!mrw_is_utf8((const uint8_t *)error->detail, strlen(error->detail))) abort();
}

static void call(mrc_client *client, unsigned what) {
    mrc_record record;
    mrc_records records;
    mrc_receipt receipts[3];
    const mrc_new_record many[3] = {{"a", "1", 1}, {"b", "", 0}, {"c", "3", 1}};
    mrc_cursor cursor = {0, 1};
    uint64_t seqno;
    const char *json;
    size_t size;
    int status = 0, i;
    switch (what % 8) {
    case 0: status = mrc_append(client, "a", "x", 1, NULL, receipts); break;
    case 1: status = mrc_append_many(client, many, 3, NULL, receipts); break;
    case 2:
        status = mrc_get(client, "a", 0, NULL, &record);
        if (status == 0) look(record.data, record.size);
        break;
    case 3:
        status = mrc_range(client, "a", 1, 100, NULL, &records);
        while (status == 0 && mrc_next(&records, &record)) look(record.data, record.size);
        break;
    case 4: status = mrc_latest(client, "a", 0, NULL, &seqno); break;
    case 5:
        status = mrc_show(client, "logs", &json, &size);
        if (status == 0) look(json, size + 1);
        break;
    case 6:
        for (i = 0; i < 10; i++) told += mrc_append_nowait(client, "a", "x", 1, NULL) > 0;
        status = mrc_drain(client);
        break;
    default:
        status = mrc_tail(client, "a", cursor, NULL);
        for (i = 0; i < 100 && status >= 0; i++) {
            status = mrc_tail_next(client, 0, &record);
            if (status == 0) break;
            if (status == 1) look(record.data, record.size);
        }
        if (status >= 0) status = mrc_tail_end(client);
    }
    check(client, status);
}

/* A WELCOME under request 1. */
static size_t greet(uint8_t *to, size_t capacity) {
    mrw_welcome welcome;
    mrw_heading heading;
    mrw_writer writer = {to, capacity, 0, false, NULL, NULL};
    memset(&welcome, 0, sizeof welcome);
    memset(&heading, 0, sizeof heading);
    welcome.version = MRW_VERSION;
    welcome.host.at = "fuzz";
    welcome.host.size = 4;
    welcome.name = welcome.host;
    welcome.frame_max_bytes = welcome.record_max_bytes = 1 << 20;
    welcome.requests_max = 4;
    welcome.durability = MRW_DISK;
    heading.request = 1;
    return mrw_encode(&writer, MRW_WELCOME, &heading, &welcome) == 0 ? writer.size : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static uint8_t greeting[512], memory[1 << 17];
    struct timeval slice = {1, 0};
    uint8_t m2[MRW_M2_BYTES];
    mrw_channel host;
    mrc_options options;
    mrc_client *client;
    mrc_error error;
    unsigned calls;
    if (size < 2 || size > 60000 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
    memset(&options, 0, sizeof options);
    options.receive_bytes = bytes[0] & 2 ? 4096 : 60000;
    options.send_bytes = 1024;
    options.connect_timeout_ms = options.request_timeout_ms = 50;
    options.memory = memory + (bytes[0] & 7); /* of any alignment */
    options.memory_bytes = sizeof memory - 8;
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    safe = (bytes[0] & 16) != 0;
    options.capability = safe ? "any" : NULL;
    options.channel_bytes = bytes[0] & 64 ? 64 : 1024;
    if (safe) {
        accept_channel((uint16_t)options.channel_bytes, m2, &host);
        say(NULL, m2, sizeof m2);
    }
    if (bytes[0] & 1) say(safe ? &host : NULL, greeting, greet(greeting, sizeof greeting));
    say(safe && (bytes[0] & 32) == 0 ? &host : NULL, bytes + 2, size - 2);
    shutdown(ends[1], SHUT_WR);
    told = 0;
    if (mrc_open(&client, "mr://fuzz/fuzz", &options, &error) == 0) {
        mrc_on_appended(client, tell, &told);
        for (calls = 0; calls < 4 && mrc_connected(client); calls++) call(client, bytes[1] >> 2 * calls);
        if (told > 0) check(client, mrc_drain(client));
        if (told != 0) abort(); /* each append is told of once */
        mrc_close(client);
    } else if (error.number >= 0) {
        abort();
    }
    close(ends[0]);
    close(ends[1]);
    return 0;
}
