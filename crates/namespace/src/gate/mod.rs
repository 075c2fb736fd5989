//! The gate: the one place where answers wait until everything that they depend on is safe.
//!
//! Inside, functions work on records that are not durable yet. Everything that becomes visible outside is wrapped in a [`Gated`], whose
//! value is released only here. Source: external synchrony for function workflows.
//!
//! ```text
//!  commit --> hold(value, shows) --> Gated --await--> each Watermark: reached() >= upto? --> value
//!                                                     (the disk: one flush for all who wait; others, if Marks names them)
//! ```

mod disk;
mod gated;
mod site;
#[cfg(test)]
mod tests;
mod watermark;

pub use gated::{Free, Gated};
pub use site::{Of, Site};
pub use watermark::{Marks, Need, Shows, Watermark};

use disk::Disk;
use gated::Waits;
use millrace_journal::{Durability, Journal, Position};
use millrace_wire::Error;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Holds what waits for durability.
pub struct Gate {
    journal: Journal,
    disk: Arc<Disk>,
    marks: OnceLock<Arc<dyn Marks>>,
    /// Sites that no longer wait for the disk, and those that no longer wait for marks, one bit each.
    #[cfg(debug_assertions)]
    out: [AtomicU64; 2],
}

impl Gate {
    /// The gate of this journal.
    pub fn new(journal: Journal) -> Arc<Gate> {
        Arc::new(Gate {
            disk: Disk::new(journal.clone()),
            journal,
            marks: OnceLock::new(),
            #[cfg(debug_assertions)]
            out: Default::default(),
        })
    }

    /// From now on answers also wait for what these marks name. Only the first call has an effect.
    pub fn set_marks(&self, marks: Arc<dyn Marks>) {
        _ = self.marks.set(marks);
    }

    /// From now on this site does not wait for this: for tests that have to see it missed.
    #[cfg(debug_assertions)]
    pub fn take_out(&self, site: Site, of: Of) {
        self.out[of as usize].fetch_or(1 << site as u32, Ordering::Relaxed);
    }

    /// Whether this site does not wait for this.
    #[cfg(debug_assertions)]
    pub fn is_out(&self, site: Site, of: Of) -> bool {
        self.out[of as usize].load(Ordering::Relaxed) & (1 << site as u32) != 0
    }

    /// Whether this site does not wait for this.
    #[cfg(not(debug_assertions))]
    pub const fn is_out(&self, _site: Site, _of: Of) -> bool {
        false
    }

    /// Holds `value` until what it shows is as safe on the disk as asked, by default as the namespace says, and until the watermarks that
    /// its marks name have come far enough.
    pub fn hold<T>(&self, site: Site, value: T, shows: Shows<'_>, durability: Option<Durability>) -> Gated<T> {
        Gated { outcome: Some(Ok(value)), waits: self.waits(site, &shows, durability) }
    }

    /// Holds a refusal: if it reveals the namespace's state, it waits until that state is safe.
    pub fn refuse<T>(&self, error: Error, durability: Option<Durability>) -> Gated<T> {
        let upto = if error.code().reveals() { self.journal.tail() } else { Position::default() };
        self.refuse_showing(error, Shows::Report(upto), durability)
    }

    /// Holds a refusal that shows something of records, such as the version of a key.
    pub fn refuse_showing<T>(&self, error: Error, shows: Shows<'_>, durability: Option<Durability>) -> Gated<T> {
        Gated { outcome: Some(Err(error)), waits: self.waits(Site::Refusal, &shows, durability) }
    }

    /// Whether anything has to wait for more than the disk.
    pub fn may_wait(&self) -> bool {
        self.marks.get().is_some_and(|marks| marks.any())
    }

    /// What a site has to wait for, besides the disk, if it shows this.
    pub fn needs(&self, site: Site, shows: &Shows<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        if let Some(marks) = self.marks.get().filter(|marks| marks.any() && !self.is_out(site, Of::Far)) {
            marks.of(shows, &mut needs);
        }
        needs
    }

    /// Holds a value until the journal is durable up to `upto`, and each of these watermarks has come so far.
    pub fn hold_for<T>(&self, site: Site, value: T, upto: Position, needs: Vec<Need>) -> Gated<T> {
        let mut held = self.hold(site, value, Shows::Report(upto), None);
        let needs: Vec<Need> = needs.into_iter().filter(|(watermark, upto)| watermark.reached() < *upto).collect();
        if !needs.is_empty() {
            let disk =
                matches!(held.waits, Waits::Disk(..)).then(|| (self.disk.clone() as Arc<dyn Watermark>, upto.get()));
            held.waits = Waits::Several(disk.into_iter().chain(needs).collect());
        }
        held
    }

    fn waits(&self, site: Site, shows: &Shows<'_>, durability: Option<Durability>) -> Waits {
        let upto = shows.upto();
        let is_disk = durability.unwrap_or(self.journal.durability()) == Durability::Disk;
        let needs_disk = is_disk && !self.is_out(site, Of::Disk) && self.disk.reached() < upto.get();
        match self.marks.get() {
            Some(marks) if marks.any() && !self.is_out(site, Of::Far) => self.marked(&**marks, shows, needs_disk),
            _ if needs_disk => Waits::Disk(self.disk.clone(), upto),
            _ => Waits::Nothing,
        }
    }

    #[cold]
    fn marked(&self, marks: &dyn Marks, shows: &Shows<'_>, needs_disk: bool) -> Waits {
        let upto = shows.upto();
        let mut needs = Vec::new();
        if needs_disk {
            needs.push((self.disk.clone() as Arc<dyn Watermark>, upto.get()));
        }
        marks.of(shows, &mut needs);
        needs.retain(|(watermark, upto)| watermark.reached() < *upto);
        match needs.len() {
            0 => Waits::Nothing,
            1 if needs_disk => Waits::Disk(self.disk.clone(), upto),
            _ => Waits::Several(needs.into()),
        }
    }

    /// Flushes for all waiters. Call it when there is nothing else to do, before sleeping.
    pub fn turn(&self) {
        self.disk.turn();
    }

    /// [`Gate::turn`] by a loop with a single connection. It delays no other client, so it flushes by itself and saves two wake-ups, as
    /// long as flushes are quick and its own client waits.
    pub fn turn_alone(&self) {
        self.disk.turn_alone();
    }

    /// Begins a flush for callers that are about to wait for entries that were just committed.
    pub fn flush_ahead(&self) {
        self.disk.flush_ahead();
    }

    /// Whether a thread waits for a flush at this moment.
    pub fn is_syncing(&self) -> bool {
        self.disk.is_syncing()
    }
}
