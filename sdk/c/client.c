/* client.c - opening and closing a client, and what is the same for a namespace's files and for a connection. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "client.h"
#include "local/local.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RECEIVE_DEFAULT (MRW_FRAME_MAX + MRW_LENGTH_BYTES)
#define RECEIVE_MIN 4096u
#define SEND_DEFAULT 65536u
#define SEND_MIN 1024u
#define ALIGNMENT 64u

uint64_t mrc_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static size_t or_default(size_t asked, size_t otherwise, size_t least) {
    size_t size = asked == 0 ? otherwise : asked;
    return size < least ? least : size;
}

static size_t receive_bytes(const mrc_options *options) {
    size_t size = or_default(options == NULL ? 0 : options->receive_bytes, RECEIVE_DEFAULT, RECEIVE_MIN);
    return size < RECEIVE_DEFAULT ? size : RECEIVE_DEFAULT;
}

static size_t send_bytes(const mrc_options *options) {
    return or_default(options == NULL ? 0 : options->send_bytes, SEND_DEFAULT, SEND_MIN);
}

/* Room for one record of the channel, with its head; 0 if there will be no channel. */
static size_t record_bytes(const mrc_options *options) {
    size_t otherwise = receive_bytes(options) < 65536 ? 1024 : MRW_RECORD_MAX, size;
    if ((options == NULL || options->capability == NULL) && getenv("MILLRACE_CAPABILITY") == NULL) return 0;
    size = or_default(options == NULL ? 0 : options->channel_bytes, otherwise, MRW_RECORD_MIN);
    return MRW_RECORD_HEAD + (size < MRW_RECORD_MAX ? size : MRW_RECORD_MAX);
}

static size_t client_bytes(void) { return (sizeof(mrc_client) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

size_t mrc_memory_bytes(const mrc_options *options) {
    return client_bytes() + receive_bytes(options) + send_bytes(options) + 2 * record_bytes(options) + ALIGNMENT;
}

static int no_memory(mrc_error *error) {
    static const mrc_error fault = {MRC_C_MEMORY, "MR6114", false, 0, "there is not enough memory for a client"};
    if (error != NULL) *error = fault;
    return MRC_C_MEMORY;
}

/* A client in its memory: the struct, then what is received, what is sent, and a record on its way out. */
static mrc_client *place_in_memory(const mrc_options *options) {
    bool provided = options != NULL && options->memory != NULL;
    size_t size = mrc_memory_bytes(options), shift;
    uint8_t *memory;
    mrc_client *client;
    if (provided && options->memory_bytes < size) return NULL;
    memory = provided ? options->memory : malloc(size);
    if (memory == NULL) return NULL;
    /* What malloc gives is aligned well enough for any struct; what a program provides need not be. */
    shift = provided ? (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT : 0;
    client = (mrc_client *)(void *)(memory + shift);
    memset(client, 0, sizeof *client);
    client->owns_memory = !provided;
    client->in = memory + shift + client_bytes();
    client->in_capacity = receive_bytes(options);
    client->record_bytes = record_bytes(options);
    client->in_bytes = client->in_capacity + client->record_bytes;
    client->out = client->in + client->in_bytes;
    client->out_capacity = send_bytes(options);
    client->sealing = client->out + client->out_capacity;
    client->fd = -1;
    return client;
}

static int connect_client(mrc_client *client) {
#ifdef MILLRACE_LOCAL
    if (client->place.kind == MRC_DIRECTORY) {
        client->local = mrl_open(client->place.at, &client->info, &client->error);
        return client->local != NULL ? 0 : client->error.number;
    }
#endif
    return mrc_remote_open(client);
}

int mrc_open(mrc_client **opened, const char *place, const mrc_options *options, mrc_error *error) {
    static const mrc_options defaults;
    mrc_client *client;
    int status;
    *opened = NULL;
    if (options == NULL) options = &defaults;
    client = place_in_memory(options);
    if (client == NULL) return no_memory(error);
    client->program = options->name != NULL && mrw_is_utf8((const uint8_t *)options->name, strlen(options->name)) &&
                      strlen(options->name) < 256 ? options->name : "c";
    client->capability = options->capability;
    client->connect_timeout_ms = options->connect_timeout_ms == 0 ? 5000 : options->connect_timeout_ms;
    client->request_timeout_ms = options->request_timeout_ms == 0 ? 30000 : options->request_timeout_ms;
    client->window_asked = options->window == 0 ? 256 : options->window;
    if (client->window_asked > MRC_WINDOW_MAX) client->window_asked = MRC_WINDOW_MAX;
    client->window = client->window_asked;
    status = place == NULL ? mrc_fail(client, MRC_C_PLACE_INVALID, "no place is given") : mrc_place_parse(client, place);
    if (status == 0) status = connect_client(client);
    if (status < 0) {
        if (error != NULL) *error = client->error;
        mrc_close(client);
        return status;
    }
    *opened = client;
    return 0;
}

int mrc_reconnect(mrc_client *client) {
    if (client->in_callback) return mrc_fail(client, MRC_C_CLIENT_BUSY, "it is in a callback");
    if (client->local != NULL) return 0;
    return mrc_remote_open(client);
}

int mrc_ask_host(mrc_client *client) {
    mrc_info info = client->info;
    int status = mrc_remote_open(client);
    client->info = info;
    if (status == 0) return 0;
    return mrc_fail(client, MRC_C_HOST_MISSING, "no host answers at '%.120s'", client->place.at);
}

bool mrc_connected(const mrc_client *client) { return client->local != NULL || client->fd >= 0; }

void mrc_close(mrc_client *client) {
    if (client == NULL || client->in_callback) return;
    client->on_appended = NULL; /* the answers are no longer awaited */
#ifdef MILLRACE_LOCAL
    if (client->local != NULL) mrl_close(client->local);
#endif
    mrc_remote_close(client);
    if (client->owns_memory) free(client);
}

const mrc_info *mrc_info_of(const mrc_client *client) { return &client->info; }
const mrc_error *mrc_error_of(const mrc_client *client) { return &client->error; }

int mrc_check_free(mrc_client *client) {
    if (client->tail.open) return mrc_fail(client, MRC_C_CLIENT_BUSY, "it follows log '%s'", client->tail.log);
    if (client->in_callback) return mrc_fail(client, MRC_C_CLIENT_BUSY, "it is in a callback");
    return 0;
}

int mrc_check_log(mrc_client *client, const char *log, mrw_bytes *bytes) {
    if (log == NULL) return mrc_fail(client, MRC_C_CALL_INVALID, "no log is given");
    bytes->at = log;
    bytes->size = strlen(log);
    if (bytes->size > MRC_LOG_NAME_BYTES_MAX || !mrw_is_utf8(bytes->at, bytes->size)) {
        return mrc_fail(client, MRC_LOG_NAME_INVALID, "'%.80s' is not a log name", log);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- ids */

static char *hex(char *to, uint64_t value, int digits) {
    while (digits < 16 && value >> 4 * digits != 0) digits++;
    while (digits-- > 0) *to++ = "0123456789abcdef"[value >> 4 * digits & 15];
    return to;
}

static uint64_t load(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | from[bytes];
    return value;
}

/* 56 bits of sequence, 24 of epoch, 48 of namespace, from the lowest up. */
void mrc_id_text(const mrc_id *id, char text[MRC_ID_TEXT_MAX + 1]) {
    uint64_t name = load(id->bytes + 10, 6);
    if (name == 0) {
        text[0] = '-';
        text[1] = 0;
        return;
    }
    text = hex(text, name, 12);
    *text++ = '-';
    text = hex(text, load(id->bytes + 7, 3), 1);
    *text++ = '-';
    text = hex(text, load(id->bytes, 7), 1);
    *text = 0;
}

int mrc_id_parse(const char *text, mrc_id *id) {
    static const int first[] = {10, 7, 0}, bytes[] = {6, 3, 7};
    mrc_id made;
    int part, i;
    for (part = 0; part < 3; part++) {
        uint64_t value = 0;
        int digits = 0;
        for (; *text != 0 && *text != '-'; text++, digits++) {
            const char *all = "0123456789abcdef";
            const char *digit = strchr(all, *text >= 'A' && *text <= 'F' ? *text + 32 : *text);
            if (digit == NULL || value >> (8 * bytes[part] - 4) != 0) return MRC_EVENT_ID_INVALID;
            value = value << 4 | (uint64_t)(digit - all);
        }
        if (digits == 0 || (part == 0 && value == 0) || *text != (part < 2 ? '-' : 0)) return MRC_EVENT_ID_INVALID;
        if (part < 2) text++;
        for (i = 0; i < bytes[part]; i++) made.bytes[first[part] + i] = (uint8_t)(value >> 8 * i);
    }
    *id = made;
    return 0;
}
