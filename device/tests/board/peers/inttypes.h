/* For peers.c. */
#define PRIu32 "lu"
#define PRIX32 "lX"
#define PRIdLEAST16 "d"
#define PRIi32 "ld"
#define PRId32 "ld"
#define PRIdMAX "lld"
