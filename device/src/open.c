#include "internal.h"

/* ---- settings ---- */

static const char newer_firmware[] = MRD_WHY("newer firmware wrote the flash");

static int refuse(mrd *device, int error, const char *why) {
    device->why = why;
    return error;
}

static bool is_power(uint32_t value) { return value > 0 && (value & (value - 1)) == 0; }

/* As names are checked by a host: segments of these characters, separated by '/'. */
bool mrd_is_name(const char *name, bool segments) {
    bool first = true;
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!plain && (first || (c != '.' && !(c == '/' && segments)))) return false;
        first = c == '/';
    }
    return !first && size <= MRD_NAME_MAX && name[0] != '_';
}

static int check_port(mrd *device) {
    const mrd_port *port = device->port;
    if (!port->read || !port->program || !port->erase || !port->ms) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: a function is missing"));
    }
    if (!is_power(port->sector_bytes) || port->sector_bytes < 1024 || port->sector_bytes > 256 * 1024) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: sector_bytes"));
    }
    if (port->sectors < 4 || port->sectors > 65535 || port->sectors * (uint64_t)port->sector_bytes < 8192 ||
        port->sectors * (uint64_t)port->sector_bytes > 1u << 31) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: sectors"));
    }
    if (!is_power(port->unit) || port->unit > MRD_UNIT_MAX) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: unit"));
    if (!is_power(port->torn_bytes) || port->torn_bytes < port->unit || port->torn_bytes > MRD_UNIT_MAX) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: torn_bytes"));
    }
    if (port->namespace_id == 0 || port->namespace_id >> 48 != 0) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("port: namespace_id"));
    }
    device->grain = port->torn_bytes;
    return 0;
}

static int check_names(mrd *device) {
    for (unsigned i = 0; i < device->log_count; i++) {
        const mrd_log *log = &device->logs[i];
        if (!mrd_is_name(log->name, true)) return refuse(device, MRD_NAME_INVALID, MRD_WHY("the name of a log"));
        if (log->history == 0) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("the history of a log"));
        if (mrd_find_log(device, log->name) != (int)i) return refuse(device, MRD_NAME_INVALID, MRD_WHY("two logs of one name"));
        device->keep_count = (uint8_t)(device->keep_count + (log->flags & MRD_KEEP));
        if (log->flags & MRD_COMMANDS) device->commands = true;
    }
    for (unsigned i = 0; i < device->function_count; i++) {
        const mrd_function *function = &device->functions[i];
        int on = function->on ? mrd_find_log(device, function->on) : -1;
        if (!mrd_is_name(function->name, false)) return refuse(device, MRD_NAME_INVALID, MRD_WHY("the name of a function"));
        if (on < 0) return refuse(device, MRD_LOG_NOT_FOUND, MRD_WHY("the log of a function"));
        if (!function->run || function->attempts > 15) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("a function"));
        if (function->dead_letter && mrd_find_log(device, function->dead_letter) < 0) {
            return refuse(device, MRD_LOG_NOT_FOUND, MRD_WHY("the dead_letter of a function"));
        }
        device->function[i].on = (uint8_t)on;
        device->log[on].triggers++;
        device->log[on].bound += mrd_run_bytes(device, i);
        for (unsigned j = 0; j < i; j++) {
            if (mrd_is_same(device->functions[j].name, function->name, strlen(function->name))) {
                return refuse(device, MRD_NAME_INVALID, MRD_WHY("two functions of one name"));
            }
        }
    }
    return 0;
}

/* What all newest records that are kept take of a catalog has a limit, so each of them has one. */
static void limit_records(mrd *device) {
    for (unsigned i = 0; i < device->log_count; i++) {
        uint32_t most = device->burst_bytes - 80u, kept = most;
        if (device->logs[i].flags & MRD_KEEP) kept = device->port->sector_bytes / 4 / device->keep_count - 1;
        device->log[i].most = (uint16_t)(kept < most ? kept : most);
    }
}

static int lay_out(mrd *device, void *memory, size_t memory_bytes) {
    size_t tables = device->log_count * sizeof(mrd_log_state_) + device->function_count * sizeof(mrd_function_state_);
    if (!memory || (uintptr_t)memory % sizeof(uint64_t) != 0 || memory_bytes < tables + MRD_BURST_MIN) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("memory: too small for MRD_WORDS"));
    }
    size_t burst = memory_bytes - tables;
    if (burst > MRD_BURST_MAX) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("memory: a burst has at most 4096 bytes"));
    device->function = (mrd_function_state_ *)memory;
    device->log = (mrd_log_state_ *)(device->function + device->function_count);
    device->burst = (uint8_t *)(device->log + device->log_count);
    device->burst_bytes = (uint16_t)(burst & ~(size_t)(device->grain - 1u));
    memset(memory, 0, memory_bytes);
    for (unsigned i = 0; i < device->log_count; i++) device->log[i].last = device->log[i].base = MRD_NONE;
    return 0;
}

/* ---- the catalog ---- */

/* The numbers of logs and functions are those of the flash until the first sector of this start. */
typedef struct {
    int8_t log[MRD_LOGS_MAX], function[MRD_FUNCTIONS_MAX];
    uint8_t triggers[MRD_LOGS_MAX];
    bool differs; /* the definitions in the flash are not those of this firmware */
} mapping;

static void adopt_log(mrd *device, mapping *map, const mrd_definition *found, uint32_t serial) {
    char name[MRD_NAME_MAX + 1];
    memcpy(name, found->text, found->name_size);
    name[found->name_size] = 0;
    int at = mrd_find_log(device, name);
    map->log[found->id] = (int8_t)at;
    if (at != found->id) map->differs = true;
    if (at < 0) return;
    mrd_log_state_ *state = &device->log[at];
    bool keeps = found->flags & MRD_LOG_KEEP;
    if (found->history != device->logs[at].history || keeps != (device->logs[at].flags & MRD_KEEP)) map->differs = true;
    state->seqno = found->seqno;
    state->last = found->flags & MRD_LOG_CARRIED ? found->at : mrd_back(device, serial, found->back);
    state->base = state->last;
}

/* An attempt that has no DONE ended with this start. It is made again, unless the function is known to have caused the reset. */
static void interrupt(mrd_function_state_ *state, uint8_t attempt) {
    state->attempt = attempt > 0 ? (uint8_t)(attempt - 1) : 0;
    state->fired = attempt > 1 ? attempt : 0;
}

static void adopt_function(mrd *device, mapping *map, const mrd_definition *found, const mrd_header *header) {
    int at = -1;
    for (unsigned i = 0; i < device->function_count; i++) {
        if (mrd_is_same(device->functions[i].name, found->text, found->name_size)) at = (int)i;
    }
    if (found->on < MRD_LOGS_MAX) map->triggers[found->on]++;
    /* A function that another log runs now is a new function. */
    if (at >= 0 && (found->on >= MRD_LOGS_MAX || map->log[found->on] != device->function[at].on)) at = -1;
    map->function[found->id] = (int8_t)at;
    if (at != found->id) map->differs = true;
    if (at < 0) return;
    mrd_function_state_ *state = &device->function[at];
    state->pending = (uint32_t)found->pending;
    state->ended = (uint32_t)found->ended;
    state->skip = (uint32_t)found->skip;
    interrupt(state, found->attempt);
    state->sequence = header->sequence - found->behind;
    state->epoch = header->epoch - (uint32_t)found->older;
    state->cursor = found->back == 0 ? MRD_NONE : mrd_back(device, header->serial, found->back);
    /* Without its first record, which only damage can have taken, it cannot go on. */
    if (state->cursor == MRD_NONE) state->pending = 0;
}

/* Returns 1, 0 if it is damaged, or a refusal. */
static int read_catalog(mrd *device, mapping *map, mrd_walk *walk, const mrd_header *header) {
    mrd_reader reader;
    mrd_definition found;
    unsigned logs = 0, functions = 0;
    memset(map, 0, sizeof *map);
    memset(map->log, -1, sizeof map->log);
    memset(map->function, -1, sizeof map->function);
    mrd_walk_begin(walk, device, header);
    if (!mrd_next_burst(walk)) return 0;
    mrd_reader_begin(&reader, device, walk->body + 1, walk->end);
    while (mrd_catalog_next(&reader, &found, &device->sent)) {
        if (found.what == MRD_DEFINE_LOG) adopt_log(device, map, &found, header->serial), logs++;
        if (found.what == MRD_DEFINE_FUNCTION) adopt_function(device, map, &found, header), functions++;
    }
    if (logs != device->log_count || functions != device->function_count) map->differs = true;
    return reader.failed ? refuse(device, MRD_FORMAT_UNKNOWN, newer_firmware) : 1;
}

/* ---- replay ---- */

static void replay_append(mrd *device, const mapping *map, const mrd_entry *entry, uint32_t burst) {
    int log = map->log[entry->id];
    device->sequence += 1u + map->triggers[entry->id];
    if (log < 0) return;
    mrd_count_record(device, (unsigned)log, entry->at, burst);
}

static void replay_run(mrd *device, const mapping *map, const mrd_entry *entry) {
    int at = map->function[entry->id];
    bool done = entry->kind == MRD_DONE;
    if (done) device->sequence += 1u + (entry->attempt == 1) + entry->reads;
    if (!done) device->sequence += entry->attempt == 2 ? 2 : 1;
    if (at < 0) return;
    mrd_function_state_ *state = &device->function[at];
    interrupt(state, done ? 0 : entry->attempt);
    if (!done || state->pending == 0) return;
    state->pending--;
    state->skip++;
    state->ended++;
}

static bool replay_burst(mrd *device, const mapping *map, const mrd_walk *walk) {
    mrd_reader reader;
    mrd_entry entry;
    device->burst_sequence = device->sequence;
    device->burst_epoch = device->epoch;
    mrd_reader_begin(&reader, device, walk->body, walk->end);
    device->clock += mrd_take_v(&reader);
    while (mrd_next_entry(&reader, &entry)) {
        switch (entry.kind) {
        case MRD_APPEND: replay_append(device, map, &entry, walk->body - MRD_BURST_HEAD); break;
        case MRD_DONE:
        case MRD_FIRED: replay_run(device, map, &entry); break;
        case MRD_OPEN:
            device->epoch = entry.epoch;
            device->sequence++;
            break;
        case MRD_CLOCK:
            device->clock += entry.value;
            if (entry.id != MRD_LATER) device->sequence++;
            break;
        case MRD_NOTE:
            device->sequence++;
            if (entry.id == MRD_STREAM) mrd_sender_replay(device, entry.body, entry.body_size);
            break;
        default: break;
        }
    }
    return !reader.failed;
}

static uint32_t count_torn(mrd *device, const mrd_walk *walk) {
    uint32_t end = walk->limit;
    while (end > walk->done && mrd_is_blank(device, walk->sector + end - 1, walk->sector + end)) end--;
    return end - walk->done;
}

static void find_oldest(mrd *device) {
    mrd_header header;
    uint32_t sectors = device->port->sectors, newest = device->serial;
    device->oldest = 0;
    if (newest + 1 >= sectors) {
        /* The sector behind the newest one may be under way. */
        device->oldest = newest + 1 - sectors;
        if (!mrd_header_of(device, device->oldest, &header)) device->oldest++;
    }
    device->held = mrd_header_of(device, device->oldest, &header) ? header.sequence : 1;
}

/* Whether bytes without a valid header are where the next sector will be: power was lost while it was begun, or it was
 * begun and is damaged, with entries of an epoch that nothing else names. */
static bool is_next_doubtful(mrd *device) {
    mrd_header header;
    uint32_t next = (device->serial + 1) % device->port->sectors, at = next * device->port->sector_bytes;
    return !mrd_header_read(device, next, &header) && !mrd_is_blank(device, at, at + device->port->sector_bytes);
}

/* Whether a valid burst follows one that is not: then that one was not torn, but is damaged. */
static bool is_damaged(mrd *device, const mrd_walk *walk) {
    uint8_t head[MRD_BURST_HEAD];
    mrd_walk behind = *walk;
    if (mrd_read(device, walk->sector + walk->at, head, sizeof head) < 0) return false;
    uint64_t end = walk->at + MRD_BURST_HEAD + mrd_load(head, 2);
    if (end >= walk->limit) return false;
    behind.at = mrd_align((uint32_t)end, device->grain);
    behind.crc = (uint32_t)mrd_load(head + 2, 4);
    return behind.at < behind.limit && mrd_next_burst(&behind);
}

static void begin_replay(mrd *device, const mrd_header *header) {
    device->sequence = header->sequence;
    device->clock = header->clock;
    device->epoch = header->epoch;
}

/* The newest sector with a catalog; normally the newest one of all. */
static int find_catalog(mrd *device, mapping *map, mrd_walk *walk) {
    mrd_header header;
    for (uint32_t serial = device->serial;; serial--) {
        int result = mrd_header_of(device, serial, &header) ? read_catalog(device, map, walk, &header) : 0;
        if (result > 0) begin_replay(device, &header);
        if (result != 0) return result;
        if (serial == device->oldest) return refuse(device, MRD_RECORD_DAMAGED, MRD_WHY("no sector has an intact catalog"));
    }
}

static int recover(mrd *device, const mrd_header *newest) {
    mapping map;
    mrd_walk walk;
    device->serial = newest->serial;
    device->sector = mrd_sector_at(device, newest->serial);
    find_oldest(device);
    int result = find_catalog(device, &map, &walk);
    if (result < 0) return result;
    while (mrd_next_burst(&walk)) {
        if (!replay_burst(device, &map, &walk)) return refuse(device, MRD_FORMAT_UNKNOWN, newer_firmware);
    }
    bool newer = walk.sector != mrd_sector_at(device, newest->serial);
    if (newer) begin_replay(device, newest);
    if (newer || (walk.torn && is_damaged(device, &walk))) device->damaged_from = device->sequence;
    device->crc = walk.crc;
    device->durable = device->sequence;
    device->lost_bytes = walk.torn ? count_torn(device, &walk) : 0;
    /* A page that reads blank may have been programmed a little when power was lost. */
    device->head = mrd_align(walk.done + 1, MRD_PAGE);
    if (newer || walk.torn || map.differs || device->head > device->port->sector_bytes) device->head = device->port->sector_bytes;
    device->own = device->serial + (newer || map.differs);
    device->epoch_before = device->epoch;
    /* What was lost may contain one OPEN in each page. */
    bool doubtful = newer || walk.torn || is_next_doubtful(device);
    device->epoch += doubtful ? device->port->sector_bytes / MRD_PAGE + 1 : 1;
    return 0;
}

int mrd_open(mrd *device, const mrd_port *port, const mrd_log *logs, unsigned log_count, const mrd_function *functions,
             unsigned function_count, void *memory, size_t memory_bytes) {
    mrd_header newest;
    memset(device, 0, sizeof *device);
    device->failed = true;
    device->port = port;
    device->logs = logs;
    device->functions = functions;
    device->write_back_ms = 2000;
    device->serial = MRD_NO_SERIAL;
    memset(device->verified, 0xFF, sizeof device->verified);
    device->counted = MRD_NONE;
    device->sequence = device->held = device->durable = 1;
    if (log_count < 1 || log_count > MRD_LOGS_MAX) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("1 to 32 logs"));
    if (function_count > MRD_FUNCTIONS_MAX) return refuse(device, MRD_SETTING_INVALID, MRD_WHY("at most 32 functions"));
    device->log_count = (uint8_t)log_count;
    device->function_count = (uint8_t)function_count;
    int result = check_port(device);
    if (result == 0) result = lay_out(device, memory, memory_bytes);
    if (result == 0) result = check_names(device);
    if (result < 0) return result;
    limit_records(device);
    uint32_t least = mrd_data_start(device) + mrd_catalog_bytes_max(device) + device->burst_bytes;
    device->room = port->sector_bytes - least;
    if (least > port->sector_bytes) {
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("sector_bytes: too small for these names and this burst"));
    }
    for (unsigned i = 0; i < function_count; i++) {
        if (mrd_room(device, 1) >= mrd_run_bytes(device, i)) continue;
        return refuse(device, MRD_SETTING_INVALID, MRD_WHY("sectors: too few for the attempts of a function"));
    }
    result = mrd_ring_find(device, &newest);
    if (result < 0) return result;
    device->epoch = 1;
    device->head = port->sector_bytes;
    if (result > 0) result = recover(device, &newest);
    if (result < 0) return result;
    device->opening = true;
    device->failed = false;
    device->uptime = device->clock + 1;
    device->uptime_ms = port->ms(port->context);
    device->needed = 0;
    for (unsigned i = 0; i < function_count; i++) device->needed += device->function[i].pending * mrd_run_bytes(device, i);
    mrd_advance_unsent(device);
    mrd_count_interrupted(device);
    return 0;
}

int mrd_erase(const mrd_port *port) {
    for (uint32_t i = 0; i < port->sectors; i++) {
        if (port->erase(port->context, i * port->sector_bytes) != 0) return MRD_FLUSH_FAILED;
    }
    return 0;
}
