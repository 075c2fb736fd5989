/* lfs_cfg.h - littlefs without a C library. */
#ifndef LFS_CFG_H
#define LFS_CFG_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#define LFS_NO_MALLOC
#define LFS_NO_ASSERT
#define LFS_NO_DEBUG
#define LFS_NO_WARN
#define LFS_NO_ERROR
#define LFS_TRACE(...)
#define LFS_DEBUG(...)
#define LFS_WARN(...)
#define LFS_ERROR(...)
#define LFS_ASSERT(test)
static inline uint32_t lfs_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t lfs_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t lfs_aligndown(uint32_t a, uint32_t alignment) { return a - a % alignment; }
static inline uint32_t lfs_alignup(uint32_t a, uint32_t alignment) { return lfs_aligndown(a + alignment - 1, alignment); }
static inline uint32_t lfs_npw2(uint32_t a) { return 32 - (uint32_t)__builtin_clz(a - 1); }
static inline uint32_t lfs_ctz(uint32_t a) { return (uint32_t)__builtin_ctz(a); }
static inline uint32_t lfs_popc(uint32_t a) { return (uint32_t)__builtin_popcount(a); }
static inline int lfs_scmp(uint32_t a, uint32_t b) { return (int)(unsigned)(a - b); }
static inline uint32_t lfs_fromle32(uint32_t a) { return a; }
static inline uint32_t lfs_tole32(uint32_t a) { return a; }
static inline uint32_t lfs_frombe32(uint32_t a) { return __builtin_bswap32(a); }
static inline uint32_t lfs_tobe32(uint32_t a) { return __builtin_bswap32(a); }
uint32_t lfs_crc(uint32_t crc, const void *buffer, size_t size);
static inline void *lfs_malloc(size_t size) { (void)size; return NULL; }
static inline void lfs_free(void *p) { (void)p; }
#endif
