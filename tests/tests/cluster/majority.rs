//! Commands that need a majority while there is none.

use super::{founder, leader, three};
use millrace_tests::Place;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The host waits for a decision for 10 s. A command that asked twice would take twice as long.
const ONCE: Duration = Duration::from_secs(18);

/// Runs a command, which must fail after one timeout; its text on standard error.
fn undecided(place: &Place, words: &[&str]) -> String {
    let start = Instant::now();
    let stderr = place.run(words).fails("MR7208", 75).stderr;
    assert!(start.elapsed() < ONCE, "{words:?} took {:?}: {stderr}", start.elapsed());
    stderr
}

#[test]
fn a_command_without_a_majority_names_the_silent_hosts_and_fails_after_one_timeout() {
    let mut sites = three();
    let stays = leader(&sites);
    let (first, second) = ((stays + 1) % 3, (stays + 2) % 3);
    let (gone, ports) = (sites[first].id(), [sites[first].port.to_string(), sites[second].port.to_string()]);
    sites[first].die();
    sites[second].die();
    let place = &sites[stays].place;
    let commands: [&[&str]; 3] = [
        &["topic", "create", "env/raw"],
        &["topic", "create", "soil", "--beside", "env/raw"],
        &["cluster", "rm", &gone],
    ];
    thread::scope(|scope| {
        for words in commands {
            let ports = &ports;
            scope.spawn(move || {
                let stderr = undecided(place, words);
                let waits = stderr.lines().next().unwrap_or_default();
                assert!(waits.starts_with("millrace: waiting up to 10 s for a decision of the cluster: "), "{stderr}");
                let error = stderr.lines().find(|line| line.starts_with("error[")).unwrap_or_default();
                assert!(error.contains("group 'main' made no decision within 10 s"), "{stderr}");
                for port in ports {
                    let silent = format!("host site at 127.0.0.1:{port} does not answer");
                    assert!(waits.contains(&silent) && error.contains(&silent), "{stderr}");
                }
            });
        }
    });
}

#[test]
fn the_only_voter_of_a_cluster_is_not_removed_and_the_error_names_the_group() {
    let (mut alone, _) = founder();
    alone.live(None);
    let own = alone.id();
    let stderr = alone.place.run(["cluster", "rm", &own]).fails("MR7216", 1).stderr;
    assert!(stderr.contains(&format!("host {own} is the only voter of group 'main'")), "{stderr}");
    assert!(stderr.contains("`millrace cluster voters 3 --group main` adds voters"), "{stderr}");
}

#[test]
fn a_group_that_decides_nothing_is_given_no_other_voters() {
    let mut sites = three();
    let leads = leader(&sites);
    let gone = (leads + 1) % 3;
    let voter = sites[gone].id();
    sites[leads].place.run(["cluster", "group", "create", "farm", "--voters", &voter]).ok();
    sites[leads].topic(&["create", "soil", "--group", "farm"]).ok();
    sites[gone].die();
    let stderr = undecided(&sites[leads].place, &["cluster", "voters", "3", "--group", "farm"]);
    assert!(stderr.contains("group 'farm' made no decision within 10 s"), "{stderr}");
}
