//! Topics of an application file, on three real hosts.

use super::{Site, three};
use millrace_tests::{Place, eventually};
use serde_json::Value;
use std::collections::BTreeSet;

const TOPICS: &str = r#"
[topics.raw]
history = 1000
[topics."farm/out"]
fed_by = ["out"]
[logs.out]
"#;

/// A function that appends what it gets to the log that feeds the topic.
fn function(name: &str, on: &str) -> String {
    format!("[functions.{name}]\nruntime = \"oneshot\"\ncode = \"pass.sh\"\ncommand = [\"./pass.sh\"]\non = [{on}]\n")
}

fn up(site: &Site, text: &str) -> millrace_tests::Ended {
    declare(site, text);
    site.place.run(["--json", "up"])
}

/// `up` is refused with this code.
fn refused(site: &Site, text: &str, code: &str) {
    declare(site, text);
    site.place.run(["up"]).fails(code, 1);
}

/// Writes the application and the program of its functions.
fn declare(site: &Site, text: &str) {
    site.place.write("pass.sh", "#!/bin/sh\nprintf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n");
    site.place.write("millrace.toml", text);
}

/// The steps of `up` and `down` as text: what, name and change.
fn steps(ended: &millrace_tests::Ended) -> BTreeSet<String> {
    let text = |step: &Value, key: &str| step[key].as_str().expect("text").to_owned();
    let line = |step: &Value| format!("{} {} {}", text(step, "what"), text(step, "name"), text(step, "change"));
    ended.objects().iter().map(line).collect()
}

fn has(steps: &BTreeSet<String>, expected: &[&str]) {
    for step in expected {
        assert!(steps.contains(*step), "{step:?} is missing: {steps:?}");
    }
}

/// The functions that run for a topic, and the logs that feed it.
fn bound(site: &Site, name: &str) -> (usize, usize) {
    let all = site.topic(&["ls"]).ok().objects();
    let topic = all.into_iter().find(|topic| topic["topic"] == name).expect("the topic is there");
    let count = |key: &str| topic[key].as_array().expect("a list").len();
    (count("subscriptions"), count("feeds"))
}

#[test]
fn an_application_creates_topics_and_its_functions_run_for_them() {
    let sites = three();
    let text = format!("{TOPICS}{}", function("pass", "\"topic:raw\""));
    sites[1].place.write("millrace.toml", &text);
    let planned = up(&sites[1], &text).ok();
    let expected = [
        "topic raw created",
        "topic farm/out created",
        "log out created",
        "function pass created",
        "subscription pass to raw created",
        "feed out to farm/out created",
    ];
    has(&steps(&planned), &expected);
    sites[0].publish_to("raw", "21.5");
    eventually("the function has published", || {
        let ended = sites[2].topic(&["get", "farm/out"]);
        ended.code == 0 && ended.object()["data"] == "21.5"
    });
    // The same again changes nothing.
    let again = steps(&up(&sites[1], &text).ok());
    assert!(again.iter().all(|step| step.ends_with(" unchanged")), "{again:?}");
    // A function that runs for another topic no longer runs for this one.
    sites[0].topic(&["create", "other"]).ok();
    let text = format!("{TOPICS}{}", function("pass", "\"topic:other\""));
    sites[1].place.write("millrace.toml", &text);
    let plan = sites[1].place.run(["--json", "up", "--dry-run"]).ok();
    let moved = ["subscription pass to other created", "subscription pass to raw removed", "topic raw unchanged"];
    has(&steps(&plan), &moved);
    assert_eq!(bound(&sites[1], "raw").0, 1, "nothing was done");
    has(&steps(&up(&sites[1], &text).ok()), &moved);
    assert_eq!((bound(&sites[1], "raw").0, bound(&sites[1], "other").0), (0, 1));
    // What is there with other settings, or is not there, is refused before anything is changed.
    let other = TOPICS.replace("1000", "5");
    refused(&sites[1], &format!("{other}{}", function("pass", "")), "MR7203");
    refused(&sites[1], &format!("{TOPICS}{}", function("pass", "\"topic:nowhere\"")), "MR7202");
    assert_eq!(bound(&sites[1], "other").0, 1);
    // A function that the file no longer names goes with its subscriptions; so does everything but the topics.
    let gone = up(&sites[1], &format!("{TOPICS}{}", function("next", "\"topic:raw\""))).ok();
    has(&steps(&gone), &["function pass removed", "subscription pass to other removed"]);
    let down = sites[1].place.run(["--json", "down"]).ok();
    let ended = ["function next removed", "subscription next to raw removed", "feed out to farm/out removed"];
    has(&steps(&down), &ended);
    assert_eq!((bound(&sites[1], "raw"), bound(&sites[1], "farm/out")), ((0, 0), (0, 0)));
}

#[test]
fn topics_of_an_application_need_a_host_of_a_cluster() {
    let empty = Place::empty();
    empty.write("millrace.toml", TOPICS);
    empty.run(["up"]).fails("MR7221", 1);
    empty.run(["dev", "--listen", "none"]).fails("MR7221", 1);
    assert!(!empty.namespace().exists(), "nothing was created");
    let mut site = Site::new(None);
    refused(&site, TOPICS, "MR7221");
    site.live(None);
    refused(&site, TOPICS, "MR7209");
    site.die();
    site.place.run(["cluster", "init"]).ok();
    site.live(None);
    eventually("it leads", || up(&site, TOPICS).code == 0);
    site.die();
    site.place.run(["down"]).fails("MR7221", 1);
}
