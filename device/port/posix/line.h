/* line.h - a connection of TCP for millrace_uplink.h. */
#ifndef MILLRACE_DEVICE_LINE_H
#define MILLRACE_DEVICE_LINE_H

#include "millrace_uplink.h"

typedef struct mrd_tcp {
    mrd_line line;
    const char *address; /* HOST:PORT; HOST is an IPv4 address or a name */
    int fd;
    uint64_t cut_after; /* for tests: the connection is lost after this many bytes in both directions, 0 for never */
} mrd_tcp;

void mrd_tcp_begin(mrd_tcp *tcp, const char *address);
/* Waits until bytes have arrived, but not longer than this. */
void mrd_tcp_wait(const mrd_tcp *tcp, uint32_t ms);

#endif
