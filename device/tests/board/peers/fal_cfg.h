/* For peers.c: its functions are there. */
#define FAL_PRINTF(...) ((void)0)
