/* messages.h - the messages of the wire protocol; wire.h includes it.
 * Generated from spec/messages.toml by `cargo run -p millrace-generate`. */
#ifndef MILLRACE_MESSAGES_H
#define MILLRACE_MESSAGES_H

enum {
    MRW_HELLO = 1, MRW_WELCOME = 2, MRW_FAILURE = 3, MRW_PING = 4, MRW_PONG = 5, MRW_APPEND = 16, MRW_APPENDED = 17,
    MRW_APPEND_MANY = 18, MRW_APPENDED_MANY = 19, MRW_GET = 20, MRW_RECORD = 21, MRW_RANGE = 22, MRW_RECORDS = 23,
    MRW_LATEST = 24, MRW_SEQNO = 25, MRW_TAIL = 26, MRW_CREDIT = 27, MRW_CANCEL = 28, MRW_ENDED = 29,
    MRW_CREATE_LOG = 30, MRW_DONE = 31, MRW_REMOVE_LOG = 32, MRW_SHOW = 34, MRW_DOCUMENT = 35, MRW_LINK = 48,
    MRW_LINKED = 49, MRW_DELIVER = 50, MRW_DELIVERED = 51, MRW_ATTACH = 52, MRW_ATTACHED = 53, MRW_ENTRIES = 54,
    MRW_ENTERED = 55, MRW_SET_LOG = 140, MRW_CANCEL_RUN = 141
};

typedef struct mrw_offer { mrw_bytes capability; mrw_bytes proof; } mrw_offer;
typedef struct mrw_hello {
    uint16_t oldest;
    uint16_t newest;
    mrw_bytes namespace_name;
    mrw_bytes client;
    mrw_array capabilities; /* mrw_offer */
} mrw_hello;
typedef struct mrw_welcome {
    uint16_t version;
    mrw_bytes host;
    mrw_bytes name;
    uint64_t namespace_id;
    uint32_t epoch;
    uint32_t frame_max_bytes;
    uint32_t record_max_bytes;
    uint32_t requests_max;
    uint8_t durability;
} mrw_welcome;
typedef struct mrw_failure { mrw_bytes code; mrw_bytes detail; mrw_optional_u32 retry_after_ms; } mrw_failure;
typedef struct mrw_fence { bool given; mrw_bytes name; uint64_t token; } mrw_fence;
typedef struct mrw_append {
    mrw_bytes log;
    mrw_bytes data;
    uint8_t durability;
    mrw_bytes function;
    mrw_bytes key;
    mrw_fence fence;
} mrw_append;
typedef struct mrw_appended { uint64_t seqno; mrw_id id; } mrw_appended;
typedef struct mrw_new_record { mrw_bytes log; mrw_bytes data; } mrw_new_record;
typedef struct mrw_append_many {
    mrw_array records; /* mrw_new_record */
    uint8_t durability;
    mrw_bytes key;
    mrw_fence fence;
} mrw_append_many;
typedef struct mrw_appended_many { mrw_array records; /* mrw_appended */ } mrw_appended_many;
typedef struct mrw_get { mrw_bytes log; uint64_t seqno; uint32_t wait_ms; uint8_t durability; } mrw_get;
typedef struct mrw_record {
    uint64_t seqno;
    mrw_id id;
    uint64_t hlc;
    mrw_id cause;
    mrw_bytes data;
    mrw_bytes headers;
} mrw_record;
typedef struct mrw_range { mrw_bytes log; uint64_t from; uint32_t count; uint8_t durability; } mrw_range;
typedef struct mrw_records { uint32_t incarnation; mrw_array records; /* mrw_record */ uint64_t next; } mrw_records;
typedef struct mrw_latest { mrw_bytes log; uint64_t above; uint32_t wait_ms; uint8_t durability; } mrw_latest;
typedef struct mrw_seqno { uint64_t seqno; } mrw_seqno;
typedef struct mrw_tail {
    mrw_bytes log;
    uint64_t from;
    uint32_t incarnation;
    uint32_t credit;
    uint8_t durability;
} mrw_tail;
typedef struct mrw_credit { uint32_t records; } mrw_credit;
typedef struct mrw_create_log { mrw_bytes log; uint64_t history; } mrw_create_log;
typedef struct mrw_remove_log { mrw_bytes log; } mrw_remove_log;
typedef struct mrw_show { mrw_bytes path; } mrw_show;
typedef struct mrw_document { mrw_bytes json; } mrw_document;
typedef struct mrw_path_step { uint64_t namespace_id; mrw_bytes log; } mrw_path_step;
typedef struct mrw_life { bool given; uint64_t number; uint64_t id; } mrw_life;
typedef struct mrw_link {
    mrw_bytes stream;
    uint64_t namespace_id;
    uint32_t epoch;
    mrw_bytes target;
    mrw_array path; /* mrw_path_step */
    mrw_life life;
    bool forked;
} mrw_link;
typedef struct mrw_linked { uint64_t number; uint64_t namespace_id; uint32_t epoch; mrw_life life; } mrw_linked;
typedef struct mrw_item {
    mrw_bytes log;
    mrw_bytes data;
    mrw_id id;
    uint64_t hlc;
    mrw_bytes function;
    bool is_void;
} mrw_item;
typedef struct mrw_deliver { uint64_t link; uint64_t first; bool gap; mrw_array items; /* mrw_item */ } mrw_deliver;
typedef struct mrw_refused {
    bool given;
    mrw_bytes code;
    mrw_bytes detail;
    mrw_optional_u32 retry_after_ms;
} mrw_refused;
typedef struct mrw_delivered { uint64_t number; mrw_refused refused; } mrw_delivered;
typedef struct mrw_attach {
    mrw_bytes device;
    uint64_t namespace_id;
    uint32_t epoch;
    uint64_t first;
    uint64_t next;
    uint64_t jumped_ms;
} mrw_attach;
typedef struct mrw_attached { uint64_t sequence; } mrw_attached;
typedef struct mrw_entries { uint32_t sector; uint32_t at; mrw_bytes bytes; } mrw_entries;
typedef struct mrw_entered { uint64_t sequence; } mrw_entered;
typedef struct mrw_set_log { mrw_bytes log; uint64_t history; } mrw_set_log;
typedef struct mrw_cancel_run { mrw_id run; } mrw_cancel_run;

/* The structs that are elements of arrays. */
#define MRW_ELEMENTS(with) with(offer) with(new_record) with(appended) with(record) with(path_step) with(item)

#endif
