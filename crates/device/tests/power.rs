//! The journal of a device, written by `device/` and read by `crates/device`, which share no code: after every loss of power, the image of
//! the flash has everything that was flushed, and a beginning of what was appended.

use millrace_device::{Entry, Event, Feed, Header, Image, What};
use millrace_wire::EventId;
use std::{
    collections::HashMap,
    env, fs,
    io::{BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The folder of the device's sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../device")
}

/// A test of `device/`, compiled with the device, the simulated flash and clang's sanitizers.
fn program(name: &str) -> PathBuf {
    let sources = ["src", "port/posix"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        entries.map(|entry| entry.expect("it is read").path())
    });
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("device-{name}-{}", std::process::id()));
    let mut command = Command::new("clang");
    command.args(["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    for headers in ["include", "../sdk/c", "../sdk/c/wire"] {
        command.arg("-I").arg(root().join(headers));
    }
    command.args(sources.filter(|file| file.extension().is_some_and(|end| end == "c")));
    command.arg(root().join(format!("tests/{name}.c"))).arg("-o").arg(&program);
    assert!(command.status().expect("clang starts").success(), "{name} is not compiled");
    program
}

const LOGS: [&str; 3] = ["raw", "smooth/kitchen", "config"];

/// The calls that a device got, and what its images have shown so far.
#[derive(Default)]
struct Model {
    /// The log of each record, in the order of their appends; the first `flushed` of them must survive.
    order: Vec<usize>,
    flushed: usize,
    records: [Vec<Vec<u8>>; LOGS.len()],
    seen: HashMap<EventId, What>,
    /// Of the last image: the newest record of each log, the next sequence and the epoch.
    image: ([u64; LOGS.len()], u64, u32),
}

impl Model {
    fn append(&mut self, packet: &[u8]) {
        let log = usize::from(packet[0]);
        self.order.push(log);
        self.records[log].push(packet[9..].to_vec());
        assert_eq!(self.records[log].len() as u64, number(&packet[1..9]), "seqnos have no gaps");
    }

    /// What the image says agrees with what was appended.
    fn image(&mut self, bytes: &[u8]) {
        let Ok(image) = Image::read(bytes) else {
            assert_eq!(self.flushed, 0, "the image has nothing, but records were flushed");
            self.image = ([0; 3], 1, 0);
            return;
        };
        let events = image.events();
        feed(bytes, &image, &events);
        self.compare(&image, &events);
        let newest = newest(&image);
        let count = newest.iter().sum::<u64>() as usize;
        assert!(count >= self.flushed, "{} records were flushed, and {count} are left", self.flushed);
        let mut counts = [0; LOGS.len()];
        self.order[..count].iter().for_each(|log| counts[*log] += 1);
        assert_eq!(newest, counts, "the records that are left are no beginning of those that were appended");
        let header = &image.sectors.last().expect("it has a sector").header;
        let next = events.last().map_or(1, |event| event.id.sequence() + 1).max(header.sequence);
        let epoch = events.last().map_or(0, |event| event.id.epoch()).max(header.epoch);
        self.image = (newest, next, epoch);
    }

    fn compare(&mut self, image: &Image, events: &[Event]) {
        let kept_all = image.sectors[0].header.serial == 0;
        let mut last: [Option<u64>; LOGS.len()] = [kept_all.then_some(0); LOGS.len()];
        let second = image.sectors.get(1).map_or(u64::MAX, |sector| sector.header.sequence);
        for pair in events.windows(2) {
            assert!(pair[0].hlc < pair[1].hlc && pair[0].id < pair[1].id, "{pair:?}");
        }
        for event in events {
            match &event.what {
                What::Append { log, seqno, payload, .. } => {
                    let log = LOGS.iter().position(|name| name == log).expect("a known log");
                    assert_eq!(*payload, self.records[log][*seqno as usize - 1], "record {seqno} of {}", LOGS[log]);
                    assert!(
                        last[log].is_none_or(|last| last + 1 == *seqno),
                        "a gap before record {seqno} of {}",
                        LOGS[log]
                    );
                    last[log] = Some(*seqno);
                }
                // Power may have been lost while the oldest sector was erased.
                What::Missing { to } => {
                    assert!(to + 1 == second && !kept_all, "entries are missing: {event:?}");
                    last = [None; LOGS.len()];
                    continue;
                }
                _ => {}
            }
            let before = self.seen.insert(event.id, event.what.clone());
            assert!(before.is_none_or(|before| before == event.what), "two events have the id {}", event.id);
        }
    }

    /// The device has opened what was in the image.
    fn start(&mut self, packet: &[u8]) {
        let (newest, next, epoch) = self.image;
        assert!(number(&packet[..4]) as u32 > epoch, "an epoch is used twice");
        assert_eq!(number(&packet[4..12]), next, "the next sequence");
        let latest: Vec<u64> = packet[12..].chunks(8).map(number).collect();
        assert_eq!(latest, newest, "the newest seqnos");
        self.flushed = newest.iter().sum::<u64>() as usize;
        self.order.truncate(self.flushed);
        for (records, newest) in self.records.iter_mut().zip(newest) {
            records.truncate(newest as usize);
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What a device sends of this image has the same events.
fn feed(bytes: &[u8], image: &Image, events: &[Event]) {
    let (mut feed, mut found) = (Feed::default(), Vec::new());
    for (index, sector) in image.sectors.iter().enumerate() {
        let Header { serial, sector_bytes, sectors, grain, namespace, .. } = sector.header;
        let flash = &bytes[serial as usize % sectors * sector_bytes..][..sector_bytes];
        assert!(feed.take(namespace, serial, 0, &flash[..40]).expect("a header").is_empty());
        let starts = [40usize.next_multiple_of(grain)].into_iter().chain(sector.bursts.iter().map(|(at, _)| *at));
        for start in starts {
            let end = start + 6 + number(&flash[start..start + 2]) as usize;
            for at in (start..end).step_by(100 + index) {
                let piece = &flash[at..end.min(at + 100 + index)];
                let arrived = feed.take(namespace, serial, at, piece).expect("the continuation");
                found.extend(arrived.into_iter().flat_map(|burst| burst.events));
            }
            assert!(feed.take(namespace, serial, start, b"x").is_err(), "bytes that came before are refused");
        }
    }
    // That the newest sector has lost entries is known from its first burst on.
    assert_eq!(found[..], events[..found.len()]);
    assert!(events.len() - found.len() <= 1);
}

/// The newest seqno of each log, from the newest sector.
fn newest(image: &Image) -> [u64; LOGS.len()] {
    let sector = image.sectors.last().expect("it has a sector");
    let mut newest = [0; LOGS.len()];
    let bursts = sector.bursts.iter().flat_map(|(_, burst)| &burst.entries);
    for entry in sector.catalog.iter().chain(bursts) {
        match entry {
            Entry::Log { id, seqno, .. } => newest[usize::from(*id)] = *seqno,
            Entry::Append { log, .. } => newest[usize::from(*log)] += 1,
            _ => {}
        }
    }
    newest
}

/// The next packet of `device/tests/trace.h`.
fn packet(from: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
        result => result.expect("the test writes"),
    }
    let mut packet = vec![0; number(&head[1..]) as usize];
    from.read_exact(&mut packet).expect("the packet is whole");
    Some((head[0], packet))
}

#[test]
fn everything_flushed_survives_each_loss_of_power() {
    let setting = |name, default: &str| env::var(name).unwrap_or_else(|_| default.into());
    let (seeds, every) = (setting("MILLRACE_DEVICE_SEEDS", "6"), setting("MILLRACE_DEVICE_EVERY", "31"));
    let program = program("power");
    let mut child = Command::new(&program)
        .args(["--trace", "--seeds", &seeds, "--every", &every])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut from = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut model = Model::default();
    let (mut runs, mut images) = (0, 0);
    while let Some((tag, packet)) = packet(&mut from) {
        match tag {
            b'B' => {
                model = Model::default();
                model.image = ([0; 3], 1, 0);
                runs += 1;
            }
            b'A' => model.append(&packet),
            b'F' => model.flushed = model.order.len(),
            b'I' => {
                model.image(&packet);
                images += 1;
            }
            b'S' => model.start(&packet),
            _ => panic!("a packet of an unknown kind: {tag}"),
        }
    }
    assert!(child.wait().expect("it ends").success(), "see above for the seed");
    fs::remove_file(program).expect("it was compiled here");
    assert!(runs > 20 && images > 2 * runs, "{images} images of {runs} runs");
}
