//! conns.10k: what idle connections cost.

use super::Host;
use crate::{
    Context, Outcome,
    measure::Samples,
    rows::{Measured, PAYLOAD},
};
use millrace_client::AppendOptions;
use millrace_wire::protocol::{Heading, Hello, PREFACE, VERSION, encode};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const CONNECTIONS: usize = 10_000;

/// A connection that has greeted and been greeted.
fn greeted(host: &Host) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", host.port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut hello = PREFACE.to_vec();
    let message = Hello { oldest: VERSION, newest: VERSION, namespace: "memory", client: "bench", ..Hello::default() };
    encode(&mut hello, Heading { request: 1, ..Heading::default() }, &message);
    stream.write_all(&hello)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut vec![0; u32::from_le_bytes(length) as usize])?;
    Ok(stream)
}

pub fn ten_thousand(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let client = host.client("memory")?;
    let timed = |samples: &mut Samples| -> Outcome<()> {
        for _ in 0..2000 {
            let start = Instant::now();
            client.append("a", &PAYLOAD, AppendOptions::default())?;
            samples.record(start.elapsed());
        }
        Ok(())
    };
    timed(&mut Samples::new())?;
    let (before_mb, mut before, mut after) = (host.resident_mb()?, Samples::new(), Samples::new());
    timed(&mut before)?;
    let start = Instant::now();
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        connections.push(greeted(&host)?);
    }
    let took = start.elapsed().as_secs_f64();
    timed(&mut after)?;
    let after_mb = host.resident_mb()?;
    Ok(Measured::new(after_mb, CONNECTIONS as u64)
        .target("≤ 150 MB", after_mb <= 150.0)
        .also("before the connections", before_mb, "MB")
        .also("per connection", (after_mb - before_mb) * 1e6 / CONNECTIONS as f64, "bytes")
        .also("time to open the connections", took, "s")
        .also("append 1 KiB before the connections, p50", before.p50_us(), "µs")
        .also("append 1 KiB with the connections open, p50", after.p50_us(), "µs")
        .also("append 1 KiB with the connections open, p99", after.p99_us(), "µs")
        .note(
            "Resident memory of the whole host with 10 000 connections that have completed the handshake and send \
             nothing, after 2 000 appends back to back over one more connection. It does not include the kernel's \
             socket buffers.",
        ))
}
