//! Programs that use the namespace by its files, such as the command line: what their calls return is told as well.

use crate::{reported::Fact, world::Pen};
use millrace_node::{
    AppendOptions, Code, FunctionSpec, Namespace, NewRecord, Result, Runtime, functions,
    links::{Links, RelayOptions},
};
use millrace_wire::table::{Condition, TableEntry, TableRequest};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, thread};

/// Where nobody listens.
fn dead(what: &str) -> String {
    format!("mr://127.0.0.1:1/{what}/x")
}

fn script(namespace: &Namespace) -> PathBuf {
    let path = namespace.dir().join("script").join("run.sh");
    if !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\ntrue\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    path
}

fn deploy(namespace: &Namespace, name: &str) -> Result<()> {
    let mut spec = FunctionSpec::new(name.parse()?, Runtime::Oneshot);
    spec.on = vec!["idle".parse()?];
    spec.command = vec!["./run.sh".into()];
    functions::deploy(namespace, &spec, &script(namespace)).map(drop)
}

fn relay(namespace: &Namespace, name: &str) -> Result<()> {
    let options = RelayOptions { name: Some(name.parse()?), ..RelayOptions::default() };
    Links::of(namespace).add_relay(&dead(name), "idle", &options).map(drop)
}

/// What a life will need, made while flushes get on.
pub fn prepare(namespace: &Namespace, life: u64) {
    for client in ["tcp", "unix"] {
        namespace.create_log(&format!("going-{client}-{life}-pressed").parse().unwrap(), 10).unwrap();
    }
    for name in [format!("going-{life}"), format!("given-up-{life}")] {
        deploy(namespace, &name).unwrap();
    }
    for name in [format!("going-{life}"), format!("stands-{life}")] {
        relay(namespace, &name).unwrap();
    }
    let stands = Links::of(namespace).relay(&format!("stands-{life}")).unwrap();
    let key = millrace_node::links::LinkKey::Relay(stands.id);
    Links::of(namespace).stop(&key, Code::LinkStopped.error("somebody wanted it"));
    for peer in [format!("going-{life}"), format!("anew-{life}")] {
        namespace.append(&dead(&peer), b"nobody is there", AppendOptions::default()).unwrap();
    }
    for _ in 0..3 {
        namespace.append("small", b"small", AppendOptions::default()).unwrap();
    }
}

/// Does one thing on a thread of its own, and notes what is true once it has returned.
fn does(pen: &Pen, work: impl FnOnce(&Namespace) -> Result<Vec<Fact>> + Send + 'static) {
    let pen = pen.clone();
    thread::spawn(move || {
        // The process may die meanwhile.
        work(&pen.namespace).unwrap_or_default().into_iter().for_each(|fact| pen.note(fact));
    });
}

/// Everything that is done while flushes are held back.
pub fn work(pen: &Pen) {
    let (life, text) = (pen.phase.life, pen.name_of("file"));
    records(pen, &text);
    tables(pen);
    does(pen, move |namespace| {
        let before = namespace.log("small")?.latest();
        namespace.trim_log(&"small".parse()?, before, true)?;
        Ok(vec![Fact::Trimmed { log: "small".into(), before }])
    });
    let sends = pen.phase.sends();
    does(pen, move |namespace| {
        if !sends {
            return Ok(Vec::new());
        }
        let memory = AppendOptions { durability: Some(millrace_node::Durability::Memory), ..AppendOptions::default() };
        let count = namespace.append("in", b"to be idle", memory)?.seqno;
        namespace.wait_idle(std::time::Duration::from_secs(100))?;
        Ok(vec![Fact::Ended { function: "copy".into(), count }])
    });
    does(pen, move |namespace| {
        let name = format!("new-{life}");
        deploy(namespace, &name)?;
        Ok(vec![Fact::Function { name }])
    });
    does(pen, move |namespace| {
        let name = format!("going-{life}");
        functions::remove(namespace, &name.parse()?)?;
        Ok(vec![Fact::NoFunction { name }])
    });
    does(pen, move |namespace| {
        let name = format!("given-up-{life}");
        functions::give_up(namespace, &name.parse()?)?;
        Ok(vec![Fact::NoFunction { name }])
    });
    links(pen, life);
    does(pen, |namespace| {
        let seen = namespace.inspect(|namespace| namespace.logs())?;
        let raw = seen.into_iter().find(|log| &*log.name == "raw");
        Ok(raw.map(|log| Fact::Reaches { log: "raw".into(), latest: log.latest }).into_iter().collect())
    });
}

fn records(pen: &Pen, text: &str) {
    let record = |seqno: u64, data: &str| Fact::Record { log: "raw".into(), seqno, data: data.into(), id: None };
    let data = format!("{text}-one");
    does(pen, move |namespace| {
        let receipt = namespace.append("raw", data.as_bytes(), AppendOptions::default())?;
        Ok(vec![record(receipt.seqno, &data)])
    });
    let data = format!("{text}-stream");
    does(pen, move |namespace| {
        let one = NewRecord { log: "raw".into(), payload: data.clone().into_bytes() };
        let mut facts = Vec::new();
        namespace.append_many([Ok(one)], AppendOptions::default(), |receipts| {
            facts.extend(receipts.iter().map(|receipt| record(receipt.seqno, &data)));
        })?;
        Ok(facts)
    });
    does(pen, |namespace| {
        let latest = namespace.latest("raw")?;
        Ok(vec![Fact::Reaches { log: "raw".into(), latest }])
    });
}

fn tables(pen: &Pen) {
    let version = |namespace: &Namespace, request: &TableRequest<'_>| {
        let answer = namespace.ask_table("table", request, AppendOptions::default())?;
        let told = |entry: &TableEntry| Fact::Version { key: "key".into(), version: entry.version };
        Ok(answer.entries.iter().map(told).collect())
    };
    does(pen, move |namespace| {
        let condition = Condition::Always;
        version(namespace, &TableRequest::Put { key: b"key", value: b"1", condition, ttl_ms: 0 })
    });
    does(pen, move |namespace| version(namespace, &TableRequest::Get { key: b"key" }));
}

fn links(pen: &Pen, life: u64) {
    does(pen, move |namespace| {
        let name = format!("new-{life}");
        relay(namespace, &name)?;
        Ok(vec![Fact::Relay { name, stopped: false }])
    });
    does(pen, move |namespace| {
        let name = format!("going-{life}");
        Links::of(namespace).remove_relay(&name, true)?;
        Ok(vec![Fact::NoRelay { name }])
    });
    does(pen, move |namespace| {
        let name = format!("stands-{life}");
        Links::of(namespace).resume_relay(&name, false, None)?;
        Ok(vec![Fact::Relay { name, stopped: false }])
    });
    does(pen, move |namespace| {
        let name = format!("127.0.0.1_1_going-{life}");
        Links::of(namespace).remove_peer(&name, true)?;
        Ok(vec![Fact::NoPeer { name }])
    });
    does(pen, move |namespace| {
        let name = format!("127.0.0.1_1_anew-{life}");
        Links::of(namespace).reset_outbox(&name, false)?;
        let generation = Links::of(namespace).peer(&name)?.course.generation;
        Ok(vec![Fact::Peer { name, generation }])
    });
}
