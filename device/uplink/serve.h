/* serve.h - what the parts of the uplink share. */
#ifndef MILLRACE_DEVICE_SERVE_H
#define MILLRACE_DEVICE_SERVE_H

#include "millrace_uplink.h"

/* Encodes a frame and begins to send it. The one before it must have been sent. */
void mrd_uplink_say(mrd_uplink *uplink, uint8_t type, uint64_t request, const void *message);
/* Begins to send the `size` bytes of a frame that are behind the head of a record in `out`. The same holds. */
void mrd_uplink_send(mrd_uplink *uplink, size_t size);
/* Answers a request of the host. */
void mrd_uplink_serve(mrd_uplink *uplink, const mrw_frame *frame);
/* Answers a request with this negative code. */
void mrd_uplink_fail(mrd_uplink *uplink, const mrw_frame *frame, int result);
/* Whether the capability that the host has presented permits this; without a guard, everything is permitted. `source` is the namespace that
 * delivers, 0 for a request. */
bool mrd_uplink_may(mrd_uplink *uplink, uint16_t right, uint8_t kind, const mrw_bytes *name, size_t bytes, uint64_t source);

#endif
