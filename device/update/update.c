/* update.c - takes the records of an image, and reports to the log "update": JSON, so that people and functions at the host can read it.
 *
 * Only every sixteenth part of an image is recorded as received. What came after that is written again after a reset, from the
 * beginning of an erased block on, so no unit of the flash is programmed twice: the device asks the host to send from there on.
 */
#include "millrace_update.h"
#include "../src/internal.h"

#define MILLRACE_DEVICE mrd_unused
#include "millrace.h"

enum { IDLE, RECEIVING, READY, TRIAL, CONFIRMED, REVERTED, REFUSED, STATES };
enum { BEGIN = 1, PIECE = 2, HEAD = 5, PIECE_HEAD = 9, BEGIN_HEAD = 9 + MRW_HASH };
enum { TEXT_MAX = 384, CHUNK = 128, POLL_MS = 20, RETRY_MS = 1000 };

static const char *const names[STATES] = {"idle", "receiving", "ready", "trial", "confirmed", "reverted", "refused"};
static const char HEX[] = "0123456789abcdef";

/* Functions do not get a context. */
static mrd_update *current;

static uint32_t now_of(const mrd_update *update) {
    const mrd_port *port = update->device->port;
    return port->ms(port->context);
}

/* ---- the state as text ---- */

typedef struct state_text {
    char text[TEXT_MAX];
    uint32_t size;
} state_text;

static void put_text(state_text *to, const char *text) {
    size_t size = strlen(text);
    if (size > sizeof to->text - to->size) return; /* TEXT_MAX has room for the longest members */
    memcpy(to->text + to->size, text, size);
    to->size += (uint32_t)size;
}

static void put_number(state_text *to, uint32_t value) {
    char digits[11];
    unsigned at = sizeof digits - 1;
    digits[at] = 0;
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    put_text(to, digits + at);
}

static void put_member(state_text *to, const char *name, uint32_t value) {
    put_text(to, name);
    put_number(to, value);
}

/* How many bytes of the image a record can have. */
static uint32_t piece_of(const mrd_update *update) {
    uint32_t log = (uint32_t)mrd_find_log(update->device, "firmware");
    uint32_t most = mrd_record_max(update->device, log) - MRD_SENDER_BYTES;
    if (most > MRD_RUN_RECORD_MAX) most = MRD_RUN_RECORD_MAX;
    most -= PIECE_HEAD;
    return most - most % update->slots->unit;
}

static void describe(const mrd_update *update, state_text *to) {
    to->size = 0;
    put_text(to, "{\"state\":\"");
    put_text(to, names[update->state]);
    put_text(to, "\",\"running\":\"");
    put_text(to, update->running);
    put_member(to, "\",\"slot\":", update->slots->bytes);
    put_member(to, ",\"piece\":", piece_of(update));
    if (update->state != IDLE) {
        char hash[2 * MRW_HASH + 1];
        for (unsigned i = 0; i < MRW_HASH; i++) {
            hash[2 * i] = HEX[update->sha256[i] >> 4];
            hash[2 * i + 1] = HEX[update->sha256[i] & 15];
        }
        hash[2 * MRW_HASH] = 0;
        put_member(to, ",\"update\":", update->number);
        put_text(to, ",\"version\":\"");
        put_text(to, update->version);
        put_member(to, "\",\"size\":", update->size);
        put_member(to, ",\"bytes\":", update->mark);
        put_member(to, ",\"resend\":", update->resend);
        put_text(to, ",\"sha256\":\"");
        put_text(to, hash);
        put_text(to, "\"");
    }
    if (update->code > 0) {
        put_member(to, ",\"code\":\"MR", update->code);
        put_text(to, "\"");
    }
    put_text(to, "}");
}

/* Reports the state, in a run: together with its end. */
static int say(const mrd_update *update) {
    state_text text;
    describe(update, &text);
    return mr_append("update", text.text, text.size);
}

/* Reports the state outside of a run, as soon as the journal has room. */
static bool said(mrd_update *update) {
    state_text text;
    describe(update, &text);
    if (update->unsaid) update->unsaid = mrd_append(update->device, "update", text.text, text.size, NULL) < 0;
    return !update->unsaid && mrd_sync(update->device) == 0;
}

/* The value of a member, or NULL. Versions have no quotes, so this finds no other text. */
static const char *member(const state_text *from, const char *name) {
    size_t size = strlen(name);
    for (uint32_t at = 0; at + size < from->size; at++) {
        if (memcmp(from->text + at, name, size) == 0) return from->text + at + size;
    }
    return NULL;
}

static uint32_t number_of(const state_text *from, const char *name) {
    const char *at = member(from, name), *end = from->text + from->size;
    uint32_t value = 0;
    for (; at && at < end && *at >= '0' && *at <= '9'; at++) value = value * 10 + (uint32_t)(*at - '0');
    return value;
}

/* Copies a text up to its quote; at most `capacity` bytes with the zero. */
static void text_of(const state_text *from, const char *name, char *to, size_t capacity) {
    const char *at = member(from, name), *end = from->text + from->size;
    for (; at && at < end && *at != '"' && capacity > 1; capacity--) *to++ = *at++;
    *to = 0;
}

static uint8_t digit_of(char digit) { return (uint8_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10); }

/* What the journal has of the last update. */
static bool recall(mrd_update *update) {
    state_text from;
    char text[2 * MRW_HASH + 1], running[MRD_VERSION_MAX + 1];
    int64_t newest = mrd_latest(update->device, "update");
    int64_t size = newest > 0 ? mrd_get(update->device, "update", (uint64_t)newest, from.text, sizeof from.text) : 0;
    if (size <= 0 || size > (int64_t)sizeof from.text) return false;
    from.size = (uint32_t)size;
    text_of(&from, "\"state\":\"", text, sizeof text);
    for (uint8_t state = 0; state < STATES; state++) {
        if (mrd_is_same(names[state], text, strlen(text))) update->state = state;
    }
    update->number = number_of(&from, "\"update\":");
    update->size = number_of(&from, "\"size\":");
    update->at = update->mark = number_of(&from, "\"bytes\":");
    update->resend = (uint16_t)number_of(&from, "\"resend\":");
    update->code = (uint16_t)number_of(&from, "\"code\":\"MR");
    text_of(&from, "\"version\":\"", update->version, sizeof update->version);
    text_of(&from, "\"sha256\":\"", text, sizeof text);
    for (unsigned i = 0; i < MRW_HASH && strlen(text) == 2 * MRW_HASH; i++) {
        update->sha256[i] = (uint8_t)(digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1]));
    }
    text_of(&from, "\"running\":\"", running, sizeof running);
    return mrd_is_same(update->running, running, strlen(running)) && number_of(&from, "\"slot\":") == update->slots->bytes &&
           number_of(&from, "\"piece\":") == piece_of(update);
}

/* ---- the slots ---- */

/* Whether a slot has the image. */
static bool has_image(const mrd_update *update, int slot) {
    mrw_sha256 hash;
    uint8_t sum[MRW_HASH], chunk[CHUNK];
    mrw_sha256_begin(&hash);
    for (uint32_t at = 0, size; at < update->size; at += size) {
        size = update->size - at < CHUNK ? update->size - at : CHUNK;
        if (update->slots->read(update->slots->context, slot, at, chunk, size) != 0) return false;
        mrw_sha256_add(&hash, chunk, size);
    }
    mrw_sha256_end(&hash, sum);
    return memcmp(sum, update->sha256, MRW_HASH) == 0;
}

/* Writes a part of the image. A block is erased when its first byte comes, also if it was erased before a reset. */
static bool write_slot(const mrd_update *update, uint32_t at, const uint8_t *bytes, uint32_t size) {
    const mrd_slots *slots = update->slots;
    uint8_t last[MRD_SLOT_UNIT_MAX];
    while (size > 0) {
        uint32_t part = slots->block_bytes - at % slots->block_bytes;
        if (part > size) part = size;
        uint32_t whole = part - part % slots->unit;
        if (at % slots->block_bytes == 0 && slots->erase(slots->context, at) != 0) return false;
        if (whole > 0 && slots->program(slots->context, at, bytes, whole) != 0) return false;
        if (whole < part) {
            memset(last, 0xFF, sizeof last);
            memcpy(last, bytes + whole, part - whole);
            if (slots->program(slots->context, at + whole, last, slots->unit) != 0) return false;
        }
        at += part;
        bytes += part;
        size -= part;
    }
    return true;
}

/* ---- records of an image ---- */

static int end(mrd_update *update, uint8_t state, unsigned code) {
    update->state = state;
    update->code = (uint16_t)code;
    return say(update);
}

/* number (4), size (4), SHA-256 (32), version */
static int take_begin(mrd_update *update, const uint8_t *data, size_t size) {
    /* The slot has an image that is about to be tried, or the one to go back to: the host asks again. */
    if (update->state == READY || update->state == TRIAL || size < BEGIN_HEAD) return 0;
    size_t version = size - BEGIN_HEAD < MRD_VERSION_MAX ? size - BEGIN_HEAD : MRD_VERSION_MAX;
    update->number = (uint32_t)mrd_load(data + 1, 4);
    update->size = (uint32_t)mrd_load(data + HEAD, 4);
    memcpy(update->sha256, data + PIECE_HEAD, MRW_HASH);
    for (size_t i = 0; i < version; i++) {
        char byte = (char)data[BEGIN_HEAD + i];
        update->version[i] = byte < ' ' || byte > '~' || byte == '"' || byte == '\\' ? '?' : byte;
    }
    update->version[version] = 0;
    update->at = update->mark = 0;
    update->resend = 0;
    update->asked = false;
    update->since = now_of(update);
    bool fits = update->size > 0 && update->size <= update->slots->bytes;
    return end(update, fits ? RECEIVING : REFUSED, fits ? 0 : MRD_UPDATE_TOO_LARGE);
}

/* Asks for what follows the last part that is recorded. */
static int ask_again(mrd_update *update) {
    update->at = update->mark;
    update->resend++;
    update->asked = true;
    return say(update);
}

/* Records the progress, if it is enough. */
static int progress(mrd_update *update) {
    uint32_t block = update->slots->block_bytes, step = update->size / MRD_MARKS, mark = update->at - update->at % block;
    if (mark - update->mark < (step > block ? step : block)) return 0;
    update->mark = mark;
    return say(update);
}

/* number (4), offset (4), bytes of the image */
static int take_piece(mrd_update *update, const mr_record *record) {
    const uint8_t *data = (const uint8_t *)record->data;
    if (record->size <= PIECE_HEAD || update->state != RECEIVING || mrd_load(data + 1, 4) != update->number) return 0;
    uint32_t offset = (uint32_t)mrd_load(data + HEAD, 4), size = (uint32_t)record->size - PIECE_HEAD;
    /* The attempt before may have been ended while it programmed. */
    bool fits = offset == update->at && record->attempt == 1 && size <= update->size - update->at;
    if (fits && size % update->slots->unit != 0) fits = offset + size == update->size;
    if (!fits) return update->asked ? 0 : ask_again(update);
    update->asked = false;
    update->since = now_of(update);
    if (!write_slot(update, offset, data + PIECE_HEAD, size)) return end(update, REFUSED, MRD_SLOT_FAILED);
    update->at += size;
    if (update->at < update->size) return progress(update);
    bool right = has_image(update, MRD_SLOT_OTHER);
    update->mark = update->size;
    return end(update, right ? READY : REFUSED, right ? 0 : MRD_UPDATE_DAMAGED);
}

int mrd_update_run(const mr_record *record) {
    mrd_update *update = current;
    const uint8_t *data = (const uint8_t *)record->data;
    if (!update || record->size < HEAD) return 0;
    /* The end of this run found no room, and it is made again: it has only to be reported. */
    if (record->seqno == update->seqno) return say(update);
    int result = 0;
    if (data[0] == BEGIN) result = take_begin(update, data, record->size);
    else if (data[0] == PIECE) result = take_piece(update, record);
    update->seqno = record->seqno;
    return result;
}

/* ---- trials ---- */

/* What became of the image that was received before this start. */
static bool judge(mrd_update *update) {
    const mrd_slots *slots = update->slots;
    if (has_image(update, MRD_SLOT_RUNNING)) {
        update->trying = slots->on_trial(slots->context);
        update->state = update->trying ? TRIAL : CONFIRMED;
        return !update->trying;
    }
    /* If it is only ready, power was lost before it was started. */
    if (update->state == READY) return false;
    update->state = REVERTED;
    update->code = MRD_UPDATE_REVERTED;
    return true;
}

static bool is_usable(const mrd_slots *slots, const char *version) {
    size_t size = strlen(version);
    for (size_t i = 0; i < size; i++) {
        if (version[i] < ' ' || version[i] > '~' || version[i] == '"' || version[i] == '\\') return false;
    }
    bool unit = slots->unit > 0 && slots->unit <= MRD_SLOT_UNIT_MAX && (slots->unit & (slots->unit - 1)) == 0;
    return size > 0 && size <= MRD_VERSION_MAX && unit && slots->block_bytes > 0 && slots->block_bytes % slots->unit == 0;
}

int mrd_update_begin(mrd_update *update, mrd *device, const mrd_slots *slots, const char *version) {
    memset(update, 0, sizeof *update);
    if (!is_usable(slots, version)) return MRD_SETTING_INVALID;
    if (mrd_find_log(device, "firmware") < 0 || mrd_find_log(device, "update") < 0) return MRD_LOG_NOT_FOUND;
    update->device = device;
    update->slots = slots;
    update->running = version;
    update->trial_ms = MRD_TRIAL_MS;
    update->quiet_ms = MRD_QUIET_MS;
    update->unsaid = !recall(update);
    update->since = now_of(update);
    if (update->state == RECEIVING) {
        update->resend++;
        update->asked = update->unsaid = true;
    } else if (update->state == READY || update->state == TRIAL) {
        update->unsaid = judge(update) || update->unsaid;
    }
    current = update;
    said(update);
    return 0;
}

/* The host has answered this firmware once. */
static void settle(mrd_update *update) {
    if (update->slots->confirm(update->slots->context) != 0) return; /* it is tried again until the trial ends */
    update->trying = false;
    update->state = CONFIRMED;
    update->unsaid = true;
    said(update);
}

static void leave(mrd_update *update) {
    /* The new firmware has to find in the journal that its image is complete: it would write over the slot to go back to. */
    if (mrd_sync(update->device) < 0) return;
    bool marked = update->slots->start(update->slots->context) == 0;
    update->state = marked ? TRIAL : REFUSED;
    update->code = marked ? 0 : MRD_SLOT_FAILED;
    update->leaving = marked;
    update->since = now_of(update);
    update->unsaid = true;
    said(update);
}

uint32_t mrd_update_step(mrd_update *update, const mrd_uplink *uplink) {
    const mrd_slots *slots = update->slots;
    uint32_t waited = now_of(update) - update->since;
    bool is_said = !update->unsaid || said(update);
    if (update->leaving) {
        bool known = is_said && uplink->attached && uplink->idle;
        if (known || waited >= MRD_RESET_WAIT_MS) slots->reset(slots->context);
        return POLL_MS;
    }
    if (update->trying && uplink->attached) settle(update);
    if (update->trying) {
        if (waited >= update->trial_ms) slots->reset(slots->context);
        return update->trial_ms - waited < RETRY_MS ? update->trial_ms - waited : RETRY_MS;
    }
    if (update->state == READY && is_said) {
        leave(update);
        return 0;
    }
    return update->unsaid ? RETRY_MS : MRD_IDLE_MS;
}

bool mrd_update_is_busy(const mrd_update *update) {
    bool waits = update->state == RECEIVING || update->state == READY;
    return update->state == TRIAL || (waits && now_of(update) - update->since < update->quiet_ms);
}
