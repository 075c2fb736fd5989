/* remote.c - what a host asks a device that is connected: GET, RANGE, LATEST and APPEND. Answers are written as they are read from flash: no
 * buffer is needed besides that of the frame. */
#include "millrace_remote.h"
#include "../uplink/serve.h"
#include "locate.h"

enum { KEY_INVALID = -6025, LOG_INTERNAL = -6022, RIGHT_MISSING = -6132, FENCE_INVALID = -7128 };
/* In RECORDS, a list of at most 15 has a head of one byte, and a frame of 600 bytes has no more; behind it stands `next`. */
enum { RECORDS_MAX = 15, NEXT_BYTES = 5 + 9 };

/* Which keys a request has. */
enum { LOG = 1, DATA = 2, SEQNO = 4, COUNT = 8, FUNCTION = 16, KEY = 32, FENCE = 64 };

typedef struct {
    mrw_bytes log, data;
    uint64_t seqno, count; /* `seqno` of GET, `from` of RANGE */
    unsigned given;
} asked;

static const struct {
    const char *name;
    uint8_t key;
} keys[] = {{"log", LOG}, {"data", DATA}, {"seqno", SEQNO}, {"from", SEQNO}, {"count", COUNT}, {"function", FUNCTION}, {"key", KEY}, {"fence", FENCE}};

static unsigned key_of(mrw_bytes name) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (mrd_is_same(keys[i].name, (const char *)name.at, name.size)) return keys[i].key;
    }
    return 0;
}

static bool read_value(mrw_reader *from, unsigned key, asked *to) {
    switch (key) {
    case LOG: return mrw_read_text(from, &to->log);
    case DATA: return mrw_read_bin(from, &to->data);
    case SEQNO: return mrw_read_uint(from, &to->seqno);
    case COUNT: return mrw_read_uint(from, &to->count);
    default: return mrw_skip(from, MRW_DEPTH_MAX);
    }
}

/* Keys that say nothing to a device, such as `wait_ms` and `durability`, are passed over. */
static bool read_asked(mrw_reader from, unsigned needed, asked *to) {
    mrw_bytes name;
    uint32_t count;
    memset(to, 0, sizeof *to);
    if (!mrw_read_map(&from, &count)) return false;
    for (; count > 0; count--) {
        if (!mrw_read_text(&from, &name)) return false;
        unsigned key = key_of(name);
        /* An optional key may have no value. */
        if (key >= FUNCTION && mrw_take_nil(&from)) continue;
        if (to->given & key || !read_value(&from, key, to)) return false; /* a key that comes twice is refused, as by a host */
        to->given |= key;
    }
    return from.at == from.end && (to->given & needed) == needed;
}

/* The number of a log, or a refusal. What the host may not have is not told apart from what is not there. */
static int find_log(mrd_uplink *uplink, uint16_t right, const asked *of) {
    char name[MRD_NAME_MAX + 1];
    if (!mrd_uplink_may(uplink, right, MRD_OF_LOG, &of->log, of->data.size, 0)) return RIGHT_MISSING;
    if (of->log.size > MRD_NAME_MAX) return MRD_LOG_NOT_FOUND;
    memcpy(name, of->log.at, of->log.size);
    name[of->log.size] = 0;
    if (strlen(name) != of->log.size) return MRD_NAME_INVALID;
    int log = mrd_find_log(uplink->device, name);
    if (log >= 0) return log;
    if (name[0] == '_') return right == MRD_MAY_APPEND ? LOG_INTERNAL : MRD_LOG_NOT_FOUND;
    return mrd_is_name(name, true) ? MRD_LOG_NOT_FOUND : MRD_NAME_INVALID;
}

/* ---- frames ---- */

static mrw_bytes text_of(const char *text) {
    mrw_bytes bytes = {text, strlen(text)};
    return bytes;
}

static mrw_writer begin_frame(mrd_uplink *uplink, const mrw_frame *of, uint8_t type) {
    mrw_writer to = {uplink->out + MRW_RECORD_HEAD, MRD_FRAME_MAX, MRW_LENGTH_BYTES, false, NULL, NULL};
    size_t room = uplink->token ? mrw_channel_room(&uplink->channel) : to.capacity;
    if (room < to.capacity) to.capacity = room;
    mrw_write_array(&to, 5);
    mrw_write_uint(&to, type);
    mrw_write_uint(&to, of->heading.request);
    mrw_write_uint(&to, (mrd_clock(uplink->device) * 1000) << 12);
    mrw_write_nil(&to);
    return to;
}

/* Sends the frame, unless it is too long, which the host is told instead. */
static void end_frame(mrd_uplink *uplink, const mrw_frame *of, mrw_writer *to) {
    if (to->full) {
        mrd_uplink_fail(uplink, of, MRW_FRAME_TOO_LONG);
        return;
    }
    mrd_store4(to->bytes, (uint32_t)(to->size - MRW_LENGTH_BYTES));
    mrd_uplink_send(uplink, to->size);
}

static void write_number(mrw_writer *to, const char *key, uint64_t value) {
    mrw_write_text(to, text_of(key));
    mrw_write_uint(to, value);
}

static void write_id(mrw_writer *to, const char *key, const mrd_cause *id) {
    mrw_bytes bytes = {id->id, sizeof id->id};
    mrw_write_text(to, text_of(key));
    mrw_write_bin(to, bytes);
}

static bool is_given(const mrd_cause *id) {
    static const mrd_cause none;
    return memcmp(id, &none, sizeof none) != 0;
}

/* Returns 0, or an error. What does not fit makes the writer full. */
static int write_record(mrd *device, mrw_writer *to, const mrd_located *record) {
    uint8_t head[3] = {0xC5};
    mrw_write_map(to, is_given(&record->cause) ? 5 : 4);
    write_number(to, "seqno", record->seqno);
    write_id(to, "id", &record->id);
    write_number(to, "hlc", record->hlc);
    if (is_given(&record->cause)) write_id(to, "cause", &record->cause);
    mrw_write_text(to, text_of("data"));
    head[1] = (uint8_t)(record->size >> 8);
    head[2] = (uint8_t)record->size;
    mrw_write_raw(to, head, sizeof head);
    if (to->full || record->size > to->capacity - to->size) {
        to->full = true;
        return 0;
    }
    if (record->size > 0 && mrd_read(device, record->body, to->bytes + to->size, record->size) < 0) return MRD_READ_FAILED;
    to->size += record->size;
    return 0;
}

/* ---- answers ---- */

static int locate(mrd *device, unsigned log, uint64_t seqno, mrd_located *record) {
    int64_t size = mrd_get_at(device, log, seqno, NULL, 0);
    return size < 0 ? (int)size : mrd_locate(device, log, seqno, record);
}

static int answer_get(mrd_uplink *uplink, const mrw_frame *frame, unsigned log, const asked *of) {
    mrd *device = uplink->device;
    mrd_located record;
    uint64_t newest = device->log[log].seqno;
    if (of->seqno == 0 && newest == 0) return MRD_ABOVE_TAIL;
    int result = locate(device, log, of->seqno == 0 ? newest : of->seqno, &record);
    if (result < 0) return result;
    mrw_writer to = begin_frame(uplink, frame, MRW_RECORD);
    result = write_record(device, &to, &record);
    if (result == 0) end_frame(uplink, frame, &to);
    return result;
}

/* As many records as fit into the frame. If the first one does not, the host gets to know it. */
static int answer_range(mrd_uplink *uplink, const mrw_frame *frame, unsigned log, const asked *of) {
    mrd *device = uplink->device;
    mrd_located record;
    uint64_t newest = device->log[log].seqno, next = of->seqno;
    unsigned count = 0;
    int result = 0;
    if (next == 0) return MRD_SEQNO_INVALID;
    mrw_writer to = begin_frame(uplink, frame, MRW_RECORDS);
    mrw_write_map(&to, 3);
    write_number(&to, "incarnation", 1);
    mrw_write_text(&to, text_of("records"));
    size_t head = to.size;
    mrw_write_array(&to, 0);
    if (to.full || to.capacity - to.size < NEXT_BYTES) return MRW_FRAME_TOO_LONG;
    to.capacity -= NEXT_BYTES;
    while (count < of->count && count < RECORDS_MAX && next <= newest) {
        size_t before = to.size;
        result = locate(device, log, next, &record);
        if (result == 0) result = write_record(device, &to, &record);
        if (result == 0 && to.full) result = MRW_FRAME_TOO_LONG;
        if (result < 0) {
            to.size = before;
            break;
        }
        count++;
        next++;
    }
    /* What cannot be read ends the answer before it: the next request says why. */
    if (result < 0 && count == 0) return result;
    to.full = false;
    to.capacity += NEXT_BYTES;
    to.bytes[head] = (uint8_t)(0x90 | count);
    write_number(&to, "next", next);
    end_frame(uplink, frame, &to);
    return 0;
}

static int answer_latest(mrd_uplink *uplink, const mrw_frame *frame, unsigned log) {
    mrw_writer to = begin_frame(uplink, frame, MRW_SEQNO);
    mrw_write_map(&to, 1);
    write_number(&to, "seqno", uplink->device->log[log].seqno);
    end_frame(uplink, frame, &to);
    return 0;
}

static int answer_append(mrd_uplink *uplink, const mrw_frame *frame, unsigned log, const asked *of) {
    mrd *device = uplink->device;
    mrd_cause cause, id;
    bool caused = false;
    if (!(device->logs[log].flags & MRD_COMMANDS)) return RIGHT_MISSING;
    if (of->given & FUNCTION) return MRD_FUNCTION_NOT_FOUND;
    if (of->given & KEY) return KEY_INVALID;
    if (of->given & FENCE) return FENCE_INVALID;
    memcpy(cause.id, frame->heading.cause.bytes, sizeof cause.id);
    caused = is_given(&cause);
    int64_t seqno = mrd_append(device, device->logs[log].name, of->data.at, of->data.size, caused ? &cause : NULL);
    if (seqno < 0) return (int)seqno;
    mrd_event_id(device, device->epoch, device->sequence - 1 - device->log[log].triggers, &id);
    /* What is acknowledged is in flash. */
    if (mrd_sync(device) < 0) return MRD_FLUSH_FAILED;
    mrw_writer to = begin_frame(uplink, frame, MRW_APPENDED);
    mrw_write_map(&to, 2);
    write_number(&to, "seqno", (uint64_t)seqno);
    write_id(&to, "id", &id);
    end_frame(uplink, frame, &to);
    return 0;
}

static int answer(mrd_uplink *uplink, const mrw_frame *frame) {
    static const uint8_t needed[] = {LOG | DATA, LOG | SEQNO, LOG | SEQNO | COUNT, LOG};
    uint8_t type = frame->type;
    unsigned at = type == MRW_APPEND ? 0 : type == MRW_GET ? 1 : type == MRW_RANGE ? 2 : 3;
    asked of;
    if (!read_asked(frame->message, needed[at], &of)) return MRW_FRAME_MALFORMED;
    int log = find_log(uplink, at == 0 ? MRD_MAY_APPEND : MRD_MAY_READ, &of);
    if (log < 0) return log;
    /* Nothing is told that a loss of power could take back. */
    if (at > 0 && mrd_sync(uplink->device) < 0) return MRD_FLUSH_FAILED;
    switch (at) {
    case 0: return answer_append(uplink, frame, (unsigned)log, &of);
    case 1: return answer_get(uplink, frame, (unsigned)log, &of);
    case 2: return answer_range(uplink, frame, (unsigned)log, &of);
    default: return answer_latest(uplink, frame, (unsigned)log);
    }
}

static bool serve(mrd_uplink *uplink, const mrw_frame *frame) {
    bool known = frame->type == MRW_APPEND || frame->type == MRW_GET || frame->type == MRW_RANGE || frame->type == MRW_LATEST;
    int result = known ? answer(uplink, frame) : 0;
    if (result < 0) mrd_uplink_fail(uplink, frame, result);
    return known;
}

void mrd_remote_begin(mrd_uplink *uplink) { uplink->remote = serve; }
