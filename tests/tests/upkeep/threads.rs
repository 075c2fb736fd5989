//! A host that loses any one of its threads ends as a whole, says so, and the next one goes on.

use super::copying;
#[path = "../storm/thread_exit.rs"]
mod thread_exit;
use millrace_node::{Host as Running, HostEvent, HostOptions, Namespace};
use millrace_tests::{Host, Place, end, eventually, raw};
use millrace_wire::protocol::{CreateLog, Tail};
use std::{collections::BTreeSet, env, fs, fs::File, path::Path, process::Command, sync::Arc, thread, time::Duration};

/// Threads that come and go by themselves; nobody waits for them longer than they are good for.
const PASSING: [&str; 2] = ["millrace-dial", "child-starter"];

/// A host whose threads are all there: it runs functions, drives a link, follows a log for a client.
fn busy(place: &Place, stderr: &Path) -> (Host, [raw::Client; 2]) {
    let mut command = place.command(["--json", "serve", "--listen", "127.0.0.1:0", "--name", "farm"]);
    command.stderr(File::create(stderr).unwrap());
    let host = Host::start(command);
    let mut following = raw::Client::connect(host.port());
    following.send(9, &Tail { log: "out", from: 1, incarnation: 0, credit: 1, durability: None });
    let mut asking = raw::Client::connect(host.port());
    asking.send(9, &CreateLog { log: "in", history: 100_000 });
    place.run(["log", "append", "in", "x"]).ok();
    (host, [following, asking])
}

fn named(pid: u32, name: &str) -> Option<u32> {
    thread_exit::threads(pid).into_iter().find(|tid| thread_exit::name(pid, *tid) == name)
}

#[test]
fn a_host_that_loses_any_of_its_threads_ends_and_says_which() {
    let place = copying();
    place.run(["log", "create", "far"]).ok();
    place.run(["relay", "add", "far", "mr://127.0.0.1:9/edge/far"]).ok();
    let stderr = place.path().join("stderr");
    let (host, clients) = busy(&place, &stderr);
    let names = || -> BTreeSet<String> {
        let all = thread_exit::threads(host.pid()).into_iter().map(|tid| thread_exit::name(host.pid(), tid));
        all.filter(|name| !name.is_empty() && !PASSING.contains(&&**name)).collect()
    };
    let expected =
        ["millrace", "millrace-guard", "millrace-keeper", "millrace-link", "millrace-links", "millrace-worker"];
    eventually("all threads are there", || expected.iter().all(|name| names().contains(*name)));
    let names = names();
    println!("{names:?}");
    drop((host, clients));
    let mut all = 0;
    for name in &names {
        let (host, clients) = busy(&place, &stderr);
        let pid = host.pid();
        let (mut ended, mut looks) = (false, 0);
        eventually(name, || {
            looks += 1;
            ended = named(pid, name).is_some_and(|tid| thread_exit::end_thread(pid, tid).unwrap());
            // Some are there only while there is something for them to do.
            ended || (looks > 200 && !expected.contains(&&**name))
        });
        if !ended {
            continue;
        }
        all += 1;
        assert_eq!(host.ended(), 1, "the end of '{name}'");
        let said = fs::read_to_string(&stderr).unwrap();
        let reported = if name == "millrace" { "main" } else { name };
        assert!(said.contains(&format!("error[MR5004]: thread '{reported}")), "the end of '{name}': {said}");
        drop(clients);
    }
    assert!(all >= expected.len(), "{all}");
    let _last = place.serve();
    place.idle();
    assert_eq!(place.records("in"), place.records("out"));
}

const PANICS: &str = "MILLRACE_TEST_PANICS";

/// Who hears of runs is called on the host's own threads, and stands for any of them that comes upon what should not be.
#[test]
fn a_host_whose_thread_panics_ends_as_a_whole() {
    if let Some(dir) = env::var_os(PANICS) {
        let namespace = Namespace::open(Path::new(&dir)).unwrap();
        let observer: Arc<dyn Fn(&HostEvent<'_>) + Send + Sync> = Arc::new(|_| panic!("the wheel broke"));
        let _host =
            Running::start(namespace, HostOptions { observer: Some(observer), ..HostOptions::default() }).unwrap();
        thread::sleep(Duration::from_secs(600));
        return;
    }
    let place = copying();
    place.run(["log", "append", "in", "x"]).ok();
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", "threads::a_host_whose_thread_panics_ends_as_a_whole", "--nocapture"]);
    again.env(PANICS, place.namespace());
    let ended = end(again, b"");
    assert!(ended.code == 1 && ended.stderr.contains("the wheel broke"), "{ended:#?}");
    assert!(ended.stderr.contains("error[MR5005]: thread 'millrace-"), "{ended:#?}");
    let _next = place.serve();
    place.idle();
    assert_eq!(place.records("out"), ["x"], "what was published before stays, and is not done again");
}
