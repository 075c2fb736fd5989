/* millrace_remote.h - lets a host ask a device that is connected: what a log has now, and for an append that is answered with its seqno.
 *
 *     mrd_uplink_begin(&uplink, &device, &line, "kitchen", token, token_size);
 *     mrd_remote_begin(&uplink);
 *
 * The device answers GET, RANGE, LATEST and APPEND (spec/protocol/wire.md), in mrd_uplink_step. What it tells, and what was appended, is in flash
 * before it answers: a read flushes what waits in memory. An append needs a log with MRD_COMMANDS. With a guard (mrd_uplink_guard), a host must
 * have presented a capability with `read`, or `append`, on the log. Without this call, such requests are refused, and the firmware has no code
 * for them. An answer is one frame of at most MRD_FRAME_MAX bytes, so a longer record cannot be read this way. Nothing is waited for.
 */
#ifndef MILLRACE_REMOTE_H
#define MILLRACE_REMOTE_H

#include "millrace_uplink.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Call it after mrd_uplink_begin. */
void mrd_remote_begin(mrd_uplink *uplink);

#ifdef __cplusplus
}
#endif

#endif
