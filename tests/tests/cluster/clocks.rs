//! Hosts whose clocks jump.

use super::{Site, founder, join, leader};
use millrace_client::{Options, Place};
use millrace_tests::{Caller, eventually};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::PathBuf};

const HOUR_S: i64 = 3600;
/// No host is silent for so long, on the slowest machine: who leads changes only if somebody believes a clock.
const ELECTION: &str = "10s";
const LEASE_MS: u32 = 120_000;

/// The library that gives a program another time.
fn library() -> Option<PathBuf> {
    let places = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    places.chain(["/usr/lib/faketime/libfaketimeMT.so.1".into()]).find(|path| path.exists())
}

impl Site {
    /// Its clock is its own from the next start on.
    fn with_clock(mut self, library: &str) -> Self {
        let file = self.place.path().join("clock").display().to_string();
        self.env = vec![
            ("LD_PRELOAD", library.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", file),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        self.election = ELECTION;
        self.set_clock(0);
        self
    }

    /// Its clock is so far ahead of the machine's from now on.
    fn set_clock(&self, ahead_s: i64) {
        self.place.write("clock.next", &format!("{ahead_s:+}"));
        fs::rename(self.place.path().join("clock.next"), self.place.path().join("clock")).expect("it is replaced");
    }

    /// When its records came, as it says.
    fn times(&self) -> Vec<String> {
        let records = self.topic(&["range", "env/raw"]).ok().objects();
        records.iter().map(|record| record["time"].as_str().expect("a time").to_owned()).collect()
    }
}

fn led(sites: &[Site; 3]) -> Vec<(Value, Value)> {
    sites.iter().map(Site::cluster).map(|shown| (shown["leader"].clone(), shown["term"].clone())).collect()
}

#[test]
fn clocks_that_jump_by_an_hour_change_neither_leaders_nor_leases_nor_orders() {
    let Some(library) = library() else {
        eprintln!("NOT TESTED: clocks that jump. Debian's package faketime has the library that lets them.");
        return;
    };
    let library = library.display().to_string();
    let (first, secret) = founder();
    let sites = join([first, Site::new(Some(&secret)), Site::new(Some(&secret))].map(|site| site.with_clock(&library)));
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    let place = |at: usize| -> Place { format!("mr://127.0.0.1:{}/site", sites[at].port).parse().expect("an address") };
    let options = Options { reconnect_ms: 120_000, ..Options::default() };
    let mut owner = Caller::new(&[place(0)], 1, LEASE_MS, &options).expect("a host answers");
    let mut other = Caller::new(&[place(1)], 2, LEASE_MS, &options).expect("a host answers");
    let token = owner.token_of("door", "acquire");
    other.number_of("hits", "get", &[0x90]);
    let (mut reported, leads) = (BTreeMap::new(), leader(&sites));
    eventually("all hosts know who leads", || {
        let led = led(&sites);
        led[0].0 != Value::Null && led.iter().all(|known| *known == led[0])
    });
    let before = led(&sites);
    let hour = |time: &str| time[..13].to_owned();
    for at in [leads, (leads + 1) % 3] {
        for ahead_s in [HOUR_S, -HOUR_S, 0] {
            sites[at].set_clock(ahead_s);
            for (number, site) in sites.iter().enumerate() {
                site.publish(&format!("{at} {ahead_s} {number} {}", reported.len()), &mut reported);
            }
            // Each record has the time of the host that it was published through, and every host shows the same.
            let times = sites[at].times();
            let (of_at, of_other) = (times.len() - 3 + at, times.len() - 3 + (at + 1) % 3);
            if ahead_s == HOUR_S {
                assert_ne!(hour(&times[of_at]), hour(&times[of_other]), "its clock has jumped");
            }
            eventually("all hosts show the same times", || sites.iter().all(|site| site.times() == times));
            let why = sites[at].place.run(["cluster", "why"]).ok().text().to_owned();
            assert_eq!(why.contains("an event is dated"), ahead_s < HOUR_S, "{why}");
            assert_eq!(led(&sites), before, "{ahead_s} s");
            assert_eq!(other.token_of("door", "token"), token, "the lock has the owner that it had, {ahead_s} s");
            assert!(owner.number_of("hits", "add_and_get", &[0x91, 1]) > 0);
        }
    }
    let expected: Vec<(u64, String)> = reported.into_iter().collect();
    assert!(sites.iter().all(|site| site.records() == expected));
    owner.ask(("Lock", "door", "release"), &[0x90], 2).expect("it holds it");
    assert!(other.token_of("door", "acquire") > token);
}
