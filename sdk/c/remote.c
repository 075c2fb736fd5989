/* remote.c - a connection to a host: spec/protocol/wire.md as a client sees it.
 *
 *   mrc_remote_send --> out --> channel --> socket --> channel --> in --> take_frame --> next_answer --> the caller
 *                                                                                         |
 *                                                 PING, appends without waiting, the end of the connection
 *
 * One thread, no queue but the two buffers. What breaks the rules of the protocol ends the connection, with a code.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* A blocking read returns after so long (place.c): deadlines nearer than that are waited for in poll. */
#define SLICE_MS 1000
/* A host that says nothing for so long while it should is asked whether it is there, and then given up. */
#define PING_AFTER_MS 5000
#define SILENT_MAX_MS 10000
/* Enough of a frame to know which request it answers. */
#define HEADING_MAX 64

static void tell(mrc_client *client, int64_t ticket, int status, const mrc_receipt *receipt) {
    client->in_callback = true;
    if (client->on_appended != NULL) client->on_appended(client->context, ticket, status, receipt);
    client->in_callback = false;
}

int mrc_remote_lost(mrc_client *client, int number, const char *what) {
    uint32_t i;
    mrc_fail(client, number, "%s", what);
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    client->tail.open = false;
    client->tail.batch.count = 0;
    client->out_size = client->in_begin = client->in_end = client->in_sealed = client->held = 0;
    client->secure = false;
    mrw_wipe(&client->channel, sizeof client->channel);
    client->skip = client->ping = client->unsent_appends = 0;
    if (client->pending_count > 0 && client->first_failure.number == 0) client->first_failure = client->error;
    for (i = 0; i < client->window && client->pending_count > 0; i++) {
        int64_t ticket = (int64_t)client->pending[i];
        if (ticket == 0) continue;
        client->pending[i] = 0;
        client->pending_count--;
        tell(client, ticket, number, NULL);
    }
    return number;
}

static int lost_by_system(mrc_client *client, const char *doing) {
    char what[160];
    snprintf(what, sizeof what, "%s: %s", doing, strerror(errno));
    return mrc_remote_lost(client, MRC_CONNECTION_LOST, what);
}

static int not_connected(mrc_client *client) {
    return mrc_fail(client, MRC_CONNECTION_LOST, "there is no connection; call mrc_reconnect");
}

/* ------------------------------------------------------------------------------------------------------- receiving */

/* Makes room for `size` bytes from in_begin on, and for a record behind them; the buffer holds any frame that is taken. */
static void make_room(mrc_client *client, size_t size) {
    size_t begin = client->in_begin;
    if (begin != client->in_end && client->in_capacity >= begin + size && client->in_sealed < client->in_bytes) return;
    memmove(client->in, client->in + begin, client->in_sealed - begin);
    client->in_end -= begin;
    client->in_sealed -= begin;
    client->in_begin = 0;
}

/* Opens the records that are there as a whole; whether they held anything. */
static int open_records(mrc_client *client) {
    size_t at = client->in_end, before = client->in_end;
    while (client->secure) {
        size_t plain;
        int used = mrw_channel_open(&client->channel, client->in + at, client->in_sealed - at, &plain);
        if (used < 0) return mrc_remote_lost(client, used, "a record was changed on its way");
        if (used == 0) break;
        memmove(client->in + client->in_end, client->in + at + MRW_RECORD_HEAD, plain);
        client->in_end += plain;
        at += (size_t)used;
    }
    if (!client->secure) at = client->in_end = client->in_sealed;
    memmove(client->in + client->in_end, client->in + at, client->in_sealed - at);
    client->in_sealed -= at - client->in_end;
    return client->in_end > before;
}

static int receive(mrc_client *client, int flags) {
    ssize_t got = recv(client->fd, client->in + client->in_sealed, client->in_bytes - client->in_sealed, flags);
    if (got > 0) {
        client->in_sealed += (size_t)got;
        client->silent_ms = 0;
        return open_records(client);
    }
    if (got == 0) return mrc_remote_lost(client, MRC_CONNECTION_LOST, "the host closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    return lost_by_system(client, "receiving");
}

/* Asks a host that is silent whether it is there. */
static int check_silence(mrc_client *client) {
    static const mrw_empty nothing = {0};
    if (client->silent_ms >= SILENT_MAX_MS) {
        return mrc_remote_lost(client, MRC_PEER_SILENT, "the host has been silent for 10 s");
    }
    if (client->silent_ms < PING_AFTER_MS || client->ping != 0) return 0;
    client->ping = client->next_request++;
    if (mrc_remote_send(client, MRW_PING, client->ping, NULL, &nothing) < 0) return client->error.number;
    return mrc_remote_flush(client);
}

/* Receives something; 1, 0 at the deadline, or a refusal. */
static int fill(mrc_client *client, uint64_t deadline_ms) {
    uint64_t now = mrc_now_ms();
    for (;;) {
        struct pollfd wait;
        uint64_t before = now;
        int status = check_silence(client);
        if (status < 0) return status;
        if (deadline_ms >= now + SLICE_MS) {
            status = receive(client, 0);
            if (status != 0) return status;
        } else {
            wait.fd = client->fd;
            wait.events = POLLIN;
            if (poll(&wait, 1, deadline_ms > now ? (int)(deadline_ms - now) : 0) < 0 && errno != EINTR) {
                return lost_by_system(client, "waiting");
            }
            status = receive(client, MSG_DONTWAIT);
            if (status != 0) return status;
        }
        now = mrc_now_ms();
        client->silent_ms += now - before; /* of the time that somebody waited */
        if (now >= deadline_ms) return 0;
    }
}

/* Passes over the rest of an answer that is too long, as it comes. */
static int pass_over(mrc_client *client, uint64_t deadline_ms) {
    while (client->skip > 0) {
        size_t there = client->in_end - client->in_begin;
        size_t part = client->skip < there ? (size_t)client->skip : there;
        client->in_begin += part;
        client->skip -= part;
        if (client->skip > 0) {
            int status;
            make_room(client, 1);
            status = fill(client, deadline_ms);
            if (status <= 0) return status;
        }
    }
    return 1;
}

/* Takes the next frame: 1, 0 at the deadline, or a refusal. One that is longer than the buffer has `message.at`
 * NULL. */
static int take_frame(mrc_client *client, uint64_t deadline_ms, mrw_frame *frame) {
    client->in_begin += client->held;
    client->held = 0;
    for (;;) {
        size_t used, there;
        int status = pass_over(client, deadline_ms);
        if (status <= 0) return status;
        there = client->in_end - client->in_begin;
        status = mrw_split(client->in + client->in_begin, there, client->in_capacity - MRW_LENGTH_BYTES, frame, &used);
        if (status == 1) {
            client->held = used;
            if (frame->heading.hlc > client->hlc) client->hlc = frame->heading.hlc;
            return 1;
        }
        if (status == MRW_FRAME_TOO_LONG && used - MRW_LENGTH_BYTES <= MRW_FRAME_MAX && there >= HEADING_MAX) {
            status = mrw_peek(client->in + client->in_begin + MRW_LENGTH_BYTES, there - MRW_LENGTH_BYTES, frame);
            client->skip = used;
            frame->message.at = NULL;
            if (status == 0) return 1;
        }
        /* its heading comes */
        if (status == MRW_FRAME_TOO_LONG && used - MRW_LENGTH_BYTES <= MRW_FRAME_MAX) {
            status = 0;
        }
        if (status < 0) {
            return mrc_remote_lost(client, status, status == MRW_FRAME_TOO_LONG ? "a frame that no host may send"
                                   : status == MRW_MESSAGE_UNKNOWN ? "a message of a type above 255" : "the host sent something else than a frame");
        }
        make_room(client, used == 0 || used > client->in_capacity ? HEADING_MAX : used);
        status = fill(client, deadline_ms);
        if (status <= 0) return status;
    }
}

/* --------------------------------------------------------------------------------------------------------- answers */

/* Notes what a FAILURE says. */
static int failed(mrc_client *client, const mrw_frame *frame) {
    mrw_failure failure;
    int status = mrw_decode(frame, MRW_FAILURE, &failure);
    if (status < 0) return mrc_remote_lost(client, status, "a failure that cannot be read");
    status = mrc_fail_as(client, failure.code, failure.detail, failure.retry_after_ms);
    return status < 0 ? status : mrc_remote_lost(client, MRC_FRAME_MALFORMED, "a failure without a code");
}

static int too_long(mrc_client *client) {
    return mrc_fail(client, MRC_C_ANSWER_TOO_LONG, "an answer of %lu bytes; the limit of this client is %lu",
                    (unsigned long)client->skip - MRW_LENGTH_BYTES,
                    (unsigned long)client->in_capacity - MRW_LENGTH_BYTES);
}

/* The answer to an append without wait. */
static int settle(mrc_client *client, uint64_t *slot, const mrw_frame *frame) {
    mrw_appended appended;
    mrc_receipt receipt;
    int64_t ticket = (int64_t)*slot;
    int status;
    if (frame->message.at == NULL) {
        return mrc_remote_lost(client, MRC_FRAME_MALFORMED, "an answer to an append that is too long");
    }
    status = frame->type == MRW_FAILURE ? failed(client, frame) : mrw_decode(frame, MRW_APPENDED, &appended);
    if (client->fd < 0) return client->error.number;
    if (frame->type != MRW_FAILURE && status < 0) return mrc_remote_lost(client, status, "a wrong answer to an append");
    if (status < 0 && client->first_failure.number == 0) client->first_failure = client->error;
    *slot = 0;
    client->pending_count--;
    if (status == 0) {
        receipt.seqno = appended.seqno;
        memcpy(receipt.id.bytes, appended.id.bytes, sizeof receipt.id.bytes);
    }
    tell(client, ticket, status, status == 0 ? &receipt : NULL);
    return 0;
}

static int pong(mrc_client *client, const mrw_frame *frame) {
    static const mrw_empty nothing = {0};
    if (mrc_remote_send(client, MRW_PONG, frame->heading.request, NULL, &nothing) < 0) return client->error.number;
    return mrc_remote_flush(client);
}

/* Deals with what concerns the connection and with appends without wait. 1: it answers another request. */
static int dispatch(mrc_client *client, const mrw_frame *frame) {
    uint64_t request = frame->heading.request, *slot = &client->pending[request % client->window];
    if (frame->type == MRW_PING) return pong(client, frame);
    if (frame->type == MRW_PONG && client->ping != 0 && request == client->ping) {
        client->ping = 0;
        return 0;
    }
    if (request == 0 && frame->type == MRW_FAILURE && frame->message.at != NULL) {
        mrc_error said;
        failed(client, frame);
        said = client->error;
        if (client->fd >= 0) mrc_remote_lost(client, said.number, said.detail);
        client->error = said;
        return said.number;
    }
    return request != 0 && *slot == request ? settle(client, slot, frame) : 1;
}

static int not_asked(mrc_client *client) {
    return mrc_remote_lost(client, MRC_ANSWER_UNASKED, "an answer to a request that was not made");
}

int mrc_remote_answer(mrc_client *client, uint64_t request, uint64_t deadline_ms, mrw_frame *frame) {
    int status;
    if (client->fd < 0) return not_connected(client);
    do {
        status = take_frame(client, deadline_ms, frame);
        if (status <= 0) return status;
        status = dispatch(client, frame);
        if (status < 0) return status;
        /* Frames without end must not delay a caller that waits for another one. */
        if (status == 0 && mrc_now_ms() >= deadline_ms) return 0;
    } while (status == 0);
    if (frame->heading.request != request) return not_asked(client);
    if (frame->message.at == NULL) return too_long(client);
    return frame->type == MRW_FAILURE ? failed(client, frame) : 1;
}

int mrc_remote_settle(mrc_client *client, const uint64_t *slot) {
    uint64_t deadline_ms = mrc_now_ms() + client->request_timeout_ms;
    if (client->fd < 0) return client->pending_count == 0 && slot == NULL ? 0 : not_connected(client);
    client->silent_ms = 0;
    if (mrc_remote_flush(client) < 0) return client->error.number;
    while (slot != NULL ? *slot != 0 : client->pending_count > 0) {
        uint32_t before = client->pending_count;
        mrw_frame frame;
        int status = take_frame(client, deadline_ms, &frame);
        if (status < 0) return status;
        if (status > 0) status = dispatch(client, &frame);
        if (status < 0) return status;
        if (status > 0) return not_asked(client);
        if (client->pending_count < before) {
            deadline_ms = mrc_now_ms() + client->request_timeout_ms;
        } else if (mrc_now_ms() >= deadline_ms) {
            return mrc_remote_lost(client, MRC_REQUEST_TIMEOUT, "appends are not answered");
        }
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- sending */

/* Sends all of it. What comes meanwhile is received, so that a host that waits for us to read cannot wait for ever. */
static bool send_all(void *context, const void *bytes, size_t size) {
    mrc_client *client = context;
    const uint8_t *at = bytes;
    uint64_t deadline_ms = 0;
    while (size > 0) {
        ssize_t sent = send(client->fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        struct pollfd wait;
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
            deadline_ms = 0;
            continue;
        }
        if (sent < 0 && errno == EINTR) continue;
        /* The last frame says why the host closed the connection; the caller that waits for an answer reads it. */
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return true;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            lost_by_system(client, "sending");
            return false;
        }
        if (deadline_ms == 0) deadline_ms = mrc_now_ms() + client->request_timeout_ms;
        if (mrc_now_ms() >= deadline_ms) {
            mrc_remote_lost(client, MRC_REQUEST_TIMEOUT, "the host does not read");
            return false;
        }
        wait.fd = client->fd;
        wait.events = client->in_sealed < client->in_bytes ? POLLIN | POLLOUT : POLLOUT;
        if (poll(&wait, 1, SLICE_MS) > 0 && (wait.revents & POLLIN) != 0 && receive(client, MSG_DONTWAIT) < 0) {
            return false;
        }
    }
    return true;
}

/* The same through the channel, if there is one. */
static bool send_safely(void *context, const void *bytes, size_t size) {
    mrc_client *client = context;
    const uint8_t *at = bytes;
    while (client->secure && size > 0) {
        size_t room = mrw_channel_room(&client->channel), own = client->record_bytes - MRW_RECORD_HEAD - MRW_TAG;
        size_t part = room < own ? room : own, sealed;
        if (size < part) part = size;
        memcpy(client->sealing + MRW_RECORD_HEAD, at, part);
        sealed = mrw_channel_seal(&client->channel, client->sealing, part);
        if (sealed == 0) {
            mrc_remote_lost(client, MRC_CHANNEL_BROKEN, "the channel has used all of its record numbers");
            return false;
        }
        if (!send_all(client, client->sealing, sealed)) return false;
        at += part;
        size -= part;
    }
    return size == 0 || send_all(client, at, size);
}

int mrc_remote_flush(mrc_client *client) {
    size_t size = client->out_size;
    if (client->fd < 0) return not_connected(client);
    client->out_size = 0;
    client->unsent_appends = 0;
    return size == 0 || send_safely(client, client->out, size) ? 0 : client->error.number;
}

int mrc_remote_send(mrc_client *client, uint8_t type, uint64_t request, const mrc_id *cause, const void *message) {
    mrw_writer to = {client->out, client->out_capacity, client->out_size, false, NULL, NULL};
    mrw_writer count = {NULL, 0, 0, false, NULL, NULL};
    mrw_heading heading;
    if (client->fd < 0) return not_connected(client);
    memset(&heading, 0, sizeof heading);
    heading.request = request;
    heading.hlc = client->hlc;
    if (cause != NULL) memcpy(heading.cause.bytes, cause->bytes, sizeof heading.cause.bytes);
    if (mrw_encode(&to, type, &heading, message) == 0 &&
        to.size - client->out_size - MRW_LENGTH_BYTES <= client->frame_max) {
        client->out_size = to.size;
        return 0;
    }
    if (mrw_encode(&count, type, &heading, message) < 0 || count.size - MRW_LENGTH_BYTES > client->frame_max) {
        return mrc_fail(client, MRC_FRAME_TOO_LONG, "a message of %lu bytes; the limit of the host is %lu",
                        (unsigned long)count.size, (unsigned long)client->frame_max);
    }
    if (mrc_remote_flush(client) < 0) return client->error.number;
    to.size = 0;
    to.drain = send_safely;
    to.context = client;
    if (mrw_encode(&to, type, &heading, message) < 0) return client->error.number;
    client->out_size = to.size;
    return 0;
}

int mrc_remote_call(mrc_client *client, uint8_t type, const void *message, const mrc_id *cause, uint32_t wait_ms,
                    uint8_t answer_type, void *answer) {
    uint64_t request = client->next_request++;
    mrw_frame frame;
    int status = mrc_remote_send(client, type, request, cause, message);
    if (status < 0) return status;
    client->silent_ms = 0;
    status = mrc_remote_flush(client);
    if (status < 0) return status;
    status = mrc_remote_answer(client, request, mrc_now_ms() + client->request_timeout_ms + wait_ms, &frame);
    if (status < 0) return status;
    if (status == 0) return mrc_remote_lost(client, MRC_REQUEST_TIMEOUT, "the host does not answer");
    status = mrw_decode(&frame, answer_type, answer);
    return status < 0 ? mrc_remote_lost(client, status, "an answer of another kind") : 0;
}

/* ------------------------------------------------------------------------------------------------ opening, closing */

static mrw_bytes text_of(const char *text) {
    mrw_bytes bytes = {text, strlen(text)};
    return bytes;
}

/* Opens the channel with this token. */
static int open_channel(mrc_client *client, const uint8_t *token, size_t size) {
    uint64_t deadline_ms = mrc_now_ms() + client->connect_timeout_ms;
    uint8_t nonce[MRW_CHANNEL_NONCE];
    int status = mrc_place_nonce(client, nonce);
    if (status < 0) return status;
    /* SEND_MIN has room for the longest. */
    if (!send_all(client, client->out, mrw_channel_begin(&client->channel, token, size, nonce,
                                                         (uint16_t)(client->record_bytes - MRW_RECORD_HEAD), client->out))) {
        return client->error.number;
    }
    client->silent_ms = 0;
    client->ping = client->next_request; /* nothing is asked of the host before it knows this client */
    do {
        status = mrw_channel_answer(&client->channel, token, size, client->in, client->in_end);
        if (status == MRW_CHANNEL_REFUSED) return mrc_remote_lost(client, status, "the host does not accept the capability");
        if (status < 0) return mrc_remote_lost(client, status, "the other side does not know the capability");
        if (status > 0) break;
        status = fill(client, deadline_ms);
        if (status < 0) return status;
    } while (status > 0);
    client->ping = 0;
    if (status == 0) return mrc_fail(client, MRC_CONNECT_TIMEOUT, "the host does not open the channel");
    client->secure = true;
    client->in_begin = client->in_end = (size_t)status;
    return open_records(client) < 0 ? client->error.number : 0;
}

static int shake_hands(mrc_client *client) {
    mrw_hello hello;
    mrw_welcome welcome;
    uint32_t timeout_ms = client->request_timeout_ms;
    int status;
    memset(&hello, 0, sizeof hello);
    hello.oldest = hello.newest = MRW_VERSION;
    hello.namespace_name = text_of(client->place.name);
    hello.client = text_of(client->program);
    /* A channel says by itself what is spoken in it. */
    if (!client->secure) {
        memcpy(client->out, MRW_PREFACE, strlen(MRW_PREFACE));
        client->out_size = strlen(MRW_PREFACE);
    }
    status = mrc_place_check(client, false);
    if (status < 0) return status;
    client->request_timeout_ms = client->connect_timeout_ms;
    status = mrc_remote_call(client, MRW_HELLO, &hello, NULL, 0, MRW_WELCOME, &welcome);
    client->request_timeout_ms = timeout_ms;
    if (status == MRC_REQUEST_TIMEOUT) {
        return mrc_fail(client, MRC_CONNECT_TIMEOUT, "the host does not complete the handshake");
    }
    if (status == 0) status = mrc_place_check(client, true);
    if (status < 0) return status;
    if (welcome.version != MRW_VERSION) {
        return mrc_fail(client, MRC_VERSION_UNSUPPORTED, "the host chose version %u", welcome.version);
    }
    memset(&client->info, 0, sizeof client->info);
    if (!mrc_is_name(welcome.name.at, welcome.name.size)) {
        return mrc_fail(client, MRC_FRAME_MALFORMED, "a namespace without a name");
    }
    memcpy(client->info.name, welcome.name.at, welcome.name.size);
    client->info.namespace_id = welcome.namespace_id;
    client->info.epoch = welcome.epoch;
    client->info.record_max_bytes = welcome.record_max_bytes;
    client->info.durability = welcome.durability == MRW_MEMORY ? MRC_MEMORY : MRC_DISK;
    client->frame_max = welcome.frame_max_bytes < MRW_FRAME_MAX ? welcome.frame_max_bytes : MRW_FRAME_MAX;
    if (welcome.requests_max < client->window) client->window = welcome.requests_max > 0 ? welcome.requests_max : 1;
    return 0;
}

/* Opens the channel, if there is a capability to do so with. */
static int make_safe(mrc_client *client) {
    uint8_t token[MRW_TOKEN_MAX];
    /* Whether there is one was settled with the memory, when the client was opened. */
    int size = client->record_bytes == 0 ? 0 : mrc_place_capability(client, token);
    int status = size <= 0 ? size : open_channel(client, token, (size_t)size);
    mrw_wipe(token, sizeof token);
    return status;
}

int mrc_remote_open(mrc_client *client) {
    int status;
    mrc_remote_close(client);
    client->next_request = 1;
    client->frame_max = MRW_HELLO_MAX;
    client->window = client->window_asked;
    status = mrc_place_connect(client, mrc_now_ms() + client->connect_timeout_ms);
    if (status < 0) return status;
    client->fd = status;
    status = make_safe(client);
    if (status == 0) status = shake_hands(client);
    if (status < 0) {
        mrc_error why = client->error;
        mrc_remote_close(client);
        client->error = why;
    }
    return status;
}

void mrc_remote_close(mrc_client *client) {
    if (client->fd >= 0) mrc_remote_lost(client, MRC_CONNECTION_LOST, "the client closed the connection");
}
