/* verify.c - how many instructions of a Cortex-M3 it takes to verify capabilities and to encrypt, with the cryptography that is linked. */
#include "../../port/cortex_m/board.h"
#include "millrace_guard.h"

enum { TIMES = 20 };

static const mrd_key keys[] = {{{1, 2, 3}, 1, {7}}};
static mrd_guard guard;
static bool within = true;

void *memset(void *to, int byte, size_t size);

/* A chain of so many blocks. */
static size_t make(uint8_t *body, unsigned blocks) {
    static const uint8_t first[] = {0x12, 0, 1, 6, 1, 2, 0, 'r', 'a', 'w', 16, 8, 1, 2, 3, 4, 5, 6, 7, 8}, next[] = {6, 0, 2, 4, 1, 2, 3, 0x7F};
    size_t size = 12;
    memset(body, 0, 12);
    body[0] = body[1] = body[9] = 1;
    body[2] = 2, body[3] = 3;
    body[11] = (uint8_t)blocks;
    for (unsigned i = 0; i < sizeof first; i++) body[size++] = first[i];
    while (blocks-- > 1) {
        for (unsigned i = 0; i < sizeof next; i++) body[size++] = next[i];
    }
    return size;
}

/* The limits are a tenth above what GCC 12 gave with -Os, with the cryptography of sdk/c/wire; raise one only for a reason that the commit names. */
static void number(const char *name, uint32_t value, uint32_t limit) { within &= board_limit(name, value, limit); }

static void count(const char *name, unsigned blocks, uint32_t limit) {
    uint8_t body[MRD_TOKEN_MAX], signature[MRW_HASH];
    size_t size = make(body, blocks);
    board_count();
    for (unsigned i = 0; i < TIMES; i++) {
        if (mrd_token_verify(&guard, body, size, signature) < 0) board_end(false);
    }
    number(name, board_counted() / TIMES, limit);
}

int main(void) {
    uint8_t key[MRW_HASH] = {1}, nonce[MRW_NONCE] = {2}, bytes[64] = {3}, tag[MRW_TAG];
    guard.keys = keys;
    guard.key_count = 1;
    count("verify a capability of one block", 1, 17500);
    count("of three blocks", 3, 51000);
    count("of five blocks", 5, 84500);
    board_count();
    for (unsigned i = 0; i < TIMES; i++) mrw_seal(key, nonce, nonce, 2, bytes, sizeof bytes, tag);
    number("encrypt 64 bytes", board_counted() / TIMES, 7600);
    return within ? 0 : 1;
}
