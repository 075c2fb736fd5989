//! Many writers, killed at random, all the time: what each was told stays, and nobody ever hangs.
//!
//! The children are this binary, run again with an environment variable. Each reports what it is told through a pipe, one
//! line per acknowledged commit. The parent kills and replaces them; in some phases one handle of its own survives, in
//! others nobody does and the next to come recovers the namespace.

use millrace_journal::{CreateOptions, Durability, End, Journal, Kind, OpenOptions, Origin, Position};
use millrace_wire::EventId;
use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const ROLE: &str = "MILLRACE_STORM_ROLE";
const DIR: &str = "MILLRACE_STORM_DIR";
const STORM: Duration = Duration::from_secs(9);
/// No commit, wait or open takes longer, however busy the machine is.
const HANG: Duration = Duration::from_secs(120);

fn open(dir: &Path) -> Journal {
    Journal::open(dir, &OpenOptions::default()).unwrap()
}

/// Not a test by itself: what a child runs until it is killed.
#[test]
fn child() {
    let (Ok(role), Ok(dir)) = (std::env::var(ROLE), std::env::var(DIR)) else { return };
    let journal = open(Path::new(&dir));
    let log = journal.log(&"storm".parse().unwrap()).unwrap();
    let mut reported = std::io::stderr().lock();
    let mut payload = Vec::new();
    for n in 0u64.. {
        if n.is_multiple_of(16) {
            thread::sleep(Duration::from_millis(1)); // Enough is enough: the parent reads all of it again.
        }
        match role.as_str() {
            // Records of many sizes, all of whose bytes follow from their first eight.
            "append" => {
                let tag = u64::from(std::process::id()) << 32 | n;
                let committed = journal.commit(|batch| batch.append(&log, &record(tag), EventId::NONE, 0)).unwrap();
                if n.is_multiple_of(64) {
                    journal.sync(committed.end).unwrap();
                }
                writeln!(reported, "T {} {tag} {}", committed.value.seqno, committed.value.id).unwrap();
            }
            "batch" => {
                let tag = u64::from(std::process::id()) << 32 | n;
                let ((first, last), id) = journal
                    .commit(|batch| {
                        let function = batch.catalog().function("f").expect("defined").id();
                        let first = batch.append(&log, &record(tag), EventId::NONE, 0)?;
                        let run = batch.trigger(function, first.id, &log, first.seqno, Origin::Bound)?;
                        let last = batch.append(&log, &record(tag), run.id, 1)?;
                        batch.done(function, run, &End::default())?;
                        Ok(((first.seqno, last.seqno), last.id))
                    })
                    .unwrap()
                    .value;
                assert_eq!(last, first + 1);
                writeln!(reported, "T {last} {tag} {id}").unwrap();
            }
            "define" => {
                let name = format!("tmp/{}", n % 5).parse().unwrap();
                journal
                    .commit(|batch| match batch.catalog().log(&format!("tmp/{}", n % 5)).is_some() {
                        true => batch.remove_log(&name),
                        false => batch.create_log(&name, 10).map(drop),
                    })
                    .unwrap();
            }
            _ => {
                let seen = journal.tail();
                assert!(journal.wait(seen, Duration::from_millis(50)) >= seen);
                let latest = log.latest();
                if latest > 0 && journal.get(&log, latest, &mut payload).is_ok() {
                    assert_eq!(payload, record(u64::from_le_bytes(payload[..8].try_into().unwrap())));
                }
            }
        }
    }
}

fn record(tag: u64) -> Vec<u8> {
    let mut bytes = tag.to_le_bytes().to_vec();
    bytes.resize(8 + (tag % 1500) as usize, tag as u8);
    bytes
}

fn start(role: &str, dir: &Path, reported: &mpsc::Sender<String>) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .envs([(ROLE, role), (DIR, dir.to_str().unwrap())])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (pipe, reported) = (BufReader::new(child.stderr.take().unwrap()), reported.clone());
    thread::spawn(move || {
        for line in pipe.split(b'\n').map_while(Result::ok) {
            let _ = reported.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    child
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn writers_killed_at_random_lose_no_acknowledged_record() {
    let seed = std::env::var("MILLRACE_SEED").ok().and_then(|text| text.parse().ok());
    let mut seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64) | 1;
    println!("storm: MILLRACE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let (durability, retain_bytes) = (Durability::Memory, 3 << 30);
    let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes, durability, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    journal
        .commit(|batch| {
            batch.create_log(&"storm".parse().unwrap(), 1 << 24)?;
            batch.define_function(&"f".parse().unwrap(), "{}")
        })
        .unwrap();
    let (tell, reported) = mpsc::channel();
    let roles = ["append", "append", "batch", "batch", "define", "read"];
    let mut writers: Vec<Child> = roles.iter().map(|role| start(role, dir.path(), &tell)).collect();
    let mut survivor = Some(journal);
    let (started, mut kills, mut alone, mut lines) = (Instant::now(), 0, 0, Vec::new());
    let mut acknowledged = 0;
    // On a busy machine the storm lasts until there was one.
    while started.elapsed() < STORM || kills < 60 || alone < 2 || acknowledged < 2000 {
        assert!(started.elapsed() < 5 * HANG, "{kills} kills and {acknowledged} acknowledgements are no storm");
        let before = lines.len();
        lines.extend(reported.try_iter());
        acknowledged += lines[before..].iter().filter(|line| line.starts_with("T ")).count();
        thread::sleep(Duration::from_micros(2_000 + random(&mut seed) % 60_000));
        let nobody_stays = random(&mut seed).is_multiple_of(12);
        if nobody_stays {
            // The handle goes while writers are busy, so it is no clean end; then they all die at once.
            survivor = None;
            alone += 1;
        }
        for writer in &mut writers {
            if nobody_stays || random(&mut seed).is_multiple_of(4) {
                writer.kill().unwrap();
                writer.wait().unwrap();
                kills += 1;
            }
        }
        let before = Instant::now();
        let journal = survivor.get_or_insert_with(|| open(dir.path()));
        let log = journal.log(&"storm".parse().unwrap()).unwrap();
        journal.commit(|batch| batch.append(&log, &record(random(&mut 7)), EventId::NONE, 0)).unwrap();
        assert!(before.elapsed() < HANG, "taking over took {:?}", before.elapsed());
        for (writer, role) in writers.iter_mut().zip(roles) {
            if writer.try_wait().unwrap().is_some() {
                *writer = start(role, dir.path(), &tell);
            }
        }
    }
    for mut writer in writers {
        assert_eq!(writer.try_wait().unwrap(), None, "a writer ended by itself");
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    drop((survivor, tell));
    println!("{kills} kills, {alone} times with nobody left");
    lines.extend(reported);
    verify(dir.path(), lines);
}

/// Compares what the writers were told with what is there.
fn verify(dir: &Path, reported: Vec<String>) {
    let journal = open(dir);
    let mut records: HashMap<u64, (EventId, u64)> = HashMap::new();
    let (mut ids, mut next, mut counts, mut in_batch) = (HashSet::new(), 1, HashMap::new(), 0);
    let mut scan = journal.scan(Position::default());
    let log = journal.log(&"storm".parse().unwrap()).unwrap();
    while let Some(entry) = scan.next().unwrap() {
        assert!(ids.insert(entry.id), "{} was given out twice", entry.id);
        in_batch = if entry.last { 0 } else { in_batch + 1 };
        if entry.kind == Kind::Append && entry.subject == log.id() {
            assert_eq!(entry.seqno, next, "a hole");
            next += 1;
            let tag = u64::from_le_bytes(entry.payload[..8].try_into().unwrap());
            assert_eq!(entry.payload, record(tag), "record {} is not what was appended", entry.seqno);
            records.insert(entry.seqno, (entry.id, tag));
        }
        *counts.entry(entry.kind.name()).or_insert(0u64) += 1;
    }
    assert_eq!(in_batch, 0, "the journal ends within a batch");
    assert_eq!(counts["TRIGGER"], counts["DONE"], "batches are whole");
    let (mut acknowledged, mut confirmed) = (0, 0);
    for line in &reported {
        let Some(rest) = line.strip_prefix("T ") else {
            assert!(!line.contains("panicked"), "{line}");
            continue;
        };
        acknowledged += 1;
        let words: Vec<&str> = rest.split(' ').collect();
        // A line may be cut by the kill; then nobody was told anything by it.
        let [seqno, tag, id] = words[..] else { continue };
        let (Ok(seqno), Ok(tag), Ok(id)) = (seqno.parse::<u64>(), tag.parse::<u64>(), id.parse::<EventId>()) else {
            continue;
        };
        let Some(found) = records.get(&seqno) else { panic!("record {seqno} was acknowledged and is gone: {line}") };
        assert!(found.1 == tag, "record {seqno} is another one's: {line}");
        confirmed += u64::from(found.0 == id);
    }
    println!("{counts:?}, {confirmed} of {acknowledged} acknowledgements confirmed");
    // The last line of a killed writer may lack digits of its id; nothing else may differ.
    assert!(confirmed > 1000 && confirmed + 2000 > acknowledged);
    let function = journal.catalog().unwrap().function("f").unwrap().clone();
    assert_eq!((function.triggered(), function.done()), (counts["TRIGGER"], counts["DONE"]));
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
}
