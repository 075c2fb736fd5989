#include "millrace_uplink.h"
#include "serve.h"
#include "../src/internal.h"

enum { DOWN, OPENING, GREETING, ATTACHING, SENDING };
enum { OUT_CAPACITY = MRD_FRAME_MAX, TAKES = 512, POLL_MS = 20, CLOCK_SLACK_MS = 1000, LOST = -6060 };

static uint32_t now_of(const mrd_uplink *uplink) {
    const mrd_port *port = uplink->device->port;
    return port->ms(port->context);
}

/* Something was sent or received. */
static void touch(mrd_uplink *uplink) {
    uplink->since = now_of(uplink);
    uplink->repeat_ms = MRD_REPEAT_MS;
}

/* ---- the connection ---- */

static void hang_up(mrd_uplink *uplink, int error, uint32_t after_ms) {
    const mrd_line *line = uplink->line;
    uint32_t wait = uplink->tries < 9 ? (uint32_t)MRD_RETRY_MS << uplink->tries : (uint32_t)MRD_RETRY_MAX_MS;
    uint8_t noise = 0;
    if (uplink->state != DOWN) line->close(line->context);
    if (line->random) line->random(line->context, &noise, 1);
    if (uplink->tries < 9) uplink->tries++;
    if (wait < after_ms) wait = after_ms;
    if (wait > MRD_RETRY_MAX_MS) wait = MRD_RETRY_MAX_MS;
    /* Devices that lost their host at the same moment do not come back at the same moment. */
    uplink->wait_ms = wait - wait / 4 * noise / 255;
    touch(uplink);
    uplink->state = DOWN;
    uplink->error = error;
    uplink->attached = uplink->idle = false;
    mrw_wipe(&uplink->channel, sizeof uplink->channel);
}

static void lose(mrd_uplink *uplink, int error) { hang_up(uplink, error, 0); }

/* Sends what is left of the last frame; false if the connection is lost. */
static bool push(mrd_uplink *uplink) {
    while (uplink->out_at < uplink->out_end) {
        long sent = uplink->line->send(uplink->line->context, uplink->out + uplink->out_at, uplink->out_end - uplink->out_at);
        if (sent < 0) lose(uplink, LOST);
        if (sent <= 0) return sent == 0;
        uplink->out_at += (size_t)sent;
    }
    return true;
}

static bool is_sent(const mrd_uplink *uplink) { return uplink->out_at == uplink->out_end; }

void mrd_uplink_send(mrd_uplink *uplink, size_t size) {
    uplink->out_at = MRW_RECORD_HEAD;
    uplink->out_end = MRW_RECORD_HEAD + size;
    if (uplink->token) {
        uplink->out_at = 0;
        uplink->out_end = mrw_channel_seal(&uplink->channel, uplink->out, size);
    }
    touch(uplink);
    push(uplink);
}

static void write_frame(mrd_uplink *uplink, uint8_t type, uint64_t request, const void *message, bool first) {
    mrw_heading heading = {0, 0, {{0}}};
    mrw_writer to = {uplink->out + MRW_RECORD_HEAD, OUT_CAPACITY, 0, false, NULL, NULL};
    heading.request = request;
    heading.hlc = (mrd_clock(uplink->device) * 1000) << 12;
    if (first && !uplink->token) mrw_write_raw(&to, MRW_PREFACE, 4);
    if (mrw_encode(&to, type, &heading, message) < 0 || (uplink->token && to.size > mrw_channel_room(&uplink->channel))) {
        lose(uplink, MRW_FRAME_TOO_LONG);
        return;
    }
    mrd_uplink_send(uplink, to.size);
}

void mrd_uplink_say(mrd_uplink *uplink, uint8_t type, uint64_t request, const void *message) {
    write_frame(uplink, type, request, message, false);
}

/* Sends a request of the device. */
static void say(mrd_uplink *uplink, uint8_t type, const void *message, bool first) {
    write_frame(uplink, type, ++uplink->request, message, first);
}

static mrw_bytes text_of(const char *text) {
    mrw_bytes bytes = {text, strlen(text)};
    return bytes;
}

static void greet(mrd_uplink *uplink) {
    mrw_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.oldest = hello.newest = MRW_VERSION;
    hello.namespace_name = text_of("");
    hello.client = text_of("millrace device");
    uplink->state = GREETING;
    say(uplink, MRW_HELLO, &hello, true);
}

static void connect(mrd_uplink *uplink) {
    uint8_t nonce[MRW_CHANNEL_NONCE];
    const mrd_line *line = uplink->line;
    if (line->open(line->context) != 0) {
        lose(uplink, LOST);
        return;
    }
    uplink->state = OPENING;
    uplink->in_sealed = uplink->in_plain = uplink->out_at = uplink->out_end = 0;
    uplink->request = uplink->link = 0;
    if (uplink->guard) uplink->guard->size = 0;
    if (!uplink->token) {
        greet(uplink);
        return;
    }
    /* The random bytes of a start may be made from its epoch: before the first are used, it is in flash, so no other start has the same. If the
     * flash is full, the epoch cannot be written before a connection has made room. */
    if (uplink->device->opening) mrd_reserve(uplink->device, 0, 0);
    if (mrd_flush(uplink->device) < 0) {
        lose(uplink, MRD_FLUSH_FAILED);
        return;
    }
    if (!line->random || line->random(line->context, nonce, sizeof nonce) != 0) {
        lose(uplink, MRD_SETTING_INVALID);
        return;
    }
    /* M1 has the token's body, for which `in` has room: nothing has been received yet. */
    size_t size = mrw_channel_begin(&uplink->channel, uplink->token, uplink->token_bytes, nonce, TAKES, uplink->in);
    if (size > sizeof uplink->out) {
        lose(uplink, MRD_SETTING_INVALID);
        return;
    }
    memcpy(uplink->out, uplink->in, size);
    uplink->out_end = size;
    touch(uplink);
    push(uplink);
}

/* ---- the journal ---- */

/* The newest sector that begins at or before this sequence; the oldest, if there is none. */
static void seek(mrd_uplink *uplink, uint64_t sequence) {
    mrd *device = uplink->device;
    mrd_header header;
    uplink->has_sector = device->serial != MRD_NO_SERIAL;
    uplink->serial = device->serial;
    while (uplink->has_sector && uplink->serial > device->oldest) {
        if (mrd_header_of(device, uplink->serial, &header) && header.sequence <= sequence) break;
        uplink->serial--;
    }
    uplink->at = 0;
    uplink->end = 0;
    uplink->walk_at = 0;
}

static bool begin_sector(mrd_uplink *uplink) {
    mrd *device = uplink->device;
    mrd_header header;
    if (!mrd_header_of(device, uplink->serial, &header)) return false;
    uplink->at = 0;
    uplink->end = MRD_HEADER_BYTES;
    uplink->walk_at = mrd_data_start(device);
    uplink->walk_crc = header.crc;
    return true;
}

static bool next_burst(mrd_uplink *uplink) {
    mrd *device = uplink->device;
    mrd_walk walk;
    walk.device = device;
    walk.sector = mrd_sector_at(device, uplink->serial);
    walk.at = walk.done = uplink->walk_at;
    walk.limit = uplink->serial == device->serial ? device->head : device->port->sector_bytes;
    walk.crc = uplink->walk_crc;
    walk.torn = false;
    if (!mrd_next_burst(&walk)) return false;
    uplink->at = walk.body - MRD_BURST_HEAD - walk.sector;
    uplink->end = walk.end - walk.sector;
    uplink->walk_at = walk.at;
    uplink->walk_crc = walk.crc;
    return true;
}

/* Finds the next piece; false if the host has everything. */
static bool find_piece(mrd_uplink *uplink) {
    mrd *device = uplink->device;
    if (!uplink->has_sector) seek(uplink, 0);
    if (!uplink->has_sector) return false;
    if (uplink->serial < device->oldest) {
        /* The sector was dropped meanwhile. */
        uplink->serial = device->oldest;
        uplink->at = uplink->end = uplink->walk_at = 0;
    }
    while (uplink->at == uplink->end) {
        if (uplink->walk_at == 0 ? begin_sector(uplink) : next_burst(uplink)) break;
        if (uplink->serial == device->serial) return false;
        uplink->serial++;
        uplink->at = uplink->end = uplink->walk_at = 0;
    }
    return true;
}

static void send_piece(mrd_uplink *uplink) {
    mrd *device = uplink->device;
    mrw_entries entries;
    uint8_t bytes[MRD_PIECE_MAX];
    uplink->idle = !find_piece(uplink);
    if (uplink->idle) {
        uplink->tries = 0;
        return;
    }
    uint32_t size = uplink->end - uplink->at;
    if (size > sizeof bytes) size = sizeof bytes;
    if (mrd_read(device, mrd_sector_at(device, uplink->serial) + uplink->at, bytes, size) < 0) {
        lose(uplink, MRD_READ_FAILED);
        return;
    }
    entries.sector = uplink->serial;
    entries.at = uplink->at;
    entries.bytes.at = bytes;
    entries.bytes.size = size;
    uplink->piece = size;
    say(uplink, MRW_ENTRIES, &entries, false);
}

/* ---- answers ---- */

static void attach(mrd_uplink *uplink, uint64_t hlc) {
    mrd *device = uplink->device;
    mrw_attach message;
    uint64_t ms = mrd_thousandth(hlc >> 12);
    if (ms > mrd_clock(device) + CLOCK_SLACK_MS) mrd_set_clock(device, ms);
    /* So that the clock's correction, and the start, are in flash before the host relies on them. */
    if (mrd_sync(device) < 0) {
        lose(uplink, MRD_FLUSH_FAILED);
        return;
    }
    message.device = text_of(uplink->name);
    message.namespace_id = device->port->namespace_id;
    message.epoch = device->opening ? device->epoch_before : device->epoch;
    message.first = device->held;
    message.next = device->durable;
    message.jumped_ms = device->jumped_ms;
    uplink->state = ATTACHING;
    say(uplink, MRW_ATTACH, &message, false);
}

static int code_of(mrw_bytes code) {
    int number = 0;
    const char *text = (const char *)code.at;
    for (size_t i = 2; i < code.size && i < 6; i++) number = number * 10 + (text[i] - '0');
    return -number;
}

static void refused(mrd_uplink *uplink, const mrw_frame *frame) {
    mrw_failure failure;
    if (mrw_decode(frame, MRW_FAILURE, &failure) < 0) {
        lose(uplink, MRW_FRAME_MALFORMED);
        return;
    }
    size_t size = failure.detail.size < sizeof uplink->detail - 1 ? failure.detail.size : sizeof uplink->detail - 1;
    memcpy(uplink->detail, failure.detail.at, size);
    uplink->detail[size] = 0;
    hang_up(uplink, code_of(failure.code), failure.retry_after_ms.given ? failure.retry_after_ms.value : 0);
}

/* A host that has nothing more than before may refuse what comes next again, such as an entry that it is too old for: the pauses before new
 * attempts grow until it has more. */
static void entered(mrd_uplink *uplink, uint64_t sequence) {
    uplink->error = 0;
    if (sequence != uplink->delivered) uplink->tries = 0;
    uplink->delivered = sequence;
    mrd_delivered(uplink->device, sequence);
}

static void take(mrd_uplink *uplink, const mrw_frame *frame) {
    mrw_welcome welcome;
    mrw_attached attached;
    mrw_entered answer;
    int result = 0;
    if (frame->type == MRW_FAILURE) {
        refused(uplink, frame);
        return;
    }
    if (frame->type != MRW_WELCOME && frame->type != MRW_ATTACHED && frame->type != MRW_ENTERED) {
        mrd_uplink_serve(uplink, frame);
        return;
    }
    if (uplink->state == GREETING) {
        result = mrw_decode(frame, MRW_WELCOME, &welcome);
        if (result == 0) attach(uplink, frame->heading.hlc);
    } else if (uplink->state == ATTACHING) {
        result = mrw_decode(frame, MRW_ATTACHED, &attached);
        if (result == 0) {
            uplink->state = SENDING;
            uplink->attached = true;
            uplink->piece = 0;
            entered(uplink, attached.sequence);
            seek(uplink, attached.sequence);
            send_piece(uplink);
        }
    } else {
        result = mrw_decode(frame, MRW_ENTERED, &answer);
        if (result == 0) {
            uplink->at += uplink->piece;
            uplink->piece = 0;
            entered(uplink, answer.sequence);
            send_piece(uplink);
        }
    }
    if (result < 0) lose(uplink, result);
}

/* Handles the frames that are complete, as long as what they lead to can be sent. */
static void read_frames(mrd_uplink *uplink) {
    size_t begin = 0, used;
    mrw_frame frame;
    while (uplink->state > OPENING && is_sent(uplink)) {
        int result = mrw_split(uplink->in + begin, uplink->in_plain - begin, sizeof uplink->in - TAKES - 64, &frame, &used);
        if (result < 0) lose(uplink, result);
        if (result <= 0) break;
        take(uplink, &frame);
        begin += used;
    }
    if (uplink->state == DOWN || begin == 0) return;
    memmove(uplink->in, uplink->in + begin, uplink->in_sealed - begin);
    uplink->in_sealed -= begin;
    uplink->in_plain -= begin;
}

/* The host's answer to M1. */
static void open_channel(mrd_uplink *uplink) {
    int result = mrw_channel_answer(&uplink->channel, uplink->token, uplink->token_bytes, uplink->in, uplink->in_sealed);
    if (result < 0) lose(uplink, result);
    if (result <= 0) return;
    memmove(uplink->in, uplink->in + result, uplink->in_sealed - (size_t)result);
    uplink->in_sealed -= (size_t)result;
    greet(uplink);
}

/* Decrypts the records that are complete. */
static void open_records(mrd_uplink *uplink) {
    size_t plain;
    if (!uplink->token) {
        uplink->in_plain = uplink->in_sealed;
        return;
    }
    for (;;) {
        uint8_t *at = uplink->in + uplink->in_plain;
        int used = mrw_channel_open(&uplink->channel, at, uplink->in_sealed - uplink->in_plain, &plain);
        if (used < 0) lose(uplink, used);
        if (used <= 0) return;
        size_t rest = uplink->in_sealed - uplink->in_plain - (size_t)used;
        memmove(at, at + MRW_RECORD_HEAD, plain);
        memmove(at + plain, at + used, rest);
        uplink->in_plain += plain;
        uplink->in_sealed = uplink->in_plain + rest;
    }
}

/* Receives once; whether something came. */
static bool pull(mrd_uplink *uplink) {
    size_t room = sizeof uplink->in - uplink->in_sealed;
    if (!is_sent(uplink)) return false;
    if (room == 0) {
        lose(uplink, MRW_FRAME_TOO_LONG);
        return false;
    }
    long got = uplink->line->receive(uplink->line->context, uplink->in + uplink->in_sealed, room);
    if (got < 0) lose(uplink, uplink->state == OPENING ? MRW_CHANNEL_REFUSED : LOST);
    if (got <= 0) return false;
    uplink->in_sealed += (size_t)got;
    touch(uplink);
    if (uplink->state == OPENING) open_channel(uplink);
    if (uplink->state > OPENING) open_records(uplink);
    if (uplink->state > OPENING) read_frames(uplink);
    return uplink->state != DOWN;
}

/* ---- the interface ---- */

void mrd_uplink_begin(mrd_uplink *uplink, mrd *device, const mrd_line *line, const char *name, const uint8_t *token,
                      size_t token_bytes) {
    memset(uplink, 0, sizeof *uplink);
    uplink->device = device;
    uplink->line = line;
    uplink->name = name;
    uplink->token = token;
    uplink->token_bytes = token_bytes;
    touch(uplink);
}

void mrd_uplink_guard(mrd_uplink *uplink, mrd_guard *guard) {
    uplink->guard = guard;
    guard->size = 0;
}

void mrd_uplink_end(mrd_uplink *uplink) {
    if (uplink->state == DOWN) return;
    lose(uplink, uplink->error);
    uplink->tries = 0;
    uplink->wait_ms = 0;
}

/* An answer is due. What was sent last may have been lost without a trace, or the answer: the line repeats it. */
static void await(mrd_uplink *uplink) {
    const mrd_line *line = uplink->line;
    uint32_t waited = now_of(uplink) - uplink->since;
    if (waited > MRD_SILENT_MS) {
        lose(uplink, LOST);
    } else if (line->repeat && waited >= uplink->repeat_ms) {
        line->repeat(line->context);
        uplink->repeat_ms *= 2;
    }
}

uint32_t mrd_uplink_step(mrd_uplink *uplink) {
    uint32_t waited = now_of(uplink) - uplink->since;
    if (uplink->state == DOWN) {
        const mrd_line *line = uplink->line;
        if (waited < uplink->wait_ms && !(line->called && line->called(line->context))) return uplink->wait_ms - waited;
        connect(uplink);
    }
    if (uplink->state != DOWN && push(uplink)) {
        if (uplink->state > OPENING) read_frames(uplink);
        while (uplink->state != DOWN && pull(uplink)) continue;
    }
    if (uplink->state == SENDING && uplink->piece == 0 && is_sent(uplink)) {
        send_piece(uplink);
        if (uplink->state == SENDING && uplink->idle) return MRD_IDLE_MS;
    }
    if (uplink->state != DOWN && !uplink->idle) await(uplink);
    return uplink->state == DOWN ? uplink->wait_ms : POLL_MS;
}
