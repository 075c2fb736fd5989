//! A cluster changes its secret while its hosts run.

use super::{secret_of, why};
use crate::{Site, leader, three};
use millrace_tests::eventually;
use serde_json::Value;
use std::{collections::BTreeMap, fs};

/// The ids of hosts in an answer.
fn ids(hosts: &Value) -> Vec<String> {
    let id = |host: &Value| host["host"].as_str().expect("an id").to_owned();
    hosts.as_array().expect("a list").iter().map(id).collect()
}

#[test]
fn a_secret_is_changed_while_hosts_run_and_the_old_one_opens_nothing() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    sites[0].publish("before", &mut reported);
    let old = secret_of(&sites[0], "old.secret");
    // A host is removed, and has the secret.
    let mut removed = Site::new(Some(&old));
    removed.live(Some(&sites[0]));
    let gone = removed.id();
    sites[leader(&sites)].place.run(["cluster", "rm", &gone]).ok();
    let rotated = sites[1].place.run(["--json", "cluster", "secret", "rotate"]).ok().object();
    assert_eq!((ids(&rotated["took"]).len(), ids(&rotated["away"]).len()), (3, 0), "{rotated}");
    for (at, site) in sites.iter().enumerate() {
        site.publish(&format!("after {at}"), &mut reported);
        eventually("it has the new secret", || {
            secret_of(site, &format!("{}.secret", reported.len())) != old || {
                let _ = fs::remove_file(site.place.path().join(format!("{}.secret", reported.len())));
                false
            }
        });
    }
    // What was removed, and whoever has the old secret, comes in no more.
    removed.live_again();
    eventually("it stays out", || why(&removed).contains("not in the cluster"));
    let stranger = Site::new(Some(&old));
    let at = format!("mr://127.0.0.1:{}/site", sites[0].port);
    let join = ["serve", "--listen", "127.0.0.1:0", "--join", &at, "--cluster-secret", "cluster.secret"];
    stranger.place.run(join).fails("MR7211", 1);
    assert_eq!(sites[0].cluster()["hosts"].as_array().map(Vec::len), Some(3));
    // The hosts keep it over restarts, and who has it joins.
    sites.iter_mut().for_each(Site::live_again);
    sites[2].publish("after restarts", &mut reported);
    let mut new = Site::new(Some(&secret_of(&sites[2], "new.secret")));
    new.live(Some(&sites[2]));
    assert_eq!(new.records(), reported.clone().into_iter().collect::<Vec<_>>());
    // No record of the runtime has it.
    let log = sites[0].place.run(["--json", "cluster", "secret", "rotate"]).ok().object();
    assert_eq!(ids(&log["took"]).len(), 4);
    sites[1].publish("after the second change", &mut reported);
}

#[test]
fn a_host_that_was_away_is_told_what_to_do_and_comes_back() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    let stays = leader(&sites);
    let (away, id) = ((stays + 1) % 3, sites[(stays + 1) % 3].id());
    sites[away].die();
    let rotated = sites[stays].place.run(["--json", "cluster", "secret", "rotate"]).ok().object();
    assert_eq!(ids(&rotated["away"]), [id]);
    sites[stays].publish("while it was away", &mut reported);
    sites[away].live(None);
    eventually("it is told", || why(&sites[away]).contains("MR7250"));
    sites[away].place.run(["cluster", "secret", "use", "none"]).fails("MR7214", 2);
    let secret = secret_of(&sites[stays], "new.secret");
    sites[away].place.write("new.secret", &secret);
    sites[away].place.run(["cluster", "secret", "use", "new.secret"]).fails("MR2017", 1);
    sites[away].die();
    sites[away].place.run(["cluster", "secret", "use", "new.secret"]).ok();
    sites[away].live(None);
    sites[away].publish("back", &mut reported);
    assert_eq!(sites[away].records(), reported.into_iter().collect::<Vec<_>>());
    eventually("nothing is left to do", || why(&sites[away]).contains("no problems found"));
}

#[test]
fn without_a_majority_the_secret_stays() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    sites[1].die();
    sites[2].die();
    let old = secret_of(&sites[0], "old.secret");
    let stderr = sites[0].place.run(["cluster", "secret", "rotate"]).fails("MR7208", 75).stderr;
    assert!(stderr.contains("the cluster keeps its secret"), "{stderr}");
    assert_eq!(secret_of(&sites[0], "same.secret"), old);
    sites[1].live(None);
    sites[2].live(None);
    for site in &sites {
        site.publish(&format!("from {}", site.port), &mut reported);
    }
    let rotated = sites[0].place.run(["--json", "cluster", "secret", "rotate"]).ok().object();
    assert_eq!(ids(&rotated["took"]).len(), 3, "{rotated}");
    sites[2].publish("after", &mut reported);
}
