//! How fast links carry, between two servers of this process: `cargo run --release -p millrace-gateway --example links`.

use millrace_gateway::{Hosted, Linker, Listen, Server, ServerOptions};
use millrace_node::{
    AppendOptions, CreateOptions, Durability, Namespace, NewRecord, Result, Served,
    links::{Links, RelayOptions},
};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A namespace and the address of its server.
fn serve(dir: &std::path::Path, durability: Durability) -> Result<(Namespace, Server, String)> {
    let namespace = Namespace::create(dir, &CreateOptions { durability, ..CreateOptions::default() })?;
    let hosted = Hosted::new(vec![Served::new("farm".parse()?, namespace.clone())?]);
    let options = ServerOptions { listen: "127.0.0.1:0".parse::<Listen>()?, ..ServerOptions::default() };
    let server = Server::start(Arc::new(hosted), &options)?;
    let address = format!("mr://{}/farm", server.bound().addresses[0]);
    Ok((namespace, server, address))
}

fn fill(namespace: &Namespace, log: &str, records: u64, bytes: usize) -> Result<()> {
    let payload = vec![7; bytes];
    let records = (0..records).map(|_| Ok(NewRecord { log: log.into(), payload: payload.clone() }));
    let options = AppendOptions { patience: Duration::from_secs(60), ..AppendOptions::default() };
    namespace.append_many(records, options, |_| ())
}

fn wait_for(namespace: &Namespace, log: &str, records: u64) -> Result<()> {
    while namespace.latest(log)? < records {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Messages to another host, from the first append to the last arrival.
fn outbox(durability: Durability, records: u64, bytes: usize) -> Result<()> {
    let dirs = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (a, _server_a, _) = serve(dirs.0.path(), durability)?;
    let (b, _server_b, to) = serve(dirs.1.path(), durability)?;
    b.create_log(&"in".parse()?, 1 << 20)?;
    let _linker = Linker::start(a.clone(), None)?;
    let to = format!("{to}/in");
    let start = Instant::now();
    fill(&a, &to, records, bytes)?;
    let appended = start.elapsed();
    wait_for(&b, "in", records)?;
    let rate = records as f64 / start.elapsed().as_secs_f64();
    println!("outbox   {durability:?} {bytes} B: {rate:.0} messages/s (appended in {appended:?})");
    Ok(())
}

/// A relay that catches up.
fn catch_up(durability: Durability, records: u64, bytes: usize, pull: bool) -> Result<()> {
    let dirs = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (a, _server_a, from) = serve(dirs.0.path(), durability)?;
    let (b, _server_b, to) = serve(dirs.1.path(), durability)?;
    for side in [&a, &b] {
        side.create_log(&"raw".parse()?, 1 << 20)?;
    }
    fill(&a, "raw", records, bytes)?;
    let (side, from, to) =
        if pull { (&b, format!("{from}/raw"), "raw".into()) } else { (&a, "raw".into(), format!("{to}/raw")) };
    Links::of(side).add_relay(&from, &to, &RelayOptions::default())?;
    let start = Instant::now();
    let _linker = Linker::start(side.clone(), None)?;
    wait_for(&b, "raw", records)?;
    let rate = (records * bytes as u64) as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("catch up {durability:?} {bytes} B {}: {rate:.0} MB/s", if pull { "pulled" } else { "pushed" });
    Ok(())
}

fn main() -> Result<()> {
    let only = std::env::args().nth(1);
    if only.is_some_and(|only| only == "push") {
        return catch_up(Durability::Memory, 1_000_000, 1024, false);
    }
    for durability in [Durability::Memory, Durability::Disk] {
        outbox(durability, 500_000, 100)?;
        outbox(durability, 200_000, 1024)?;
        for pull in [false, true] {
            catch_up(durability, 500_000, 1024, pull)?;
            catch_up(durability, 20_000, 32 << 10, pull)?;
        }
    }
    Ok(())
}
