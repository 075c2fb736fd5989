/* driver.c - a client that does what it is told: `driver PLACE`, then one call on each line of standard input, its words
 * separated by blanks. Texts and bytes are in hexadecimal after an x; `-` is an absent one. Each answer is a line of JSON.
 */
#include "millrace_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 4096

static char *words[WORDS_MAX];
static size_t sizes[WORDS_MAX]; /* of words that are bytes */
static int count;

static void print_hex(const void *data, size_t size) {
    const unsigned char *at = data;
    putchar('"');
    while (size-- > 0) printf("%02x", *at++);
    putchar('"');
}

static void print_id(const char *key, const mrc_id *id) {
    char text[MRC_ID_TEXT_MAX + 1];
    mrc_id back;
    mrc_id_text(id, text);
    if (strcmp(text, "-") != 0 && (mrc_id_parse(text, &back) != 0 || memcmp(&back, id, sizeof back) != 0)) abort();
    printf("\"%s\":\"%s\"", key, text);
}

static void print_record(const mrc_record *record) {
    printf("{\"seqno\":%llu,\"hlc\":%llu,", (unsigned long long)record->seqno, (unsigned long long)record->hlc);
    print_id("id", &record->id);
    putchar(',');
    print_id("cause", &record->cause);
    printf(",\"data\":");
    print_hex(record->data, record->size);
    putchar('}');
}

static void print_receipt(const mrc_receipt *receipt) {
    printf("{\"seqno\":%llu,", (unsigned long long)receipt->seqno);
    print_id("id", &receipt->id);
    putchar('}');
}

static void print_error(const mrc_error *error) {
    const char *known = mrc_cause(error->code) != NULL && mrc_remedy(error->code) != NULL ? "true" : "false";
    printf("{\"fails\":\"%s\",\"number\":%d,\"known\":%s,\"retry_after_ms\":%ld,\"detail\":", error->code, error->number,
           known, error->may_retry ? (long)error->retry_after_ms : -1L);
    print_hex(error->detail, strlen(error->detail));
    putchar('}');
}

static uint64_t number(int word) { return strtoull(words[word], NULL, 10); }
static const char *text(int word) { return words[word]; }

static int nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* Takes a line apart, in place; bytes keep a zero behind them. */
static void split_line(char *line) {
    char *word;
    count = 0;
    for (word = strtok(line, " \n"); word != NULL && count < WORDS_MAX; word = strtok(NULL, " \n"), count++) {
        size_t i;
        words[count] = strcmp(word, "-") == 0 ? NULL : word;
        if (word[0] != 'x') continue;
        sizes[count] = strlen(word + 1) / 2;
        for (i = 0; i < sizes[count]; i++) word[i] = (char)(nibble(word[2 * i + 1]) << 4 | nibble(word[2 * i + 2]));
        word[sizes[count]] = 0;
    }
}

static int append(mrc_client *client) {
    mrc_append_options how;
    mrc_receipt receipt;
    int status;
    memset(&how, 0, sizeof how);
    how.durability = (mrc_durability)number(3);
    how.function = text(4);
    how.key = text(5);
    if (text(6) != NULL && mrc_id_parse(text(6), &how.cause) < 0) abort();
    status = mrc_append(client, text(1), words[2], sizes[2], &how, &receipt);
    if (status == 0) print_receipt(&receipt);
    return status;
}

static int append_many(mrc_client *client) {
    static mrc_new_record records[MRC_BATCH_MAX + 1];
    static mrc_receipt receipts[MRC_BATCH_MAX + 1];
    mrc_append_options how;
    int many = (count - 2) / 2, i, status;
    memset(&how, 0, sizeof how);
    how.key = text(1);
    for (i = 0; i < many && i <= MRC_BATCH_MAX; i++) {
        records[i].log = text(2 + 2 * i);
        records[i].data = words[3 + 2 * i];
        records[i].size = sizes[3 + 2 * i];
    }
    status = mrc_append_many(client, records, (size_t)many, &how, receipts);
    if (status < 0) return status;
    printf("{\"records\":[");
    for (i = 0; i < many; i++) {
        if (i > 0) putchar(',');
        print_receipt(&receipts[i]);
    }
    printf("]}");
    return 0;
}

static int get(mrc_client *client) {
    mrc_reading how = {(uint32_t)number(3), MRC_AS_NAMESPACE};
    mrc_record record;
    int status = mrc_get(client, text(1), number(2), &how, &record);
    if (status == 0) print_record(&record);
    return status;
}

static int range(mrc_client *client) {
    mrc_records records;
    mrc_record record;
    int status = mrc_range(client, text(1), number(2), (uint32_t)number(3), NULL, &records), first = 1;
    if (status < 0) return status;
    printf("{\"next\":%llu,\"records\":[", (unsigned long long)records.next);
    for (; mrc_next(&records, &record); first = 0) {
        if (!first) putchar(',');
        print_record(&record);
    }
    printf("]}");
    return 0;
}

static int latest(mrc_client *client) {
    mrc_reading how = {(uint32_t)number(3), MRC_AS_NAMESPACE};
    uint64_t seqno;
    int status = mrc_latest(client, text(1), number(2), &how, &seqno);
    if (status == 0) printf("{\"seqno\":%llu}", (unsigned long long)seqno);
    return status;
}

/* `tail LOG FROM INCARNATION TAKE WAIT_MS`; records that came before a refusal are lost in the answer. */
static int tail(mrc_client *client) {
    static char taken[1 << 20];
    mrc_cursor cursor;
    uint64_t take = number(4);
    int status, got = 1;
    size_t used = 0;
    mrc_record record;
    cursor.from = number(2);
    cursor.incarnation = (uint32_t)number(3);
    status = mrc_tail(client, text(1), cursor, NULL);
    while (status >= 0 && take > 0 && got == 1) {
        char id[MRC_ID_TEXT_MAX + 1];
        size_t i;
        got = mrc_tail_next(client, (uint32_t)number(5), &record);
        if (got < 0) return got;
        if (got == 0) break;
        mrc_id_text(&record.id, id);
        if (used + 2 * record.size + 200 > sizeof taken) abort();
        used += (size_t)sprintf(taken + used, "%s{\"seqno\":%llu,\"id\":\"%s\",\"data\":\"", used > 0 ? "," : "",
                                (unsigned long long)record.seqno, id);
        for (i = 0; i < record.size; i++) {
            used += (size_t)sprintf(taken + used, "%02x", ((const uint8_t *)record.data)[i]);
        }
        used += (size_t)sprintf(taken + used, "\"}");
        take--;
    }
    if (status < 0) return status;
    taken[used] = 0;
    cursor = mrc_tail_cursor(client);
    status = mrc_tail_end(client);
    if (status == 0) {
        printf("{\"records\":[%s],\"incarnation\":%lu,\"next\":%llu}", taken, (unsigned long)cursor.incarnation,
               (unsigned long long)cursor.from);
    }
    return status;
}

typedef struct told { long appended, refused; int last; } told;

static void tell(void *context, int64_t ticket, int status, const mrc_receipt *receipt) {
    told *all = context;
    if (ticket <= 0 || (status == 0) != (receipt != NULL)) abort();
    if (status == 0) all->appended++;
    else all->refused++;
    all->last = status;
}

/* `flood LOG DATA COUNT`: without waiting. */
static int flood(mrc_client *client) {
    told all = {0, 0, 0};
    long left;
    int status = 0;
    mrc_on_appended(client, tell, &all);
    for (left = (long)number(3); left > 0 && status >= 0; left--) {
        int64_t ticket = mrc_append_nowait(client, text(1), words[2], sizes[2], NULL);
        status = ticket < 0 ? (int)ticket : 0;
    }
    if (status >= 0) status = mrc_drain(client);
    mrc_on_appended(client, NULL, NULL);
    printf("{\"appended\":%ld,\"refused\":%ld,\"last\":%d,\"status\":%d}", all.appended, all.refused, all.last, status);
    return 0;
}

static int show(mrc_client *client) {
    const char *json;
    size_t size;
    int status = mrc_show(client, text(1), &json, &size);
    if (status < 0) return status;
    if (strlen(json) != size) abort();
    printf("%s", json);
    return 0;
}

static int stat(mrc_client *client) {
    mrc_log_stat seen;
    int status = mrc_stat_log(client, text(1), &seen);
    if (status == 0) {
        printf("{\"history\":%llu,\"earliest\":%llu,\"latest\":%llu}", (unsigned long long)seen.history,
               (unsigned long long)seen.earliest, (unsigned long long)seen.latest);
    }
    return status;
}

static int done(int status) {
    if (status == 0) printf("{}");
    return status;
}

static int cancel_run(mrc_client *client) {
    mrc_id id;
    if (mrc_id_parse(text(1), &id) < 0) abort();
    return done(mrc_cancel_run(client, &id));
}

static int run(mrc_client *client) {
    const char *what = words[0];
    if (strcmp(what, "create_log") == 0) return done(mrc_create_log(client, text(1), number(2)));
    if (strcmp(what, "set_history") == 0) return done(mrc_set_history(client, text(1), number(2)));
    if (strcmp(what, "cancel_run") == 0) return cancel_run(client);
    if (strcmp(what, "remove_log") == 0) return done(mrc_remove_log(client, text(1)));
    if (strcmp(what, "reconnect") == 0) return done(mrc_reconnect(client));
    if (strcmp(what, "append") == 0) return append(client);
    if (strcmp(what, "append_many") == 0) return append_many(client);
    if (strcmp(what, "get") == 0) return get(client);
    if (strcmp(what, "range") == 0) return range(client);
    if (strcmp(what, "latest") == 0) return latest(client);
    if (strcmp(what, "tail") == 0) return tail(client);
    if (strcmp(what, "flood") == 0) return flood(client);
    if (strcmp(what, "show") == 0) return show(client);
    if (strcmp(what, "stat") == 0) return stat(client);
    abort();
}

/* A line of any length; NULL at the end of the input. */
static char *read_line(void) {
    static char *line;
    static size_t capacity;
    size_t size = 0;
    for (;;) {
        if (capacity - size < 2) {
            capacity = capacity * 2 + 4096;
            line = realloc(line, capacity);
            if (line == NULL) abort();
        }
        if (fgets(line + size, (int)(capacity - size), stdin) == NULL) break;
        size += strlen(line + size);
        if (line[size - 1] == '\n') return line;
    }
    free(line);
    return NULL;
}

int main(int arguments, char **argument) {
    mrc_options options;
    mrc_client *client;
    mrc_error error;
    char *line;
    memset(&options, 0, sizeof options);
    if (arguments > 2) options.receive_bytes = (size_t)atol(argument[2]);
    if (arguments > 3) options.request_timeout_ms = options.connect_timeout_ms = (uint32_t)atol(argument[3]);
    if (arguments > 5) options.connect_timeout_ms = (uint32_t)atol(argument[5]);
    if (arguments > 4) options.window = (uint32_t)atol(argument[4]);
    if (arguments < 2 || mrc_open(&client, argument[1], &options, &error) < 0) {
        print_error(&error);
        putchar('\n');
        return 1;
    }
    while ((line = read_line()) != NULL) {
        split_line(line);
        if (count > 0 && run(client) < 0) print_error(mrc_error_of(client));
        putchar('\n');
        fflush(stdout);
    }
    mrc_close(client);
    return 0;
}
