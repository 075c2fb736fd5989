//! Topics that NATS keeps, over real hosts and real NATS servers that are killed.

mod secured;
mod servers;

use millrace_tests::{Ended, Host, Place, Port, eventually};
use serde_json::Value;
use servers::Servers;
use std::{collections::BTreeMap, fs};

/// A host of a cluster, with or without NATS, on a port that stays the same across restarts.
struct Site {
    place: Place,
    port: Port,
    nats: Option<String>,
    /// Its credentials for NATS.
    options: Vec<String>,
    host: Option<Host>,
}

impl Site {
    fn new(secret: Option<&str>, nats: Option<&Servers>) -> Self {
        let place = Place::new();
        if let Some(secret) = secret {
            place.write("cluster.secret", secret);
        }
        Self { place, port: Port::reserve(), nats: nats.map(Servers::addresses), options: Vec::new(), host: None }
    }

    /// The only host of a cluster.
    fn alone(nats: Option<&Servers>) -> Self {
        let mut site = Self::new(None, nats);
        site.place.run(["cluster", "init"]).ok();
        site.live(None);
        site
    }

    fn live(&mut self, join: Option<&Site>) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = self.place.command(["--json", "serve", "--name", "site", "--listen", &listen]);
        command.args(["--election", "500ms"]);
        if let Some(nats) = &self.nats {
            // A password is not for everybody to see.
            let command =
                if nats.contains('@') { command.env("MILLRACE_NATS", nats) } else { command.args(["--nats", nats]) };
            command.args(&self.options);
        }
        if let Some(first) = join {
            let at = format!("mr://127.0.0.1:{}/site", first.port);
            command.args(["--join", &at, "--cluster-secret", "cluster.secret"]);
        }
        self.host = Some(Host::start(command));
    }

    /// Kills it with SIGKILL.
    fn die(&mut self) {
        drop(self.host.take());
    }

    fn topic(&self, words: &[&str]) -> Ended {
        self.place.run(["--json", "topic"].iter().chain(words))
    }

    /// Publishes until the record is acknowledged, with a key, so that the topic has it once.
    fn publish(&self, topic: &str, record: &str) -> u64 {
        let mut index = 0;
        eventually("a record is acknowledged", || {
            let ended = self.topic(&["publish", topic, record, "--key", record]);
            index = if ended.code == 0 { ended.object()["index"].as_u64().expect("an index") } else { 0 };
            index > 0
        });
        index
    }

    /// The records of a topic, with their indexes.
    fn records(&self, topic: &str) -> Vec<(u64, String)> {
        let mut records = Vec::new();
        eventually("the topic can be read", || {
            let ended = self.topic(&["range", topic]);
            if ended.code == 0 {
                let text = |record: &Value| record["data"].as_str().expect("text").to_owned();
                let shown = |record: &Value| (record["index"].as_u64().expect("an index"), text(record));
                records = ended.objects().iter().map(shown).collect();
            }
            ended.code == 0
        });
        records
    }

    /// Deploys a function that does nothing.
    fn deploy(&self, name: &str) {
        self.place.write("keep.sh", "#!/bin/sh\ncat\n");
        let deploy = ["function", "deploy", name, "--runtime", "oneshot", "--code", "keep.sh", "--", "./keep.sh"];
        self.place.run(deploy).ok();
    }

    /// The records that a function of this host was run for, in their order.
    fn delivered(&self, function: &str, topic: &str) -> Vec<String> {
        let runs = self.place.run(["--json", "run", "ls", "-l", "1000", "--state", "done"]).ok().objects();
        let count = runs.iter().filter(|run| run["function"] == function).count();
        let log = format!("_topic/{function}/{topic}");
        let records = if count == 0 { Vec::new() } else { self.place.records(&log) };
        assert!(records.len() >= count, "{count} runs for {records:?}");
        records.into_iter().take(count).collect()
    }

    fn stat(&self, topic: &str) -> Value {
        let topics = self.topic(&["ls"]).ok().objects();
        topics.into_iter().find(|known| known["topic"] == topic).expect("the topic is listed")
    }
}

/// Three hosts of one cluster with these servers.
fn three(servers: &Servers) -> [Site; 3] {
    let mut first = Site::new(None, Some(servers));
    first.place.run(["cluster", "init"]).ok();
    first.place.run(["cluster", "secret", "--out", "cluster.secret"]).ok();
    let secret = fs::read_to_string(first.place.path().join("cluster.secret")).expect("the secret was written");
    first.live(None);
    let [mut second, mut third] = [(); 2].map(|()| Site::new(Some(&secret), Some(servers)));
    second.live(Some(&first));
    third.live(Some(&first));
    eventually("all hosts vote", || {
        let cluster = first.place.run(["--json", "cluster", "ls"]).ok().object();
        let hosts = cluster["hosts"].as_array().cloned().unwrap_or_default();
        hosts.len() == 3 && hosts.iter().all(|host| host["role"] != "learner")
    });
    [first, second, third]
}

#[test]
fn a_topic_that_nats_keeps_is_used_like_any_other() {
    let servers = Servers::start(1);
    let site = Site::alone(Some(&servers));
    let create = ["create", "env/raw", "--engine", "nats", "--history", "4"];
    site.topic(&create).ok();
    site.topic(&create).ok();
    let fails = |words: &[&str], code: &str, exit: i32| {
        site.place.run(["topic"].iter().chain(words)).fails(code, exit);
    };
    fails(&["get", "env/raw"], "MR2105", 1);
    assert_eq!(site.place.run(["topic", "latest", "env/raw"]).ok().text(), "0\n");
    assert_eq!(site.place.run(["topic", "tail", "env/raw", "--no-follow"]).ok().text(), "");
    assert_eq!((site.publish("env/raw", "a"), site.publish("env/raw", "a")), (1, 1), "the same key");
    site.deploy("keep");
    site.topic(&["subscribe", "env/raw", "keep"]).ok();
    for (record, index) in [("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6)] {
        assert_eq!(site.publish("env/raw", record), index);
    }
    assert_eq!(site.place.run(["topic", "get", "env/raw"]).ok().text(), "f\n");
    assert_eq!(site.place.run(["topic", "get", "env/raw", "4"]).ok().text(), "d\n");
    assert_eq!(site.place.run(["topic", "latest", "env/raw"]).ok().text(), "6\n");
    let four = "3  c\n4  d\n5  e\n6  f\n";
    assert_eq!(site.place.run(["topic", "range", "env/raw"]).ok().text(), four);
    assert_eq!(site.place.run(["topic", "tail", "env/raw", "--no-follow"]).ok().text(), four);
    let stat = site.stat("env/raw");
    let numbers = ["history", "earliest", "latest"].map(|key| stat[key].as_u64());
    assert_eq!((numbers, &stat["engine"]), ([Some(4), Some(3), Some(6)], &Value::from("nats")));
    eventually("the function ran for the records behind its subscription", || {
        site.delivered("keep", "env/raw").len() >= 5
    });
    site.place.idle();
    assert_eq!(site.delivered("keep", "env/raw"), ["b", "c", "d", "e", "f"]);
    site.topic(&["unsubscribe", "env/raw", "keep"]).ok();
    // A record that waited on the disk of this host is published, too.
    site.topic(&["publish", "env/raw", "late", "--durability", "local"]).ok();
    eventually("what was kept here is published", || site.records("env/raw").last() == Some(&(7, "late".into())));

    fails(&["get", "env/raw", "3"], "MR2104", 1);
    fails(&["get", "env/raw", "8"], "MR2105", 1);
    fails(&["create", "env/raw", "--engine", "nats", "--history", "5"], "MR7203", 1);
    fails(&["create", "env/raw", "--history", "4"], "MR7203", 1);
    fails(&["create", "other", "--engine", "nats", "--durability", "leader"], "MR7245", 2);
    fails(&["publish", "env/raw", "x", "--durability", "leader"], "MR7245", 2);
    fails(&["mirror", "env/raw", "--to", "copy"], "MR7245", 2);
    site.place.write("long", &"x".repeat(70_000));
    for durability in ["quorum", "local"] {
        let long = fs::read(site.place.path().join("long")).expect("it was written");
        site.place.feed(["topic", "publish", "env/raw", "-", "--durability", durability], &long).fails("MR7244", 1);
    }
    // Similar names are names of different topics.
    for name in ["env.raw", "env_raw", "env_sraw"] {
        site.topic(&["create", name, "--engine", "nats"]).ok();
        assert_eq!(site.publish(name, name), 1);
    }
    let streams = servers.request("$JS.API.STREAM.NAMES", "").expect("an answer");
    assert_eq!(streams.matches("millrace_").count(), 4, "{streams}");
}

#[test]
fn hosts_without_nats_say_what_they_lack() {
    let mut site = Site::alone(None);
    site.place.run(["topic", "create", "t", "--engine", "nats"]).fails("MR7240", 1);
    site.topic(&["create", "t"]).ok();
    site.die();
    site.place.run(["serve", "--listen", "none", "--nats", "http://a"]).fails("MR7247", 2);
    let shown =
        site.place.run(["serve", "--listen", "none", "--nats", "nats://mill:secret@127.0.0.1:1"]).fails("MR7247", 2);
    assert!(shown.stderr.contains("set MILLRACE_NATS") && !shown.stderr.contains("secret"), "{}", shown.stderr);
    let missing = ["serve", "--listen", "none", "--nats", "nats://127.0.0.1:1", "--nats-creds", "missing"];
    site.place.run(missing).fails("MR7247", 2);
}

#[test]
fn every_record_runs_a_function_once_while_servers_and_hosts_are_killed() {
    let mut servers = Servers::start(3);
    let mut sites = three(&servers);
    sites[0].topic(&["create", "t", "--engine", "nats"]).ok();
    sites[2].deploy("keep");
    sites[2].topic(&["subscribe", "t", "keep"]).ok();
    let mut reported = BTreeMap::new();
    let mut publish = |sites: &[Site; 3], from: &[usize], what: &str| {
        for number in 0..6 {
            let record = format!("{what} {number}");
            reported.insert(sites[from[number % from.len()]].publish("t", &record), record);
        }
    };
    publish(&sites, &[0, 1, 2], "all");
    for at in 0..3 {
        servers.die(at);
        publish(&sites, &[0, 1, 2], &format!("without server {at}"));
        servers.live(at);
        servers.settled();
    }
    // The host that runs the function is down, and then continues after the records that it has delivered.
    sites[2].die();
    publish(&sites, &[0, 1], "without the subscriber");
    sites[2].live(None);
    publish(&sites, &[0, 1, 2], "with it");
    let records = sites[1].records("t");
    assert!(records.iter().map(|(index, _)| *index).eq(1..=records.len() as u64), "no gaps: {records:?}");
    assert_eq!(records.iter().cloned().collect::<BTreeMap<_, _>>(), reported, "what was acknowledged, once each");
    eventually("the function has run for every record", || sites[2].delivered("keep", "t").len() >= records.len());
    sites[2].place.idle();
    let texts: Vec<String> = records.into_iter().map(|(_, record)| record).collect();
    assert_eq!(sites[2].delivered("keep", "t"), texts, "in order, and once for each");
}

#[test]
fn while_nats_is_away_requests_fail_and_functions_go_on_when_it_is_back() {
    let mut servers = Servers::start(1);
    let mut site = Site::alone(Some(&servers));
    site.topic(&["create", "t", "--engine", "nats", "--history", "5"]).ok();
    site.deploy("keep");
    site.topic(&["subscribe", "t", "keep"]).ok();
    site.publish("t", "before");
    eventually("the function ran", || site.delivered("keep", "t").len() == 1);
    servers.die(0);
    eventually("a publish is refused", || {
        let ended = site.topic(&["publish", "t", "x", "--key", "x"]);
        ended.code != 0 && (ended.stderr.contains("MR7241") || ended.stderr.contains("MR7248"))
    });
    site.place.run(["topic", "get", "t", "1"]).fails("MR7241", 75);
    let why = site.place.run(["cluster", "why"]).ok().text().to_owned();
    assert!(why.contains("NATS keeps 1 topics") && why.contains("127.0.0.1"), "{why}");
    assert!(site.stat("t")["trouble"].as_str().is_some_and(|trouble| trouble.contains("MR7241")));
    site.topic(&["publish", "t", "kept", "--durability", "local"]).ok();
    servers.live(0);
    eventually("what was kept runs the function", || site.delivered("keep", "t").contains(&"kept".to_owned()));
    eventually("NATS is no problem any more", || !site.place.run(["cluster", "why"]).ok().text().contains("NATS"));
    // While the host is down, more records are published than the topic keeps.
    let stream = servers.request("$JS.API.STREAM.NAMES", "").expect("an answer");
    let name = stream.split('"').find(|part| part.starts_with("millrace_")).expect("the stream").to_owned();
    let subject = format!("{}.p", name.replace('_', "."));
    site.die();
    for number in 0..9 {
        servers.request(&subject, &format!("missed {number}")).expect("it is acknowledged");
    }
    site.live(None);
    eventually("the newest ones are delivered", || {
        site.delivered("keep", "t").ends_with(&["missed 7".into(), "missed 8".into()])
    });
    assert_eq!(site.stat("t")["subscriptions"][0]["missed"], 4);
    // A deleted stream is not treated as an empty topic.
    servers.request(&format!("$JS.API.STREAM.DELETE.{name}"), "").expect("it is deleted");
    site.place.run(["topic", "latest", "t"]).fails("MR7243", 1);
    site.topic(&["create", "t", "--engine", "nats", "--history", "5"]).ok();
    eventually("the subscription says what happened", || {
        let trouble = site.stat("t")["subscriptions"][0]["trouble"].to_string();
        trouble.contains("MR7243")
    });
}

#[test]
fn a_log_feeds_a_topic_once_and_in_order_while_servers_and_its_host_are_killed() {
    let mut servers = Servers::start(3);
    let mut site = Site::alone(Some(&servers));
    site.topic(&["create", "smooth", "--engine", "nats"]).ok();
    site.place.run(["log", "create", "out/x"]).ok();
    site.topic(&["feed", "out/x", "smooth"]).ok();
    let mut expected = Vec::new();
    let mut append = |site: &Site, what: &str| {
        for number in 0..20 {
            let record = format!("{what} {number}");
            site.place.run(["log", "append", "out/x", &record]).ok();
            expected.push(record);
        }
    };
    for at in 0..3 {
        append(&site, &format!("round {at}"));
        // At any moment of the feed.
        site.die();
        servers.die(at);
        site.live(None);
        append(&site, &format!("without {at}"));
        servers.live(at);
        servers.settled();
    }
    eventually("all of it is published", || site.records("smooth").len() >= expected.len());
    let records: Vec<String> = site.records("smooth").into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, expected, "once and in order");
    let published = || site.stat("smooth")["feeds"][0]["published"].as_u64();
    eventually("the group knows how far the log is", || published() == Some(expected.len() as u64));
}
