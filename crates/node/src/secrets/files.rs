//! Files with secrets: read only if no other user can have changed them, and replaced as a whole.

use millrace_wire::{Code, Defence, Error, Result};
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
    process::geteuid,
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The folder within a namespace's directory.
const FOLDER: &str = "secrets";
/// The folder in it of the secrets that functions are shown.
const FUNCTIONS: &str = "functions";
/// The folder in it of the capabilities for devices.
const DEVICES: &str = "devices";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Every permission bit, those that change the user or group included.
const MODE_BITS: u32 = 0o7777;
/// No file with secrets is longer.
const FILE_MAX_BYTES: usize = 64 << 10;

/// The folder of a namespace's secrets, open and locked: only one process can open it at a time.
pub struct Folder {
    path: PathBuf,
    dir: File,
}

fn failed(path: &Path, error: Errno) -> Error {
    let code = match error {
        Errno::NOSPC | Errno::DQUOT => Code::DiskFull,
        Errno::ROFS => Code::ReadOnly,
        _ => Code::Io,
    };
    code.error(format!("'{}': {error}", path.display()))
}

fn io_failed(path: &Path, error: &std::io::Error) -> Error {
    Errno::from_io_error(error)
        .map_or_else(|| Code::Io.error(format!("'{}': {error}", path.display())), |errno| failed(path, errno))
}

/// Why a file must not be trusted: a user who could write it could choose the keys, and a user who could read it knows them.
fn check_file(path: &Path, stat: &Stat, uid: u32) -> Result<()> {
    let path = path.display();
    let mode = stat.st_mode & MODE_BITS;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Code::SecretNotRegular.error(format!("'{path}' is not a regular file")));
    }
    if stat.st_uid != uid {
        return Err(Code::SecretOwner
            .error(format!("'{path}' belongs to user {}, but Millrace runs as user {uid}", stat.st_uid)));
    }
    if stat.st_nlink != 1 {
        return Err(Code::SecretLinked.error(format!("'{path}' has {} names (hard links)", stat.st_nlink)));
    }
    if mode != FILE_MODE && Defence::SecretFiles.stands() {
        return Err(Code::SecretMode.error(format!("'{path}' has mode {mode:04o} instead of {FILE_MODE:04o}")));
    }
    Ok(())
}

fn check_folder(path: &Path, stat: &Stat, uid: u32) -> Result<()> {
    let (path, mode) = (path.display(), stat.st_mode & MODE_BITS);
    let unsafe_folder = |what: String| Err(Code::SecretsFolder.error(format!("'{path}' {what}")));
    if stat.st_uid != uid {
        return unsafe_folder(format!("belongs to user {}, but Millrace runs as user {uid}", stat.st_uid));
    }
    if mode != FOLDER_MODE {
        return unsafe_folder(format!("has mode {mode:04o} instead of {FOLDER_MODE:04o}"));
    }
    Ok(())
}

/// Makes a folder in another one, unless it exists.
fn make(path: &Path, above: &Path) -> Result<()> {
    match fs::mkdir(path, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) => {
            let above_it = fs::open(above, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            above_it.and_then(fs::fsync).map_err(|error| failed(above, error))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

/// A folder that no other user can have changed; `None` if it does not exist.
fn unlocked(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match fs::open(path, flags, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(Code::SecretsFolder.error(format!("'{}' is not a directory", path.display())));
        }
        Err(error) => return Err(failed(path, error)),
    };
    let stat = fs::fstat(&dir).map_err(|error| failed(path, error))?;
    check_folder(path, &stat, geteuid().as_raw())?;
    Ok(Some(dir))
}

impl Folder {
    /// Opens the folder of the namespace in `dir`, creates it if necessary, and waits until no other process has it open.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FOLDER);
        make(&path, dir)?;
        Self::existing(dir)?.ok_or_else(|| failed(&path, Errno::NOENT))
    }

    /// The folder of functions' secrets, which is created if `make` is set; `None` if it does not exist. The folder around it is not
    /// locked.
    pub fn functions(dir: &Path, make: bool) -> Result<Option<Self>> {
        Self::within(dir, FUNCTIONS, make)
    }

    /// The folder of what belongs to devices; otherwise as [`Folder::functions`].
    pub fn devices(dir: &Path, make: bool) -> Result<Option<Self>> {
        Self::within(dir, DEVICES, make)
    }

    fn within(dir: &Path, name: &str, make: bool) -> Result<Option<Self>> {
        let around = dir.join(FOLDER);
        let path = around.join(name);
        if make {
            self::make(&around, dir)?;
        }
        if unlocked(&around)?.is_none() {
            return Ok(None);
        }
        if make {
            self::make(&path, &around)?;
        }
        Self::locked(path)
    }

    /// The same, without making one: `None` if there is none.
    pub fn existing(dir: &Path) -> Result<Option<Self>> {
        Self::locked(dir.join(FOLDER))
    }

    fn locked(path: PathBuf) -> Result<Option<Self>> {
        let Some(dir) = unlocked(&path)? else { return Ok(None) };
        dir.lock().map_err(|error| io_failed(&path, &error))?;
        Ok(Some(Self { path, dir }))
    }

    /// The names of all that is in it.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = fs::Dir::read_from(&self.dir).map_err(|error| failed(&self.path, error))?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect::<Result<_, Errno>>().map_err(|error| failed(&self.path, error))
    }

    /// Removes a file; whether it was there.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let fail = |error| failed(&self.path.join(name), error);
        match fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) => fs::fsync(&self.dir).map_err(fail).map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }

    /// The bytes of a file; `None` if it does not exist.
    pub fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let path = self.path.join(name);
        // A FIFO would keep an opener waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: OwnedFd = match fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(Code::SecretNotRegular.error(format!("'{}' is not a regular file", path.display())));
            }
            Err(error) => return Err(failed(&path, error)),
        };
        let stat = fs::fstat(&file).map_err(|error| failed(&path, error))?;
        check_file(&path, &stat, geteuid().as_raw())?;
        // All of it at once, so that no longer buffer leaves a copy behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_MAX_BYTES));
        let read = File::from(file).take(FILE_MAX_BYTES as u64).read_to_end(&mut bytes);
        read.map_err(|error| io_failed(&path, &error))?;
        Ok(Some(bytes))
    }

    /// Replaces a file atomically.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, new) = (self.path.join(name), format!("{name}.new"));
        let fail = |error| failed(&path, error);
        // A killed process may have left one; the folder is locked, so no other process writes it.
        match fs::unlinkat(&self.dir, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(fail(error)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, &new, flags, Mode::from_raw_mode(FILE_MODE)).map_err(fail)?;
        // A umask takes bits away.
        fs::fchmod(&file, Mode::from_raw_mode(FILE_MODE)).map_err(fail)?;
        let mut file = File::from(file);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(|error| io_failed(&path, &error))?;
        fs::renameat(&self.dir, &new, &self.dir, name).map_err(fail)?;
        fs::fsync(&self.dir).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs as std_fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    const NAME: &str = "authority";

    struct Home {
        dir: tempfile::TempDir,
    }

    impl Home {
        fn new() -> Self {
            let home = Self { dir: tempfile::tempdir().unwrap() };
            home.folder().replace(NAME, b"secret").unwrap();
            home
        }

        fn folder(&self) -> Folder {
            Folder::open(self.dir.path()).unwrap()
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(FOLDER).join(name)
        }

        fn refused(&self) -> Code {
            match Folder::existing(self.dir.path()).and_then(|folder| folder.expect("it is there").read(NAME)) {
                Ok(_) => panic!("it is read"),
                Err(error) => error.code(),
            }
        }
    }

    fn chmod(path: &Path, mode: u32) {
        std_fs::set_permissions(path, std_fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_its_owner_can_read_it() {
        let home = Home::new();
        std_fs::write(home.path("authority.new"), b"left by a process that was killed").unwrap();
        home.folder().replace(NAME, b"another").unwrap();
        assert_eq!(**home.folder().read(NAME).unwrap().unwrap(), *b"another");
        assert!(!home.path("authority.new").exists());
        let mode = |path: &Path| std_fs::metadata(path).unwrap().permissions().mode() & MODE_BITS;
        assert_eq!((mode(&home.path(NAME)), mode(&home.path(""))), (FILE_MODE, FOLDER_MODE));
        assert!(home.folder().read("other").unwrap().is_none());
        assert!(Folder::existing(&home.path("")).unwrap().is_none());
    }

    #[test]
    fn a_link_or_anything_but_a_file_is_refused() {
        let home = Home::new();
        std_fs::rename(home.path(NAME), home.path("elsewhere")).unwrap();
        symlink(home.path("elsewhere"), home.path(NAME)).unwrap();
        assert_eq!(home.refused(), Code::SecretNotRegular);
        std_fs::remove_file(home.path(NAME)).unwrap();
        std_fs::create_dir(home.path(NAME)).unwrap();
        assert_eq!(home.refused(), Code::SecretNotRegular);
        std_fs::remove_dir(home.path(NAME)).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, home.path(NAME), FileType::Fifo, Mode::from_raw_mode(FILE_MODE), 0)
            .unwrap();
        assert_eq!(home.refused(), Code::SecretNotRegular);
    }

    #[test]
    fn a_file_with_two_names_is_refused() {
        let home = Home::new();
        std_fs::hard_link(home.path(NAME), home.dir.path().join("stolen")).unwrap();
        assert_eq!(home.refused(), Code::SecretLinked);
    }

    #[test]
    fn a_file_that_others_can_read_or_write_is_refused() {
        let home = Home::new();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o700, 0o400, 0o4600, 0o1600] {
            chmod(&home.path(NAME), mode);
            assert_eq!(home.refused(), Code::SecretMode, "{mode:o}");
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let home = Home::new();
        let stat = rustix::fs::stat(home.path(NAME)).unwrap();
        let path = home.path(NAME);
        assert_eq!(check_file(&path, &stat, stat.st_uid), Ok(()));
        assert_eq!(check_file(&path, &stat, stat.st_uid + 1).unwrap_err().code(), Code::SecretOwner);
        let stat = rustix::fs::stat(home.path("")).unwrap();
        assert_eq!(check_folder(&path, &stat, stat.st_uid + 1).unwrap_err().code(), Code::SecretsFolder);
        // Only root can give a file away.
        if geteuid().is_root() {
            std::os::unix::fs::chown(home.path(NAME), Some(65534), None).unwrap();
            assert_eq!(home.refused(), Code::SecretOwner);
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_or_that_is_a_link_is_refused() {
        let home = Home::new();
        for mode in [0o701, 0o710, 0o755, 0o1700] {
            chmod(&home.path(""), mode);
            assert_eq!(home.refused(), Code::SecretsFolder, "{mode:o}");
        }
        chmod(&home.path(""), FOLDER_MODE);
        std_fs::rename(home.path(""), home.dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", home.dir.path().join(FOLDER)).unwrap();
        assert_eq!(home.refused(), Code::SecretsFolder);
    }
}
