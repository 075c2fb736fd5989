//! Clients: processes that append their numbers in keyed batches, note what was acknowledged, and are killed.

use super::{Trouble, chance::Chance, watch};
use millrace_client::{AppendOptions, Options, blocking::Client};
use millrace_tests::PATIENCE;
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const VARIABLE: &str = "MILLRACE_STORM_CLIENT";
pub const CLIENTS: u64 = 3;
const BATCH: u64 = 100;

/// The numbers of a client, in its order.
pub fn numbers(client: u64, records: u64) -> impl Iterator<Item = u64> {
    (client + 1..=records).step_by(CLIENTS as usize)
}

/// Where it stands how far clients may go.
pub fn limit_of(dir: &Path) -> PathBuf {
    dir.join("limit")
}

/// What the process of a client does; returns at once in any other process.
pub fn play_client() {
    let Ok(line) = env::var(VARIABLE) else { return };
    let words: Vec<&str> = line.split(' ').collect();
    let [address, client, records, notes] = words[..] else { panic!("{line}") };
    let (client, records): (u64, u64) = (client.parse().unwrap(), records.parse().unwrap());
    let limit = limit_of(Path::new(notes).parent().expect("a folder"));
    let mut notes = fs::File::options().read(true).append(true).create(true).open(notes).unwrap();
    // One byte for each batch that was acknowledged: what was written half is no byte.
    let mut batch = notes.metadata().unwrap().len();
    let all: Vec<u64> = numbers(client, records).collect();
    while (batch * BATCH) < all.len() as u64 {
        let numbers: Vec<u64> = all[(batch * BATCH) as usize..].iter().take(BATCH as usize).copied().collect();
        while numbers.last() > Some(&watch::limit(&limit)) {
            thread::sleep(Duration::from_millis(5));
        }
        let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
        append(address, &texts, &format!("client-{client}-{batch}"));
        notes.write_all(b".").unwrap();
        batch += 1;
    }
}

/// Tries until it is acknowledged. A host that is busy or gone is asked again, with the same key.
fn append(address: &str, texts: &[String], key: &str) {
    thread_local! { static CLIENT: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) }; }
    let records: Vec<(&str, &[u8])> = texts.iter().map(|text| ("in", text.as_bytes())).collect();
    loop {
        let reported = CLIENT.with_borrow_mut(|kept| {
            let client = match kept {
                Some(client) => client,
                None => kept.insert(Client::connect(&address.parse()?, &Options::default())?),
            };
            client.append_many(&records, AppendOptions { key: Some(key), ..AppendOptions::default() })
        });
        match reported {
            Ok(receipts) => return assert_eq!(receipts.len(), texts.len()),
            Err(error) if may_pass(&error) => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("an append is refused: {error}"),
        }
    }
}

/// Hosts come and go.
pub fn may_pass(error: &millrace_wire::Error) -> bool {
    use millrace_wire::Code::*;
    let passing = [
        Busy,
        ConnectionLost,
        PeerSilent,
        ConnectFailed,
        ConnectTimeout,
        ConnectionsExhausted,
        ConnectionIdle,
        HostStopping,
    ];
    passing.contains(&error.code())
}

/// A client under supervision.
pub struct Supervised {
    child: Mutex<Option<Child>>,
    killed: AtomicBool,
    notes: PathBuf,
    client: u64,
    pub lives: AtomicU64,
}

impl Supervised {
    pub fn start(
        dir: &Path,
        client: u64,
        address: &str,
        records: u64,
        trouble: &Arc<Trouble>,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let notes = dir.join(format!("client-{client}"));
        let (child, killed) = (Mutex::new(None), AtomicBool::new(false));
        let supervised = Arc::new(Supervised { child, killed, notes, client, lives: AtomicU64::new(0) });
        let line = format!("{address} {client} {records} {}", supervised.notes.display());
        let (of_thread, trouble) = (supervised.clone(), trouble.clone());
        let thread = thread::spawn(move || {
            while !trouble.any() {
                match of_thread.live(&line, &trouble) {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(what) => return trouble.tell(format!("client {client}: {what}")),
                }
            }
        });
        (supervised, thread)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One process; true if it has done all there is to do.
    fn live(&self, line: &str, trouble: &Trouble) -> Result<bool, String> {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "plays_a_client", "--nocapture", "--quiet"]).env(VARIABLE, line);
        command.stdout(std::process::Stdio::null());
        *self.child() = Some(command.spawn().map_err(|error| error.to_string())?);
        self.lives.fetch_add(1, SeqCst);
        let (mut seen, mut since) = (self.acknowledged(), Instant::now());
        loop {
            thread::sleep(Duration::from_millis(5));
            let now = self.acknowledged();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            let mut child = self.child();
            let process = child.as_mut().expect("it was started");
            if let Some(status) = process.try_wait().map_err(|error| error.to_string())? {
                *child = None;
                return match (status.success(), self.killed.swap(false, SeqCst)) {
                    (true, _) => Ok(true),
                    (false, true) => Ok(false),
                    (false, false) => Err(format!("it ended with {status}")),
                };
            }
            if trouble.any() || since.elapsed() > PATIENCE * 3 {
                let _ = process.kill();
                return Err(format!("no append was acknowledged for long; {seen} batches were"));
            }
        }
    }

    pub fn kill(&self) -> bool {
        let mut child = self.child();
        let Some(process) = child.as_mut() else { return false };
        self.killed.store(true, SeqCst);
        process.kill().is_ok()
    }

    fn acknowledged(&self) -> u64 {
        fs::metadata(&self.notes).map_or(0, |notes| notes.len())
    }

    /// The numbers that were acknowledged so far.
    pub fn reported(&self, records: u64) -> u64 {
        (self.acknowledged() * BATCH).min(numbers(self.client, records).count() as u64)
    }
}

/// Kills one of them.
pub fn kill_one(clients: &[Arc<Supervised>], chance: &mut Chance) -> bool {
    clients[chance.below(clients.len())].kill()
}
