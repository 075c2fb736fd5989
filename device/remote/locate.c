#include "locate.h"

/* A sector as its catalog describes it, and how far it was walked. */
typedef struct {
    mrd_definition log; /* the log that is looked for */
    uint32_t serial, epoch;
    uint64_t sequence, clock;
    uint32_t same;                    /* events since the clock changed */
    uint16_t appended[MRD_LOGS_MAX];  /* records of each log since the catalog */
    uint8_t triggers[MRD_LOGS_MAX];   /* functions that are bound to each log */
} sector;

/* What only the walk has seen of a record. */
typedef struct {
    uint32_t serial, epoch, same;
    uint64_t sequence, clock;
    bool of_run;
    uint8_t function, on;  /* the function whose run appended it, and the log of the record that ran it, as numbers in the catalog */
    uint64_t ran_for;      /* the seqno of that record */
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

/* The definition of a log or a function by its number. */
static bool define(mrd *device, uint32_t serial, uint8_t what, uint8_t id, mrd_definition *found) {
    mrd_walk walk;
    mrd_header header;
    mrd_reader reader;
    if (!open_catalog(device, serial, &walk, &header, &reader)) return false;
    while (mrd_catalog_next(&reader, found, NULL)) {
        if (found->what == what && found->id == id) return true;
    }
    return false;
}

static bool begin(mrd *device, const mrd_definition *log, uint32_t serial, mrd_walk *walk, sector *of) {
    mrd_header header;
    mrd_reader reader;
    mrd_definition found;
    memset(of, 0, sizeof *of);
    of->log = *log;
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
static void note_run(mrd *device, const sector *of, const mrd_entry *done, place *at) {
    mrd_definition log;
    at->of_run = define(device, of->serial, MRD_DEFINE_LOG, done->log, &log);
    if (!at->of_run) return;
    at->function = done->id;
    at->on = done->log;
    at->ran_for = log.seqno + of->appended[done->log % MRD_LOGS_MAX] - done->value;
}

/* Walks a sector up to a record; and, if a run appended it, up to the end of that run. */
static int walk_to(mrd *device, mrd_walk *walk, sector *of, uint64_t seqno, mrd_located *found, place *at) {
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
                note_run(device, of, &entry, at);
                return 0;
            }
            if (entry.kind == MRD_APPEND) of->appended[entry.id % MRD_LOGS_MAX]++;
            bool is_it = entry.kind == MRD_APPEND && entry.id == of->log.id && of->log.seqno + of->appended[entry.id % MRD_LOGS_MAX] == seqno;
            if (is_it) {
                at->serial = of->serial;
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

/* Finds the sector that has a record: it is the newest one before which the log was shorter. */
static int find(mrd *device, const char *log, uint64_t seqno, mrd_located *found, place *at) {
    mrd_definition definition;
    mrd_walk walk;
    sector of;
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
    if (!begin(device, &definition, serial, &walk, &of)) return MRD_RECORD_DAMAGED;
    return walk_to(device, &walk, &of, seqno, found, at);
}

/* The id of a run is that of the TRIGGER that follows its record: the functions of a log have one each, in the order of their numbers. */
static void cause_of_run(mrd *device, const place *of, mrd_cause *cause) {
    mrd_definition function, log, other;
    char name[MRD_NAME_MAX + 1];
    mrd_located record;
    place at;
    mrd_walk walk;
    mrd_header header;
    mrd_reader reader;
    uint64_t trigger = 1;
    if (!define(device, of->serial, MRD_DEFINE_FUNCTION, of->function, &function)) return;
    if (!define(device, of->serial, MRD_DEFINE_LOG, of->on, &log)) return;
    memcpy(name, log.text, log.name_size);
    name[log.name_size] = 0;
    memset(&at, 0, sizeof at);
    if (find(device, name, of->ran_for, &record, &at) < 0 || at.sequence == 0) return;
    /* The numbers may be others in the sector of the record. */
    if (!mrd_catalog_find(device, at.serial, name, &log) || !open_catalog(device, at.serial, &walk, &header, &reader)) return;
    while (mrd_catalog_next(&reader, &other, NULL)) {
        if (other.what != MRD_DEFINE_FUNCTION || other.on != log.id) continue;
        if (other.name_size == function.name_size && memcmp(other.text, function.text, function.name_size) == 0) {
            mrd_event_id(device, at.epoch, at.sequence + trigger, cause);
            return;
        }
        trigger++;
    }
}

int mrd_locate(mrd *device, unsigned log, uint64_t seqno, mrd_located *found) {
    place at;
    memset(found, 0, sizeof *found);
    memset(&at, 0, sizeof at);
    found->seqno = seqno;
    int result = find(device, device->logs[log].name, seqno, found, &at);
    if (result < 0 || at.sequence == 0) return result;
    mrd_event_id(device, at.epoch, at.sequence, &found->id);
    found->hlc = ((at.clock * 1000) << 12) + at.same;
    if (at.of_run) cause_of_run(device, &at, &found->cause);
    return 0;
}
