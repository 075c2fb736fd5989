//! Storms: a pipeline over two hosts runs while every kind of process is killed, and its result is exact.
//!
//! ```text
//!   clients (processes) --> here --- link that is cut ---> there        functions.rs says what runs
//!        ^                   ^               ^               ^
//!        +------- killed ----+---- cut ------+--- killed ----+          main.rs, from a seed
//!                            |                               |
//!                            +------- read all the time -----+          book.rs: what came out, what it has to be
//! ```
//! Then a third more records follow while no host is killed, to detect whether hosts grow (watch.rs).
//!
//! Killed are hosts (SIGKILL, SIGTERM), single threads of hosts (which then have to end by themselves), whatever processes run their
//! functions, and clients. MILLRACE_SEED repeats the actions, but not their timing. MILLRACE_STORM_RECORDS sets the number of records.

mod book;
mod chance;
mod clients;
mod functions;
mod link;
mod site;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // ptrace.
mod thread_exit;
mod watch;

use book::Book;
use chance::Chance;
use clients::Supervised;
use link::Link;
use millrace_tests::PATIENCE;
use site::Site;
use std::{
    env, fmt, fs,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use watch::Watch;

const RECORDS: u64 = 6_000;
/// A storm ends after this many strokes plus one for every twenty records, even if records are left, because a machine may be slow.
const STROKES_LEAST: u64 = 50;
/// The pause between two strokes, in ms.
const PAUSE: (u64, u64) = (50, 400);
/// If there was no progress for this long, a storm pauses for a moment, because a machine may be slow.
const BREATH: Duration = Duration::from_secs(3);

/// The first thing that went wrong, on whichever thread.
#[derive(Default)]
pub struct Trouble(Mutex<Option<String>>);

impl Trouble {
    fn tell(&self, what: String) {
        self.0.lock().unwrap().get_or_insert(what);
    }

    fn any(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

#[derive(Default)]
struct Strokes {
    hosts_killed: u64,
    hosts_told_to_end: u64,
    threads_ended: u64,
    workers_killed: u64,
    clients_killed: u64,
    links_cut: u64,
}

impl fmt::Display for Strokes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strokes { hosts_killed, hosts_told_to_end, threads_ended, workers_killed, clients_killed, links_cut } =
            self;
        write!(f, "hosts_killed={hosts_killed} hosts_told_to_end={hosts_told_to_end} threads_ended={threads_ended} ")?;
        write!(f, "workers_killed={workers_killed} clients_killed={clients_killed} links_cut={links_cut}")
    }
}

struct Storm {
    sites: [Arc<Site>; 2],
    link: Link,
    clients: Vec<Arc<Supervised>>,
    books: [Arc<Book>; 2],
    trouble: Arc<Trouble>,
    records: u64,
    turns: u64,
    seed: u64,
}

#[test]
fn plays_a_client() {
    clients::play_client();
}

#[test]
fn nothing_is_lost_or_repeated_when_any_process_is_killed() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")));
    let seed = number("MILLRACE_SEED")
        .unwrap_or_else(|| u64::from(std::process::id()) ^ Instant::now().elapsed().as_nanos() as u64);
    let records = number("MILLRACE_STORM_RECORDS").unwrap_or(RECORDS);
    println!("storm: MILLRACE_SEED={seed} MILLRACE_STORM_RECORDS={records}");
    // The additional records go through hosts that are not killed.
    Storm::run(seed, records * 4 / 3);
}

/// Processes that the process started, and those that they started.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in thread_exit::threads(pid) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{task}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            all.push(child);
            all.extend(descendants(child));
        }
    }
    all
}

impl Storm {
    fn run(seed: u64, records: u64) {
        let mut chance = Chance(seed);
        let turns = records / 20;
        let there = Arc::new(Site::new("there"));
        let link = Link::start(SocketAddr::from((Ipv4Addr::LOCALHOST, there.port.number)));
        let here = Arc::new(Site::new("here"));
        let durabilities = ["disk", "memory"];
        functions::deploy_there(&there.place, durabilities[chance.below(2)], records);
        let to = format!("mr://127.0.0.1:{}/farm", link.port);
        functions::deploy_here(&here.place, durabilities[chance.below(2)], &to, records, turns);
        here.place.run(["log", "append", "loop", "1"]).ok();
        let trouble = Arc::new(Trouble::default());
        let supervisors = [here.supervise(&trouble), there.supervise(&trouble)];
        let (clients, feeding): (Vec<_>, Vec<_>) = (0..clients::CLIENTS)
            .map(|client| Supervised::start(here.place.path(), client, &here.address(), records, &trouble))
            .unzip();
        let (of_here, read_here) = Book::follow(&here, functions::LOGS_HERE, &trouble);
        let (of_there, read_there) = Book::follow(&there, functions::LOGS_THERE, &trouble);
        let limit = clients::limit_of(here.place.path());
        let sites = [here, there];
        let (watch, watching) = Watch::start(sites.clone(), [of_here.clone(), of_there.clone()], records, limit);
        let storm = Storm { sites, link, clients, books: [of_here, of_there], trouble, records, turns, seed };
        let started = Instant::now();
        let strokes = storm.rage(&watch, &mut chance);
        let raged = started.elapsed();
        watch.hosts_live();
        feeding.into_iter().for_each(|client| client.join().unwrap());
        storm.calm();
        watch.stop();
        watching.join().unwrap();
        let calmed = started.elapsed();
        storm.books.iter().for_each(|book| book.stop());
        storm.panic_if_troubled();
        for reader in [read_here, read_there] {
            reader.join().unwrap();
        }
        book::check(&storm.books[0], &storm.books[1], records, turns);
        storm.check_ends();
        storm.sites.iter().for_each(|site| site.close());
        supervisors.into_iter().for_each(|supervisor| supervisor.join().unwrap());
        storm.panic_if_troubled();
        watch.check_flat(records);
        let lives: Vec<u64> =
            storm.sites.iter().map(|site| site.lives.load(std::sync::atomic::Ordering::SeqCst)).collect();
        println!("storm: {records} records in {calmed:.1?}, the first {raged:.1?} of it in a storm");
        println!("tally: records={records} lives_of_hosts={} {strokes}", lives.iter().sum::<u64>());
    }

    /// Counters of everything that has happened, to detect progress.
    fn moved(&self) -> u64 {
        let reported: u64 = self.clients.iter().map(|client| client.reported(self.records)).sum();
        reported + self.books.iter().map(|book| book.total()).sum::<u64>()
    }

    fn reported(&self) -> u64 {
        self.clients.iter().map(|client| client.reported(self.records)).sum()
    }

    /// All errors, and the pending runs and records.
    fn panic_if_troubled(&self) {
        let what = self.trouble.0.lock().unwrap().take();
        if let Some(what) = what {
            self.give_up(&what);
        }
    }

    fn give_up(&self, what: &str) -> ! {
        let mut said =
            format!("{what}\nreplay: MILLRACE_SEED={} MILLRACE_STORM_RECORDS={}", self.seed, self.records * 3 / 4);
        for (site, book) in self.sites.iter().zip(&self.books) {
            let command = |args: &[&str]| {
                let ended = site.place.run(args);
                format!(
                    "\n$ millrace {} # {}\n{}{}",
                    args.join(" "),
                    site.name,
                    String::from_utf8_lossy(&ended.stdout),
                    ended.stderr
                )
            };
            said += &command(&["function", "ls"]);
            said += &command(&["run", "ls", "--state", "pending", "-l", "5"]);
            for function in if site.name == "here" { functions::HERE } else { functions::THERE } {
                said += &command(&["why", function]);
            }
            said += &command(&["outbox", "ls"]);
            said += &command(&["relay", "ls"]);
            said += &format!("\nread: {} records; the host's last words:\n{}\n", book.total(), site.last_words());
        }
        panic!("{said}");
    }

    /// Strikes until everything has arrived, or up to the limit of strokes; returns the actions.
    fn rage(&self, watch: &Watch, chance: &mut Chance) -> Strokes {
        let mut strokes = Strokes::default();
        let (mut seen, mut since, mut said) = (0, Instant::now(), Instant::now());
        let strokes_max = STROKES_LEAST + self.records / 20;
        let mut struck = 0;
        while !self.all_arrived() && struck < strokes_max {
            self.panic_if_troubled();
            let pause = PAUSE.0 + chance.next() % (PAUSE.1 - PAUSE.0);
            thread::sleep(Duration::from_millis(pause));
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                println!("storm: {} of {} told, {strokes}", self.reported(), self.records);
            }
            let moved = self.moved();
            if moved != seen {
                (seen, since) = (moved, Instant::now());
            } else if since.elapsed() > PATIENCE * 2 {
                self.give_up("nothing moves any more");
            } else if since.elapsed() > BREATH {
                continue;
            }
            let hosts_live = watch::is_lull(&self.books[1], self.records);
            if hosts_live {
                watch.hosts_live();
            }
            self.strike(hosts_live, chance, &mut strokes);
            struck += 1;
        }
        strokes
    }

    fn strike(&self, hosts_live: bool, chance: &mut Chance, strokes: &mut Strokes) {
        let site = &self.sites[chance.below(2)];
        match chance.below(100) {
            0..35 | 75..85 if hosts_live => self.cut_link(chance, strokes),
            0..30 => strokes.hosts_killed += u64::from(site.pid().is_some() && site.end("KILL")),
            30..35 => strokes.hosts_told_to_end += u64::from(site.pid().is_some() && site.end("TERM")),
            35..60 => {
                let workers = site.pid().map(descendants).unwrap_or_default();
                if let Some(worker) = chance.one_of(&workers) {
                    // It may have ended meanwhile.
                    let killed = std::process::Command::new("kill").args(["-KILL", &worker.to_string()]).output();
                    strokes.workers_killed += u64::from(killed.is_ok_and(|killed| killed.status.success()));
                }
            }
            60..75 => strokes.clients_killed += u64::from(clients::kill_one(&self.clients, chance)),
            75..85 => {
                let ended = site.end_thread(|threads| chance.one_of(threads));
                strokes.threads_ended += u64::from(ended.is_some());
            }
            _ => self.cut_link(chance, strokes),
        }
    }

    fn cut_link(&self, chance: &mut Chance, strokes: &mut Strokes) {
        let pause = Duration::from_millis(chance.next() % 500);
        if chance.below(2) == 0 {
            self.link.cut()
        } else {
            self.link.silence()
        }
        thread::sleep(pause);
        self.link.mend();
        strokes.links_cut += 1;
    }

    /// Whether all records have arrived at their last log.
    fn all_arrived(&self) -> bool {
        let [here, there] = &self.books;
        let n = self.records;
        let some = |(modulus, rest): (u64, u64)| (1..=self.records).filter(|n| n % modulus == rest).count() as u64;
        there.count("out") >= n
            && there.count("relayed") >= n
            && here.count("stamps") >= n
            && here.count("tenth_out") >= n / functions::TENTH
            && here.count("parts") >= n / functions::TENTH * 2
            && here.count("ledger") >= some(functions::CREDIT) + some(functions::DEBIT)
            && here.count("loop") >= self.turns
    }

    /// Waits until all records have arrived at their last log.
    fn calm(&self) {
        let (mut seen, mut since) = (0, Instant::now());
        while !self.all_arrived() {
            self.panic_if_troubled();
            let moved = self.moved();
            if moved != seen {
                (seen, since) = (moved, Instant::now());
            } else if since.elapsed() > PATIENCE {
                self.give_up("the storm is over and nothing moves any more");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that no run is pending or dead and no journal is damaged.
    fn check_ends(&self) {
        for site in &self.sites {
            site.place.idle();
            let logs = site.place.run(["--json", "log", "ls"]).ok().objects();
            for log in logs {
                let name = log["name"].as_str().expect("a name");
                if name.starts_with("dead/") {
                    let dead_letters = site.place.records(name);
                    if let Some(first) = dead_letters.first() {
                        self.give_up(&format!("'{name}' has {} letters; the first: {first}", dead_letters.len()));
                    }
                }
            }
            site.place.run(["namespace", "check"]).ok();
        }
    }
}
