#include "locate.h"

/* Each of these has much on the stack, which is free again before the next one begins: in one function, it would add up. */
#ifdef __GNUC__
#define APART __attribute__((noinline))
#else
#define APART
#endif

/* Corrections of the clock that stand so many sectors behind a record are found. */
enum { AHEAD = 4 };

/* A sector as its catalog describes it, and how far it was walked. */
typedef struct {
    uint32_t serial, epoch;
    uint64_t sequence, clock;
    uint32_t same;                   /* events since the clock changed */
    uint16_t appended[MRD_LOGS_MAX]; /* records of each log since the catalog */
    uint8_t triggers[MRD_LOGS_MAX];  /* functions that are bound to each log */
} sector;

/* Where a record is, and what only the walk to it has seen. */
typedef struct {
    uint32_t serial, epoch, same;
    uint64_t before; /* the seqno of the log before this sector */
    uint64_t sequence, clock;
    bool of_run;
    uint8_t log;          /* its number in the catalog */
    uint8_t function, on; /* the function whose run appended it, and the log of the record that ran it, as numbers in the catalog */
    uint64_t behind;      /* the seqno of that record is so much less than that of its log before this sector, modulo 2^64 */
} place;

void mrd_event_id(const mrd *device, uint32_t epoch, uint64_t sequence, mrd_cause *id) {
    mrd_store(id->id, sequence, 7);
    mrd_store(id->id + 7, epoch, 3);
    mrd_store(id->id + 10, device->port->namespace_id, 6);
}

/* Begins to read the definitions of a sector; false if it has no valid catalog. */
static bool open_catalog(mrd *device, uint32_t serial, mrd_walk *walk, mrd_header *header, mrd_reader *reader) {
    if (!mrd_header_of(device, serial, header)) return false;
    mrd_walk_begin(walk, device, header);
    if (serial == device->serial) walk->limit = device->head;
    if (!mrd_next_burst(walk)) return false;
    mrd_reader_begin(reader, device, walk->body, walk->end);
    mrd_take_v(reader);
    return true;
}

/* The name of a log or a function by its number, and, of a log, its seqno before this sector. */
static APART bool name_of(mrd *device, uint32_t serial, uint8_t what, uint8_t id, char name[MRD_NAME_MAX + 1], uint64_t *seqno) {
    mrd_walk walk;
    mrd_header header;
    mrd_reader reader;
    mrd_definition found;
    if (!open_catalog(device, serial, &walk, &header, &reader)) return false;
    while (mrd_catalog_next(&reader, &found, NULL)) {
        if (found.what != what || found.id != id) continue;
        memcpy(name, found.text, found.name_size);
        name[found.name_size] = 0;
        *seqno = found.seqno;
        return true;
    }
    return false;
}

/* Which TRIGGER behind a record is that of this function: the functions of a log have one each, in the order of their numbers. 0: none. */
static APART uint64_t trigger_of(mrd *device, const place *at, const char *function) {
    mrd_walk walk;
    mrd_header header;
    mrd_reader reader;
    mrd_definition found;
    uint64_t trigger = 1;
    if (!open_catalog(device, at->serial, &walk, &header, &reader)) return 0;
    while (mrd_catalog_next(&reader, &found, NULL)) {
        if (found.what != MRD_DEFINE_FUNCTION || found.on != at->log) continue;
        if (mrd_is_same(function, found.text, found.name_size)) return trigger;
        trigger++;
    }
    return 0;
}

static APART bool begin(mrd *device, uint32_t serial, mrd_walk *walk, sector *of) {
    mrd_header header;
    mrd_reader reader;
    mrd_definition found;
    memset(of, 0, sizeof *of);
    of->serial = serial;
    if (!open_catalog(device, serial, walk, &header, &reader)) return false;
    of->epoch = header.epoch;
    of->sequence = header.sequence;
    of->clock = header.clock;
    while (mrd_catalog_next(&reader, &found, NULL)) {
        if (found.what == MRD_DEFINE_FUNCTION && found.on < MRD_LOGS_MAX) of->triggers[found.on]++;
    }
    return true;
}

static void pass(sector *of, const mrd_entry *entry) {
    uint32_t events = mrd_events_of(entry, entry->kind == MRD_APPEND ? of->triggers[entry->id % MRD_LOGS_MAX] : 0);
    of->sequence += events;
    of->same += events;
    if (entry->kind == MRD_CLOCK) {
        of->clock += entry->value;
        of->same = 0;
    }
}

/* The run whose DONE stands behind the record, in the same burst. */
static void note_run(const sector *of, const mrd_entry *done, place *at) {
    at->of_run = true;
    at->function = done->id;
    at->on = done->log;
    at->behind = done->value - of->appended[done->log % MRD_LOGS_MAX];
}

/* Walks a sector up to a record; and, if a run appended it, up to the end of that run. */
static APART int walk_to(mrd *device, mrd_walk *walk, sector *of, uint64_t seqno, mrd_located *found, place *at) {
    mrd_reader reader;
    mrd_entry entry;
    bool is_found = false;
    while (mrd_next_burst(walk)) {
        mrd_reader_begin(&reader, device, walk->body, walk->end);
        of->clock += mrd_take_v(&reader);
        of->same = 0;
        while (mrd_next_entry(&reader, &entry)) {
            if (entry.kind == MRD_OPEN) of->epoch = entry.epoch;
            if (is_found && entry.kind == MRD_DONE) {
                note_run(of, &entry, at);
                return 0;
            }
            uint8_t log = entry.id % MRD_LOGS_MAX;
            if (entry.kind == MRD_APPEND) of->appended[log]++;
            if (entry.kind == MRD_APPEND && entry.id == at->log && at->before + of->appended[log] == seqno) {
                at->epoch = of->epoch;
                at->sequence = of->sequence;
                at->clock = of->clock;
                at->same = of->same;
                found->body = entry.body;
                found->size = entry.body_size;
                is_found = true;
                if (entry.cause == MRD_CAUSE_ID && mrd_read(device, entry.body - 16, found->cause.id, 16) < 0) return MRD_READ_FAILED;
                if (entry.cause != MRD_CAUSE_RUN) return 0;
            }
            pass(of, &entry);
        }
        if (is_found) return 0;
    }
    return MRD_RECORD_DAMAGED;
}

/* Finds the sector that has a record: the newest one before which the log was shorter. Returns 1 then; 0 if only a copy is there; or an error. */
static APART int find_sector(mrd *device, const char *log, uint64_t seqno, mrd_located *found, place *at) {
    mrd_definition definition;
    uint32_t serial = device->serial;
    if (serial == MRD_NO_SERIAL) return MRD_ABOVE_TAIL;
    for (;; serial--) {
        bool has = mrd_catalog_find(device, serial, log, &definition);
        bool last = serial == device->oldest;
        if (has && definition.seqno < seqno) break;
        if (has && last && definition.flags & MRD_LOG_CARRIED && definition.seqno == seqno) {
            /* The original was dropped, and with it what told its id. */
            found->body = definition.record;
            found->size = definition.record_size;
            return 0;
        }
        if (!has || last) return last ? MRD_BELOW_HISTORY : MRD_RECORD_DAMAGED;
    }
    at->serial = serial;
    at->log = definition.id;
    at->before = definition.seqno;
    return 1;
}

static APART int find(mrd *device, const char *log, uint64_t seqno, mrd_located *found, place *at) {
    mrd_walk walk;
    sector of;
    memset(at, 0, sizeof *at);
    int result = find_sector(device, log, seqno, found, at);
    if (result <= 0) return result;
    if (!begin(device, at->serial, &walk, &of)) return MRD_RECORD_DAMAGED;
    return walk_to(device, &walk, &of, seqno, found, at);
}

/* The id of a run is that of its TRIGGER, which follows the record that ran it. */
static APART void cause_of_run(mrd *device, const place *of, mrd_cause *cause) {
    char function[MRD_NAME_MAX + 1], log[MRD_NAME_MAX + 1];
    mrd_located record;
    place at;
    uint64_t seqno;
    if (!name_of(device, of->serial, MRD_DEFINE_FUNCTION, of->function, function, &seqno)) return;
    if (!name_of(device, of->serial, MRD_DEFINE_LOG, of->on, log, &seqno)) return;
    if (find(device, log, seqno - of->behind, &record, &at) < 0 || at.sequence == 0) return;
    /* The numbers of functions may be others in the sector of the record. */
    uint64_t trigger = trigger_of(device, &at, function);
    if (trigger > 0) mrd_event_id(device, at.epoch, at.sequence + trigger, cause);
}

/* By how many milliseconds the clock was corrected behind a record, before the next start: its time was too early by that. */
static APART uint64_t corrected_ms(mrd *device, const place *at) {
    mrd_walk walk;
    mrd_reader reader;
    mrd_entry entry;
    sector of;
    uint64_t ms = 0;
    if (at->epoch == device->epoch && device->jumped_ms == 0) return 0;
    for (uint32_t serial = at->serial; serial <= device->serial && serial - at->serial <= AHEAD; serial++) {
        if (!begin(device, serial, &walk, &of)) return ms;
        while (mrd_next_burst(&walk)) {
            mrd_reader_begin(&reader, device, walk.body, walk.end);
            mrd_take_v(&reader);
            while (mrd_next_entry(&reader, &entry)) {
                bool is_behind = of.sequence > at->sequence;
                if (is_behind && entry.kind == MRD_OPEN) return ms;
                if (is_behind && entry.kind == MRD_CLOCK && entry.id == MRD_JUMP) ms += entry.value;
                pass(&of, &entry);
            }
        }
    }
    return ms;
}

int mrd_locate(mrd *device, unsigned log, uint64_t seqno, mrd_located *found) {
    place at;
    memset(found, 0, sizeof *found);
    found->seqno = seqno;
    int result = find(device, device->logs[log].name, seqno, found, &at);
    if (result < 0 || at.sequence == 0) return result;
    mrd_event_id(device, at.epoch, at.sequence, &found->id);
    found->hlc = (((at.clock + corrected_ms(device, &at)) * 1000) << 12) + at.same;
    if (at.of_run) cause_of_run(device, &at, &found->cause);
    return 0;
}
