/* For peers.c: nothing is printed. */
