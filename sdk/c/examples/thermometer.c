/* thermometer.c - appends readings, and follows a log from where it stood the last time.
 *
 *     thermometer PLACE append 21.5 21.7 ...
 *     thermometer PLACE follow CURSOR-FILE [COUNT]
 */
#include "millrace_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG "raw/kitchen"

static int complain(const mrc_error *error) {
    const char *remedy = mrc_remedy(error->code);
    fprintf(stderr, "%s: %s\n", error->code, error->detail);
    if (remedy != NULL) fprintf(stderr, "  %s\n", remedy);
    return 1;
}

static int append(mrc_client *client, int count, char **readings) {
    int i;
    for (i = 0; i < count; i++) {
        mrc_receipt receipt;
        char id[MRC_ID_TEXT_MAX + 1];
        if (mrc_append(client, LOG, readings[i], strlen(readings[i]), NULL, &receipt) < 0) {
            return complain(mrc_error_of(client));
        }
        mrc_id_text(&receipt.id, id);
        printf("%s is record %llu, %s\n", readings[i], (unsigned long long)receipt.seqno, id);
    }
    return 0;
}

static mrc_cursor load(const char *path) {
    mrc_cursor cursor = {0, 1}; /* the first time: from the first record */
    unsigned long incarnation;
    unsigned long long from;
    FILE *file = fopen(path, "r");
    if (file == NULL) return cursor;
    if (fscanf(file, "%lu %llu", &incarnation, &from) == 2) {
        cursor.incarnation = (uint32_t)incarnation;
        cursor.from = from;
    }
    fclose(file);
    return cursor;
}

static int save(const char *path, mrc_cursor cursor) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return 1;
    fprintf(file, "%lu %llu\n", (unsigned long)cursor.incarnation, (unsigned long long)cursor.from);
    return fclose(file);
}

/* Follows until `left` records came; a connection that is lost is made again, and nothing comes twice or is left
 * out. */
static int follow(mrc_client *client, const char *path, long left) {
    mrc_record record;
    int status = mrc_tail(client, LOG, load(path), NULL);
    while (left > 0) {
        if (status >= 0) status = mrc_tail_next(client, 1000, &record);
        if (status == 1) {
            printf("%llu: %.*s\n", (unsigned long long)record.seqno, (int)record.size, (const char *)record.data);
            if (save(path, mrc_tail_cursor(client)) != 0) return 1;
            left--;
        } else if (status < 0) {
            if (mrc_connected(client) || mrc_reconnect(client) < 0) return complain(mrc_error_of(client));
            status = mrc_tail(client, LOG, load(path), NULL);
        }
    }
    return 0;
}

int main(int count, char **arguments) {
    mrc_client *client;
    mrc_error error;
    int status = 2;
    if (count < 4) {
        fprintf(stderr, "usage: thermometer PLACE append READING... | follow CURSOR-FILE [COUNT]\n");
        return 2;
    }
    if (mrc_open(&client, arguments[1], NULL, &error) < 0) return complain(&error);
    if (strcmp(arguments[2], "append") == 0) status = append(client, count - 3, arguments + 3);
    if (strcmp(arguments[2], "follow") == 0) status = follow(client, arguments[3], count > 4 ? atol(arguments[4]) : 10);
    mrc_close(client);
    return status;
}
