/* tail.c - following a log. The host sends records while there is credit; each batch that was taken is credited
 * anew. */
#include "client.h"
#include "local/local.h"

#include <string.h>

/* How many records may be under way to a client with room for the longest frame. One with less room takes one at a
 * time: it could not tell the host how many bytes it has. */
#define CREDIT 1024u

static const mrc_reading reading_defaults;

int mrc_tail(mrc_client *client, const char *log, mrc_cursor from, const mrc_reading *how) {
    mrc_following *tail = &client->tail;
    mrw_tail message;
    mrc_reading at_once = {0, MRC_AS_NAMESPACE};
    uint64_t latest = 0;
    int status = mrc_check_free(client);
    if (how == NULL) how = &reading_defaults;
    at_once.durability = how->durability;
    if (status == 0) status = mrc_check_log(client, log, &message.log);
    if (status < 0) return status;
    if ((unsigned)how->durability > MRC_DISK) return mrc_fail(client, MRC_C_CALL_INVALID, "no such durability");
    memset(tail, 0, sizeof *tail);
    memcpy(tail->log, log, message.log.size + 1);
    tail->cursor = from;
    tail->durability = how->durability;
#ifdef MILLRACE_LOCAL
    if (client->local != NULL) {
        status = mrl_tail(client->local, log, &tail->cursor, &client->error);
        tail->open = status == 0;
        return status;
    }
#endif
    /* Asked first, a log that is not there is refused here and not by the first record, and a cursor that means "from
     * now on" becomes exact at once. */
    status = mrc_latest(client, log, 0, &at_once, &latest);
    if (status < 0) return status;
    if (from.from == 0) tail->cursor.from = latest + 1;
    tail->credit = client->in_capacity >= MRW_FRAME_MAX + MRW_LENGTH_BYTES ? CREDIT : 1;
    tail->request = client->next_request++;
    message.from = tail->cursor.from;
    message.incarnation = tail->cursor.incarnation;
    message.credit = tail->credit;
    message.durability = (uint8_t)how->durability;
    status = mrc_remote_send(client, MRW_TAIL, tail->request, NULL, &message);
    client->silent_ms = 0;
    if (status == 0) status = mrc_remote_flush(client);
    tail->open = status == 0;
    return status;
}

static bool take(mrc_following *tail, mrc_record *record) {
    if (!mrc_next(&tail->batch, record)) return false;
    tail->taken++;
    tail->cursor.incarnation = tail->batch.incarnation;
    tail->cursor.from = tail->batch.count > 0 ? record->seqno + 1 : tail->batch.next;
    return true;
}

static int give_credit(mrc_client *client) {
    mrc_following *tail = &client->tail;
    mrw_credit credit;
    int status;
    if (tail->taken == 0 || tail->taken < tail->credit / 2) return 0;
    credit.records = tail->taken;
    status = mrc_remote_send(client, MRW_CREDIT, tail->request, NULL, &credit);
    if (status == 0) status = mrc_remote_flush(client);
    tail->taken = 0;
    return status;
}

/* Receives the next batch, which may be empty. 1, 0 at the deadline, or a refusal. */
static int receive_batch(mrc_client *client, uint64_t deadline_ms) {
    mrc_following *tail = &client->tail;
    mrw_frame frame;
    mrw_records records;
    int status = mrc_remote_answer(client, tail->request, deadline_ms, &frame);
    if (status <= 0) return status;
    status = mrw_decode(&frame, MRW_RECORDS, &records);
    if (status < 0) return mrc_remote_lost(client, status, "a tail sends something else");
    if (records.records.count > tail->credit - tail->taken) {
        return mrc_remote_lost(client, MRC_ANSWER_UNASKED, "a tail sends more than its credit");
    }
    tail->batch.incarnation = records.incarnation;
    tail->batch.next = records.next;
    tail->batch.count = records.records.count;
    tail->batch.packed = records.records.packed.at;
    tail->batch.packed_size = records.records.packed.size;
    if (tail->batch.count == 0) {
        tail->cursor.incarnation = records.incarnation;
        tail->cursor.from = records.next;
    }
    return 1;
}

int mrc_tail_next(mrc_client *client, uint32_t wait_ms, mrc_record *record) {
    mrc_following *tail = &client->tail;
    uint64_t deadline_ms;
    int status;
    if (client->in_callback) return mrc_check_free(client);
    if (!tail->open) return mrc_fail(client, MRC_C_CALL_INVALID, "no log is followed");
    if (take(tail, record)) return 1;
#ifdef MILLRACE_LOCAL
    if (client->local != NULL) {
        status = mrl_tail_next(client->local, tail->log, &tail->cursor, tail->durability, wait_ms, record,
                               &client->error);
        if (status < 0) tail->open = false;
        return status;
    }
#endif
    deadline_ms = mrc_now_ms() + wait_ms;
    status = give_credit(client);
    while (status == 0) {
        status = receive_batch(client, deadline_ms);
        if (status == 0) return 0;
        if (status == 1 && take(tail, record)) return 1;
        if (status == 1) status = mrc_now_ms() >= deadline_ms ? 2 : 0;
    }
    if (status > 0) return 0;
    if (status == MRC_C_ANSWER_TOO_LONG) {
        mrc_error why = client->error;
        mrc_tail_end(client);
        client->error = why;
    }
    tail->open = false;
    return status;
}

mrc_cursor mrc_tail_cursor(const mrc_client *client) { return client->tail.cursor; }

int mrc_tail_end(mrc_client *client) {
    static const mrw_empty nothing;
    uint64_t deadline_ms = mrc_now_ms() + client->request_timeout_ms;
    mrc_following *tail = &client->tail;
    mrw_frame frame;
    int status;
    if (client->in_callback) return mrc_check_free(client);
    if (!tail->open) return 0;
    tail->open = false;
    tail->batch.count = 0;
    if (client->local != NULL) return 0;
    status = mrc_remote_send(client, MRW_CANCEL, tail->request, NULL, &nothing);
    if (status == 0) status = mrc_remote_flush(client);
    /* What was under way comes first. The tail may also have ended by itself, with a failure: that will do. */
    while (status == 0) {
        status = mrc_remote_answer(client, tail->request, deadline_ms, &frame);
        if (status == MRC_C_ANSWER_TOO_LONG) status = 1;
        else if (status == 1 && frame.type == MRW_ENDED) return 0;
        else if (status < 0) return client->fd >= 0 ? 0 : status;
        if (status == 0) return mrc_remote_lost(client, MRC_REQUEST_TIMEOUT, "the host does not end a tail");
        status = 0;
    }
    return status;
}
