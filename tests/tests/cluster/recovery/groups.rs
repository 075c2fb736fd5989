//! Groups whose only voter is lost, in a cluster that goes on.

use super::{destroy, run_printed};
use crate::{leader, three};
use millrace_tests::eventually;

#[test]
fn a_lost_host_that_is_the_only_voter_of_a_group_is_removed_with_the_group() {
    let mut sites = three();
    let stays = leader(&sites);
    let (goes, other) = ((stays + 1) % 3, (stays + 2) % 3);
    let gone = sites[goes].id();
    for group in ["farm", "barn"] {
        sites[stays].place.run(["cluster", "group", "create", group, "--voters", &gone]).ok();
    }
    sites[goes].topic(&["create", "soil", "--group", "farm"]).ok();
    let answers = sites[stays].place.run(["cluster", "rm", &gone, "--lose", "farm"]).fails("MR7253", 1).stderr;
    assert!(answers.contains("group 'farm' has a leader"), "{answers}");
    destroy(&mut sites[goes]);
    let host = &sites[other];
    // Nothing is promised of a group that decides nothing, and nothing is created in it.
    host.place.run(["cluster", "voters", "3", "--group", "farm"]).fails("MR7208", 75);
    host.place.run(["cluster", "prefer", "lab", "--group", "farm"]).fails("MR7208", 75);
    host.place.run(["cluster", "rm", &gone, "--lose", "main"]).fails("MR7220", 1);
    host.place.run(["cluster", "rm", &gone, "--lose", "none"]).fails("MR7218", 1);
    let stderr = host.place.run(["cluster", "rm", &gone]).fails("MR7216", 1).stderr;
    assert!(stderr.contains("is the only voter of group 'barn'"), "{stderr}");
    run_printed(host, &stderr.replace("--lose barn", "--lose barn --lose farm"), "millrace cluster rm ", &[]);
    let hosts = host.cluster()["hosts"].clone();
    assert_eq!(hosts.as_array().map(Vec::len), Some(2), "{hosts}");
    eventually("every host knows that the groups are gone", || {
        [stays, other].iter().all(|at| {
            let groups = sites[*at].place.run(["--json", "cluster", "groups"]).ok().objects();
            groups.iter().all(|group| group["group"] == "main")
        })
    });
    // The names are free.
    sites[stays].place.run(["topic", "get", "soil"]).fails("MR7202", 1);
    sites[stays].topic(&["create", "soil"]).ok();
}

#[test]
fn topics_at_a_site_are_not_created_in_a_group_that_does_not_answer() {
    let [first, mut second, _third] = three();
    let gone = second.id();
    first.place.run(["cluster", "group", "create", "farm", "--voters", &gone]).ok();
    let group_of = |topic: &str| {
        first.topic(&["create", topic, "--site", "lab"]).ok();
        let topics = first.topic(&["ls"]).ok().objects();
        topics.iter().find(|known| known["topic"] == topic).map(|known| known["group"].clone())
    };
    assert_eq!(group_of("before"), Some("farm".into()));
    destroy(&mut second);
    eventually("the host is known to be down", || super::why(&first).contains("cannot reach host"));
    // Of the two hosts there, the other one is chosen.
    first.place.run(["cluster", "group", "create", "other", "--site", "lab", "--count", "1"]).ok();
    assert_eq!(group_of("after"), Some("other".into()));
}
