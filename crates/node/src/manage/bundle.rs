//! The code of a function that is being sent to a host: its files, each with the hash of its content.

use crate::{Code, Error, Result, functions};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Component, Path},
};

/// The most bytes of all code of one deployment.
pub const BUNDLE_MAX_BYTES: u64 = 256 << 20;
/// The most files and directories of all code of one deployment.
pub const BUNDLE_ITEMS_MAX: usize = 10_000;
/// How deeply directories may nest.
const DEPTH_MAX: usize = 32;
/// The longest path.
const PATH_MAX_BYTES: usize = 1024;
/// The SHA-256 of nothing.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The code of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The hash of all of it, which is its name in the namespace.
    pub code: String,
    /// Where the application file says it is, as a path that begins where the file's path does.
    pub source: String,
    /// The name of the file, if it is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its files and directories; each directory comes before what is in it.
    pub items: Vec<Item>,
}

/// A file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Below the code's root.
    pub path: String,
    /// Whether it is a directory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub directory: bool,
    /// Whether the file can be executed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub executable: bool,
    /// The file's length.
    #[serde(default)]
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    #[serde(default)]
    pub sha256: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn invalid(detail: impl Into<String>) -> Error {
    Code::BundleInvalid.error(detail)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl Bundle {
    /// The code of a function as it was listed.
    pub fn of(source: String, listing: &functions::CodeListing) -> Self {
        let item = |item: &functions::CodeItem| Item {
            path: item.path.clone(),
            directory: item.directory,
            executable: item.executable,
            bytes: item.bytes,
            sha256: item.sha256.clone(),
        };
        let items = listing.items.iter().map(item).collect();
        Self { code: listing.code.clone(), source, file: listing.file.clone(), items }
    }

    /// Whether it is code that could be stored: every path stays below the root, and comes once.
    pub(super) fn check(&self) -> Result<()> {
        if !is_hash(&self.code) {
            return Err(invalid("the hash of a function's code is malformed"));
        }
        let mut directories: BTreeSet<&str> = BTreeSet::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for item in &self.items {
            item.check()?;
            let above = item.path.rsplit_once('/').map(|(above, _)| above);
            if above.is_some_and(|above| !directories.contains(above)) {
                return Err(invalid(format!("the directory of '{}' is not listed", item.shown())));
            }
            if !seen.insert(&item.path) {
                return Err(invalid(format!("'{}' is listed twice", item.shown())));
            }
            if item.directory {
                directories.insert(&item.path);
            }
        }
        match (&self.file, &*self.items) {
            (None, _) => Ok(()),
            (Some(file), [only]) if *file == only.path && !only.directory && !file.contains('/') => Ok(()),
            (Some(_), _) => Err(invalid("code that is a single file must list exactly that file")),
        }
    }

    /// Its files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| !item.directory)
    }
}

impl Item {
    fn shown(&self) -> String {
        self.path.chars().take(80).flat_map(char::escape_debug).collect()
    }

    fn check(&self) -> Result<()> {
        let path = Path::new(&self.path);
        let mut parts = path.components();
        let below = parts.all(|part| matches!(part, Component::Normal(_)));
        // As it is written, so that no two spellings are one place.
        let plain = self.path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !below || !plain || self.path.contains('\0') {
            return Err(invalid(format!("'{}' is not a path within a function's code", self.shown())));
        }
        if self.path.len() > PATH_MAX_BYTES || path.components().count() > DEPTH_MAX {
            return Err(invalid(format!("the path '{}' is too long", self.shown())));
        }
        if self.directory {
            return if self.bytes == 0 && self.sha256.is_empty() && !self.executable {
                Ok(())
            } else {
                Err(invalid(format!("'{}' is a directory, but has content", self.shown())))
            };
        }
        if !is_hash(&self.sha256) || (self.bytes == 0) != (self.sha256 == EMPTY_SHA256) {
            return Err(invalid(format!(
                "the hash of '{}' is malformed or does not belong to its length",
                self.shown()
            )));
        }
        Ok(())
    }
}

/// Whether all of this could be one deployment.
pub(crate) fn check_all<'b>(bundles: impl Iterator<Item = &'b Bundle>) -> Result<()> {
    let (mut items, mut bytes) = (0, 0u64);
    for bundle in bundles {
        items += bundle.items.len();
        let longer = bundle.files().fold(0u64, |sum, file| sum.saturating_add(file.bytes));
        bytes = bytes.saturating_add(longer);
        if items > BUNDLE_ITEMS_MAX || bytes > BUNDLE_MAX_BYTES {
            let detail = format!("{items} files and directories of {bytes} bytes or more");
            return Err(invalid(detail));
        }
        bundle.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn file(path: &str) -> Item {
        Item { path: path.into(), bytes: 3, sha256: HASH.into(), ..Item::default() }
    }

    fn directory(path: &str) -> Item {
        Item { path: path.into(), directory: true, ..Item::default() }
    }

    fn bundle(items: Vec<Item>) -> Bundle {
        Bundle { code: HASH.into(), source: "functions".into(), file: None, items }
    }

    #[test]
    fn paths_stay_below_the_code() {
        bundle(vec![file("main.py"), directory("lib"), file("lib/util.py")]).check().unwrap();
        let long = "a/".repeat(33) + "b";
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a/..",
            "..",
            ".",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            &*"x".repeat(1025),
            &*long,
        ] {
            let listed = bundle(vec![directory("a"), file(path)]);
            assert_eq!(listed.check().unwrap_err().code(), Code::BundleInvalid, "{path:?}");
        }
    }

    #[test]
    fn what_is_listed_twice_or_nowhere_is_refused() {
        for items in [
            vec![file("a"), file("a")],
            vec![file("a"), directory("a")],
            vec![file("a"), file("a/b")],
            vec![file("lib/util.py")],
            vec![file("lib/util.py"), directory("lib")],
            vec![Item { bytes: 1, ..directory("a") }],
            vec![Item { sha256: "ff".into(), ..file("a") }],
            vec![Item { sha256: HASH.to_uppercase(), ..file("a") }],
            vec![Item { bytes: 0, ..file("a") }],
            vec![Item { sha256: EMPTY_SHA256.into(), ..file("a") }],
        ] {
            assert_eq!(bundle(items.clone()).check().unwrap_err().code(), Code::BundleInvalid, "{items:?}");
        }
        let alone = |file: &str, items| Bundle { file: Some(file.into()), ..bundle(items) };
        alone("a", vec![file("a")]).check().unwrap();
        for wrong in [alone("b", vec![file("a")]), alone("a", vec![]), alone("a", vec![directory("a")])] {
            assert_eq!(wrong.check().unwrap_err().code(), Code::BundleInvalid, "{wrong:?}");
        }
    }

    #[test]
    fn a_deployment_has_a_bound() {
        let large = bundle(vec![Item { bytes: BUNDLE_MAX_BYTES, ..file("a") }]);
        check_all([&large].into_iter()).unwrap();
        assert_eq!(check_all([&large, &large].into_iter()).unwrap_err().code(), Code::BundleInvalid);
        let endless = bundle(vec![Item { bytes: u64::MAX, ..file("a") }, Item { bytes: 7, ..file("b") }]);
        assert_eq!(check_all([&endless].into_iter()).unwrap_err().code(), Code::BundleInvalid);
        let many = bundle((0..=BUNDLE_ITEMS_MAX).map(|n| file(&n.to_string())).collect());
        assert_eq!(check_all([&many].into_iter()).unwrap_err().code(), Code::BundleInvalid);
    }
}
