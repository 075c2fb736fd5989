//! device.path: a record of a device on its way over the edge to the cloud, with a copy on the disk of each.

use super::make;
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    peers::{cspot, raw::Prewritten},
    rows::{Measured, databases::DelayProxy, host::program, namespace_with_logs, remote::Host},
};
use millrace_client::Wait;
use millrace_journal::Durability;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Round trips: of a radio in a building, and over the internet into a region of a cloud.
const NEAR: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_millis(50);
/// What of them is on the way of a record.
const DELAYS_MS: f64 = 30.0;
const LOG: &str = "kitchen/raw";
/// Between two records, so that none waits for the one before.
const PACE: Duration = Duration::from_millis(150);
const RECORD_BYTES: usize = 16;

/// The device: it appends a record for each byte that it is given.
struct Pulse {
    child: Child,
    input: ChildStdin,
}

impl Pulse {
    fn start(context: &Context, flash: &Path, port: u16) -> Outcome<Self> {
        make(context, &["build/pulse"])?;
        let mut child = Command::new(context.root.join("device/build/pulse"))
            .arg(flash)
            .args([&format!("127.0.0.1:{port}"), "kitchen"])
            .stdin(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("a program without input")?;
        Ok(Self { child, input })
    }

    fn measure(&mut self) -> Outcome<()> {
        self.input.write_all(b".")?;
        Ok(self.input.flush()?)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // Its flash goes with the directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three bare programs, here threads: the first writes a record durably and sends it to the second, which does the same. Returns the input
/// of the first; what comes out of the last is on all three disks.
fn bare(dir: &Path) -> Outcome<(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>)> {
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let cloud = TcpListener::bind(("127.0.0.1", 0))?;
    let edge = TcpListener::bind(("127.0.0.1", 0))?;
    let far = DelayProxy::start(cloud.local_addr()?.port(), FAR)?;
    let near = DelayProxy::start(edge.local_addr()?.port(), NEAR)?;
    let mut disks = ["device", "edge", "cloud"].map(|name| Prewritten::create(&dir.join(name), 1 << 20)).into_iter();
    let mut disk = || disks.next().ok_or("three disks")?;
    let (mut first, mut second, mut third) = (disk()?, disk()?, disk()?);
    let mut to_edge = TcpStream::connect(("127.0.0.1", near.port()))?;
    let mut to_cloud = TcpStream::connect(("127.0.0.1", far.port()))?;
    to_edge.set_nodelay(true)?;
    to_cloud.set_nodelay(true)?;
    let mut record = [7; RECORD_BYTES];
    // Each ends with its input: the bench has all that it wanted.
    thread::spawn(move || {
        while begun.recv().is_ok() && first.write_durably(4096).is_ok() && to_edge.write_all(&record).is_ok() {}
    });
    thread::spawn(move || {
        let Ok((mut from, _)) = edge.accept() else { return };
        while from.read_exact(&mut record).is_ok()
            && second.write_durably(4096).is_ok()
            && to_cloud.write_all(&record).is_ok()
        {}
    });
    thread::spawn(move || {
        let Ok((mut from, _)) = cloud.accept() else { return };
        while from.read_exact(&mut record).is_ok() && third.write_durably(4096).is_ok() && end.send(()).is_ok() {}
    });
    Ok((begin, ended))
}

pub fn path(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    drop(namespace_with_logs(&dir.path().join("cloud"), Durability::Disk, &[("raw", 10_000)])?);
    let cloud = Host::serve(context, dir, 0, &["cloud=cloud"])?;
    let far = DelayProxy::start(cloud.port(), FAR)?;
    let dir = context.fresh()?;
    drop(namespace_with_logs(&dir.path().join("edge"), Durability::Disk, &[(LOG, 10_000)])?);
    let added = Command::new(program(context)?)
        .args(["--namespace", "edge", "relay", "add", LOG, &format!("mr://127.0.0.1:{}/cloud/raw", far.port())])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .status()?;
    if !added.success() {
        return Err("the relay could not be added".into());
    }
    let edge = Host::serve(context, dir, 0, &["edge=edge"])?;
    let near = DelayProxy::start(edge.port(), NEAR)?;
    let scratch = context.fresh()?;
    let mut pulse = Pulse::start(context, &scratch.path().join("flash"), near.port())?;
    let client = cloud.client("cloud")?;
    let (begin, ended) = bare(scratch.path())?;
    let count = if context.quick { 20 } else { 100 };
    let (mut ours, mut theirs, mut over) = (Samples::new(), Samples::new(), Repeated::default());
    for number in 0..count + 3 {
        thread::sleep(PACE);
        let start = Instant::now();
        pulse.measure()?;
        if client.latest("raw", number, Wait::ms(30_000))? != number + 1 {
            return Err("a record did not arrive within 30 s".into());
        }
        let of_ours = start.elapsed();
        thread::sleep(PACE);
        let start = Instant::now();
        begin.send(())?;
        ended.recv()?;
        let of_theirs = start.elapsed();
        // The first ones connect.
        if number >= 3 {
            ours.record(of_ours);
            theirs.record(of_theirs);
            over.push(of_ours.as_secs_f64() / of_theirs.as_secs_f64());
        }
    }
    let limit = DELAYS_MS * 1.15 + 20.0;
    let ms = |us: f64| us / 1e3;
    let p50 = ms(ours.p50_us());
    Ok(Measured::new(p50, ours.count())
        .percentiles(p50, ms(ours.p99_us()))
        .target("≤ injected delays × 1.15 + 10 ms a hop", p50 <= limit)
        .also("injected delays", DELAYS_MS, "ms")
        .also("ratio to bare programs, one after the other", over.median(), "")
        .peer("bare programs that write, flush and send", ms(theirs.p50_us()))
        .peer("CSPOT, published", cspot::PATH_MS)
        .peer("AWS Greengrass, published by CSPOT", cspot::GREENGRASS_MS)
        .note(format!(
            "A device (device/examples/pulse.c, a process of its own) appends a record of {RECORD_BYTES} bytes, flushes it to \
             its flash, a file, and sends it to a host at the edge; a relay there takes it to a host in the cloud. Both have \
             durability disk. From the append until a client of the cloud has the answer that the record is there. \
             Proxies delay what passes between device and edge by {} ms, and between edge and cloud by {} ms, in each \
             direction. One record at a time, {} ms after the one before. Bare programs do the same with a prewritten \
             file of each and no checks, through the same delays; the ratio of each pair: {}. The flash of the device is not \
             flushed to the disk of this machine, as a microcontroller has no disk. {}",
            NEAR.as_millis() / 2,
            FAR.as_millis() / 2,
            PACE.as_millis(),
            over.spread(),
            cspot::PATH_SOURCE,
        )))
}
