/* place.c - which place a text names, and a socket that leads there. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/netlink.h>
#endif

#define SCHEME "mr://"
#define SOCKET_SCHEME "unix:"
#define DEFAULT_PORT 7070
#define HOST_MAX_BYTES 253

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

bool mrc_is_name(const char *text, size_t size) {
    size_t i;
    if (size == 0 || size > MRC_NAME_MAX || text[0] == '.') return false;
    for (i = 0; i < size; i++) {
        if (!is_name_byte(text[i])) return false;
    }
    return true;
}

static bool parse_port(const char *text, uint16_t *port) {
    uint32_t number = 0;
    if (*text == 0) return false;
    for (; *text != 0; text++) {
        if (*text < '0' || *text > '9') return false;
        number = number * 10 + (uint32_t)(*text - '0');
        if (number > UINT16_MAX) return false;
    }
    *port = (uint16_t)number;
    return number != 0;
}

/* Takes HOST, HOST:PORT, [IPV6] or [IPV6]:PORT apart, in place; NULL, or what is wrong with it. */
static const char *parse_authority(mrc_place *place) {
    char *text = place->at, *port = NULL, *end;
    struct in6_addr ignored;
    size_t i;
    if (text[0] == '[') {
        end = strchr(text, ']');
        if (end == NULL) return "a bracket is not closed";
        if (end[1] == ':') port = end + 2;
        else if (end[1] != 0) return "a port is a number from 1 to 65535";
        *end = 0;
        memmove(text, text + 1, (size_t)(end - text));
        if (inet_pton(AF_INET6, text, &ignored) != 1) return "there is no IPv6 address between the brackets";
    } else {
        end = strchr(text, ':');
        if (end != NULL) {
            *end = 0;
            port = end + 1;
        }
        for (i = 0; text[i] != 0; i++) {
            if (!is_name_byte(text[i])) return "it does not name a host";
        }
    }
    if (text[0] == 0 || strlen(text) > HOST_MAX_BYTES) return "it does not name a host";
    place->port = DEFAULT_PORT;
    if (port != NULL && !parse_port(port, &place->port)) return "a port is a number from 1 to 65535";
    return NULL;
}

static const char *parse_address(mrc_place *place, const char *text) {
    const char *slash = strchr(text, '/');
    if (slash == NULL) return "it does not name a namespace";
    if ((size_t)(slash - text) >= sizeof place->at) return "it does not name a host";
    memcpy(place->at, text, (size_t)(slash - text));
    place->at[slash - text] = 0;
    if (strchr(slash + 1, '/') != NULL) return "it includes a log; open its namespace";
    if (!mrc_is_name(slash + 1, strlen(slash + 1))) return "its namespace is not a name";
    memcpy(place->name, slash + 1, strlen(slash + 1) + 1);
    return parse_authority(place);
}

int mrc_place_parse(mrc_client *client, const char *text) {
    mrc_place *place = &client->place;
    memset(place, 0, sizeof *place);
    if (strncmp(text, SCHEME, strlen(SCHEME)) == 0) {
        const char *fault = parse_address(place, text + strlen(SCHEME));
        place->kind = MRC_TCP;
        return fault == NULL ? 0 : mrc_fail(client, MRC_ADDRESS_INVALID, "'%.120s' is not an address: %s", text, fault);
    }
    place->kind = strncmp(text, SOCKET_SCHEME, strlen(SOCKET_SCHEME)) == 0 ? MRC_UNIX : MRC_DIRECTORY;
    if (place->kind == MRC_UNIX) text += strlen(SOCKET_SCHEME);
    if (text[0] == 0 || strlen(text) >= sizeof place->at) {
        return mrc_fail(client, MRC_C_PLACE_INVALID, "a path of %u bytes", (unsigned)strlen(text));
    }
    memcpy(place->at, text, strlen(text) + 1);
    return 0;
}

/* Waits until the connection stands or failed; an errno. */
static int connect_within(int fd, const struct sockaddr *address, socklen_t size, uint64_t deadline_ms) {
    struct pollfd wait;
    int fault = 0, ready;
    socklen_t fault_size = sizeof fault;
    if (connect(fd, address, size) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    wait.fd = fd;
    wait.events = POLLOUT;
    do {
        uint64_t now = mrc_now_ms();
        if (now >= deadline_ms) return ETIMEDOUT;
        ready = poll(&wait, 1, (int)(deadline_ms - now < 60000 ? deadline_ms - now : 60000));
    } while (ready == 0 || (ready < 0 && errno == EINTR));
    if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &fault_size) != 0) return errno;
    return fault;
}

/* A socket in blocking mode whose reads return after a second at the latest. An errno is left in `fault`. */
static int open_socket(int family, const struct sockaddr *address, socklen_t size, uint64_t deadline_ms, int *fault) {
    struct timeval slice = {1, 0};
    int one = 1, fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0) {
        *fault = errno;
        return -1;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *fault = connect_within(fd, address, size, deadline_ms);
    /* A request that waits in the kernel for the next one would wait for its own answer. */
    if (*fault == 0 && family != AF_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) {
        *fault = errno;
    }
    if (*fault == 0 && fcntl(fd, F_SETFL, 0) != 0) *fault = errno;
    if (*fault == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice) != 0) *fault = errno;
    if (*fault == 0) return fd;
    close(fd);
    return -1;
}

static int not_connected(mrc_client *client, const char *at, const char *port, int fault) {
    int number = fault == ETIMEDOUT ? MRC_CONNECT_TIMEOUT : MRC_CONNECT_FAILED;
    return mrc_fail(client, number, "%.100s%s%s: %s", at, port[0] == 0 ? "" : " port ", port, strerror(fault));
}

static int connect_unix(mrc_client *client, const char *path, uint64_t deadline_ms) {
    struct sockaddr_un address;
    int fault, fd;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) {
        return mrc_fail(client, MRC_CONNECT_FAILED, "the path of a socket has at most %u bytes",
                        (unsigned)sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, strlen(path));
    fd = open_socket(AF_UNIX, (const struct sockaddr *)&address, sizeof address, deadline_ms, &fault);
    return fd >= 0 ? fd : not_connected(client, path, "", fault);
}

static int connect_tcp(mrc_client *client, uint64_t deadline_ms) {
    struct addrinfo hints, *found = NULL, *each;
    const mrc_place *place = &client->place;
    char port[8];
    int fault = 0, fd = -1, status;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    snprintf(port, sizeof port, "%u", place->port);
    status = getaddrinfo(place->at, port, &hints, &found);
    if (status != 0) return mrc_fail(client, MRC_CONNECT_FAILED, "host '%s': %s", place->at, gai_strerror(status));
    for (each = found; each != NULL && fd < 0; each = each->ai_next) {
        fd = open_socket(each->ai_family, each->ai_addr, (socklen_t)each->ai_addrlen, deadline_ms, &fault);
    }
    freeaddrinfo(found);
    return fd >= 0 ? fd : not_connected(client, place->at, port, fault);
}

/* The socket of the host that serves a directory: in it, or where `millrace init` puts a namespace. */
static int connect_host_of(mrc_client *client, uint64_t deadline_ms) {
    static const char *const below[] = {"", "/socket", "/.millrace/socket"};
    char path[sizeof client->place.at + 32];
    struct stat about;
    size_t i;
    for (i = 0; i < sizeof below / sizeof below[0]; i++) {
        snprintf(path, sizeof path, "%s%s", client->place.at, below[i]);
        if (stat(path, &about) == 0 && S_ISSOCK(about.st_mode)) return connect_unix(client, path, deadline_ms);
    }
    if (client->place.kind == MRC_UNIX) return connect_unix(client, client->place.at, deadline_ms);
    return mrc_fail(client, MRC_C_LOCAL_MISSING, "no host serves '%.120s'", client->place.at);
}

int mrc_place_connect(mrc_client *client, uint64_t deadline_ms) {
    return client->place.kind == MRC_TCP ? connect_tcp(client, deadline_ms) : connect_host_of(client, deadline_ms);
}

/* ------------------------------------------------------------------------------------------- what a channel takes */

/* A file that only this user can have touched. */
static int open_private(mrc_client *client, const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *why = NULL;
    if (fd < 0 || fstat(fd, &about) != 0) why = strerror(errno);
    else if (!S_ISREG(about.st_mode)) why = "it is not a regular file";
    else if (about.st_uid != geteuid()) why = "it belongs to another user";
    else if ((about.st_mode & 077) != 0) why = "others can read or change it; its mode must be 0600";
    if (why == NULL) return fd;
    if (fd >= 0) close(fd);
    return mrc_fail(client, MRC_CREDENTIALS_UNUSABLE, "'%.100s': %s", path, why);
}

int mrc_place_capability(mrc_client *client, uint8_t token[MRW_TOKEN_MAX]) {
    /* As text it has a third more bytes, a prefix, and perhaps the end of a line. */
    char text[MRW_TOKEN_MAX * 4 / 3 + 16];
    const char *from = client->capability, *path = getenv("MILLRACE_CAPABILITY");
    size_t size = 0;
    int status;
    if (client->place.kind != MRC_TCP) return 0;
    if (from == NULL) {
        ssize_t got = 1;
        int fd;
        if (path == NULL || path[0] == 0) return 0;
        fd = open_private(client, path);
        if (fd < 0) return fd;
        while (got > 0 && size < sizeof text) {
            got = read(fd, text + size, sizeof text - size);
            if (got > 0) size += (size_t)got;
        }
        close(fd);
        if (got < 0) return mrc_fail(client, MRC_CREDENTIALS_UNUSABLE, "'%.100s': %s", path, strerror(errno));
        while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r' || text[size - 1] == ' ')) size--;
        from = text;
    } else {
        size = strlen(from);
    }
    status = mrw_token_parse(from, size, token, MRW_TOKEN_MAX);
    mrw_wipe(text, sizeof text);
    return status > 0 ? status : mrc_fail(client, MRC_CAPABILITY_MALFORMED, "the text is not a capability");
}

int mrc_place_nonce(mrc_client *client, uint8_t nonce[MRW_CHANNEL_NONCE]) {
    size_t made = 0;
    ssize_t got = 1;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && made < MRW_CHANNEL_NONCE) {
        got = read(fd, nonce + made, MRW_CHANNEL_NONCE - made);
        if (got > 0) made += (size_t)got;
    }
    if (fd >= 0) close(fd);
    if (made == MRW_CHANNEL_NONCE) return 0;
    return mrc_fail(client, MRC_IO, "the operating system gives no random bytes: %s", strerror(errno));
}

/* ------------------------------------------------------------------------------- who is at the other end of a port

   In clear nothing but the kernel says whose program listens: the process that had the port first may be of another user of this
   machine. Linux tells the user of either end of a connection within the machine (sock_diag(7)). */

static bool is_loopback(const struct sockaddr_storage *address) {
    static const uint8_t mapped[13] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
    if (address->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    if (address->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || memcmp(v6.sin6_addr.s6_addr, mapped, sizeof mapped) == 0;
    }
    return false;
}

#if defined(__linux__)
/* As the kernel writes an end: port and address in network order. */
typedef struct end {
    uint8_t port[2], address[16];
} end;

static end end_of(const struct sockaddr_storage *address) {
    end it;
    memset(&it, 0, sizeof it);
    if (address->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        memcpy(it.port, &v4.sin_port, sizeof it.port);
        memcpy(it.address, &v4.sin_addr, 4);
    } else {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        memcpy(it.port, &v6.sin6_port, sizeof it.port);
        memcpy(it.address, &v6.sin6_addr, sizeof it.address);
    }
    return it;
}

/* The address as a socket that takes both families has it. */
static end mapped(end it) {
    memmove(it.address + 12, it.address, 4);
    memset(it.address, 0, 10);
    memset(it.address + 10, 0xff, 2);
    return it;
}

static void put(uint8_t *at, const void *value, size_t size) {
    memcpy(at, value, size);
}

/* The user of the socket at `theirs` that is connected to `ours`: 1, 0 if it was closed, or -1 if the kernel does not tell. */
static int user_of(int family, end theirs, end ours, uint32_t *user) {
    /* The states of a socket that is connected: ESTABLISHED, FIN_WAIT 1 and 2, CLOSE_WAIT, LAST_ACK, CLOSING. */
    enum { REQUEST = 72, ANSWER = 88, BY_FAMILY = 20, CONNECTED = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11 };
    struct sockaddr_nl kernel;
    uint8_t ask[REQUEST], answer[512];
    uint32_t length = REQUEST, inode;
    uint16_t type = BY_FAMILY, flags = NLM_F_REQUEST;
    ssize_t count = -1;
    int fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG);
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    memset(&kernel, 0, sizeof kernel);
    kernel.nl_family = AF_NETLINK;
    memset(ask, 0, sizeof ask);
    put(ask, &length, sizeof length);
    put(ask + 4, &type, sizeof type);
    put(ask + 6, &flags, sizeof flags);
    ask[16] = (uint8_t)family;
    ask[17] = IPPROTO_TCP;
    memset(ask + 20, 0xff, 4); /* whatever its state */
    put(ask + 24, theirs.port, sizeof theirs.port);
    put(ask + 26, ours.port, sizeof ours.port);
    put(ask + 28, theirs.address, sizeof theirs.address);
    put(ask + 44, ours.address, sizeof ours.address);
    memset(ask + 64, 0xff, 8); /* no cookie */
    /* Connected, it takes messages from the kernel alone, which answers before send returns. */
    if (connect(fd, (const struct sockaddr *)&kernel, sizeof kernel) == 0 && send(fd, ask, sizeof ask, 0) >= 0) {
        count = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
    }
    close(fd);
    if (count < ANSWER || memcmp(answer + 4, &type, sizeof type) != 0) return -1;
    /* Without such a connection the kernel may show who listens at its address instead. */
    if (answer[16] != family) theirs = mapped(theirs), ours = mapped(ours);
    if (memcmp(answer + 20, ask + 24, 4) != 0 || memcmp(answer + 24, theirs.address, 16) != 0 ||
        memcmp(answer + 40, ours.address, 16) != 0) {
        return -1;
    }
    memcpy(user, answer + 80, sizeof *user);
    memcpy(&inode, answer + 84, sizeof inode);
    return inode != 0 && answer[17] < 16 && (CONNECTED >> answer[17] & 1) != 0;
}

static int check_user(mrc_client *client, const struct sockaddr_storage *theirs, const struct sockaddr_storage *ours) {
    struct sockaddr_storage still;
    socklen_t size = sizeof still;
    uint32_t user = 0;
    int known = user_of(theirs->ss_family, end_of(theirs), end_of(ours), &user);
    /* After a reset, a program of any user may connect from the same port, and the kernel reports that one: its answer is about this
       connection if the connection still stands. */
    if (known > 0 && getpeername(client->fd, (struct sockaddr *)&still, &size) != 0) known = 0;
    if (known > 0 && user == (uint32_t)geteuid()) return 0;
    /* Answers of another user's program may have come with the greeting. */
    if (known == 0) return mrc_fail(client, MRC_CONNECTION_LOST, "the host closed the connection");
    if (known > 0) {
        return mrc_fail(client, MRC_HOST_UNKNOWN, "a process of user %u listens at %.100s, not one of user %u", (unsigned)user,
                        client->place.at, (unsigned)geteuid());
    }
    if (getpeername(client->fd, (struct sockaddr *)&still, &size) != 0) {
        return mrc_fail(client, MRC_CONNECTION_LOST, "the connection broke: %s", strerror(errno));
    }
    return mrc_fail(client, MRC_HOST_UNKNOWN, "the kernel does not report whose process listens at %.100s", client->place.at);
}
#else
static int check_user(mrc_client *client, const struct sockaddr_storage *theirs, const struct sockaddr_storage *ours) {
    (void)client, (void)theirs, (void)ours;
    return 0;
}
#endif

int mrc_place_check(mrc_client *client, bool greeted) {
    struct sockaddr_storage theirs, ours;
    socklen_t theirs_size = sizeof theirs, ours_size = sizeof ours;
    /* The peer that opened the channel has proved that it knows the capability. */
    if (client->place.kind != MRC_TCP || client->secure) return 0;
    memset(&theirs, 0, sizeof theirs);
    memset(&ours, 0, sizeof ours);
    if (getpeername(client->fd, (struct sockaddr *)&theirs, &theirs_size) != 0 ||
        getsockname(client->fd, (struct sockaddr *)&ours, &ours_size) != 0) {
        return mrc_fail(client, MRC_CONNECTION_LOST, "the connection broke: %s", strerror(errno));
    }
    if (!is_loopback(&theirs)) {
        return mrc_fail(client, MRC_HOST_UNKNOWN, "%.100s is another machine, which requires a capability",
                        client->place.at);
    }
    /* The socket there has a user once the host has taken the connection. */
    return greeted ? check_user(client, &theirs, &ours) : 0;
}
