#include "internal.h"

/* ---- reading ---- */

static void read_name(mrd_reader *reader, mrd_definition *definition) {
    definition->name_size = mrd_take(reader);
    if (definition->name_size > MRD_NAME_MAX) reader->failed = true;
    mrd_take_bytes(reader, definition->text, definition->name_size);
}

static void read_log(mrd_reader *reader, mrd_definition *definition) {
    definition->flags = mrd_take(reader);
    definition->history = mrd_take_v(reader);
    definition->seqno = mrd_take_v(reader);
    definition->back = mrd_take_v(reader);
    read_name(reader, definition);
    if (definition->flags & MRD_LOG_CARRIED) mrd_take_v(reader);
    definition->record = reader->at;
    definition->record_size = reader->end - reader->at;
}

static void read_function(mrd_reader *reader, mrd_definition *definition) {
    uint64_t logs = mrd_take_v(reader);
    while (definition->on < MRD_LOGS_MAX && !(logs >> definition->on & 1)) definition->on++;
    definition->attempt = mrd_take(reader);
    definition->ended = mrd_take_v(reader);
    definition->pending = mrd_take_v(reader);
    definition->behind = mrd_take_v(reader);
    definition->older = mrd_take_v(reader);
    definition->back = mrd_take_v(reader);
    definition->skip = mrd_take_v(reader);
    read_name(reader, definition);
}

static void read_definition(mrd *device, const mrd_entry *entry, mrd_definition *definition, bool *failed) {
    mrd_reader body;
    memset(definition, 0, sizeof *definition);
    definition->at = entry->at;
    definition->id = entry->id;
    definition->what = entry->what;
    mrd_reader_begin(&body, device, entry->body, entry->body + entry->body_size);
    if (entry->what == MRD_DEFINE_LOG) read_log(&body, definition);
    if (entry->what == MRD_DEFINE_FUNCTION) read_function(&body, definition);
    *failed |= body.failed;
}

bool mrd_catalog_next(mrd_reader *reader, mrd_definition *definition, uint64_t *sent) {
    mrd_entry entry;
    while (mrd_next_entry(reader, &entry)) {
        if (entry.kind == MRD_NOTE && entry.id == MRD_SENT && sent) {
            mrd_reader body;
            mrd_reader_begin(&body, reader->device, entry.body, entry.body + entry.body_size);
            *sent = mrd_take_v(&body);
        }
        if (entry.kind == MRD_NOTE && entry.id == MRD_STREAM && sent) mrd_sender_replay(reader->device, entry.body, entry.body_size);
        if (entry.kind != MRD_DEFINE) continue;
        read_definition(reader->device, &entry, definition, &reader->failed);
        return !reader->failed;
    }
    return false;
}

static bool open_catalog(mrd *device, uint32_t serial, mrd_reader *reader) {
    mrd_header header;
    mrd_walk walk;
    if (!mrd_header_of(device, serial, &header)) return false;
    mrd_walk_begin(&walk, device, &header);
    if (!mrd_next_burst(&walk)) return false;
    mrd_reader_begin(reader, device, walk.body + 1, walk.end);
    return true;
}

static bool is_log(const mrd_definition *definition, const char *name) {
    return definition->what == MRD_DEFINE_LOG && mrd_is_same(name, definition->text, definition->name_size);
}

bool mrd_catalog_find(mrd *device, uint32_t serial, const char *name, mrd_definition *definition) {
    mrd_reader reader;
    if (!open_catalog(device, serial, &reader)) return false;
    while (mrd_catalog_next(&reader, definition, NULL)) {
        if (is_log(definition, name)) return true;
    }
    return false;
}

int mrd_catalog_ids(mrd *device, uint32_t serial, const char *name, uint8_t triggers[MRD_LOGS_MAX]) {
    mrd_reader reader;
    mrd_definition definition;
    int id = -1;
    memset(triggers, 0, MRD_LOGS_MAX);
    if (!open_catalog(device, serial, &reader)) return id;
    while (mrd_catalog_next(&reader, &definition, NULL)) {
        if (is_log(&definition, name)) id = definition.id;
        if (definition.what == MRD_DEFINE_FUNCTION && definition.on < MRD_LOGS_MAX) triggers[definition.on]++;
    }
    return id;
}

bool mrd_record_at(mrd *device, uint32_t at, mrd_record_place *place) {
    mrd_reader reader;
    mrd_entry entry;
    mrd_definition definition;
    uint32_t size = device->port->sector_bytes, staged = mrd_staged_at(device);
    bool failed = false;
    uint32_t end = at - staged < device->used ? staged + device->used : (at & ~(size - 1)) + size;
    if (mrd_append_at(device, at, place)) return true;
    mrd_reader_begin(&reader, device, at, end);
    if (!mrd_next_entry(&reader, &entry)) return false;
    place->is_carried = entry.kind == MRD_DEFINE && entry.what == MRD_DEFINE_LOG;
    if (!place->is_carried) return false;
    read_definition(device, &entry, &definition, &failed);
    place->back = 0;
    place->body = definition.record;
    place->size = definition.record_size;
    return !failed;
}

/* ---- writing ---- */

enum { COUNT, CHECK, PROGRAM, ADOPT };

/* A catalog may be longer than the memory for a burst, so it is produced several times: to learn its length, then its
 * checksum, then to write it, one page after the other. */
typedef struct {
    mrd *device;
    uint32_t at; /* of the burst */
    uint32_t size, crc;
    int error;
    uint16_t chunk, filled;
    uint8_t pass;
    uint8_t page[MRD_UNIT_MAX];
} sink;

static void program_page(sink *to) {
    const mrd_port *port = to->device->port;
    uint32_t size = mrd_align(to->filled, port->unit);
    memset(to->page + to->filled, 0xFF, size - to->filled);
    if (to->error == 0 && size > 0 && port->program(port->context, to->at + to->size - to->filled, to->page, size) != 0) {
        to->error = MRD_FLUSH_FAILED;
    }
    to->filled = 0;
}

static void emit(sink *to, const void *bytes, uint32_t size) {
    const uint8_t *from = (const uint8_t *)bytes;
    if (to->pass == CHECK) to->crc = mrd_crc(to->crc, bytes, size);
    if (to->pass != PROGRAM) {
        to->size += size;
        return;
    }
    while (size-- > 0) {
        to->page[to->filled++] = *from++;
        to->size++;
        if (to->filled == to->chunk) program_page(to);
    }
}

static void emit_byte(sink *to, unsigned byte) {
    uint8_t bytes[1];
    bytes[0] = (uint8_t)byte;
    emit(to, bytes, 1);
}

static void emit_v(sink *to, uint64_t value) {
    uint8_t bytes[MRD_V_MAX];
    emit(to, bytes, mrd_store_v(bytes, value));
}

static void emit_name(sink *to, const char *name) {
    uint32_t size = (uint32_t)strlen(name);
    emit_byte(to, size);
    emit(to, name, size);
}

static void emit_note(sink *to, unsigned what, uint64_t first, uint64_t second, bool both) {
    emit_byte(to, MRD_NOTE << 5 | what);
    emit_v(to, mrd_v_size(first) + (both ? mrd_v_size(second) : 0));
    emit_v(to, first);
    if (both) emit_v(to, second);
}

static void emit_record(sink *to, uint32_t at, uint32_t size) {
    uint8_t bytes[MRD_WINDOW];
    while (size > 0) {
        uint32_t part = size < sizeof bytes ? size : sizeof bytes;
        if (mrd_read(to->device, at, bytes, part) < 0) to->error = MRD_READ_FAILED;
        emit(to, bytes, part);
        at += part;
        size -= part;
    }
}

/* Whether the newest record of the log would be dropped with the next sector but one. */
static bool is_carried(const mrd *device, unsigned log, uint32_t serial) {
    uint32_t last = device->log[log].last;
    return device->logs[log].flags & MRD_KEEP && last != MRD_NONE &&
           serial + 1 - mrd_serial_of(device, last) >= device->port->sectors;
}

static void emit_log(sink *to, const mrd_header *header, unsigned id) {
    mrd *device = to->device;
    const mrd_log *log = &device->logs[id];
    mrd_log_state_ *state = &device->log[id];
    mrd_record_place place = {0, 0, 0, false};
    bool carried = is_carried(device, id, header->serial) && mrd_record_at(device, state->last, &place);
    uint64_t back = carried ? 0 : mrd_distance(device, header->serial, state->last);
    uint32_t name_size = (uint32_t)strlen(log->name), start = to->at + to->size;
    uint32_t size = 1 + mrd_v_size(log->history) + mrd_v_size(state->seqno) + mrd_v_size(back) + 1 + name_size;
    if (carried) size += 1 + place.size;
    emit_byte(to, MRD_DEFINE << 5 | id);
    emit_byte(to, MRD_DEFINE_LOG);
    emit_v(to, size);
    emit_byte(to, (log->flags & MRD_KEEP ? MRD_LOG_KEEP : 0) | (carried ? MRD_LOG_CARRIED : 0));
    emit_v(to, log->history);
    emit_v(to, state->seqno);
    emit_v(to, back);
    emit_name(to, log->name);
    if (carried) {
        emit_v(to, 0);
        emit_record(to, place.body, place.size);
    }
    if (to->pass == ADOPT) state->base = state->last = carried ? start : state->last;
}

static void emit_function(sink *to, const mrd_header *header, unsigned id) {
    mrd *device = to->device;
    const mrd_function_state_ *state = &device->function[id];
    bool waits = state->pending > 0;
    uint64_t logs = (uint64_t)1 << state->on;
    uint64_t behind = waits ? header->sequence - state->sequence : 0;
    uint64_t older = waits ? header->epoch - state->epoch : 0;
    uint64_t back = waits ? mrd_distance(device, header->serial, state->cursor) : 0;
    uint64_t skip = waits ? state->skip : 0;
    uint32_t name_size = (uint32_t)strlen(device->functions[id].name);
    emit_byte(to, MRD_DEFINE << 5 | id);
    emit_byte(to, MRD_DEFINE_FUNCTION);
    emit_v(to, mrd_v_size(logs) + 1 + mrd_v_size(state->ended) + mrd_v_size(state->pending) + mrd_v_size(behind) +
                   mrd_v_size(older) + mrd_v_size(back) + mrd_v_size(skip) + 1 + name_size);
    emit_v(to, logs);
    emit_byte(to, waits ? (state->fired > state->attempt ? state->fired : state->attempt) : 0u);
    emit_v(to, state->ended);
    emit_v(to, state->pending);
    emit_v(to, behind);
    emit_v(to, older);
    emit_v(to, back);
    emit_v(to, skip);
    emit_name(to, device->functions[id].name);
}

static void emit_catalog(sink *to, const mrd_header *header, uint32_t length, uint32_t crc, uint8_t pass) {
    mrd *device = to->device;
    uint8_t head[MRD_BURST_HEAD];
    to->pass = pass;
    to->size = to->filled = 0;
    mrd_store(head, length, 2);
    mrd_store(head + 2, crc, 4);
    if (pass == CHECK) {
        to->crc = mrd_crc(mrd_crc_chain(header->crc), head, 2);
        to->size = MRD_BURST_HEAD;
    } else {
        emit(to, head, sizeof head);
    }
    emit_v(to, 0);
    emit_note(to, MRD_SENT, device->sent, 0, false);
    if (device->held > device->sent + 1) emit_note(to, MRD_LOST, device->sent + 1, device->held - 1, true);
    for (unsigned i = 0; i < MRD_SENDERS; i++) {
        uint8_t body[MRD_SENDER_BYTES];
        if (device->sender[i].namespace_id == 0) continue;
        emit_byte(to, MRD_NOTE << 5 | MRD_STREAM);
        uint32_t size = mrd_sender_encode(device, i, true, body);
        emit_byte(to, size);
        emit(to, body, size);
    }
    for (unsigned i = 0; i < device->log_count; i++) emit_log(to, header, i);
    for (unsigned i = 0; i < device->function_count; i++) emit_function(to, header, i);
    if (pass == PROGRAM) program_page(to);
}

static void begin(sink *to, mrd *device, const mrd_header *header) {
    uint16_t unit = device->port->unit;
    to->device = device;
    to->at = mrd_sector_at(device, header->serial) + mrd_data_start(device);
    to->error = 0;
    to->chunk = unit < MRD_WINDOW ? MRD_WINDOW : unit;
}

int mrd_catalog_write(mrd *device, const mrd_header *header, uint32_t *end, uint32_t *crc) {
    sink to;
    begin(&to, device, header);
    emit_catalog(&to, header, 0, 0, COUNT);
    uint32_t length = to.size - MRD_BURST_HEAD;
    emit_catalog(&to, header, length, 0, CHECK);
    *crc = to.crc;
    emit_catalog(&to, header, length, *crc, PROGRAM);
    *end = mrd_align(mrd_data_start(device) + MRD_BURST_HEAD + length, device->grain);
    return to.error;
}

void mrd_catalog_adopt(mrd *device, const mrd_header *header) {
    sink to;
    begin(&to, device, header);
    emit_catalog(&to, header, 0, 0, ADOPT);
}

uint32_t mrd_catalog_bytes_max(const mrd *device) {
    uint32_t size = MRD_BURST_HEAD + 1 + 3 * (2 + MRD_V_MAX);
    for (unsigned i = 0; i < device->log_count; i++) size += 36 + (uint32_t)strlen(device->logs[i].name);
    for (unsigned i = 0; i < device->function_count; i++) size += 57 + (uint32_t)strlen(device->functions[i].name);
    if (device->keep_count > 0) size += device->port->sector_bytes / 4;
    if (device->commands) size += MRD_SENDERS * (2 + MRD_SENDER_BYTES);
    return mrd_align(size, device->grain);
}
