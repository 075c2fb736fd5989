/* string.h - for a compiler without a C library: what board.c defines. */
#ifndef MILLRACE_BARE_STRING_H
#define MILLRACE_BARE_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
size_t strspn(const char *text, const char *set);
size_t strcspn(const char *text, const char *set);
int memcmp(const void *one, const void *other, size_t size);
size_t strlen(const char *text);

#endif
