#include "millrace_provision.h"
#include "../src/internal.h"

enum { HEAD = 12, WINDOW = 32, ANSWER_BYTES = 2, GO_ON = 0, STORED = 1, AGAIN = 2 };

/* ---- the two copies ---- */

/* Whether a sector begins with an identity, which may be one of a newer host. Reads it in pieces: there is no room for two. */
static bool has_identity(const mrd_port *area, uint32_t sector) {
    static const uint8_t magic[] = {'M', 'R', 'D', 'I'};
    uint8_t head[HEAD], window[WINDOW];
    uint32_t at = sector * area->sector_bytes;
    if (area->read(area->context, at, head, HEAD) != 0 || memcmp(head, magic, sizeof magic) != 0) return false;
    uint32_t left = (uint32_t)(head[6] | head[7] << 8), crc = mrd_crc(0, head, 8);
    if (left > MRD_IDENTITY_MAX - HEAD) return false;
    for (at += HEAD; left > 0;) {
        uint32_t some = left < WINDOW ? left : WINDOW;
        if (area->read(area->context, at, window, some) != 0) return false;
        crc = mrd_crc(crc, window, some);
        at += some;
        left -= some;
    }
    return crc == mrd_load4(head + 8);
}

/* Whether a sector has these bytes. The time does not depend on which of them differ. */
static bool has_bytes(const mrd_port *area, uint32_t sector, const uint8_t *bytes, uint32_t size) {
    uint8_t window[WINDOW], differ = 0;
    for (uint32_t at = 0; at < size;) {
        uint32_t some = size - at < WINDOW ? size - at : WINDOW;
        if (area->read(area->context, sector * area->sector_bytes + at, window, some) != 0) return false;
        for (uint32_t i = 0; i < some; i++) differ |= (uint8_t)(window[i] ^ bytes[at + i]);
        at += some;
    }
    return differ == 0;
}

/* `bytes` has MRD_IDENTITY_MAX, and 0xFF behind the identity. */
static bool write_copy(const mrd_port *area, uint32_t sector, const uint8_t *bytes, uint32_t size) {
    uint32_t at = sector * area->sector_bytes;
    if (has_bytes(area, sector, bytes, size)) return true;
    return area->erase(area->context, at) == 0 && area->program(area->context, at, bytes, mrd_align(size, area->unit)) == 0 &&
           has_bytes(area, sector, bytes, size);
}

/* The first copy counts if both are valid. So the other one is written first if only that one is not valid: there is one at every moment. */
static bool write_both(const mrd_port *area, const uint8_t *bytes, uint32_t size) {
    uint32_t first = has_identity(area, 0) && !has_identity(area, 1);
    return write_copy(area, first, bytes, size) && write_copy(area, 1 - first, bytes, size);
}

/* ---- the transfer ---- */

static uint16_t begin_transfer(mrd_provision *provision, const mrd_serial_frame *frame) {
    const mrd_port *area = provision->area;
    bool may = provision->may_replace && provision->may_replace(provision->context);
    provision->session = frame->session;
    provision->next = 1;
    provision->at = 0;
    provision->size = (uint16_t)(frame->size == 2 ? frame->data[0] | frame->data[1] << 8 : 0);
    memset(provision->bytes, 0xFF, sizeof provision->bytes);
    if (provision->size > MRD_IDENTITY_MAX) {
        provision->size = 0; /* there is no room for what a peer may send although it is refused */
        return -MRD_IDENTITY_INVALID;
    }
    /* A question. Whether it is the same identity is only known when all of it has come. */
    if (provision->size == 0 && !may && (has_identity(area, 0) || has_identity(area, 1))) return -MRD_IDENTITY_KEPT;
    return GO_ON;
}

/* What the next frame of a transfer is answered with. */
static uint16_t continue_transfer(mrd_provision *provision, const mrd_serial_frame *frame) {
    if (frame->session != provision->session || frame->number != provision->next || frame->size == 0) return AGAIN;
    if (frame->size > provision->size - provision->at) return -MRD_IDENTITY_INVALID;
    memcpy(provision->bytes + provision->at, frame->data, frame->size);
    provision->at = (uint16_t)(provision->at + frame->size);
    provision->next++;
    provision->complete = provision->at == provision->size;
    return GO_ON;
}

/* A host sends one frame at a time, and sends it again if its answer does not come. */
static void take_byte(mrd_provision *provision, uint8_t byte) {
    mrd_serial_frame frame;
    if (mrd_serial_take(&provision->reader, byte, &frame) <= 0 || frame.kind != MRD_SERIAL_PROVISION || frame.session == 0) return;
    if (provision->answers) return;
    bool repeated = frame.session == provision->session && frame.number > 0 && frame.number + 1 == provision->next;
    if (frame.number == 0) provision->answer = begin_transfer(provision, &frame);
    else if (!repeated) provision->answer = continue_transfer(provision, &frame);
    provision->answer_session = frame.session;
    provision->answer_number = frame.number;
    provision->answers = true;
}

/* Verifies and writes what has come. */
static uint16_t finish(mrd_provision *provision) {
    const mrd_port *area = provision->area;
    mrd_identity identity;
    int result = mrd_identity_read(&identity, provision->bytes, provision->size);
    bool known = has_identity(area, 0) || has_identity(area, 1);
    bool may = provision->may_replace && provision->may_replace(provision->context);
    bool same = has_bytes(area, !has_identity(area, 0), provision->bytes, provision->size);
    mrw_wipe(&identity, sizeof identity);
    if (result < 0) return (uint16_t)-result;
    if (known && !same && !may) return -MRD_IDENTITY_KEPT;
    if (!write_both(area, provision->bytes, provision->size)) return -MRD_IDENTITY_NOT_WRITTEN;
    provision->changed = !same;
    return STORED;
}

/* Writes the answer, or what is left of it; whether that was everything. */
static bool answer(mrd_provision *provision) {
    mrd_serial_frame frame;
    uint8_t bytes[MRD_SERIAL_FRAME_MAX];
    frame.kind = MRD_SERIAL_PROVISION;
    frame.session = provision->answer_session;
    frame.number = provision->answer_number;
    frame.size = ANSWER_BYTES;
    frame.data[0] = (uint8_t)provision->answer;
    frame.data[1] = (uint8_t)(provision->answer >> 8);
    size_t left = mrd_serial_encode(&frame, bytes) - provision->answered;
    size_t written = provision->port->write(provision->port->context, bytes + provision->answered, left);
    provision->answered = (uint8_t)(written == left ? 0 : provision->answered + written);
    provision->answers = written != left;
    return written == left;
}

/* ---- the port ---- */

static size_t read_through(void *context, void *bytes, size_t size) {
    mrd_provision *provision = (mrd_provision *)context;
    size_t done = provision->port->read(provision->port->context, bytes, size);
    provision->shared = true;
    for (size_t i = 0; i < done; i++) take_byte(provision, ((const uint8_t *)bytes)[i]);
    return done;
}

/* An answer that was begun is written to its end first. */
static size_t write_through(void *context, const void *bytes, size_t size) {
    mrd_provision *provision = (mrd_provision *)context;
    if (provision->answered > 0) return 0;
    return provision->port->write(provision->port->context, bytes, size);
}

static int random_through(void *context, void *bytes, size_t size) {
    const mrd_uart *port = ((mrd_provision *)context)->port;
    return port->random(port->context, bytes, size);
}

static void console_through(void *context, uint8_t byte) {
    const mrd_uart *port = ((mrd_provision *)context)->port;
    if (port->console) port->console(port->context, byte);
}

void mrd_provision_begin(mrd_provision *provision, const mrd_uart *uart, const mrd_port *area, bool (*may_replace)(void *context),
                         void *context) {
    static const mrd_uart through = {write_through, read_through, random_through, console_through, NULL};
    mrd_identity identity;
    memset(provision, 0, sizeof *provision);
    provision->uart = through;
    provision->uart.context = provision;
    provision->port = uart;
    provision->area = area;
    provision->may_replace = may_replace;
    provision->context = context;
    /* Power was lost between the two sectors, or one of them is damaged. */
    if (mrd_identity_load(&identity, area, provision->bytes) == 0) {
        uint32_t size = HEAD + (uint32_t)(provision->bytes[6] | provision->bytes[7] << 8);
        memset(provision->bytes + size, 0xFF, sizeof provision->bytes - size);
        write_both(area, provision->bytes, size);
    }
    mrw_wipe(&identity, sizeof identity);
    mrw_wipe(provision->bytes, sizeof provision->bytes);
}

int mrd_provision_step(mrd_provision *provision) {
    uint8_t byte;
    while (!provision->shared && !provision->answers && provision->port->read(provision->port->context, &byte, 1) == 1) {
        take_byte(provision, byte);
    }
    if (provision->complete) {
        provision->answer = finish(provision);
        provision->complete = false;
        mrw_wipe(provision->bytes, sizeof provision->bytes);
    }
    bool changed = provision->changed;
    if (!provision->answers || !answer(provision)) return 0;
    provision->changed = false;
    return changed ? MRD_PROVISIONED : provision->answer == -MRD_IDENTITY_NOT_WRITTEN ? MRD_IDENTITY_NOT_WRITTEN : 0;
}
