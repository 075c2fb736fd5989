#include "shapes.h"

/* Keys are written in this order; spec/vectors/wire.json holds it. */
#define FIELD(of, member, key, kind, presence) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), NULL }
#define NESTED(of, member, key, kind, presence, shape) \
    { key, sizeof key - 1, kind, presence, (uint16_t)offsetof(of, member), shape }
#define SHAPE(name) { name##_fields, sizeof name##_fields / sizeof name##_fields[0], sizeof(mrw_##name) }
#define LEVEL(of) FIELD(of, durability, "durability", MRW_LEVEL, MRW_OPTIONAL)

static const mrw_field hello_fields[] = {
    FIELD(mrw_hello, oldest, "oldest", MRW_U16, MRW_REQUIRED),
    FIELD(mrw_hello, newest, "newest", MRW_U16, MRW_REQUIRED),
    FIELD(mrw_hello, name, "namespace", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_hello, client, "client", MRW_TEXT, MRW_REQUIRED),
};
static const mrw_field welcome_fields[] = {
    FIELD(mrw_welcome, version, "version", MRW_U16, MRW_REQUIRED),
    FIELD(mrw_welcome, host, "host", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_welcome, name, "name", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_welcome, namespace_id, "namespace", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_welcome, epoch, "epoch", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_welcome, frame_max_bytes, "frame_max_bytes", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_welcome, record_max_bytes, "record_max_bytes", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_welcome, requests_max, "requests_max", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_welcome, durability, "durability", MRW_LEVEL, MRW_REQUIRED),
};
static const mrw_field failure_fields[] = {
    FIELD(mrw_failure, code, "code", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_failure, detail, "detail", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_failure, retry, "retry_after_ms", MRW_RETRY, MRW_OPTIONAL),
};
static const mrw_field append_fields[] = {
    FIELD(mrw_append, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_append, data, "data", MRW_BIN, MRW_REQUIRED),
    LEVEL(mrw_append),
    FIELD(mrw_append, function, "function", MRW_TEXT, MRW_OPTIONAL),
    FIELD(mrw_append, key, "key", MRW_TEXT, MRW_OPTIONAL),
};
static const mrw_field appended_fields[] = {
    FIELD(mrw_appended, seqno, "seqno", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_appended, id, "id", MRW_ID, MRW_REQUIRED),
};
static const mrw_field new_record_fields[] = {
    FIELD(mrw_new_record, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_new_record, data, "data", MRW_BIN, MRW_REQUIRED),
};
static const mrw_field append_many_fields[] = {
    NESTED(mrw_append_many, records, "records", MRW_ARRAY, MRW_REQUIRED, &mrw_shape_new_record),
    LEVEL(mrw_append_many),
    FIELD(mrw_append_many, key, "key", MRW_TEXT, MRW_OPTIONAL),
};
static const mrw_field appended_many_fields[] = {
    NESTED(mrw_appended_many, records, "records", MRW_ARRAY, MRW_REQUIRED, &mrw_shape_appended),
};
static const mrw_field get_fields[] = {
    FIELD(mrw_get, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_get, seqno, "seqno", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_get, wait_ms, "wait_ms", MRW_U32, MRW_DEFAULTED),
    LEVEL(mrw_get),
};
static const mrw_field record_fields[] = {
    FIELD(mrw_record, seqno, "seqno", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_record, id, "id", MRW_ID, MRW_REQUIRED),
    FIELD(mrw_record, hlc, "hlc", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_record, cause, "cause", MRW_ID, MRW_SPARED),
    FIELD(mrw_record, data, "data", MRW_BIN, MRW_REQUIRED),
};
static const mrw_field range_fields[] = {
    FIELD(mrw_range, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_range, from, "from", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_range, count, "count", MRW_U32, MRW_REQUIRED),
    LEVEL(mrw_range),
};
static const mrw_field records_fields[] = {
    FIELD(mrw_records, incarnation, "incarnation", MRW_U32, MRW_REQUIRED),
    NESTED(mrw_records, records, "records", MRW_ARRAY, MRW_REQUIRED, &mrw_shape_record),
    FIELD(mrw_records, next, "next", MRW_U64, MRW_REQUIRED),
};
static const mrw_field latest_fields[] = {
    FIELD(mrw_latest, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_latest, above, "above", MRW_U64, MRW_DEFAULTED),
    FIELD(mrw_latest, wait_ms, "wait_ms", MRW_U32, MRW_DEFAULTED),
    LEVEL(mrw_latest),
};
static const mrw_field seqno_fields[] = {FIELD(mrw_seqno, seqno, "seqno", MRW_U64, MRW_REQUIRED)};
static const mrw_field tail_fields[] = {
    FIELD(mrw_tail, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_tail, from, "from", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_tail, incarnation, "incarnation", MRW_U32, MRW_DEFAULTED),
    FIELD(mrw_tail, credit, "credit", MRW_U32, MRW_REQUIRED),
    LEVEL(mrw_tail),
};
static const mrw_field credit_fields[] = {FIELD(mrw_credit, records, "records", MRW_U32, MRW_REQUIRED)};
static const mrw_field create_log_fields[] = {
    FIELD(mrw_create_log, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_create_log, history, "history", MRW_U64, MRW_REQUIRED),
};
static const mrw_field remove_log_fields[] = {FIELD(mrw_remove_log, log, "log", MRW_TEXT, MRW_REQUIRED)};
static const mrw_field set_log_fields[] = {
    FIELD(mrw_set_log, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_set_log, history, "history", MRW_U64, MRW_REQUIRED),
};
static const mrw_field cancel_run_fields[] = {FIELD(mrw_cancel_run, run, "run", MRW_ID, MRW_REQUIRED)};
static const mrw_field show_fields[] = {FIELD(mrw_show, path, "path", MRW_TEXT, MRW_REQUIRED)};
static const mrw_field document_fields[] = {FIELD(mrw_document, json, "json", MRW_TEXT, MRW_REQUIRED)};
static const mrw_field step_fields[] = {
    FIELD(mrw_step, namespace_id, "namespace", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_step, log, "log", MRW_TEXT, MRW_REQUIRED),
};
static const mrw_field life_fields[] = {
    FIELD(mrw_life, number, "number", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_life, id, "id", MRW_U64, MRW_REQUIRED),
};
static const mrw_shape life_shape = SHAPE(life);
static const mrw_field link_fields[] = {
    FIELD(mrw_link, stream, "stream", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_link, namespace_id, "namespace", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_link, epoch, "epoch", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_link, target, "target", MRW_TEXT, MRW_OPTIONAL),
    NESTED(mrw_link, path, "path", MRW_ARRAY, MRW_DEFAULTED, &mrw_shape_step),
    NESTED(mrw_link, life, "life", MRW_MAP, MRW_OPTIONAL, &life_shape),
    FIELD(mrw_link, forked, "forked", MRW_FLAG, MRW_SPARED),
};
static const mrw_field linked_fields[] = {
    FIELD(mrw_linked, number, "number", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_linked, namespace_id, "namespace", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_linked, epoch, "epoch", MRW_U32, MRW_REQUIRED),
    NESTED(mrw_linked, life, "life", MRW_MAP, MRW_OPTIONAL, &life_shape),
};
static const mrw_field item_fields[] = {
    FIELD(mrw_item, log, "log", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_item, data, "data", MRW_BIN, MRW_REQUIRED),
    FIELD(mrw_item, id, "id", MRW_ID, MRW_REQUIRED),
    FIELD(mrw_item, hlc, "hlc", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_item, function, "function", MRW_TEXT, MRW_OPTIONAL),
    FIELD(mrw_item, is_void, "void", MRW_FLAG, MRW_SPARED),
};
static const mrw_field deliver_fields[] = {
    FIELD(mrw_deliver, link, "link", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_deliver, first, "first", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_deliver, gap, "gap", MRW_FLAG, MRW_SPARED),
    NESTED(mrw_deliver, items, "items", MRW_ARRAY, MRW_REQUIRED, &mrw_shape_item),
};
static const mrw_field refused_fields[] = {
    FIELD(mrw_refused, code, "code", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_refused, detail, "detail", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_refused, retry, "retry_after_ms", MRW_RETRY, MRW_OPTIONAL),
};
static const mrw_shape refused_shape = SHAPE(refused);
static const mrw_field delivered_fields[] = {
    FIELD(mrw_delivered, number, "number", MRW_U64, MRW_REQUIRED),
    NESTED(mrw_delivered, refused, "refused", MRW_MAP, MRW_OPTIONAL, &refused_shape),
};

static const mrw_field attach_fields[] = {
    FIELD(mrw_attach, device, "device", MRW_TEXT, MRW_REQUIRED),
    FIELD(mrw_attach, namespace_id, "namespace", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_attach, epoch, "epoch", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_attach, first, "first", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_attach, next, "next", MRW_U64, MRW_REQUIRED),
    FIELD(mrw_attach, jumped_ms, "jumped_ms", MRW_U64, MRW_DEFAULTED),
};
static const mrw_field attached_fields[] = {FIELD(mrw_attached, sequence, "sequence", MRW_U64, MRW_REQUIRED)};
static const mrw_field entries_fields[] = {
    FIELD(mrw_entries, sector, "sector", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_entries, at, "at", MRW_U32, MRW_REQUIRED),
    FIELD(mrw_entries, bytes, "bytes", MRW_BIN, MRW_REQUIRED),
};
static const mrw_field entered_fields[] = {FIELD(mrw_entered, sequence, "sequence", MRW_U64, MRW_REQUIRED)};

const mrw_shape mrw_shape_appended = SHAPE(appended);
const mrw_shape mrw_shape_record = SHAPE(record);
const mrw_shape mrw_shape_new_record = SHAPE(new_record);
const mrw_shape mrw_shape_step = SHAPE(step);
const mrw_shape mrw_shape_item = SHAPE(item);

#define EMPTY { hello_fields, 0, sizeof(mrw_empty) }

/* By type; one without fields and without size does not exist. */
static const mrw_shape shapes[] = {
    [MRW_HELLO] = SHAPE(hello), [MRW_WELCOME] = SHAPE(welcome), [MRW_FAILURE] = SHAPE(failure),
    [MRW_PING] = EMPTY, [MRW_PONG] = EMPTY,
    [MRW_APPEND] = SHAPE(append), [MRW_APPENDED] = SHAPE(appended), [MRW_APPEND_MANY] = SHAPE(append_many),
    [MRW_APPENDED_MANY] = SHAPE(appended_many), [MRW_GET] = SHAPE(get), [MRW_RECORD] = SHAPE(record),
    [MRW_RANGE] = SHAPE(range), [MRW_RECORDS] = SHAPE(records), [MRW_LATEST] = SHAPE(latest),
    [MRW_SEQNO] = SHAPE(seqno), [MRW_TAIL] = SHAPE(tail), [MRW_CREDIT] = SHAPE(credit),
    [MRW_CANCEL] = EMPTY, [MRW_ENDED] = EMPTY,
    [MRW_CREATE_LOG] = SHAPE(create_log), [MRW_DONE] = EMPTY, [MRW_REMOVE_LOG] = SHAPE(remove_log),
    [MRW_SHOW] = SHAPE(show), [MRW_DOCUMENT] = SHAPE(document),
    [MRW_LINK] = SHAPE(link), [MRW_LINKED] = SHAPE(linked),
    [MRW_DELIVER] = SHAPE(deliver), [MRW_DELIVERED] = SHAPE(delivered),
    [MRW_ATTACH] = SHAPE(attach), [MRW_ATTACHED] = SHAPE(attached),
    [MRW_ENTRIES] = SHAPE(entries), [MRW_ENTERED] = SHAPE(entered),
};

/* From MRW_SET_LOG on: the types in between belong to other clients, and the table has no room for them. */
static const mrw_shape changes[] = {SHAPE(set_log), SHAPE(cancel_run)};

const mrw_shape *mrw_shape_of(uint8_t type) {
    if (type >= MRW_SET_LOG && type - MRW_SET_LOG < (int)(sizeof changes / sizeof changes[0])) {
        return &changes[type - MRW_SET_LOG];
    }
    return type < sizeof shapes / sizeof shapes[0] && shapes[type].size > 0 ? &shapes[type] : NULL;
}
