//! Removed topics, and later topics with the same names.

use super::{Site, three};
use millrace_tests::eventually;
use serde_json::Value;

fn listed(site: &Site, topic: &str) -> Option<Value> {
    site.topic(&["ls"]).ok().objects().into_iter().find(|known| known["topic"] == topic)
}

fn records(site: &Site, topic: &str) -> Vec<(u64, String)> {
    let record = |record: &Value| {
        (record["index"].as_u64().expect("an index"), record["data"].as_str().expect("text").to_owned())
    };
    site.topic(&["range", topic]).ok().objects().iter().map(record).collect()
}

fn numbered(what: &str, count: u64) -> Vec<(u64, String)> {
    (1..=count).map(|index| (index, format!("{what} {index}"))).collect()
}

/// The records of a log of a host.
fn log(site: &Site, name: &str) -> Vec<String> {
    let read = site.place.run(["--json", "log", "get", name, "--all"]);
    let records = if read.code == 0 { read.objects() } else { Vec::new() };
    records.iter().map(|record| record["data"].as_str().expect("text").to_owned()).collect()
}

fn mirror(site: &Site, log: &str) -> Value {
    let all = site.topic(&["mirrors"]).ok().objects();
    all.into_iter().find(|known| known["log"] == log).unwrap_or(Value::Null)
}

fn publish(sites: &[Site], topic: &str, what: &str, count: u64) {
    for index in 1..=count {
        sites[index as usize % sites.len()].publish_to(topic, &format!("{what} {index}"));
    }
}

#[test]
fn a_removed_topic_is_gone_on_every_host_and_another_one_can_have_its_name() {
    let mut sites = three();
    sites[0].place.run(["cluster", "group", "create", "farm"]).ok();
    sites[2].place.write("keep.sh", "#!/bin/sh\ncat\n");
    let deploy = ["function", "deploy", "keep", "--runtime", "oneshot", "--code", "keep.sh", "--", "./keep.sh"];
    sites[2].place.run(deploy).ok();
    // Afterwards, each of the two names belongs to a topic in the other group.
    let topics = [("plain", "main", "farm"), ("soil/raw", "farm", "main")];
    for (topic, group, _) in topics {
        let (copy, source) = (format!("copy/{topic}"), format!("from/{topic}"));
        sites[0].topic(&["create", topic, "--history", "100", "--group", group]).ok();
        sites[2].topic(&["subscribe", topic, "keep"]).ok();
        sites[1].topic(&["mirror", topic, "--to", &copy]).ok();
        sites[1].place.run(["log", "create", &source]).ok();
        sites[1].topic(&["feed", &source, topic]).ok();
        publish(&sites, topic, "old", 5);
        eventually("it is copied", || mirror(&sites[1], &copy)["copied"] == 5);
        eventually("it is delivered", || log(&sites[2], &format!("_topic/keep/{topic}")).len() == 5);
    }
    for (at, (topic, group, _)) in topics.iter().enumerate() {
        if *group != "main" {
            sites[0].place.run(["cluster", "group", "rm", group]).fails("MR7220", 1);
        }
        sites[at].topic(&["rm", topic]).ok();
        sites[at].place.run(["topic", "rm", topic]).fails("MR7202", 1);
        for site in &sites {
            eventually("it is no longer listed", || listed(site, topic).is_none());
            site.place.run(["topic", "latest", topic]).fails("MR7202", 1);
            site.place.run(["topic", "publish", topic, "x"]).fails("MR7202", 1);
        }
    }
    // The group has no topic any more.
    sites[1].place.run(["cluster", "group", "rm", "farm"]).ok();
    sites[1].place.run(["cluster", "group", "create", "farm"]).ok();
    // Hosts that start again apply the following commands again.
    sites.iter_mut().for_each(Site::live_again);
    for (topic, _, group) in topics {
        let (copy, source) = (format!("copy/{topic}"), format!("from/{topic}"));
        eventually("the topic is created", || {
            sites[2].topic(&["create", topic, "--history", "50", "--group", group]).code == 0
        });
        publish(&sites, topic, "new", 3);
        // Its records have indexes of their own, and neither the function nor the feed nor the mirror of the old one is part of it.
        assert!(sites.iter().all(|site| records(site, topic) == numbered("new", 3)));
        sites[1].place.run(["log", "append", &source, "not published"]).ok();
        let found = listed(&sites[2], topic).expect("it is listed");
        assert_eq!((&found["history"], &found["group"]), (&50.into(), &group.into()));
        let is_none = |key: &str| found[key].as_array().is_some_and(Vec::is_empty);
        assert!(is_none("subscriptions") && is_none("feeds"), "{found}");
        eventually("the mirror says why it has stopped", || {
            mirror(&sites[1], &copy)["trouble"].as_str().is_some_and(|why| why.starts_with("MR7223"))
        });
        assert_eq!(log(&sites[1], &copy), numbered("old", 5).into_iter().map(|(_, data)| data).collect::<Vec<_>>());
        sites[1].place.run(["topic", "mirror", topic, "--to", &copy, "--history", "100"]).fails("MR7234", 1);
        sites[1].topic(&["mirror", topic, "--to", &copy, "--stop"]).ok();
        sites[1].topic(&["mirror", topic, "--to", &format!("again/{topic}")]).ok();
        eventually("the new topic is copied", || log(&sites[1], &format!("again/{topic}")).len() == 3);
        // After it is subscribed again, the function runs for records that are published from now on.
        sites[2].topic(&["subscribe", topic, "keep"]).ok();
        sites[0].publish_to(topic, "for the function");
        let delivered = format!("_topic/keep/{topic}");
        eventually("it is delivered", || log(&sites[2], &delivered).len() >= 6);
        assert_eq!(log(&sites[2], &delivered)[5..], ["for the function"]);
    }
    let expected: Vec<_> = topics.iter().map(|(topic, ..)| records(&sites[0], topic)).collect();
    sites.iter_mut().for_each(Site::live_again);
    for (at, (topic, ..)) in topics.iter().enumerate() {
        sites[at].publish_to(topic, "after a start");
        let found = records(&sites[2], topic);
        assert_eq!(found[..4], expected[at][..]);
        eventually("it is delivered once", || log(&sites[2], &format!("_topic/keep/{topic}")).len() >= 7);
        assert_eq!(log(&sites[2], &format!("_topic/keep/{topic}"))[5..], ["for the function", "after a start"]);
    }
}

#[test]
fn a_reader_that_waits_for_a_topic_hears_that_it_was_removed() {
    let sites = three();
    sites[0].topic(&["create", "t"]).ok();
    publish(&sites, "t", "old", 3);
    for recreate in [false, true] {
        let tail = sites[1].place.command(["topic", "tail", "t"]);
        let ended = std::thread::scope(|scope| {
            let tails = scope.spawn(|| millrace_tests::end(tail, b""));
            // Whether it waits already or begins now, it gets the same answer.
            std::thread::sleep(std::time::Duration::from_millis(300));
            sites[2].topic(&["rm", "t"]).ok();
            if recreate {
                sites[2].topic(&["create", "t"]).ok();
            }
            tails.join().expect("no panics")
        });
        let told = if recreate { ["MR7223", "MR7202"] } else { ["MR7202"; 2] };
        assert!(told.iter().any(|code| ended.stderr.contains(code)), "{ended:?}");
        sites[0].topic(&["create", "t"]).ok();
        publish(&sites, "t", "old", 3);
    }
}

#[test]
fn records_that_wait_on_a_host_stay_there_when_their_topic_is_removed() {
    let mut sites = three();
    let signal = |sites: &[Site], name: &str| {
        sites[..2].iter().for_each(|site| site.host.as_ref().expect("it runs").signal(name));
    };
    let waits = |site: &Site, topic: &str| listed(site, topic).map_or(Value::Null, |known| known["buffered"].clone());
    for topic in ["kept", "discarded"] {
        sites[0].topic(&["create", topic]).ok();
        sites[2].publish_to(topic, "early");
        eventually("it knows the topic", || listed(&sites[2], topic).is_some());
    }
    signal(&sites, "STOP");
    for topic in ["kept", "discarded"] {
        for number in 0..3 {
            sites[2].topic(&["publish", topic, &format!("cut off {number}"), "--durability", "local"]).ok();
        }
    }
    sites[2].die();
    signal(&sites, "CONT");
    for topic in ["kept", "discarded"] {
        eventually("it is removed", || {
            drop(sites[0].place.run(["topic", "rm", topic]));
            listed(&sites[0], topic).is_none()
        });
    }
    sites[2].live(None);
    for topic in ["kept", "discarded"] {
        eventually("it says what waits, and that there is no such topic", || {
            let waits = waits(&sites[2], topic);
            waits["records"] == 3 && waits["trouble"].as_str().is_some_and(|why| why.starts_with("MR7202"))
        });
    }
    sites[2].topic(&["rm", "discarded", "--waiting"]).ok();
    sites[2].place.run(["topic", "rm", "discarded", "--waiting"]).fails("MR7202", 1);
    assert!(waits(&sites[2], "discarded").is_null());
    for topic in ["kept", "discarded"] {
        sites[1].topic(&["create", topic]).ok();
        sites[0].publish_to(topic, "new");
    }
    eventually("what was kept is published", || {
        waits(&sites[2], "kept").is_null() && records(&sites[0], "kept").len() == 4
    });
    let mut found: Vec<String> = records(&sites[0], "kept").into_iter().map(|(_, data)| data).collect();
    found.retain(|data| data != "new");
    assert_eq!(found, ["cut off 0", "cut off 1", "cut off 2"]);
    assert_eq!(records(&sites[1], "discarded"), [(1, "new".to_owned())]);
}
