/* api.c - the calls at their edges: `api PLACE`, whose namespace has no logs and takes records of 64 KiB and more. */
#include "millrace_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))

static const char *place;
static mrc_client *current;

static void fail(int line, const char *what) {
    printf("line %d: %s\n", line, what);
    if (current != NULL) printf("  %s: %s\n", mrc_error_of(current)->code, mrc_error_of(current)->detail);
    exit(1);
}

static mrc_client *open_with(const mrc_options *options) {
    mrc_client *client;
    mrc_error error;
    memset(&error, 0, sizeof error);
    if (mrc_open(&client, place, options, &error) < 0) {
        printf("%s: %s\n", error.code, error.detail);
        exit(1);
    }
    current = client;
    return client;
}

static void check_memory(void) {
    static unsigned char memory[1 << 17];
    mrc_options options;
    mrc_client *client;
    mrc_error error;
    memset(&options, 0, sizeof options);
    options.receive_bytes = 1; /* the least there is */
    options.send_bytes = 1;
    options.memory = memory + 1; /* of no alignment */
    options.memory_bytes = mrc_memory_bytes(&options) - 1;
    CHECK(options.memory_bytes < 20000);
    CHECK(mrc_open(&client, place, &options, &error) == MRC_C_MEMORY && client == NULL && error.number == MRC_C_MEMORY);
    CHECK(mrc_open(&client, NULL, NULL, NULL) == MRC_C_PLACE_INVALID && client == NULL);
    options.memory_bytes++;
    client = open_with(&options);
    CHECK(mrc_append(client, "raw", "tight", 5, NULL, NULL) == 0);
    mrc_close(client);
    mrc_close(NULL);
}

static void check_refusals(mrc_client *client) {
    static const mrc_new_record one = {"raw", "x", 1};
    mrc_append_options how;
    mrc_reading reading = {0, (mrc_durability)7};
    mrc_record record;
    uint64_t seqno;
    char *huge = calloc(1, mrc_info_of(client)->record_max_bytes + 1);
    memset(&how, 0, sizeof how);
    CHECK(mrc_append_many(client, &one, 0, NULL, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_append_many(client, &one, MRC_BATCH_MAX + 1, NULL, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_append_many(client, NULL, 1, NULL, NULL) == MRC_C_CALL_INVALID);
    how.function = "f";
    CHECK(mrc_append_many(client, &one, 1, &how, NULL) == MRC_C_CALL_INVALID);
    how.function = "a/b";
    CHECK(mrc_append(client, "raw", "x", 1, &how, NULL) == MRC_NAME_INVALID);
    how.function = NULL;
    how.durability = (mrc_durability)3;
    CHECK(mrc_append(client, "raw", "x", 1, &how, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_get(client, "raw", 1, &reading, &record) == MRC_C_CALL_INVALID);
    CHECK(mrc_latest(client, "raw", 0, &reading, &seqno) == MRC_C_CALL_INVALID);
    CHECK(mrc_append(client, "raw", NULL, 1, NULL, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_append(client, NULL, "x", 1, NULL, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_append(client, "\xff", "x", 1, NULL, NULL) == MRC_LOG_NAME_INVALID);
    CHECK(huge != NULL);
    CHECK(mrc_append(client, "raw", huge, mrc_info_of(client)->record_max_bytes + 1, NULL, NULL) == MRC_RECORD_TOO_LONG);
    CHECK(mrc_tail_next(client, 0, &record) == MRC_C_CALL_INVALID);
    CHECK(strcmp(mrc_error_of(client)->code, "MR6115") == 0 && mrc_cause("MR6115") != NULL && mrc_remedy("MR6115") != NULL);
    CHECK(mrc_cause("MR0000") == NULL && mrc_remedy("") == NULL && mrc_cause(NULL) == NULL && mrc_cause("MR21010") == NULL);
    free(huge);
}

/* A long record leaves in parts through a send buffer of 1 KiB, and fits the default memory when it comes back. */
static void check_long_records(void) {
    mrc_options options;
    mrc_client *client;
    mrc_receipt receipt;
    mrc_record record;
    size_t size, i;
    unsigned char *data;
    memset(&options, 0, sizeof options);
    options.send_bytes = 1024;
    client = open_with(&options);
    size = mrc_info_of(client)->record_max_bytes;
    data = malloc(size);
    CHECK(data != NULL);
    for (i = 0; i < size; i++) data[i] = (unsigned char)(i * 7 + i / 251);
    CHECK(mrc_append(client, "raw", data, size, NULL, &receipt) == 0);
    CHECK(mrc_get(client, "raw", receipt.seqno, NULL, &record) == 0);
    CHECK(record.size == size && memcmp(record.data, data, size) == 0);
    CHECK(memcmp(&record.id, &receipt.id, sizeof record.id) == 0);
    free(data);
    mrc_close(client);
}

/* With little memory a range takes several calls, and loses nothing. */
static void check_small_memory(void) {
    static char data[600];
    mrc_options options;
    mrc_client *client;
    mrc_records records;
    mrc_record record;
    uint64_t next = 1;
    int calls, i;
    memset(&options, 0, sizeof options);
    options.receive_bytes = 4096;
    client = open_with(&options);
    CHECK(mrc_create_log(client, "small", 1000) == 0);
    for (i = 0; i < 20; i++) CHECK(mrc_append(client, "small", data, sizeof data, NULL, NULL) == 0);
    for (calls = 0; next <= 20; calls++) {
        CHECK(mrc_range(client, "small", next, 100, NULL, &records) == 0 && records.count > 0);
        for (; mrc_next(&records, &record); next++) CHECK(record.seqno == next && record.size == sizeof data);
        CHECK(records.next == next);
    }
    CHECK(mrc_info_of(client)->local ? calls == 1 : calls > 1);
    mrc_close(client);
}

static void call_back(void *context, int64_t ticket, int status, const mrc_receipt *receipt) {
    mrc_record record;
    long *told = context;
    CHECK(status == 0 && receipt != NULL && ticket > 0);
    ++*told;
    CHECK(mrc_append(current, "raw", "x", 1, NULL, NULL) == MRC_C_CLIENT_BUSY);
    CHECK(mrc_append_nowait(current, "raw", "x", 1, NULL) == MRC_C_CLIENT_BUSY);
    CHECK(mrc_drain(current) == MRC_C_CLIENT_BUSY && mrc_reconnect(current) == MRC_C_CLIENT_BUSY);
    CHECK(mrc_tail_next(current, 0, &record) == MRC_C_CLIENT_BUSY && mrc_tail_end(current) == MRC_C_CLIENT_BUSY);
    mrc_close(current);
}

static void check_nowait(mrc_client *client) {
    uint64_t before, after;
    long told = 0, i;
    CHECK(mrc_latest(client, "raw", 0, NULL, &before) == 0);
    mrc_on_appended(client, call_back, &told);
    for (i = 0; i < 1000; i++) {
        CHECK(mrc_append_nowait(client, "raw", "x", 1, NULL) > 0);
        /* Other calls may come in between. */
        if (i % 100 == 0) CHECK(mrc_latest(client, "raw", 0, NULL, &after) == 0);
    }
    CHECK(mrc_drain(client) == 0 && told == 1000);
    mrc_on_appended(client, NULL, NULL);
    CHECK(mrc_latest(client, "raw", 0, NULL, &after) == 0 && after == before + 1000);
    CHECK(mrc_append_nowait(client, "none", "x", 1, NULL) > 0);
    CHECK(mrc_drain(client) == MRC_LOG_NOT_FOUND && mrc_error_of(client)->number == MRC_LOG_NOT_FOUND);
    CHECK(mrc_drain(client) == 0);
}

static void check_tail(mrc_client *client) {
    static const mrc_cursor from_now_on = {0, 0};
    mrc_client *other = open_with(NULL);
    mrc_receipt receipt;
    mrc_record record;
    mrc_cursor cursor;
    int i;
    current = client;
    CHECK(mrc_tail(client, "raw", from_now_on, NULL) == 0);
    cursor = mrc_tail_cursor(client);
    CHECK(cursor.from > 0);
    CHECK(mrc_tail_next(client, 0, &record) == 0);
    CHECK(mrc_append(client, "raw", "x", 1, NULL, NULL) == MRC_C_CLIENT_BUSY);
    CHECK(mrc_tail(client, "raw", from_now_on, NULL) == MRC_C_CLIENT_BUSY);
    for (i = 0; i < 3; i++) CHECK(mrc_append(other, "raw", "y", 1, NULL, &receipt) == 0);
    CHECK(mrc_tail_next(client, 20000, &record) == 1 && record.seqno == receipt.seqno - 2);
    cursor = mrc_tail_cursor(client);
    CHECK(cursor.from == receipt.seqno - 1 && cursor.incarnation != 0);
    CHECK(mrc_tail_end(client) == 0 && mrc_tail_end(client) == 0);
    /* Over another connection it goes on where it stood. */
    CHECK(mrc_reconnect(client) == 0 && mrc_connected(client));
    CHECK(mrc_tail(client, "raw", cursor, NULL) == 0);
    CHECK(mrc_tail_next(client, 20000, &record) == 1 && record.seqno == receipt.seqno - 1);
    CHECK(mrc_tail_next(client, 20000, &record) == 1 && record.seqno == receipt.seqno);
    CHECK(mrc_tail_next(client, 50, &record) == 0);
    CHECK(mrc_tail_end(client) == 0);
    cursor.incarnation++;
    CHECK(mrc_tail(client, "raw", cursor, NULL) == MRC_CURSOR_INCARNATION ||
          mrc_tail_next(client, 20000, &record) == MRC_CURSOR_INCARNATION);
    CHECK(mrc_append(client, "raw", "z", 1, NULL, NULL) == 0);
    mrc_close(other);
}

static void check_ids(void) {
    static const char *const wrong[] = {"", "-", "1-2", "1-2-3-4", "0-1-1", "1-1000000-1", "1--1", "+1-1-1", "1000000000000-0-1",
                                        "1-1-100000000000000", "1-1-g", "1-1-1 "};
    char text[MRC_ID_TEXT_MAX + 1];
    mrc_id id;
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) CHECK(mrc_id_parse(wrong[i], &id) == MRC_EVENT_ID_INVALID);
    CHECK(mrc_id_parse("FFFFFFFFFFFF-ffffff-ffffffffffffff", &id) == 0);
    for (i = 0; i < sizeof id.bytes; i++) CHECK(id.bytes[i] == 0xff);
    CHECK(mrc_id_parse("1-0-2", &id) == 0 && id.bytes[0] == 2 && id.bytes[10] == 1);
    mrc_id_text(&id, text);
    CHECK(strcmp(text, "000000000001-0-2") == 0);
    memset(&id, 0, sizeof id);
    mrc_id_text(&id, text);
    CHECK(strcmp(text, "-") == 0);
}

static void check_stat(mrc_client *client) {
    mrc_log_stat stat;
    CHECK(mrc_create_log(client, "a/b-c_d.e", 5) == 0);
    CHECK(mrc_stat_log(client, "a/b-c_d.e", &stat) == 0 && stat.history == 5 && stat.earliest == 0 && stat.latest == 0);
    CHECK(mrc_append(client, "a/b-c_d.e", "x", 1, NULL, NULL) == 0);
    CHECK(mrc_stat_log(client, "a/b-c_d.e", &stat) == 0 && stat.earliest == 1 && stat.latest == 1);
    CHECK(mrc_set_history(client, "a/b-c_d.e", 9) == 0);
    CHECK(mrc_stat_log(client, "a/b-c_d.e", &stat) == 0 && stat.history == 9 && stat.latest == 1);
    CHECK(mrc_cancel_run(client, NULL) == MRC_C_CALL_INVALID);
    CHECK(mrc_stat_log(client, "none", &stat) == MRC_LOG_NOT_FOUND);
    CHECK(mrc_stat_log(client, "%", &stat) == MRC_LOG_NAME_INVALID);
}

int main(int count, char **arguments) {
    mrc_client *client;
    const char *json;
    size_t size;
    if (count < 2) return 2;
    place = arguments[1];
    client = open_with(NULL);
    CHECK(mrc_info_of(client)->namespace_id != 0 && mrc_info_of(client)->epoch > 0 && mrc_info_of(client)->name[0] != 0);
    CHECK(mrc_create_log(client, "raw", 10000) == 0);
    check_ids();
    check_memory();
    current = client;
    check_refusals(client);
    check_long_records();
    check_small_memory();
    current = client;
    check_nowait(client);
    check_tail(client);
    check_stat(client);
    if (mrc_info_of(client)->local) CHECK(mrc_show(client, "logs", &json, &size) == MRC_C_HOST_MISSING);
    else CHECK(mrc_show(client, "logs", &json, &size) == 0 && strlen(json) == size && strstr(json, "small") != NULL);
    CHECK(mrc_append(client, "raw", "the end", 7, NULL, NULL) == 0);
    mrc_close(client);
    printf("done\n");
    return 0;
}
