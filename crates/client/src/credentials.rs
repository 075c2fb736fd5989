//! A user's credentials: capabilities, the keys of known hosts, and the user's own key.
//!
//! ```text
//!  $XDG_RUNTIME_DIR/millrace/ADDRESS                    the token of a host on this machine: a line for each namespace, made by the host
//!  $XDG_STATE_HOME/millrace/peers/HOST:PORT/NAMESPACE   what an invitation gave: key and capability
//!  $XDG_STATE_HOME/millrace/identity                    the key of this user
//!  $MILLRACE_CAPABILITY                                 a file with a capability, for every host
//!  $MILLRACE_CA                                         a file with authorities that vouch for hosts elsewhere, or `system`; an option goes
//!                                                       before it
//! ```
//!
//! A file that another user could have read or written is refused.

use crate::secure::tls::authorities;
use millrace_security::token::Token;
use millrace_wire::{Code, Defence, Error, Hex, Peer, Result};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    process::geteuid,
};
use rustls::RootCertStore;
use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};
use zeroize::Zeroizing;

/// No such file is longer.
const FILE_MAX_BYTES: u64 = 64 << 10;
/// Names the authorities of this machine in place of a file.
pub const SYSTEM: &str = "system";
const CAPABILITY: &str = "capability ";
const PIN: &str = "key ";

/// A key of the user's own and the certificate that shows it.
pub struct Identity {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// The key, in PKCS #8.
    pub key: Zeroizing<Vec<u8>>,
}

/// The credentials for one host.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The capability for this host.
    pub capability: Option<Token>,
    /// The SHA-256 of the host's public key. With it TLS is spoken.
    pub pin: Option<[u8; 32]>,
    /// The authorities that vouch for the host, where its key is not known. With them TLS is spoken.
    pub authorities: Option<Arc<RootCertStore>>,
    /// The key that is shown over TLS.
    pub identity: Option<Arc<Identity>>,
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    Code::CredentialsUnusable.error(format!("'{}': {why}", path.display()))
}

/// A directory of the environment; a relative path there is to be ignored.
fn directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path that the environment names.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Whether authorities can be read from a file, or from this machine if the name is `system`.
///
/// # Errors
///
/// There is no such file, or it holds no certificate of an authority.
pub fn check_authorities(named: &Path) -> Result<()> {
    authorities(named).map(drop)
}

fn state_dir() -> Option<PathBuf> {
    let state = directory("XDG_STATE_HOME").or_else(|| Some(directory("HOME")?.join(".local/state")))?;
    Some(state.join("millrace"))
}

/// The path of the token of the host at this address of this machine.
pub fn machine_file(address: SocketAddr) -> Option<PathBuf> {
    let dir = match directory("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("millrace"),
        None => state_dir()?.join("run"),
    };
    Some(dir.join(SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()))
}

/// The path of this user's key.
pub fn identity_file() -> Option<PathBuf> {
    Some(state_dir()?.join("identity"))
}

fn peer_file(peer: &Peer) -> Option<PathBuf> {
    Some(state_dir()?.join("peers").join(peer.authority()).join(&*peer.namespace))
}

/// The bytes of a file that only this user can have touched; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>> {
    read_if(path, |_| true)
}

/// The same of a file that `counts`.
fn read_if(path: &Path, counts: impl Fn(&File) -> bool) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(unusable(path, error)),
    };
    let about = file.metadata().map_err(|error| unusable(path, error))?;
    if !about.is_file() {
        return Err(unusable(path, "it is not a regular file"));
    }
    if about.uid() != geteuid().as_raw() {
        return Err(unusable(path, format!("it belongs to user {}", about.uid())));
    }
    if about.mode() & 0o077 != 0 && Defence::SecretFiles.stands() {
        return Err(unusable(path, format!("its mode is {:04o} instead of 0600", about.mode() & 0o7777)));
    }
    if !counts(&file) {
        return Ok(None);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    Ok(Some(bytes))
}

/// Replaces a file, which only this user can read.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    written(path, bytes, |_| Ok(())).map(drop)
}

/// The same; `prepare` gets the file before it is visible.
fn written(path: &Path, bytes: &[u8], prepare: impl Fn(&File) -> std::io::Result<()>) -> Result<File> {
    let failed = |error: std::io::Error| unusable(path, error);
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| prepare(&file));
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })?;
    Ok(file)
}

fn text(path: &Path) -> Result<Option<Zeroizing<String>>> {
    text_of(path, read(path)?)
}

/// The files of a running host.
fn left_text(path: &Path) -> Result<Option<Zeroizing<String>>> {
    let lives = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_err();
    text_of(path, read_if(path, lives)?)
}

fn text_of(path: &Path, bytes: Option<Zeroizing<Vec<u8>>>) -> Result<Option<Zeroizing<String>>> {
    let Some(bytes) = bytes else { return Ok(None) };
    let text = std::str::from_utf8(&bytes).map_err(|_| unusable(path, "it is not text"))?;
    Ok(Some(Zeroizing::new(text.to_owned())))
}

/// Keeps what an invitation gave for a namespace.
pub fn keep(peer: &Peer, pin: &[u8; 32], capability: &Token) -> Result<PathBuf> {
    let none = || {
        Code::CredentialsUnusable.error("capabilities are stored below $XDG_STATE_HOME or $HOME, and neither is set")
    };
    let path = peer_file(peer).ok_or_else(none)?;
    let text = Zeroizing::new(format!("{PIN}{}\n{CAPABILITY}{}\n", Hex(pin), *capability.to_text()));
    write(&path, text.as_bytes())?;
    Ok(path)
}

fn pin_of(text: &str) -> Option<[u8; 32]> {
    let mut pin = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in pin.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(pin)
}

impl Credentials {
    /// A capability alone.
    pub fn of(capability: Token) -> Self {
        Self { capability: Some(capability), ..Self::default() }
    }

    /// The capability that the environment names, if it does.
    pub(crate) fn of_environment() -> Result<Option<Token>> {
        let Some(path) = variable("MILLRACE_CAPABILITY") else {
            return Ok(None);
        };
        let text = text(&path)?.ok_or_else(|| unusable(&path, "there is no such file"))?;
        text.trim().parse().map(Some).map_err(|error: Error| error.within(path.display()))
    }

    /// The stored credentials for a namespace at this address, and whether they are only the token of a host on this machine. `ca` names
    /// the authorities that identify hosts whose key is not known, instead of the environment.
    pub(crate) fn find(peer: &Peer, address: SocketAddr, ca: Option<&Path>) -> Result<(Self, bool)> {
        let (mut found, mut is_left) = (Self::default(), false);
        if let Some(path) = peer_file(peer)
            && let Some(text) = text(&path)?
        {
            for line in text.lines() {
                let damaged = || unusable(&path, "it was changed, or written only in part");
                match (line.strip_prefix(PIN), line.strip_prefix(CAPABILITY)) {
                    (Some(pin), _) => found.pin = Some(pin_of(pin).ok_or_else(damaged)?),
                    (_, Some(token)) => found.capability = Some(token.parse().map_err(|_| damaged())?),
                    _ => return Err(damaged()),
                }
            }
            found.identity = Identity::load()?.map(Arc::new);
        } else if address.ip().to_canonical().is_loopback() {
            found.capability = Self::of_machine(peer, address)?;
            is_left = found.capability.is_some();
        }
        // The file that a host leaves for its user identifies the host.
        if found.pin.is_none()
            && found.capability.is_none()
            && let Some(named) = ca.map(Path::to_owned).or_else(|| variable("MILLRACE_CA"))
        {
            found.authorities = Some(authorities(&named)?);
            found.identity = Identity::load()?.map(Arc::new);
        }
        if let Some(capability) = Self::of_environment()? {
            (found.capability, is_left) = (Some(capability), false);
        }
        Ok((found, is_left))
    }

    /// The token that the host at this address of this machine left for its user.
    fn of_machine(peer: &Peer, address: SocketAddr) -> Result<Option<Token>> {
        let Some(path) = machine_file(address) else { return Ok(None) };
        let Some(text) = left_text(&path)? else { return Ok(None) };
        let named = text.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| **name == *peer.namespace);
        // The host may use another name for the namespace by now, and refuses any token with that error.
        let token = named.or_else(|| text.lines().next()?.split_once(' ')).map(|(_, token)| token);
        token.map(str::parse).transpose().map_err(|error: Error| error.within(path.display()))
    }
}

impl Identity {
    /// This user's key, if there is one.
    fn load() -> Result<Option<Self>> {
        let Some(path) = identity_file() else { return Ok(None) };
        let Some(bytes) = read(&path)? else { return Ok(None) };
        let damaged = || unusable(&path, "it was changed, or written only in part");
        let mut rest = bytes.strip_prefix(b"MRHOST1\n").ok_or_else(damaged)?;
        let mut part = || {
            let length = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?) as usize;
            rest.split_off(..length).map(<[u8]>::to_vec)
        };
        let (certificate, key) = part().zip(part()).ok_or_else(damaged)?;
        Ok(Some(Self { certificate, key: Zeroizing::new(key) }))
    }
}

/// A file that a host leaves for its user. It is valid only while the host runs, which the lock on it shows.
pub struct Left {
    path: PathBuf,
    file: File,
}

impl Left {
    /// Leaves a token for each namespace: a line with its name and the token.
    pub fn leave(path: PathBuf, text: &str) -> Result<Self> {
        let file = written(&path, text.as_bytes(), |file| {
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(Into::into)
        })?;
        Ok(Self { path, file })
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let own = self.file.metadata().map(|file| (file.dev(), file.ino()));
        let there = fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        // Another host may have left its own there meanwhile.
        if own.ok().zip(there.ok()).is_some_and(|(own, there)| own == there) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_that_others_can_read_or_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/file");
        assert!(read(&path).unwrap().is_none());
        write(&path, b"secret").unwrap();
        assert_eq!(**read(&path).unwrap().unwrap(), *b"secret");
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).unwrap_err().code(), Code::CredentialsUnusable, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(read(&link).unwrap_err().code(), Code::CredentialsUnusable);
        assert_eq!(read(dir.path()).unwrap_err().code(), Code::CredentialsUnusable);
    }

    #[test]
    fn what_a_host_left_counts_as_long_as_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("127.0.0.1:7070");
        let left = Left::leave(path.clone(), "farm x\n").unwrap();
        assert_eq!(&**left_text(&path).unwrap().unwrap(), "farm x\n");
        let next = Left::leave(path.clone(), "farm y\n").unwrap();
        drop(left);
        assert_eq!(&**left_text(&path).unwrap().unwrap(), "farm y\n", "it is another host's");
        drop(next);
        assert!(left_text(&path).unwrap().is_none() && !path.exists());
        write(&path, b"farm z\n").unwrap();
        assert!(left_text(&path).unwrap().is_none(), "its host is dead");
    }
}
