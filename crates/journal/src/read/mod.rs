//! Reading: without a lock, without blocking a writer, every byte checked.

pub(crate) mod check;
pub(crate) mod correct;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod scan;
pub(crate) mod wait;
pub(crate) mod walk;

#[cfg(debug_assertions)]
thread_local! {
    static VISITED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts an entry that this thread looks at.
#[inline]
pub(crate) fn note_visit() {
    #[cfg(debug_assertions)]
    VISITED.with(|visited| visited.set(visited.get() + 1));
}

/// How many entries this thread has looked at, so that a test can say what a question costs without a clock. Records that
/// are read by their log and number are left out. Only debug builds count.
#[cfg(debug_assertions)]
pub fn entries_visited() -> u64 {
    VISITED.with(std::cell::Cell::get)
}
