//! Copies a file or directory into a store where its name is the hash of its content.

use super::CHECKED;
use millrace_wire::{Code, Error, Hex, Result};
use sha2::{Digest, Sha256};
use std::{
    collections::hash_map::DefaultHasher,
    fs::{self, File},
    hash::{Hash as _, Hasher as _},
    io::{ErrorKind, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Most files and directories of a function.
const ENTRIES_MAX: usize = 10_000;
/// Most bytes of a function.
const BYTES_MAX: u64 = 256 << 20;
/// Deepest directory below the function's own.
const DEPTH_MAX: usize = 32;
/// Files that are never part of a function: caches, repositories, environments, and namespaces.
const SKIPPED: [&str; 7] = ["__pycache__", ".git", ".venv", "venv", "node_modules", ".millrace", CHECKED];

/// Where code was stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub hash: String,
    /// The name of the file, if the source was one.
    pub file: Option<String>,
}

/// One file or directory to copy, by its path below the source.
pub(super) struct Item {
    pub below: PathBuf,
    pub directory: bool,
    pub executable: bool,
}

/// The items of a source.
pub(super) struct Listing {
    pub root: PathBuf,
    pub items: Vec<Item>,
    /// Its name, if it is a single file.
    pub file: Option<String>,
}

pub(super) fn listing(source: &Path) -> Result<Listing> {
    let meta = fs::metadata(source).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Code::CodeMissing.error(format!("code '{}' does not exist", source.display())),
        _ => unreadable(source, &e),
    })?;
    if meta.is_dir() {
        return Ok(Listing { root: source.to_path_buf(), items: list(source)?, file: None });
    }
    let (root, item) = single(source, &meta)?;
    let name = item.below.to_string_lossy().into_owned();
    Ok(Listing { root, items: vec![item], file: Some(name) })
}

/// The hash that `source` would be stored under.
pub(super) fn hash(source: &Path) -> Result<String> {
    let Listing { root, items, .. } = listing(source)?;
    read(&root, &items, None)
}

/// Copies `source` to `store/<hash>`, unless it already exists.
pub(super) fn store(source: &Path, store: &Path) -> Result<Stored> {
    let Listing { root, items, file } = listing(source)?;
    private_dir(store)?;
    let staged = Staged::new(store)?;
    let hash = read(&root, &items, Some(&staged.0))?;
    sync_dir(&staged.0)?;
    let target = store.join(&hash);
    match fs::rename(&staged.0, &target) {
        Ok(()) => sync_dir(store)?,
        // The same code is already there and complete, because it was renamed into place; it may have been changed since.
        Err(_) if target.is_dir() => match verify(&target, &hash, None) {
            Ok(_) => touch(&target)?,
            Err(_) => replace(&target, &staged.0)?,
        },
        Err(e) => return Err(unwritable(&target, &e)),
    }
    Ok(Stored { hash, file })
}

/// Notes that the code was deployed now.
fn touch(stored: &Path) -> Result<()> {
    File::open(stored).and_then(|dir| dir.set_modified(SystemTime::now())).map_err(|e| unwritable(stored, &e))
}

/// Puts the fresh copy in the place of one that was changed.
fn replace(target: &Path, fresh: &Path) -> Result<()> {
    let aside = Staged(fresh.with_extension("changed"));
    fs::rename(target, &aside.0).map_err(|e| unwritable(target, &e))?;
    fs::rename(fresh, target).map_err(|e| unwritable(target, &e))?;
    target.parent().map_or(Ok(()), sync_dir)
}

/// The metadata of stored code: as long as they are unchanged, the code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting(u64);

impl Sighting {
    /// Only the kernel can set the time of a change.
    fn of(stored: &Path) -> Result<Self> {
        let (mut seen, mut open) = (DefaultHasher::new(), vec![stored.to_owned()]);
        while let Some(dir) = open.pop() {
            let mut names: Vec<PathBuf> = Vec::new();
            for entry in fs::read_dir(&dir).map_err(|e| unreadable(&dir, &e))? {
                names.push(entry.map_err(|e| unreadable(&dir, &e))?.path());
            }
            names.sort();
            for path in names {
                let meta = fs::symlink_metadata(&path).map_err(|e| unreadable(&path, &e))?;
                (&path, meta.dev(), meta.ino(), meta.size(), meta.mode()).hash(&mut seen);
                if meta.is_dir() {
                    open.push(path);
                } else {
                    (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()).hash(&mut seen);
                }
            }
        }
        Ok(Self(seen.finish()))
    }
}

/// Checks that stored code has this hash, without reading it if its metadata are unchanged. Files that are never part of a function are
/// removed.
pub(super) fn verify(stored: &Path, hash: &str, before: Option<Sighting>) -> Result<Sighting> {
    if !stored.is_dir() {
        return Err(Code::CodeMissing.error(format!("deployed code '{}' no longer exists", stored.display())));
    }
    let mut sighting = Sighting::of(stored)?;
    if before.as_ref() == Some(&sighting) {
        return Ok(sighting);
    }
    if remove_skipped(stored)? {
        sighting = Sighting::of(stored)?;
    }
    let found = self::hash(stored)?;
    if found != hash {
        return Err(Code::CodeMissing.error(format!(
            "deployed code '{}' was changed: its hash is now {found}; deploy the function again",
            stored.display()
        )));
    }
    Ok(sighting)
}

/// Removes what is skipped when code is stored; whether there was any.
fn remove_skipped(dir: &Path) -> Result<bool> {
    let mut found = false;
    for entry in fs::read_dir(dir).map_err(|e| unreadable(dir, &e))? {
        let entry = entry.map_err(|e| unreadable(dir, &e))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(|e| unreadable(dir, &e))?);
        if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
            let removed = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|e| unwritable(&path, &e))?;
            found = true;
        } else if kind.is_dir() {
            found |= remove_skipped(&path)?;
        }
    }
    Ok(found)
}

/// A directory that is removed again unless it was renamed into place.
struct Staged(PathBuf);

impl Staged {
    fn new(store: &Path) -> Result<Self> {
        // Names of other deployments in progress differ by process, and within one by the counter.
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = store.join(format!(".incoming-{}-{count}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|e| unwritable(&path, &e))?; // left by a process of the same id that died
        }
        make_dir(&path, 0o755)?;
        Ok(Self(path))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After the rename there is nothing to remove, and a leftover does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn single(source: &Path, meta: &fs::Metadata) -> Result<(PathBuf, Item)> {
    let name = source.file_name().ok_or_else(|| refused(source, "it has no file name"))?;
    if name.to_str().is_none() {
        return Err(refused(source, "its name is not UTF-8"));
    }
    check_size(source, meta.len())?;
    if !meta.is_file() {
        return Err(refused(source, "it is neither a file nor a directory"));
    }
    let root = source.parent().unwrap_or(Path::new("")).to_path_buf();
    Ok((root, Item { below: name.into(), directory: false, executable: is_executable(meta) }))
}

/// Everything below `root` that belongs to the function, directories before what they hold, sorted by name.
fn list(root: &Path) -> Result<Vec<Item>> {
    let canonical = fs::canonicalize(root).map_err(|e| unreadable(root, &e))?;
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let dir = root.join(&below);
        if below.components().count() > DEPTH_MAX {
            return Err(refused(&dir, &format!("it is more than {DEPTH_MAX} directories deep")));
        }
        for entry in fs::read_dir(&dir).map_err(|e| unreadable(&dir, &e))? {
            let entry = entry.map_err(|e| unreadable(&dir, &e))?;
            if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                continue;
            }
            let path = entry.path();
            // A link is followed if it stays inside; so what runs is what was hashed.
            let real = fs::canonicalize(&path).map_err(|e| unreadable(&path, &e))?;
            if !real.starts_with(&canonical) {
                return Err(refused(&path, "it is a symbolic link that leads out of the code"));
            }
            let meta = fs::metadata(&path).map_err(|e| unreadable(&path, &e))?;
            if !meta.is_file() && !meta.is_dir() {
                return Err(refused(&path, "it is neither a file nor a directory"));
            }
            let below = below.join(entry.file_name());
            if meta.is_dir() {
                open.push(below.clone());
            } else {
                bytes += meta.len();
            }
            check_size(root, bytes)?;
            items.push(Item { below, directory: meta.is_dir(), executable: is_executable(&meta) });
            if items.len() > ENTRIES_MAX {
                return Err(refused(root, &format!("it has more than {ENTRIES_MAX} files and directories")));
            }
        }
    }
    items.sort_by(|a, b| a.below.cmp(&b.below));
    Ok(items)
}

/// Reads the items, copies them durably to `target` if there is one, and returns the hash over their names, kinds and content.
fn read(root: &Path, items: &[Item], target: Option<&Path>) -> Result<String> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    for item in items {
        let from = root.join(&item.below);
        let to = target.map(|target| target.join(&item.below));
        let name = item.below.as_os_str().as_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update([u8::from(item.directory) << 1 | u8::from(item.executable)]);
        if item.directory {
            to.as_deref().map_or(Ok(()), |to| make_dir(to, 0o755))?;
            continue;
        }
        let mut content = Vec::new();
        let file = File::open(&from).map_err(|e| unreadable(&from, &e))?;
        file.take(BYTES_MAX + 1).read_to_end(&mut content).map_err(|e| unreadable(&from, &e))?;
        bytes += content.len() as u64;
        check_size(root, bytes)?; // it may have grown since it was listed
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(&content);
        if let Some(to) = to {
            // Other users may read it, such as the user of a function in its sandbox; the permissions of the store keep out all others.
            let mode = if item.executable { 0o555 } else { 0o444 };
            let mut options = File::options();
            let mut file =
                options.write(true).create_new(true).mode(mode).open(&to).map_err(|e| unwritable(&to, &e))?;
            let written =
                file.write_all(&content).and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)));
            written.and_then(|()| file.sync_all()).map_err(|e| unwritable(&to, &e))?;
        }
    }
    Ok(Hex(hash.finalize()).to_string())
}

fn is_executable(meta: &fs::Metadata) -> bool {
    !meta.is_dir() && meta.permissions().mode() & 0o111 != 0
}

fn check_size(path: &Path, bytes: u64) -> Result<()> {
    if bytes > BYTES_MAX {
        return Err(refused(path, &format!("it has more than {} MiB", BYTES_MAX >> 20)));
    }
    Ok(())
}

fn private_dir(path: &Path) -> Result<()> {
    make_dir(path, 0o700)
}

fn make_dir(path: &Path, mode: u32) -> Result<()> {
    let made = fs::DirBuilder::new().mode(mode).recursive(true).create(path);
    // Independent of this process's umask.
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode))).map_err(|e| unwritable(path, &e))
}

fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| unwritable(path, &e))
}

fn refused(path: &Path, fault: &str) -> Error {
    Code::CodeRefused.error(format!("'{}' cannot be deployed: {fault}", path.display()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Code::Io.error(format!("cannot read '{}': {error}", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull => Code::DiskFull,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        _ => Code::Io,
    };
    code.error(format!("cannot write '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(path: PathBuf, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn the_same_content_has_one_place_whatever_was_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, into) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("store"));
        for root in [&a, &b] {
            write(root.join("main.py"), "x = 1");
            write(root.join("lib/util.py"), "y = 2");
        }
        write(b.join("__pycache__/main.pyc"), "cache");
        let stored = store(&a, &into).unwrap();
        assert_eq!(store(&b, &into).unwrap(), stored);
        assert_eq!(fs::read_to_string(into.join(&stored.hash).join("lib/util.py")).unwrap(), "y = 2");
        assert!(!into.join(&stored.hash).join("__pycache__").exists());
        assert_eq!(fs::read_dir(&into).unwrap().count(), 1, "nothing is left of the staging");
        write(b.join("lib/util.py"), "y = 3");
        assert_ne!(store(&b, &into).unwrap().hash, stored.hash);
    }

    #[test]
    fn moving_bytes_between_files_or_making_one_executable_changes_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("store");
        let variants: [&[(&str, &str)]; 3] = [&[("ab", "c")], &[("a", "bc")], &[("a", "b"), ("c", "")]];
        let mut hashes: Vec<String> = Vec::new();
        for (n, files) in variants.iter().enumerate() {
            let root = dir.path().join(n.to_string());
            for (name, content) in *files {
                write(root.join(name), content);
            }
            hashes.push(store(&root, &into).unwrap().hash);
        }
        fs::set_permissions(dir.path().join("0/ab"), fs::Permissions::from_mode(0o755)).unwrap();
        hashes.push(store(&dir.path().join("0"), &into).unwrap().hash);
        let copy = into.join(hashes.last().unwrap()).join("ab");
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o555);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
    }

    #[test]
    fn a_single_file_keeps_its_name_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("run.sh"), "#!/bin/sh");
        fs::set_permissions(dir.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let stored = store(&dir.path().join("run.sh"), &dir.path().join("store")).unwrap();
        assert_eq!(stored.file.as_deref(), Some("run.sh"));
        let meta = fs::metadata(dir.path().join("store").join(stored.hash).join("run.sh")).unwrap();
        assert!(is_executable(&meta));
    }

    #[test]
    fn what_is_missing_or_leads_outside_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (code, into) = (dir.path().join("code"), dir.path().join("store"));
        assert_eq!(store(&code, &into).unwrap_err().code(), Code::CodeMissing);
        write(code.join("ok"), "ok");
        symlink("ok", code.join("inside")).unwrap();
        store(&code, &into).unwrap();
        symlink("/etc/passwd", code.join("outside")).unwrap();
        assert_eq!(store(&code, &into).unwrap_err().code(), Code::CodeRefused);
        fs::remove_file(code.join("outside")).unwrap();
        symlink(".", code.join("loop")).unwrap();
        assert_eq!(store(&code, &into).unwrap_err().code(), Code::CodeRefused);
        assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
    }

    #[test]
    fn what_was_changed_since_is_seen_and_replaced_when_it_is_stored_again() {
        let dir = tempfile::tempdir().unwrap();
        let (code, into) = (dir.path().join("code"), dir.path().join("store"));
        write(code.join("main.py"), "x = 1");
        write(code.join("lib/util.py"), "y = 2");
        let stored = store(&code, &into).unwrap();
        let kept = into.join(&stored.hash);
        let seen = verify(&kept, &stored.hash, None).unwrap();
        assert_eq!(verify(&kept, &stored.hash, Some(seen.clone())).unwrap(), seen);
        // A cache that a program left there is none of it.
        write(kept.join("lib/__pycache__/util.pyc"), "forged");
        verify(&kept, &stored.hash, Some(seen.clone())).unwrap();
        assert!(!kept.join("lib/__pycache__").exists());
        let changes: [&dyn Fn(); 4] = [
            &|| {
                fs::remove_file(kept.join("main.py")).unwrap();
                write(kept.join("main.py"), "x = 7");
            },
            &|| write(kept.join("json.py"), "shadows"),
            &|| fs::remove_file(kept.join("lib/util.py")).unwrap(),
            &|| symlink("../main.py", kept.join("lib/link.py")).unwrap(),
        ];
        for (n, change) in changes.iter().enumerate() {
            let seen = verify(&kept, &stored.hash, None).unwrap();
            change();
            let error = verify(&kept, &stored.hash, Some(seen)).unwrap_err();
            assert_eq!(error.code(), Code::CodeMissing, "{n}: {error}");
            assert_eq!(store(&code, &into).unwrap(), stored);
            verify(&kept, &stored.hash, None).unwrap();
            assert_eq!(fs::read_dir(&into).unwrap().count(), 1, "{n}: something is left of the exchange");
        }
        fs::remove_dir_all(&kept).unwrap();
        assert_eq!(verify(&kept, &stored.hash, None).unwrap_err().code(), Code::CodeMissing);
    }
}
