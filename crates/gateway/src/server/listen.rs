//! Where a server listens: addresses, and a Unix socket in the namespace's directory.

use super::protocol::Protocols;
use millrace_node::is_local;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    str::FromStr,
};

/// The name of the Unix socket in a namespace's directory.
pub const SOCKET: &str = "socket";
/// `sun_path` of unix(7), without the zero at its end.
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// The queue of connections that wait to be accepted. A burst overflows a shorter queue, and the clients that do not fit retry only seconds
/// later.
const BACKLOG: i32 = 4096;

/// Where to listen with TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not with TCP: only at the Unix socket.
    None,
    /// On these addresses.
    On(Vec<Listener>),
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub at: SocketAddr,
    /// The name of the only protocol that is spoken there. Without one, the first bytes of a connection determine its protocol.
    pub only: Option<String>,
    /// Whether the server does without it if the address is in use.
    pub spare: bool,
}

impl From<SocketAddr> for Listener {
    fn from(at: SocketAddr) -> Self {
        Self { at, only: None, spare: false }
    }
}

impl Listen {
    /// All of these together.
    pub fn all(several: Vec<Listen>) -> Listen {
        let listeners = several.into_iter().filter_map(|listen| match listen {
            Listen::None => None,
            Listen::On(listeners) => Some(listeners),
        });
        listeners.reduce(|all, more| [all, more].concat()).map_or(Listen::None, Listen::On)
    }

    /// Whether clients of other machines can connect.
    pub fn is_beyond_loopback(&self) -> bool {
        matches!(self, Listen::On(listeners) if listeners.iter().any(|listener| !is_local(listener.at.ip())))
    }
}

impl FromStr for Listen {
    type Err = Error;

    /// `none`, or addresses such as `127.0.0.1:7070`, `:7070` or `http=:7070`, separated by commas.
    fn from_str(text: &str) -> Result<Listen> {
        if text == "none" {
            return Ok(Listen::None);
        }
        let mut listeners: Vec<Listener> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (only, part) = part.split_once('=').map_or((None, part), |(name, part)| (Some(name), part));
            // Without a host, only this machine: a typing error must not let others in.
            let local = part.strip_prefix(':').map(|port| format!("127.0.0.1:{port}"));
            let resolved = local.as_deref().unwrap_or(part).to_socket_addrs().map_err(|error| {
                let shown: String = part.chars().take(80).flat_map(char::escape_debug).collect();
                Code::ListenFailed.error(format!(
                    "'{shown}': {error}; write HOST:PORT, such as 127.0.0.1:7070 for this machine or 0.0.0.0:7070 for all, or none"
                ))
            })?;
            listeners.extend(resolved.map(|at| Listener { at, only: only.map(str::to_owned), spare: false }));
        }
        listeners.dedup();
        Ok(Listen::On(listeners))
    }
}

/// The name of a listener that is for one protocol.
pub(super) fn known(name: &str, protocols: Protocols) -> Result<&'static str> {
    protocols.listeners().find(|known| *known == name).ok_or_else(|| {
        let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
        let names: BTreeSet<_> = protocols.listeners().collect();
        let names: Vec<_> = names.into_iter().collect();
        let known = match &*names {
            [name] => format!("the only name is {name}"),
            names => format!("the names are {}", names.join(", ")),
        };
        Code::ValueInvalid.error(format!("'{shown}' is not the name of a protocol; {known}"))
    })
}

pub(super) fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AddrInUse => Code::AddressInUse.error(format!("{address} is in use")),
        _ => Code::ListenFailed.error(format!("{address}: {error}")),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let _ = rustix::net::listen(&listener, BACKLOG); // `bind` has called listen with a shorter queue; this lengthens it.
    Ok(listener)
}

/// A Unix socket that only its owner may connect to. A socket of a dead server is replaced.
pub(super) fn unix(path: &Path) -> Result<UnixListener> {
    let failed = |error: std::io::Error| Code::ListenFailed.error(format!("{}: {error}", path.display()));
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX_BYTES {
        let error = format!("the path has {bytes} bytes; the limit is {SOCKET_PATH_MAX_BYTES}: {}", path.display());
        return Err(Code::SocketPathTooLong.error(error));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(Code::AddressInUse.error(format!("{} is in use", path.display())));
    }
    if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
        fs::remove_file(path).map_err(failed)?;
    }
    // The socket is created under another name, so that no other user can connect before its mode is set.
    let making = path.with_file_name(".new"); // Not longer than the socket's own name.
    let _ = fs::remove_file(&making);
    let listener = UnixListener::bind(&making).map_err(failed)?;
    fs::set_permissions(&making, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&making, path).map_err(failed)?;
    let _ = rustix::net::listen(&listener, BACKLOG);
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// A socket's file, removed when the server goes.
pub(super) struct SocketFile {
    path: PathBuf,
    made: Option<(u64, u64)>,
}

impl SocketFile {
    /// The one that was made there just now.
    pub fn new(path: PathBuf) -> Self {
        Self { made: identity(&path), path }
    }
}

/// Device and number of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If the directory was moved, another server's socket may have this path.
        if identity(&self.path) == self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_what_is_none() {
        assert_eq!("none".parse::<Listen>().unwrap(), Listen::None);
        assert!(matches!("127.0.0.1:0,[::1]:0".parse::<Listen>().unwrap(), Listen::On(all) if all.len() == 2));
        assert!(!"127.0.0.1:0,[::1]:0".parse::<Listen>().unwrap().is_beyond_loopback());
        assert_eq!(":7070".parse::<Listen>().unwrap(), "127.0.0.1:7070".parse().unwrap());
        let Listen::On(both) = ":7070,http=:7071".parse().unwrap() else { panic!("addresses") };
        assert_eq!(both[0], Listener::from(both[0].at));
        assert_eq!((both[1].at.port(), both[1].only.as_deref()), (7071, Some("http")));
        assert!("http=0.0.0.0:80".parse::<Listen>().unwrap().is_beyond_loopback());
        assert_eq!(known("http", Protocols::all()).unwrap(), "http");
        let refused = known("htpp", Protocols::all()).unwrap_err();
        assert!(refused.detail().ends_with("the names are http, mqtt, mqtt-plain"), "{refused}");
        for text in ["0.0.0.0:7070", "[::]:7070", "10.1.2.3:80", "127.0.0.1:1,8.8.8.8:1"] {
            assert!(text.parse::<Listen>().unwrap().is_beyond_loopback(), "{text}");
        }
        for text in ["", "http=", "=", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "\u{1b}[31m:1"] {
            assert_eq!(text.parse::<Listen>().unwrap_err().code(), Code::ListenFailed, "{text}");
        }
    }

    #[test]
    fn a_socket_has_the_longest_path_that_the_system_allows_and_a_longer_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let around = dir.path().as_os_str().len() + "//socket".len();
        let place = |bytes: usize| {
            let place = dir.path().join("d".repeat(bytes - around));
            fs::create_dir(&place).unwrap();
            place.join("socket")
        };
        unix(&place(SOCKET_PATH_MAX_BYTES)).unwrap();
        let refused = unix(&place(SOCKET_PATH_MAX_BYTES + 1)).unwrap_err();
        assert_eq!(refused.code(), Code::SocketPathTooLong);
    }

    #[test]
    fn a_socket_that_a_dead_server_left_is_replaced_and_a_living_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let first = unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(unix(&path).unwrap_err().code(), Code::AddressInUse);
        drop(first);
        unix(&path).unwrap();
    }
}
