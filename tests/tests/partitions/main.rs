//! Clusters of real hosts on networks that fail: each host is on a machine (a network namespace) of its own. Programs publish and call
//! objects on all of them meanwhile, and what they were answered is checked to be linearizable. Needs root; without it the tests say
//! loudly that they did not run.

mod histories;
mod load;
mod network;
mod slow;

use load::{Load, TOPIC, counted};
use millrace_client::{Options, Place as At, blocking::Client};
use millrace_tests::{Host, Place, eventually, history::check};
use network::Network;
use serde_json::{Value, json};
use slow::Slow;
use std::{fs, rc::Rc, thread, time::Duration};

const PORT: u16 = 7070;
const ELECTION: &str = "300ms";
/// How long a network stays as it is: longer than an election takes.
const A_WHILE: Duration = Duration::from_millis(2500);

/// A host on a machine of its own.
struct Site {
    network: Rc<Network>,
    at: usize,
    place: Place,
    host: Option<Host>,
    is_stopped: bool,
}

impl Site {
    /// Serves; the first time, it joins the cluster of another host.
    fn live(&mut self, join: Option<&Site>) {
        self.serve(join, PORT);
    }

    /// Serves, and is reached at this port.
    fn serve(&mut self, join: Option<&Site>, port: u16) {
        let listen = format!("{}:{PORT}", self.network.address(self.at));
        let advertise = format!("{}:{port}", self.network.address(self.at));
        let words = ["--json", "serve", "--name", "site", "--listen", &listen, "--advertise", &advertise];
        let mut command = self.place.command(words);
        command.args(["--election", ELECTION]);
        if let Some(first) = join {
            let at = format!("mr://{}:{PORT}/site", first.network.address(first.at));
            command.args(["--join", &at, "--cluster-secret", "cluster.secret"]);
        }
        self.host = Some(Host::start(self.network.command(self.at, &command)));
    }

    /// Dies as by kill -9.
    fn die(&mut self) {
        drop(self.host.take());
        self.is_stopped = false;
    }

    /// Stands still, or goes on.
    fn stop(&mut self, is_stopped: bool) {
        let host = self.host.as_ref().expect("it runs");
        host.signal(if is_stopped { "STOP" } else { "CONT" });
        self.is_stopped = is_stopped;
    }

    fn answers(&self) -> bool {
        self.host.is_some() && !self.is_stopped
    }

    fn cluster(&self) -> Value {
        self.place.run(["--json", "cluster", "ls"]).ok().object()
    }

    fn client(&self) -> Client {
        Client::connect(&At::Unix(self.place.namespace().join("socket")), &Options::default()).expect("it answers")
    }

    /// All records of the topic, once the group lets them be read.
    fn records(&self) -> Vec<(u64, String)> {
        let (client, mut found): (Client, Vec<(u64, String)>) = (self.client(), Vec::new());
        loop {
            let (next, mut read) = (found.len() as u64 + 1, Vec::new());
            eventually("the topic is read", || {
                let batch = client.range_topic(TOPIC, next, 100_000);
                batch.map(|batch| read = batch.records).is_ok()
            });
            if read.is_empty() {
                return found;
            }
            found.extend(read.iter().map(|record| (record.seqno, String::from_utf8_lossy(&record.data).into_owned())));
        }
    }
}

/// A cluster of so many hosts, of which all vote, with a topic and a function that runs for it on the last host.
fn cluster(size: usize) -> Vec<Site> {
    let network = Rc::new(Network::new(size));
    let site = |at: usize| Site { network: network.clone(), at, place: Place::new(), host: None, is_stopped: false };
    let mut sites: Vec<Site> = (0..size).map(site).collect();
    sites[0].place.run(["cluster", "init"]).ok();
    sites[0].place.run(["cluster", "secret", "--out", "cluster.secret"]).ok();
    let secret = fs::read_to_string(sites[0].place.path().join("cluster.secret")).expect("the secret was written");
    sites[0].live(None);
    let (first, others) = sites.split_at_mut(1);
    for site in others {
        site.place.write("cluster.secret", &secret);
        site.live(Some(&first[0]));
    }
    if size > 3 {
        first[0].place.run(["cluster", "voters", &size.to_string()]).ok();
    }
    eventually("all hosts vote", || {
        let hosts = first[0].cluster()["hosts"].clone();
        hosts.as_array().is_some_and(|hosts| hosts.len() == size && hosts.iter().all(|host| host["role"] != "learner"))
    });
    first[0].place.run(["topic", "create", TOPIC, "--history", "1000000"]).ok();
    let listener = sites.last().expect("there are some");
    listener.place.write("f.py", "def keep(record, ctx):\n    ctx.append('kept', record.data)\n");
    listener.place.run(["log", "create", "kept", "--history", "1000000"]).ok();
    let deploy = ["function", "deploy", "keep", "--runtime", "python", "--code", "f.py", "--handler", "f:keep"];
    listener.place.run(deploy).ok();
    eventually("it is subscribed", || listener.place.run(["topic", "subscribe", TOPIC, "keep"]).code == 0);
    sites
}

/// Which host leads: of those that say so, the one with the newest term.
fn leader(sites: &[Site]) -> usize {
    let mut found = None;
    eventually("a host leads", || {
        let views = sites.iter().filter(|site| site.answers()).map(|site| (site.at, site.cluster()));
        let leads = views.filter(|(_, view)| view["role"] == "leader");
        found = leads.max_by_key(|(_, view)| view["term"].as_u64()).map(|(at, _)| at);
        found.is_some()
    });
    found.expect("it was found")
}

/// Waits until each of these hosts answers something new.
fn progress(load: &Load, what: &str, hosts: &[usize]) {
    let before = load.answered();
    eventually(what, || hosts.iter().all(|at| load.answered()[*at] > before[*at] + 1));
}

/// What is promised, after the programs have ended and all hosts reach each other.
fn promises(sites: &[Site], load: Load) {
    let (shared, acknowledged, raised) = load.stop();
    let call = shared.history.now();
    let expected = sites[0].records();
    shared.was_read(1000, call, &expected);
    assert!(expected.iter().map(|(index, _)| *index).eq(1..=expected.len() as u64), "indices are dense");
    for (index, record) in &acknowledged {
        assert_eq!(expected[*index as usize - 1].1, *record, "what was acknowledged is there");
    }
    for site in sites {
        assert_eq!(site.records(), expected, "the order is the same on host {}", site.at);
    }
    let listener = sites.last().expect("there are some");
    let kept = || listener.place.records("kept");
    eventually("the function has run for every record", || kept().len() >= expected.len());
    listener.place.idle();
    assert!(kept().iter().eq(expected.iter().map(|(_, record)| record)), "once for each, in order");
    assert_eq!(u64::try_from(counted(&sites[0])), Ok(raised), "each call of the counter counted once");
    shared.history.is_linearizable();
    eprintln!("{} records, {} operations", expected.len(), shared.history.lines().len());
    // The check has teeth: the same history with an answer that is older than it may be is refused.
    let mut lines = shared.history.lines();
    let reads = |line: &&mut Value| line["op"] == "latest" && line["output"].as_u64() > Some(1);
    let read = lines.iter_mut().filter(reads).max_by_key(|line| line["call"].as_u64()).expect("something was read");
    read["output"] = json!(1);
    assert!(check(&lines).is_err(), "an answer that is too old is found");
}

/// Whether the test can run here; says so if it cannot.
fn is_possible(what: &str) -> bool {
    let reason = network::impossible();
    if let Some(reason) = reason {
        eprintln!("NOT TESTED: {what}. {reason}");
    }
    reason.is_none()
}

fn others(size: usize, some: &[usize]) -> Vec<usize> {
    (0..size).filter(|at| !some.contains(at)).collect()
}

#[test]
fn three_hosts_keep_their_promises_while_they_are_cut_off_stopped_and_killed() {
    if !is_possible("a cluster of three hosts on a network that fails") {
        return;
    }
    let mut sites = cluster(3);
    let network = sites[0].network.clone();
    let load = Load::start(&sites);
    progress(&load, "programs are answered", &[0, 1, 2]);
    let lost = leader(&sites);
    network.cut(&[lost]);
    progress(&load, "the others go on without their leader", &others(3, &[lost]));
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on", &[0, 1, 2]);

    let deaf = leader(&sites);
    network.cut_one_way(&others(3, &[deaf]), &[deaf]);
    progress(&load, "the others go on with a leader that hears nothing", &others(3, &[deaf]));
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on", &[0, 1, 2]);

    let mute = leader(&sites);
    network.cut_one_way(&[mute], &others(3, &[mute]));
    progress(&load, "the others go on with a leader that nobody hears", &others(3, &[mute]));
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on", &[0, 1, 2]);

    let stopped = leader(&sites);
    sites[stopped].stop(true);
    progress(&load, "the others go on without the host that stands still", &others(3, &[stopped]));
    sites[stopped].stop(false);
    progress(&load, "all go on", &[0, 1, 2]);

    let killed = leader(&sites);
    sites[killed].die();
    progress(&load, "the others go on without the host that was killed", &others(3, &[killed]));
    sites[killed].live(None);
    progress(&load, "all go on", &[0, 1, 2]);

    for at in 0..3 {
        network.cut(&[at]);
    }
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on after each was alone", &[0, 1, 2]);
    promises(&sites, load);
}

#[test]
fn five_hosts_keep_their_promises_while_they_are_split_slow_and_their_voters_change() {
    if !is_possible("a cluster of five hosts on a network that fails") {
        return;
    }
    let mut sites = cluster(5);
    let network = sites[0].network.clone();
    let all = [0, 1, 2, 3, 4];
    let load = Load::start(&sites);
    progress(&load, "programs are answered", &all);

    // The leader is with the minority.
    let lost = leader(&sites);
    let minority = [lost, (lost + 1) % 5];
    network.cut(&minority);
    progress(&load, "the majority goes on", &others(5, &minority));
    eventually("a leader that hears no majority says so", || {
        let why = sites[lost].place.run(["cluster", "why"]).ok().text().to_owned();
        why.contains("has not heard from a majority") || why.contains("this host knows no leader")
    });
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on", &all);

    // Each hears its neighbours only.
    for at in all {
        network.cut_one_way(&[at], &[(at + 2) % 5, (at + 3) % 5]);
    }
    thread::sleep(A_WHILE);
    network.heal();
    progress(&load, "all go on after a ring", &all);

    // Everything that a host hears of the others is late.
    let slow = (leader(&sites) + 1) % 5;
    let proxy = Slow::start(&network, slow, PORT);
    sites[slow].die();
    sites[slow].serve(None, slow::PORT);
    progress(&load, "all go on with a slow host", &all);
    proxy.delay(Duration::from_millis(80));
    progress(&load, "all go on with a slower host", &all);
    proxy.delay(Duration::ZERO);

    // Hosts lose and get votes meanwhile, and two are killed.
    eventually("three may vote", || sites[0].place.run(["cluster", "voters", "3"]).code == 0);
    progress(&load, "all go on with three voters", &all);
    eventually("five may vote again", || sites[0].place.run(["cluster", "voters", "5"]).code == 0);
    let votes = |host: &Value| host["role"] != "learner";
    eventually("all vote", || {
        let hosts = sites[0].cluster()["hosts"].clone();
        hosts.as_array().is_some_and(|hosts| hosts.iter().filter(|host| votes(host)).count() == 5)
    });
    let killed = leader(&sites);
    let other = (killed + 1) % 5;
    sites[killed].die();
    sites[other].die();
    progress(&load, "three of five go on", &others(5, &[killed, other]));
    for at in [killed, other] {
        sites[at].serve(None, if at == slow { slow::PORT } else { PORT });
    }
    progress(&load, "all go on", &all);
    promises(&sites, load);
}
