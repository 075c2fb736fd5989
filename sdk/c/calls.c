/* calls.c - the calls of a client: each goes to the namespace's files or over the connection. */
#include "client.h"
#include "local/local.h"

#include <stdio.h>
#include <string.h>

#define KEY_BYTES_MAX 128
/* Appends that may wait to be sent: fewer calls of the system, while the host has enough to do. */
#define UNSENT_MAX(window) ((window) / 4 + 1)

static const mrc_append_options append_defaults;
static const mrc_reading reading_defaults;

static mrw_bytes text_of(const char *text) {
    mrw_bytes bytes = {text, text == NULL ? 0 : strlen(text)};
    return bytes;
}

static int check_append(mrc_client *client, const void *data, size_t size, const mrc_append_options *how) {
    if (data == NULL && size > 0) return mrc_fail(client, MRC_C_CALL_INVALID, "a record without bytes");
    if (size > client->info.record_max_bytes) {
        return mrc_fail(client, MRC_RECORD_TOO_LONG, "a record of %lu bytes; the limit of the namespace is %lu",
                        (unsigned long)size, (unsigned long)client->info.record_max_bytes);
    }
    if ((unsigned)how->durability > MRC_DISK) return mrc_fail(client, MRC_C_CALL_INVALID, "no such durability");
    if (how->function != NULL && !mrc_is_name(how->function, strlen(how->function))) {
        return mrc_fail(client, MRC_NAME_INVALID, "'%.80s' is not a name", how->function);
    }
    if (how->key != NULL && (how->key[0] == 0 || strlen(how->key) > KEY_BYTES_MAX ||
                             !mrw_is_utf8((const uint8_t *)how->key, strlen(how->key)))) {
        return mrc_fail(client, MRC_KEY_INVALID, "an idempotency key of %lu bytes", (unsigned long)strlen(how->key));
    }
    return 0;
}

static int check_reading(mrc_client *client, const mrc_reading *how) {
    return (unsigned)how->durability > MRC_DISK ? mrc_fail(client, MRC_C_CALL_INVALID, "no such durability") : 0;
}

/* The message of an append, once all of it is checked. */
static int make_append(mrc_client *client, const char *log, const void *data, size_t size,
                       const mrc_append_options *how, mrw_append *append) {
    int status;
    memset(append, 0, sizeof *append);
    status = mrc_check_log(client, log, &append->log);
    if (status == 0) status = check_append(client, data, size, how);
    append->data.at = data;
    append->data.size = size;
    append->durability = (uint8_t)how->durability;
    append->function = text_of(how->function);
    append->key = text_of(how->key);
    return status;
}

static void copy_id(mrc_id *to, const mrw_id *from) { memcpy(to->bytes, from->bytes, sizeof to->bytes); }

static void copy_record(mrc_record *to, const mrw_record *from) {
    to->seqno = from->seqno;
    to->hlc = from->hlc;
    copy_id(&to->id, &from->id);
    copy_id(&to->cause, &from->cause);
    to->data = from->data.at;
    to->size = from->data.size;
}

/* ------------------------------------------------------------------------------------------------------ appending */

int mrc_append(mrc_client *client, const char *log, const void *data, size_t size, const mrc_append_options *how,
               mrc_receipt *receipt) {
    mrw_append append;
    mrw_appended appended;
    int status = mrc_check_free(client);
    if (how == NULL) how = &append_defaults;
    if (status == 0) status = make_append(client, log, data, size, how, &append);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_append(client->local, log, data, size, how, receipt, &client->error));
    status = mrc_remote_call(client, MRW_APPEND, &append, &how->cause, 0, MRW_APPENDED, &appended);
    if (status < 0 || receipt == NULL) return status;
    receipt->seqno = appended.seqno;
    copy_id(&receipt->id, &appended.id);
    return 0;
}

int mrc_append_many(mrc_client *client, const mrc_new_record *records, size_t count, const mrc_append_options *how,
                    mrc_receipt *receipts) {
    mrw_new_record items[MRC_BATCH_MAX];
    mrw_append_many many;
    mrw_appended_many appended;
    mrw_appended one;
    size_t i;
    int status = mrc_check_free(client);
    if (how == NULL) how = &append_defaults;
    if (status < 0) return status;
    if (count == 0 || count > MRC_BATCH_MAX || records == NULL) {
        return mrc_fail(client, MRC_C_CALL_INVALID, "%lu records in one batch; it must have 1 to %u",
                        (unsigned long)count, MRC_BATCH_MAX);
    }
    if (how->function != NULL) return mrc_fail(client, MRC_C_CALL_INVALID, "a batch cannot name a function");
    for (i = 0; i < count; i++) {
        mrw_append append;
        status = make_append(client, records[i].log, records[i].data, records[i].size, how, &append);
        if (status < 0) return status;
        items[i].log = append.log;
        items[i].data = append.data;
    }
    MRC_LOCALLY(client, mrl_append_many(client->local, records, count, how, receipts, &client->error));
    memset(&many, 0, sizeof many);
    many.records.count = (uint32_t)count;
    many.records.items = items;
    many.durability = (uint8_t)how->durability;
    many.key = text_of(how->key);
    status = mrc_remote_call(client, MRW_APPEND_MANY, &many, &how->cause, 0, MRW_APPENDED_MANY, &appended);
    if (status < 0) return status;
    if (appended.records.count != count) {
        return mrc_remote_lost(client, MRC_ANSWER_UNASKED, "answers for other records");
    }
    for (i = 0; receipts != NULL && mrw_take_appended(&appended.records, &one); i++) {
        receipts[i].seqno = one.seqno;
        copy_id(&receipts[i].id, &one.id);
    }
    return 0;
}

int64_t mrc_append_nowait(mrc_client *client, const char *log, const void *data, size_t size,
                          const mrc_append_options *how) {
    mrw_append append;
    uint64_t request, *slot;
    int status = mrc_check_free(client);
    if (how == NULL) how = &append_defaults;
    if (status == 0) status = make_append(client, log, data, size, how, &append);
    if (status < 0) return status;
#ifdef MILLRACE_LOCAL
    if (client->local != NULL) {
        int64_t ticket;
        client->in_callback = true;
        ticket = mrl_append_nowait(client->local, log, data, size, how, client->window, client->on_appended,
                                   client->context, &client->error);
        client->in_callback = false;
        return ticket;
    }
#endif
    for (;;) {
        request = client->next_request; /* waiting may take numbers for itself */
        slot = &client->pending[request % client->window];
        if (*slot == 0) break;
        status = mrc_remote_settle(client, slot);
        if (status < 0) return status;
    }
    status = mrc_remote_send(client, MRW_APPEND, request, &how->cause, &append);
    if (status < 0) return status;
    client->next_request++;
    *slot = request;
    client->pending_count++;
    client->unsent_appends++;
    if (client->unsent_appends >= UNSENT_MAX(client->window)) {
        /* If the connection is lost, every append in flight is reported as failed, this one included. */
        mrc_remote_flush(client);
    }
    return (int64_t)request;
}

int mrc_drain(mrc_client *client) {
    mrc_error first;
    int status = mrc_check_free(client);
    if (status < 0) return status;
#ifdef MILLRACE_LOCAL
    if (client->local != NULL) {
        client->in_callback = true;
        status = mrl_drain(client->local, client->on_appended, client->context, &client->error);
        client->in_callback = false;
        return status;
    }
#endif
    status = mrc_remote_settle(client, NULL);
    first = client->first_failure;
    client->first_failure.number = 0;
    if (first.number == 0) return status;
    client->error = first;
    return first.number;
}

void mrc_on_appended(mrc_client *client, mrc_appended *call, void *context) {
    client->on_appended = call;
    client->context = context;
}

/* -------------------------------------------------------------------------------------------------------- reading */

int mrc_get(mrc_client *client, const char *log, uint64_t seqno, const mrc_reading *how, mrc_record *record) {
    mrw_get get;
    mrw_record answer;
    int status = mrc_check_free(client);
    if (how == NULL) how = &reading_defaults;
    if (status == 0) status = mrc_check_log(client, log, &get.log);
    if (status == 0) status = check_reading(client, how);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_get(client->local, log, seqno, how, record, &client->error));
    get.seqno = seqno;
    get.wait_ms = how->wait_ms;
    get.durability = (uint8_t)how->durability;
    status = mrc_remote_call(client, MRW_GET, &get, NULL, how->wait_ms, MRW_RECORD, &answer);
    if (status == 0) copy_record(record, &answer);
    return status;
}

int mrc_range(mrc_client *client, const char *log, uint64_t from, uint32_t count, const mrc_reading *how,
              mrc_records *records) {
    mrw_range range;
    mrw_records answer;
    int status = mrc_check_free(client);
    if (how == NULL) how = &reading_defaults;
    if (status == 0) status = mrc_check_log(client, log, &range.log);
    if (status == 0) status = check_reading(client, how);
    if (status < 0) return status;
    memset(records, 0, sizeof *records);
    MRC_LOCALLY(client, mrl_range(client->local, log, from, count, how, records, &client->error));
    range.from = from;
    range.durability = (uint8_t)how->durability;
    /* The host fills a frame; a client with less memory asks for fewer until they fit. */
    for (range.count = count;; range.count /= 2) {
        status = mrc_remote_call(client, MRW_RANGE, &range, NULL, 0, MRW_RECORDS, &answer);
        if (status != MRC_C_ANSWER_TOO_LONG || range.count <= 1) break;
    }
    if (status < 0) return status;
    if (answer.records.count > count) {
        return mrc_remote_lost(client, MRC_ANSWER_UNASKED, "more records than were requested");
    }
    records->incarnation = answer.incarnation;
    records->next = answer.next;
    records->count = answer.records.count;
    records->packed = answer.records.packed.at;
    records->packed_size = answer.records.packed.size;
    return 0;
}

bool mrc_next(mrc_records *records, mrc_record *record) {
    mrw_array array;
    mrw_record taken;
    if (records->count == 0) return false;
    if (records->list != NULL) {
        *record = *records->list++;
        records->count--;
        return true;
    }
    memset(&array, 0, sizeof array);
    array.count = records->count;
    array.packed.at = records->packed;
    array.packed.size = records->packed_size;
    if (!mrw_take_record(&array, &taken)) return false; /* never: all of them were read before */
    records->count = array.count;
    records->packed = array.packed.at;
    records->packed_size = array.packed.size;
    copy_record(record, &taken);
    return true;
}

int mrc_latest(mrc_client *client, const char *log, uint64_t above, const mrc_reading *how, uint64_t *seqno) {
    mrw_latest latest;
    mrw_seqno answer;
    int status = mrc_check_free(client);
    if (how == NULL) how = &reading_defaults;
    if (status == 0) status = mrc_check_log(client, log, &latest.log);
    if (status == 0) status = check_reading(client, how);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_latest(client->local, log, above, how, seqno, &client->error));
    latest.above = above;
    latest.wait_ms = how->wait_ms;
    latest.durability = (uint8_t)how->durability;
    status = mrc_remote_call(client, MRW_LATEST, &latest, NULL, how->wait_ms, MRW_SEQNO, &answer);
    if (status == 0) *seqno = answer.seqno;
    return status;
}

/* ------------------------------------------------------------------------------------------------------------ logs */

int mrc_create_log(mrc_client *client, const char *log, uint64_t history) {
    mrw_create_log create;
    mrw_empty done;
    int status = mrc_check_free(client);
    if (status == 0) status = mrc_check_log(client, log, &create.log);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_create_log(client->local, log, history, &client->error));
    create.history = history;
    return mrc_remote_call(client, MRW_CREATE_LOG, &create, NULL, 0, MRW_DONE, &done);
}

int mrc_remove_log(mrc_client *client, const char *log) {
    mrw_remove_log remove;
    mrw_empty done;
    int status = mrc_check_free(client);
    if (status == 0) status = mrc_check_log(client, log, &remove.log);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_remove_log(client->local, log, &client->error));
    return mrc_remote_call(client, MRW_REMOVE_LOG, &remove, NULL, 0, MRW_DONE, &done);
}

int mrc_set_history(mrc_client *client, const char *log, uint64_t history) {
    mrw_set_log set;
    mrw_empty done;
    int status = mrc_check_free(client);
    if (status == 0) status = mrc_check_log(client, log, &set.log);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_set_history(client->local, log, history, &client->error));
    set.history = history;
    return mrc_remote_call(client, MRW_SET_LOG, &set, NULL, 0, MRW_DONE, &done);
}

/* ------------------------------------------------------------------------------------------------------------ runs */

int mrc_cancel_run(mrc_client *client, const mrc_id *run) {
    mrw_cancel_run cancel;
    mrw_empty done;
    int status = mrc_check_free(client);
    if (status < 0) return status;
    if (run == NULL) return mrc_fail(client, MRC_C_CALL_INVALID, "no run");
    MRC_LOCALLY(client, mrl_cancel_run(client->local, run, &client->error));
    memcpy(cancel.run.bytes, run->bytes, sizeof cancel.run.bytes);
    return mrc_remote_call(client, MRW_CANCEL_RUN, &cancel, NULL, 0, MRW_DONE, &done);
}

int mrc_show(mrc_client *client, const char *path, const char **json, size_t *size) {
    mrw_show show;
    mrw_document document;
    int status = mrc_check_free(client);
    if (status < 0) return status;
    if (path == NULL || !mrw_is_utf8((const uint8_t *)path, strlen(path))) {
        return mrc_fail(client, MRC_C_CALL_INVALID, "a path that is not UTF-8");
    }
    if (client->local != NULL && client->fd < 0) status = mrc_ask_host(client);
    if (status < 0) return status;
    show.path = text_of(path);
    status = mrc_remote_call(client, MRW_SHOW, &show, NULL, 0, MRW_DOCUMENT, &document);
    if (status < 0) return status;
    /* To the front of the buffer, where its frame's head was at least: so there is room for the zero behind it. */
    memmove(client->in, document.json.at, document.json.size);
    client->in[document.json.size] = 0;
    *json = (const char *)client->in;
    *size = document.json.size;
    return 0;
}
