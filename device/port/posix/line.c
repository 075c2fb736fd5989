#define _POSIX_C_SOURCE 200809L
#include "line.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int open_line(void *context) {
    mrd_tcp *tcp = (mrd_tcp *)context;
    char host[256];
    const char *colon = strrchr(tcp->address, ':');
    struct addrinfo hints, *found;
    int one = 1;
    if (!colon || (size_t)(colon - tcp->address) >= sizeof host) return 1;
    memcpy(host, tcp->address, (size_t)(colon - tcp->address));
    host[colon - tcp->address] = 0;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) return 1;
    tcp->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (tcp->fd >= 0 && (fcntl(tcp->fd, F_SETFL, O_NONBLOCK) < 0 || setsockopt(tcp->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0 ||
                         (connect(tcp->fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS))) {
        close(tcp->fd);
        tcp->fd = -1;
    }
    freeaddrinfo(found);
    return tcp->fd < 0;
}

/* Takes bytes from what may be transferred before the connection is cut; false if nothing is left. */
static bool is_cut(mrd_tcp *tcp, size_t *size) {
    if (tcp->cut_after == 0) return false;
    if (tcp->cut_after == 1) return true;
    if (*size > tcp->cut_after - 1) *size = (size_t)(tcp->cut_after - 1);
    return false;
}

static long transferred(mrd_tcp *tcp, ssize_t done) {
    if (done > 0 && tcp->cut_after > 0) tcp->cut_after -= (uint64_t)done;
    if (done > 0) return (long)done;
    return done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN) ? 0 : -1;
}

static long send_line(void *context, const void *bytes, size_t size) {
    mrd_tcp *tcp = (mrd_tcp *)context;
    if (is_cut(tcp, &size)) return -1;
    return transferred(tcp, send(tcp->fd, bytes, size, MSG_NOSIGNAL));
}

static long receive_line(void *context, void *bytes, size_t size) {
    mrd_tcp *tcp = (mrd_tcp *)context;
    if (is_cut(tcp, &size)) return -1;
    return transferred(tcp, recv(tcp->fd, bytes, size, 0));
}

static void close_line(void *context) {
    mrd_tcp *tcp = (mrd_tcp *)context;
    if (tcp->fd >= 0) close(tcp->fd);
    tcp->fd = -1;
    tcp->cut_after = 0;
}

static int fill_random(void *context, void *bytes, size_t size) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, size);
    (void)context;
    if (fd >= 0) close(fd);
    return got == (ssize_t)size ? 0 : 1;
}

void mrd_tcp_begin(mrd_tcp *tcp, const char *address) {
    memset(tcp, 0, sizeof *tcp);
    tcp->line.open = open_line;
    tcp->line.send = send_line;
    tcp->line.receive = receive_line;
    tcp->line.close = close_line;
    tcp->line.random = fill_random;
    tcp->line.context = tcp;
    tcp->address = address;
    tcp->fd = -1;
}

void mrd_tcp_wait(const mrd_tcp *tcp, uint32_t ms) {
    struct pollfd wait;
    wait.fd = tcp->fd;
    wait.events = POLLIN;
    poll(&wait, 1, ms > 1000 ? 1000 : (int)ms);
}
