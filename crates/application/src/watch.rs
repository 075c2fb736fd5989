//! Notices that an application's file or code was changed, by looking at names, sizes and times.
//!
//! A check costs one `stat` per file, some tens of microseconds for a usual application, and works on every file system; a notification
//! service works only on most of them.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Files looked at per fingerprint: code is small, and a directory of more is data that no save changes.
const FILES_MAX: usize = 10_000;
/// How deep directories are looked into.
const DEPTH_MAX: usize = 32;
/// Directories that running or editing changes, but that hold no code of the user's.
const SKIPPED: [&str; 4] = ["__pycache__", "node_modules", "target", "venv"];

/// The metadata of files at one moment; equal fingerprints mean that no file was saved in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Looks at an application file and at all that it names, also at what is not there yet.
    pub fn of_application(path: &Path) -> Self {
        let sources = super::Application::sources(path);
        Self::of(sources.iter().map(PathBuf::as_path))
    }

    /// Looks at files and directories; those that are missing count as such.
    fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut hasher = DefaultHasher::new();
        let mut left = FILES_MAX;
        for path in paths {
            look(path, DEPTH_MAX, &mut left, &mut hasher);
        }
        Self(hasher.finish())
    }
}

fn look(path: &Path, depth: usize, left: &mut usize, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    if *left == 0 {
        return;
    }
    *left -= 1;
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.is_dir() {
        if depth == 0 {
            return;
        }
        for child in children(path) {
            look(&child, depth - 1, left, hasher);
        }
    } else {
        let time = (metadata.mtime(), metadata.mtime_nsec());
        (time, metadata.size(), metadata.ino(), metadata.mode()).hash(hasher);
    }
}

/// The content of a directory, sorted, without hidden and generated files.
fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let edited = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.') && !name.ends_with('~') && !SKIPPED.contains(&&*name)
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(edited).take(FILES_MAX).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saving_adding_and_removing_are_noticed_and_caches_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let look = || Fingerprint::of([dir.path()]);
        let code = dir.path().join("lib/code.py");
        fs::create_dir(dir.path().join("lib")).unwrap();
        fs::write(&code, "a").unwrap();
        let first = look();
        assert_eq!(first, look());
        fs::create_dir(dir.path().join("lib/__pycache__")).unwrap();
        fs::write(dir.path().join("lib/__pycache__/code.pyc"), "x").unwrap();
        fs::write(dir.path().join("lib/.code.py.swp"), "x").unwrap();
        assert_eq!(first, look());
        fs::write(&code, "longer").unwrap();
        let second = look();
        assert_ne!(first, second);
        fs::write(dir.path().join("lib/more.py"), "").unwrap();
        assert_ne!(second, look());
        fs::remove_file(dir.path().join("lib/more.py")).unwrap();
        assert_eq!(second, look());
        fs::remove_dir_all(dir.path()).unwrap();
        assert_ne!(second, look());
    }
}
