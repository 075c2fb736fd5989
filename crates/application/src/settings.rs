//! The settings for creating a namespace, and whether an existing one has them.

use super::units::{show_duration, show_size};
use millrace_journal::{CreateOptions, Durability};
use millrace_namespace::Namespace;
use millrace_wire::{Code, Result};
use std::{path::Path, time::Duration};

/// The given settings of a namespace; the others have their defaults or, for an existing namespace, its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// See [`CreateOptions::segment_bytes`].
    pub segment_bytes: Option<u64>,
    /// See [`CreateOptions::retain_bytes`].
    pub retain_bytes: Option<u64>,
    /// See [`CreateOptions::retain_age`].
    pub retain_age: Option<Duration>,
    /// See [`CreateOptions::durability`].
    pub durability: Option<Durability>,
}

impl Settings {
    /// To make a namespace with in `dir`. Sizes that are not given fit the disk.
    pub fn options(&self, dir: &Path) -> CreateOptions {
        let usual = CreateOptions::fitting(dir, self.segment_bytes, self.retain_bytes);
        CreateOptions {
            retain_age: self.retain_age.or(usual.retain_age),
            durability: self.durability.unwrap_or(usual.durability),
            ..usual
        }
    }

    /// What differs from the namespace in settings that can be changed, as `KEY = NEW (was OLD)`.
    pub fn changes(&self, namespace: &Namespace) -> Vec<String> {
        let made = namespace.journal().made_with();
        let bytes = self.retain_bytes.filter(|bytes| *bytes != made.retain_bytes);
        let age = self.retain_age.filter(|age| Some(*age) != made.retain_age);
        let bytes = bytes.map(|to| format!("retain_bytes = {} (was {})", show_size(to), show_size(made.retain_bytes)));
        let was = made.retain_age.map_or("none".into(), show_duration);
        let age = age.map(|to| format!("retain_age = {} (was {was})", show_duration(to)));
        bytes.into_iter().chain(age).collect()
    }

    /// Changes them.
    pub fn apply(&self, namespace: &Namespace) -> Result<()> {
        if self.changes(namespace).is_empty() {
            return Ok(());
        }
        namespace.set_retention(self.retain_bytes, self.retain_age.map(Some)).map(drop)
    }

    /// Refuses a namespace with other settings, because the user expects those of the file.
    pub fn check(&self, namespace: &Namespace) -> Result<()> {
        let fixed = Self { retain_bytes: None, retain_age: None, ..self.clone() };
        fixed.check_all(namespace)
    }

    /// The same of the settings that can be changed, too.
    pub fn check_all(&self, namespace: &Namespace) -> Result<()> {
        let made = namespace.journal().made_with();
        let age = |age: Option<Duration>| age.map_or("none".into(), show_duration);
        let word = |durability| match durability {
            Durability::Disk => "disk".into(),
            Durability::Memory => "memory".into(),
        };
        let other = [
            differs("segment_size", self.segment_bytes, made.segment_bytes, show_size),
            differs("retain_bytes", self.retain_bytes, made.retain_bytes, show_size),
            differs("retain_age", self.retain_age.map(Some), made.retain_age, age),
            differs("durability", self.durability, made.durability, word),
        ];
        let other: Vec<String> = other.into_iter().flatten().collect();
        if other.is_empty() {
            return Ok(());
        }
        Err(Code::SettingFixed.error(format!("{}; nothing was changed", other.join(", "))))
    }
}

/// How the namespace differs from what was said, if it does.
fn differs<T: PartialEq>(key: &str, said: Option<T>, made: T, show: impl Fn(T) -> String) -> Option<String> {
    let said = said.filter(|said| *said != made)?;
    Some(format!("{key} is {}, but {} was requested", show(made), show(said)))
}
