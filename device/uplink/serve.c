/* serve.c - the requests that a host sends to a device that has attached: PING, PRESENT, and commands (LINK, DELIVER). Others are refused,
 * unless the firmware has something that answers them (millrace_remote.h). */
#include "serve.h"
#include "../src/internal.h"

enum { NAME_TEXT = MRD_NAME_MAX + 1, FUNCTION_NOT_FOUND = 3001, OUT_OF_ORDER = 6069, RIGHT_MISSING = 6132, RETRY_MS = 60000 };
enum { PRESENT = 7, KNOWN_S = 1577836800 /* a clock that is later was told the time at least once */ };

/* The text of a code, as "MR2101". */
static mrw_bytes code_text(unsigned code, char text[8]) {
    mrw_bytes bytes = {text, 6};
    text[0] = 'M';
    text[1] = 'R';
    for (unsigned i = 5; i >= 2; i--, code /= 10) text[i] = (char)('0' + code % 10);
    return bytes;
}

void mrd_uplink_fail(mrd_uplink *uplink, const mrw_frame *frame, int result) {
    mrw_failure failure;
    char text[8];
    memset(&failure, 0, sizeof failure);
    failure.code = code_text((unsigned)-result, text);
    failure.detail.at = text;
    mrd_uplink_say(uplink, MRW_FAILURE, frame->heading.request, &failure);
}

/* ---- rights ---- */

bool mrd_uplink_may(mrd_uplink *uplink, uint16_t right, uint8_t kind, const mrw_bytes *name, size_t bytes, uint64_t source) {
    mrd_action action;
    if (!uplink->guard) return true;
    memset(&action, 0, sizeof action);
    action.right = right;
    action.kind = kind;
    action.purpose = MRD_DELIVERY;
    action.way = MRD_BY_CHANNEL;
    action.name = name ? (const char *)name->at : "";
    action.name_size = name ? name->size : 0;
    action.bytes = (uint32_t)bytes;
    action.source = source;
    uint64_t now = mrd_thousandth(mrd_clock(uplink->device));
    action.now = now > KNOWN_S && now <= UINT32_MAX ? (uint32_t)now : 0;
    return uplink->guard->size > 0 && mrd_token_permits(uplink->guard->body, uplink->guard->size, &action);
}

static bool is_key(mrw_bytes key, const char *name) { return mrd_is_same(name, (const char *)key.at, key.size); }

/* A map with slot, capability and proof. There is one slot, 0. */
static int take_present(mrd_uplink *uplink, mrw_reader from) {
    mrw_bytes key, body = {NULL, 0}, proof = {NULL, 0};
    uint64_t slot = 0;
    uint32_t count;
    if (!mrw_read_map(&from, &count)) return MRW_FRAME_MALFORMED;
    for (; count > 0; count--) {
        bool taken = mrw_read_text(&from, &key);
        if (taken && is_key(key, "slot")) taken = mrw_read_uint(&from, &slot);
        else if (taken && is_key(key, "capability")) taken = mrw_read_bin(&from, &body);
        else if (taken && is_key(key, "proof")) taken = mrw_read_bin(&from, &proof);
        else if (taken) taken = mrw_skip(&from, MRW_DEPTH_MAX);
        if (!taken) return MRW_FRAME_MALFORMED;
    }
    if (from.at != from.end || slot != 0) return MRW_FRAME_MALFORMED;
    /* Without a channel, a proof would be bound to nothing. */
    if (!uplink->guard || !uplink->token) return MRD_CAPABILITY_REFUSED;
    return mrd_guard_present(uplink->guard, (const uint8_t *)body.at, body.size, (const uint8_t *)proof.at, proof.size,
                             uplink->channel.open.exporter);
}

static void answer_present(mrd_uplink *uplink, const mrw_frame *frame) {
    static const mrw_empty nothing = {0};
    int result = take_present(uplink, frame->message);
    if (result < 0) mrd_uplink_fail(uplink, frame, result);
    else mrd_uplink_say(uplink, MRW_DONE, frame->heading.request, &nothing);
}

/* ---- commands ---- */

static void answer_link(mrd_uplink *uplink, const mrw_frame *frame) {
    mrd *device = uplink->device;
    mrw_link link;
    mrw_linked linked;
    int result = mrw_decode(frame, MRW_LINK, &link);
    /* Its life tells a namespace from an older copy of itself, which would use numbers again. */
    if (result == 0 && (link.namespace_id == 0 || link.namespace_id >> 48 != 0 || !link.life.given)) result = MRW_FRAME_MALFORMED;
    if (result == 0 && !mrd_uplink_may(uplink, MRD_MAY_LINK, MRD_OF_NAMESPACE, NULL, 0, link.namespace_id)) result = -RIGHT_MISSING;
    if (result == 0 && link.forked) result = -6081;
    if (result == 0) result = mrd_sender_of(device, link.namespace_id, link.life.number, link.life.id);
    if (result < 0) {
        mrd_uplink_fail(uplink, frame, result);
        return;
    }
    const mrd_sender_ *sender = &device->sender[result];
    uplink->sender = (uint8_t)result;
    uplink->link = frame->heading.request;
    memset(&linked, 0, sizeof linked);
    linked.number = sender->number;
    linked.namespace_id = device->port->namespace_id;
    linked.epoch = device->epoch;
    linked.life.given = true;
    linked.life.number = sender->life;
    linked.life.id = sender->life_id;
    mrd_uplink_say(uplink, MRW_LINKED, frame->heading.request, &linked);
}

/* Returns 0, or a negative code. */
static int take_item(mrd_uplink *uplink, uint64_t number, const mrw_item *item) {
    mrd *device = uplink->device;
    char name[NAME_TEXT];
    int log = -1;
    uint64_t source = device->sender[uplink->sender].namespace_id;
    /* The capability may have expired, or been replaced by another one, since the LINK. */
    if (!mrd_uplink_may(uplink, MRD_MAY_LINK, MRD_OF_NAMESPACE, NULL, 0, source)) return -RIGHT_MISSING;
    if (!item->is_void) {
        if (item->function.size > 0) return -FUNCTION_NOT_FOUND;
        if (item->log.size > MRD_NAME_MAX) return MRD_LOG_NOT_FOUND;
        memcpy(name, item->log.at, item->log.size);
        name[item->log.size] = 0;
        log = mrd_find_log(device, name);
        if (log < 0) return MRD_LOG_NOT_FOUND;
        bool permitted = mrd_uplink_may(uplink, MRD_MAY_APPEND, MRD_OF_LOG, &item->log, item->data.size, source);
        if (!(device->logs[log].flags & MRD_COMMANDS) || !permitted) return -RIGHT_MISSING;
        if (item->data.size + MRD_SENDER_BYTES > mrd_record_max(device, (unsigned)log)) return MRD_RECORD_TOO_LONG;
    }
    return mrd_stage_command(device, uplink->sender, number, log, item->data.at, (uint32_t)item->data.size, item->id.bytes);
}

static void answer_deliver(mrd_uplink *uplink, const mrw_frame *frame) {
    mrd *device = uplink->device;
    const mrd_sender_ *sender = &device->sender[uplink->sender];
    mrw_deliver deliver;
    mrw_delivered delivered;
    mrw_item item;
    char text[8];
    int result = mrw_decode(frame, MRW_DELIVER, &deliver);
    if (result == 0 && (uplink->link == 0 || deliver.link != uplink->link)) result = MRW_MESSAGE_UNEXPECTED;
    if (result == 0 && deliver.first > sender->number + 1 && !deliver.gap) result = -OUT_OF_ORDER;
    if (result < 0) {
        mrd_uplink_fail(uplink, frame, result);
        return;
    }
    for (uint64_t number = deliver.first; result == 0 && mrw_take_item(&deliver.items, &item); number++) {
        if (number > sender->number) result = take_item(uplink, number, &item);
    }
    /* What is acknowledged is in flash. */
    if (mrd_sync(device) < 0) {
        mrd_uplink_fail(uplink, frame, MRD_FLUSH_FAILED);
        return;
    }
    memset(&delivered, 0, sizeof delivered);
    delivered.number = sender->number;
    if (result < 0) {
        delivered.refused.given = true;
        delivered.refused.code = code_text((unsigned)-result, text);
        delivered.refused.detail.at = text;
        delivered.refused.retry_after_ms.given = result == MRD_FULL;
        delivered.refused.retry_after_ms.value = RETRY_MS;
    }
    mrd_uplink_say(uplink, MRW_DELIVERED, frame->heading.request, &delivered);
}

void mrd_uplink_serve(mrd_uplink *uplink, const mrw_frame *frame) {
    static const mrw_empty nothing = {0};
    switch (frame->type) {
    case MRW_PING: mrd_uplink_say(uplink, MRW_PONG, frame->heading.request, &nothing); break;
    case PRESENT: answer_present(uplink, frame); break;
    case MRW_LINK: answer_link(uplink, frame); break;
    default:
        /* A request that nothing knows is no DELIVER, and is refused as that. */
        if (!uplink->remote || !uplink->remote(uplink, frame)) answer_deliver(uplink, frame);
        break;
    }
}
