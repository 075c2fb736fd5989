/* Checks cryptography, capabilities and the channel against their golden bytes: spec/vectors/capability.json. */
#include "wire/channel.h"
/* Its parts are looked at one by one. */
#include "../wire/crypto.c"

#include <stdio.h>
#include <stdlib.h>

typedef struct bytes {
    const char *at;
    size_t size;
} bytes;
typedef struct mac { const char *name; bytes key, data, sum; } mac;
typedef struct box { const char *name; bytes key, nonce, more, plain, sealed, tag; } box;
typedef struct token { const char *name, *text; bytes body, signature; } token;
typedef struct body { const char *name; bytes body; } body;
typedef struct record { bytes plain, sent; } record;
typedef struct broken { const char *name; int to_host; bytes sent; } broken;
typedef struct shake {
    const char *token;
    bytes nonce, m1, m2;
    unsigned takes;
    const record *out, *in;
    const broken *wrong;
    size_t outs, ins, wrongs;
} shake;

#include "channel.inc"

#define COUNT(of) (sizeof(of) / sizeof((of)[0]))

static int failures;

static void fail(const char *name, const char *what) {
    printf("%s: %s\n", name, what);
    failures++;
}

static const uint8_t *at(bytes of) { return (const uint8_t *)of.at; }
static bool is(const void *got, bytes want) { return memcmp(got, want.at, want.size) == 0; }

/* In memory of exactly its size, so that a sanitizer sees a byte read or written too many. */
static uint8_t *copy(const void *from, size_t size) {
    uint8_t *made = malloc(size > 0 ? size : 1);
    if (size > 0) memcpy(made, from, size);
    return made;
}

static void check_macs(void) {
    size_t i, part;
    for (i = 0; i < COUNT(macs); i++) {
        for (part = 0; part <= macs[i].data.size; part++) {
            uint8_t sum[MRW_HASH];
            mrw_hmac own;
            mrw_hmac_begin(&own, macs[i].key.at, macs[i].key.size);
            mrw_hmac_add(&own, macs[i].data.at, part);
            mrw_hmac_add(&own, macs[i].data.at + part, macs[i].data.size - part);
            mrw_hmac_end(&own, sum);
            if (!is(sum, macs[i].sum)) fail(macs[i].name, "is another sum");
        }
    }
}

static void check_boxes(void) {
    size_t i, bit;
    for (i = 0; i < COUNT(boxes); i++) {
        const box *of = &boxes[i];
        uint8_t *text = copy(of->plain.at, of->plain.size), tag[MRW_TAG];
        mrw_seal(at(of->key), at(of->nonce), of->more.at, of->more.size, text, of->plain.size, tag);
        if (!is(text, of->sealed) || !is(tag, of->tag)) fail(of->name, "is sealed otherwise");
        for (bit = 0; bit < 8 * of->sealed.size; bit++) {
            text[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (mrw_unseal(at(of->key), at(of->nonce), of->more.at, of->more.size, text, of->plain.size, tag)) {
                fail(of->name, "is opened although it was changed");
            }
            text[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        if (!mrw_unseal(at(of->key), at(of->nonce), of->more.at, of->more.size, text, of->plain.size, tag) ||
            !is(text, of->plain)) {
            fail(of->name, "is not opened");
        }
        free(text);
    }
}

/* RFC 8439, A.3, test vectors 7 to 11: sums around the modulus. */
static void check_poly(void) {
    static const struct { uint8_t r, s, blocks, text[48], tag[16]; } cases[] = {
        {2, 0, 1, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, {3}},
        {2, 255, 1, {2}, {3}},
        {1, 0, 3, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 240, 255, 255, 255, 255,
                   255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 17}, {5}},
        {1, 0, 3, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 251, 254, 254, 254, 254,
                   254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         {0}},
        {2, 0, 1, {253, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         {250, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}},
    };
    size_t i;
    for (i = 0; i < COUNT(cases); i++) {
        uint8_t r[16] = {0}, s[16], tag[16];
        poly p;
        memset(&p, 0, sizeof p);
        r[0] = cases[i].r;
        memset(s, cases[i].s, sizeof s);
        limbs(p.r, r);
        poly_add(&p, cases[i].text, 16u * cases[i].blocks);
        poly_end(&p, s, tag);
        if (memcmp(tag, cases[i].tag, sizeof tag) != 0) fail("Poly1305", "is another sum");
    }
}

static void check_tokens(void) {
    size_t i, size;
    for (i = 0; i < COUNT(tokens); i++) {
        const token *of = &tokens[i];
        size_t whole = of->body.size + of->signature.size;
        uint8_t *made = malloc(whole), *text = copy(of->text, strlen(of->text));
        if (mrw_token_parse((char *)text, strlen(of->text), made, whole) != (int)whole || !is(made, of->body) ||
            !is(made + of->body.size, of->signature)) {
            fail(of->name, "is not read");
        }
        for (size = 0; size < strlen(of->text); size++) {
            int cut = mrw_token_parse(of->text, size, made, whole);
            if (cut != MRW_CAPABILITY_MALFORMED) fail(of->name, "is read when it is cut");
        }
        if (mrw_token_parse(of->text, strlen(of->text), made, whole - 1) != MRW_CAPABILITY_MALFORMED) {
            fail(of->name, "is read where it has no room");
        }
        free(made);
        free(text);
    }
    for (i = 0; i < COUNT(malformed); i++) {
        uint8_t *made = copy(malformed[i].body.at, malformed[i].body.size);
        if (mrw_token_check(made, malformed[i].body.size) != MRW_CAPABILITY_MALFORMED) fail(malformed[i].name, "is read");
        free(made);
    }
}

/* A channel that is open, as the client has it; swapped, as the host has it. */
static bool open_one(const shake *of, const token *with, mrw_channel *channel) {
    size_t size = with->body.size + with->signature.size;
    uint8_t *key = malloc(size), m1[MRW_M1_MAX];
    int status;
    memcpy(key, with->body.at, with->body.size);
    memcpy(key + with->body.size, with->signature.at, with->signature.size);
    if (mrw_channel_begin(channel, key, size, at(of->nonce), (uint16_t)of->takes, m1) != of->m1.size || !is(m1, of->m1)) {
        fail(of->token, "M1 is another");
    }
    status = mrw_channel_answer(channel, key, size, at(of->m2), of->m2.size);
    free(key);
    return status == MRW_M2_BYTES;
}

static void check_answers(const shake *of, const token *with) {
    size_t size = with->body.size + with->signature.size, cut, bit;
    uint8_t key[MRW_TOKEN_MAX], m1[MRW_M1_MAX];
    mrw_channel channel;
    memcpy(key, with->body.at, with->body.size);
    memcpy(key + with->body.size, with->signature.at, with->signature.size);
    for (cut = 0; cut < of->m2.size; cut++) {
        uint8_t *m2 = copy(of->m2.at, cut);
        mrw_channel_begin(&channel, key, size, at(of->nonce), (uint16_t)of->takes, m1);
        if (mrw_channel_answer(&channel, key, size, m2, cut) != 0) fail(of->token, "M2 is taken before it is there");
        free(m2);
    }
    for (bit = 0; bit < 8 * of->m2.size; bit++) {
        uint8_t *m2 = copy(of->m2.at, of->m2.size);
        m2[bit / 8] ^= (uint8_t)(1 << bit % 8);
        mrw_channel_begin(&channel, key, size, at(of->nonce), (uint16_t)of->takes, m1);
        if (mrw_channel_answer(&channel, key, size, m2, of->m2.size) >= 0) fail(of->token, "M2 is taken although it was changed");
        free(m2);
    }
    if (mrw_channel_answer(&channel, key, size, (const uint8_t *)"\0", 2) != MRW_CHANNEL_REFUSED) {
        fail(of->token, "a refusal is not understood");
    }
}

/* The channel as the other end has it. */
static void swap(mrw_channel *channel) {
    mrw_direction out = channel->open.out;
    channel->open.out = channel->open.in;
    channel->open.in = out;
}

static void check_sealing(mrw_channel *channel, const char *name, const record *records, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        size_t room = mrw_channel_room(channel), done = 0, sent = 0;
        do {
            size_t part = records[i].plain.size - done < room ? records[i].plain.size - done : room, made;
            uint8_t *bytes = malloc(MRW_RECORD_HEAD + part + MRW_TAG);
            memcpy(bytes + MRW_RECORD_HEAD, records[i].plain.at + done, part);
            made = mrw_channel_seal(channel, bytes, part);
            if (made != MRW_RECORD_HEAD + part + MRW_TAG || sent + made > records[i].sent.size ||
                memcmp(bytes, records[i].sent.at + sent, made) != 0) {
                fail(name, "a record is sealed otherwise");
            }
            done += part;
            sent += made;
            free(bytes);
        } while (done < records[i].plain.size);
        if (sent != records[i].sent.size) fail(name, "the records have another length");
    }
}

/* Opens the records of these bytes; what they hold is appended to `plain`. */
static int open_all(mrw_channel *channel, bytes sent, uint8_t *plain, size_t *held) {
    size_t from = 0;
    *held = 0;
    while (from < sent.size) {
        uint8_t *rest = copy(sent.at + from, sent.size - from);
        size_t cut, made;
        int used;
        for (cut = 0; cut < sent.size - from && cut < 2 && !channel->open.in.ended; cut++) {
            if (mrw_channel_open(channel, rest, cut, &made) != 0) fail("a record", "is opened before it is there");
        }
        used = mrw_channel_open(channel, rest, sent.size - from, &made);
        if (used > 0) {
            memcpy(plain + *held, rest + MRW_RECORD_HEAD, made);
            *held += made;
            from += (size_t)used;
        }
        free(rest);
        if (used <= 0) return used < 0 ? used : 1;
    }
    return 0;
}

static void check_opening(mrw_channel *channel, const char *name, const record *records, size_t count) {
    static uint8_t plain[20000];
    size_t i, held;
    for (i = 0; i < count; i++) {
        if (open_all(channel, records[i].sent, plain, &held) != 0 || held != records[i].plain.size ||
            !is(plain, records[i].plain)) {
            fail(name, "a record is not opened");
        }
    }
}

static void check_channel(const shake *of) {
    static uint8_t plain[20000];
    const token *with = NULL;
    mrw_channel client, host;
    size_t i, held;
    for (i = 0; i < COUNT(tokens); i++) {
        if (strcmp(tokens[i].name, of->token) == 0) with = &tokens[i];
    }
    if (with == NULL || !open_one(of, with, &client)) {
        fail(of->token, "the channel is not opened");
        return;
    }
    host = client;
    swap(&host);
    check_sealing(&client, of->token, of->out, of->outs);
    check_opening(&client, of->token, of->in, of->ins);
    check_opening(&host, of->token, of->out, of->outs);
    check_sealing(&host, of->token, of->in, of->ins);
    client.open.out.count = UINT64_MAX;
    if (mrw_channel_seal(&client, plain, 0) != 0) fail(of->token, "a number is used twice");
    for (i = 0; i < of->wrongs; i++) {
        open_one(of, with, &client);
        if (of->wrong[i].to_host) swap(&client);
        if (open_all(&client, of->wrong[i].sent, plain, &held) != MRW_CHANNEL_BROKEN ||
            open_all(&client, of->out[0].sent, plain, &held) != MRW_CHANNEL_BROKEN) {
            fail(of->token, of->wrong[i].name);
        }
    }
    check_answers(of, with);
}

int main(void) {
    size_t i;
    check_macs();
    check_boxes();
    check_poly();
    check_tokens();
    for (i = 0; i < COUNT(shakes); i++) check_channel(&shakes[i]);
    printf("%d sums, %d tokens, %d malformed, %d channels, %d failures\n", (int)COUNT(macs), (int)COUNT(tokens),
           (int)COUNT(malformed), (int)COUNT(shakes), failures);
    return failures == 0 ? 0 : 1;
}
