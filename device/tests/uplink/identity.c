/* identity.c - what makes a device one of its own: an identity is read as a whole, and no byte of it can change. */
#include "../../src/internal.h"
#include "check.h"
#include "millrace_identity.h"

const char *checking = "identity";

static uint8_t bytes[MRD_IDENTITY_MAX];
static size_t size;

static void put(uint8_t tag, const void *value, size_t length) {
    bytes[size] = tag;
    mrd_store(bytes + size + 1, length, 2);
    memcpy(bytes + size + 3, value, length);
    size += 3 + length;
}

/* The head of what was put. */
static void end(void) {
    memcpy(bytes, "MRDI\1\0", 6);
    mrd_store(bytes + 6, size - 12, 2);
    mrd_store4(bytes + 8, mrd_crc(mrd_crc(0, bytes, 8), bytes + 12, size - 12));
}

static void kitchen(void) {
    uint8_t key[42] = "kitchen1\1\0", seed[MRD_SEED_BYTES] = {9}, token[100];
    memset(token, 5, sizeof token);
    memset(key + 10, 7, 32);
    size = 12;
    put(1, "\1\0\2\3\4\5", 6);
    put(2, "kitchen", 7);
    put(3, key, sizeof key);
    put(4, seed, sizeof seed);
    put(77, "of a later version", 18);
    put(5, token, sizeof token);
    put(6, "192.168.1.7:7070", 16);
    end();
}

int main(void) {
    mrd_identity one;
    kitchen();
    EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), 0);
    EQUAL(one.namespace_id, 0x050403020001);
    CHECK(strcmp(one.name, "kitchen") == 0 && strcmp(one.host, "192.168.1.7:7070") == 0);
    CHECK(one.token_bytes == 100 && one.token[99] == 5 && one.seed[0] == 9);
    CHECK(one.guard.key_count == 1 && one.guard.keys[0].generation == 1 && one.guard.keys[0].key[31] == 7);
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= 1;
        EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), at == 4 ? MRD_FORMAT_UNKNOWN : MRD_IDENTITY_INVALID);
        bytes[at] ^= 1;
        EQUAL(mrd_identity_read(&one, bytes, at), MRD_IDENTITY_INVALID);
    }
    /* Items that are too long, too short, or missing; the checksum is right. */
    static const struct { uint8_t tag; size_t length; } odd[] = {{1, 5}, {1, 7}, {2, 0}, {2, 65}, {3, 41}, {4, 31}, {5, 0}, {5, 1}, {5, 32}, {6, 128}, {6, 0}};
    uint8_t value[200] = {1, 2, 3};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        kitchen();
        put(odd[i].tag, value, odd[i].length);
        end();
        EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), MRD_IDENTITY_INVALID);
    }
    size = 12;
    put(2, "kitchen", 7);
    end();
    EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), MRD_IDENTITY_INVALID);
    size = 12;
    put(1, "\1\0\2\3\4\5", 6);
    end();
    EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), MRD_IDENTITY_INVALID);
    memset(bytes, 0xFF, sizeof bytes);
    EQUAL(mrd_identity_read(&one, bytes, sizeof bytes), MRD_IDENTITY_INVALID);
    /* Starts that differ, and further bytes of one start, differ. */
    mrd_random first, second;
    uint8_t seed[MRD_SEED_BYTES] = {1}, a[70], b[70];
    mrd_random_begin(&first, seed, "1", 1);
    mrd_random_begin(&second, seed, "2", 1);
    mrd_random_fill(&first, a, sizeof a);
    mrd_random_fill(&second, b, sizeof b);
    CHECK(memcmp(a, b, 32) != 0 && memcmp(a, a + 32, 32) != 0);
    mrd_random_begin(&second, seed, "1", 1);
    mrd_random_fill(&second, b, sizeof b);
    EQUAL(memcmp(a, b, sizeof a), 0);
    fprintf(stderr, "identity: ok\n");
    return 0;
}
