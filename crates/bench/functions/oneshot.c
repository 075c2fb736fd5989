/* Says when its first instruction ran: a program started once for every record. */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct timespec now;
    char line[64];
    const char *fd = getenv("MILLRACE_APPEND_FD");
    int length;
    clock_gettime(CLOCK_REALTIME, &now);
    length = snprintf(line, sizeof line, "out\t%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return fd && write(atoi(fd), line, (size_t)length) == length ? 0 : 1;
}
