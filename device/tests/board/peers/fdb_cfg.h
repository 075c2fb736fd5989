#ifndef _FDB_CFG_H_
#define _FDB_CFG_H_
#define FDB_USING_TSDB
#define FDB_USING_FAL_MODE
#define FDB_WRITE_GRAN 64
#define FDB_PRINT(...)
#endif
