/* serve.h - what the parts of the uplink share. */
#ifndef MILLRACE_DEVICE_SERVE_H
#define MILLRACE_DEVICE_SERVE_H

#include "millrace_uplink.h"

/* Encodes a frame and begins to send it. The one before it must have been sent. */
void mrd_uplink_say(mrd_uplink *uplink, uint8_t type, uint64_t request, const void *message);
/* Whether a type of message is a request that a host may send. */
bool mrd_is_request(uint8_t type);
/* Answers it. */
void mrd_uplink_serve(mrd_uplink *uplink, const mrw_frame *frame);

#endif
