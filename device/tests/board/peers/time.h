/* For peers.c. */
typedef long time_t;
