/* stat.c - how full a log is, from the document that the host has about it. */
#include "client.h"
#include "local/local.h"

#include <string.h>

/* The path of a log's document: its name is one segment, so a slash in it is escaped as all else that is not plain. */
static void path_of(const char *log, char *path) {
    memcpy(path, "logs/", 5);
    for (path += 5; *log != 0; log++) {
        unsigned char c = (unsigned char)*log;
        if (c == '.' || mrc_is_name(log, 1)) {
            *path++ = *log;
        } else {
            *path++ = '%';
            *path++ = "0123456789ABCDEF"[c >> 4];
            *path++ = "0123456789ABCDEF"[c & 15];
        }
    }
    *path = 0;
}

/* The number behind a key. No name in the document can hold a quote, so the first place that looks like the key is
 * it. */
static bool number_of(const char *json, const char *key, uint64_t *number) {
    const char *at = strstr(json, key);
    if (at == NULL) return false;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    if (*at < '0' || *at > '9') return false;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) *number = *number * 10 + (uint64_t)(*at - '0');
    return true;
}

int mrc_stat_log(mrc_client *client, const char *log, mrc_log_stat *stat) {
    char path[5 + 3 * MRC_LOG_NAME_BYTES_MAX + 1];
    const char *json;
    size_t size;
    mrw_bytes name;
    int status = mrc_check_free(client);
    if (status == 0) status = mrc_check_log(client, log, &name);
    if (status < 0) return status;
    MRC_LOCALLY(client, mrl_stat_log(client->local, log, stat, &client->error));
    path_of(log, path);
    status = mrc_show(client, path, &json, &size);
    if (status < 0) return status;
    bool all = strstr(json, "\"history\":null") != NULL;
    if (all) stat->history = MRC_HISTORY_ALL;
    if ((!all && !number_of(json, "\"history\"", &stat->history)) ||
        !number_of(json, "\"earliest\"", &stat->earliest) || !number_of(json, "\"latest\"", &stat->latest)) {
        return mrc_fail(client, MRC_FRAME_MALFORMED, "a document about log '%.80s' that is incomplete", log);
    }
    return 0;
}
