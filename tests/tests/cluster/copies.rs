//! Directories that were replaced by older copies, when no leader is left that remembers what the host had acknowledged.

use super::{Site, leader, three};
use millrace_tests::{end, eventually};
use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

fn why(site: &Site) -> String {
    site.place.run(["cluster", "why"]).ok().text().to_owned()
}

/// Copies the directory of a host that is down, with a tool that knows nothing of Millrace.
fn copy(site: &Site) -> PathBuf {
    let copied = site.place.path().join("old");
    let mut command = Command::new("cp");
    command.arg("-a").arg(site.place.namespace()).arg(&copied);
    assert_eq!(end(command, b"").code, 0, "it is copied");
    copied
}

/// Puts a host that is down back to the copy.
fn put_back(site: &Site, copied: &PathBuf) {
    let here = site.place.namespace();
    fs::remove_dir_all(&here).expect("it is there");
    fs::rename(copied, &here).expect("the copy takes its place");
}

/// Waits until a host has this many records.
fn has(site: &Site, count: usize) {
    eventually("it has caught up", || {
        let ended = site.topic(&["latest", "env/raw"]);
        ended.code == 0 && ended.object()["latest"].as_u64() == Some(count as u64)
    });
}

/// Three hosts with a topic of one record, what was published, and which host leads.
fn with_a_record() -> ([Site; 3], BTreeMap<u64, String>, usize) {
    let sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    sites[0].publish("before the copy", &mut reported);
    let leads = leader(&sites);
    (sites, reported, leads)
}

#[test]
fn a_host_that_was_put_back_does_not_vote_for_a_leader_that_lacks_what_it_had_acknowledged() {
    let (mut sites, mut reported, leads) = with_a_record();
    let (restored, third) = ((leads + 1) % 3, (leads + 2) % 3);
    sites[restored].die();
    let copied = copy(&sites[restored]);
    sites[restored].live(None);
    sites[restored].publish("after its restart", &mut reported);
    has(&sites[third], 2);
    // Only two hosts have these, and one of them forgets.
    sites[third].die();
    let leads = leader(&sites);
    for number in 0..3 {
        sites[leads].publish(&format!("known to two {number}"), &mut reported);
    }
    let other = [0, 1, 2].into_iter().find(|at| ![restored, third].contains(at)).expect("three hosts");
    sites[other].die();
    sites[restored].die();
    put_back(&sites[restored], &copied);
    sites[restored].live(None);
    sites[third].live(None);
    for again in [false, true] {
        if again {
            sites[restored].live_again();
        }
        eventually("it knows that it was put back", || {
            let why = why(&sites[restored]);
            why.contains("no longer takes part in its groups") && why.contains("MR7206") && why.contains("older copy")
        });
    }
    eventually("the third host has no majority", || why(&sites[third]).contains("this host knows no leader"));
    sites[other].live(None);
    sites[third].publish("when the other is back", &mut reported);
    let expected: Vec<(u64, String)> = reported.into_iter().collect();
    assert!([other, third].into_iter().all(|at| sites[at].records() == expected));
}

#[test]
fn a_host_that_has_records_which_the_others_lost_stops_and_keeps_them() {
    let (mut sites, mut reported, leads) = with_a_record();
    let (restored, third) = ((leads + 1) % 3, (leads + 2) % 3);
    has(&sites[third], 1);
    // The third host is down all the time, so it cannot know that the other one was started again.
    sites[third].die();
    sites[restored].die();
    let copied = copy(&sites[restored]);
    sites[restored].live(None);
    let mut lost = BTreeMap::new();
    for number in 0..5 {
        sites[leads].publish(&format!("known to two {number}"), &mut lost);
    }
    sites[leads].die();
    sites[restored].die();
    put_back(&sites[restored], &copied);
    sites[restored].live(None);
    sites[third].live(None);
    sites[third].publish("in their place", &mut reported);
    sites[leads].live(None);
    eventually("the host that has them says so", || {
        let why = why(&sites[leads]);
        why.contains("no longer takes part in its groups") && why.contains("MR7249")
    });
    let (index, record) = lost.first_key_value().expect("some were acknowledged");
    let read = sites[leads].topic(&["get", "env/raw", &index.to_string()]).ok();
    assert_eq!(read.object()["data"], record.as_str());
}
