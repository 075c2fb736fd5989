/* For peers.c: nothing is allocated. */
#include <stddef.h>
