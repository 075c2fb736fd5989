/* internal.h - how the parts of a device fit together. spec/formats/device.md defines the bytes.
 *
 *     bytes.c    integers, LEB128, CRC-32C
 *     ring.c     sectors: addresses, headers, which one is the newest
 *     walk.c     reads bursts and entries, from flash or from the burst that is staged
 *     catalog.c  what a sector begins with: definitions, counters, records that are carried on
 *     journal.c  stages entries, flushes a burst, begins the next sector
 *     clock.c    the clock
 *     open.c     checks the settings, recovers the state from flash
 *     records.c  append, get, latest, sync
 *     command.c  records that hosts send, each once
 *     pending.c  finds the oldest pending record of a function
 *     run.c      runs functions; mrd_step
 *
 * Each part calls only those above it, except that open.c calls one function of run.c.
 */
#ifndef MILLRACE_DEVICE_INTERNAL_H
#define MILLRACE_DEVICE_INTERNAL_H

#include "millrace_device.h"

#ifdef MRD_NO_STRING_H /* for compilers without a C library */
void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *one, const void *other, size_t size);
size_t strlen(const char *text);
#else
#include <string.h>
#endif

enum {
    MRD_FORMAT = 1,
    MRD_HEADER_BYTES = 40,
    MRD_BURST_HEAD = 6, /* length and crc */
    MRD_PAGE = 256,     /* after a start, writing goes on at a multiple of this */
    MRD_V_MAX = 10,     /* bytes of a LEB128 */
    MRD_APPEND_BYTES = 1 + 3 + 5 + 1, /* the most of an APPEND without its record and an event id */
    MRD_WINDOW = 32,    /* how much a reader fetches at once */
    MRD_ROWS_MAX = 8    /* ranges that a run has read */
};

/* Reasons take 700 bytes of flash. */
#ifdef MRD_SMALL
#define MRD_WHY(text) ""
#else
#define MRD_WHY(text) text
#endif

/* No address. */
#define MRD_NONE 0xFFFFFFFFu
/* No sector has been written. */
#define MRD_NO_SERIAL 0xFFFFFFFFu

/* ---- bytes.c ---- */

uint64_t mrd_load(const uint8_t *from, unsigned bytes);
void mrd_store(uint8_t *to, uint64_t value, unsigned bytes);
uint32_t mrd_load4(const uint8_t *from);
void mrd_store4(uint8_t *to, uint32_t value);
unsigned mrd_store_long_v(uint8_t *to, uint64_t value);
/* Writes a LEB128, and returns its length. Most have one byte. */
static inline unsigned mrd_store_v(uint8_t *to, uint64_t value) {
    if (value >= 0x80) return mrd_store_long_v(to, value);
    *to = (uint8_t)value;
    return 1;
}
unsigned mrd_v_size(uint64_t value);
/* Continues a CRC-32C, which begins with 0. */
uint32_t mrd_crc(uint32_t crc, const void *bytes, size_t size);
/* A thousandth, rounded down. */
uint64_t mrd_thousandth(uint64_t value);
/* A checksum that begins with the one before it. */
uint32_t mrd_crc_chain(uint32_t before);
uint32_t mrd_align(uint32_t value, uint32_t power);
bool mrd_is_same(const char *name, const char *other, size_t size);
/* The index of a log, or -1. */
int mrd_find_log(const mrd *device, const char *name);

/* ---- ring.c ---- */

typedef struct mrd_header {
    uint8_t format, shape, unit;
    uint32_t epoch, serial, crc;
    uint32_t sectors;
    uint64_t namespace_id, sequence, clock;
} mrd_header;

void mrd_header_encode(const mrd *device, mrd_header *header, uint8_t bytes[MRD_HEADER_BYTES]);
/* Whether the sector with this index has a header with a valid checksum. */
bool mrd_header_read(mrd *device, uint32_t index, mrd_header *header);
/* The same, if the sector has this serial number. */
bool mrd_header_of(mrd *device, uint32_t serial, mrd_header *header);
uint8_t mrd_shape(const mrd *device);
/* The newest sector. Returns 1; 0 if the area was never used; or a refusal. */
int mrd_ring_find(mrd *device, mrd_header *newest);
uint32_t mrd_sector_at(const mrd *device, uint32_t serial);
uint32_t mrd_serial_of(const mrd *device, uint32_t at);
/* The address that is `back` bytes before the start of a sector, or MRD_NONE if `back` is 0 or that sector was dropped. */
uint32_t mrd_back(const mrd *device, uint32_t serial, uint64_t back);
/* The reverse. */
uint64_t mrd_distance(const mrd *device, uint32_t serial, uint32_t at);
uint32_t mrd_data_start(const mrd *device);
bool mrd_is_blank(mrd *device, uint32_t at, uint32_t end);

/* ---- walk.c ---- */

/* Bytes of flash, or of the staged burst, in order. */
typedef struct mrd_reader {
    mrd *device;
    uint32_t at, end;
    uint32_t window_at, window_end;
    const uint8_t *seen; /* what stands at `window_at` */
    bool failed;
    uint8_t window[MRD_WINDOW];
} mrd_reader;

enum { MRD_APPEND = 1, MRD_DONE, MRD_FIRED, MRD_DEFINE, MRD_OPEN, MRD_CLOCK, MRD_NOTE };
enum { MRD_CAUSE_OUTSIDE, MRD_CAUSE_RUN, MRD_CAUSE_ID };
enum { MRD_LATER, MRD_JUMP };                        /* CLOCK */
enum { MRD_TRIM, MRD_STREAM, MRD_KEY, MRD_LOST, MRD_DAMAGED, MRD_SENT, MRD_GAP }; /* NOTE */
enum { MRD_DEFINE_LOG, MRD_DEFINE_FUNCTION };
enum { MRD_LOG_KEEP = 1, MRD_LOG_CARRIED = 2 };      /* flags of a DEFINE */
enum { MRD_OUTCOME_DONE, MRD_OUTCOME_DEAD };

/* An entry. The meaning of some fields depends on its kind. */
typedef struct mrd_entry {
    uint8_t kind, id;
    uint8_t cause;            /* APPEND */
    uint8_t attempt;          /* FIRED, DONE */
    uint8_t outcome, log;     /* DONE */
    uint8_t what;             /* DEFINE */
    bool reads;               /* DONE: whether it has rows */
    uint32_t at;              /* of its first byte */
    uint32_t body, body_size; /* APPEND: the payload. DEFINE and NOTE: what follows the length */
    uint32_t epoch;           /* OPEN */
    uint64_t back;            /* APPEND */
    uint64_t value;           /* CLOCK: milliseconds. OPEN: lost bytes. DONE: behind */
} mrd_entry;

/* The bursts of a sector. */
typedef struct mrd_walk {
    mrd *device;
    uint32_t sector;     /* its address */
    uint32_t at, limit;  /* the next burst, and the end, as offsets in the sector */
    uint32_t done;       /* the end of the last valid burst */
    uint32_t crc;        /* of the last burst */
    uint32_t body, end;  /* of this burst, as addresses */
    bool torn;           /* bytes that are no burst follow */
} mrd_walk;

/* Where the burst that is staged will be. */
static inline uint32_t mrd_staged_at(const mrd *device) { return device->sector + device->head; }
/* The same bytes where they are, if that is in memory, or copied to the buffer; NULL if they cannot be read. */
const uint8_t *mrd_view(mrd *device, uint32_t at, uint32_t size, uint8_t *buffer);
int mrd_read(mrd *device, uint32_t at, void *bytes, uint32_t size);
typedef struct mrd_record_place {
    uint32_t back;       /* how many bytes before this record the previous one is, if that is in the same sector */
    uint32_t body, size; /* the payload */
    bool is_carried;     /* it is in a catalog */
} mrd_record_place;

/* The APPEND at this address; false if it is something else. */
bool mrd_append_at(mrd *device, uint32_t at, mrd_record_place *place);
/* Goes back from an APPEND to its predecessors in the same sector, at most `count`, and returns how many. */
uint32_t mrd_go_back(mrd *device, uint32_t *at, uint64_t count);
void mrd_reader_begin(mrd_reader *reader, mrd *device, uint32_t at, uint32_t end);
uint8_t mrd_take(mrd_reader *reader);
uint64_t mrd_take_v(mrd_reader *reader);
/* Copies bytes, or skips them if `to` is NULL. */
void mrd_take_bytes(mrd_reader *reader, void *to, uint32_t size);
/* Reads an entry. False at the end, and if the entry is malformed; then `failed` is set. */
bool mrd_next_entry(mrd_reader *reader, mrd_entry *entry);
void mrd_walk_begin(mrd_walk *walk, mrd *device, const mrd_header *header);
/* Whether a valid burst begins at walk->at; takes it. */
bool mrd_take_burst(mrd_walk *walk);
bool mrd_next_burst(mrd_walk *walk);
/* How far a sector that is not the newest one is valid. */
uint32_t mrd_verified_end(mrd *device, uint32_t serial);
bool mrd_is_valid_in(mrd *device, uint32_t at);
/* Whether the burst at this address, which need not be in flash yet, is in the valid part of its sector. */
static inline bool mrd_is_valid(mrd *device, uint32_t at) {
    return at - device->sector < device->port->sector_bytes || mrd_is_valid_in(device, at);
}

/* ---- catalog.c ---- */

/* What a catalog says of a log or a function. */
typedef struct mrd_definition {
    uint8_t what, id, flags, attempt, on, name_size;
    uint32_t at; /* of the DEFINE */
    uint32_t record, record_size;
    uint64_t seqno, back, history, skip, pending, ended, behind, older;
    char text[MRD_NAME_MAX];
} mrd_definition;

/* Reads the next definition of a catalog. Of the other entries, SENT goes to `sent`, and STREAMs to the device, unless it is NULL. */
bool mrd_catalog_next(mrd_reader *reader, mrd_definition *definition, uint64_t *sent);
/* Finds a log in the catalog of a sector. */
bool mrd_catalog_find(mrd *device, uint32_t serial, const char *name, mrd_definition *definition);
/* The number of a log in the catalog of a sector, or -1; and how many functions are bound to each log there. */
int mrd_catalog_ids(mrd *device, uint32_t serial, const char *name, uint8_t triggers[MRD_LOGS_MAX]);
/* The record that begins at this address: an APPEND, or a DEFINE that carries one. */
bool mrd_record_at(mrd *device, uint32_t at, mrd_record_place *place);
/* Writes the catalog of a new sector. `end` is the offset behind it. */
int mrd_catalog_write(mrd *device, const mrd_header *header, uint32_t *end, uint32_t *crc);
/* Once the sector is valid: the states of the logs refer to it. */
void mrd_catalog_adopt(mrd *device, const mrd_header *header);
/* The most bytes that a catalog can have. */
uint32_t mrd_catalog_bytes_max(const mrd *device);

/* ---- clock.c ---- */

uint64_t mrd_now(mrd *device);
/* The clock when mrd_now was last called. */
static inline uint64_t mrd_last_clock(const mrd *device) { return device->uptime > device->clock ? device->uptime : device->clock; }

/* ---- journal.c ---- */

/* Makes room for an entry of at most `size` bytes, if `spare` bytes are left for the ends of runs. */
int mrd_reserve(mrd *device, uint32_t size, uint32_t spare);
/* The most bytes that the attempts and the ends of all pending runs take, with those of one more record of this log; -1 for none. What was
 * accepted fits into the area, which has at most 2^31 bytes. */
static inline uint32_t mrd_needed(const mrd *device, int log) { return device->needed + (log < 0 ? 0 : device->log[log].bound); }
/* The most bytes that a run of this function takes. */
uint32_t mrd_run_bytes(const mrd *device, unsigned function);
/* How many bytes for runs a new sector has, and all that can follow it if only `kept` sectors are needed. */
uint32_t mrd_room(const mrd *device, uint32_t kept);
/* Whether pending runs alone keep the next sector from being begun. */
bool mrd_runs_block(const mrd *device);
/* Notes which sectors a host has. */
void mrd_advance_unsent(mrd *device);
static inline void mrd_put(mrd *device, uint8_t byte) { device->burst[device->used++] = byte; }
void mrd_put_v(mrd *device, uint64_t value);
int mrd_flush(mrd *device);
void mrd_count_runs(mrd *device, unsigned log, uint32_t burst);
/* Counts a record that was staged, or found at recovery, in the burst at `burst`. */
static inline void mrd_count_record(mrd *device, unsigned log, uint32_t at, uint32_t burst) {
    mrd_log_state_ *state = &device->log[log];
    state->seqno++;
    state->last = at;
    if (state->triggers > 0) mrd_count_runs(device, log, burst);
}
/* Writes an APPEND for which there is room. */
void mrd_put_append(mrd *device, unsigned log, const void *data, uint32_t size, uint8_t cause, const uint8_t *id);
static inline uint32_t mrd_record_max(const mrd *device, unsigned log) { return device->log[log].most; }

/* ---- records.c ---- */

/* Finds the record that is `back` before the newest one of a log, if it is among the last ones that were appended, in the newest sector. */
bool mrd_find_recent(const mrd *device, unsigned log, uint32_t back, mrd_record_place *place);
int64_t mrd_get_at(mrd *device, unsigned log, uint64_t seqno, void *buffer, size_t capacity);

/* ---- command.c ---- */

enum { MRD_SENDER_BYTES = 2 + 1 + 6 + 8 + 2 * MRD_V_MAX }; /* the most of its NOTE */

/* The number of a sender among those that the device knows; a new one if there is room, or an error. A life that is not later
 * than the known one is refused. */
int mrd_sender_of(mrd *device, uint64_t namespace_id, uint64_t life, uint64_t life_id);
/* Stages a command and its number together; without a log, only the number. `id` has 16 bytes. */
int mrd_stage_command(mrd *device, unsigned sender, uint64_t number, int log, const void *data, uint32_t size, const uint8_t *id);
/* The body of a sender's NOTE, with the namespace and the life if it is `whole`; its length. */
unsigned mrd_sender_encode(const mrd *device, unsigned sender, bool whole, uint8_t body[MRD_SENDER_BYTES]);
void mrd_sender_replay(mrd *device, uint32_t body, uint32_t size);

/* ---- pending.c ---- */

/* How many events an entry implies; `triggers` is the number of functions that are bound to the log of an APPEND. */
unsigned mrd_events_of(const mrd_entry *entry, unsigned triggers);
/* Walks from the cursor of a function to its oldest pending record, and moves the cursor there. `sequence` and `epoch` are those of the record. */
bool mrd_walk_pending(mrd *device, mrd_function_state_ *state, mrd_entry *entry, uint64_t *sequence, uint32_t *epoch);
/* Finds the oldest pending record of a function, without a walk if it was appended a moment ago. */
bool mrd_find_pending(mrd *device, unsigned function, mrd_record_place *place);

/* ---- open.c ---- */

/* Whether a host accepts this as the name of a log, or, without `segments`, of a function. */
bool mrd_is_name(const char *name, bool segments);

/* ---- run.c ---- */

/* Counts the attempt that the last reset interrupted, if port->retained tells of one. */
void mrd_count_interrupted(mrd *device);

#endif
