//! The append-only engine: segments, entries, indexes, lock, recovery, waiting.
