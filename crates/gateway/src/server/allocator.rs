//! Returns free memory to the system, so that a host is as small after a flood of requests as before it.

/// From this size on a block is mapped by itself and unmapped when it is freed. Left alone, the C library's allocator raises
/// this with every large block that is freed, until records of many MiB lie in heaps that hardly ever shrink.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 4 << 20;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(super) fn give_large_blocks_back() {
    // SAFETY: it only sets a number of the allocator, which any thread may do at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_large_blocks_back() {}
