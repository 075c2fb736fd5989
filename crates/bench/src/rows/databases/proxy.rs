//! A proxy that delays what passes, as a longer line does: as many bytes as one likes can be under way.

use crate::Outcome;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// A listener whose connections lead to a server. It lives as long as the bench.
pub struct DelayProxy {
    port: u16,
}

impl DelayProxy {
    /// In front of a server on this machine, with so long a round trip.
    pub fn start(server: u16, round_trip: Duration) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Without a server, the client gets a closed connection.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let _ = pass(&client, &server, round_trip / 2).and_then(|()| pass(&server, &client, round_trip / 2));
            }
        });
        Ok(Self { port })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Passes on what comes, each part as long after it came, with one thread that reads and one that writes.
fn pass(from: &TcpStream, to: &TcpStream, delay: Duration) -> std::io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    to.set_nodelay(true)?;
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        // Any end of the line ends the other side, too.
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..length].into())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    Ok(())
}
