//! Which field of a log's records has the time of the observation.
//!
//! The newest record of the runtime's log `_time/LOGID` names it; a log without one was never given a field. Nothing of the journal's format
//! knows it, so an older program keeps it, and so do backups, retention and trims of the log.

use super::{Namespace, found};
use crate::{
    gate::{Gated, Shows, Site},
    names::{self, internal, newest_note, note},
};
use millrace_journal::{Log, Transaction};
use millrace_wire::{LogName, Result, TimeField};

/// The prefix of the names of these logs.
const PREFIX: &str = "_time/";
/// Only the newest note counts.
const NOTES: u64 = 1;

fn notes_of(log: &Log) -> LogName {
    internal(&format!("{PREFIX}{}", log.id()))
}

impl Namespace {
    /// The field of a log's records that has the time of the observation. One that a later version wrote in another form is none.
    pub fn time_field(&self, log: &Log) -> Result<Option<TimeField>> {
        let note = newest_note(self, &notes_of(log))?;
        Ok(note.and_then(|note| serde_json::from_slice(&note).ok()))
    }

    /// Says which field of a log's records has the time of the observation, or that none has; returns whether this is a change.
    pub fn set_time_field(&self, name: &LogName, time: Option<&TimeField>) -> Result<bool> {
        self.out(self.set_time_field_gated(name, time), None)
    }

    /// [`Namespace::set_time_field`], still held at the gate.
    pub fn set_time_field_gated(&self, name: &LogName, time: Option<&TimeField>) -> Result<Gated<bool>> {
        names::check_public(name)?;
        let committed = self.journal().commit(|tx| {
            let log = found(tx.catalog().log(name), name)?.clone();
            if self.time_field(&log)?.as_ref() == time {
                return Ok(false);
            }
            let Some(time) = time else { return forget(tx, &log).map(|()| true) };
            note(tx, &notes_of(&log), NOTES, &serde_json::to_vec(time).expect("text makes JSON")).map(|()| true)
        })?;
        Ok(self.gate().hold(Site::CreateLog, committed.value, Shows::Report(committed.end), None))
    }
}

/// Removes the notes about a log, which may be about to be removed itself.
pub(super) fn forget(tx: &mut Transaction<'_>, log: &Log) -> Result<()> {
    let notes = notes_of(log);
    if tx.catalog().log(&notes).is_some() { tx.remove_log(&notes) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CreateOptions;
    use millrace_wire::{Code, TimeUnit};

    #[test]
    fn a_log_has_the_newest_field_that_it_was_given_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let name: LogName = "raw".parse().unwrap();
        let time = |field: &str, unit| TimeField::new(field, unit).unwrap();
        assert_eq!(namespace.set_time_field(&name, Some(&time("/t", None))).unwrap_err().code(), Code::LogNotFound);
        let log = namespace.create_log(&name, 2).unwrap();
        assert_eq!(namespace.time_field(&log).unwrap(), None);
        for (field, unit) in [("/t", None), ("/t", Some(TimeUnit::Milliseconds)), ("/u", None)] {
            let time = time(field, unit);
            assert!(namespace.set_time_field(&name, Some(&time)).unwrap());
            assert!(!namespace.set_time_field(&name, Some(&time)).unwrap());
            assert_eq!(namespace.time_field(&log).unwrap(), Some(time));
        }
        assert!(namespace.set_time_field(&name, None).unwrap());
        assert!(!namespace.set_time_field(&name, None).unwrap());
        assert_eq!(namespace.time_field(&log).unwrap(), None);

        namespace.set_time_field(&name, Some(&time("/t", None))).unwrap();
        namespace.remove_log(&name).unwrap();
        let left = namespace.journal().catalog().unwrap().logs().filter(|log| log.name().starts_with(PREFIX)).count();
        assert_eq!(left, 0);
        let log = namespace.create_log(&name, 2).unwrap();
        assert_eq!(namespace.time_field(&log).unwrap(), None);
        let internal = "_time/1".parse().unwrap();
        assert_eq!(namespace.set_time_field(&internal, None).unwrap_err().code(), Code::LogInternal);
    }

    #[test]
    fn a_note_of_a_later_version_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let log = namespace.create_log(&"raw".parse().unwrap(), 2).unwrap();
        let later = br#"{"field":"/t","zone":"local"}"#;
        namespace.journal().commit(|tx| note(tx, &notes_of(&log), NOTES, later)).unwrap();
        assert_eq!(namespace.time_field(&log).unwrap(), None);
    }
}
