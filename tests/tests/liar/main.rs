//! The liar test: whatever anybody was ever told by a host is still true after its power was cut.
//!
//! ```text
//!  clients: wire, Unix socket, HTTP, SSE, MQTT, files, a sending host ──> told: every fact that any of them heard
//!  functions: one whose runs send, one streamed, whose runs are cut short between what they publish
//!  two real hosts with links between them, each on a simulated disk whose flushes are held back ──> cut, or killed
//!  recovered host ──> every fact about it is looked up
//! ```
//!
//! A flush that is held back is what makes it sharp: an answer that passes the gate too early comes while nothing of what it
//! tells of is safe, and every second cut keeps nothing that was not flushed. So a place at the gate that is taken out
//! (feature `liar` of `millrace-node`) is caught in a few lives, and the tests show that for each.
//!
//! `MILLRACE_SEED` begins with this seed, `MILLRACE_LIAR_SECONDS` says for how long worlds are made and destroyed. Each
//! world prints its seed; with the seed alone and 0 seconds, exactly that world is played again. `MILLRACE_LIAR_SITE` takes out that
//! place only.

mod clients;
mod evidence;
mod local;
mod mqtt;
mod reported;
mod streams;
mod web;
mod world;

use millrace_node::Site;
use std::time::{Duration, Instant};
use world::{Kind, Random, World};

/// Lives of one world; what was told in one is looked up after each that follows.
const LIVES: u64 = 4;
/// Within so many worlds of so many lives a site that was taken out has to be caught. Most are in the first life; where the
/// lie has to meet a line that is opened just then, it takes some.
const WORLDS_TO_CATCH: u64 = 30;
const LIVES_TO_CATCH: u64 = 3;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn nothing_that_was_sent_is_ever_missing() {
    let seconds = variable("MILLRACE_LIAR_SECONDS").unwrap_or(5);
    let first = variable("MILLRACE_SEED").unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_millis() as u64
    });
    let started = Instant::now();
    let (mut seed, mut facts) = (first, 0);
    loop {
        println!("liar: MILLRACE_SEED={seed} MILLRACE_LIAR_SECONDS=0");
        let mut world = World::new(seed, None);
        for _ in 0..LIVES {
            let lies = world.life(None);
            assert!(lies.is_empty(), "seed {seed}: {lies:#?}");
        }
        facts += world.facts();
        world.converge();
        if started.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        seed = Random::new(seed).next();
    }
    println!("liar: {facts} facts were told, and all of them held");
    assert!(facts > 100, "hardly anything was told: {facts}");
}

#[test]
fn a_place_at_the_gate_that_is_removed_is_detected() {
    let seed = variable("MILLRACE_SEED").unwrap_or(1);
    let only = std::env::var("MILLRACE_LIAR_SITE").unwrap_or_default();
    let sites = Site::ALL.into_iter().filter(|site| only.is_empty() || format!("{site:?}") == only);
    let missed = missed(seed, sites, |_| true);
    assert!(missed.is_empty(), "seed {seed}: nobody misses {missed:?}");
}

/// What a streamed run publishes leaves by the same places as everything else; here it alone counts.
#[test]
fn removing_the_gate_for_streamed_appends_is_detected() {
    let seed = variable("MILLRACE_SEED").unwrap_or(1);
    let sites = [Site::Get, Site::Range, Site::Latest, Site::Inspect, Site::Send];
    let missed = missed(seed, sites.into_iter(), |lie| lie.contains("\"parts\"") || lie.contains("of streamed runs"));
    assert!(missed.is_empty(), "seed {seed}: nobody misses {missed:?}");
}

/// Those sites of which nobody tells such a lie although they hold nothing.
fn missed(seed: u64, sites: impl Iterator<Item = Site>, counts: fn(&str) -> bool) -> Vec<Site> {
    let mut missed = Vec::new();
    for site in sites {
        match caught(site, seed, counts) {
            Some((lives, lie)) => println!("{site:?}: caught in life {lives}: {lie}"),
            None => missed.push(site),
        }
    }
    missed
}

/// In which life it is caught that this site holds nothing, and by which lie.
fn caught(site: Site, seed: u64, counts: fn(&str) -> bool) -> Option<(u64, String)> {
    (0..WORLDS_TO_CATCH).find_map(|number| {
        let mut world = World::new(seed + number, Some(site));
        (1..=LIVES_TO_CATCH).find_map(|life| {
            let lies = world.life(Some(Kind::that_shows(site)));
            Some((number * LIVES_TO_CATCH + life, lies.into_iter().find(|lie| counts(lie))?))
        })
    })
}
