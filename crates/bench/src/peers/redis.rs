//! Redis with `appendfsync always`: an XADD is answered once the append-only file is on disk.

use super::{Server, patiently};
use crate::{Outcome, measure::Samples, rows::PAYLOAD};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Instant,
};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "Redis is not installed (apt-get install redis-server) and left out.";
/// What stands in the note beside its figure.
pub const SCENARIO: &str =
    "Redis 7: XADD of the same record over a Unix socket, `appendfsync always`, nothing pipelined.";

/// A Redis of our own on a socket in `dir`.
pub struct Redis {
    _server: Server,
    socket: PathBuf,
}

impl Redis {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let socket = dir.join("redis.sock");
        // No rewriting and no snapshots meanwhile: that would count against it.
        let arguments = format!(
            "--port 0 --unixsocket {} --appendonly yes --appendfsync always --save  --auto-aof-rewrite-percentage 0",
            socket.display()
        );
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let Some(server) = Server::start("redis-server", &arguments, dir)? else { return Ok(None) };
        patiently(|| Ok(UnixStream::connect(&socket)?))?;
        Ok(Some(Self { _server: server, socket }))
    }

    /// Appends `count` records over a connection of its own.
    pub fn append(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let mut request = Vec::new();
        // A bounded stream, as our log is.
        for part in [&b"XADD"[..], b"bench", b"MAXLEN", b"~", b"10000", b"*", b"d", &PAYLOAD] {
            if request.is_empty() {
                request.extend_from_slice(b"*8\r\n");
            }
            request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        let mut answer = [0; 256];
        for _ in 0..count {
            let start = Instant::now();
            stream.write_all(&request)?;
            let mut length = 0;
            // The answer is the entry's id as a bulk string: a line of length, a line of text.
            while answer[..length].iter().filter(|byte| **byte == b'\n').count() < 2 {
                let read = stream.read(&mut answer[length..])?;
                if read == 0 || answer[0] != b'$' {
                    return Err(format!("Redis said {:?}", String::from_utf8_lossy(&answer[..length + read])).into());
                }
                length += read;
            }
            samples.record(start.elapsed());
        }
        Ok(())
    }
}
