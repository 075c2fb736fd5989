//! Repairs across namespaces: of one host, and of hosts that are killed meanwhile.

use millrace_tests::{Host, Place, Port, eventually};
use serde_json::Value;
use std::{thread, time::Duration};

const EDGE: &str = "
def smooth(record, ctx):
    before = float(ctx.get('raw', record.seqno - 1).data) if record.seqno > 1 else float(record.data)
    ctx.append('smooth', str((float(record.data) + before) / 2))

def report(record, ctx):
    ctx.append('TARGET', record.data)
";
const CLOUD: &str = "
def add(record, ctx):
    last = ctx.latest('sum')
    before = float(ctx.get('sum', last).data) if last else 0.0
    ctx.append('sum', str(before + float(record.data)))
";

fn function(name: &str, on: &str, more: &str) -> String {
    format!(
        "[functions.{name}]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:{name}\"\non = [\"{on}\"]\n\
         ordered = true\n{more}\n"
    )
}

/// A namespace that receives readings.
fn cloud(log: &str) -> Place {
    let place = Place::empty();
    place.write("f.py", CLOUD);
    place.write("millrace.toml", &format!("[logs.{log}]\n[logs.sum]\n{}", function("add", log, "")));
    place.run(["up"]).ok();
    place
}

/// A namespace that smooths readings; those above go to a log elsewhere.
fn edge(target: &str) -> Place {
    let place = Place::empty();
    place.write("f.py", &EDGE.replace("TARGET", target));
    let (smooth, report) =
        (function("smooth", "raw", ""), function("report", "smooth", &format!("sends = [\"{target}\"]")));
    place.write("millrace.toml", &format!("[logs.raw]\n[logs.smooth]\n{smooth}{report}"));
    place.run(["up"]).ok();
    place
}

/// A host on a port that it keeps.
struct Mortal {
    place: Place,
    port: Port,
    host: Option<Host>,
}

impl Mortal {
    fn new(place: Place, port: Port) -> Self {
        let mut mortal = Self { place, port, host: None };
        mortal.start();
        mortal
    }

    fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        self.host = Some(Host::start(self.place.command(["--json", "serve", "--listen", &listen, "--name", "farm"])));
    }

    fn restart(&mut self) {
        self.host = None;
        self.start();
    }

    fn repair(&self, number: &str) -> Value {
        self.place.run(["--json", "repair", "show", number]).ok().object()
    }

    fn phase(&self) -> String {
        let repairs = self.place.run(["--json", "repair", "ls"]).ok().objects();
        repairs.last().map_or(String::new(), |repair| repair["phase"].as_str().unwrap().to_owned())
    }
}

#[test]
fn two_namespaces_of_one_host_are_repaired_together_and_rolled_back_together() {
    let port = Port::reserve();
    let target = format!("mr://127.0.0.1:{port}/cloud/readings");
    let (edge, cloud) = (edge(&target), cloud("readings"));
    let (a, b) = (edge.namespace(), cloud.namespace());
    let served = [format!("edge={}", a.display()), format!("cloud={}", b.display())];
    let host = Host::start(edge.command(["serve", &served[0], &served[1], "--listen", &format!("127.0.0.1:{port}")]));
    edge.feed(["log", "append", "raw", "--lines"], b"10\n90\n12\n14\n").ok();
    eventually("all messages are summed", || cloud.records("sum").len() == 4);
    assert_eq!(cloud.records("sum"), ["10.0", "60.0", "111.0", "124.0"]);

    // Without the other namespace, the messages would be stale there.
    edge.write("right.json", "{\"seqno\": 2, \"value\": \"10\"}\n");
    let plan = edge.run(["--json", "repair", "plan", "raw", "--values", "right.json"]).ok().object();
    assert_eq!(plan["not_sent"][0]["records"], 2, "{plan}");
    edge.run(["repair", "run", "raw", "--values", "right.json"]).fails("MR7019", 1);
    let first = edge.run(["--json", "repair", "ls"]).ok().objects()[0]["repair"].to_string();
    edge.run(["repair", "abandon", &first]).ok();

    let address = format!("mr://127.0.0.1:{port}/cloud");
    let with = ["repair", "plan", "raw", "--values", "right.json", "--with", &address];
    let plan = edge.run([&["--json"], &with[..]].concat()).ok().object();
    assert_eq!((&plan["stops"], &plan["not_sent"]), (&Value::Bool(false), &serde_json::json!([])), "{plan}");
    let run = ["repair", "run", "raw", "--values", "right.json", "--with", &address];
    let ready = edge.run([&["--json"], &run[..]].concat()).ok().object();
    let number = ready["repair"].to_string();
    assert_eq!(ready["phase"], "ready", "{ready}");
    assert_eq!(cloud.records("sum"), ["10.0", "60.0", "111.0", "124.0"], "nobody sees anything of it yet");
    let part = cloud.run(["--json", "repair", "ls"]).ok().objects()[0].clone();
    assert_eq!((&part["phase"], &part["part_of"]["repair"]), (&Value::from("ready"), &ready["repair"]));
    let of_cloud = part["repair"].to_string();
    cloud.run(["repair", "apply", &of_cloud]).fails("MR7017", 1);

    edge.run(["repair", "apply", &number]).ok();
    assert_eq!(edge.records("smooth"), ["10.0", "10.0", "11.0", "13.0"]);
    eventually("the other namespace has switched", || cloud.records("sum") == ["10.0", "20.0", "31.0", "44.0"]);
    assert_eq!(cloud.records("readings"), ["10.0", "10.0", "11.0", "13.0"]);
    cloud.run(["repair", "rollback", &of_cloud]).fails("MR7017", 1);
    edge.run(["repair", "rollback", &number]).ok();
    eventually("and switched back", || cloud.records("sum") == ["10.0", "60.0", "111.0", "124.0"]);
    assert_eq!(edge.records("smooth"), ["10.0", "50.0", "51.0", "13.0"]);
    drop(host);
}

#[test]
fn a_repair_over_a_relay_is_old_or_new_in_both_namespaces_though_both_hosts_are_killed() {
    let there = Port::reserve();
    let target = format!("mr://127.0.0.1:{there}/farm/unused");
    let mut cloud = Mortal::new(cloud("readings"), there);
    let mut edge = Mortal::new(edge(&target), Port::reserve());
    edge.place.run(["function", "rm", "report", "--force"]).ok();
    let address = format!("mr://127.0.0.1:{}/farm", cloud.port);
    edge.place.run(["relay", "add", "smooth", &format!("{address}/readings")]).ok();
    edge.place.feed(["log", "append", "raw", "--lines"], b"10\n90\n12\n14\n").ok();
    eventually("all records are summed", || cloud.place.records("sum").len() == 4);
    let (old, new) = (["10.0", "60.0", "111.0", "124.0"], ["10.0", "20.0", "31.0", "44.0"]);

    // While a host is missing, the repair waits, and nothing else does.
    cloud.host = None;
    edge.place.write("right.json", "{\"seqno\": 2, \"value\": \"10\"}\n");
    let run = edge.place.command(["repair", "run", "raw", "--values", "right.json", "--with", &address]);
    let waiting = thread::spawn(|| millrace_tests::end(run, b""));
    eventually("it says who is missing", || {
        let repairs = edge.place.run(["--json", "repair", "ls"]).ok().objects();
        repairs.first().is_some_and(|repair| repair["across"][0]["error"][0].is_string())
    });
    let number = edge.place.run(["--json", "repair", "ls"]).ok().objects()[0]["repair"].to_string();
    edge.place.feed(["log", "append", "raw", "--lines"], b"14\n").ok();
    eventually("runs go on", || edge.place.records("smooth").len() == 5);
    cloud.start();
    waiting.join().unwrap().ok();
    let (old, new) = ([&old[..], &["138.0"]].concat(), [&new[..], &["58.0"]].concat());
    eventually("the last record is summed", || cloud.place.records("sum") == old);

    // Both hosts are killed again and again, from the request to the end.
    let apply = edge.place.command(["repair", "apply", &number]);
    let applying = thread::spawn(|| millrace_tests::end(apply, b""));
    for round in 0..6u64 {
        thread::sleep(Duration::from_millis(7 * round));
        match round % 3 {
            0 => cloud.restart(),
            1 => edge.restart(),
            _ => {
                edge.host = None;
                cloud.restart();
                edge.start();
            }
        }
    }
    applying.join().unwrap().ok();
    eventually("it is applied", || edge.repair(&number)["phase"] == "applied");
    eventually("the other side has switched", || cloud.phase() == "applied");
    assert_eq!(cloud.place.records("sum"), new);
    assert_eq!(edge.place.records("smooth"), ["10.0", "10.0", "11.0", "13.0", "14.0"]);
    eventually("both know", || edge.repair(&number)["across"][0]["done"] == true);

    // What is given up here is given up there.
    edge.place.write("other.json", "{\"seqno\": 3, \"value\": \"40\"}\n");
    let run = ["--json", "repair", "run", "raw", "--values", "other.json", "--with", &address];
    let number = edge.place.run(run).ok().object()["repair"].to_string();
    assert_eq!(cloud.phase(), "ready");
    cloud.host = None;
    // It says that it waits.
    assert_eq!(edge.place.run(["repair", "abandon", &number]).code, 0);
    cloud.start();
    eventually("the part is abandoned, too", || cloud.phase() == "abandoned");
    assert_eq!(cloud.place.records("sum"), new);
}
