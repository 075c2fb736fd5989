#include "internal.h"

#define MILLRACE_DEVICE mrd_unused
#include "millrace.h"

/* The only variable: functions of sdk/c/millrace.h do not name a device. */
static struct mrd_run *running;

typedef struct mrd_row {
    uint64_t first;
    uint32_t count;
    uint8_t log;
} mrd_row;

/* A run. What it appends waits in the free part of the burst: log (1), length (2), record. */
typedef struct mrd_run {
    mrd *device;
    int error;
    uint8_t function, attempt, appends, rows;
    volatile bool inside, late; /* see mrd_may_end */
    uint32_t staged_at, staged;
    uint64_t seqno, start;
    mrd_row row[MRD_ROWS_MAX];
} mrd_run;

enum { RETAINED = 0x4D, SEQNO_BITS = 15, FUNCTION_FAILED = 3109, BACKOFF_MS = 1000, FULL_MAX = 8, TIMEOUT_MS = 1000 };

/* ---- what a function calls ---- */

static int refuse(int error) {
    if (running && running->error == 0) running->error = error;
    return error;
}

bool mrd_may_end(void) {
    if (!running) return false;
    running->late = true;
    return !running->inside;
}

/* Each call that changes or reads the journal begins and ends with these. */
static bool enter(void) {
    if (running) running->inside = true;
    return running != NULL;
}

static int64_t leave(int64_t result) {
    running->inside = false;
    while (running->late) continue; /* the next interrupt of the port ends the function */
    return result;
}

static int stage(mrd_run *run, unsigned log, const void *data, uint32_t size) {
    mrd *device = run->device;
    if (run->appends == 255) return MRD_BATCH_TOO_LARGE;
    if (run->staged_at + run->staged + 3 + size > device->burst_bytes && run->staged_at > 0) {
        int result = mrd_flush(device);
        if (result < 0) return result;
        memmove(device->burst, device->burst + run->staged_at, run->staged);
        run->staged_at = 0;
    }
    if (run->staged_at + run->staged + 3 + size > device->burst_bytes) return MRD_BATCH_TOO_LARGE;
    uint8_t *to = device->burst + run->staged_at + run->staged;
    to[0] = (uint8_t)log;
    mrd_store(to + 1, size, 2);
    if (size > 0) memcpy(to + 3, data, size);
    run->staged += 3 + size;
    run->appends++;
    return 0;
}

/* Notes that records were read. If there is no room for another range, one of the same log, or the last one, grows. */
static void note_read(mrd_run *run, unsigned log, uint64_t seqno, uint32_t count) {
    mrd_row *row = NULL;
    for (unsigned i = 0; i < run->rows; i++) {
        mrd_row *one = &run->row[i];
        bool touches = one->log == log && seqno + 1 >= one->first && seqno <= one->first + one->count;
        if (touches || (run->rows == MRD_ROWS_MAX && one->log == log)) row = one;
    }
    if (!row) {
        if (run->rows == MRD_ROWS_MAX) {
            refuse(MRD_BATCH_TOO_LARGE);
            return;
        }
        row = &run->row[run->rows++];
        row->log = (uint8_t)log;
        row->first = seqno;
        row->count = count;
        return;
    }
    uint64_t end = row->first + row->count;
    if (seqno + count > end) end = seqno + count;
    if (seqno < row->first) row->first = seqno;
    row->count = (uint32_t)(end - row->first);
}

static int append(const char *log, const void *data, size_t size) {
    int at = mrd_find_log(running->device, log);
    if (at < 0) return refuse(MR_LOG_NOT_FOUND);
    if (size > mrd_record_max(running->device, (unsigned)at)) return refuse(MR_RECORD_TOO_LONG);
    int result = stage(running, (unsigned)at, data, (uint32_t)size);
    return result < 0 ? refuse(result) : 0;
}

int mr_append(const char *log, const void *data, size_t size) {
    return enter() ? (int)leave(append(log, data, size)) : MR_CALL_INVALID;
}

int64_t mr_publish(const char *log, const void *data, size_t size) { return mr_append(log, data, size); }

static int64_t get(const char *log, uint64_t seqno, void *buffer, size_t capacity) {
    int at = mrd_find_log(running->device, log);
    if (at < 0) return MR_LOG_NOT_FOUND;
    int64_t result = mrd_get_at(running->device, (unsigned)at, seqno, buffer, capacity);
    if (result >= 0) note_read(running, (unsigned)at, seqno, 1);
    return result;
}

int64_t mr_get(const char *log, uint64_t seqno, void *buffer, size_t capacity) {
    return enter() ? leave(get(log, seqno, buffer, capacity)) : MR_CALL_INVALID;
}

static int64_t latest(const char *log) {
    int64_t result = mrd_latest(running->device, log);
    if (result >= 0) note_read(running, (unsigned)mrd_find_log(running->device, log), (uint64_t)result, 0);
    return result;
}

int64_t mr_latest(const char *log) { return enter() ? leave(latest(log)) : MR_CALL_INVALID; }

int64_t mr_now_ns(void) { return running ? (int64_t)(running->start * 1000000) : MR_CALL_INVALID; }

/* They need SHA-256 and provisioning, which the device does not have yet. */
int mr_random(void *buffer, size_t size) {
    (void)buffer, (void)size;
    return MR_CALL_INVALID;
}

int64_t mr_secret(const char *name, void *buffer, size_t capacity) {
    (void)name, (void)buffer, (void)capacity;
    return MR_RIGHT_MISSING;
}

void mr_print(const char *text) { (void)text; }

static char *put_hex(char *to, uint64_t value, unsigned digits) {
    while (digits-- > 0) *to++ = "0123456789abcdef"[value >> 4 * digits & 15];
    return to;
}

static unsigned hex_digits(uint64_t value) {
    unsigned digits = 1;
    for (; value >= 16; value >>= 4) digits++;
    return digits;
}

void mr_run_id(char buffer[MR_RUN_ID_MAX + 1]) {
    char *to = buffer;
    mrd_entry entry;
    uint64_t trigger;
    uint32_t epoch;
    if (enter()) {
        mrd *device = running->device;
        mrd_function_state_ *state = &device->function[running->function];
        if (mrd_walk_pending(device, state, &entry, &trigger, &epoch)) {
            trigger++;
            for (unsigned i = 0; i < running->function; i++) trigger += device->function[i].on == state->on;
            to = put_hex(to, device->port->namespace_id, 12);
            *to++ = '-';
            to = put_hex(to, epoch, hex_digits(epoch));
            *to++ = '-';
            to = put_hex(to, trigger, hex_digits(trigger));
        }
        leave(0);
    }
    *to = 0;
}

void mr_idempotency_key(char buffer[MR_RUN_ID_MAX + 1]) { mr_run_id(buffer); }

/* ---- the end of a run ---- */

static void put_done(mrd_run *run, uint8_t outcome, unsigned code) {
    mrd *device = run->device;
    mrd_function_state_ *state = &device->function[run->function];
    mrd_put(device, (uint8_t)(MRD_DONE << 5 | run->function));
    mrd_put(device, (uint8_t)(outcome | run->attempt << 2));
    mrd_put(device, run->appends);
    mrd_put(device, state->on);
    mrd_put_v(device, device->log[state->on].seqno - run->seqno);
    mrd_put_v(device, device->clock - run->start);
    mrd_put_v(device, run->rows);
    for (unsigned i = 0; i < run->rows; i++) {
        const mrd_row *row = &run->row[i];
        mrd_put(device, row->log);
        mrd_put_v(device, device->log[row->log].seqno - row->first);
        mrd_put_v(device, row->count);
    }
    if (outcome == MRD_OUTCOME_DEAD) mrd_put_v(device, code);
    device->sequence += 1u + (run->attempt == 1) + (run->rows > 0);
    state->attempt = state->fired = state->full = 0;
    device->needed -= mrd_run_bytes(device, run->function);
    state->pending--;
    state->skip++;
    state->ended++;
}

/* What must be left for other runs, if the records of this one run functions. If not, its own end has room already. */
static uint32_t needed_after(const mrd_run *run, const uint8_t *from) {
    const mrd *device = run->device;
    uint32_t more = 0;
    for (unsigned i = 0; i < run->appends; i++) {
        more += device->log[from[0]].bound;
        from += 3 + mrd_load(from + 1, 2);
    }
    return more == 0 ? 0 : device->needed - mrd_run_bytes(device, run->function) + more;
}

/* Its records and its DONE, in one burst. */
static int commit(mrd_run *run, uint8_t outcome, unsigned code) {
    mrd *device = run->device;
    uint32_t need = 4 + 3 * MRD_V_MAX + run->rows * (1u + MRD_V_MAX + 5u) + run->appends * (MRD_APPEND_BYTES - 3u) + run->staged;
    uint8_t *from = device->burst + device->burst_bytes - run->staged;
    /* To the end of the memory, so that they are not overwritten before they are read. */
    memmove(from, device->burst + run->staged_at, run->staged);
    int result = mrd_reserve(device, need, outcome == MRD_OUTCOME_DONE ? needed_after(run, from) : 0);
    if (result < 0) return result;
    for (unsigned i = 0; i < run->appends; i++) {
        uint32_t size = (uint32_t)mrd_load(from + 1, 2);
        uint8_t log = from[0];
        mrd_put_append(device, log, from + 3, size, MRD_CAUSE_RUN, NULL);
        from += 3 + size;
    }
    put_done(run, outcome, code);
    return 0;
}

static int give_up(mrd_run *run, const void *data, uint32_t size, unsigned code) {
    const mrd_function *function = &run->device->functions[run->function];
    run->appends = 0;
    run->staged = 0;
    int dead = function->dead_letter ? mrd_find_log(run->device, function->dead_letter) : -1;
    if (dead >= 0 && size <= mrd_record_max(run->device, (unsigned)dead)) stage(run, (unsigned)dead, data, size);
    return commit(run, MRD_OUTCOME_DEAD, code);
}

/* ---- running ---- */

static int begin_attempt(mrd *device, mrd_function_state_ *state, uint8_t function) {
    if (state->attempt < state->fired || state->attempt == 0) return 0;
    int result = mrd_reserve(device, 2, 0);
    if (result < 0) return result;
    mrd_put(device, (uint8_t)(MRD_FIRED << 5 | function));
    state->fired = (uint8_t)(state->attempt + 1);
    mrd_put(device, state->fired);
    device->sequence += state->attempt == 1 ? 2 : 1;
    return mrd_flush(device);
}

static uint8_t attempts_of(const mrd_function *function) { return function->attempts ? function->attempts : 3; }

static uint64_t oldest_pending(const mrd *device, const mrd_function_state_ *state) {
    return device->log[state->on].seqno - state->pending + 1;
}

static uint32_t retained_word(unsigned function, unsigned attempt, uint64_t seqno) {
    return (uint32_t)RETAINED << 24 | (uint32_t)(seqno & ((1 << SEQNO_BITS) - 1)) << 9 | attempt << 5 | function;
}

static void retain(const mrd *device, uint32_t value) {
    if (device->port->retained) *device->port->retained = value;
}

/* The record whose run reset the board may not be the oldest pending one: the ends of the runs before it were lost if they were
 * not flushed. Then nothing is counted, but from now on each end is flushed before the next run, so the next reset tells more. */
void mrd_count_interrupted(mrd *device) {
    const mrd_port *port = device->port;
    bool reset_itself = port->reset_reason == MRD_RESET_WATCHDOG || port->reset_reason == MRD_RESET_SOFTWARE;
    uint32_t value = port->retained ? *port->retained : 0;
    retain(device, 0);
    device->careful = port->retained ? value >> 24 == RETAINED : reset_itself;
    for (unsigned i = 0; i < device->function_count; i++) {
        mrd_function_state_ *state = &device->function[i];
        bool ran = value == retained_word(i, state->attempt + 1u, oldest_pending(device, state));
        /* Without the word, a first attempt may be blamed for another one: it gets a second one, with a FIRED. */
        bool first = state->attempt == 0 && attempts_of(&device->functions[i]) > 1;
        if (!port->retained) ran = reset_itself && (first || state->fired > state->attempt);
        if (state->pending > 0 && ran) state->attempt++;
    }
}

typedef struct {
    const mrd_function *function;
    mr_record record;
    int status;
} handling;

static void handle_record(void *argument) {
    handling *one = (handling *)argument;
    one->status = one->function->run(&one->record);
}

static unsigned call(mrd_run *run, const mrd_record_place *place, uint8_t *data) {
    mrd *device = run->device;
    const mrd_port *port = device->port;
    handling one;
    int ended = 0;
    if (place->size > MRD_RUN_RECORD_MAX) return MR_STATUS_RECORD_TOO_LONG;
    if (mrd_read(device, place->body, data, place->size) < 0) return -MRD_READ_FAILED;
    one.function = &device->functions[run->function];
    one.record.log = one.function->on;
    one.record.seqno = run->seqno;
    one.record.data = data;
    one.record.size = place->size;
    one.record.attempt = run->attempt;
    one.status = 0;
    uint32_t limit_ms = one.function->timeout_ms ? one.function->timeout_ms : TIMEOUT_MS;
    running = run;
    retain(device, retained_word(run->function, run->attempt, run->seqno));
    if (port->run_on) ended = port->run_on(port->context, handle_record, &one, limit_ms);
    else handle_record(&one);
    retain(device, 0);
    running = NULL;
    if (ended != 0) return (unsigned)ended;
    if (run->error < 0) return (unsigned)-run->error;
    return one.status == 0 ? 0 : FUNCTION_FAILED;
}

/* One attempt of the oldest pending run. */
static int run_one(mrd *device, uint8_t function) {
    uint8_t data[MRD_RUN_RECORD_MAX];
    mrd_function_state_ *state = &device->function[function];
    uint8_t attempts = attempts_of(&device->functions[function]);
    unsigned code = FUNCTION_FAILED;
    mrd_record_place place;
    mrd_run run;
    run.staged = 0;
    run.error = 0;
    run.appends = run.rows = 0;
    run.inside = run.late = false;
    if (!mrd_find_pending(device, function, &place)) return 0;
    run.device = device;
    run.function = function;
    run.seqno = oldest_pending(device, state);
    /* The last attempt reset the device: the run is given up without another one. */
    bool crashed = state->attempt >= attempts;
    run.attempt = crashed ? state->attempt : (uint8_t)(state->attempt + 1);
    int result = device->careful ? mrd_flush(device) : 0;
    if (result == 0 && !crashed) result = begin_attempt(device, state, function);
    if (result < 0 && result != MRD_FULL) return result;
    run.start = mrd_last_clock(device);
    run.staged_at = mrd_align(device->used, device->grain);
    if (!crashed && result == 0) code = call(&run, &place, data);
    else if (place.size <= sizeof data) mrd_read(device, place.body, data, place.size);
    if (result == 0) result = code == 0 ? commit(&run, MRD_OUTCOME_DONE, 0) : MRD_BATCH_TOO_LARGE;
    if (result == MRD_BATCH_TOO_LARGE && run.attempt >= attempts) {
        if (code == 0) code = -MRD_BATCH_TOO_LARGE;
        result = give_up(&run, data, place.size <= sizeof data ? place.size : 0, code);
    } else if (result == MRD_BATCH_TOO_LARGE) {
        state->attempt = run.attempt;
        state->not_before = device->uptime_ms + ((uint32_t)BACKOFF_MS << (run.attempt - 1));
        result = 0;
    }
    if (result != MRD_FULL) return result;
    /* It is not the function's fault: the same attempt is made again. Only losses of power, or records that run many functions, can
     * take the room that was left for it. If nothing but runs can make room, they must end. */
    if (mrd_runs_block(device) && state->full++ >= FULL_MAX) {
        result = give_up(&run, data, place.size <= sizeof data ? place.size : 0, -MRD_FULL);
        if (result == MRD_FULL) result = give_up(&run, data, UINT32_MAX, -MRD_FULL);
    }
    if (result == MRD_FULL) state->not_before = device->uptime_ms + BACKOFF_MS;
    return result;
}

/* How long a function waits for its next attempt: 0 if it can run, MRD_IDLE_MS if nothing is pending. */
static uint32_t wait_of(const mrd *device, const mrd_function_state_ *state) {
    uint32_t wait = state->not_before - device->uptime_ms;
    if (state->pending == 0) return MRD_IDLE_MS;
    return state->not_before == 0 || wait > UINT32_MAX / 2 ? 0 : wait;
}

static int run_next(mrd *device) {
    for (unsigned i = 0; i < device->function_count; i++) {
        uint8_t function = (uint8_t)((device->turn + i) % device->function_count);
        if (wait_of(device, &device->function[function]) > 0) continue;
        device->turn = (uint8_t)((function + 1) % device->function_count);
        device->function[function].not_before = 0;
        return run_one(device, function);
    }
    return 0;
}

static bool is_pending(const mrd *device) {
    for (unsigned i = 0; i < device->function_count; i++) {
        if (device->function[i].pending > 0) return true;
    }
    return false;
}

int64_t mrd_step(mrd *device) {
    uint32_t wait = MRD_IDLE_MS;
    mrd_now(device);
    if (device->failed) return MRD_FLUSH_FAILED;
    int result = run_next(device);
    if (result < 0 && result != MRD_FULL) return result;
    if (device->careful) device->careful = is_pending(device);
    if (device->used > 0) {
        uint32_t waited = device->uptime_ms - device->staged_ms;
        wait = waited < device->write_back_ms ? device->write_back_ms - waited : 0;
        result = wait == 0 ? mrd_flush(device) : 0;
        if (result < 0) return result;
        if (wait == 0) wait = MRD_IDLE_MS;
    }
    for (unsigned i = 0; i < device->function_count; i++) {
        uint32_t other = wait_of(device, &device->function[i]);
        if (other < wait) wait = other;
    }
    return wait;
}
