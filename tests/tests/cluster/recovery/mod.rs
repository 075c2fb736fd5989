//! Clusters whose hosts are lost for good.

mod groups;
mod secrets;

use super::{Site, founder, objects, three};
use millrace_tests::eventually;
use std::{collections::BTreeMap, fs};

/// What the host at this site prints of its problems.
fn why(site: &Site) -> String {
    site.place.run(["cluster", "why"]).ok().text().to_owned()
}

/// The secret of the cluster of a site.
fn secret_of(site: &Site, file: &str) -> String {
    site.place.run(["cluster", "secret", "--out", file]).ok();
    fs::read_to_string(site.place.path().join(file)).expect("the secret was written")
}

/// Its host is lost with its disk.
fn destroy(site: &mut Site) {
    site.die();
    fs::remove_dir_all(site.place.namespace()).expect("it is there");
}

/// Runs the first command of a printed remedy that begins like this, with what stands in for its words.
fn run_printed(site: &Site, stderr: &str, begins: &str, words: &[(&str, &str)]) {
    let printed = stderr.split('`').find(|part| part.starts_with(begins)).unwrap_or_else(|| panic!("{stderr}"));
    let word = |word: &str| words.iter().find(|(name, _)| *name == word).map_or(word, |(_, other)| other).to_owned();
    let command: Vec<String> = printed.split(' ').skip(1).map(word).collect();
    site.place.run(command).ok();
}

/// Two new hosts join the one that was recovered, and all vote.
fn joined(first: &Site) -> [Site; 2] {
    let secret = secret_of(first, "new.secret");
    let mut sites = [Site::new(Some(&secret)), Site::new(Some(&secret))];
    for site in &mut sites {
        site.live(Some(first));
    }
    eventually("all hosts vote", || {
        let hosts = first.cluster()["hosts"].as_array().cloned().unwrap_or_default();
        hosts.len() == 3 && hosts.iter().all(|host| host["role"] != "learner")
    });
    sites
}

#[test]
fn a_host_whose_cluster_is_lost_goes_on_with_all_that_it_has_and_new_hosts_join_it() {
    let [mut first, mut second, mut third] = three();
    let mut reported = BTreeMap::new();
    first.topic(&["create", "env/raw", "--history", "1000"]).ok();
    for number in 0..5 {
        first.publish(&format!("before {number}"), &mut reported);
    }
    first.place.write("keep.sh", "#!/bin/sh\ncat\n");
    first.place.run("function deploy keep --runtime oneshot --code keep.sh -- ./keep.sh".split(' ')).ok();
    first.topic(&["subscribe", "env/raw", "keep"]).ok();
    objects::count(&[&first, &second], 3);
    // The first host has nothing of this group.
    second.place.run(["cluster", "group", "create", "farm", "--voters", &second.id()]).ok();
    second.topic(&["create", "soil", "--group", "farm"]).ok();
    eventually("the first host knows of it", || {
        first.topic(&["ls"]).ok().objects().iter().any(|known| known["topic"] == "soil")
    });
    let (lost, old) = (second.id(), secret_of(&third, "old.secret"));
    destroy(&mut second);
    first.place.run(["cluster", "recover"]).fails("MR2017", 1);
    first.die();
    third.die();
    let explained = first.place.run(["cluster", "recover"]).ok().text().to_owned();
    for said in [
        "topic env/raw: records up to 5",
        "how many there are is unknown",
        "group farm with its topics (soil)",
        &format!("({lost})"),
        "nothing was changed; `",
    ] {
        assert!(explained.contains(said), "{said}: {explained}");
    }
    let plan = first.place.run(["--json", "cluster", "recover"]).ok().object();
    assert_eq!((&plan["recovered"], plan["forgotten"].as_array().map(Vec::len)), (&false.into(), Some(2)));
    run_printed(&first, &explained, "millrace -n ", &[]);
    first.live(None);
    assert_eq!(first.records(), reported.clone().into_iter().collect::<Vec<_>>());
    first.publish("alone", &mut reported);
    // What is lost is not there, and its names are free.
    first.place.run(["topic", "get", "soil"]).fails("MR7202", 1);
    first.topic(&["create", "soil"]).ok();
    let new = joined(&first);
    for site in new.iter().chain([&first]) {
        assert_eq!(site.records(), reported.clone().into_iter().collect::<Vec<_>>());
    }
    // An object of two hosts needs two again.
    assert_eq!(objects::count(&[&first, &new[0]], 1), 4, "the object is as it was");
    // The other hosts are enough now.
    first.die();
    new[0].publish("without the recovered one", &mut reported);
    first.live(None);
    first.publish("with it", &mut reported);
    eventually("its function goes on", || {
        let runs = first.place.run(["--json", "run", "ls", "-l", "1000", "--state", "done"]).ok().objects();
        runs.iter().filter(|run| run["function"] == "keep").count() == reported.len() - 5
    });
    // A host of the old cluster comes back.
    third.live(None);
    eventually("it is refused", || why(&third).contains("MR7250"));
    third.die();
    third.place.write("new.secret", &secret_of(&first, "again.secret"));
    let stderr = third.place.run(["cluster", "secret", "use", "new.secret"]).fails("MR7251", 1).stderr;
    assert!(stderr.contains("millrace init"), "{stderr}");
    let stranger = Site::new(Some(&old));
    let at = format!("mr://127.0.0.1:{}/site", first.port);
    let join = ["serve", "--listen", "127.0.0.1:0", "--join", &at, "--cluster-secret", "cluster.secret"];
    stranger.place.run(join).fails("MR7211", 1);
    assert_eq!(first.cluster()["hosts"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_cluster_is_recovered_from_a_backup_alone() {
    let [mut first, mut second, mut third] = three();
    let mut reported = BTreeMap::new();
    first.topic(&["create", "env/raw", "--history", "1000"]).ok();
    first.place.run(["log", "create", "raw"]).ok();
    first.topic(&["feed", "raw", "env/raw"]).ok();
    for number in 0..5 {
        first.publish(&format!("before {number}"), &mut reported);
    }
    first.place.run(["namespace", "backup", "copy"]).ok();
    first.publish("after the backup", &mut BTreeMap::new());
    [&mut first, &mut second, &mut third].into_iter().for_each(destroy);
    first.place.run(["namespace", "restore", "copy", ".millrace"]).ok();
    // Until then it is no host of any cluster.
    let stderr = first.place.run(["cluster", "init"]).fails("MR7212", 1).stderr;
    assert!(stderr.contains("`millrace cluster recover`"), "{stderr}");
    let explained = first.place.run(["cluster", "recover"]).ok().text().to_owned();
    assert!(explained.contains("is a copy of host") && explained.contains("records up to 5"), "{explained}");
    first.place.run(["cluster", "recover", "--yes"]).ok();
    first.live(None);
    assert_eq!(first.records(), reported.clone().into_iter().collect::<Vec<_>>());
    first.publish("after the recovery", &mut reported);
    // The feed of the host is that of its copy.
    first.place.run(["log", "append", "raw", "fed"]).ok();
    eventually("it feeds the topic", || first.records().iter().any(|(_, record)| record == "fed"));
    let new = joined(&first);
    assert_eq!(new[1].records(), first.records());
    // It can be recovered once more.
    first.die();
    first.place.run(["cluster", "recover", "--yes"]).ok();
    first.live(None);
    first.publish("a third cluster", &mut reported);
    eventually("the second one is refused", || why(&new[0]).contains("MR7250"));
}

#[test]
fn a_recovery_that_was_interrupted_is_completed_by_the_next_one() {
    let (mut first, _) = founder();
    first.live(None);
    first.topic(&["create", "env/raw"]).ok();
    let mut reported = BTreeMap::new();
    first.publish("before", &mut reported);
    first.die();
    // The secret is what a recovery changes first.
    let (other, _) = founder();
    let kept = |site: &Site| site.place.namespace().join("secrets/cluster");
    fs::copy(kept(&other), kept(&first)).expect("it is copied");
    let stderr = first.place.run(["serve", "--listen", "127.0.0.1:0"]).fails("MR7252", 1).stderr;
    run_printed(&first, &stderr, "millrace cluster recover --yes", &[]);
    first.live(None);
    first.publish("after", &mut reported);
    assert_eq!(first.records(), reported.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_namespace_that_never_was_a_host_is_not_recovered() {
    let site = Site::new(None);
    site.place.run(["cluster", "recover", "--yes"]).fails("MR7209", 1);
}
