//! A site that loses its link to the others: what it keeps for them, and what it keeps of them.

use super::{Site, founder, three};
use millrace_tests::eventually;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
};

const TOPIC: &str = "env/raw";

/// Publishes a record that the site keeps.
fn keep(site: &Site, record: &str) {
    let kept = site.topic(&["publish", TOPIC, record, "--durability", "local"]).ok().object();
    assert_eq!(kept["index"], 0, "its index is not known yet");
}

/// What a host says of a topic.
fn listed(site: &Site, topic: &str) -> Value {
    let all = site.topic(&["ls"]).ok().objects();
    all.into_iter().find(|known| known["topic"] == topic).unwrap_or(Value::Null)
}

fn why(site: &Site) -> String {
    site.place.run(["cluster", "why"]).ok().text().to_owned()
}

fn mirror(site: &Site, log: &str) -> Value {
    let all = site.topic(&["mirrors"]).ok().objects();
    all.into_iter().find(|known| known["log"] == log).unwrap_or(Value::Null)
}

fn copied(site: &Site, log: &str) -> Vec<(u64, String)> {
    let read = site.place.run(["--json", "log", "get", log, "--all"]);
    if read.code != 0 {
        return Vec::new();
    }
    let records = read.objects();
    let record = |record: &Value| {
        (record["seqno"].as_u64().expect("a number"), record["data"].as_str().expect("text").to_owned())
    };
    records.iter().map(record).collect()
}

/// The others are there and answer nothing, as behind a link that is down.
fn link(sites: &[Site], is_up: bool) {
    for site in sites {
        site.host.as_ref().expect("it runs").signal(if is_up { "CONT" } else { "STOP" });
    }
}

#[test]
fn a_site_that_is_cut_off_keeps_records_on_its_disk_and_publishes_them_once_and_in_order() {
    let mut sites = three();
    sites[0].topic(&["create", TOPIC, "--history", "1000"]).ok();
    let mut expected = vec!["before".to_owned()];
    sites[2].publish("before", &mut BTreeMap::new());
    // A topic that nobody has made is a mistake of the publisher.
    sites[2].place.run(["topic", "publish", "none", "x", "--durability", "local"]).fails("MR7202", 1);
    link(&sites[..2], false);
    for number in 0..10 {
        keep(&sites[2], &format!("cut off {number}"));
        expected.push(format!("cut off {number}"));
    }
    eventually("it says how many records wait, and why", || {
        let waits = &listed(&sites[2], TOPIC)["buffered"];
        waits["records"] == 10 && waits["trouble"].as_str().is_some_and(|why| why.starts_with("MR7208"))
    });
    assert!(why(&sites[2]).contains("10 records of"), "{}", why(&sites[2]));
    // Whatever was acknowledged is on its disk.
    sites[2].live_again();
    for number in 0..10 {
        // With the same key it is there once, in this site's records and in the topic.
        for _ in 0..2 {
            let (record, key) = (format!("after a crash {number}"), format!("key {number}"));
            sites[2].topic(&["publish", TOPIC, &record, "--durability", "local", "--key", &key]).ok();
        }
        expected.push(format!("after a crash {number}"));
    }
    eventually("it still knows what waits", || listed(&sites[2], TOPIC)["buffered"]["records"] == 30);
    link(&sites[..2], true);
    // It may be in the middle of publishing them.
    sites[2].live_again();
    let all = |site: &Site| {
        let read = site.topic(&["range", TOPIC]);
        let records = if read.code == 0 { read.objects() } else { Vec::new() };
        records.iter().map(|record| record["data"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    eventually("nothing waits any more", || {
        listed(&sites[2], TOPIC)["latest"] == expected.len() && listed(&sites[2], TOPIC)["buffered"].is_null()
    });
    for site in &sites {
        eventually("it has all of them once and in order", || {
            let records = all(site);
            assert!(records.len() <= expected.len(), "{records:?}");
            records == expected
        });
    }
    eventually("nothing is wrong", || why(&sites[2]) == "no problems found\n");
    // With the link up, it is published at once, behind what waited.
    keep(&sites[2], "at once");
    eventually("it is published", || all(&sites[0]).last().is_some_and(|last| last == "at once"));
    assert!(listed(&sites[0], TOPIC)["feeds"].as_array().is_some_and(Vec::is_empty), "no log of the user's feeds it");
    sites[2].place.run(["topic", "unfeed", "_publish", TOPIC]).fails("MR6022", 1);
}

#[test]
fn a_mirror_has_the_topic_under_its_indexes_whichever_side_is_killed_and_is_read_without_the_link() {
    let mut sites = three();
    let (mut reported, log) = (BTreeMap::new(), "copy/raw");
    sites[0].topic(&["create", TOPIC, "--history", "1000"]).ok();
    sites[0].publish("early", &mut reported);
    sites[1].topic(&["mirror", TOPIC, "--to", log]).ok();
    sites[1].topic(&["mirror", TOPIC, "--to", log]).ok();
    sites[1].place.write("keep.sh", "#!/bin/sh\ncat\n");
    let deploy = "function deploy keep --runtime oneshot --code keep.sh --on copy/raw -- ./keep.sh";
    sites[1].place.run(deploy.split(' ')).ok();
    sites[1].place.run(["topic", "mirror", "none", "--to", "copy/none"]).fails("MR7202", 1);
    sites[1].place.run(["topic", "mirror", TOPIC, "--to", "mr://127.0.0.1:1/x/y"]).fails("MR1006", 2);
    for number in 0..5 {
        sites[2].publish(&format!("first {number}"), &mut reported);
    }
    eventually("it is copied", || copied(&sites[1], log) == reported.clone().into_iter().collect::<Vec<_>>());
    sites[1].place.run(["log", "append", log, "x"]).fails("MR7231", 1);
    sites[1].place.run(["log", "rm", log]).fails("MR2103", 1);
    // The side that copies is killed, and then each of the others.
    sites[1].die();
    for number in 0..5 {
        sites[2].publish(&format!("without it {number}"), &mut reported);
    }
    sites[1].live(None);
    for at in [0, 2] {
        sites[at].live_again();
        sites[at].publish(&format!("after a crash of {at}"), &mut reported);
    }
    let expected: Vec<(u64, String)> = reported.clone().into_iter().collect();
    eventually("it has all again", || copied(&sites[1], log) == expected);
    assert_eq!(mirror(&sites[1], log)["lag"], 0);
    sites[1].place.idle();
    let runs = sites[1].place.run(["--json", "run", "ls", "-l", "1000", "--state", "done"]).ok().objects().len();
    // The first record may have been copied before the function was there.
    assert!((expected.len() - 1..=expected.len()).contains(&runs), "{runs} runs for {} records", expected.len());
    let others: Vec<&Site> = [&sites[0], &sites[2]].into();
    for site in &others {
        site.host.as_ref().expect("it runs").signal("STOP");
    }
    assert_eq!(copied(&sites[1], log), expected, "it is read without the others");
    for site in &others {
        site.host.as_ref().expect("it runs").signal("CONT");
    }
    sites[1].topic(&["mirror", TOPIC, "--to", log, "--stop"]).ok();
    sites[1].place.run(["topic", "mirror", TOPIC, "--to", log, "--stop"]).fails("MR7233", 1);
    eventually("a log that is there is no new mirror", || {
        sites[1].place.run(["topic", "mirror", TOPIC, "--to", log]).stderr.contains("error[MR7234]")
    });
    sites[1].place.run(["log", "append", log, "mine"]).ok();
}

#[test]
fn a_mirror_says_which_records_its_topic_had_lost_and_stops_at_a_gap() {
    let sites = three();
    let publish = |numbers: std::ops::RangeInclusive<u32>| {
        for record in numbers.map(|number| number.to_string()) {
            eventually("it is published", || {
                sites[0].topic(&["publish", "short", &record, "--key", &record]).code == 0
            });
        }
    };
    let numbers = |log: &str| copied(&sites[1], log).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    let trouble = |log: &str| mirror(&sites[1], log)["trouble"].as_str().unwrap_or_default().to_owned();
    sites[0].topic(&["create", "short", "--history", "2"]).ok();
    publish(1..=5);
    sites[1].topic(&["mirror", "short", "--to", "copy", "--history", "all"]).ok();
    eventually("it begins with the oldest that is left", || numbers("copy") == [4, 5]);
    assert_eq!(mirror(&sites[1], "copy")["missed"], 3);
    publish(6..=6);
    eventually("it keeps more than the topic", || numbers("copy") == [4, 5, 6]);
    // It stands still while a function that is bound to it has no room, and the topic loses records meanwhile.
    sites[1].place.write("stuck.sh", "#!/bin/sh\nsleep 10000\n");
    let function = "runtime = \"oneshot\"\ncode = \"stuck.sh\"\ncommand = [\"./stuck.sh\"]\non = [\"copy\"]";
    let application =
        format!("[logs.copy]\nhistory = \"all\"\n[functions.stuck]\n{function}\ntimeout = \"10h\"\npending_max = 1\n");
    sites[1].place.write("millrace.toml", &application);
    sites[1].place.run(["up"]).ok();
    publish(7..=7);
    eventually("there is room for one", || numbers("copy") == [4, 5, 6, 7]);
    publish(8..=12);
    eventually("it stops at the gap", || trouble("copy").starts_with("MR7232") && trouble("copy").contains("8 to 10"));
    assert!(why(&sites[1]).contains("log copy on this host does not mirror topic short"), "{}", why(&sites[1]));
    sites[1].place.run(["function", "rm", "stuck", "--force"]).ok();
    assert_eq!(numbers("copy"), [4, 5, 6, 7]);
    sites[1].topic(&["mirror", "short", "--to", "copy", "--stop"]).ok();
    sites[1].topic(&["mirror", "short", "--to", "later"]).ok();
    eventually("another one goes on", || numbers("later") == [11, 12]);
}

/// A delivery takes up to 64 records at once.
#[test]
fn a_function_with_room_for_few_runs_gets_all_records_that_wait_in_a_topic() {
    let mut sites = three();
    sites[0].topic(&["create", "long", "--history", "1000"]).ok();
    let site = &mut sites[1];
    site.place.write("pass.sh", "#!/bin/sh\nprintf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n");
    let code = "runtime = \"oneshot\"\ncode = \"pass.sh\"\ncommand = [\"./pass.sh\"]\npending_max = 3\n";
    let application = format!("[logs.out]\nhistory = 1000\n[functions.pass]\n{code}on = [\"topic:long\"]\n");
    site.place.write("millrace.toml", &application);
    site.place.run(["up"]).ok();
    site.die();
    // Meanwhile records gather in the topic.
    sites[0].place.run(["log", "create", "in", "--history", "1000"]).ok();
    sites[0].topic(&["feed", "in", "long"]).ok();
    let numbers: Vec<u32> = (1..=100).collect();
    let lines: String = numbers.iter().map(|number| format!("{number}\n")).collect();
    sites[0].place.feed(["log", "append", "in", "--lines", "--quiet"], lines.as_bytes()).ok();
    eventually("the topic has them", || listed(&sites[0], "long")["latest"] == 100);
    sites[1].live(None);
    let ran = || {
        let mut records: Vec<u32> = sites[1].place.records("out").iter().map(|text| text.parse().unwrap()).collect();
        records.sort_unstable();
        records
    };
    eventually("the function has run for each record", || ran().len() >= numbers.len());
    assert_eq!(ran(), numbers);
}

#[test]
fn a_host_that_joins_says_what_it_waits_for() {
    let site = Site::new(None);
    let mut first = Site::new(None);
    first.place.run(["cluster", "init"]).ok();
    first.place.run(["cluster", "secret", "--out", "cluster.secret"]).ok();
    site.place.write("cluster.secret", &fs::read_to_string(first.place.path().join("cluster.secret")).unwrap());
    let at = format!("mr://127.0.0.1:{}/site", first.port);
    let mut command = site.place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]);
    command.args(["--join", &at, "--cluster-secret", "cluster.secret"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.starts_with("joining")).expect("it says that it joins");
    assert!(said.contains(&at), "{said}");
    let said = lines.find(|line| line.starts_with("not joined yet: MR")).expect("it says why it waits");
    assert!(said.contains("refused"), "{said}");
    first.live(None);
    eventually("it has joined", || first.cluster()["hosts"].as_array().is_some_and(|hosts| hosts.len() == 2));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_record_that_is_published_over_http_has_the_cause_that_its_publisher_names_and_so_has_its_copy_in_a_mirror() {
    let (mut site, _) = founder();
    site.live(None);
    site.topic(&["create", "out", "--history", "100"]).ok();
    site.topic(&["mirror", "out", "--to", "copy"]).ok();
    site.place.run(["log", "create", "in"]).ok();
    let cause =
        site.place.run(["--json", "log", "append", "in", "first"]).ok().object()["id"].as_str().unwrap().to_owned();
    for durability in ["quorum", "local"] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", site.port)).unwrap();
        let head = format!(
            "POST /v1/namespaces/site/topics/out/records?durability={durability} HTTP/1.1\r\nHost: localhost\r\n\
             Millrace-Cause: {cause}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
    eventually("both are copied", || {
        let found = site.place.run(["--json", "log", "stat", "copy"]);
        found.code == 0 && found.object()["latest"] == 2
    });
    assert_eq!(site.place.run(["--json", "log", "get", "copy", "1"]).ok().object()["cause"], cause.as_str());
    assert!(site.place.run(["--json", "log", "get", "copy", "2"]).ok().object()["cause"].is_string());
    let traced = site.place.run(["trace", &cause]).ok();
    assert!(traced.text().contains("copy"), "{}", traced.text());
}
