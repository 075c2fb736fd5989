//! Three real hosts on one machine: topics that survive the one that leads.

mod applications;
mod bad_luck;
mod clocks;
mod copies;
mod edge;
mod groups;
mod leaving;
mod majority;
mod objects;
mod recovery;
mod removed;
mod starts;

use millrace_tests::{Host, Place, Port, end, eventually};
use serde_json::Value;
use std::{collections::BTreeMap, fs, process::Command};

/// A host on a port that it keeps over restarts.
struct Site {
    place: Place,
    port: Port,
    election: &'static str,
    /// What its host finds in its environment besides.
    env: Vec<(&'static str, String)>,
    host: Option<Host>,
}

impl Site {
    fn new(secret: Option<&str>) -> Self {
        let place = Place::new();
        if let Some(secret) = secret {
            place.write("cluster.secret", secret);
        }
        Self { place, port: Port::reserve(), election: "500ms", env: Vec::new(), host: None }
    }

    /// Serves; a host of a cluster that this one is to join is named the first time.
    fn live(&mut self, join: Option<&Site>) {
        self.host = Some(Host::start(self.serve(join)));
    }

    /// The command that serves.
    fn serve(&self, join: Option<&Site>) -> Command {
        let (listen, election) = (format!("127.0.0.1:{}", self.port), self.election);
        let mut command =
            self.place.command(["--json", "serve", "--name", "site", "--listen", &listen, "--election", election]);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(first) = join {
            let at = format!("mr://127.0.0.1:{}/site", first.port);
            command.args(["--join", &at, "--cluster-secret", "cluster.secret", "--site", "lab"]);
        }
        command
    }

    /// Dies and is started again.
    fn live_again(&mut self) {
        self.die();
        self.live(None);
    }

    /// Dies as by kill -9.
    fn die(&mut self) {
        drop(self.host.take());
    }

    fn topic(&self, words: &[&str]) -> millrace_tests::Ended {
        self.place.run(["--json", "topic"].iter().chain(words))
    }

    fn cluster(&self) -> Value {
        self.place.run(["--json", "cluster", "ls"]).ok().object()
    }

    /// Publishes until it is acknowledged: with a key, so that it is there once.
    fn publish(&self, record: &str, reported: &mut BTreeMap<u64, String>) {
        eventually("a record is acknowledged", || {
            let ended = self.topic(&["publish", "env/raw", record, "--key", record]);
            if ended.code == 0 {
                reported.insert(ended.object()["index"].as_u64().expect("an index"), record.to_owned());
            }
            ended.code == 0
        });
    }

    /// Publishes to another topic until it is acknowledged, likewise.
    fn publish_to(&self, topic: &str, record: &str) {
        eventually("a record is acknowledged", || self.topic(&["publish", topic, record, "--key", record]).code == 0);
    }

    /// Its id, as `cluster ls` prints it.
    fn id(&self) -> String {
        let own = || {
            let hosts = self.cluster()["hosts"].as_array().cloned().unwrap_or_default();
            hosts.into_iter().find(|host| host["here"] == true)
        };
        eventually("it knows itself", || own().is_some());
        own().expect("it does")["host"].as_str().expect("an id").to_owned()
    }

    fn records(&self) -> Vec<(u64, String)> {
        let reported = |record: &Value| {
            (record["index"].as_u64().expect("an index"), record["data"].as_str().expect("text").to_owned())
        };
        self.topic(&["range", "env/raw"]).ok().objects().iter().map(reported).collect()
    }
}

/// A host that begins a cluster, and the cluster's secret.
fn founder() -> (Site, String) {
    let first = Site::new(None);
    first.place.run(["cluster", "init", "--site", "campus"]).ok();
    first.place.run(["cluster", "secret", "--out", "cluster.secret"]).ok();
    let secret = fs::read_to_string(first.place.path().join("cluster.secret")).expect("the secret was written");
    (first, secret)
}

/// Three hosts of one cluster, all with a vote.
fn three() -> [Site; 3] {
    let (first, secret) = founder();
    join([first, Site::new(Some(&secret)), Site::new(Some(&secret))])
}

/// Has them serve, and join the first.
fn join([mut first, mut second, mut third]: [Site; 3]) -> [Site; 3] {
    first.live(None);
    second.live(Some(&first));
    third.live(Some(&first));
    eventually("all hosts vote", || {
        let hosts = first.cluster()["hosts"].clone();
        let votes = |host: &Value| host["role"] != "learner";
        hosts.as_array().is_some_and(|hosts| hosts.len() == 3 && hosts.iter().all(votes))
    });
    [first, second, third]
}

/// Which of these hosts leads, once one does that all of them know.
fn leader(sites: &[Site]) -> usize {
    let mut found = None;
    eventually("a host leads", || {
        let lives = || sites.iter().enumerate().filter(|(_, site)| site.host.is_some());
        found = lives().find(|(_, site)| site.cluster()["role"] == "leader").map(|(at, _)| at);
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn publishing_continues_when_the_leader_is_killed_and_nothing_acknowledged_is_lost() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[1].topic(&["create", "env/raw", "--history", "1000"]).ok();
    // The function runs on the host that subscribed it, whoever leads.
    let listener = 2;
    sites[listener].place.write("keep.sh", "#!/bin/sh\ncat\n");
    let deploy = ["function", "deploy", "keep", "--runtime", "oneshot", "--code", "keep.sh", "--", "./keep.sh"];
    sites[listener].place.run(deploy).ok();
    sites[listener].topic(&["subscribe", "env/raw", "keep"]).ok();
    for number in 0..10 {
        sites[number % 3].publish(&format!("before {number}"), &mut reported);
    }
    let lost = leader(&sites);
    sites[lost].die();
    let others: Vec<usize> = (0..3).filter(|at| *at != lost).collect();
    for number in 0..10 {
        sites[others[number % 2]].publish(&format!("without {number}"), &mut reported);
    }
    for at in &others {
        let records = sites[*at].records();
        assert!(records.iter().map(|(index, _)| *index).eq(1..=records.len() as u64), "no gaps: {records:?}");
        for (index, record) in &reported {
            assert_eq!(records[*index as usize - 1].1, *record);
        }
    }
    let address = format!("127.0.0.1:{}", sites[lost].port);
    eventually("the others say whom they miss", || {
        let why = sites[leader(&sites)].place.run(["cluster", "why"]).ok().text().to_owned();
        why.contains(&address) && why.contains("cannot reach host")
    });
    sites[lost].live(None);
    sites[lost].publish("by the one that was away", &mut reported);
    let expected = sites[others[0]].records();
    assert_eq!(sites[lost].records(), expected, "it has caught up");
    // Every record ran the function once.
    let runs = || {
        let runs = sites[listener].place.run(["--json", "run", "ls", "-l", "1000", "--state", "done"]).ok().objects();
        runs.iter().filter(|run| run["function"] == "keep").count()
    };
    eventually("the function has run for every record", || runs() >= expected.len());
    sites[listener].place.idle();
    assert_eq!(runs(), expected.len(), "and once for each");
}

#[test]
fn a_leader_that_was_stopped_for_a_while_answers_nothing_old() {
    let sites = three();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    let mut reported = BTreeMap::new();
    sites[0].publish("before", &mut reported);
    let stopped = leader(&sites);
    let other = (stopped + 1) % 3;
    let host = sites[stopped].host.as_ref().expect("it runs");
    host.signal("STOP");
    sites[other].publish("meanwhile", &mut reported);
    host.signal("CONT");
    // It may believe for a moment that it leads; what it tells is asked of a majority all the same.
    let newest = sites[stopped].topic(&["get", "env/raw"]).ok().object();
    assert_eq!(newest["data"], "meanwhile");
    sites[stopped].publish("after", &mut reported);
    assert_eq!(sites[other].records(), reported.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_host_with_another_secret_is_not_let_in() {
    let mut first = Site::new(None);
    first.place.run(["cluster", "init"]).ok();
    first.live(None);
    let stranger = Site::new(None);
    stranger.place.run(["cluster", "init"]).ok();
    stranger.place.run(["cluster", "secret", "--out", "other.secret"]).ok();
    let other = fs::read_to_string(stranger.place.path().join("other.secret")).expect("the secret was written");
    let second = Site::new(Some(&other));
    let at = format!("mr://127.0.0.1:{}/site", first.port);
    let join = ["serve", "--listen", "127.0.0.1:0", "--join", &at, "--cluster-secret", "cluster.secret"];
    second.place.run(join).fails("MR7211", 1);
    // It is as if it had never asked.
    assert!(!second.place.namespace().join("secrets/cluster").exists());
    second.place.run(["cluster", "secret", "--out", "none"]).fails("MR7209", 1);
}

#[test]
fn a_copy_of_a_host_is_no_host() {
    let mut first = Site::new(None);
    first.place.run(["cluster", "init"]).ok();
    first.live(None);
    first.topic(&["create", "t"]).ok();
    first.place.run(["namespace", "backup", "copy"]).ok();
    first.place.run(["namespace", "restore", "copy", "restored"]).ok();
    let run = |words: &[&str]| first.place.run(["-n", "restored"].iter().chain(words));
    run(&["cluster", "init"]).fails("MR7212", 1);
    let _host = Host::start(first.place.command(["-n", "restored", "serve", "--listen", "none"]));
    // Not that it is in no cluster, because it could begin or join none.
    run(&["topic", "ls"]).fails("MR7212", 1);
}

#[test]
fn commands_about_topics_say_what_is_wrong() {
    let mut first = Site::new(None);
    first.place.run(["topic", "ls"]).fails("MR5009", 1);
    first.live(None);
    first.place.run(["topic", "ls"]).fails("MR7209", 1);
    first.die();
    first.place.run(["cluster", "init"]).ok();
    first.place.run(["cluster", "init"]).fails("MR7210", 1);
    first.live(None);
    let change = |words: &[&str]| first.topic(words).ok().object()["change"].clone();
    assert_eq!(change(&["create", "t", "--history", "2"]), "created");
    assert_eq!(change(&["create", "t", "--history", "2"]), "unchanged");
    assert_eq!(first.place.run(["topic", "create", "t", "--history", "2"]).ok().text(), "topic t already exists\n");
    let fails = |words: &[&str], code: &str, exit: i32| {
        first.place.run(["topic"].iter().chain(words)).fails(code, exit);
    };
    fails(&["publish", "u", "x"], "MR7202", 1);
    fails(&["create", "t", "--history", "3"], "MR7203", 1);
    fails(&["create", "_t"], "MR7201", 2);
    fails(&["get", "t"], "MR2105", 1);
    fails(&["subscribe", "t", "nobody"], "MR3001", 1);
    let endless = vec![b'x'; (16 << 20) + 100];
    let refused = first.place.feed(["topic", "publish", "t", "-"], &endless).fails("MR1004", 1);
    assert!(refused.stderr.contains("more than 16777216 bytes"), "{}", refused.stderr);
    for record in ["a", "b", "c"] {
        first.topic(&["publish", "t", record]).ok();
    }
    fails(&["get", "t", "1"], "MR2104", 1);
    assert_eq!(first.place.run(["topic", "get", "t"]).ok().text(), "c\n");
    assert_eq!(first.place.run(["topic", "latest", "t"]).ok().text(), "3\n");
    assert_eq!(first.place.run(["topic", "tail", "t", "--no-follow"]).ok().text(), "2  b\n3  c\n");
}

#[test]
fn a_log_feeds_a_topic_while_hosts_come_and_go() {
    let mut sites = three();
    sites[0].topic(&["create", "smooth"]).ok();
    sites[1].place.run(["log", "create", "out"]).ok();
    sites[1].topic(&["feed", "out", "smooth"]).ok();
    let append = |sites: &[Site; 3], number: usize| {
        sites[1].place.run(["log", "append", "out", &format!("value {number}")]).ok();
    };
    (0..5).for_each(|number| append(&sites, number));
    // Alone it can publish nothing; what is appended waits.
    sites[0].die();
    sites[2].die();
    (5..10).for_each(|number| append(&sites, number));
    sites[2].live(None);
    let expected: Vec<String> = (0..10).map(|number| format!("value {number}")).collect();
    let records = |site: &Site| {
        let ended = site.topic(&["range", "smooth"]);
        if ended.code != 0 {
            return Vec::new();
        }
        let text = |record: &Value| record["data"].as_str().expect("text").to_owned();
        ended.objects().iter().map(text).collect::<Vec<_>>()
    };
    eventually("all of it is published, once and in order", || records(&sites[2]).len() >= 10);
    assert_eq!(records(&sites[2]), expected);
    // The host that feeds dies too, and goes on behind what it had published.
    sites[1].die();
    sites[0].live(None);
    sites[1].live(None);
    append(&sites, 10);
    eventually("it goes on", || records(&sites[0]).len() >= 11);
    assert_eq!(records(&sites[0])[..10], expected);
}

#[test]
fn the_lead_is_handed_over_and_a_host_is_removed() {
    let sites = three();
    sites[0].topic(&["create", "t"]).ok();
    let ids: Vec<String> = sites
        .iter()
        .map(|site| {
            let hosts = site.cluster()["hosts"].clone();
            let own = hosts.as_array().expect("hosts").iter().find(|host| host["here"] == true).cloned();
            own.expect("it knows itself")["host"].as_str().expect("an id").to_owned()
        })
        .collect();
    let next = (leader(&sites) + 1) % 3;
    let last = (next + 1) % 3;
    sites[last].place.run(["cluster", "lead", &ids[next]]).ok();
    eventually("the one that was named leads", || sites[next].cluster()["role"] == "leader");
    sites[last].place.run(["cluster", "prefer", "campus"]).ok();
    eventually("the preferred site leads", || sites[0].cluster()["role"] == "leader");
    sites[last].place.run(["cluster", "prefer", "--any"]).ok();
    let (next, last) = (0, 1);
    sites[next].place.run(["cluster", "rm", "nobody"]).fails("MR7216", 1);
    sites[next].place.run(["cluster", "rm", &ids[last]]).ok();
    assert_eq!(sites[next].cluster()["hosts"].as_array().expect("hosts").len(), 2);
    // The host that left may not have heard of its own removal; then it hears of no leader.
    eventually("the host that left says so", || {
        let why = sites[last].cluster()["why"].to_string();
        why.contains("not in the cluster") || why.contains("no leader")
    });
    sites[next].topic(&["publish", "t", "without it"]).ok();
    // Whoever leads hands the lead over before it leaves; the last one stays.
    let other = 2;
    sites[other].place.run(["cluster", "rm", &ids[next]]).ok();
    eventually("the other one leads", || sites[other].cluster()["role"] == "leader");
    sites[other].topic(&["publish", "t", "alone"]).ok();
    sites[other].place.run(["cluster", "rm", &ids[other]]).fails("MR7216", 1);
}

#[test]
fn a_host_that_was_away_while_logs_were_trimmed_catches_up_by_a_snapshot() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "100"]).ok();
    sites[0].topic(&["create", "pictures", "--history", "3"]).ok();
    sites[0].publish("early", &mut reported);
    sites[2].die();
    let picture = |number: usize| {
        let mut bytes = number.to_string().into_bytes();
        bytes.resize(200 << 10, b'.');
        bytes
    };
    let publish = |site: &Site, number: usize| {
        eventually("a picture is acknowledged", || {
            let key = number.to_string();
            let command = site.place.command(["--json", "topic", "publish", "pictures", "-", "--key", &key]);
            end(command, &picture(number)).code == 0
        });
    };
    // More than twice what stays of the log, and 16 MiB.
    (1..=190).for_each(|number| publish(&sites[0], number));
    for site in &sites[..2] {
        eventually("the log is trimmed", || site.cluster()["first"].as_u64().is_some_and(|first| first > 10));
        assert!(site.cluster()["log_bytes"].as_u64().is_some_and(|bytes| bytes < 40 << 20));
    }
    let newest = |site: &Site| {
        let ended = site.topic(&["latest", "pictures"]);
        (ended.code == 0).then(|| ended.object()["latest"].as_u64().expect("a number"))
    };
    let same = |site: &Site, number: usize| {
        let record = site.place.run(["topic", "get", "pictures", &number.to_string(), "--raw"]).ok().stdout.clone();
        record == picture(number)
    };
    sites[2].live(None);
    eventually("it has caught up", || newest(&sites[2]) == Some(190));
    assert!(sites[2].cluster()["snapshots"].as_u64().is_some_and(|received| received > 0));
    let check = |site: &Site| {
        assert_eq!(site.records(), [(1, "early".to_owned())], "what was published before stands in the snapshot");
        assert!((188..=190).all(|number| same(site, number)));
        site.place.run(["topic", "get", "pictures", "187"]).fails("MR2104", 1);
    };
    check(&sites[2]);
    // What it has is its own: it starts with it, and goes on without the one that led.
    sites.iter_mut().for_each(Site::die);
    sites[2].live(None);
    sites[1].live(None);
    eventually("the two go on", || newest(&sites[2]) == Some(190));
    check(&sites[2]);
    check(&sites[1]);
    sites[2].publish("late", &mut reported);
    assert_eq!(sites[1].records().len(), 2);
}

#[test]
fn a_host_that_is_lost_is_replaced_and_five_vote_after_three() {
    let mut sites: Vec<Site> = three().into();
    let secret = fs::read_to_string(sites[0].place.path().join("cluster.secret")).expect("the secret was written");
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    let mut reported = BTreeMap::new();
    let voters = |site: &Site| {
        let hosts = site.cluster()["hosts"].clone();
        let votes = |host: &&Value| host["role"] == "voter" || host["role"] == "leader";
        hosts.as_array().map_or(0, |hosts| hosts.iter().filter(votes).count())
    };
    let id = |site: &Site| {
        let hosts = site.cluster()["hosts"].clone();
        let own = hosts.as_array().expect("hosts").iter().find(|host| host["here"] == true).cloned();
        own.expect("it knows itself")["host"].as_str().expect("an id").to_owned()
    };
    let lost = id(&sites[2]);
    sites[2].die();
    let mut fresh = Site::new(Some(&secret));
    fresh.live(Some(&sites[0]));
    sites[0].publish("with one that follows", &mut reported);
    assert_eq!(voters(&sites[0]), 3, "it follows while three vote");
    sites[0].place.run(["cluster", "rm", &lost]).ok();
    eventually("it votes in the place of the one that was lost", || voters(&sites[0]) == 3);
    sites[2] = fresh;
    for _ in 0..2 {
        let mut more = Site::new(Some(&secret));
        more.live(Some(&sites[0]));
        sites.push(more);
    }
    sites[1].place.run(["cluster", "voters", "4"]).fails("MR1006", 2);
    sites[1].place.run(["cluster", "voters", "5"]).ok();
    eventually("five vote", || voters(&sites[0]) == 5);
    sites[0].publish("with five", &mut reported);
    // Two of five may be lost.
    let lost = leader(&sites);
    sites[lost].die();
    sites[(lost + 1) % 5].die();
    let left = (lost + 2) % 5;
    sites[left].publish("with three of five", &mut reported);
    sites[lost].live(None);
    sites[(lost + 1) % 5].live(None);
    sites[left].place.run(["cluster", "voters", "1"]).ok();
    eventually("one votes", || voters(&sites[left]) == 1);
    sites[left].publish("with one", &mut reported);
    assert_eq!(sites[lost].records(), reported.into_iter().collect::<Vec<_>>());
}
