//! Bytes that no journal wrote: recovery answers, keeps what is whole, and never panics.

use crate::model::{Random, create, entries};
use millrace_journal::{Manifest, OpenOptions, Position, medium::sim::SimDisk};
use std::{collections::HashSet, path::Path, time::Duration};

fn spoil(bytes: &mut [u8], random: &mut Random, most: usize) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(most.min(bytes.len()));
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let to = (at + random.below(200)).min(bytes.len());
                bytes[at..to].fill(random.next() as u8);
            }
            _ => {
                let (from, length) = (random.below(most), random.below(300));
                let to = (at + length).min(bytes.len());
                let length = (to - at).min(bytes.len() - from);
                bytes.copy_within(from..from + length, at);
            }
        }
    }
}

#[test]
fn spoilt_segments_are_recovered_without_inventing_anything() {
    let mut random = Random::new("segments");
    let (disk, _medium, journal, _) = create(millrace_journal::Durability::Disk);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100)).unwrap().value;
    for n in 0..30u8 {
        journal.commit(|batch| batch.append(&log, &vec![n; 10 + usize::from(n) * 7], Default::default(), 0)).unwrap();
    }
    journal.sync(journal.tail()).unwrap();
    let written: HashSet<_> =
        entries(&journal, Position::default()).into_iter().map(|e| (e.position, e.id, e.payload)).collect();
    let (files, tail) = (disk.files(), journal.tail().get() as usize);
    let started = std::time::Instant::now();
    let (mut opened, mut refused) = (0, 0);
    while opened + refused < 300 || started.elapsed() < Duration::from_secs(3) {
        let mut files = files.clone();
        spoil(files.get_mut("segments/0000000000").unwrap(), &mut random, tail);
        if random.below(2) == 0 {
            files.remove("control");
        }
        let image = SimDisk::with_files(files);
        match millrace_journal::Journal::open_on(image.process(), Path::new("sim"), &OpenOptions { background: false })
        {
            Ok(journal) => {
                opened += 1;
                let mut scan = journal.scan(Position::default());
                loop {
                    match scan.next() {
                        Ok(Some(entry)) if entry.id.epoch() == journal.epoch() => {}
                        Ok(Some(e)) => {
                            assert!(written.contains(&(e.position, e.id, e.payload.clone())), "{e:?} is new")
                        }
                        Ok(None) => break,
                        Err(error) => assert_eq!(error.code(), millrace_wire::Code::EntryDamaged),
                    }
                }
            }
            Err(_) => refused += 1,
        }
    }
    println!("{opened} opened, {refused} refused");
    assert!(opened > 100);
}

#[test]
fn spoilt_manifests_are_refused() {
    let mut random = Random::new("manifests");
    let (disk, _medium, _journal, _) = create(millrace_journal::Durability::Disk);
    let manifest = disk.files()["manifest"].clone();
    let whole = Manifest::decode(&manifest).unwrap();
    for _ in 0..20_000 {
        let mut spoilt = manifest.clone();
        let most = spoilt.len();
        spoil(&mut spoilt, &mut random, most);
        assert!(Manifest::decode(&spoilt).map_or(true, |found| found == whole), "{}", String::from_utf8_lossy(&spoilt));
    }
}
