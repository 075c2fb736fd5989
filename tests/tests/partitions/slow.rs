//! A slow way to a host: a program on its machine that carries connections and passes everything on late.

use super::network::Network;
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Where it listens.
pub const PORT: u16 = 7071;
/// A round trip is late by this at first, and each piece of this size by half of it.
const DELAY_MS: u64 = 20;
const PIECE_BYTES: usize = 64 << 10;

/// The slow way.
pub struct Slow {
    address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Slow {
    /// To the port of the host on a machine.
    pub fn start(network: &Network, at: usize, port: u16) -> Self {
        let host: Ipv4Addr = network.address(at);
        let (address, to) = (SocketAddr::from((host, PORT)), SocketAddr::from((host, port)));
        let (delay_ms, over) = (Arc::new(AtomicU64::new(DELAY_MS)), Arc::new(AtomicBool::new(false)));
        let (of_thread, ends) = (delay_ms.clone(), over.clone());
        let (ready, listens) = std::sync::mpsc::channel();
        network.thread(at, move || {
            let listener = TcpListener::bind(address).expect("the port is free");
            listener.set_nonblocking(true).expect("it is a socket");
            ready.send(()).expect("somebody waits");
            while !ends.load(Ordering::Relaxed) {
                let Ok((near, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                near.set_nonblocking(false).expect("it is a socket");
                // A host that is not there is none at this address either.
                let Ok(far) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let (delay_ms, ends) = (of_thread.clone(), ends.clone());
                    thread::spawn(move || carry(&from, &to, &delay_ms, &ends));
                }
            }
        });
        listens.recv().expect("it listens");
        Self { address, delay_ms, over }
    }

    /// Everything is later from now on.
    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).expect("a short time"), Ordering::Relaxed);
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        eprintln!("the slow way over {} ends", self.address);
    }
}

fn carry(mut from: &TcpStream, mut to: &TcpStream, delay_ms: &AtomicU64, over: &AtomicBool) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed) / 2));
        if over.load(Ordering::Relaxed) || to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
