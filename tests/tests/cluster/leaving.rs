//! What stays of a host that was removed from the cluster.

use super::{Site, leader, three};
use millrace_tests::eventually;

/// The hosts whose functions run for a topic, and those whose logs feed it.
fn hosts_of(at: &Site, topic: &str) -> Vec<String> {
    let all = at.topic(&["ls"]).ok().objects();
    let known = all.into_iter().find(|known| known["topic"] == topic).expect("the topic is known");
    let of = |what: &str| known[what].as_array().expect("a list").clone();
    let hosts = of("subscriptions").into_iter().chain(of("feeds"));
    hosts.map(|known| known["host"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_host_that_was_removed_leaves_no_subscription_and_no_feed_and_refuses_requests() {
    let sites = three();
    let leads = leader(&sites);
    let (stays, goes) = (&sites[leads], &sites[(leads + 1) % 3]);
    stays.place.run(["cluster", "group", "create", "farm"]).ok();
    stays.topic(&["create", "env/raw"]).ok();
    stays.topic(&["create", "soil", "--group", "farm"]).ok();
    for site in [stays, goes] {
        site.place.write("keep.sh", "#!/bin/sh\ncat\n");
        site.place.run("function deploy keep --runtime oneshot --code keep.sh -- ./keep.sh".split(' ')).ok();
        site.place.run(["log", "create", "raw"]).ok();
        for topic in ["env/raw", "soil"] {
            site.topic(&["subscribe", topic, "keep"]).ok();
            site.topic(&["feed", "raw", topic]).ok();
        }
    }
    goes.place.run(["topic", "publish", "soil", "early"]).ok();
    assert_eq!(goes.place.run(["topic", "get", "soil", "1"]).ok().text().trim(), "early");
    let (own, gone) = (stays.id(), goes.id());
    // Nobody else ends what a host of the cluster has subscribed.
    assert!(hosts_of(stays, "soil").contains(&gone));
    stays.place.run(["cluster", "rm", &gone]).ok();
    for topic in ["env/raw", "soil"] {
        eventually("nothing of it is left", || hosts_of(stays, topic) == [own.clone(), own.clone()]);
    }
    eventually("it knows that it was removed", || {
        goes.place.run(["cluster", "why"]).ok().text().contains("not in the cluster")
    });
    for durability in ["quorum", "local"] {
        goes.place.run(["topic", "publish", "soil", "x", "--durability", durability]).fails("MR7216", 1);
    }
    // It still has the record, but no longer hears what becomes of the topic.
    for index in [&["1"][..], &[]] {
        goes.place.run(["topic", "get", "soil"].iter().chain(index)).fails("MR7216", 1);
    }
    assert_eq!(stays.place.run(["topic", "get", "soil", "1"]).ok().text().trim(), "early");
}

#[test]
fn a_host_that_was_down_when_it_was_removed_is_told_so() {
    let mut sites = three();
    let leads = leader(&sites);
    let goes = (leads + 1) % 3;
    sites[leads].topic(&["create", "soil"]).ok();
    let gone = sites[goes].id();
    sites[goes].die();
    sites[leads].place.run(["cluster", "rm", &gone]).ok();
    sites[goes].live(None);
    eventually("it knows that it was removed", || {
        sites[goes].place.run(["cluster", "why"]).ok().text().contains("this host was removed from the cluster")
    });
    sites[goes].place.run(["topic", "publish", "soil", "x"]).fails("MR7216", 1);
    sites[goes].place.run(["topic", "get", "soil", "1"]).fails("MR7216", 1);
    let stays = sites[leads].place.run(["topic", "publish", "soil", "x"]).ok();
    assert_eq!(stays.text().trim(), "1");
}

#[test]
fn every_host_reports_a_voter_that_is_down() {
    let mut sites = three();
    let leads = leader(&sites);
    let (down, follows) = ((leads + 1) % 3, (leads + 2) % 3);
    let address = format!("127.0.0.1:{}", sites[down].port);
    sites[down].die();
    for site in [&sites[leads], &sites[follows]] {
        eventually("it says that the host is down", || {
            let why = site.place.run(["cluster", "why"]).ok().text().to_owned();
            why.lines().any(|line| line.contains("cannot reach host") && line.contains(&address))
        });
    }
    sites[down].live(None);
    for site in &sites {
        eventually("it says no more", || site.place.run(["cluster", "why"]).ok().text().contains("no problems found"));
    }
}
