/* millrace_serial.h - a line for millrace_uplink.h over a serial port, which loses, repeats and changes bytes.
 *
 *     static mrd_serial serial;
 *     mrd_serial_begin(&serial, &uart);
 *     mrd_uplink_begin(&uplink, &device, &serial.line, "kitchen", token, token_size);
 *
 * The frames are those of spec/protocol/serial.md. What is not a frame is text for a console: boot messages and printf may share
 * the port. A byte that is lost ends the connection; the next one costs a round trip, and the journal's numbers make it exact.
 */
#ifndef MILLRACE_SERIAL_H
#define MILLRACE_SERIAL_H

#include "millrace_uplink.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MRD_SERIAL_DATA_MAX = 128, /* bytes of data in a frame */
    MRD_SERIAL_HEAD = 7,       /* kind (1), session (4), number (2) */
    MRD_SERIAL_PLAIN_MAX = MRD_SERIAL_HEAD + MRD_SERIAL_DATA_MAX + 4,
    MRD_SERIAL_FRAME_MAX = MRD_SERIAL_PLAIN_MAX + 3 /* a byte of COBS, and a zero on both sides */
};

/* PROVISION frames belong to no connection: millrace_provision.h takes them. */
enum { MRD_SERIAL_DATA = 1, MRD_SERIAL_OPEN, MRD_SERIAL_CLOSE, MRD_SERIAL_PROVISION };

typedef struct mrd_serial_frame {
    uint8_t kind;
    uint32_t session;
    uint16_t number;
    uint8_t size;
    uint8_t data[MRD_SERIAL_DATA_MAX];
} mrd_serial_frame;

/* Encodes a frame, and returns its length. */
size_t mrd_serial_encode(const mrd_serial_frame *frame, uint8_t bytes[MRD_SERIAL_FRAME_MAX]);

/* Finds frames in a stream of bytes. */
typedef struct mrd_serial_reader {
    uint8_t bytes[MRD_SERIAL_PLAIN_MAX + 1];
    uint8_t size;
    bool within; /* a zero came, and since then what may be a frame */
    bool overlong;
} mrd_serial_reader;

/* Takes a byte. Returns 1 if it completes a valid frame; 0 if more are needed; -1 if it is text; -2 if it ends an invalid frame. */
int mrd_serial_take(mrd_serial_reader *reader, uint8_t byte, mrd_serial_frame *frame);

/* The port. Neither call waits; both return how many bytes were written or read. */
typedef struct mrd_uart {
    size_t (*write)(void *context, const void *bytes, size_t size);
    size_t (*read)(void *context, void *bytes, size_t size);
    /* Random bytes, for the number of a session, and as in mrd_line. */
    int (*random)(void *context, void *bytes, size_t size);
    /* Text that is no frame, or NULL. */
    void (*console)(void *context, uint8_t byte);
    void *context;
} mrd_uart;

typedef struct mrd_serial {
    /* Private. */
    uint8_t state;
    uint8_t out_at, out_end, data_at;
    uint16_t sent, received; /* numbers of the next frames */
    uint32_t session;
    const mrd_uart *uart;

    mrd_line line;

    /* Private. */
    mrd_serial_frame in; /* what was received and not taken yet */
    uint8_t out[MRD_SERIAL_FRAME_MAX];
    mrd_serial_reader reader;
} mrd_serial;

void mrd_serial_begin(mrd_serial *serial, const mrd_uart *uart);

#ifdef __cplusplus
}
#endif

#endif
