//! `trace`, `graph` and `repair plan`: what caused what, from directories and hosts, one namespace and several.

mod hosts;

use millrace_tests::{Place, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// Means of two neighbours; an alarm for those above 30, which most records do not raise; and a function that may use the network.
const FUNCTIONS: &str = "\
def mean(record, ctx):
    values = [float(record.data)]
    if record.seqno > 1:
        values.append(float(ctx.get('raw', record.seqno - 1).data))
    ctx.append('mean', str(sum(values) / len(values)))

def alarm(record, ctx):
    if float(record.data) > 30:
        ctx.append('alerts', record.data)

def notify(record, ctx):
    pass
";

fn application(options: &str) -> String {
    let function = |name: &str, on: &str, more: &str| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:{name}\"\non = [\"{on}\"]\n{more}\n"
        )
    };
    format!(
        "[namespace]\nsegment_size = \"1MiB\"\n{options}\n[logs.raw]\n[logs.mean]\n[logs.alerts]\n[logs.other]\n{}{}{}",
        function("mean", "raw", ""),
        function("alarm", "mean", ""),
        function("notify", "alerts", "network = true"),
    )
}

/// A namespace whose means are 20, 30, 35, 20 and whose only alert is 35.
fn measured(options: &str) -> Place {
    let place = Place::empty();
    place.write("f.py", FUNCTIONS);
    place.write("millrace.toml", &application(options));
    place.run(["up"]).ok();
    place.feed(["log", "append", "raw", "--lines"], b"20\n40\n30\n10\n").ok();
    place.run(["log", "append", "other", "1"]).ok();
    let host = place.serve();
    place.idle();
    drop(host);
    assert_eq!(place.records("mean"), ["20.0", "30.0", "35.0", "20.0"]);
    place
}

fn json(place: &Place, args: &[&str]) -> Value {
    place.run([&["--json"], args].concat()).ok().object()
}

/// Every record and run of a tree, as `log@seqno` or the function's name, each with how it hangs on what is above.
fn flat(branch: &Value) -> Vec<String> {
    let name = match &branch["run"] {
        Value::Null => format!("{}@{}", branch["record"]["log"].as_str().unwrap(), branch["record"]["seqno"]),
        run => run["function"].as_str().unwrap().to_owned(),
    };
    let link = branch["link"].as_str().unwrap_or("root");
    let below = branch["below"].as_array().unwrap().iter().flat_map(flat);
    std::iter::once(format!("{link} {name}")).chain(below).collect()
}

/// All files of a directory with their bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                files.insert(entry.path().display().to_string(), fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[test]
fn a_trace_shows_what_a_record_caused_and_what_it_came_from() {
    let place = measured("");
    let down = json(&place, &["trace", "raw@2"]);
    let expected = [
        "root raw@2",
        "triggered mean",
        "appended mean@2",
        "triggered alarm",
        "read mean",
        "appended mean@3",
        "triggered alarm",
        "appended alerts@1",
        "triggered notify",
    ];
    assert_eq!(flat(&down["root"]), expected);
    assert_eq!((&down["records"], &down["runs"], &down["unknown"]), (&json!(4), &json!(5), &json!(0)));
    let up = json(&place, &["trace", "--up", "alerts@1"]);
    let expected =
        ["root alerts@1", "appended alarm", "triggered mean@3", "appended mean", "triggered raw@3", "read raw@2"];
    assert_eq!(flat(&up["root"]), expected);

    // A run is named by its id, and by that of any of its entries.
    let run = &down["root"]["below"][0];
    let id = run["id"].as_str().unwrap();
    assert_eq!(flat(&json(&place, &["trace", id])["root"])[..2], ["root mean", "appended mean@2"]);
    assert_eq!(run["run"]["state"], "done");
    let text = place.run(["trace", "raw@2"]).ok();
    for expected in
        ["raw@2  20", "├─ run of mean  +", "└─ alerts@1", "read by run of mean", "35.0", "4 records, 5 runs"]
    {
        assert!(text.text().contains(expected), "{expected} is not in\n{}", text.text());
    }
    let newest = place.run(["trace", "raw"]).ok();
    assert!(newest.text().starts_with("raw@4"), "{}", newest.text());

    // What is left out is counted.
    let bounded = json(&place, &["trace", "raw@2", "--limit", "3"]);
    assert_eq!(flat(&bounded["root"]).len(), 3);
    let more = |branch: &Value| branch["more"].as_u64().unwrap();
    fn sum(branch: &Value, more: &dyn Fn(&Value) -> u64) -> u64 {
        more(branch) + branch["below"].as_array().unwrap().iter().map(|branch| sum(branch, more)).sum::<u64>()
    }
    assert_eq!(sum(&bounded["root"], &more), 6);
    assert!(place.run(["trace", "raw@2", "--limit", "3"]).ok().text().contains("and 5 more"));

    for (target, code, exit) in
        [("raw@9", "MR7001", 1), ("none@1", "MR2101", 1), ("raw@0", "MR1003", 2), ("1-0-1", "MR7001", 1)]
    {
        place.run(["trace", target]).fails(code, exit);
    }
    let said = place.run(["trace", "none@1"]).fails("MR2101", 1);
    assert!(said.stderr.contains("no log 'none'"), "{}", said.stderr);
}

#[test]
fn a_graph_counts_what_flows() {
    let place = measured("");
    let graph = json(&place, &["graph"]);
    let nodes = graph["nodes"].as_array().unwrap();
    let node = |name: &str, kind: &str| {
        let found = nodes.iter().position(|node| node["name"] == name && node["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} {name} in {graph}"))
    };
    let edge = |from: usize, to: usize, flow: &str| {
        let mut edges = graph["edges"].as_array().unwrap().iter();
        let found = edges.find(|edge| edge["from"] == from && edge["to"] == to && edge["flow"] == flow);
        found.map_or(0, |edge| edge["count"].as_u64().unwrap())
    };
    let (outside, raw, mean) = (node("outside", "outside"), node("raw", "log"), node("mean", "function"));
    assert_eq!((edge(outside, raw, "appends"), edge(raw, mean, "triggers"), edge(raw, mean, "reads")), (4, 4, 3));
    assert_eq!(edge(node("alarm", "function"), node("alerts", "log"), "appends"), 1);
    assert_eq!(
        (&nodes[mean]["runs"], &nodes[mean]["done"], &nodes[mean]["took"]["count"]),
        (&json!(4), &json!(4), &json!(4))
    );

    let text = place.run(["graph"]).ok();
    assert!(text.text().contains("mean") && text.text().contains("raw"), "{}", text.text());
    for name in ["g.svg", "g.dot", "g.json"] {
        place.run(["graph", "-o", name]).ok();
        assert!(fs::read_to_string(place.path().join(name)).unwrap().contains("alerts"), "{name}");
    }
    assert_eq!(
        place.run(["graph", "--format", "svg"]).ok().text(),
        fs::read_to_string(place.path().join("g.svg")).unwrap()
    );
    place.run(["graph", "-o", "g.png"]).fails("MR1006", 2);
    let none = place.run(["graph", "--since", "0s"]).ok();
    assert!(none.text().contains("no events in that time"), "{}", none.text());
}

#[test]
fn a_plan_names_what_a_correction_reaches_and_changes_nothing() {
    let place = measured("");
    let before = files(&place.namespace());
    place.write("values.csv", "seqno,value\n1,20\n2,99\n");
    let plan = json(&place, &["repair", "plan", "raw", "--values", "values.csv"]);
    assert_eq!((&plan["corrects"]["records"], &plan["corrects"]["equal"]), (&json!(1), &json!(1)));
    let replays: Vec<(&str, u64, &str)> = plan["replays"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            (group["function"].as_str().unwrap(), group["runs"].as_u64().unwrap(), group["reason"].as_str().unwrap())
        })
        .collect();
    // The run of alarm for mean@2 appended nothing; with another value it may.
    let mut expected =
        vec![("mean", 1, "record-corrected"), ("mean", 1, "read-corrected"), ("alarm", 2, "record-rewritten")];
    expected.sort();
    let mut sorted = replays;
    sorted.sort();
    assert_eq!(sorted, expected);
    let mut rewrites: Vec<(&str, u64)> = plan["rewrites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| (log["log"].as_str().unwrap(), log["records"].as_u64().unwrap()))
        .collect();
    rewrites.sort();
    assert_eq!(rewrites, [("alerts", 1), ("mean", 2)]);
    assert_eq!(plan["not_run"], json!([{ "function": "notify", "runs": 1, "reason": "external" }]));
    assert_eq!((&plan["stops"], &plan["effects"]), (&json!(false), &json!([])));
    assert_eq!(plan["complete"], true);
    let plan = json(&place, &["repair", "plan", "raw", "--values", "values.csv", "--run-external", "notify"]);
    assert_eq!((&plan["not_run"], &plan["effects"]), (&json!([]), &json!([{ "function": "notify", "runs": 1 }])));

    let text = place.run(["repair", "plan", "raw", "--at", "2", "--values", "-"]);
    text.fails("MR7003", 2);
    let text = place.feed(["repair", "plan", "raw", "--at", "2", "--values", "-"], b"value\n99\n").ok();
    for expected in
        ["Nothing was changed", "1 record  @2..2", "triggered by corrected raw@2", "read corrected raw@2", "notify"]
    {
        assert!(text.text().contains(expected), "{expected} is not in\n{}", text.text());
    }
    let equal = place.feed(["repair", "plan", "raw", "--values", "-"], b"{\"seqno\":1,\"value\":\"20\"}").ok();
    assert!(equal.text().contains("nothing: the value equals the recorded one"), "{}", equal.text());

    // Other code reaches the runs since an event, and what they wrote.
    let plan = json(&place, &["repair", "plan", "--function", "mean=f.py", "--since", "raw@4"]);
    let code = plan["replays"].as_array().unwrap().iter().find(|group| group["reason"] == "code").unwrap();
    assert_eq!((&code["runs"], &code["function"]), (&json!(4), &json!("mean")), "{plan}");
    let all = json(&place, &["repair", "plan", "--function", "alarm=f.py"]);
    assert_eq!((&all["replays"][0]["runs"], &all["replays"][0]["function"]), (&json!(4), &json!("alarm")));

    // The picture has what the plan reaches in colour, and the rest behind.
    for (file, words) in [
        ("plan.svg", ["1 record corrected", "runs replayed", "class=\"behind\""]),
        ("plan.dot", ["1 record corrected", "runs replayed", "digraph"]),
    ] {
        place.run(["repair", "plan", "raw", "--values", "values.csv", "-o", file]).ok();
        let picture = std::fs::read_to_string(place.path().join(file)).expect("the picture was written");
        assert!(words.iter().all(|word| picture.contains(word)), "{picture}");
    }
    for (args, code, exit) in [
        (&["raw", "--at", "5"][..], "MR2105", 1),
        (&["none", "--at", "1"], "MR2101", 1),
        (&["_keys", "--at", "1"], "MR6022", 1),
        (&["raw", "--at", "0"], "MR1003", 2),
        (&["--function", "none=f.py"], "MR3001", 1),
        (&["--function", "mean=missing.py"], "MR4010", 1),
        (&["raw", "--values", "missing.csv"], "MR4010", 1),
        (&["raw", "--at", "1", "-o", "plan.pdf"], "MR1006", 2),
        (&["raw", "--at", "1", "--run-external", "none"], "MR3001", 1),
    ] {
        place.run([&["repair", "plan"], args].concat()).fails(code, exit);
    }
    assert_eq!(files(&place.namespace()), before, "a plan changes nothing");
}

#[test]
fn a_host_says_the_same_as_the_files() {
    let place = measured("");
    let commands = [
        &["trace", "raw@2"][..],
        &["trace", "--up", "alerts@1"],
        &["graph"],
        &["repair", "plan", "raw", "--at", "2..3"],
    ];
    let here: Vec<Value> = commands.iter().map(|args| json(&place, args)).collect();
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    for (args, here) in commands.iter().zip(here) {
        let mut there = json(&place, &[&["-n", &*address], *args].concat());
        let mut expected = json(&place, args);
        for value in [&mut there, &mut expected] {
            if let Value::Object(estimate) = &mut value["estimate"] {
                estimate.remove("pinned_bytes");
            }
            if let Value::Object(top) = value {
                for changes in ["estimate", "to", "seconds", "events"] {
                    top.remove(changes);
                }
                for node in top.get_mut("nodes").and_then(Value::as_array_mut).into_iter().flatten() {
                    node.as_object_mut().unwrap().remove("namespace");
                }
            }
        }
        assert_eq!(there, expected, "{args:?}");
        if args[0] == "trace" {
            assert_eq!(there, here, "{args:?}");
        }
    }
}

#[test]
fn journals_of_two_namespaces_join_whether_hosts_or_copies() {
    let cloud = Place::empty();
    cloud.write("f.py", FUNCTIONS);
    cloud.write("millrace.toml", &application(""));
    cloud.run(["up"]).ok();
    let there = cloud.serve_tcp(["--name", "cloud"]);
    let address = format!("mr://127.0.0.1:{}/cloud", there.port());
    let edge = Place::new();
    edge.run(["log", "create", "sensor"]).ok();
    edge.run(["relay", "add", "sensor", &format!("{address}/raw")]).ok();
    let here = edge.serve();
    edge.feed(["log", "append", "sensor", "--lines"], b"40\n50\n").ok();
    eventually("the relay has brought both records", || cloud.records("raw").len() == 2);
    cloud.idle();

    let traced = |with: &str| json(&edge, &["trace", "sensor@1", "--with", with]);
    let live = traced(&address);
    let all = flat(&live["root"]);
    assert_eq!(all[..3], ["root sensor@1", "forwarded raw@1", "triggered mean"], "{all:?}");
    assert!(all.contains(&"appended alerts@1".to_string()), "{all:?}");
    let up = json(&cloud, &["trace", "--up", "alerts@1", "--with", edge.namespace().to_str().unwrap()]);
    assert_eq!(flat(&up["root"]).last().unwrap(), "forwarded sensor@1");
    let alone = json(&cloud, &["trace", "--up", "alerts@1"]);
    assert_eq!((flat(&alone["root"]).last().unwrap().as_str(), &alone["unknown"]), ("triggered raw@1", &json!(1)));

    let plan = json(&edge, &["repair", "plan", "sensor", "--at", "1", "--with", &address]);
    let replayed: Vec<&str> =
        plan["replays"].as_array().unwrap().iter().map(|group| group["function"].as_str().unwrap()).collect();
    assert!(replayed.contains(&"cloud:mean"), "{plan}");

    // Both machines are gone: copies of their directories tell the same, and stay as they are.
    drop((there, here));
    let before = files(&cloud.namespace());
    let dead = traced(cloud.namespace().to_str().unwrap());
    assert_eq!(dead, live);
    assert_eq!(files(&cloud.namespace()), before, "a journal that is only looked at does not change");
    let copy = cloud.namespace().display().to_string();
    let twice = ["graph", "--with", &copy, "--with", &copy];
    let graph = json(&edge, &twice);
    let raw = graph["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "raw" && node["kind"] == "log");
    assert_eq!(raw.unwrap()["records"], 2, "what two journals have counts once");
}

#[test]
fn a_wrapped_journal_says_what_it_cannot_tell() {
    let place = measured("retain_bytes = \"1MiB\"");
    place.run(["log", "create", "much", "--history", "4"]).ok();
    let lines = "x".repeat(100_000) + "\n";
    let host = place.serve();
    for _ in 0..12 {
        place.feed(["log", "append", "much", "--lines", "--quiet"], lines.repeat(8).as_bytes()).ok();
    }
    let host = host;
    eventually("retention has dropped the first segment", || {
        json(&place, &["graph"])["limits"]
            .as_array()
            .unwrap()
            .iter()
            .any(|limit| limit.as_str().unwrap().contains("goes back to"))
    });
    drop(host);
    // The records were carried; the runs that read them were not.
    assert_eq!(place.records("raw").len(), 4);
    let text = place.run(["trace", "raw@2"]).ok();
    assert!(text.text().contains("earlier events are not known"), "{}", text.text());
    let said = place.run(["repair", "plan", "raw", "--at", "2"]).fails("MR7005", 1);
    assert!(said.stderr.contains("are not known"), "{}", said.stderr);
    let plan = json(&place, &["repair", "plan", "raw", "--at", "2", "--accept-unknown"]);
    assert_eq!(plan["complete"], false);
    place.run(["repair", "plan", "much", "--at", "1"]).fails("MR7004", 1);
}

/// `alarm` with a lower limit: 30 and 35 exceed it, and one alert stood there.
fn lower_limit(place: &Place) {
    place.write("fixed/f.py", &FUNCTIONS.replace("> 30", "> 25"));
}

#[test]
fn past_runs_are_replayed_with_other_code_where_the_files_are() {
    let place = measured("");
    lower_limit(&place);
    let code = ["repair", "run", "--function", "alarm=fixed/f.py"];
    place.run(code).fails("MR7010", 1);
    let stopped = json(&place, &["repair", "show", "1"]);
    assert_eq!((&stopped["phase"], &stopped["function"]), (&json!("stopped"), &json!("alarm")));
    place.run(["repair", "abandon", "1"]).ok();
    let ready = json(&place, &[&code[..], &["--append-new", "--since", "raw@1", "--reason", "limit"]].concat());
    assert_eq!(
        (&ready["phase"], &ready["counts"]["replayed"], &ready["counts"]["appended"]),
        (&json!("ready"), &json!(4), &json!(1))
    );
    let number = ready["repair"].to_string();
    let diff = place.run(["--json", "repair", "diff", &number]).ok().objects();
    assert_eq!(diff, [json!({ "log": "alerts", "seqno": null, "new": { "data": "30.0" } })]);
    assert_eq!(place.records("alerts"), ["35.0"], "nobody sees anything of it yet");
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    place.run([&["-n", &*address], &code[..]].concat()).fails("MR7013", 2);
    place.run(["-n", &*address, "repair", "apply", &number]).ok();
    assert_eq!(place.records("alerts"), ["35.0", "30.0"]);
    place.run(["repair", "rollback", &number]).ok();
    assert_eq!(place.run(["--json", "log", "get", "alerts", "--all"]).ok().objects().len(), 1);
    for odd in ["alarm", "alarm="] {
        place.run(["repair", "run", "--function", odd]).fails("MR7003", 2);
    }
    place.run(["repair", "run", "--function", "alarm=none.py"]).fails("MR4010", 1);
    place.run(["repair", "run", "--function", "nobody=f.py"]).fails("MR3001", 1);
}

#[test]
fn a_trace_shows_what_a_repair_put_there_and_a_plan_verifies_functions() {
    let place = measured("");
    let verified = json(&place, &["repair", "plan", "raw", "--at", "2", "--verify", "2"])["verified"].take();
    let same = |name: &str, runs: u64| json!({ "function": name, "runs": runs, "same": runs, "differs": null });
    assert_eq!(verified, json!([same("alarm", 2), same("mean", 2)]));
    place.feed(["repair", "run", "raw", "--values", "-"], b"{\"seqno\": 4, \"value\": \"12\"}").ok();
    place.run(["repair", "apply", "1"]).ok();
    let trace = json(&place, &["trace", "raw@4"]);
    assert!(trace.to_string().contains("\"12\"") && trace.to_string().contains("\"21.0\""), "{trace}");
    let plan = place.feed(["--json", "repair", "plan", "raw", "--values", "-"], b"{\"seqno\": 4, \"value\": \"12\"}");
    assert_eq!(plan.ok().object()["corrects"]["equal"], json!(1), "it is right by now");
}

#[test]
fn the_repaired_history_is_shown_with_its_repair_and_the_original_beside_it() {
    let place = measured("");
    let before = [json(&place, &["trace", "raw@4"]), json(&place, &["graph"])];
    place.feed(["repair", "run", "raw", "--values", "-"], b"{\"seqno\": 4, \"value\": \"12\"}").ok();
    assert_eq!(json(&place, &["trace", "raw@4"]), before[0], "nobody sees anything of it yet");
    place.run(["repair", "apply", "1"]).ok();
    let text = place.run(["trace", "raw@4"]).ok();
    for expected in ["12  (repair 1; was 10)", "21.0  (repair 1; was 20.0)", "replayed by repair 1"] {
        assert!(text.text().contains(expected), "{expected} is not in\n{}", text.text());
    }
    let trace = json(&place, &["trace", "raw@4"]);
    let record = &trace["root"]["record"];
    assert_eq!(record["repaired"], json!({ "repair": 1, "void": false, "original": { "bytes": 2, "data": "10" } }));
    assert_eq!(trace["root"]["below"][0]["run"]["replayed_by"], 1);
    let said = place.run(["graph"]).ok();
    assert!(said.text().contains("after repair 1: 2 runs replayed, 2 records replaced"), "{}", said.text());
    let original = json(&place, &["trace", "raw@4", "--original"]);
    assert_eq!(original["root"]["below"], before[0]["root"]["below"]);
    let nodes = |graph: &Value| graph["nodes"].as_array().unwrap().iter().filter(|node| node["name"] == "mean").count();
    let graph = json(&place, &["graph", "--original"]);
    assert_eq!((nodes(&graph), &graph["repairs"]), (nodes(&before[1]), &json!([])));

    // A host says the same, and a rollback takes it back.
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    assert_eq!(json(&place, &["-n", &address, "trace", "raw@4"]), json(&place, &["trace", "raw@4"]));
    let repairs = json(&place, &["-n", &address, "graph"])["repairs"].take();
    let extent = (&repairs[0]["repair"], &repairs[0]["runs"], &repairs[0]["records"], &repairs[0]["void"]);
    assert_eq!(extent, (&json!(1), &json!(2), &json!(2), &json!(0)));
    place.run(["repair", "rollback", "1"]).ok();
    let text = place.run(["-n", &address, "trace", "raw@4"]).ok();
    assert!(text.text().starts_with("raw@4  20") && !text.text().contains("was 10"), "{}", text.text());
    assert!(json(&place, &["trace", "raw@4"])["root"]["record"]["data"] == "10");
}

#[test]
fn records_are_corrected_by_the_time_of_the_observation() {
    let place = Place::new();
    place.run(["log", "create", "late", "--time", "/at"]).ok();
    // The first two hours of a day arrived last.
    let records = ["2026-11-03T02:00:00Z", "2026-11-03T03:00:00Z", "2026-11-03T00:00:00Z", "2026-11-03T01:00:00Z", "x"];
    for at in records {
        place.run(["log", "append", "late", &format!("{{\"at\":\"{at}\"}}")]).ok();
    }
    let named = |of: &[&str], at: &str| {
        let plan = place.run([of, &["--json", "repair", "plan", "late", "--at", at]].concat()).ok().object();
        (plan["corrects"]["records"].clone(), plan["corrects"]["range"].clone())
    };
    let early = "2026-11-03T00:30:00Z..2026-11-03T02:00:00Z";
    assert_eq!(named(&[], early), (json!(2), json!([1, 4])));
    assert_eq!(named(&[], "..2026-11-03T00:00:00Z"), (json!(1), json!([3, 3])));
    // The last has no time there, and was appended in the time in which this test runs.
    let today = place.run(["--json", "log", "get", "late", "5"]).ok().object()["time"].as_str().unwrap().to_owned();
    assert_eq!(named(&[], &format!("{today}..{today}")), (json!(1), json!([5, 5])));
    let refused = place.run(["repair", "plan", "late", "--at", "2001-01-01T00:00:00Z..2001-01-02T00:00:00Z"]);
    let said = refused.fails("MR7003", 2).stderr;
    assert!(said.contains("2026-11-03T00:00:00.000000Z"), "{said}");
    place.run(["repair", "plan", "late", "--at", "2113-01-01T00:00:00Z.."]).fails("MR7003", 2);
    let wanted = place.feed(["repair", "plan", "late", "--at", early, "--values", "-"], b"value\n1\n");
    assert!(wanted.fails("MR7003", 2).stderr.contains("1 values for the 2 records 1..4"));

    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    assert_eq!(named(&["-n", &address], early), (json!(2), json!([1, 4])));
    place.feed(["repair", "run", "late", "--at", early, "--values", "-"], b"value\ntwo\none\n").ok();
    place.run(["repair", "apply", "1"]).ok();
    let third = format!("{{\"at\":\"{}\"}}", records[2]);
    assert_eq!(
        place.records("late")[..4],
        ["two".into(), format!("{{\"at\":\"{}\"}}", records[1]), third, "one".into()]
    );
}

#[test]
fn a_source_amends_records_and_the_host_repairs_them() {
    let place = measured("");
    place.run(["log", "append", "raw", "--amends", "4", "12"]).fails("MR7015", 1);
    let text =
        application("").replace("[logs.raw]", "[logs.raw]\namendable = true\namend_count = 3\namend_age = \"1h\"");
    place.write("millrace.toml", &text);
    let up = place.run(["up", "--dry-run"]).ok();
    assert!(up.text().contains("log raw would be updated; amendable"), "{}", up.text());
    place.run(["up"]).ok();
    assert!(place.run(["up"]).ok().text().contains("log raw unchanged"));
    let said = place.run(["log", "append", "raw", "--amends", "4", "99"]).ok();
    assert_eq!(said.text(), "1 of 3 amendments of log 'raw' wait for a repair\n");
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    let listed = place.run(["-n", &address, "repair", "ls"]).ok();
    assert!(listed.text().contains("1 of 3 amendments of log 'raw' wait for a repair, due at"), "{}", listed.text());
    let why = place.run(["-n", &address, "why", "raw"]).ok();
    assert!(why.text().contains("1 of 3 amendments of log 'raw' wait"), "{}", why.text());
    // Two at once, by lines; the newest of each record counts.
    place.feed(["-n", &address, "log", "append", "raw", "--amends", "3", "--lines"], b"30\n12\n").ok();
    eventually("the host has applied it", || place.records("mean")[3] == "21.0");
    assert_eq!(place.records("raw"), ["20", "40", "30", "12"]);
    let repairs = place.run(["--json", "repair", "ls"]).ok().objects();
    let of = (&repairs[0]["phase"], &repairs[0]["auto"], &repairs[0]["reason"], &repairs[0]["records"]);
    assert_eq!(of, (&json!("applied"), &json!(true), &json!("3 amendments"), &json!(1)));
    place.run(["log", "append", "raw", "--amends", "9", "1"]).fails("MR2105", 1);
    place.feed(["log", "append", "raw", "--amends", "3", "--lines"], b"").fails("MR7003", 2);
    for wrong in [&["--amends", "0"][..], &["--amends", "1", "--key", "k"]] {
        let refused = place.run([&["log", "append", "raw", "1"], wrong].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}

#[test]
fn the_newest_record_is_one_that_no_repair_made_void() {
    let place = measured("");
    place.run(["log", "append", "other", "2"]).ok();
    place.run(["repair", "run", "other", "--at", "2", "--void"]).ok();
    place.run(["repair", "apply", "1"]).ok();
    assert_eq!(place.run(["log", "get", "other"]).ok().text(), "1\n");
    place.run(["log", "get", "other", "2"]).fails("MR7006", 1);
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    assert_eq!(place.run(["-n", &address, "log", "get", "other"]).ok().text(), "1\n");
}

#[test]
fn an_amendment_of_a_record_of_a_streamed_run_holds_no_repair_back() {
    let place = Place::empty();
    place.write(
        "f.py",
        "def live(record, ctx):\n    ctx.append('seen', record.data)\n\n\
         def twice(record, ctx):\n    ctx.append('double', str(2 * float(record.data)))\n",
    );
    let function = |name: &str, on: &str, more: &str| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:{name}\"\non = [\"{on}\"]\n{more}\n"
        )
    };
    let logs = "[logs.raw]\namendable = true\namend_count = 1\n[logs.other]\namendable = true\namend_count = 1\n[logs.seen]\n[logs.double]\n";
    let functions = [function("live", "raw", "streamed = true"), function("twice", "other", "")].concat();
    place.write("millrace.toml", &format!("[namespace]\nsegment_size = \"1MiB\"\n{logs}{functions}"));
    place.run(["up"]).ok();
    let host = place.serve_tcp(["--name", "farm"]);
    place.run(["log", "append", "raw", "1"]).ok();
    place.run(["log", "append", "other", "1"]).ok();
    place.idle();
    place.run(["log", "append", "raw", "--amends", "1", "5"]).ok();
    eventually("the record is amended", || place.records("raw") == ["5"]);
    place.run(["log", "append", "other", "--amends", "1", "7"]).ok();
    eventually("another log is repaired", || place.records("double") == ["14.0"]);
    // What a streamed run has left stays, and the repair says so.
    assert_eq!(place.records("seen"), ["1"]);
    let show = json(&place, &["repair", "show", "1"]);
    assert_eq!(show["phase"], "applied", "{show}");
    assert_eq!(show["not_run"], json!([{ "function": "live", "runs": 1, "unable": true }]), "{show}");
    drop(host);
}

#[test]
fn a_plan_of_records_that_have_left_their_log_says_what_can_still_be_corrected() {
    let place = measured("");
    place.run(["log", "set", "raw", "--history", "2"]).ok();
    let said = place.run(["repair", "plan", "raw", "--at", "1..3"]).fails("MR7004", 1);
    let expected = "no longer has 2 records between 1 and 2; its oldest record is 3; record 3 can still be corrected";
    assert!(said.stderr.contains(expected), "{}", said.stderr);
    let run = place.run(["repair", "run", "raw", "--at", "1..3", "--void"]).fails("MR7004", 1);
    assert!(run.stderr.contains(expected), "{}", run.stderr);
    let host = place.serve();
    place.run(["repair", "plan", "raw", "--at", "2"]).fails("MR7004", 1);
    place.run(["repair", "plan", "raw", "--at", "3"]).ok();
    drop(host);
}

#[test]
fn a_repair_lists_the_runs_that_it_leaves_out_because_of_their_effects() {
    let place = measured("");
    place.write("values.csv", "seqno,value\n2,39\n");
    let said = place.run(["repair", "run", "raw", "--values", "values.csv"]).ok();
    let expected =
        "not run    1 run of notify, which may have effects outside the namespace; the records that they appended stay";
    assert!(said.text().contains(expected), "{}", said.text());
    let show = json(&place, &["repair", "show", "1"]);
    assert_eq!(show["not_run"], json!([{ "function": "notify", "runs": 1 }]));
    place.run(["repair", "run", "1", "--run-external", "notify"]).fails("MR7003", 2);
    place.run(["repair", "abandon", "1"]).ok();
    let args = ["repair", "run", "raw", "--values", "values.csv", "--run-external", "notify"];
    let run = json(&place, &args);
    assert_eq!((&run["phase"], &run["not_run"]), (&json!("ready"), &json!([])), "{run}");
    assert_eq!(run["run_external"], json!(["notify"]));
}

#[test]
fn records_are_named_by_their_times() {
    let place = measured("");
    place.run(["log", "append", "raw", "50"]).ok();
    let records = place.run(["--json", "log", "get", "raw", "--all"]).ok().objects();
    let time = |seqno: usize| records[seqno - 1]["time"].as_str().unwrap();
    // The first four have the time of their batch.
    let of_four = format!("{}..{}", time(1), time(4));
    let plan = json(&place, &["repair", "plan", "raw", "--at", &of_four]);
    assert_eq!((&plan["corrects"]["records"], &plan["corrects"]["range"]), (&json!(4), &json!([1, 4])));
    let plan = json(&place, &["repair", "plan", "raw", "--at", &format!("{}..", time(5))]);
    assert_eq!(plan["corrects"]["range"], json!([5, 5]));
    place.run(["repair", "plan", "raw", "--at", "..2020-01-01T00:00:00Z"]).fails("MR7003", 2);
    place.run(["repair", "plan", "raw", "--at", "12:00..13:00"]).fails("MR7003", 2);
    let run = ["repair", "run", "raw", "--at", &of_four, "--values", "-"];
    place.feed(run, b"value\n20\n39\n30\n10\n").ok();
    let diff = place.run(["--json", "repair", "diff", "1", "raw"]).ok().objects();
    assert_eq!(diff.len(), 1);
    assert_eq!((&diff[0]["seqno"], &diff[0]["new"]["data"]), (&json!(2), &json!("39")));
    place.run(["repair", "diff", "1", "nosuch"]).fails("MR2101", 1);
}

#[test]
fn a_diff_of_many_records_plots_and_counts_all_of_them() {
    let place = measured("");
    place.run(["log", "create", "many"]).ok();
    let lines = |first: u32| (first..first + 1500).map(|n| format!("{n}\n")).collect::<String>();
    place.feed(["log", "append", "many", "--lines"], lines(1).as_bytes()).ok();
    let values = format!("value\n{}", lines(2));
    place.feed(["repair", "run", "many", "--at", "1..1500", "--values", "-"], values.as_bytes()).ok();
    let said = place.run(["repair", "diff", "1"]).ok();
    for expected in ["… and 1300 records more", "many  @1..1500  1 to 1501", "many     1500        0    0      0"] {
        assert!(said.text().contains(expected), "{expected} is not in\n{}", said.text());
    }
}

#[test]
fn a_graph_that_is_followed_is_written_again() {
    let place = measured("");
    place.run(["graph", "--follow", "--format", "dot"]).fails("MR1006", 2);
    let file = place.path().join("graph.json");
    let follow = ["graph", "--follow", "--every", "100ms", "--out", "graph.json"];
    let mut followed = place.command(follow).spawn().unwrap();
    let events = || {
        let graph: Option<Value> = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        graph.and_then(|graph| graph["events"].as_u64()).unwrap_or(0)
    };
    eventually("it is written", || events() > 0);
    let before = events();
    place.run(["log", "append", "other", "2"]).ok();
    eventually("it is written again", || events() > before);
    followed.kill().unwrap();
    followed.wait().unwrap();
}

#[test]
fn a_plan_judges_each_run_by_the_revision_that_it_ran() {
    let place = measured("");
    // Today `notify` may not use the network, and `mean` may.
    let today = application("").replace("network = true", "");
    let today = today.replace("on = [\"raw\"]\n", "on = [\"raw\"]\nnetwork = true\n");
    place.write("millrace.toml", &today);
    place.run(["up"]).ok();
    place.run(["log", "append", "raw", "50"]).ok();
    let host = place.serve();
    place.idle();
    drop(host);
    place.write("values.csv", "seqno,value\n2,39\n");
    let plan = json(&place, &["repair", "plan", "raw", "--values", "values.csv"]);
    assert_eq!(plan["not_run"], json!([{ "function": "notify", "runs": 1, "reason": "external" }]), "{plan}");
    let run = json(&place, &["repair", "run", "raw", "--values", "values.csv"]);
    assert_eq!((&run["phase"], &run["not_run"]), (&json!("ready"), &json!([{ "function": "notify", "runs": 1 }])));
    assert_eq!(run["counts"]["replayed"], 4, "{run}");
    place.run(["repair", "abandon", "1"]).ok();
    let plan = json(&place, &["repair", "plan", "raw", "--at", "5"]);
    assert_eq!(plan["not_run"], json!([{ "function": "mean", "runs": 1, "reason": "external" }]), "{plan}");
}

#[test]
fn a_plan_and_a_repair_name_the_topics_that_keep_old_records() {
    let place = measured("");
    // As a host notes it when the log begins to feed the topic.
    let namespace = millrace_node::Namespace::open(&place.namespace()).unwrap();
    let id = namespace.log("mean").unwrap().id();
    let note = json!([{ "topic": "smooth", "log": "mean", "born": 1, "since": 1, "id": id }]).to_string();
    let noted = namespace.journal().commit(|tx| {
        let log = tx.create_log(&"_feeds".parse().unwrap(), 4)?;
        tx.append(&log, note.as_bytes(), millrace_wire::EventId::NONE, 0)
    });
    noted.unwrap();
    drop(namespace);
    place.write("values.csv", "seqno,value\n2,39\n");
    let plan = ["repair", "plan", "raw", "--values", "values.csv"];
    let kept = json!([{ "log": "mean", "topic": "smooth" }]);
    let object = json(&place, &plan);
    assert_eq!((&object["topics"], &object["complete"]), (&kept, &json!(false)), "{object}");
    let line = "topics     topic smooth keeps the old records of mean, and so do its subscribers and mirrors";
    let text = place.run(plan).ok();
    assert!(text.text().contains(line), "{}", text.text());
    let run = place.run(["repair", "run", "raw", "--values", "values.csv"]).ok();
    assert!(run.text().contains(line), "{}", run.text());
    assert_eq!(json(&place, &["repair", "show", "1"])["topics"], kept);
    let why = place.run(["why", "raw"]).ok();
    assert!(why.text().contains("these topics keep their old records: smooth"), "{}", why.text());
    place.run(["repair", "apply", "1"]).ok();
    assert_eq!(json(&place, &["repair", "show", "1"])["topics"], kept);
    // Nothing of the topic's log changes here.
    let other = json(&place, &["repair", "plan", "other", "--at", "1"]);
    assert_eq!((&other["topics"], &other["complete"]), (&json!([]), &json!(true)), "{other}");
}

#[test]
fn a_plan_names_corrected_records_that_it_would_overwrite() {
    let place = measured("");
    place.feed(["repair", "run", "mean", "--at", "2", "--values", "-"], b"value\n29\n").ok();
    place.run(["repair", "apply", "1"]).ok();
    place.write("values.csv", "seqno,value\n2,39\n");
    let plan = ["repair", "plan", "raw", "--values", "values.csv"];
    let object = json(&place, &plan);
    assert_eq!(
        object["overwrites"],
        json!([{ "log": "mean", "repair": 1, "records": 1, "range": [2, 2] }]),
        "{object}"
    );
    let text = place.run(plan).ok();
    assert!(text.text().contains("overwrites") && text.text().contains("that repair 1 corrected"), "{}", text.text());
}

#[test]
fn the_history_of_a_repair_whose_rollback_was_rolled_back_is_the_repaired_one() {
    let place = measured("");
    place.feed(["repair", "run", "raw", "--at", "2", "--values", "-"], b"value\n38\n").ok();
    place.run(["repair", "apply", "1"]).ok();
    let repaired = |original: bool| {
        let trace = json(&place, &["trace", "raw@2"]);
        let record = &trace["root"]["record"];
        assert_eq!(record["repaired"]["repair"], if original { Value::Null } else { json!(1) }, "{trace}");
        place.records("mean")[1].clone()
    };
    assert_eq!(repaired(false), "29.0");
    let undone = json(&place, &["repair", "rollback", "1"])["repair"].to_string();
    assert_eq!(repaired(true), "30.0");
    let again = json(&place, &["repair", "rollback", &undone])["phase"].clone();
    assert_eq!((again, repaired(false)), (json!("applied"), "29.0".to_owned()));
}

#[test]
fn a_very_deep_tree_of_effects_ends_in_json_at_its_limit() {
    let place = Place::empty();
    place.write("f.py", "def next(record, ctx):\n    if record.seqno < 900: ctx.append('deep', b'x')\n");
    let application = "[namespace]\nsegment_size = \"1MiB\"\n[logs.deep]\n[functions.next]\nruntime = \"python\"\n\
                       code = \"f.py\"\nhandler = \"f:next\"\non = [\"deep\"]\n";
    place.write("millrace.toml", application);
    place.run(["up"]).ok();
    place.run(["log", "append", "deep", "x"]).ok();
    let host = place.serve();
    place.idle();
    drop(host);
    let said = place.run(["--json", "trace", "deep@1", "--depth", "100000", "--limit", "100000"]).ok();
    assert!(said.text().matches("\"run\"").count() == 200 && said.text().contains("\"more\":1399"));
}
