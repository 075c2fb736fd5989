/* local.h - the functions of libmillrace_local.a, which use the files of a namespace. sdk/c/local/src/ implements them.
 *
 * Texts end in zero. Pointers are valid, or NULL where a comment of millrace_client.h allows it. Each function returns
 * what the client's function returns, and fills `error` if that is negative.
 */
#ifndef MILLRACE_LOCAL_H
#define MILLRACE_LOCAL_H

#include "../millrace_client.h"

#ifdef MILLRACE_LOCAL
/* Only a client of a directory has a local part. */
#define MRC_LOCALLY(client, call) \
    do { \
        if ((client)->local != NULL) return (call); \
    } while (0)
#else
#define MRC_LOCALLY(client, call) ((void)0)
#endif

void *mrl_open(const char *dir, mrc_info *info, mrc_error *error);
void mrl_close(void *local);
int mrl_append(void *local, const char *log, const void *data, size_t size, const mrc_append_options *how,
               mrc_receipt *receipt, mrc_error *error);
int mrl_append_many(void *local, const mrc_new_record *records, size_t count, const mrc_append_options *how,
                    mrc_receipt *receipts, mrc_error *error);
int64_t mrl_append_nowait(void *local, const char *log, const void *data, size_t size, const mrc_append_options *how,
                          uint32_t window, mrc_appended *call, void *context, mrc_error *error);
int mrl_drain(void *local, mrc_appended *call, void *context, mrc_error *error);
int mrl_get(void *local, const char *log, uint64_t seqno, const mrc_reading *how, mrc_record *record, mrc_error *error);
int mrl_range(void *local, const char *log, uint64_t from, uint32_t count, const mrc_reading *how, mrc_records *records,
              mrc_error *error);
int mrl_latest(void *local, const char *log, uint64_t above, const mrc_reading *how, uint64_t *seqno, mrc_error *error);
int mrl_create_log(void *local, const char *log, uint64_t history, mrc_error *error);
int mrl_set_history(void *local, const char *log, uint64_t history, mrc_error *error);
int mrl_cancel_run(void *local, const mrc_id *run, mrc_error *error);
int mrl_remove_log(void *local, const char *log, mrc_error *error);
int mrl_stat_log(void *local, const char *log, mrc_log_stat *stat, mrc_error *error);
/* Checks a cursor, and fills in what it leaves open: the incarnation, or the next record. */
int mrl_tail(void *local, const char *log, mrc_cursor *cursor, mrc_error *error);
int mrl_tail_next(void *local, const char *log, mrc_cursor *cursor, mrc_durability durability, uint32_t wait_ms,
                  mrc_record *record, mrc_error *error);

#endif
