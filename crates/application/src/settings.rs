//! The settings for creating a namespace, and whether an existing one has them.

use super::units::{show_duration, show_size};
use millrace_journal::{CreateOptions, Durability};
use millrace_namespace::Namespace;
use millrace_wire::{Code, Result};
use std::time::Duration;

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
    /// To make a namespace with.
    pub fn options(&self) -> CreateOptions {
        let usual = CreateOptions::default();
        CreateOptions {
            segment_bytes: self.segment_bytes.unwrap_or(usual.segment_bytes),
            retain_bytes: self.retain_bytes.unwrap_or(usual.retain_bytes),
            retain_age: self.retain_age.or(usual.retain_age),
            durability: self.durability.unwrap_or(usual.durability),
        }
    }

    /// Refuses a namespace with other settings, because the user expects those of the file.
    pub fn check(&self, namespace: &Namespace) -> Result<()> {
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
