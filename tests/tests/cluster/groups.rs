//! Several groups over the same hosts.

use super::{Site, three};
use millrace_tests::{Host, eventually};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

/// A group as a host sees it.
fn group(site: &Site, name: &str) -> Value {
    let all = site.place.run(["--json", "cluster", "groups"]).ok().objects();
    all.into_iter().find(|group| group["group"] == name).unwrap_or(Value::Null)
}

fn ids(hosts: &Value) -> BTreeSet<String> {
    let hosts = hosts.as_array().into_iter().flatten();
    hosts.map(|host| host.as_str().expect("an id").to_owned()).collect()
}

/// Which of these hosts leads a group, once one of them says so.
fn leader(sites: &[Site], name: &str) -> usize {
    let mut found = None;
    eventually("a host leads the group", || {
        let mut live = sites.iter().enumerate().filter(|(_, site)| site.host.is_some());
        found = live.find(|(_, site)| group(site, name)["role"] == "leader").map(|(at, _)| at);
        found.is_some()
    });
    found.expect("it was found")
}

fn records(site: &Site, topic: &str) -> Vec<String> {
    let records = site.topic(&["range", topic]).ok().objects();
    records.iter().map(|record| record["data"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn each_group_has_a_leader_and_topics_of_its_own() {
    let mut sites = three();
    for name in ["farm", "lab"] {
        sites[0].place.run(["cluster", "group", "create", name]).ok();
        sites[1].topic(&["create", &format!("{name}/raw"), "--group", name]).ok();
    }
    sites[2].topic(&["create", "plain"]).ok();
    // By its name alone, through whichever host.
    for (at, site) in sites.iter().enumerate() {
        for topic in ["farm/raw", "lab/raw", "plain"] {
            site.publish_to(topic, &format!("{topic} {at}"));
        }
    }
    for topic in ["farm/raw", "lab/raw", "plain"] {
        let expected: Vec<String> = (0..3).map(|at| format!("{topic} {at}")).collect();
        assert!(sites.iter().all(|site| records(site, topic) == expected), "{topic}");
    }
    // Each group has its own leader, and each may be another host.
    let next = (leader(&sites, "farm") + 1) % 3;
    sites[0].place.run(["cluster", "lead", &sites[next].id(), "--group", "farm"]).ok();
    eventually("the host that was named leads", || group(&sites[next], "farm")["role"] == "leader");
    sites[0].place.run(["cluster", "prefer", "campus", "--group", "lab"]).ok();
    eventually("the preferred site leads", || group(&sites[0], "lab")["role"] == "leader");
    // Without work they rest, and what comes then is served as before.
    eventually("groups without work rest", || group(&sites[next], "farm")["resting"] == true);
    sites[(next + 1) % 3].publish_to("farm/raw", "after a rest");
    assert_eq!(records(&sites[next], "farm/raw").last().map(String::as_str), Some("after a rest"));
    eventually("it rests again", || group(&sites[next], "farm")["resting"] == true);
    sites[next].die();
    let others: Vec<usize> = (0..3).filter(|at| *at != next).collect();
    for topic in ["farm/raw", "lab/raw", "plain"] {
        sites[others[0]].publish_to(topic, "without it");
        assert_eq!(records(&sites[others[1]], topic).last().map(String::as_str), Some("without it"));
    }
    sites[next].live(None);
    for topic in ["farm/raw", "lab/raw", "plain"] {
        sites[next].publish_to(topic, "back");
        assert_eq!(records(&sites[next], topic), records(&sites[others[0]], topic));
    }
}

#[test]
fn a_host_outside_a_group_finds_its_topics_and_takes_the_place_of_one_that_leaves() {
    let mut sites: Vec<Site> = three().into();
    let secret = fs::read_to_string(sites[0].place.path().join("cluster.secret")).expect("the secret was written");
    let voters: Vec<String> = sites.iter().map(Site::id).collect();
    sites[0].place.run(["cluster", "group", "create", "farm", "--voters", &voters.join(",")]).ok();
    sites[0].topic(&["create", "t", "--group", "farm"]).ok();
    sites[0].publish_to("t", "early");
    let mut fourth = Site::new(Some(&secret));
    fourth.live(Some(&sites[0]));
    eventually("it knows of the group", || group(&fourth, "farm")["role"] == "absent");
    let listed = fourth.topic(&["ls"]).ok().objects();
    assert_eq!(
        (&listed[0]["topic"], &listed[0]["group"], &listed[0]["latest"]),
        (&"t".into(), &"farm".into(), &Value::Null)
    );
    assert_eq!(records(&fourth, "t"), ["early"]);
    assert_eq!(ids(&group(&sites[0], "farm")["voters"]), voters.iter().cloned().collect());
    // It follows from now on: it runs functions for the topic, and feeds it.
    fourth.place.write("keep.sh", "#!/bin/sh\ncat\n");
    let deploy = ["function", "deploy", "keep", "--runtime", "oneshot", "--code", "keep.sh", "--", "./keep.sh"];
    fourth.place.run(deploy).ok();
    fourth.topic(&["subscribe", "t", "keep"]).ok();
    sites[1].publish_to("t", "for the function");
    eventually("the function has run", || {
        let runs = fourth.place.run(["--json", "run", "ls", "--state", "done"]).ok().objects();
        runs.iter().any(|run| run["function"] == "keep")
    });
    // A host that leaves the cluster leaves its groups, and the fourth votes in its place.
    let lost = sites[2].id();
    sites[2].die();
    sites[0].place.run(["cluster", "rm", &lost]).ok();
    assert!(!ids(&group(&sites[0], "farm")["voters"]).contains(&lost), "it is told once the group does without it");
    let expected: BTreeSet<String> = [sites[0].id(), sites[1].id(), fourth.id()].into();
    eventually("the fourth host votes", || ids(&group(&fourth, "farm")["voters"]) == expected);
    sites[1].die();
    fourth.publish_to("t", "with the one that came");
    assert_eq!(records(&fourth, "t"), ["early", "for the function", "with the one that came"]);
}

#[test]
fn hosts_that_lose_their_vote_follow_and_the_last_voter_stays() {
    let mut sites = three();
    let voters: Vec<String> = sites.iter().map(Site::id).collect();
    sites[0].place.run(["cluster", "group", "create", "farm", "--voters", &voters.join(",")]).ok();
    sites[0].topic(&["create", "t", "--group", "farm"]).ok();
    sites[0].place.run(["cluster", "voters", "1", "--group", "farm"]).ok();
    eventually("one votes", || ids(&group(&sites[0], "farm")["voters"]) == [voters[0].clone()].into());
    for (at, site) in sites.iter().enumerate() {
        site.publish_to("t", &format!("through {at}"));
    }
    sites[2].live_again();
    assert_eq!(records(&sites[2], "t"), ["through 0", "through 1", "through 2"]);
    sites[1].place.run(["cluster", "rm", &voters[0]]).fails("MR7216", 1);
    // Three again, of which any may go.
    sites[1].place.run(["cluster", "voters", "3", "--group", "farm"]).ok();
    eventually("three vote", || ids(&group(&sites[1], "farm")["voters"]).len() == 3);
    eventually("it may go now", || sites[1].place.run(["cluster", "rm", &voters[0]]).code == 0);
    sites[1].publish_to("t", "without it");
    assert_eq!(records(&sites[2], "t").last().map(String::as_str), Some("without it"));
}

#[test]
fn commands_about_groups_say_what_is_wrong() {
    let mut first = Site::new(None);
    first.place.run(["cluster", "init"]).ok();
    first.live(None);
    let fails = |words: &[&str], code: &str, exit: i32| {
        first.place.run(words).fails(code, exit);
    };
    eventually("the host has announced itself", || {
        first.place.run(["cluster", "group", "create", "one", "--count", "1"]).code == 0
    });
    fails(&["cluster", "group", "create", "two", "--count", "2"], "MR1006", 2);
    fails(&["cluster", "group", "create", "main"], "MR7219", 1);
    fails(&["cluster", "group", "create", "one", "--count", "3"], "MR7219", 1);
    fails(&["cluster", "group", "create", "two", "--voters", "nobody"], "MR7216", 1);
    fails(&["cluster", "group", "create", "two", "--site", "main"], "MR7216", 1);
    fails(&["cluster", "group", "create", "two", "--site", "nowhere", "--count", "1"], "MR7216", 1);
    let near = ["cluster", "group", "create", "near", "--site", "main", "--count", "1"];
    assert_eq!(first.place.run(near).ok().text(), "created group near\n");
    assert_eq!(first.place.run(near).ok().text(), "group near already exists\n");
    let one = ["--json", "cluster", "group", "create", "one", "--count", "1"];
    assert_eq!(first.place.run(one).ok().object()["change"], "unchanged");
    fails(&["cluster", "group", "rm", "none"], "MR7218", 1);
    fails(&["cluster", "voters", "3", "--group", "none"], "MR7218", 1);
    fails(&["topic", "create", "t", "--group", "none"], "MR7218", 1);
    first.topic(&["create", "t", "--group", "one"]).ok();
    fails(&["topic", "create", "t"], "MR7203", 1);
    fails(&["cluster", "group", "rm", "one"], "MR7220", 1);
    first.place.run(["cluster", "group", "create", "gone", "--count", "1"]).ok();
    first.place.run(["cluster", "group", "rm", "gone"]).ok();
    // The leader has it on disk, and its index is not known yet; the next record has the next index.
    first.topic(&["create", "early", "--durability", "leader"]).ok();
    fails(&["topic", "create", "early"], "MR7203", 1);
    assert_eq!(first.place.run(["topic", "publish", "early", "a"]).ok().text(), "0\n");
    assert_eq!(first.place.run(["topic", "publish", "early", "b", "--durability", "quorum"]).ok().text(), "2\n");
    assert_eq!(first.place.run(["topic", "range", "early"]).ok().text(), "1  a\n2  b\n");
    let plan =
        ["cluster", "plan", "--host", "lab=99", "--host", "farm=99", "--host", "edge=99", "--host", "cloud=99.99"];
    let printed = first.place.run(plan).ok().text().to_owned();
    assert!(printed.contains("99.9699 %") && printed.contains("99.9898 %"), "{printed}");
    fails(&["cluster", "plan", "--host", "lab=101"], "MR1006", 2);
}

#[test]
fn hosts_have_the_labels_of_their_last_start_and_groups_are_placed_near_them() {
    let mut sites = three();
    let start = |site: &mut Site, labels: &[&str]| {
        site.die();
        let mut serve = site.serve(None);
        serve.args(labels.iter().flat_map(|label| ["--label", label]));
        site.host = Some(Host::start(serve));
    };
    let names: Vec<String> = sites.iter().map(Site::id).collect();
    // What every host says of this one.
    let are_known = |sites: &[Site], expected: &Value| {
        for site in sites {
            eventually("its labels are known", || {
                let hosts = site.cluster()["hosts"].clone();
                let found =
                    hosts.as_array().expect("hosts").iter().find(|host| host["host"] == names[1].as_str()).cloned();
                found.is_some_and(|host| host["labels"] == *expected)
            });
        }
    };
    start(&mut sites[1], &["zone=barn", "rack=2"]);
    are_known(&sites, &serde_json::json!({ "zone": "barn", "rack": "2" }));
    let printed = sites[0].place.run(["cluster", "ls"]).ok().text().to_owned();
    assert!(printed.contains("rack=2, zone=barn"), "{printed}");
    let create = |site: &Site, words: &[&str]| site.place.run(["cluster", "group", "create"].iter().chain(words));
    let voters = |name: &str| {
        let found = group(&sites[0], name)["voters"].clone();
        ids(&found)
    };
    create(&sites[0], &["barn", "--near", "zone=barn", "--count", "1"]).ok();
    create(&sites[2], &["mine", "--here", "--count", "1"]).ok();
    create(&sites[0], &["wide", "--near", "zone=barn"]).ok();
    create(&sites[0], &["none", "--near", "zone=mill"]).fails("MR7216", 1);
    eventually("the groups are known", || !group(&sites[0], "mine").is_null() && !group(&sites[0], "wide").is_null());
    assert_eq!((voters("barn"), voters("mine")), ([names[1].clone()].into(), [names[2].clone()].into()));
    assert_eq!(voters("wide").len(), 3);
    sites[0].topic(&["create", "hay", "--group", "barn"]).ok();
    sites[2].publish_to("hay", "dry");
    assert_eq!(records(&sites[0], "hay"), ["dry"]);
    start(&mut sites[1], &["zone=mill"]);
    are_known(&sites, &serde_json::json!({ "zone": "mill" }));
    start(&mut sites[1], &[]);
    are_known(&sites, &Value::Null);
    sites[1].die();
    assert_eq!(sites[1].place.run(["serve", "--listen", "127.0.0.1:0", "--label", "barn"]).code, 2, "no value");
}

/// Where a new topic was created.
fn placed(site: &Site, words: &[&str]) -> Vec<String> {
    let created = site.topic(&[&["create"], words].concat()).ok().objects();
    created.iter().map(|topic| topic["group"].as_str().expect("a group").to_owned()).collect()
}

#[test]
fn topics_are_created_in_groups_that_are_near_a_label_at_a_site_or_beside_another_topic() {
    let mut sites = three();
    let ids: Vec<String> = sites.iter().map(Site::id).collect();
    sites[1].die();
    let mut serve = sites[1].serve(None);
    serve.args(["--label", "zone=barn"]);
    sites[1].host = Some(Host::start(serve));
    eventually("its label is known", || sites[0].cluster().to_string().contains("barn"));
    let create = |site: &Site, words: &[&str]| site.place.run(["cluster", "group", "create"].iter().chain(words));
    let fails = |site: &Site, words: &[&str], code: &str, exit: i32| {
        let printed = site.place.run(["topic", "create"].iter().chain(words));
        printed.fails(code, exit).stderr.clone()
    };
    // The first host is at the campus, the others at the lab, so most voters of main are there.
    assert_eq!(placed(&sites[0], &["lab/raw", "--site", "lab"]), ["main"]);
    let missing = fails(&sites[2], &["t", "--site", "campus"], "MR7218", 1);
    assert!(missing.contains("millrace cluster group create NAME --site campus --count 1"), "{missing}");
    fails(&sites[2], &["t", "--site", "moon"], "MR7216", 1);
    fails(&sites[2], &["t", "--near", "zone=mill"], "MR7216", 1);
    fails(&sites[2], &["t", "--beside", "nothing"], "MR7202", 1);
    assert_eq!(sites[2].topic(&["create", "t", "--here", "--group", "main"]).code, 2, "one place is named");
    // The host that is asked knows a group as soon as it was created through another one.
    create(&sites[0], &["campus", "--site", "campus", "--count", "1"]).ok();
    assert_eq!(placed(&sites[2], &["campus/raw", "--site", "campus"]), ["campus"]);
    create(&sites[2], &["barn", "--near", "zone=barn", "--count", "1"]).ok();
    assert_eq!(placed(&sites[0], &["hay", "--near", "zone=barn"]), ["barn"]);
    // A topic beside another one, and one at the site of the host that is asked.
    assert_eq!(placed(&sites[2], &["straw", "grain", "--beside", "hay"]), ["barn", "barn"]);
    assert_eq!(placed(&sites[0], &["own", "--here"]), ["campus"]);
    assert_eq!(placed(&sites[1], &["own/too", "--here"]), ["barn"]);
    // Each at another site; the group with the fewest topics there.
    assert_eq!(placed(&sites[1], &["one", "two", "three", "--spread"]), ["campus", "main", "campus"]);
    // Repeated, they stay; at another place, they are others.
    assert_eq!(placed(&sites[0], &["two", "one", "three", "--spread"]), ["main", "campus", "campus"]);
    assert_eq!(placed(&sites[0], &["hay", "--site", "lab"]), ["barn"]);
    fails(&sites[0], &["hay", "--site", "campus"], "MR7203", 1);
    // A group is at the site that it prefers, if it prefers one.
    create(&sites[0], &["wide", "--voters", &ids.join(",")]).ok();
    sites[0].place.run(["cluster", "prefer", "campus", "--group", "wide"]).ok();
    eventually("it prefers the campus", || group(&sites[2], "wide")["preferred"] == "campus");
    assert_eq!(placed(&sites[2], &["four", "--spread"]), ["wide"]);
    for (topic, group) in [("lab/raw", "main"), ("hay", "barn"), ("own", "campus"), ("four", "wide")] {
        let listed = sites[0].topic(&["ls"]).ok().objects();
        let found = listed.into_iter().find(|listed| listed["topic"] == topic).expect("it is listed");
        assert_eq!(found["group"], group, "{topic}");
    }
    sites[2].publish_to("hay", "dry");
    assert_eq!(records(&sites[0], "hay"), ["dry"]);
}
