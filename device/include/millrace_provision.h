/* millrace_provision.h - gets the identity of a device over its serial line, from `millrace device provision NAME --serial PORT`.
 *
 *     static mrd_provision provision;
 *     static uint8_t bytes[MRD_IDENTITY_MAX];
 *     mrd_provision_begin(&provision, &uart, &area, NULL, NULL);
 *     while (mrd_identity_load(&identity, &area, bytes) < 0) {
 *         mrd_provision_step(&provision);
 *         board_sleep(10);
 *     }
 *     mrd_serial_begin(&serial, &provision.uart);       // and mrd_provision_step in the main loop, behind mrd_uplink_step
 *
 * A device that has an identity refuses another one, so that nobody who can reach the line takes over a device in use; the same one is
 * accepted again. The identity is verified, written to both sectors one after the other, and read back. A loss of power leaves the identity
 * before or the new one, and the host can begin again. No byte of an identity is ever sent to the host. Needs millrace_serial.h and
 * millrace_identity.h; a firmware that does not call this contains nothing of it. spec/protocol/serial.md has the frames.
 */
#ifndef MILLRACE_PROVISION_H
#define MILLRACE_PROVISION_H

#include "millrace_identity.h"
#include "millrace_serial.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Results of mrd_provision_step, and answers to the host beside -6340 and -2002. */
enum { MRD_PROVISIONED = 1, MRD_IDENTITY_KEPT = -6353, MRD_IDENTITY_NOT_WRITTEN = -6354 };

typedef struct mrd_provision {
    /* The port, for mrd_serial_begin: what it reads passes through here. */
    mrd_uart uart;

    /* Private. */
    const mrd_uart *port;
    const mrd_port *area;
    bool (*may_replace)(void *context);
    void *context;
    uint32_t session, answer_session;
    uint16_t next, size, at; /* the number of the next frame, and how much of the identity has come */
    uint16_t answer, answer_number;
    uint8_t answered; /* how many bytes of the answer were written */
    bool answers;     /* an answer is due */
    bool complete;    /* and the identity is to be written before */
    bool changed;     /* and the caller is to be told behind it */
    bool shared;      /* a line reads the port */
    mrd_serial_reader reader;
    uint8_t bytes[MRD_IDENTITY_MAX];
} mrd_provision;

/* `area` is the flash of the identity: at least two sectors, of which the first two are used; its `namespace_id` and `ms` are not used. An identity
 * that a loss of power left in one of them alone is copied to the other one. `may_replace` says whether another identity is accepted although
 * the device has one: while a jumper is set, or a button is held. NULL: never. `uart` and `area` must stay valid. */
void mrd_provision_begin(mrd_provision *provision, const mrd_uart *uart, const mrd_port *area, bool (*may_replace)(void *context),
                         void *context);

/* Takes what has come, and answers. Until a line has read provision.uart, it reads the port itself. Returns MRD_PROVISIONED once after a new
 * identity is in flash and the host has its answer; 0 otherwise; or MRD_IDENTITY_NOT_WRITTEN. A device that waited for its identity then goes
 * on. One that had another namespace resets when the port has sent everything, and erases its journal (mrd_open: MRD_OTHER_NAMESPACE). */
int mrd_provision_step(mrd_provision *provision);

#ifdef __cplusplus
}
#endif

#endif
