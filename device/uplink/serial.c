#include "millrace_serial.h"
#include "../src/internal.h"

/* CALLED: a host asks for a connection, whatever there was. */
enum { CLOSED, CALLED, BROKEN, OPENING, OPEN };

/* ---- frames ---- */

/* Consistent overhead byte stuffing: the zeros are replaced by distances, so a zero only stands between frames. */
static size_t stuff(const uint8_t *from, size_t size, uint8_t *to) {
    size_t mark = 0, at = 1;
    for (size_t i = 0; i < size; i++) {
        if (from[i] != 0) {
            to[at++] = from[i];
            continue;
        }
        to[mark] = (uint8_t)(at - mark);
        mark = at++;
    }
    to[mark] = (uint8_t)(at - mark);
    return at;
}

/* In place; the length, or 0 if the bytes are not stuffed. */
static size_t unstuff(uint8_t *bytes, size_t size) {
    size_t at = 0, made = 0;
    while (at < size) {
        size_t end = at + bytes[at];
        if (bytes[at] == 0 || end > size) return 0;
        for (at++; at < end; at++) bytes[made++] = bytes[at];
        if (at < size) bytes[made++] = 0;
    }
    return made;
}

size_t mrd_serial_encode(const mrd_serial_frame *frame, uint8_t bytes[MRD_SERIAL_FRAME_MAX]) {
    uint8_t plain[MRD_SERIAL_PLAIN_MAX];
    size_t size = MRD_SERIAL_HEAD + (size_t)frame->size;
    plain[0] = frame->kind;
    mrd_store4(plain + 1, frame->session);
    plain[5] = (uint8_t)frame->number;
    plain[6] = (uint8_t)(frame->number >> 8);
    memcpy(plain + MRD_SERIAL_HEAD, frame->data, frame->size);
    mrd_store4(plain + size, mrd_crc(0, plain, size));
    bytes[0] = 0;
    size = 1 + stuff(plain, size + 4, bytes + 1);
    bytes[size] = 0;
    return size + 1;
}

static bool decode(mrd_serial_reader *reader, mrd_serial_frame *frame) {
    size_t size = reader->overlong ? 0 : unstuff(reader->bytes, reader->size);
    const uint8_t *at = reader->bytes;
    if (size < MRD_SERIAL_HEAD + 4 || mrd_crc(0, at, size - 4) != mrd_load4(at + size - 4)) return false;
    frame->kind = at[0];
    frame->session = mrd_load4(at + 1);
    frame->number = (uint16_t)(at[5] | at[6] << 8);
    frame->size = (uint8_t)(size - MRD_SERIAL_HEAD - 4);
    memcpy(frame->data, at + MRD_SERIAL_HEAD, frame->size);
    return frame->kind >= MRD_SERIAL_DATA && frame->kind <= MRD_SERIAL_PROVISION;
}

int mrd_serial_take(mrd_serial_reader *reader, uint8_t byte, mrd_serial_frame *frame) {
    if (byte != 0) {
        if (!reader->within) return -1;
        if (reader->size == sizeof reader->bytes) reader->overlong = true;
        else reader->bytes[reader->size++] = byte;
        return 0;
    }
    /* A zero ends a frame; if that is not valid, it may begin one whose end the zero seemed to be. */
    bool ended = reader->within && reader->size > 0, valid = ended && decode(reader, frame);
    reader->within = !valid;
    reader->size = 0;
    reader->overlong = false;
    return valid ? 1 : ended ? -2 : 0;
}

/* ---- the line ---- */

/* Writes what is left of the last frame; whether that was everything. */
static bool push(mrd_serial *serial) {
    const mrd_uart *uart = serial->uart;
    if (serial->out_at < serial->out_end) {
        size_t left = (size_t)(serial->out_end - serial->out_at);
        serial->out_at = (uint8_t)(serial->out_at + uart->write(uart->context, serial->out + serial->out_at, left));
    }
    return serial->out_at == serial->out_end;
}

static void say(mrd_serial *serial, uint8_t kind, const void *data, size_t size) {
    mrd_serial_frame frame;
    frame.kind = kind;
    frame.session = serial->session;
    frame.number = serial->sent++;
    frame.size = (uint8_t)size;
    memcpy(frame.data, data, size);
    serial->out_at = 0;
    serial->out_end = (uint8_t)mrd_serial_encode(&frame, serial->out);
    push(serial);
}

static int open_line(void *context) {
    mrd_serial *serial = (mrd_serial *)context;
    if (serial->uart->random(serial->uart->context, &serial->session, sizeof serial->session) != 0) return 1;
    serial->sent = serial->received = 0;
    serial->state = OPENING;
    say(serial, MRD_SERIAL_OPEN, serial, 0);
    return 0;
}

/* A frame of another session is one that was under way when this one began. A repeated one has a number before the next one;
 * after a lost one, or a later one that overtook it, the connection cannot go on. */
static void take_frame(mrd_serial *serial, const mrd_serial_frame *frame) {
    if (frame->session == 0) serial->state = CALLED;
    if (serial->state < OPENING || frame->session != serial->session) return;
    int16_t ahead = (int16_t)(frame->number - serial->received);
    if (ahead < 0) return;
    bool expected = ahead == 0 && frame->kind == (serial->state == OPENING ? MRD_SERIAL_OPEN : MRD_SERIAL_DATA);
    if (!expected) {
        serial->state = BROKEN;
        return;
    }
    serial->received++;
    serial->state = OPEN;
    serial->in = *frame;
    serial->data_at = 0;
}

/* Reads until there is data, or nothing is left. */
static void pull(mrd_serial *serial) {
    const mrd_uart *uart = serial->uart;
    mrd_serial_frame frame;
    uint8_t byte;
    while (serial->data_at == serial->in.size && uart->read(uart->context, &byte, 1) == 1) {
        int result = mrd_serial_take(&serial->reader, byte, &frame);
        if (result == -1 && uart->console) uart->console(uart->context, byte);
        if (result > 0) take_frame(serial, &frame);
        /* Probably a frame that was changed. */
        if (result == -2) serial->state = BROKEN;
    }
}

static long send_line(void *context, const void *bytes, size_t size) {
    mrd_serial *serial = (mrd_serial *)context;
    if (serial->state == OPENING) pull(serial);
    if (serial->state < OPENING) return -1;
    if (!push(serial) || serial->state == OPENING) return 0;
    if (size > MRD_SERIAL_DATA_MAX) size = MRD_SERIAL_DATA_MAX;
    say(serial, MRD_SERIAL_DATA, bytes, size);
    return (long)size;
}

static long receive_line(void *context, void *bytes, size_t size) {
    mrd_serial *serial = (mrd_serial *)context;
    push(serial);
    pull(serial);
    if (serial->state < OPENING) return -1;
    size_t left = (size_t)(serial->in.size - serial->data_at);
    if (size > left) size = left;
    memcpy(bytes, serial->in.data + serial->data_at, size);
    serial->data_at = (uint8_t)(serial->data_at + size);
    return (long)size;
}

static void close_line(void *context) {
    mrd_serial *serial = (mrd_serial *)context;
    /* Behind a frame that is not written to its end, the zero before this one ends that. */
    if (serial->state > CALLED) {
        say(serial, MRD_SERIAL_CLOSE, serial, 0);
        serial->state = CLOSED;
    }
    serial->data_at = serial->in.size;
}

static bool is_called(void *context) {
    mrd_serial *serial = (mrd_serial *)context;
    pull(serial);
    return serial->state == CALLED;
}

/* The other end ignores what it has, and what it lacks it gets, or it notices that more was lost. Then it repeats its own last frame. */
static void repeat_last(void *context) {
    mrd_serial *serial = (mrd_serial *)context;
    if (serial->state >= OPENING && push(serial)) {
        serial->out_at = 0;
        push(serial);
    }
}

static int fill_random(void *context, void *bytes, size_t size) {
    const mrd_uart *uart = ((mrd_serial *)context)->uart;
    return uart->random(uart->context, bytes, size);
}

void mrd_serial_begin(mrd_serial *serial, const mrd_uart *uart) {
    static const mrd_line line = {open_line, send_line, receive_line, close_line, fill_random, NULL, is_called, repeat_last};
    memset(serial, 0, sizeof *serial);
    serial->uart = uart;
    serial->line = line;
    serial->line.context = serial;
}
