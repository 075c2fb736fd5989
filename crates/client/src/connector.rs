//! Connects to a host, for clients and links: looks up its name and tries its addresses.
//!
//! Both happen on threads of their own, because a lookup cannot be cancelled, and a caller must be able to stop waiting at any time.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// How a name is looked up.
pub type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Attempts of this process that may be unanswered: each has a thread until the system gives up.
const UNANSWERED_MAX: usize = 64;
/// Name services of the system want some room.
const STACK_BYTES: usize = 256 << 10;

static UNANSWERED: AtomicUsize = AtomicUsize::new(0);

/// Counts an attempt for as long as its thread lives.
struct Counted;

impl Counted {
    fn take() -> io::Result<Self> {
        if UNANSWERED.fetch_add(1, Ordering::Relaxed) >= UNANSWERED_MAX {
            UNANSWERED.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other(format!("{UNANSWERED_MAX} attempts to reach hosts are unanswered")));
        }
        Ok(Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        UNANSWERED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The address that needs no name service.
fn literal(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    Some(vec![SocketAddr::new(address, port)])
}

/// Executes `work` on a thread of its own, and calls `done` when it ends.
fn begin<T: 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    done: impl FnOnce(io::Result<T>) + Send + 'static,
) -> io::Result<()> {
    let counted = Counted::take()?;
    let work = move || {
        let result = work();
        drop(counted);
        done(result);
    };
    thread::Builder::new().name("millrace-connect".into()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Waits for `work` on a thread of its own, for at most this time, and only while `check` succeeds; it is called every `tick`.
fn wait<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    (patience, tick): (Duration, Duration),
    check: impl Fn() -> io::Result<()>,
) -> io::Result<T> {
    let until = Instant::now() + patience;
    let (sender, receiver) = mpsc::sync_channel(1);
    // The caller may have stopped waiting.
    begin(work, move |result| drop(sender.send(result)))?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(tick)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => check()?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn resolving(resolve: Option<Resolve>, host: &str, port: u16) -> impl FnOnce() -> io::Result<Vec<SocketAddr>> + use<> {
    let host = host.to_owned();
    move || match resolve {
        Some(resolve) => resolve(&host, port),
        None => (&*host, port).to_socket_addrs().map(Iterator::collect),
    }
}

/// Waits for the addresses of a host, for at most this time, and only while `check` succeeds; it is called every `tick`.
pub fn look_up(
    resolve: Option<Resolve>,
    (host, port): (&str, u16),
    times: (Duration, Duration),
    check: impl Fn() -> io::Result<()>,
) -> io::Result<Vec<SocketAddr>> {
    literal(host, port).map_or_else(|| wait(resolving(resolve, host, port), times, check), Ok)
}

/// Connects to the first of these addresses that answers, each within the same time.
pub fn connect(
    addresses: Vec<SocketAddr>,
    (patience, tick): (Duration, Duration),
    check: impl Fn() -> io::Result<()>,
) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match wait(move || TcpStream::connect_timeout(&address, patience), (patience, tick), &check) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => last = error,
            ended => return ended,
        }
    }
    Err(last)
}

/// The same for a task; dropping it cancels it.
pub async fn look_up_async(resolve: Option<Resolve>, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(found) = literal(host, port) {
        return Ok(found);
    }
    let (sender, receiver) = oneshot::channel();
    begin(resolving(resolve, host, port), move |found| drop(sender.send(found)))?;
    receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    #[test]
    fn addresses_ask_nobody() {
        let nobody: Resolve = Arc::new(|_, _| panic!("it was asked"));
        for (host, address) in [("127.0.0.1", "127.0.0.1:7"), ("[::1]", "[::1]:7"), ("::1", "[::1]:7")] {
            let times = (Duration::ZERO, Duration::ZERO);
            let found = look_up(Some(nobody.clone()), (host, 7), times, || Ok(()));
            assert_eq!(found.unwrap(), [address.parse().unwrap()]);
        }
    }

    #[test]
    fn lookups_that_hang_are_left_after_their_time_and_are_bounded() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let held = gate.clone();
        let hangs: Resolve = Arc::new(move |_, port| {
            let mut open = held.0.lock().unwrap();
            while !*open {
                open = held.1.wait(open).unwrap();
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        });
        let moment = Duration::from_millis(1);
        let ask = |check: fn() -> io::Result<()>, patience| {
            look_up(Some(hangs.clone()), ("name", 7), (patience, moment), check).unwrap_err()
        };
        let given_up = ask(|| Err(io::ErrorKind::Interrupted.into()), Duration::from_secs(86_400));
        assert_eq!(given_up.kind(), io::ErrorKind::Interrupted, "who asks is asked meanwhile");
        for _ in 1..UNANSWERED_MAX {
            assert_eq!(ask(|| Ok(()), moment).kind(), io::ErrorKind::TimedOut);
        }
        let refused = ask(|| Ok(()), Duration::from_secs(86_400));
        assert!(refused.to_string().contains("unanswered"), "{refused}");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let start = Instant::now();
        while UNANSWERED.load(Ordering::Relaxed) > 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "threads stay");
            thread::sleep(moment);
        }
        let found = look_up(Some(hangs), ("name", 7), (Duration::from_secs(120), moment), || Ok(()));
        assert_eq!(found.unwrap(), ["127.0.0.1:7".parse().unwrap()]);
    }
}
