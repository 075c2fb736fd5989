//! Files that are being sent to a host: each arrives in order, and is accepted once its content has the announced hash. They are in a
//! directory of their own, which is removed with their connection, or, after a minute with little progress, when another deployment is
//! announced.

use super::bundle::{Bundle, Item};
use crate::{Code, Error, Name, Result};
use millrace_security::token::Principal;
use millrace_wire::{Hex, protocol::UPLOAD_PART_MAX_BYTES};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The maximum number of deployments that one process receives at once.
const UPLOADS_MAX: usize = 16;
/// How many of them may be those of capabilities; the others are the owner's.
const HOLDERS_MAX: usize = 12;
/// How many of them may be those of one capability.
const HOLDER_MAX: usize = 4;
/// The directory of what belongs to a running process; its leftovers are removed when the next host starts.
const SCRATCH: &str = "scratch";

/// A deployment of which less than [`PROGRESS_MIN_BYTES`] came in this time is removed when another one is announced.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// A slow connection of a phone sends as much in a minute.
const PROGRESS_MIN_BYTES: u64 = 64 << 10;

/// Who has announced a deployment, once for each.
static OPEN: Mutex<Vec<Principal>> = Mutex::new(Vec::new());
/// The connections that have announced deployments.
static ANNOUNCED: Mutex<Vec<Weak<Mutex<Slot>>>> = Mutex::new(Vec::new());

/// The files that were sent over one connection.
#[derive(Default)]
pub struct Uploads(Arc<Mutex<Slot>>);

/// The deployment that is on its way over a connection.
#[derive(Default)]
pub(crate) struct Slot {
    pub staging: Option<Staging>,
    /// Whether there was a deployment that was removed because others needed its place.
    pub abandoned: bool,
}

/// The files of a deployment that was announced.
pub(crate) struct Staging {
    dir: PathBuf,
    /// The caller that announced it.
    pub principal: Principal,
    /// The functions that are to be deployed.
    pub functions: Vec<Name>,
    files: BTreeMap<String, Arriving>,
    /// When it last made progress, and the bytes that came since.
    heard: Instant,
    came: u64,
}

struct Arriving {
    bytes: u64,
    have: u64,
    digest: Sha256,
    /// Open until it is complete.
    file: Option<File>,
}

impl Arriving {
    fn is_complete(&self) -> bool {
        self.have == self.bytes && self.file.is_none()
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::DiskFull,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        _ => Code::Io,
    };
    code.error(format!("cannot write '{}': {error}", path.display()))
}

impl Uploads {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for what `principal` sends to the namespace in `dir`, in this connection's slot, which is locked.
    pub(crate) fn announce<'s>(&self, slot: &'s mut Slot, dir: &Path, principal: Principal) -> Result<&'s mut Staging> {
        abandon(IDLE_MAX);
        let staging = Staging::new(dir, principal)?;
        let mut announced = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
        announced.retain(|other| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(&self.0));
        announced.push(Arc::downgrade(&self.0));
        slot.abandoned = false;
        Ok(slot.staging.insert(staging))
    }
}

/// Ends the deployments without progress for this long.
fn abandon(idle: Duration) {
    let announced: Vec<_> = {
        let announced = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
        announced.iter().filter_map(Weak::upgrade).collect()
    };
    for slot in announced {
        let mut slot = match slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            // Another thread is working on it.
            Err(TryLockError::WouldBlock) => continue,
        };
        if slot.staging.as_ref().is_some_and(|staging| staging.heard.elapsed() >= idle) {
            *slot = Slot { staging: None, abandoned: true };
        }
    }
}

impl Staging {
    /// A place for what `principal` sends to the namespace in `dir`.
    pub fn new(dir: &Path, principal: Principal) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        enter(&principal)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = dir.join(SCRATCH).join(format!("{}-upload-{count}", std::process::id()));
        let (functions, files) = (Vec::new(), BTreeMap::new());
        let staging = Self { dir, principal, functions, files, heard: Instant::now(), came: 0 };
        make_dir(&staging.dir)?;
        Ok(staging)
    }

    /// From now on these files may come, and no others. Those that are complete are kept.
    pub fn expect<'b>(&mut self, files: impl Iterator<Item = &'b Item>) {
        let mut wanted = BTreeMap::new();
        for item in files.filter(|item| item.bytes > 0) {
            let kept = self.files.remove(&item.sha256).filter(|file| file.bytes == item.bytes);
            let new = || Arriving { bytes: item.bytes, have: 0, digest: Sha256::new(), file: None };
            wanted.entry(item.sha256.clone()).or_insert_with(|| kept.unwrap_or_else(new));
        }
        for unwanted in std::mem::replace(&mut self.files, wanted).into_keys() {
            // If this fails, the file is removed with the directory.
            let _ = fs::remove_file(self.dir.join(unwanted));
        }
    }

    /// The hashes of the files that are not complete; each starts again at its beginning.
    pub fn missing(&mut self) -> Vec<String> {
        let incomplete = self.files.iter_mut().filter(|(_, file)| !file.is_complete());
        let begin_anew = |(hash, file): (&String, &mut Arriving)| {
            (file.have, file.digest, file.file) = (0, Sha256::new(), None);
            hash.clone()
        };
        incomplete.map(begin_anew).collect()
    }

    /// Takes a part of a file.
    pub fn take(&mut self, sha256: &[u8], offset: u64, data: &[u8]) -> Result<()> {
        let unexpected = |what: &str| Err(Code::UploadUnexpected.error(what));
        if data.is_empty() || data.len() > UPLOAD_PART_MAX_BYTES {
            return Err(Code::UploadUnexpected.error(format!("a part of {} bytes", data.len())));
        }
        let hash = Hex(sha256).to_string();
        let path = self.dir.join(&hash);
        let Some(arriving) = self.files.get_mut(&hash) else {
            return unexpected("the host did not request a file with this hash");
        };
        if arriving.is_complete() {
            return unexpected("the file is complete");
        }
        if offset == 0 {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
            let file = file.map_err(|error| unwritable(&path, &error))?;
            (arriving.have, arriving.digest, arriving.file) = (0, Sha256::new(), Some(file));
        }
        let Some(file) = arriving.file.as_mut().filter(|_| offset == arriving.have) else {
            return unexpected("the part does not follow the one before");
        };
        let end = offset.saturating_add(data.len() as u64);
        if end > arriving.bytes {
            (arriving.have, arriving.file) = (0, None);
            let detail = format!("a file of {} bytes was announced, and {end} or more came", arriving.bytes);
            return Err(Code::UploadMismatch.error(detail));
        }
        if let Err(error) = file.write_all(data) {
            // It is not known how much of the part was written.
            (arriving.have, arriving.file) = (0, None);
            return Err(unwritable(&path, &error));
        }
        arriving.digest.update(data);
        arriving.have = end;
        self.came += data.len() as u64;
        if self.came >= PROGRESS_MIN_BYTES {
            (self.heard, self.came) = (Instant::now(), 0);
        }
        if end == arriving.bytes {
            arriving.file = None;
            let found = Hex(std::mem::take(&mut arriving.digest).finalize()).to_string();
            if found != hash {
                arriving.have = 0;
                return Err(Code::UploadMismatch.error(format!("the hash of the file is {found} instead of {hash}")));
            }
        }
        Ok(())
    }

    /// Assembles a function's code from complete files, and returns its path.
    pub fn assemble(&self, name: &Name, bundle: &Bundle) -> Result<PathBuf> {
        let root = self.dir.join("code").join(&**name);
        let made = fs::remove_dir_all(&root);
        if let Err(error) = made.as_ref()
            && error.kind() != ErrorKind::NotFound
        {
            return Err(unwritable(&root, error));
        }
        make_dir(&root)?;
        for item in &bundle.items {
            let to = root.join(&item.path);
            if item.directory {
                make_dir(&to)?;
                continue;
            }
            if item.bytes > 0 {
                fs::copy(self.dir.join(&item.sha256), &to).map(drop)
            } else {
                File::create(&to).map(drop)
            }
            .and_then(|()| {
                let mode = if item.executable { 0o700 } else { 0o600 };
                fs::set_permissions(&to, Permissions::from_mode(mode))
            })
            .map_err(|error| unwritable(&to, &error))?;
        }
        Ok(bundle.file.as_ref().map_or_else(|| root.clone(), |file| root.join(file)))
    }
}

fn make_dir(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(|error| unwritable(path, &error))
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Files that cannot be removed now are removed when the next host starts.
        let _ = fs::remove_dir_all(&self.dir);
        leave(&self.principal);
    }
}

/// Whether both are the same capability's, whichever subjects it was passed on to.
fn is_same(one: &Principal, other: &Principal) -> bool {
    match (one, other) {
        (Principal::Holder { id, .. }, Principal::Holder { id: other, .. }) => id == other,
        _ => one == other,
    }
}

/// Takes one of the places.
fn enter(principal: &Principal) -> Result<()> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let busy =
        |most: usize, of: &str| Err(Code::UploadsBusy.error(format!("{most} deployments{of} are being received")));
    if *principal != Principal::Owner {
        let holders = open.iter().filter(|other| **other != Principal::Owner);
        if holders.clone().filter(|other| is_same(other, principal)).count() >= HOLDER_MAX {
            return busy(HOLDER_MAX, " of this capability");
        }
        if holders.count() >= HOLDERS_MAX {
            return busy(HOLDERS_MAX, " of capabilities");
        }
    }
    if open.len() >= UPLOADS_MAX {
        return busy(UPLOADS_MAX, "");
    }
    open.push(principal.clone());
    Ok(())
}

fn leave(principal: &Principal) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = open.iter().position(|other| other == principal) {
        open.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_security::token::TokenId;

    /// SHA-256 of "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn hash() -> Vec<u8> {
        (0..32).map(|at| u8::from_str_radix(&ABC[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    fn staging(dir: &Path) -> Staging {
        let mut staging = Staging::new(dir, Principal::Owner).unwrap();
        staging.expect([item("a")].iter());
        staging
    }

    fn item(path: &str) -> Item {
        Item { path: path.into(), bytes: 3, sha256: ABC.into(), ..Item::default() }
    }

    #[test]
    fn a_file_counts_once_it_is_what_was_announced_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let code = |result: Result<()>| result.err().map(|error| error.code());
        let mut staging = staging(dir.path());
        assert_eq!(staging.missing(), [ABC]);
        assert_eq!(code(staging.take(&[7; 32], 0, b"abc")), Some(Code::UploadUnexpected), "not asked for");
        assert_eq!(code(staging.take(b"short", 0, b"abc")), Some(Code::UploadUnexpected));
        assert_eq!(code(staging.take(&hash(), 1, b"bc")), Some(Code::UploadUnexpected), "not from its beginning");
        assert_eq!(code(staging.take(&hash(), 0, b"")), Some(Code::UploadUnexpected));
        assert_eq!(code(staging.take(&hash(), 0, b"abd")), Some(Code::UploadMismatch), "another content");
        assert_eq!(code(staging.take(&hash(), 0, b"abcd")), Some(Code::UploadMismatch), "longer");
        assert_eq!(code(staging.take(&hash(), 0, b"ab")), None);
        assert_eq!(staging.missing(), [ABC], "cut short");
        assert_eq!(code(staging.take(&hash(), 2, b"c")), Some(Code::UploadUnexpected), "it was to begin anew");
        assert_eq!(code(staging.take(&hash(), 0, b"a")), None);
        assert_eq!(code(staging.take(&hash(), 1, b"bc")), None);
        assert!(staging.missing().is_empty());
        assert_eq!(code(staging.take(&hash(), 0, b"abc")), Some(Code::UploadUnexpected), "it is complete");
        let empty = Item { path: "lib/empty".into(), ..Item::default() };
        let items = vec![
            Item { executable: true, ..item("run") },
            Item { path: "lib".into(), directory: true, ..Item::default() },
            empty,
        ];
        let root = staging.assemble(&"f".parse().unwrap(), &Bundle { items, ..Bundle::default() }).unwrap();
        assert_eq!(fs::read(root.join("run")).unwrap(), b"abc");
        assert_eq!(fs::metadata(root.join("run")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(root.join("lib/empty")).unwrap().len(), 0);
        drop(staging);
        assert_eq!(fs::read_dir(dir.path().join(SCRATCH)).unwrap().count(), 0);
    }

    #[test]
    fn a_deployment_without_progress_gives_up_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let [idle, busy] = [Uploads::default(), Uploads::default()];
        for uploads in [&idle, &busy] {
            let mut slot = uploads.lock();
            uploads.announce(&mut slot, dir.path(), Principal::Owner).unwrap().expect([item("a")].iter());
        }
        let directories = || fs::read_dir(dir.path().join(SCRATCH)).unwrap().count();
        abandon(IDLE_MAX);
        assert_eq!(directories(), 2);
        let long_ago = Instant::now().checked_sub(2 * IDLE_MAX).expect("the machine runs for some minutes");
        for uploads in [&idle, &busy] {
            uploads.lock().staging.as_mut().unwrap().heard = long_ago;
        }
        // A little now and then is no progress.
        idle.lock().staging.as_mut().unwrap().take(&hash(), 0, b"ab").unwrap();
        {
            let mut busy = busy.lock();
            let staging = busy.staging.as_mut().unwrap();
            let data = vec![7; PROGRESS_MIN_BYTES as usize];
            let sha256 = Sha256::digest(&data);
            let large = Item {
                path: "b".into(),
                bytes: PROGRESS_MIN_BYTES,
                sha256: Hex(&sha256[..]).to_string(),
                ..Item::default()
            };
            staging.expect([item("a"), large].iter());
            for (at, part) in data.chunks(UPLOAD_PART_MAX_BYTES).enumerate() {
                staging.take(&sha256, (at * UPLOAD_PART_MAX_BYTES) as u64, part).unwrap();
            }
        }
        abandon(IDLE_MAX);
        assert!(idle.lock().staging.is_none() && idle.lock().abandoned);
        assert!(busy.lock().staging.is_some() && !busy.lock().abandoned);
        assert_eq!(directories(), 1);
        // If it is announced again, it gets a place again. A deployment that is being worked on keeps its place.
        let mut slot = idle.lock();
        idle.announce(&mut slot, dir.path(), Principal::Owner).unwrap().heard = long_ago;
        abandon(IDLE_MAX);
        assert!(slot.staging.is_some() && !slot.abandoned);
    }

    #[test]
    fn a_capability_has_a_share_of_the_places_and_leaves_some_to_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let holder = |id: u8, subject: Option<&[u8]>| {
            let subject = subject.map(Box::from);
            Staging::new(dir.path(), Principal::Holder { id: TokenId([id; 8]), subject })
        };
        let code = |result: &Result<Staging>| result.as_ref().err().map(|error| error.code());
        // Other tests of this process have some of the owner's places.
        let mut taken: Vec<_> = (0..HOLDER_MAX).map(|_| holder(1, None).unwrap()).collect();
        assert_eq!(code(&holder(1, None)), Some(Code::UploadsBusy));
        assert_eq!(
            code(&holder(1, Some(b"another"))),
            Some(Code::UploadsBusy),
            "it is passed on, and is still the same"
        );
        for id in 2..2 + (HOLDERS_MAX / HOLDER_MAX - 1) as u8 {
            taken.extend((0..HOLDER_MAX).map(|_| holder(id, None).unwrap()));
        }
        assert_eq!(code(&holder(99, None)), Some(Code::UploadsBusy), "the rest is the owner's");
        Staging::new(dir.path(), Principal::Owner).unwrap();
        taken.pop();
        holder(99, None).unwrap();
    }

    #[test]
    fn what_is_complete_is_not_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = staging(dir.path());
        staging.take(&hash(), 0, b"abc").unwrap();
        staging.expect([item("b"), item("c")].iter());
        assert!(staging.missing().is_empty());
        staging.expect([].iter());
        staging.expect([item("b")].iter());
        assert_eq!(staging.missing(), [ABC], "it was given up in between");
    }
}
