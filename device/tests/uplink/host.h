/* host.h - a model of the host, for tests: it imports what a device sends, sends commands, and crashes with its connections.
 *
 * The journal arrives in frames of the wire protocol; the model keeps each record under its log and seqno, and notes which ones
 * are lost. It is one file for each test, without threads: the line of the device calls it.
 */
#ifndef MILLRACE_DEVICE_HOST_H
#define MILLRACE_DEVICE_HOST_H

#include "../../src/internal.h"
#include "check.h"
#include "millrace_uplink.h"

enum { HOST_LOGS = 4, HOST_RECORDS = 8192, HOST_QUEUE = 65536, HOST_SECTOR = 4096, HOST_COMMANDS_MAX = 4096 };

typedef struct {
    const char *name;
    uint64_t newest;
    uint64_t content[HOST_RECORDS]; /* the first eight bytes of each record */
    uint64_t sequence[HOST_RECORDS];
    uint32_t epoch[HOST_RECORDS];
    bool lost[HOST_RECORDS];
} host_log;

typedef struct {
    uint8_t bytes[HOST_QUEUE];
    size_t size;
} queue;

typedef struct host host;

struct host {
    void (*seen)(host *h, const mrw_frame *frame); /* gets the answers to requests of the host, if it is set */
    /* What survives everything. */
    uint64_t sequence, issued, acknowledged, lost, refused;
    uint64_t namespace_id, life, life_id;
    host_log log[HOST_LOGS];
    uint64_t now_ms; /* its clock */
    uint64_t knows; /* it is too old for entries behind this one; 0: it knows all */
    /* The connection. */
    mrd_line line;
    bool reachable, open, greeted, linked;
    uint64_t cut_after; /* bytes in both directions until the connection is lost, 0 for never */
    uint64_t request, link, connections;
    queue in, out;
    /* The sector that arrives. */
    mrd_port port;
    mrd mirror;
    uint8_t sector[HOST_SECTOR];
    uint32_t serial, at, crc, burst_at, burst_have;
    uint64_t next; /* the sequence of the next entry */
    uint32_t epoch;
    bool has_catalog;
    uint64_t seqno[MRD_LOGS_MAX];
    int map[MRD_LOGS_MAX];
    unsigned triggers[MRD_LOGS_MAX];
};

static int host_read(void *context, uint32_t at, void *bytes, uint32_t size) {
    memcpy(bytes, ((host *)context)->sector + at, size);
    return 0;
}

static void host_say(host *h, uint8_t type, uint64_t request, const void *message) {
    mrw_heading heading = {0, 0, {{0}}};
    mrw_writer to = {h->out.bytes + h->out.size, sizeof h->out.bytes - h->out.size, 0, false, NULL, NULL};
    heading.request = request;
    heading.hlc = (h->now_ms * 1000) << 12;
    EQUAL(mrw_encode(&to, type, &heading, message), 0);
    h->out.size += to.size;
}

/* ---- commands ---- */

static void host_deliver(host *h) {
    uint8_t data[3][8];
    mrw_item items[3];
    mrw_deliver deliver;
    memset(&deliver, 0, sizeof deliver);
    memset(items, 0, sizeof items);
    /* Sometimes it sends again what the device has, as a sender that was restarted does. */
    deliver.first = h->acknowledged > 0 && h->connections % 3 == 0 ? h->acknowledged : h->acknowledged + 1;
    while (deliver.items.count < 3 && deliver.first + deliver.items.count <= h->issued) {
        uint32_t i = deliver.items.count++;
        mrd_store(data[i], deliver.first + i, 8);
        items[i].log.at = "config";
        items[i].log.size = 6;
        items[i].data.at = data[i];
        items[i].data.size = 8;
        items[i].id.bytes[0] = 1;
        items[i].hlc = 1;
    }
    if (h->acknowledged == h->issued) return;
    deliver.link = h->link;
    deliver.items.items = items;
    host_say(h, MRW_DELIVER, ++h->request, &deliver);
}

static void host_link(host *h) {
    mrw_link link;
    if (h->linked || h->acknowledged == h->issued) return;
    memset(&link, 0, sizeof link);
    link.stream.at = "kitchen";
    link.stream.size = 7;
    link.namespace_id = h->namespace_id;
    link.epoch = 1;
    link.life.given = true;
    link.life.number = h->life;
    link.life.id = h->life_id;
    h->linked = true;
    h->link = ++h->request;
    host_say(h, MRW_LINK, h->link, &link);
}

/* ---- the journal ---- */

static void host_define(host *h, const mrd_definition *found) {
    if (found->what == MRD_DEFINE_FUNCTION) {
        h->triggers[found->on]++;
        return;
    }
    h->map[found->id] = -1;
    for (int i = 0; i < HOST_LOGS; i++) {
        if (h->log[i].name && mrd_is_same(h->log[i].name, found->text, found->name_size)) h->map[found->id] = i;
    }
    CHECK(h->map[found->id] >= 0);
    h->seqno[found->id] = found->seqno;
    host_log *log = &h->log[h->map[found->id]];
    /* Only what was dropped is missing, and the header's sequence says so. */
    if (found->seqno > log->newest) CHECK(h->next > h->sequence + 1);
    for (; log->newest < found->seqno; log->newest++, h->lost++) log->lost[log->newest + 1] = true;
}

static void host_append(host *h, const mrd_entry *entry, bool fresh) {
    uint64_t seqno = ++h->seqno[entry->id];
    host_log *log = &h->log[h->map[entry->id]];
    uint8_t bytes[8];
    CHECK(seqno < HOST_RECORDS);
    CHECK(entry->body_size >= 8);
    memcpy(bytes, h->sector + entry->body, 8);
    if (fresh) {
        EQUAL(seqno, log->newest + 1);
        log->newest = seqno;
        log->content[seqno] = mrd_load(bytes, 8);
        log->sequence[seqno] = h->next;
        log->epoch[seqno] = h->epoch;
    } else if (!log->lost[seqno]) {
        CHECK(log->content[seqno] == mrd_load(bytes, 8)); /* what comes again is the same */
    }
}

static void host_burst(host *h, uint32_t body, uint32_t end) {
    mrd_reader reader;
    mrd_entry entry;
    mrd_definition found;
    mrd_reader_begin(&reader, &h->mirror, body, end);
    mrd_take_v(&reader);
    if (!h->has_catalog) {
        memset(h->triggers, 0, sizeof h->triggers);
        while (mrd_catalog_next(&reader, &found, NULL)) host_define(h, &found);
        CHECK(!reader.failed);
        h->has_catalog = true;
        return;
    }
    while (mrd_next_entry(&reader, &entry)) {
        uint64_t first = h->next;
        if (entry.kind == MRD_OPEN) h->epoch = entry.epoch;
        if (entry.kind == MRD_APPEND) host_append(h, &entry, first > h->sequence);
        switch (entry.kind) {
        case MRD_APPEND: h->next += 1 + h->triggers[entry.id]; break;
        case MRD_DONE: h->next += 1u + (entry.attempt == 1) + entry.reads; break;
        case MRD_FIRED: h->next += entry.attempt == 2 ? 2 : 1; break;
        case MRD_CLOCK: h->next += entry.id == MRD_JUMP; break;
        default: h->next++; break;
        }
    }
    CHECK(!reader.failed);
    if (h->next - 1 > h->sequence) h->sequence = h->next - 1;
}

static void host_header(host *h, const mrw_entries *entries) {
    mrd_header header;
    EQUAL(entries->bytes.size, MRD_HEADER_BYTES);
    memset(h->sector, 0xFF, sizeof h->sector);
    memcpy(h->sector, entries->bytes.at, MRD_HEADER_BYTES);
    CHECK(mrd_header_read(&h->mirror, 0, &header));
    h->serial = header.serial;
    h->crc = header.crc;
    h->next = header.sequence;
    h->epoch = header.epoch;
    h->has_catalog = false;
    h->burst_have = 0;
}

static void host_entries(host *h, const mrw_entries *entries) {
    uint32_t size = (uint32_t)entries->bytes.size;
    CHECK(entries->at + size <= sizeof h->sector);
    if (entries->at == 0) {
        host_header(h, entries);
        return;
    }
    EQUAL(entries->sector, h->serial);
    if (h->burst_have == 0) h->burst_at = entries->at;
    EQUAL(entries->at, h->burst_at + h->burst_have);
    memcpy(h->sector + entries->at, entries->bytes.at, size);
    h->burst_have += size;
    if (h->burst_have < MRD_BURST_HEAD) return;
    const uint8_t *head = h->sector + h->burst_at;
    uint32_t length = (uint32_t)mrd_load(head, 2);
    if (h->burst_have < MRD_BURST_HEAD + length) return;
    EQUAL(h->burst_have, MRD_BURST_HEAD + length);
    uint32_t crc = mrd_crc(mrd_crc(mrd_crc_chain(h->crc), head, 2), head + MRD_BURST_HEAD, length);
    EQUAL(crc, mrd_load4(head + 2));
    h->crc = crc;
    h->burst_have = 0;
    host_burst(h, h->burst_at + MRD_BURST_HEAD, h->burst_at + MRD_BURST_HEAD + length);
}

/* ---- the connection ---- */

static void host_take(host *h, const mrw_frame *frame) {
    mrw_welcome welcome;
    mrw_attached attached;
    mrw_entries entries;
    mrw_entered entered;
    mrw_linked linked;
    mrw_delivered delivered;
    mrw_failure failure;
    bool asks = frame->type == MRW_HELLO || frame->type == MRW_ATTACH || frame->type == MRW_ENTRIES;
    if (h->seen && !asks) {
        h->seen(h, frame);
        return;
    }
    switch (frame->type) {
    case MRW_HELLO:
        memset(&welcome, 0, sizeof welcome);
        welcome.version = MRW_VERSION;
        welcome.host.at = welcome.name.at = "host";
        welcome.host.size = welcome.name.size = 4;
        welcome.durability = MRW_DISK;
        host_say(h, MRW_WELCOME, frame->heading.request, &welcome);
        break;
    case MRW_ATTACH:
        attached.sequence = h->sequence;
        host_say(h, MRW_ATTACHED, frame->heading.request, &attached);
        host_link(h);
        break;
    case MRW_ENTRIES:
        EQUAL(mrw_decode(frame, MRW_ENTRIES, &entries), 0);
        if (h->knows > 0 && h->sequence >= h->knows && entries.at > 0 && h->next > h->sequence) {
            memset(&failure, 0, sizeof failure);
            failure.code.at = "MR2002";
            failure.code.size = 6;
            host_say(h, MRW_FAILURE, frame->heading.request, &failure);
            break;
        }
        host_entries(h, &entries);
        entered.sequence = h->sequence;
        host_say(h, MRW_ENTERED, frame->heading.request, &entered);
        host_link(h);
        break;
    case MRW_LINKED:
        EQUAL(mrw_decode(frame, MRW_LINKED, &linked), 0);
        CHECK(linked.number >= h->acknowledged && linked.number <= h->issued);
        h->acknowledged = linked.number;
        host_deliver(h);
        break;
    case MRW_DELIVERED:
        EQUAL(mrw_decode(frame, MRW_DELIVERED, &delivered), 0);
        CHECK(delivered.number >= h->acknowledged && delivered.number <= h->issued);
        h->acknowledged = delivered.number;
        if (delivered.refused.given) h->refused++;
        else host_deliver(h);
        break;
    case MRW_FAILURE: h->refused++; break;
    default: CHECK(frame->type == MRW_PONG); break;
    }
}

static void host_work(host *h) {
    size_t used = 0, begin = 0;
    mrw_frame frame;
    if (!h->greeted && h->in.size >= 4) {
        EQUAL(memcmp(h->in.bytes, MRW_PREFACE, 4), 0);
        h->greeted = true;
        begin = 4;
    }
    while (h->greeted) {
        int result = mrw_split(h->in.bytes + begin, h->in.size - begin, MRW_HELLO_MAX, &frame, &used);
        CHECK(result >= 0);
        if (result == 0) break;
        host_take(h, &frame);
        begin += used;
    }
    memmove(h->in.bytes, h->in.bytes + begin, h->in.size - begin);
    h->in.size -= begin;
}

static int host_open(void *context) {
    host *h = (host *)context;
    if (!h->reachable) return 1;
    h->open = true;
    h->greeted = h->linked = false;
    h->in.size = h->out.size = 0;
    h->request = 0;
    h->connections++;
    return 0;
}

/* At most so many bytes pass before the connection is lost; false if it is lost now. */
static bool host_passes(host *h, size_t *size) {
    if (h->cut_after > 0) {
        if (*size > h->cut_after - 1) *size = (size_t)(h->cut_after - 1);
        h->cut_after -= *size;
        if (h->cut_after == 1) {
            h->open = false;
            h->cut_after = 0;
        }
    }
    return h->open;
}

static long host_send(void *context, const void *bytes, size_t size) {
    host *h = (host *)context;
    if (!h->open) return -1;
    bool stays = host_passes(h, &size);
    if (size > 100 && h->connections % 4 == 1) size = 100; /* a line that takes little at once */
    CHECK(h->in.size + size <= sizeof h->in.bytes);
    memcpy(h->in.bytes + h->in.size, bytes, size);
    h->in.size += size;
    host_work(h);
    return stays ? (long)size : -1;
}

static long host_receive(void *context, void *bytes, size_t size) {
    host *h = (host *)context;
    if (!h->open) return -1;
    if (size > h->out.size) size = h->out.size;
    if (size > 0 && !host_passes(h, &size)) return -1;
    memcpy(bytes, h->out.bytes, size);
    memmove(h->out.bytes, h->out.bytes + size, h->out.size - size);
    h->out.size -= size;
    return (long)size;
}

static void host_close(void *context) { ((host *)context)->open = false; }

static void host_begin(host *h, uint32_t sector_bytes) {
    memset(h, 0, sizeof *h);
    h->line.open = host_open;
    h->line.send = host_send;
    h->line.receive = host_receive;
    h->line.close = host_close;
    h->line.context = h;
    h->reachable = true;
    h->namespace_id = 99;
    h->life = 3;
    h->life_id = 0xABCDEF;
    h->port.read = host_read;
    h->port.context = h;
    h->port.sectors = 4;
    h->port.sector_bytes = sector_bytes;
    h->mirror.port = &h->port;
    h->mirror.grain = 1;
    h->mirror.sector = MRD_NONE / 2;
}

#endif
