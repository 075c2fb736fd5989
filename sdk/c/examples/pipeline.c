/* pipeline.c - appends many records without waiting for each, and counts how they ended.
 *
 *     pipeline PLACE LOG COUNT SIZE
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "millrace_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long appended, refused;

static void count_it(void *context, int64_t ticket, int status, const mrc_receipt *receipt) {
    (void)context, (void)ticket, (void)receipt;
    if (status == 0) appended++;
    else refused++;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    mrc_client *client;
    mrc_error error;
    long records, i;
    size_t size;
    char *data;
    double took_s;
    if (count < 5) {
        fprintf(stderr, "usage: pipeline PLACE LOG COUNT SIZE\n");
        return 2;
    }
    records = atol(arguments[3]);
    size = (size_t)atol(arguments[4]);
    data = calloc(1, size + 1);
    if (data == NULL || mrc_open(&client, arguments[1], NULL, &error) < 0) {
        fprintf(stderr, "%s: %s\n", data == NULL ? "memory" : error.code, data == NULL ? "none" : error.detail);
        free(data);
        return 1;
    }
    mrc_on_appended(client, count_it, NULL);
    took_s = now_s();
    for (i = 0; i < records && mrc_append_nowait(client, arguments[2], data, size, NULL) >= 0; i++) continue;
    if (mrc_drain(client) < 0) fprintf(stderr, "%s: %s\n", mrc_error_of(client)->code, mrc_error_of(client)->detail);
    took_s = now_s() - took_s;
    printf("%ld appended, %ld refused, %.0f a second\n", appended, refused, (double)appended / took_s);
    mrc_close(client);
    free(data);
    return appended == records ? 0 : 1;
}
