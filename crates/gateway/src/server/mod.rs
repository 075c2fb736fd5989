//! The server: event loops that share the connections among them.
//!
//! Each loop is one thread. When it has nothing left to do, and before it sleeps, it flushes once for everything that
//! the gates hold: many answers to one flush, and no other thread is woken for it.

mod allocator;
mod certificate;
mod channel;
mod event_loop;
mod listen;
mod protocol;
mod stream;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
mod tls;
mod wake_list;

pub use certificate::Certificate;
pub use listen::{Listen, Listener, SOCKET};
pub(crate) use protocol::{Protocol, Protocols, Speaking};
pub(crate) use stream::{Rewound, Stream, linger};
pub(crate) use tasks::of_stream;

use crate::{Hosted, turns::LOOPS_MAX};
use event_loop::{EventLoop, Shared};
use listen::SocketFile;
use millrace_node::{is_local, secrets::HostKey};
use millrace_wire::{Code, Result};
use std::{
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// The maximum number of unauthenticated connections.
const UNKNOWN_MAX: usize = 1024;

/// How a server listens.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where it listens with TCP.
    pub listen: Listen,
    /// The Unix socket.
    pub socket: Option<PathBuf>,
    /// The key with which TLS is spoken. Beyond loopback nothing is listened on without it.
    pub key: Option<Arc<HostKey>>,
    /// The certificate for clients that identify the host by a name instead.
    pub certificate: Option<Arc<Certificate>>,
    /// How many threads serve connections.
    pub loops: usize,
    /// How many connections may be open.
    pub connections_max: usize,
    /// How many of them may be unauthenticated: neither the owner's nor of a holder of a capability.
    pub unknown_max: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // One of two may wait for the disk while the other serves.
        let loops = cores.clamp(2, 8);
        let (listen, connections_max) = (Listen::None, 20_000);
        Self { listen, socket: None, key: None, certificate: None, loops, connections_max, unknown_max: UNKNOWN_MAX }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// With TCP, for every protocol.
    pub addresses: Vec<SocketAddr>,
    /// With TCP, for one protocol only: its name, and the address.
    pub others: Vec<(&'static str, SocketAddr)>,
    /// The Unix socket.
    pub socket: Option<PathBuf>,
}

/// A listener, and its name if it is for one protocol.
type Waiting = (TcpListener, Option<&'static str>);

/// A running server. Dropping it closes every connection at once.
pub struct Server {
    bound: Bound,
    shared: Arc<Shared>,
    loops: Vec<EventLoop>,
    /// The listeners that accept no connections yet.
    waiting: (Vec<Waiting>, Option<UnixListener>),
    _socket: Option<SocketFile>,
}

impl Server {
    /// Listens for clients that speak one of these protocols. Connections wait until [`Server::accept`].
    pub(crate) fn speaking(protocols: Protocols, hosted: Arc<Hosted>, options: &ServerOptions) -> Result<Server> {
        raise_descriptor_limit(options.connections_max);
        allocator::give_large_blocks_back();
        let mut bound = Bound::default();
        let mut listeners = Vec::new();
        let tls =
            options.key.as_deref().map(|key| tls::config(key, options.certificate.clone(), protocols)).transpose()?;
        if let Listen::On(addresses) = &options.listen {
            for Listener { at, only, spare } in addresses {
                if !is_local(at.ip()) && tls.is_none() {
                    let detail = format!("other machines can reach {at}, and the host has no key for TLS");
                    return Err(Code::AddressNotLoopback.error(detail));
                }
                let only = only.as_deref().map(|name| listen::known(name, protocols)).transpose()?;
                if !is_local(at.ip())
                    && let Some((_, may_listen)) = protocols.plain_at(only)
                {
                    may_listen(&hosted)?;
                }
                let listener = match listen::tcp(*at) {
                    Err(error) if *spare && error.code() == Code::AddressInUse => continue,
                    bound => bound?,
                };
                let bound_at = listener.local_addr().unwrap_or(*at);
                match only {
                    None => bound.addresses.push(bound_at),
                    Some(name) => bound.others.push((name, bound_at)),
                }
                listeners.push((listener, only));
            }
        }
        let unix = options.socket.as_deref().map(listen::unix).transpose()?;
        bound.socket.clone_from(&options.socket);
        // Of several servers in one process, which only tests have, the first counts.
        let _ = hosted.addresses.set(bound.addresses.clone());
        let shared = Arc::new(Shared::new(hosted, protocols, tls, options));
        // The accepting loop serves no connection: a loop with one connection may wait for the disk, and new connections must not wait with it.
        let names = (0..options.loops.clamp(1, LOOPS_MAX)).map(|number| format!("millrace-loop-{number}"));
        let loops = names
            .chain(["millrace-accept".to_owned()])
            .enumerate()
            .map(|(number, name)| EventLoop::start(number, name, shared.clone()))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|error| Code::ListenFailed.error(format!("a thread could not be started: {error}")))?;
        let (waiting, socket) = ((listeners, unix), bound.socket.clone().map(SocketFile::new));
        Ok(Server { bound, shared, loops, waiting, _socket: socket })
    }

    /// Serves connections, also those that wait already.
    pub fn accept(&mut self) -> Result<()> {
        let (listeners, unix) = std::mem::take(&mut self.waiting);
        let (acceptor, serving) = self.loops.split_last().expect("there is a loop that accepts");
        let accepts = acceptor.accept(listeners, unix, serving.iter().map(EventLoop::handle).collect());
        accepts.map_err(|error| Code::ListenFailed.error(format!("cannot listen on a socket: {error}")))
    }

    /// Where it listens.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Takes no more connections and requests, answers what it has taken for at most `drain`, and closes.
    pub fn stop(self, drain: Duration) {
        self.shared.hosted.drain();
        self.shared.stopping.notify_waiters();
        let start = Instant::now();
        while self.shared.open() > 0 && start.elapsed() < drain {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.hosted.drain();
        self.shared.stopping.notify_waiters();
        self.loops.iter_mut().for_each(EventLoop::stop);
    }
}

/// A connection is a descriptor; the soft limit is often 1024.
fn raise_descriptor_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Files of logs, segments and functions come on top.
    let wanted = 2 * connections as u64 + 4096;
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
}
